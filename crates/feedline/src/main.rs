//! The command line: flags in, an exit code out. Each command is a function in `commands`; `report` makes its output.

mod commands;
mod exit;
mod flags;
mod progress;
mod report;
mod supervisor;
mod workloads;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;
use engine::waits;

use exit::{Ending, Exit, Failure, abandon};
use flags::{Cli, Command};
use supervisor::Side;

fn main() -> ExitCode {
    engine::host::return_large_memory();
    let cli = Cli::parse();
    match supervisor::split() {
        Ok(Side::Supervisor(supervisor)) => supervisor.wait(),
        Ok(Side::Worker) => work(cli).into(),
        Err(cause) => {
            report::note(&format!("error: cannot start a process: {}", exit::limited(&cause)));
            Exit::Refused.into()
        }
    }
}

/// Runs the command while the watchdog checks every wait for storage.
fn work(cli: Cli) -> Exit {
    let ending = match waits::watch(cli.command.stall_timeout(), abandon) {
        // The panic has printed its message; only the exit code is missing.
        Ok(()) => std::panic::catch_unwind(|| dispatch(cli))
            .unwrap_or_else(|_| Err(Failure::internal(anyhow!("internal error; see the panic above")))),
        Err(cause) => Err(Failure::refused(anyhow!("cannot start a thread: {}", exit::limited(&cause)))),
    };
    ending.unwrap_or_else(|Failure { exit, error }| {
        report::note(&format!("error: {error:#}"));
        exit
    })
}

fn dispatch(cli: Cli) -> Ending {
    match cli.command {
        Command::Run(flags) => commands::run::run(&flags),
        Command::Sweep(flags) => commands::sweep::sweep(&flags),
        Command::Capacity(flags) => commands::capacity::capacity(&flags),
        Command::Stall(flags) => commands::stall::stall(&flags),
        Command::Validate(flags) => commands::validate::validate(&flags),
        Command::Compare(flags) => commands::compare::compare(&flags),
        Command::Generate(flags) => commands::generate::generate(&flags),
        Command::Plan(flags) => commands::plan::plan(&flags),
        Command::Catalog(flags) => commands::catalog::catalog(&flags),
        Command::Inspect(flags) => commands::inspect::inspect(&flags),
        Command::Workloads(flags) => commands::workloads::workloads(&flags),
        Command::Completions { shell } => commands::completions::completions(shell),
    }
}
