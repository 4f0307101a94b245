//! One file per command, with its flags and examples. This file has the table of commands, and what several of them
//! share: making an `Ask` from flags, reading its workload, and stopping on signals.

pub(crate) mod audit;
pub(crate) mod audited;
pub(crate) mod capacity;
pub(crate) mod catalog;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod dlio;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod infer;
pub(crate) mod inspect;
pub(crate) mod mlperf;
pub(crate) mod performed;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod saved;
pub(crate) mod stall;
pub(crate) mod study;
pub(crate) mod sweep;
pub(crate) mod trace;
pub(crate) mod validate;
pub(crate) mod workloads;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::anyhow;
use clap::Subcommand;
use engine::{Stop, World, meter, waits};
use model::location::Location;
use model::secret::{redact, redact_command};
use model::spec::{CHECKPOINT_SCHEME, CheckpointScheme, Override, Spec};
use model::units::Nanos;
use session::{Ask, Asked, Generate, path_argument, quoted};
use signal_hook::iterator::Signals;

use crate::exit::{CommandResult, Failure, abandon, limited};
use crate::flags::cluster::ClusterRequest;
use crate::flags::{DataFlags, WorkloadFlags, stall_timeout_or_default};
use crate::report::layout;
use crate::supervisor;
use crate::terminal::help_columns;
use crate::workloads::load;

/// The commands, each with its help text, module and flags, the field of the flags that has the stall timeout, and, if
/// several processes can share the command, the field that has the flags for them. A module has a function of its own
/// name, which runs the command, and `EXAMPLES` for the help.
macro_rules! commands {
    ($(
        $(#[doc = $about:literal])+
        $name:ident: $module:ident, $flags:ident $(, $timeout:ident $(, $cluster:ident)?)?;
    )+) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[doc = $about])+ #[command(after_help = layout::help($module::EXAMPLES, help_columns()))]
            $name($module::$flags),)+
        }

        impl Command {
            /// Runs the command. One that several processes share uses their world.
            pub(crate) fn run(&self, world: &dyn World) -> CommandResult {
                match self {
                    $(Command::$name(flags) => commands!(@run $module flags world $($($cluster)?)?),)+
                }
            }

            /// The time without progress after which a wait for storage counts as stalled. A workload can set a
            /// different one.
            pub(crate) fn stall_timeout(&self) -> Option<Nanos> {
                stall_timeout_or_default(match self {
                    $(Command::$name(flags) => commands!(@timeout flags $($timeout)?),)+
                })
            }

            /// What is requested of the processes that share the command; `None`: it runs in one process.
            pub(crate) fn cluster(&self) -> Option<ClusterRequest<'_>> {
                match self {
                    $(Command::$name(flags) => commands!(@cluster flags $($($cluster)?)?),)+
                }
            }
        }
    };
    (@run $module:ident $flags:ident $world:ident) => { $module::$module($flags) };
    (@run $module:ident $flags:ident $world:ident $cluster:ident) => { $module::$module($flags, $world) };
    (@cluster $flags:ident) => {{
        let _ = $flags;
        None
    }};
    (@cluster $flags:ident $cluster:ident) => { Some($flags.$cluster.request()) };
    (@timeout $flags:ident) => {{
        let _ = $flags;
        None
    }};
    (@timeout $flags:ident $timeout:ident) => { $flags.$timeout.stall_timeout() };
}

commands! {
    /// Train on a data set with emulated accelerators and report how busy the storage kept them
    Run: run, RunFlags, workload, cluster;
    /// Run a workload with every combination of settings, several times, and report the speed-ups
    Sweep: sweep, SweepFlags, workload, cluster;
    /// Find the largest number of accelerators that the storage can feed at the workload's AU
    Capacity: capacity, CapacityFlags, workload, network;
    /// Find out whether accelerators wait for preprocessing or storage, and predict the effect of a cache
    Stall: stall, StallFlags, workload, cluster;
    /// Run a training job of another program, and report what is wrong with how it reads its data
    Audit: audit, AuditFlags;
    /// Write a workload that reads data as an audited job does
    Infer: infer, InferFlags, wait;
    /// Check that results are unchanged, and recompute the verdict by the rules of this version
    Validate: validate, ValidateFlags, wait;
    /// Compare two results: whether they differ, by how much, and with what confidence
    Compare: compare, CompareFlags, wait;
    /// Show results as a page for the browser: one result, a study, or several results side by side
    Report: report, ReportFlags, wait;
    /// Summarise a trace: times of each operation, the slowest ones, and what accelerators spent their time on
    Trace: trace, TraceFlags, wait;
    /// Write a workload's data set; keeps existing files
    Generate: generate, GenerateFlags, workload, network;
    /// Show what a run would read, and the time, memory and bandwidth it needs; reads no data
    Plan: plan, PlanFlags, workload;
    /// List an existing data set, so that runs can use it
    Catalog: catalog, CatalogFlags, wait, network;
    /// Show what data files contain and where their samples are, whichever program wrote them
    Inspect: inspect, InspectFlags, wait;
    /// Sizes, checks and the results table by the rules of MLPerf Storage, for results of any program
    Mlperf: mlperf, MlperfFlags, action;
    /// Run DLIO's command lines: feedline under the name dlio_benchmark
    Dlio: dlio, DlioFlags, wait, network;
    /// Check what this host and its folders offer: kernel, limits, libraries, O_DIRECT, page cache
    Doctor: doctor, DoctorFlags, wait;
    /// List the built-in workloads, or print one as YAML
    Workloads: workloads, WorkloadsFlags;
    /// Show the documentation: its pages, lines with given words, manual pages
    Docs: docs, DocsFlags;
    /// Print a completion script for a shell
    Completions: completions, CompletionsFlags;
}

