//! Digests of delivered samples: a sum over samples that does not depend on the order in which threads and ranks add to
//! it. Any missing, duplicate or unexpected sample changes it. It takes constant memory, and a run of consecutive
//! samples costs as much as one sample.
//!
//! The weight of sample x is h(x + 1) - h(x), where h is a 128-bit hash. Over a run of samples the weights telescope to
//! two hashes, however the run is split. Over any collection in which samples do not occur equally often they leave a
//! combination of independent hashes, which is zero once in 2^128.

use std::ops::{AddAssign, Sub, SubAssign};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::order::{mix, scramble};

/// Separates the two halves of a hash; any two different odd constants work.
const HALF_A: u64 = 0xa076_1d64_78bd_642f;
const HALF_B: u64 = 0xe703_7ed1_a0b4_28db;

fn hash(x: u64) -> u128 {
    let high = scramble(x ^ HALF_A);
    let low = scramble(x.wrapping_mul(HALF_B) ^ HALF_B);
    u128::from(high) << 64 | u128::from(low)
}

/// A sum of the weights of samples, modulo 2^128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    /// The digest of the samples `first..first + count`, each once.
    pub fn of_run(first: u64, count: u64) -> Digest {
        Digest(hash(first.wrapping_add(count)).wrapping_sub(hash(first)))
    }

    /// Adds the samples `first..first + count`.
    pub fn insert_run(&mut self, first: u64, count: u64) {
        *self += Digest::of_run(first, count);
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, Digest(other): Digest) {
        self.0 = self.0.wrapping_add(other);
    }
}

impl SubAssign for Digest {
    fn sub_assign(&mut self, other: Digest) {
        self.0 = self.0.wrapping_sub(other.0);
    }
}

impl Sub for Digest {
    type Output = Digest;
    fn sub(mut self, other: Digest) -> Digest {
        self -= other;
        self
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Serialized as 32 hexadecimal digits: JSON numbers cannot hold 128 bits.
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

/// The contribution to an epoch's order of `count` consecutive samples, starting with `sample`, at consecutive
/// positions, starting with `position`. A sum over these distinguishes two orders of the same samples, in whatever
/// order it is computed and however runs are split.
pub fn placed_run(position: u64, sample: u64, count: u64) -> u64 {
    // Within a run, sample minus position is constant, so this telescopes like the digest.
    let distance = mix(sample.wrapping_sub(position), HALF_A);
    mix(distance, position.wrapping_add(count)).wrapping_sub(mix(distance, position))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(samples: impl IntoIterator<Item = u64>) -> Digest {
        let mut digest = Digest::default();
        samples.into_iter().for_each(|sample| digest.insert_run(sample, 1));
        digest
    }

    #[test]
    fn order_does_not_matter_but_every_sample_does() {
        let whole = Digest::of_run(0, 1000);
        assert_eq!(whole, digest((0..1000).rev()));
        assert_ne!(whole, digest(0..999), "one dropped");
        assert_ne!(whole, digest((0..1000).chain([5])), "one duplicated");
        assert_ne!(whole, digest((0..1000).map(|s| if s == 7 { 8 } else { s })), "one replaced by another");
        // The sums of the numbers and of their squares are equal: a weaker digest would miss this.
        assert_ne!(digest([0, 3, 5, 6]), digest([1, 2, 4, 7]));
    }

    #[test]
    fn parts_can_be_added_and_subtracted() {
        let mut sum = digest(0..400);
        sum += digest(400..1000);
        assert_eq!(sum, Digest::of_run(0, 1000));
        sum -= digest(990..1000);
        assert_eq!(sum, Digest::of_run(0, 990));
    }

    #[test]
    fn runs_may_be_split_anywhere() {
        for cut in 0..=100 {
            let mut parts = Digest::of_run(50, cut);
            parts.insert_run(50 + cut, 100 - cut);
            assert_eq!(parts, digest(50..150));
            let order = placed_run(7, 50, cut).wrapping_add(placed_run(7 + cut, 50 + cut, 100 - cut));
            assert_eq!(order, placed_run(7, 50, 100));
        }
    }

    #[test]
    fn the_order_depends_on_every_position() {
        let order = |samples: &[u64]| {
            let places =
                samples.iter().enumerate().map(|(position, sample)| placed_run(position as u64, *sample, 1));
            places.fold(0, u64::wrapping_add)
        };
        assert_ne!(order(&[0, 1, 2, 3]), order(&[1, 0, 2, 3]));
        assert_ne!(order(&[0, 1, 2, 3]), order(&[1, 2, 3, 0]), "a rotation is a different order");
        assert_eq!(order(&[4, 5, 6]), placed_run(0, 4, 3));
    }

    #[test]
    fn it_survives_json() {
        let before = Digest::of_run(3, 17);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), before);
    }
}
