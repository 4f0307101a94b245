//! The last line of stderr, on which progress is drawn again and again, and notes, which scroll above it. Both go
//! through one lock, so that a note never ends up in the middle of a progress line.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::layout::columns_of;
use crate::terminal;

/// Erases from the cursor to the end of the line, and to the end of the screen.
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// The width of the line that is on the screen; 0 if there is none.
static SHOWN: Mutex<usize> = Mutex::new(0);

/// The width of stderr, for a line that is drawn now: the terminal may have been resized.
pub(crate) fn width() -> usize {
    terminal::width(&std::io::stderr()).unwrap_or(80)
}

/// Draws the line in place of the one before. It must be shorter than the terminal is wide.
pub(crate) fn draw(line: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    write(&format!("{}{line}{ERASE_LINE}", back(*shown, width())));
    *shown = columns_of(line);
}

/// Removes the line.
pub(crate) fn clear() {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if *shown > 0 {
        write(&format!("{}{ERASE_BELOW}", back(*shown, width())));
        *shown = 0;
    }
}

/// Prints a line above the progress line, which is drawn again later.
pub(crate) fn print(line: &str) {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match std::mem::take(&mut *shown) {
        0 => write(&format!("{line}\n")),
        columns => write(&format!("{}{ERASE_BELOW}{line}\n", back(columns, width()))),
    }
}

/// Prints a line in place of a progress line that another process may be drawing.
pub(crate) fn interrupt(line: &str) {
    take_over();
    write(&format!("{line}\n"));
}

/// Removes a progress line that another process may have drawn.
pub(crate) fn take_over() {
    if terminal::can_redraw() {
        write(&format!("\r{ERASE_LINE}"));
    }
}

/// Moves the cursor to the start of the line that is shown. In a terminal that has become narrower, the line occupies
/// several rows, and all of them are erased.
fn back(shown: usize, width: usize) -> String {
    match shown.saturating_sub(1) / width.max(1) {
        0 => "\r".to_owned(),
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
            (0, 80, "\r"),
            (79, 80, "\r"),
            (79, 40, "\r\x1b[1A\x1b[J"),
            (79, 20, "\r\x1b[3A\x1b[J"),
            (5, 0, "\r\x1b[4A\x1b[J"),
        ] {
            assert_eq!(back(shown, width), expected, "{shown} columns in {width}");
        }
    }
}
