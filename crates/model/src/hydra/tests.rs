//! Tests of the grammar, of composition, of interpolations and of the YAML text. The differential tests in the
//! `feedline` crate compare whole command lines with hydra-core.
