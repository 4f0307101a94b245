//! Locates the records of any ZIP archive (APPNOTE 6.3.10), like Python's `zipfile`. It must not inflate
//! anything, and checks every number against the file's length.

use crate::buffered::BUFFER;
use crate::inflate::GROWTH;
use crate::{Extent, Look, Obstacle};

/// Bytes of the fixed part of each record.
const END: u64 = 22;
const LOCATOR: u64 = 20;
const END64: u64 = 56;
const ENTRY: u64 = 46;
const LOCAL: u64 = 30;
/// The longest comment after the end record for which `zipfile` searches.
const COMMENT: u64 = 1 << 16;
/// A field with this value has its number in the zip64 extra field.
const FULL: u32 = 0xFFFF_FFFF;

/// Bytes of a file, and the requests that a reader makes for them.
pub(crate) struct ArchiveReader<'l, 'a> {
    pub(crate) look: &'l Look<'a>,
    /// Whether requests are those of Python's buffered reader. If not, there are as few as possible.
    buffered: bool,
    pub(crate) made: Vec<Extent>,
}

impl<'l, 'a> ArchiveReader<'l, 'a> {
    pub(crate) fn new(look: &'l Look<'a>, buffered: bool) -> ArchiveReader<'l, 'a> {
        ArchiveReader { look, buffered, made: Vec::new() }
    }

    /// One request, cut at the end of the file.
    pub(crate) fn request(&mut self, offset: u64, len: u64) -> Result<&'a [u8], Obstacle> {
        let len = len.min(self.look.len.saturating_sub(offset));
        let read = Extent { offset, len };
        if len == 0 {
            return Ok(&[]);
        }
        let bytes = self.look.at(offset, len)?;
        // Bytes inside an earlier request need no new request.
        let within = |made: &Extent| made.offset <= read.offset && read.end() <= made.end();
        if !self.made.iter().any(within) {
            self.made.push(read);
        }
        Ok(bytes)
    }

    /// Bytes from earlier requests, and from new ones if those are not enough.
    pub(crate) fn get(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, Obstacle> {
        if offset.checked_add(len).is_none_or(|end| end > self.look.len) {
            self.look.at(offset, len)?;
        }
        let (mut bytes, mut at, end) = (Vec::new(), offset, offset.saturating_add(len));
        while at < end {
            let known = self.made.iter().find(|made| (made.offset..made.end()).contains(&at)).copied();
            let read = match known {
                Some(made) => made,
                None => {
                    self.ask(at, end - at)?;
                    continue;
                }
            };
            let upto = end.min(read.end());
            bytes.extend_from_slice(self.look.at(at, upto - at)?);
            at = upto;
        }
        Ok(bytes)
    }

    /// A request for `len` bytes with an empty buffer: whole buffer lengths, or one buffer.
    fn ask(&mut self, offset: u64, len: u64) -> Result<(), Obstacle> {
        let len = match (self.buffered, len - len % BUFFER) {
            (true, 0) => BUFFER,
            (true, direct) => direct,
            (false, _) => len.max(BUFFER),
        };
        self.request(offset, len).map(drop)
    }
}

/// Where the directory of an archive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryLocation {
    /// Offset of the end record, and whether something follows it.
    pub(crate) record: u64,
    pub(crate) commented: bool,
    /// Whether zip64 records precede it.
    pub(crate) zip64: bool,
    /// The directory, and the offset to add to its numbers if something precedes the archive.
    pub(crate) directory: Extent,
    shift: u64,
}

impl DirectoryLocation {
    /// Of an archive of `len` bytes with nothing before its start and nothing after its end.
    pub(crate) fn plain(len: u64, directory: Extent) -> DirectoryLocation {
        let record = len.saturating_sub(END);
        DirectoryLocation { record, commented: false, zip64: directory.end() < record, directory, shift: 0 }
    }
}

/// A member, according to the directory and its own header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredMember {
    /// Offset of its header, and the lengths of name and extra field in it.
    pub(crate) header: u64,
    pub(crate) name: u64,
    pub(crate) extra: u64,
    /// Its data in the file.
    pub(crate) data: Extent,
    /// Bytes after inflating.
    pub(crate) bytes: u64,
    pub(crate) deflated: bool,
}

/// Where `zipfile` searches for an end record with a comment.
pub(crate) fn comment_start(len: u64) -> u64 {
    len.saturating_sub(COMMENT + END)
}

/// Offset of the locator of the zip64 end record, before the end record.
pub(crate) fn locator(record: u64) -> Option<u64> {
    record.checked_sub(LOCATOR)
}

