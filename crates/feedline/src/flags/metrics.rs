//! The flags for live figures: where they are served and written, and the live view on a terminal.

use std::path::PathBuf;

use clap::Args;
use model::units::{Nanos, SpanError};

/// Where live figures go.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct MetricsFlags {
    /// Serve live figures for Prometheus at this address, such as 127.0.0.1:9184; see 'feedline docs live'
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<String>,
    /// Write them to this file every 5 s and at the end, for the text-file collector of a node exporter; the name must
    /// end in .prom
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Serve the final figures for this long after the end, such as 30s, so that the last scrape gets them
    #[arg(long, value_name = "SPAN", requires = "metrics", value_parser = span)]
    pub metrics_linger: Option<Nanos>,
}

fn span(text: &str) -> Result<Nanos, SpanError> {
    text.parse()
}

/// The flags with the live view.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LiveFlags {
    /// Show several lines of progress on the terminal: each node, the slowest rank, checkpoints, errors, retries
    #[arg(long)]
    pub live: bool,
    #[command(flatten)]
    pub metrics: MetricsFlags,
}
