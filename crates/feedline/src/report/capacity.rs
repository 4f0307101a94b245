//! The report of `feedline capacity`, as text, JSON, CSV and plot: every trial as a row, the answer in one sentence,
//! how far it can be trusted, and whether the storage or feedline itself is the limit.

use model::statistics::Confidence;
use model::study::search::{CapacityEnd, Depth, SearchState, Trial};
use model::units::{Nanos, counted, grouped};
use serde_json::{Value, json};
use session::study::{CapacityFound, CapacityStage};

use super::csv_field;
use super::nodes::several_processes;
use ::report::plot::{Bar, Figure, ReferenceLine};

/// The report of a search.
#[derive(Debug)]
pub(crate) struct CapacityReport<'a> {
    pub found: &'a CapacityFound,
}

impl CapacityReport<'_> {
    /// Whether the run that shows the answer is valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.found.answer.of(self.found.answer.ranks).is_none_or(|trial| trial.broken.is_empty())
    }

    /// The trials by number of ranks.
    fn trials(&self) -> Vec<&Trial> {
        let mut trials: Vec<&Trial> = self.found.answer.trials.iter().collect();
        trials.sort_by_key(|trial| (trial.ranks, trial.depth));
        trials
    }

    fn target_percent(&self) -> f64 {
        100.0 * self.found.target
    }

    pub(crate) fn text(&self) -> String {
        let header = ["ranks", "AU %", "95 % interval", "MB/s", "steps", "target", "run", "note"];
        let table = super::table(header, 0..5, self.trials().into_iter().map(row));
        let table = if self.found.answer.trials.is_empty() { String::new() } else { format!("{table}\n\n") };
        let mut text = format!(
            "{}{}, {} backend{}\n\n{table}{}\n",
            self.found.workload,
            several_processes(self.found.least, self.found.nodes),
            self.found.store,
            super::simulated(self.found.store.is_simulated()),
            self.words()
        );
        if let Some(limit) = self.instrument() {
            text.push_str(&format!("{limit}\n"));
        }
        text.push_str(&format!("\nconfidence: {}\n", self.confidence()));
        for line in self.evidence() {
            text.push_str(&format!("  {line}\n"));
        }
        for line in self.not_covered() {
            text.push_str(&format!("  not covered: {line}\n"));
        }
        super::fitted(&text)
    }

    /// The answer in one sentence.
    fn words(&self) -> String {
        let (ranks, beyond) = (self.found.answer.ranks, self.found.beyond());
        let target = format!("AU {:.0} %", self.target_percent());
        let seen = |ranks| self.found.answer.of(ranks).map_or("not measured".to_owned(), au);
        let feeds = format!("{} at {target} ({})", counted(ranks, "accelerator"), seen(ranks));
        match self.found.end {
            CapacityEnd::Stop => self.partial(&target),
            _ if self.found.answer.state == SearchState::Contradicted => {
                format!("about {feeds}: longer runs and probes disagree")
            }
            CapacityEnd::Target if ranks == 0 && beyond > 1 => format!(
                "fewer than {} at {target}; with {}: {}; start fewer processes to try fewer accelerators",
                counted(beyond, "accelerator"),
                grouped(beyond),
                seen(beyond)
            ),
            CapacityEnd::Target if ranks == 0 => format!("0 accelerators at {target}; with 1: {}", seen(1)),
            CapacityEnd::Target => format!("{feeds}; with {}: {}", grouped(beyond), seen(beyond)),
            CapacityEnd::DataSet => format!(
                "at least {feeds}; the data set is too small for more than {}; to try {}, use one with at least {} \
                 files (dataset.num_files_train={})",
                counted(ranks, "rank"),
                grouped(2 * ranks),
                grouped(self.found.files_for_twice),
                self.found.files_for_twice
            ),
            CapacityEnd::UpTo => {
                format!("at least {feeds}; the search was limited to {}", counted(ranks, "rank"))
            }
        }
    }

    /// What is known when a search was interrupted.
    fn partial(&self, target: &str) -> String {
        let answer = &self.found.answer;
        match (answer.ranks, answer.fewest_missed().map(grouped)) {
            (0, None) => "interrupted before the first run ended: nothing was measured".to_owned(),
            (0, Some(missed)) => format!("interrupted: fewer than {missed} accelerators at {target}"),
            (ranks, missed) => {
                let below = missed.map_or(String::new(), |missed| format!(" and fewer than {missed}"));
                format!("interrupted: at least {}{below} at {target}", counted(ranks, "accelerator"))
            }
        }
    }

    /// The trials that show the answer: with this number of accelerators, and with one more.
    fn border(&self) -> impl Iterator<Item = &Trial> {
        let ranks = self.found.answer.ranks;
        [ranks, self.found.beyond()].into_iter().filter_map(|ranks| self.found.answer.of(ranks))
    }

    /// Whether the runs at the border tell AU from the target.
    fn is_decided(&self) -> bool {
        self.found.answer.state == SearchState::Clear
            && self.border().all(|trial| trial.is_decided(self.target_percent()))
    }

    /// How far the answer can be trusted.
    fn confidence(&self) -> String {
        let close = "an interval contains the target or is missing, so the answer may be off by one";
        match (self.found.answer.state, self.found.confirmation) {
            (SearchState::Stopped, _) => "partial, because the search was interrupted".to_owned(),
            (SearchState::Contradicted, _) => "low, because longer runs and probes disagree".to_owned(),
            (SearchState::Clear, Depth::Full) => "confirmed by full runs of the workload".to_owned(),
            (SearchState::Clear, Depth::Short) if self.is_decided() => {
                "confirmed by short runs; their 95 % intervals exclude the target".to_owned()
            }
            (SearchState::Clear, Depth::Short) => {
                format!("short runs cannot confirm it: {close}; use --confirm full")
            }
            (SearchState::Clear, Depth::Probe) if self.is_decided() => {
                "an estimate by probes only; their 95 % intervals exclude the target".to_owned()
            }
            (SearchState::Clear, Depth::Probe) => format!("an estimate by probes only: {close}"),
        }
    }

    /// What was measured at the border, a line for each number of accelerators.
    fn evidence(&self) -> Vec<String> {
        let line = |trial: &Trial| {
            let interval =
                trial.au_interval.map_or(String::new(), |interval| format!(" ({})", range(interval)));
            let steps = counted(trial.steps, "step");
            let extent = match trial.depth {
                Depth::Full => format!("{} of {steps}", counted(trial.epochs, "epoch")),
                Depth::Probe | Depth::Short => steps,
            };
            format!(
                "{}: AU {:.2} %{interval} in {extent}, {}: target {}",
                counted(trial.ranks, "accelerator"),
                trial.au_percent,
                Nanos::from_seconds(trial.wall_seconds),
                met(trial)
            )
        };
        self.border().map(line).collect()
    }

    /// What the workload does that the runs at the border did not do.
    fn not_covered(&self) -> Vec<String> {
        let coverage = &self.found.coverage;
        let mut parts = Vec::new();
        if self.border().any(|trial| trial.depth != Depth::Full && trial.steps < coverage.epoch_steps) {
            parts.push(format!("the rest of an epoch of {}", counted(coverage.epoch_steps, "step")));
        }
        if self.border().any(|trial| trial.epochs < coverage.epochs) {
            parts.push(match coverage.epochs {
                2 => "cache effects in epoch 2".to_owned(),
                last => format!("cache effects in epochs 2 to {}", grouped(last)),
            });
        }
        if coverage.evaluates && self.border().any(|trial| trial.depth != Depth::Full) {
            parts.push("evaluation".to_owned());
        }
        let mut lines = Vec::new();
        if !parts.is_empty() {
            let time = Nanos::from_seconds(coverage.full_seconds);
            lines.push(format!("{} (--confirm full: about {time})", parts.join(", ")));
        }
        if coverage.saves {
            lines.push("checkpoints: capacity saves none".to_owned());
        }
        lines
    }

    /// A sentence about the limit, if the storage is not the limit.
    fn instrument(&self) -> Option<String> {
        if self.found.end != CapacityEnd::Target {
            return None;
        }
        if self.found.store.is_null() {
            return Some(
                "the null backend reads nothing: this is feedline's own ceiling on this host".to_owned(),
            );
        }
        self.instrument_limits().filter(|limits| *limits)?;
        let own = self.found.ceiling?.au_percent?;
        let more = counted(self.found.beyond(), "accelerator");
        Some(format!(
            "the limit is feedline, not the storage: with {more}, the null backend reaches only AU {own:.2} % on this \
             host; to find the limit of the storage, use a host with more cores"
        ))
    }

    /// Whether feedline itself, on the null backend, misses the target with one more rank.
    fn instrument_limits(&self) -> Option<bool> {
        let own = self.found.ceiling?.au_percent?;
        Some(own < self.target_percent())
    }

    pub(crate) fn json(&self) -> Value {
        let found = self.found;
        let confirmation = Depth::CONFIRMATIONS.into_iter().find(|(_, depth)| *depth == found.confirmation);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "workload": found.workload,
            "store": found.store,
            "simulated": found.store.is_simulated(),
            "au_target_percent": self.target_percent(),
            "accelerators": found.answer.ranks,
            "fewest_missed": found.answer.fewest_missed(),
            "clear": found.answer.state == SearchState::Clear,
            "interrupted": found.interrupted,
            "ended_by": found.end,
            "answer": self.words(),
            "confirmation": confirmation.map(|(name, _)| name),
            "confidence": {
                "statement": self.confidence(),
                "decided": self.is_decided(),
                "evidence": self.evidence(),
                "not_covered": self.not_covered(),
                "full_seconds": found.coverage.full_seconds,
            },
            "instrument_is_the_limit": self.instrument_limits(),
            "calibration": found.ceiling,
            "trials": found.answer.trials,
        })
    }

    pub(crate) fn csv(&self) -> String {
        let header = "ranks,run,epochs,steps,au_percent,au_low,au_high,window_au_percent,samples_per_second,\
                      mb_per_second,met,wall_seconds,simulated,note\n";
        let lines = self.trials().into_iter().map(|trial| csv_line(trial, self.found.store.is_simulated()));
        std::iter::once(header.to_owned()).chain(lines).collect()
    }

    /// The plot: AU by number of accelerators, a colour for each kind of run, and the target as a line.
    pub(crate) fn figure(&self) -> Figure {
        let (trials, is_simulated) = (self.trials(), self.found.store.is_simulated());
        let mut ranks: Vec<u64> = trials.iter().map(|trial| trial.ranks).collect();
        ranks.dedup();
        let has = |depth: &Depth| trials.iter().any(|trial| trial.depth == *depth);
        let depths: Vec<Depth> = [Depth::Probe, Depth::Short, Depth::Full].into_iter().filter(has).collect();
        let bar = |ranks: u64, depth: Depth| {
            let trial = trials.iter().find(|trial| trial.ranks == ranks && trial.depth == depth)?;
            let whisker = trial.au_interval.map(|Confidence { low, high }| (low, high));
            Some(Bar { value: trial.au_percent, whisker, simulated: is_simulated })
        };
        let bars_of = |ranks: &u64| depths.iter().map(|depth| bar(*ranks, *depth)).collect();
        let (target, simulated) = (self.target_percent(), super::simulated(is_simulated));
        Figure {
            title: format!("{} on {}{simulated}, 95 % intervals", self.found.workload, self.found.store),
            x_label: "accelerators".to_owned(),
            y_label: "AU %".to_owned(),
            groups: ranks.iter().map(|ranks| grouped(*ranks)).collect(),
            series: depths.iter().map(|depth| run_name(*depth).to_owned()).collect(),
            bars: ranks.iter().map(bars_of).collect(),
            sparse: true,
            line: Some(ReferenceLine { value: target, label: format!("target {target:.0} %") }),
            ..Figure::default()
        }
    }
}

