//! Results as documents for readers: values in, bytes out.
//!
//! **In:** figures, and the documents of a result. **Out:** HTML and SVG. **Side effects:** none: no files, no clock, no
//! environment. The front end reads and writes files and decides where they go.
//!
//! # Modules
//!
//! - [`html`]: results as pages.
//! - [`plot`]: plots as SVG.

pub mod html;
pub mod plot;

/// A suffix for the names of simulated backends and the titles of tables with simulated figures.
pub fn simulated(is_simulated: bool) -> &'static str {
    if is_simulated { " (simulated)" } else { "" }
}
