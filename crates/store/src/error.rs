//! Errors of access to storage. Every variant names the object; the engine adds rank and step.

use model::location::Unsupported;
use model::requests::AttemptFailure;
use rustix::io::Errno;
use thiserror::Error;

use crate::objects::retry::names_expiry;

/// The operation that failed, with its name in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Open,
    Read,
    Map,
    Create,
    Write,
    Close,
    Rename,
    MakeFolder,
    Stat,
    List,
    Sync,
    Lock,
    Advise,
    FreeSpace,
    Remove,
}

impl Operation {
    pub(crate) const ALL: [Operation; 15] = [
        Operation::Open,
        Operation::Read,
        Operation::Map,
        Operation::Create,
        Operation::Write,
        Operation::Close,
        Operation::Rename,
        Operation::MakeFolder,
        Operation::Stat,
        Operation::List,
        Operation::Sync,
        Operation::Lock,
        Operation::Advise,
        Operation::FreeSpace,
        Operation::Remove,
    ];
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Map => "map into memory",
            Operation::Create => "create",
            Operation::Write => "write",
            Operation::Close => "close",
            Operation::Rename => "rename",
            Operation::MakeFolder => "create the folder",
            Operation::Stat => "stat",
            Operation::List => "list",
            Operation::Sync => "flush",
            Operation::Lock => "lock",
            Operation::Advise => "set the read-ahead advice of",
            Operation::Remove => "remove",
            Operation::FreeSpace => "query the free space of",
        })
    }
}

/// What an object store answered to a request that it refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The service's own word for the cause, such as `AccessDenied`; empty if there is none.
    pub code: String,
    pub attempts: u32,
    /// The server, as host and port.
    pub endpoint: String,
}

impl Refusal {
    /// Whether other requests will be refused as well: the account, the bucket or the server is wrong, not the object.
    pub fn is_permanent(&self) -> bool {
        let codes = [
            "AccessDenied",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "RequestTimeTooSkewed",
            "InvalidToken",
            "NoSuchBucket",
            "ContainerNotFound",
            "PermanentRedirect",
            "AuthorizationHeaderMalformed",
            "AuthenticationFailed",
        ];
        let code = self.code.as_str();
        matches!(self.status, 301 | 307 | 401 | 403) || codes.contains(&code) || names_expiry(code)
    }

    /// What to do about it.
    fn remedy(&self) -> &'static str {
        match (self.code.as_str(), self.status) {
            ("NoSuchBucket" | "ContainerNotFound", _) => {
                "; the bucket does not exist: create it, or correct the URL"
            }
            ("InvalidAccessKeyId", _) => "; the server does not know the access key",
            ("SignatureDoesNotMatch", _) => "; the secret does not match the access key",
            ("AuthenticationFailed", _) => {
                "; the key or the signature is wrong or has expired, or the clocks of this host and the server differ"
            }
            ("AuthorizationFailure", _) => {
                "; the key is wrong, or this account may not do that: check its key, permissions and network rules"
            }
            ("RequestTimeTooSkewed", _) => {
                "; the clocks of this host and the server differ too much: set this host's"
            }
            (code, _) if names_expiry(code) => "; the credentials have expired: get new ones",
            ("InvalidToken", _) => {
                "; the server does not accept the session token: check that it belongs to the access key"
            }
            ("PermanentRedirect" | "AuthorizationHeaderMalformed", _) | (_, 301 | 307) => {
                "; the bucket is in another region: set storage.storage_options.region"
            }
            (_, 401 | 403) => "; this account may not do that: check its permissions",
            ("", 400) => {
                "; check that the endpoint is an object store, and whether it needs http:// or https://"
            }
            _ => "",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Refusal { status, code, attempts, endpoint } = self;
        write!(f, "{endpoint} answered {status}")?;
        if !code.is_empty() {
            write!(f, " {code}")?;
        }
        if *attempts > 1 {
            write!(f, " ({attempts} attempts)")?;
        }
        f.write_str(self.remedy())
    }
}

