//! The bytes of a data set as a pure function of (seed, file, offset): reproducible, incompressible, without
//! repeated blocks. Any range of any file can be generated independently, so a writer needs no history and a
//! reader can check what it reads. It must not know containers: a format surrounds the stream with its own bytes,
//! or maps it.

/// Bytes that share one keyed start: few enough that a short range is cheap, many enough that the cost of keying
/// is negligible.
const BLOCK: usize = 4096;
/// Independent generators in a block. One multiply takes 3 to 4 cycles and a core starts one per cycle.
const LANES: usize = 4;
/// Bytes of one step of all lanes.
const GROUP: usize = LANES * size_of::<u64>();

/// Separates the lanes, and the labels: the first fractional digits of pi, as in Blowfish's key schedule.
const LANE_KEYS: [u64; LANES] =
    [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344, 0xA409_3822_299F_31D0, 0x082E_FA98_EC4E_6C89];
const LABEL_KEY: u64 = 0x4528_21E6_38D0_1377;
/// 2^64 divided by the golden ratio: consecutive numbers land far apart (Weyl sequence, as in SplitMix64).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// wyrand's increment and its second factor (wyhash, final version 4).
const STEP: u64 = 0x2D35_8DCC_AA6C_78A5;
const FACTOR: u64 = 0x8BB8_4B93_962E_ACC9;

/// Classes that labels are drawn from: ImageNet's thousand.
const CLASSES: u128 = 1000;

/// The content streams of a data set, one per file number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    seed: u64,
    /// Random bytes at the start of every unit of 512; the rest of the unit is zero.
    random: usize,
}

/// A device's sector, the finest granularity of deduplication. Every unit has its own random bytes, so
/// compressible content contains no duplicates.
const UNIT: usize = 512;

impl Content {
    pub fn new(seed: u64) -> Content {
        Content { seed, random: UNIT }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The same with another seed.
    pub fn with_seed(self, seed: u64) -> Content {
        Content { seed, ..self }
    }

    /// The same with a compressible share, from 0 to 0.95.
    pub fn compressible(self, share: f64) -> Content {
        let random = UNIT - (UNIT as f64 * share.clamp(0.0, 0.95)).round() as usize;
        Content { random, ..self }
    }

    /// Writes bytes `offset..offset + out.len()` of file number `file` into `out`. The bytes do not depend on
    /// how a range is split into calls.
    pub fn fill(&self, file: u64, offset: u64, out: &mut [u8]) {
        // Each lane has its own mixed key, so two blocks are equal only if all 256 bits of state collide.
        // With one 64-bit key, a data set of 2^32 blocks would already contain duplicates.
        let keys = LANE_KEYS.map(|key| mix(mix(key ^ self.seed).wrapping_add(file.wrapping_mul(GOLDEN))));
        let mut block = offset / BLOCK as u64;
        let mut within = (offset % BLOCK as u64) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let (part, tail) = rest.split_at_mut(rest.len().min(BLOCK - within));
            let start = block.wrapping_mul(GOLDEN);
            fill_block(keys.map(|key| mix(key.wrapping_add(start))), within, part);
            if self.random < UNIT {
                blank(self.random, within, part);
            }
            block = block.wrapping_add(1);
            within = 0;
            rest = tail;
        }
    }

    /// The label of a sample, in `0..1000`.
    pub fn label(&self, file: u64, sample: u64) -> i64 {
        let key = mix(mix(LABEL_KEY ^ self.seed).wrapping_add(file.wrapping_mul(GOLDEN)));
        let draw = mix(key.wrapping_add(sample.wrapping_mul(GOLDEN)));
        // The high half of the product scales the draw without a division and with negligible bias.
        ((u128::from(draw) * CLASSES) >> 64) as i64
    }
}

