//! A format's size arithmetic in the form that a plan takes it: the model knows no formats, only what it may ask them.

use model::plan::Measure;
use model::shape::FileShape;

use crate::Format;

#[derive(Clone, Copy, Debug)]
pub struct Arithmetic(pub &'static dyn Format);

impl Measure for Arithmetic {
    fn file_bytes(&self, shape: &FileShape<'_>) -> Result<u64, String> {
        self.0.file_bytes(shape).map_err(|error| error.to_string())
    }
}
