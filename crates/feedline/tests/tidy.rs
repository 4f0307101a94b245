//! Rules for the text of the repository: sizes, names, crate dependencies, the one clock, no leftovers. A rule without
//! a test is sooner or later broken.

mod phrases;

mod crates;
mod types;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::util::{relative, walk};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of the repository.
struct File {
    /// Relative to the root of the repository.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is source of the program, as opposed to tests, benches and examples.
    fn is_source(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    /// The text without the unit tests at its end.
    fn code(&self) -> &str {
        let end = self.text.find("\n#[cfg(test)]\nmod tests {").map_or(self.text.len(), |at| at + 1);
        &self.text[..end]
    }

    /// `path:line` of each line for which `wrong` returns true.
    fn lines_where(text: &str, path: &str, wrong: impl Fn(&str) -> bool) -> Vec<String> {
        let found = text.lines().enumerate().filter(|(_, line)| wrong(line));
        found.map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim())).collect()
    }
}

/// Every text file of the repository, except those that git ignores.
fn files() -> Vec<File> {
    let root = root();
    let ignored = fs::read_to_string(root.join(".gitignore")).unwrap();
    let mut skipped: BTreeSet<&str> = ignored
        .lines()
        .filter_map(|line| line.strip_prefix('/'))
        .map(|line| line.trim_end_matches('/'))
        .collect();
    skipped.insert(".git");
    let mut files = Vec::new();
    for entry in fs::read_dir(&root).unwrap().flatten() {
        if skipped.contains(entry.file_name().to_str().unwrap()) {
            continue;
        }
        let mut take = |path: &Path| {
            if let (true, Ok(text)) = (path.is_file(), fs::read_to_string(path)) {
                files.push(File { path: relative(&root, path), text });
            }
        };
        take(&entry.path());
        walk(&entry.path(), &mut take);
    }
    files.retain(|file| !skipped.iter().any(|skipped| Path::new(&file.path).starts_with(skipped)));
    assert!(files.len() > 100, "{} files", files.len());
    files
}

/// Modules that are compiled for unit tests only, as paths without `.rs`: their `mod` has the attribute `#[cfg(test)]`.
fn test_modules(files: &[File]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_source()) {
        let path = Path::new(&file.path);
        let parent = path.parent().unwrap();
        let is_root = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| path.ends_with(name));
        let folder = if is_root { parent.to_owned() } else { path.with_extension("") };
        let mut attributes: Vec<&str> = Vec::new();
        for line in file.text.lines() {
            if line.starts_with("#[") {
                attributes.push(line);
                continue;
            }
            let declared = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            let module = declared.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
            let elsewhere =
                attributes.iter().find_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix(".rs\"]"));
            if let (true, Some(module)) = (attributes.contains(&"#[cfg(test)]"), module) {
                found.insert(elsewhere.map_or_else(|| folder.join(module), |path| parent.join(path)));
            }
            attributes.clear();
        }
    }
    found
}

#[test]
fn the_module_scan_sees_test_modules() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("crates/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod c;\n"),
        file(
            "crates/a/src/b.rs",
            "#[cfg(test)]\n#[path = \"e/f.rs\"]\nmod g;\n#[cfg(test)]\npub(crate) mod tests;\n",
        ),
        file("crates/a/src/d/mod.rs", "#[cfg(test)]\nmod tests;\n"),
    ];
    let found: Vec<PathBuf> = test_modules(&files).into_iter().collect();
    assert_eq!(found, ["b/tests", "c", "d/tests", "e/f"].map(|path| Path::new("crates/a/src").join(path)));
}

/// The program's source without tests.
fn sources() -> Vec<File> {
    let all = files();
    let tests = test_modules(&all);
    let is_test =
        |file: &File| Path::new(&file.path).with_extension("").ancestors().any(|path| tests.contains(path));
    all.into_iter().filter(|file| file.is_source() && !is_test(file)).collect()
}

#[track_caller]
fn none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// Whether the line contains `word` as a separate word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !part(before) && !part(after)
    })
}

#[test]
fn files_and_functions_are_short() {
    let mut found = Vec::new();
    for file in sources() {
        let lines: Vec<&str> = file.code().lines().collect();
        if lines.len() > 600 {
            found.push(format!("{}: {} lines", file.path, lines.len()));
        }
        for (start, length) in functions(&lines) {
            if length > 70 {
                found.push(format!("{}:{}: a function of {length} lines", file.path, start + 1));
            }
        }
    }
    none("files have at most 600 lines, functions at most 70 (tests aside)", &found);
}

