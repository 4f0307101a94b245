//! All flags, with their help texts. Commands decide what a flag means beyond its type.

mod overrides;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use model::checkpoint::Scale;
use model::spec::Verify;
use model::units::{Bytes, Nanos, SpanError};
use store::BACKENDS;

use crate::exit::Exit;

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

const RUN_EXAMPLES: &str = "\
Examples:
  feedline run                                         the demo
  feedline run retinanet_b200 --data-dir /data/retinanet --ranks 4
  feedline run retinanet_b200 --store null --ranks 8   the limit of feedline itself; needs no data
  feedline run mine.yaml --generate --set dataset.num_files_train=5000
  feedline run llama3_8b --scale 1/64 --checkpoint-dir /mnt/fast/llama     10 saves, 10 restores
  feedline run llama3_8b --scale 1/64 --save burst-buffer --set checkpoint.burst_folder=/mnt/nvme/llama
  feedline run unet3d_h100 --set workflow.checkpoint=true --advise 24h";

const SWEEP_EXAMPLES: &str = "\
Examples:
  feedline sweep demo --over reader.read_threads=1,2,4,8
  feedline sweep retinanet_b200 --data-dir /data/retinanet --over reader.read_threads=1,2,4,8 \\
      --over reader.prefetch_size=0,2 --repeat 5
  feedline sweep demo --over ranks=1,2,4 --over store=posix,null --json > sweep.json
  feedline sweep demo --over reader.read_threads=1,2 --output s    resumes after Ctrl-C

Each round runs every cell once, in a different order. The folder contains cells.jsonl (the journal), sweep.csv,
sweep.json and sweep.svg. Values are split at commas outside brackets and quotes.";

const CAPACITY_EXAMPLES: &str = "\
Examples:
  feedline capacity retinanet_b200 --data-dir /data/retinanet
  feedline capacity unet3d_h100 --data-dir /data/unet3d --from 4 --up-to 64
  feedline capacity retinanet_b200 --store null            how many this host can emulate

Short probes find the limit, full runs of the workload confirm it: N accelerators reach its metric.au, N + 1 do not.";

const STALL_EXAMPLES: &str = "\
Examples:
  feedline stall demo
  feedline stall retinanet_b200 --data-dir /data/retinanet --ranks 4
  feedline stall unet3d_h100 --data-dir /data/unet3d --steps 50 --json

