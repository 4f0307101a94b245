//! An MPI library, loaded when the program runs. MPI starts the job, exchanges the first small messages and ends all
//! processes of a job; it can also carry all messages, where there is no IP network. Calls are made by one thread at a
//! time.

mod abi;
mod installed;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use thiserror::Error;

use super::launcher::{Launch, Launcher, SlurmInterface};
use abi::{Abi, Constants};
pub use installed::{InstalledMpi, installed_libraries};

/// Enough for the version text of every library; the longest maximum is 8,192.
const TEXT_BYTES: usize = 16 << 10;
/// File names of MPI libraries, and their families.
const OPEN_MPI: (&str, Abi) = ("libmpi.so.40", Abi::OpenMpi);
const MPICH: (&str, Abi) = ("libmpi.so.12", Abi::Mpich);
const STANDARD: (&str, Abi) = ("libmpi_abi.so.1", Abi::Standard);

/// Why the MPI library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MpiError {
    #[error(
        "this process was started by {launcher}, but no MPI library that works with it was found \
         ({tried}); install it on every host, or add its folder to LD_LIBRARY_PATH on every host"
    )]
    NoLibrary { launcher: Launcher, tried: String },
    #[error(
        "this process was started by {launcher}, but the MPI library is {found}, which does not work with it; use the \
         launcher and the library of one MPI, for instance by putting the library's folder into LD_LIBRARY_PATH"
    )]
    OtherLibrary { launcher: Launcher, found: String },
    #[error(
        "srun started this process without an interface for MPI; use srun --mpi=pmix with Open MPI, or srun \
         --mpi=pmi2 with MPICH (srun --mpi=list shows what there is)"
    )]
    NoInterface,
    #[error(
        "{launcher} started {size} processes, but the MPI library {library} sees {seen}; use the launcher and the \
         library of one MPI"
    )]
    OtherSize { launcher: Launcher, size: u64, seen: u64, library: String },
    #[error(
        "{launcher} does not tell feedline how many processes it has started, and the MPI library {library} sees one; \
         use the launcher and the library of one MPI, or start a single process without a launcher"
    )]
    UnknownSize { launcher: Launcher, library: String },
    #[error("{call} of the MPI library failed with error {code}")]
    Failed { call: &'static str, code: i32 },
}

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Abort = unsafe extern "C" fn(usize, c_int) -> c_int;
type CommNumber = unsafe extern "C" fn(usize, *mut c_int) -> c_int;
type SetErrhandler = unsafe extern "C" fn(usize, usize) -> c_int;
type Allgather = unsafe extern "C" fn(*const c_void, c_int, usize, *mut c_void, c_int, usize, usize) -> c_int;
type Send = unsafe extern "C" fn(*const c_void, c_int, usize, c_int, c_int, usize, *mut usize) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, usize, c_int, c_int, usize, *mut usize) -> c_int;
type Cancel = unsafe extern "C" fn(*mut usize) -> c_int;
type Test = unsafe extern "C" fn(*mut usize, *mut c_int, usize) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

/// A loaded library. It stays loaded until the process ends: its threads may run at any time.
#[derive(Debug)]
pub(super) struct Mpi {
    /// Its own version text.
    pub(super) version: String,
    constants: Constants,
    functions: Functions,
}

#[derive(Debug)]
struct Functions {
    init: Init,
    finalize: Finalize,
    abort: Abort,
    rank: CommNumber,
    size: CommNumber,
    set_errhandler: SetErrhandler,
    allgather: Allgather,
    send: Send,
    receive: Receive,
    test: Test,
    cancel: Cancel,
}

/// The library of this process, once it is initialised.
static LOADED: OnceLock<Mpi> = OnceLock::new();

/// The library of this process, if it was initialised.
pub(super) fn loaded() -> Option<&'static Mpi> {
    LOADED.get()
}

