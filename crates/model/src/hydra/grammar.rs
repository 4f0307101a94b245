//! Hydra's override grammar: `key=value`, `+key=value`, `++key=value`, `~key`, with values of all kinds. Overrides of
//! the `dlio_benchmark` program follow it strictly; `spec/hydra.rs` reads values with the permissive lexicon.

use super::CompositionError;
use super::functions::{Arguments, call};
use super::lexer::{Lexicon, Token, TokenKind, override_tokens, value_tokens};
use super::sweep::ValueSweep;

/// Maximum nesting of lists, maps and functions; bounds the recursion.
const DEEPEST: usize = 32;

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OverrideElement {
    Null,
    Bool(bool),
    /// Saturates at the limits of `i128`.
    Int(i128),
    Float(f64),
    Text(String),
    /// A text in quotes, and which ones.
    Quoted(String, char),
    List(Vec<OverrideElement>),
    /// In the order of writing; a key may occur twice.
    Map(Vec<(String, OverrideElement)>),
    Sweep(ValueSweep),
}

/// What an override does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverrideKind {
    Change,
    Add,
    ForceAdd,
    Delete,
}

/// One override of a command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HydraOverride {
    pub kind: OverrideKind,
    /// A dotted key, or a config group.
    pub key: String,
    pub package: Option<String>,
    /// `None` only for a deletion.
    pub value: Option<OverrideElement>,
    /// As typed.
    pub line: String,
}

impl HydraOverride {
    /// `group@package`.
    pub(super) fn group_key(&self) -> String {
        match &self.package {
            Some(package) => format!("{}@{package}", self.key),
            None => self.key.clone(),
        }
    }

    pub(super) fn prefix(&self) -> &'static str {
        match self.kind {
            OverrideKind::Change => "",
            OverrideKind::Add => "+",
            OverrideKind::ForceAdd => "++",
            OverrideKind::Delete => "~",
        }
    }

    pub(super) fn sweep(&self) -> Option<&ValueSweep> {
        match &self.value {
            Some(OverrideElement::Sweep(sweep)) => Some(sweep),
            _ => None,
        }
    }

    /// Whether it concerns Hydra's own settings.
    pub(super) fn is_hydra(&self) -> bool {
        self.key.starts_with("hydra.") || self.key.starts_with("hydra/")
    }
}

/// Parses one override; `seed` decides the order that `shuffle` gives.
pub(super) fn parse_override(line: &str, seed: u64) -> Result<HydraOverride, CompositionError> {
    let tokens = override_tokens(line)?;
    let mut parser = Parser { line, tokens: &tokens, at: 0, lexicon: Lexicon::Strict, seed };
    let kind = parser.kind();
    let key = parser.package_or_group()?;
    let package = match parser.take(TokenKind::At) {
        true => Some(parser.package()),
        false => None,
    };
    let value = match parser.take(TokenKind::Equal) {
        true if parser.peek().is_none() => Some(OverrideElement::Text(String::new())),
        true => Some(parser.value()?),
        false if kind == OverrideKind::Delete && parser.peek().is_none() => None,
        false => {
            return Err(parser.refuse("an override is written key=value; here '=' is missing"));
        }
    };
    if key.is_empty() {
        return Err(CompositionError::at(line, 0, "the key is empty"));
    }
    Ok(HydraOverride { kind, key, package, value, line: line.to_owned() })
}

/// Parses a value without its key.
pub(crate) fn parse_value(text: &str, lexicon: Lexicon) -> Result<OverrideElement, CompositionError> {
    let text = if lexicon == Lexicon::Permissive { text.trim_start_matches([' ', '\t']) } else { text };
    let tokens = value_tokens(text, lexicon)?;
    let mut parser = Parser { line: text, tokens: &tokens, at: 0, lexicon, seed: 0 };
    parser.value()
}

struct Parser<'a> {
    line: &'a str,
    tokens: &'a [Token],
    at: usize,
    lexicon: Lexicon,
    seed: u64,
}

