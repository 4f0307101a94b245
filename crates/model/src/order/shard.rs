//! Which sample stands at which position of an epoch, and which positions belong to which rank, step and place in
//! the batch. Shards are arithmetic: they partition the epoch by construction, whatever the numbers.

use serde::{Deserialize, Serialize};

use super::{Permutation, mix};

/// What a shuffle moves as one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nothing moves: listing order.
    None,
    /// Whole files move, the samples inside a file keep their order.
    File,
    /// Every sample moves on its own.
    Sample,
}

/// The rule that gives every epoch its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub files: u64,
    pub samples_per_file: u64,
    pub unit: Unit,
    pub seed: u64,
    /// Whether each epoch has an order of its own.
    pub reshuffle: bool,
}

impl Order {
    /// The order of one epoch.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        let key = mix(self.seed, if self.reshuffle { epoch } else { 0 });
        let kind = match self.unit {
            Unit::None => Kind::Listing,
            Unit::File => Kind::Files(Permutation::new(self.files, key)),
            Unit::Sample => Kind::Samples(Permutation::new(self.files * self.samples_per_file, key)),
        };
        EpochOrder { samples_per_file: self.samples_per_file, kind }
    }
}

/// The order of one epoch: a function from position to sample.
#[derive(Clone, Copy, Debug)]
pub struct EpochOrder {
    samples_per_file: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Listing,
    Files(Permutation),
    Samples(Permutation),
}

impl EpochOrder {
    /// The sample at `position`. Samples are numbered file by file.
    pub fn sample(&self, position: u64) -> u64 {
        match &self.kind {
            Kind::Listing => position,
            Kind::Samples(permutation) => permutation.apply(position),
            Kind::Files(permutation) => {
                let file = permutation.apply(position / self.samples_per_file);
                file * self.samples_per_file + position % self.samples_per_file
            }
        }
    }
}

/// How an epoch is dealt out: each rank walks one contiguous stretch of the order, batch by batch, and every rank
/// has the same number of steps. What does not fill a step on all ranks is dropped at the end of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    pub samples: u64,
    pub ranks: u64,
    pub batch: u64,
    pub steps: u64,
}

impl Shards {
    /// As many whole steps as the samples allow, at most `cap` of them.
    pub fn new(samples: u64, ranks: u64, batch: u64, cap: Option<u64>) -> Shards {
        let steps = samples / ranks.saturating_mul(batch).max(1);
        Shards { samples, ranks, batch, steps: cap.map_or(steps, |cap| cap.min(steps)) }
    }

    /// Samples that one epoch delivers over all ranks.
    pub fn delivered(&self) -> u64 {
        self.ranks * self.batch * self.steps
    }

    /// Samples at the end of the order that no rank reads in this epoch.
    pub fn dropped(&self) -> u64 {
        self.samples - self.delivered()
    }

    /// Position of the first sample of a rank's step.
    pub fn position(&self, rank: u64, step: u64) -> u64 {
        (rank * self.steps + step) * self.batch
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn visit(order: &Order, shards: &Shards, epoch: u64) -> Vec<u64> {
        let order = order.epoch(epoch);
        let mut samples = Vec::new();
        for rank in 0..shards.ranks {
            for step in 0..shards.steps {
                let first = shards.position(rank, step);
                samples.extend((first..first + shards.batch).map(|position| order.sample(position)));
            }
        }
        samples
    }

    proptest! {
        #[test]
        fn every_epoch_visits_each_sample_at_most_once(
            files in 1u64..60, samples_per_file in 1u64..20, ranks in 1u64..9, batch in 1u64..17,
            epoch in 1u64..4, unit in prop_oneof![Just(Unit::None), Just(Unit::File), Just(Unit::Sample)],
        ) {
            let order = Order { files, samples_per_file, unit, seed: 123, reshuffle: true };
            let shards = Shards::new(files * samples_per_file, ranks, batch, None);
            let mut samples = visit(&order, &shards, epoch);
            prop_assert_eq!(samples.len() as u64, shards.delivered());
            prop_assert!(shards.dropped() < ranks * batch);
            samples.sort_unstable();
            samples.dedup();
            prop_assert_eq!(samples.len() as u64, shards.delivered());
            prop_assert!(samples.last().is_none_or(|last| *last < files * samples_per_file));
        }
    }

    #[test]
    fn listing_order_is_the_identity() {
        let order = Order { files: 5, samples_per_file: 3, unit: Unit::None, seed: 1, reshuffle: true };
        assert_eq!(visit(&order, &Shards::new(15, 1, 5, None), 2), (0..15).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_shuffle_keeps_the_samples_of_a_file_together() {
        let order = Order { files: 40, samples_per_file: 8, unit: Unit::File, seed: 1, reshuffle: true };
        let samples = visit(&order, &Shards::new(320, 1, 8, None), 1);
        for file in samples.chunks(8) {
            assert!(file.windows(2).all(|pair| pair[1] == pair[0] + 1), "{file:?}");
        }
        assert_ne!(samples, (0..320).collect::<Vec<_>>());
    }

    #[test]
    fn epochs_differ_exactly_when_reshuffled() {
        let shards = Shards::new(100, 2, 10, None);
        let order = Order { files: 100, samples_per_file: 1, unit: Unit::Sample, seed: 9, reshuffle: true };
        assert_ne!(visit(&order, &shards, 1), visit(&order, &shards, 2));
        let fixed = Order { reshuffle: false, ..order };
        assert_eq!(visit(&fixed, &shards, 1), visit(&fixed, &shards, 2));
    }

    #[test]
    fn a_cap_limits_steps_but_never_raises_them() {
        assert_eq!(Shards::new(100, 2, 10, Some(3)).steps, 3);
        assert_eq!(Shards::new(100, 2, 10, Some(30)).steps, 5);
    }
}
