//! The figures that are served: a copy of the counters of the current work, added to those of earlier work of the same
//! command. When a run has ended, its ledger replaces the copy, so that the totals are exact for any number of
//! processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::report::openmetrics::{self as metrics, MetricFamily, MetricValue, MetricsFormat, MetricsPage};
use engine::{Event, LiveFigures, MOST_RANKS_SHOWN, Progress, RankProgress};
use model::ledger::{Ledger, Phase};
use model::requests::AttemptFailure;
use model::units::Nanos;
use session::{Activity, ObservedWork};

/// With more nodes, they are not listed: the number of series must have a limit.
const MOST_NODES: usize = 256;

/// What is served now.
#[derive(Debug)]
pub(super) struct MetricsBoard {
    command: &'static str,
    state: Mutex<BoardState>,
    /// Changes with every change of the state.
    version: AtomicU64,
    finished: AtomicBool,
}

#[derive(Debug, Default)]
struct BoardState {
    workload: String,
    plan: String,
    nodes: Vec<String>,
    activity: Option<Activity>,
    epoch: u64,
    phase: Option<&'static str>,
    /// The figures of work that has ended, and of the current or last work.
    earlier: WorkFigures,
    current: WorkFigures,
}

/// The figures of some work.
#[derive(Clone, Debug, Default)]
struct WorkFigures {
    totals: Progress,
    /// By the number of the node.
    nodes: BTreeMap<u64, Progress>,
    /// All ranks, if there are few.
    ranks: BTreeMap<u64, RankProgress>,
    /// The ranks that waited longest and shortest.
    extremes: Option<(RankProgress, RankProgress)>,
    rank_count: u64,
    /// The step that the slowest rank of this process has begun.
    step: u64,
}

impl WorkFigures {
    fn of_members(members: Vec<(u64, LiveFigures)>) -> WorkFigures {
        let step = members.first().and_then(|(_, own)| slowest_step(&own.ranks)).unwrap_or(0);
        let mut work = WorkFigures { step, ..WorkFigures::default() };
        for (node, LiveFigures { totals, ranks, rank_count, .. }) in members {
            work.totals = work.totals + totals;
            let of_node = work.nodes.entry(node).or_default();
            *of_node = *of_node + totals;
            work.rank_count += rank_count;
            ranks.into_iter().for_each(|rank| work.add_rank(rank));
        }
        work.limit()
    }

    /// The figures of a run according to its ledger. What a ledger does not have is kept.
    fn of_ledger(self, ledger: &Ledger) -> WorkFigures {
        let Progress { files, file_bytes, prepared, .. } = self.totals;
        let totals = Progress { files, file_bytes, prepared, ..Progress::of_ledger(ledger) };
        let nodes = ledger.nodes();
        let nodes = match nodes.is_empty() {
            true => BTreeMap::from([(0, totals)]),
            false => (0..).zip(nodes.iter().map(|part| Progress::of_part(part, ledger))).collect(),
        };
        let mut ranks: BTreeMap<u64, RankProgress> = BTreeMap::new();
        for phase in [Phase::Train, Phase::Eval] {
            for epoch in ledger.epochs(phase) {
                for (rank, row) in ledger.rows(epoch, phase) {
                    let step = self.ranks.get(&rank).map_or(0, |rank| rank.step);
                    let new = RankProgress { rank, step, ..RankProgress::default() };
                    ranks.entry(rank).or_insert(new).add_row(row);
                }
            }
        }
        let (rank_count, step) = (self.rank_count.max(ranks.len() as u64), self.step);
        let mut work = WorkFigures { totals, nodes, rank_count, step, ..WorkFigures::default() };
        ranks.into_values().for_each(|rank| work.add_rank(rank));
        work.limit()
    }

    fn add_rank(&mut self, rank: RankProgress) {
        let (longest, shortest) = self.extremes.get_or_insert((rank, rank));
        if rank.wait > longest.wait {
            *longest = rank;
        }
        if rank.wait < shortest.wait {
            *shortest = rank;
        }
        self.ranks.insert(rank.rank, rank);
    }

    /// Of many ranks, only the extremes are kept.
    fn limit(mut self) -> WorkFigures {
        if self.rank_count > MOST_RANKS_SHOWN {
            self.ranks.clear();
        }
        self
    }

    /// The totals of this and of later work.
    fn then(&self, later: &WorkFigures) -> WorkFigures {
        let mut both = later.clone();
        both.totals = self.totals.then(later.totals);
        for (node, earlier) in &self.nodes {
            let of_node = both.nodes.entry(*node).or_default();
            *of_node = earlier.then(*of_node);
        }
        for (number, earlier) in &self.ranks {
            let rank = both.ranks.entry(*number).or_insert(RankProgress { rank: *number, ..*earlier });
            if let Some(later) = later.ranks.get(number) {
                *rank = earlier.then(*later);
            }
        }
        both
    }
}

