//! Completion scripts in real shells: they offer workloads, backends, and keys with their words.

use std::path::Path;

use crate::util::Dir;

/// What was typed, and words that must and must not be offered.
const CASES: [(&str, &[&str], &str); 11] = [
    ("run unet3d_", &["unet3d_b200", "unet3d_h100"], "demo"),
    ("plan dem", &["demo"], "default"),
    ("workloads llama3_", &["llama3_8b"], "demo"),
    ("run demo --store ", &["posix", "uring", "null"], "demo"),
    ("run demo --set reader.batch", &["reader.batch_size=", "reader.batch_size_eval="], "reader.cache="),
    ("run demo --set storage.anon", &["storage.anonymous="], "storage.store="),
    ("catalog data --set storage.", &["storage.anonymous=", "storage.proxy="], "storage.store="),
    ("sweep demo --over ran", &["ranks="], "reader.cache="),
    ("sweep demo --over reader.prefetch", &["reader.prefetch_size="], "ranks="),
    ("docs ca", &["cache", "catalog"], "results"),
    ("run demo --stall", &["--stall-timeout"], "--store"),
];

fn shell(dir: &Dir, program: &str, script: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_feedline")).parent().unwrap();
    let path = format!("export PATH='{}':\"$PATH\"; {script}", binary.display());
    let arguments: &[&str] = if program == "bash" { &["--norc", "-c"] } else { &["-c"] };
    dir.command(Path::new(program), &[arguments, &[path.as_str()]].concat()).run().exits(0).silent().stdout
}

fn check(program: &str, offered: impl Fn(&Dir, &str) -> String) {
    let dir = Dir::new();
    let script = dir.feedline(&["completions", program]).run().exits(0).silent().stdout;
    dir.write("script", script);
    dir.write("mine.yaml", "");
    for (typed, expected, other) in CASES {
        let answer = offered(&dir, typed);
        let words: Vec<&str> = answer.lines().map(|line| line.split(['\t', ':']).next().unwrap()).collect();
        for word in expected {
            assert!(words.contains(word), "{program}: 'feedline {typed}' does not offer {word}: {words:?}");
        }
        assert!(!words.contains(&other), "{program}: 'feedline {typed}' offers {other}");
    }
    let files = offered(&dir, "run ./mi");
    assert!(files.contains("./mine.yaml"), "{program}: {files}");
}

/// The words as bash passes them to a completion function: '=' is a word of its own.
fn bash(dir: &Dir, typed: &str) -> String {
    let mut words: Vec<String> = vec!["feedline".into()];
    for word in typed.split(' ') {
        let parts: Vec<&str> = word.split_inclusive('=').collect();
        for part in if parts.is_empty() { vec![""] } else { parts } {
            match part.strip_suffix('=') {
                Some(key) => words.extend([key.to_owned(), "=".to_owned()]),
                None => words.push(part.to_owned()),
            }
        }
    }
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.len() - 1;
    let current = if words[last] == "=" { "" } else { &words[last] };
    let script = format!(
        "source ./script; COMP_WORDS=({}); COMP_CWORD={last}; compopt() {{ :; }}; \
         _feedline feedline '{current}' '{}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words[last - 1]
    );
    shell(dir, "bash", &script)
}

#[test]
fn bash_offers_names_keys_and_words() {
    check("bash", bash);
    let dir = Dir::new();
    let script = dir.feedline(&["completions", "bash"]).run().exits(0).stdout;
    dir.write("script", script);
    // Only what follows '=' replaces the word.
    assert_eq!(
        bash(&dir, "run demo --set reader.cache=").trim(),
        "cold\nwarm\nas-is\nfirst-cold\nepoch-cold"
    );
    assert_eq!(bash(&dir, "run demo --set reader.cache=w").trim(), "warm");
    assert_eq!(bash(&dir, "run demo --store=po").trim(), "posix");
    let registered = shell(&dir, "bash", "source ./script; complete -p feedline");
    assert!(registered.contains("-F _feedline feedline"), "{registered}");
}

#[test]
fn fish_offers_names_keys_and_words() {
    let offered = |dir: &Dir, typed: &str| {
        shell(dir, "fish", &format!("source ./script; complete -C 'feedline {typed}'"))
    };
    check("fish", offered);
}

#[test]
fn zsh_offers_names_keys_and_words() {
    // `_describe` shows candidates in a terminal; here it prints them.
    let offered = |dir: &Dir, typed: &str| {
        let words: Vec<String> = typed.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!(
            "compdef() {{ :; }}; _describe() {{ print -rl -- ${{(P)3}}; }}; source ./script; \
             words=(feedline {}); CURRENT={}; _clap_dynamic_completer_feedline",
            words.join(" "),
            words.len() + 1
        );
        shell(dir, "zsh", &script)
    };
    check("zsh", offered);
}

/// The folder of the program, before those of `PATH`.
fn search_path() -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_feedline")).parent().unwrap();
    format!("{}:{}", binary.display(), std::env::var("PATH").unwrap())
}

#[test]
fn elvish_offers_names_keys_and_words() {
    // The module `edit:` exists in a terminal only; this one stands for it.
    let edit = "var edit: = (ns [&'completion:'=(ns [&arg-completer=[&]])])";
    let offered = |dir: &Dir, typed: &str| {
        let words: Vec<String> = typed.split(' ').map(|word| format!("'{word}'")).collect();
        let call = format!("$edit:completion:arg-completer[feedline] feedline {}", words.join(" "));
        dir.write(
            "test.elv",
            format!("{edit}\n{}\n{call} | each {{ |word| echo $word }}\n", dir.read("script")),
        );
        let command = dir.command(Path::new("elvish"), &["-norc", "test.elv"]);
        command.env("PATH", search_path()).run().exits(0).silent().stdout
    };
    check("elvish", offered);
}

/// Debian has no PowerShell: this passes what the script passes.
#[test]
fn the_script_for_powershell_gets_names_with_their_meaning() {
    let dir = Dir::new();
    let script = dir.feedline(&["completions", "powershell"]).run().exits(0).silent().stdout;
    assert!(script.contains("Register-ArgumentCompleter -Native -CommandName feedline"), "{script}");
    let command = dir.feedline(&["--", "feedline", "docs", "ca"]).env("FEEDLINE_COMPLETE", "powershell");
    let offered = command.run().exits(0).silent().stdout;
    assert!(offered.lines().any(|line| line == "cache\tCached reads"), "{offered}");
}
