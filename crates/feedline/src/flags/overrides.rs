//! The changes that flags make to a workload, in the order in which they apply: `--set` arguments, flags that stand for
//! a key, values of `sweep --over`. A later change wins. A dedicated flag is the more specific request, as in cargo,
//! where `--jobs` wins over `--config build.jobs=..`. The flags `--store`, `--data-dir`, `--results-dir` and
//! `--writers` also win over their keys.

use anyhow::anyhow;
use model::spec::{KeyStatus, Override, OverrideValue, canonical_key, rows};
use model::units::Nanos;

use super::{CacheFlags, CheckpointFlags, DataFlags, StorageFlags, WorkloadFlags};
use crate::commands::capacity::CapacityFlags;
use crate::commands::generate::GenerateFlags;
use crate::commands::mlperf::MlperfSizeFlags;
use crate::commands::plan::PlanFlags;
use crate::commands::run::RunFlags;
use crate::commands::stall::StallFlags;
use crate::commands::sweep::SweepFlags;
use crate::exit::Failure;

impl WorkloadFlags {
    /// `--set` arguments, then flags that stand for a key.
    fn overrides(&self, flags: impl IntoIterator<Item = Override>) -> Vec<Override> {
        let set = self.set.iter().map(|argument| Override::hydra(argument, format!("--set {argument}")));
        let timeout = self.stall_timeout.map(Nanos::seconds);
        set.chain(stands_for("reader.stall_timeout", timeout, "--stall-timeout")).chain(flags).collect()
    }
}

impl StorageFlags {
    /// The settings; a usage error for a key that does not describe an object store.
    pub(crate) fn overrides(&self) -> Result<Vec<Override>, Failure> {
        self.storage_set.iter().map(|argument| storage_setting(argument)).collect()
    }
}

fn storage_setting(argument: &str) -> Result<Override, Failure> {
    let setting = Override::hydra(argument, format!("--set {argument}"));
    let key = setting.key.trim_start_matches(['+', '~']);
    let key = canonical_key(key.strip_prefix("workload.").unwrap_or(key));
    let names_place = rows().any(|row| row.key == key && row.status == KeyStatus::Used);
    match key.starts_with("storage.") && !names_place {
        true => Ok(setting),
        false => Err(Failure::usage(anyhow!(
            "--set {key}: this command takes only keys that say how to reach an object store, such as \
             storage.anonymous; see 'feedline docs objects'"
        ))),
    }
}

/// The override that a flag stands for, if the flag was given.
fn stands_for(key: &str, value: Option<impl Into<OverrideValue>>, flag: &str) -> Option<Override> {
    value.map(|value| Override::new(key, value, flag))
}

impl CacheFlags {
    pub(crate) fn overrides(&self) -> impl Iterator<Item = Override> {
        let state = stands_for("reader.cache", self.cache.as_deref(), "--cache");
        let proof = stands_for("reader.cache_proof", self.cache_proof.as_deref(), "--cache-proof");
        let drop = stands_for("reader.drop_caches", self.drop_caches.then_some(true), "--drop-caches");
        [state, proof, drop].into_iter().flatten()
    }
}

impl DataFlags {
    fn overrides(&self) -> impl Iterator<Item = Override> {
        stands_for("reader.verify", self.verify.as_deref(), "--verify").into_iter()
    }
}

impl CheckpointFlags {
    fn overrides(&self) -> impl Iterator<Item = Override> {
        let save = stands_for("checkpoint.mode_of_save", self.save.as_deref(), "--save");
        let folder = self.checkpoint_dir.as_deref();
        let folder = stands_for("checkpoint.checkpoint_folder", folder, "--checkpoint-dir");
        save.into_iter().chain(folder)
    }
}

impl MlperfSizeFlags {
    pub(crate) fn overrides(&self) -> Vec<Override> {
        self.workload.overrides([])
    }
}

impl RunFlags {
    pub(crate) fn overrides(&self) -> Vec<Override> {
        let flags = self.place.overrides().chain(self.cache.overrides()).chain(self.checkpoints.overrides());
        self.workload.overrides(flags)
    }
}

impl SweepFlags {
    /// The changes to the workload for one cell. The settings of the cell win over all others.
    pub(crate) fn overrides(&self, cell: impl Iterator<Item = Override>) -> Vec<Override> {
        self.workload.overrides(self.place.overrides().chain(self.cache.overrides()).chain(cell))
    }
}

