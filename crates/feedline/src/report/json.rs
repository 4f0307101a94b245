//! The two styles of JSON output: indented for reading, and compact lines for documents that are mostly numbers.

use std::io::{Result, Write};

use anyhow::Context;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

/// JSON with four spaces of indent, as DLIO writes it, and a newline at the end.
pub(crate) fn pretty(value: &impl Serialize) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    write_pretty(&mut bytes, value)?;
    String::from_utf8(bytes).context("JSON is not text")
}

/// The same, streamed: a result may be larger than the free memory.
pub(crate) fn write_pretty(to: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    write_json(to, value, PrettyFormatter::with_indent(b"    "))
}

/// JSON with one line for each key and for each entry of its lists: compact but still readable. For documents that are
/// mostly numbers, which an indent would fill with spaces.
pub(crate) fn write_lines(to: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    write_json(to, value, Lines::default())
}

fn write_json(
    mut to: &mut dyn Write,
    value: &impl Serialize,
    formatter: impl Formatter,
) -> anyhow::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut to, formatter);
    value.serialize(&mut serializer).map_err(std::io::Error::from).context("cannot write JSON")?;
    to.write_all(b"\n").context("cannot write JSON")
}

/// Breaks lines in the outermost object and in its lists, and nowhere deeper.
#[derive(Debug, Default)]
struct Lines {
    depth: u32,
}

impl Lines {
    fn separate<W: Write + ?Sized>(writer: &mut W, first: bool, broken: bool) -> Result<()> {
        let text = match (first, broken) {
            (true, true) => "\n",
            (true, false) => "",
            (false, true) => ",\n",
            (false, false) => ",",
        };
        writer.write_all(text.as_bytes())
    }
}

impl Formatter for Lines {
    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth -= 1;
        writer.write_all(b"}")
    }

    fn begin_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, writer: &mut W) -> Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        Lines::separate(writer, first, self.depth == 1)
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        Lines::separate(writer, first, self.depth == 2)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn lines_are_broken_at_the_entries_of_lists() {
        let value = json!({"a": 1, "b": {"c": [1, 2]}, "d": [{"e": [3, 4], "f": {}}, [5]], "g": []});
        let text = "{\n\"a\":1,\n\"b\":{\"c\":[1,2]},\n\"d\":[\n{\"e\":[3,4],\"f\":{}},\n[5]],\n\"g\":[]}\n";
        let mut bytes = Vec::new();
        write_lines(&mut bytes, &value).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), value);
    }
}
