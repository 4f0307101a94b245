//! The content of one file of a data set: how many samples, of which shape and element type. Formats decide how these
//! are laid out in bytes.

use serde::{Deserialize, Serialize};

/// A NumPy element type, by NumPy's own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
}

impl Element {
    /// Every element type, in the order in which help lists them.
    pub const ALL: [Element; 12] = [
        Element::Bool,
        Element::Int8,
        Element::Int16,
        Element::Int32,
        Element::Int64,
        Element::Uint8,
        Element::Uint16,
        Element::Uint32,
        Element::Uint64,
        Element::Float16,
        Element::Float32,
        Element::Float64,
    ];

    /// NumPy's name of the type, as workload files write it.
    pub fn name(self) -> &'static str {
        match self {
            Element::Bool => "bool",
            Element::Int8 => "int8",
            Element::Int16 => "int16",
            Element::Int32 => "int32",
            Element::Int64 => "int64",
            Element::Uint8 => "uint8",
            Element::Uint16 => "uint16",
            Element::Uint32 => "uint32",
            Element::Uint64 => "uint64",
            Element::Float16 => "float16",
            Element::Float32 => "float32",
            Element::Float64 => "float64",
        }
    }

    /// The type with this name.
    pub fn named(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|element| element.name() == name)
    }

    /// The integer type with this many bits.
    pub fn integer(bits: u64, signed: bool) -> Option<Element> {
        Some(match (bits, signed) {
            (8, true) => Element::Int8,
            (16, true) => Element::Int16,
            (32, true) => Element::Int32,
            (64, true) => Element::Int64,
            (8, false) => Element::Uint8,
            (16, false) => Element::Uint16,
            (32, false) => Element::Uint32,
            (64, false) => Element::Uint64,
            _ => return None,
        })
    }

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Element::Bool | Element::Int8 | Element::Uint8 => 1,
            Element::Int16 | Element::Uint16 | Element::Float16 => 2,
            Element::Int32 | Element::Uint32 | Element::Float32 => 4,
            Element::Int64 | Element::Uint64 | Element::Float64 => 8,
        }
    }
}

/// The shape of one file: all its samples share dimensions and element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileShape<'a> {
    /// Dimensions of one sample, e.g. `[568, 568]`.
    pub dims: &'a [u64],
    pub element: Element,
    /// Samples in the file, at least one.
    pub samples: u64,
}

impl FileShape<'_> {
    /// Bytes of one sample's array, without a container. Saturates on overflow.
    pub fn sample_bytes(&self) -> u64 {
        self.dims.iter().fold(self.element.size(), |bytes, dim| bytes.saturating_mul(*dim))
    }

    /// Bytes of all samples of the file, without a container.
    pub fn payload_bytes(&self) -> u64 {
        self.sample_bytes().saturating_mul(self.samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_found_by_their_bits() {
        for element in Element::ALL {
            let name = element.name();
            let found = Element::integer(8 * element.size(), name.starts_with("int"));
            assert_eq!(found == Some(element), name.contains("int"), "{name}");
        }
        assert_eq!(Element::integer(24, true), None);
    }
}
