//! The figures of an observed job that reports show: the epochs of its training loader, and totals over them. They are
//! sums of what was observed; rules and their thresholds are elsewhere.

use std::collections::BTreeMap;

use model::observed::{EpochRow, EpochTime, IoCounts, LoaderRow, Observed, ValueCounts};
use model::units::Nanos;
use serde::Serialize;

/// The figures of a job.
#[derive(Clone, Debug, Default)]
pub struct AuditFigures {
    /// Ranks with epochs.
    pub ranks: u64,
    /// Epochs of the training loader of each rank, added up by number.
    pub epochs: Vec<AuditEpoch>,
    /// Sizes of reads.
    pub read_sizes: ValueCounts,
    /// Compute time of a step.
    pub compute_times: ValueCounts,
    /// Time with this number of reads in flight.
    pub in_flight_ns: Vec<Nanos>,
}

/// An epoch of all ranks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditEpoch {
    pub epoch: u64,
    pub ranks: u64,
    /// Means over ranks, in seconds; `wall` is that of the slowest.
    pub time: EpochTime,
    pub batches: u64,
    pub samples: Option<u64>,
    /// Bytes that the job asked for, that the kernel read for it, and that devices served to all programs.
    pub asked_bytes: u64,
    pub issued_bytes: Option<u64>,
    pub served_bytes: Option<u64>,
    #[serde(skip)]
    pub io: IoCounts,
}

/// The epochs of the training loader of each rank: of the one with the most time.
pub fn training_epochs(observed: &Observed) -> Vec<&EpochRow> {
    let mut times: BTreeMap<u64, BTreeMap<u64, Nanos>> = BTreeMap::new();
    for row in &observed.epochs {
        *times.entry(row.rank).or_default().entry(row.loader).or_default() += row.wall_ns();
    }
    let longest = |loaders: &BTreeMap<u64, Nanos>| {
        // Reversed, so that the first of equals is chosen.
        loaders.iter().rev().max_by_key(|(_, time)| **time).map(|(loader, _)| *loader)
    };
    let chosen: BTreeMap<u64, Option<u64>> =
        times.iter().map(|(rank, loaders)| (*rank, longest(loaders))).collect();
    observed.epochs.iter().filter(|row| chosen.get(&row.rank) == Some(&Some(row.loader))).collect()
}

impl AuditFigures {
    pub fn new(observed: &Observed) -> AuditFigures {
        let rows = training_epochs(observed);
        let mut by_epoch: BTreeMap<u64, Vec<&EpochRow>> = BTreeMap::new();
        let mut figures = AuditFigures::default();
        for row in &rows {
            by_epoch.entry(row.epoch).or_default().push(row);
            figures.read_sizes += &row.read_sizes;
            figures.compute_times += &row.compute_times;
            add_flights(&mut figures.in_flight_ns, &row.in_flight_ns);
        }
        let mut ranks: Vec<u64> = rows.iter().map(|row| row.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        figures.ranks = ranks.len() as u64;
        let marked = observed.coverage.marks;
        figures.epochs = by_epoch.into_iter().map(|(epoch, rows)| sum(epoch, &rows, marked)).collect();
        figures
    }

    /// Seconds of all epochs, of the slowest rank of each.
    pub fn seconds(&self) -> f64 {
        self.epochs.iter().map(|epoch| epoch.time.wall).sum()
    }

    pub fn samples_per_second(&self) -> Option<f64> {
        let samples = self.epochs.iter().map(|epoch| epoch.samples).sum::<Option<u64>>()?;
        per(samples as f64, self.seconds()).filter(|_| samples > 0)
    }

    /// Bytes per second that the job asked for.
    pub fn bytes_per_second(&self) -> Option<f64> {
        per(self.epochs.iter().map(|epoch| epoch.asked_bytes).sum::<u64>() as f64, self.seconds())
    }

    /// The share of the time that an average rank waited for batches, the start of workers included, 0 to 1.
    pub fn wait_share(&self) -> Option<f64> {
        let of = |part: fn(&EpochTime) -> f64| self.epochs.iter().map(|epoch| part(&epoch.time)).sum::<f64>();
        let known = of(|time| time.compute + time.blocked + time.start + time.handover);
        per(of(|time| time.start + time.blocked), self.seconds()).filter(|_| known > 0.0)
    }

    /// The number of reads in flight that is not exceeded for this share of the time with reads.
    pub fn in_flight(&self, share: f64) -> Option<u64> {
        in_flight_quantile(&self.in_flight_ns, share)
    }
}

fn per(amount: f64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| amount / seconds)
}

fn add_flights(to: &mut Vec<Nanos>, from: &[Nanos]) {
    to.resize(to.len().max(from.len()), Nanos::ZERO);
    to.iter_mut().zip(from).for_each(|(to, from)| *to += *from);
}