impl Command {
    /// Whether it runs a job of the user, whose exit code and signals it passes on.
    pub(crate) fn runs_a_job(&self) -> bool {
        matches!(self, Command::Audit(flags) if !flags.command.is_empty())
    }
}

/// The request that these flags make; `overrides` are all changes to the workload.
pub(crate) fn ask(
    flags: &WorkloadFlags,
    overrides: Vec<Override>,
    data: Option<&Path>,
) -> Result<Ask, Failure> {
    let workload = load(&flags.workload).map_err(Failure::usage)?;
    let scheme = CheckpointScheme::parse(std::env::var(CHECKPOINT_SCHEME).ok().as_deref());
    let command = generate_command(flags, data);
    let supply = supply_secrets(&flags.set);
    Ok(Ask {
        overrides,
        data: data.map(Location::parse),
        checkpoint_scheme: scheme.map_err(|what| Failure::usage(anyhow!(what)))?,
        how_to_generate: format!("create it with: {command}\nor add --generate to this command{supply}"),
        ..Ask::new(workload)
    })
}

/// The command that generates the data set of this workload.
pub(crate) fn generate_command(flags: &WorkloadFlags, data: Option<&Path>) -> String {
    let mut command = format!("feedline generate {}", path_argument(Path::new(&flags.workload)));
    if let Some(folder) = data {
        let folder = redact(&folder.display().to_string());
        command.push_str(&format!(" --data-dir {}", path_argument(Path::new(&folder))));
    }
    for setting in &flags.set {
        command.push_str(&format!(" --set {}", quoted(&redact(setting))));
    }
    command
}

/// The command as the user typed it, for a shell. Secrets are hidden.
pub(crate) fn typed_command() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map_or("feedline".into(), |name| name.to_string_lossy());
    let words: Vec<String> = words.map(|word| redact(&word)).collect();
    let words = redact_command(words.iter().map(String::as_str));
    let words: String = words.iter().map(|word| format!(" {}", quoted(word))).collect();
    format!("{}{words}", quoted(&name))
}

/// How to complete a command in which secrets are hidden; empty if none is.
pub(crate) fn supply_secrets(words: &[String]) -> &'static str {
    match words.iter().any(|word| redact(word) != *word) {
        true => "\nthe asterisks hide a secret: put its value there",
        false => "",
    }
}

/// The same, with the flags for where the data is and how it is read.
pub(crate) fn ask_at(
    flags: &WorkloadFlags,
    overrides: Vec<Override>,
    place: &DataFlags,
) -> Result<Ask, Failure> {
    let generate = if place.generate { Generate::Missing } else { Generate::AsWorkload };
    let (store, memory) = (place.store.clone(), place.memory);
    Ok(Ask { store, memory, generate, ..ask(flags, overrides, place.data_dir.as_deref())? })
}

/// Reads the workload of an ask and puts its stall timeout into effect.
pub(crate) fn read(ask: Ask) -> Result<Asked, session::Error> {
    let asked = ask.read()?;
    waits::set_timeout(asked.stall_timeout());
    Ok(asked)
}

/// The folder below which results are written: from the flag, else from the workload.
pub(crate) fn results_folder(flag: Option<&Path>, spec: &Spec) -> PathBuf {
    let configured = spec.output.folder.as_deref().map(Path::new);
    flag.or(configured).unwrap_or(Path::new("feedline-results")).to_owned()
}

/// How long work may continue after a signal. Work under a watchdog is abandoned earlier, with a list of what is
/// blocked.
const LATEST: Duration = Duration::from_secs(4);

/// A stop request that SIGINT, SIGTERM and similar signals trigger; the same one in all calls. Work that has not ended
/// after `LATEST` is abandoned. The supervisor handles a second signal by ending immediately.
pub(crate) fn stop_on_signals() -> Result<Stop, Failure> {
    static STOP: OnceLock<Stop> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let flag = Arc::new(AtomicBool::new(false));
    let install = || -> std::io::Result<()> {
        let mut signals = Signals::new(supervisor::stop_signals())?;
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if signals.forever().next().is_some() {
                meter::pause(LATEST);
                let blocked = waits::blocked().map_or_else(String::new, |what| format!(": {what}"));
                abandon(&format!("interrupted, but the work did not stop in time{blocked}"));
            }
        })?;
        for signal in supervisor::stop_signals() {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(())
    };
    let refused = |cause| Failure::refused(anyhow!("cannot listen for signals: {}", limited(&cause)));
    install().map_err(refused)?;
    Ok(STOP.get_or_init(|| Stop::on(flag).or_abandon(abandon)).clone())
}

/// A timeout of 0 means no timeout.
pub(crate) fn unless_zero(timeout: Nanos) -> Option<Nanos> {
    (timeout > Nanos::ZERO).then_some(timeout)
}
