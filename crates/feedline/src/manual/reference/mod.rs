//! The pages of the reference that are made from tables in the code. docs/reference has them as files, and a test
//! compares both.

mod commands;
mod environment;
mod exit_codes;
mod keys;
mod rules;
mod workloads;

use super::MARK;
use crate::exit::Failure;

/// A generated page: the name of its file in docs/reference, and its text.
#[derive(Debug)]
pub(crate) struct ReferencePage {
    pub file: &'static str,
    pub text: String,
}

/// All generated pages.
pub(crate) fn reference_pages() -> Result<Vec<ReferencePage>, Failure> {
    let page = |file, text: String| {
        let text =
            format!("<!-- {MARK} --reference DIR'; edit the tables in the code instead. -->\n\n{text}");
        ReferencePage { file, text: format!("{}\n", text.trim_end()) }
    };
    Ok(vec![
        page("commands.md", commands::text()),
        page("keys.md", keys::text()),
        page("workloads.md", workloads::text()?),
        page("rules.md", rules::text()),
        page("exit-codes.md", exit_codes::text()),
        page("environment.md", environment::text()),
    ])
}

/// A table of Markdown. Cells are Markdown, too.
fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&header.iter().map(ToString::to_string).collect::<Vec<_>>());
    text.push_str(&format!("|{}\n", "---|".repeat(header.len())));
    rows.into_iter().for_each(|row| text.push_str(&line(&row)));
    text
}

/// Plain text as a part of a cell: characters with a meaning in Markdown are escaped, except in code.
fn cell(text: &str) -> String {
    let mut escaped = String::new();
    let mut is_code = false;
    for letter in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        is_code ^= letter == '`';
        let is_special = letter == '|' || (!is_code && matches!(letter, '*' | '<'));
        if is_special {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// Text as code in a cell.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_escaped() {
        assert_eq!(cell("a|b\n  *.c <d> `x_*|y` e_f [g]"), "a\\|b \\*.c \\<d> `x_*\\|y` e_f [g]");
        assert_eq!(code("NAME|FILE"), "`NAME\\|FILE`");
        assert_eq!(table(&["a", "b"], [vec!["1".into(), "2".into()]]), "| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
