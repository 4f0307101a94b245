//! A Gantt chart: what happened when, one row for each item, one colour and pattern for each kind.

use model::units::Nanos;

use super::axis::{AxisRange, AxisScale, ValueUnit};
use super::svg::{Area, LETTER, LINE, PlotMedium, Svg, legend_places, shortened};

/// The data of a chart.
#[derive(Clone, Debug, Default)]
pub struct Gantt {
    pub title: String,
    pub x_label: String,
    /// The names of the kinds.
    pub kinds: Vec<String>,
    pub rows: Vec<GanttRow>,
}

#[derive(Clone, Debug, Default)]
pub struct GanttRow {
    pub name: String,
    pub spans: Vec<GanttSpan>,
}

/// A span, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct GanttSpan {
    pub kind: usize,
    pub from: f64,
    pub to: f64,
}

const WIDTH: f64 = 640.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 22.0;
/// The narrowest span that is drawn, so that a short one is visible.
const NARROWEST: f64 = 1.5;

impl Gantt {
    pub fn svg(&self, medium: PlotMedium) -> String {
        let widest = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).min(28);
        let left = 16.0 + LETTER * widest as f64;
        let first = if medium == PlotMedium::Page { 16.0 } else { 24.0 + 1.3 * LINE };
        let legend = legend_places(&self.kinds, left, left + WIDTH, first);
        let top = legend.last().map_or(first, |(_, y)| y + 16.0);
        let bottom = top + ROW * self.rows.len() as f64;
        let mut svg = Svg::new(medium, left + WIDTH + RIGHT, bottom + 3.0 * LINE, &self.title);
        svg.title(left, &self.title);
        svg.legend(&self.kinds, &legend);
        let ends = self.rows.iter().flat_map(|row| &row.spans).flat_map(|span| [span.from, span.to]);
        let axis = AxisRange::of(ends, AxisScale::Linear, ValueUnit::Duration, true);
        for (value, label) in axis.ticks() {
            let x = left + WIDTH * axis.place(value);
            svg.grid_line(&format!("M{x:.1} {top:.1}V{bottom:.1}"));
            svg.label(x, bottom + 18.0, "middle", "", &label);
        }
        for (number, row) in self.rows.iter().enumerate() {
            let y = top + ROW * number as f64;
            svg.label(left - 6.0, y + 15.0, "end", "", &shortened(&row.name, 28));
            for span in &row.spans {
                self.span(&mut svg, &axis, (left, y), row, *span);
            }
        }
        svg.ink_line(&format!("M{left:.1} {top:.1}V{bottom:.1}h{WIDTH}"));
        svg.label(left + WIDTH / 2.0, bottom + 2.2 * LINE, "middle", "font-size=\"13\"", &self.x_label);
        svg.finish()
    }

    /// Spans of one row overlap, so each kind has its own height within the row.
    fn span(&self, svg: &mut Svg, axis: &AxisRange, (left, y): (f64, f64), row: &GanttRow, span: GanttSpan) {
        let (from, to) = (WIDTH * axis.place(span.from), WIDTH * axis.place(span.to));
        let inset = 2.0 + 3.0 * span.kind as f64;
        let height = (ROW - 2.0 * inset).max(4.0);
        let area = Area { x: left + from, y: y + inset, width: (to - from).max(NARROWEST), height };
        let took = Nanos::from_seconds(span.to - span.from);
        let kind = self.kinds.get(span.kind).map_or("", String::as_str);
        svg.area(area, span.kind, "class=\"span\"", &format!("{}: {kind} {took}", row.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_drawn_even_a_short_one() {
        let span = |kind, from, to| GanttSpan { kind, from, to };
        let chart = Gantt {
            title: "checkpoints".to_owned(),
            x_label: "time".to_owned(),
            kinds: ["blocked", "drained"].map(str::to_owned).into(),
            rows: vec![
                GanttRow { name: "one".to_owned(), spans: vec![span(0, 1.0, 1.000_001), span(1, 1.0, 9.0)] },
                GanttRow { name: "two".to_owned(), spans: vec![span(0, 5.0, 6.0)] },
            ],
        };
        let svg = chart.svg(PlotMedium::Print);
        assert_eq!(svg.matches("class=\"span\"").count(), 3);
        assert!(svg.contains("width=\"1.5\"") && svg.contains("one: drained 8.00 s"), "{svg}");
        assert!(Gantt::default().svg(PlotMedium::Page).ends_with("</svg>\n"));
    }
}
