//! Tables without borders that fit into the terminal. No number is ever broken, and nothing is lost: a table that is
//! too wide is split into several, each with the columns that name its rows. If even one column does not fit next to
//! the names, each row becomes a list.

use std::fmt::Display;

use super::layout::{columns_of, wrapped};
use crate::terminal;

/// A table. The last column, unless it is aligned to the right, is text that may be wrapped.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
    /// How many of the first columns name a row.
    names: usize,
    /// Columns that a narrow terminal does not show, the first to go first.
    spare: Vec<usize>,
}

/// The least width in which text is wrapped.
const TEXT: usize = 24;

impl Table {
    /// A table whose columns in `right` are aligned to the right.
    pub(crate) fn new(
        header: impl IntoIterator<Item = impl Display>,
        right: impl IntoIterator<Item = usize>,
        rows: impl IntoIterator<Item = impl IntoIterator<Item = impl Display>>,
    ) -> Table {
        let cells = |cell: &dyn Display| cell.to_string();
        let header: Vec<String> = header.into_iter().map(|cell| cells(&cell)).collect();
        let mut is_right = vec![false; header.len()];
        right.into_iter().filter(|column| *column < header.len()).for_each(|column| is_right[column] = true);
        let rows = rows.into_iter().map(|row| row.into_iter().map(|cell| cells(&cell)).collect());
        Table { header, rows: rows.collect(), right: is_right, names: 1, spare: Vec::new() }
    }

    /// The same with this many columns that name a row.
    pub(crate) fn named_by(self, names: usize) -> Table {
        Table { names, ..self }
    }

    /// The same with columns that a narrow terminal does not show.
    pub(crate) fn spares(self, spare: &[usize]) -> Table {
        Table { spare: spare.to_vec(), ..self }
    }

    /// The names of the columns that do not fit into the terminal.
    pub(crate) fn left_out(&self) -> Vec<&str> {
        self.left_out_at(terminal::columns()).iter().map(|column| self.header[*column].as_str()).collect()
    }

    fn left_out_at(&self, width: usize) -> &[usize] {
        let fits = |out: &&[usize]| self.needed(&self.without(out)) <= width;
        // If the table does not fit even without all of them, it is split or becomes a list, with all columns.
        (0..=self.spare.len()).map(|count| &self.spare[..count]).find(fits).unwrap_or_default()
    }

    fn without(&self, out: &[usize]) -> Vec<usize> {
        (0..self.header.len()).filter(|column| !out.contains(column)).collect()
    }

