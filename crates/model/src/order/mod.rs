//! The order in which an epoch reads its samples: `sample = order(seed, epoch, position)`, computed on demand. No list
//! is stored, so memory does not depend on the number of samples.

mod interleave;
mod permutation;
mod shard;
mod tiny;

pub use interleave::Interleave;
pub(crate) use permutation::Permutation;
pub use shard::{DealtFiles, EpochOrder, Order, Shards, Unit};

/// Mixes two words into one that depends on every bit of both (the finaliser of SplitMix64, applied twice).
pub fn mix(a: u64, b: u64) -> u64 {
    scramble(scramble(a).wrapping_add(b.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// SplitMix64's finaliser: a bijection on 64-bit words in which every input bit reaches every output bit.
pub(crate) fn scramble(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
