//! Generates data sets and trains on them: the only crate with threads and a clock. It emits events and returns a
//! ledger; it never prints.

mod accelerators;
mod asking;
mod backing;
mod bell;
mod cache;
mod calibrate;
pub mod catalog;
pub mod checkpoint;
mod events;
mod file_reader;
pub mod generate;
pub mod host;
mod inspect;
mod loader;
pub mod meter;
mod probe;
mod stop;
mod train;
mod truth;
pub mod waits;
mod watchdog;
pub mod world;

pub use asking::MetadataError;
pub use cache::{Refused, check as check_cache};
pub use calibrate::calibrate;
pub use events::{Detail, Drained, Event, Events, Progress, Stamped, Stream};
pub use file_reader::AskError;
pub use inspect::Inspection;
pub use probe::first_missing;
pub use stop::Stop;
pub use train::{Files, Rig, train};
pub use truth::Truth;
pub use world::{Solo, World};
