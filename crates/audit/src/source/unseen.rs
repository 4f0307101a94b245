//! Why a process of the job could not be observed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::proc::{own_seccomp_filters, seccomp_filters};
use crate::layout::RING_VARIABLE;

/// What a program file says about how it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProgramStart {
    /// Without a dynamic loader.
    Static,
    /// With this loader.
    Dynamic(PathBuf),
    /// For another kind of machine.
    Foreign,
    /// A script, or unreadable.
    Other,
}

/// Program headers that are examined at most.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 56;
const LOADER: u32 = 3;

/// Reads the beginning of a program file.
fn program(file: &File) -> Option<ProgramStart> {
    let mut start = [0; 64];
    file.read_exact_at(&mut start, 0).ok()?;
    let number = |at: usize, length: usize| -> usize {
        let bytes = start.iter().skip(at).take(length).rev();
        bytes.fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    if !start.starts_with(b"\x7fELF") {
        return Some(ProgramStart::Other);
    }
    // Class, byte order and machine are those of this program itself.
    let mut own = [0; 20];
    File::open("/proc/self/exe").ok()?.read_exact(&mut own).ok()?;
    if start.get(4..6) != own.get(4..6) || start.get(18..20) != own.get(18..20) || start.get(4) != Some(&2) {
        return Some(ProgramStart::Foreign);
    }
    let (offset, count) = (number(32, 8) as u64, number(56, 2).min(HEADERS));
    if number(54, 2) != HEADER_BYTES {
        return Some(ProgramStart::Other);
    }
    let mut headers = vec![0; count * HEADER_BYTES];
    file.read_exact_at(&mut headers, offset).ok()?;
    let field = |header: &[u8], at: usize| -> u64 {
        let bytes = header.iter().skip(at).take(8).rev();
        bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let loader = headers.chunks(HEADER_BYTES).find(|header| field(header, 0) as u32 == LOADER);
    let Some(loader) = loader else { return Some(ProgramStart::Static) };
    let mut name = vec![0; usize::try_from(field(loader, 32)).ok()?.min(4096)];
    file.read_exact_at(&mut name, field(loader, 8)).ok()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    Some(ProgramStart::Dynamic(PathBuf::from(String::from_utf8_lossy(&name).into_owned())))
}

/// Why programs of this file cannot be observed. `None`: they can.
fn reason_of_file(file: &File) -> Option<String> {
    let data = file.metadata().ok()?;
    let changes_user = data.mode() & 0o4000 != 0 && data.uid() != rustix::process::geteuid().as_raw();
    let reason = match program(file)? {
        ProgramStart::Static => "statically linked".to_owned(),
        ProgramStart::Foreign => "for another kind of machine".to_owned(),
        ProgramStart::Dynamic(loader) => {
            let is_glibc =
                loader.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
            if is_glibc && !changes_user {
                return None;
            }
            match is_glibc {
                true => "a set-uid program".to_owned(),
                false => format!("linked with another C library ({})", loader.display()),
            }
        }
        ProgramStart::Other => return None,
    };
    Some(reason)
}

/// Why a program that a process executed left no trace, from its path or name alone.
pub(super) fn reason_of_program(name: &str) -> Option<String> {
    let path = if name.contains('/') {
        PathBuf::from(name)
    } else {
        let list = std::env::var_os("PATH")?;
        std::env::split_paths(&list).map(|folder| folder.join(name)).find(|path| path.is_file())?
    };
    reason_of_file(&File::open(path).ok()?)
}

/// The number that identifies a namespace of a process.
fn namespace(pid: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

fn has_variables(pid: u32) -> Option<bool> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let is_ours = |entry: &[u8]| {
        entry.strip_prefix(RING_VARIABLE.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    Some(environment.split(|byte| *byte == 0).any(is_ours))
}

/// Why a living process has no slot. `None`: it has not made a call yet, or it is gone.
pub(super) fn reason_of_process(pid: u32, parent: u32) -> Option<String> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let user = fs::metadata(&folder).ok()?.uid();
    if user != rustix::process::geteuid().as_raw() {
        return Some("of another user".to_owned());
    }
    if let Some(reason) = File::open(folder.join("exe")).ok().and_then(|file| reason_of_file(&file)) {
        return Some(reason);
    }
    let filters = own_seccomp_filters().zip(seccomp_filters(pid));
    if filters.is_some_and(|(own, its)| its > own) {
        return Some("it restricts its system calls (seccomp)".to_owned());
    }
    let namespaces = namespace("self").zip(namespace(&pid.to_string()));
    if namespaces.is_some_and(|(own, its)| own != its) {
        return Some("in another PID namespace".to_owned());
    }
    if has_variables(pid) == Some(false) {
        return Some("started without the variables of feedline in its environment".to_owned());
    }
    let executable = |pid: u32| fs::read_link(Path::new("/proc").join(pid.to_string()).join("exe")).ok();
    let exe = executable(pid)?;
    if executable(parent).as_deref().map(Path::as_os_str) == Some(exe.as_os_str()) {
        return None;
    }
    let name = exe.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
    Some(format!("the preload library is not active in {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program_of(bytes: &[u8]) -> Option<ProgramStart> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        program(file.as_file())
    }

    #[test]
    fn kinds_of_programs_are_told_apart() {
        let own = fs::read("/proc/self/exe").unwrap();
        let Some(ProgramStart::Dynamic(loader)) = program_of(&own[..own.len().min(1 << 16)]) else {
            panic!("this test is linked dynamically");
        };
        assert!(loader.to_str().unwrap().contains("ld-linux"), "{loader:?}");
        let mut none = own[..4096].to_vec();
        // No program headers at all.
        none[56..58].copy_from_slice(&[0, 0]);
        assert_eq!(program_of(&none), Some(ProgramStart::Static));
        none[18] ^= 1;
        assert_eq!(program_of(&none), Some(ProgramStart::Foreign));
        assert_eq!(program_of(&[b'#'; 100]), Some(ProgramStart::Other));
        assert_eq!(program_of(b"\x7fELF"), None);
        // Offsets beyond the end.
        let mut wrong = own[..4096].to_vec();
        wrong[32..40].copy_from_slice(&[0xff; 8]);
        assert_eq!(program_of(&wrong), None);
    }

    #[test]
    fn this_process_could_be_observed_with_the_variables() {
        let pid = std::process::id();
        let reason = reason_of_process(pid, 0).unwrap();
        assert!(reason.contains("without the variables"), "{reason}");
        assert_eq!(reason_of_process(u32::MAX - 1, 0), None);
        assert_eq!(reason_of_program("cat"), None);
        assert_eq!(reason_of_program("/nonexistent/program"), None);
    }
}
