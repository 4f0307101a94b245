//! Where to divide a range of names in two: a border is guessed from the names at its ends, and probes show whether
//! names lie behind it. A bad border costs time and nothing else: both halves are listed completely, wherever it is.
//! Nothing here sends a request.

use std::ops::RangeInclusive;

/// Positions of a name that count for its value, if their classes are small.
const POSITIONS: usize = 12;
/// The largest value of a position's weight; the product of two of them must fit into 128 bits.
const MOST: u128 = 1 << 96;
/// Attempts to find a border in the middle, after the search for the place where names differ.
const ATTEMPTS: usize = 4;

/// A border between `from` and `end`, with names on its far side; `None` if there is no good one. `probe` returns the
/// first name after its argument, if there is one before the end of the range. It is called a few times: at most once
/// per bit of the length of `from`, plus six.
pub(super) fn find_border<E>(
    from: &str,
    end: Option<&str>,
    mut probe: impl FnMut(&str) -> Result<Option<String>, E>,
) -> Result<Option<String>, E> {
    // The middle, if the names are distributed evenly.
    if let Some(middle) = end.and_then(|end| between(from, end))
        && probe(&middle)?.is_some()
    {
        return Ok(Some(middle));
    }
    // Otherwise many names have their beginning in common. The longest beginning that all the names have is found by
    // halving: names behind `bumped` of a beginning do not have it.
    let cuts: Vec<usize> = from.char_indices().map(|(at, c)| at + c.len_utf8()).collect();
    let inside = |border: &str| border > from && end.is_none_or(|end| border < end);
    let borders: Vec<String> =
        cuts.iter().filter_map(|cut| bumped(&from[..*cut])).filter(|border| inside(border)).collect();
    let (mut low, mut high, mut found) = (0, borders.len(), None);
    while low < high {
        let middle = low + (high - low) / 2;
        match probe(&borders[middle])? {
            Some(name) => (high, found) = (middle, Some((middle, name))),
            None => low = middle + 1,
        }
    }
    let Some((at, name)) = found else { return Ok(None) };
    // There the names differ: look for a border in the middle of those behind.
    let nearest = &borders[at];
    let mut far = beyond(nearest, &name).filter(|far| inside(far)).or(end.map(str::to_owned));
    for _ in 0..ATTEMPTS {
        let Some(middle) =
            far.as_deref().and_then(|far| between(from, far)).filter(|middle| middle > nearest)
        else {
            break;
        };
        if probe(&middle)?.is_some() {
            return Ok(Some(middle));
        }
        far = Some(middle);
    }
    Ok(Some(nearest.clone()))
}

/// A name after all names that begin with `beginning`, except for itself and longer ones: its last character is
/// replaced by the next one.
fn bumped(beginning: &str) -> Option<String> {
    let last = beginning.chars().next_back()?;
    // Skips the code points that are not characters.
    let next = (u32::from(last) + 1..).take(0x1000).find_map(char::from_u32)?;
    let mut border = beginning[..beginning.len() - last.len_utf8()].to_owned();
    border.push(next);
    Some(border)
}

/// A name behind all those that are like `name` where `border` ends: the last character of its class.
fn beyond(border: &str, name: &str) -> Option<String> {
    let last = border.chars().next_back()?;
    let at = border.len() - last.len_utf8();
    let there = name.get(at..)?.chars().next()?;
    let mut far = border[..at].to_owned();
    far.push(*class(there).end());
    bumped(&far)
}

/// A name in the middle between two others, if there is one: both are read as numbers, whose digits are the characters
/// of a class.
pub(super) fn between(low: &str, high: &str) -> Option<String> {
    let common = low.char_indices().zip(high.chars()).find(|((_, a), b)| a != b).map_or_else(
        // One of them is the beginning of the other.
        || low.len().min(high.len()),
        |((at, _), _)| at,
    );
    let (mut a, mut b) = (low[common..].chars(), high[common..].chars());
    let (mut classes, mut weight) = (Vec::new(), 1u128);
    let (mut sum_a, mut sum_b) = (0u128, 0u128);
    while classes.len() < POSITIONS {
        let (x, y) = (a.next(), b.next());
        let class = match (x, y) {
            (None, None) => break,
            (Some(c), None) | (None, Some(c)) => class(c),
            (Some(x), Some(y)) => hull(&class(x), &class(y)),
        };
        // Where one of them has no character, that is the digit 0.
        let (start, missing) = (u32::from(*class.start()), u32::from(x.is_none() || y.is_none()));
        let base = u128::from(u32::from(*class.end()) - start + 1 + missing);
        if weight.checked_mul(base).is_none_or(|weight| weight > MOST) {
            break;
        }
        let digit = |c: Option<char>| c.map_or(0, |c| u128::from(u32::from(c) - start + missing));
        (sum_a, sum_b) = (sum_a * base + digit(x), sum_b * base + digit(y));
        weight *= base;
        classes.push((start, missing, base));
    }
    let mut middle = sum_a.checked_add(sum_b.checked_sub(sum_a)? / 2)?;
    let mut digits = Vec::with_capacity(classes.len());
    for (start, missing, base) in classes.into_iter().rev() {
        digits.push((start, missing, (middle % base) as u32));
        middle /= base;
    }
    let mut name = low[..common].to_owned();
    for (start, missing, digit) in digits.into_iter().rev() {
        // The name ends at the first position without a character.
        let Some(digit) = digit.checked_sub(missing) else { break };
        name.push(char::from_u32(start + digit)?);
    }
    (name.as_str() > low && name.as_str() < high).then_some(name)
}

