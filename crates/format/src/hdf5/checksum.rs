//! The checksum of HDF5's metadata: Bob Jenkins' lookup3 (`hashlittle`) with a seed of zero, as the file format
//! specification prescribes for every structure that ends in one.

pub(super) fn lookup3(bytes: &[u8]) -> u32 {
    // The length is mixed in modulo 2^32, as the original's `uint32_t` does.
    let start = 0xDEAD_BEEF_u32.wrapping_add(bytes.len() as u32);
    let mut state = [start; 3];
    let mut rest = bytes;
    while rest.len() > 12 {
        add(&mut state, &rest[..12]);
        mix(&mut state);
        rest = &rest[12..];
    }
    if !rest.is_empty() {
        add(&mut state, rest);
        finish(&mut state);
    }
    state[2]
}

/// Adds up to twelve bytes; missing ones count as zero.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    let mut words = [0; 12];
    words[..bytes.len()].copy_from_slice(bytes);
    for (sum, word) in state.iter_mut().zip(words.as_chunks::<4>().0) {
        *sum = sum.wrapping_add(u32::from_le_bytes(*word));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: &mut u32, z: &mut u32, rotation| {
        *x = x.wrapping_sub(*z) ^ z.rotate_left(rotation);
        *z = z.wrapping_add(*y);
    };
    step(a, b, c, 4);
    step(b, c, a, 6);
    step(c, a, b, 8);
    step(a, b, c, 16);
    step(b, c, a, 19);
    step(c, a, b, 4);
}

fn finish([a, b, c]: &mut [u32; 3]) {
    let step = |x: &mut u32, y: u32, rotation| *x = (*x ^ y).wrapping_sub(y.rotate_left(rotation));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_equal_the_published_ones() {
        // The driver of lookup3.c prints these for the empty key and for its example sentence, seed 0.
        assert_eq!(lookup3(b""), 0xDEAD_BEEF);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
