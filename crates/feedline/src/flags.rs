//! Every flag there is, with its help. What a flag means beyond its type is decided by the commands.

mod overrides;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use model::checkpoint::Scale;
use model::spec::Verify;
use model::units::{Bytes, Nanos, SpanError};

use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  feedline run                                   the demo: generate a small data set, train on it, judge it
  feedline workloads                             the workloads that are built in
  feedline plan unet3d_h100 --ranks 8            what a run would read, take and need
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
  feedline run retinanet_b200 --store null --ranks 8   the instrument's own ceiling; needs no data
  feedline run mine.yaml --generate --set dataset.num_files_train=5000
  feedline run llama3_8b --scale 1/64 --checkpoint-dir /mnt/fast/llama     save 10 checkpoints, restore them
  feedline run llama3_8b --scale 1/64 --save burst-buffer --set checkpoint.burst_folder=/mnt/nvme/llama
  feedline run unet3d_h100 --set workflow.checkpoint=true --advise 24h";

const SWEEP_EXAMPLES: &str = "\
Examples:
  feedline sweep demo --over reader.read_threads=1,2,4,8
  feedline sweep retinanet_b200 --data-dir /data/retinanet --over reader.read_threads=1,2,4,8 \\
      --over reader.prefetch_size=0,2 --repeat 5
  feedline sweep demo --over ranks=1,2,4 --over store=posix,null --json > sweep.json
  feedline sweep demo --over reader.read_threads=1,2 --output s    given again after Ctrl-C, it goes on

Each round runs every cell once, in an order of its own. The folder gets cells.jsonl (the journal), sweep.csv,
sweep.json and sweep.svg. Values are split at commas outside brackets and quotes.";

const CAPACITY_EXAMPLES: &str = "\
Examples:
  feedline capacity retinanet_b200 --data-dir /data/retinanet
  feedline capacity unet3d_h100 --data-dir /data/unet3d --from 4 --up-to 64
  feedline capacity retinanet_b200 --store null            how many this host can emulate at all

Short probes find the border, full runs of the workload show it: N accelerators reach its metric.au, N + 1 do not.";

const STALL_EXAMPLES: &str = "\
Examples:
  feedline stall demo
  feedline stall retinanet_b200 --data-dir /data/retinanet --ranks 4
  feedline stall unet3d_h100 --data-dir /data/unet3d --steps 50 --json