/// First line and length of each function. The text is formatted, so a function ends at the first closing brace with
/// the same indentation.
fn functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.contains('(')).collect();
        let is_function = line.split_whitespace().any(|word| word == "fn")
            && words.iter().all(|word| {
                ["pub", "const", "unsafe", "async", "fn", "extern", "\"C\""].contains(word)
                    || word.starts_with("pub(")
                    || word.contains('<')
            });
        if !is_function || line.ends_with('}') || line.ends_with(';') {
            continue;
        }
        let end = lines[start + 1..].iter().position(|line| {
            let outside = line.len() - line.trim_start().len() == indent && !line.is_empty();
            outside && (line.trim() == "}" || line.ends_with(';'))
        });
        found.extend(end.map(|end| (start, end + 2)));
    }
    found
}

#[test]
fn the_function_scan_finds_functions() {
    let text = "\
fn a() {
    1
}

pub(crate) fn b(
    c: u8,
) -> u8 {
    c
}

trait T {
    fn d(&self);
}";
    assert_eq!(functions(&text.lines().collect::<Vec<_>>()), [(0, 3), (4, 5)]);
    let count: usize =
        sources().iter().map(|file| functions(&file.code().lines().collect::<Vec<_>>()).len()).sum();
    assert!(count > 300, "only {count} functions were found in the whole workspace");
}

#[test]
fn every_file_states_its_responsibility() {
    let found: Vec<String> = files()
        .iter()
        .filter(|file| file.is_rust() && !file.text.starts_with("//! "))
        .map(|file| file.path.clone())
        .collect();
    none("a file starts with //!", &found);
}

#[test]
fn vague_names_are_banned() {
    let banned = [
        "Manager", "Handler", "Factory", "Helper", "Utils", "Common", "Base", "Unified", "Enhanced", "Old",
        "V2",
    ];
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_rust()) {
        let stem = Path::new(&file.path).file_stem().unwrap().to_str().unwrap();
        for name in banned {
            if stem.split('_').any(|part| part.eq_ignore_ascii_case(name)) {
                found.push(file.path.clone());
            }
        }
        found.extend(File::lines_where(&file.text, &file.path, |line| {
            type_name(line).is_some_and(|name| words(name).iter().any(|word| banned.contains(&word.as_str())))
        }));
    }
    none("these names are banned", &found);
}

/// The name of the type that a line defines.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    ["struct", "enum", "trait", "type", "union", "mod"].contains(&words.next()?).then_some(())?;
    words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// `OldFileNames` as `Old`, `File`, `Names`.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        if letter.is_uppercase() || words.is_empty() {
            words.push(String::new());
        }
        words.last_mut().unwrap().push(letter);
    }
    words
}

#[test]
fn pure_crates_have_no_side_effects() {
    let banned = ["std::fs", "std::net", "std::process", "std::time", "std::thread", "std::env", "std::os"];
    let mut found = Vec::new();
    for file in sources() {
        if ["model", "format", "report"].iter().any(|name| file.path.starts_with(&format!("crates/{name}/")))
        {
            found.extend(File::lines_where(file.code(), &file.path, |line| {
                banned.iter().any(|module| has_word(line, module))
                    || ["Instant", "SystemTime", "println!", "eprintln!"]
                        .iter()
                        .any(|word| has_word(line, word))
            }));
        }
    }
    none("model, format and report use no files, clock, threads or environment", &found);
}

#[test]
fn there_is_one_clock() {
    let reads =
        ["Instant::now", "SystemTime::now", "clock_gettime", "Zoned::now", "Timestamp::now", "gettimeofday"];
    let mut found = Vec::new();
    // The audit compares times of feedline with those that the library takes inside of the job.
    let allowed =
        ["crates/engine/src/meter.rs", "crates/audit/src/source/clock.rs", "crates/audit/preload/src/raw.rs"];
    for file in sources().iter().filter(|file| !allowed.contains(&file.path.as_str())) {
        let reads_clock = |line: &str| reads.iter().any(|call| line.contains(call));
        found.extend(File::lines_where(file.code(), &file.path, reads_clock));
    }
    none("time is read in engine/src/meter.rs and by the audit's clock only", &found);
}

