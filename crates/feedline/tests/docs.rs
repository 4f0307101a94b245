//! The examples in README.md and docs: commands are executed in a sandbox and their output is compared, Python and
//! JSON are parsed, and a block that nothing covers is a mistake. Command lines and workloads are also checked by a
//! unit test of the program, which knows its flags and keys (`flags/examples.rs`). CONTRIBUTING.md has the rules for
//! writers.

pub(crate) mod page;
mod sandbox;
mod session;
mod shape;

use std::path::Path;

use serde_json::json;

use self::page::{Block, Page, Treatment};
use self::sandbox::Sandbox;
use self::session::{Session, sides};
use crate::util::Dir;

/// Every page has a test of its own, so that pages run in parallel.
macro_rules! pages {
    ($($name:ident $path:literal;)+) => {
        const PAGES: &[&str] = &[$($path),+];
        $(#[test]
        fn $name() {
            carry_out($path);
        })+
    };
}

pages! {
    readme "README.md";
    docs_readme "docs/README.md";
    explanation_au "docs/explanation/au.md";
    explanation_cache "docs/explanation/cache.md";
    explanation_order "docs/explanation/order.md";
    explanation_performance "docs/explanation/performance.md";
    explanation_verdict "docs/explanation/verdict.md";
    guides_audit "docs/guides/audit.md";
    guides_catalog "docs/guides/catalog.md";
    guides_checkpoints "docs/guides/checkpoints.md";
    guides_cluster "docs/guides/cluster.md";
    guides_dlio "docs/guides/dlio.md";
    guides_experiments "docs/guides/experiments.md";
    guides_install "docs/guides/install.md";
    guides_live "docs/guides/live.md";
    guides_mlperf "docs/guides/mlperf.md";
    guides_objects "docs/guides/objects.md";
    guides_replay "docs/guides/replay.md";
    guides_reports "docs/guides/reports.md";
    guides_tour "docs/guides/tour.md";
    guides_traces "docs/guides/traces.md";
    reference_commands "docs/reference/commands.md";
    reference_doctor "docs/reference/doctor.md";
    reference_documents "docs/reference/documents.md";
    reference_environment "docs/reference/environment.md";
    reference_exit_codes "docs/reference/exit-codes.md";
    reference_files "docs/reference/files.md";
    reference_findings "docs/reference/findings.md";
    reference_formats "docs/reference/formats.md";
    reference_keys "docs/reference/keys.md";
    reference_loaders "docs/reference/loaders.md";
    reference_results "docs/reference/results.md";
    reference_rules "docs/reference/rules.md";
    reference_stores "docs/reference/stores.md";
    reference_units "docs/reference/units.md";
    reference_versions "docs/reference/versions.md";
    reference_workloads "docs/reference/workloads.md";
    tutorials_first_run "docs/tutorials/first-run.md";
    tutorials_measure_a_file_system "docs/tutorials/measure-a-file-system.md";
    tutorials_reproduce_chien_2018 "docs/tutorials/reproduce-chien-2018.md";
    tutorials_size_an_mlperf_submission "docs/tutorials/size-an-mlperf-submission.md";
    tutorials_why_gpus_starve "docs/tutorials/why-gpus-starve.md";
}

fn carry_out(path: &str) {
    let page = page::load(path).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let dir = Dir::new();
    let sandbox = Sandbox::new(dir.folder(), Path::new(env!("CARGO_BIN_EXE_feedline")));
    if let Err(mistake) = Session::new(&page, sandbox).run() {
        panic!("{mistake}");
    }
}

