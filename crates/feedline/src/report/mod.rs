//! All output. Reports are made from spec, plan and ledger. Reports go to stdout, notes to stderr; no other module
//! writes to either.

pub(crate) mod audit;
pub(crate) mod capacity;
pub(crate) mod checkpoints;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod folder;
pub(crate) mod hosts;
mod json;
pub(crate) mod layout;
pub(crate) mod listing;
pub(crate) mod mlperf;
pub(crate) mod nodes;
pub(crate) mod page;
pub(crate) mod plan;
pub(crate) mod repeats;
pub(crate) mod requests;
pub(crate) mod result;
pub(crate) mod stall;
pub(crate) mod status;
pub(crate) mod sums;
pub(crate) mod sweep;
mod table;
pub(crate) mod text;
pub(crate) mod traced;
pub(crate) mod validate;

use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use ::report::simulated;
use model::document::DocumentKind;
use model::units::significant;
use model::warning::Warning;
use serde::Serialize;

pub(crate) use json::{pretty, write_lines, write_pretty};
pub(crate) use table::Table;

use crate::exit::Failure;
use crate::terminal::{self, Tone};

/// Whether nothing is printed, because another process of the command prints.
static MUTED: AtomicBool = AtomicBool::new(false);

/// From now on, nothing is printed, or everything is again.
pub(crate) fn mute(is_muted: bool) {
    // Relaxed here and below: the flag publishes no data.
    MUTED.store(is_muted, Ordering::Relaxed);
}

pub(crate) fn is_muted() -> bool {
    MUTED.load(Ordering::Relaxed)
}

/// Writes to stdout. A closed pipe (`feedline ... | head`) is not an error.
pub(crate) fn out(text: &str) -> Result<(), Failure> {
    to_stdout(|stdout| Ok(stdout.write_all(text.as_bytes())?))
}

/// Writes a JSON document to stdout, with its version and DLIO's indent.
pub(crate) fn out_json(kind: DocumentKind, document: &impl Serialize) -> Result<(), Failure> {
    to_stdout(|stdout| write_pretty(stdout, &kind.of(document)))
}

/// The same for a summary, which has its version in the object `feedline`.
pub(crate) fn out_summary(summary: &impl Serialize) -> Result<(), Failure> {
    to_stdout(|stdout| write_pretty(stdout, summary))
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> Result<(), Failure> {
    if is_muted() {
        return Ok(());
    }
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let written = write(&mut stdout).and_then(|()| Ok(stdout.flush()?));
    // Discards what is left in the buffer after an error.
    let _ = stdout.into_parts();
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    match written {
        Err(error) if !error.root_cause().downcast_ref().is_some_and(is_gone) => {
            Err(Failure::incomplete(error.context("cannot write to stdout")))
        }
        _ => Ok(()),
    }
}

/// Writes a line to stderr. Errors are ignored: stderr may be closed.
pub(crate) fn note(line: &str) {
    status::print(line);
}

/// Prints an error, without its remedy.
pub(crate) fn error(text: &str) {
    note(&format!("{} {text}", Tone::Bad.err("error:")));
}

/// Prints a warning that has no separate remedy.
pub(crate) fn caution(text: &str) {
    note(&format!("{} {text}", Tone::Doubtful.err("warning:")));
}

/// Prints warnings with their remedies.
pub(crate) fn warnings(warnings: &[Warning]) {
    warnings.iter().for_each(|warning| warn(&warning.to_string(), &warning.remedy()));
}

/// Prints a warning with its remedy.
pub(crate) fn warn(what: &str, remedy: &str) {
    let (label, help) = (Tone::Doubtful.err("warning:"), Tone::Help.err("help:"));
    note(&format!("{label} {what}\n  {help} {remedy}"));
}

/// A report whose lines fit into the terminal.
pub(crate) fn fitted(text: &str) -> String {
    layout::fitted(text, terminal::columns())
}

/// A text of others on one line: characters that a terminal would act on, or not show, are escaped.
pub(crate) fn printable(text: &str) -> String {
    let escaped = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

/// A label and a path, on two lines if one is too short; with the end of the line.
pub(crate) fn path_line(label: &str, path: impl Display) -> String {
    layout::labelled_path(label, path, terminal::columns()) + "\n"
}

/// A path and facts about it, on two lines if one is too short.
pub(crate) fn path_heading(path: impl Display, what: &str) -> String {
    let line = format!("{path}: {what}");
    match layout::columns_of(&line) <= terminal::columns() {
        true => format!("{line}\n"),
        false => format!("{path}:\n{}\n", fitted(&format!("  {what}"))),
    }
}

/// A field of CSV, quoted if necessary.
pub(crate) fn csv_field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A rate in the unit that reads better: `131 MiB/s`, `3.04 GiB/s`.
pub(crate) fn rate(mib_per_second: f64) -> String {
    // 1023.5 would print as "1024" of the smaller unit.
    match mib_per_second < 1023.5 {
        true => format!("{} MiB/s", significant(mib_per_second)),
        false => format!("{} GiB/s", significant(mib_per_second / 1024.0)),
    }
}

/// A table that fits into the terminal; the first column names the rows. The columns in `right` are aligned to the
/// right.
pub(crate) fn table(
    header: impl IntoIterator<Item = impl Display>,
    right: impl IntoIterator<Item = usize>,
    rows: impl IntoIterator<Item = impl IntoIterator<Item = impl Display>>,
) -> String {
    Table::new(header, right, rows).text()
}

/// The default I/O backend, for snapshots of reports.
#[cfg(test)]
fn posix() -> &'static model::plan::StorePlan {
    use std::sync::LazyLock;

    use store::{Mode, Selection};

    static POSIX: LazyLock<model::plan::StorePlan> =
        LazyLock::new(|| Selection::named("posix", Mode::default()).unwrap().plan());
    &POSIX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_the_unit_that_reads_better() {
        for (rate_of, text) in [
            (0.0, "0.00 MiB/s"),
            (35.26, "35.3 MiB/s"),
            (1023.4, "1023 MiB/s"),
            (1023.6, "1.00 GiB/s"),
            (24_887.0, "24.3 GiB/s"),
        ] {
            assert_eq!(rate(rate_of), text);
        }
    }
}