fn slowest_step(ranks: &[RankProgress]) -> Option<u64> {
    ranks.iter().map(|rank| rank.step).min()
}

impl MetricsBoard {
    pub(super) fn new(command: &'static str) -> MetricsBoard {
        let (state, version) = (Mutex::default(), AtomicU64::new(0));
        MetricsBoard { command, state, version, finished: AtomicBool::new(false) }
    }

    /// The state, which the caller changes.
    fn changed(&self) -> MutexGuard<'_, BoardState> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: a page that is a little older than its number is replaced by the next one.
        self.version.fetch_add(1, Ordering::Relaxed);
        state
    }

    pub(super) fn set_workload(&self, name: &str) {
        name.clone_into(&mut self.changed().workload);
    }

    pub(super) fn set_plan(&self, digest: &str) {
        digest.clone_into(&mut self.changed().plan);
    }

    /// Other work begins.
    pub(super) fn begin(&self, goal: &Activity) {
        let mut state = self.changed();
        state.earlier = state.earlier.then(&state.current);
        state.current = WorkFigures::default();
        (state.activity, state.epoch, state.phase) = (Some(*goal), 0, None);
    }

    pub(super) fn take(&self, event: Event) {
        let mut state = self.changed();
        match event {
            Event::EpochBegan { epoch } => state.epoch = epoch,
            Event::PreparationBegan => state.phase = Some("prepare"),
            Event::PhaseBegan { phase: Phase::Train, .. } => state.phase = Some("train"),
            Event::PhaseBegan { phase: Phase::Eval, .. } => state.phase = Some("eval"),
            Event::PreparationEnded | Event::PhaseEnded { .. } => state.phase = None,
            _ => {}
        }
    }

    pub(super) fn copy(&self, goal: &Activity, shown: &ObservedWork<'_>) {
        let (current, nodes) = (WorkFigures::of_members(shown.members()), shown.nodes());
        let mut state = self.changed();
        (state.activity, state.current, state.nodes) = (Some(*goal), current, nodes);
    }

    /// The work has ended.
    pub(super) fn end(&self) {
        let mut state = self.changed();
        state.phase = None;
        (state.current.totals.in_flight, state.current.totals.waiting) = (0, 0);
        state.current.nodes.values_mut().for_each(|node| node.in_flight = 0);
    }

    /// The work was a run with this ledger.
    pub(super) fn set_ledger(&self, ledger: &Ledger) {
        let mut state = self.changed();
        state.current = std::mem::take(&mut state.current).of_ledger(ledger);
    }

    pub(super) fn finish(&self) {
        // Relaxed: the change of the version follows under the lock.
        self.finished.store(true, Ordering::Relaxed);
        drop(self.changed());
    }

    /// A number that changes with the page.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(super) fn text(&self, format: MetricsFormat) -> String {
        let finished = self.finished.load(Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let page = state.page(self.command, finished);
        drop(state);
        page.text(format)
    }
}

impl BoardState {
    fn page(&self, command: &str, finished: bool) -> MetricsPage {
        let mut page = MetricsPage::default();
        let labels = [env!("CARGO_PKG_VERSION"), command, &self.workload, &self.plan];
        page.add(&metrics::RUN, &labels, MetricValue::Count(1));
        page.count(&metrics::FINISHED, u64::from(finished));
        self.add_activity(&mut page);
        let all = self.earlier.then(&self.current);
        add_totals(&mut page, &all.totals);
        add_requests(&mut page, &all.totals);
        add_checkpoints(&mut page, &all.totals);
        add_ratio(&mut page, &metrics::AU, &[], self.current.totals.au_percent());
        if let Some((slowest, fastest)) = self.current.extremes {
            for (which, rank) in [("slowest", slowest), ("fastest", fastest)] {
                page.add(&metrics::EXTREME_RANK, &[which], MetricValue::Count(rank.rank));
                page.add(&metrics::EXTREME_WAIT, &[which], MetricValue::Seconds(rank.wait));
            }
        }
        if self.nodes.len() <= MOST_NODES {
            all.nodes.iter().for_each(|(number, node)| self.add_node(&mut page, *number, node));
        }
        all.ranks.values().for_each(|rank| self.add_rank(&mut page, rank));
        page
    }

