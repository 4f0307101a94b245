//! Compares output with the output that a page shows. Figures, units, times, dates, bars and spaces may differ, and
//! lines may break at other places; words, punctuation and their order may not. `...` stands for any words.

/// Units that follow a number: `0 s` and `4.28 ms` have the same shape.
const UNITS: [&str; 41] = [
    "ns", "us", "µs", "ms", "s", "min", "h", "d", "B", "bytes", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB",
    "GiB", "TiB", "PiB", "k", "K", "M", "G", "T", "%", "B/s", "kB/s", "KB/s", "MB/s", "GB/s", "TB/s",
    "KiB/s", "MiB/s", "GiB/s", "TiB/s", "us/s", "Hz", "x", "m", "days",
];

const ANY: &str = "...";

/// A normalised word, and its line, from 0.
#[derive(Debug)]
struct Word {
    line: usize,
    text: String,
}

/// Where outputs differ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The line of the expected output, from 0.
    pub line: usize,
    pub expected: String,
    pub found: String,
}

/// The first place at which `actual` has not the shape of `expected`; `None` if it has.
pub(crate) fn difference(expected: &str, actual: &str) -> Option<Difference> {
    let (expected, actual) = (words(expected), words(actual));
    let segments: Vec<&[Word]> = expected.split(|word| word.text == ANY).collect();
    let mut at = 0;
    for (number, segment) in segments.iter().enumerate() {
        let (first, last) = (number == 0, number + 1 == segments.len());
        let found = if first && last {
            (segment.len() == actual.len()).then_some(0).filter(|at| fits(segment, &actual[*at..]))
        } else if first {
            Some(0).filter(|at| fits(segment, &actual[*at..]))
        } else if last {
            let tail = actual.len().checked_sub(segment.len()).filter(|tail| *tail >= at);
            tail.filter(|tail| fits(segment, &actual[*tail..]))
        } else {
            (at..=actual.len()).find(|start| fits(segment, &actual[*start..]))
        };
        let Some(start) = found else {
            let anchored = if first { Some(0) } else { None };
            return Some(nearest(segment, &actual, at, anchored, expected.last()));
        };
        at = start + segment.len();
    }
    None
}

fn fits(segment: &[Word], actual: &[Word]) -> bool {
    segment.len() <= actual.len() && agreeing(segment, actual) == segment.len()
}

fn agreeing(segment: &[Word], actual: &[Word]) -> usize {
    segment.iter().zip(actual).take_while(|(expected, found)| expected.text == found.text).count()
}

/// Describes the place that agrees with most of a segment.
fn nearest(
    segment: &[Word],
    actual: &[Word],
    from: usize,
    anchored: Option<usize>,
    last: Option<&Word>,
) -> Difference {
    let starts = anchored.map_or(from..actual.len() + 1, |start| start..start + 1);
    let mut best = (0, from.min(actual.len()));
    for start in starts {
        let count = agreeing(segment, &actual[start..]);
        if count > best.0 {
            best = (count, start);
        }
    }
    let (count, start) = best;
    let text = |words: &[Word]| {
        let words: Vec<&str> = words.iter().take(12).map(|word| word.text.as_str()).collect();
        if words.is_empty() { "the end of the output".to_owned() } else { words.join(" ") }
    };
    let line = segment.get(count).or(segment.last()).or(last).map_or(0, |word| word.line);
    Difference { line, expected: text(&segment[count..]), found: text(&actual[start + count..]) }
}

fn words(text: &str) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        for word in content.split_whitespace() {
            let core = word.trim_end_matches([',', ':', ';', '.', ')']);
            let rest = &word[core.len()..];
            let follows_a_number = found.last().is_some_and(|last| last.text.ends_with('#'));
            if let (true, true, Some(last)) = (follows_a_number, UNITS.contains(&core), found.last_mut()) {
                last.text.push_str(rest);
            } else if core == "met" && found.last().is_some_and(|last| last.text == "not") {
                // Whether a target is met depends on the speed of the machine.
                if let Some(last) = found.last_mut() {
                    word.clone_into(&mut last.text);
                }
            } else if !word.chars().all(is_bar) {
                found.push(Word { line, text: normalised(word) });
            }
        }
    }
    found
}

/// Blocks and dots with which bars and plots are drawn.
fn is_bar(letter: char) -> bool {
    ('\u{2580}'..='\u{259f}').contains(&letter) || ('\u{2800}'..='\u{28ff}').contains(&letter)
}

