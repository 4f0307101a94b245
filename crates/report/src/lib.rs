//! Results as documents for readers: values in, bytes out.
//!
//! A result is a few JSON documents and a ledger. This crate turns them into what people and other programs read. It
//! does not measure, judge or decide: verdicts and figures come from `model`, or from the documents themselves, and a
//! figure that is missing is shown as missing.
//!
//! **In:** figures, and the documents of a result. **Out:** HTML and SVG. **Side effects:** none: no files, no clock,
//! no environment. The front end reads and writes files and decides where they go.
//!
//! # Modules
//!
//! - [`html`]: results as pages, one file each, which need no network.
//! - [`plot`]: plots as SVG, for pages and for print.
//!
//! # Invariants
//!
//! - Text from a result is escaped in one place for each format, so a name with markup in it is text.
//! - A figure on a page says where in its document it is from; tests compare the two.
//! - The size of a page does not grow with ranks times epochs: ranks, epochs and intervals are grouped, and a group
//!   shows its slowest member or its sum.

pub mod html;
pub mod plot;

/// A suffix for the names of simulated backends and the titles of tables with simulated figures.
pub fn simulated(is_simulated: bool) -> &'static str {
    if is_simulated { " (simulated)" } else { "" }
}
