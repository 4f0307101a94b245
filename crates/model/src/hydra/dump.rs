//! A tree as YAML text, in the form that OmegaConf writes with PyYAML: block style, lines of about 80 columns, quotes
//! around texts that would read as another type.

use super::python;
use crate::spec::scalar;
use crate::spec::value::{MapEntry, Node, Origin, Value};

/// Where PyYAML starts to fold lines.
const BEST_WIDTH: usize = 80;

/// The tree as a YAML document.
pub(super) fn to_yaml(node: &Node) -> String {
    let mut emitter = YamlEmitter { text: String::new(), column: 0 };
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => emitter.map(entries, 0, false),
        Value::List(items) if !items.is_empty() => emitter.list(items, 0, false),
        _ => emitter.scalar(&node.value, 0, false),
    }
    emitter.line_break();
    emitter.text
}

struct YamlEmitter {
    text: String,
    column: usize,
}

impl YamlEmitter {
    fn write(&mut self, text: &str) {
        self.column += text.chars().count();
        self.text.push_str(text);
    }

    fn line_break(&mut self) {
        self.text.push('\n');
        self.column = 0;
    }

    fn new_line(&mut self, indent: usize) {
        self.line_break();
        self.write(&" ".repeat(indent));
    }

    /// `inline`: the first key follows a `- ` on the same line.
    fn map(&mut self, entries: &[MapEntry], indent: usize, inline: bool) {
        for (index, entry) in entries.iter().enumerate() {
            if index > 0 || !inline {
                self.start_of_item(indent);
            }
            self.key(entry, indent);
            self.write(":");
            match &entry.node.value {
                Value::Map(inner) if !inner.is_empty() => {
                    self.map(inner, indent + 2, false);
                }
                // A list in a map is not indented.
                Value::List(items) if !items.is_empty() => self.list(items, indent, false),
                value => self.scalar(value, indent, true),
            }
        }
    }

    fn list(&mut self, items: &[Node], indent: usize, inline: bool) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 || !inline {
                self.start_of_item(indent);
            }
            self.write("-");
            match &item.value {
                Value::Map(inner) if !inner.is_empty() => {
                    self.write(" ");
                    self.map(inner, indent + 2, true);
                }
                Value::List(inner) if !inner.is_empty() => {
                    self.write(" ");
                    self.list(inner, indent + 2, true);
                }
                value => self.scalar(value, indent, true),
            }
        }
    }

    fn start_of_item(&mut self, indent: usize) {
        if !self.text.is_empty() {
            self.new_line(indent);
        }
    }

    /// The tree does not keep the type of a key; one of a file that looks like a number is one.
    fn key(&mut self, entry: &MapEntry, indent: usize) {
        let key = entry.key.as_str();
        let style = match style(key) {
            ScalarStyle::Single if matches!(entry.place, Origin::File(_)) && is_typed_key(key) => {
                ScalarStyle::Plain
            }
            // Line breaks in a key are escaped.
            ScalarStyle::Single if key.contains('\n') => ScalarStyle::Double,
            style => style,
        };
        self.styled(key, style, indent, false);
    }

    fn scalar(&mut self, value: &Value, indent: usize, after_mark: bool) {
        if after_mark {
            self.write(" ");
        }
        match value {
            Value::Null => self.write("null"),
            Value::Bool(flag) => self.write(if *flag { "true" } else { "false" }),
            Value::Int(number) => self.write(&number.to_string()),
            Value::Float(number) => self.write(&float(*number)),
            Value::Text(text) => self.styled(text, style(text), indent + 2, true),
            Value::List(_) => self.write("[]"),
            Value::Map(_) => self.write("{}"),
        }
    }

    fn styled(&mut self, text: &str, style: ScalarStyle, indent: usize, split: bool) {
        let chars: Vec<char> = text.chars().collect();
        match style {
            ScalarStyle::Plain => self.folded(&chars, indent, split, false),
            ScalarStyle::Single => {
                self.write("'");
                self.folded(&chars, indent, split, true);
                self.write("'");
            }
            ScalarStyle::Double => self.double_quoted(&chars, indent, split),
        }
    }

    /// A plain or single-quoted text. A single blank beyond the width becomes a line break; line breaks are doubled.
    fn folded(&mut self, text: &[char], indent: usize, split: bool, quoted: bool) {
        let mut start = 0;
        while start < text.len() {
            let kind = |c: char| (c == ' ', is_break(c));
            let same = text[start..].iter().take_while(|c| kind(**c) == kind(text[start])).count();
            let run = &text[start..start + same];
            let end = start + same;
            match run[0] {
                ' ' if same == 1
                    && self.column > BEST_WIDTH
                    && split
                    && (!quoted || start > 0 && end < text.len()) =>
                {
                    self.new_line(indent);
                }
                c if is_break(c) => {
                    if c == '\n' {
                        self.line_break();
                    }
                    run.iter().for_each(|c| match c {
                        '\n' => self.line_break(),
                        c => {
                            self.text.push(*c);
                            self.column = 0;
                        }
                    });
                    self.write(&" ".repeat(indent));
                }
                _ => {
                    let run: String = run.iter().collect();
                    self.write(&if quoted { run.replace('\'', "''") } else { run });
                }
            }
            start = end;
        }
    }

    fn double_quoted(&mut self, text: &[char], indent: usize, split: bool) {
        self.write("\"");
        let mut start = 0;
        for end in 0..=text.len() {
            let c = text.get(end).copied();
            if c.is_none_or(|c| !is_plain_in_quotes(c)) {
                let run: String = text[start..end].iter().collect();
                self.write(&run);
                start = end;
                if let Some(c) = c {
                    self.write(&escape(c));
                    start = end + 1;
                }
            }
            let may_split = end > 0 && end + 1 < text.len() && (c == Some(' ') || start >= end);
            if split && may_split && self.column + end > BEST_WIDTH + start {
                let run: String = text[start.min(end)..end].iter().collect();
                self.write(&run);
                self.write("\\");
                start = start.max(end);
                self.new_line(indent);
                if text.get(start) == Some(&' ') {
                    self.write("\\");
                }
            }
        }
        self.write("\"");
    }
}

