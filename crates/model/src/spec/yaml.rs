//! YAML text to a tree of values with places. The parser crate delivers events. Typing (`scalar.rs`), anchors, merge
//! keys, duplicate keys and all limits are implemented here, because DLIO's files rely on YAML 1.1 and on OmegaConf's
//! strictness.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::error::{Problem, ProblemKind};
use super::scalar;
use super::value::{MapEntry, Node, Origin, Span, Value};

/// Maximum size of a text: the largest known workload (200 parquet columns) has 20 kB.
const LONGEST_TEXT: usize = 8 << 20;
/// Maximum nesting: DLIO's keys need five levels.
const DEEPEST: usize = 32;
/// Maximum number of values after aliases are expanded; stops "billion laughs".
const MOST_NODES: usize = 100_000;

/// The tree of the single document in `text`. Its root is a map, without the `workload:` around everything that DLIO's
/// own result files have.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    unwrap_workload(read(text, false)?)
}

/// The tree of a configuration file for composition: interpolations and `???` stay in it, and it may be empty.
pub(super) fn parse_config(text: &str) -> Result<Node, Problem> {
    let root = read(text, true)?.filter(|root| root.value != Value::Null);
    Ok(root.unwrap_or(Node { value: Value::Map(Vec::new()), place: Origin::Default }))
}

fn read(text: &str, keep_omegaconf: bool) -> Result<Option<Node>, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_unreadable(text)?;
    let mut builder = Builder { keep_omegaconf, ..Builder::default() };
    let mut documents = 0;
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| syntax(&error, text))?;
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let what = "a workload file contains one YAML document; a second one starts here";
                return Err(Problem::new(ProblemKind::Syntax, place(span.start, span.end), what));
            }
        }
        builder.take(event, place(span.start, span.end))?;
    }
    Ok(builder.root)
}

fn refuse_unreadable(text: &str) -> Result<(), Problem> {
    let start = Origin::File(Span { line: 1, column: 1, width: 1 });
    if text.len() > LONGEST_TEXT {
        let what =
            format!("the text has {} bytes; a workload file may have at most {LONGEST_TEXT}", text.len());
        return Err(Problem::new(ProblemKind::Syntax, start, what));
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(column) = line.chars().position(|c| c.is_control() && c != '\t' && c != '\r') {
            let at = Origin::File(Span { line: index + 1, column: column + 1, width: 1 });
            let what = "this is not a YAML text: it contains a control character";
            return Err(Problem::new(ProblemKind::Syntax, at, what));
        }
    }
    Ok(())
}

fn unwrap_workload(root: Option<Node>) -> Result<Node, Problem> {
    let start = Origin::File(Span { line: 1, column: 1, width: 1 });
    let empty = || {
        Problem::new(ProblemKind::Syntax, start, "the workload file is empty")
            .help("help: a workload file has sections such as 'model', 'dataset', 'reader' and 'train'")
    };
    let mut root = root.ok_or_else(empty)?;
    if let Value::Map(entries) = &mut root.value
        && entries.len() == 1
        && entries[0].key == "workload"
        && let Some(entry) = entries.pop()
    {
        root = entry.node;
    }
    match root.value {
        Value::Map(_) => Ok(root),
        Value::Null => Err(empty()),
        other => {
            let what = format!("a workload file is a map of sections, found {}", other.found());
            Err(Problem::new(ProblemKind::Syntax, root.place, what))
        }
    }
}

fn place(start: Marker, end: Marker) -> Origin {
    let width = if start.line() == end.line() { end.col().saturating_sub(start.col()).max(1) } else { 1 };
    Origin::File(Span { line: start.line(), column: start.col() + 1, width })
}

/// The parser includes a comment after a quoted text; the place should cover only the text and its quotes.
fn trim(place: Origin, text: &str, style: ScalarStyle) -> Origin {
    let quotes = if style == ScalarStyle::Plain { 0 } else { 2 };
    match place {
        Origin::File(Span { line, column, width }) => {
            let width = width.min(text.chars().count() + quotes).max(1);
            Origin::File(Span { line, column, width })
        }
        other => other,
    }
}

fn syntax(error: &ScanError, text: &str) -> Problem {
    let mark = error.marker();
    let what = format!("YAML syntax: {}", error.info());
    let problem = Problem::new(ProblemKind::Syntax, place(*mark, *mark), what);
    let near = text.lines().skip(mark.line().saturating_sub(2)).take(2);
    if near.into_iter().any(|line| line.trim_start_matches(' ').starts_with('\t')) {
        return problem.help("help: YAML indents with spaces, never with tabs");
    }
    problem
}

/// A collection that has not ended yet.
struct OpenCollection {
    node: Node,
    anchor: usize,
    /// Values inside, including itself.
    count: usize,
    /// The key whose value comes next, and whether it is a plain `<<`.
    key: Option<(String, Origin, bool)>,
    merged: Vec<Node>,
}

