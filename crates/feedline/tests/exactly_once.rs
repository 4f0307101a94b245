//! Each planned sample is delivered exactly once per epoch over all ranks, for random shapes of runs. The expected
//! counts are computed here independently; reads from disk are checked by file sizes, which differ from file to file.

use serde_json::Value;

use crate::util::{Dir, outcome};

/// A small random generator (xorshift64*): the same cases in every run, without a dependency.
struct Dice(u64);

impl Dice {
    /// A number from `low` to `high`, inclusive.
    fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        low + (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % (high - low + 1)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(0, from.len() as u64 - 1) as usize]
    }
}

#[derive(Debug)]
struct Case {
    files: u64,
    samples_per_file: u64,
    ranks: u64,
    batch: u64,
    readers: u64,
    prefetch: u64,
    epochs: u64,
    eval_files: u64,
    loader: &'static str,
    file_shuffle: &'static str,
    sample_shuffle: &'static str,
}

impl Case {
    /// A case in which there is at least one step.
    fn draw(dice: &mut Dice) -> Case {
        const SHUFFLES: [&str; 3] = ["off", "seed", "random"];
        loop {
            let case = Case {
                files: dice.roll(1, 70),
                samples_per_file: if dice.roll(0, 1) == 0 { 1 } else { dice.roll(2, 9) },
                ranks: dice.roll(1, 9),
                batch: dice.roll(1, 13),
                readers: dice.roll(0, 6),
                prefetch: dice.roll(0, 5),
                epochs: dice.roll(1, 3),
                eval_files: if dice.roll(0, 3) == 0 { dice.roll(9, 30) } else { 0 },
                loader: dice.pick(&["pytorch", "tensorflow"]),
                file_shuffle: dice.pick(&SHUFFLES),
                sample_shuffle: dice.pick(&SHUFFLES),
            };
            if case.planned() > 0 {
                return case;
            }
        }
    }

    /// Samples of an epoch: all complete steps of all ranks.
    fn planned(&self) -> u64 {
        let step = self.ranks * self.batch;
        self.files * self.samples_per_file / step * step
    }

    fn settings(&self) -> Vec<String> {
        vec![
            format!("framework={}", self.loader),
            format!("reader.data_loader={}", self.loader),
            "dataset.format=npz".to_owned(),
            "dataset.data_folder=data".to_owned(),
            "dataset.record_length_bytes=1024".to_owned(),
            format!("dataset.num_files_train={}", self.files),
            format!("dataset.num_files_eval={}", self.eval_files),
            format!("dataset.num_samples_per_file={}", self.samples_per_file),
            format!("workflow.evaluation={}", self.eval_files > 0),
            format!("reader.batch_size={}", self.batch),
            format!("reader.read_threads={}", self.readers),
            format!("reader.prefetch_size={}", self.prefetch),
            format!("reader.file_shuffle={}", self.file_shuffle),
            format!("reader.sample_shuffle={}", self.sample_shuffle),
            format!("train.epochs={}", self.epochs),
            "train.computation_time=0".to_owned(),
            "output.metric.exclude_start_steps=0".to_owned(),
        ]
    }

    fn run(&self, dir: &Dir, flags: &[&str]) -> Value {
        let settings = self.settings();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let ranks = self.ranks.to_string();
        let args = ["run", "w.yaml", "--ranks", &ranks, "--quiet", "--json"];
        let done = dir.feedline(&args).args(flags).set(&settings).run();
        if done.code() != Some(0) {
            done.fail(&format!("{self:?}"));
        }
        done.json()
    }

    fn check(&self, summary: &Value) {
        for rule in ["complete", "exactly-once", "bytes-as-planned"] {
            assert_eq!(outcome(summary, rule), "pass", "{rule}: {self:?}");
        }
        let epochs = summary["feedline"]["epochs"].as_array().unwrap();
        assert_eq!(epochs.len() as u64, self.epochs, "{self:?}");
        for epoch in epochs {
            assert_eq!(epoch["samples_planned"], self.planned(), "{self:?}");
            assert_eq!(epoch["samples_delivered"], self.planned(), "{self:?}");
        }
        if self.eval_files > 0 {
            let evals = summary["feedline"]["eval_epochs"].as_array().unwrap();
            assert_eq!(evals.len() as u64, self.epochs, "{self:?}");
            // The evaluation batch is 1 by default.
            let samples = self.eval_files * self.samples_per_file / self.ranks * self.ranks;
            assert!(evals.iter().all(|eval| eval["samples_delivered"] == samples), "{self:?}: {evals:?}");
        }
    }
}

/// A minimal workload; each case provides all settings.
fn workspace() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", "model: {name: exactly_once}\n");
    dir
}

#[test]
fn two_hundred_random_runs_on_the_null_backend() {
    let dir = workspace();
    let mut dice = Dice(0x0fee_d11e);
    for _ in 0..200 {
        let case = Case::draw(&mut dice);
        case.check(&case.run(&dir, &["--store", "null"]));
    }
}

#[test]
fn thirty_random_runs_on_files() {
    let mut dice = Dice(0xd15c);
    for _ in 0..30 {
        let dir = workspace();
        let case = Case::draw(&mut dice);
        case.check(&case.run(&dir, &["--generate"]));
    }
}

#[test]
fn every_file_is_read_once_by_its_size() {
    let mut dice = Dice(0x512e);
    for _ in 0..15 {
        let dir = workspace();
        // Only complete steps, so that every file is read; one sample per file, so that it is read once.
        let (ranks, batch) = (dice.roll(1, 5), dice.roll(1, 6));
        let case = Case {
            files: ranks * batch * dice.roll(2, 5),
            samples_per_file: 1,
            ranks,
            batch,
            epochs: 2,
            ..Case::draw(&mut dice)
        };
        let spread =
            ["--generate", "--set", "dataset.record_length_bytes_stdev=400", "--set", "reader.access=extent"];
        let summary = case.run(&dir, &spread);
        case.check(&summary);
        // The sample is the file without its labels and without the 450 bytes of npz's structure.
        let bytes: usize = dir.tree("data/train").values().map(|file| file.len() - 458).sum();
        for epoch in summary["feedline"]["epochs"].as_array().unwrap() {
            assert_eq!(epoch["bytes_read"], bytes, "{case:?}");
        }
    }
}

/// Shapes with which DLIO hung, or delivered samples twice or not at all.
#[test]
fn shapes_that_failed_in_dlio() {
    let dir = workspace();
    let base = Case {
        files: 1,
        samples_per_file: 1,
        ranks: 1,
        batch: 1,
        readers: 4,
        prefetch: 2,
        epochs: 2,
        eval_files: 0,
        loader: "pytorch",
        file_shuffle: "seed",
        sample_shuffle: "seed",
    };
    for (case, dropped) in [
        (Case { files: 145, ranks: 3, batch: 16, ..base }, 1),
        (Case { files: 100, ranks: 7, ..base }, 2),
        (Case { files: 3, samples_per_file: 512, batch: 10, ranks: 2, ..base }, 16),
        (Case { files: 1, samples_per_file: 100, ranks: 8, batch: 4, ..base }, 4),
        (Case { files: 3, readers: 16, ..base }, 0),
    ] {
        case.check(&case.run(&dir, &["--store", "null"]));
        let settings = case.settings();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let args = ["plan", "w.yaml", "--json", "--quiet", "--ranks", &case.ranks.to_string()];
        let plan = dir.feedline(&args).set(&settings).run();
        assert_eq!(plan.json()["dropped_samples"], dropped, "the remainder is stated: {case:?}");
    }
}
