//! What can go wrong between us and a medium. Every variant names the object; the engine adds rank and step.

use rustix::io::Errno;
use thiserror::Error;

/// The operation that failed, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Open,
    Read,
    Create,
    Write,
    Close,
    Rename,
    MakeFolder,
    Stat,
    List,
    Sync,
    Lock,
    FreeSpace,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Create => "create",
            Operation::Write => "write",
            Operation::Close => "close",
            Operation::Rename => "rename",
            Operation::MakeFolder => "make the folder",
            Operation::Stat => "look at",
            Operation::List => "list",
            Operation::Sync => "flush",
            Operation::Lock => "lock",
            Operation::FreeSpace => "ask for the free space of",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("{name} does not exist")]
    Missing { name: String },
    #[error("{name} is a folder where a file should be")]
    Folder { name: String },
    #[error("{name} is too short: it ends at byte {end}, the plan needs {needed} bytes")]
    Short { name: String, end: u64, needed: u64 },
    #[error("{name} is too long: the plan says {planned} bytes and there are more")]
    Long { name: String, planned: u64 },
    #[error("no space left on the device while writing {name}")]
    Full { name: String },
    #[error("another feedline is writing to {name}; wait for it")]
    Busy { name: String },
    #[error("given up, because the run ends")]
    GivenUp,
    #[error("cannot {operation} {name}: {cause}")]
    Io { operation: Operation, name: String, cause: Errno },
    #[error("the {store} store cannot {operation} {name}: it holds no files")]
    Unsupported { store: &'static str, operation: Operation, name: String },
}

impl StoreError {
    /// The error that `cause` means for `name`.
    pub fn io(operation: Operation, name: &str, cause: Errno) -> StoreError {
        let name = name.to_owned();
        match cause {
            Errno::NOENT if operation != Operation::Create => StoreError::Missing { name },
            Errno::ISDIR => StoreError::Folder { name },
            Errno::NOSPC | Errno::DQUOT => StoreError::Full { name },
            cause => StoreError::Io { operation, name, cause },
        }
    }
}
