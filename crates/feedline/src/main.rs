//! The command line: flags in, an exit code out. Each command is a function in `commands`; what it says to people is
//! made in `report`.

mod commands;
mod exit;
mod flags;
mod progress;
mod report;
mod workloads;

use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser;

use exit::{Ending, Failure};
use flags::{Cli, Command};

fn main() -> ExitCode {
    engine::host::return_large_memory();
    let cli = Cli::parse();
    // A panic has said what it is; its place in the list of exit codes is all that is missing.
    let ending = std::panic::catch_unwind(|| dispatch(cli));
    match ending.unwrap_or_else(|_| Err(Failure::internal(anyhow!("feedline has a fault: see above")))) {
        Ok(exit) => exit.into(),
        Err(Failure { exit, error }) => {
            report::note(&format!("error: {error:#}"));
            exit.into()
        }
    }
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
