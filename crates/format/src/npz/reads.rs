//! Locates the array `x` of any archive, and computes the requests that `numpy.load(file)["x"]` makes for it
//! (Python 3.11, NumPy 2). It inflates no more than an array's header.

use std::ops::Range;

use flate2::{Decompress, FlushDecompress};
use model::shape::FileShape;
use model::spec::Access;

use super::{Layout, NAME};
use crate::buffered::{BUFFER, Buffered};
use crate::npy_header::{self, Array, NpyHeader};
use crate::unzip::{self, ArchiveReader, DirectoryLocation, StoredMember};
use crate::{ArrayList, Extent, FileFacts, Look, Obstacle, within};

/// Minimum number of bytes that `zipfile` reads of a member (`ZipExtFile.MIN_READ_SIZE`).
const MEMBER_LEAST: u64 = 4096;
/// Bytes that NumPy requests of a member at once (`numpy.lib.format.BUFFER_SIZE`).
const ARRAY_MOST: u64 = 1 << 18;
/// Signatures of a NumPy array and of a ZIP archive.
const MAGIC: u64 = 6;

/// What determines the requests.
pub(super) struct ArchiveShape {
    file_bytes: u64,
    ends: DirectoryLocation,
    x: StoredMember,
    array: Array,
}

impl ArchiveShape {
    /// Of an archive that is not compressed.
    pub(super) fn ours(layout: &Layout, shape: &FileShape<'_>) -> ArchiveShape {
        let head = layout.x.local_bytes();
        let name = layout.x.name.len() as u64;
        let x = StoredMember {
            header: layout.x.offset,
            name,
            extra: head - 30 - name,
            data: Extent { offset: layout.x.offset + head, len: layout.x.bytes },
            bytes: layout.x.bytes,
            deflated: false,
        };
        let directory = Extent { offset: layout.directory, len: layout.directory_bytes };
        let ends = DirectoryLocation::plain(layout.file_bytes, directory);
        ArchiveShape { file_bytes: layout.file_bytes, ends, x, array: layout.array(shape) }
    }

    fn found(fetch: &mut ArchiveReader<'_, '_>) -> Result<(ArchiveShape, NpyHeader), Obstacle> {
        let look = fetch.look;
        let ends = unzip::ends(fetch)?;
        let x = unzip::member(fetch, &ends, "x.npy", ".npy")?;
        let found = npy_header::read(look, x.data.offset, x.bytes, |count| first(fetch, &x, count))?;
        Ok((ArchiveShape { file_bytes: look.len, ends, x, array: found.array.clone() }, found))
    }

    /// Appends NumPy's requests, except those in `known`, which have been made.
    pub(super) fn replay(&self, known: Vec<Extent>, reads: &mut Vec<Extent>) {
        let mut file = Buffered::new(self.file_bytes, known, reads);
        file.read(MAGIC);
        file.seek_anew(self.file_bytes.saturating_sub(22));
        file.read_all();
        if self.ends.commented {
            file.seek_anew(unzip::comment_start(self.file_bytes));
            file.read_all();
        }
        if let Some(locator) = unzip::locator(self.ends.record) {
            file.seek_anew(locator);
            file.read(20);
        }
        if let (true, Some(end)) = (self.ends.zip64, unzip::end64(self.ends.record)) {
            file.seek_anew(end);
            file.read(56);
        }
        file.seek(self.ends.directory.offset);
        file.read(self.ends.directory.len);
        file.seek(self.x.header);
        file.read(30);
        file.read(self.x.name);
        file.read(self.x.extra);
        self.replay_array(&mut ZipExtFile::new(&self.x, file));
    }

    fn replay_array(&self, member: &mut ZipExtFile<'_>) {
        // The signature is read twice, and the header in parts; all of it is in the member's first bytes.
        member.read(MAGIC);
        member.read(self.array.header - MAGIC);
        let at_once = ARRAY_MOST - ARRAY_MOST % self.array.item.min(ARRAY_MOST);
        let mut left = self.array.payload();
        while left > 0 {
            let count = left.min(at_once.max(self.array.item));
            member.read(count);
            left -= count;
        }
    }
}

/// `zipfile.ZipExtFile`. How far a deflated member is read depends on how its parts inflate; here all inflate
/// equally.
struct ZipExtFile<'a> {
    file: Buffered<'a>,
    packed: u64,
    bytes: u64,
    deflated: bool,
    /// Bytes of the data that have been read from the file, and their inflated size.
    taken: u64,
    made: u64,
    /// Inflated, and not requested yet.
    ahead: u64,
}

