//! A version can be cut, checked and released; and `scripts/release-check` names every fault that is planted in a small
//! repository with the real scripts and the real files that name the version. Nothing here builds or changes the
//! repository itself.

use std::fs;
use std::path::{Path, PathBuf};

use crate::util::{Dir, Done, walk};

/// Makes the repository `r` in the current folder from the one at `$ROOT`, with a change log of its own. `policy` is a
/// stand-in, because the real one installs tools. Cuts 0.2.0 and commits it.
const REPOSITORY: &str = r###"
set -euo pipefail
mkdir -p r/crates/audit/preload r/crates/feedline/tests/data/0.1.0 r/fuzz r/scripts
echo 1 >r/crates/feedline/tests/data/0.1.0/result
for file in .gitignore Cargo.toml Cargo.lock CITATION.cff crates/audit/preload/Cargo.toml \
    crates/audit/preload/Cargo.lock fuzz/Cargo.lock scripts/release-check scripts/release-cut scripts/release_files.py
do
    cp "$ROOT/$file" "r/$file"
done
printf '#!/bin/sh\necho checked\n' >r/scripts/policy
chmod +x r/scripts/policy
printf '# Changelog\n\n## Unreleased\n\n### Reading\n\n- It reads.\n\n' >r/CHANGELOG.md
printf '## 0.1.0 - 2024-05-06\n\n- The first one.\n' >>r/CHANGELOG.md
cd r
git init -q -b main
git add -A
git commit -qm first
git tag v0.1.0
cp -r crates/feedline/tests/data/0.1.0 crates/feedline/tests/data/0.2.0
scripts/release-cut 0.2.0 --date 2025-01-02
git add -A
git commit -qm "release: 0.2.0"
"###;

/// Makes stand-ins for the packages of the commit in `r`. The program is a script.
const PACKAGES: &str = r#"
set -euo pipefail
cd r
rm -rf target/packages
mkdir -p target/packages/feedline-0.2.0-x86_64-unknown-linux-gnu/bin
cd target/packages
program=feedline-0.2.0-x86_64-unknown-linux-gnu/bin/feedline
printf '#!/bin/sh\necho "feedline 0.2.0 (%s 2025-01-02)"\n' "$(git rev-parse --short=12 HEAD)" >"$program"
tar -czf feedline-0.2.0-x86_64-unknown-linux-gnu.tar.gz "${program%%/*}"
rm -r "${program%%/*}"
touch feedline-0.2.0-py3-none-manylinux_2_17_x86_64.whl feedline_0.2.0_amd64.deb feedline-0.2.0.cdx.json
sha256sum -- * >SHA256SUMS
touch THIRD-PARTY-LICENSES.txt
"#;

/// A fault: the command that plants it before the commit, the one that plants it after the packages were made, the
/// check that finds it, and a part of the message.
struct Fault(&'static str, &'static str, &'static str, &'static str);

