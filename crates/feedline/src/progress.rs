//! How far a long piece of work has come: a bar on a terminal, a plain line every few seconds elsewhere, nothing when
//! asked to be quiet. It polls the engine's pulse; the work itself knows nothing of it.

use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use engine::meter::Monotonic;
use engine::{Progress, Pulse};
use indicatif::{ProgressBar, ProgressStyle};
use model::units::{Nanos, grouped, mib_per_second};
use store::Now;

use crate::report;

/// Where progress goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    Nothing,
    Lines,
    Bar,
}

impl Show {
    pub fn choose(quiet: bool) -> Show {
        match quiet {
            true => Show::Nothing,
            false if std::io::stderr().is_terminal() => Show::Bar,
            false => Show::Lines,
        }
    }
}

/// What the work comes to.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    pub what: &'static str,
    pub unit: &'static str,
    /// 0 if nobody knows: then there is neither percentage nor time left.
    pub samples: u64,
    /// Whether there are accelerators whose utilisation is worth showing.
    pub au: bool,
}

/// How often a bar is drawn, and a line written.
const BAR_PERIOD: Duration = Duration::from_millis(100);
const LINE_PERIOD: Nanos = Nanos(5_000_000_000);

/// Does the work while showing its progress, and says how long it took.
pub fn watch<T: Send>(show: Show, pulse: &Pulse, goal: &Goal, work: impl FnOnce() -> T + Send) -> (T, Nanos) {
    let clock = &Monotonic::new();
    // The display ends when the work drops its end of the channel, at once and also when the work panics.
    let (working, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let display = std::thread::Builder::new().name("progress".to_owned());
        // Where no thread can be started the work goes on without a display.
        let _ = match show {
            Show::Nothing => None,
            Show::Lines => {
                display.spawn_scoped(scope, move || bear(|| lines(pulse, goal, clock, &ended))).ok()
            }
            Show::Bar => display.spawn_scoped(scope, move || bear(|| bar(pulse, goal, clock, &ended))).ok(),
        };
        let working = working;
        let value = work();
        let span = clock.now();
        drop(working);
        (value, span)
    })
}

/// A display that panics takes no result with it: what it shows is in none.
fn bear(display: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(display));
}

/// Waits until the next look is due; says no when the work is over.
fn goes_on(ended: &Receiver<()>) -> bool {
    ended.recv_timeout(BAR_PERIOD) == Err(RecvTimeoutError::Timeout)
}

fn bar(pulse: &Pulse, goal: &Goal, clock: &Monotonic, ended: &Receiver<()>) {
    let bar = ProgressBar::new(goal.samples);
    let style = ProgressStyle::with_template(match goal.samples {
        0 => "{prefix} {spinner} {msg}",
        _ => "{prefix} {wide_bar} {percent:>3} %  {msg}",
    });
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(goal.what);
    let mut start = Start::default();
    while goes_on(ended) {
        let (progress, now) = (pulse.look(), clock.now());
        start.follow(&progress, now);
        bar.set_position(progress.samples);
        bar.set_message(describe(&progress, goal, start, now));
    }
    bar.finish_and_clear();
}

fn lines(pulse: &Pulse, goal: &Goal, clock: &Monotonic, ended: &Receiver<()>) {
    let (mut next, mut start) = (LINE_PERIOD, Start::default());
    while goes_on(ended) {
        let (progress, now) = (pulse.look(), clock.now());
        start.follow(&progress, now);
        if now >= next {
            next += LINE_PERIOD;
            let percent = match goal.samples {
                0 => String::new(),
                total => format!(" {:.0} %", 100.0 * progress.samples as f64 / total as f64),
            };
            report::note(&format!("{}{percent}  {}", goal.what, describe(&progress, goal, start, now)));
        }
    }
}

/// Where the epoch at work, or work without epochs, began: rates by the clock count from there.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    epoch: u64,
    at: Nanos,
    samples: u64,
    bytes: u64,
}

impl Start {
    /// An epoch begins when its number shows, and when the page cache is ready for it.
    fn follow(&mut self, progress: &Progress, now: Nanos) {
        let Progress { epoch, samples, bytes, .. } = *progress;
        if epoch != self.epoch || progress.preparing.is_some() {
            *self = Start { epoch, at: now, samples, bytes };
        }
    }
}