#[derive(Default)]
struct Builder {
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, (Node, usize)>,
    root: Option<Node>,
    count: usize,
    /// Whether texts that have a meaning in OmegaConf are kept instead of refused.
    keep_omegaconf: bool,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, place: Origin) -> Result<(), Problem> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(&text, style, anchor, tag.as_deref(), place)
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), &["seq"], place)?;
                self.begin(Value::List(Vec::new()), anchor, place)
            }
            Event::MappingStart(anchor, tag) => {
                refuse_tag(tag.as_deref(), &["map"], place)?;
                self.begin(Value::Map(Vec::new()), anchor, place)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => {
                let Some((node, count)) = self.anchors.get(&anchor).cloned() else {
                    return Err(Problem::new(
                        ProblemKind::Syntax,
                        place,
                        "this alias refers to a value that contains it",
                    ));
                };
                self.add(node, count, place)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        place: Origin,
    ) -> Result<(), Problem> {
        refuse_tag(tag, &["str", "int", "float", "bool", "null"], place)?;
        if let Some(OpenCollection { node: Node { value: Value::Map(_), .. }, key: key @ None, .. }) =
            self.open.last_mut()
        {
            *key = Some((text.to_owned(), place, style == ScalarStyle::Plain && text == "<<"));
            return Ok(());
        }
        let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
        let value = if is_text { Value::Text(text.to_owned()) } else { scalar::resolve(text) };
        if !self.keep_omegaconf {
            refuse_omegaconf(&value, place)?;
        }
        let node = Node { value, place: trim(place, text, style) };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), 1));
        }
        self.add(node, 1, place)
    }

    fn begin(&mut self, value: Value, anchor: usize, place: Origin) -> Result<(), Problem> {
        if let Some(OpenCollection { node: Node { value: Value::Map(_), .. }, key: None, .. }) =
            self.open.last()
        {
            return Err(Problem::new(
                ProblemKind::Syntax,
                place,
                "a key must be a plain word, found a list or a map",
            ));
        }
        if self.open.len() >= DEEPEST {
            let what = format!("the values are nested more than {DEEPEST} levels deep");
            return Err(Problem::new(ProblemKind::Syntax, place, what));
        }
        let node = Node { value, place };
        self.open.push(OpenCollection { node, anchor, count: 1, key: None, merged: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Problem> {
        let Some(mut open) = self.open.pop() else { return Ok(()) };
        if let Value::Map(entries) = &mut open.node.value {
            // A map's own key wins over a merged one, and an earlier merged map over a later one.
            for entry in open.merged.iter().flat_map(Node::entries) {
                if entries.iter().all(|own| own.key != entry.key) {
                    entries.push(entry.clone());
                }
            }
        }
        if open.anchor > 0 {
            self.anchors.insert(open.anchor, (open.node.clone(), open.count));
        }
        let place = open.node.place;
        self.add(open.node, open.count, place)
    }

    /// Adds a finished value of `count` nodes to its parent.
    fn add(&mut self, node: Node, count: usize, at: Origin) -> Result<(), Problem> {
        self.count = self.count.saturating_add(count);
        if self.count > MOST_NODES {
            let what = format!("the aliases expand to more than {MOST_NODES} values");
            return Err(Problem::new(ProblemKind::Syntax, at, what));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.count = open.count.saturating_add(count);
        match &mut open.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match open.key.take() {
                Some((_, place, true)) => open.merged.extend(mergeable(node, place)?),
                Some((key, place, false)) => {
                    if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                        return Err(Problem::new(
                            ProblemKind::DuplicateKey,
                            place,
                            format!("the key '{key}' is given twice"),
                        )
                        .key(&key)
                        .other("first given here", first.place));
                    }
                    entries.push(MapEntry { key, place, node });
                }
                None => return Err(Problem::new(ProblemKind::Syntax, at, "an alias cannot be a key")),
            },
            _ => {}
        }
        Ok(())
    }
}

/// The maps that a `<<` merges.
fn mergeable(node: Node, place: Origin) -> Result<Vec<Node>, Problem> {
    let nodes = match node.value {
        Value::List(items) => items,
        _ => vec![node],
    };
    if nodes.iter().any(|node| !matches!(node.value, Value::Map(_))) {
        return Err(Problem::new(ProblemKind::Syntax, place, "'<<' merges maps, but its value is not a map"));
    }
    Ok(nodes)
}

fn refuse_tag(tag: Option<&Tag>, known: &[&str], place: Origin) -> Result<(), Problem> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str())) => {
            Err(Problem::new(
                ProblemKind::Syntax,
                place,
                format!("the YAML tag '{tag}' is not supported in a workload file"),
            ))
        }
        _ => Ok(()),
    }
}

