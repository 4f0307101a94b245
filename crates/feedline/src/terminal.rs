//! What the terminal of the user can show: its width, and whether text may be coloured. It is looked at once, before
//! the command starts. Without that, as in unit tests, there is no limit and no colour.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use clap::ColorChoice;
use clap::builder::styling::{AnsiColor, Style};

use crate::cluster;

/// The widths at which the help is set: between these, that of the terminal; without a terminal, `COLUMNS` or this.
const HELP_COLUMNS: usize = 100;
const HELP_COLUMNS_MOST: usize = 120;
/// Below this width, lines are left to the terminal: nothing can be arranged in so little space.
const FEWEST_COLUMNS: usize = 20;

/// The terminal, as far as it matters for output.
#[derive(Clone, Copy, Debug)]
struct Terminal {
    /// The width of reports on stdout; `None` if stdout is not a terminal.
    columns: Option<usize>,
    colour_out: bool,
    colour_err: bool,
}

static TERMINAL: OnceLock<Terminal> = OnceLock::new();

/// Looks at the terminal. Colours are chosen by `--color`, then by the environment, then by whether the stream is a
/// terminal. Some launchers give every process a terminal, wherever the output goes; that one does not count.
pub(crate) fn look(choice: ColorChoice) {
    let colour = |is_terminal| is_coloured(choice, is_terminal, |name| std::env::var_os(name));
    let stdout = std::io::stdout();
    let _ = TERMINAL.set(Terminal {
        columns: width(&stdout).filter(|_| !cluster::is_launched()),
        colour_out: colour(stdout.is_terminal() && !cluster::is_launched()),
        colour_err: colour(std::io::stderr().is_terminal()),
    });
}

/// Whether escape sequences may be written to stderr, so that a line can be drawn again.
pub(crate) fn can_redraw() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A text without colours, for a file.
pub(crate) fn without_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, after)| after))
}

/// The width of a stream; `None` if it is not a terminal or does not tell its width.
pub(crate) fn width(stream: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The height of a stream; `None` if it is not a terminal or does not tell its height.
pub(crate) fn height(stream: &impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// The width to which reports on stdout are arranged. Without a terminal there is no limit, so that lines can be
/// searched and cut by other programs.
pub(crate) fn columns() -> usize {
    let columns = TERMINAL.get().and_then(|terminal| terminal.columns);
    columns.map_or(usize::MAX, |columns| columns.max(FEWEST_COLUMNS))
}

thread_local! {
    /// The width of the help that this thread makes, if it does not depend on the terminal.
    static FIXED_HELP_COLUMNS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From now on, the help that this thread makes has this width: it is written to a file.
pub(crate) fn fix_help_columns(columns: usize) {
    FIXED_HELP_COLUMNS.set(Some(columns));
}

/// The width of the help.
pub(crate) fn help_columns() -> usize {
    if let Some(columns) = FIXED_HELP_COLUMNS.get() {
        return columns;
    }
    let from_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = width(&std::io::stdout()).or_else(|| width(&std::io::stderr())).or_else(from_environment);
    columns.unwrap_or(HELP_COLUMNS).clamp(FEWEST_COLUMNS, HELP_COLUMNS_MOST)
}

/// The choice of `--color` in these arguments. It is needed before they are parsed, for errors in them.
pub(crate) fn colour_choice(arguments: &[OsString]) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut arguments = arguments.iter().map(OsString::as_os_str).take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        let value = match argument.to_str() {
            Some("--color") => arguments.next().and_then(OsStr::to_str),
            Some(argument) => argument.strip_prefix("--color="),
            None => None,
        };
        choice = value.and_then(|value| value.parse().ok()).unwrap_or(choice);
    }
    choice
}

/// The conventions of no-color.org and bixense.com/clicolors.
fn is_coloured(choice: ColorChoice, is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let is_on = |name: &str| variable(name).is_some_and(|value| !value.is_empty() && value != "0");
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto if is_on("CLICOLOR_FORCE") => true,
        ColorChoice::Auto => {
            let is_off = variable("CLICOLOR").is_some_and(|value| value == "0");
            let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
            is_terminal && !is_off && !is_dumb
        }
    }
}

