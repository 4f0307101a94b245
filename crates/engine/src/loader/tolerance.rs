//! What a run does about samples that cannot be read: the first error ends it, or errors are counted up to a limit and
//! the batches are delivered without those samples.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use model::units::grouped;

use super::visit::ReadError;

#[derive(Debug)]
pub(crate) struct Tolerance {
    /// Number of errors that are tolerated; `None`: the first one ends the run.
    limit: Option<u64>,
    /// Errors of the whole run so far.
    met: AtomicU64,
    /// Files of this phase of which a part could not be read. Samples that need that part are lost, too.
    lost: Mutex<Vec<u64>>,
}

impl Tolerance {
    /// `before` is the number of errors in earlier phases.
    pub(crate) fn new(limit: Option<u64>, before: u64) -> Tolerance {
        Tolerance { limit, met: AtomicU64::new(before), lost: Mutex::default() }
    }

    /// `Ok` if the run continues without the samples that were to be read from `file`; otherwise why it ends.
    pub(super) fn bears(&self, file: u64, cause: ReadError) -> Result<(), ReadError> {
        let Some(limit) = self.limit.filter(|_| cause.is_about_a_file()) else { return Err(cause) };
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(file);
        // Relaxed: the counter orders no other memory access.
        if self.met.fetch_add(1, Ordering::Relaxed) >= limit {
            return Err(ReadError::TooMany { limit: grouped(limit), last: cause.to_string() });
        }
        Ok(())
    }

    /// Whether a part of this file could not be read. Costs one load while there are no errors.
    pub(super) fn has_lost(&self, file: u64) -> bool {
        self.met.load(Ordering::Relaxed) > 0
            && self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::StoreError;

    fn missing() -> ReadError {
        ReadError::Store(StoreError::Missing { name: "a".to_owned() })
    }

    #[test]
    fn errors_are_tolerated_up_to_the_limit() {
        let tolerance = Tolerance::new(Some(3), 1);
        assert!(!tolerance.has_lost(7));
        assert!(tolerance.bears(7, missing()).is_ok() && tolerance.bears(8, missing()).is_ok());
        assert!(tolerance.has_lost(7) && !tolerance.has_lost(9));
        let end = tolerance.bears(9, missing()).unwrap_err().to_string();
        assert_eq!(end, "a does not exist; more errors than reader.error_limit: 3");
    }

    #[test]
    fn without_a_limit_the_first_error_ends_the_run() {
        let end = Tolerance::new(None, 0).bears(7, missing()).unwrap_err().to_string();
        assert_eq!(end, "a does not exist");
    }

    #[test]
    fn an_unavailable_backend_is_never_tolerated() {
        let refused = ReadError::Store(StoreError::Refused("closed".to_owned()));
        assert_eq!(Tolerance::new(Some(3), 0).bears(7, refused).unwrap_err().to_string(), "closed");
    }
}
