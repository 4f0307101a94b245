//! Mistakes in workloads, each with the complete message for the user. `mistakes.txt` contains them as blocks: `###
//! name`, the workload text, optional `--set` lines, `>>>`, the message.

use super::{Override, WorkloadSource, read};

struct Mistake<'a> {
    name: &'a str,
    text: String,
    overrides: Vec<Override>,
    message: &'a str,
}

fn mistakes() -> Vec<Mistake<'static>> {
    let blocks = include_str!("mistakes.txt").split("### ").skip(1);
    let parse = |block: &'static str| {
        let (name, rest) = block.split_once('\n').unwrap();
        let (input, message) = rest.split_once(">>>\n").unwrap_or_else(|| panic!("{name}: no >>>"));
        let (sets, lines): (Vec<&str>, Vec<&str>) =
            input.lines().partition(|line| line.starts_with("--set "));
        let overrides = sets.iter().map(|line| Override::hydra(&line["--set ".len()..], line)).collect();
        Mistake { name, text: lines.join("\n"), overrides, message: message.trim_end() }
    };
    blocks.map(parse).collect()
}

#[test]
fn every_mistake_gets_its_message() {
    let mistakes = mistakes();
    assert!(mistakes.len() >= 40, "{} mistakes", mistakes.len());
    let mut wrong = String::new();
    for mistake in &mistakes {
        let source = WorkloadSource { name: "w.yaml", text: &mistake.text };
        let said = match read(source, &mistake.overrides) {
            Ok(_) => "(accepted)".to_owned(),
            Err(error) => error.to_string(),
        };
        let said: Vec<&str> = said.lines().map(str::trim_end).collect();
        let said = said.join("\n");
        if said != mistake.message {
            wrong.push_str(&format!("### {}\n>>>\n{said}\n\n", mistake.name));
        }
    }
    assert!(wrong.is_empty(), "these mistakes have a different message:\n{wrong}");
}
