//! The links of a group: in its header, in a symbol table (a tree of names over a heap of text), or in a fractal
//! heap if there are many. Only hard links lead to objects of the file itself.

use super::super::visit::SPECULATIVE;
use super::cursor::{Container, Cursor};
use super::header::Message;
use super::heap::Heap;
use super::tree;
use crate::Obstacle;

const LINK_INFO: u16 = 0x02;
const LINK: u16 = 0x06;
const SYMBOL_TABLE: u16 = 0x11;
/// Names in a heap end with a zero; longer ones are cut, which affects none that feedline looks for.
const LONGEST_NAME: u64 = 4096;
/// A name and the address of an object header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub name: String,
    pub at: u64,
}

/// Links that were found, at most as many as a file of its length can contain.
struct Links {
    found: Vec<Link>,
    room: u64,
}

impl Links {
    fn add(&mut self, cursor: &Cursor<'_, '_>, link: Option<Link>) -> Result<(), Obstacle> {
        let Some(link) = link else { return Ok(()) };
        // A link's name and its address.
        let taken = link.name.len() as u64 + 4;
        self.room =
            self.room.checked_sub(taken).ok_or_else(|| cursor.damage("more links than fit the file"))?;
        self.found.push(link);
        Ok(())
    }
}

/// The links of the group with these header messages.
pub(super) fn links(container: &Container<'_>, messages: &[Message]) -> Result<Vec<Link>, Obstacle> {
    let mut links = Links { found: Vec::new(), room: container.look.len };
    for message in messages {
        let mut cursor = container.cursor(message.at, &message.body);
        match message.kind {
            LINK => {
                let link = link(container, &mut cursor)?;
                links.add(&cursor, link)?;
            }
            LINK_INFO => dense(container, &mut cursor, &mut links)?,
            SYMBOL_TABLE => symbol_table(container, &mut cursor, &mut links)?,
            _ => {}
        }
    }
    Ok(links.found)
}

/// A link message (specification IV.A.2.g); `None` if it leads out of the file or to another link.
fn link(container: &Container<'_>, cursor: &mut Cursor<'_, '_>) -> Result<Option<Link>, Obstacle> {
    cursor.version("a link", &[1])?;
    let flags = cursor.u8()?;
    let kind = if flags & 0x08 != 0 { cursor.u8()? } else { 0 };
    cursor.skip(if flags & 0x04 != 0 { 8 } else { 0 })?;
    cursor.skip(if flags & 0x10 != 0 { 1 } else { 0 })?;
    let len = cursor.number(1 << (flags & 3))?;
    let name = text(cursor.take(len)?);
    if kind != 0 {
        return Ok(None);
    }
    Ok(cursor.address(container)?.map(|at| Link { name, at }))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Links that do not fit the header: in a fractal heap, indexed by a tree of name hashes.
fn dense(container: &Container<'_>, cursor: &mut Cursor<'_, '_>, links: &mut Links) -> Result<(), Obstacle> {
    /// Records of names: a hash of four bytes, and the position of the link in the heap.
    const NAMES: u8 = 5;
    cursor.version("a group's links", &[0])?;
    let flags = cursor.u8()?;
    cursor.skip(if flags & 1 != 0 { 8 } else { 0 })?;
    let (heap, names) = (cursor.address(container)?, cursor.address(container)?);
    let (Some(heap), Some(names)) = (heap, names) else { return Ok(()) };
    let heap = Heap::open(container, heap)?;
    tree::BTree2::open(container, names, &[NAMES])?.each_record(&mut |mut record| {
        record.skip(4)?;
        let (at, bytes) = heap.object(container, &mut record)?;
        let link = link(container, &mut container.cursor(at, bytes))?;
        links.add(&record, link)
    })
}

fn symbol_table(
    container: &Container<'_>,
    cursor: &mut Cursor<'_, '_>,
    links: &mut Links,
) -> Result<(), Obstacle> {
    let (root, heap) = (cursor.address(container)?, cursor.address(container)?);
    let (Some(root), Some(heap)) = (root, heap) else {
        return Err(cursor.damage("a symbol table without a tree or a heap"));
    };
    let names = local_heap(container, heap)?;
    tree::each_leaf(container, root, &mut |leaf| symbols(container, leaf, &names, links))
}

/// The text of a local heap and its position.
fn local_heap<'a>(container: &Container<'a>, at: u64) -> Result<Cursor<'a, 'a>, Obstacle> {
    let mut cursor = container.cursor(at, container.up_to(at, SPECULATIVE)?);
    cursor.expect(b"HEAP")?;
    cursor.version("a local heap", &[0])?;
    cursor.skip(3)?;
    let len = cursor.length(container)?;
    cursor.length(container)?;
    let text = cursor.address(container)?.ok_or_else(|| cursor.damage("a heap without text"))?;
    // libhdf5 does not read again what the first read included.
    let skip = text.checked_sub(at).and_then(|skip| usize::try_from(skip).ok());
    let first = container.up_to(at, SPECULATIVE)?;
    let held = skip.zip(usize::try_from(len).ok()).and_then(|(skip, len)| first.get(skip..)?.get(..len));
    Ok(container.cursor(text, held.map_or_else(|| container.at(text, len), Ok)?))
}

/// The entries of a leaf of a symbol table (specification III.B).
fn symbols(
    container: &Container<'_>,
    leaf: u64,
    names: &Cursor<'_, '_>,
    links: &mut Links,
) -> Result<(), Obstacle> {
    let entry = 2 * container.address_bytes + 24;
    let most = 8 + 2 * container.group_leaf * entry;
    let mut cursor = container.cursor(leaf, container.up_to(leaf, most)?);
    cursor.expect(b"SNOD")?;
    cursor.version("a symbol table's node", &[1])?;
    cursor.skip(1)?;
    for _ in 0..cursor.u16()? {
        let name = cursor.number(container.address_bytes)?;
        let at = cursor.address(container)?;
        let kind = cursor.u32()?;
        cursor.skip(20)?;
        let mut text_at = names.clone();
        text_at.skip(name)?;
        let bytes = text_at.take(text_at.left().min(LONGEST_NAME))?;
        let name = text(bytes.split(|byte| *byte == 0).next().unwrap_or(bytes));
        // 2 is a symbolic link.
        links.add(&cursor, at.filter(|_| kind != 2).map(|at| Link { name, at }))?;
    }
    Ok(())
}
