//! Conformance tests for checkpoint tiers: files are read back as written, a checkpoint exists when its manifest does
//! and not before, and the one that it replaces stays until then.

use std::path::Path;

use model::checkpoint::manifest::{CheckpointManifest, ManifestEntry, Moment};
use model::document;

use super::registry::{is_unavailable, selections};
use crate::{Buffer, CHUNK_GRANULE, FixedClock, Registry, StoredCheckpoint, Tier};

/// Runs the conformance tests of every backend that can hold checkpoints, each in its own folder below `root`.
pub fn tiers(registry: Registry, root: &Path) {
    for (number, selection) in selections(registry).into_iter().enumerate() {
        match selection.tier(&root.join(format!("tier{number}"))) {
            Ok(opened) => tier(&*opened),
            Err(error) if selection.backend.tier.is_none() => {
                assert!(error.to_string().contains("checkpoints cannot be written"), "{error}");
            }
            Err(error) => assert!(is_unavailable(&selection, &error), "{error}"),
        }
    }
}

/// All conformance tests of a tier, which must be empty.
pub fn tier(tier: &dyn Tier) {
    files_are_read_back_as_written(tier);
    a_checkpoint_is_complete_once_its_manifest_exists(tier);
    a_replaced_checkpoint_stays_until_commit(tier);
    an_abandoned_checkpoint_leaves_nothing(tier);
    a_part_of_a_checkpoint_has_the_manifest_of_all(tier);
    marks_are_visible_until_they_are_removed(tier);
    assert_eq!(tier.list().unwrap(), [], "all are removed");
}

/// The manifest of a checkpoint with files of these sizes.
pub fn manifest(step: u64, serial: u64, sizes: &[u64]) -> CheckpointManifest {
    let entry = |(at, bytes): (usize, &u64)| ManifestEntry {
        name: format!("file{at}"),
        rank: 0,
        bytes: *bytes,
        crc32: u32::try_from(serial).unwrap(),
    };
    CheckpointManifest {
        schema_version: document::CHECKPOINT.version,
        serial,
        moment: Moment { epoch: 1, step },
        seed: serial,
        ranks: 1,
        model: "suite".to_owned(),
        scale: "1".to_owned(),
        geometry: "suite".to_owned(),
        files: sizes.iter().enumerate().map(entry).collect(),
    }
}

const CHUNK: u64 = 1 << 16;

fn byte(serial: u64, at: u64) -> u8 {
    ((at * at) >> 7) as u8 ^ serial as u8
}

/// Writes the files of a checkpoint that was begun.
pub fn write_files(tier: &dyn Tier, checkpoint: &StoredCheckpoint) {
    for file in &checkpoint.manifest.files {
        let mut sink = tier.files().create(&checkpoint.path(&file.name), file.bytes, &FixedClock).unwrap();
        let (mut at, mut back) = (0, Vec::new());
        while at < file.bytes {
            let bytes = (file.bytes - at).min(CHUNK) as usize;
            let mut chunk = Buffer::default();
            chunk.prepare(bytes.next_multiple_of(CHUNK_GRANULE));
            let room = chunk.room()[..bytes].iter_mut();
            room.zip(at..).for_each(|(to, at)| *to = byte(checkpoint.manifest.serial, at));
            chunk.set_len(bytes);
            back.extend(sink.write(chunk).unwrap());
            at += bytes as u64;
        }
        sink.finish(true, &mut back).unwrap();
        assert_eq!(back.len() as u64, file.bytes.div_ceil(CHUNK), "every buffer is returned");
    }
}

/// Whether every file of a checkpoint has its bytes; if the tier keeps none, its size.
fn reads_back(tier: &dyn Tier, checkpoint: &StoredCheckpoint) -> bool {
    checkpoint.manifest.files.iter().all(|file| {
        let Ok(mut source) = tier.files().open(&checkpoint.path(&file.name), &FixedClock) else {
            return false;
        };
        let (mut at, mut chunk) = (0, Buffer::with_capacity(CHUNK as usize));
        loop {
            source.read(&mut chunk).unwrap();
            let read = chunk.bytes().len() as u64;
            let right = |(there, at): (&u8, u64)| *there == byte(checkpoint.manifest.serial, at);
            if tier.files().holds_files() && !chunk.bytes().iter().zip(at..).all(right) {
                return false;
            }
            at += read;
            if read == 0 {
                return at == file.bytes;
            }
        }
    })
}

fn save(tier: &dyn Tier, manifest: CheckpointManifest) -> StoredCheckpoint {
    let checkpoint = tier.begin(manifest).unwrap();
    write_files(tier, &checkpoint);
    tier.commit(&checkpoint).unwrap();
    tier.find(checkpoint.manifest.moment).unwrap().expect("it is complete")
}

