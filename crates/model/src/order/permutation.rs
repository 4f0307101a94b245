//! A keyed bijection over `[0, n)` that is computed, not stored: an unbalanced Feistel network over the smallest
//! power of two that holds n, with cycle walking back into the range. Any n up to 2^48; O(1) time and memory.

use super::mix;

/// Rounds of the network. Four already make a pseudo-random permutation of a large domain; six cost a few
/// nanoseconds more and keep small domains (tens of samples) from looking alike under different keys.
const ROUNDS: usize = 6;

/// A permutation of `[0, n)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    n: u64,
    low_bits: u32,
    high_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// The largest domain: with two halves of 24 bits the round function still mixes well.
    pub(crate) const MAX: u64 = 1 << 48;

    /// The permutation of `[0, n)` for `key`. `n` must be in 1..=`MAX`.
    pub(crate) fn new(n: u64, key: u64) -> Permutation {
        debug_assert!((1..=Self::MAX).contains(&n));
        // At least two bits, so that both halves exist.
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(2);
        let mut keys = [0; ROUNDS];
        for (round, slot) in keys.iter_mut().enumerate() {
            *slot = mix(key, round as u64 + 1);
        }
        Permutation { n, low_bits: bits / 2, high_bits: bits - bits / 2, keys }
    }

    /// The image of `i` in `[0, n)`.
    pub(crate) fn apply(&self, i: u64) -> u64 {
        debug_assert!(i < self.n);
        // The domain is less than twice n, so this takes fewer than two iterations on average. It terminates because
        // the network is a bijection: a walk that starts inside the range returns to it.
        let mut x = self.network(i);
        while x >= self.n {
            x = self.network(x);
        }
        x
    }

    fn network(&self, x: u64) -> u64 {
        let low_mask = (1 << self.low_bits) - 1;
        let high_mask = (1 << self.high_bits) - 1;
        let mut low = x & low_mask;
        let mut high = x >> self.low_bits;
        // Each half keeps its width and is xored with a function of the other: invertible for any widths.
        for pair in self.keys.chunks_exact(2) {
            low ^= round(high, pair[0]) & low_mask;
            high ^= round(low, pair[1]) & high_mask;
        }
        (high << self.low_bits) | low
    }
}

/// The round function: one multiplication, of which the high bits are mixed best.
fn round(half: u64, key: u64) -> u64 {
    let product = (half ^ key).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let product = (product ^ (product >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    product >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_bijection(n: u64, key: u64) -> bool {
        let permutation = Permutation::new(n, key);
        let mut seen = vec![false; n as usize];
        (0..n).all(|i| !std::mem::replace(&mut seen[permutation.apply(i) as usize], true))
    }

    #[test]
    fn every_small_domain_is_permuted() {
        for n in (1..=600).chain([1000, 1023, 1024, 1025, 4095, 4097, 65_535, 65_536]) {
            for key in [0, 1, 123, u64::MAX] {
                assert!(is_bijection(n, key), "n {n}, key {key}");
            }
        }
    }

    /// For every n up to 2^16 at several keys. The network depends on n only through its width, so it is tabulated once
    /// per width; each n walks the table, and `apply` is compared with the walk.
    #[test]
    fn every_domain_up_to_65536_is_permuted() {
        // Every n at one key, every seventeenth at others: walking all of them takes long.
        for (key, stride) in [(123, 1), (0, 17), (0xdead_beef, 17), (u64::MAX, 17)] {
            for bits in 2..=16u32 {
                let widest = Permutation::new(1 << bits, key);
                let table: Vec<u32> = (0..1u64 << bits).map(|x| widest.network(x) as u32).collect();
                let mut stamps = vec![0u32; 1 << bits];
                for n in ((1u32 << (bits - 1)) + 1..=1 << bits).step_by(stride) {
                    let walk = |i: u32| {
                        let mut x = table[i as usize];
                        while x >= n {
                            x = table[x as usize];
                        }
                        x
                    };
                    for i in 0..n {
                        let stamp = std::mem::replace(&mut stamps[walk(i) as usize], n);
                        assert_ne!(stamp, n, "n {n}, key {key}: two positions have the same image");
                    }
                    let permutation = Permutation::new(u64::from(n), key);
                    for i in [0, n / 3, n / 2, n - 1] {
                        assert_eq!(permutation.apply(u64::from(i)), u64::from(walk(i)), "n {n}, key {key}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_domains_stay_inside_and_do_not_collide() {
        for k in (17..=40).chain([47]) {
            for n in [(1u64 << k) - 1, 1 << k, (1 << k) + 1] {
                let permutation = Permutation::new(n, 7);
                let mut images: Vec<u64> =
                    (0..1000).map(|i| permutation.apply(n - 1 - i * (n / 1000))).collect();
                assert!(images.iter().all(|image| *image < n));
                images.sort_unstable();
                images.dedup();
                assert_eq!(images.len(), 1000, "n {n}");
            }
        }
    }

    #[test]
    fn keys_give_different_orders() {
        let orders: Vec<Vec<u64>> =
            (0..50).map(|key| (0..100).map(|i| Permutation::new(100, key).apply(i)).collect()).collect();
        for (i, order) in orders.iter().enumerate() {
            assert!(!orders[..i].contains(order), "key {i} repeats an order");
        }
    }

    #[test]
    fn the_image_of_a_position_is_spread_evenly_over_keys() {
        // Position 0 of [0, 16) under 16,000 keys: each image about 1,000 times (5 sigma is about 153).
        let mut counts = [0i64; 16];
        for key in 0..16_000 {
            counts[Permutation::new(16, key).apply(0) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (count - 1000).abs() < 160), "{counts:?}");
    }
}