/// Offset of the zip64 end record: `zipfile` assumes that it directly precedes its locator.
pub(crate) fn end64(record: u64) -> Option<u64> {
    record.checked_sub(LOCATOR + END64)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Finds the directory.
pub(crate) fn ends(fetch: &mut ArchiveReader<'_, '_>) -> Result<DirectoryLocation, Obstacle> {
    let look = fetch.look;
    let len = look.len;
    let Some(at) = len.checked_sub(END) else {
        return Err(look.damage(0, format!("{len} bytes are too few for a ZIP archive")).into());
    };
    if !fetch.buffered {
        fetch.request(len.saturating_sub(BUFFER), BUFFER)?;
    }
    let plain = match fetch.buffered {
        true => fetch.request(at, END)?.to_vec(),
        false => fetch.get(at, END)?,
    };
    let (record, commented, end) = match plain.starts_with(b"PK\x05\x06") && plain.ends_with(&[0, 0]) {
        true => (at, false, plain),
        false => behind_comment(fetch)?,
    };
    let (zip64, long) = match (locator(record), end64(record)) {
        (Some(locator), Some(end64)) if fetch.get(locator, LOCATOR)?.starts_with(b"PK\x06\x07") => {
            if fetch.buffered {
                fetch.request(end64, BUFFER)?;
            }
            let bytes = fetch.get(end64, END64)?;
            (bytes.starts_with(b"PK\x06\x06"), bytes)
        }
        _ => (false, Vec::new()),
    };
    let numbers = match zip64 {
        true => u64_at(&long, 40).zip(u64_at(&long, 48)),
        false => u32_at(&end, 12).map(u64::from).zip(u32_at(&end, 16).map(u64::from)),
    };
    let behind = if zip64 { end64(record) } else { Some(record) };
    let place = numbers.zip(behind).and_then(|((len, said), behind)| {
        let offset = behind.checked_sub(len)?;
        Some((Extent { offset, len }, offset.checked_sub(said)?))
    });
    let (directory, shift) =
        place.ok_or_else(|| look.damage(record, "the directory's offset is before the start of the file"))?;
    Ok(DirectoryLocation { record, commented, zip64, directory, shift })
}

/// The last end record in the last 64 KiB: offset, that it has a comment, and its bytes.
fn behind_comment(fetch: &mut ArchiveReader<'_, '_>) -> Result<(u64, bool, Vec<u8>), Obstacle> {
    let start = comment_start(fetch.look.len);
    let tail = fetch.request(start, COMMENT + END)?;
    let place = tail.windows(4).rposition(|window| window == b"PK\x05\x06");
    let record = place.and_then(|place| Some((start + place as u64, tail.get(place..place + END as usize)?)));
    match record {
        Some((record, bytes)) => Ok((record, true, bytes.to_vec())),
        None => Err(fetch.look.damage(start, "no end record of a ZIP archive in the last 64 KiB").into()),
    }
}

/// An entry of the directory.
struct DirectoryEntry<'a> {
    name: &'a [u8],
    flags: u64,
    method: u64,
    packed: u64,
    bytes: u64,
    header: u64,
}

/// The entry at `at` of a directory, and its length.
fn entry(directory: &[u8], at: usize) -> Option<(DirectoryEntry<'_>, usize)> {
    let fixed = directory.get(at..)?.get(..ENTRY as usize)?;
    if !fixed.starts_with(b"PK\x01\x02") {
        return None;
    }
    let name_len = u16_at(fixed, 28)? as usize;
    let extra_len = u16_at(fixed, 30)? as usize;
    let comment_len = u16_at(fixed, 32)? as usize;
    let behind = directory.get(at + ENTRY as usize..)?;
    let name = behind.get(..name_len)?;
    let extra = behind.get(name_len..name_len + extra_len)?;
    let mut long = zip64_numbers(extra);
    // The extra field contains only the numbers whose fields are full, in this order.
    let mut number = |at| {
        let short = u32_at(fixed, at)?;
        if short == FULL { long.next() } else { Some(u64::from(short)) }
    };
    let (bytes, packed, header) = (number(24)?, number(20)?, number(42)?);
    let entry =
        DirectoryEntry { name, flags: u16_at(fixed, 8)?, method: u16_at(fixed, 10)?, packed, bytes, header };
    Some((entry, ENTRY as usize + name_len + extra_len + comment_len))
}

/// The numbers in the zip64 part of an extra field.
fn zip64_numbers(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut rest = extra;
    let mut found: &[u8] = &[];
    while let (Some(kind), Some(len)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let body = rest.get(4..).unwrap_or_default();
        let body = body.get(..len as usize).unwrap_or(body);
        if kind == 1 {
            found = body;
            break;
        }
        rest = rest.get(4 + len as usize..).unwrap_or_default();
    }
    found.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number))
}

