//! The front end that replaces DLIO: called as `dlio_benchmark`, feedline takes DLIO's command lines and writes DLIO's
//! result folders. It translates only: Hydra's part turns arguments and configuration files into jobs, a job becomes a
//! `session::Ask`, and the result becomes the files that DLIO's users and MLPerf's checkers read.

#![expect(dead_code, reason = "the parts that use it follow")]

pub(crate) mod environment;
pub(crate) mod hydra;
pub(crate) mod job;
pub(crate) mod leaf;
pub(crate) mod postprocessor;
pub(crate) mod query;
