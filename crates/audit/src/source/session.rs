//! What a job needs to be observed: the preload library and the Python marks as files, and an environment that leads
//! to them. The files are removed afterwards.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapOptions;
use rustix::fs::MemfdFlags;

use super::memory::{descriptor_path, memory_file};
use crate::layout::{LIBRARY_VARIABLE, PYTHON_VARIABLE, RING_VARIABLE};

static LIBRARY: &[u8] = include_bytes!(env!("FEEDLINE_PRELOAD"));
static PYTHON: &str = include_str!("../../python/sitecustomize.py");

/// How names of session folders begin. Then follow the PID namespace, the process and a number.
const PREFIX: &str = "feedline-audit";
/// Programs that are linked with the address sanitizer end at once if another library comes before the sanitizer's.
const ASAN_ORDER: &str = "verify_asan_link_order=0";
/// Free bytes of a place that is taken first.
const ROOM_BYTES: u64 = 64 << 20;

/// Whether the library exists for this system.
pub(super) fn is_supported() -> bool {
    !LIBRARY.is_empty()
}

/// The files of one audit.
#[derive(Debug)]
pub(super) struct Session {
    library: PathBuf,
    python: Option<PathBuf>,
    folders: Vec<PathBuf>,
    /// The library, if no folder can hold it.
    _memory: Option<File>,
}

impl Drop for Session {
    fn drop(&mut self) {
        for folder in &self.folders {
            // What remains is removed by the next audit.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Folders that can hold a session, best first.
fn places() -> Vec<PathBuf> {
    let temporary = std::env::temp_dir();
    let fixed = ["/dev/shm".into(), temporary, "/tmp".into(), "/var/tmp".into()];
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let all = fixed.into_iter().chain(own).filter(|place| is_listable(place));
    let (large, small) = all.partition::<Vec<_>, _>(|place| has_room(place));
    large.into_iter().chain(small).collect()
}

/// Whether a path below this one can be an entry of `LD_PRELOAD`: the loader separates and replaces parts of others.
fn is_listable(place: &Path) -> bool {
    let is_special = |byte: &u8| byte.is_ascii_whitespace() || [b':', b'$'].contains(byte);
    place.is_absolute() && !place.as_os_str().as_bytes().iter().any(is_special)
}

/// Whether the files of a session are little compared to what is free: a job may need the rest.
fn has_room(place: &Path) -> bool {
    let room = rustix::fs::statvfs(place).map(|about| about.f_bavail.saturating_mul(about.f_frsize));
    room.is_ok_and(|room| room >= ROOM_BYTES)
}

/// The PID namespace of this process: numbers of processes are compared within it only.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |data| data.ino())
}

/// The process that made a session folder of this name, if it belongs to this namespace.
fn maker(name: &str, namespace: u64) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
    let (space, pid, number) = (parts.next()?, parts.next()?, parts.next()?);
    number.parse::<u32>().ok()?;
    (parts.next().is_none() && space.parse() == Ok(namespace)).then_some(())?;
    pid.parse().ok()
}

/// Removes folders of this user whose process is gone.
fn remove_old(place: &Path) {
    let own = rustix::process::geteuid().as_raw();
    let space = namespace();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| maker(name, space)) else { continue };
        let is_own = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == own);
        if is_own && !Path::new("/proc").join(pid.to_string()).exists() {
            // Another audit may remove it at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a new folder that every user can read.
fn make_folder(place: &Path) -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = place.join(format!("{PREFIX}-{}-{}-{number}", namespace(), std::process::id()));
    DirBuilder::new().mode(0o755).create(&folder)?;
    // Whatever the umask is.
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(folder)
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.write_all(content)
}

/// Whether a program can load this file: not if its mount has the option `noexec`.
fn is_loadable(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // SAFETY: the mapping is not read.
    unsafe { MmapOptions::new().map_exec(&file) }.is_ok()
}

impl Session {
    pub(super) fn new(marks: bool) -> io::Result<Session> {
        let mut session =
            Session { library: PathBuf::new(), python: None, folders: Vec::new(), _memory: None };
        for place in places() {
            remove_old(&place);
        }
        for place in places() {
            if session.library.as_os_str().is_empty() || (marks && session.python.is_none()) {
                // The next place may work.
                let _ = session.fill(&place, marks);
            }
        }
        if session.library.as_os_str().is_empty() {
            let name = c"feedline-preload";
            let mut file =
                memory_file(name, MemfdFlags::EXEC).or_else(|_| memory_file(name, MemfdFlags::empty()))?;
            file.write_all(LIBRARY)?;
            session.library = descriptor_path(&file).into();
            session._memory = Some(file);
        }
        Ok(session)
    }

    /// Puts what is missing into a new folder below `place`.
    fn fill(&mut self, place: &Path, marks: bool) -> io::Result<()> {
        let folder = make_folder(place)?;
        self.folders.push(folder.clone());
        if marks && self.python.is_none() {
            write_file(&folder.join("sitecustomize.py"), PYTHON.as_bytes())?;
            self.python = Some(folder.clone());
        }
        if self.library.as_os_str().is_empty() {
            let library = folder.join("libfeedline_preload.so");
            write_file(&library, LIBRARY)?;
            if is_loadable(&library) {
                self.library = library;
            }
        }
        Ok(())
    }