/// A word with `#` in the place of numbers with their units, and of hexadecimal digests.
fn normalised(word: &str) -> String {
    if word == ANY {
        return word.to_owned();
    }
    let letters: Vec<char> = word.trim_start_matches(is_sign_of_number(word)).chars().collect();
    let (mut text, mut at) = (String::new(), 0);
    while at < letters.len() {
        let start = at;
        let run = |from: usize, belongs: &dyn Fn(char) -> bool| {
            letters[from..].iter().take_while(|letter| belongs(**letter)).count()
        };
        let word_length = run(at, &|letter| letter.is_ascii_alphanumeric());
        let before = start.checked_sub(1).map(|before| letters[before]);
        let begins = !before.is_some_and(|letter| letter.is_ascii_alphanumeric());
        let is_digest = begins
            && word_length >= 8
            && letters[at..at + word_length].iter().all(|letter| matches!(letter, '0'..='9' | 'a'..='f'))
            && letters[at..at + word_length].iter().any(char::is_ascii_digit);
        if is_digest {
            at += word_length;
            text.push('#');
        } else if letters[at].is_ascii_digit() {
            at = end_of_number(&letters, at);
            let length = run(at, &|letter| letter.is_alphabetic() || letter == '%' || letter == '/');
            let unit: String = letters[at..at + length].iter().collect();
            at += if UNITS.contains(&unit.as_str()) { length } else { 0 };
            text.push('#');
        } else {
            let same = run(at, &|letter| letter == letters[start]);
            let shown = if letters[at].is_alphanumeric() { same } else { same.min(3) };
            text.extend(std::iter::repeat_n(letters[at], shown));
            at += same;
        }
    }
    text
}

/// The sign that a number begins with.
fn is_sign_of_number(word: &str) -> impl Fn(char) -> bool + use<> {
    let mut letters = word.chars();
    let signed = letters.next().is_some_and(|sign| "+-±".contains(sign))
        && letters.next().is_some_and(|letter| letter.is_ascii_digit());
    move |letter| signed && "+-±".contains(letter)
}

/// Digits, groups and decimals: `1,024`, `0.5`, `1e-9`.
fn end_of_number(letters: &[char], mut at: usize) -> usize {
    let digit = |at: usize| letters.get(at).is_some_and(char::is_ascii_digit);
    loop {
        while digit(at) {
            at += 1;
        }
        let mark = letters.get(at).copied();
        if mark.is_some_and(|mark| ".,".contains(mark)) && digit(at + 1) {
            at += 1;
        } else if mark == Some('e') && (digit(at + 1) || letters.get(at + 1) == Some(&'-') && digit(at + 2)) {
            at += 2;
        } else {
            return at;
        }
    }
}

#[test]
fn figures_units_and_line_breaks_may_differ() {
    for (expected, actual) in [
        ("wait  4.28 ms", "wait 0 s"),
        (
            "an epoch takes 335 ms: compute 78 %, start of\n  workers 6 %",
            "an epoch takes 1.2 s: compute 8\n%, start of workers 10 %",
        ),
        ("result in feedline-results/a/20260101_120000", "result in feedline-results/a/20261119_032953"),
        ("a\n  ...\nd", "a b c d"),
        ("a\n...", "a"),
        ("...\nb\n...\nd", "a b c b c d"),
        ("digest 0d3ad0dec188becd", "digest ffff0000aaaa1111"),
        ("target 90 %: met", "target 90 %: not met"),
        ("------ ███ 3", "---------- █ 4"),
        ("1e-5 +3 1,024", "2.5 -4 7"),
    ] {
        assert_eq!(difference(expected, actual), None, "{expected}");
    }
}

#[test]
fn words_may_not() {
    for (expected, actual, line, wanted, found) in [
        ("a\nb c", "a\nb d", 1, "c", "d"),
        ("a\nb", "a", 1, "b", "the end of the output"),
        ("a", "a b", 0, "the end of the output", "b"),
        ("a\n...\nd e", "a b d f", 2, "e", "f"),
        ("a ... c x\n... d", "a b c y d", 0, "x", "y d"),
        ("3 files", "3 folders", 0, "files", "folders"),
    ] {
        let difference = difference(expected, actual).unwrap_or_else(|| panic!("{expected}"));
        assert_eq!(
            (difference.line, difference.expected.as_str(), difference.found.as_str()),
            (line, wanted, found),
            "{expected}"
        );
    }
}