impl Parser<'_> {
    fn peek(&self) -> Option<TokenKind> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    fn take(&mut self, kind: TokenKind) -> bool {
        let next = self.peek() == Some(kind);
        self.at += usize::from(next);
        next
    }

    fn refuse(&self, why: &str) -> CompositionError {
        let end = self.line.chars().count();
        CompositionError::at(self.line, self.tokens.get(self.at).map_or(end, |token| token.at), why)
    }

    fn kind(&mut self) -> OverrideKind {
        if self.take(TokenKind::Tilde) {
            return OverrideKind::Delete;
        }
        match (self.take(TokenKind::Plus), self.take(TokenKind::Plus)) {
            (true, true) => OverrideKind::ForceAdd,
            (true, false) => OverrideKind::Add,
            (false, _) => OverrideKind::Change,
        }
    }

    fn package(&mut self) -> String {
        match self.tokens.get(self.at) {
            Some(Token { kind: TokenKind::Id | TokenKind::Dollar | TokenKind::DotPath, text, .. }) => {
                self.at += 1;
                text.clone()
            }
            _ => String::new(),
        }
    }

    fn package_or_group(&mut self) -> Result<String, CompositionError> {
        let is_id = self.peek() == Some(TokenKind::Id);
        let mut key = self.package();
        while is_id && self.take(TokenKind::Slash) {
            if self.peek() != Some(TokenKind::Id) {
                return Err(self.refuse("a config group is words with '/' between them"));
            }
            key = format!("{key}/{}", self.package());
        }
        Ok(key)
    }

    fn value(&mut self) -> Result<OverrideElement, CompositionError> {
        let first = self.element(0)?;
        let mut list = vec![first];
        while self.take(TokenKind::Comma) {
            list.push(self.element(0)?);
        }
        if self.peek().is_some() {
            return Err(self.refuse("the value should end here; a text with this character needs quotes"));
        }
        match list.len() {
            1 => list.pop().ok_or_else(|| self.refuse("a value is missing")),
            _ => Ok(OverrideElement::Sweep(ValueSweep::choice(list, true))),
        }
    }

    fn element(&mut self, depth: usize) -> Result<OverrideElement, CompositionError> {
        if depth > DEEPEST {
            return Err(self.refuse(&format!("the value is nested more than {DEEPEST} levels deep")));
        }
        let after = self.tokens.get(self.at + 1).map(|token| token.kind);
        let element = match self.peek() {
            Some(TokenKind::BracketOpen) => self.list(depth)?,
            Some(TokenKind::BraceOpen) => self.map(depth)?,
            Some(TokenKind::Id) if after == Some(TokenKind::ParenthesisOpen) => self.function(depth)?,
            _ => self.primitive(true)?,
        };
        if self.lexicon == Lexicon::Permissive {
            self.take(TokenKind::Blank);
        }
        Ok(element)
    }

    /// Items with commas between them, up to `close`.
    fn sequence<T>(
        &mut self,
        close: TokenKind,
        item: impl Fn(&mut Self) -> Result<T, CompositionError>,
    ) -> Result<Vec<T>, CompositionError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.take(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.take(close) {
                return Ok(items);
            }
            if !self.take(TokenKind::Comma) {
                return Err(self.refuse(match close {
                    TokenKind::BracketClose => "a list needs ',' between its items and ']' at its end",
                    TokenKind::BraceClose => "a map needs ',' between its keys and '}' at its end",
                    _ => "a function needs ',' between its arguments and ')' at its end",
                }));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<OverrideElement, CompositionError> {
        let items = self.sequence(TokenKind::BracketClose, |parser| {
            let item = parser.element(depth + 1)?;
            match item {
                OverrideElement::Sweep(_) => Err(parser.refuse("a list cannot contain a sweep")),
                item => Ok(item),
            }
        })?;
        Ok(OverrideElement::List(items))
    }

    fn map(&mut self, depth: usize) -> Result<OverrideElement, CompositionError> {
        let entries = self.sequence(TokenKind::BraceClose, |parser| {
            let key = match parser.primitive(false)? {
                OverrideElement::Null => return Err(parser.refuse("a key of a map cannot be null")),
                key => key.plain_text(),
            };
            if !parser.take(TokenKind::Colon) {
                return Err(parser.refuse("a map is written {key: value, key: value}"));
            }
            match parser.element(depth + 1)? {
                OverrideElement::Sweep(_) => Err(parser.refuse("a map cannot contain a sweep")),
                value => Ok((key, value)),
            }
        })?;
        Ok(OverrideElement::Map(entries))
    }

    fn function(&mut self, depth: usize) -> Result<OverrideElement, CompositionError> {
        let start = self.at;
        let name = self.tokens[start].text.clone();
        self.at += 1;
        let list = self.sequence(TokenKind::ParenthesisClose, |parser| {
            let is_named = parser.peek() == Some(TokenKind::Id)
                && parser.tokens.get(parser.at + 1).is_some_and(|token| token.kind == TokenKind::Equal);
            let name = is_named.then(|| parser.tokens[parser.at].text.clone());
            parser.at += if is_named { 2 } else { 0 };
            Ok((name, parser.element(depth + 1)?))
        })?;
        let arguments = Arguments::new(list).map_err(|why| self.refuse(&why))?;
        let value = call(&name, arguments, self.seed).map_err(|why| {
            CompositionError::at(self.line, self.tokens[start].at, &format!("{name}(): {why}"))
        })?;
        match (self.lexicon, &value) {
            (Lexicon::Strict, _) | (_, OverrideElement::Sweep(_)) => Ok(value),
            (Lexicon::Permissive, _) => {
                Err(self.refuse("functions are not supported here; write the value itself"))
            }
        }
    }

    /// A quoted text, or a run of other tokens: one token has its type, several are text.
    fn primitive(&mut self, is_value: bool) -> Result<OverrideElement, CompositionError> {
        if is_value && self.peek() == Some(TokenKind::Quoted) {
            let text = &self.tokens[self.at].text;
            self.at += 1;
            let quote = if text.starts_with('"') { '"' } else { '\'' };
            return Ok(OverrideElement::Quoted(unquote(text), quote));
        }
        let start = self.at;
        while self.peek().is_some_and(|kind| is_primitive(kind, is_value)) {
            self.at += 1;
        }
        let run = trim(&self.tokens[start..self.at]);
        match run {
            [] if start == self.at => Err(self.refuse("a value is missing")),
            [] => Err(self.refuse("the value is blank")),
            [token] => Ok(typed(token)),
            tokens => Ok(OverrideElement::Text(tokens.iter().map(unescaped).collect())),
        }
    }
}

fn is_primitive(kind: TokenKind, is_value: bool) -> bool {
    use TokenKind::*;
    match kind {
        Id | Null | Integer | Float | Boolean | Character | Escape | Blank => true,
        Interpolation | Colon => is_value,
        _ => false,
    }
}

/// Without the blanks at both ends.
fn trim(tokens: &[Token]) -> &[Token] {
    let tokens = match tokens {
        [first, rest @ ..] if first.kind == TokenKind::Blank => rest,
        tokens => tokens,
    };
    match tokens {
        [rest @ .., last] if last.kind == TokenKind::Blank => rest,
        tokens => tokens,
    }
}

fn unescaped(token: &Token) -> String {
    match token.kind {
        TokenKind::Escape => token.text.chars().skip(1).step_by(2).collect(),
        _ => token.text.clone(),
    }
}

fn typed(token: &Token) -> OverrideElement {
    let number = || token.text.replace('_', "");
    match token.kind {
        TokenKind::Null => OverrideElement::Null,
        TokenKind::Boolean => OverrideElement::Bool(token.text.eq_ignore_ascii_case("true")),
        TokenKind::Integer => {
            let limit = if token.text.starts_with('-') { i128::MIN } else { i128::MAX };
            OverrideElement::Int(number().parse().unwrap_or(limit))
        }
        TokenKind::Float => OverrideElement::Float(number().parse().unwrap_or(f64::NAN)),
        _ => OverrideElement::Text(unescaped(token)),
    }
}

/// Backslashes have a meaning only before a quote: each pair is one backslash, an odd one escapes the quote.
fn unquote(token: &str) -> String {
    let quote = token.chars().next().unwrap_or('\'');
    let mut text = String::new();
    let mut backslashes = 0;
    for c in token.chars().skip(1) {
        if c == '\\' {
            backslashes += 1;
            continue;
        }
        let kept = if c == quote { backslashes / 2 } else { backslashes };
        text.extend(std::iter::repeat_n('\\', kept));
        // The closing quote is the only one that is not escaped.
        if c != quote || backslashes % 2 == 1 {
            text.push(c);
        }
        backslashes = 0;
    }
    text
}
