//! The last lines of stderr, on which progress is drawn again and again, and notes, which scroll above them. Both go
//! through one lock, so that a note never ends up in the middle of progress.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::layout::columns_of;
use crate::terminal;

/// Erases from the cursor to the end of the line, and to the end of the screen.
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// The widths of the lines that are on the screen; empty if there are none.
static SHOWN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The width of stderr, for a line that is drawn now: the terminal may have been resized.
pub(crate) fn width() -> usize {
    terminal::width(&std::io::stderr()).unwrap_or(80)
}

/// The height of stderr.
pub(crate) fn height() -> usize {
    terminal::height(&std::io::stderr()).unwrap_or(24)
}

/// Draws lines in place of those before. Each must be shorter than the terminal is wide, and all of them less high.
pub(crate) fn draw(lines: &[String]) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let drawn = lines.join(&format!("{ERASE_LINE}\n"));
    let below = if shown.len() > lines.len() { ERASE_BELOW } else { "" };
    write(&format!("{}{drawn}{ERASE_LINE}{below}", back(&shown, width())));
    *shown = lines.iter().map(|line| columns_of(line)).collect();
}

/// Removes the lines.
pub(crate) fn clear() {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if !shown.is_empty() {
        write(&format!("{}{ERASE_BELOW}", back(&shown, width())));
        shown.clear();
    }
}

/// Prints a line above the progress lines, which are drawn again later.
pub(crate) fn print(line: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match std::mem::take(&mut *shown) {
        none if none.is_empty() => write(&format!("{line}\n")),
        shown => write(&format!("{}{ERASE_BELOW}{line}\n", back(&shown, width()))),
    }
}

/// Prints a line in place of a progress line that another process may be drawing.
pub(crate) fn interrupt(line: &str) {
    // One write, so that the other process does not draw between erasing and printing.
    write(&format!("{}{line}\n", erased()));
}

/// Removes a progress line that another process may have drawn.
pub(crate) fn take_over() {
    write(&erased());
}

fn erased() -> String {
    if terminal::can_redraw() { format!("\r{ERASE_LINE}") } else { String::new() }
}

/// Moves the cursor to the start of the first line that is shown. In a terminal that has become narrower, a line
/// occupies several rows, and all of them are erased.
fn back(shown: &[usize], width: usize) -> String {
    let rows_of = |columns: &usize| 1 + columns.saturating_sub(1) / width.max(1);
    let rows = shown.iter().map(rows_of).sum::<usize>().saturating_sub(1);
    match rows {
        0 => "\r".to_owned(),
        rows if rows == shown.len() - 1 => format!("\r\x1b[{rows}A"),
        rows => format!("\r\x1b[{rows}A{ERASE_BELOW}"),
    }
}

/// Writes to stderr. Errors are ignored: stderr may be closed.
fn write(text: &str) {
    if super::is_muted() {
        return;
    }
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_a_narrower_terminal_is_erased_as_a_whole() {
        for (shown, width, expected) in [
            (&[][..], 80, "\r"),
            (&[0], 80, "\r"),
            (&[79], 80, "\r"),
            (&[79], 40, "\r\x1b[1A\x1b[J"),
            (&[79], 20, "\r\x1b[3A\x1b[J"),
            (&[5], 0, "\r\x1b[4A\x1b[J"),
            (&[79, 0, 20], 80, "\r\x1b[2A"),
            (&[79, 0, 20], 40, "\r\x1b[3A\x1b[J"),
        ] {
            assert_eq!(back(shown, width), expected, "{shown:?} columns in {width}");
        }
    }
}