/// How a request ended that got no complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    pub kind: AttemptFailure,
    /// What happened, such as `connection reset`.
    pub cause: String,
    pub attempts: u32,
    pub endpoint: String,
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NoAnswer { cause, attempts, endpoint, .. } = self;
        write!(f, "{endpoint}: {cause}")?;
        if *attempts > 1 { write!(f, " ({attempts} attempts)") } else { Ok(()) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("{name} does not exist")]
    Missing { name: String },
    #[error("{name} is a folder, but should be a file")]
    Folder { name: String },
    #[error("{name} is too short: it ends at byte {end}, but the plan needs {needed} bytes")]
    Short { name: String, end: u64, needed: u64 },
    #[error("{name} is too long: it has {found} bytes, but the plan expects {planned}")]
    Long { name: String, found: u64, planned: u64 },
    #[error("{name} differs from what was written, from offset {offset} on: {what}")]
    WrongBytes { name: String, offset: u64, what: String },
    #[error("no space left on the device while writing {name}")]
    Full { name: String },
    #[error("another feedline is writing to {name}; wait until it ends")]
    Busy { name: String },
    #[error(
        "{name} is {what}, which feedline does not replace or remove; remove it yourself, or choose another folder"
    )]
    NotOurs { name: String, what: &'static str },
    #[error(
        "{name} holds files that feedline did not write, or cannot read; move it away or choose another folder"
    )]
    Foreign { name: String },
    #[error("cancelled, because the run ends")]
    GivenUp,
    #[error("cannot {operation} {name}: {cause}")]
    Io { operation: Operation, name: String, cause: Errno },
    #[error(
        "{name}: reads that leave nothing in the page cache (reader.readahead: dontcache) are not supported here; they \
         need Linux 6.14 and a file system that supports them, such as ext4 or xfs"
    )]
    NoDontcache { name: String },
    #[error(
        "{name} cannot be read with O_DIRECT: {reason}; use --store posix, or a folder on a file system that supports \
         O_DIRECT, such as ext4 or xfs"
    )]
    NoDirect { name: String, reason: String },
    #[error("cannot {operation} {name}: {refusal}")]
    Rejected { operation: Operation, name: String, refusal: Box<Refusal> },
    #[error("cannot {operation} {name}: {how}")]
    Unanswered { operation: Operation, name: String, how: Box<NoAnswer> },
    #[error("{name} has changed since it was listed: its entity tag differs; list the data set again")]
    Changed { name: String },
    #[error("{0}")]
    Refused(String),
    #[error("the {store} store cannot {operation} {name}: it holds no files")]
    Unsupported { store: &'static str, operation: Operation, name: String },
}

/// Kernel errors that are typical of storage, and the words under which ledgers count them.
const WORDS: [(Errno, &str); 16] = [
    (Errno::IO, "eio"),
    (Errno::ACCESS, "eacces"),
    (Errno::PERM, "eperm"),
    (Errno::STALE, "estale"),
    (Errno::TIMEDOUT, "etimedout"),
    (Errno::LOOP, "eloop"),
    (Errno::NOTDIR, "enotdir"),
    (Errno::NAMETOOLONG, "enametoolong"),
    (Errno::MFILE, "emfile"),
    (Errno::NFILE, "enfile"),
    (Errno::NOMEM, "enomem"),
    (Errno::INVAL, "einval"),
    (Errno::NXIO, "enxio"),
    (Errno::NODEV, "enodev"),
    (Errno::NOTCONN, "enotconn"),
    (Errno::HOSTDOWN, "ehostdown"),
];

impl From<Unsupported> for StoreError {
    fn from(refused: Unsupported) -> StoreError {
        StoreError::Refused(refused.to_string())
    }
}

