//! B-trees of both versions: walked completely for the names of a group, searched for a chunk. They must not know
//! what their records mean, except for how to compare them.

use super::cursor::{Container, Cursor};
use super::heap::number_bytes;
use crate::Obstacle;
use std::cmp::Ordering;

/// Levels of a tree: with 32 children per node, more than a file can hold.
const MOST_LEVELS: u64 = 16;

/// Signature, type, level, entries and two siblings of a node of version 1.
fn node_prefix(container: &Container<'_>) -> u64 {
    8 + 2 * container.address_bytes
}

/// A node of version 1: its level, how many entries it has, and the cursor on the first key.
fn node<'a>(
    container: &Container<'a>,
    at: u64,
    kind: u8,
    most: u64,
) -> Result<(u8, u16, Cursor<'a, 'a>), Obstacle> {
    let mut cursor = container.cursor(at, container.up_to(at, most)?);
    cursor.expect(b"TREE")?;
    let found = cursor.u8()?;
    if found != kind {
        return Err(cursor.damage(format!("a tree of kind {found} instead of {kind}")));
    }
    let (level, entries) = (cursor.u8()?, cursor.u16()?);
    cursor.skip(2 * container.address_bytes)?;
    Ok((level, entries, cursor))
}

/// Whether a node may have that level as a child of a node one level above.
fn is_below(level: u8, above: Option<u8>) -> bool {
    u64::from(level) < MOST_LEVELS && above.is_none_or(|above| level.checked_add(1) == Some(above))
}

/// Calls `each` with the address of every leaf of a group's tree (version 1).
pub(super) fn each_leaf(
    container: &Container<'_>,
    root: u64,
    each: &mut dyn FnMut(u64) -> Result<(), Obstacle>,
) -> Result<(), Obstacle> {
    let entry = container.length_bytes + container.address_bytes;
    let most = node_prefix(container) + 2 * container.group_node * entry + container.length_bytes;
    let mut open = vec![(root, None)];
    let mut visited = 0;
    while let Some((at, below)) = open.pop() {
        visited += 1;
        let (level, entries, mut cursor) = node(container, at, 0, most)?;
        // Every node and every leaf takes at least this many bytes of the file.
        if visited > container.look.len / 8 || !is_below(level, below) {
            return Err(container.damage(at, "a tree of names with a loop"));
        }
        let mut children = Vec::new();
        for _ in 0..entries {
            cursor.length(container)?;
            children
                .push(cursor.address(container)?.ok_or_else(|| cursor.damage("a tree with a missing node"))?);
        }
        match level {
            0 => {
                visited += children.len() as u64;
                children.into_iter().try_for_each(&mut *each)?;
            }
            _ => open.extend(children.into_iter().rev().map(|child| (child, Some(level)))),
        }
    }
    Ok(())
}

/// The chunk that starts at `wanted` in a tree of chunks (version 1): its size and address.
pub(super) fn find_chunk(
    container: &Container<'_>,
    root: u64,
    wanted: &[u64],
) -> Result<Option<(u64, u64)>, Obstacle> {
    // Size, skipped filters, a position per axis, and one for the element.
    let key = 8 + 8 * (wanted.len() as u64 + 1);
    let entries = 2 * container.chunk_node;
    let most = node_prefix(container) + entries * container.address_bytes + (entries + 1) * key;
    let (mut at, mut above) = (root, None);
    loop {
        let (level, entries, mut cursor) = node(container, at, 1, most)?;
        if !is_below(level, above) {
            return Err(container.damage(at, "a tree of chunks with a loop"));
        }
        let mut found = None;
        for _ in 0..entries {
            let size = u64::from(cursor.u32()?);
            cursor.skip(4)?;
            let order = compare(&mut cursor, wanted)?;
            cursor.skip(8)?;
            let child = cursor.address(container)?;
            match order {
                Ordering::Greater => break,
                Ordering::Less if level == 0 => {}
                _ => found = child.map(|child| (size, child)),
            }
        }
        match (found, level) {
            (found, 0) => return Ok(found),
            (None, _) => return Ok(None),
            (Some((_, child)), _) => (at, above) = (child, Some(level)),
        }
    }
}

/// Compares a record's position with the wanted one.
fn compare(cursor: &mut Cursor<'_, '_>, wanted: &[u64]) -> Result<Ordering, Obstacle> {
    let mut order = Ordering::Equal;
    for wanted in wanted {
        order = order.then(cursor.number(8)?.cmp(wanted));
    }
    Ok(order)
}

/// A tree of version 2.
pub(super) struct BTree2<'c, 'a> {
    container: &'c Container<'a>,
    node_bytes: u64,
    /// Bytes of a record.
    pub record_bytes: u64,
    depth: u64,
    root: Option<u64>,
    root_records: u64,
    /// Bytes of a node's record count.
    count_bytes: u64,
}

/// A node to visit.
#[derive(Clone, Copy)]
struct TreeNode {
    at: u64,
    depth: u64,
    records: u64,
}

impl<'c, 'a> BTree2<'c, 'a> {
    /// Signature, version, type and checksum of a node.
    const AROUND: u64 = 10;

