//! Hydra's part of DLIO, as far as it decides what runs: the grammar of overrides, the composition of a configuration
//! from files, interpolations, sweeps, and the YAML files that describe a job. Files, variables and the time come from
//! the caller.
//!
//! line -> tokens (`lexer`) -> override (`grammar`, `functions`, `sweep`); files (`repository`) -> their order
//! (`defaults`, `entry`) -> tree (`compose`, `tree`, `schema`, `interpolation`) -> text (`dump`). The behaviour is that
//! of hydra-core 1.3.

mod compose;
mod defaults;
mod dump;
mod entry;
mod functions;
mod grammar;
mod hide;
mod interpolation;
mod lexer;
mod python;
mod repository;
mod schema;
mod sweep;
mod tree;

use std::fmt;

pub use compose::{ComposeRequest, ConfigPart, Configuration, RunMode, compose, search_path};
pub(crate) use grammar::{OverrideElement, parse_value};
pub(crate) use lexer::Lexicon;
pub use repository::{ConfigSource, GroupListing, Repository, same_content};
pub(crate) use sweep::requote;

/// Why a command line or a configuration cannot be used; a complete message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompositionError(pub String);

impl CompositionError {
    /// A mistake in an override, with a mark under the place.
    fn at(line: &str, at: usize, why: &str) -> CompositionError {
        let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        CompositionError(format!("{why}\n  {shown}\n  {}^", " ".repeat(at)))
    }
}

/// What a configuration can refer to.
pub struct Environment<'a> {
    /// The time in a pattern of `strftime`; the same instant for every call.
    pub now: &'a dyn Fn(&str) -> Result<String, String>,
    /// An environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The working directory.
    pub folder: &'a str,
    /// Decides the order that `shuffle()` gives.
    pub seed: u64,
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("folder", &self.folder)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}
