//! Tries whether jobs can be observed on this host, with this program itself as the job.

use super::SourceError;
use super::calibrate;
use super::faults::{FaultEvents, Faults};
use super::memory::RingMemory;
use super::session::{self, Session};

/// Whether page faults of mapped files can be recorded; otherwise why not.
pub fn page_faults() -> Result<(), String> {
    Faults::new(FaultEvents::open()).state().map_err(ToOwned::to_owned)
}

/// Whether a program that is started with the preload library is observed; otherwise why not. The program that calls
/// this is started again, and has to call [`calibrate_child`](super::calibrate_child).
pub fn observes() -> Result<(), String> {
    if !session::is_supported() {
        return Err(SourceError::Unsupported.to_string());
    }
    drop(RingMemory::new().map_err(|error| SourceError::Memory(error).to_string())?);
    let session = Session::new(false).map_err(|error| SourceError::Session(error).to_string())?;
    match calibrate::is_observed(&session) {
        true => Ok(()),
        false => Err("a program that was started with the preload library was not observed".to_owned()),
    }
}
