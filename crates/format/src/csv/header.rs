//! Decides whether a csv file starts with a header line, from the beginning of its text. It must not know how the
//! text is stored.

/// Bytes of text that are examined. A header that is longer than this is not recognised.
pub(super) const EXAMINED: usize = 1 << 20;
/// UTF-8's byte order mark, which some programs write first.
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// A header line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CsvHeader {
    /// Bytes up to the end of the line.
    pub(super) end: u64,
    /// The name of each column, and whether the first line of values has a number there.
    pub(super) columns: Vec<(String, bool)>,
}

impl CsvHeader {
    /// The header of a file that starts with this text, if it has one: no value of the first line is a number, and
    /// the second line has as many values and at least one number. Everything else is data.
    pub(super) fn of(text: &[u8]) -> Option<CsvHeader> {
        let text = text.get(..EXAMINED).unwrap_or(text);
        let mark = if text.starts_with(MARK) { MARK.len() } else { 0 };
        let (first, end) = line(text, mark)?;
        let names = fields(first).map(name).collect::<Option<Vec<String>>>()?;
        if names.iter().all(String::is_empty) {
            return None;
        }
        // The last line of the text may be incomplete.
        let (second, complete) = match line(text, end) {
            Some((second, _)) => (second, true),
            None => (&text[end..], text.len() < EXAMINED),
        };
        let numbers: Vec<bool> = fields(second).map(is_number).collect();
        let fits = numbers.len() == names.len() || (!complete && numbers.len() < names.len());
        if !fits || !numbers.contains(&true) {
            return None;
        }
        let numbers = numbers.into_iter().chain(std::iter::repeat(true));
        Some(CsvHeader { end: end as u64, columns: names.into_iter().zip(numbers).collect() })
    }
}

/// The first line from `start` on that is not blank, and its end.
fn line(text: &[u8], mut start: usize) -> Option<(&[u8], usize)> {
    loop {
        let rest = text.get(start..)?;
        let len = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest[..len].strip_suffix(b"\r").unwrap_or(&rest[..len]);
        start += len + 1;
        if !line.is_empty() {
            return Some((line, start));
        }
    }
}

/// The values of a line. Commas in double quotes do not separate values.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    line.split(move |byte| {
        quoted ^= *byte == b'"';
        *byte == b',' && !quoted
    })
    .map(|field| {
        let field = field.trim_ascii();
        field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
    })
}

/// The name of a column; `None` if a header cannot have it.
fn name(field: &[u8]) -> Option<String> {
    let text = str::from_utf8(field).ok()?;
    (!is_number(field) && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// Whether pandas would read a value as a number or a bool.
pub(super) fn is_number(field: &[u8]) -> bool {
    let text = str::from_utf8(field).unwrap_or_default();
    text.parse::<f64>().is_ok() || matches!(text, "True" | "False")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(u64, String)> {
        let column = |(name, number): (String, bool)| format!("{name}{}", if number { "#" } else { "" });
        let header = CsvHeader::of(text.as_bytes())?;
        let columns: Vec<String> = header.columns.into_iter().map(column).collect();
        Some((header.end, columns.join("|")))
    }

    #[test]
    fn names_before_numbers_are_a_header() {
        for (text, end, columns) in [
            ("a,b\n1,2\n3,4\n", 4, "a#|b#"),
            ("a,b\n1,2", 4, "a#|b#"),
            ("\r\n\npath, label \r\nx.jpg,3\r\n", 17, "path|label#"),
            ("\u{feff}\"one, two\",c\n5,True\n", 16, "one, two#|c#"),
            // pandas with an index, and a missing value.
            (",a,b\n0,,x\n", 5, "#|a|b"),
            ("größe\n1e-3\n", 8, "größe#"),
        ] {
            assert_eq!(found(text), Some((end, columns.to_owned())), "{text:?}");
        }
    }

    #[test]
    fn everything_else_is_data() {
        for text in [
            "",
            "\n\n",
            "1,2\n3,4\n",
            // Names only, or one line only.
            "a,b\n",
            "a,b\nc,d\n",
            "a,b",
            // A number in the first line; another number of values; nothing but commas.
            "a,1\nb,2\n",
            "0,1,2\n5,6,7\n",
            "nan,x\n1,2\n",
            "a,b\n1,2,3\n",
            "a,b\n1\n",
            ",,\n1,2,3\n",
            "a\u{1},b\n1,2\n",
        ] {
            assert_eq!(found(text), None, "{text:?}");
        }
        assert_eq!(CsvHeader::of(b"a\xFF,b\n1,2\n"), None);
    }

    #[test]
    fn long_lines_are_judged_by_what_was_examined() {
        let names: Vec<String> = (0..60_000).map(|index| format!("c{index}")).collect();
        let values = vec!["0.123456789012"; 60_000].join(",");
        let text = format!("{}\n{values}\n", names.join(","));
        assert!(text.len() > EXAMINED + 100_000);
        let header = CsvHeader::of(text.as_bytes()).unwrap();
        assert_eq!((header.columns.len(), header.end), (60_000, names.join(",").len() as u64 + 1));
        let names: Vec<String> = (0..200_000).map(|index| format!("c{index}")).collect();
        assert_eq!(found(&format!("{}\n1\n", names.join(","))), None);
    }
}