const FAULTS: [Fault; 31] = [
    Fault("", "echo >>Cargo.toml", "tree", "not committed: Cargo.toml"),
    Fault("", "touch new", "tree", "not committed: new"),
    Fault(
        "",
        "rm CITATION.cff && git checkout -q CITATION.cff && git rm -q --cached CITATION.cff",
        "tree",
        "CITATION.cff",
    ),
    Fault(
        "sed -i 's/^version = .*/version = \"0.2.1\"/' Cargo.toml",
        "",
        "version",
        "Cargo.toml: the version is 0.2.1",
    ),
    Fault(
        "sed -i 's/^version = .*/version = \"0.1.0\"/' crates/audit/preload/Cargo.toml",
        "",
        "version",
        "crates/audit/preload/Cargo.toml: the version is 0.1.0, not 0.2.0",
    ),
    Fault("sed -i '/^version = /d' Cargo.toml", "", "version", "Cargo.toml: the version is"),
    Fault(
        "sed -i '/^name = \"feedline-store\"/{n;s/0.2.0/0.1.0/}' Cargo.lock",
        "",
        "version",
        "Cargo.lock: feedline-store is 0.1.0, not 0.2.0",
    ),
    Fault(
        "sed -i '/^name = \"feedline-model\"/{n;s/0.2.0/0.1.0/}' fuzz/Cargo.lock",
        "",
        "version",
        "fuzz/Cargo.lock: feedline-model is 0.1.0",
    ),
    Fault(
        "sed -i 's/^## Unreleased/&\\n\\n- Late./' CHANGELOG.md",
        "",
        "changelog",
        "`Unreleased` is not empty; its first line: - Late.",
    ),
    Fault(
        "sed -i '/^## Unreleased/d' CHANGELOG.md",
        "",
        "changelog",
        "the first section is not `## Unreleased`",
    ),
    Fault(
        "sed -i 's/^## 0.2.0 - .*/## 0.2/' CHANGELOG.md",
        "",
        "changelog",
        "there is no section `## 0.2.0 - DATE`",
    ),
    Fault(
        "sed -i 's/^## 0.2.0 - .*/## 0.2.0/' CHANGELOG.md; sed -i '/^date-released/s/2.*/\"/' CITATION.cff",
        "",
        "changelog",
        "the section 0.2.0 has no date of the form 2026-11-19: ''",
    ),
    Fault(
        "sed -i s/2025-01-02/2025-02-30/ CHANGELOG.md CITATION.cff",
        "",
        "changelog",
        "has no date of the form 2026-11-19: '2025-02-30'",
    ),
    Fault(
        "sed -i s/2025-01-02/2999-01-02/ CHANGELOG.md CITATION.cff",
        "",
        "changelog",
        "is in the future: 2999-01-02",
    ),
    Fault(
        "sed -i '/^### Reading/d; /It reads/d' CHANGELOG.md",
        "",
        "changelog",
        "the section 0.2.0 is empty",
    ),
    Fault(
        "sed -i 's/^## Unreleased/&\\n\\n## 0.1.9 - 2024-12-31\\n\\n- Between./' CHANGELOG.md",
        "",
        "changelog",
        "the section after `Unreleased` is 0.1.9 - 2024-12-31, not 0.2.0",
    ),
    Fault(
        "sed -i 's/^version: .*/version: 0.1.0/' CITATION.cff",
        "",
        "citation",
        "version is 0.1.0, not 0.2.0",
    ),
    Fault(
        "sed -i s/2025-01-02/2025-01-03/ CITATION.cff",
        "",
        "citation",
        "date-released is 2025-01-03, not 2025-01-02",
    ),
    Fault(
        "rm -r crates/feedline/tests/data/0.2.0",
        "",
        "corpus",
        "crates/feedline/tests/data/0.2.0 is missing; scripts/corpus makes it",
    ),
    Fault(
        "echo 2 >crates/feedline/tests/data/0.1.0/result",
        "",
        "corpus",
        "crates/feedline/tests/data/0.1.0 differs from that of the tag v0.1.0",
    ),
    Fault("", "git tag v0.2.0", "tag", "the tag v0.2.0 exists already"),
    Fault("", "git tag v0.10.0", "tag", "0.2.0 is older than the tag v0.10.0"),
    Fault(
        "printf '#!/bin/sh\\necho a banned crate\\nexit 1\\n' >scripts/policy",
        "",
        "policy",
        "scripts/policy ends with 1:\n  a banned crate",
    ),
    Fault("", "rm -r target/packages", "packages", "there are no packages; scripts/package makes them"),
    Fault(
        "",
        "cd target/packages && rm *.whl && sed -i /whl/d SHA256SUMS",
        "packages",
        "the wheel is missing: feedline-0.2.0-py3-none-manylinux*.whl",
    ),
    Fault("", "rm target/packages/SHA256SUMS", "packages", "SHA256SUMS is missing"),
    Fault(
        "",
        "rm target/packages/*.deb",
        "packages",
        "feedline_0.2.0_amd64.deb is in SHA256SUMS and missing",
    ),
    Fault(
        "",
        "echo >>target/packages/feedline-0.2.0.cdx.json",
        "packages",
        "cdx.json has another sum than in SHA256SUMS",
    ),
    Fault(
        "",
        "touch target/packages/feedline_0.1.0_amd64.deb",
        "packages",
        "target/packages/feedline_0.1.0_amd64.deb is not in SHA256SUMS",
    ),
    Fault("", "git commit -q --allow-empty -m later", "packages", "its program was built from"),
    Fault(
        "",
        "cd target/packages && tar -xzf *.gz && sed -i s/0.2.0/0.1.0/ */bin/feedline && tar -czf *.gz */bin && \
         rm -r */ && sha256sum feed* >SHA256SUMS",
        "packages",
        "its program is 'feedline 0.1.0 (",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A script of bash in the folder, without the git settings of the user.
fn bash(dir: &Dir, script: &str) -> Done {
    let command = dir.command(Path::new("bash"), &["-c", script]).env("ROOT", root());
    let command = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let people = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    people.iter().fold(command, |command, name| command.env(name, "test")).run()
}

/// The checks that found a fault.
fn faulty(done: &Done) -> Vec<&str> {
    let lines = done.stdout.lines().filter(|line| !line.starts_with(' '));
    let checks = lines.filter_map(|line| line.split_once(": "));
    checks.filter(|(_, outcome)| outcome.contains("fault")).map(|(check, _)| check).collect()
}

#[test]
fn a_version_is_cut_checked_and_tagged() {
    let dir = Dir::new();
    bash(&dir, REPOSITORY).exits(0).prints("0.2.0 - 2025-01-02");
    let expected = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2025-01-02\n\n### Reading\n\n- It reads.\n\n\
                    ## 0.1.0 - 2024-05-06\n\n- The first one.\n";
    assert_eq!(dir.read("r/CHANGELOG.md"), expected);
    bash(&dir, PACKAGES).exits(0);
    bash(&dir, "r/scripts/release-check 0.2.0").exits(0).prints("\n0.2.0 can be released\n");
    bash(&dir, "r/scripts/release-check --tagged 0.2.0").exits(1).prints("there is no tag v0.2.0");
    bash(&dir, "git -C r tag -a -m x v0.2.0 && r/scripts/release-check --tagged 0.2.0").exits(0);
    let notes = bash(&dir, "r/scripts/release-check --notes 0.2.0").exits(0);
    assert_eq!(notes.stdout, "### Reading\n\n- It reads.\n");
    bash(
        &dir,
        "git -C r commit -q --allow-empty -m later; r/scripts/release-check --tagged 0.2.0 --only tag",
    )
    .exits(1)
    .prints("the tag v0.2.0 is at another commit");
    bash(&dir, "r/scripts/release-cut 0.2.0").exits(1).says("a version is released once");
}

#[test]
fn a_version_that_has_no_tag_can_be_cut_again() {
    let dir = Dir::new();
    bash(&dir, REPOSITORY).exits(0);
    let late = "## Unreleased\n\n### Writing\n\n- It writes.\n\n### Reading\n\n- Late.";
    dir.write("r/CHANGELOG.md", dir.read("r/CHANGELOG.md").replace("## Unreleased", late));
    bash(&dir, "r/scripts/release-cut 0.2.0 --date 2025-01-03").exits(0);
    let expected = "## Unreleased\n\n## 0.2.0 - 2025-01-03\n\n### Writing\n\n- It writes.\n\n\
                    ### Reading\n\n- Late.\n- It reads.\n\n## 0.1.0";
    assert!(dir.read("r/CHANGELOG.md").contains(expected), "{}", dir.read("r/CHANGELOG.md"));
    assert!(dir.read("r/CITATION.cff").contains("date-released: \"2025-01-03\""));
}

#[test]
fn every_planted_fault_is_found() {
    let dir = Dir::new();
    bash(&dir, REPOSITORY).exits(0);
    bash(&dir, "mv r good").exits(0);
    for Fault(edit, damage, check, message) in FAULTS {
        bash(&dir, "rm -rf r && cp -a good r").exits(0);
        if !edit.is_empty() {
            bash(&dir, &format!("cd r && {edit} && ! git diff --quiet && git commit -qam faulty")).exits(0);
        }
        bash(&dir, PACKAGES).exits(0);
        if !damage.is_empty() {
            bash(&dir, &format!("cd r && {damage}")).exits(0);
        }
        let done = bash(&dir, "r/scripts/release-check 0.2.0").exits(1).prints(message);
        let done = done.says("0.2.0 cannot be released");
        assert_eq!(faulty(&done), [check], "{edit}{damage}\n{}", done.stdout);
    }
}

#[test]
fn wrong_versions_and_checks_are_refused() {
    let dir = Dir::new();
    bash(&dir, REPOSITORY).exits(0);
    for arguments in ["v0.2.0", "0.2", "0.02.0", "0.2.0-beta", "''", "0.2.0 --only tree,tidy"] {
        bash(&dir, &format!("r/scripts/release-check {arguments}")).exits(2);
    }
    for arguments in ["0.3.0 --date 2025-1-2", "0.3", "0.3.0 --date tomorrow"] {
        bash(&dir, &format!("r/scripts/release-cut {arguments}")).exits(2);
    }
    bash(&dir, "r/scripts/release-cut 0.3.0").exits(1).says("there is nothing to release");
    bash(&dir, "git -C r diff --exit-code").exits(0);
}

#[test]
fn this_version_is_the_same_in_all_files() {
    let check = root().join("scripts/release-check");
    let dir = Dir::new();
    let arguments = [env!("CARGO_PKG_VERSION"), "--only", "version,citation"];
    dir.command(&check, &arguments).run().exits(0).prints("version: ok\ncitation: ok\n");
}

/// The versions that follow `before` in a text, such as 1.95 in `Rust 1.95`.
fn versions_after(text: &str, before: &str) -> Vec<String> {
    let numbers = text.split(before).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    });
    numbers.filter(|number| number.starts_with("1.")).collect()
}