Runs the same steps without data, with a cold page cache, and with a warm one; the differences are the stalls of
preprocessing and of fetching. It sets reader.cache itself, changes no data file, and leaves other files cached.";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  feedline validate feedline-results/demo/20260101_120000
  feedline validate feedline-results/demo                  every result of that workload
  feedline validate feedline-results/* --json

Checks every byte of a result against its SHA256SUMS, then recomputes the verdict by the rules of this version. Exit
code 3: the folder was changed; 4: the verdict is incomplete; 5: it is invalid.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  feedline compare feedline-results/demo/20260101_120000 feedline-results/demo/20260102_120000
  feedline compare before/demo after/demo                  several results on each side
  feedline compare one/demo four/demo --across reader.read_threads --json

Results of different work, or with a different cache state, are refused, and the message names the keys that differ;
--across permits a difference. A different backend, data folder or host is noted. If both sides have several results,
a run is one observation, otherwise an epoch is. An interval needs 5 observations.";

const GENERATE_EXAMPLES: &str = "\
Examples:
  feedline generate unet3d_h100 --data-dir /mnt/fast/unet3d
  feedline generate retinanet_b200 --set dataset.num_files_train=50000 --writers 16";

const WORKLOADS_EXAMPLES: &str = "\
Examples:
  feedline workloads
  feedline workloads unet3d_h100 > mine.yaml";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  feedline completions bash > /etc/bash_completion.d/feedline
  feedline completions zsh > ~/.zfunc/_feedline";

const PLAN_EXAMPLES: &str = "\
Examples:
  feedline plan unet3d_b200 --ranks 8 --hosts 4 --host-memory 256GiB
  feedline plan ./mine.yaml --set reader.batch_size=32 --json
  feedline plan llama3_405b                                files, bytes and memory of checkpoints";

const CATALOG_EXAMPLES: &str = "\
Examples:
  feedline catalog /data/imagenet                          write /data/imagenet/.feedline/catalog
  feedline catalog /data/imagenet --suffix .jpg --suffix .jpeg
  feedline catalog /data/imagenet --check                  exit code 0: unchanged; 5: folders changed
  feedline catalog /data/imagenet --refresh                list only folders that changed
  feedline catalog /read/only/data --output ~/data.catalog

Skipped: names that start with a dot, *.partial, *.idx (without --suffix), linked folders, sockets, pipes, devices.
The same command resumes an interrupted listing.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  feedline inspect train/img_0_of_8.hdf5
  feedline inspect part-0.parquet --sample 5 --access framework
  feedline inspect *.tfrecord --json

A damaged file ends the command with exit code 5 and the position of the damage.";

fn after_help() -> String {
    let mut text = format!("{EXAMPLES}\n\n{PRECEDENCE}\n\nExit codes:\n");
    for (exit, meaning) in Exit::ALL {
        text.push_str(&format!("  {:<3} {meaning}\n", exit.code()));
    }
    text
}

/// Measures the storage that feeds deep-learning accelerators.
#[derive(Debug, Parser)]
#[command(name = "feedline", version, after_help = after_help(), max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train on a data set with emulated accelerators and report how busy the storage kept them
    #[command(after_help = RUN_EXAMPLES, max_term_width = 120)]
    Run(RunFlags),
    /// Run a workload with every combination of settings, several times, and report the speed-ups
    #[command(after_help = SWEEP_EXAMPLES, max_term_width = 120)]
    Sweep(SweepFlags),
    /// Find the largest number of accelerators that the storage can feed at the workload's AU
    #[command(after_help = CAPACITY_EXAMPLES, max_term_width = 120)]
    Capacity(CapacityFlags),
    /// Find out whether accelerators wait for preprocessing or storage, and predict the effect of a cache
    #[command(after_help = STALL_EXAMPLES, max_term_width = 120)]
    Stall(StallFlags),
    /// Check that results are unchanged, and recompute the verdict by the rules of this version
    #[command(after_help = VALIDATE_EXAMPLES, max_term_width = 120)]
    Validate(ValidateFlags),
    /// Compare two results: whether they differ, by how much, and with what confidence
    #[command(after_help = COMPARE_EXAMPLES, max_term_width = 120)]
    Compare(CompareFlags),
    /// Write a workload's data set; keeps existing files
    #[command(after_help = GENERATE_EXAMPLES, max_term_width = 120)]
    Generate(GenerateFlags),
    /// Show what a run would read, and the time, memory and bandwidth it needs; reads no data
    #[command(after_help = PLAN_EXAMPLES, max_term_width = 120)]
    Plan(PlanFlags),
    /// List an existing data set, so that runs can use it
    #[command(after_help = CATALOG_EXAMPLES, max_term_width = 120)]
    Catalog(CatalogFlags),
    /// Show what data files contain and where their samples are, whichever program wrote them
    #[command(after_help = INSPECT_EXAMPLES, max_term_width = 120)]
    Inspect(InspectFlags),
    /// List the built-in workloads, or print one as YAML
    #[command(after_help = WORKLOADS_EXAMPLES, max_term_width = 120)]
    Workloads(WorkloadsFlags),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES, max_term_width = 120)]
    Completions { shell: Shell },
}

/// Default for how long a wait for storage may last without progress.
const STALL_TIMEOUT: &str = "60s";

impl Command {
    /// The time without progress after which a wait for storage counts as stalled. A workload can set a different one.
    pub fn stall_timeout(&self) -> Option<Nanos> {
        let of_flag = match self {
            Command::Run(RunFlags { workload, .. })
            | Command::Sweep(SweepFlags { workload, .. })
            | Command::Capacity(CapacityFlags { workload, .. })
            | Command::Stall(StallFlags { workload, .. })
            | Command::Generate(GenerateFlags { workload, .. })
            | Command::Plan(PlanFlags { workload, .. }) => workload.stall_timeout,
            Command::Validate(ValidateFlags { wait, .. })
            | Command::Compare(CompareFlags { wait, .. })
            | Command::Catalog(CatalogFlags { wait, .. })
            | Command::Inspect(InspectFlags { wait, .. }) => Some(wait.stall_timeout),
            Command::Workloads(_) | Command::Completions { .. } => None,
        };
        of_flag.or_else(|| patience(STALL_TIMEOUT).ok()).filter(|timeout| *timeout > Nanos::ZERO)
    }
}

/// The stall timeout, for commands without a workload.
#[derive(Args, Clone, Debug)]
pub struct WaitFlags {
    /// End if there is no progress for this long, such as 90s, and list what is blocked; off: wait forever
    #[arg(long, value_name = "SPAN", default_value = STALL_TIMEOUT, value_parser = patience)]
    pub stall_timeout: Nanos,
}

/// The workload, and the settings to change in it.
#[derive(Args, Clone, Debug)]
pub struct WorkloadFlags {
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

/// A span with its unit, or seconds; `off` is 0.
fn patience(text: &str) -> Result<Nanos, SpanError> {
    match text.parse::<f64>() {
        _ if text == "off" => Ok(Nanos::ZERO),
        Ok(_) => format!("{text}s").parse(),
        Err(_) => text.parse(),
    }
}

/// The state of the page cache before an epoch, and how it is verified. Each flag stands for a key of the workload.
#[derive(Args, Debug)]
pub struct CacheFlags {
    /// State of the page cache before each epoch: cold (files are evicted, and pages again after each read), warm
    /// (files are loaded) or as-is; sets reader.cache; see docs/cache.md [default: cold]
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
pub struct OutputFlags {
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Print no progress and no warnings on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where the data of a run is, and how it is read.
#[derive(Args, Debug)]
pub struct PlaceFlags {
    /// Folder that holds the data set's train/ and valid/ [default: the workload's storage_root/data_folder]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Write missing files of the data set before training
    #[arg(long)]
    pub generate: bool,
    #[arg(long, value_name = "STORE", help = BACKENDS.help(
        "I/O backend",
        "the workload's storage.store, else direct with reader.odirect and posix without",
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
pub struct CheckpointFlags {
    /// Scale checkpoints, such as 1/64: the same files, each that much smaller
    #[arg(long, value_name = "SHARE", default_value = "1")]
    pub scale: Scale,
    /// When training continues: direct (files are durable), async (copied to memory) or burst-buffer (durable on
    /// checkpoint.burst_folder, drained later); sets checkpoint.mode_of_save [default: direct]
    #[arg(long, value_name = "HOW")]
    pub save: Option<String>,
    /// Folder of the checkpoints; sets checkpoint.checkpoint_folder [default: the workload's, or ./checkpoints/]
    #[arg(long, value_name = "DIR")]
    pub checkpoint_dir: Option<String>,
}

#[derive(Args, Debug)]
pub struct RunFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: PlaceFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub checkpoints: CheckpointFlags,
    /// Recommend how often to save, for a job with this mean time between failures, such as 24h
    #[arg(long, value_name = "SPAN", value_parser = patience)]
    pub advise: Option<Nanos>,
    /// Number of emulated accelerators [default: the workload's, usually 1; demo 2, llama3_8b 8]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Folder below which the result is written, as WORKLOAD/TIME [default: the workload's output.folder, or
    /// feedline-results]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
    /// Skip the short run on the null backend that measures the limit of feedline itself
    #[arg(long)]
    pub no_calibration: bool,
    #[command(flatten)]
    pub output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct SweepFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// A setting and its values, or ranks=1,2,.. or store=posix,..; repeat it for a grid of all combinations
    #[arg(long, value_name = "KEY=A,B,..", required = true)]
    pub over: Vec<String>,
    /// Runs of each cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repeat: u64,
    #[command(flatten)]
    pub place: PlaceFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// Number of emulated accelerators [default: 1, for the demo 2]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Folder below which the result is written, as sweep/WORKLOAD/TIME [default: the workload's output.folder, or
    /// feedline-results]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
    /// Folder of the sweep; resumes an interrupted sweep there [default: a new one in --results-dir]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Skip the short run on the null backend that measures the limit of feedline itself
    #[arg(long)]
    pub no_calibration: bool,
    /// Seed of the order within rounds, and of the intervals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub output_flags: OutputFlags,
}

#[derive(Args, Debug)]
pub struct CapacityFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: PlaceFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    /// First number of accelerators to try
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub from: u64,
    /// Largest number of accelerators to try
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub up_to: Option<u64>,
    /// Steps of a probe [default: 20 for each batch that can be ready in advance, at least 2 s of compute time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    #[command(flatten)]
    pub output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct StallFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub place: PlaceFlags,
    /// Number of emulated accelerators [default: 1, for the demo 2]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Maximum steps of each run, of which 5 warm up [default: 10 s of compute time, at least 20 for each batch that
    /// can be ready in advance]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    #[command(flatten)]
    pub output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct ValidateFlags {
    /// A result, or a folder that holds several
    #[arg(value_name = "RESULT-DIR", required = true)]
    pub results: Vec<PathBuf>,
    /// Print the verdicts as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

#[derive(Args, Debug)]
pub struct CompareFlags {
    /// The baseline result, or a folder that holds several of one workload
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The result to compare, or a folder that holds several of one workload
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Permit a difference in this setting: a key, ranks or hosts; may be repeated
    #[arg(long, value_name = "KEY")]
    pub across: Vec<String>,
    /// Also compare invalid results
    #[arg(long)]
    pub force: bool,
    /// Print the comparison as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

#[derive(Args, Debug)]
pub struct GenerateFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// Folder that will hold train/ and valid/ [default: the workload's storage_root/data_folder]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Files written at once [default: reader.write_threads, or the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub writers: Option<u64>,
    /// Write every file again, even if it exists with the right size
    #[arg(long)]
    pub overwrite: bool,
    /// Read every file back and compare each byte; exit code 5 if one differs
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    pub output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct PlanFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    #[command(flatten)]
    pub cache: CacheFlags,
    #[command(flatten)]
    pub checkpoints: CheckpointFlags,
    /// Number of emulated accelerators over all hosts [default: the workload's, usually 1; demo 2]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hosts: u64,
    /// Memory of one host, such as 256GiB [default: this host's]
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
    /// Folder of the data set; only its free space is checked
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[arg(long, value_name = "STORE", help = BACKENDS.help("I/O backend", "as for run"))]
    pub store: Option<String>,
    /// Limit the memory for read buffers and kept batches, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    #[command(flatten)]
    pub output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct CatalogFlags {
    /// The data folder
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// List only files whose name ends in this, such as .jpg; may be repeated
    #[arg(long, value_name = "SUFFIX", conflicts_with = "check")]
    pub suffix: Vec<OsString>,
    /// File of the catalog [default: DIR/.feedline/catalog]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// List only folders that changed since the catalog was written
    #[arg(long, conflicts_with = "check")]
    pub refresh: bool,
    /// Check whether folders changed since the catalog was written; writes nothing
    #[arg(long)]
    pub check: bool,
    /// Folders listed at once [default: twice the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub threads: Option<u16>,
    #[command(flatten)]
    pub wait: WaitFlags,
    #[command(flatten)]
    pub output_flags: OutputFlags,
}

#[derive(Args, Debug)]
pub struct InspectFlags {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Format of the files [default: from the file name]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Show the reads for this sample, counted from 0; may be repeated
    #[arg(long, value_name = "N")]
    pub sample: Vec<u64>,
    /// Samples in each file, for formats that do not store the number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// How samples are read: framework (like the framework's own reader) or extent (only their bytes)
    #[arg(long, value_name = "ACCESS", default_value = "extent")]
    pub access: String,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

#[derive(Args, Debug)]
pub struct WorkloadsFlags {
    /// Print this workload as YAML
    pub name: Option<String>,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_timeout_is_a_span_or_off() {
        for (text, seconds) in [("off", 0), ("0", 0), ("90", 90), ("90s", 90), ("2m", 120)] {
            assert_eq!(patience(text), Ok(Nanos(seconds * 1_000_000_000)));
        }
        assert!(patience("-1").is_err() && patience("soon").is_err());
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
