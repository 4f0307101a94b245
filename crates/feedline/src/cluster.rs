//! The processes of a command. A launcher such as mpirun starts several; they share the work of a command on data, and
//! all other commands run in process 0 only. Only process 0 prints and writes results. A failure of another process is
//! announced to process 0, which reports it with the name of the host; all processes end with the same exit code.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use engine::meter::{self, Monotonic};
use engine::world::cluster::{self, Cluster, JoinError, JoinOptions};
use engine::world::launcher::{self, Launch};
use engine::world::{Cause, EarlyEnd, Exchange, HostIdentity, Topology};
use engine::{Solo, World, host};
use model::units::Nanos;
use store::Now;

use crate::commands::{self, Command};
use crate::exit::{CommandResult, Exit, Failure, fail};
use crate::flags::cluster::ClusterRequest;
use crate::report;

/// How long a process that does not print leaves the launcher alone after a failure. The launcher may end process 0 as
/// soon as it notices that another process has ended, and process 0 needs time to report.
const REPORTING: Duration = Duration::from_secs(1);

/// How long a launcher may take to pass on what a process has printed. MPICH's loses it when the job is ended.
const PASSING_ON: Duration = Duration::from_millis(200);

/// How a launcher started this process; `None`: no launcher did.
static LAUNCH: OnceLock<Option<Launch>> = OnceLock::new();

/// Runs since the process was started: the time until the processes have joined counts.
static BEGUN: OnceLock<Monotonic> = OnceLock::new();

/// This process as a member, while it is one. `abandon` announces through it.
static MEMBER: Mutex<Option<Arc<Cluster>>> = Mutex::new(None);

/// Finds out whether a launcher started this process as one of several. Only process 0 prints.
pub(crate) fn look() {
    let _ = begun();
    let launch = launcher::launch(&variable);
    if launch.is_some_and(|launch| launch.rank > 0) {
        report::mute(true);
    }
    let _ = LAUNCH.set(launch);
}

/// The time since the process was started.
pub(crate) fn begun() -> Nanos {
    BEGUN.get_or_init(Monotonic::new).now()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The process as one of several; `None` if it is alone.
fn launch() -> Option<Launch> {
    LAUNCH.get().copied().flatten().filter(|launch| launch.size != Some(1))
}

/// Whether a launcher started this process. Its output then goes to the launcher, even if it is a terminal.
pub(crate) fn is_launched() -> bool {
    LAUNCH.get().copied().flatten().is_some()
}

/// Whether this process has nothing to do: the command runs in process 0 only. A job of the user runs in every process
/// that was started for it.
pub(crate) fn is_idle(command: &Command) -> bool {
    launch().is_some_and(|launch| launch.rank > 0) && command.cluster().is_none() && !command.runs_a_job()
}

/// Runs a command, together with the other processes if there are any. Returns the exit code, the same in all of them.
pub(crate) fn run(command: &Command) -> u8 {
    let ending = match (command.cluster(), launch()) {
        (Some(request), Some(launch)) => match join(command, request, launch) {
            Ok(cluster) => return run_as_member(command, cluster),
            Err(failure) => Err(failure),
        },
        (request, _) => check_shares(request).and_then(|()| caught(command, &Solo::new())),
    };
    ending.unwrap_or_else(Failure::report).code()
}

/// A panic has printed its message; only the exit code is missing.
fn caught(command: &Command, world: &dyn World) -> CommandResult {
    catch_unwind(AssertUnwindSafe(|| command.run(world)))
        .unwrap_or_else(|_| Err(Failure::internal(anyhow!("internal error; see the panic above"))))
}

/// Shares of one process are accepted, so that the same command works with any number of processes.
fn check_shares(request: Option<ClusterRequest<'_>>) -> Result<(), Failure> {
    let shares = request.and_then(|request| request.shares());
    shares.map_or(Ok(()), |shares| {
        Topology::solo(&host::name()).with_shares(shares).map(drop).map_err(Failure::usage)
    })
}

fn join(command: &Command, request: ClusterRequest<'_>, launch: Launch) -> Result<Cluster, Failure> {
    let options = JoinOptions {
        launch,
        interface: request.network.interface.clone(),
        transport: request.network.transport(),
        library: request.network.mpi_library.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: HostIdentity { name: host::name(), boot_id: host::boot_id().unwrap_or_default() },
        shares: request.shares(),
        patience: command.stall_timeout(),
    };
    let stop = commands::stop_on_signals()?;
    cluster::join(&options, &stop).or_else(|error| {
        let is_own = matches!(error, JoinError::Mpi(_));
        let failure = match error {
            JoinError::Distribution(_) => Failure::usage(error),
            _ if is_own => Failure::refused(anyhow!("{}: {error}", host::name())),
            _ => Failure::refused(error),
        };
        if is_own {
            speak_for_host();
        }
        leave(failure)
    })
}

/// Ends a process that could not join, and all others of the job.
fn leave(failure: Failure) -> ! {
    let code = failure.report().code();
    let_others_report();
    cluster::abort(code)
}

/// Before the processes have joined, each host has a process that reports what is wrong there.
fn speak_for_host() {
    if is_first_of_host(&variable) {
        report::mute(false);
    }
}

/// The number of a process among those of its host, in the variables of the launchers. Those of srun are the last:
/// other launchers use srun to start their own processes.
const LOCAL_RANKS: [&str; 5] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
];

