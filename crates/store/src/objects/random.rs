//! Random numbers: for pauses that must differ between processes, and for names that must not be used twice.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number. The standard library seeds every hasher differently, from the system's source of randomness.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::random;

    #[test]
    fn numbers_differ() {
        let numbers: std::collections::BTreeSet<u64> = (0..100).map(|_| random()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
