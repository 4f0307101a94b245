//! `feedline docs`: prints the documentation that is in the program, and writes it as files: manual pages and the
//! generated pages of the reference.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use model::document;
use serde_json::{Value, json};
use store::{FolderHandle, make_path};

use crate::commands::report::output::replace_own;
use crate::exit::{CommandResult, Exit, Failure};
use crate::manual::reference::reference_pages;
use crate::manual::{man, pages};
use crate::report;

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline docs                                list the pages
  feedline docs cache                          print a page
  feedline docs explanation/cache | less
  feedline docs --search read-ahead            lines with these words, with page and heading
  feedline docs --man ~/.local/share/man/man1   then: man feedline-run

The pages are those of the version that prints them, as Markdown.";

#[derive(Args, Debug)]
pub(crate) struct DocsFlags {
    /// Print this page: its name, such as cache, or its path, such as explanation/cache
    #[arg(value_name = "PAGE")]
    pub page: Option<String>,
    /// Print the lines that have all of these words, with page and heading; paragraphs, if no line has all
    #[arg(long, value_name = "WORD", num_args = 1.., conflicts_with = "page")]
    pub search: Vec<String>,
    /// Write the manual pages to this folder: feedline.1 and one for each command
    #[arg(long, value_name = "DIR", conflicts_with_all = ["page", "search"])]
    pub man: Option<PathBuf>,
    /// Write the pages of the reference that are made from tables in the code to this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["page", "search", "man"])]
    pub reference: Option<PathBuf>,
    /// Print the list or the lines as JSON
    #[arg(long, conflicts_with_all = ["page", "man", "reference"])]
    pub json: bool,
}

pub(crate) fn docs(flags: &DocsFlags) -> CommandResult {
    if let Some(folder) = &flags.man {
        let files: Vec<(String, String)> =
            man::man_pages().into_iter().map(|page| (page.file, page.text)).collect();
        return write(folder, &files);
    }
    if let Some(folder) = &flags.reference {
        let pages = reference_pages()?.into_iter();
        let files: Vec<(String, String)> = pages.map(|page| (page.file.to_owned(), page.text)).collect();
        return write(folder, &files);
    }
    if !flags.search.is_empty() {
        return search(flags);
    }
    match &flags.page {
        Some(name) => {
            let page = pages::named(name).map_err(|what| Failure::usage(anyhow!(what)))?;
            report::out(page.text)?;
        }
        None if flags.json => report::out_json(document::PAGES, &list())?,
        None => report::out(&report::fitted(&pages::list()))?,
    }
    Ok(Exit::Ok)
}

fn list() -> Value {
    let page = |page: &pages::DocPage| {
        let (name, title) = (page.name(), page.title);
        json!({"name": name, "path": page.path, "part": page.part, "title": title})
    };
    json!({"pages": pages::PAGES.iter().map(page).collect::<Value>()})
}

fn search(flags: &DocsFlags) -> CommandResult {
    let found = pages::search(&flags.search);
    if flags.json {
        let row = |found: &pages::PageMatch| {
            let (heading, line) = (found.heading, found.line);
            json!({"page": found.page, "heading": heading, "line": line, "text": found.text})
        };
        let matches: Value = found.iter().map(row).collect();
        report::out_json(document::PAGE_MATCHES, &json!({"matches": matches}))?;
        return Ok(Exit::Ok);
    }
    let mut text = String::new();
    let mut place = ("", "");
    for found in &found {
        if place != (found.page, found.heading) {
            place = (found.page, found.heading);
            text.push_str(&format!("{}: {}\n", found.page, found.heading));
        }
        text.push_str(&format!("{:>6}  {}\n", found.line, found.text));
    }
    if found.is_empty() {
        report::note(&format!("no paragraph has all of: {}", flags.search.join(", ")));
    }
    report::out(&report::fitted(&text))?;
    Ok(Exit::Ok)
}

/// Writes files to a folder, which is made if it is missing. A file that feedline did not write is not replaced.
fn write(folder: &Path, files: &[(String, String)]) -> CommandResult {
    let place = || format!("cannot write to {}", folder.display());
    let written = || -> anyhow::Result<()> {
        let _ = make_path(folder).with_context(place)?;
        let held = FolderHandle::open(folder).with_context(place)?;
        files.iter().try_for_each(|(name, text)| replace_own(&held, name, text))
    };
    written().map_err(Failure::refused)?;
    report::note(&format!("{} files in {}", files.len(), folder.display()));
    Ok(Exit::Ok)
}
