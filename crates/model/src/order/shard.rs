//! Which sample is at which position of an epoch, and which positions belong to which rank, step and place in the
//! batch. Shards are computed arithmetically, so they always partition the epoch.

use serde::{Deserialize, Serialize};

use super::tiny::SmallPermutation;
use super::{Permutation, mix};

/// What a shuffle moves as a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nothing moves: listing order.
    None,
    /// Whole files move; the samples in a file keep their order.
    File,
    /// Groups of this many adjacent samples of a file move (Parquet row groups).
    Group(u64),
    /// Every sample moves on its own.
    Sample,
}

/// The rule that determines the order of every epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub files: u64,
    pub samples_per_file: u64,
    pub unit: Unit,
    pub seed: u64,
    /// Whether each epoch has its own order.
    pub reshuffle: bool,
}

impl Order {
    /// How many pieces the shuffle moves.
    pub fn pieces(&self) -> u64 {
        match self.unit {
            Unit::None => 0,
            Unit::File => self.files,
            Unit::Group(rows) => self.files * self.samples_per_file.div_ceil(rows),
            Unit::Sample => self.files * self.samples_per_file,
        }
    }

    /// The order of one epoch. Epochs count from 1.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        let turn = if self.reshuffle { epoch } else { 0 };
        let shuffle = |n| ShuffleOrder::new(n, self.seed, turn);
        let kind = match self.unit {
            Unit::None => OrderKind::Listing,
            Unit::File => OrderKind::Files(shuffle(self.files)),
            Unit::Sample => OrderKind::Samples(shuffle(self.files * self.samples_per_file)),
            Unit::Group(rows) => {
                let whole = self.samples_per_file / rows;
                let groups = Groups { rows, whole, rest: self.samples_per_file % rows, files: self.files };
                OrderKind::Groups(groups, shuffle((self.files * whole).max(1)), shuffle(self.files))
            }
        };
        EpochOrder { samples_per_file: self.samples_per_file, kind, deal: None }
    }
}

/// A shuffle of `[0, n)`. Few pieces have few orders, so two keys may give the same one by chance; in this case epochs
/// enumerate the orders and repeat none before all were used.
#[derive(Clone, Copy, Debug)]
enum ShuffleOrder {
    Keyed(Permutation),
    Counted(SmallPermutation),
}

impl ShuffleOrder {
    fn new(n: u64, seed: u64, turn: u64) -> ShuffleOrder {
        if n <= SmallPermutation::MAX {
            ShuffleOrder::Counted(SmallPermutation::new(n, seed, turn))
        } else {
            ShuffleOrder::Keyed(Permutation::new(n, mix(seed, turn)))
        }
    }

    fn apply(&self, i: u64) -> u64 {
        match self {
            ShuffleOrder::Keyed(permutation) => permutation.apply(i),
            ShuffleOrder::Counted(tiny) => tiny.apply(i),
        }
    }
}

/// How files are divided into groups: `whole` groups of `rows` samples and, if there is a remainder, a smaller one.
#[derive(Clone, Copy, Debug)]
struct Groups {
    rows: u64,
    whole: u64,
    rest: u64,
    files: u64,
}

/// The order of one epoch: a function from position to sample.
#[derive(Clone, Copy, Debug)]
pub struct EpochOrder {
    samples_per_file: u64,
    kind: OrderKind,
    deal: Option<Deal>,
}

/// Files that are dealt to the ranks in turn.
#[derive(Clone, Copy, Debug)]
struct Deal {
    ranks: u64,
    /// Samples that a rank delivers, and samples that it has.
    share: u64,
    own: u64,
}

impl Deal {
    /// The position in the order from which the files were dealt, and how many positions follow in the same file;
    /// `None` for the samples of files that no rank has, which come last. Before them are the samples that a rank has
    /// but does not deliver.
    fn place(&self, position: u64, per_file: u64) -> Option<(u64, u64)> {
        let delivered = self.ranks * self.share;
        let (rank, index, end) = match position.checked_sub(delivered) {
            None => (position / self.share, position % self.share, self.share),
            Some(beyond) => {
                let rest = self.own - self.share;
                if beyond >= self.ranks * rest {
                    return None;
                }
                (beyond / rest, self.share + beyond % rest, self.own)
            }
        };
        let (turn, within) = (index / per_file, index % per_file);
        let left = (per_file - within).min(end - index);
        Some(((turn * self.ranks + rank) * per_file + within, left))
    }
}

#[derive(Clone, Copy, Debug)]
enum OrderKind {
    Listing,
    Files(ShuffleOrder),
    /// Whole groups are shuffled among themselves; the remainders follow in their own order.
    Groups(Groups, ShuffleOrder, ShuffleOrder),
    Samples(ShuffleOrder),
}

