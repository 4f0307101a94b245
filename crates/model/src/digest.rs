//! Fingerprints of what was delivered: a sum over samples that does not depend on the order in which threads and
//! ranks add it up, and that any missing, doubled or foreign sample changes. Constant memory.

use std::ops::{AddAssign, SubAssign};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::order::{mix, scramble};

/// Separates the two halves of a sample's hash; any two different odd constants do.
const HALF_A: u64 = 0xa076_1d64_78bd_642f;
const HALF_B: u64 = 0xe703_7ed1_a0b4_28db;

/// A sum of 128-bit hashes of sample numbers, modulo 2^128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    /// Adds one sample.
    pub fn insert(&mut self, sample: u64) {
        let high = scramble(sample ^ HALF_A);
        let low = scramble(sample.wrapping_mul(HALF_B) ^ HALF_B);
        self.0 = self.0.wrapping_add(u128::from(high) << 64 | u128::from(low));
    }

    /// The digest of the samples `0..count`, each once.
    pub fn of_first(count: u64) -> Digest {
        let mut digest = Digest::default();
        (0..count).for_each(|sample| digest.insert(sample));
        digest
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Digest) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl SubAssign for Digest {
    fn sub_assign(&mut self, other: Digest) {
        self.0 = self.0.wrapping_sub(other.0);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// As 32 hexadecimal digits: JSON numbers cannot hold 128 bits.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Digest).map_err(serde::de::Error::custom)
    }
}

/// The contribution of one sample at one position to an epoch's order: a sum over these tells two orders of the
/// same samples apart, whoever adds it up in whatever sequence.
pub fn placed(position: u64, sample: u64) -> u64 {
    mix(position, sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(samples: impl IntoIterator<Item = u64>) -> Digest {
        let mut digest = Digest::default();
        samples.into_iter().for_each(|sample| digest.insert(sample));
        digest
    }

    #[test]
    fn order_does_not_matter_but_every_sample_does() {
        let whole = Digest::of_first(1000);
        assert_eq!(whole, digest((0..1000).rev()));
        assert_ne!(whole, digest(0..999), "one dropped");
        assert_ne!(whole, digest((0..1000).chain([5])), "one doubled");
        assert_ne!(whole, digest((0..1000).map(|s| if s == 7 { 8 } else { s })), "one swapped for another");
        // Equal sums of numbers and of squares: a weaker digest would not see this one.
        assert_ne!(digest([0, 3, 5, 6]), digest([1, 2, 4, 7]));
    }

    #[test]
    fn parts_add_up_and_can_be_taken_away() {
        let mut sum = digest(0..400);
        sum += digest(400..1000);
        assert_eq!(sum, Digest::of_first(1000));
        sum -= digest(990..1000);
        assert_eq!(sum, Digest::of_first(990));
    }

    #[test]
    fn it_survives_json() {
        let before = Digest::of_first(17);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), before);
    }
}
