//! The command line as a whole, and the flags that several commands share. A flag of one command is in its file, which
//! also decides what flags mean beyond their types.

pub(crate) mod cluster;
pub(crate) mod complete;
pub(crate) mod metrics;
mod overrides;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ColorChoice, Parser};
use model::checkpoint::Scale;
use model::spec::Verify;
use model::units::{Bytes, Nanos, SpanError};
use store::BACKENDS;

use crate::commands::Command;
use crate::exit::Exit;
use crate::report::layout;
use crate::terminal;
use crate::version;

const EXAMPLES: &str = "\
Examples:
  feedline run                                   the demo: generates a small data set and trains on it
  feedline workloads                             list the built-in workloads
  feedline plan unet3d_h100 --ranks 8            files, bytes, steps, memory and bandwidth of a run
  feedline generate unet3d_h100 --data-dir /mnt/fast/unet3d
  feedline run unet3d_h100 --data-dir /mnt/fast/unet3d --ranks 4
  feedline run ./mine.yaml --set reader.read_threads=8 --json > result.json
  feedline sweep demo --over reader.read_threads=1,2,4,8
  feedline capacity unet3d_h100 --data-dir /mnt/fast/unet3d
  feedline stall unet3d_h100 --data-dir /mnt/fast/unet3d
  feedline compare results-before results-after";

const PRECEDENCE: &str = "\
Settings, from the weakest to the strongest: the workload's file; --set, the last one for a key; flags that stand for
a key, such as --cache or --data-dir; values of sweep --over.";

fn after_help() -> String {
    let mut text = format!("{EXAMPLES}\n\n{PRECEDENCE}\n\nExit codes:\n");
    for (exit, meaning) in Exit::ALL {
        text.push_str(&format!("  {:<3} {meaning}\n", exit.code()));
    }
    layout::help(&text, terminal::help_columns())
}

/// Measures the storage that feeds deep-learning accelerators.
#[derive(Debug, Parser)]
#[command(name = "feedline", version = version::SHORT)]
#[command(after_help = after_help(), term_width = terminal::help_columns())]
pub(crate) struct Cli {
    /// Colour verdicts, errors and warnings: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(
        long,
        value_name = "WHEN",
        global = true,
        default_value = "auto",
        hide_possible_values = true,
        display_order = 900
    )]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

/// Default for how long a wait for storage may last without progress.
const STALL_TIMEOUT: &str = "60s";

/// The stall timeout of a command: the one of its flags, if they have one, else the default.
pub(crate) fn stall_timeout_or_default(of_flags: Option<Nanos>) -> Option<Nanos> {
    of_flags.or_else(|| patience(STALL_TIMEOUT).ok()).filter(|timeout| *timeout > Nanos::ZERO)
}

/// The stall timeout, for commands without a workload.
#[derive(Args, Clone, Debug)]
pub(crate) struct WaitFlags {
    /// End if there is no progress for this long, such as 90s, and list what is blocked; off: wait forever
    #[arg(long, value_name = "SPAN", default_value = STALL_TIMEOUT, value_parser = patience)]
    pub stall_timeout: Nanos,
}

impl Default for WaitFlags {
    fn default() -> WaitFlags {
        WaitFlags { stall_timeout: patience(STALL_TIMEOUT).unwrap_or(Nanos::ZERO) }
    }
}

impl WaitFlags {
    /// The stall timeout that they set.
    pub(crate) fn stall_timeout(&self) -> Option<Nanos> {
        Some(self.stall_timeout)
    }
}

/// The workload, and the settings to change in it.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkloadFlags {
    /// A built-in workload (see 'feedline workloads') or a YAML file in DLIO's format
    #[arg(default_value = "demo", value_name = "NAME|FILE")]
    pub workload: String,
    /// Override a setting of the workload, in Hydra's notation; may be repeated. The last one for a key counts; a flag
    /// that stands for the key overrides it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// End if there is no progress for this long, such as 90s, and list what is blocked; off: wait forever
    /// [default: the workload's reader.stall_timeout, 60 s]
    #[arg(long, value_name = "SPAN", value_parser = patience)]
    pub stall_timeout: Option<Nanos>,
}

impl WorkloadFlags {
    /// The stall timeout that they set.
    pub(crate) fn stall_timeout(&self) -> Option<Nanos> {
        self.stall_timeout
    }
}