#[test]
fn the_oldest_compiler_is_the_same_in_all_files() {
    assert_eq!(versions_after("Rust 1.95.\nRust 1.9 and Rust is", "Rust "), ["1.95", "1.9"]);
    let promised = env!("CARGO_PKG_RUST_VERSION");
    let mut pages = vec!["README.md", "CONTRIBUTING.md", "RELEASING.md"]
        .into_iter()
        .map(|name| root().join(name))
        .collect();
    let take = |folder: &str, ending: &str, into: &mut Vec<PathBuf>| {
        walk(&root().join(folder), &mut |path| {
            into.extend(path.to_str().is_some_and(|name| name.ends_with(ending)).then(|| path.to_owned()));
        });
    };
    take("docs", ".md", &mut pages);
    let mut workflows = Vec::new();
    take(".github/workflows", ".yml", &mut workflows);
    let places = [
        (pages, "Rust "),
        (workflows, "image: rust:"),
        (vec![root().join("clippy.toml")], "msrv = \""),
        (
            vec![root().join("Cargo.toml"), root().join("crates/audit/preload/Cargo.toml")],
            "rust-version = \"",
        ),
    ];
    let mut found = 0;
    for (files, before) in places {
        for file in files {
            for version in versions_after(&fs::read_to_string(&file).unwrap(), before) {
                found += 1;
                assert_eq!(version, promised, "{}: {before}{version}", file.display());
            }
        }
    }
    assert!(found >= 5, "only {found} places name the oldest compiler");
}

#[test]
fn the_tests_that_documents_name_exist() {
    let modules = fs::read_to_string(root().join("crates/feedline/tests/main.rs")).unwrap();
    let mut found = 0;
    for page in ["CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for rest in text.split("scripts/test ").skip(1) {
            let name = rest.split("::").next().unwrap();
            if name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                found += 1;
                // The models of the engine are the one exception: unit tests of another crate.
                assert!(name == "models" || modules.contains(&format!("\nmod {name};\n")), "{page}: {name}");
            }
        }
    }
    assert!(found > 5, "only {found} tests are named");
}
