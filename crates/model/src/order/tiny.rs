//! Orders of a few pieces, enumerated: the factorial number system maps a number below n! to an order. Epochs step
//! through the numbers by a stride that is coprime to n!, so no order repeats before all were used.

use super::mix;

/// An order of `[0, n)` for n up to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallPermutation {
    places: [u8; SmallPermutation::MAX as usize],
}

/// The stride from one epoch's number to the next: a prime larger than `MAX`, hence coprime to n!.
const STRIDE: u64 = 1_000_003;

impl SmallPermutation {
    /// 12! is about 479 million, more than the epochs of any run.
    pub(super) const MAX: u64 = 12;

    pub(super) fn new(n: u64, seed: u64, turn: u64) -> SmallPermutation {
        debug_assert!(n <= SmallPermutation::MAX);
        let orders: u64 = (1..=n).product();
        // Reduced first, so that the product cannot overflow.
        let mut number = (mix(seed, n) % orders + turn % orders * (STRIDE % orders)) % orders;
        let mut left: [u8; SmallPermutation::MAX as usize] = std::array::from_fn(|i| i as u8);
        let mut places = [0; SmallPermutation::MAX as usize];
        for (i, place) in places.iter_mut().enumerate().take(n as usize) {
            let remaining = n as usize - i;
            let pick = (number % remaining as u64) as usize;
            number /= remaining as u64;
            *place = left[pick];
            left.copy_within(pick + 1..remaining, pick);
        }
        SmallPermutation { places }
    }

    pub(super) fn apply(&self, i: u64) -> u64 {
        u64::from(self.places[i as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_permuted() {
        for n in 1..=SmallPermutation::MAX {
            for turn in 0..50 {
                let mut images: Vec<u64> =
                    (0..n).map(|i| SmallPermutation::new(n, 7, turn).apply(i)).collect();
                images.sort_unstable();
                assert_eq!(images, (0..n).collect::<Vec<_>>());
            }
        }
    }
}
