//! Files through io_uring: few threads have many fetches in flight, across files, and opens and closes go through the
//! ring like reads, with or without the page cache. If the kernel forbids rings, this backend is unavailable, and the
//! message names the cause; there is no fallback.

mod lane;
mod obstacle;
mod reader;
mod ring;

use std::path::Path;

use model::location::Location;
use model::names::Name;
use model::plan::Medium;
use model::spec::Readahead;
use model::units::counted;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::folder::Folder;
use crate::past_cache::PastCache;
use crate::posix::{DONTCACHE, advice};
use crate::reading::Transfers;
use crate::{
    Backend, Capabilities, Files, Lane, Mode, OpenTier, Operation, PlaceKind, Selection, Store, StoreError,
    Threads, Traffic, tier, want_files,
};
use lane::UringLane;
pub use obstacle::RingObstacle;
use ring::{Ring, RingError, RingFeatures, RingSize};

pub(crate) const BACKEND: Backend = Backend {
    name: "uring",
    arguments: "",
    summary: "io_uring: many files in flight from few threads",
    example: "uring",
    medium: Medium::Storage,
    place: PlaceKind::Folder,
    injects_faults: false,
    capabilities: |_| Uring::CAPABILITIES,
    check: |_| Ok(()),
    open: Uring::open_boxed,
    tier: Some(OpenTier::Volume(tier::uring)),
};

/// Number of buffers that a ring can register (IORING_MAX_REG_BUFFERS of the kernel), and the maximum size of one.
const MOST_READERS: usize = 1 << 14;
const MOST_ROOM: usize = 1 << 30;

#[derive(Debug)]
pub(crate) struct Uring {
    folder: Folder,
    readahead: Readahead,
    past_cache: Option<PastCache>,
    setup: RingFeatures,
}

impl Uring {
    pub(crate) const CAPABILITIES: Capabilities = Capabilities {
        holds_files: true,
        threads: Threads::PerCore,
        brings_bytes: true,
        cached: true,
        odirect: true,
    };

    /// Opens the data folder, which must exist. Refused if the kernel does not allow rings.
    pub(crate) fn open(root: &Path, mode: Mode) -> Result<Uring, StoreError> {
        let folder = Folder::open(root)?;
        let past_cache = mode.odirect.then(|| PastCache::of(&folder, mode.readahead)).transpose()?;
        let setup = RingFeatures::probe().map_err(forbidden)?;
        Ok(Uring { folder, readahead: mode.readahead, past_cache, setup })
    }

    pub(crate) fn open_boxed(place: &Location, selection: &Selection) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Uring::open(place.path()?, selection.mode)?))
    }

    /// How files are opened. Not non-blocking, unlike elsewhere: a ring would fail reads that have to wait.
    fn open_flags(&self) -> OFlags {
        match self.past_cache {
            Some(_) => OFlags::RDONLY | OFlags::DIRECT,
            None => OFlags::RDONLY,
        }
    }

    fn read_flags(&self) -> i32 {
        match self.readahead {
            Readahead::Dontcache => DONTCACHE.bits() as i32,
            _ => 0,
        }
    }

    fn advice(&self) -> Option<i32> {
        advice(self.readahead).map(|advice| advice as i32)
    }

    /// Checks the first file that is to be read with O_DIRECT, which is not possible for a file in a slot.
    fn prove(&self, name: &Name) -> Result<(), StoreError> {
        match &self.past_cache {
            Some(past_cache) if !past_cache.is_proven() => {
                let opened = self.folder.try_open(name, OFlags::DIRECT);
                let file =
                    opened.map_err(|cause| self.error(Operation::Open, self.folder.shown(name), cause))?;
                past_cache.prove(&self.folder, name, &file)
            }
            _ => Ok(()),
        }
    }

    fn error(&self, operation: Operation, name: String, cause: Errno) -> StoreError {
        match (&self.past_cache, cause) {
            (Some(past_cache), cause) => past_cache.error(operation, name, cause),
            (None, Errno::OPNOTSUPP | Errno::INVAL)
                if operation == Operation::Read && self.readahead == Readahead::Dontcache =>
            {
                StoreError::NoDontcache { name }
            }
            (None, cause) => StoreError::io(operation, &name, cause),
        }
    }
}

