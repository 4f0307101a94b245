//! The syntax of strace's lines: process, time, call, arguments, result and duration.

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineTime {
    /// No time.
    None,
    /// `-ttt`: nanoseconds since 1970.
    Epoch(u64),
    /// `-t` and `-tt`: nanoseconds of the day.
    Clock(u64),
    /// `-r`: nanoseconds since the line before.
    Relative(u64),
}

/// A line.
#[derive(Debug, PartialEq)]
pub(super) struct StraceLine<'a> {
    /// The thread, if the line says so.
    pub(super) tid: Option<u32>,
    pub(super) time: LineTime,
    pub(super) body: LineBody<'a>,
}

/// What a line says.
#[derive(Debug, PartialEq)]
pub(super) enum LineBody<'a> {
    /// A whole call.
    Call(CallLine<'a>),
    /// The first part of a call.
    Unfinished(&'a str),
    /// The rest of it.
    Resumed(&'a str),
    Exited(i32),
    Killed(&'a str),
    /// Another thread of the process executed a program.
    Superseded,
    /// Signals, and messages of strace.
    Ignored,
}

/// A call with its result.
#[derive(Debug, PartialEq)]
pub(super) struct CallLine<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: Vec<&'a str>,
    /// None if the call did not return. Failures are -1: their reason is not needed.
    pub(super) result: Option<i64>,
    /// The path behind a descriptor in the result.
    pub(super) path: Option<&'a str>,
    pub(super) duration_ns: Option<u64>,
}

impl CallLine<'_> {
    pub(super) fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// An argument that is a number.
    pub(super) fn number(&self, index: usize) -> Option<i64> {
        number(self.argument(index))
    }
}

/// A descriptor as an argument, with the path that `-y` adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FdArgument<'a> {
    /// None: `AT_FDCWD`.
    pub(super) fd: Option<i32>,
    pub(super) path: Option<&'a str>,
}

/// Splits a line. `None`: it is not one of strace.
pub(super) fn parse_line(line: &str) -> Option<StraceLine<'_>> {
    let mut rest = line.trim_end();
    if rest.starts_with("strace: ") || rest.starts_with("[ Process PID=") {
        return Some(StraceLine { tid: None, time: LineTime::None, body: LineBody::Ignored });
    }
    let mut tid = None;
    if let Some((inside, after)) = rest.strip_prefix("[pid").and_then(|rest| rest.split_once(']')) {
        tid = Some(inside.trim().parse().ok()?);
        rest = after.trim_start();
    } else if let Some((first, after)) = rest.split_once(' ')
        && first.bytes().all(|byte| byte.is_ascii_digit())
        && !first.is_empty()
    {
        tid = Some(first.parse().ok()?);
        rest = after.trim_start();
    }
    let (time, rest) = parse_time(rest);
    Some(StraceLine { tid, time, body: parse_body(rest)? })
}

fn parse_time(text: &str) -> (LineTime, &str) {
    let text = text.trim_start();
    let Some((word, rest)) = text.split_once(' ') else { return (LineTime::None, text) };
    let time = if word.contains(':') {
        clock(word).map(LineTime::Clock)
    } else if word.contains('.') {
        // A difference has fewer digits than the seconds since 1970.
        let is_epoch = word.find('.').is_some_and(|digits| digits >= 9);
        nanoseconds(word).map(if is_epoch { LineTime::Epoch } else { LineTime::Relative })
    } else {
        None
    };
    let Some(time) = time else { return (LineTime::None, text) };
    let rest = rest.trim_start();
    // With -r and another form of time, the difference follows: `(+     0.000030)`.
    let rest = rest.strip_prefix("(+").and_then(|rest| rest.split_once(") ")).map_or(rest, |(_, rest)| rest);
    (time, rest.trim_start())
}

/// `15:27:54.785653` as nanoseconds of the day.
fn clock(word: &str) -> Option<u64> {
    let mut parts = word.splitn(3, ':');
    let mut part = || parts.next()?.parse::<u64>().ok();
    let (hours, minutes) = (part()?, part()?);
    let seconds = nanoseconds(word.rsplit(':').next()?)?;
    Some((hours * 60 + minutes) * 60_000_000_000 + seconds)
}

/// Seconds with a fraction of up to nine digits.
pub(super) fn nanoseconds(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let digits = fraction.len();
    if digits > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: u64 = if digits == 0 { 0 } else { fraction.parse().ok()? };
    let seconds: u64 = whole.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction * 10u64.pow(9 - digits as u32))
}

fn parse_body(text: &str) -> Option<LineBody<'_>> {
    if let Some(rest) = text.strip_prefix("+++ ") {
        let end = rest.strip_suffix(" +++")?;
        if let Some(code) = end.strip_prefix("exited with ") {
            return Some(LineBody::Exited(code.parse().ok()?));
        }
        if let Some(signal) = end.strip_prefix("killed by ") {
            return Some(LineBody::Killed(signal.split(' ').next().unwrap_or_default()));
        }
        return Some(if end.starts_with("superseded") { LineBody::Superseded } else { LineBody::Ignored });
    }
    if text.starts_with("--- ") {
        return Some(LineBody::Ignored);
    }
    if let Some((_, rest)) = text.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
        return Some(LineBody::Resumed(rest));
    }
    if let Some(start) = text.strip_suffix("<unfinished ...>") {
        name_of(start)?;
        return Some(LineBody::Unfinished(start));
    }
    name_of(text)?;
    if text.ends_with("<detached ...>") {
        return Some(LineBody::Ignored);
    }
    parse_call(text).map(LineBody::Call)
}

