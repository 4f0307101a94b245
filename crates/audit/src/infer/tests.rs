//! Tests of the inference.
