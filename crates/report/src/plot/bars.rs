//! A bar plot: groups along the x axis, one colour and pattern per series, next to each other with whiskers for
//! intervals, or stacked.

use super::axis::{number, tick_step};
use super::svg::{Area, LETTER, LINE, PlotMedium, Svg, legend_places, shortened};

/// The data of a plot.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// Labels along the x axis.
    pub groups: Vec<String>,
    /// Label of each colour.
    pub series: Vec<String>,
    /// For each group, a bar of each colour; `None` if there is no value.
    pub bars: Vec<Vec<Option<Bar>>>,
    /// A value that does not exist was not asked for; otherwise it is marked as missing.
    pub sparse: bool,
    /// The bars of a group are parts of a sum: they are drawn on top of each other.
    pub stacked: bool,
    /// A value to compare all bars with.
    pub line: Option<ReferenceLine>,
}

/// A horizontal line across the plot.
#[derive(Clone, Debug)]
pub struct ReferenceLine {
    pub value: f64,
    pub label: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Bar {
    pub value: f64,
    /// The interval of the value.
    pub whisker: Option<(f64, f64)>,
    /// The value of a simulated device; drawn hollow.
    pub simulated: bool,
}

/// The style of a bar of a simulated device.
const HOLLOW: &str = " style=\"fill-opacity:0.35\" stroke=\"currentColor\" stroke-dasharray=\"4 3\"";

/// Sizes in pixels.
const LEFT: f64 = 92.0;
const RIGHT: f64 = 24.0;
const HEIGHT: f64 = 260.0;
const NARROWEST: f64 = 540.0;
/// The widest plot before bars become narrower.
const WIDEST: f64 = 1000.0;

impl Figure {
    pub fn svg(&self, medium: PlotMedium) -> String {
        let frame = PlotFrame::of(self, medium);
        let (width, height) = (frame.right + RIGHT, frame.bottom + 3.0 * LINE);
        let mut svg = Svg::new(medium, width, height, &self.title);
        svg.title(LEFT, &self.title);
        svg.legend(&self.series, &frame.legend);
        self.y_axis(&mut svg, &frame);
        // Labels of groups that would overlap are left out.
        let every = (LETTER * 3.0 / frame.group).ceil().max(1.0) as usize;
        for (number, (group, bars)) in self.groups.iter().zip(&self.bars).enumerate() {
            let shown = if number % every == 0 { group.as_str() } else { "" };
            self.group(&mut svg, &frame, number, (group, shown), bars);
        }
        self.reference(&mut svg, &frame);
        let middle = f64::midpoint(LEFT, frame.right);
        svg.label(middle, frame.bottom + 2.2 * LINE, "middle", "font-size=\"13\"", &self.x_label);
        svg.ink_line(&format!("M{LEFT} {:.1}V{:.1}H{:.1}", frame.top, frame.bottom, frame.right));
        svg.finish()
    }

    fn y_axis(&self, svg: &mut Svg, frame: &PlotFrame) {
        let ticks = (frame.most / frame.step).round() as u64;
        for tick in 0..=ticks {
            let value = tick as f64 * frame.step;
            let y = frame.y(value);
            svg.grid_line(&format!("M{LEFT} {y:.1}H{:.1}", frame.right));
            svg.label(LEFT - 8.0, y + 4.0, "end", "", &number(value, frame.step));
        }
        svg.upward(18.0, f64::midpoint(frame.top, frame.bottom), &self.y_label);
    }

    fn reference(&self, svg: &mut Svg, frame: &PlotFrame) {
        let Some(ReferenceLine { value, label }) = &self.line else { return };
        let (y, right, alert) = (frame.y(*value), frame.right, svg.medium.alert());
        let style =
            format!("class=\"reference\" stroke=\"{alert}\" stroke-width=\"1.5\" stroke-dasharray=\"7 4\"");
        svg.path(&format!("M{LEFT} {y:.1}H{right:.1}"), &style);
        svg.label(right, y - 5.0, "end", &format!("fill=\"{alert}\""), label);
    }

    fn group(
        &self,
        svg: &mut Svg,
        frame: &PlotFrame,
        number: usize,
        (name, shown): (&str, &str),
        bars: &[Option<Bar>],
    ) {
        let start = LEFT + frame.group * number as f64 + frame.gap / 2.0;
        let mut base = 0.0;
        for (series, bar) in bars.iter().enumerate() {
            let x = if self.stacked { start } else { start + frame.bar * series as f64 };
            let middle = x + frame.bar / 2.0;
            match bar {
                Some(bar) => self.bar(svg, frame, Place { x, base, series, group: name }, *bar),
                None if self.sparse => {}
                None => {
                    let alert = format!("fill=\"{}\"", svg.medium.alert());
                    svg.label(middle, frame.bottom - 4.0, "middle", &alert, "x");
                }
            }
            if self.stacked {
                base += bar.map_or(0.0, |bar| bar.value);
            }
        }
        let most = ((frame.group / LETTER) as usize).max(3);
        let middle = LEFT + frame.group * (number as f64 + 0.5);
        svg.label(middle, frame.bottom + 18.0, "middle", "", &shortened(shown, most));
    }

