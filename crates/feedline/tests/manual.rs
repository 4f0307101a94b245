//! `feedline docs`: pages and searches, manual pages that groff and man-db accept, and generated pages of the reference
//! that equal what the program makes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::pty;
use crate::util::{Dir, Done};

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").canonicalize().unwrap()
}

fn docs(dir: &Dir, args: &[&str]) -> Done {
    dir.feedline(&[&["docs"], args].concat()).run()
}

#[test]
fn pages_are_listed_by_part_and_printed_as_they_are() {
    let dir = Dir::new();
    let list = docs(&dir, &[]).exits(0).silent().stdout;
    let json: Value = serde_json::from_str(&docs(&dir, &["--json"]).exits(0).stdout).unwrap();
    let pages = json["pages"].as_array().unwrap();
    assert!(pages.len() > 20, "{json}");
    for page in pages {
        let [name, path, part, title] =
            ["name", "path", "part", "title"].map(|key| page[key].as_str().unwrap());
        assert!(list.lines().any(|line| line == part), "{part}\n{list}");
        let row = |line: &str| line.split_whitespace().next() == Some(name) && line.ends_with(title);
        assert!(list.lines().any(row), "{name}\n{list}");
        let text = fs::read_to_string(reference().join("..").join(path)).unwrap();
        assert_eq!(docs(&dir, &[name]).exits(0).silent().stdout, text, "{name}");
    }
    let by_path = docs(&dir, &["explanation/cache"]).exits(0).stdout;
    assert_eq!(by_path, docs(&dir, &["docs/explanation/cache.md"]).exits(0).stdout);
    assert!(docs(&dir, &["cahce"]).exits(2).stderr.contains("did you mean 'cache'?"));
}

#[test]
fn a_search_prints_page_heading_and_line() {
    let dir = Dir::new();
    let found = docs(&dir, &["--search", "SHA256SUMS", "validate"]).exits(0).silent().stdout;
    let at =
        found.lines().position(|line| line.starts_with("results: ")).unwrap_or_else(|| panic!("{found}"));
    let row = found.lines().nth(at + 1).unwrap().trim();
    let (number, text) = row.split_once(' ').unwrap();
    let page = fs::read_to_string(reference().join("results.md")).unwrap();
    assert_eq!(page.lines().nth(number.parse::<usize>().unwrap() - 1).unwrap().trim(), text.trim());
    let json: Value =
        serde_json::from_str(&docs(&dir, &["--search", "SHA256SUMS", "--json"]).exits(0).stdout).unwrap();
    let matches = json["matches"].as_array().unwrap();
    assert!(!matches.is_empty());
    assert!(matches.iter().all(|row| row["text"].as_str().unwrap().contains("SHA256SUMS")));
    let none = docs(&dir, &["--search", "xyzzy"]).exits(0);
    assert!(none.stdout.is_empty() && none.stderr.contains("no paragraph has all of: xyzzy"));
}

#[test]
fn a_list_and_a_search_fit_into_a_terminal() {
    let dir = Dir::new();
    for args in [&["docs"][..], &["docs", "--search", "page", "cache"]] {
        let (code, output) = pty::run(&dir, 60, args);
        assert_eq!(code, Some(0), "{output}");
        for line in pty::screen(&output, usize::MAX) {
            assert!(line.chars().count() <= 60 || !line.trim().contains(' '), "{line}");
        }
    }
}