Runs the same steps without data, with the page cache emptied of the files, and again with the files in it: it sets
reader.cache by itself. What one takes longer than the other is the stall of preprocessing and of fetching. The files
need not be written to; other files stay in the cache.";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  feedline validate feedline-results/demo/20260101_120000
  feedline validate feedline-results/demo                  every result of that workload
  feedline validate feedline-results/* --json

Checks every byte of a result against its SHA256SUMS, then judges plan and ledger by the rules of this version. Exit
code 3: the folder is not as it was written; 4, 5: the verdict is incomplete, invalid.";

const COMPARE_EXAMPLES: &str = "\
Examples:
  feedline compare feedline-results/demo/20260101_120000 feedline-results/demo/20260102_120000
  feedline compare before/demo after/demo                  several results of one workload on each side
  feedline compare one/demo four/demo --across reader.read_threads --json

Results that did other work, or with the page cache in another state, are refused, and the keys that differ are named;
--across allows one that is meant. Another store, data folder or host is what there is to compare, and only noted. With
several results on both sides a run counts as one observation, else an epoch does; 5 observations make an interval.";

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
  feedline plan llama3_405b                                files, bytes and memory of its checkpoints";

const CATALOG_EXAMPLES: &str = "\
Examples:
  feedline catalog /data/imagenet                          list it once, into /data/imagenet/.feedline
  feedline catalog /data/imagenet --suffix .jpg --suffix .jpeg
  feedline catalog /data/imagenet --check                  is the catalog still right? exit code 0 or 5
  feedline catalog /data/imagenet --refresh                list again only the folders that changed
  feedline catalog /read/only/data --output ~/data.catalog

Left out: names that begin with a dot, *.partial, *.idx (without --suffix), linked folders, sockets, pipes, devices.
An interrupted listing goes on where it stopped when the same command is given again.";

const INSPECT_EXAMPLES: &str = "\
Examples:
  feedline inspect train/img_0_of_8.hdf5
  feedline inspect part-0.parquet --sample 5 --access framework
  feedline inspect *.tfrecord --json

A file that is damaged ends it with exit code 5 and the place of the damage.";

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
    /// Train on a data set with emulated accelerators and say how busy the storage kept them
    #[command(after_help = RUN_EXAMPLES, max_term_width = 120)]
    Run(RunFlags),
    /// Run a workload with each combination of some settings, several times, and say what each is worth
    #[command(after_help = SWEEP_EXAMPLES, max_term_width = 120)]
    Sweep(SweepFlags),
    /// Find the largest number of accelerators that the storage feeds at the workload's AU
    #[command(after_help = CAPACITY_EXAMPLES, max_term_width = 120)]
    Capacity(CapacityFlags),
    /// Say what holds the accelerators up, preprocessing or storage, and what a cache would bring
    #[command(after_help = STALL_EXAMPLES, max_term_width = 120)]
    Stall(StallFlags),
    /// Check that results are as they were written, and judge them by the rules of this version
    #[command(after_help = VALIDATE_EXAMPLES, max_term_width = 120)]
    Validate(ValidateFlags),
    /// Say whether two results differ, by how much, and how sure that is
    #[command(after_help = COMPARE_EXAMPLES, max_term_width = 120)]
    Compare(CompareFlags),
    /// Write a workload's data set; what is there already is kept
    #[command(after_help = GENERATE_EXAMPLES, max_term_width = 120)]
    Generate(GenerateFlags),
    /// Say what a run would read, take and need, without touching data
    #[command(after_help = PLAN_EXAMPLES, max_term_width = 120)]
    Plan(PlanFlags),
    /// List a data set that somebody else made, once, so that runs need no list of files
    #[command(after_help = CATALOG_EXAMPLES, max_term_width = 120)]
    Catalog(CatalogFlags),
    /// Say what data files hold and where their samples are; files of any make
    #[command(after_help = INSPECT_EXAMPLES, max_term_width = 120)]
    Inspect(InspectFlags),
    /// List the built-in workloads, or print one as YAML, ready to be saved and edited
    #[command(after_help = WORKLOADS_EXAMPLES, max_term_width = 120)]
    Workloads(WorkloadsFlags),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES, max_term_width = 120)]
    Completions { shell: Shell },
}

/// How long a wait for storage may last without progress, unless a flag or the workload says otherwise.
const STALL_TIMEOUT: &str = "60s";

impl Command {
    /// The time without progress after which a wait for storage counts as stuck; a workload may set another.
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

/// How long to wait for storage, for commands without a workload.
#[derive(Args, Clone, Debug)]
pub struct WaitFlags {
    /// End with a list of what is blocked if there is no progress for this long, such as 90s; off: wait forever
    #[arg(long, value_name = "SPAN", default_value = STALL_TIMEOUT, value_parser = patience)]
    pub stall_timeout: Nanos,
}

/// Which workload, and what is changed in it.
#[derive(Args, Clone, Debug)]
pub struct WorkloadFlags {
    /// A built-in workload (see 'feedline workloads') or a YAML file in DLIO's format
    #[arg(default_value = "demo", value_name = "NAME|FILE")]
    pub workload: String,
    /// Change a setting of the workload, in Hydra's notation; may be repeated, the last one for a key wins; a flag that
    /// stands for the key wins over it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// End with a list of what is blocked if there is no progress for this long, such as 90s; off: wait forever
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

/// What of the data set is in memory when an epoch begins, and how that is shown. Each flag is a key of the workload.
#[derive(Args, Debug)]
pub struct CacheFlags {
    /// The page cache before each epoch: cold (emptied of the files, and what was read is given back), warm (filled
    /// with them) or as-is; sets reader.cache; see docs/cache.md [default: cold]
    #[arg(long, value_name = "STATE")]
    pub cache: Option<String>,
    /// Count the pages in memory right before they are read: exact (of every fetch), sample (of some, at random) or
    /// none; sets reader.cache_proof [default: exact]
    #[arg(long, value_name = "PROOF")]
    pub cache_proof: Option<String>,
    /// Make the cache cold by emptying the whole host's, with names and attributes of files; needs root; sets
    /// reader.drop_caches
    #[arg(long)]
    pub drop_caches: bool,
}

#[derive(Args, Debug)]
pub struct OutputFlags {
    /// Print the result as JSON, alone on stdout
    #[arg(long)]
    pub json: bool,
    /// No progress and no warnings on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where a run finds its data and how it reads it.
#[derive(Args, Debug)]
pub struct PlaceFlags {
    /// Folder that holds the data set's train/ and valid/ [default: the workload's storage_root/data_folder]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Write the files of the data set that are missing before training
    #[arg(long)]
    pub generate: bool,
    /// How the data is read: posix, direct, mmap, uring, sim:DEVICE, null or fault:STORE,..; see docs/stores.md
    /// [default: what the workload's storage.store says; else direct with reader.odirect, posix without]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Most memory for read buffers and kept batches, such as 2GiB: fewer batches are prefetched, reads are smaller
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,
    /// What of the data that feedline generated is compared when it is read: none, sample or full [default: what the
    /// workload's reader.verify says, else sample]
    #[arg(long, value_name = "HOW", value_parser = PossibleValuesParser::new(Verify::NAMES))]
    pub verify: Option<String>,
}

/// How checkpoints are taken.
#[derive(Args, Debug)]
pub struct CheckpointFlags {
    /// Take checkpoints of so much of the model, such as 1/64: the same files, each that much smaller
    #[arg(long, value_name = "SHARE", default_value = "1")]
    pub scale: Scale,
    /// What training waits for: direct (durable files), async (a copy in memory) or burst-buffer (durable on
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
    /// Say how often to save, by the figures of this run and the job's mean time between failures, such as 24h
    #[arg(long, value_name = "SPAN", value_parser = patience)]
    pub advise: Option<Nanos>,
    /// Number of emulated accelerators [default: what the workload is made for: 1, for the demo 2, for llama3_8b 8]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Folder below which the result is written, as WORKLOAD/TIME [default: the workload's output.folder, or
    /// feedline-results]
    #[arg(long, value_name = "DIR")]
    pub results_dir: Option<PathBuf>,
    /// Leave out the brief run on the null store that finds the instrument's own ceiling
    #[arg(long)]
    pub no_calibration: bool,
    #[command(flatten)]
    pub output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct SweepFlags {
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// A setting and its values, or ranks=1,2,.. or store=posix,..; may be repeated, for the grid of all combinations
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
    /// Folder for the result itself; a sweep that was interrupted there goes on [default: a new one in --results-dir]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Leave out the brief run on the null store that finds the instrument's own ceiling
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
    /// Number of accelerators to begin with
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub from: u64,
    /// Look no further than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub up_to: Option<u64>,
    /// Steps of a probe [default: 20 for each batch that may be ready in advance, at least 2 s of compute time]
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
    /// Most steps of each run, of which 5 warm up [default: 10 s of compute time, at least 20 for each batch that can
    /// be ready in advance]
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
    /// Print the verdicts as JSON, alone on stdout
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

#[derive(Args, Debug)]
pub struct CompareFlags {
    /// The result to compare with, or a folder that holds several of one workload
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// The result to say something about, likewise
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// A setting that may differ, since it is what is compared: a key, ranks or hosts; may be repeated
    #[arg(long, value_name = "KEY")]
    pub across: Vec<String>,
    /// Compare invalid results, too
    #[arg(long)]
    pub force: bool,
    /// Print the comparison as JSON, alone on stdout
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
    /// Write every file again, also those that exist with the right size
    #[arg(long)]
    pub overwrite: bool,
    /// Read every file back and compare each byte with what the settings make; exit code 5 if one differs
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
    /// Number of emulated accelerators over all hosts [default: what the workload is made for: 1, for the demo 2]
    #[arg(long, short = 'n', value_name = "N")]
    pub ranks: Option<u64>,
    /// Number of hosts that the ranks are spread over
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub hosts: u64,
    /// Memory of one host, such as 256GiB [default: this host's]
    #[arg(long, value_name = "SIZE")]
    pub host_memory: Option<Bytes>,
    /// Folder that holds or will hold the data set; only its free space is looked at
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// How the data would be read: posix, direct, mmap, uring, sim:DEVICE or null [default: as for run]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Most memory for read buffers and kept batches, such as 2GiB
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
    /// Where the catalog is [default: DIR/.feedline/catalog]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// List again only the folders that changed since the catalog was made
    #[arg(long, conflicts_with = "check")]
    pub refresh: bool,
    /// Change nothing; say whether the folders still are as the catalog says
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
    /// Their format [default: by the end of the name]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Show the reads that bring this sample, counted from 0; may be repeated
    #[arg(long, value_name = "N")]
    pub sample: Vec<u64>,
    /// Samples in each file, for formats whose files do not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// How samples are read: framework (as its own reader does) or extent (just their bytes)
    #[arg(long, value_name = "ACCESS", default_value = "extent")]
    pub access: String,
    /// Print the findings as JSON, alone on stdout
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