fn in_flight_quantile(times: &[Nanos], share: f64) -> Option<u64> {
    let busy = || (0u64..).zip(times).skip(1);
    let total: f64 = busy().map(|(_, time)| time.seconds()).sum();
    let mut seen = 0.0;
    let reached = |(number, time): (u64, &Nanos)| {
        seen += time.seconds();
        (seen >= share * total).then_some(number)
    };
    if total > 0.0 { busy().find_map(reached) } else { None }
}

fn sum(epoch: u64, rows: &[&EpochRow], marked: bool) -> AuditEpoch {
    let ranks = rows.len() as f64;
    let mut all = AuditEpoch { epoch, ranks: rows.len() as u64, ..AuditEpoch::default() };
    for row in rows {
        let time = time_of(row, marked);
        all.time.epochs = 1;
        all.time.wall = all.time.wall.max(time.wall);
        all.time.start += time.start / ranks;
        all.time.blocked += time.blocked / ranks;
        all.time.handover += time.handover / ranks;
        all.time.compute += time.compute / ranks;
        all.time.checkpoint += time.checkpoint / ranks;
        all.time.other += time.other / ranks;
        all.batches += row.batches;
        all.asked_bytes += row.io.reads.bytes;
        all.io += row.io;
    }
    all.samples = rows.iter().map(|row| row.samples).sum();
    all.issued_bytes = rows.iter().map(|row| row.issued_bytes).sum();
    // Devices are shared, so ranks of one host see the same bytes.
    all.served_bytes = rows.iter().filter_map(|row| row.served_bytes).max();
    all
}

/// The parts of an epoch, cut so that they fit into it. Without marks, all of it is `other`.
fn time_of(row: &EpochRow, marked: bool) -> EpochTime {
    let wall = row.wall_ns().seconds();
    let mut rest = wall;
    let mut take = |seconds: f64| {
        let part = if marked { seconds.clamp(0.0, rest.max(0.0)) } else { 0.0 };
        rest -= part;
        part
    };
    let first = row.first_wait_ns.seconds();
    let start = take(row.start_ns.seconds() + first);
    let blocked = take(row.blocked_all_ns.seconds() - first);
    let handover = take(row.handover_all_ns.seconds());
    let checkpoint = take(row.checkpoint_ns.seconds());
    let compute = take(row.compute_ns.seconds() - row.checkpoint_ns.seconds());
    EpochTime { epochs: 1, wall, start, blocked, handover, compute, checkpoint, other: rest.max(0.0) }
}

/// The loaders that train, one of each rank.
pub fn training_loaders(observed: &Observed) -> Vec<&LoaderRow> {
    let mut pairs: Vec<(u64, u64)> =
        training_epochs(observed).iter().map(|row| (row.rank, row.loader)).collect();
    pairs.dedup();
    observed.loaders.iter().filter(|row| pairs.contains(&(row.rank, row.loader))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(rank: u64, loader: u64, seconds: u64) -> EpochRow {
        EpochRow {
            rank,
            loader,
            epoch: 1,
            end_ns: Nanos(seconds * 1_000_000_000),
            start_ns: Nanos(1_000_000_000),
            blocked_all_ns: Nanos(2_000_000_000),
            compute_ns: Nanos(3_000_000_000),
            samples: Some(100),
            in_flight_ns: vec![Nanos(50), Nanos(90), Nanos(10)],
            ..EpochRow::default()
        }
    }

    fn job(epochs: Vec<EpochRow>) -> Observed {
        let mut observed = Observed { epochs, ..Observed::default() };
        observed.coverage.marks = true;
        observed
    }

    #[test]
    fn the_loader_with_the_most_time_trains() {
        let observed = job(vec![epoch(0, 0, 1), epoch(0, 1, 10), epoch(1, 0, 8)]);
        let found: Vec<_> = training_epochs(&observed).iter().map(|row| (row.rank, row.loader)).collect();
        assert_eq!(found, [(0, 1), (1, 0)]);
    }

    #[test]
    fn ranks_of_an_epoch_are_added_up() {
        let figures = AuditFigures::new(&job(vec![epoch(0, 0, 10), epoch(1, 0, 8)]));
        assert_eq!((figures.ranks, figures.epochs.len()), (2, 1));
        let AuditEpoch { time, samples, .. } = &figures.epochs[0];
        assert_eq!((time.wall, time.start, time.blocked, time.compute), (10.0, 1.0, 2.0, 3.0));
        assert_eq!((time.other, *samples), (3.0, Some(200)));
        assert_eq!(figures.samples_per_second(), Some(20.0));
        assert_eq!(figures.wait_share(), Some(0.3));
        assert_eq!((figures.in_flight(0.5), figures.in_flight(0.95)), (Some(1), Some(2)));
        assert_eq!(in_flight_quantile(&[Nanos(5)], 0.5), None);
    }

    #[test]
    fn parts_of_an_epoch_never_exceed_it() {
        let figures = AuditFigures::new(&job(vec![epoch(0, 0, 2)]));
        let time = figures.epochs[0].time;
        assert_eq!((time.start, time.blocked, time.compute, time.other), (1.0, 1.0, 0.0, 0.0));
    }
}