/// Loads the library that fits the launcher and initialises it. A library that does not fit is refused before it is
/// initialised: most end the process at once, or run every process as a job of its own.
pub(super) fn start(launch: &Launch, named: Option<&str>) -> Result<&'static Mpi, MpiError> {
    let mpi = Mpi::load(launch, named)?;
    mpi.initialise()?;
    let (seen, launcher) = (mpi.size()?, launch.launcher);
    match launch.size {
        Some(size) if size != seen => {
            return Err(MpiError::OtherSize { launcher, size, seen, library: mpi.version.clone() });
        }
        None if seen == 1 => return Err(MpiError::UnknownSize { launcher, library: mpi.version.clone() }),
        _ => {}
    }
    Ok(LOADED.get_or_init(|| mpi))
}

impl Mpi {
    fn load(launch: &Launch, named: Option<&str>) -> Result<Mpi, MpiError> {
        let launcher = launch.launcher;
        if launcher == Launcher::Slurm(SlurmInterface::None) {
            return Err(MpiError::NoInterface);
        }
        let candidates: Vec<(&str, Abi)> = match named {
            Some(path) => vec![(path, if path.contains("_abi.") { Abi::Standard } else { guess(path) })],
            None => candidates(launcher).to_vec(),
        };
        let mut tried = Vec::new();
        for (name, abi) in candidates {
            match Mpi::open(name, abi) {
                Ok(mpi) if mpi.fits(launcher) => return Ok(mpi),
                Ok(mpi) => tried.push(Err(mpi.version)),
                Err(cause) => tried.push(Ok(cause)),
            }
        }
        if let Some(Err(found)) = tried.iter().find(|one| one.is_err()) {
            return Err(MpiError::OtherLibrary { launcher, found: found.clone() });
        }
        // A library that the launcher cannot work with explains more than a missing one.
        let others = if named.is_none() { others(launcher) } else { &[] };
        if let Some(other) = others.iter().find_map(|(name, abi)| Mpi::open(name, *abi).ok()) {
            return Err(MpiError::OtherLibrary { launcher, found: other.version });
        }
        let tried: Vec<String> = tried.into_iter().filter_map(Result::ok).collect();
        Err(MpiError::NoLibrary { launcher, tried: tried.join("; ") })
    }