    /// The variables of a job that is observed. `of` gives those of this process.
    pub(super) fn environment(
        &self,
        ring: &str,
        of: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let library = self.library.as_os_str();
        let preload = of("LD_PRELOAD").filter(|list| !list.is_empty());
        let preload = match preload {
            Some(list) if starts_with_sanitizer(&list) => joined(&list, Some(library)),
            list => joined(library, list.as_deref()),
        };
        let asan = of("ASAN_OPTIONS").filter(|list| !list.is_empty());
        let asan = asan.map_or_else(|| ASAN_ORDER.into(), |list| joined(&list, Some(OsStr::new(ASAN_ORDER))));
        let mut all = vec![
            (RING_VARIABLE, ring.into()),
            (LIBRARY_VARIABLE, library.into()),
            ("LD_PRELOAD", preload),
            ("ASAN_OPTIONS", asan),
        ];
        if let Some(python) = &self.python {
            // An empty entry of the list would stand for the current folder.
            let path = of("PYTHONPATH").filter(|list| !list.is_empty());
            all.push((PYTHON_VARIABLE, python.into()));
            all.push(("PYTHONPATH", joined(python.as_os_str(), path.as_deref())));
        }
        all
    }
}

fn joined(first: &OsStr, second: Option<&OsStr>) -> OsString {
    let mut list = first.to_owned();
    if let Some(second) = second {
        list.push(":");
        list.push(second);
    }
    list
}

/// Whether a list starts with the run-time library of a sanitizer, which refuses to work in any other place.
fn starts_with_sanitizer(list: &OsStr) -> bool {
    let list = list.to_string_lossy();
    let first = list.split([':', ' ']).find(|part| !part.is_empty()).unwrap_or_default();
    let file = first.rsplit('/').next().unwrap_or_default();
    ["asan", "tsan", "msan", "lsan"].iter().any(|name| file.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(all: &[(&str, OsString)], name: &str) -> Option<String> {
        let found = all.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn lists_of_the_user_stay_behind_ours() {
        let session = Session::new(true).unwrap();
        let library = session.library.to_str().unwrap().to_owned();
        let none = session.environment("/r", |_| None);
        assert_eq!(find(&none, "LD_PRELOAD"), Some(library.clone()));
        assert_eq!(find(&none, "PYTHONPATH"), find(&none, PYTHON_VARIABLE));
        assert_eq!(find(&none, RING_VARIABLE).as_deref(), Some("/r"));
        let users = session.environment("/r", |name| Some(format!("x:{name}").into()));
        assert_eq!(find(&users, "LD_PRELOAD"), Some(format!("{library}:x:LD_PRELOAD")));
        assert!(find(&users, "PYTHONPATH").unwrap().ends_with(":x:PYTHONPATH"));
        assert_eq!(find(&users, "ASAN_OPTIONS").unwrap(), format!("x:ASAN_OPTIONS:{ASAN_ORDER}"));
        let asan = session.environment("/r", |_| Some("/lib/libasan.so.8".into()));
        assert_eq!(find(&asan, "LD_PRELOAD"), Some(format!("/lib/libasan.so.8:{library}")));
        let other = session.environment("/r", |_| Some("/opt/hasan/mine.so".into()));
        assert_eq!(find(&other, "LD_PRELOAD"), Some(format!("{library}:/opt/hasan/mine.so")));
        let empty = session.environment("/r", |_| Some(OsString::new()));
        assert_eq!(find(&empty, "LD_PRELOAD"), Some(library));
        assert_eq!(find(&empty, "PYTHONPATH"), find(&empty, PYTHON_VARIABLE));
    }

    #[test]
    fn marks_can_be_left_out() {
        let session = Session::new(false).unwrap();
        let variables = session.environment("/r", |_| None);
        assert_eq!((find(&variables, "PYTHONPATH"), find(&variables, PYTHON_VARIABLE)), (None, None));
        assert_eq!(fs::read(&session.library).unwrap(), LIBRARY);
    }

    #[test]
    fn places_that_a_list_cannot_hold_are_left_out() {
        assert!(is_listable(Path::new("/var/tmp")));
        for place in ["tmp", "/a b", "/a:b", "/$LIB"] {
            assert!(!is_listable(Path::new(place)), "{place}");
        }
    }

    #[test]
    fn a_session_leaves_nothing_behind() {
        let session = Session::new(true).unwrap();
        let folders = session.folders.clone();
        assert!(!folders.is_empty() && folders.iter().all(|folder| folder.is_dir()));
        drop(session);
        assert!(folders.iter().all(|folder| !folder.exists()));
    }

    #[test]
    fn folders_of_processes_that_are_gone_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: String| {
            let folder = place.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let space = namespace();
        // Above the largest number of a process.
        let gone = make(format!("{PREFIX}-{space}-4294967294-0"));
        let kept = [
            make(format!("{PREFIX}-{space}-{}-7", std::process::id())),
            make(format!("{PREFIX}-{}-4294967294-0", space + 1)),
            make(format!("{PREFIX}-{space}-4294967294-0-more")),
            make("feedline-4294967294".to_owned()),
        ];
        remove_old(place.path());
        assert!(!gone.exists());
        assert!(kept.iter().all(|folder| folder.exists()), "{kept:?}");
    }
}