fn au(trial: &Trial) -> String {
    format!("AU {:.2} %, {} MB/s", trial.au_percent, grouped(trial.mb_per_second.round() as u64))
}

fn range(interval: Confidence) -> String {
    format!("{:.2} to {:.2}", interval.low, interval.high)
}

/// Reasons to distrust a trial.
fn note(trial: &Trial) -> String {
    match trial.broken.as_slice() {
        [] => String::new(),
        rules => format!("invalid: {}", rules.join(", ")),
    }
}

fn row(trial: &Trial) -> [String; 8] {
    [
        grouped(trial.ranks),
        format!("{:.2}", trial.au_percent),
        trial.au_interval.map_or("-".to_owned(), range),
        format!("{:.1}", trial.mb_per_second),
        grouped(trial.steps),
        met(trial).to_owned(),
        run_name(trial.depth).to_owned(),
        note(trial),
    ]
}

/// One line. A missing interval is two empty fields.
fn csv_line(trial: &Trial, simulated: bool) -> String {
    let bounds = trial.au_interval.map(|Confidence { low, high }| [low.to_string(), high.to_string()]);
    let [low, high] = bounds.unwrap_or_default();
    let fields = [
        trial.ranks.to_string(),
        trial.depth.name().to_owned(),
        trial.epochs.to_string(),
        trial.steps.to_string(),
        trial.au_percent.to_string(),
        low,
        high,
        trial.window_au_percent.to_string(),
        trial.samples_per_second.to_string(),
        trial.mb_per_second.to_string(),
        trial.met.to_string(),
        trial.wall_seconds.to_string(),
        simulated.to_string(),
        csv_field(&note(trial)),
    ];
    fields.join(",") + "\n"
}