    /// The width of a column.
    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.chain([&self.header[column]]).map(|cell| columns_of(cell)).max().unwrap_or(0)
    }

    /// The least width of a column.
    fn least(&self, column: usize) -> usize {
        let is_text = column + 1 == self.header.len() && !self.right[column] && column >= self.names;
        if is_text { self.natural(column).min(TEXT) } else { self.natural(column) }
    }

    /// The width of a line with these columns: a space before each and one after it.
    fn needed(&self, columns: &[usize]) -> usize {
        columns.iter().map(|column| self.least(*column) + 2).sum::<usize>().saturating_sub(1)
    }

    /// The table for the terminal.
    pub(crate) fn text(&self) -> String {
        self.at(terminal::columns())
    }

    pub(super) fn at(&self, width: usize) -> String {
        let columns = self.without(self.left_out_at(width));
        let (names, figures): (Vec<usize>, Vec<usize>) =
            columns.into_iter().partition(|column| *column < self.names);
        let mut parts = vec![names.clone()];
        for column in figures {
            let fits = |part: &Vec<usize>| self.needed(&[part.as_slice(), &[column]].concat()) <= width;
            match parts.last_mut() {
                Some(part) if fits(part) || part.len() == names.len() => part.push(column),
                _ => parts.push([names.as_slice(), &[column]].concat()),
            }
        }
        if parts.iter().any(|part| self.needed(part) > width) {
            return self.list(width);
        }
        parts.iter().map(|part| self.part(part, width)).collect::<Vec<_>>().join("\n\n")
    }

    /// Some columns as a table.
    fn part(&self, columns: &[usize], width: usize) -> String {
        let (last, before) = match columns.split_last() {
            Some((last, before)) => (*last, before),
            None => return String::new(),
        };
        let room = width.saturating_sub(self.needed(before) + 2);
        let mut lines = Vec::new();
        for row in [&self.header].into_iter().chain(&self.rows) {
            let cell = |column: usize| row.get(column).map_or("", String::as_str);
            let mut line = String::new();
            for &column in before {
                line.push_str(&self.cell(cell(column), column));
            }
            let indent = columns_of(&line) + 1;
            let text = if self.natural(last) > room {
                wrapped(cell(last), 0, room)
            } else {
                self.padded(cell(last), last)
            };
            for (at, part) in text.split('\n').enumerate() {
                let start = if at == 0 { format!("{line} ") } else { " ".repeat(indent) };
                lines.push(format!("{start}{part}").trim_end().to_owned());
            }
        }
        lines.join("\n")
    }

    fn cell(&self, text: &str, column: usize) -> String {
        format!(" {} ", self.padded(text, column))
    }

    fn padded(&self, text: &str, column: usize) -> String {
        let padding = " ".repeat(self.natural(column).saturating_sub(columns_of(text)));
        if self.right[column] { format!("{padding}{text}") } else { format!("{text}{padding}") }
    }

    /// Each row as a list of its columns.
    fn list(&self, width: usize) -> String {
        let block = |row: &Vec<String>| {
            let cells = self.header.iter().zip(row).enumerate().filter(|(_, (_, cell))| !cell.is_empty());
            let lines = cells.map(|(column, (name, cell))| {
                let (indent, gap) =
                    (if column < self.names { 1 } else { 3 }, if name.is_empty() { "" } else { " " });
                wrapped(&format!("{}{name}{gap}{cell}", " ".repeat(indent)), indent + 2, width)
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        self.rows.iter().map(block).collect::<Vec<_>>().join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let rows = [
            ["1", "99.90", "1,234.5", "met", "invalid: on-time, data-verified"],
            ["16", "8.25", "12.5", "not met", ""],
        ];
        Table::new(["ranks", "AU %", "MB/s", "target", "note"], 0..3, rows)
    }

    #[test]
    fn a_wide_terminal_shows_one_table() {
        let text = " ranks   AU %     MB/s  target   note
     1  99.90  1,234.5  met      invalid: on-time, data-verified
    16   8.25     12.5  not met";
        assert_eq!(table().at(usize::MAX), text);
        assert_eq!(table().at(66), text);
    }

    #[test]
    fn text_is_wrapped_before_the_table_is_split() {
        let text = " ranks   AU %     MB/s  target   note
     1  99.90  1,234.5  met      invalid: on-time,
                                 data-verified
    16   8.25     12.5  not met";
        assert_eq!(table().at(60), text);
    }

    #[test]
    fn a_table_that_is_too_wide_is_split_and_no_number_is_broken() {
        let text = " ranks   AU %     MB/s  target
     1  99.90  1,234.5  met
    16   8.25     12.5  not met

 ranks  note
     1  invalid: on-time,
        data-verified
    16";
        assert_eq!(table().at(32), text);
        for width in 20..120 {
            let text = table().at(width);
            assert!(text.lines().all(|line| columns_of(line) <= width), "{width}:\n{text}");
            for cell in ["99.90", "1,234.5", "not met", "data-verified", "16"] {
                assert!(text.contains(cell), "{cell} at {width}:\n{text}");
            }
        }
    }

    #[test]
    fn long_names_make_a_list() {
        let table =
            Table::new(["key", "MB/s", "note"], 1..2, [["a-very-long-name-of-a-row", "1,234.5", "slow"]]);
        assert_eq!(table.at(28), " key\n   a-very-long-name-of-a-row\n   MB/s 1,234.5\n   note slow");
    }

    #[test]
    fn spare_columns_are_left_out_first() {
        let table = table().spares(&[2, 3]);
        assert_eq!(table.left_out_at(60), [0_usize; 0]);
        assert_eq!(table.left_out_at(50), [2]);
        assert!(table.at(50).starts_with(" ranks   AU %  target   note\n"), "{}", table.at(50));
        assert_eq!(table.left_out_at(30), [0_usize; 0], "a list shows all of them");
    }
}
