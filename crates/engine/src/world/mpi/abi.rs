//! The three binary interfaces of MPI libraries: the values of handles and constants, which are in the C headers and
//! differ. The functions have the same names everywhere. Handles are pointers or C integers; both are passed as
//! `usize`: on the 64-bit, little-endian machines that feedline runs on, a function that takes an integer reads the low
//! half of the register.

use libloading::os::unix::Library;

/// The family of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abi {
    /// Open MPI 4 and 5: a handle is the address of a symbol.
    OpenMpi,
    /// MPICH and libraries with its binary interface: a handle is a C integer.
    Mpich,
    /// The standard interface of MPI 5: a handle is a pointer with a small value.
    Standard,
}

/// Handles and constants of a loaded library.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    pub(super) world: usize,
    pub(super) byte: usize,
    pub(super) errors_return: usize,
    pub(super) status_ignore: usize,
    /// The thread level at which calls are made by one thread at a time, whichever it is.
    pub(super) serialized: i32,
}

impl Constants {
    /// The constants of a library; `None` if it lacks the symbols of its family.
    pub(super) fn of(abi: Abi, library: &Library) -> Option<Constants> {
        // SAFETY: only the address of the symbol is used; nothing is read from it.
        let address = |name: &str| unsafe { library.get::<*const u8>(name.as_bytes()) };
        let handle = |name: &str| Some(address(name).ok()?.as_raw_ptr() as usize);
        Some(match abi {
            Abi::OpenMpi => Constants {
                world: handle("ompi_mpi_comm_world")?,
                byte: handle("ompi_mpi_byte")?,
                errors_return: handle("ompi_mpi_errors_return")?,
                status_ignore: 0,
                serialized: 2,
            },
            Abi::Mpich => Constants {
                world: 0x4400_0000,
                byte: 0x4c00_010d,
                errors_return: 0x5400_0001,
                status_ignore: 1,
                serialized: 2,
            },
            Abi::Standard => Constants {
                world: 0x101,
                byte: 0x247,
                errors_return: 0x143,
                status_ignore: 0,
                serialized: 2048,
            },
        })
    }
}