    fn open(name: &str, abi: Abi) -> Result<Mpi, String> {
        // Global, because the libraries load plug-ins that expect their symbols.
        // SAFETY: loading runs the library's constructors, which is what the user of an MPI launcher asks for.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.map_err(|cause| {
            std::error::Error::source(&cause).map_or(cause.to_string(), ToString::to_string)
        })?;
        let incomplete = |cause: libloading::Error| format!("{name}: {cause}");
        let constants = Constants::of(abi, &library).ok_or_else(|| format!("{name}: symbols are missing"))?;
        // SAFETY: the types are those of the functions in the MPI standard, with handles as `usize` (see `abi`).
        let (functions, version) = unsafe {
            let functions = Functions {
                init: *library.get::<Init>(b"MPI_Init_thread").map_err(incomplete)?,
                finalize: *library.get::<Finalize>(b"MPI_Finalize").map_err(incomplete)?,
                abort: *library.get::<Abort>(b"MPI_Abort").map_err(incomplete)?,
                rank: *library.get::<CommNumber>(b"MPI_Comm_rank").map_err(incomplete)?,
                size: *library.get::<CommNumber>(b"MPI_Comm_size").map_err(incomplete)?,
                set_errhandler: *library
                    .get::<SetErrhandler>(b"MPI_Comm_set_errhandler")
                    .map_err(incomplete)?,
                allgather: *library.get::<Allgather>(b"MPI_Allgather").map_err(incomplete)?,
                send: *library.get::<Send>(b"MPI_Isend").map_err(incomplete)?,
                receive: *library.get::<Receive>(b"MPI_Irecv").map_err(incomplete)?,
                test: *library.get::<Test>(b"MPI_Test").map_err(incomplete)?,
                cancel: *library.get::<Cancel>(b"MPI_Cancel").map_err(incomplete)?,
            };
            (functions, *library.get::<Version>(b"MPI_Get_library_version").map_err(incomplete)?)
        };
        let version = version_text(version);
        // Unloading it would remove code that its threads run.
        std::mem::forget(library);
        Ok(Mpi { version, constants, functions })
    }

    /// Whether processes of this launcher find each other through this library.
    fn fits(&self, launcher: Launcher) -> bool {
        let open_mpi = self.open_mpi_major();
        match launcher {
            // The daemons of Open MPI 5 cannot start a library of Open MPI 4; the reverse works.
            Launcher::OpenMpi { major } => open_mpi.is_some_and(|of| of >= major.unwrap_or(0).min(5)),
            Launcher::Slurm(SlurmInterface::Pmix) | Launcher::Pmix => open_mpi.is_some(),
            Launcher::Hydra | Launcher::Slurm(_) | Launcher::Pals => open_mpi.is_none(),
            Launcher::Flux => true,
        }
    }

    /// The first number of the version, if it is Open MPI.
    fn open_mpi_major(&self) -> Option<u64> {
        let rest = self.version.strip_prefix("Open MPI v")?;
        rest.split('.').next()?.parse().ok()
    }

    fn initialise(&self) -> Result<(), MpiError> {
        let (constants, mut provided) = (self.constants, 0);
        // SAFETY: without arguments to pass on; the last pointer outlives the call.
        let code = unsafe {
            let none = std::ptr::null_mut();
            (self.functions.init)(none, std::ptr::null_mut(), constants.serialized, &raw mut provided)
        };
        checked("MPI_Init_thread", code)?;
        if provided < constants.serialized {
            return Err(MpiError::Failed { call: "MPI_Init_thread (thread level)", code: provided });
        }
        // SAFETY: both handles are constants of this library.
        checked("MPI_Comm_set_errhandler", unsafe {
            (self.functions.set_errhandler)(constants.world, constants.errors_return)
        })
    }

    /// The number of processes.
    pub(super) fn size(&self) -> Result<u64, MpiError> {
        self.number("MPI_Comm_size", self.functions.size)
    }

    /// The number of this process.
    pub(super) fn rank(&self) -> Result<u64, MpiError> {
        self.number("MPI_Comm_rank", self.functions.rank)
    }

    fn number(&self, call: &'static str, function: CommNumber) -> Result<u64, MpiError> {
        let mut number: c_int = 0;
        // SAFETY: the handle is a constant of this library, and the pointer outlives the call.
        checked(call, unsafe { function(self.constants.world, &raw mut number) })?;
        Ok(u64::from(number.unsigned_abs()))
    }

    /// The records of all processes, in order. All records have the same length. It returns when all processes have
    /// made the call, or never.
    pub(super) fn gather_to_all(&self, own: &[u8], members: u64) -> Result<Vec<Vec<u8>>, MpiError> {
        let mut all = vec![0u8; own.len() * members as usize];
        let (length, byte) = (own.len() as c_int, self.constants.byte);
        let into = all.as_mut_ptr().cast();
        // SAFETY: `own` has `length` bytes and `all` as many per process.
        let code = unsafe {
            let world = self.constants.world;
            (self.functions.allgather)(own.as_ptr().cast(), length, byte, into, length, byte, world)
        };
        checked("MPI_Allgather", code)?;
        Ok(all.chunks_exact(own.len()).map(<[u8]>::to_vec).collect())
    }

    /// Begins to send. The memory must stay valid until the request is complete.
    ///
    /// # Safety
    /// `bytes` must not be changed or freed until `is_complete` has returned true for the request.
    pub(super) unsafe fn begin_send(&self, to: u64, tag: i32, bytes: &[u8]) -> Result<MpiRequest, MpiError> {
        let mut request = 0;
        let Constants { world, byte, .. } = self.constants;
        // SAFETY: as the caller guarantees.
        let code = unsafe {
            let (start, length) = (bytes.as_ptr().cast(), bytes.len() as c_int);
            (self.functions.send)(start, length, byte, to as c_int, tag, world, &raw mut request)
        };
        checked("MPI_Isend", code).map(|()| MpiRequest(request))
    }

    /// Begins to receive at most `bytes.len()` bytes.
    ///
    /// # Safety
    /// `bytes` must not be used or freed until `is_complete` has returned true for the request.
    pub(super) unsafe fn begin_receive(
        &self,
        from: u64,
        tag: i32,
        bytes: &mut [u8],
    ) -> Result<MpiRequest, MpiError> {
        let mut request = 0;
        let Constants { world, byte, .. } = self.constants;
        // SAFETY: as the caller guarantees.
        let code = unsafe {
            let (start, length) = (bytes.as_mut_ptr().cast(), bytes.len() as c_int);
            (self.functions.receive)(start, length, byte, from as c_int, tag, world, &raw mut request)
        };
        checked("MPI_Irecv", code).map(|()| MpiRequest(request))
    }

    /// Whether a request is complete. To be called until it is, and not again.
    pub(super) fn is_complete(&self, request: &mut MpiRequest) -> Result<bool, MpiError> {
        let mut done: c_int = 0;
        // SAFETY: the request is one that this library returned and that was not complete before.
        let code =
            unsafe { (self.functions.test)(&raw mut request.0, &raw mut done, self.constants.status_ignore) };
        checked("MPI_Test", code).map(|()| done != 0)
    }

    /// Asks the library to give up a receive; `is_complete` tells when it has.
    pub(super) fn cancel(&self, request: &mut MpiRequest) -> Result<(), MpiError> {
        // SAFETY: the request is one that this library returned and that was not complete before.
        checked("MPI_Cancel", unsafe { (self.functions.cancel)(&raw mut request.0) })
    }

    /// Leaves the job.
    pub(super) fn finalise(&self) {
        // SAFETY: called once, at the end. A failure changes nothing: the process ends.
        unsafe { (self.functions.finalize)() };
    }

    /// Ends all processes of the job with this exit code. It may not return.
    pub(super) fn abort(&self, code: u8) {
        // SAFETY: the handle is a constant of this library.
        unsafe { (self.functions.abort)(self.constants.world, c_int::from(code)) };
    }
}

