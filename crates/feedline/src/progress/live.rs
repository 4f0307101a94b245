//! The lines of `--live` below the progress line: all ranks together, the slowest rank, checkpoints, errors, and each
//! node. The number of lines has a limit, and each fits into the terminal.

use std::collections::{BTreeMap, VecDeque};

use engine::{LiveFigures, Progress, RankProgress};
use model::units::{Nanos, grouped, mib_per_second};

use crate::report::{self, layout::columns_of};

/// The most lines below the progress line.
const MOST_LINES: usize = 12;
/// Rates are those of the last seconds: figures are kept this long, one set of them per `STRIDE`.
const WINDOW: Nanos = Nanos(5_000_000_000);
const STRIDE: Nanos = Nanos(500_000_000);

/// The figures of the last seconds.
#[derive(Debug, Default)]
pub(super) struct LiveView {
    past: VecDeque<(Nanos, BTreeMap<u64, Progress>)>,
}

impl LiveView {
    /// The lines at this moment, for a terminal with this many columns and rows, of which one is for the progress line.
    pub(super) fn lines(
        &mut self,
        members: &[(u64, LiveFigures)],
        names: &[String],
        now: Nanos,
        (columns, rows): (usize, usize),
    ) -> Vec<String> {
        let mut nodes: BTreeMap<u64, Progress> = BTreeMap::new();
        for (node, figures) in members {
            let of_node = nodes.entry(*node).or_default();
            *of_node = *of_node + figures.totals;
        }
        self.keep(now, &nodes);
        let mut lines = self.summary(members, &nodes, now);
        // The last row stays free, so that the terminal does not scroll.
        let room = MOST_LINES.min(rows.saturating_sub(2));
        lines.truncate(room);
        if nodes.len() > 1 {
            let rest = room - lines.len();
            lines.extend(self.nodes(&nodes, names, now, rest));
        }
        lines.into_iter().map(|line| cut(&format!("  {line}"), columns.saturating_sub(1))).collect()
    }

    fn keep(&mut self, now: Nanos, nodes: &BTreeMap<u64, Progress>) {
        while self.past.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) && self.past.len() > 1 {
            self.past.pop_front();
        }
        if self.past.back().is_none_or(|(at, _)| now.since(*at) >= STRIDE) {
            self.past.push_back((now, nodes.clone()));
        }
    }

    fn summary(
        &self,
        members: &[(u64, LiveFigures)],
        nodes: &BTreeMap<u64, Progress>,
        now: Nanos,
    ) -> Vec<String> {
        let totals = nodes.values().fold(Progress::default(), |sum, node| sum + *node);
        let before = self
            .past
            .front()
            .map(|(at, nodes)| (*at, nodes.values().fold(Progress::default(), |sum, node| sum + *node)));
        let ranks: u64 = members.iter().map(|(_, figures)| figures.rank_count).sum();
        let mut lines = Vec::new();
        if ranks > 0 {
            let waiting = format!("{} of {} ranks wait", grouped(totals.waiting), grouped(ranks));
            let in_flight = format!("{} fetches in flight", grouped(totals.in_flight));
            lines.push(format!("{}  {waiting}  {in_flight}", speed(&totals, before, now)));
        }
        lines.extend(extremes(members));
        lines.extend(checkpoints(&totals));
        lines.extend(failures(&totals));
        lines
    }

    /// The nodes whose ranks waited longest first.
    fn nodes(
        &self,
        nodes: &BTreeMap<u64, Progress>,
        names: &[String],
        now: Nanos,
        room: usize,
    ) -> Vec<String> {
        let mut slowest: Vec<(&u64, &Progress)> = nodes.iter().collect();
        slowest.sort_by(|(_, one), (_, other)| wait_share(other).total_cmp(&wait_share(one)));
        let shown = if slowest.len() > room { room.saturating_sub(1) } else { slowest.len() };
        let name = |node: u64| report::printable(names.get(node as usize).map_or("", String::as_str));
        let widest = slowest.iter().take(shown).map(|(node, _)| columns_of(&name(**node))).max().unwrap_or(0);
        let line = |(node, progress): &(&u64, &Progress)| {
            let before =
                self.past.front().map(|(at, nodes)| (*at, nodes.get(*node).copied().unwrap_or_default()));
            let name = name(**node);
            let space = " ".repeat(widest - columns_of(&name));
            format!("{name}{space}  {}", speed(progress, before, now))
        };
        let mut lines: Vec<String> = slowest.iter().take(shown).map(line).collect();
        if room > 0 && shown < slowest.len() {
            lines.push(format!("and {} more nodes", grouped((slowest.len() - shown) as u64)));
        }
        lines
    }
}

