//! Manual pages: feedline.1 and one for each command, from the definition of the flags. They have no date, so that two
//! builds of one version have the same pages.

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::environment::VARIABLES;
use super::{MARK, pages};
use crate::exit::Exit;
use crate::flags::Cli;
use crate::terminal;

/// The width of examples: that of a terminal with 80 columns without the indent of a manual page.
const COLUMNS: usize = 72;

/// Files of each command. The name of a command is that after `feedline`.
const FILES: &[(&str, &str, &str)] = &[
    (
        "run",
        "feedline-results/WORKLOAD/TIME/",
        "The result: summary.json, ledger.json, plan.json, spec.yaml, tables, report.html and SHA256SUMS. \
         Another folder: --results-dir.",
    ),
    (
        "run",
        "DIR/.feedline/dataset.json",
        "In the data folder: which data set it holds, and whether it is complete.",
    ),
    (
        "sweep",
        "cells.jsonl, sweep.csv, sweep.json, sweep.svg, sweep.html",
        "In the folder of the sweep (--output): the journal, from which the same command resumes, and the results.",
    ),
    (
        "capacity",
        "trials.jsonl, capacity.csv, capacity.json, capacity.svg, capacity.html",
        "In the folder of the search (--output): the journal, from which the same command resumes, and the results.",
    ),
    (
        "stall",
        "runs.jsonl, stall.csv, stall.json, stall.svg, stall.html",
        "In the folder of the study (--output): the journal, from which the same command resumes, and the results.",
    ),
    (
        "audit",
        "feedline-results/NAME/TIME/",
        "The result: ledger.json, findings.json, summary.json, report.html and SHA256SUMS.",
    ),
    (
        "audit",
        "/dev/shm/feedline-audit-*",
        "While the job runs: the library that is loaded into its processes.",
    ),
    ("validate", "SHA256SUMS", "In the folder of a result: the checksum of each of its files."),
    (
        "generate",
        "DIR/.feedline/dataset.json",
        "In the data folder: which data set it holds, and whether it is complete.",
    ),
    ("catalog", "DIR/.feedline/catalog", "The list of files. Another file: --output."),
    (
        "catalog",
        "DIR/.feedline/catalog.partial",
        "The journal of an interrupted listing, from which the same command resumes.",
    ),
    ("catalog", "$XDG_STATE_HOME/feedline/listing-*.partial", "The same for the listing of an object store."),
    ("report", "report.html", "In the folder of a result: the page that the run wrote."),
    ("completions", "/usr/share/bash-completion/completions/feedline", "Script for bash, for all users."),
    ("completions", "/usr/share/zsh/vendor-completions/_feedline", "Script for zsh, for all users."),
    ("completions", "/usr/share/fish/vendor_completions.d/feedline.fish", "Script for fish, for all users."),
];

/// Other commands and pages of the book that belong to a command.
const RELATED: &[(&str, &[&str], &[&str])] = &[
    ("", &[], &["commands", "keys", "results", "environment", "files"]),
    (
        "run",
        &["plan", "generate", "report", "validate"],
        &["keys", "results", "cache", "stores", "checkpoints", "cluster"],
    ),
    ("sweep", &["run", "capacity", "stall"], &["experiments"]),
    ("capacity", &["run", "sweep", "stall"], &["experiments"]),
    ("stall", &["run", "sweep", "capacity"], &["experiments"]),
    ("audit", &["infer", "report"], &["audit", "findings"]),
    ("infer", &["audit", "run"], &["replay", "findings"]),
    ("validate", &["run", "compare"], &["results", "rules"]),
    ("compare", &["run", "validate"], &["results"]),
    ("report", &["run", "compare"], &["reports"]),
    ("trace", &["run"], &["traces"]),
    ("generate", &["run", "plan"], &["formats", "files"]),
    ("plan", &["run", "workloads"], &["keys", "units"]),
    ("catalog", &["run", "inspect"], &["catalog"]),
    ("inspect", &["catalog"], &["formats"]),
    ("mlperf", &["plan", "run"], &["mlperf"]),
    ("dlio", &["run"], &["dlio"]),
    ("doctor", &["run"], &["doctor", "install"]),
    ("workloads", &["plan", "run"], &["workloads", "mlperf"]),
];

