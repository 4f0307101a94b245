//! What storage that compresses or removes duplicates sees of a data set: nothing to gain, unless that was asked for.

#![expect(clippy::unwrap_used, reason = "a test: a panic is its verdict")]

extern crate feedline_format as format;

use format::Content;
use model::shape::{Element, FileShape};

/// Encodes `files` files and hands over their bytes piece by piece, each file from its start.
fn encode(name: &str, dims: &[u64], samples: u64, files: u64, content: Content, mut take: impl FnMut(&[u8])) {
    let format = format::plain(name).unwrap();
    let shape = FileShape { dims, element: Element::Uint8, samples };
    let mut scratch = vec![0; 1 << 20];
    for file in 0..files {
        let mut sink = |piece: &[u8]| {
            take(piece);
            Ok(())
        };
        format.encode(&shape, &content, file, &mut scratch, &mut sink).unwrap();
    }
}

/// The share of bytes that zstd takes away, in pieces of a mebibyte.
fn compressed_away(name: &str, dims: &[u64], samples: u64, content: Content) -> f64 {
    let (mut before, mut after) = (0, 0);
    encode(name, dims, samples, 3, content, |piece| {
        before += piece.len();
        after += zstd::bulk::compress(piece, 3).unwrap().len();
    });
    1.0 - after as f64 / before as f64
}

/// A hash of a block, in which every bit counts.
fn hash(block: &[u8; 512]) -> u128 {
    // 2^128 divided by the golden ratio, made odd.
    const FACTOR: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
    let words = block.as_chunks::<16>().0.iter().map(|word| u128::from_le_bytes(*word));
    words.fold(0, |hash: u128, word| (hash ^ word).wrapping_mul(FACTOR).rotate_left(41))
}

#[test]
fn no_block_of_512_bytes_appears_twice_in_a_gibibyte() {
    // Half of it in large npz files, half in small jpeg files; a block is what a device would call one.
    let mut hashes: Vec<u128> = Vec::new();
    for (name, dims, files) in [("npz", [12_107, 12_107], 4), ("jpeg", [568, 568], 1_700)] {
        encode(name, &dims, 1, files, Content::new(123), |piece| {
            hashes.extend(piece.as_chunks::<512>().0.iter().map(hash));
        });
    }
    let blocks = hashes.len();
    assert!(blocks * 512 >= 1 << 30, "{blocks} blocks");
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), blocks);
}

#[test]
fn zstd_gains_nothing() {
    for (name, dims, samples) in [
        ("npz", [2000, 2000], 1),
        ("jpeg", [568, 568], 1),
        ("tfrecord", [338, 338], 20),
        ("hdf5", [500, 500], 8),
    ] {
        let share = compressed_away(name, &dims, samples, Content::new(1));
        assert!(share < 0.01, "{name}: {share}");
    }
}

#[test]
fn a_compressor_removes_the_compressible_share() {
    for asked in [0.25, 0.5, 0.75] {
        for (name, samples) in [("npz", 1), ("tfrecord", 4), ("hdf5", 4), ("npy", 1)] {
            let share = compressed_away(name, &[1500, 1500], samples, Content::new(9).compressible(asked));
            assert!((share - asked).abs() < 0.05, "{name}: {asked} asked, {share} taken away");
        }
    }
}
