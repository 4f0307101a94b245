//! Results as documents for readers: values in, bytes out.
//!
//! **In:** figures, and the documents of a result. **Out:** SVG. **Side effects:** none: no files, no clock, no
//! environment. The front end reads and writes files and decides where they go.
//!
//! # Modules
//!
//! - [`plot`]: bar plots as SVG.

pub mod plot;

/// A suffix for the names of simulated backends and the titles of tables with simulated figures.
pub fn simulated(is_simulated: bool) -> &'static str {
    if is_simulated { " (simulated)" } else { "" }
}