/// Two kinds of text have a meaning in OmegaConf that is not supported here.
fn refuse_omegaconf(value: &Value, place: Origin) -> Result<(), Problem> {
    let Value::Text(text) = value else { return Ok(()) };
    if text.contains("${") {
        return Err(Problem::new(ProblemKind::Syntax, place, "interpolations '${...}' are not supported")
            .help("help: write the value itself, or give it with --set"));
    }
    if text == "???" {
        return Err(Problem::new(ProblemKind::Syntax, place, "'???' marks a missing value")
            .help("help: write the value here"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree in a compact form.
    fn show(node: &Node) -> String {
        match &node.value {
            Value::Null => "null".into(),
            Value::Bool(flag) => flag.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Text(text) => format!("'{text}'"),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
            Value::Map(entries) => {
                let pairs = entries.iter().map(|entry| format!("{}:{}", entry.key, show(&entry.node)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[test]
    fn texts_become_trees() {
        let table = [
            ("a: 1\nb: [x, 2.5, yes]", "{a:1 b:['x' 2.5 true]}"),
            ("a: 'yes'\nb: \"1\"\nc: !!str 1", "{a:'yes' b:'1' c:'1'}"),
            ("a: |\n  one\n  two\n", "{a:'one\ntwo\n'}"),
            ("workload:\n  a: 1", "{a:1}"),
            ("workload: {a: 1}\nb: 2", "{workload:{a:1} b:2}"),
            ("a: &x {c: 1}\nb: *x", "{a:{c:1} b:{c:1}}"),
            ("a: &x {c: 1, d: 2}\nb: {<<: *x, d: 3}", "{a:{c:1 d:2} b:{d:3 c:1}}"),
            ("a: &x {c: 1}\ne: &y {c: 2, f: 3}\nb: {<<: [*x, *y]}", "{a:{c:1} e:{c:2 f:3} b:{c:1 f:3}}"),
            ("\u{feff}a: 1", "{a:1}"),
            ("a: 1\r\nb: off\r\n", "{a:1 b:false}"),
            ("a:\nb: ~", "{a:null b:null}"),
            ("--- # one document\na: 1\n...\n", "{a:1}"),
            ("on: 1", "{on:1}"),
        ];
        for (text, expected) in table {
            assert_eq!(show(&parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn places_match_the_text() {
        let root = parse("workload:\n  reader:\n    batch_size: 400\n    é: 'ü' # comment\n").unwrap();
        let reader = &root.entries()[0];
        assert_eq!(reader.place, Origin::File(Span { line: 2, column: 3, width: 6 }));
        let batch = &reader.node.entries()[0];
        assert_eq!(batch.place, Origin::File(Span { line: 3, column: 5, width: 10 }));
        assert_eq!(batch.node.place, Origin::File(Span { line: 3, column: 17, width: 3 }));
        assert_eq!(reader.node.entries()[1].node.place, Origin::File(Span { line: 4, column: 8, width: 3 }));
    }

    #[test]
    fn hostile_texts_are_refused() {
        let deep = format!("a: {}{}", "[".repeat(40), "]".repeat(40));
        let deeper = format!("a: {}", "[".repeat(100_000));
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let before = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{before}]\n"));
        }
        let long = format!("a: {}", "x".repeat(LONGEST_TEXT));
        let table = [
            (deep.as_str(), "the values are nested more than 32 levels deep"),
            (deeper.as_str(), "YAML syntax: recursion limit exceeded"),
            (laughs.as_str(), "the aliases expand to more than 100000 values"),
            (long.as_str(), "the text has 8388611 bytes; a workload file may have at most 8388608"),
            ("a: \0", "this is not a YAML text: it contains a control character"),
            ("\u{7f}ELF\u{2}\u{1}", "this is not a YAML text: it contains a control character"),
            ("a: &x [*x]", "this alias refers to a value that contains it"),
            ("a: *x", "YAML syntax: while parsing node, found unknown anchor"),
            ("? [a, b]\n: 1", "a key must be a plain word, found a list or a map"),
            ("b: &x y\n*x : 1", "an alias cannot be a key"),
            ("a: {<<: 1}", "'<<' merges maps, but its value is not a map"),
            ("a: 1\na: 2", "the key 'a' is given twice"),
            ("", "the workload file is empty"),
            ("workload:", "the workload file is empty"),
            ("just a text", "a workload file is a map of sections, found the text 'just a text'"),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).unwrap_err().what(), expected, "{}", &text[..text.len().min(40)]);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ \\t\\n\\r:,&*!|>'\"%@`{}\\[\\]#?<~.0-9a-cé-]{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_garbage_panics(text in proptest::prelude::any::<String>()) {
            let _ = parse(&text);
        }
    }
}