/// A manual page: the name of its file and its text.
#[derive(Debug)]
pub(crate) struct ManPage {
    pub file: String,
    pub text: String,
}

/// All manual pages.
pub(crate) fn man_pages() -> Vec<ManPage> {
    terminal::fix_help_columns(COLUMNS);
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, &mut pages);
    pages
}

fn add(command: &Command, pages: &mut Vec<ManPage>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    pages.push(ManPage { file: format!("{name}.1"), text: page(command, &name) });
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner, pages);
    }
}

fn page(command: &Command, name: &str) -> String {
    // `feedline-mlperf-size` is described with `mlperf`.
    let topic = name.split('-').nth(1).unwrap_or_default();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes): (Vec<&str>, Vec<&str>) = after
        .split("\n\n")
        .map(str::trim_end)
        .filter(|block| !block.is_empty())
        .partition(|block| block.starts_with("Examples:"));

    let mut roff = Roff::default();
    roff.control("TH", [name, "1", "", concat!("feedline ", env!("CARGO_PKG_VERSION")), "feedline"]);
    // No hyphens are added: a flag that is broken cannot be searched for or copied.
    roff.control("nh", []);
    roff.control("ad", ["l"]);
    roff.control("SH", ["NAME"]);
    roff.text([roman(format!("{name} - {}", about.trim_end_matches('.')))]);
    synopsis(&mut roff, command);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(format!("{}.", about.trim_end_matches('.')))]);
    for note in notes.iter().filter(|note| !note.starts_with("Exit codes:")) {
        roff.control("PP", []);
        roff.text([roman(note.split_whitespace().collect::<Vec<_>>().join(" "))]);
    }
    commands(&mut roff, command, name);
    let mut text = text_of(&roff);
    text.push_str(&options(command));

    let mut roff = Roff::default();
    verbatim(&mut roff, "EXAMPLES", examples.iter().flat_map(|block| block.lines().skip(1)));
    environment(&mut roff, topic);
    files(&mut roff, topic);
    exit_status(&mut roff, topic);
    see_also(&mut roff, topic, name);
    text.push_str(&text_of(&roff));
    format!(".\\\" {MARK} --man'.\n{APOSTROPHE}{text}")
}

/// How to print an apostrophe, which roff would make a closing quote of. The library writes it before every part.
const APOSTROPHE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

fn text_of(roff: &Roff) -> String {
    roff.render().replace(APOSTROPHE, "")
}

fn synopsis(roff: &mut Roff, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let name = command.get_bin_name().unwrap_or(command.get_name());
    roff.control("SH", ["SYNOPSIS"]);
    for form in usage.lines().map(str::trim) {
        match form.strip_prefix(name) {
            Some(arguments) => roff.text([bold(name), roman(arguments)]),
            None => roff.text([roman(form)]),
        };
    }
}

fn commands(roff: &mut Roff, command: &Command, name: &str) {
    let inner: Vec<&Command> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).collect();
    if inner.is_empty() {
        return;
    }
    roff.control("SH", ["COMMANDS"]);
    for inner in inner {
        roff.control("TP", []);
        roff.text([bold(format!("{name}-{}", inner.get_name())), roman("(1)")]);
        roff.text([roman(format!("{}.", inner.get_about().map(ToString::to_string).unwrap_or_default()))]);
    }
}

/// The flags and arguments.
fn options(command: &Command) -> String {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = Man::new(command.clone().mut_args(with_aliases)).render_options_section(&mut bytes);
    String::from_utf8_lossy(&bytes).replace(APOSTROPHE, "")
}

/// The argument with its other names in its text, as in the help.
fn with_aliases(argument: Arg) -> Arg {
    let names = argument.get_visible_aliases().unwrap_or_default();
    if names.is_empty() {
        return argument;
    }
    let names: Vec<String> = names.iter().map(|name| format!("--{name}")).collect();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    argument.help(format!("{help} [alias: {}]", names.join(", ")))
}