impl StoreError {
    /// A short word that is stable across versions, for counting.
    pub fn kind(&self) -> String {
        let word = match self {
            StoreError::Missing { .. } => "enoent",
            StoreError::Folder { .. } => "eisdir",
            StoreError::Short { .. } => "short",
            StoreError::Long { .. } => "long",
            StoreError::WrongBytes { .. } => "wrong-bytes",
            StoreError::Full { .. } => "enospc",
            StoreError::Busy { .. } => "busy",
            StoreError::NotOurs { .. } | StoreError::Foreign { .. } => "not-ours",
            StoreError::GivenUp => "given-up",
            StoreError::Io { cause, .. } => match WORDS.iter().find(|(errno, _)| errno == cause) {
                Some((_, word)) => word,
                None => return format!("errno-{}", cause.raw_os_error()),
            },
            StoreError::Rejected { refusal, .. } => return format!("http-{}", refusal.status),
            StoreError::Unanswered { how, .. } => how.kind.word(),
            StoreError::Changed { .. } => "changed",
            StoreError::NoDontcache { .. } | StoreError::NoDirect { .. } => "refused",
            StoreError::Refused(_) | StoreError::Unsupported { .. } => "refused",
        };
        word.to_owned()
    }

    /// Whether it is about this file alone, so that other files may still be read. An unavailable backend is
    /// unavailable for all of them.
    pub fn is_about_a_file(&self) -> bool {
        if let StoreError::Rejected { refusal, .. } = self {
            return !refusal.is_permanent();
        }
        matches!(
            self,
            StoreError::Missing { .. }
                | StoreError::Unanswered { .. }
                | StoreError::Changed { .. }
                | StoreError::Folder { .. }
                | StoreError::Short { .. }
                | StoreError::Long { .. }
                | StoreError::WrongBytes { .. }
                | StoreError::Io { .. }
        )
    }

    /// The same error with another name of the object, such as its full path.
    pub fn renamed(mut self, shown: &str) -> StoreError {
        match &mut self {
            StoreError::Missing { name }
            | StoreError::Folder { name }
            | StoreError::Short { name, .. }
            | StoreError::Long { name, .. }
            | StoreError::WrongBytes { name, .. }
            | StoreError::Full { name }
            | StoreError::Busy { name }
            | StoreError::NotOurs { name, .. }
            | StoreError::Foreign { name }
            | StoreError::Io { name, .. }
            | StoreError::NoDontcache { name }
            | StoreError::NoDirect { name, .. }
            | StoreError::Rejected { name, .. }
            | StoreError::Unanswered { name, .. }
            | StoreError::Changed { name }
            | StoreError::Unsupported { name, .. } => shown.clone_into(name),
            StoreError::GivenUp | StoreError::Refused(_) => {}
        }
        self
    }

    /// The error for `cause` on `name`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        for (status, code, says) in [
            (403, "AuthenticationFailed", "the key or the signature is wrong or has expired"),
            (403, "SignatureDoesNotMatch", "the secret does not match the access key"),
            (400, "ExpiredToken", "the credentials have expired"),
            (400, "InvalidToken", "does not accept the session token"),
            (400, "", "http:// or https://"),
            (404, "ContainerNotFound", "the bucket does not exist"),
            (403, "AuthorizationFailure", "check its key, permissions and network rules"),
            (403, "AccessDenied", "check its permissions"),
        ] {
            let refusal = Refusal { status, code: code.to_owned(), attempts: 1, endpoint: "h:9".to_owned() };
            let shown = refusal.to_string();
            assert!(shown.starts_with("h:9 answered") && shown.contains(says), "{shown}");
        }
    }

    #[test]
    fn kinds_are_words() {
        let io = |cause| StoreError::io(Operation::Read, "x", cause);
        for (error, word, about_a_file) in [
            (io(Errno::IO), "eio", true),
            (io(Errno::NOENT), "enoent", true),
            (io(Errno::ISDIR), "eisdir", true),
            (io(Errno::ACCESS), "eacces", true),
            (io(Errno::XDEV), "errno-18", true),
            (StoreError::Short { name: "x".into(), end: 1, needed: 2 }, "short", true),
            (StoreError::GivenUp, "given-up", false),
            (StoreError::Refused("no".into()), "refused", false),
        ] {
            assert_eq!((error.kind().as_str(), error.is_about_a_file()), (word, about_a_file), "{error}");
            let shown = error.clone().renamed("folder/x").to_string();
            assert_eq!(shown.contains("folder/x"), about_a_file, "{shown}");
        }
    }
}