fn is_first_of_host(get: &dyn Fn(&str) -> Option<String>) -> bool {
    LOCAL_RANKS.iter().find_map(|name| get(name)).is_some_and(|number| number == "0")
}

fn run_as_member(command: &Command, cluster: Cluster) -> u8 {
    let member = Arc::new(cluster);
    set_member(Some(Arc::clone(&member)));
    let own = caught(command, &*member).unwrap_or_else(|failure| {
        let cause = Cause::Failed(failure.text());
        let exit = failure.report();
        member.announce(cause);
        if let Some(ended) = member.ended().filter(|ended| ended.member == 0 && ended.cause.is_noticed()) {
            report_lost_process_0(&*member, &ended);
        }
        let_launcher_pass_on();
        exit
    });
    set_member(None);
    match Arc::into_inner(member) {
        Some(member) => member.conclude(own.code()),
        // Another thread announces that the work is abandoned, and ends the process.
        None => loop {
            std::thread::park();
        },
    }
}

/// Process 0 cannot report anything. One process does, and the others wait until it has.
fn report_lost_process_0(member: &dyn Exchange, ended: &EarlyEnd) {
    if speaks_for_process_0(member, ended) {
        report::mute(false);
        report::error(&ended.to_string());
    } else {
        let_others_report();
    }
}

fn set_member(member: Option<Arc<Cluster>>) {
    *MEMBER.lock().unwrap_or_else(PoisonError::into_inner) = member;
}

/// Whether this process reports that process 0 is lost: process 1 does. A process that does not hear of process 0 may
/// also be cut off itself, and then no other process can report that.
fn speaks_for_process_0(member: &dyn Exchange, ended: &EarlyEnd) -> bool {
    let may_be_cut_off = matches!(ended.cause, Cause::Silent(_)) && member.node() != 0 && member.leads_node();
    member.member() > 0 && (member.member() == 1 || may_be_cut_off)
}

/// Tells the other processes why this one ends although its work has not. Before it has joined them, it tells the user.
pub(crate) fn announce_abandoned(message: &str) {
    let member = MEMBER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match member {
        Some(member) => member.announce(Cause::Failed(message.to_owned())),
        None => speak_for_host(),
    }
}

/// Reports that the worker of this process was ended by a signal. Other processes notice that their connection to it
/// has ended, process 0 reports it, and the launcher ends this process. If it does not, for instance because the
/// processes have not joined each other yet, this one reports. A launcher may end all processes as soon as one has
/// ended, and they end with the exit code of feedline only if they do it themselves, so this one waits for them.
pub(crate) fn report_lost_worker(exit: Exit, what: &str) -> Exit {
    let Some(launch) = launch() else { return fail(exit, what) };
    let named = format!("process {} on {}: {what}", launch.rank, host::name());
    if launch.rank == 0 {
        fail(exit, &named);
        meter::pause(REPORTING);
    } else {
        meter::pause(2 * REPORTING);
        report::mute(false);
        report::error(&named);
    }
    exit
}

/// Waits until the process that prints has reported why the job ends, if this is another one.
pub(crate) fn let_others_report() {
    match report::is_muted() {
        true => meter::pause(REPORTING),
        false => let_launcher_pass_on(),
    }
}

fn let_launcher_pass_on() {
    if launch().is_some() && !report::is_muted() {
        meter::pause(PASSING_ON);
    }
}

#[cfg(test)]
mod tests {
    use engine::world::threads::members_on;

    use super::*;

    #[test]
    fn the_innermost_launcher_numbers_the_processes_of_a_host() {
        let first = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(known, _)| *known == name);
            is_first_of_host(&|name| found(name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(first(&[("SLURM_LOCALID", "0")]) && first(&[("MPI_LOCALRANKID", "0")]));
        assert!(!first(&[("SLURM_LOCALID", "0"), ("MPI_LOCALRANKID", "1")]));
        assert!(!first(&[]));
    }

    #[test]
    fn one_process_reports_that_process_0_is_lost_and_others_that_may_be_cut_off() {
        let members = members_on(&["a", "a", "b", "b", "c"]);
        let speakers = |cause: Cause| -> Vec<u64> {
            let ended = EarlyEnd::new(members[0].topology(), 0, cause);
            (0..)
                .zip(&members)
                .filter(|(_, one)| speaks_for_process_0(*one, &ended))
                .map(|(one, _)| one)
                .collect()
        };
        assert_eq!(speakers(Cause::Left), [1]);
        assert_eq!(speakers(Cause::Silent(Nanos(1))), [1, 2, 4]);
    }
}
