//! Why rings cannot be used here, from the error of the kernel and from what it says about itself.

use rustix::io::Errno;

/// What keeps this process from using rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingObstacle {
    /// An administrator has disabled them: the value of sysctl `kernel.io_uring_disabled`.
    Disabled(String),
    /// A seccomp filter of this process forbids them.
    Filtered,
    /// The kernel was built without them.
    NotBuilt,
    /// The kernel has rings and no filter is known, but it permits none.
    NotPermitted,
    /// The kernel has rings without files in slots.
    TooOld,
    /// An unusual error.
    Failed(String),
}

impl RingObstacle {
    /// From the error of a new ring. `sysctl`: the value of `kernel.io_uring_disabled`, empty if it does not exist.
    /// `is_filtered`: whether this process has a seccomp filter.
    pub(super) fn of(cause: Errno, sysctl: &str, is_filtered: bool) -> RingObstacle {
        match (cause, sysctl) {
            (Errno::PERM | Errno::ACCESS, "1" | "2") => RingObstacle::Disabled(sysctl.to_owned()),
            (Errno::PERM | Errno::ACCESS | Errno::NOSYS, _) if is_filtered => RingObstacle::Filtered,
            (Errno::NOSYS, _) => RingObstacle::NotBuilt,
            (Errno::PERM | Errno::ACCESS, _) => RingObstacle::NotPermitted,
            (Errno::INVAL, _) => RingObstacle::TooOld,
            (cause, _) => RingObstacle::Failed(cause.to_string()),
        }
    }
}

/// The setting with which an administrator disables rings; empty if it does not exist.
pub(super) fn sysctl() -> String {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default().trim().to_owned()
}

/// Whether this thread has a seccomp filter.
pub(super) fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_apart() {
        for (cause, sysctl, is_filtered, expected) in [
            (Errno::PERM, "2", false, RingObstacle::Disabled("2".to_owned())),
            (Errno::PERM, "1", true, RingObstacle::Disabled("1".to_owned())),
            (Errno::PERM, "0", true, RingObstacle::Filtered),
            (Errno::NOSYS, "0", true, RingObstacle::Filtered),
            (Errno::NOSYS, "", false, RingObstacle::NotBuilt),
            (Errno::ACCESS, "0", false, RingObstacle::NotPermitted),
            (Errno::INVAL, "", false, RingObstacle::TooOld),
            (Errno::NOMEM, "0", true, RingObstacle::Failed(Errno::NOMEM.to_string())),
        ] {
            assert_eq!(
                RingObstacle::of(cause, sysctl, is_filtered),
                expected,
                "{cause} {sysctl:?} {is_filtered}"
            );
        }
    }
}