/// The name of the call that a text begins with.
pub(super) fn name_of(text: &str) -> Option<&str> {
    let (name, _) = text.split_once('(')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some(name)
}

/// Splits a whole call.
pub(super) fn parse_call(text: &str) -> Option<CallLine<'_>> {
    let name = name_of(text)?;
    let after = text.get(name.len() + 1..)?;
    let (arguments, rest) = split_arguments(after)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (result, duration) = match rest.rsplit_once(" <") {
        Some((result, duration)) => match duration.strip_suffix('>').and_then(nanoseconds) {
            Some(duration) => (result, Some(duration)),
            None => (rest, None),
        },
        None => (rest, None),
    };
    let path = decoration(result);
    let word = result.split([' ', '<']).next()?;
    let result = match word {
        "?" => None,
        word => Some(number(word)?),
    };
    Some(CallLine { name, arguments, result, path, duration_ns: duration })
}

/// A decimal, hexadecimal or octal number.
fn number(word: &str) -> Option<i64> {
    let word = word.split([' ', '<']).next()?;
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(|number| number as i64);
    }
    word.parse().ok().or_else(|| word.parse::<u64>().ok().map(|number| number as i64))
}

/// Splits at commas up to the bracket that ends the arguments. Returns what follows it.
fn split_arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let bytes = text.as_bytes();
    let (mut arguments, mut from, mut depth, mut at) = (Vec::new(), 0, 0usize, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_text(bytes, at)?,
            b'<' if is_decoration(bytes, at) => at = end_of_decoration(bytes, at)?,
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                let last = text.get(from..at)?.trim();
                if !last.is_empty() || !arguments.is_empty() {
                    arguments.push(last);
                }
                return Some((arguments, text.get(at + 1..)?));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                arguments.push(text.get(from..at)?.trim());
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where a quoted text that begins at `at` ends.
fn end_of_text(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}

/// Whether `<` begins the path of a descriptor: behind a number or AT_FDCWD.
fn is_decoration(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    let is_descriptor = before.is_some_and(|byte| byte.is_ascii_digit() || *byte == b'D');
    is_descriptor && bytes.get(at + 1) != Some(&b'<')
}

/// Where it ends. With -yy it can hold another one, and arrows.
fn end_of_decoration(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut at) = (1, at + 1);
    loop {
        match bytes.get(at)? {
            b'<' => depth += 1,
            b'>' if bytes.get(at - 1) == Some(&b'-') => {}
            b'>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
        at += 1;
    }
}

/// The path behind a descriptor.
fn decoration(word: &str) -> Option<&str> {
    let at = word.find('<')?;
    if !is_decoration(word.as_bytes(), at) {
        return None;
    }
    let path = word.get(at + 1..end_of_decoration(word.as_bytes(), at)?)?;
    // `/dev/null<char 1:3>` with -yy.
    Some(path.split_once('<').map_or(path, |(path, _)| path))
}

/// A descriptor.
pub(super) fn descriptor(word: &str) -> Option<FdArgument<'_>> {
    let path = decoration(word);
    if word.starts_with("AT_FDCWD") {
        return Some(FdArgument { fd: None, path });
    }
    Some(FdArgument { fd: Some(i32::try_from(number(word)?).ok()?), path })
}

/// A quoted text. `None` if it is none, such as an address.
pub(super) fn unquoted(word: &str) -> Option<Vec<u8>> {
    let inside = word.strip_prefix('"')?;
    let end = end_of_text(word.as_bytes(), 0)?;
    Some(unescaped(inside.get(..end - 1)?))
}

/// A text without escapes.
pub(super) fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes().peekable();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let Some(escape) = bytes.next() else { break };
        plain.push(match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'v' => 0x0b,
            b'f' => 0x0c,
            b'x' => digits(&mut bytes, 0, 2, 16),
            b'0'..=b'7' => digits(&mut bytes, escape - b'0', 2, 8),
            other => other,
        });
    }
    plain
}

/// Up to `most` digits that follow `first`.
fn digits(bytes: &mut std::iter::Peekable<std::str::Bytes<'_>>, first: u8, most: usize, radix: u32) -> u8 {
    let mut value = u32::from(first);
    for _ in 0..most {
        let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(radix)) else { break };
        value = value * radix + digit;
        bytes.next();
    }
    value as u8
}

/// The texts of a list such as `["cat", "file"]`.
pub(super) fn texts(word: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find('"') {
        let (Some(text), Some(end)) = (rest.get(at..), end_of_text(rest.as_bytes(), at)) else { break };
        found.extend(unquoted(text));
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    found
}
