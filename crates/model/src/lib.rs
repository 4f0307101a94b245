//! The three documents (spec, plan, ledger) and the pure functions between them. This crate uses no file, clock, thread
//! or environment variable.

pub mod catalog;
pub mod checkpoint;
pub mod digest;
pub mod extent;
pub mod files;
pub mod histogram;
pub mod ledger;
pub mod location;
pub mod manifest;
pub mod metrics;
pub mod names;
pub mod order;
pub mod plan;
pub mod secret;
pub mod shape;
pub mod sizes;
pub mod spec;
pub mod statistics;
pub mod study;
pub mod timeline;
pub mod times;
pub mod units;
pub mod verdict;
pub mod warning;
