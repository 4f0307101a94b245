//! The text of a csv file as a function of (seed, file, index of the value). The width of a value depends only on
//! its index, so sizes are arithmetic although numbers have different lengths. Its digits depend on the content.
//!
//! Of 256 consecutive uint8 values 10 have one digit, 90 have two and 156 three, as 256 random bytes have on
//! average: 3.57 bytes per value with its comma. The widths are scattered. All values of any other type have the
//! same length:
//!
//! | type | values |
//! |---|---|
//! | bool | 0 or 1 |
//! | int8 | 10 to 99 |
//! | int16, uint16 | 10000 to 32767, 10000 to 65535 |
//! | int32, uint32 | 1000000000 to 2147483647, 1000000000 to 4294967295 |
//! | int64, uint64 | 19 digits up to 9223372036854775807, 20 digits up to 18446744073709551615 |
//! | float16, float32, float64 | below 1, with 4, 7 and 16 digits after the point |

use std::io;

use model::shape::Element;

use crate::{Content, Pieces};

/// Number of values after which the widths repeat.
const ROUND: usize = 256;
/// Bytes of a round of uint8 values: 658 digits, and a comma after each value.
const ROUND_BYTES: u64 = 10 + 2 * 90 + 3 * 156 + ROUND as u64;
/// Rounds that are written at once; their text is still in the first-level cache when it is copied.
const ROUNDS: usize = 16;
/// Values of other types that are written at once.
const BATCH: usize = 512;
/// The longest value and its comma.
const LONGEST: usize = 21;
/// Space for what is written at once; the last value's four bytes may extend beyond it.
const ROOM: usize = ROUNDS * ROUND_BYTES as usize + 4;

/// A position in a round.
#[derive(Clone, Copy)]
struct RoundSlot {
    /// Offset of the value in the round's text.
    at: u16,
    /// The smallest value of that width, and the number of such values.
    least: u16,
    span: u16,
}

const SLOTS: [RoundSlot; ROUND] = slots();
/// Each uint8 value, followed by a comma.
const WORDS: [[u8; 4]; ROUND] = words();
/// Each number with two digits.
const PAIRS: [[u8; 2]; 100] = pairs();

/// The widths of a round, permuted: multiplication by an odd factor permutes the positions.
const fn slots() -> [RoundSlot; ROUND] {
    let mut slots = [RoundSlot { at: 0, least: 0, span: 0 }; ROUND];
    let (mut index, mut at) = (0, 0);
    while index < ROUND {
        let (digits, least, span) = match (index * 167 + 113) % ROUND {
            0..10 => (1, 0, 10),
            10..100 => (2, 10, 90),
            _ => (3, 100, 156),
        };
        slots[index] = RoundSlot { at, least, span };
        at += digits + 1;
        index += 1;
    }
    slots
}

const fn words() -> [[u8; 4]; ROUND] {
    let mut words = [[b','; 4]; ROUND];
    let mut value = 0;
    while value < ROUND {
        let (ones, tens, hundreds) =
            (b'0' + (value % 10) as u8, b'0' + (value / 10 % 10) as u8, b'0' + (value / 100) as u8);
        words[value] = match value {
            0..10 => [ones, b',', b',', b','],
            10..100 => [tens, ones, b',', b','],
            _ => [hundreds, tens, ones, b','],
        };
        value += 1;
    }
    words
}

const fn pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
}

/// How values of a type are written.
#[derive(Clone, Copy)]
enum ValueFormat {
    /// With different widths: uint8.
    Scattered,
    /// This many numbers from the first on, all with that many digits; `fraction`: after "0.".
    Even { least: u64, span: u64, digits: usize, fraction: bool },
}

fn law(element: Element) -> ValueFormat {
    let even = |least: u64, most: u64| {
        let digits = most.checked_ilog10().map_or(1, |log| log as usize + 1);
        ValueFormat::Even { least, span: most - least + 1, digits, fraction: false }
    };
    let fraction = |digits| ValueFormat::Even {
        least: 0,
        span: 10_u64.pow(digits),
        digits: digits as usize,
        fraction: true,
    };
    match element {
        Element::Uint8 => ValueFormat::Scattered,
        Element::Bool => even(0, 1),
        Element::Int8 => even(10, 99),
        Element::Int16 => even(10_000, 32_767),
        Element::Uint16 => even(10_000, 65_535),
        Element::Int32 => even(1_000_000_000, 2_147_483_647),
        Element::Uint32 => even(1_000_000_000, 4_294_967_295),
        Element::Int64 => even(1_000_000_000_000_000_000, i64::MAX as u64),
        Element::Uint64 => even(10_000_000_000_000_000_000, u64::MAX),
        Element::Float16 => fraction(4),
        Element::Float32 => fraction(7),
        Element::Float64 => fraction(16),
    }
}

/// Bytes of the first `values` values, each with its comma or line end.
pub(super) fn bytes(element: Element, values: u64) -> Option<u64> {
    match law(element) {
        ValueFormat::Scattered => {
            let (rounds, rest) = (values / ROUND as u64, (values % ROUND as u64) as usize);
            rounds.checked_mul(ROUND_BYTES)?.checked_add(u64::from(SLOTS[rest].at))
        }
        ValueFormat::Even { digits, fraction, .. } => values.checked_mul(width(digits, fraction) as u64),
    }
}

