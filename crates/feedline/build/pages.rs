//! Writes the table of the pages of the book, docs/SUMMARY.md, each with its text, which the program contains.

use std::env;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Writes `pages.rs` into the folder of the build.
pub(crate) fn embed() -> Result<(), Box<dyn Error>> {
    let crate_folder =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("pages.rs");
    let docs = crate_folder.join("../../docs").canonicalize()?;
    let summary = docs.join("SUMMARY.md");
    println!("cargo:rerun-if-changed={}", summary.display());
    let mut table = "&[\n".to_owned();
    let mut part = String::new();
    for line in fs::read_to_string(&summary)?.lines() {
        if let Some(heading) = line.strip_prefix("# ") {
            part = heading.trim().to_owned();
        }
        let Some((title, path)) = entry(line) else { continue };
        let file = docs.join(path);
        if !file.is_file() {
            return Err(format!("docs/SUMMARY.md names {path}, which does not exist").into());
        }
        writeln!(
            table,
            "    DocPage {{ part: {part:?}, title: {title:?}, path: {path:?}, text: include_str!({file:?}) }},"
        )?;
    }
    table.push_str("]\n");
    fs::write(out, table)?;
    Ok(())
}

/// The title and the path of an entry of SUMMARY.md: `- [Title](path.md)`.
fn entry(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (title, rest) = line.strip_prefix("- ").unwrap_or(line).strip_prefix('[')?.split_once("](")?;
    Some((title, rest.strip_suffix(')')?.trim_start_matches("./")))
}