/// The line that is printed when a trial ends: `probe          4 ranks  AU 99.10 %, 1,234 MB/s: met`
pub(crate) fn trial_line(trial: &Trial) -> String {
    let (name, ranks) = (run_name(trial.depth), counted(trial.ranks, "rank"));
    format!("{name:<9} {ranks:>12}  {}: {}", au(trial), met(trial))
}

/// The line that is printed before a stage.
pub(crate) fn stage_line(stage: &CapacityStage) -> String {
    match stage {
        CapacityStage::Probes { steps, seconds } => {
            let example = |(ranks, seconds): &(u64, f64)| {
                format!("{} for {}", Nanos::from_seconds(*seconds), grouped(*ranks))
            };
            let examples: Vec<String> = seconds.iter().map(example).collect();
            let steps = counted(*steps, "step");
            format!(
                "probes of {steps}; estimated time by number of accelerators fed: {}",
                examples.join(", ")
            )
        }
        CapacityStage::Confirmation { depth, epochs, runs, seconds } => {
            let epochs =
                if *epochs > 1 { format!("{} of ", counted(*epochs, "epoch")) } else { String::new() };
            let run = |(ranks, steps): &(u64, u64)| {
                format!("{} ({epochs}{})", counted(*ranks, "accelerator"), counted(*steps, "step"))
            };
            let runs: Vec<String> = runs.iter().map(run).collect();
            let (depth, time) = (depth.name(), Nanos::from_seconds(*seconds));
            format!("confirmation ({depth}): {}; estimated time: {time}", runs.join(", "))
        }
    }
}

