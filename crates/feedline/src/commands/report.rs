//! `feedline report`: results as a page for the browser, and their plots as files. It shows what can be read: a result
//! of another version, a changed one or one of DLIO is shown as far as it goes, with the reason.

mod loaded;
pub(crate) mod output;

use std::path::{Path, PathBuf};

use ::report::html::{self, AuditDocuments, HtmlPage, Notice, PageTone};
use anyhow::{anyhow, bail};
use clap::Args;

use super::audited::{SavedAudit, is_audit};
use super::study;
use crate::exit::{CommandResult, Exit, Failure};
use crate::flags::WaitFlags;
use crate::report;
use crate::report::audit::{AuditText, TextTarget};
use crate::report::folder::safe_name;
use crate::terminal;
use loaded::{LoadedResult, LoadedStudy, differences, short_names};

pub(crate) const EXAMPLES: &str = "\
Examples:
  feedline report results/demo/20260101_120000 --open
  feedline report results/demo/20260101_120000 results/demo/20260102_120000 -o comparison.html
  feedline report my-sweep --plots figures

A new result has its page already: report.html, or sweep.html, capacity.html and stall.html in the folder of a study.
The page needs no network. A file that feedline did not write is not replaced, and nothing is written into the folder
of a result, whose checksums would not cover it.";

#[derive(Args, Debug)]
pub(crate) struct ReportFlags {
    /// A result, a folder that holds several, the folder of a sweep, capacity search or stall analysis, or a result of
    /// DLIO
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// File of the page; -: stdout [default: a name made from the results, in the current folder]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write each plot as an SVG file for print to this folder
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Open the page in the browser
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

pub(crate) fn report(flags: &ReportFlags) -> CommandResult {
    if flags.open && flags.output.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage(anyhow!("--open needs a file; leave out -o -")));
    }
    let NamedPage { name, page, text } = page(&flags.folders).map_err(Failure::refused)?;
    if let Some(folder) = &flags.plots {
        let count = output::write_plots(folder, &page).map_err(Failure::refused)?;
        report::note(&format!("{count} plots in {}", folder.display()));
    }
    if flags.output.as_deref() == Some(Path::new("-")) {
        report::out(&page.html())?;
        return Ok(Exit::Ok);
    }
    let file = flags.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.html")));
    output::write_page(&file, &page).map_err(Failure::refused)?;
    report::out(&text)?;
    report::out(&report::path_line("report in", file.display()))?;
    if flags.open {
        output::open(&file).map_err(Failure::incomplete)?;
    }
    Ok(Exit::Ok)
}

/// A page, and the name of its file if the user gives none.
struct NamedPage {
    name: String,
    page: HtmlPage,
    /// The report as text, if there is one.
    text: String,
}

/// More results than this do not fit on a page.
const MOST_RESULTS: usize = 50;

fn page(folders: &[PathBuf]) -> anyhow::Result<NamedPage> {
    if let [folder] = folders
        && let Some(study) = LoadedStudy::open(folder)?
    {
        let name = format!("{}_{}", study.kind.folder, file_name(folder));
        return Ok(NamedPage { name, page: study.page(), text: String::new() });
    }
    if let Some((folder, kind)) = folders.iter().find_map(|folder| Some((folder, study::kind_of(folder)?))) {
        bail!("{} is the folder of a {}; give it alone", folder.display(), kind.name);
    }
    let mut found = Vec::new();
    for folder in folders {
        found.extend(loaded::find(folder)?);
    }
    found.dedup();
    if let Some(folder) = found.iter().find(|folder| is_audit(folder)) {
        return match found.as_slice() {
            [one] => audited(one),
            _ => bail!(
                "{} is the result of an audit; give it alone, or use feedline compare",
                folder.display()
            ),
        };
    }
    match found.as_slice() {
        [] => bail!("no results"),
        [one] => {
            let result = LoadedResult::open(one, true)?;
            let names = short_names(&found);
            Ok(NamedPage {
                name: safe_name(&names[0].replace('/', "_")),
                page: html::run(&result.documents()),
                text: String::new(),
            })
        }
        several if several.len() > MOST_RESULTS => {
            bail!("{} results are too many for one page; give at most {MOST_RESULTS}", several.len())
        }
        several => compared(several),
    }
}

/// The page and the text of an audit.
fn audited(folder: &Path) -> anyhow::Result<NamedPage> {
    let (saved, wrong) = SavedAudit::show(folder)?;
    let notice = |error: anyhow::Error| Notice {
        tone: PageTone::Bad,
        text: format!(
            "The files of this result are not those that feedline wrote: {error:#}. Do not trust the figures."
        ),
    };
    let names = short_names(&[folder.to_owned()]);
    let page = html::audit(&AuditDocuments {
        name: &saved.name,
        start: &saved.ledger.times.start,
        observed: &saved.observed,
        findings: &saved.findings,
        notices: wrong.map(notice).into_iter().collect(),
        version: env!("CARGO_PKG_VERSION"),
    });
    let text = AuditText { stream: TextTarget::Out, width: terminal::columns() };
    Ok(NamedPage {
        name: safe_name(&names.concat().replace('/', "_")),
        page,
        text: text.render(&saved.observed, &saved.findings) + "\n",
    })
}

fn compared(folders: &[PathBuf]) -> anyhow::Result<NamedPage> {
    let opened = folders.iter().map(|folder| LoadedResult::open(folder, false));
    let results: Vec<LoadedResult> = opened.collect::<anyhow::Result<_>>()?;
    let names = short_names(folders);
    let differ = differences(&results);
    let documents: Vec<_> = names.into_iter().zip(results.iter().map(LoadedResult::documents)).collect();
    let page = html::compare(&documents, &differ, env!("CARGO_PKG_VERSION"));
    Ok(NamedPage { name: "comparison".to_owned(), page, text: String::new() })
}

fn file_name(folder: &Path) -> String {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    real.file_name().map_or("study".to_owned(), |name| safe_name(&name.to_string_lossy()))
}