/// Sets up a ring as `uring` does. Returns whether completions are deferred until the reader asks for them, or what
/// keeps this process from using rings.
pub fn try_ring() -> Result<bool, RingObstacle> {
    let setup = RingFeatures::probe();
    setup
        .map(|setup| setup.deferred)
        .map_err(|cause| RingObstacle::of(cause, &obstacle::sysctl(), obstacle::is_filtered()))
}

/// Why rings are not available, and what can be done.
pub(crate) fn forbidden(cause: Errno) -> StoreError {
    why_forbidden(cause, &obstacle::sysctl())
}

fn why_forbidden(cause: Errno, sysctl: &str) -> StoreError {
    let reason = match (cause, sysctl) {
        (Errno::PERM | Errno::ACCESS, "1" | "2") => format!(
            "it is switched off here (sysctl kernel.io_uring_disabled is {sysctl}); an administrator can allow it with \
             sysctl kernel.io_uring_disabled=0"
        ),
        (Errno::PERM | Errno::ACCESS | Errno::NOSYS, _) => {
            "the kernel was built without it, or a seccomp filter forbids it, as container runtimes do by default"
                .to_owned()
        }
        (Errno::INVAL, _) => "this kernel is too old: Linux 5.19 or newer is needed".to_owned(),
        (cause, _) => cause.to_string(),
    };
    StoreError::Refused(format!("io_uring cannot be used: {reason}; or use --store posix or --store direct"))
}

/// Why a ring of that size cannot be created.
fn too_large(size: RingSize, failed: RingError) -> StoreError {
    let (readers, bytes) = (counted(size.readers as u64, "reader"), size.bytes());
    match failed {
        RingError::Setup(cause) => forbidden(cause),
        RingError::Lock(Errno::NOMEM | Errno::PERM) => {
            let limit =
                getrlimit(Resource::Memlock).current.map_or("unlimited".to_owned(), |l| l.to_string());
            StoreError::Refused(format!(
                "io_uring reads into memory that is locked: {bytes} bytes for the {readers} of a thread, but this user \
                 may lock only {limit} in total; raise the limit (ulimit -l), use fewer readers or a smaller \
                 reader.transfer_size, or use --store direct"
            ))
        }
        RingError::Lock(cause) | RingError::Room(cause) => StoreError::Refused(format!(
            "io_uring cannot be used for {readers} and {bytes} bytes of memory: {cause}; or use --store direct"
        )),
    }
}

impl Store for Uring {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn capabilities(&self) -> Capabilities {
        Uring::CAPABILITIES
    }

    fn lane<'a>(&'a self, traffic: Traffic<'a>) -> Result<Box<dyn Lane + 'a>, StoreError> {
        let granule = self.past_cache.as_ref().map_or(1, PastCache::granule);
        let transfers = Transfers::new(traffic.transfer, granule);
        let size = RingSize { readers: traffic.readers.max(1), room: transfers.room() };
        if size.readers > MOST_READERS {
            return Err(StoreError::Refused(format!(
                "a thread runs at most {MOST_READERS} readers through io_uring, but {} were requested; use more \
                 threads",
                size.readers
            )));
        }
        if size.room > MOST_ROOM {
            return Err(StoreError::Refused(format!(
                "io_uring reads at most {MOST_ROOM} bytes at a time, but reader.transfer_size is {}",
                traffic.transfer
            )));
        }
        // Files in slots take no descriptors, but a table of slots cannot be larger than that limit.
        want_files(size.readers as u64)?;
        let ring = Ring::new(self.setup, size).map_err(|failed| too_large(size, failed))?;
        Ok(Box::new(UringLane::new(self, traffic, transfers, ring)))
    }

    fn files(&self) -> &dyn Files {
        &self.folder
    }