    fn add_activity(&self, page: &mut MetricsPage) {
        if let Some(goal) = &self.activity {
            let (labels, (done, _)) = ([goal.what, goal.unit.name()], goal.done(&self.current.totals));
            page.add(&metrics::WORK_DONE, &labels, MetricValue::Count(done));
            if goal.total > 0 {
                page.add(&metrics::WORK_PLANNED, &labels, MetricValue::Count(goal.total));
            }
        }
        page.count(&metrics::EPOCH, self.epoch);
        for phase in ["prepare", "train", "eval"] {
            let is_current = u64::from(self.phase == Some(phase));
            page.add(&metrics::PHASE, &[phase], MetricValue::Count(is_current));
        }
        page.count(&metrics::STEP, self.current.step);
        page.count(&metrics::RANKS, self.current.rank_count);
    }

    fn add_node(&self, page: &mut MetricsPage, number: u64, node: &Progress) {
        let name = self.name(number);
        let Progress { wait, copy, compute, barrier, checkpoint, .. } = *node;
        let current = self.current.nodes.get(&number);
        add_ratio(page, &metrics::NODE_AU, &[&name], current.and_then(Progress::au_percent));
        for (family, count) in [
            (&metrics::NODE_SAMPLES, node.samples - node.failed),
            (&metrics::NODE_BYTES, node.bytes),
            (&metrics::NODE_STEPS, node.steps),
            (&metrics::NODE_IN_FLIGHT, node.in_flight),
            (&metrics::NODE_ERRORS, node.errors),
        ] {
            page.add(family, &[&name], MetricValue::Count(count));
        }
        let times = times(wait, copy, compute, barrier, checkpoint);
        add_times(page, &metrics::NODE_TIME, Some(&name), times);
    }

    /// The name of a node. If several have one name, as in containers, the number distinguishes them.
    fn name(&self, number: u64) -> String {
        let name = self.nodes.get(number as usize).map_or("", String::as_str);
        match self.nodes.iter().filter(|other| *other == name).count() {
            0 | 1 => name.to_owned(),
            _ => format!("{name} ({number})"),
        }
    }

    fn add_rank(&self, page: &mut MetricsPage, rank: &RankProgress) {
        let RankProgress { wait, copy, compute, barrier, checkpoint, .. } = *rank;
        let (number, current) = (rank.rank.to_string(), self.current.ranks.get(&rank.rank));
        add_ratio(page, &metrics::RANK_AU, &[&number], current.and_then(RankProgress::au_percent));
        for (family, count) in [
            (&metrics::RANK_STEP, current.map_or(0, |rank| rank.step)),
            (&metrics::RANK_SAMPLES, rank.samples),
            (&metrics::RANK_BYTES, rank.bytes),
            (&metrics::RANK_STEPS, rank.steps),
        ] {
            page.add(family, &[&number], MetricValue::Count(count));
        }
        let times = times(wait, copy, compute, barrier, checkpoint);
        add_times(page, &metrics::RANK_TIME, Some(&number), times);
    }
}

fn add_ratio(page: &mut MetricsPage, family: &MetricFamily, labels: &[&str], percent: Option<f64>) {
    if let Some(percent) = percent {
        page.add(family, labels, MetricValue::Ratio(percent / 100.0));
    }
}

