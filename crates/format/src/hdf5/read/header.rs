//! Superblocks and object headers of both versions, up to their messages. It must not know what a message means.

use super::super::visit::SPECULATIVE;
use super::cursor::{Container, Cursor};
use crate::{Look, Obstacle};
use std::borrow::Cow;

/// Maximum continuations of one header: libhdf5 writes a few, a loop would never end.
const MOST_CONTINUATIONS: usize = 1024;
const CONTINUATION: u16 = 0x10;
const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// What libhdf5 reads of a superblock before it knows its version.
const SUPERBLOCK: u64 = 48;

/// The contents of a superblock.
pub(super) struct Superblock<'a> {
    pub container: Container<'a>,
    pub version: u8,
    /// Address of the root group's header.
    pub root: u64,
}

pub(super) fn superblock<'a>(look: &'a Look<'a>) -> Result<Superblock<'a>, Obstacle> {
    let mut container = Container::new(look);
    let signature = container.up_to(0, SIGNATURE.len() as u64)?;
    container.cursor(0, signature).expect(SIGNATURE)?;
    let bytes = container.up_to(0, SUPERBLOCK)?;
    let mut cursor = container.cursor(0, bytes);
    cursor.skip(SIGNATURE.len() as u64)?;
    let version = cursor.version("the superblock", &[0, 1, 2, 3])?;
    let (end, root) = match version {
        0 | 1 => old_superblock(&mut container, version)?,
        _ => new_superblock(&mut container, cursor)?,
    };
    if end > look.len {
        let what = format!("it has {} bytes instead of {end}", look.len);
        return Err(container.damage(look.len, what));
    }
    let root = root.ok_or_else(|| container.damage(0, "a superblock without a root group"))?;
    Ok(Superblock { container, version, root })
}

fn widths(container: &mut Container<'_>, cursor: &mut Cursor<'_, '_>) -> Result<(), Obstacle> {
    let (addresses, lengths) = (u64::from(cursor.u8()?), u64::from(cursor.u8()?));
    if ![4, 8].contains(&addresses) || ![4, 8].contains(&lengths) {
        return Err(cursor.damage(format!("addresses of {addresses} bytes, lengths of {lengths}")));
    }
    (container.address_bytes, container.length_bytes) = (addresses, lengths);
    Ok(())
}

/// End of file and root group, of versions 2 and 3.
fn new_superblock(
    container: &mut Container<'_>,
    mut cursor: Cursor<'_, '_>,
) -> Result<(u64, Option<u64>), Obstacle> {
    widths(container, &mut cursor)?;
    cursor.skip(1)?;
    let len = 12 + 4 * container.address_bytes + 4;
    container.sealed(0, len)?;
    base(container, &mut cursor)?;
    let _extension = cursor.address(container)?;
    let end = cursor.address(container)?.unwrap_or(0);
    Ok((end, cursor.address(container)?))
}

/// End of file and root group, of versions 0 and 1.
fn old_superblock(container: &mut Container<'_>, version: u8) -> Result<(u64, Option<u64>), Obstacle> {
    let first = container.up_to(0, SUPERBLOCK)?;
    // Four addresses and the root group's entry, whose last 24 bytes are not needed, follow the widths and the
    // trees' numbers.
    let mut cursor = container.cursor(0, first);
    cursor.skip(13)?;
    widths(container, &mut cursor)?;
    let numbers = if version == 0 { 24 } else { 28 };
    let len = numbers + 6 * container.address_bytes + 24;
    let bytes = whole(container, 0, first, len)?;
    let mut cursor = container.cursor(0, &bytes);
    cursor.skip(16)?;
    container.group_leaf = u64::from(cursor.u16()?);
    container.group_node = u64::from(cursor.u16()?);
    cursor.skip(4)?;
    if version == 1 {
        container.chunk_node = u64::from(cursor.u16()?);
        cursor.skip(2)?;
    }
    base(container, &mut cursor)?;
    let _free_space = cursor.address(container)?;
    let end = cursor.address(container)?.unwrap_or(0);
    let _driver = cursor.address(container)?;
    let _name = cursor.address(container)?;
    Ok((end, cursor.address(container)?))
}

fn base(container: &Container<'_>, cursor: &mut Cursor<'_, '_>) -> Result<(), Obstacle> {
    let at = cursor.position();
    match cursor.address(container)? {
        Some(0) => Ok(()),
        _ => Err(container.damage(at, "addresses with a base other than 0, which is not supported")),
    }
}

/// `len` bytes of which the first are known, like libhdf5 reads a structure that is longer than assumed.
fn whole<'a>(
    container: &Container<'a>,
    offset: u64,
    first: &'a [u8],
    len: u64,
) -> Result<Cow<'a, [u8]>, Obstacle> {
    if let Some(bytes) = usize::try_from(len).ok().and_then(|len| first.get(..len)) {
        return Ok(Cow::Borrowed(bytes));
    }
    let behind = offset.saturating_add(first.len() as u64);
    let rest = container.at(behind, len - first.len() as u64)?;
    Ok(Cow::Owned([first, rest].concat()))
}