fn met(trial: &Trial) -> &'static str {
    if trial.met { "met" } else { "not met" }
}

fn run_name(depth: Depth) -> &'static str {
    match depth {
        Depth::Probe => "probe",
        Depth::Short => "short run",
        Depth::Full => "full run",
    }
}

#[cfg(test)]
mod tests {
    use model::ledger::Calibration;
    use model::study::search::CapacityAnswer;
    use session::study::Coverage;

    use ::report::plot::PlotMedium;

    use super::*;

    fn trial(ranks: u64, depth: Depth, au_percent: f64) -> Trial {
        Trial {
            ranks,
            depth,
            epochs: if depth == Depth::Full { 3 } else { 1 },
            steps: 60,
            au_percent,
            au_interval: Some(Confidence { low: au_percent - 0.25, high: (au_percent + 0.25).min(100.0) }),
            window_au_percent: au_percent,
            mb_per_second: 12.5 * ranks as f64,
            met: au_percent >= 90.0,
            wall_seconds: 20.5,
            ..Trial::default()
        }
    }

    fn found(ranks: u64, end: CapacityEnd, trials: Vec<Trial>) -> CapacityFound {
        let coverage =
            Coverage { epochs: 3, epoch_steps: 400, evaluates: true, saves: true, full_seconds: 7260.0 };
        CapacityFound {
            workload: "snapshot".to_owned(),
            store: crate::report::posix().clone(),
            target: 0.9,
            confirmation: Depth::Short,
            least: 1,
            nodes: 1,
            answer: CapacityAnswer { ranks, trials, state: SearchState::Clear },
            end,
            coverage,
            files_for_twice: 1280,
            ceiling: None,
            interrupted: false,
        }
    }

