//! Plots as SVG, for pages and for print: values in, text out. Each kind of plot is one file; `svg` and `axis` have
//! what they share.
//!
//! A plot for print stands alone: it has its title, fixed colours and a white background. On a page, the caption has
//! the title, and the colours follow the page, which may be light or dark. No plot depends on colour alone: bars have
//! patterns, lines have dashes, and the levels of a heat map differ in lightness.

mod axis;
mod bars;
mod gantt;
mod heat;
mod lines;
mod svg;

pub use axis::{AxisScale, ValueUnit};
pub use bars::{Bar, Figure, ReferenceLine};
pub use gantt::{Gantt, GanttRow, GanttSpan};
pub use heat::HeatMap;
pub use lines::{LineAxis, LinePlot, LineSeries, SeriesStyle};
pub(crate) use svg::escaped;
pub use svg::{PlotMedium, patterns};

/// A plot of any kind.
#[derive(Clone, Debug)]
pub enum Plot {
    Bars(Figure),
    Lines(LinePlot),
    Heat(HeatMap),
    Gantt(Gantt),
}

impl Plot {
    pub fn svg(&self, medium: PlotMedium) -> String {
        match self {
            Plot::Bars(plot) => plot.svg(medium),
            Plot::Lines(plot) => plot.svg(medium),
            Plot::Heat(plot) => plot.svg(medium),
            Plot::Gantt(plot) => plot.svg(medium),
        }
    }

    pub fn title(&self) -> &str {
        match self {
            Plot::Bars(plot) => &plot.title,
            Plot::Lines(plot) => &plot.title,
            Plot::Heat(plot) => &plot.title,
            Plot::Gantt(plot) => &plot.title,
        }
    }
}