/// `AU 98.1 %  1,234 samples/s, 131 MiB/s`: AU so far, and the rates since `before`.
fn speed(progress: &Progress, before: Option<(Nanos, Progress)>, now: Nanos) -> String {
    let (at, earlier) = before.unwrap_or_default();
    let span = now.since(at);
    let samples = progress.samples.saturating_sub(earlier.samples) as f64 / span.seconds().max(1e-9);
    let samples = if span == Nanos::ZERO { 0.0 } else { samples };
    let bytes = mib_per_second(progress.bytes.saturating_sub(earlier.bytes), span).unwrap_or(0.0);
    let au = progress.au_percent().map_or("AU -".to_owned(), |au| format!("AU {au:.1} %"));
    format!("{au}  {} samples/s, {}", grouped(samples as u64), report::rate(bytes))
}

/// The share of their time in which the ranks of a node waited for data.
fn wait_share(progress: &Progress) -> f64 {
    let Progress { wait, copy, compute, barrier, .. } = *progress;
    share(wait, wait + copy + compute + barrier)
}

fn share(part: Nanos, whole: Nanos) -> f64 {
    if whole == Nanos::ZERO { 0.0 } else { part.0 as f64 / whole.0 as f64 }
}

/// `slowest rank 3 waited 12.3 % of its time for data, fastest rank 1 0.1 %`
fn extremes(members: &[(u64, LiveFigures)]) -> Option<String> {
    let ranks = || members.iter().flat_map(|(_, figures)| &figures.ranks);
    let longest = ranks().max_by_key(|rank| (rank.wait, u64::MAX - rank.rank))?;
    let shortest = ranks().min_by_key(|rank| (rank.wait, rank.rank))?;
    let percent =
        |rank: &RankProgress| 100.0 * share(rank.wait, rank.wait + rank.copy + rank.compute + rank.barrier);
    (longest.rank != shortest.rank).then(|| {
        format!(
            "slowest rank {} waited {:.1} % of its time for data, fastest rank {} {:.1} %",
            longest.rank,
            percent(longest),
            shortest.rank,
            percent(shortest)
        )
    })
}

/// `checkpoints: 2 complete, saving, 1 of 2 on the fast tier being drained`; nothing without checkpoints.
fn checkpoints(totals: &Progress) -> Option<String> {
    let seen = totals.checkpoints;
    let mut parts = Vec::new();
    for (count, what) in [(seen.saves, "complete"), (seen.drained, "drained"), (seen.restores, "restored")] {
        if count > 0 {
            parts.push(format!("{} {what}", grouped(count)));
        }
    }
    if seen.saving > 0 {
        parts.push("saving".to_owned());
    }
    if seen.undrained > 0 {
        parts.push(format!("{} not drained", grouped(seen.undrained)));
    }
    if seen.draining > 0 {
        parts.push("draining".to_owned());
    }
    (!parts.is_empty()).then(|| format!("checkpoints: {}", parts.join(", ")))
}

