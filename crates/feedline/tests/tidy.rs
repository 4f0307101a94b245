//! The repository's own text keeps the house's rules: sizes, names, crate direction, the one clock, no leftovers. A
//! rule that only people know is a rule that will be broken.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::util::{Dir, relative, walk};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of the repository.
struct File {
    /// Relative to the repository.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Source of the program, as opposed to tests, benches and examples.
    fn is_source(&self) -> bool {
        self.is_rust() && self.path.contains("/src/")
    }

    /// The text without the unit tests at its foot.
    fn code(&self) -> &str {
        let end = self.text.find("\n#[cfg(test)]\nmod tests {").map_or(self.text.len(), |at| at + 1);
        &self.text[..end]
    }

    /// `path:line` of each line that `wrong` picks.
    fn lines_where(text: &str, path: &str, wrong: impl Fn(&str) -> bool) -> Vec<String> {
        let found = text.lines().enumerate().filter(|(_, line)| wrong(line));
        found.map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim())).collect()
    }
}

/// Every text file of the repository; what git ignores is left out.
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

/// Source files that are compiled for unit tests only: `#[cfg(test)]` stands before their `mod`.
fn test_modules(files: &[File]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_source()) {
        let folder = Path::new(&file.path).parent().unwrap();
        let mut lines = file.text.lines().peekable();
        while let Some(line) = lines.next() {
            let module = lines.peek().and_then(|next| next.strip_prefix("mod ")?.strip_suffix(';'));
            if let (true, Some(module)) = (line == "#[cfg(test)]", module) {
                found.insert(folder.join(format!("{module}.rs")).to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// The program's source without tests.
fn sources() -> Vec<File> {
    let all = files();
    let tests = test_modules(&all);
    all.into_iter().filter(|file| file.is_source() && !tests.contains(&file.path)).collect()
}

#[track_caller]
fn none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

/// Whether `word` stands in the line as a word of its own.
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

/// First line and length of each function. The text is formatted, so a function ends at the first brace that stands
/// as far to the left as it does.
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
fn the_function_scan_sees_functions() {
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
    assert!(count > 300, "only {count} functions were seen in the whole workspace");
}

#[test]
fn every_file_says_what_it_is_for() {
    let found: Vec<String> = files()
        .iter()
        .filter(|file| file.is_rust() && !file.text.starts_with("//! "))
        .map(|file| file.path.clone())
        .collect();
    none("a file opens with //!", &found);
}

#[test]
fn names_say_something() {
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

/// Which crates of the workspace each crate may use.
const DIRECTION: [(&str, &[&str]); 6] = [
    ("model", &[]),
    ("format", &["model"]),
    ("store", &["model"]),
    ("engine", &["model", "format", "store"]),
    ("session", &["model", "format", "store", "engine"]),
    ("feedline", &["model", "format", "store", "engine", "session"]),
];

#[test]
fn crates_point_in_one_direction() {
    let crates: Vec<&str> = DIRECTION.iter().map(|(name, _)| *name).collect();
    let mut seen = 0;
    for file in files() {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let allowed = DIRECTION.iter().find(|(other, _)| *other == name);
        let allowed = allowed.unwrap_or_else(|| panic!("crate {name} is not in the table: add it")).1;
        seen += 1;
        for line in file.text.lines() {
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            let used = crates.contains(&dependency) && dependency != name && line.contains('=');
            assert!(!used || allowed.contains(&dependency), "{name} may not use {dependency}");
        }
    }
    assert_eq!(seen, crates.len());
}

#[test]
fn model_and_format_touch_nothing() {
    let banned = ["std::fs", "std::net", "std::process", "std::time", "std::thread", "std::env", "std::os"];
    let mut found = Vec::new();
    for file in sources() {
        if file.path.starts_with("crates/model/") || file.path.starts_with("crates/format/") {
            found.extend(File::lines_where(file.code(), &file.path, |line| {
                banned.iter().any(|module| has_word(line, module))
                    || ["Instant", "SystemTime", "println!", "eprintln!"]
                        .iter()
                        .any(|word| has_word(line, word))
            }));
        }
    }
    none("model and format know no file, clock, thread or environment", &found);
}

#[test]
fn there_is_one_clock() {
    let reads =
        ["Instant::now", "SystemTime::now", "clock_gettime", "Zoned::now", "Timestamp::now", "gettimeofday"];
    let mut found = Vec::new();
    for file in sources().iter().filter(|file| file.path != "crates/engine/src/meter.rs") {
        let reads_clock = |line: &str| reads.iter().any(|call| line.contains(call));
        found.extend(File::lines_where(file.code(), &file.path, reads_clock));
    }
    none("time is read in engine/src/meter.rs only", &found);
}

/// Reads of facts about the host, which decide what can run on it: memory, cores, limits, names, boots.
const HOST_FACTS: [&str; 14] = [
    "Host::look",
    "HostCounts",
    "host::seen_since",
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
const READS_HOST_FACTS: [(&str, &str); 5] = [
    ("crates/engine/src/host.rs", "defines them"),
    ("crates/engine/src/generate/claim.rs", "records the boot in which files were written and not flushed"),
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
    // Put together here, so that this file does not find itself.
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
    none("finished, or not there; an ignored test says why", &found);
}

#[test]
fn files_are_made_and_removed_in_one_place() {
    // Beside it: files without a name, and what is written to the kernel.
    let allowed = ["crates/store/src/held.rs", "crates/store/src/folder.rs", "crates/engine/src/cache.rs"];
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
        "renameat",
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
        // The number of a call is not the call.
        let is_code = |line: &str| !line.trim().starts_with("//") && !line.contains("libc::SYS_");
        let makes = |line: &str| is_code(line) && calls.iter().any(|call| line.contains(call));
        found.extend(File::lines_where(file.code(), &file.path, makes));
    }
    none("files and folders are made, replaced and removed by store/held.rs", &found);
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
fn no_path_of_somebodys_machine() {
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
    none("no absolute path of one machine", &found);
}

#[test]
fn every_dependency_is_argued() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let section = manifest.split("\n[workspace.dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let dependencies: Vec<&str> = section.lines().filter(|line| line.contains(" = ")).collect();
    assert!(dependencies.len() > 10);
    let mute = dependencies.iter().filter(|line| !line.contains("path = ") && !line.contains(" # "));
    none("every outside crate has its reason beside it", &mute.map(ToString::to_string).collect::<Vec<_>>());
}

#[test]
fn versions_stand_in_one_place() {
    let mut found = Vec::new();
    for file in
        files().iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with("Cargo.toml"))
    {
        let pinned =
            |line: &str| line.contains("version = \"") || line.contains(" = \"0") || line.contains(" = \"1");
        found.extend(File::lines_where(&file.text, &file.path, pinned));
    }
    none("versions stand in the workspace's Cargo.toml", &found);
}

#[test]
fn the_readme_begins_with_the_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands = blocks
        .flat_map(str::lines)
        .map(|line| line.split(" #").next().unwrap().trim())
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(commands.next(), Some("cargo run --release -- run"));
    assert_eq!(commands.next(), Some("scripts/test"));
}

/// Phrases that readers found hard to understand, each with what to write instead. They count in any case of letters,
/// and across line breaks.
const BANNED_PHRASES: [(&str, &str); 22] = [
    ("road", "I/O backend"),
    ("roads", "I/O backends"),
    ("in vain", "without effect"),
    ("nobody", "name the component, or say what is missing"),
    ("somebody", "name the component"),
    ("rooms", "crates, space"),
    ("whoever", "name the component"),
    ("gets on", "makes progress"),
    ("goes on", "continues, resumes"),
    ("go on", "continue, resume"),
    ("so many", "this many, the number"),
    ("so long", "this long"),
    ("so-many-th", "Nth"),
    ("is told", "is reported"),
    ("is said", "is reported"),
    ("may be believed", "can be trusted"),
    ("of any make", "from any writer, existing"),
    ("besides", "in addition"),
    ("likewise", "the same"),
    ("stands still", "pauses, is blocked"),
    ("on its way", "in flight, in progress"),
    ("for ever", "forever"),
];

/// The banned phrases in a text, with the words around each.
fn banned_phrases(source: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let flowing = words.join(" ");
    let mut found = Vec::new();
    for (phrase, instead) in BANNED_PHRASES {
        for line in flowing.split_inclusive(['.', '|', ';']).filter(|line| has_word(line, phrase)) {
            found.push(format!("{source}: '{phrase}' (rather: {instead}) in: {}", line.trim()));
        }
    }
    found
}

#[test]
fn the_phrase_scan_sees_phrases() {
    let found = banned_phrases("x", "It waits for so\nmany bytes. Whoever asks, broadroads and goes one.");
    let phrases: Vec<&str> = found.iter().map(|line| line.split('\'').nth(1).unwrap()).collect();
    assert_eq!(phrases, ["whoever", "so many"]);
}

#[test]
fn documentation_is_plain_english() {
    let mut found = Vec::new();
    let mut pages = 0;
    for file in files() {
        let is_page = ["README.md", "CONTRIBUTING.md"].contains(&file.path.as_str())
            || (file.path.starts_with("docs/") && file.path.ends_with(".md"));
        if is_page {
            pages += 1;
            found.extend(banned_phrases(&file.path, &file.text));
        }
    }
    assert!(pages > 8, "only {pages} pages were seen");
    none("these phrases are hard to understand", &found);
}

#[test]
fn help_is_plain_english() {
    let dir = Dir::new();
    let help = |arguments: &[&str]| dir.feedline(arguments).run().exits(0).stdout.clone();
    let overview = help(&["--help"]);
    let commands: Vec<&str> = overview
        .split("\nCommands:\n")
        .nth(1)
        .unwrap()
        .lines()
        .take_while(|line| !line.is_empty())
        // A command is indented by two; the lines that continue its description by more.
        .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.contains(&"run") && commands.len() >= 12, "{commands:?}");
    let mut found = banned_phrases("feedline --help", &overview);
    for command in commands {
        found.extend(banned_phrases(&format!("feedline {command} --help"), &help(&[command, "--help"])));
    }
    none("these phrases are hard to understand", &found);
}

#[test]
fn scripts_can_be_run_from_anywhere() {
    use std::os::unix::fs::PermissionsExt;

    for script in ["scripts/test", ".ci/run"] {
        let path = root().join(script);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/usr/bin/env bash\n") && text.contains("set -euo pipefail"), "{script}");
        assert!(text.contains("cd \"$(dirname"), "{script} goes to its own place first");
        assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0, "{script} is executable");
    }
}
