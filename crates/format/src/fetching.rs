//! For tests: what an engine does with a format's looks, over a file in memory. It brings the bytes that are asked
//! for, asks again, and keeps count.

use crate::{Extent, Format, Look, Obstacle, Seen};

/// Looks that a parser may take at a small file before it counts as endless.
const MOST_LOOKS: usize = 10_000;

/// The answer of `ask` once all that it looks at has been brought, and what that was.
pub(crate) fn fetch<T>(
    format: &dyn Format,
    bytes: &[u8],
    mut ask: impl FnMut(&Look<'_>) -> Result<T, Obstacle>,
) -> (Result<T, Obstacle>, Vec<Extent>) {
    let (mut seen, mut looks) = (Seen::default(), Vec::new());
    loop {
        let answer = ask(&Look::new(format.name(), bytes.len() as u64, &seen));
        let Err(Obstacle::Unread(wanted)) = answer else { return (answer, looks) };
        assert!(looks.len() < MOST_LOOKS && !looks.contains(&wanted), "{wanted:?} again after {looks:?}");
        looks.push(wanted);
        let from = wanted.offset as usize;
        seen.add(wanted.offset, wanted.len as usize).copy_from_slice(&bytes[from..][..wanted.len as usize]);
    }
}