/// How far `at` is on the way from `low` to `high`, from 0 to 1, if names are distributed evenly.
pub(super) fn progress(low: &str, at: &str, high: &str) -> f64 {
    let common = low.chars().zip(high.chars()).take_while(|(a, b)| a == b).count();
    let (mut a, mut b, mut x) =
        (low.chars().skip(common), high.chars().skip(common), at.chars().skip(common));
    let (mut scale, mut values) = (1.0, [0.0; 3]);
    for _ in 0..POSITIONS {
        let chars = [a.next(), b.next(), x.next()];
        let mut known = chars.into_iter().flatten().map(class);
        let Some(first) = known.next() else { break };
        let class = known.fold(first, |all, one| hull(&all, &one));
        let (start, missing) = (u32::from(*class.start()), u32::from(chars.contains(&None)));
        scale /= f64::from(u32::from(*class.end()) - start + 1 + missing);
        for (value, c) in values.iter_mut().zip(chars) {
            *value += c.map_or(0.0, |c| f64::from(u32::from(c) - start + missing)) * scale;
        }
    }
    let [low, high, at] = values;
    if high > low { ((at - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 }
}

/// The characters that may be in the place of another: digits for a digit, letters for a letter.
fn class(c: char) -> RangeInclusive<char> {
    match c {
        '0'..='9' => '0'..='9',
        'a'..='z' => 'a'..='z',
        'A'..='Z' => 'A'..='Z',
        c => c..=c,
    }
}

fn hull(a: &RangeInclusive<char>, b: &RangeInclusive<char>) -> RangeInclusive<char> {
    *a.start().min(b.start())..=*a.end().max(b.end())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn progress_follows_the_names() {
        assert_eq!((progress("a0", "a0", "a8"), progress("a0", "a8", "a8")), (0.0, 1.0));
        for (at, share) in [("img_0250.x", 0.25), ("img_0500.x", 0.5), ("img_0999.x", 1.0)] {
            let found = progress("img_0000.x", at, "img_1000.x");
            assert!((found - share).abs() < 0.01, "{at}: {found}");
        }
        assert_eq!(progress("", "m", ""), 0.0);
    }

    #[test]
    fn the_middle_of_numbers_is_found() {
        for (low, high, middle) in [
            ("img_0000000.jpg", "img_0100000.jpg", "img_0050000"),
            ("a", "c", "b"),
            ("train/007", "train/111", "train/059"),
            ("a", "a4", "a1"),
        ] {
            let found = between(low, high).unwrap();
            assert!(found.starts_with(middle), "{low} {high}: {found}");
        }
        assert_eq!(between("a", "a!"), None);
    }

    /// The share of the names that are on the far side of the border, and the number of probes.
    fn divided(names: &[String], from: usize, end: Option<usize>) -> (f64, usize) {
        let (range, mut probes) = (&names[from + 1..end.map_or(names.len(), |end| end + 1)], 0);
        let end = end.map(|end| names[end].as_str());
        let border = find_border(&names[from], end, |after| {
            probes += 1;
            assert!(after > names[from].as_str() && end.is_none_or(|end| after < end), "{after}");
            Ok::<_, Infallible>(range.iter().find(|name| name.as_str() > after).cloned())
        });
        let Some(border) = border.unwrap() else { return (0.0, probes) };
        let far = range.iter().filter(|name| **name > border).count();
        (far as f64 / range.len() as f64, probes)
    }

    #[test]
    fn usual_names_are_divided_well_with_few_probes() {
        let numbered = |count: usize, form: fn(usize) -> String| {
            let mut names: Vec<String> = (0..count).map(form).collect();
            names.sort();
            names
        };
        for (what, names) in [
            ("dlio", numbered(20_000, |i| format!("train/img_{i:05}_of_20000.npz"))),
            ("round", numbered(10_001, |i| format!("data/part-{i:05}"))),
            ("unpadded", numbered(20_000, |i| format!("x{i}"))),
            ("folders", numbered(20_000, |i| format!("train/{:03}/img_{i}.jpg", i % 100))),
            ("hex", numbered(20_000, |i| format!("objects/{:08x}", (i as u32).wrapping_mul(0x9e37_79b9)))),
            (
                "splits",
                numbered(20_000, |i| {
                    format!("set/{}/{i:07}.jpg", if i % 20 == 0 { "valid" } else { "train" })
                }),
            ),
            ("unicode", numbered(5_000, |i| format!("größe/é{i:05}"))),
        ] {
            let page = names.len().min(1000) - 1;
            for end in [None, Some(names.len() - 1)] {
                // What a second thread takes in one or two steps.
                let (mut far, mut probes) = divided(&names, page, end);
                if far < 0.2 {
                    let cut = names.len() - 1 - (far * (names.len() - page) as f64) as usize;
                    let (more, again) = divided(&names, page, Some(cut));
                    (far, probes) = (more, probes + again);
                }
                assert!((0.2..=0.95).contains(&far), "{what} {end:?}: {far}");
                assert!(probes <= 24, "{what} {end:?}: {probes} probes");
            }
        }
    }

    proptest! {
        #[test]
        fn a_border_is_inside_and_the_probes_are_few(
            names in proptest::collection::btree_set("[a-c0-3/é ]{1,12}", 2..40),
            at in any::<prop::sample::Index>(),
            bounded in any::<bool>()
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let from = at.index(names.len() - 1);
            let (far, probes) = divided(&names, from, bounded.then(|| names.len() - 1));
            prop_assert!((0.0..=1.0).contains(&far));
            prop_assert!(probes <= 11, "{probes}");
        }

        #[test]
        fn the_middle_is_between(a in "\\PC{0,12}", b in "\\PC{0,12}") {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            if let Some(middle) = between(&low, &high) {
                prop_assert!(low < middle && middle < high);
            }
        }
    }
}
