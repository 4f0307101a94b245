//! Placeholder.
use super::input::TraceFiles;
use super::{TraceFacts, TraceInputError};
use crate::event::EventSink;
pub(super) fn read(_: &TraceFiles, _: &mut dyn EventSink) -> Result<TraceFacts, TraceInputError> {
    Ok(TraceFacts::default())
}