fn float(number: f64) -> String {
    let text = python::repr(number);
    match text.as_str() {
        "inf" | "nan" => format!(".{text}"),
        "-inf" => "-.inf".into(),
        _ if !text.contains('.') => text.replacen('e', ".0e", 1),
        _ => text,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScalarStyle {
    Plain,
    Single,
    Double,
}

fn style(text: &str) -> ScalarStyle {
    let looks = Looks::of(text);
    match (looks.plain && !is_other_type(text), looks.single) {
        (true, _) => ScalarStyle::Plain,
        (false, true) => ScalarStyle::Single,
        (false, false) => ScalarStyle::Double,
    }
}

fn is_typed_key(key: &str) -> bool {
    Looks::of(key).plain && matches!(scalar::resolve(key), Value::Int(_) | Value::Float(_) | Value::Bool(_))
}

/// Whether the text would read as something else without quotes, or is too close to it.
fn is_other_type(text: &str) -> bool {
    matches!(text, "y" | "Y" | "n" | "N" | "=" | "<<")
        || !matches!(scalar::resolve(text), Value::Text(_))
        || python::int(text).is_some()
        || python::float(text).is_some()
        || is_timestamp(text)
}

/// YAML 1.1's dates and times.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ', '\t']) {
        Some(at) => (&text[..at], Some(text[at + 1..].trim_start_matches([' ', '\t']))),
        None => (text, None),
    };
    let digits = |text: &str, least: usize, most: usize| {
        (least..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let least = if time.is_some() { 1 } else { 2 };
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let is_date = digits(year, 4, 4) && digits(month, least, 2) && digits(day, least, 2);
    let Some(time) = time else { return is_date };
    let clock = time.trim_end_matches('Z');
    let clock = clock.find(['+', '-']).map_or(clock, |zone| &clock[..zone]).trim_end_matches([' ', '\t']);
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts[..] else { return false };
    let (second, fraction) = second.split_once('.').unwrap_or((second, ""));
    is_date && digits(hour, 1, 2) && digits(minute, 2, 2) && digits(second, 2, 2) && digits(fraction, 0, 99)
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_white(c: char) -> bool {
    matches!(c, '\0' | ' ' | '\t' | '\r') || is_break(c)
}

fn is_printable(c: char) -> bool {
    matches!(c, '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10fffe}')
        && c != '\u{feff}'
}

fn is_plain_in_quotes(c: char) -> bool {
    let is_special = matches!(c, '"' | '\\' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    !is_special && matches!(c, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
}

fn escape(c: char) -> String {
    let short = match c {
        '\0' => '0',
        '\x07' => 'a',
        '\x08' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\x0b' => 'v',
        '\x0c' => 'f',
        '\r' => 'r',
        '\x1b' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        c => {
            return match u32::from(c) {
                code @ 0..=0xff => format!("\\x{code:02X}"),
                code @ 0x100..=0xffff => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{short}")
}

/// Which styles a text can have by its characters.
struct Looks {
    plain: bool,
    single: bool,
}

impl Looks {
    fn of(text: &str) -> Looks {
        let chars: Vec<char> = text.chars().collect();
        let ends_white = |c: Option<&char>| c.is_some_and(|c| *c == ' ' || is_break(*c));
        let mut plain = !ends_white(chars.first()) && !ends_white(chars.last());
        plain &= !text.starts_with("---") && !text.starts_with("...");
        let mut single = true;
        for (index, c) in chars.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| chars[before]);
            let after_is_white = chars.get(index + 1).is_none_or(|c| is_white(*c));
            plain &= match c {
                '#' => before.is_some_and(|c| !is_white(c)),
                ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => {
                    index > 0
                }
                ':' => !after_is_white,
                '?' | '-' => index > 0 || !after_is_white,
                c => !is_break(*c),
            };
            let is_special = *c != '\n' && !(' '..='~').contains(c) && !is_printable(*c);
            let break_then_space = *c == ' ' && before.is_some_and(is_break);
            let space_then_break = is_break(*c) && before == Some(' ');
            single &= !(is_special || break_then_space || space_then_break);
        }
        Looks { plain: plain && single, single }
    }
}
