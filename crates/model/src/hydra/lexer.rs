//! The tokens of Hydra's override grammar. A key and a value have different tokens; the first `=` separates them. At
//! each position the longest token wins, and of two equally long ones the first in the table.

use super::CompositionError;

/// What a value may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lexicon {
    /// What Hydra accepts.
    Strict,
    /// More: a character that Hydra rejects (`~`, `#`, letters with accents) is text, because it mostly occurs in a
    /// path, and blanks may follow a value.
    Permissive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Tilde,
    Plus,
    At,
    Slash,
    Dollar,
    DotPath,
    Equal,
    Colon,
    Comma,
    ParenthesisOpen,
    ParenthesisClose,
    BracketOpen,
    BracketClose,
    BraceOpen,
    BraceClose,
    Float,
    Integer,
    Boolean,
    Null,
    Id,
    Character,
    Escape,
    Blank,
    Quoted,
    Interpolation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub text: String,
    /// The position of its first character.
    pub at: usize,
}

/// The number of characters that a rule takes; 0 if it does not match.
type LexerRule = fn(&[char]) -> usize;

const KEY_RULES: &[(TokenKind, LexerRule)] = &[
    (TokenKind::Equal, |text| single(text, '=')),
    (TokenKind::Tilde, |text| single(text, '~')),
    (TokenKind::Plus, |text| single(text, '+')),
    (TokenKind::At, |text| single(text, '@')),
    (TokenKind::Colon, |text| single(text, ':')),
    (TokenKind::Slash, |text| single(text, '/')),
    (TokenKind::Id, |text| word(text, "_", "_-")),
    (TokenKind::Dollar, special),
    (TokenKind::DotPath, dot_path),
];

const VALUE_RULES: &[(TokenKind, LexerRule)] = &[
    (TokenKind::ParenthesisOpen, |text| mark(text, true, '(', true)),
    (TokenKind::Comma, |text| mark(text, true, ',', true)),
    (TokenKind::ParenthesisClose, |text| mark(text, true, ')', false)),
    (TokenKind::BracketOpen, |text| mark(text, false, '[', true)),
    (TokenKind::BracketClose, |text| mark(text, true, ']', false)),
    (TokenKind::BraceOpen, |text| mark(text, false, '{', true)),
    (TokenKind::BraceClose, |text| mark(text, true, '}', false)),
    (TokenKind::Colon, |text| mark(text, true, ':', true)),
    (TokenKind::Equal, |text| mark(text, true, '=', true)),
    (TokenKind::Float, float),
    (TokenKind::Integer, |text| signed(text, unsigned)),
    (TokenKind::Boolean, |text| keyword(text, "true").max(keyword(text, "false"))),
    (TokenKind::Null, |text| keyword(text, "null")),
    (TokenKind::Character, |text| usize::from(text.first().is_some_and(|c| r"/-\+.$%*@?|".contains(*c)))),
    (TokenKind::Id, |text| word(text, "_", "_-")),
    (TokenKind::Escape, escapes),
    (TokenKind::Blank, blanks),
    (TokenKind::Quoted, quoted),
    (TokenKind::Interpolation, interpolation),
];

/// The tokens of a whole override.
pub(super) fn override_tokens(text: &str) -> Result<Vec<Token>, CompositionError> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens: Vec<Token> = Vec::new();
    let mut at = 0;
    while at < chars.len() && tokens.last().is_none_or(|token| token.kind != TokenKind::Equal) {
        let token = next_token(&chars, at, KEY_RULES).ok_or_else(|| unexpected(text, &chars, at))?;
        at += token.text.chars().count();
        tokens.push(token);
    }
    at += blanks(&chars[at..]);
    tokens.extend(value_tokens_from(text, &chars, at, Lexicon::Strict)?);
    Ok(tokens)
}

/// The tokens of a value.
pub(super) fn value_tokens(text: &str, lexicon: Lexicon) -> Result<Vec<Token>, CompositionError> {
    let chars: Vec<char> = text.chars().collect();
    value_tokens_from(text, &chars, 0, lexicon)
}

fn value_tokens_from(
    text: &str,
    chars: &[char],
    mut at: usize,
    lexicon: Lexicon,
) -> Result<Vec<Token>, CompositionError> {
    let mut tokens = Vec::new();
    while at < chars.len() {
        let token = match next_token(chars, at, VALUE_RULES) {
            Some(token) => token,
            None if lexicon == Lexicon::Permissive && !['\'', '"'].contains(&chars[at]) => {
                Token { kind: TokenKind::Character, text: chars[at].to_string(), at }
            }
            None => return Err(unexpected(text, chars, at)),
        };
        at += token.text.chars().count();
        tokens.push(token);
    }
    Ok(tokens)
}

fn next_token(chars: &[char], at: usize, rules: &[(TokenKind, LexerRule)]) -> Option<Token> {
    let rest = &chars[at..];
    let mut best: Option<(TokenKind, usize)> = None;
    for (kind, rule) in rules {
        let length = rule(rest);
        if length > best.map_or(0, |(_, length)| length) {
            best = Some((*kind, length));
        }
    }
    let (kind, length) = best?;
    Some(Token { kind, text: rest[..length].iter().collect(), at })
}