impl CapacityFlags {
    pub(crate) fn overrides(&self) -> Vec<Override> {
        self.workload.overrides(self.place.overrides().chain(self.cache.overrides()))
    }
}

impl StallFlags {
    pub(crate) fn overrides(&self) -> Vec<Override> {
        self.workload.overrides(self.place.overrides())
    }
}

impl GenerateFlags {
    pub(crate) fn overrides(&self) -> Vec<Override> {
        self.workload.overrides([])
    }
}

impl PlanFlags {
    pub(crate) fn overrides(&self) -> Vec<Override> {
        self.workload.overrides(self.cache.overrides().chain(self.checkpoints.overrides()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};
    use model::spec::{self, WorkloadSource};

    use super::*;
    use crate::commands::Command;
    use crate::flags::Cli;

    /// Every flag of `run` that stands for a key: the flag, the key, the value it sets, and a different value of that
    /// key.
    const STAND_FOR_A_KEY: [(&[&str], &str, &str, &str); 7] = [
        (&["--cache", "warm"], "reader.cache", "warm", "as-is"),
        (&["--cache-proof", "none"], "reader.cache_proof", "none", "sample"),
        (&["--drop-caches"], "reader.drop_caches", "true", "false"),
        (&["--verify", "full"], "reader.verify", "full", "none"),
        (&["--stall-timeout", "90s"], "reader.stall_timeout", "90.0", "5"),
        (&["--save", "async"], "checkpoint.mode_of_save", "async", "direct"),
        (&["--checkpoint-dir", "it's"], "checkpoint.checkpoint_folder", "\"it's\"", "other"),
    ];

    fn overrides(args: &[&str]) -> Vec<Override> {
        let cli = Cli::try_parse_from([&["feedline", "run", "demo"], args].concat()).unwrap();
        let Command::Run(flags) = cli.command else { panic!("not a run") };
        flags.overrides()
    }

    fn read(file: &str, overrides: &[Override]) -> spec::ParsedWorkload {
        spec::read(WorkloadSource { name: "w.yaml", text: file }, overrides).unwrap()
    }

    #[test]
    fn a_flag_wins_over_set_and_set_over_the_file() {
        for (flag, key, value, other) in STAND_FOR_A_KEY {
            let file = key.rsplit('.').fold(other.to_owned(), |inner, part| format!("{{{part}: {inner}}}"));
            let set = format!("{key}={other}");
            let (before, after) =
                ([&["--set", &set], flag].concat(), [flag, &["--set", set.as_str()]].concat());
            for args in [flag, &before, &after] {
                let read = read(&file, &overrides(args));
                assert_eq!(
                    (read.spec.settings()[key].as_str(), read.origins[key].as_str()),
                    (value, flag[0])
                );
                let warns = read.warnings.iter().any(|warning| {
                    warning.to_string().contains(&format!("--set {set} has no effect: {} overrides", flag[0]))
                });
                assert_eq!(warns, args.contains(&"--set"), "{args:?}: {:?}", read.warnings);
            }
            let read = read(&file, &overrides(&["--set", &set]));
            assert_eq!(read.origins[key], format!("--set {set}"));
        }
    }

    #[test]
    fn every_flag_that_stands_for_a_key_is_in_the_table() {
        let all: Vec<&str> = STAND_FOR_A_KEY.iter().flat_map(|(flag, ..)| flag.iter().copied()).collect();
        let keys: BTreeSet<String> = overrides(&all).into_iter().map(|change| change.key).collect();
        assert_eq!(keys, STAND_FOR_A_KEY.iter().map(|(_, key, ..)| (*key).to_owned()).collect());
        for argument in Cli::command().find_subcommand("run").unwrap().get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let flag = format!("--{}", argument.get_long().unwrap_or_default());
            let is_in_table = STAND_FOR_A_KEY.iter().any(|(row, ..)| row[0] == flag);
            assert!(is_in_table || !help.contains("sets "), "{flag}");
        }
    }

    #[test]
    fn a_cell_of_a_sweep_wins_over_a_flag() {
        let args = ["feedline", "sweep", "demo", "--over", "reader.cache=as-is", "--cache", "warm"];
        let Command::Sweep(flags) = Cli::try_parse_from(args).unwrap().command else { panic!("not a sweep") };
        let cell = Override::hydra("reader.cache=as-is", "--over reader.cache=as-is");
        let read = read("{train: }", &flags.overrides(std::iter::once(cell)));
        assert_eq!(read.origins["reader.cache"], "--over reader.cache=as-is");
    }
}