/// The manual pages of the program, by name.
fn man_pages(dir: &Dir) -> Vec<String> {
    docs(dir, &["--man", "man/man1"]).exits(0);
    let mut names: Vec<String> = fs::read_dir(dir.path("man/man1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The commands in the help, with the subcommands of `mlperf`.
fn commands(dir: &Dir) -> Vec<Vec<String>> {
    let names = |args: &[&str]| -> Vec<String> {
        let help = dir.feedline(args).run().exits(0).stdout;
        let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
        let names = list.lines().filter(|line| !line.starts_with("   "));
        names
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .filter(|name| name != "help")
            .collect()
    };
    let mut commands = vec![Vec::new()];
    commands.extend(names(&["--help"]).into_iter().map(|name| vec![name]));
    commands.extend(names(&["mlperf", "--help"]).into_iter().map(|name| vec!["mlperf".to_owned(), name]));
    commands
}

/// A manual page as man shows it at 80 columns. It must not cause a warning.
fn shown_page(dir: &Dir, file: &str) -> String {
    let page = dir.command(Path::new("man"), &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", file]);
    let page = page.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").env("GROFF_NO_SGR", "1");
    // Bold and underlined letters are struck twice.
    let mut plain = String::new();
    for letter in page.run().exits(0).silent().stdout.chars() {
        if letter == '\u{8}' {
            plain.pop();
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[test]
fn every_command_has_a_manual_page_without_warnings() {
    let dir = Dir::new();
    let names = man_pages(&dir);
    let mut expected: Vec<String> = commands(&dir)
        .iter()
        .map(|words| [&["feedline".to_owned()], &words[..]].concat().join("-") + ".1")
        .collect();
    expected.sort();
    assert_eq!(names, expected);
    for name in &names {
        let file = format!("man/man1/{name}");
        let shown = shown_page(&dir, &file);
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            assert!(shown.lines().any(|line| line == section), "{name} has no {section}:\n{shown}");
        }
        // What apropos and whatis store.
        let entry =
            dir.command(Path::new("lexgrog"), &[&file]).env("LC_ALL", "C.UTF-8").run().exits(0).stdout;
        let title = name.strip_suffix(".1").unwrap();
        assert!(entry.contains(&format!("\"{title} - ")) && !entry.contains("parse failed"), "{entry}");
    }
}

#[test]
fn a_warning_of_groff_is_noticed() {
    let dir = Dir::new();
    dir.write("bad.1", ".TH bad 1\n.SH NAME\nbad \\- a page\n.PP\n.nosuchmacro x\n");
    let done = dir.command(Path::new("man"), &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "bad.1"]).run();
    assert!(done.stderr.contains("nosuchmacro"), "{}", done.stderr);
    let entry = dir.command(Path::new("lexgrog"), &["bad.1"]).run().exits(0).stdout;
    assert!(entry.contains("\"bad - a page\""), "{entry}");
}

/// The commands and comments of a list of examples, without line breaks and spaces.
fn examples(text: &str, heading: &str) -> String {
    let block =
        text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no {heading}:\n{text}"));
    let lines: Vec<&str> =
        block.lines().take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    let end = lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len());
    let all = lines[..end].join(" ").replace('\\', " ");
    let mut words: Vec<&str> = all.split_whitespace().filter(|word| *word != "#").collect();
    // A comment that does not fit stands above its command.
    words.sort_unstable();
    words.join(" ")
}

#[test]
fn manual_pages_show_every_example_and_flag() {
    let dir = Dir::new();
    man_pages(&dir);
    for words in commands(&dir) {
        let file = format!("man/man1/{}.1", [&["feedline".to_owned()], &words[..]].concat().join("-"));
        let shown = shown_page(&dir, &file);
        // The help of `dlio` is that of Hydra.
        if words != ["dlio"] {
            let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
            let help = dir.feedline(&args).run().exits(0).stdout;
            assert_eq!(examples(&shown, "EXAMPLES"), examples(&help, "Examples:"), "{file}");
            for flag in help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
                let flag = flag.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                assert!(shown.contains(flag), "{file} does not show {flag}:\n{shown}");
            }
        }
        for line in shown.lines() {
            assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{file} at 80 columns: {line}");
        }
    }
}

#[test]
fn manual_pages_are_reproducible_and_replace_only_their_own() {
    let dir = Dir::new();
    man_pages(&dir);
    let before = dir.tree("man");
    let late =
        dir.feedline(&["docs", "--man", "man/man1"]).env("SOURCE_DATE_EPOCH", "1").env("COLUMNS", "40");
    late.run().exits(0);
    assert_eq!(before, dir.tree("man"));
    dir.write("other/feedline.1", "mine");
    let refused = docs(&dir, &["--man", "other"]).exits(3);
    assert!(refused.stderr.contains("was not written by feedline"), "{}", refused.stderr);
    assert_eq!(dir.read("other/feedline.1"), "mine");
}

/// If this fails and the change is intended, run it with FEEDLINE_UPDATE_SNAPSHOTS=1 and read the difference.
#[test]
fn generated_pages_are_those_of_this_program() {
    let dir = Dir::new();
    let into = |folder: &str| docs(&dir, &["--reference", folder]).exits(0);
    if std::env::var_os("FEEDLINE_UPDATE_SNAPSHOTS").is_some() {
        into(reference().to_str().unwrap());
    }
    into("made");
    let made = dir.tree("made");
    assert!(made.len() >= 6, "{:?}", made.keys());
    for (name, text) in made {
        let path = reference().join(&name);
        let expected = fs::read_to_string(&path).unwrap_or_default();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("<!-- Generated by 'feedline docs --reference DIR'"), "{name}");
        let how = "run 'FEEDLINE_UPDATE_SNAPSHOTS=1 scripts/test manual::' and read the difference";
        for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
            assert_eq!(line, expected, "line {} of docs/reference/{name}; {how}", number + 1);
        }
        assert_eq!(text, expected, "docs/reference/{name}; {how}");
    }
}