/// Lines that are neither filled nor broken.
fn verbatim<'a>(roff: &mut Roff, heading: &str, lines: impl Iterator<Item = &'a str>) {
    let lines: Vec<&str> = lines.collect();
    if lines.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    roff.control("EX", []);
    for line in lines {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("EE", []);
}

/// The variables of all commands, in the page of feedline itself.
fn environment(roff: &mut Roff, topic: &str) {
    if !topic.is_empty() {
        return;
    }
    roff.control("SH", ["ENVIRONMENT"]);
    roff.text([roman(
        "The variables for output. 'feedline docs environment' lists those for object stores, launchers and others.",
    )]);
    for row in VARIABLES[0].rows {
        roff.control("TP", []);
        roff.text([bold(row.names.join(", "))]);
        roff.text([roman(sentence(&row.what.replace('`', "")))]);
    }
}

fn files(roff: &mut Roff, topic: &str) {
    let files: Vec<_> = FILES.iter().filter(|(command, ..)| *command == topic).collect();
    if files.is_empty() {
        return;
    }
    roff.control("SH", ["FILES"]);
    for (_, file, what) in files {
        roff.control("TP", []);
        roff.text([italic(*file)]);
        roff.text([roman(*what)]);
    }
}

fn exit_status(roff: &mut Roff, topic: &str) {
    roff.control("SH", ["EXIT STATUS"]);
    if topic == "audit" {
        roff.text([roman("The exit code of the job, if it was started. Otherwise:")]);
    }
    for (exit, meaning) in Exit::ALL {
        roff.control("TP", []);
        roff.text([bold(exit.code().to_string())]);
        roff.text([roman(sentence(meaning))]);
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn see_also(roff: &mut Roff, topic: &str, name: &str) {
    roff.control("SH", ["SEE ALSO"]);
    let related = RELATED.iter().find(|(command, ..)| *command == topic);
    let (others, pages) = related.map_or((&[][..], &[][..]), |(_, others, pages)| (*others, *pages));
    let main = (!topic.is_empty()).then(|| "feedline".to_owned());
    let group = (name.matches('-').count() > 1).then(|| format!("feedline-{topic}"));
    let others = others.iter().map(|other| format!("feedline-{other}"));
    let all = if topic.is_empty() { vec!["feedline-docs".to_owned()] } else { Vec::new() };
    let mut line: Vec<Inline> = Vec::new();
    for other in main.into_iter().chain(group).chain(others).chain(all) {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(other), roman("(1)")]);
    }
    roff.text(line);
    if pages.is_empty() {
        return;
    }
    roff.control("PP", []);
    roff.text([roman("The documentation is in the program:")]);
    roff.control("EX", []);
    for page in pages {
        let title = pages::named(page).map_or("", |page| page.title);
        roff.text([roman(format!("feedline docs {page:<14} # {title}"))]);
    }
    roff.control("EE", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_name_commands_and_pages_that_exist() {
        let root = Cli::command();
        let is_command = |name: &&str| name.is_empty() || root.find_subcommand(name).is_some();
        for (command, _, what) in FILES {
            assert!(is_command(command) && what.ends_with('.'), "{command}: {what}");
        }
        for (command, others, related) in RELATED {
            assert!(is_command(command) && others.iter().all(is_command), "{command}: {others:?}");
            for page in *related {
                pages::named(page).unwrap();
            }
        }
    }

    #[test]
    fn every_command_has_a_page_with_all_sections() {
        let pages = man_pages();
        let names: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
        assert!(names.contains(&"feedline.1") && names.contains(&"feedline-mlperf-size.1"), "{names:?}");
        for page in &pages {
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""]
            {
                assert!(
                    page.text.contains(&format!("\n.SH {section}\n")),
                    "{} has no {section}:\n{}",
                    page.file,
                    page.text
                );
            }
        }
    }
}