/// Reads of facts about the host, which decide what can run on it: memory, cores, limits, names, boots.
const HOST_FACTS: [&str; 15] = [
    "Host::look",
    "HostCounts",
    "host::seen_since",
    "host::own_ticks_since",
    "host::cores",
    "host::boot_id",
    ".own_room(",
    "host.room(",
    "available_parallelism",
    "sched_getaffinity",
    "uname()",
    "sysinfo(",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/random/boot_id",
];

/// Where the crates below `session` may read one: where they are defined, and what a run records or has to know at the
/// moment it happens.
const READS_HOST_FACTS: [(&str, &str); 6] = [
    ("crates/engine/src/host.rs", "defines them"),
    ("crates/engine/src/generate/claim.rs", "records the boot in which files were written and not flushed"),
    ("crates/store/src/tier/objects/lock.rs", "tells whether the process that left a lock still exists"),
    ("crates/engine/src/checkpoint/save.rs", "records the CPU time that there was during a save"),
    ("crates/engine/src/waits/progress.rs", "watches whether the kernel writes dirty pages"),
    ("crates/engine/src/train.rs", "the plan leaves the number of preprocessing threads to the host"),
];

/// The lines of the crates below `session` that read facts about the host without being listed.
fn host_facts(files: &[File]) -> Vec<String> {
    let lower = ["model", "format", "store", "engine"].map(|name| format!("crates/{name}/"));
    let mut found = Vec::new();
    for file in files.iter().filter(|file| lower.iter().any(|folder| file.path.starts_with(folder))) {
        if READS_HOST_FACTS.iter().all(|(path, _)| *path != file.path) {
            let reads = |line: &str| {
                let code = line.split("//").next().unwrap();
                HOST_FACTS.iter().any(|fact| code.contains(fact))
            };
            found.extend(File::lines_where(file.code(), &file.path, reads));
        }
    }
    found
}

#[test]
fn only_session_and_front_ends_read_host_facts() {
    let files = sources();
    none("facts about the host are read by session and front ends, and passed on", &host_facts(&files));
    for (path, why) in READS_HOST_FACTS {
        let file = files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("{path} is gone"));
        let reads = HOST_FACTS.iter().any(|fact| file.code().contains(fact));
        assert!(reads && !why.is_empty(), "{path} reads none: take it off the list");
    }
}

#[test]
fn the_host_fact_scan_sees_reads() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let reads = "use crate::host;\nlet room = host.own_room();\n// host::cores is not read here\n";
    let found = host_facts(&[
        file("crates/engine/src/loader/queue.rs", reads),
        file("crates/store/src/posix.rs", "let host = Host::look();\n"),
        file("crates/engine/src/host.rs", reads),
        file("crates/session/src/check.rs", reads),
    ]);
    let expected = [
        "crates/engine/src/loader/queue.rs:2: let room = host.own_room();",
        "crates/store/src/posix.rs:1: let host = Host::look();",
    ];
    assert_eq!(found, expected);
}

#[test]
fn nothing_is_left_for_later() {
    // Concatenated, so that this file does not match.
    let marks = [
        concat!("to", "do!("),
        concat!("dbg", "!("),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("tempor", "arily"),
    ];
    let ignore = concat!("#[ign", "ore]");
    let mut found = Vec::new();
    for file in files().iter().filter(|file| file.is_rust() || file.path.starts_with("scripts/")) {
        found.extend(File::lines_where(&file.text, &file.path, |line| {
            marks.iter().any(|mark| line.contains(mark)) || line.trim() == ignore
        }));
    }
    none("no unfinished work; an ignored test states its reason", &found);
}

