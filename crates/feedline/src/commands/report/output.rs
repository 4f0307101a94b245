//! Where pages, plots and the files of `feedline docs` go. They replace files that feedline wrote, and no others;
//! nothing is written into the folder of a result.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use ::report::html::HtmlPage;
use ::report::plot::PlotMedium;
use anyhow::{Context, anyhow, bail};
use store::{FolderHandle, make_path};

use crate::manual;
use crate::report::{folder, sums};

/// What the start of a file has in it if feedline wrote it.
const MARKS: [&str; 3] =
    ["<meta name=\"generator\" content=\"feedline\">", "<!-- Made by feedline -->", manual::MARK];
/// How much of a file is searched for the mark.
const SEARCHED: u64 = 4096;

pub(super) fn write_page(file: &Path, page: &HtmlPage) -> anyhow::Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = file.file_name().ok_or_else(|| anyhow!("{} is not the name of a file", file.display()))?;
    let held = FolderHandle::open(parent).with_context(|| format!("cannot write {}", file.display()))?;
    replace_own(&held, &name.to_string_lossy(), &page.html())
}

/// Writes the plots and returns their number.
pub(super) fn write_plots(folder: &Path, page: &HtmlPage) -> anyhow::Result<usize> {
    let _ = make_path(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let held = FolderHandle::open(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    let plots = page.plots();
    for (name, plot) in &plots {
        replace_own(&held, &format!("{name}.svg"), &plot.svg(PlotMedium::Print))?;
    }
    Ok(plots.len())
}

/// Writes a file, which may replace one that feedline wrote.
pub(crate) fn replace_own(folder: &FolderHandle, name: &str, content: &str) -> anyhow::Result<()> {
    let shown = folder.shown(name);
    if folder.path().join(sums::NAME).exists() {
        bail!(
            "{shown} would be in the folder of a result, whose checksums do not cover it; choose another folder"
        );
    }
    folder.check_replaceable(name)?;
    if !is_ours(&folder.path().join(name)).with_context(|| format!("cannot read {shown}"))? {
        bail!("{shown} exists and was not written by feedline; choose another name");
    }
    folder::replace(folder, name, &|to| Ok(to.write_all(content.as_bytes())?)).map(drop)
}

/// Whether a file does not exist or was written by feedline.
fn is_ours(file: &Path) -> std::io::Result<bool> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut start = Vec::new();
    opened.take(SEARCHED).read_to_end(&mut start)?;
    let start = String::from_utf8_lossy(&start);
    Ok(start.is_empty() || MARKS.iter().any(|mark| start.contains(mark)))
}

/// Opens a page in the browser of the desktop, or in that of the variable BROWSER.
pub(super) fn open(file: &Path) -> anyhow::Result<()> {
    let program = std::env::var("BROWSER").ok().filter(|program| !program.is_empty());
    let program = program.unwrap_or_else(|| "xdg-open".to_owned());
    let spawned = Command::new(&program).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    match spawned {
        Ok(_) => Ok(()),
        Err(error) => bail!(
            "cannot open the page with {program}: {error}; open {} yourself, or set BROWSER",
            file.display()
        ),
    }
}
