//! The lines of the log.

use model::verdict::{Finding, RuleOutcome, Status};

use super::*;
use crate::dlio::leaf::level::LogLevel;
use crate::dlio::leaf::log::LeafLog;

/// The lines without time stamps, and with seconds and rates as `#`.
fn plain(text: &str) -> Vec<String> {
    let stamp = |word: &&str| word.len() == 26 && word.as_bytes()[10] == b'T';
    let hide = |word: &str| {
        let number = word.trim_matches(['(', ')', ';']);
        let is_real = number.contains('.') && number.parse::<f64>().is_ok();
        if is_real { word.replace(number, "#") } else { word.to_owned() }
    };
    let line =
        |line: &str| line.split(' ').filter(|word| !stamp(word)).map(hide).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect()
}

fn logged(level: LogLevel, settings: &[&str]) -> (Vec<String>, Ended) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dlio.log");
    let log = LeafLog::to(level, std::fs::File::create(&path).unwrap(), path.display().to_string());
    // The plan of every run here is that of a silent one.
    let Ended { spec, plan, .. } = silent(settings);
    log.start(&spec, 2);
    log.planned(&plan);
    let ended = ran(settings, &log);
    let before = std::fs::read_to_string(&path).unwrap();
    assert!(before.ends_with('\n') || before.is_empty(), "lines are written as they come: {before}");
    super::super::closing::report(&log, &ended.outcome());
    log.finish().unwrap();
    (plain(&std::fs::read_to_string(path).unwrap()), ended)
}

#[test]
fn a_run_with_blocks_and_evaluation_has_dlios_lines() {
    let settings = [&SAVES[..], &[EVALUATES, "train.epochs=1", "evaluation.eval_after_epoch=1"]].concat();
    let (lines, _) = logged(LogLevel::Milestones, &settings);
    let expected = "\
[OUTPUT] Running [Training & Evaluation & Checkpointing] with 2 process(es)
[OUTPUT] Max steps per epoch: 12 = 1 * 192 / 8 / 2 (samples per file * num files / batch size / comm size)
[OUTPUT] Steps per eval: 5 = 1 * 40 / 4 / 2 (samples per file * num files / batch size eval / comm size)
[OUTPUT] Total checkpoint size: # GiB
[OUTPUT] Starting epoch 1: 12 steps expected
[OUTPUT] Starting block 1
[OUTPUT] Ending block 1 - 5 steps completed in # s
[OUTPUT] Epoch 1 - Block 1 [Training] Accelerator Utilization [AU] (%): #
[OUTPUT] Epoch 1 - Block 1 [Training] Throughput (samples/second): #
[OUTPUT] Starting saving checkpoint 1 after total step 5 for epoch 1
[OUTPUT] Finished saving checkpoint 1 for epoch 1 in # s; Throughput: # GiB/s
[OUTPUT] Starting block 2
[OUTPUT] Ending block 2 - 5 steps completed in # s
[OUTPUT] Epoch 1 - Block 2 [Training] Accelerator Utilization [AU] (%): #
[OUTPUT] Epoch 1 - Block 2 [Training] Throughput (samples/second): #
[OUTPUT] Starting saving checkpoint 2 after total step 10 for epoch 1
[OUTPUT] Finished saving checkpoint 2 for epoch 1 in # s; Throughput: # GiB/s
[OUTPUT] Starting block 3
[OUTPUT] Ending block 3 - 2 steps completed in # s
[OUTPUT] Epoch 1 - Block 3 [Training] Accelerator Utilization [AU] (%): #
[OUTPUT] Epoch 1 - Block 3 [Training] Throughput (samples/second): #
[OUTPUT] Ending epoch 1 - 12 steps completed in # s
[OUTPUT] Starting eval - 5 steps expected
[OUTPUT] Ending eval - 5 steps completed in # s
[OUTPUT] Epoch 1 [Eval] Accelerator Utilization [AU] (%): #
[OUTPUT] Epoch 1 [Eval] Throughput (samples/second): #
[OUTPUT] Averaged metric over all steps/epochs
[METRIC] ==========================================================
[METRIC] Number of Simulated Accelerators: 2
[METRIC] Training Accelerator Utilization [AU] (%): # (#)
[METRIC] Training Throughput (samples/second): # (#)
[METRIC] Training I/O Throughput (MiB/second): # (#)
[METRIC] train_au_meet_expectation: fail
[METRIC] Checkpoint save duration (seconds): # (#)
[METRIC] Checkpoint save I/O Throughput (GiB/second): # (#)
[METRIC] Eval Accelerator Utilization [AU] (%): # (#)
[METRIC] Eval Throughput (samples/second): # (#)
[METRIC] Eval Throughput (MiB/second): # (#)
[METRIC] eval_au_meet_expectation: success
[METRIC] ==========================================================";
    let told = lines.iter().position(|line| line.starts_with("[WARNING]")).unwrap_or(lines.len());
    let told: Vec<&String> = lines[..told].iter().filter(|line| !line.contains("by the clock")).collect();
    assert_eq!(told, expected.lines().collect::<Vec<_>>());
}