    fn bar(&self, svg: &mut Svg, frame: &PlotFrame, place: Place<'_>, bar: Bar) {
        let Place { x, base, series, group } = place;
        let (top, bottom) = (frame.y(base + bar.value), frame.y(base));
        // A gap of two pixels, unless bars are very narrow.
        let gap = 2f64.min(frame.bar / 4.0);
        let inner = frame.bar - gap;
        let name = self.series.get(series).filter(|name| !name.is_empty());
        let name = name.map_or(String::new(), |name| format!(", {name}"));
        let tooltip = format!(
            "{}={group}{name}: {} {}{}",
            self.x_label,
            number(bar.value, frame.step / 100.0),
            self.y_label,
            crate::simulated(bar.simulated)
        );
        let dashes = if bar.simulated { HOLLOW } else { "" };
        let area = Area { x: x + gap / 2.0, y: top, width: inner, height: bottom - top };
        svg.area(area, series, &format!("class=\"bar\"{dashes}"), &tooltip);
        let middle = x + frame.bar / 2.0;
        let mut above = top;
        if let Some((low, high)) = bar.whisker.filter(|_| !self.stacked) {
            above = frame.y(high);
            let end = (inner / 4.0).min(5.0);
            let (from, to, foot) = (middle - end, middle + end, frame.y(low));
            let ink = svg.medium.ink();
            svg.path(
                &format!(
                    "M{middle:.1} {foot:.1}V{above:.1}M{from:.1} {above:.1}H{to:.1}M{from:.1} {foot:.1}H{to:.1}"
                ),
                &format!("stroke=\"{ink}\" stroke-width=\"1.2\""),
            );
        }
        let label = number(bar.value, frame.step / 10.0);
        // A number wider than its bar would overlap the next one. The parts of a stack have patterns, on which a
        // number would be hard to read; the table has it.
        if !self.stacked && label.len() as f64 * 5.6 <= frame.bar {
            svg.label(middle, above - 4.0, "middle", "font-size=\"10\"", &label);
        }
    }
}

/// Where a bar is drawn, and what it stands for.
#[derive(Clone, Copy)]
struct Place<'a> {
    x: f64,
    /// The value at which it starts.
    base: f64,
    series: usize,
    group: &'a str,
}

/// The layout.
struct PlotFrame {
    top: f64,
    bottom: f64,
    right: f64,
    /// Widths of a group with its gap, of the gap, and of a bar.
    group: f64,
    gap: f64,
    bar: f64,
    /// The end of the y axis, and the distance of its ticks.
    most: f64,
    step: f64,
    /// The position of each legend entry.
    legend: Vec<(f64, f64)>,
}