    fn text(found: &CapacityFound) -> String {
        CapacityReport { found }.text()
    }

    fn ceiling(au: f64) -> Calibration {
        Calibration {
            steps: 60,
            au_percent: Some(au),
            samples_per_second: None,
            harness_seconds_per_step: 0.0,
            cpu_headroom: 0.5,
        }
    }

    fn limit() -> CapacityFound {
        use Depth::{Probe, Short};
        let seen = [(1, Probe, 99.9), (2, Probe, 80.0), (1, Short, 99.5), (2, Short, 81.25)];
        let trials = seen.map(|(ranks, depth, au)| trial(ranks, depth, au)).to_vec();
        CapacityFound { ceiling: Some(ceiling(99.0)), ..found(1, CapacityEnd::Target, trials) }
    }

    #[test]
    fn the_report_of_a_limit_is_exact() {
        let mut limit = limit();
        assert_eq!(text(&limit), EXPECTED);
        assert_eq!(CapacityReport { found: &limit }.csv(), CSV);
        limit.ceiling = Some(ceiling(85.0));
        let limited = "the limit is feedline, not the storage: with 2 accelerators, the null backend reaches only \
                       AU 85.00 % on this host; to find the limit of the storage, use a host with more cores\n";
        assert_eq!(text(&limit), EXPECTED.replace("\nconfidence", &format!("{limited}\nconfidence")));
        assert!(CapacityReport { found: &limit }.is_valid());
        limit.answer.trials[2].broken = vec!["on-time".to_owned()];
        assert!(!CapacityReport { found: &limit }.is_valid());
    }

    const EXPECTED: &str = "\
snapshot, posix backend

 ranks   AU %    95 % interval  MB/s  steps  target   run        note
     1  99.90  99.65 to 100.00  12.5     60  met      probe
     1  99.50   99.25 to 99.75  12.5     60  met      short run
     2  80.00   79.75 to 80.25  25.0     60  not met  probe
     2  81.25   81.00 to 81.50  25.0     60  not met  short run

1 accelerator at AU 90 % (AU 99.50 %, 13 MB/s); with 2: AU 81.25 %, 25 MB/s

confidence: confirmed by short runs; their 95 % intervals exclude the target
  1 accelerator: AU 99.50 % (99.25 to 99.75) in 60 steps, 20.5 s: target met
  2 accelerators: AU 81.25 % (81.00 to 81.50) in 60 steps, 20.5 s: target not met
  not covered: the rest of an epoch of 400 steps, cache effects in epochs 2 to 3, evaluation (--confirm full: about \
2 h 1 m)
  not covered: checkpoints: capacity saves none
";

    const CSV: &str = "\
ranks,run,epochs,steps,au_percent,au_low,au_high,window_au_percent,samples_per_second,mb_per_second,met,wall_seconds,\
simulated,note
1,probe,1,60,99.9,99.65,100,99.9,0,12.5,true,20.5,false,
1,short,1,60,99.5,99.25,99.75,99.5,0,12.5,true,20.5,false,
2,probe,1,60,80,79.75,80.25,80,0,25,false,20.5,false,
2,short,1,60,81.25,81,81.5,81.25,0,25,false,20.5,false,
";