impl EpochOrder {
    /// The order of the positions that `shards` divides.
    #[must_use]
    pub fn divided(self, shards: &Shards) -> EpochOrder {
        let deal = shards.dealt.map(|DealtFiles { files_per_rank }| Deal {
            ranks: shards.ranks,
            share: shards.steps * shards.batch,
            own: files_per_rank * self.samples_per_file,
        });
        EpochOrder { deal, ..self }
    }

    /// The sample at `position`. Samples are numbered file by file.
    pub fn sample(&self, position: u64) -> u64 {
        self.run(position, 1).0
    }

    /// The sample at `position`, and how many positions from there hold consecutive samples of the same file; at most
    /// `most`.
    pub fn run(&self, position: u64, most: u64) -> (u64, u64) {
        let Some(deal) = &self.deal else { return self.run_in_order(position, most) };
        let per_file = self.samples_per_file;
        match deal.place(position, per_file) {
            Some((place, left)) => self.run_in_order(place, most.min(left)),
            None => (position, most.min(per_file - position % per_file)),
        }
    }

    fn run_in_order(&self, position: u64, most: u64) -> (u64, u64) {
        let per_file = self.samples_per_file;
        match &self.kind {
            OrderKind::Samples(shuffle) => (shuffle.apply(position), 1),
            OrderKind::Listing => (position, most.min(per_file - position % per_file)),
            OrderKind::Files(shuffle) => {
                let (file, index) = (shuffle.apply(position / per_file), position % per_file);
                (file * per_file + index, most.min(per_file - index))
            }
            OrderKind::Groups(groups, shuffle, rests) => {
                let (first, index, len) = groups.locate(position, per_file, shuffle, rests);
                (first + index, most.min(len - index))
            }
        }
    }
}

impl Groups {
    /// The first sample of the group at a position, the place of the position in the group, and the length of the
    /// group.
    fn locate(
        &self,
        position: u64,
        per_file: u64,
        shuffle: &ShuffleOrder,
        rests: &ShuffleOrder,
    ) -> (u64, u64, u64) {
        let in_whole = self.files * self.whole * self.rows;
        if position < in_whole {
            let group = shuffle.apply(position / self.rows);
            let first = group / self.whole * per_file + group % self.whole * self.rows;
            return (first, position % self.rows, self.rows);
        }
        let beyond = position - in_whole;
        let first = rests.apply(beyond / self.rest) * per_file + self.whole * self.rows;
        (first, beyond % self.rest, self.rest)
    }
}

/// How an epoch is divided: each rank reads one contiguous part of the order, batch by batch, and every rank has the
/// same number of steps. Samples at the end of the order that do not fill a step on all ranks are dropped. If files are
/// dealt to the ranks, the order has the files of one rank after those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    pub samples: u64,
    pub ranks: u64,
    pub batch: u64,
    pub steps: u64,
    /// `None`: ranks share the samples, whichever files these are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dealt: Option<DealtFiles>,
}

/// Whole files for each rank, dealt in turn, as in DLIO. Files that are left over are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DealtFiles {
    pub files_per_rank: u64,
}

impl Shards {
    /// As many whole steps as the samples allow, at most `cap`.
    pub fn new(samples: u64, ranks: u64, batch: u64, cap: Option<u64>) -> Shards {
        let steps = samples / ranks.saturating_mul(batch).max(1);
        Shards { samples, ranks, batch, steps, dealt: None }.at_most(cap)
    }

    /// As many whole steps as the files of each rank allow.
    pub fn of_files(files: u64, samples_per_file: u64, ranks: u64, batch: u64) -> Shards {
        let files_per_rank = files / ranks.max(1);
        let steps = files_per_rank.saturating_mul(samples_per_file) / batch.max(1);
        let (samples, dealt) = (files.saturating_mul(samples_per_file), Some(DealtFiles { files_per_rank }));
        Shards { samples, ranks, batch, steps, dealt }
    }

    /// The same with at most this number of steps.
    #[must_use]
    pub fn at_most(self, cap: Option<u64>) -> Shards {
        Shards { steps: cap.map_or(self.steps, |cap| cap.min(self.steps)), ..self }
    }

    /// Samples that one epoch delivers on all ranks.
    pub fn delivered(&self) -> u64 {
        self.ranks * self.batch * self.steps
    }

    /// Samples at the end of the order that no rank reads in this epoch.
    pub fn dropped(&self) -> u64 {
        self.samples - self.delivered()
    }