impl PlotFrame {
    fn of(figure: &Figure, medium: PlotMedium) -> PlotFrame {
        let series = if figure.stacked { 1.0 } else { figure.series.len().max(1) as f64 };
        let groups = figure.groups.len().max(1) as f64;
        let wanted = if series > 8.0 { 14.0 } else { 34.0 };
        let title = match medium {
            PlotMedium::Page => 0.0,
            PlotMedium::Print => LETTER * 1.25 * figure.title.chars().count() as f64,
        };
        let asked = groups * (series * wanted + 22.0);
        // Many groups become narrower, down to a width at which bars can still be told apart.
        let width = asked.min(WIDEST.max(groups * series * 6.0)).max(NARROWEST - LEFT - RIGHT).max(title);
        let group = width / groups;
        let gap = 22f64.min(group * 0.3);
        // Limits the width of bars in wide groups.
        let bar = ((group - gap) / series).min(72.0);
        let gap = group - bar * series;
        let right = LEFT + width;
        let first = if medium == PlotMedium::Page { 16.0 } else { 24.0 + 1.3 * LINE };
        let legend = legend_places(&figure.series, LEFT, right, first);
        let top = legend.last().map_or(first + 2.0, |(_, y)| y + 26.0);
        let reach = |bar: &Bar| bar.whisker.map_or(bar.value, |(_, high)| high.max(bar.value));
        let sum = |bars: &Vec<Option<Bar>>| bars.iter().flatten().map(|bar| bar.value).sum();
        let highest = match figure.stacked {
            true => figure.bars.iter().map(sum).fold(0.0, f64::max),
            false => figure.bars.iter().flatten().flatten().map(reach).fold(0.0, f64::max),
        };
        let highest = figure.line.as_ref().map_or(highest, |line| highest.max(line.value));
        let step = tick_step(highest);
        let most = step * (highest / step).ceil().max(1.0);
        PlotFrame { top, bottom: top + HEIGHT, right, group, gap, bar, most, step, legend }
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * (value / self.most).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(groups: usize, series: usize) -> Figure {
        let bar =
            |value: f64| Some(Bar { value, whisker: Some((value * 0.9, value * 1.1)), simulated: false });
        Figure {
            title: "a < b & c".to_owned(),
            x_label: "threads".to_owned(),
            y_label: "MB/s".to_owned(),
            groups: (0..groups).map(|group| group.to_string()).collect(),
            series: (0..series).map(|series| format!("prefetch={series}")).collect(),
            bars: (0..groups).map(|group| vec![bar(100.0 * (group + 1) as f64); series]).collect(),
            ..Figure::default()
        }
    }

    #[test]
    fn every_bar_is_drawn_within_the_frame() {
        for (groups, series) in [(1, 1), (4, 2), (3, 12)] {
            let figure = figure(groups, series);
            let (svg, frame) = (figure.svg(PlotMedium::Print), PlotFrame::of(&figure, PlotMedium::Print));
            assert_eq!(svg.matches("class=\"bar\"").count(), groups * series);
            assert_eq!(svg.matches("stroke-width=\"1.2\"").count(), groups * series, "one whisker each");
            let legend = if series > 1 { series } else { 0 };
            assert_eq!(svg.matches("class=\"key\"").count(), legend);
            assert!(LEFT + frame.group * groups as f64 <= frame.right + 0.01);
            assert!(frame.y(figure.bars[groups - 1][0].unwrap().value * 1.1) >= frame.top);
        }
    }

    #[test]
    fn text_is_escaped_and_missing_values_are_marked() {
        let mut figure = figure(2, 2);
        figure.bars[1][0] = None;
        let svg = figure.svg(PlotMedium::Print);
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("a < b"));
        assert_eq!(svg.matches("class=\"bar\"").count(), 3);
        assert_eq!(svg.matches(">x</text>").count(), 1);
        assert_eq!(Figure { sparse: true, ..figure }.svg(PlotMedium::Print).matches(">x</text>").count(), 0);
    }

    #[test]
    fn a_stack_is_as_high_as_its_sum() {
        let figure = Figure { stacked: true, ..figure(2, 3) };
        let frame = PlotFrame::of(&figure, PlotMedium::Print);
        assert!((frame.most - 600.0).abs() < 1e-9, "three parts of 200: {}", frame.most);
        let svg = figure.svg(PlotMedium::Print);
        let of = |attribute: &str| -> Vec<f64> {
            let bars = svg.lines().filter(|line| line.contains("class=\"bar\""));
            let value = |line: &str| line.split(attribute).nth(1).unwrap().split('"').next().unwrap().parse();
            bars.map(|line| value(line).unwrap()).collect()
        };
        let (tops, heights) = (of(" y=\""), of(" height=\""));
        assert_eq!(tops.len(), 6);
        for stack in [0..3, 3..6] {
            assert!((tops[stack.start] + heights[stack.start] - frame.bottom).abs() < 0.2);
            for part in stack.start..stack.end - 1 {
                assert!(
                    (tops[part + 1] + heights[part + 1] - tops[part]).abs() < 0.2,
                    "{tops:?} {heights:?}"
                );
            }
        }
        assert!((tops[5] - frame.top).abs() < 0.2, "the highest stack fills the frame");
    }

    #[test]
    fn the_reference_line_is_within_the_frame() {
        let line = Some(ReferenceLine { value: 5000.0, label: "a < b".to_owned() });
        let figure = Figure { line, ..figure(2, 1) };
        let frame = PlotFrame::of(&figure, PlotMedium::Print);
        assert!(frame.most >= 5000.0, "{}", frame.most);
        let svg = figure.svg(PlotMedium::Print);
        assert_eq!(svg.matches("class=\"reference\"").count(), 1);
        assert!(svg.contains(">a &lt; b</text>"));
    }

    #[test]
    fn an_empty_figure_is_valid() {
        assert!(Figure::default().svg(PlotMedium::Print).ends_with("</svg>\n"));
        let mut figure = figure(1, 1);
        figure.bars[0][0] = Some(Bar { value: 0.0, whisker: None, simulated: true });
        assert!(!figure.svg(PlotMedium::Print).contains("NaN"));
        assert!(
            figure.svg(PlotMedium::Print).contains("stroke-dasharray")
                && figure.svg(PlotMedium::Print).contains("MB/s (simulated)")
        );
    }
}
