//! Reads traces of DFTracer and of feedline, one JSON event per line: calls of the C library, and epochs, waits and
//! samples where the program marked them. Files are read twice, as an epoch is written when it ends.

mod actors;
mod record;
mod survey;

use self::actors::Actors;
use self::record::{RecordKind, TraceRecord, parse};
use self::survey::Survey;
use super::feed::TraceFeed;
use super::input::{InputLines, TraceFiles};
use super::{StrangeLines, TraceFacts, TraceInputError};
use crate::event::EventSink;

/// Events that are held to be ordered: threads write theirs one after the other.
const WINDOW: usize = 1 << 18;

/// How the files end.
#[derive(Debug, Default)]
struct FilesEnd {
    strange: StrangeLines,
    cuts: Vec<String>,
}

/// Passes on every event of all files.
fn each(files: &TraceFiles, mut see: impl FnMut(&TraceRecord<'_>)) -> Result<FilesEnd, TraceInputError> {
    let mut end = FilesEnd::default();
    for path in &files.files {
        let mut lines = InputLines::open(path, 1)?;
        while let Some(line) = lines.next()? {
            let is_strange = match parse(line) {
                None => false,
                Some(Ok(record)) => {
                    see(&record);
                    false
                }
                Some(Err(_)) => true,
            };
            if is_strange && lines.cut.is_none() {
                end.strange.add(&lines.name, lines.number);
            }
        }
        end.cuts.extend(lines.cut);
    }
    Ok(end)
}

/// Reads all files.
pub(super) fn read(files: &TraceFiles, sink: &mut dyn EventSink) -> Result<TraceFacts, TraceInputError> {
    let mut feed = TraceFeed::new(sink, WINDOW);
    let mut survey = Survey::default();
    let end = each(files, |record| survey.add(record, &mut feed))?;
    if survey.events == 0 {
        let (file, line) = end.strange.first.unwrap_or_else(|| {
            (files.files.first().map(|file| file.display().to_string()).unwrap_or_default(), 1)
        });
        return Err(TraceInputError::Foreign(file, line, "no event of a trace follows".to_owned()));
    }
    survey.finish();
    let (mut calls, mut timed) = (0u64, 0u64);
    let mut actors = Actors::new(&survey, &mut feed);
    each(files, |record| {
        if record.kind() == RecordKind::Complete {
            calls += u64::from(record.is_call());
            timed += u64::from(record.is_call() && record.has_duration());
            actors.add(record, &mut feed);
        }
    })?;
    let wall_ns = actors.finish(&mut feed);
    let mut notes = end.cuts;
    notes.extend(end.strange.note());
    if survey.lost > 0 {
        notes.push(format!("{} operations were lost when the trace was written.", survey.lost));
    }
    if survey.is_cut {
        notes.push("The trace names so many files that those without a kept name count as data.".to_owned());
    }
    if calls > 0 && timed == 0 {
        notes.push("The trace has no durations: how long calls took is not known.".to_owned());
    }
    notes.push("Sizes of files are known as far as they were read.".to_owned());
    notes.push("Whether processes share descriptors is not in the trace.".to_owned());
    let command = survey.processes.values().find(|process| !process.command.is_empty());
    let command = command.map(|process| process.command.split(' ').map(Into::into).collect());
    Ok(TraceFacts {
        command: command.unwrap_or_default(),
        wall_ns,
        untimed: timed == 0,
        recorded_bytes: feed.recorded_bytes,
        notes,
        ..TraceFacts::default()
    })
}
