//! Names of the types of columns in existing files, for people and for comparison with a workload's. It must not
//! know how they are used.

use super::thrift::{self, ThriftError, ThriftReader};
use model::shape::Element;

/// The logical meaning of a type (LogicalType of parquet.thrift).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logical {
    Integer { bits: i64, signed: bool },
    Other(i64),
}

impl Logical {
    /// A union: a structure with one field.
    pub(super) fn read(reader: &mut ThriftReader<'_>) -> Result<Option<Logical>, ThriftError> {
        let mut found = None;
        reader.structure(|reader, id, kind| match (id, kind) {
            (10, thrift::STRUCT) => {
                found = Some(read_integer(reader)?);
                Ok(true)
            }
            _ => {
                found = Some(Logical::Other(id));
                Ok(false)
            }
        })?;
        Ok(found)
    }
}

fn read_integer(reader: &mut ThriftReader<'_>) -> Result<Logical, ThriftError> {
    let (mut bits, mut signed) = (0, true);
    reader.structure(|reader, id, kind| {
        match (id, kind) {
            (1, thrift::I8) => bits = i64::from(reader.i8()?),
            (2, thrift::TRUE) => signed = true,
            (2, thrift::FALSE) => signed = false,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Logical::Integer { bits, signed })
}

/// NumPy's name if NumPy has the type, otherwise parquet's.
pub(super) fn type_name(physical: i64, converted: Option<i64>, logical: Option<Logical>) -> &'static str {
    match (logical, converted) {
        (Some(Logical::Integer { bits, signed }), _) => integer(bits, signed),
        (Some(Logical::Other(number)), _) => annotated(physical, number),
        (None, Some(number)) => converted_name(physical, number),
        (None, None) => physical_name(physical),
    }
}

fn integer(bits: i64, signed: bool) -> &'static str {
    let element = u64::try_from(bits).ok().and_then(|bits| Element::integer(bits, signed));
    element.map_or("integer of odd size", Element::name)
}

fn physical_name(physical: i64) -> &'static str {
    match physical {
        0 => "bool",
        1 => "int32",
        2 => "int64",
        3 => "int96",
        4 => "float32",
        5 => "float64",
        6 => "binary",
        7 => "fixed binary",
        _ => "unknown type",
    }
}

/// Fields of LogicalType.
fn annotated(physical: i64, number: i64) -> &'static str {
    match number {
        1 => "string",
        4 => "enum",
        5 => "decimal",
        6 => "date",
        7 => "time",
        8 => "timestamp",
        11 => "null",
        12 => "json",
        13 => "bson",
        14 => "uuid",
        15 => "float16",
        _ => physical_name(physical),
    }
}

/// ConvertedType, which preceded logical types.
fn converted_name(physical: i64, number: i64) -> &'static str {
    match number {
        0 => "string",
        4 => "enum",
        5 => "decimal",
        6 => "date",
        7 | 8 => "time",
        9 | 10 => "timestamp",
        11..=14 => integer(8 << (number - 11), false),
        15..=18 => integer(8 << (number - 15), true),
        19 => "json",
        20 => "bson",
        21 => "interval",
        _ => physical_name(physical),
    }
}
