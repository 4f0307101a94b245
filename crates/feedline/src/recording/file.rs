//! The file of a trace: where it may be, its name for each of several processes, and its creation.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::location::Location;
use store::FolderHandle;

use crate::report::sums;

/// Endings of traces, which stay at the end of a name.
const ENDINGS: [&str; 5] = [".pfw.gz", ".json.gz", ".gz", ".pfw", ".json"];

/// The path for one of several processes: `t.pfw.gz` becomes `t-0.pfw.gz`, `t-1.pfw.gz` and so on.
pub(super) fn path_of_process(path: &Path, process: Option<u64>) -> PathBuf {
    let (Some(process), Some(name)) = (process, path.file_name()) else { return path.to_owned() };
    let name = name.to_string_lossy();
    let ending = ENDINGS.into_iter().find(|ending| name.ends_with(ending)).unwrap_or_default();
    let stem = name.strip_suffix(ending).unwrap_or(&name);
    path.with_file_name(format!("{stem}-{process}{ending}"))
}

/// The created file, by its folder and name.
#[derive(Debug)]
pub(super) struct TraceFile {
    folder: FolderHandle,
    name: OsString,
}

impl TraceFile {
    /// Creates the file. A name that is in use is refused, and so is a place where the file would change a data set or
    /// a result.
    pub(super) fn begin(path: &Path, data: &Location) -> anyhow::Result<(TraceFile, File)> {
        let shown = path.display();
        let name = path.file_name().filter(|_| !path.as_os_str().to_string_lossy().ends_with('/'));
        let Some(name) = name.map(OsStr::to_owned) else {
            bail!("--trace needs the name of a file, such as trace.pfw.gz; '{shown}' is a folder");
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        let cannot = || format!("cannot create the trace {shown}");
        let folder = FolderHandle::open(parent).with_context(cannot)?;
        let here = Path::new(".").join(parent).canonicalize().with_context(cannot)?;
        if here.ancestors().any(|above| above.join(sums::NAME).is_file()) {
            bail!("the trace {shown} would be in a result, which must not change; choose another folder");
        }
        if let Ok(data) = data.path()
            && data.canonicalize().is_ok_and(|data| here.starts_with(data))
        {
            bail!("the trace {shown} would be in the data folder; choose another folder");
        }
        let file = folder.create_file(&name).with_context(cannot)?;
        Ok((TraceFile { folder, name }, file))
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        // Best effort: otherwise an empty trace stays.
        let _ = self.folder.remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_process_is_before_the_ending() {
        for (path, of_second) in [
            ("a/t.pfw.gz", "a/t-1.pfw.gz"),
            ("t.json", "t-1.json"),
            ("t.x.gz", "t.x-1.gz"),
            ("t", "t-1"),
            (".gz", "-1.gz"),
        ] {
            assert_eq!(path_of_process(Path::new(path), Some(1)), Path::new(of_second));
            assert_eq!(path_of_process(Path::new(path), None), Path::new(path));
        }
    }
}