/// Stafford's variant 13 of the 64-bit finaliser: a bijection in which every input bit affects every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// One output of a lane: both halves of a full product, folded.
#[inline(always)]
fn draw(state: u64) -> u64 {
    let product = u128::from(state) * u128::from(state ^ FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Writes the part of a block that starts at `within`. A lane's state is a counter, so it can start at any group.
fn fill_block(lanes: [u64; LANES], within: usize, out: &mut [u8]) {
    let (group, skip) = (within / GROUP, within % GROUP);
    let mut lanes = advance(lanes, group as u64);
    let mut rest = out;
    if skip > 0 {
        let (head, tail) = rest.split_at_mut(rest.len().min(GROUP - skip));
        let mut whole = [0; GROUP];
        fill_group(&mut lanes, &mut whole);
        head.copy_from_slice(&whole[skip..skip + head.len()]);
        rest = tail;
    }
    let (groups, tail) = rest.as_chunks_mut::<GROUP>();
    for group in groups {
        fill_group(&mut lanes, group);
    }
    if !tail.is_empty() {
        let mut whole = [0; GROUP];
        fill_group(&mut lanes, &mut whole);
        tail.copy_from_slice(&whole[..tail.len()]);
    }
}

/// Clears everything after the first `random` bytes of each unit; `out` starts at `within` in its block.
fn blank(random: usize, within: usize, out: &mut [u8]) {
    let mut at = 0;
    while at < out.len() {
        let place = (within + at) % UNIT;
        let end = out.len().min(at + UNIT - place);
        let from = (at + random.saturating_sub(place)).min(end);
        out[from..end].fill(0);
        at = end;
    }
}

fn advance(lanes: [u64; LANES], groups: u64) -> [u64; LANES] {
    lanes.map(|lane| lane.wrapping_add(groups.wrapping_mul(STEP)))
}

/// One step of every lane. Always little-endian, so a data set is the same on every machine.
#[inline(always)]
fn fill_group(lanes: &mut [u64; LANES], out: &mut [u8; GROUP]) {
    for (lane, word) in lanes.iter_mut().zip(out.as_chunks_mut::<8>().0) {
        *word = draw(*lane).to_le_bytes();
        *lane = lane.wrapping_add(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(seed: u64, file: u64, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        Content::new(seed).fill(file, offset, &mut out);
        out
    }

    fn words(bytes: &[u8]) -> Vec<u64> {
        bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    /// Pinned: a change here changes every existing data set, and readers that check content would report it
    /// as corrupt. Change it only on purpose.
    #[test]
    fn the_stream_is_pinned() {
        assert_eq!(words(&bytes(0, 0, 0, 16)), PINNED_FIRST);
        assert_eq!(words(&bytes(42, 7, 1 << 40, 16)), PINNED_FAR);
    }
    const PINNED_FIRST: [u64; 2] = [0x22B2_4ABF_6847_644A, 0xAD84_7459_5882_2665];
    const PINNED_FAR: [u64; 2] = [0x2129_383A_7AC9_64FE, 0xD881_39B7_A417_EDA7];

    #[test]
    fn no_block_of_512_bytes_appears_twice() {
        // Equal blocks have equal first words; 131072 words of 64 bits do not collide by chance.
        let mut firsts = Vec::new();
        for file in 0..8 {
            let stream = bytes(1, file, 0, 8 << 20);
            firsts.extend(stream.as_chunks::<512>().0.iter().map(|block| words(&block[..8])[0]));
        }
        let all = firsts.len();
        assert_eq!(all, 64 << 11);
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), all);
    }

    #[test]
    fn neighbours_in_seed_file_and_block_differ_in_half_their_bits() {
        let here = bytes(5, 5, 0, BLOCK);
        let cases = [
            ("seed", bytes(6, 5, 0, BLOCK)),
            ("file", bytes(5, 6, 0, BLOCK)),
            ("block", bytes(5, 5, 4096, BLOCK)),
        ];
        for (what, there) in cases {
            assert_half_differs(what, &words(&here), &words(&there));
        }
    }

    #[test]
    fn lanes_are_not_correlated() {
        let stream = words(&bytes(9, 3, 0, 1 << 20));
        let lane = |index: usize| stream.iter().skip(index).step_by(LANES).copied().collect::<Vec<_>>();
        for one in 0..LANES {
            for other in 0..LANES {
                for lag in 0..8 {
                    if one != other || lag > 0 {
                        assert_half_differs(&format!("{one} {other} {lag}"), &lane(one), &lane(other)[lag..]);
                    }
                }
            }
        }
    }

    /// Of n independent bit pairs n/2 differ, with a standard deviation of sqrt(n)/2; six times that does not
    /// happen by chance.
    fn assert_half_differs(what: &str, one: &[u64], other: &[u64]) {
        let bits = (one.len().min(other.len()) * 64) as f64;
        let differing: u32 = one.iter().zip(other).map(|(a, b)| (a ^ b).count_ones()).sum();
        let sigmas = (f64::from(differing) - bits / 2.0) / (bits.sqrt() / 2.0);
        assert!(sigmas.abs() < 6.0, "{what}: {sigmas} sigma from half");
    }

    #[test]
    fn every_byte_value_is_as_frequent_as_any_other() {
        for (seed, file) in [(0, 0), (1, 0), (0, 1), (u64::MAX, u64::MAX)] {
            let stream = bytes(seed, file, 0, 1 << 20);
            let mut counts = [0_u32; 256];
            stream.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
            let expected = stream.len() as f64 / 256.0;
            let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
            // 255 degrees of freedom: mean 255, standard deviation 22.6.
            assert!((130.0..380.0).contains(&chi), "seed {seed} file {file}: chi-square {chi}");
        }
    }

    #[test]
    fn labels_cover_their_classes_and_nothing_else() {
        let content = Content::new(3);
        let mut seen = [false; 1000];
        for file in 0..100 {
            for sample in 0..200 {
                seen[usize::try_from(content.label(file, sample)).unwrap()] = true;
            }
        }
        assert!(seen.iter().all(|class| *class));
        assert_eq!(content.label(7, 9), Content::new(3).label(7, 9));
    }

    #[test]
    fn a_share_of_every_unit_is_blank_however_ranges_are_cut() {
        let content = Content::new(1).compressible(0.5);
        let mut whole = vec![0; 10_000];
        content.fill(2, 0, &mut whole);
        for (number, unit) in whole.chunks(UNIT).enumerate() {
            let random = unit.len().min(256);
            assert_eq!(unit[..random], bytes(1, 2, (number * UNIT) as u64, random), "unit {number}");
            assert!(unit[random..].iter().all(|byte| *byte == 0));
        }
        for (from, len) in [(1, 5), (255, 2), (256, 600), (511, 1030), (4090, 4500)] {
            let mut part = vec![9; len];
            content.fill(2, from as u64, &mut part);
            assert_eq!(part, whole[from..from + len], "{len} from {from}");
        }
        assert_eq!(Content::new(7).compressible(0.0), Content::new(7));
    }

    #[test]
    fn the_last_offsets_do_not_overflow() {
        assert_eq!(bytes(1, u64::MAX, u64::MAX - 5, 5).len(), 5);
    }

    proptest! {
        #[test]
        fn ranges_agree_however_they_are_cut(
            seed: u64, file: u64, offset in 0_u64..20_000, len in 0_usize..20_000,
            cuts in prop::collection::vec(1_usize..6000, 1..8)
        ) {
            let whole = bytes(seed, file, offset, len);
            let mut cut = Vec::new();
            for size in cuts.iter().cycle() {
                if cut.len() == len { break; }
                let size = (*size).min(len - cut.len());
                cut.extend(bytes(seed, file, offset + cut.len() as u64, size));
            }
            prop_assert_eq!(whole, cut);
        }
    }
}