    fn observed(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("o_direct", self.past_cache.is_some().to_string())];
        facts.extend(self.past_cache.as_ref().map(|past| ("granule_bytes", past.granule().to_string())));
        facts.push(("readahead", self.readahead.name().to_owned()));
        facts.push(("deferred_completions", self.setup.deferred.to_string()));
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fetch, FetchWait, Purpose, child, conformance};
    use model::extent::Extent;
    use model::units::Nanos;
    use rustix::process::{Rlimit, setrlimit};

    fn traffic(readers: usize, transfer: usize) -> Traffic<'static> {
        Traffic { readers, transfer, ..Traffic::untimed() }
    }

    /// The store on a new folder. If the tests' kernel or file system does not support it, the refusal is checked.
    fn store(readahead: Readahead, odirect: bool) -> Option<(tempfile::TempDir, Uring)> {
        let folder = tempfile::tempdir().unwrap();
        match Uring::open(folder.path(), Mode { readahead, odirect }) {
            Ok(store) => Some((folder, store)),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("O_DIRECT") || error.contains("io_uring"), "{error}");
                None
            }
        }
    }

    const MODES: [(Readahead, bool); 4] = [
        (Readahead::Normal, false),
        (Readahead::Sequential, false),
        (Readahead::Random, false),
        (Readahead::Normal, true),
    ];

    #[test]
    fn passes_the_conformance_suite_in_every_mode() {
        for (readahead, odirect) in MODES {
            let Some((_folder, store)) = store(readahead, odirect) else { continue };
            conformance::store_with_files(&store);
            conformance::whole_files_of_odd_sizes(&store);
        }
    }

    #[test]
    fn a_ring_of_an_older_kernel_does_the_same() {
        for odirect in [false, true] {
            let Some((_folder, store)) = store(Readahead::Normal, odirect) else { continue };
            let store = Uring { setup: RingFeatures { deferred: false }, ..store };
            conformance::store_with_files(&store);
            assert!(store.observed().contains(&("deferred_completions", "false".to_owned())));
        }
    }

    #[test]
    fn dontcache_reads_work_or_are_refused_with_the_reason() {
        let Some((_folder, store)) = store(Readahead::Dontcache, false) else { return };
        match conformance::first_read(&store) {
            Ok(()) => conformance::store_with_files(&store),
            Err(error) => assert!(error.to_string().contains("dontcache"), "{error}"),
        }
    }

    #[test]
    fn a_fifo_in_place_of_a_file_is_an_error_and_does_not_hang() {
        for (readahead, odirect) in MODES {
            let Some((folder, store)) = store(readahead, odirect) else { continue };
            conformance::a_fifo_is_an_error(&store, folder.path());
        }
    }

    /// Reads ten bytes of `pipe`, which should hold no more (opened into a slot), or more (opened as a descriptor), and
    /// checks the error message.
    fn is_refused(store: &Uring) {
        let name = Name::new("pipe").unwrap();
        for file_bytes in [10, 20] {
            let mut lane = store.lane(traffic(1, 4096)).unwrap();
            let read = conformance::read_metadata(&mut *lane, 0, (&name, file_bytes), 0, 10);
            let error = read.unwrap_err().to_string();
            assert!(error.contains("pipe: Illegal seek"), "{error}");
        }
    }

    fn make_fifo(folder: &Path, name: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, folder.join(name), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    #[test]
    fn a_fifo_with_an_open_writer_does_not_hang() {
        let Some((folder, store)) = store(Readahead::Normal, false) else { return };
        make_fifo(folder.path(), "pipe");
        let writer =
            std::fs::File::options().read(true).write(true).open(folder.path().join("pipe")).unwrap();
        is_refused(&store);
        drop(writer);
    }

    #[test]
    fn an_open_that_waits_forever_is_cancelled() {
        use rustix::fd::AsRawFd;

        let Some((folder, store)) = store(Readahead::Normal, false) else { return };
        make_fifo(folder.path(), "real");
        // A ring tries to open without waiting if the name is cached, but not through such a link.
        let end = rustix::fs::open(
            folder.path().join("real"),
            OFlags::RDONLY | OFlags::NONBLOCK,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let place = format!("/proc/self/fd/{}", end.as_raw_fd());
        std::os::unix::fs::symlink(place, folder.path().join("pipe")).unwrap();
        is_refused(&store);
    }

    fn put(folder: &Path, count: usize, bytes: usize) -> Vec<Name> {
        let name = |file: usize| {
            std::fs::write(folder.join(format!("f{file}")), vec![file as u8; bytes]).unwrap();
            Name::new(&format!("f{file}")).unwrap()
        };
        (0..count).map(name).collect()
    }

    #[test]
    fn a_thousand_readers_with_more_requests_than_a_queue_holds() {
        const READERS: usize = 1000;
        for (readahead, odirect) in MODES {
            let Some((folder, store)) = store(readahead, odirect) else { continue };
            let names = put(folder.path(), 256, 5000);
            let mut lane = store.lane(traffic(READERS, 4096)).unwrap();
            let ranges = [Extent { offset: 0, len: 5000 }];
            for reader in 0..READERS {
                let fetch = Fetch {
                    name: &names[reader % names.len()],
                    purpose: Purpose::Samples(0),
                    ranges: &ranges,
                    file_bytes: 5000,
                    version: None,
                    keep_open: false,
                    at: Nanos::ZERO,
                    into: Some(crate::Buffer::default()),
                };
                lane.submit(reader, fetch);
            }
            let mut seen = [false; READERS];
            while seen.contains(&false) {
                match lane.reap() {
                    None => lane.wait(Nanos(1_000_000_000)),
                    Some(done) => {
                        assert_eq!(done.outcome.unwrap().bytes, 5000);
                        assert!(done.kept.unwrap().bytes() == [(done.reader % 256) as u8; 5000]);
                        assert!(!std::mem::replace(&mut seen[done.reader], true), "once each");
                    }
                }
            }
            assert_eq!(lane.awaits(), FetchWait::Nothing);
        }
    }

    #[test]
    fn a_fetch_without_ranges_ends() {
        let Some((folder, store)) = store(Readahead::Normal, false) else { return };
        let names = put(folder.path(), 1, 10);
        let mut lane = store.lane(traffic(1, 4096)).unwrap();
        for (keep_open, opens) in [(false, 1), (true, 1), (true, 0), (false, 0)] {
            let fetch = Fetch {
                name: &names[0],
                purpose: Purpose::Samples(0),
                ranges: &[],
                file_bytes: 10,
                version: None,
                keep_open,
                at: Nanos::ZERO,
                into: None,
            };
            lane.submit(0, fetch);
            let done = loop {
                match lane.reap() {
                    Some(done) => break done,
                    None => lane.wait(Nanos(1_000_000_000)),
                }
            };
            let brought = done.outcome.unwrap();
            assert_eq!((brought.bytes, brought.opens, brought.reads), (0, opens, 0));
        }
    }

    #[test]
    fn a_lane_can_be_dropped_while_fetches_are_in_flight() {
        for odirect in [false, true] {
            let Some((folder, store)) = store(Readahead::Normal, odirect) else { continue };
            let names = put(folder.path(), 50, 300_000);
            make_fifo(folder.path(), "pipe");
            let ranges = [Extent { offset: 0, len: 300_000 }];
            for round in 0..20 {
                let mut lane = store.lane(traffic(51, 1 << 16)).unwrap();
                // The last round has one that would never end.
                let pipe = (round == 19).then(|| Name::new("pipe").unwrap());
                for (reader, name) in names.iter().chain(&pipe).enumerate() {
                    let fetch = Fetch {
                        name,
                        purpose: Purpose::Samples(0),
                        ranges: &ranges,
                        file_bytes: 300_000,
                        version: None,
                        keep_open: false,
                        at: Nanos::ZERO,
                        into: Some(crate::Buffer::default()),
                    };
                    lane.submit(reader, fetch);
                }
                for _ in 0..round {
                    let _ = lane.reap();
                }
            }
        }
    }

    #[test]
    fn a_lane_can_be_created_in_one_thread_and_used_in_another() {
        let Some((_folder, store)) = store(Readahead::Normal, false) else { return };
        conformance::first_read(&store).unwrap();
        let mut lane = store.lane(traffic(1, 4096)).unwrap();
        let name = Name::new("first").unwrap();
        let read = || conformance::read_metadata(&mut *lane, 0, (&name, 100), 50, 50);
        let (brought, _) = std::thread::scope(|scope| scope.spawn(read).join().unwrap()).unwrap();
        assert_eq!(brought.bytes, 50);
    }

    #[test]
    fn a_wait_can_be_ended_from_another_thread_and_a_wake_up_is_not_lost() {
        let Ok(setup) = RingFeatures::probe() else { return };
        let mut ring = Ring::new(setup, RingSize { readers: 1, room: 1 }).map_err(|_| "refused").unwrap();
        const LONG: Nanos = Nanos(600_000_000_000);
        for _ in 0..100 {
            use crate::Waker;
            let bell = ring.bell();
            let ringing = std::thread::spawn(move || bell.wake());
            assert_eq!(ring.enter(Some(LONG)), Ok(false), "time did not pass");
            while ring.answer().is_some() {}
            assert!(ring.was_rung() && !ring.was_rung());
            ringing.join().unwrap();
        }
    }

    #[test]
    fn the_cause_of_forbidden_rings_is_named() {
        for (cause, sysctl, expected) in [
            (Errno::PERM, "2", "kernel.io_uring_disabled is 2"),
            (Errno::PERM, "0", "seccomp"),
            (Errno::NOSYS, "", "seccomp"),
            (Errno::INVAL, "0", "Linux 5.19"),
        ] {
            let error = why_forbidden(cause, sysctl).to_string();
            assert!(error.contains(expected) && error.contains("--store posix"), "{error}");
        }
    }

    #[test]
    fn a_seccomp_filter_is_reported_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let filtered = || {
            forbid_rings();
            Uring::open(folder.path(), Mode::default()).unwrap_err().to_string()
        };
        // The filter applies to one thread only.
        let error = std::thread::scope(|scope| scope.spawn(filtered).join().unwrap());
        assert!(error.starts_with("io_uring cannot be used: ") && error.contains("seccomp"), "{error}");
        let tried = || {
            forbid_rings();
            try_ring()
        };
        let tried = std::thread::scope(|scope| scope.spawn(tried).join().unwrap());
        let disabled = obstacle::sysctl();
        match disabled.as_str() {
            "1" | "2" => assert_eq!(tried, Err(RingObstacle::Disabled(disabled))),
            _ => assert_eq!(tried, Err(RingObstacle::Filtered)),
        }
    }

    /// Does what container runtimes do: io_uring_setup fails for this thread from now on.
    fn forbid_rings() {
        let step = |code: u32, jt, jf, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut steps = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: the filter and its steps live until the calls return; the kernel makes a copy.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
        }
    }

    #[test]
    fn limits_of_the_system_are_named_with_what_is_needed() {
        if let Some(folder) = child::folder() {
            return run_into_limits(&folder);
        }
        let folder = tempfile::tempdir().unwrap();
        let test = "uring::tests::limits_of_the_system_are_named_with_what_is_needed";
        let ended = child::again(test, folder.path());
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    fn run_into_limits(folder: &Path) {
        let Ok(store) = Uring::open(folder, Mode::default()) else { return };
        let refusal = |readers, transfer| match store.lane(traffic(readers, transfer)) {
            Ok(_) => panic!("{readers} readers of {transfer} bytes were accepted"),
            Err(error) => error.to_string(),
        };
        assert!(refusal(20_000, 1).contains("at most 16384 readers"));
        assert!(refusal(1, 1 << 40).contains("reader.transfer_size is 1099511627776"));
        let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
        setrlimit(Resource::Nofile, limit(64)).unwrap();
        let error = refusal(1000, 4096);
        assert!(error.contains("1000 files") && error.contains("but it is 64"), "{error}");
        setrlimit(Resource::Memlock, limit(1 << 16)).unwrap();
        // Root may lock any amount.
        // SAFETY: a number is passed and no memory of this process is accessed; all its threads become user 65534.
        let nobody = rustix::process::getuid().is_root().then(|| unsafe { libc::setuid(65_534) });
        assert_ne!(nobody, Some(-1));
        let error = refusal(8, 1 << 20);
        assert!(error.contains("ulimit -l") && error.contains("lock only 65536"), "{error}");
    }
}