fn files_are_read_back_as_written(tier: &dyn Tier) {
    let checkpoint = save(tier, manifest(1, 1, &[0, 1, 4095, 4096, 4097, 3 * CHUNK, 3 * CHUNK + 17]));
    assert!(reads_back(tier, &checkpoint));
    for file in &checkpoint.manifest.files {
        let path = checkpoint.path(&file.name);
        tier.files().sync_file(&path).unwrap();
        for pages in [tier.files().cached(&path).unwrap(), tier.files().evict(&path).unwrap()] {
            assert!(pages.is_none_or(|pages| pages.cached <= pages.all));
        }
    }
    tier.remove(&checkpoint).unwrap();
    assert!(!reads_back(tier, &checkpoint), "its files are removed");
}

fn a_part_of_a_checkpoint_has_the_manifest_of_all(tier: &dyn Tier) {
    let whole = manifest(6, 9, &[100, 200, 300]);
    let begun = tier.begin(whole.clone()).unwrap();
    let mut part = begun.clone();
    part.manifest.files.remove(1);
    write_files(tier, &part);
    tier.commit(&begun).unwrap();
    let there = tier.find(whole.moment).unwrap().expect("it is complete");
    assert_eq!((&there.manifest, tier.present(&there)), (&whole, Ok(vec![true, false, true])));
    assert!(!tier.holds(&whole).unwrap());
    tier.remove(&there).unwrap();
    assert_eq!(tier.find(whole.moment), Ok(None));
}

fn marks_are_visible_until_they_are_removed(tier: &dyn Tier) {
    tier.mark("1-0").unwrap();
    assert!(tier.is_marked("1-0").unwrap());
    tier.unmark("1-0").unwrap();
    // Of a tier without files, every process has its own, so marks say nothing.
    assert!(!tier.files().holds_files() || !tier.is_marked("1-0").unwrap());
}

fn a_checkpoint_is_complete_once_its_manifest_exists(tier: &dyn Tier) {
    let list = manifest(2, 2, &[10_000, 20]);
    let begun = tier.begin(list.clone()).unwrap();
    write_files(tier, &begun);
    assert_eq!((tier.find(list.moment), tier.list(), tier.holds(&list)), (Ok(None), Ok(vec![]), Ok(false)));
    tier.commit(&begun).unwrap();
    let there = tier.find(list.moment).unwrap().expect("it is complete");
    assert_eq!((&there.manifest, tier.list()), (&list, Ok(vec![there.clone()])));
    assert!(tier.holds(&list).unwrap() && !tier.holds(&manifest(2, 3, &[10_000, 20])).unwrap());
    tier.recover().unwrap();
    assert!(reads_back(tier, &there), "recovery keeps complete checkpoints");
    tier.remove(&there).unwrap();
    assert_eq!(tier.find(list.moment), Ok(None));
}

fn a_replaced_checkpoint_stays_until_commit(tier: &dyn Tier) {
    let old = save(tier, manifest(3, 4, &[5000, 6000]));
    let begun = tier.begin(manifest(3, 5, &[5000, 7000])).unwrap();
    write_files(tier, &begun);
    let there = tier.find(old.manifest.moment).unwrap().expect("it stays");
    assert_eq!(there.manifest, old.manifest);
    assert!(reads_back(tier, &there));
    tier.commit(&begun).unwrap();
    tier.clean_up(old.manifest.moment);
    let new = tier.find(old.manifest.moment).unwrap().expect("it is complete");
    assert_eq!((&new.manifest, tier.list().unwrap().len()), (&begun.manifest, 1));
    assert!(reads_back(tier, &new) && !reads_back(tier, &there));
    tier.remove(&new).unwrap();
}

fn an_abandoned_checkpoint_leaves_nothing(tier: &dyn Tier) {
    let old = save(tier, manifest(4, 6, &[5000]));
    for serial in [7, 8] {
        let begun = tier.begin(manifest(4, serial, &[4000])).unwrap();
        write_files(tier, &begun);
        tier.abandon(&begun);
    }
    let there = tier.find(old.manifest.moment).unwrap().expect("it stays");
    assert!(there.manifest == old.manifest && reads_back(tier, &there));
    tier.remove(&there).unwrap();
    let begun = tier.begin(manifest(4, 9, &[4000])).unwrap();
    write_files(tier, &begun);
    tier.recover().unwrap();
    tier.abandon(&begun);
    assert!(!reads_back(tier, &begun));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BACKENDS;

    #[test]
    fn every_tier_passes_the_conformance_tests() {
        let folder = tempfile::tempdir().unwrap();
        tiers(BACKENDS, folder.path());
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            assert_eq!(
                std::fs::read_dir(entry.unwrap().path()).unwrap().count(),
                0,
                "nothing is left behind"
            );
        }
    }
}