/// The entries of a directory, each with its name.
fn entries<'d>(
    look: &Look<'_>,
    ends: &DirectoryLocation,
    directory: &'d [u8],
) -> impl Iterator<Item = Result<DirectoryEntry<'d>, Obstacle>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= directory.len() {
            return None;
        }
        let Some((entry, len)) = entry(directory, at) else {
            let offset = ends.directory.offset + at as u64;
            at = directory.len();
            return Some(Err(look.damage(offset, "a damaged entry in the directory").into()));
        };
        at += len;
        Some(Ok(entry))
    })
}

/// A member's name without its suffix, and the member if it can be read.
pub(crate) type NamedMember = (String, Option<StoredMember>);

/// The members whose names end in `suffix`: the first `most`, and the number of the others.
pub(crate) fn members(
    fetch: &mut ArchiveReader<'_, '_>,
    ends: &DirectoryLocation,
    suffix: &str,
    most: usize,
) -> Result<(Vec<NamedMember>, u64), Obstacle> {
    let directory = fetch.get(ends.directory.offset, ends.directory.len)?;
    let (mut found, mut more) = (Vec::new(), 0);
    for entry in entries(fetch.look, ends, &directory) {
        let entry = entry?;
        let Some(name) = entry.name.strip_suffix(suffix.as_bytes()) else { continue };
        if found.len() == most {
            more += 1;
            continue;
        }
        let member = match stored(fetch, ends, &entry) {
            Err(unread @ Obstacle::Unread(_)) => return Err(unread),
            member => member.ok(),
        };
        found.push((String::from_utf8_lossy(name).into_owned(), member));
    }
    Ok((found, more))
}

/// Finds a member: the one named `wanted`, or `wanted` without its suffix, else the first with that suffix.
pub(crate) fn member(
    fetch: &mut ArchiveReader<'_, '_>,
    ends: &DirectoryLocation,
    wanted: &str,
    suffix: &str,
) -> Result<StoredMember, Obstacle> {
    let look = fetch.look;
    let directory = fetch.get(ends.directory.offset, ends.directory.len)?;
    let mut best: Option<(u8, DirectoryEntry<'_>)> = None;
    for entry in entries(look, ends, &directory) {
        let entry = entry?;
        let rank = match entry.name {
            name if name == wanted.as_bytes() => 3,
            name if Some(name) == wanted.strip_suffix(suffix).map(str::as_bytes) => 2,
            name if name.ends_with(suffix.as_bytes()) => 1,
            _ => 0,
        };
        // Of members with the same name Python uses the last.
        let old = best.as_ref().map_or(0, |(rank, _)| *rank);
        if rank > old || (rank == old && rank > 1) {
            best = Some((rank, entry));
        }
    }
    let Some((_, entry)) = best else {
        return Err(look
            .damage(ends.directory.offset, format!("no member whose name ends in {suffix}"))
            .into());
    };
    stored(fetch, ends, &entry)
}

/// Reads a member's own header and checks its numbers.
fn stored(
    fetch: &mut ArchiveReader<'_, '_>,
    ends: &DirectoryLocation,
    entry: &DirectoryEntry<'_>,
) -> Result<StoredMember, Obstacle> {
    let look = fetch.look;
    let name = String::from_utf8_lossy(entry.name).into_owned();
    let limit = ends.directory.offset;
    let Some(header) = entry.header.checked_add(ends.shift).filter(|header| *header < limit) else {
        return Err(look.damage(limit, format!("the offset of member {name} is {}", entry.header)).into());
    };
    let fixed = fetch.get(header, LOCAL)?;
    let lens = u16_at(&fixed, 26).zip(u16_at(&fixed, 28)).filter(|_| fixed.starts_with(b"PK\x03\x04"));
    let Some((name_len, extra)) = lens else {
        return Err(look.damage(header, format!("no header of member {name}")).into());
    };
    let start = header + LOCAL + name_len + extra;
    let (packed, bytes, method) = (entry.packed, entry.bytes, entry.method);
    if start.checked_add(packed).is_none_or(|end| end > limit) {
        let what = format!("member {name} of {packed} bytes does not fit before the directory");
        return Err(look.damage(header, what).into());
    }
    if entry.flags & 1 != 0 {
        return Err(look.damage(header, format!("member {name} is encrypted")).into());
    }
    let possible = match method {
        0 => bytes == packed,
        8 => bytes <= packed.saturating_mul(GROWTH),
        _ => {
            let what = format!("member {name} is compressed by method {method}; only deflate is supported");
            return Err(look.damage(header, what).into());
        }
    };
    if !possible {
        let what = format!("member {name} of {packed} bytes cannot inflate to {bytes}");
        return Err(look.damage(header, what).into());
    }
    let data = Extent { offset: start, len: packed };
    Ok(StoredMember { header, name: name_len, extra, data, bytes, deflated: method == 8 })
}
