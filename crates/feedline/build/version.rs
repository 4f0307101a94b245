//! Where this build comes from: commit, date, target, profile and compiler, as variables for `env!`. Each fact is a
//! function of the sources and of environment variables, so that builds can be repeated; no path and no clock is used.
//!
//! `FEEDLINE_COMMIT` and `FEEDLINE_COMMIT_DATE` (or `SOURCE_DATE_EPOCH`) name the commit where there is no git
//! repository, as in a source archive. Without them and without git, both are `unknown`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// For a fact that cannot be found out.
const UNKNOWN: &str = "unknown";
/// Digits of a commit's name.
const DIGITS: usize = 12;
/// The variables of the environment that decide.
const VARIABLES: [&str; 3] = ["FEEDLINE_COMMIT", "FEEDLINE_COMMIT_DATE", "SOURCE_DATE_EPOCH"];

/// Looks up a variable of the environment.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A commit, with `-dirty` if the files differ from it, and the day in UTC on which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) name: String,
    pub(crate) date: String,
}

/// The lines for Cargo: the facts for the compiler, and when they have to be found out again.
pub(crate) fn directives() -> Vec<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let commit = commit(&root, &variable);
    let facts = [
        ("FEEDLINE_BUILD", summary(&commit)),
        ("FEEDLINE_BUILD_COMMIT", commit.name),
        ("FEEDLINE_BUILD_DATE", commit.date),
        ("FEEDLINE_BUILD_TARGET", variable("TARGET").unwrap_or_else(|| UNKNOWN.to_owned())),
        ("FEEDLINE_BUILD_PROFILE", profile(&variable("OUT_DIR").unwrap_or_default())),
        ("FEEDLINE_BUILD_RUSTC", compiler(variable("RUSTC"))),
    ];
    let facts = facts.iter().map(|(name, value)| format!("cargo:rustc-env={name}={value}"));
    let variables = VARIABLES.iter().map(|name| format!("cargo:rerun-if-env-changed={name}"));
    let paths = watched(&root);
    let paths = paths.iter().map(|path| format!("cargo:rerun-if-changed={}", path.display()));
    facts.chain(variables).chain(paths).collect()
}

/// The commit of the sources below `root`: from the environment, else from git.
pub(crate) fn commit(root: &Path, variable: Variables<'_>) -> Commit {
    let of_git = git_commit(root);
    let date = variable("FEEDLINE_COMMIT_DATE")
        .or_else(|| variable("SOURCE_DATE_EPOCH")?.trim().parse().ok().map(day))
        .filter(|date| is_plain(date));
    let name = variable("FEEDLINE_COMMIT").filter(|name| is_plain(name));
    match (name, of_git) {
        // The date of git is that of another commit.
        (Some(name), _) => Commit { name, date: date.unwrap_or_else(|| UNKNOWN.to_owned()) },
        (None, Some(of_git)) => Commit { date: date.unwrap_or(of_git.date), ..of_git },
        (None, None) => Commit { name: UNKNOWN.to_owned(), date: date.unwrap_or_else(|| UNKNOWN.to_owned()) },
    }
}

/// The commit in one line of `feedline --version`.
pub(crate) fn summary(commit: &Commit) -> String {
    match (commit.name.as_str(), commit.date.as_str()) {
        (UNKNOWN, UNKNOWN) => "commit unknown".to_owned(),
        (UNKNOWN, date) => format!("commit unknown, {date}"),
        (name, UNKNOWN) => name.to_owned(),
        (name, date) => format!("{name} {date}"),
    }
}

/// Whether a text fits into one line of output.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-+._/:".contains(c))
}

/// What git prints; `None` if it fails or is not installed.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

/// The commit that is checked out, if `root` is the root of a repository: sources that were unpacked below another
/// repository are none of its commits.
fn git_commit(root: &Path) -> Option<Commit> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let line = git(root, &["show", "-s", "--format=%H %cd", "--date=format-local:%Y-%m-%d", "HEAD"])?;
    let (name, date) = line.split_once(' ')?;
    // Without refreshing the index, which would be a change to the repository.
    let changed = git(root, &["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"])?;
    let mut name = name.get(..DIGITS)?.to_owned();
    if !changed.is_empty() {
        name.push_str("-dirty");
    }
    Some(Commit { name, date: date.to_owned() })
}

/// The files that change with the commit, and the sources, with which `-dirty` changes. A path that does not exist is
/// left out, since Cargo would run the build script every time. A branch that git has packed has no file of its own;
/// its log of commits changes as well.
pub(crate) fn watched(root: &Path) -> Vec<PathBuf> {
    let mut names = vec!["HEAD".to_owned(), "logs/HEAD".to_owned()];
    names.extend(git(root, &["symbolic-ref", "-q", "HEAD"]));
    let mut paths: Vec<PathBuf> = names
        .iter()
        .filter_map(|name| git(root, &["rev-parse", "--git-path", name]))
        .map(|path| root.join(path))
        .collect();
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut sources: Vec<PathBuf> = crates.map(|entry| entry.path().join("src")).collect();
    sources.sort();
    paths.extend(sources);
    paths.extend(
        ["Cargo.lock", "crates/feedline/build.rs", "crates/feedline/build"].map(|name| root.join(name)),
    );
    paths.retain(|path| path.exists());
    paths
}

/// The profile, from the folder of this build: `target/PROFILE/build/..`. Cargo's own variable has `release` for `dist`
/// as well.
pub(crate) fn profile(folder: &str) -> String {
    let names: Vec<&str> = folder.split('/').collect();
    let found = names.iter().rposition(|name| *name == "build").and_then(|at| names.get(at.checked_sub(1)?));
    match found {
        Some(&"debug") => "dev".to_owned(),
        Some(name) => (*name).to_owned(),
        None => UNKNOWN.to_owned(),
    }
}

/// The version of the compiler.
fn compiler(program: Option<String>) -> String {
    let output = program.and_then(|program| Command::new(program).arg("--version").output().ok());
    let text = output.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    match text.trim().trim_start_matches("rustc ") {
        "" => UNKNOWN.to_owned(),
        version => version.to_owned(),
    }
}

/// The day of a second since 1970, in UTC (civil_from_days by Howard Hinnant).
pub(crate) fn day(second: u64) -> String {
    let days = second / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (month, date) =
        (if shifted < 10 { shifted + 3 } else { shifted - 9 }, of_year - (153 * shifted + 2) / 5 + 1);
    format!("{:04}-{month:02}-{date:02}", era * 400 + year + u64::from(month <= 2))
}
