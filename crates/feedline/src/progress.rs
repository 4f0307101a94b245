//! Progress of long work: a bar on a terminal, several lines with `--live`, otherwise a line every few seconds, or
//! nothing with `--quiet`. It only reads the engine's events and counters.

mod live;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::meter::Monotonic;
use engine::{Detail, Event, EventStream, Progress};
use model::units::{Nanos, grouped, mib_per_second};
use session::study::RunStart;
use session::{Activity, ActivityUnit, ObservedWork, Observer};
use store::Now;

use crate::report::layout::columns_of;
use crate::report::{self, status};
use crate::terminal;
use live::LiveView;

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressMode {
    Nothing,
    Lines,
    Bar,
    /// The bar with lines below it.
    Live,
}

impl ProgressMode {
    pub(crate) fn choose(quiet: bool) -> ProgressMode {
        match quiet || report::is_muted() {
            true => ProgressMode::Nothing,
            false if terminal::can_redraw() => ProgressMode::Bar,
            false => ProgressMode::Lines,
        }
    }

    /// The same, or the live view if it is asked for and the terminal can show it.
    pub(crate) fn choose_live(live: bool, quiet: bool) -> ProgressMode {
        match ProgressMode::choose(quiet) {
            ProgressMode::Bar if live => ProgressMode::Live,
            ProgressMode::Lines if live => {
                report::note("--live needs a terminal on stderr; progress is shown in lines");
                ProgressMode::Lines
            }
            other => other,
        }
    }
}

/// How often the bar is drawn and a line is written.
const BAR_PERIOD: Duration = Duration::from_millis(100);
const LINE_PERIOD: Nanos = Nanos(5_000_000_000);

impl Observer for ProgressMode {
    fn during(&self, goal: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        watch(*self, shown, goal, None, work);
    }
}

/// The progress of a study: of the run that it does, and the time since it started.
#[derive(Debug)]
pub(crate) struct StudyProgress {
    pub mode: ProgressMode,
    clock: Monotonic,
    run: Mutex<Option<RunStart>>,
}

impl StudyProgress {
    pub(crate) fn new(mode: ProgressMode) -> StudyProgress {
        StudyProgress { mode, clock: Monotonic::new(), run: Mutex::new(None) }
    }

    /// Sets the run that is shown from now on.
    pub(crate) fn begins(&self, run: &RunStart) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
    }

    /// Prints a line, unless nothing is to be shown.
    pub(crate) fn note(&self, line: &str) {
        if self.mode != ProgressMode::Nothing {
            report::note(line);
        }
    }
}

impl Observer for StudyProgress {
    fn during(&self, goal: &Activity, shown: ObservedWork<'_>, work: &mut dyn FnMut()) {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let run = run.map(|start| StudyRun { start, before: self.clock.now() });
        watch(self.mode, shown, goal, run.as_ref(), work);
    }
}

/// A run of a study that is shown.
#[derive(Clone, Debug)]
struct StudyRun {
    start: RunStart,
    /// How long the study had been running before it.
    before: Nanos,
}

/// Runs the work and shows its progress.
fn watch(
    show: ProgressMode,
    shown: ObservedWork<'_>,
    goal: &Activity,
    run: Option<&StudyRun>,
    work: &mut dyn FnMut(),
) {
    let clock = &Monotonic::new();
    // Created before the work starts, so that its first events are not lost.
    let view = (show != ProgressMode::Nothing).then(|| Display::new(shown, goal, run, show));
    match view {
        Some(view) => beside("progress", work, move |over| view.run(clock, over)),
        None => work(),
    }
}

/// Runs the work, and meanwhile a display in a thread of this name, which ends soon after the flag is set.
pub(crate) fn beside(name: &str, work: &mut dyn FnMut(), display: impl FnOnce(&AtomicBool) + Send) {
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let shown = move || {
            // A panic in the display must not lose the result, which does not depend on the display.
            let _ = catch_unwind(AssertUnwindSafe(|| display(over)));
        };
        // If no thread can be started, the work runs without a display.
        let display = thread.spawn_scoped(scope, shown).ok();
        let ends = DisplayGuard { over, display: display.as_ref().map(|display| display.thread()) };
        work();
        drop(ends);
    });
}

/// Ends the display as soon as the work ends, even if the work panics.
struct DisplayGuard<'a> {
    over: &'a AtomicBool,
    display: Option<&'a std::thread::Thread>,
}

impl Drop for DisplayGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the display, so that it sees all that the work has emitted.
        self.over.store(true, Ordering::Release);
        if let Some(display) = self.display {
            display.unpark();
        }
    }
}