/// The parts of the time of ranks, with their names.
type NamedTimes = [(&'static str, Nanos); 5];

fn times(wait: Nanos, copy: Nanos, compute: Nanos, barrier: Nanos, checkpoint: Nanos) -> NamedTimes {
    [("wait", wait), ("copy", copy), ("compute", compute), ("barrier", barrier), ("checkpoint", checkpoint)]
}

fn add_times(page: &mut MetricsPage, family: &MetricFamily, of: Option<&str>, times: NamedTimes) {
    for (part, time) in times {
        let labels: Vec<&str> = of.into_iter().chain([part]).collect();
        page.add(family, &labels, MetricValue::Seconds(time));
    }
}

fn add_totals(page: &mut MetricsPage, totals: &Progress) {
    for (family, count) in [
        (&metrics::SAMPLES, totals.samples - totals.failed),
        (&metrics::FAILED_SAMPLES, totals.failed),
        (&metrics::BYTES, totals.bytes),
        (&metrics::STEPS, totals.steps),
        (&metrics::IN_FLIGHT, totals.in_flight),
        (&metrics::WAITING, totals.waiting),
        (&metrics::ERRORS, totals.errors),
        (&metrics::FILES, totals.files),
        (&metrics::FILE_BYTES, totals.file_bytes),
        (&metrics::PREPARED, totals.prepared),
    ] {
        page.count(family, count);
    }
    let Progress { wait, copy, compute, barrier, checkpoint, .. } = *totals;
    add_times(page, &metrics::TIME, None, times(wait, copy, compute, barrier, checkpoint));
}

fn add_requests(page: &mut MetricsPage, totals: &Progress) {
    let requests = &totals.requests;
    for (family, count) in [
        (&metrics::REQUESTS, requests.requests),
        (&metrics::ANSWERED, requests.answered),
        (&metrics::CONNECTS, requests.connects),
        (&metrics::RECEIVED, requests.received_bytes),
    ] {
        page.count(family, count);
    }
    for kind in AttemptFailure::ALL {
        page.add(&metrics::RETRIES, &[kind.word()], MetricValue::Count(requests.failed(kind)));
    }
}

fn add_checkpoints(page: &mut MetricsPage, totals: &Progress) {
    let checkpoints = &totals.checkpoints;
    for (family, count) in [
        (&metrics::SAVES, checkpoints.saves),
        (&metrics::SAVED_BYTES, checkpoints.bytes),
        (&metrics::DRAINED, checkpoints.drained),
        (&metrics::RESTORES, checkpoints.restores),
        (&metrics::SAVING, checkpoints.saving),
        (&metrics::DRAINS, checkpoints.draining),
        (&metrics::UNDRAINED, checkpoints.undrained),
    ] {
        page.count(family, count);
    }
}

#[cfg(test)]
mod tests {
    use session::ActivityUnit;

    use super::*;

    const TRAINING: Activity = Activity { what: "training", unit: ActivityUnit::Samples, total: 2000 };

    fn rank(rank: u64, samples: u64, wait: u64) -> RankProgress {
        RankProgress { rank, samples, wait: Nanos(wait), compute: Nanos(60), ..RankProgress::default() }
    }

    fn member(ranks: Vec<RankProgress>) -> LiveFigures {
        let samples = ranks.iter().map(|rank| rank.samples).sum();
        let totals = Progress { samples, ..Progress::default() };
        LiveFigures { totals, rank_count: ranks.len() as u64, ranks, ended: false }
    }

    fn board(members: Vec<(u64, LiveFigures)>) -> MetricsBoard {
        let board = MetricsBoard::new("run");
        board.begin(&TRAINING);
        let mut state = board.changed();
        state.nodes = vec!["a".to_owned(), "b\"\n<i>".to_owned()];
        state.current = WorkFigures::of_members(members);
        drop(state);
        board
    }

    fn has(board: &MetricsBoard, lines: &[&str]) {
        let text = board.text(MetricsFormat::OpenMetrics);
        for line in lines {
            assert!(text.lines().any(|there| there == *line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn the_figures_of_nodes_and_ranks_add_up() {
        let board = board(vec![
            (0, member(vec![rank(0, 5, 40), rank(1, 6, 140)])),
            (1, member(vec![rank(2, 7, 10)])),
        ]);
        has(
            &board,
            &[
                "feedline_samples_total 18",
                "feedline_node_samples_total{node=\"a\"} 11",
                "feedline_node_samples_total{node=\"b\\\"\\n<i>\"} 7",
                "feedline_rank_samples_total{rank=\"2\"} 7",
                "feedline_rank_au_ratio{rank=\"1\"} 0.3",
                "feedline_extreme_rank{which=\"slowest\"} 1",
                "feedline_extreme_rank{which=\"fastest\"} 2",
                "feedline_work_done{activity=\"training\",unit=\"samples\"} 18",
                "feedline_ranks 3",
            ],
        );
    }

    #[test]
    fn later_work_is_added_to_earlier_work() {
        let board = board(vec![(0, member(vec![rank(0, 5, 40)]))]);
        board.begin(&TRAINING);
        has(&board, &["feedline_samples_total 5", "feedline_rank_samples_total{rank=\"0\"} 5"]);
        board.changed().current = WorkFigures::of_members(vec![(0, member(vec![rank(0, 2, 1)]))]);
        has(&board, &["feedline_samples_total 7", "feedline_rank_samples_total{rank=\"0\"} 7"]);
        board.finish();
        has(&board, &["feedline_finished 1", "feedline_samples_total 7"]);
    }

    #[test]
    fn many_ranks_and_nodes_have_no_series_of_their_own() {
        let ranks = (0..MOST_RANKS_SHOWN + 1).map(|number| rank(number, 1, number)).collect();
        let board = board(vec![(0, member(ranks))]);
        let text = board.text(MetricsFormat::Text);
        assert!(!text.contains("feedline_rank_"), "{text}");
        has(&board, &["feedline_extreme_rank{which=\"slowest\"} 64", "feedline_samples_total 65"]);
        board.changed().nodes = vec![String::new(); MOST_NODES + 1];
        assert!(!board.text(MetricsFormat::Text).contains("feedline_node_"));
    }

    #[test]
    fn the_version_changes_with_the_figures() {
        let board = MetricsBoard::new("run");
        let before = board.version();
        board.take(Event::EpochBegan { epoch: 3 });
        assert_ne!(board.version(), before);
        has(&board, &["feedline_epoch 3"]);
    }
}