/// All pages, and all mistakes in their comments.
fn all_pages() -> Vec<Page> {
    let (mut pages, mut mistakes) = (Vec::new(), Vec::new());
    for path in page::all_paths() {
        match page::load(&path) {
            Ok(page) => pages.push(page),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    assert!(mistakes.is_empty(), "mistakes in comments before examples:\n{}", mistakes.join("\n"));
    pages
}

#[test]
fn every_page_has_a_test() {
    let (paths, mut lines) = (page::all_paths(), Vec::new());
    for path in paths.iter().filter(|path| !PAGES.contains(&path.as_str())) {
        // docs/README.md would have the name of README.md.
        let within = path.strip_prefix("docs/").filter(|rest| rest.contains('/')).unwrap_or(path);
        let name = within.trim_end_matches(".md").replace(['/', '-', '.'], "_");
        lines.push(format!("    {} \"{path}\";", name.to_lowercase()));
    }
    assert!(
        lines.is_empty(),
        "add these lines to the table of pages in tests/docs.rs:\n{}",
        lines.join("\n")
    );
    for path in PAGES {
        assert!(paths.iter().any(|known| known == path), "take {path} off the table: there is no such page");
    }
}

/// Why nothing checks a block.
fn gap(page: &Page, block: &Block) -> Option<&'static str> {
    if matches!(block.treatment, Treatment::NotRun(_)) || block.file.is_some() {
        return None;
    }
    match block.language.as_str() {
        "console" if block.exchanges().map_or(true, |exchanges| exchanges.is_empty()) => {
            Some("a console block begins with a line '$ COMMAND'")
        }
        "sh" | "bash" | "console" if block.output_of.is_some() => {
            Some("'output of' belongs before a block without a language")
        }
        "sh" | "bash" | "console" | "yaml" | "json" | "python" | "diff" => None,
        "" | "text" if block.output_of.is_some() || page.compared_by.is_some() => None,
        "" | "text" => Some(
            "nothing executes this block: make it a console block ('$ COMMAND' and its output), or write before it \
             '<!-- example: output of COMMAND -->' or '<!-- example: not run, REASON -->'",
        ),
        _ => Some("no test reads this language: write before it '<!-- example: not run, REASON -->'"),
    }
}

#[test]
fn every_block_is_covered() {
    let pages = all_pages();
    let mut gaps = Vec::new();
    let (mut executed, mut parsed, mut checked, mut not_run) = (0, Vec::new(), 0, Vec::new());
    for page in &pages {
        for block in &page.blocks {
            let place = format!("{}:{}", page.path, block.line);
            if let Some(why) = gap(page, block) {
                gaps.push(format!("{place}: {why}"));
            }
            match &block.treatment {
                Treatment::NotRun(reason) => not_run.push(format!("  {place}: {reason}")),
                Treatment::Parsed(reason) => parsed.push(format!("  {place}: {reason}")),
                Treatment::Executed if block.is_commands() || block.output_of.is_some() => executed += 1,
                Treatment::Executed => checked += 1,
            }
        }
    }
    assert!(gaps.is_empty(), "blocks without a test:\n{}", gaps.join("\n"));
    println!(
        "examples on {} pages: {executed} blocks executed, {checked} files and snippets checked, {} only parsed, \
         {} not run\nonly parsed:\n{}\nnot run:\n{}",
        pages.len(),
        parsed.len(),
        not_run.len(),
        parsed.join("\n"),
        not_run.join("\n"),
    );
    assert!(executed > 20, "only {executed} blocks are executed");
}

#[test]
fn json_examples_parse() {
    for page in all_pages() {
        for block in page.blocks.iter().filter(|block| block.language == "json") {
            if !matches!(block.treatment, Treatment::NotRun(_)) {
                let parsed = serde_json::from_str::<serde_json::Value>(&block.text);
                assert!(parsed.is_ok(), "{}:{}: {}", page.path, block.line, parsed.unwrap_err());
            }
        }
    }
}

#[test]
fn python_examples_compile() {
    let mut snippets = Vec::new();
    for page in all_pages() {
        for block in page.blocks.iter().filter(|block| !matches!(block.treatment, Treatment::NotRun(_))) {
            let place = format!("{}:{}", page.path, block.line);
            match block.language.as_str() {
                "python" => snippets.push(json!({"place": place, "text": block.text, "whole": true})),
                // A diff that changes a file is executed with it.
                "diff" if block.change.is_none() => {
                    for (side, text) in ["before", "after"].iter().zip(sides(&block.text)) {
                        let place = format!("{place} ({side})");
                        snippets.push(json!({"place": place, "text": text, "whole": false}));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(snippets.len() > 30, "{} snippets", snippets.len());
    let dir = Dir::new();
    dir.write("snippets.json", serde_json::to_string(&snippets).unwrap());
    let done = dir.python("compile_snippets.py", &["snippets.json"]).run();
    assert_eq!(done.code(), Some(0), "{}{}", done.stdout, done.stderr);
}

/// Carries out a page that is not one of the documentation.
fn trial(text: &str) -> Result<session::Counts, String> {
    let page = page::read("trial.md", text)?;
    let dir = Dir::new();
    Session::new(&page, Sandbox::new(dir.folder(), Path::new(env!("CARGO_BIN_EXE_feedline")))).run()
}

#[test]
fn pages_are_carried_out_as_they_say() {
    let counts = trial(
        "\
<!-- example: file w.yaml -->
```yaml
a: 1
```
Text, then a change.
<!-- example: change w.yaml -->
```diff
-a: 1
+a: 2
```
<!-- example: setup mkdir -p a/20200101_000000 a/20200101_000001 /mnt/x && echo one > a/20200101_000001/f -->
```console
$ cat w.yaml a/20260101_120500/f; ls a/20260101_120000
a: 7
one
$ pwd
/tmp/job
```
<!-- example: exit 3 -->
```sh
feedline workloads | head -n 1 > /mnt/x/list; test -s /mnt/x/list
exit 3
```
<!-- example: output of echo 3 MiB of 4; echo later >&2 -->
```
4 GiB of 5
...
```
<!-- example: parsed, never -->
```sh
exit 1
```
",
    )
    .unwrap();
    assert_eq!((counts.executed, counts.compared, counts.files), (3, 3, 2));
}

#[test]
fn mistakes_name_their_line() {
    for (text, mistake) in [
        ("```sh\ntrue\n\nfalse\n```\n", "trial.md:4: the example ended with exit code 1, not 0"),
        ("```console\n$ echo a\nb\n```\n", "trial.md:3: the output differs"),
        ("```console\n$ true\n$ false\n```\n", "trial.md:3: the example ended with exit code 1"),
        (
            "<!-- example: exit 2 -->\n```sh\ntrue\n```\n",
            "trial.md:3: the example ended with exit code 0, not 2",
        ),
        (
            "<!-- example: setup false -->\n```sh\ntrue\n```\n",
            "trial.md:1: the example ended with exit code 1",
        ),
        ("<!-- example: output of echo 1 a -->\n```\n2 b\n```\n", "trial.md:3: the output differs"),
        ("```sh\ncat a/20260101_120000\n```\n", "trial.md:2: the example ended with exit code 1"),
        ("```sh\necho\n", "trial.md:1: the block has no end"),
        ("<!-- example: parsed -->\n```sh\n```\n", "trial.md:1: 'parsed' needs a reason"),
        (
            "<!-- example: exit 1 -->\ntext\n```sh\n```\n",
            "trial.md:1: the comment belongs directly before a block",
        ),
        ("<!-- example: skip -->\n```sh\n```\n", "trial.md:1: 'example: skip' is not one of"),
        (
            "<!-- example: file a -->\n```\nx\n```\n<!-- example: change a -->\n```diff\n-y\n```\n",
            "trial.md:7: a does not",
        ),
    ] {
        let found = trial(text).unwrap_err();
        assert!(found.starts_with(mistake), "{mistake}\n{found}");
    }
}

#[test]
fn a_block_without_a_test_is_found() {
    let gaps = |text: &str| {
        let page = page::read("trial.md", text).unwrap();
        page.blocks.iter().filter(|block| gap(&page, block).is_some()).count()
    };
    assert_eq!(gaps("```\nx\n```\n```text\nx\n```\n```toml\nx\n```\n```console\nx\n```\n"), 4);
    assert_eq!(gaps("<!-- example: page compared by commands::pages -->\n```\nx\n```\n"), 0);
    assert_eq!(gaps("<!-- example: not run, a diagram -->\n```\nx\n```\n```yaml\na: 1\n```\n"), 0);
}