#[test]
fn files_are_created_and_removed_in_one_place() {
    // Also allowed: files without a name, and writes to kernel interfaces.
    // The audit keeps what it shares with a job in a folder without data, and the library in the job stands for the
    // calls of the job.
    let allowed = [
        "crates/store/src/held.rs",
        "crates/store/src/folder.rs",
        "crates/engine/src/cache.rs",
        "crates/audit/src/source/session.rs",
        "crates/audit/preload/src/hooks/names.rs",
        "crates/audit/preload/src/real.rs",
    ];
    let calls = [
        "File::create",
        "File::options",
        "OpenOptions",
        "fs::write(",
        "fs::rename(",
        "fs::copy(",
        "remove_file(",
        "remove_dir",
        "create_dir",
        "hard_link(",
        "symlink(",
        "set_permissions(",
        "unlinkat(",
        "renameat(",
        "renameat_with(",
        "mkdirat(",
        "linkat(",
        "OFlags::CREATE",
        "OFlags::TRUNC",
    ];
    let mut found = Vec::new();
    for file in sources() {
        if allowed.contains(&file.path.as_str()) || file.path.contains("/tests") {
            continue;
        }
        // The number of a system call is not a call.
        let is_code = |line: &str| !line.trim().starts_with("//") && !line.contains("libc::SYS_");
        let makes = |line: &str| is_code(line) && calls.iter().any(|call| line.contains(call));
        found.extend(File::lines_where(file.code(), &file.path, makes));
    }
    none("files and folders are created, replaced and removed by store/held.rs", &found);
}

#[test]
fn lines_are_clean() {
    let mut found = Vec::new();
    for file in files() {
        let ours = [".rs", ".md", ".toml", ".yaml", ".py"].iter().any(|end| file.path.ends_with(end))
            || ["scripts/", ".ci/"].iter().any(|folder| file.path.starts_with(folder));
        if !ours {
            continue;
        }
        let long = |line: &str| file.is_rust() && line.chars().count() > 120;
        let dirty = |line: &str| line.contains('\t') || line.ends_with(' ') || line.ends_with('\r');
        found.extend(File::lines_where(&file.text, &file.path, |line| long(line) || dirty(line)));
        if !file.text.ends_with('\n') || file.text.ends_with("\n\n") {
            found.push(format!("{}: does not end with one newline", file.path));
        }
    }
    none("no tabs, no trailing spaces, Rust lines of at most 120 characters", &found);
}

#[test]
fn no_path_of_one_machine() {
    let paths = ["work", "root", "home"].map(|folder| format!("/{folder}/"));
    let mut found = Vec::new();
    for file in files() {
        let personal = |line: &str| {
            paths.iter().any(|path| {
                line.match_indices(path.as_str()).any(|(at, _)| {
                    // `a/home/b` is a relative path, and `//home/` the address of a host.
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "./_-}~".contains(c))
                })
            })
        };
        found.extend(File::lines_where(&file.text, &file.path, personal));
    }
    none("no absolute path that exists only on one machine", &found);
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("\n[workspace.dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let dependencies: Vec<&str> = section.lines().filter(|line| line.contains(" = ")).collect();
    assert!(dependencies.len() > 10);
    let without_reason =
        dependencies.iter().filter(|line| !line.contains("path = ") && !line.contains(" # "));
    none(
        "every external crate has its reason next to it",
        &without_reason.map(ToString::to_string).collect::<Vec<_>>(),
    );
}

#[test]
fn versions_are_in_one_place() {
    let mut found = Vec::new();
    // The library of the audit is a workspace of its own.
    let is_member = |path: &str| {
        path.starts_with("crates/")
            && path.ends_with("Cargo.toml")
            && !path.starts_with("crates/audit/preload/")
    };
    for file in files().iter().filter(|file| is_member(&file.path)) {
        let pinned =
            |line: &str| line.contains("version = \"") || line.contains(" = \"0") || line.contains(" = \"1");
        found.extend(File::lines_where(&file.text, &file.path, pinned));
    }
    none("versions are in the workspace's Cargo.toml", &found);
}

#[test]
fn the_readme_starts_with_the_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands = blocks
        .flat_map(str::lines)
        .map(|line| line.split(" #").next().unwrap().trim())
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(commands.next(), Some("cargo run --release -- run"));
    assert_eq!(commands.next(), Some("scripts/test"));
}

/// What is longer belongs to docs/guides/tour.md or another page.
#[test]
fn the_readme_fits_on_two_screens() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let lines = readme.lines().count();
    assert!(lines <= 110, "README.md has {lines} lines");
    assert!(readme.contains("docs/guides/tour.md#limitations"), "README.md leads to the limitations");
}

#[test]
fn scripts_can_be_run_from_anywhere() {
    use std::os::unix::fs::PermissionsExt;

    for script in ["scripts/test", ".ci/run"] {
        let path = root().join(script);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/usr/bin/env bash\n") && text.contains("set -euo pipefail"), "{script}");
        assert!(text.contains("cd \"$(dirname"), "{script} changes to its own folder first");
        assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0, "{script} is executable");
    }
}