fn unexpected(text: &str, chars: &[char], at: usize) -> CompositionError {
    let c = chars[at];
    let why = match c {
        '\'' | '"' if chars[..at].contains(&c) || !chars[at + 1..].contains(&c) => {
            format!(
                "'{c}' is not closed, or stands inside a text: put a backslash before it, or quote the text"
            )
        }
        _ => format!("'{}' cannot stand here; a text with this character needs quotes", c.escape_debug()),
    };
    CompositionError::at(text, at, &why)
}

fn single(text: &[char], c: char) -> usize {
    usize::from(text.first() == Some(&c))
}

pub(super) fn blanks(text: &[char]) -> usize {
    text.iter().take_while(|c| matches!(c, ' ' | '\t')).count()
}

/// A punctuation mark with the blanks around it.
fn mark(text: &[char], blanks_before: bool, c: char, blanks_after: bool) -> usize {
    let before = if blanks_before { blanks(text) } else { 0 };
    if text.get(before) != Some(&c) {
        return 0;
    }
    before + 1 + if blanks_after { blanks(&text[before + 1..]) } else { 0 }
}

fn word(text: &[char], first: &str, others: &str) -> usize {
    if !text.first().is_some_and(|c| c.is_ascii_alphabetic() || first.contains(*c)) {
        return 0;
    }
    text.iter().take_while(|c| c.is_ascii_alphanumeric() || others.contains(**c)).count()
}

/// A word that may contain `$`.
fn special(text: &[char]) -> usize {
    word(text, "_$", "_-$")
}

fn dot_path(text: &[char]) -> usize {
    let part = |text: &[char]| special(text).max(unsigned(text));
    let mut length = part(text);
    let mut parts = usize::from(length > 0);
    while parts > 0 && text.get(length) == Some(&'.') && part(&text[length + 1..]) > 0 {
        length += 1 + part(&text[length + 1..]);
        parts += 1;
    }
    if parts > 1 { length } else { 0 }
}

fn keyword(text: &[char], keyword: &str) -> usize {
    let length = keyword.len();
    let fits =
        text.len() >= length && text.iter().zip(keyword.chars()).all(|(a, b)| a.eq_ignore_ascii_case(&b));
    if fits { length } else { 0 }
}

/// Digits with single underscores between them.
fn digits(text: &[char]) -> usize {
    let digit = |at: usize| text.get(at).is_some_and(char::is_ascii_digit);
    let mut length = usize::from(digit(0));
    while length > 0 {
        length += match (digit(length), text.get(length) == Some(&'_') && digit(length + 1)) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => break,
        };
    }
    length
}

/// An integer without a sign and without leading zeros.
fn unsigned(text: &[char]) -> usize {
    if text.first() == Some(&'0') { 1 } else { digits(text) }
}

fn signed(text: &[char], body: LexerRule) -> usize {
    let sign = usize::from(text.first().is_some_and(|c| matches!(c, '+' | '-')));
    match body(&text[sign..]) {
        0 => 0,
        length => sign + length,
    }
}

fn float(text: &[char]) -> usize {
    signed(text, |text| {
        let point = point_float(text);
        let exponents = [point, unsigned(text)].map(|base| exponent(text, base));
        let words = keyword(text, "inf").max(keyword(text, "nan"));
        exponents.into_iter().chain([point, words]).max().unwrap_or(0)
    })
}

fn point_float(text: &[char]) -> usize {
    let whole = unsigned(text);
    if text.get(whole) != Some(&'.') {
        return 0;
    }
    match digits(&text[whole + 1..]) {
        0 if whole == 0 => 0,
        fraction => whole + 1 + fraction,
    }
}

fn exponent(text: &[char], base: usize) -> usize {
    if base == 0 || !text.get(base).is_some_and(|c| matches!(c, 'e' | 'E')) {
        return 0;
    }
    match signed(&text[base + 1..], digits) {
        0 => 0,
        length => base + 1 + length,
    }
}

/// Characters that a backslash escapes.
pub(super) const ESCAPABLE: &str = "\\()[]{}:=, \t";

fn escapes(text: &[char]) -> usize {
    let pairs = text.chunks_exact(2).take_while(|pair| pair[0] == '\\' && ESCAPABLE.contains(pair[1]));
    pairs.count() * 2
}

/// Up to the first closing quote that an even number of backslashes precedes.
fn quoted(text: &[char]) -> usize {
    let Some(quote) = text.first().filter(|c| matches!(c, '\'' | '"')) else { return 0 };
    let mut backslashes = 0;
    for (at, c) in text.iter().enumerate().skip(1) {
        if c == quote && backslashes % 2 == 0 {
            return at + 1;
        }
        backslashes = if *c == '\\' { backslashes + 1 } else { 0 };
    }
    0
}

fn interpolation(text: &[char]) -> usize {
    if !text.starts_with(&['$', '{']) {
        return 0;
    }
    match text.iter().position(|c| *c == '}') {
        Some(end) if end > 2 => end + 1,
        _ => 0,
    }
}
