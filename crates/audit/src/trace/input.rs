//! Files of a trace: which belong to it, what format they have, and their lines. Files may be compressed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::TraceInputError;
use super::strace::is_strace;

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// What is read at once, and looked at to find the format.
const PART: usize = 1 << 16;
/// Memory for the buffers of all files.
const BUFFERS: usize = 16 << 20;
/// Longer lines are cut.
const LONGEST_LINE: u64 = 1 << 20;

/// Formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceFormat {
    Strace,
    /// Chrome's JSON trace format, one event per line: DFTracer and feedline.
    Json,
}

/// The files of one trace, in order of their names.
#[derive(Debug)]
pub(super) struct TraceFiles {
    pub(super) files: Vec<PathBuf>,
    pub(super) format: TraceFormat,
}

impl TraceFiles {
    /// The file, or the traces in a folder, or those whose names are this one and the number of a process.
    pub(super) fn find(path: &Path) -> Result<TraceFiles, TraceInputError> {
        let name = path.display().to_string();
        let of_processes = if path.exists() { Vec::new() } else { numbered(path) };
        if path.is_dir() || !of_processes.is_empty() {
            let all = if of_processes.is_empty() { listed(path, &name)? } else { of_processes };
            return TraceFiles::of_many(all, &name);
        }
        match format_of(path)? {
            Some(format) => Ok(TraceFiles { files: vec![path.to_owned()], format }),
            None => {
                let what = "this is neither output of strace nor a trace of DFTracer or feedline";
                Err(TraceInputError::Foreign(name, 1, what.to_owned()))
            }
        }
    }

    fn of_many(all: Vec<PathBuf>, name: &str) -> Result<TraceFiles, TraceInputError> {
        let (mut files, mut found) = (Vec::new(), None);
        for file in all {
            let format = match format_of(&file) {
                Ok(format) => format,
                // Processes that recorded nothing leave empty files.
                Err(TraceInputError::Empty(_)) => None,
                Err(error) => return Err(error),
            };
            let Some(format) = format else { continue };
            if *found.get_or_insert(format) != format {
                return Err(TraceInputError::Both(name.to_owned()));
            }
            files.push(file);
        }
        let format = found.ok_or_else(|| TraceInputError::NoTraces(name.to_owned()))?;
        Ok(TraceFiles { files, format })
    }
}

/// The files in a folder.
fn listed(folder: &Path, name: &str) -> Result<Vec<PathBuf>, TraceInputError> {
    let entries = fs::read_dir(folder).map_err(|error| TraceInputError::Io(name.to_owned(), error))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Files of `strace -ff -o path`: the path, a dot and the number of a process.
fn numbered(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let all = listed(folder, "").unwrap_or_default();
    let name = path.file_name();
    all.into_iter().filter(|file| pid_of(file).is_some() && file.file_stem() == name).collect()
}

/// The process of a file of `strace -ff`.
pub(super) fn pid_of(file: &Path) -> Option<u32> {
    file.extension()?.to_str()?.parse().ok()
}

/// What the content of a file is, if it is a trace.
fn format_of(path: &Path) -> Result<Option<TraceFormat>, TraceInputError> {
    let name = path.display().to_string();
    let mut start = Vec::new();
    let opened = opened(path, PART).map_err(|error| TraceInputError::Io(name.clone(), error))?;
    match opened.take(PART as u64).read_to_end(&mut start) {
        Err(error) if start.is_empty() => return Err(TraceInputError::Io(name, error)),
        _ => {}
    }
    if start.is_empty() {
        return Err(TraceInputError::Empty(name));
    }
    let mut visible = start.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let format = match (visible.next(), visible.next()) {
        (Some(b'{'), _) | (Some(b'['), Some(b'{' | b']') | None) => Some(TraceFormat::Json),
        _ => is_strace(&start).then_some(TraceFormat::Strace),
    };
    Ok(format)
}

/// Whether a compressed file ends too early.
fn is_cut(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// Whether compressed data is damaged.
fn is_damaged(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// A file that is open only while it is read: a trace may have more files than a process may have open.
struct Reopened {
    path: PathBuf,
    offset: u64,
}

impl Read for Reopened {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut file = File::open(&self.path)?;
        // The first part of a pipe cannot be skipped, and need not be.
        if self.offset > 0 {
            file.seek(SeekFrom::Start(self.offset))?;
        }
        let bytes = file.read(to)?;
        self.offset += bytes as u64;
        Ok(bytes)
    }
}

/// The content of a file, without its compression.
fn opened(path: &Path, part: usize) -> io::Result<Box<dyn BufRead>> {
    let mut input = BufReader::with_capacity(part, Reopened { path: path.to_owned(), offset: 0 });
    Ok(match input.fill_buf()?.starts_with(&GZIP) {
        true => Box::new(BufReader::with_capacity(part, MultiGzDecoder::new(input))),
        false => Box::new(input),
    })
}

/// The lines of one file.
pub(super) struct InputLines {
    pub(super) name: String,
    /// Of the last line.
    pub(super) number: u64,
    /// Why the file ends before its end, as a sentence.
    pub(super) cut: Option<String>,
    input: Box<dyn BufRead>,
    line: Vec<u8>,
}

impl InputLines {
    /// `files`: how many are read at the same time.
    pub(super) fn open(path: &Path, files: usize) -> Result<InputLines, TraceInputError> {
        let name = path.display().to_string();
        let part = (BUFFERS / files.max(1)).clamp(4096, PART);
        let input = opened(path, part).map_err(|error| TraceInputError::Io(name.clone(), error))?;
        Ok(InputLines { name, number: 0, cut: None, input, line: Vec::new() })
    }

    /// The next line without its end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, TraceInputError> {
        self.line.clear();
        let read = (&mut self.input).take(LONGEST_LINE).read_until(b'\n', &mut self.line);
        self.number += 1;
        match read {
            Ok(0) => return Ok(None),
            Ok(_) if self.line.ends_with(b"\n") => drop(self.line.pop()),
            Ok(bytes) if bytes as u64 == LONGEST_LINE => self.skip_rest()?,
            Ok(_) => self.cut = Some(format!("{} ends within line {}.", self.name, self.number)),
            Err(error) if is_cut(&error) => {
                self.cut = Some(format!("{} ends within line {}.", self.name, self.number));
                return Ok(None);
            }
            Err(error) if is_damaged(&error) && self.number > 1 => {
                let (name, line) = (&self.name, self.number);
                self.cut =
                    Some(format!("{name} was read up to line {line}: its compressed data is damaged."));
                return Ok(None);
            }
            Err(error) => return Err(TraceInputError::Line(self.name.clone(), self.number, error)),
        }
        Ok(Some(&self.line))
    }

    /// Skips the rest of a line that is too long.
    fn skip_rest(&mut self) -> Result<(), TraceInputError> {
        match self.input.skip_until(b'\n') {
            Err(error) if !is_cut(&error) => {
                Err(TraceInputError::Line(self.name.clone(), self.number, error))
            }
            _ => Ok(()),
        }
    }
}