    #[test]
    fn every_end_has_its_words() {
        let full = |ranks, au| vec![trial(ranks, Depth::Full, au)];
        let words = |ranks, end, trials| CapacityReport { found: &found(ranks, end, trials) }.words();
        assert_eq!(
            words(0, CapacityEnd::Target, full(1, 79.6)),
            "0 accelerators at AU 90 %; with 1: AU 79.60 %, 13 MB/s"
        );
        assert_eq!(
            words(4, CapacityEnd::DataSet, full(4, 95.0)),
            "at least 4 accelerators at AU 90 % (AU 95.00 %, 50 MB/s); the data set is too small for more than 4 \
             ranks; to try 8, use one with at least 1,280 files (dataset.num_files_train=1280)"
        );
        assert_eq!(
            words(8, CapacityEnd::UpTo, full(8, 95.0)),
            "at least 8 accelerators at AU 90 % (AU 95.00 %, 100 MB/s); the search was limited to 8 ranks"
        );
        let interrupted = |ranks, trials| words(ranks, CapacityEnd::Stop, trials);
        let nothing = text(&found(0, CapacityEnd::Stop, Vec::new()));
        assert!(nothing.starts_with("snapshot, posix backend\n\ninterrupted before "), "{nothing}");
        assert_eq!(
            interrupted(0, Vec::new()),
            "interrupted before the first run ended: nothing was measured"
        );
        assert_eq!(interrupted(0, full(8, 50.0)), "interrupted: fewer than 8 accelerators at AU 90 %");
        assert_eq!(
            interrupted(2, [full(2, 95.0), full(4, 50.0)].concat()),
            "interrupted: at least 2 accelerators and fewer than 4 at AU 90 %"
        );
    }

    #[test]
    fn every_confirmation_states_its_confidence() {
        use Depth::{Full, Probe, Short};
        use SearchState::{Clear, Contradicted, Stopped};
        for (confirmation, state, au, text) in [
            (Short, Clear, 81.0, "confirmed by short runs"),
            (Short, Clear, 89.9, "may be off by one; use --confirm full"),
            (Full, Clear, 81.0, "confirmed by full runs"),
            (Probe, Clear, 81.0, "an estimate by probes only; their 95 % intervals exclude"),
            (Probe, Clear, 89.9, "an estimate by probes only: an interval contains the target"),
            (Short, Contradicted, 81.0, "low"),
            (Short, Stopped, 81.0, "partial"),
        ] {
            let mut limit = CapacityFound { confirmation, ..limit() };
            limit.answer.state = state;
            limit.answer.trials[3] = trial(2, Short, au);
            let stated = CapacityReport { found: &limit }.confidence();
            assert!(stated.contains(text), "{confirmation:?} {state:?} {au}: {stated}");
        }
        let trials = vec![trial(1, Full, 95.0), trial(2, Full, 81.0)];
        let full = CapacityFound { confirmation: Full, ..found(1, CapacityEnd::Target, trials) };
        assert_eq!(CapacityReport { found: &full }.not_covered(), ["checkpoints: capacity saves none"]);
    }

    #[test]
    fn a_stage_states_its_time() {
        let probes = CapacityStage::Probes { steps: 161, seconds: vec![(1, 17.4), (8, 70.0)] };
        assert_eq!(
            stage_line(&probes),
            "probes of 161 steps; estimated time by number of accelerators fed: 17.4 s for 1, 70.0 s for 8"
        );
        let runs = vec![(1, 422), (2, 422)];
        let short = CapacityStage::Confirmation { depth: Depth::Short, epochs: 1, runs, seconds: 44.0 };
        assert_eq!(
            stage_line(&short),
            "confirmation (short): 1 accelerator (422 steps), 2 accelerators (422 steps); estimated time: 44.0 s"
        );
        let runs = vec![(1, 48_762)];
        let full = CapacityStage::Confirmation { depth: Depth::Full, epochs: 8, runs, seconds: 20_000.0 };
        assert_eq!(
            stage_line(&full),
            "confirmation (full): 1 accelerator (8 epochs of 48,762 steps); estimated time: 5 h 33 m"
        );
    }

    #[test]
    fn the_plot_has_a_bar_for_each_trial_and_the_target() {
        let figure = CapacityReport { found: &limit() }.figure();
        assert_eq!(figure.groups, ["1", "2"]);
        assert_eq!(figure.series, ["probe", "short run"]);
        let svg = figure.svg(PlotMedium::Print);
        assert_eq!(svg.matches("class=\"bar\"").count(), 4);
        assert!(svg.contains("target 90 %"), "{svg}");
    }
}