/// A send or a receive that may not be complete.
#[derive(Debug)]
pub(super) struct MpiRequest(usize);

fn checked(call: &'static str, code: c_int) -> Result<(), MpiError> {
    if code == 0 { Ok(()) } else { Err(MpiError::Failed { call, code }) }
}

/// The libraries that work with a launcher, in the order in which they are tried.
fn candidates(launcher: Launcher) -> &'static [(&'static str, Abi)] {
    match launcher {
        Launcher::OpenMpi { .. } | Launcher::Slurm(SlurmInterface::Pmix) | Launcher::Pmix => {
            &[OPEN_MPI, STANDARD]
        }
        Launcher::Hydra | Launcher::Slurm(_) | Launcher::Pals => &[MPICH, STANDARD],
        Launcher::Flux => &[MPICH, OPEN_MPI, STANDARD],
    }
}

/// The other ones.
fn others(launcher: Launcher) -> &'static [(&'static str, Abi)] {
    match launcher {
        Launcher::OpenMpi { .. } | Launcher::Slurm(SlurmInterface::Pmix) | Launcher::Pmix => &[MPICH],
        Launcher::Hydra | Launcher::Slurm(_) | Launcher::Pals => &[OPEN_MPI],
        Launcher::Flux => &[],
    }
}

/// The family of a library that the user names by its path.
fn guess(path: &str) -> Abi {
    // SAFETY: as in `open`; the library is opened there again.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let is_open_mpi = library.is_ok_and(|library| Constants::of(Abi::OpenMpi, &library).is_some());
    if is_open_mpi { Abi::OpenMpi } else { Abi::Mpich }
}

/// The first line of a library's own version text.
fn version_text(version: Version) -> String {
    let (mut text, mut length) = (vec![0 as c_char; TEXT_BYTES], 0);
    // SAFETY: the buffer is larger than the maximum of every library, and may be filled before initialisation.
    let text = unsafe {
        version(text.as_mut_ptr(), &raw mut length);
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    };
    let line = text.lines().next().unwrap_or_default();
    let words = line.split(", ").next().unwrap_or_default().split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}
