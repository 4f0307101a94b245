//! What the shell's completion offers for the values of arguments: workloads and files, backends, keys and their words.
//! The rest of the completion follows from the definition of the flags.

use std::ffi::OsStr;

use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use model::spec::{self, KeyStatus, ValueKind};
use store::BACKENDS;

use super::Cli;
use crate::manual;
use crate::workloads::WORKLOADS;

/// The command line with the values of its arguments.
pub(crate) fn definition() -> Command {
    Cli::command().mut_subcommands(|command| {
        command.mut_args(|argument| match argument.get_id().as_str() {
            "workload" => offers(argument, workloads),
            "name" => offers(argument, workload_names),
            "store" => offers(argument, stores),
            "set" => offers(argument, settings),
            "storage_set" => offers(argument, storage_settings),
            "over" => offers(argument, axes),
            "page" => offers(argument, pages),
            _ => argument,
        })
    })
}

fn offers(argument: Arg, values: fn(&OsStr) -> Vec<CompletionCandidate>) -> Arg {
    argument.add(ArgValueCompleter::new(values))
}

/// Those of the words that start with what was typed.
fn starting<'a>(typed: &OsStr, words: impl Iterator<Item = (String, &'a str)>) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let fitting = words.filter(|(word, _)| word.starts_with(typed));
    fitting.map(|(word, help)| CompletionCandidate::new(word).help(Some(help.to_owned().into()))).collect()
}

fn workload_names(typed: &OsStr) -> Vec<CompletionCandidate> {
    starting(typed, WORKLOADS.iter().map(|workload| (workload.name.to_owned(), workload.summary)))
}

fn workloads(typed: &OsStr) -> Vec<CompletionCandidate> {
    let is_yaml = |path: &std::path::Path| {
        path.is_dir() || path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
    };
    let files = PathCompleter::any().filter(is_yaml).complete(typed);
    workload_names(typed).into_iter().chain(files).collect()
}

fn stores(typed: &OsStr) -> Vec<CompletionCandidate> {
    starting(typed, BACKENDS.names().map(|name| (name.to_owned(), "I/O backend")))
}

/// The pages of the documentation, by name.
fn pages(typed: &OsStr) -> Vec<CompletionCandidate> {
    starting(typed, manual::pages::PAGES.iter().map(|page| (page.name().to_owned(), page.title)))
}

/// Keys of a workload that have an effect, then `=` and the words of a key that has a fixed set of them.
fn settings(typed: &OsStr) -> Vec<CompletionCandidate> {
    keys(typed, |status| {
        matches!(status, KeyStatus::Used | KeyStatus::WithCheckpoints | KeyStatus::OfObjects)
    })
}

/// The same for the keys of object stores.
fn storage_settings(typed: &OsStr) -> Vec<CompletionCandidate> {
    keys(typed, |status| status == KeyStatus::OfObjects)
}

fn keys(typed: &OsStr, is_offered: fn(KeyStatus) -> bool) -> Vec<CompletionCandidate> {
    let value_of = typed.to_str().and_then(|typed| Some(typed.split_once('=')?.0));
    let offered = spec::rows().filter(|row| is_offered(row.status));
    match value_of {
        None => starting(typed, offered.map(|row| (format!("{}=", row.key), row.help))),
        Some(key) => {
            let row = spec::rows().find(|row| row.key == key);
            let words = row.map_or(&[] as &[&str], |row| match row.kind {
                ValueKind::Choice(words) => words,
                ValueKind::Flag | ValueKind::LooseFlag => &["true", "false"],
                ValueKind::Shuffle => &["off", "seed", "random"],
                _ => &[],
            });
            starting(typed, words.iter().map(|word| (format!("{key}={word}"), "")))
        }
    }
}

/// What a sweep can vary: settings, ranks and the backend.
fn axes(typed: &OsStr) -> Vec<CompletionCandidate> {
    let others = [("ranks=", "emulated accelerators"), ("store=", "I/O backend")];
    let others = starting(typed, others.into_iter().map(|(word, help)| (word.to_owned(), help)));
    others.into_iter().chain(settings(typed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(candidates: &[CompletionCandidate]) -> Vec<String> {
        candidates.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn every_argument_with_a_known_set_of_values_offers_it() {
        let command = definition();
        for (subcommand, argument) in [
            ("run", "workload"),
            ("run", "store"),
            ("run", "set"),
            ("sweep", "over"),
            ("workloads", "name"),
            ("docs", "page"),
        ] {
            let found = command.find_subcommand(subcommand).unwrap();
            let found = found.get_arguments().find(|found| found.get_id() == argument).unwrap();
            assert!(found.get::<ArgValueCompleter>().is_some(), "{subcommand} {argument}");
        }
    }

    #[test]
    fn keys_end_in_an_equals_sign_and_words_follow_it() {
        assert_eq!(
            words(&settings(OsStr::new("reader.batch"))),
            ["reader.batch_size=", "reader.batch_size_eval="]
        );
        assert_eq!(words(&settings(OsStr::new("reader.cache=w"))), ["reader.cache=warm"]);
        assert_eq!(
            words(&settings(OsStr::new("reader.odirect="))),
            ["reader.odirect=true", "reader.odirect=false"]
        );
        assert!(settings(OsStr::new("reader.batch_size=")).is_empty());
        assert_eq!(words(&axes(OsStr::new("ran"))), ["ranks="]);
        assert_eq!(words(&stores(OsStr::new("po"))), ["posix"]);
        assert_eq!(words(&workload_names(OsStr::new("unet3d_b"))), ["unet3d_b200"]);
    }
}