    pub(super) fn open(
        container: &'c Container<'a>,
        at: u64,
        kinds: &[u8],
    ) -> Result<BTree2<'c, 'a>, Obstacle> {
        let len = 22 + container.address_bytes + container.length_bytes;
        let mut cursor = container.block(at, len, b"BTHD")?;
        cursor.version("a tree", &[0])?;
        let kind = cursor.u8()?;
        let (node_bytes, record_bytes) = (u64::from(cursor.u32()?), u64::from(cursor.u16()?));
        let depth = u64::from(cursor.u16()?);
        cursor.skip(2)?;
        let root = cursor.address(container)?;
        let root_records = u64::from(cursor.u16()?);
        let room = node_bytes.checked_sub(BTree2::AROUND).and_then(|room| room.checked_div(record_bytes));
        let (Some(most), true) = (room, kinds.contains(&kind) && depth <= MOST_LEVELS) else {
            return Err(cursor.damage(format!("a tree of kind {kind} with invalid depth {depth}")));
        };
        let count_bytes = number_bytes(most);
        Ok(BTree2 { container, node_bytes, record_bytes, depth, root, root_records, count_bytes })
    }

    /// Bytes of the total record count below a node of each depth; 0 for leaves.
    fn total_bytes(&self, depth: u64) -> u64 {
        let mut total = (self.node_bytes - BTree2::AROUND) / self.record_bytes;
        let mut bytes = 0;
        for _ in 1..=depth {
            let pointer = self.container.address_bytes + self.count_bytes + bytes;
            let room = self.node_bytes.saturating_sub(BTree2::AROUND + pointer);
            let most = room / (self.record_bytes + pointer);
            total = total.saturating_mul(most + 1).saturating_add(most);
            bytes = number_bytes(total);
        }
        bytes
    }

    fn root(&self) -> Option<TreeNode> {
        let (depth, records) = (self.depth, self.root_records);
        self.root.map(|at| TreeNode { at, depth, records })
    }

    /// The records of a node, and a cursor after them, at its list of children.
    fn records(&self, node: TreeNode) -> Result<(Cursor<'a, 'a>, Cursor<'a, 'a>), Obstacle> {
        let signature = if node.depth == 0 { b"BTLF" } else { b"BTIN" };
        let mut bytes = self.node_bytes;
        if node.depth == 0 {
            bytes = bytes.min(node.records * self.record_bytes + BTree2::AROUND);
        } else {
            let pointer = self.pointer_bytes(node.depth);
            let used = node.records * self.record_bytes + (node.records + 1) * pointer;
            bytes = bytes.min(used + BTree2::AROUND);
        }
        // libhdf5 reads whole nodes; the checksum follows the used part.
        let whole = self.container.at(node.at, self.node_bytes)?;
        let used = usize::try_from(bytes).map_or(whole, |bytes| &whole[..bytes.min(whole.len())]);
        let mut cursor = self.container.cursor(node.at, self.container.checked(node.at, used)?);
        cursor.expect(signature)?;
        cursor.version("a tree's node", &[0])?;
        cursor.skip(1)?;
        let mut children = cursor.clone();
        children.skip(node.records * self.record_bytes)?;
        Ok((cursor, children))
    }

    fn pointer_bytes(&self, depth: u64) -> u64 {
        self.container.address_bytes + self.count_bytes + self.total_bytes(depth - 1)
    }

    /// The child with that number.
    fn child(&self, node: TreeNode, children: &Cursor<'a, 'a>, number: u64) -> Result<TreeNode, Obstacle> {
        let mut cursor = children.clone();
        cursor.skip(number * self.pointer_bytes(node.depth))?;
        let at = cursor.address(self.container)?;
        let at = at.ok_or_else(|| cursor.damage("a tree with a missing node"))?;
        Ok(TreeNode { at, depth: node.depth - 1, records: cursor.number(self.count_bytes)? })
    }

    fn record(&self, records: &mut Cursor<'a, 'a>) -> Result<Cursor<'a, 'a>, Obstacle> {
        let at = records.position();
        let bytes = records.take(self.record_bytes)?;
        Ok(self.container.cursor(at, bytes))
    }

    /// Calls `each` with every record, in no order.
    pub(super) fn each_record(
        &self,
        each: &mut dyn FnMut(Cursor<'a, 'a>) -> Result<(), Obstacle>,
    ) -> Result<(), Obstacle> {
        let mut open: Vec<TreeNode> = self.root().into_iter().collect();
        let mut visited = 0;
        while let Some(node) = open.pop() {
            visited += 1;
            if visited > self.container.look.len / self.node_bytes {
                return Err(self.container.damage(node.at, "a tree with a loop"));
            }
            let (mut records, children) = self.records(node)?;
            for _ in 0..node.records {
                each(self.record(&mut records)?)?;
            }
            for number in (0..=node.records).filter(|_| node.depth > 0) {
                open.push(self.child(node, &children, number)?);
            }
        }
        Ok(())
    }

    /// The record that `order` finds equal; `order` compares a record to the wanted one.
    pub(super) fn find(
        &self,
        order: &dyn Fn(Cursor<'a, 'a>) -> Result<Ordering, Obstacle>,
    ) -> Result<Option<Cursor<'a, 'a>>, Obstacle> {
        let mut node = self.root();
        while let Some(here) = node.take() {
            let (mut records, children) = self.records(here)?;
            let mut number = 0;
            while number < here.records {
                let record = self.record(&mut records)?;
                match order(record.clone())? {
                    Ordering::Equal => return Ok(Some(record)),
                    Ordering::Greater => break,
                    Ordering::Less => number += 1,
                }
            }
            if here.depth > 0 {
                node = Some(self.child(here, &children, number)?);
            }
        }
        Ok(None)
    }
}

/// Compares a chunk record, whose position starts after `skip` bytes, with the wanted position.
pub(super) fn compare_places(
    mut record: Cursor<'_, '_>,
    skip: u64,
    wanted: &[u64],
) -> Result<Ordering, Obstacle> {
    record.skip(skip)?;
    compare(&mut record, wanted)
}