/// What a piece of text is, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Doubtful,
    Help,
}

impl Tone {
    fn style(self) -> Style {
        let colour = match self {
            Tone::Good => AnsiColor::Green,
            Tone::Bad => AnsiColor::Red,
            Tone::Doubtful => AnsiColor::Yellow,
            Tone::Help => AnsiColor::Cyan,
        };
        Style::new().bold().fg_color(Some(colour.into()))
    }

    fn paint(self, text: &str, coloured: bool) -> String {
        match coloured {
            true => format!("{style}{text}{style:#}", style = self.style()),
            false => text.to_owned(),
        }
    }

    /// The text in its colour, for stdout.
    pub(crate) fn out(self, text: &str) -> String {
        self.paint(text, TERMINAL.get().is_some_and(|terminal| terminal.colour_out))
    }

    /// The text in its colour, for stderr.
    pub(crate) fn err(self, text: &str) -> String {
        self.paint(text, TERMINAL.get().is_some_and(|terminal| terminal.colour_err))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_removed_from_a_text() {
        let text = format!("a {}m{} b", Style::new().bold(), Style::new().render_reset());
        for (text, plain) in
            [("plain", "plain"), ("", ""), ("\x1b[32mvalid\x1b[0m: m", "valid: m"), (&text, "a m b")]
        {
            assert_eq!(without_colour(text), plain);
        }
    }

    #[test]
    fn the_flag_then_the_environment_then_the_terminal_decide_about_colour() {
        let coloured = |choice, is_terminal, set: &[(&str, &str)]| {
            is_coloured(choice, is_terminal, |name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            })
        };
        let term = ("TERM", "xterm");
        for (choice, is_terminal, set, expected) in [
            (ColorChoice::Auto, true, &[term][..], true),
            (ColorChoice::Auto, false, &[term], false),
            (ColorChoice::Auto, true, &[term, ("NO_COLOR", "1")], false),
            (ColorChoice::Auto, true, &[term, ("NO_COLOR", "")], true),
            (ColorChoice::Auto, true, &[("TERM", "dumb")], false),
            (ColorChoice::Auto, true, &[], false),
            (ColorChoice::Auto, true, &[term, ("CLICOLOR", "0")], false),
            (ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1")], true),
            (ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (ColorChoice::Auto, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
            (ColorChoice::Always, false, &[("NO_COLOR", "1")], true),
            (ColorChoice::Never, true, &[term, ("CLICOLOR_FORCE", "1")], false),
        ] {
            assert_eq!(coloured(choice, is_terminal, set), expected, "{choice:?} {is_terminal} {set:?}");
        }
    }

    #[test]
    fn tones_are_bold_colours() {
        for (tone, colour) in [(Tone::Good, 32), (Tone::Bad, 31), (Tone::Doubtful, 33), (Tone::Help, 36)] {
            assert_eq!(tone.paint("word", true), format!("\x1b[1m\x1b[{colour}mword\x1b[0m"));
            assert_eq!(tone.paint("word", false), "word");
        }
    }

    #[test]
    fn the_choice_is_found_among_the_arguments() {
        for (arguments, choice) in [
            (&["run"][..], ColorChoice::Auto),
            (&["--color", "never", "run"], ColorChoice::Never),
            (&["run", "--color=always"], ColorChoice::Always),
            (&["run", "--color=always", "--color", "never"], ColorChoice::Never),
            (&["run", "--color"], ColorChoice::Auto),
            (&["run", "--color=pink"], ColorChoice::Auto),
            (&["run", "--", "--color=always"], ColorChoice::Auto),
        ] {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            assert_eq!(colour_choice(&arguments), choice, "{arguments:?}");
        }
    }
}
