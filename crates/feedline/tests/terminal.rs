//! What a user sees on a terminal: everything fits into its width, examples can be pasted, verdicts have colours, and
//! Ctrl-C is acknowledged at once. The tests run the program on a pseudo-terminal.

use std::fs;
use std::path::Path;

use crate::pty::{PtyCommand, run, screen};
use crate::util::{Dir, SMALL};

/// The commands, from the help.
fn commands(dir: &Dir) -> Vec<String> {
    let help = dir.feedline(&["--help"]).run().exits(0).stdout;
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // The help of `dlio` is that of Hydra.
    let names = list.lines().filter(|line| {
        !line.starts_with("   ") && !line.starts_with("  help ") && !line.starts_with("  dlio ")
    });
    let names: Vec<String> = names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// The output as lines without colours.
fn lines(output: &str) -> Vec<String> {
    screen(output, usize::MAX)
}

/// Fails if a line is wider than the terminal, which would break it anywhere. `but` accepts a line that cannot be
/// shorter.
#[track_caller]
fn fits(output: &str, columns: u16, but: impl Fn(&str) -> bool) {
    for line in lines(output) {
        let width = line.chars().count();
        assert!(
            width <= usize::from(columns) || but(&line),
            "{width} columns at {columns}: {line}\n{output}"
        );
    }
}

/// The commands among the examples of a help text, as a shell reads them.
fn examples(help: &str) -> Vec<String> {
    let block = help.split("Examples:\n").nth(1).unwrap().split("\n\n").next().unwrap().replace(" \\\n", " ");
    let commands = block.lines().map(|line| line.split(" # ").next().unwrap());
    let words = commands.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn help_fits_and_its_examples_can_be_pasted_at_any_width() {
    let dir = Dir::new();
    for command in [vec![String::new()], commands(&dir)].concat() {
        let args: Vec<&str> =
            [command.as_str(), "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let (code, wide) = run(&dir, 200, &args);
        assert_eq!(code, Some(0), "{wide}");
        let expected = examples(&lines(&wide).join("\n"));
        assert!(!expected.is_empty(), "{wide}");
        for columns in [40, 60, 80, 200] {
            let (_, help) = run(&dir, columns, &args);
            // The usage is one line, and a word is never broken.
            let is_whole =
                |line: &str| line.starts_with("Usage:") || !line.trim().trim_end_matches(" \\").contains(' ');
            fits(&help, columns, |line| columns < 80 && is_whole(line));
            assert_eq!(examples(&lines(&help).join("\n")), expected, "{command} at {columns}");
        }
    }
}

/// Compares with the file in tests/snapshots, or writes it if FEEDLINE_UPDATE_SNAPSHOTS is set.
#[track_caller]
fn same_as_snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("FEEDLINE_UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let how = "if the change is intended, run the test again with FEEDLINE_UPDATE_SNAPSHOTS=1";
    for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "line {} of {name}; {how}", number + 1);
    }
    assert_eq!(text, expected, "{name}; {how}");
}

#[test]
fn help_at_80_and_200_columns_is_as_recorded() {
    let dir = Dir::new();
    for columns in [80, 200] {
        let mut text = String::new();
        for command in [vec![String::new()], commands(&dir)].concat() {
            let args: Vec<&str> =
                [command.as_str(), "--help"].into_iter().filter(|word| !word.is_empty()).collect();
            let (_, help) = run(&dir, columns, &args);
            text.push_str(&format!(
                "$ feedline {}\n{}\n\n",
                args.join(" "),
                lines(&help).join("\n").trim_end()
            ));
        }
        same_as_snapshot(&format!("help-{columns}.txt"), &text);
    }
}

#[test]
fn plans_and_lists_at_80_and_200_columns_are_as_recorded() {
    let dir = Dir::small();
    let memory = ["--host-memory", "256GiB", "--quiet"];
    let reports: [&[&str]; 5] = [
        &[&["plan", "w.yaml"], &memory[..]].concat(),
        &[&["plan", "unet3d_h100", "--ranks", "8"], &memory[..]].concat(),
        &[&["plan", "llama3_8b"], &memory[..]].concat(),
        &[&["plan", "unet3d_b200", "--hosts", "1,2,4,8", "--ranks-per-host", "8"], &memory[..]].concat(),
        &["workloads"],
    ];
    for columns in [80, 200] {
        let mut text = String::new();
        for args in reports {
            let (code, report) = run(&dir, columns, args);
            assert_eq!(code, Some(0), "{report}");
            fits(&report, columns, |_| false);
            // The free space differs from host to host.
            let shown =
                lines(&report).into_iter().filter(|line| !line.contains("disk") && !line.contains(" free"));
            let shown = shown.collect::<Vec<_>>().join("\n");
            text.push_str(&format!("$ feedline {}\n{}\n\n", args.join(" "), shown.trim_end()));
        }
        same_as_snapshot(&format!("reports-{columns}.txt"), &text);
    }
}

/// `SMALL` with steps of 5 ms, enough files for every study, and a checkpoint in each epoch.
fn studied() -> Dir {
    let dir = Dir::new();
    let text = SMALL.replace("computation_time: 0", "computation_time: 0.005");
    let text = text.replace("num_files_train: 24", "num_files_train: 200");
    dir.write(
        "w.yaml",
        format!("{text}workflow: {{checkpoint: true}}\nmodel: {{model_size_bytes: 1000000}}\n"),
    );
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

#[test]
fn every_report_fits_into_every_terminal() {
    let dir = studied();
    for columns in [40, 60, 80, 200] {
        let results = format!("r{columns}");
        let report = |args: &[&str]| {
            let (code, output) = run(&dir, columns, args);
            assert!([Some(0), Some(5)].contains(&code), "{args:?}: {output}");
            fits(&output, columns, |line| !line.trim().contains(' '));
            output
        };
        let [one, two] = ["1", "2"].map(|side| format!("{results}/{side}"));
        report(&["run", "w.yaml", "-q", "--results-dir", &one]);
        report(&["run", "w.yaml", "-q", "--results-dir", &two, "--no-calibration"]);
        let [one, two] = [one, two].map(|side| format!("{side}/w"));
        report(&["validate", &one]);
        report(&["compare", &one, &two, "--force"]);
        let over = ["--over", "reader.read_threads=1,2", "--over", "store=posix,direct", "--repeat", "1"];
        report(&[&["sweep", "w.yaml", "-q", "--output", &format!("s{columns}")], &over[..]].concat());
        report(&["capacity", "w.yaml", "-q", "--up-to", "2", "--set", "metric.au=0.01"]);
        report(&["stall", "w.yaml", "-q"]);
        report(&["catalog", "data", "-q", "--output", &format!("c{columns}")]);
        report(&["inspect", "data/train/img_000_of_200.npz"]);
        report(&["generate", "w.yaml", "-q"]);
        report(&["plan", "w.yaml", "-q"]);
        report(&["workloads"]);
    }
}

/// A run that takes a while: 24 files that are read in 40 steps each.
fn slow() -> Dir {
    let dir = Dir::new();
    dir.write("w.yaml", SMALL.replace("computation_time: 0", "computation_time: 0.05"));
    dir.feedline(&["generate", "w.yaml", "--quiet"]).run().exits(0);
    dir
}

#[test]
fn progress_stays_on_one_line_and_leaves_nothing_behind() {
    let dir = slow();
    for columns in [40, 80, 200] {
        let mut command = PtyCommand::start(&dir, columns, &["run", "w.yaml", "--no-calibration"], &[]);
        command.until("training");
        command.until(" left");
        let (_, output) = command.wait();
        let drawn = output.split('\r').filter(|part| part.starts_with("training"));
        let mut count = 0;
        for line in drawn {
            let width = line.split('\x1b').next().unwrap().chars().count();
            assert!(width < usize::from(columns), "{width} columns at {columns}: {line}");
            count += 1;
        }
        assert!(count > 1, "progress was drawn {count} times:\n{output}");
        let shown = screen(&output, usize::from(columns));
        assert!(!shown.iter().any(|line| line.contains(" left")), "{columns}: {shown:#?}");
        assert!(shown[0].starts_with("w: 1 rank"), "{columns}: {shown:#?}");
    }
}

/// When a terminal becomes narrower, it wraps the line that it shows. The emulated screen starts at the new width, so
/// the old line occupies as many rows as on a real one.
#[test]
fn progress_survives_a_resize() {
    let dir = slow();
    let mut command = PtyCommand::start(&dir, 120, &["run", "w.yaml", "--no-calibration"], &[]);
    command.until(" left");
    command.resize(40);
    command.until("\x1b[2A\x1b[J");
    let (_, output) = command.wait();
    let after = output.split("\x1b[2A\x1b[J").nth(1).unwrap();
    for line in after.split('\r').filter(|part| part.starts_with("training")) {
        assert!(line.split('\x1b').next().unwrap().chars().count() < 40, "{line}");
    }
}

#[test]
fn a_dumb_terminal_gets_lines_without_sequences() {
    let dir = slow();
    let (_, output) =
        PtyCommand::start(&dir, 80, &["run", "w.yaml", "--no-calibration"], &[("TERM", "dumb")]).wait();
    assert!(!output.contains('\x1b'), "{output}");
}

const RED: &str = "\x1b[1m\x1b[31m";
const YELLOW: &str = "\x1b[1m\x1b[33m";

#[test]
fn verdicts_errors_and_warnings_are_coloured_on_a_terminal_only() {
    let dir = Dir::small_with_data();
    let args = ["run", "w.yaml", "-q", "--no-calibration"];
    let coloured =
        |args: &[&str], variables: &[(&str, &str)]| PtyCommand::start(&dir, 80, args, variables).wait().1;
    let unverified = format!("verdict: {YELLOW}unverified\x1b[0m");
    assert!(coloured(&args, &[]).contains(&unverified), "{}", coloured(&args, &[]));
    let invalid =
        [&args[..], &["--set", "checkpoint.fsync=false", "--set", "reader.reader_classname=x"]].concat();
    let text = coloured(&invalid, &[]);
    assert!(text.contains(&format!("verdict: {RED}invalid\x1b[0m (settings-honoured)")), "{text}");
    let text = coloured(&["run", "nowhere.yaml"], &[]);
    assert!(text.starts_with(&format!("{RED}error:\x1b[0m ")), "{text}");
    let text = coloured(&["plan", "w.yaml", "--set", "reader.pin_memory=true"], &[]);
    assert!(text.starts_with(&format!("{YELLOW}warning:\x1b[0m ")), "{text}");
    for variables in [&[("NO_COLOR", "1")], &[("TERM", "dumb")], &[("CLICOLOR", "0")]] {
        assert!(!coloured(&args, variables).contains('\x1b'), "{variables:?}");
    }
    for flag in ["--color=never", "--color=always"] {
        let text = coloured(&[&args[..], &[flag]].concat(), &[("TERM", "dumb")]);
        assert_eq!(text.contains(&unverified), flag == "--color=always", "{flag}: {text}");
    }
    // Not on a terminal, in JSON, or in the files of a result.
    assert!(!dir.feedline(&args).run().stdout.contains('\x1b'));
    let forced = dir.feedline(&args).args(&["--color", "always"]).run();
    assert!(forced.stdout.contains(&unverified), "{}", forced.stdout);
    dir.feedline(&args).args(&["--json", "--color", "always"]).run().json();
    for (name, content) in dir.tree("feedline-results") {
        assert!(!content.contains(&0x1b), "{name}");
    }
}

const CTRL_C: &str = "\x03";
const STOPPING: &str = "stopping; press again to abort";

/// Reads that hang.
#[test]
fn ctrl_c_is_acknowledged_at_once_and_a_second_one_aborts() {
    let dir = Dir::small_with_data();
    let hang = ["--store", "fault:posix,kind=hang", "--stall-timeout", "off"];
    let commands: [&[&str]; 3] = [
        &[&["run", "w.yaml", "--no-calibration"], &hang[..]].concat(),
        &[&["run", "w.yaml", "--no-calibration", "--json"], &hang[..]].concat(),
        &[&["sweep", "w.yaml", "--no-calibration", "--over", "ranks=1,2"], &hang[..]].concat(),
    ];
    for args in commands {
        // On a busy host the command may end before the second signal arrives.
        let arrived = (0..10).any(|_| {
            let mut command = PtyCommand::start(&dir, 80, args, &[]);
            command.until("training");
            command.press(CTRL_C);
            command.until(STOPPING);
            command.press(CTRL_C);
            let (code, output) = command.wait();
            assert_eq!(code, Some(4), "{args:?}: {output}");
            // The worker may draw its progress while the supervisor prints: the message can be broken over two lines.
            let shown = screen(&output, 80).concat();
            assert!(shown.find(STOPPING) < shown.find("error: "), "{args:?}: {shown}");
            assert_eq!(shown.matches(STOPPING).count(), 1, "{shown}");
            let stopped_at_once = output.contains("second signal: stopped immediately");
            assert!(stopped_at_once || output.contains("error: interrupted"), "{args:?}: {output}");
            stopped_at_once
        });
        assert!(arrived, "{args:?}: no second signal was acknowledged");
    }
}

/// A pipe without a writer in place of a file blocks whatever opens it.
#[test]
fn ctrl_c_is_acknowledged_in_every_command_that_waits_for_a_file() {
    let dir = Dir::new();
    dir.command(Path::new("mkfifo"), &["w.yaml"]).run().exits(0);
    let commands: [&[&str]; 6] = [
        &["run", "w.yaml"],
        &["generate", "w.yaml"],
        &["plan", "w.yaml"],
        &["sweep", "w.yaml", "--over", "ranks=1,2"],
        &["capacity", "w.yaml"],
        &["stall", "w.yaml"],
    ];
    for args in commands {
        let mut command = PtyCommand::start(&dir, 80, args, &[]);
        command.until_it_works();
        command.press(CTRL_C);
        let (code, output) = command.wait();
        assert_eq!(code, Some(4), "{args:?}: {output}");
        let shown = screen(&output, 80).join("\n");
        assert!(shown.contains(&format!("{STOPPING}\nerror: interrupted")), "{args:?}: {shown}");
    }
}

#[test]
fn one_ctrl_c_ends_a_run_with_its_result() {
    let dir = slow();
    let mut command = PtyCommand::start(&dir, 80, &["run", "w.yaml", "--no-calibration"], &[]);
    command.until("training");
    command.press(CTRL_C);
    let (code, output) = command.wait();
    assert_eq!(code, Some(4), "{output}");
    let shown = screen(&output, 80);
    let at = |text: &str| {
        shown.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{shown:#?}"))
    };
    assert!(at(STOPPING) < at("verdict: incomplete"), "{shown:#?}");
    assert_eq!(shown[at(STOPPING)], STOPPING, "the progress line is erased before it");
    assert_eq!(dir.results().len(), 1);
}