/// How to reach an object store, for commands without a workload.
#[derive(Args, Clone, Debug)]
pub(crate) struct StorageFlags {
    /// Setting for an object store, as in a workload, such as storage.anonymous=true; may be repeated
    /// ('feedline docs objects')
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub storage_set: Vec<String>,
}

/// A span with its unit; `off` is 0.
fn patience(text: &str) -> Result<Nanos, SpanError> {
    if text == "off" { Ok(Nanos::ZERO) } else { text.parse() }
}

/// A span with its unit, above 0.
pub(crate) fn some_time(text: &str) -> Result<Nanos, SpanError> {
    text.parse().and_then(|span| match span {
        Nanos::ZERO => Err(SpanError::OutOfRange(text.to_owned())),
        span => Ok(span),
    })
}

/// The state of the page cache before an epoch, and how it is verified. Each flag stands for a key of the workload.
#[derive(Args, Debug)]
pub(crate) struct CacheFlags {
    /// State of the page cache before each epoch: cold (files are evicted, and pages again after each read), warm
    /// (files are loaded) or as-is; sets reader.cache; see 'feedline docs cache' [default: cold]
    #[arg(long, value_name = "STATE")]
    pub cache: Option<String>,
    /// Count the cached pages right before each read: exact (of every fetch), sample (of a random sample) or none; sets
    /// reader.cache_proof [default: exact]
    #[arg(long, value_name = "PROOF")]
    pub cache_proof: Option<String>,
    /// Empty the page cache of the whole host, including file names and attributes; needs root; sets
    /// reader.drop_caches
    #[arg(long)]
    pub drop_caches: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OutputFlags {
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Print no progress and no warnings on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where a command with several runs writes its result.
#[derive(Args, Debug)]
pub(crate) struct FolderFlags {
    /// Folder below which the result is written, as COMMAND/WORKLOAD/TIME [default: the workload's output.folder, or
    /// feedline-results]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
    /// Folder of the result; if it holds an interrupted one, the same command resumes it [default: a new one in
    /// --results-dir]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Where the data of a run is, and how it is read.
#[derive(Args, Debug)]
pub(crate) struct DataFlags {
    /// Folder, or URL such as s3://bucket/prefix, that holds train/ and valid/ [default: the workload's
    /// storage_root/data_folder]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Write missing files of the data set before training
    #[arg(long)]
    pub generate: bool,
    #[arg(long, value_name = "STORE", help = BACKENDS.help(
        "I/O backend",
        "the workload's storage.store, else that of the URL, or direct with reader.odirect and posix without",
    ))]
    pub store: Option<String>,
    /// Limit the memory for read buffers and kept batches, such as 2GiB; reduces prefetch, then the read size
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    /// How much of generated data is compared with the expected content: none, sample or full [default: the workload's
    /// reader.verify, else sample]
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(Verify::NAMES))]
    pub verify: Option<String>,
}

/// How checkpoints are saved.
#[derive(Args, Debug)]
pub(crate) struct CheckpointFlags {
    /// Scale checkpoints, such as 1/64 or 0.5: the same files, each that much smaller
    #[arg(long, value_name = "SHARE", default_value = "1")]
    pub scale: Scale,
    /// When training continues: direct (files are durable), async (copied to memory) or burst-buffer (durable on
    /// checkpoint.burst_folder, drained later); sets checkpoint.mode_of_save [default: direct]
    #[arg(long, value_name = "HOW")]
    pub save: Option<String>,
    /// Folder or URL of the checkpoints; sets checkpoint.checkpoint_folder [default: the workload's, or ./checkpoints/]
    #[arg(long, value_name = "DIR")]
    pub checkpoint_dir: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_timeout_is_a_span_or_off() {
        for (text, seconds) in [("off", 0), ("0", 0), ("90s", 90), ("2m", 120)] {
            assert_eq!(patience(text), Ok(Nanos(seconds * 1_000_000_000)));
        }
        for text in ["90", "-1s", "soon"] {
            assert!(patience(text).is_err(), "{text}");
        }
        assert!(some_time("0").is_err() && some_time("24").is_err() && some_time("24h").is_ok());
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_help_examples_and_a_place_in_the_tour() {
        let tour = include_str!("../../../docs/guides/tour.md");
        let cli = Cli::command();
        assert!(cli.get_subcommands().count() > 10);
        for command in cli.get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no help text");
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples = format!("Examples:\n  feedline {name}");
            assert!(after.starts_with(&examples), "the help of {name} has no examples");
            assert!(tour.contains(&format!("feedline {name} ")), "docs/guides/tour.md does not show {name}");
        }
    }
}