/// The display and its inputs.
struct Display<'a> {
    shown: ObservedWork<'a>,
    stream: EventStream,
    goal: &'a Activity,
    run: Option<&'a StudyRun>,
    state: ProgressState,
    /// Whether a bar is drawn; otherwise lines are written.
    bar: bool,
    /// The lines below the bar.
    live: Option<LiveView>,
    next_line: Nanos,
}

impl<'a> Display<'a> {
    fn new(
        shown: ObservedWork<'a>,
        goal: &'a Activity,
        run: Option<&'a StudyRun>,
        show: ProgressMode,
    ) -> Display<'a> {
        let stream = shown.events.listen(Detail::Milestones);
        let bar = matches!(show, ProgressMode::Bar | ProgressMode::Live);
        let live = (show == ProgressMode::Live).then(LiveView::default);
        let state = ProgressState::default();
        Display { shown, stream, goal, run, state, bar, live, next_line: LINE_PERIOD }
    }

    fn run(mut self, clock: &Monotonic, over: &AtomicBool) {
        loop {
            let is_over = over.load(Ordering::Acquire);
            let now = clock.now();
            let (drained, progress) = (self.stream.drain(), self.shown.progress());
            for stamped in &drained.events {
                self.state.take(stamped.event, &progress);
                self.say(stamped.event);
            }
            self.state.follow(&progress, self.goal, now);
            if is_over {
                break;
            }
            self.show(&progress, now);
            self.stream.wait(BAR_PERIOD);
        }
        if self.bar {
            status::clear();
        }
    }

    /// Prints a line for a completed checkpoint, unless the bar occupies the terminal.
    fn say(&self, event: Event) {
        if let (false, Event::CheckpointComplete { moment, on_fast }) = (self.bar, event) {
            let place = if on_fast { " on the fast tier" } else { "" };
            report::note(&format!("checkpoint {} complete{place}", moment.folder()));
        }
    }

    fn show(&mut self, progress: &Progress, now: Nanos) {
        let (what, parts) = match self.run {
            Some(run) => (run.start.what.as_str(), in_brief(progress, self.goal, run, &self.state, now)),
            None => (self.goal.what, describe(progress, self.goal, &self.state, now)),
        };
        let ((done, _), total) = (self.goal.done(progress), self.goal.total);
        let share = (total > 0).then(|| done as f64 / total as f64);
        if self.bar {
            let mut lines = vec![bar_line(what, share, &parts, status::width())];
            if let Some(live) = &mut self.live {
                let (members, names) = (self.shown.members(), self.shown.nodes());
                lines.extend(live.lines(&members, &names, now, (status::width(), status::height())));
            }
            status::draw(&lines);
        } else if now >= self.next_line {
            self.next_line += LINE_PERIOD;
            let percent = share.map_or(String::new(), |share| format!(" {:.0} %", 100.0 * share));
            let texts: Vec<&str> = parts.iter().map(|part| part.text.as_str()).collect();
            report::note(&format!("{what}{percent}  {}", texts.join("  ")));
        }
    }
}

/// A part of the description of progress. Parts with a lower rank are shown first if there is little room.
#[derive(Clone, Debug)]
struct ProgressPart {
    rank: u8,
    text: String,
}

fn part(rank: u8, text: String) -> ProgressPart {
    ProgressPart { rank, text }
}

/// The width of the bar itself.
const BAR: std::ops::RangeInclusive<usize> = 10..=40;

/// `training ####----  42 %  epoch 2  ...`: as many parts as fit, in their order. One column stays free, because a
/// terminal may move to the next line after its last column.
fn bar_line(what: &str, share: Option<f64>, parts: &[ProgressPart], width: usize) -> String {
    let percent = share.map_or(String::new(), |share| format!("  {:>3.0} %", 100.0 * share));
    let mut room = width.saturating_sub(1 + columns_of(what) + columns_of(&percent));
    let mut by_rank: Vec<usize> = (0..parts.len()).collect();
    by_rank.sort_by_key(|index| parts[*index].rank);
    let mut is_shown = vec![false; parts.len()];
    for index in by_rank {
        let needed = columns_of(&parts[index].text) + 2;
        if needed <= room {
            is_shown[index] = true;
            room -= needed;
        }
    }
    let bar = match share {
        Some(share) if room > *BAR.start() => format!(" {}", bar(share, (room - 1).min(*BAR.end()))),
        _ => String::new(),
    };
    let shown = parts.iter().zip(is_shown).filter(|(_, is_shown)| *is_shown);
    let texts: String = shown.map(|(part, _)| format!("  {}", part.text)).collect();
    // In a terminal that is narrower than even this, the end is missing.
    format!("{what}{bar}{percent}{texts}").chars().take(width.saturating_sub(1)).collect()
}

fn bar(share: f64, width: usize) -> String {
    let full = ((width as f64 * share) as usize).min(width);
    format!("{}{}", "#".repeat(full), "-".repeat(width - full))
}