impl<'a> ZipExtFile<'a> {
    fn new(x: &StoredMember, file: Buffered<'a>) -> ZipExtFile<'a> {
        let (packed, bytes) = (x.data.len, x.bytes);
        ZipExtFile { file, packed, bytes, deflated: x.deflated, taken: 0, made: 0, ahead: 0 }
    }

    fn read(&mut self, count: u64) {
        let mut wanted = count.saturating_sub(self.ahead);
        self.ahead = self.ahead.saturating_sub(count);
        while wanted > 0 {
            let Some(made) = self.make(wanted) else { return };
            self.ahead = made.saturating_sub(wanted);
            wanted = wanted.saturating_sub(made);
        }
    }

    /// `_read1`: reads what is missing for `wanted` bytes, but at least the minimum, and inflates it.
    fn make(&mut self, wanted: u64) -> Option<u64> {
        let unused = self.taken - self.used();
        let missing = if wanted > unused { (wanted - unused).max(MEMBER_LEAST) } else { 0 };
        let take = missing.min(self.packed - self.taken);
        self.file.read(take);
        self.taken += take;
        let most = if self.deflated { wanted.max(MEMBER_LEAST) } else { u64::MAX };
        let made = (scaled(self.taken, self.bytes, self.packed) - self.made).min(most);
        self.made += made;
        (take > 0 || made > 0).then_some(made)
    }

    /// Compressed bytes that correspond to what has been inflated.
    fn used(&self) -> u64 {
        scaled(self.made, self.packed, self.bytes).min(self.taken)
    }
}

/// `part` of `from`, scaled to `to`.
fn scaled(part: u64, to: u64, from: u64) -> u64 {
    // At most `to`, since a part is at most the whole.
    (u128::from(part) * u128::from(to) / u128::from(from.max(1))) as u64
}

/// The first `count` bytes of the member's array.
fn first(fetch: &mut ArchiveReader<'_, '_>, x: &StoredMember, count: u64) -> Result<Vec<u8>, Obstacle> {
    if !x.deflated {
        return fetch.get(x.data.offset, count);
    }
    // A header is text that usually shrinks; if not, it grows by less than this, including the code tables.
    let len = (count + count / 4 + 1024).min(x.data.len);
    let packed = fetch.get(x.data.offset, len)?;
    let mut bytes = vec![0; count as usize];
    let mut inflate = Decompress::new(false);
    let damage =
        |what: String| fetch.look.damage(x.data.offset, format!("member x cannot be inflated: {what}"));
    inflate
        .decompress(&packed, &mut bytes, FlushDecompress::None)
        .map_err(|error| damage(error.to_string()))?;
    match inflate.total_out() == count {
        true => Ok(bytes),
        false => Err(damage(format!("{} bytes instead of {count}", inflate.total_out())).into()),
    }
}

pub(super) fn foreign(
    look: &Look<'_>,
    access: Access,
    expected: u64,
    samples: &Range<u64>,
    reads: &mut Vec<Extent>,
) -> Result<(), Obstacle> {
    let mut fetch = ArchiveReader::new(look, access == Access::Framework);
    if access == Access::Framework {
        fetch.request(0, BUFFER)?;
    }
    let (place, _) = ArchiveShape::found(&mut fetch)?;
    let held = place.array.held(expected);
    within(NAME, samples, held)?;
    match access {
        Access::Framework => place.replay(fetch.made, reads),
        Access::Extent if place.x.deflated => reads.push(place.x.data),
        Access::Extent => {
            let within_x = place.array.stretch(samples, held);
            reads.push(Extent { offset: place.x.data.offset + within_x.offset, len: within_x.len });
        }
    }
    Ok(())
}

pub(super) fn inspect(look: &Look<'_>) -> Result<FileFacts, Obstacle> {
    let fetch = &mut ArchiveReader::new(look, false);
    let (place, found) = ArchiveShape::found(fetch)?;
    let notes = match place.x.deflated {
        true => vec![format!("deflated from {} to {} bytes", place.x.bytes, place.x.data.len)],
        false => Vec::new(),
    };
    Ok(found.facts(arrays(fetch, &place.ends)?, notes))
}

/// The arrays of an archive. One that cannot be read is listed without a shape: the samples do not depend on it.
fn arrays(fetch: &mut ArchiveReader<'_, '_>, ends: &DirectoryLocation) -> Result<ArrayList, Obstacle> {
    let (members, more) = unzip::members(fetch, ends, ".npy", ArrayList::MOST_READ)?;
    let mut list = ArrayList { more, ..ArrayList::default() };
    for (name, member) in members {
        let look = fetch.look;
        let described = member.map(|member| {
            npy_header::describe(look, member.data.offset, member.bytes, |count| first(fetch, &member, count))
        });
        match described {
            Some(Ok((shape, dtype))) => list.add(&name, &shape, &dtype),
            Some(Err(unread @ Obstacle::Unread(_))) => return Err(unread),
            _ => list.push(&name, None, "unreadable"),
        }
    }
    Ok(list)
}