#[test]
fn results_and_the_verdict_are_never_hidden() {
    let (lines, ended) = logged(LogLevel::Results, &["train.epochs=1"]);
    assert!(lines.iter().any(|line| line.starts_with("[METRIC] Training Throughput")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("Starting epoch")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("Verdict by feedline")), "{lines:?}");
    assert_ne!(ended.verdict.status, Status::Valid, "the null backend stores nothing");
    let (lines, _) = logged(LogLevel::Steps, &["train.epochs=1"]);
    let steps = lines.iter().filter(|line| line.starts_with("[INFO] Rank ")).count();
    assert_eq!(steps, 2 * 12, "every step of every rank: {lines:?}");
}

#[test]
fn a_result_that_is_not_valid_is_announced_with_reasons_and_remedies() {
    let mut ended = silent(&["train.epochs=1"]);
    for (status, words) in [(Status::Invalid, "INVALID"), (Status::Incomplete, "INCOMPLETE")] {
        ended.verdict.status = status;
        ended.verdict.rules[0] = Finding {
            rule: "cache".to_owned(),
            outcome: RuleOutcome::Fail,
            threshold: String::new(),
            evidence: "all of it was in memory".to_owned(),
            remedy: "use more data".to_owned(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = LeafLog::to(LogLevel::Results, std::fs::File::create(&path).unwrap(), String::new());
        super::super::closing::report(&log, &ended.outcome());
        let text = std::fs::read_to_string(path).unwrap();
        for line in
            [words, "[WARNING]   cache: all of it was in memory\n", "[WARNING]     help: use more data\n"]
        {
            assert!(text.contains(line), "{text}");
        }
        assert_eq!(text.contains("[METRIC]"), status == Status::Invalid, "no figures of an incomplete run");
    }
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_at_the_end() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let log = LeafLog::to(LogLevel::Milestones, full, "leaf/dlio.log".to_owned());
    log.output("one");
    log.output("two");
    let error = format!("{:#}", log.finish().unwrap_err());
    assert!(error.starts_with("cannot write the log leaf/dlio.log: No space left"), "{error}");
}

#[test]
fn generation_has_its_lines_and_nothing_is_drawn_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = LeafLog::to(LogLevel::Milestones, std::fs::File::create(&path).unwrap(), String::new());
    let generate = || observed(&log, &Solo::new(), activity("generating and verifying"), |_| 7).0;
    let lines = || plain(&std::fs::read_to_string(&path).unwrap());
    let [starts, done] = ["[OUTPUT] Starting data generation", "[OUTPUT] Generation done"].map(str::to_owned);
    assert_eq!((generate(), lines()), (7, vec![starts.clone()]), "it may have been interrupted");
    log.generated();
    log.generated();
    assert_eq!(lines(), [starts.clone(), done.clone()]);
    generate();
    observed(&log, &Solo::new(), activity("listing"), |_| ());
    assert_eq!(lines(), [starts.clone(), done.clone(), starts, done], "the next activity begins after it");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains('\r'));
}