/// The state of the work according to its events. Rates by the clock count from the start of the epoch, or of the work
/// if it has no epochs.
#[derive(Clone, Copy, Debug, Default)]
struct ProgressState {
    /// 0 before the first epoch.
    epoch: u64,
    /// Files that were prepared in the page cache for earlier phases, and whether more are being prepared now.
    prepared: u64,
    prepares: bool,
    /// The epoch has just started, or its page cache has just been prepared.
    is_new: bool,
    at: Nanos,
    done: (u64, u64),
}

impl ProgressState {
    fn take(&mut self, event: Event, progress: &Progress) {
        match event {
            Event::EpochBegan { epoch } => (self.epoch, self.is_new) = (epoch, true),
            Event::PreparationBegan => self.prepares = true,
            Event::PreparationEnded => {
                (self.prepares, self.is_new, self.prepared) = (false, true, progress.prepared);
            }
            _ => {}
        }
    }

    /// The clock of an epoch starts when the epoch begins, and again when its page cache is ready.
    fn follow(&mut self, progress: &Progress, goal: &Activity, now: Nanos) {
        if std::mem::take(&mut self.is_new) || self.prepares {
            (self.at, self.done) = (now, goal.done(progress));
        }
    }
}

/// For a run of a study, which has a long name: `AU 98.1 %`, `12 s left`, `2 m 3 s elapsed`
fn in_brief(
    progress: &Progress,
    goal: &Activity,
    run: &StudyRun,
    state: &ProgressState,
    now: Nanos,
) -> Vec<ProgressPart> {
    let mut parts = Vec::new();
    let (done, _) = goal.done(progress);
    if state.prepares {
        let files = progress.prepared.saturating_sub(state.prepared);
        parts.push(part(1, format!("{} files prepared", grouped(files))));
    } else {
        parts.extend(progress.au_percent().map(|au| part(1, format!("AU {au:.1} %"))));
        let rate = done as f64 / now.seconds().max(1e-9);
        if rate > 0.0 {
            let left = goal.total.saturating_sub(done) as f64 / rate + run.start.seconds_after;
            parts.push(part(0, format!("{} left", Nanos::from_seconds(left))));
        }
    }
    parts.push(part(2, format!("{} elapsed", run.before + now)));
    parts
}

