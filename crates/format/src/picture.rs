//! Decodes pictures to pixels like Pillow: one byte per pixel for greyscale; red, green and blue for colour.
//! Damage that libjpeg only warns about is an error here, because a run must not continue with half a picture. It
//! must not know how feedline generates pictures.

use std::io::Cursor;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use crate::{Damage, inflate};

/// The longest side of a JPEG, which is a number of 16 bits.
const JPEG_SIDE: usize = 65_535;
/// The end marker of a JPEG.
const JPEG_END: [u8; 2] = [0xFF, 0xD9];

/// Replaces `out` by the pixels of a JPEG file.
pub(crate) fn decode_jpeg(format: &'static str, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Damage> {
    located(format, bytes, out, |file, out| {
        let options = DecoderOptions::new_fast()
            .set_max_width(JPEG_SIDE)
            .set_max_height(JPEG_SIDE)
            .set_strict_mode(true);
        let mut decoder = JpegDecoder::new_with_options(&mut *file, options);
        decoder.decode_headers().map_err(|error| error.to_string())?;
        if decoder.input_colorspace() == Some(ColorSpace::Luma) {
            decoder.set_options(options.jpeg_set_out_colorspace(ColorSpace::Luma));
        }
        make_room(decoder.output_buffer_size(), bytes, out)?;
        decoder.decode_into(out).map_err(|error| error.to_string())?;
        drop(decoder);
        // The decoder accepts an incomplete last row.
        let seen = bytes.get(..file.position() as usize).unwrap_or_default();
        if seen.ends_with(&JPEG_END) { Ok(()) } else { Err("no end behind the pixels".to_owned()) }
    })
}

/// Replaces `out` by the pixels of a PNG file, packed as the file has them.
pub(crate) fn decode_png(format: &'static str, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Damage> {
    located(format, bytes, out, |file, out| {
        let mut decoder = png::Decoder::new(file);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        let mut picture = decoder.read_info().map_err(|error| error.to_string())?;
        make_room(picture.output_buffer_size(), bytes, out)?;
        picture.next_frame(out).map_err(|error| error.to_string())?;
        picture.finish().map_err(|error| error.to_string())
    })
}