    /// The position of the first sample of a rank's step.
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
        /// Dealt files: every position is another sample, the dropped ones included, and each rank has whole files.
        #[test]
        fn dealt_files_are_a_permutation_and_stay_with_their_rank(
            files in 1u64..60, samples_per_file in 1u64..20, ranks in 1u64..9, batch in 1u64..17,
            cap in proptest::option::of(1u64..9),
            unit in prop_oneof![Just(Unit::None), Just(Unit::File), Just(Unit::Sample)],
        ) {
            let shards = Shards::of_files(files, samples_per_file, ranks, batch).at_most(cap);
            if shards.steps == 0 { return Ok(()); }
            let dealt = files / ranks * ranks;
            let order = Order { files: dealt, samples_per_file, unit, seed: 1, reshuffle: true };
            let epoch = order.epoch(2).divided(&shards);
            let all: Vec<u64> = (0..shards.samples).map(|position| epoch.sample(position)).collect();
            for position in 0..shards.samples {
                let (first, count) = epoch.run(position, shards.samples - position);
                for step in 0..count {
                    prop_assert_eq!(all[(position + step) as usize], first + step);
                    prop_assert_eq!((first + step) / samples_per_file, first / samples_per_file, "one file");
                }
            }
            let delivered = &all[..shards.delivered() as usize];
            prop_assert!(delivered.iter().all(|sample| *sample < dealt * samples_per_file));
            if unit == Unit::None {
                let share = shards.steps * batch;
                for (position, sample) in delivered.iter().enumerate() {
                    prop_assert_eq!(sample / samples_per_file % ranks, position as u64 / share, "rank");
                }
            }
            let mut sorted = all;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..shards.samples).collect::<Vec<_>>());
        }

        #[test]
        fn every_epoch_visits_each_sample_at_most_once(
            files in 1u64..60, samples_per_file in 1u64..20, ranks in 1u64..9, batch in 1u64..17,
            epoch in 1u64..4,
            unit in prop_oneof![
                Just(Unit::None), Just(Unit::File), (1u64..25).prop_map(Unit::Group), Just(Unit::Sample)
            ],
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

        #[test]
        fn runs_agree_with_single_positions(
            files in 1u64..30, samples_per_file in 1u64..30, rows in 1u64..12, from in 0u64..1000, most in 1u64..50,
        ) {
            for unit in [Unit::None, Unit::File, Unit::Group(rows), Unit::Sample] {
                let order = Order { files, samples_per_file, unit, seed: 5, reshuffle: true }.epoch(1);
                let all = files * samples_per_file;
                let from = from % all;
                let (first, count) = order.run(from, most.min(all - from));
                prop_assert!(count >= 1 && count <= most);
                for step in 0..count {
                    prop_assert_eq!(order.sample(from + step), first + step);
                    prop_assert_eq!((first + step) / samples_per_file, first / samples_per_file, "one file");
                }
            }
        }

        #[test]
        fn resuming_at_any_position_gives_the_rest_of_the_order(
            files in 1u64..40, samples_per_file in 1u64..6, ranks in 1u64..5, batch in 1u64..8, at in 0u64..100,
        ) {
            let order = Order { files, samples_per_file, unit: Unit::Sample, seed: 9, reshuffle: true };
            let shards = Shards::new(files * samples_per_file, ranks, batch, None);
            if shards.steps == 0 { return Ok(()); }
            let (rank, step) = (at % ranks, at % shards.steps);
            let share = (shards.steps * batch) as usize;
            let of_rank = &visit(&order, &shards, 3)[rank as usize * share..][..share];
            let fresh = order.epoch(3);
            let resumed: Vec<u64> = (step..shards.steps)
                .flat_map(|step| shards.position(rank, step)..shards.position(rank, step) + batch)
                .map(|position| fresh.sample(position))
                .collect();
            prop_assert_eq!(&of_rank[(step * batch) as usize..], &resumed[..]);
        }
    }

    #[test]
    fn few_pieces_use_all_orders_before_any_repeats() {
        for (files, orders) in [(2u64, 2u64), (3, 6), (4, 24), (5, 120)] {
            let rule = Order { files, samples_per_file: 1, unit: Unit::File, seed: 123, reshuffle: true };
            let mut seen: Vec<Vec<u64>> =
                (1..=orders).map(|epoch| (0..files).map(|i| rule.epoch(epoch).sample(i)).collect()).collect();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len() as u64, orders, "{files} files");
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
    fn files_are_dealt_in_turn() {
        let order = Order { files: 6, samples_per_file: 2, unit: Unit::None, seed: 1, reshuffle: true };
        let shards = Shards::of_files(7, 2, 3, 2);
        let of_rank = |rank: u64| -> Vec<u64> {
            let epoch = order.epoch(1).divided(&shards);
            (0..4).map(|place| epoch.sample(shards.position(rank, 0) + place)).collect()
        };
        assert_eq!((shards.steps, shards.delivered(), shards.dropped()), (2, 12, 2));
        assert_eq!([of_rank(0), of_rank(1), of_rank(2)], [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]);
        assert_eq!(Shards::of_files(2, 100, 3, 1).steps, 0, "fewer files than ranks");
        assert_eq!(Shards::of_files(5, 3, 2, 4).steps, 1, "two files of a rank hold one batch and a half");
    }

    #[test]
    fn a_cap_limits_steps_but_never_raises_them() {
        assert_eq!(Shards::new(100, 2, 10, Some(3)).steps, 3);
        assert_eq!(Shards::new(100, 2, 10, Some(30)).steps, 5);
    }
}