/// `3 errors, 12 failed attempts of 4,000 requests`; nothing if there are none.
fn failures(totals: &Progress) -> Option<String> {
    let failed = totals.requests.all_failed();
    let attempts =
        || format!("{} failed attempts of {} requests", grouped(failed), grouped(totals.requests.requests));
    let errors = || format!("{} errors", grouped(totals.errors));
    match (totals.errors, failed) {
        (0, 0) => None,
        (_, 0) => Some(errors()),
        (0, _) => Some(attempts()),
        _ => Some(format!("{}, {}", errors(), attempts())),
    }
}

/// As much of a line as fits.
fn cut(line: &str, columns: usize) -> String {
    let mut shown = String::new();
    for character in line.chars() {
        shown.push(character);
        if columns_of(&shown) > columns {
            shown.pop();
            break;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use engine::CheckpointProgress;
    use model::requests::RequestCounts;

    use super::*;

    fn rank(rank: u64, wait: u64) -> RankProgress {
        RankProgress { rank, wait: Nanos(wait), compute: Nanos(75), ..RankProgress::default() }
    }

    fn member(samples: u64, wait: u64) -> LiveFigures {
        let totals = Progress {
            samples,
            bytes: samples << 20,
            wait: Nanos(wait),
            compute: Nanos(75),
            ..Progress::default()
        };
        LiveFigures { totals, ranks: vec![rank(samples, wait)], rank_count: 1, ended: false }
    }

    const SECOND: Nanos = Nanos(1_000_000_000);

    #[test]
    fn the_slowest_nodes_come_first() {
        let (mut view, names) = (LiveView::default(), ["a", "bb", "c\u{1b}[2J"].map(str::to_owned));
        view.lines(&[], &names, Nanos::ZERO, (80, 24));
        let members = [(0, member(10, 0)), (1, member(20, 25)), (2, member(30, 5))];
        assert_eq!(
            view.lines(&members, &names, SECOND, (80, 24)),
            [
                "  AU 88.2 %  60 samples/s, 60.0 MiB/s  0 of 3 ranks wait  0 fetches in flight",
                "  slowest rank 20 waited 25.0 % of its time for data, fastest rank 10 0.0 %",
                "  bb          AU 75.0 %  20 samples/s, 20.0 MiB/s",
                "  c\\u{1b}[2J  AU 93.8 %  30 samples/s, 30.0 MiB/s",
                "  a           AU 100.0 %  10 samples/s, 10.0 MiB/s",
            ]
        );
        let few = view.lines(&members, &names, SECOND, (80, 6));
        assert_eq!((few.len(), few[3].as_str()), (4, "  and 2 more nodes"));
    }

    #[test]
    fn the_view_fits_into_every_terminal() {
        let names: Vec<String> = (0..1000).map(|node| format!("node{node}")).collect();
        let members: Vec<(u64, LiveFigures)> = (0..1000).map(|node| (node, member(node, node))).collect();
        for (columns, rows) in [(0, 0), (1, 1), (20, 3), (80, 24), (300, 200)] {
            let lines = LiveView::default().lines(&members, &names, SECOND, (columns, rows));
            assert!(lines.len() <= MOST_LINES.min(rows.saturating_sub(2)), "{rows}: {lines:?}");
            assert!(lines.iter().all(|line| columns_of(line) < columns.max(1)), "{columns}: {lines:?}");
        }
    }

    #[test]
    fn checkpoints_errors_and_retries_are_shown_if_there_are_any() {
        let mut totals = Progress::default();
        assert_eq!((checkpoints(&totals), failures(&totals)), (None, None));
        totals.checkpoints = CheckpointProgress {
            saves: 2,
            saving: 1,
            undrained: 1,
            draining: 1,
            ..CheckpointProgress::default()
        };
        totals.errors = 3;
        totals.requests = RequestCounts { requests: 4000, ..RequestCounts::default() };
        totals.requests.failures[0] = 12;
        assert_eq!(checkpoints(&totals).unwrap(), "checkpoints: 2 complete, saving, 1 not drained, draining");
        assert_eq!(failures(&totals).unwrap(), "3 errors, 12 failed attempts of 4,000 requests");
    }
}
