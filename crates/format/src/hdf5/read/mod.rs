//! Existing HDF5 files, as libhdf5 and h5py write them: which datasets are the samples, and where their bytes
//! are, without reading them. No number in the file is trusted: loops are detected, and nothing larger than the
//! file is allocated. It must not interpret the chunks' contents.

mod cursor;
mod extensible;
mod group;
mod header;
mod heap;
mod index;
mod message;
mod tree;

use crate::{ArrayList, FileFacts, Look, Obstacle};
pub(super) use cursor::Container;
use group::Link;
use message::DatasetType;
pub(super) use message::{Dataset, DatasetStorage};

/// DLIO's name of the sample datasets, followed by a number.
const RECORDS: &str = "records_";
/// Maximum number of datasets that are searched for the largest, if none has that name.
const MOST_CANDIDATES: usize = 4096;

/// An opened file.
pub(super) struct Hdf5File<'a> {
    pub container: Container<'a>,
    /// The version of its superblock.
    version: u8,
    /// The header of its root group.
    root: u64,
    /// The sample datasets: at least one.
    pub sets: Vec<Dataset>,
    pub samples: u64,
}

pub(super) fn open<'a>(look: &'a Look<'a>) -> Result<Hdf5File<'a>, Obstacle> {
    let header::Superblock { container, version, root } = header::superblock(look)?;
    let links = group::links(&container, &header::messages(&container, root)?)?;
    let mut records: Vec<&Link> = links.iter().filter(|link| link.name.starts_with(RECORDS)).collect();
    records.sort_by_key(|link| (number(&link.name), &link.name));
    let mut sets = Vec::new();
    for link in &records {
        sets.extend(dataset(&container, link)?);
    }
    if records.is_empty() {
        sets.extend(largest(&container, &links)?);
    }
    let samples = sets.iter().map(|set| set.dims[0]).min();
    match samples {
        Some(samples) => Ok(Hdf5File { container, version, root, sets, samples }),
        None => Err(container.damage(root, "its root group holds no dataset of samples")),
    }
}

fn number(name: &str) -> u64 {
    name.strip_prefix(RECORDS).and_then(|number| number.parse().ok()).unwrap_or(u64::MAX)
}

fn dataset(container: &Container<'_>, link: &Link) -> Result<Option<Dataset>, Obstacle> {
    Dataset::of(container, &link.name, link.at, &header::messages(container, link.at)?)
}

/// The dataset with the most bytes.
fn largest(container: &Container<'_>, links: &[Link]) -> Result<Option<Dataset>, Obstacle> {
    let mut best = None::<Dataset>;
    for link in links.iter().take(MOST_CANDIDATES) {
        let set = dataset(container, link)?;
        if best.as_ref().map(Dataset::bytes) < set.as_ref().map(Dataset::bytes) {
            best = set;
        }
    }
    Ok(best)
}

/// What a file contains.
pub(super) fn facts(look: &Look<'_>) -> Result<FileFacts, Obstacle> {
    let file = open(look)?;
    let first = &file.sets[0];
    let mut dims = first.dims[1..].to_vec();
    let alike = file.sets.iter().all(|set| set.dims == first.dims);
    if let Some(dim) = dims.first_mut().filter(|_| alike) {
        *dim = dim.saturating_mul(file.sets.len() as u64);
    }
    let mut notes = vec![format!("superblock version {}", file.version)];
    match &file.sets[..] {
        [only] => notes.push(format!("dataset {}", only.name)),
        [first, .., last] => {
            notes.push(format!("{} datasets per sample, {} to {}", file.sets.len(), first.name, last.name));
        }
        [] => {}
    }
    notes.push(match &first.storage {
        DatasetStorage::Contiguous(_) => "contiguous".to_owned(),
        DatasetStorage::Chunked { grid, index } => {
            format!("chunks of shape {:?}, {}", &grid.chunk[..], index.name())
        }
    });
    if let DatasetStorage::Chunked { grid, .. } = &first.storage
        && grid.most != grid.dims
    {
        let most = |most: &u64| if *most == u64::MAX { "any".to_owned() } else { most.to_string() };
        let most: Vec<String> = grid.most.iter().map(most).collect();
        notes.push(format!("may grow to shape [{}]", most.join(", ")));
    }
    if first.is_filtered() {
        let names: Vec<String> = first.filters.iter().map(|filter| filter_name(*filter)).collect();
        notes.push(format!("filters {}", names.join(", ")));
    }
    if first.element.big_endian {
        notes.push("big-endian elements".to_owned());
    }
    if first.element.name.is_none() {
        notes.push(format!("elements of {} bytes without a simple NumPy type", first.element.bytes));
    }
    let (element, arrays) = (first.element.name.map(str::to_owned), arrays(&file.container, file.root)?);
    Ok(FileFacts { samples: Some(file.samples), dims, element, arrays, notes })
}

/// The datasets of all groups, by their paths. One that cannot be read is listed without a shape: the samples do not
/// depend on it.
fn arrays(container: &Container<'_>, root: u64) -> Result<ArrayList, Obstacle> {
    let mut list = ArrayList::default();
    // Groups can contain each other; each object is visited once.
    let (mut open, mut seen) = (vec![(String::new(), root)], vec![root]);
    while let Some((path, at)) = open.pop() {
        let messages = header::messages(container, at);
        let Some(links) = known(messages.and_then(|messages| group::links(container, &messages)))? else {
            continue;
        };
        let mut groups = Vec::new();
        for link in links {
            let name = format!("{path}{}", link.name);
            if list.listed.len() + groups.len() + open.len() >= ArrayList::MOST_READ {
                list.more += 1;
                continue;
            }
            if seen.contains(&link.at) {
                continue;
            }
            seen.push(link.at);
            let messages = header::messages(container, link.at);
            match known(messages.and_then(|messages| DatasetType::of(container, &messages)))? {
                Some(Some(DatasetType { dims, element })) => list.add(&name, &dims, &element.described()),
                Some(None) => groups.push((format!("{name}/"), link.at)),
                None => list.push(&name, None, "unreadable"),
            }
        }
        // The first group next.
        open.extend(groups.into_iter().rev());
    }
    Ok(list)
}

/// The answer, or nothing if the bytes are damaged or not supported.
fn known<T>(answer: Result<T, Obstacle>) -> Result<Option<T>, Obstacle> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(unread @ Obstacle::Unread(_)) => Err(unread),
        Err(_) => Ok(None),
    }
}

/// The registered name of a filter (specification IV.A.2.l, and The HDF Group's list).
fn filter_name(filter: u16) -> String {
    match filter {
        1 => "gzip".to_owned(),
        2 => "shuffle".to_owned(),
        3 => "fletcher32".to_owned(),
        4 => "szip".to_owned(),
        5 => "nbit".to_owned(),
        6 => "scaleoffset".to_owned(),
        32000 => "lzf".to_owned(),
        32001 => "blosc".to_owned(),
        32004 => "lz4".to_owned(),
        32008 => "bitshuffle".to_owned(),
        32015 => "zstd".to_owned(),
        other => format!("number {other}"),
    }
}
