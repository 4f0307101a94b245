//! Measures on one core how fast content and files are generated (and discarded), how long comparing a part of a file
//! takes, and how fast pictures are decoded: `cargo run --release -p feedline-format --example speed`. The fastest of
//! several rounds, because the machine is shared.
#![allow(clippy::print_stdout)] // A program for the developer's terminal.

extern crate feedline_format as format;

use format::{Content, EncodeError, Extent, FileParts, Format};
use model::shape::{Element, FileShape};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let content = Content::new(1);
    let mut buffer = vec![0; 16 * 1024];
    report("content, 16 KiB pieces", 1 << 30, || {
        for piece in 0..1 << 16 {
            content.fill(piece >> 8, piece << 14, black_box(&mut buffer));
        }
        Ok::<(), EncodeError>(())
    })?;
    let mut scratch = Vec::new();
    for (name, dims, files, element) in [
        ("npz", [12_107, 12_107], 4, Element::Uint8),
        ("npz", [12_107, 3_026], 4, Element::Float32),
        ("npz", [1_681, 1_681], 200, Element::Uint8),
        ("npy", [12_107, 12_107], 4, Element::Uint8),
        ("npy", [12_107, 3_026], 4, Element::Float32),
        ("npy", [1_681, 1_681], 200, Element::Uint8),
        ("jpeg", [12_107, 12_107], 4, Element::Uint8),
        ("jpeg", [568, 568], 2_000, Element::Uint8),
        ("jpeg", [338, 338], 5_000, Element::Uint8),
        ("png", [12_107, 12_107], 4, Element::Uint8),
        ("png", [568, 568], 2_000, Element::Uint8),
        ("png", [338, 338], 5_000, Element::Uint8),
        ("csv", [3_000, 3_000], 10, Element::Uint8),
        ("csv", [3_000, 3_000], 4, Element::Float32),
        ("csv", [3_000, 1_000], 4, Element::Uint64),
    ] {
        let shape = FileShape { dims: &dims, element, samples: 1 };
        let Some(format) = format::plain(name) else { continue };
        let bytes = format.size(&shape)?.most();
        report(&format!("{name} of {bytes} bytes, {}", element.name()), bytes * files, || {
            (0..files).try_for_each(|file| {
                format.encode(&shape, &content, file, &mut scratch, &mut |piece| {
                    black_box(piece);
                    Ok(())
                })
            })
        })?;
    }
    for (name, bytes) in [("jpeg", 112 << 10), ("jpeg", 139 << 20), ("npz", 112 << 10), ("npz", 139 << 20)] {
        let Some(format) = format::plain(name) else { continue };
        report_comparing(&*format, bytes)?;
    }
    for (name, bytes) in [("jpeg", 112 << 10), ("jpeg", 2 << 20), ("png", 112 << 10), ("png", 2 << 20)] {
        let Some(format) = format::plain(name) else { continue };
        report_decoding(&*format, bytes)?;
    }
    Ok(())
}

/// Bytes of files, not of pixels: the rate at which a reader must deliver to keep one core busy.
fn report_decoding(format: &dyn Format, bytes: u64) -> Result<(), Box<dyn Error>> {
    let shape = FileShape { dims: &[bytes], element: Element::Uint8, samples: 1 };
    let (mut file, mut out) = (Vec::new(), Vec::new());
    format.encode(&shape, &Content::new(1), 0, &mut Vec::new(), &mut |piece| {
        file.extend_from_slice(piece);
        Ok(())
    })?;
    let files = (32 << 20) / bytes;
    report(&format!("{} of {bytes} bytes, decoded", format.name()), bytes * files, || {
        (0..files).try_for_each(|_| format.decode(black_box(&file), &mut out))
    })
}

/// Time to compare 512 bytes in the middle of a file, as a run does for every MiB.
fn report_comparing(format: &dyn Format, bytes: u64) -> Result<(), Box<dyn Error>> {
    const TIMES: u64 = 100_000;
    let shape = FileShape { dims: &[bytes], element: Element::Uint8, samples: 1 };
    let (mut file, content) = (Vec::new(), Content::new(1));
    format.encode(&shape, &content, 0, &mut Vec::new(), &mut |piece| {
        file.extend_from_slice(piece);
        Ok(())
    })?;
    let ranges = [Extent { offset: bytes / 1024 * 512, len: 512 }];
    let parts = FileParts { ranges: &ranges, bytes: &file[ranges[0].offset as usize..][..512] };
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..TIMES {
            let seen = format.compare(&shape, &content, 0, black_box(parts), 4096)?;
            assert_eq!(black_box(seen).bytes, 512);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    let title = format!("{} of {bytes} bytes, 512 compared", format.name());
    println!("{title:44} {:6.0} ns", best / TIMES as f64 * 1e9);
    Ok(())
}

fn report<E: Error + 'static>(
    what: &str,
    bytes: u64,
    mut run: impl FnMut() -> Result<(), E>,
) -> Result<(), Box<dyn Error>> {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:44} {:6.2} GB/s", bytes as f64 / best / 1e9);
    Ok(())
}