/// `epoch 2  12,000 of 24,000 samples  by the clock 1,234/s, 131 MiB/s  AU 98.1 %  12 s left`
fn describe(progress: &Progress, goal: &Activity, state: &ProgressState, now: Nanos) -> Vec<ProgressPart> {
    let per_second = |count: u64, since: Nanos| count as f64 / now.since(since).seconds().max(1e-9);
    let (done, bytes) = goal.done(progress);
    let rate = per_second(done, Nanos::ZERO);
    let mut parts = Vec::new();
    if state.epoch > 0 {
        parts.push(part(2, format!("epoch {}", state.epoch)));
    }
    if state.prepares {
        let files = progress.prepared.saturating_sub(state.prepared);
        parts.push(part(1, format!("{} files prepared in the page cache", grouped(files))));
        return parts;
    }
    let (count, unit) = (grouped(done), goal.unit.name());
    if goal.total == 0 {
        parts.push(part(0, format!("{count} {unit}")));
        parts.push(part(1, format!("{}/s", grouped(rate as u64))));
        return parts;
    }
    parts.push(part(3, format!("{count} of {} {unit}", grouped(goal.total))));
    let fresh = grouped(per_second(done.saturating_sub(state.done.0), state.at) as u64);
    let bytes = mib_per_second(bytes.saturating_sub(state.done.1), now.since(state.at)).unwrap_or(0.0);
    parts.push(part(4, format!("by the clock {fresh}/s, {}", report::rate(bytes))));
    if let Some(au) = progress.au_percent().filter(|_| goal.unit == ActivityUnit::Samples) {
        parts.push(part(1, format!("AU {au:.1} %")));
    }
    if rate > 0.0 {
        let left = goal.total.saturating_sub(done) as f64 / rate;
        parts.push(part(0, format!("{} left", Nanos::from_seconds(left))));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(parts: &[ProgressPart]) -> String {
        parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("  ")
    }

    const TRAINING: Activity = Activity { what: "training", unit: ActivityUnit::Samples, total: 2000 };

    #[test]
    fn a_line_has_rate_au_and_time_left() {
        let progress = Progress {
            samples: 500,
            bytes: 50 << 20,
            steps: 10,
            compute: Nanos(90),
            wait: Nanos(10),
            ..Progress::default()
        };
        let state = ProgressState { epoch: 1, ..ProgressState::default() };
        assert_eq!(
            joined(&describe(&progress, &TRAINING, &state, Nanos(5_000_000_000))),
            "epoch 1  500 of 2,000 samples  by the clock 100/s, 10.0 MiB/s  AU 90.0 %  15.0 s left"
        );
    }

    #[test]
    fn the_bar_fits_into_every_terminal() {
        let parts = [
            part(2, "epoch 1".to_owned()),
            part(3, "500 of 2,000 samples".to_owned()),
            part(4, "by the clock 100/s, 10.0 MiB/s".to_owned()),
            part(1, "AU 90.0 %".to_owned()),
            part(0, "15.0 s left".to_owned()),
        ];
        for (width, line) in [
            (20, "training   25 %"),
            (40, "training   25 %  AU 90.0 %  15.0 s left"),
            (60, "training ##--------   25 %  epoch 1  AU 90.0 %  15.0 s left"),
            (80, "training   25 %  epoch 1  500 of 2,000 samples  AU 90.0 %  15.0 s left"),
        ] {
            assert_eq!(bar_line("training", Some(0.25), &parts, width), line);
        }
        for width in 0..200 {
            assert!(columns_of(&bar_line("training", Some(0.25), &parts, width)) < width.max(1), "{width}");
        }
        assert_eq!(
            bar_line("training", Some(0.25), &parts[4..], 60),
            "training #######-----------------------   25 %  15.0 s left"
        );
        assert_eq!(bar_line("listing", None, &parts[4..], 60), "listing  15.0 s left");
    }

    /// The rate is that of the current epoch: without earlier epochs, and without the time in which its page cache was
    /// prepared.
    #[test]
    fn the_rate_counts_from_the_beginning_of_the_epoch() {
        let seconds = |seconds: u64| Nanos(1_000_000_000 * seconds);
        let progress =
            |samples, prepared| Progress { samples, bytes: samples << 20, prepared, ..Progress::default() };
        let mut state = ProgressState::default();
        let mut look = |at, progress: Progress, events: &[Event]| {
            events.iter().for_each(|event| state.take(*event, &progress));
            state.follow(&progress, &TRAINING, seconds(at));
            joined(&describe(&progress, &TRAINING, &state, seconds(at)))
        };
        look(0, progress(0, 0), &[Event::EpochBegan { epoch: 1 }]);
        look(10, progress(1000, 0), &[]);
        let preparing = [Event::EpochBegan { epoch: 2 }, Event::PreparationBegan];
        assert_eq!(look(11, progress(1000, 5), &preparing), "epoch 2  5 files prepared in the page cache");
        look(30, progress(1000, 9), &[Event::PreparationEnded]);
        assert_eq!(
            look(40, progress(1300, 9), &[]),
            "epoch 2  1,300 of 2,000 samples  by the clock 30/s, 30.0 MiB/s  21.5 s left"
        );
        // Files of earlier phases are not counted again.
        assert_eq!(
            look(50, progress(1300, 10), &[Event::PreparationBegan]),
            "epoch 2  1 files prepared in the page cache"
        );
    }

    #[test]
    fn a_run_of_a_study_has_the_time_of_the_study() {
        let progress = Progress { samples: 500, compute: Nanos(90), wait: Nanos(10), ..Progress::default() };
        let start =
            RunStart { what: "short run 1 of 2: 1,024 accelerators".to_owned(), seconds_after: 700.0 };
        let run = StudyRun { start, before: Nanos(3_000_000_000_000) };
        let (state, now) = (ProgressState::default(), Nanos(100_000_000_000));
        let parts = in_brief(&progress, &TRAINING, &run, &state, now);
        assert_eq!(joined(&parts), "AU 90.0 %  16 m 40 s left  51 m 40 s elapsed");
        let line = bar_line(&run.start.what, Some(0.25), &parts, 80);
        assert_eq!(line, "short run 1 of 2: 1,024 accelerators   25 %  AU 90.0 %  16 m 40 s left");
        let preparing = ProgressState { prepares: true, ..state };
        let files = Progress { prepared: 12, ..Progress::default() };
        let parts = in_brief(&files, &TRAINING, &run, &preparing, now);
        assert_eq!(joined(&parts), "12 files prepared  51 m 40 s elapsed");
    }

    #[test]
    fn an_unknown_total_has_no_percentage_and_no_time_left() {
        let progress = Progress { files: 12_000, file_bytes: 1 << 30, ..Progress::default() };
        let goal = Activity { what: "listing", unit: ActivityUnit::Files, total: 0 };
        assert_eq!(
            joined(&describe(&progress, &goal, &ProgressState::default(), Nanos(2_000_000_000))),
            "12,000 files  6,000/s"
        );
    }

    #[test]
    fn the_work_is_done_and_its_result_comes_back() {
        for show in [ProgressMode::Nothing, ProgressMode::Lines] {
            let (value, _) = session::observed(&show, &engine::Solo::new(), TRAINING, |_| 7);
            assert_eq!(value, 7);
        }
    }
}