/// `epoch 2  12,000 of 24,000 samples  by the clock 1,234/s, 131 MiB/s  AU 98.1 %  12 s left`
fn describe(progress: &Progress, goal: &Goal, start: Start, now: Nanos) -> String {
    let per_second = |count: u64, since: Nanos| count as f64 / now.since(since).seconds().max(1e-9);
    let rate = per_second(progress.samples, Nanos::ZERO);
    let mut parts = Vec::new();
    if goal.au && progress.epoch > 0 {
        parts.push(format!("epoch {}", progress.epoch));
    }
    if let Some(files) = progress.preparing {
        parts.push(format!("{} files made ready in the page cache", grouped(files)));
        return parts.join("  ");
    }
    let done = grouped(progress.samples);
    if goal.samples == 0 {
        parts.push(format!("{done} {}", goal.unit));
        parts.push(format!("{}/s", grouped(rate as u64)));
        return parts.join("  ");
    }
    parts.push(format!("{done} of {} {}", grouped(goal.samples), goal.unit));
    let samples = grouped(per_second(progress.samples - start.samples, start.at) as u64);
    let bytes = mib_per_second(progress.bytes - start.bytes, now.since(start.at)).unwrap_or(0.0);
    parts.push(format!("by the clock {samples}/s, {bytes:.0} MiB/s"));
    if let Some(au) = progress.au_percent().filter(|_| goal.au) {
        parts.push(format!("AU {au:.1} %"));
    }
    if rate > 0.0 {
        let left = goal.samples.saturating_sub(progress.samples) as f64 / rate;
        parts.push(format!("{} left", Nanos::from_seconds(left)));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rate_au_and_time_left() {
        let progress = Progress {
            samples: 500,
            bytes: 50 << 20,
            epoch: 1,
            steps: 10,
            preparing: None,
            busy: Nanos(90),
            time: Nanos(100),
        };
        let goal = Goal { what: "training", unit: "samples", samples: 2000, au: true };
        assert_eq!(
            describe(&progress, &goal, Start::default(), Nanos(5_000_000_000)),
            "epoch 1  500 of 2,000 samples  by the clock 100/s, 10 MiB/s  AU 90.0 %  15.0 s left"
        );
    }

    /// The rate is that of the epoch at work: neither of those before it, nor of the time in which its cache was made
    /// ready.
    #[test]
    fn the_rate_counts_from_the_beginning_of_the_epoch() {
        let goal = Goal { what: "training", unit: "samples", samples: 2000, au: false };
        let seconds = |seconds: u64| Nanos(1_000_000_000 * seconds);
        let progress = |epoch, samples, preparing| Progress {
            epoch,
            samples,
            bytes: samples << 20,
            preparing,
            ..Progress::default()
        };
        let mut start = Start::default();
        start.follow(&progress(1, 0, None), Nanos::ZERO);
        start.follow(&progress(1, 1000, None), seconds(10));
        start.follow(&progress(2, 1000, Some(5)), seconds(11));
        start.follow(&progress(2, 1000, Some(9)), seconds(30));
        let last = progress(2, 1300, None);
        start.follow(&last, seconds(40));
        assert_eq!(
            describe(&last, &goal, start, seconds(40)),
            "1,300 of 2,000 samples  by the clock 30/s, 30 MiB/s  21.5 s left"
        );
    }

    #[test]
    fn before_an_epoch_the_cache_is_made_ready() {
        let progress = Progress { epoch: 2, preparing: Some(1234), ..Progress::default() };
        let goal = Goal { what: "training", unit: "samples", samples: 2000, au: true };
        assert_eq!(
            describe(&progress, &goal, Start::default(), Nanos(5_000_000_000)),
            "epoch 2  1,234 files made ready in the page cache"
        );
    }

    #[test]
    fn an_unknown_total_has_neither_share_nor_end() {
        let progress = Progress { samples: 12_000, bytes: 1 << 30, ..Progress::default() };
        let goal = Goal { what: "listing", unit: "files", samples: 0, au: false };
        assert_eq!(
            describe(&progress, &goal, Start::default(), Nanos(2_000_000_000)),
            "12,000 files  6,000/s"
        );
    }

    #[test]
    fn the_work_is_done_and_its_result_comes_back() {
        let goal = Goal { what: "w", unit: "u", samples: 1, au: false };
        let (value, _) = watch(Show::Nothing, &Pulse::default(), &goal, || 7);
        assert_eq!(value, 7);
    }
}
