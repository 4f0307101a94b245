//! Interpolations, as OmegaConf defines them: `${key}`, `${.relative}`, `${a.${b}}`, `${resolver:argument,...}`, in
//! texts of the tree.

use super::grammar::parse_value;
use super::lexer::Lexicon;
use super::tree::{self, leaf};
use super::{CompositionError, Environment, python};
use crate::spec::value::{MapEntry, Node, Value};

/// Maximum number of interpolations inside each other; an endless reference exceeds it.
const DEEPEST: usize = 32;

/// Resolves the interpolations of a tree.
#[derive(Clone, Copy)]
pub(super) struct Resolver<'a> {
    pub root: &'a Node,
    pub environment: &'a Environment<'a>,
}

/// What is being resolved: the path of the text, and how deep the references are.
#[derive(Clone)]
struct TextPlace {
    path: Vec<String>,
    depth: usize,
}

impl Resolver<'_> {
    /// The node at `path`, with all interpolations in it resolved; `None` if there is none, or if its value is missing.
    pub(super) fn select(&self, path: &[String]) -> Result<Option<Node>, CompositionError> {
        self.select_at(path, 0).map_err(|why| CompositionError(format!("'{}': {why}", path.join("."))))
    }

    /// The node, which stands at `path`, with all interpolations in it resolved.
    pub(super) fn resolve(&self, node: &Node, path: &[String]) -> Result<Node, CompositionError> {
        self.resolve_at(node, &TextPlace { path: path.to_vec(), depth: 0 }).map_err(CompositionError)
    }

    fn select_at(&self, path: &[String], depth: usize) -> Result<Option<Node>, String> {
        let mut node = self.root.clone();
        let mut place = Vec::new();
        for (index, key) in path.iter().enumerate() {
            // A single value has no children.
            let child = tree::child(&node, key).ok().flatten().cloned();
            place.push(key.clone());
            let Some(child) = child else { return Ok(None) };
            if tree::is_missing(&child) {
                return Ok(None);
            }
            let is_last = index + 1 == path.len();
            node = match &child.value {
                // A container is resolved as a whole only if it is the result.
                Value::Map(_) | Value::List(_) if !is_last => child,
                _ => self.resolve_at(&child, &TextPlace { path: place.clone(), depth })?,
            };
        }
        Ok(Some(node))
    }

    fn resolve_at(&self, node: &Node, place: &TextPlace) -> Result<Node, String> {
        let inner = |key: String| {
            let mut path = place.path.clone();
            path.push(key);
            TextPlace { path, depth: place.depth }
        };
        let value = match &node.value {
            Value::Text(text) if text.contains("${") => {
                let resolved = self.text(text, place);
                return resolved.map_err(|why| format!("'{}': {why}", place.path.join(".")));
            }
            Value::List(items) => {
                let items = items.iter().enumerate();
                Value::List(
                    items
                        .map(|(index, item)| self.resolve_at(item, &inner(index.to_string())))
                        .collect::<Result<_, _>>()?,
                )
            }
            Value::Map(entries) => {
                let entry = |entry: &MapEntry| {
                    Ok(MapEntry {
                        node: self.resolve_at(&entry.node, &inner(entry.key.clone()))?,
                        ..entry.clone()
                    })
                };
                Value::Map(entries.iter().map(entry).collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        };
        Ok(Node { value, place: node.place })
    }

    /// The value of a text: that of its only interpolation, or a text.
    fn text(&self, text: &str, place: &TextPlace) -> Result<Node, String> {
        let chars: Vec<char> = text.chars().collect();
        let mut scanner = Scanner { resolver: self, chars: &chars, at: 0, place };
        let pieces = scanner.pieces(|_| false)?;
        join(pieces)
    }

    fn node(&self, dots: usize, keys: &[String], place: &TextPlace) -> Result<Node, String> {
        let shown = format!("{}{}", ".".repeat(dots), keys.join("."));
        let base = match dots {
            0 => &[],
            _ => {
                let up = place.path.len().checked_sub(dots);
                &place.path[..up
                    .ok_or_else(|| format!("the interpolation '${{{shown}}}' leaves the configuration"))?]
            }
        };
        if place.depth >= DEEPEST {
            return Err(format!("the interpolation '${{{shown}}}' refers to itself"));
        }
        let path = [base, keys].concat();
        let found = self.select_at(&path, place.depth + 1)?;
        found.ok_or_else(|| format!("there is no value for the interpolation '${{{shown}}}'"))
    }

    fn call(&self, name: &str, arguments: &[Node], place: &TextPlace) -> Result<Node, String> {
        let wrong = || format!("'${{{name}:...}}' has wrong arguments");
        let text = |index: usize| match arguments.get(index).map(|node| &node.value) {
            Some(Value::Text(text)) => Ok(text.as_str()),
            _ => Err(wrong()),
        };
        let allowed = match name {
            "oc.env" | "oc.select" | "oc.deprecated" => 1..=2,
            _ => 1..=1,
        };
        if !allowed.contains(&arguments.len()) {
            return Err(wrong());
        }
        match name {
            "now" => (self.environment.now)(text(0)?).map(|now| leaf(Value::Text(now))),
            "oc.env" => self.variable(text(0)?, arguments.get(1)),
            "oc.select" => {
                let found = self.select_key(text(0)?, place)?;
                let null = || leaf(Value::Null);
                Ok(found.unwrap_or_else(|| arguments.get(1).cloned().unwrap_or_else(null)))
            }
            "oc.deprecated" => self.select_key(text(0)?, place)?.ok_or_else(wrong),
            "hydra" => {
                let path = format!("hydra.{}", text(0)?);
                Ok(self.select_key(&path, place)?.unwrap_or_else(|| leaf(Value::Null)))
            }
            "oc.create" => Ok(arguments[0].clone()),
            "oc.decode" => match &arguments[0].value {
                Value::Null => Ok(leaf(Value::Null)),
                _ => self.decode(text(0)?, place),
            },
            "oc.dict.keys" | "oc.dict.values" => {
                let map =
                    self.select_key(text(0)?, place)?.filter(|node| matches!(node.value, Value::Map(_)));
                let map = map.ok_or_else(|| format!("'${{{name}:...}}' needs the key of a map"))?;
                let item = |entry: &MapEntry| match name {
                    "oc.dict.keys" => leaf(Value::Text(entry.key.clone())),
                    _ => entry.node.clone(),
                };
                Ok(leaf(Value::List(map.entries().iter().map(item).collect())))
            }
            "python_version" => {
                Err("'${python_version:...}' has no value: this program is not written in Python".into())
            }
            _ => Err(format!("the resolver '{name}' of an interpolation is not supported")),
        }
    }

    fn variable(&self, name: &str, default: Option<&Node>) -> Result<Node, String> {
        if let Some(value) = (self.environment.variable)(name) {
            return Ok(leaf(Value::Text(value)));
        }
        match default {
            Some(node) if node.value == Value::Null => Ok(node.clone()),
            Some(node) => Ok(leaf(Value::Text(shown(node)?))),
            None => Err(format!("the environment variable '{name}' is not set")),
        }
    }

    fn select_key(&self, key: &str, place: &TextPlace) -> Result<Option<Node>, String> {
        if place.depth >= DEEPEST {
            return Err(format!("the interpolation of '{key}' refers to itself"));
        }
        let dots = key.len() - key.trim_start_matches('.').len();
        let base = if dots == 0 { &[] } else { &place.path[..place.path.len().saturating_sub(dots)] };
        let keys: Vec<String> = key[dots..].split('.').map(str::to_owned).collect();
        self.select_at(&[base, &keys].concat(), place.depth + 1)
    }

    fn decode(&self, text: &str, place: &TextPlace) -> Result<Node, String> {
        let chars: Vec<char> = text.chars().collect();
        let mut scanner = Scanner { resolver: self, chars: &chars, at: 0, place };
        let node = scanner.element(|_| false)?;
        match scanner.at == chars.len() {
            true => Ok(node),
            false => Err(format!("'{text}' is not a value")),
        }
    }
}

/// A part of a text.
enum Piece {
    Literal(String),
    Resolved(Node),
}

/// Python's `str` of a single value.
fn shown(node: &Node) -> Result<String, String> {
    Ok(match &node.value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => python::repr(*number),
        Value::Text(text) => text.clone(),
        Value::List(_) | Value::Map(_) => return Err("a list or a map cannot be part of a text".into()),
    })
}

