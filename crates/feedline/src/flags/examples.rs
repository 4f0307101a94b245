//! Unit test: the command lines and workloads that README.md and docs show are those of this program. Commands parse,
//! workloads exist, keys are in the table. The examples that can be executed are executed by `tests/docs.rs`.

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory};
use model::spec::{Override, WorkloadSource, canonical_key, plain_yaml, read, rows};

use self::page::{Block, Page, Treatment};
use self::shell::Simple;
use super::Cli;
use crate::workloads;

#[path = "../../tests/docs/page.rs"]
mod page;
#[path = "../../tests/docs/shell.rs"]
mod shell;

/// The names of the program.
const PROGRAMS: [&str; 4] = ["feedline", "dlio_benchmark", "dlio_benchmark_query", "dlio_postprocessor"];

/// What `sweep --over` takes in addition to keys.
const AXES: [&str; 2] = ["ranks", "store"];

/// Calls `check` for every block that is not exempt. Panics with all mistakes.
fn check_blocks(check: impl Fn(&Page, &Block) -> (usize, Vec<String>)) -> usize {
    let (mut checked, mut mistakes) = (0, Vec::new());
    for path in page::all_paths() {
        let page = page::load(&path).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        for block in page.blocks.iter().filter(|block| !matches!(block.treatment, Treatment::NotRun(_))) {
            let (count, found) = check(&page, block);
            checked += count;
            mistakes.extend(found);
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    checked
}

#[test]
fn command_lines_of_the_documentation_are_those_of_the_program() {
    let checked = check_blocks(|page, block| {
        let (mut count, mut mistakes) = (0, Vec::new());
        let mut scripts = scripts(block);
        scripts.extend(block.setup.iter().cloned());
        scripts.extend(block.output_of.iter().map(|command| (block.line, command.clone())));
        for (line, script) in scripts {
            for call in shell::calls(&script, &PROGRAMS) {
                count += 1;
                if let Err(mistake) = check_call(&call) {
                    let (path, line) = (&page.path, line + call.line);
                    mistakes.push(format!("{path}:{line}: {}\n  {mistake}", call.words.join(" ")));
                }
            }
        }
        (count, mistakes)
    });
    assert!(checked > 50, "only {checked} command lines were found");
}

/// The shell text in a block, with the line of each part in the page.
fn scripts(block: &Block) -> Vec<(usize, String)> {
    if block.language == "console" {
        let exchanges = block.exchanges().unwrap_or_default();
        return exchanges.into_iter().map(|exchange| (exchange.line, exchange.command)).collect();
    }
    if block.is_commands() { vec![(block.line, block.text.clone())] } else { Vec::new() }
}

/// Whether the program takes these words. What a variable of the shell contains is not known: it may be no word, or a
/// number.
fn check_call(call: &Simple) -> Result<(), String> {
    let checked = check_words(&call.words);
    let is_variable = |word: &String| word.starts_with('$') && !word.starts_with("$(");
    if checked.is_ok() || !call.words.iter().any(is_variable) {
        return checked;
    }
    let without: Vec<String> = call.words.iter().filter(|word| !is_variable(word)).cloned().collect();
    let number = |word: &String| if is_variable(word) { "1".to_owned() } else { word.clone() };
    let with_numbers: Vec<String> = call.words.iter().map(number).collect();
    check_words(&without).or_else(|_| check_words(&with_numbers)).or(checked)
}

fn check_words(words: &[String]) -> Result<(), String> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    if let Some(command) = crate::dlio::called(&words) {
        return check_dlio(&command);
    }
    let matches = match Cli::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.exit_code() == 0 => return Ok(()),
        Err(error) => return Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    };
    let mut matches = &matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    check_keys(matches)
}

/// Hydra's rules decide about arguments, and the workload's keys must exist.
fn check_dlio(command: &crate::commands::Command) -> Result<(), String> {
    let crate::commands::Command::Dlio(flags) = command else {
        return Err("not a command of DLIO".to_owned());
    };
    if flags.program == crate::dlio::DlioProgram::Postprocessor {
        return Ok(());
    }
    let arguments: Vec<String> =
        flags.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    for argument in &arguments {
        let key = argument.split('=').next().unwrap_or_default().trim_start_matches(['+', '~']);
        if let Some(key) = key.strip_prefix("workload.") {
            check_key(key)?;
        }
    }
    crate::dlio::hydra::compose_here(&arguments).map(|_| ()).map_err(|error| format!("{error:#}"))
}