fn width(digits: usize, fraction: bool) -> usize {
    digits + 1 + if fraction { 2 } else { 0 }
}

/// The text of a file.
pub(super) struct Text<'a> {
    pub(super) element: Element,
    pub(super) content: &'a Content,
    pub(super) file: u64,
    /// Values in a line, and in the file.
    pub(super) line: u64,
    pub(super) values: u64,
}

/// Buffers for generating values: their random bytes, and their text.
struct ValueBuffers {
    draws: [u8; 2 * ROUND * ROUNDS],
    text: [u8; ROOM],
}

impl ValueBuffers {
    fn new() -> ValueBuffers {
        ValueBuffers { draws: [0; 2 * ROUND * ROUNDS], text: [0; ROOM] }
    }
}

impl Text<'_> {
    /// Writes the text.
    pub(super) fn write(&self, out: &mut Pieces<'_, '_>) -> io::Result<()> {
        let (mut desk, at_once) = (ValueBuffers::new(), self.at_once());
        let (whole, each) = (self.values / at_once, bytes(self.element, at_once).unwrap_or(0));
        out.repeat(whole, each, |out, number| out.bytes(self.make(number * at_once, &mut desk)))?;
        match self.values.is_multiple_of(at_once) {
            true => Ok(()),
            false => out.bytes(self.make(whole * at_once, &mut desk)),
        }
    }

    /// Passes the text to `part` from first to last, always split at the same positions.
    pub(super) fn each(&self, mut part: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut desk = ValueBuffers::new();
        let mut first = 0;
        while first < self.values {
            part(self.make(first, &mut desk))?;
            first += self.at_once();
        }
        Ok(())
    }

    /// Number of values that are generated at once. Their text always has the same length.
    fn at_once(&self) -> u64 {
        if matches!(law(self.element), ValueFormat::Scattered) {
            (ROUND * ROUNDS) as u64
        } else {
            BATCH as u64
        }
    }

    /// The text of the values from `first` on, as many as are generated at once.
    fn make<'d>(&self, first: u64, desk: &'d mut ValueBuffers) -> &'d [u8] {
        let ValueBuffers { draws, text } = desk;
        match law(self.element) {
            ValueFormat::Scattered => {
                self.content.fill(self.file, 2 * first, draws);
                scattered(draws, text);
            }
            ValueFormat::Even { least, span, digits, fraction } => {
                let draws = &mut draws[..8 * BATCH];
                self.content.fill(self.file, 8 * first, draws);
                even(draws, least, span, digits, fraction, text);
            }
        }
        let len = self.end_lines(first, self.at_once().min(self.values - first), text);
        &text[..len]
    }

    /// Inserts line ends among `count` values from `first` on, and returns the length of their text.
    fn end_lines(&self, first: u64, count: u64, room: &mut [u8]) -> usize {
        // The sizes do not overflow, since the file's does not.
        let at = |value| bytes(self.element, value).unwrap_or(0);
        let start = at(first);
        let mut end = (first / self.line + 1) * self.line;
        while end <= first + count {
            room[(at(end) - start) as usize - 1] = b'\n';
            end = end.saturating_add(self.line);
        }
        (at(first + count) - start) as usize
    }
}

/// Writes whole rounds of uint8 values, from two bytes of `draws` each.
fn scattered(draws: &[u8], room: &mut [u8; ROOM]) {
    let rounds = draws.as_chunks::<{ 2 * ROUND }>().0;
    for (index, draws) in rounds.iter().enumerate() {
        // The last value of a round may extend into the next, which is written after it.
        let text = &mut room[index * ROUND_BYTES as usize..];
        let Some(text) = text.first_chunk_mut::<{ ROUND_BYTES as usize + 4 }>() else { return };
        for (slot, draw) in SLOTS.iter().zip(draws.as_chunks::<2>().0) {
            let draw = (u32::from(u16::from_le_bytes(*draw)) * u32::from(slot.span)) >> 16;
            let word = WORDS[usize::from(slot.least as u8 + draw as u8)];
            text[usize::from(slot.at)..usize::from(slot.at) + 4].copy_from_slice(&word);
        }
    }
}

/// Writes values of equal width, from eight bytes of `draws` each.
fn even(draws: &[u8], least: u64, span: u64, digits: usize, fraction: bool, room: &mut [u8; ROOM]) {
    const { assert!(BATCH * LONGEST <= ROOM) };
    let texts = room.chunks_exact_mut(width(digits, fraction));
    for (draw, text) in draws.as_chunks::<8>().0.iter().zip(texts) {
        let value = least + ((u128::from(u64::from_le_bytes(*draw)) * u128::from(span)) >> 64) as u64;
        let number = match fraction {
            true => {
                text[..2].copy_from_slice(b"0.");
                &mut text[2..2 + digits]
            }
            false => &mut text[..digits],
        };
        write_digits(value, number);
        text[width(digits, fraction) - 1] = b',';
    }
}

fn write_digits(value: u64, out: &mut [u8]) {
    let mut rest = value;
    let (first, pairs) = out.as_rchunks_mut::<2>();
    for pair in pairs.iter_mut().rev() {
        *pair = PAIRS[(rest % 100) as usize];
        rest /= 100;
    }
    if let Some(first) = first.first_mut() {
        *first = b'0' + (rest % 10) as u8;
    }
}
