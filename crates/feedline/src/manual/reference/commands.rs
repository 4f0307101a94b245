//! The page of commands: what each one does, its arguments and flags with defaults, and examples.

use clap::{Arg, Command, CommandFactory};

use super::{cell, code, table};
use crate::flags::Cli;
use crate::terminal;

const INTRODUCTION: &str = "\
# Commands

`feedline COMMAND --help` prints the same in the terminal; `man feedline-run` does, where the manual pages are
installed. Every command has `--help` and `--color WHEN` (`auto`, `always` or `never`: verdicts, errors and warnings
in colours). Settings, from the weakest to the strongest: the workload's file; `--set`, the last one for a key;
flags that stand for a key, such as `--cache`; values of `sweep --over`.

The documentation is in the program. `feedline docs` lists its pages and `feedline docs NAME` prints one;
`feedline docs --search WORD...` finds lines. `feedline docs --man DIR` writes the manual pages, and
`feedline completions SHELL` prints what lets a shell complete commands, workloads, keys and pages.
";

/// Wide enough that no example is broken.
const COLUMNS: usize = 400;

pub(super) fn text() -> String {
    terminal::fix_help_columns(COLUMNS);
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut text = INTRODUCTION.to_owned();
    root.get_subcommands().for_each(|command| add(command, &mut text));
    text
}

fn add(command: &Command, text: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    text.push_str(&format!(
        "\n## {name}\n\n{about}.\n\nUsage: {}\n",
        code(usage.trim_start_matches("Usage: "))
    ));
    let (places, flags): (Vec<&Arg>, Vec<&Arg>) = command
        .get_arguments()
        .filter(|argument| is_listed(argument))
        .partition(|argument| argument.is_positional());
    for (header, arguments) in [("argument", places), ("flag", flags)] {
        if !arguments.is_empty() {
            text.push('\n');
            text.push_str(&table(&[header, "meaning", "default"], arguments.into_iter().map(cells)));
        }
    }
    after(command, text);
    command.get_subcommands().for_each(|inner| add(inner, text));
}

/// The flags of every command are in the introduction.
fn is_listed(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "color", "version"].contains(&argument.get_id().as_str())
}

fn cells(argument: &Arg) -> Vec<String> {
    let values: Vec<String> =
        argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let takes_value = argument.get_num_args().is_some_and(|number| number.takes_values());
    let values = if takes_value { values.join(" ") } else { String::new() };
    let name = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {values}"),
        (None, Some(long)) => format!("--{long} {values}"),
        (Some(short), None) => format!("-{short} {values}"),
        (None, None) => values,
    };
    let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let mut default: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !takes_value {
        default.clear();
    }
    // A default that depends on the workload is a part of the text.
    let stated = help
        .rsplit_once(" [default: ")
        .map(|(text, rest)| (text.to_owned(), rest.trim_end_matches(']').to_owned()));
    let default = match stated {
        Some((text, stated)) => {
            help = text;
            cell(&stated)
        }
        None if default.is_empty() => String::new(),
        None => code(&default.join(" ")),
    };
    for name in argument.get_visible_aliases().unwrap_or_default() {
        help.push_str(&format!("; also `--{name}`"));
    }
    let words: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| takes_value && !argument.is_hide_possible_values_set())
        .map(|word| word.get_name().to_owned())
        .collect();
    // Most texts explain the words.
    if !words.is_empty() && !words.iter().all(|word| help.contains(word.as_str())) {
        help.push_str(&format!("; one of `{}`", words.join("`, `")));
    }
    vec![code(name.trim()), cell(&help), default]
}

/// Examples and notes.
fn after(command: &Command, text: &mut String) {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for block in after.split("\n\n").map(str::trim_end).filter(|block| !block.is_empty()) {
        match block.strip_prefix("Examples:\n") {
            Some(examples) => {
                let lines =
                    examples.lines().map(|line| line.strip_prefix("  ").unwrap_or(line).to_owned() + "\n");
                let lines: String = lines.collect();
                text.push_str(&format!(
                    "\n<!-- example: parsed, an example of --help -->\n```sh\n{lines}```\n"
                ));
            }
            None => {
                let note = block.split_whitespace().collect::<Vec<_>>().join(" ");
                text.push_str(&format!("\n{}\n", cell(&note)));
            }
        }
    }
}