/// The workload, `--set` and `--over` of a command.
fn check_keys(matches: &ArgMatches) -> Result<(), String> {
    let texts = |id: &str| -> Vec<String> {
        let values = matches.try_get_many::<String>(id).ok().flatten();
        values.map(|values| values.cloned().collect()).unwrap_or_default()
    };
    let settings = [texts("set"), texts("storage_set")].concat();
    for setting in settings.iter().chain(&texts("over")) {
        let key = setting.split('=').next().unwrap_or_default();
        if !AXES.contains(&key) {
            check_key(key)?;
        }
    }
    let Some(name) = texts("workload").pop() else { return Ok(()) };
    // The files of examples do not exist here.
    if name.contains('/') || name.ends_with(".yaml") || name.contains('$') {
        return Ok(());
    }
    let workload = workloads::named(&name).map_err(|error| error.to_string())?;
    let overrides: Vec<Override> =
        settings.iter().map(|setting| Override::hydra(setting, format!("--set {setting}"))).collect();
    let source = WorkloadSource { name: workload.name, text: workload.text };
    read(source, &overrides).map(|_| ()).map_err(|error| error.to_string())
}

fn check_key(key: &str) -> Result<(), String> {
    let key = key.trim_start_matches(['+', '~']);
    let key = canonical_key(key.strip_prefix("workload.").unwrap_or(key));
    let known = rows().any(|row| row.key == key);
    known.then_some(()).ok_or_else(|| format!("there is no key '{key}'"))
}

#[test]
fn workloads_of_the_documentation_are_valid() {
    let checked = check_blocks(|page, block| {
        if block.language != "yaml" {
            return (0, Vec::new());
        }
        let mut mistakes = Vec::new();
        for part in block.text.split("---\n") {
            // Files of other programs are YAML, but no workloads.
            let read = match &block.treatment {
                Treatment::Parsed(_) => plain_yaml(part).map(|_| ()),
                _ => read(WorkloadSource { name: "example", text: part }, &[]).map(|_| ()),
            };
            if let Err(error) = read {
                let (path, line) = (&page.path, block.line);
                mistakes.push(format!(
                    "{path}:{line}: {error}\n  (a file of another program: '<!-- example: parsed, REASON -->')"
                ));
            }
        }
        (1, mistakes)
    });
    assert!(checked > 3, "only {checked} workloads were found");
}

#[test]
fn calls_are_found_in_scripts() {
    let found = |script: &str| -> Vec<String> {
        let calls = shell::calls(script, &PROGRAMS);
        calls.into_iter().map(|call| format!("{}: {}", call.line, call.words.join("|"))).collect()
    };
    for (script, calls) in [
        ("feedline run 'a b' # feedline x\nfeedline plan", vec!["0: feedline|run|a b", "1: feedline|plan"]),
        ("A=1 mpirun -n 4 --x y feedline run \\\n  demo --ranks 4", vec!["0: feedline|run|demo|--ranks|4"]),
        ("ln -s \"$(command -v feedline)\" ~/bin/dlio_benchmark", vec![]),
        ("cargo install --path crates/feedline && feedline -V > a 2>&1", vec!["0: feedline|-V"]),
        ("feedline audit -- feedline run", vec!["0: feedline|audit|--|feedline|run", "0: feedline|run"]),
        (
            "x=$(feedline plan a) | ./feedline report; feedline run &",
            vec!["0: feedline|plan|a", "0: ./feedline|report", "0: feedline|run"],
        ),
        (
            "cat > f <<'EOF'\nfeedline x\nEOF\nfor n in 1 2; do feedline run --ranks $n; done",
            vec!["3: feedline|run|--ranks|$n"],
        ),
        ("sudo apt purge feedline; pipx uninstall feedline; sudo feedline -V", vec!["0: feedline|-V"]),
        ("srun -N 4 ~/bin/dlio_benchmark workload=demo", vec!["0: ~/bin/dlio_benchmark|workload=demo"]),
        ("feedline run \"a'b\" 'c\"d' e\\ f </dev/null", vec!["0: feedline|run|a'b|c\"d|e f"]),
    ] {
        assert_eq!(found(script), calls, "{script}");
    }
}

#[test]
fn wrong_command_lines_are_found() {
    for (script, mistake) in [
        ("feedline run --rank 4", "unexpected argument '--rank'"),
        ("feedline rum", "unrecognized subcommand"),
        ("feedline run unet3d_h10", "there is no workload 'unet3d_h10'"),
        ("feedline run ./x.yaml --set reader.read_thread=4", "there is no key 'reader.read_thread'"),
        ("feedline run demo --set reader.read_threads=many", "read_threads"),
        ("feedline sweep demo --over reader.x=1,2", "there is no key 'reader.x'"),
        ("dlio_benchmark workload=unet3d_x", "unet3d_x"),
        ("mpirun dlio_benchmark workload=unet3d_h100 ++workload.reader.x=1", "there is no key 'reader.x'"),
        ("feedline run $more --ranks $n --rank 4", "unexpected argument '--rank'"),
    ] {
        let calls = shell::calls(script, &PROGRAMS);
        let mistakes: Vec<String> = calls.iter().filter_map(|call| check_call(call).err()).collect();
        assert!(mistakes.iter().any(|found| found.contains(mistake)), "{script}: {mistakes:?}");
    }
}
