//! Locates the error if an epoch's digest differs from the plan's: which part of the epoch, and which position in it,
//! is missing or was delivered twice.

use std::ops::Range;

use crate::digest::Digest;
use crate::ledger::{PARTS, SampleDigest};
use crate::plan::PhasePlan;
use crate::units::grouped;

/// The digest of the samples at these positions of an epoch.
pub(super) fn digest_of(phase: &PhasePlan, epoch: u64, positions: Range<u64>) -> Digest {
    let order = phase.epoch_order(epoch);
    let mut digest = Digest::default();
    let mut position = positions.start;
    while position < positions.end {
        let (sample, count) = order.run(position, positions.end - position);
        digest.insert_run(sample, count);
        position += count;
    }
    digest
}

/// Describes the error, as exactly as the parts allow.
pub(super) fn locate(phase: &PhasePlan, epoch: u64, parts: &[SampleDigest]) -> String {
    if parts.len() as u64 != PARTS {
        return "a sample is missing, duplicated or unexpected; the ledger has no parts to locate it"
            .to_owned();
    }
    let wrong = (0..parts.len()).filter_map(|number| {
        let positions = positions_of(phase, number);
        let expected = digest_of(phase, epoch, positions.clone());
        (expected != parts[number].digest).then(|| describe(phase, epoch, positions, expected, parts[number]))
    });
    let mut found: Vec<String> = wrong.take(4).collect();
    if found.len() == 4 {
        found[3] = "further parts differ".to_owned();
    }
    if found.is_empty() {
        return "the ranks and the parts of the ledger disagree".to_owned();
    }
    found.join("; ")
}

/// The positions of a part: consecutive whole batches.
fn positions_of(phase: &PhasePlan, part: usize) -> Range<u64> {
    let batches = phase.shards.ranks * phase.shards.steps;
    // The smallest batch b with part_of(b) >= part.
    let first = |part: usize| (part as u128 * u128::from(batches)).div_ceil(u128::from(PARTS)) as u64;
    first(part) * phase.shards.batch..first(part + 1) * phase.shards.batch
}

fn describe(
    phase: &PhasePlan,
    epoch: u64,
    positions: Range<u64>,
    expected: Digest,
    seen: SampleDigest,
) -> String {
    let planned = positions.end - positions.start;
    let order = phase.epoch_order(epoch);
    let find = |weight: Digest| {
        positions.clone().find(|position| Digest::of_run(order.sample(*position), 1) == weight)
    };
    let at = |position: u64| {
        let (rank, step) =
            (position / (phase.shards.steps * phase.shards.batch), position / phase.shards.batch);
        let sample = grouped(order.sample(position));
        format!(
            "position {} (rank {rank}, step {}, sample {sample})",
            grouped(position),
            step % phase.shards.steps
        )
    };
    match i128::from(seen.samples) - i128::from(planned) {
        -1 => match find(expected - seen.digest) {
            Some(position) => format!("{} is missing", at(position)),
            None => range(&positions, "one sample is missing and others are wrong"),
        },
        1 => match find(seen.digest - expected) {
            Some(position) => format!("{} was delivered twice", at(position)),
            None => range(&positions, "an unexpected sample"),
        },
        0 => range(&positions, "other samples were delivered instead"),
        missing if missing < 0 => range(&positions, &format!("{} samples are missing", -missing)),
        extra => range(&positions, &format!("{extra} extra samples")),
    }
}

fn range(positions: &Range<u64>, what: &str) -> String {
    format!("positions {} to {}: {what}", grouped(positions.start), grouped(positions.end.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Phase, part_of};
    use crate::order::{Interleave, Order, Shards, Unit};
    use crate::spec::Time;

    fn phase(files: u64, ranks: u64, batch: u64) -> PhasePlan {
        PhasePlan {
            phase: Phase::Train,
            shards: Shards::new(files, ranks, batch, None),
            order: Order { files, samples_per_file: 1, unit: Unit::Sample, seed: 5, reshuffle: true },
            interleave: Interleave::NONE,
            compute: Time::Constant(0.0),
            barrier: true,
        }
    }

    /// The parts of an epoch in which each position delivers the samples that `deliver` returns.
    fn parts(phase: &PhasePlan, deliver: impl Fn(u64) -> Vec<u64>) -> Vec<SampleDigest> {
        let mut parts = vec![SampleDigest::default(); PARTS as usize];
        let batches = phase.shards.ranks * phase.shards.steps;
        for position in 0..phase.shards.delivered() {
            for sample in deliver(position) {
                let part = SampleDigest { samples: 1, digest: Digest::of_run(sample, 1) };
                parts[part_of(position / phase.shards.batch, batches)] += part;
            }
        }
        parts
    }

    #[test]
    fn parts_partition_the_epoch() {
        for (files, ranks, batch) in [(10, 1, 1), (1000, 3, 7), (5000, 4, 1), (257, 1, 1)] {
            let phase = phase(files, ranks, batch);
            let mut next = 0;
            for part in 0..PARTS as usize {
                let positions = positions_of(&phase, part);
                assert_eq!(positions.start, next);
                next = positions.end;
            }
            assert_eq!(next, phase.shards.delivered());
        }
    }

    #[test]
    fn one_wrong_sample_is_located() {
        let phase = phase(2003, 2, 10);
        let order = phase.epoch_order(1);
        let right = |position: u64| vec![order.sample(position)];
        let missing = parts(&phase, |p| if p == 777 { vec![] } else { right(p) });
        let expected =
            format!("position 777 (rank 0, step 77, sample {}) is missing", grouped(order.sample(777)));
        assert_eq!(locate(&phase, 1, &missing), expected);
        let doubled = parts(&phase, |p| if p == 1500 { [right(p), right(p)].concat() } else { right(p) });
        let found = locate(&phase, 1, &doubled);
        assert!(
            found.starts_with("position 1,500 (rank 1, step 50, sample ")
                && found.ends_with("was delivered twice"),
            "{found}"
        );
        let swapped = parts(&phase, |p| if p == 42 { right(1999) } else { right(p) });
        assert_eq!(locate(&phase, 1, &swapped), "positions 40 to 49: other samples were delivered instead");
    }
}
