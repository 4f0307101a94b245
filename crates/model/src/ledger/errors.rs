//! Read errors: how many of each kind, and a few of them in full. Which examples are kept does not depend on the order
//! in which threads and nodes add theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::units::grouped;

/// The number of examples per kind.
pub(super) const EXAMPLES: usize = 4;

/// One error: where it occurred, and its message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ErrorExample {
    pub rank: u64,
    pub step: u64,
    pub file: String,
    /// The offset at which the I/O backend failed.
    pub offset: u64,
    pub message: String,
}

impl fmt::Display for ErrorExample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorExample { rank, step, file, offset, message } = self;
        write!(f, "rank {rank}, step {step}, {file} at byte {}: {message}", grouped(*offset))
    }
}

/// The errors of one kind. Keeps the first examples by rank, step, file and offset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTally {
    pub count: u64,
    pub examples: Vec<ErrorExample>,
}

impl AddAssign for ErrorTally {
    fn add_assign(&mut self, ErrorTally { count, examples }: ErrorTally) {
        self.count += count;
        self.examples.extend(examples);
        self.examples.sort();
        self.examples.truncate(EXAMPLES);
    }
}

/// Errors by kind. A kind is a short word: the kernel's name of the error, or one of our own (`short`, `long`,
/// `damaged`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Errors {
    kinds: BTreeMap<String, ErrorTally>,
}

impl Errors {
    pub fn add(&mut self, kind: String, example: ErrorExample) {
        *self.kinds.entry(kind).or_default() += ErrorTally { count: 1, examples: vec![example] };
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Over all kinds.
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|met| met.count).sum()
    }

    /// By kind.
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &ErrorTally)> {
        self.kinds.iter().map(|(kind, met)| (kind.as_str(), met))
    }
}

impl AddAssign for Errors {
    fn add_assign(&mut self, Errors { kinds }: Errors) {
        for (kind, met) in kinds {
            *self.kinds.entry(kind).or_default() += met;
        }
    }
}

/// `eio 12, short 1`
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> =
            self.kinds().map(|(kind, met)| format!("{kind} {}", grouped(met.count))).collect();
        f.write_str(&kinds.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(met: &[(&str, u64)]) -> Errors {
        let mut errors = Errors::default();
        for (kind, step) in met {
            let example =
                ErrorExample { rank: 0, step: *step, file: "a".into(), offset: 1000, message: "no".into() };
            errors.add((*kind).to_owned(), example);
        }
        errors
    }

    #[test]
    fn the_same_examples_are_kept_in_any_order() {
        let all = [("eio", 5), ("eio", 3), ("short", 9), ("eio", 1), ("eio", 4), ("eio", 2), ("eio", 3)];
        let whole = errors(&all);
        for cut in 0..all.len() {
            let (mut here, mut there) = (errors(&all[..cut]), errors(&all[cut..]));
            there += here.clone();
            here += errors(&all[cut..]);
            assert_eq!((&here, &there), (&whole, &whole), "cut at {cut}");
        }
        assert_eq!((whole.count(), whole.to_string().as_str()), (7, "eio 6, short 1"));
        let steps: Vec<u64> = whole.kinds["eio"].examples.iter().map(|example| example.step).collect();
        assert_eq!(steps, [1, 2, 3, 3]);
        assert_eq!(whole.kinds["short"].examples[0].to_string(), "rank 0, step 9, a at byte 1,000: no");
    }
}
