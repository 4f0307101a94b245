//! A plot of lines, steps or points over an x axis, with borders between parts of the x axis and a reference line.

use std::fmt::Write;

use super::axis::{AxisRange, AxisScale, ValueUnit};
use super::bars::ReferenceLine;
use super::svg::{LETTER, LINE, PlotMedium, Svg, dashes, legend_places};

/// The data of a plot.
#[derive(Clone, Debug, Default)]
pub struct LinePlot {
    pub title: String,
    pub x: LineAxis,
    pub y: LineAxis,
    pub series: Vec<LineSeries>,
    /// Borders between parts of the x axis, such as epochs, with the name of the part that begins there.
    pub borders: Vec<(f64, String)>,
    /// A value to compare all others with.
    pub line: Option<ReferenceLine>,
}

#[derive(Clone, Debug, Default)]
pub struct LineAxis {
    /// What is shown, with its unit.
    pub label: String,
    pub scale: AxisScale,
    pub unit: ValueUnit,
    /// The axis starts and ends with the values instead of round numbers.
    pub tight: bool,
}

#[derive(Clone, Debug, Default)]
pub struct LineSeries {
    pub name: String,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
    /// The interval of each point; empty without intervals.
    pub whiskers: Vec<Option<(f64, f64)>>,
    pub style: SeriesStyle,
}

/// How the points of a series are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesStyle {
    #[default]
    Line,
    /// A value holds until the next one.
    Steps,
    /// A line with a mark at each point.
    Marked,
    /// Not connected.
    Points,
}

const LEFT: f64 = 92.0;
const RIGHT: f64 = 24.0;
const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 240.0;

/// Positions of values.
struct LineFrame {
    x: AxisRange,
    y: AxisRange,
    top: f64,
}

impl LineFrame {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (LEFT + WIDTH * self.x.place(x), self.bottom() - HEIGHT * self.y.place(y))
    }

    fn bottom(&self) -> f64 {
        self.top + HEIGHT
    }
}

impl LinePlot {
    pub fn svg(&self, medium: PlotMedium) -> String {
        let first = if medium == PlotMedium::Page { 16.0 } else { 24.0 + 1.3 * LINE };
        let names: Vec<String> = self.series.iter().map(|series| series.name.clone()).collect();
        let legend = legend_places(&names, LEFT, LEFT + WIDTH, first);
        let top = legend.last().map_or(first, |(_, y)| y + 22.0);
        let frame = LineFrame { x: self.x_range(), y: self.y_range(), top };
        let mut svg = Svg::new(medium, LEFT + WIDTH + RIGHT, frame.bottom() + 3.0 * LINE, &self.title);
        svg.title(LEFT, &self.title);
        self.axes(&mut svg, &frame);
        self.borders(&mut svg, &frame);
        for (number, series) in self.series.iter().enumerate() {
            draw(&mut svg, &frame, number, series);
        }
        for (number, (x, y)) in legend.iter().enumerate() {
            let colour = svg.medium.series(number);
            let style = format!(
                "stroke=\"{colour}\" stroke-width=\"2.5\" stroke-dasharray=\"{}\" class=\"key\"",
                dashes(number)
            );
            svg.path(&format!("M{:.1} {:.1}h14", x - 2.0, y - 4.0), &style);
            svg.label(x + 18.0, *y, "start", "", &names[number]);
        }
        self.reference(&mut svg, &frame);
        svg.finish()
    }

    fn x_range(&self) -> AxisRange {
        let values = self.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
        AxisRange::of(values, self.x.scale, self.x.unit, self.x.tight)
    }

    fn y_range(&self) -> AxisRange {
        let whiskers = self.series.iter().flat_map(|series| series.whiskers.iter().flatten());
        let whiskers = whiskers.flat_map(|(low, high)| [*low, *high]);
        let values = self.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
        let range = AxisRange::of(values.chain(whiskers), self.y.scale, self.y.unit, self.y.tight);
        range.reaching(self.line.as_ref().map(|line| line.value))
    }

    fn axes(&self, svg: &mut Svg, frame: &LineFrame) {
        let (right, bottom) = (LEFT + WIDTH, frame.bottom());
        for (value, label) in frame.y.ticks() {
            let y = bottom - HEIGHT * frame.y.place(value);
            svg.grid_line(&format!("M{LEFT} {y:.1}H{right:.1}"));
            svg.label(LEFT - 8.0, y + 4.0, "end", "", &label);
        }
        let mut free = f64::NEG_INFINITY;
        for (value, label) in frame.x.ticks() {
            let x = LEFT + WIDTH * frame.x.place(value);
            svg.grid_line(&format!("M{x:.1} {:.1}V{bottom:.1}", frame.top));
            let half = LETTER * label.chars().count() as f64 / 2.0;
            if x - half > free {
                svg.label(x, bottom + 18.0, "middle", "", &label);
                free = x + half + 4.0;
            }
        }
        svg.ink_line(&format!("M{LEFT} {:.1}V{bottom:.1}H{right:.1}", frame.top));
        let middle = LEFT + WIDTH / 2.0;
        svg.label(middle, bottom + 2.2 * LINE, "middle", "font-size=\"13\"", &self.x.label);
        svg.upward(18.0, f64::midpoint(frame.top, bottom), &self.y.label);
    }