fn join(pieces: Vec<Piece>) -> Result<Node, String> {
    let mut text = String::new();
    let is_single = pieces.len() == 1;
    for piece in pieces {
        match piece {
            Piece::Resolved(node) if is_single => return Ok(node),
            Piece::Resolved(node) => text.push_str(&shown(&node)?),
            Piece::Literal(literal) => text.push_str(&literal),
        }
    }
    Ok(leaf(Value::Text(text)))
}

struct Scanner<'a> {
    resolver: &'a Resolver<'a>,
    chars: &'a [char],
    at: usize,
    place: &'a TextPlace,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|c| matches!(c, ' ' | '\t')) {
            self.at += 1;
        }
    }

    fn is_interpolation(&self) -> bool {
        self.chars[self.at..].starts_with(&['$', '{'])
    }

    /// Literals and interpolations up to a character that `ends`. Backslashes have a meaning only before `${`.
    fn pieces(&mut self, ends: impl Fn(char) -> bool) -> Result<Vec<Piece>, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        while let Some(c) = self.peek() {
            if self.is_interpolation() {
                let backslashes = literal.chars().rev().take_while(|c| *c == '\\').count();
                literal.truncate(literal.len() - backslashes.div_ceil(2));
                if backslashes % 2 == 1 {
                    literal.push_str("${");
                    self.at += 2;
                    continue;
                }
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Resolved(self.interpolation()?));
                continue;
            }
            let is_escaped = literal.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
            if ends(c) && !is_escaped {
                break;
            }
            literal.push(c);
            self.at += 1;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(pieces)
    }

    /// One interpolation, from its `${`.
    fn interpolation(&mut self) -> Result<Node, String> {
        self.at += 2;
        self.skip_blanks();
        let start = self.at;
        while self.peek() == Some('.') {
            self.at += 1;
        }
        let dots = self.at - start;
        let mut keys = Vec::new();
        loop {
            let in_brackets = self.peek() == Some('[');
            self.at += usize::from(in_brackets);
            keys.push(self.key()?);
            if in_brackets {
                self.expect(']')?;
            }
            let after = self.at;
            self.skip_blanks();
            match self.peek() {
                Some('}') => {
                    self.at += 1;
                    return self.resolver.node(dots, &keys, self.place);
                }
                Some(':') if dots == 0 && !in_brackets && after == self.at => {
                    self.at += 1;
                    let arguments = self.arguments()?;
                    return self.resolver.call(&keys.join("."), &arguments, self.place);
                }
                Some('.') if after == self.at => self.at += 1,
                Some('[') if after == self.at => {}
                _ => return Err("an interpolation is not closed, or contains an unexpected character".into()),
            }
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.peek() != Some(c) {
            return Err(format!("'{c}' is missing in an interpolation"));
        }
        self.at += 1;
        Ok(())
    }

    fn key(&mut self) -> Result<String, String> {
        if self.is_interpolation() {
            let node = self.interpolation()?;
            return match node.value {
                Value::Text(text) => Ok(text),
                other => {
                    Err(format!("an interpolation inside another one gives {}, not a text", other.found()))
                }
            };
        }
        let is_key = |c: char| !"\\${}()[]:. \t'\"".contains(c);
        let key: String = self.chars[self.at..].iter().copied().take_while(|c| is_key(*c)).collect();
        self.at += key.chars().count();
        match key.is_empty() {
            true => Err("an interpolation has an empty key".into()),
            false => Ok(key),
        }
    }

    fn arguments(&mut self) -> Result<Vec<Node>, String> {
        self.sequence('}')
    }

    /// Elements with commas between them, up to and including `close`.
    fn sequence(&mut self, close: char) -> Result<Vec<Node>, String> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(items);
        }
        loop {
            items.push(self.element(|c| c == ',' || c == close)?);
            match self.peek() {
                Some(',') => self.at += 1,
                Some(c) if c == close => {
                    self.at += 1;
                    return Ok(items);
                }
                _ => return Err(format!("'{close}' is missing in an interpolation")),
            }
        }
    }

    fn element(&mut self, ends: impl Fn(char) -> bool) -> Result<Node, String> {
        self.skip_blanks();
        let node = match self.peek() {
            Some('[') => {
                self.at += 1;
                leaf(Value::List(self.sequence(']')?))
            }
            Some(quote @ ('\'' | '"')) => {
                self.at += 1;
                let pieces = self.pieces(|c| c == quote)?;
                self.expect(quote)?;
                join(unquoted(pieces, quote))?
            }
            _ => return self.primitive(ends),
        };
        self.skip_blanks();
        Ok(node)
    }

    fn primitive(&mut self, ends: impl Fn(char) -> bool) -> Result<Node, String> {
        // A map has its own commas; it has no interpolations inside.
        let in_map = self.peek() == Some('{');
        let pieces = match in_map {
            true => {
                let rest = &self.chars[self.at..];
                let end = rest.iter().position(|c| *c == '}').ok_or("'}' is missing in an interpolation")?;
                let map: String = rest[..=end].iter().collect();
                self.at += end + 1;
                vec![Piece::Literal(map)]
            }
            false => self.pieces(ends)?,
        };
        match pieces.as_slice() {
            [] => Err("a resolver has an empty argument".into()),
            [Piece::Literal(literal)] => {
                let element = parse_value(literal, Lexicon::Strict).map_err(|error| error.0)?;
                tree::from_element(&element)
            }
            _ => join(pieces),
        }
    }
}

/// In quotes, a backslash escapes the quote.
fn unquoted(pieces: Vec<Piece>, quote: char) -> Vec<Piece> {
    let escaped = format!("\\{quote}");
    pieces
        .into_iter()
        .map(|piece| match piece {
            Piece::Literal(text) => Piece::Literal(text.replace(&escaped, &quote.to_string())),
            resolved => resolved,
        })
        .collect()
}