/// Reports at which byte of a file a decoder failed.
fn located(
    format: &'static str,
    bytes: &[u8],
    out: &mut Vec<u8>,
    decode: impl FnOnce(&mut Cursor<&[u8]>, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(), Damage> {
    let mut file = Cursor::new(bytes);
    decode(&mut file, out).map_err(|what| {
        // A decoder may have skipped past the end, and some of its messages end with a newline.
        Damage::new(format, file.position().min(bytes.len() as u64), what.trim_end())
    })
}

/// Makes space for the pixels, unless the file is too short for its claimed size. Old contents are overwritten.
fn make_room(pixels: Option<usize>, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    match pixels {
        Some(len) if len <= inflate::most(bytes.len()) => {
            out.resize(len, 0);
            Ok(())
        }
        _ => Err(format!("{} bytes are too few for a picture of this size", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, fixture, plain};
    use std::f64::consts::{FRAC_1_SQRT_2, PI};

    fn encoded(format: &str, bytes: u64) -> Vec<u8> {
        fixture::encoded(&*plain(format).unwrap(), &fixture::picture(&[bytes]))
    }

    /// The length in the two bytes at `at`.
    fn number(bytes: &[u8], at: usize) -> usize {
        usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1])
    }

    /// Width, height and scan of one of our own pictures.
    fn jpeg_parts(file: &[u8]) -> (usize, usize, &[u8]) {
        let (mut at, mut sides) = (2, (0, 0));
        while file[at + 1] != 0xDA {
            if file[at + 1] == 0xC0 {
                sides = (number(file, at + 7), number(file, at + 5));
            }
            at += 2 + number(file, at + 2);
        }
        (sides.0, sides.1, &file[at + 10..file.len() - 2])
    }

    /// The pixels of a block, literally as in T.81 (A.3.3, F.2.2.1): a byte of DC code, which means "no
    /// difference", then a byte of code and one of magnitude for each coefficient, quantised by 1.
    fn block(scan: &[u8]) -> [[f64; 8]; 8] {
        let mut coefficients = [[0.0; 8]; 8];
        let mut zigzag: Vec<(usize, usize)> = (0..64).map(|place| (place / 8, place % 8)).collect();
        zigzag.sort_by_key(|&(v, u)| (v + u, if (v + u) % 2 == 0 { u } else { v }));
        for (&(v, u), pair) in zigzag[1..].iter().zip(scan[1..].chunks(2)) {
            let bits = f64::from(pair[1]);
            coefficients[v][u] = if bits < 128.0 { bits - 255.0 } else { bits };
        }
        let scale = |place: usize| if place == 0 { FRAC_1_SQRT_2 } else { 1.0 };
        let wave = |x: usize, u: usize| scale(u) * ((2 * x + 1) as f64 * u as f64 * PI / 16.0).cos();
        let mut pixels = [[0.0; 8]; 8];
        for (y, row) in pixels.iter_mut().enumerate() {
            for (x, pixel) in row.iter_mut().enumerate() {
                let terms = (0..64).map(|place| (place / 8, place % 8));
                let sum: f64 = terms.map(|(v, u)| coefficients[v][u] * wave(x, u) * wave(y, v)).sum();
                *pixel = (sum / 4.0 + 128.0).clamp(0.0, 255.0);
            }
        }
        pixels
    }

    #[test]
    fn the_pixels_of_a_jpeg_are_those_of_the_standard() {
        let mut out = vec![9; 100];
        for bytes in [833, 5000, 40_000] {
            let file = encoded("jpeg", bytes);
            let (wide, high, scan) = jpeg_parts(&file);
            decode_jpeg("jpeg", &file, &mut out).unwrap();
            assert_eq!(out.len(), wide * high);
            for (number, scan) in scan.chunks(127).enumerate() {
                let (left, top) = (number % (wide / 8) * 8, number / (wide / 8) * 8);
                for (y, row) in block(scan).iter().enumerate() {
                    for (x, wanted) in row.iter().enumerate() {
                        let got = f64::from(out[(top + y) * wide + left + x]);
                        assert!((got - wanted).abs() <= 3.0, "block {number}, {x} {y}: {got}, not {wanted}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_pixels_of_a_png_are_the_files_content() {
        let mut out = Vec::new();
        for bytes in [200, 5000, 200_000] {
            let file = encoded("png", bytes);
            decode_png("png", &file, &mut out).unwrap();
            let [wide, high] = [16, 20].map(|at| number(&file, at) << 16 | number(&file, at + 2));
            assert_eq!(out.len(), wide * high);
            // The first row follows the filler, the headers of chunk, stream and block, and its filter
            // byte.
            let filler = number(&file, 33) << 16 | number(&file, 35);
            let start = 33 + 12 + filler + 8 + 2 + 5 + 1;
            let mut row = vec![0; wide];
            Content::new(1).fill(3, start as u64, &mut row);
            assert_eq!(out[..wide], row);
            let mut last = vec![0; wide];
            let end = file.len() - 12 - 4 - 4;
            Content::new(1).fill(3, (end - wide) as u64, &mut last);
            assert_eq!(out[out.len() - wide..], last);
        }
    }

    #[test]
    fn damage_is_reported_with_its_offset() {
        for (format, decode) in [("jpeg", decode_jpeg as fn(_, &[u8], &mut _) -> _), ("png", decode_png)] {
            let good = encoded(format, 40_000);
            for len in (0..3000).chain((3000..40_000).step_by(331)).chain(39_900..40_000) {
                let damage: Damage = decode("it", &good[..len], &mut Vec::new()).unwrap_err();
                assert!(
                    damage.offset <= len as u64 && !damage.what.contains('\n'),
                    "{format} {len}: {damage}"
                );
            }
            let damage = decode("it", b"neither the one nor the other", &mut Vec::new()).unwrap_err();
            assert!(damage.offset <= 8, "{damage}");
        }
        let mut png = encoded("png", 40_000);
        png[20_000] ^= 4;
        let damage = decode_png("png", &png, &mut Vec::new()).unwrap_err();
        assert!(damage.to_string().contains("CRC"), "{damage}");
    }

    #[test]
    fn a_short_file_cannot_claim_a_large_picture() {
        let mut jpeg = encoded("jpeg", 5000);
        let frame = jpeg.windows(4).position(|bytes| bytes == [0xFF, 0xC0, 0, 11]).unwrap();
        jpeg[frame + 5..frame + 9].fill(0xFF);
        let mut png = encoded("png", 5000);
        png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        let sum = crc32fast::hash(&png[12..29]);
        png[29..33].copy_from_slice(&sum.to_be_bytes());
        let mut out = Vec::new();
        for damage in [decode_jpeg("jpeg", &jpeg, &mut out), decode_png("png", &png, &mut out)] {
            assert!(damage.unwrap_err().what.contains("5000 bytes are too few"));
        }
        assert_eq!(out.capacity(), 0);
    }
}