    fn borders(&self, svg: &mut Svg, frame: &LineFrame) {
        let (ink, mut free) = (svg.medium.ink(), f64::NEG_INFINITY);
        for (value, name) in &self.borders {
            let x = LEFT + WIDTH * frame.x.place(*value);
            let style =
                format!("class=\"border\" stroke=\"{ink}\" stroke-opacity=\"0.45\" stroke-dasharray=\"2 3\"");
            svg.path(&format!("M{x:.1} {:.1}V{:.1}", frame.top, frame.bottom()), &style);
            // Names that would overlap are left out.
            if x > free {
                svg.label(x + 3.0, frame.top + 10.0, "start", "font-size=\"10\"", name);
                free = x + 6.0 + LETTER * name.chars().count() as f64;
            }
        }
    }

    fn reference(&self, svg: &mut Svg, frame: &LineFrame) {
        let Some(ReferenceLine { value, label }) = &self.line else { return };
        let (right, alert) = (LEFT + WIDTH, svg.medium.alert());
        let y = frame.bottom() - HEIGHT * frame.y.place(*value);
        let style =
            format!("class=\"reference\" stroke=\"{alert}\" stroke-width=\"1.5\" stroke-dasharray=\"7 4\"");
        svg.path(&format!("M{LEFT} {y:.1}H{right:.1}"), &style);
        svg.label(right, y - 5.0, "end", &format!("fill=\"{alert}\""), label);
    }
}

fn draw(svg: &mut Svg, frame: &LineFrame, number: usize, series: &LineSeries) {
    let colour = svg.medium.series(number);
    let line = format!(
        "class=\"series\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-linejoin=\"round\" \
         stroke-dasharray=\"{}\"",
        dashes(number)
    );
    if series.style != SeriesStyle::Points && series.points.len() > 1 {
        svg.path(&track(frame, series), &line);
    }
    for (point, whisker) in series.points.iter().zip(&series.whiskers) {
        if let Some((low, high)) = whisker {
            let ((x, top), (_, foot)) = (frame.at((point.0, *high)), frame.at((point.0, *low)));
            svg.path(
                &format!("M{x:.1} {foot:.1}V{top:.1}M{:.1} {top:.1}h8M{:.1} {foot:.1}h8", x - 4.0, x - 4.0),
                &format!("class=\"whisker\" stroke=\"{colour}\" stroke-width=\"1.2\""),
            );
        }
    }
    let alone = series.points.len() == 1;
    if alone || matches!(series.style, SeriesStyle::Marked | SeriesStyle::Points) {
        let mut marks = String::new();
        for point in &series.points {
            let (x, y) = frame.at(*point);
            let _ = write!(marks, "M{:.1} {y:.1}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0", x - 3.0);
        }
        svg.path(&marks, &format!("class=\"series\" fill=\"{colour}\""));
    }
}

/// The path of a series. A line of many points is written in relative coordinates, which are shorter.
fn track(frame: &LineFrame, series: &LineSeries) -> String {
    let mut path = String::new();
    let mut last: Option<(f64, f64)> = None;
    for point in &series.points {
        let (x, y) = frame.at(*point);
        let (x, y) = ((x * 10.0).round() / 10.0, (y * 10.0).round() / 10.0);
        let _ = match last {
            None => write!(path, "M{x} {y}"),
            Some((before, _)) if series.style == SeriesStyle::Steps => {
                write!(path, "h{}V{y}", ((x - before) * 10.0).round() / 10.0)
            }
            Some(_) => write!(path, "L{x} {y}"),
        };
        last = Some((x, y));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> LinePlot {
        let points = vec![(0.0, 1.0), (1.0, 3.0), (2.0, 2.0)];
        LinePlot {
            title: "a < b".to_owned(),
            x: LineAxis { label: "time in s".to_owned(), ..LineAxis::default() },
            y: LineAxis { label: "MiB/s".to_owned(), ..LineAxis::default() },
            series: vec![
                LineSeries { name: "one".to_owned(), points: points.clone(), ..LineSeries::default() },
                LineSeries {
                    name: "two".to_owned(),
                    whiskers: vec![Some((1.0, 4.0)), None, None],
                    points,
                    style: SeriesStyle::Marked,
                },
            ],
            borders: vec![(1.0, "epoch 2".to_owned())],
            line: Some(ReferenceLine { value: 9.0, label: "target".to_owned() }),
        }
    }

    #[test]
    fn a_plot_has_its_series_borders_axes_and_reference() {
        for medium in [PlotMedium::Page, PlotMedium::Print] {
            let svg = plot().svg(medium);
            assert_eq!(svg.matches("class=\"series\"").count(), 3, "two lines, and the marks of one");
            assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
            assert_eq!(svg.matches("class=\"border\"").count(), 1);
            assert_eq!(svg.matches("class=\"key\"").count(), 2);
            for text in ["time in s", "MiB/s", "epoch 2", "target", "a &lt; b"] {
                assert!(svg.contains(text), "{text}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("a < b"));
        }
    }

    #[test]
    fn steps_hold_a_value_until_the_next() {
        let mut plot = plot();
        plot.series.truncate(1);
        plot.series[0].style = SeriesStyle::Steps;
        let svg = plot.svg(PlotMedium::Print);
        let path = svg.lines().find(|line| line.contains("class=\"series\"")).unwrap();
        assert!(path.contains("h340V218h340V242"), "{path}");
    }

    #[test]
    fn an_empty_plot_is_valid() {
        assert!(LinePlot::default().svg(PlotMedium::Page).ends_with("</svg>\n"));
    }
}