/// A message of an object header.
#[derive(Debug)]
pub(super) struct Message {
    pub kind: u16,
    /// Whether its content is stored elsewhere in the file.
    pub shared: bool,
    /// Offset of the body in the file.
    pub at: u64,
    pub body: Vec<u8>,
}

/// All messages of an object header, including its continuations.
pub(super) fn messages(container: &Container<'_>, offset: u64) -> Result<Vec<Message>, Obstacle> {
    let first = container.up_to(offset, SPECULATIVE)?;
    let mut messages = Vec::new();
    let style = match first.starts_with(b"OHDR") {
        true => new_header(container, offset, first, &mut messages)?,
        false => old_header(container, offset, first, &mut messages)?,
    };
    let (mut seen, mut continuations, mut total) = (0, 0, 0_u64);
    while seen < messages.len() {
        let message = &messages[seen];
        seen += 1;
        if message.kind != CONTINUATION {
            continue;
        }
        let mut cursor = container.cursor(message.at, &message.body);
        let at = cursor.address(container)?;
        let at = at.ok_or_else(|| cursor.damage("a continuation without an address"))?;
        let len = cursor.length(container)?;
        (continuations, total) = (continuations + 1, total.saturating_add(len));
        if continuations > MOST_CONTINUATIONS || total > container.look.len {
            return Err(container.damage(offset, "an object header with endless continuations"));
        }
        let body = match style {
            Style::Old => container.cursor(at, container.at(at, len)?),
            Style::New { .. } => container.block(at, len, b"OCHK")?,
        };
        gather(style, body, &mut messages)?;
    }
    Ok(messages)
}

/// How messages are written.
#[derive(Clone, Copy)]
enum Style {
    Old,
    New { creation_order: bool },
}

fn old_header(
    container: &Container<'_>,
    offset: u64,
    first: &[u8],
    messages: &mut Vec<Message>,
) -> Result<Style, Obstacle> {
    const PREFIX: u64 = 16;
    let mut cursor = container.cursor(offset, first);
    cursor.version("an object header", &[1])?;
    cursor.skip(7)?;
    let len = u64::from(cursor.u32()?);
    let first = container.up_to(offset, SPECULATIVE)?;
    let bytes = whole(container, offset, first, PREFIX + len)?;
    let mut cursor = container.cursor(offset, &bytes);
    cursor.skip(PREFIX)?;
    gather(Style::Old, cursor, messages)?;
    Ok(Style::Old)
}

fn new_header<'a>(
    container: &Container<'a>,
    offset: u64,
    first: &'a [u8],
    messages: &mut Vec<Message>,
) -> Result<Style, Obstacle> {
    let mut cursor = container.cursor(offset, first);
    cursor.skip(4)?;
    cursor.version("an object header", &[2])?;
    let flags = cursor.u8()?;
    // Timestamps, then limits for attributes, if present.
    cursor.skip(if flags & 0x20 != 0 { 16 } else { 0 })?;
    cursor.skip(if flags & 0x10 != 0 { 4 } else { 0 })?;
    let len = cursor.number(1 << (flags & 3))?;
    let prefix = cursor.position() - offset;
    let len =
        len.checked_add(prefix + 4).ok_or_else(|| cursor.damage("an object header of invalid length"))?;
    let bytes = whole(container, offset, first, len)?;
    let body = container.checked(offset, &bytes)?;
    let mut cursor = container.cursor(offset, body);
    cursor.skip(prefix)?;
    let style = Style::New { creation_order: flags & 4 != 0 };
    gather(style, cursor, messages)?;
    Ok(style)
}

fn gather(style: Style, mut cursor: Cursor<'_, '_>, messages: &mut Vec<Message>) -> Result<(), Obstacle> {
    let prefix = match style {
        Style::Old => 8,
        Style::New { creation_order } => 4 + if creation_order { 2 } else { 0 },
    };
    // Anything shorter than a message is a gap.
    while cursor.left() >= prefix {
        let (kind, len, flags);
        match style {
            Style::Old => {
                (kind, len, flags) = (cursor.u16()?, cursor.u16()?, cursor.u8()?);
                cursor.skip(3)?;
            }
            Style::New { .. } => {
                (kind, len, flags) = (u16::from(cursor.u8()?), cursor.u16()?, cursor.u8()?);
                cursor.skip(prefix - 4)?;
            }
        }
        let at = cursor.position();
        let body = cursor.take(u64::from(len))?;
        if kind != 0 {
            messages.push(Message { kind, shared: flags & 2 != 0, at, body: body.to_vec() });
        }
    }
    Ok(())
}
