//! Fuzzes the parser and the decoders of the format in FEEDLINE_FUZZ_FORMAT. For any input they must succeed or fail
//! without a panic, an endless loop or excessive memory.

#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use format::{SourceFile, Format, FormatKind, Look, Obstacle, FormatOptions, ReadPieces};
use libfuzzer_sys::fuzz_target;
use model::spec::Access;

/// The format with each of its compressions and access patterns.
static FORMATS: LazyLock<Vec<Box<dyn Format>>> = LazyLock::new(|| {
    let name = std::env::var("FEEDLINE_FUZZ_FORMAT").expect("FEEDLINE_FUZZ_FORMAT names the format");
    let kind = FormatKind::named(&name).expect("a format of that name");
    let compressions = ["none"].iter().chain(kind.compressions);
    let both = |word: &&str| [Access::Framework, Access::Extent].map(|access| (access, (*word).to_owned()));
    let build = |(access, compression)| {
        kind.build(&FormatOptions { access, compression, ..FormatOptions::default() }).expect("default options")
    };
    compressions.flat_map(both).map(build).collect()
});

/// More lookups than this in a short file count as an endless loop.
const MOST_LOOKS: usize = 10_000;
const MOST_BROUGHT: usize = 1 << 17;

/// Like the engine, reads bytes when they are requested.
fn ask<T>(format: &dyn Format, data: &[u8], question: impl Fn(&Look<'_>) -> Result<T, Obstacle>) -> Option<T> {
    let mut seen = ReadPieces::default();
    for _ in 0..MOST_LOOKS {
        match question(&Look::new(format.name(), data.len() as u64, &seen)) {
            Ok(answer) => return Some(answer),
            Err(Obstacle::Unread(unread)) => {
                let (start, len) = (unread.offset as usize, unread.len as usize);
                let bytes = &data[start..start + len];
                seen.add(unread.offset, len).copy_from_slice(bytes);
            }
            Err(obstacle) => {
                assert!(!obstacle.to_string().is_empty());
                return None;
            }
        }
    }
    panic!("more than {MOST_LOOKS} lookups in {} bytes", data.len());
}

fuzz_target!(|data: &[u8]| {
    for format in FORMATS.iter() {
        let facts = ask(&**format, data, |look| format.inspect(look));
        let held = facts.and_then(|facts| facts.samples).unwrap_or(3);
        for first in [0, held / 2, held.saturating_sub(1)] {
            let Some(end) = first.checked_add(1) else { continue };
            let reads = ask(&**format, data, |look| {
                let mut reads = Vec::new();
                format.reads(SourceFile::Foreign { look, samples: held }, first..end, &mut reads)?;
                Ok(reads)
            });
            let mut brought = Vec::new();
            for read in reads.into_iter().flatten() {
                let inside = read.offset.checked_add(read.len).is_some_and(|end| end <= data.len() as u64);
                assert!(inside, "{read:?} of {} bytes", data.len());
                // Reads may overlap; more than this of a short file adds nothing.
                if brought.len() < MOST_BROUGHT {
                    brought.extend_from_slice(&data[read.offset as usize..(read.offset + read.len) as usize]);
                }
            }
            decode(&**format, &brought);
        }
        // Also bytes that the reads never return.
        decode(&**format, data);
    }
});

thread_local! {
    /// Reused, as in a run: the sanitizer keeps freed memory for long and would exhaust it.
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn decode(format: &dyn Format, bytes: &[u8]) {
    if !format.decodes() {
        return;
    }
    if let Err(obstacle) = OUT.with_borrow_mut(|out| format.decode(bytes, out)) {
        let placed = matches!(&obstacle, Obstacle::Damage(damage) if damage.offset <= bytes.len() as u64);
        assert!(placed, "{obstacle}");
    }
}
