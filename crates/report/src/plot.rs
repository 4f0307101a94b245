//! A bar plot as SVG: groups along the x axis, one colour per series, next to each other with whiskers for intervals,
//! or stacked. Pure: figures in, text out.

use std::fmt::Write;

use model::units::grouped;

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

/// Distinguishable in print and with colour blindness (Okabe and Ito's palette, without black and yellow).
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const INK: &str = "#222222";
const GREY: &str = "#d9d9d9";
const RED: &str = "#b00020";

/// The style of a bar of a simulated device.
const HOLLOW: &str = " style=\"fill-opacity:0.35\" stroke=\"#222222\" stroke-dasharray=\"4 3\"";

/// Sizes in pixels.
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const HEIGHT: f64 = 260.0;
const NARROWEST: f64 = 540.0;
const LINE: f64 = 20.0;
/// Approximate width of a letter in labels.
const LETTER: f64 = 7.0;

impl Figure {
    pub fn svg(&self) -> String {
        let frame = PlotFrame::of(self);
        let (width, height) = (frame.right + RIGHT, frame.bottom + 3.0 * LINE);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        text(&mut svg, LEFT, 24.0, "start", "font-size=\"15\" font-weight=\"bold\"", &self.title);
        self.legend(&mut svg, &frame);
        self.y_axis(&mut svg, &frame);
        for (number, (group, bars)) in self.groups.iter().zip(&self.bars).enumerate() {
            self.group(&mut svg, &frame, number, group, bars);
        }
        self.reference(&mut svg, &frame);
        let middle = f64::midpoint(LEFT, frame.right);
        text(&mut svg, middle, frame.bottom + 2.2 * LINE, "middle", "font-size=\"13\"", &self.x_label);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {:.1}V{:.1}H{:.1}\" fill=\"none\" stroke=\"{INK}\"/>\n</svg>",
            frame.top, frame.bottom, frame.right
        );
        svg
    }

    fn legend(&self, svg: &mut String, frame: &PlotFrame) {
        for (number, (x, y)) in frame.legend.iter().enumerate() {
            let (top, fill) = (y - 10.0, fill(number));
            let _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" {fill}/>");
            text(svg, x + 18.0, *y, "start", "", &self.series[number]);
        }
    }

    fn y_axis(&self, svg: &mut String, frame: &PlotFrame) {
        let ticks = (frame.most / frame.step).round() as u64;
        for tick in 0..=ticks {
            let value = tick as f64 * frame.step;
            let y = frame.y(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"{GREY}\" stroke-width=\"1\"/>",
                frame.right
            );
            text(svg, LEFT - 8.0, y + 4.0, "end", "", &number(value, frame.step));
        }
        let middle = f64::midpoint(frame.top, frame.bottom);
        let turned = format!("font-size=\"13\" transform=\"rotate(-90 18 {middle:.1})\"");
        text(svg, 18.0, middle, "middle", &turned, &self.y_label);
    }

    fn reference(&self, svg: &mut String, frame: &PlotFrame) {
        let Some(ReferenceLine { value, label }) = &self.line else { return };
        let (y, right) = (frame.y(*value), frame.right);
        let _ = writeln!(
            svg,
            "<path class=\"reference\" d=\"M{LEFT} {y:.1}H{right:.1}\" stroke=\"{RED}\" stroke-width=\"1.5\" \
             stroke-dasharray=\"7 4\"/>"
        );
        text(svg, right, y - 5.0, "end", &format!("fill=\"{RED}\""), label);
    }

    fn group(&self, svg: &mut String, frame: &PlotFrame, number: usize, name: &str, bars: &[Option<Bar>]) {
        let start = LEFT + frame.group * number as f64 + frame.gap / 2.0;
        let mut base = 0.0;
        for (series, bar) in bars.iter().enumerate() {
            let x = if self.stacked { start } else { start + frame.bar * series as f64 };
            let middle = x + frame.bar / 2.0;
            match bar {
                Some(bar) => self.bar(svg, frame, Place { x, base, series, group: name }, *bar),
                None if self.sparse => {}
                None => text(svg, middle, frame.bottom - 4.0, "middle", &format!("fill=\"{RED}\""), "x"),
            }
            if self.stacked {
                base += bar.map_or(0.0, |bar| bar.value);
            }
        }
        let most = ((frame.group / LETTER) as usize).max(3);
        let middle = LEFT + frame.group * (number as f64 + 0.5);
        text(svg, middle, frame.bottom + 18.0, "middle", "", &shortened(name, most));
    }

    fn bar(&self, svg: &mut String, frame: &PlotFrame, place: Place<'_>, bar: Bar) {
        let Place { x, base, series, group } = place;
        let (top, bottom) = (frame.y(base + bar.value), frame.y(base));
        let inner = frame.bar - 2.0;
        let name = self.series.get(series).filter(|name| !name.is_empty());
        let name = name.map_or(String::new(), |name| format!(", {name}"));
        let tooltip = escaped(&format!(
            "{}={group}{name}: {} {}{}",
            self.x_label,
            number(bar.value, frame.step / 100.0),
            self.y_label,
            crate::simulated(bar.simulated)
        ));
        let dashes = if bar.simulated { HOLLOW } else { "" };
        let _ = writeln!(
            svg,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{inner:.1}\" height=\"{:.1}\" {}{dashes}>\
             <title>{tooltip}</title></rect>",
            x + 1.0,
            bottom - top,
            fill(series)
        );
        let middle = x + frame.bar / 2.0;
        let mut above = top;
        if let Some((low, high)) = bar.whisker.filter(|_| !self.stacked) {
            above = frame.y(high);
            let end = (inner / 4.0).min(5.0);
            let (from, to) = (middle - end, middle + end);
            let _ = writeln!(
                svg,
                "<path d=\"M{middle:.1} {:.1}V{above:.1}M{from:.1} {above:.1}H{to:.1}M{from:.1} {:.1}H{to:.1}\" \
                 stroke=\"{INK}\" stroke-width=\"1.2\"/>",
                frame.y(low),
                frame.y(low)
            );
        }
        let label = number(bar.value, frame.step / 10.0);
        // A number wider than its bar would overlap the next one; so would one that is higher than its part of a stack.
        let y = if self.stacked { f64::midpoint(top, bottom) + 4.0 } else { above - 4.0 };
        let fits = label.len() as f64 * 5.6 <= frame.bar && (!self.stacked || bottom - top >= 12.0);
        if fits {
            // Inside a dark bar.
            let colour = if self.stacked && !bar.simulated { " fill=\"#ffffff\"" } else { "" };
            text(svg, middle, y, "middle", &format!("font-size=\"10\"{colour}"), &label);
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
    fn of(figure: &Figure) -> PlotFrame {
        let series = if figure.stacked { 1.0 } else { figure.series.len().max(1) as f64 };
        let groups = figure.groups.len().max(1) as f64;
        let gap = 22.0;
        let wanted = if series > 8.0 { 14.0 } else { 34.0 };
        let title = LETTER * 1.25 * figure.title.chars().count() as f64;
        let width = (groups * (series * wanted + gap)).max(NARROWEST - LEFT - RIGHT).max(title);
        let group = width / groups;
        // Limits the width of bars in wide groups.
        let bar = ((group - gap) / series).min(72.0);
        let gap = group - bar * series;
        let right = LEFT + width;
        let legend = legend(&figure.series, right);
        let top = legend.last().map_or(52.0, |(_, y)| y + 26.0);
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

/// Positions of the entries from left to right, wrapped into lines. A single series needs no legend.
fn legend(series: &[String], right: f64) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (LEFT, 24.0 + 1.3 * LINE);
    let mut places = Vec::new();
    for name in series.iter().filter(|_| series.len() > 1) {
        let width = 18.0 + LETTER * name.chars().count() as f64 + 16.0;
        if x > LEFT && x + width > right {
            (x, y) = (LEFT, y + LINE);
        }
        places.push((x, y));
        x += width;
    }
    places
}

/// The distance for about five ticks: 1, 2 or 5 times a power of ten.
fn tick_step(highest: f64) -> f64 {
    if !(highest > 0.0 && highest.is_finite()) {
        return 1.0;
    }
    let rough = highest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|times| times * power).find(|step| *step >= rough).unwrap_or(rough)
}

/// The value, with enough digits to distinguish two steps.
fn number(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    if digits == 0 { grouped(value.round() as u64) } else { format!("{value:.digits$}") }
}

/// The fill of a series. After the last colour they repeat, paler.
fn fill(number: usize) -> String {
    let opacity = 0.5f64.powi((number / COLOURS.len()) as i32).max(0.1);
    format!("fill=\"{}\" fill-opacity=\"{opacity}\"", COLOURS[number % COLOURS.len()])
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(2)).chain("..".chars()).collect()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, more: &str, content: &str) {
    let space = if more.is_empty() { "" } else { " " };
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{space}{more}>{}</text>",
        escaped(content)
    );
}

fn escaped(text: &str) -> String {
    let plain = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    plain.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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
            let (svg, frame) = (figure.svg(), PlotFrame::of(&figure));
            assert_eq!(svg.matches("class=\"bar\"").count(), groups * series);
            assert_eq!(svg.matches("stroke-width=\"1.2\"").count(), groups * series, "one whisker each");
            let legend = if series > 1 { series } else { 0 };
            assert_eq!(svg.matches("width=\"12\" height=\"12\"").count(), legend);
            assert!(LEFT + frame.group * groups as f64 <= frame.right + 0.01);
            assert!(frame.y(figure.bars[groups - 1][0].unwrap().value * 1.1) >= frame.top);
        }
    }

    #[test]
    fn text_is_escaped_and_missing_values_are_marked() {
        let mut figure = figure(2, 2);
        figure.bars[1][0] = None;
        let svg = figure.svg();
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("a < b"));
        assert_eq!(svg.matches("class=\"bar\"").count(), 3);
        assert_eq!(svg.matches(">x</text>").count(), 1);
        assert_eq!(Figure { sparse: true, ..figure }.svg().matches(">x</text>").count(), 0);
    }

    #[test]
    fn a_stack_is_as_high_as_its_sum() {
        let figure = Figure { stacked: true, ..figure(2, 3) };
        let frame = PlotFrame::of(&figure);
        assert!((frame.most - 600.0).abs() < 1e-9, "three parts of 200: {}", frame.most);
        let svg = figure.svg();
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
        let frame = PlotFrame::of(&figure);
        assert!(frame.most >= 5000.0, "{}", frame.most);
        let svg = figure.svg();
        assert_eq!(svg.matches("class=\"reference\"").count(), 1);
        assert!(svg.contains(">a &lt; b</text>"));
    }

    #[test]
    fn an_empty_figure_is_valid() {
        assert!(Figure::default().svg().ends_with("</svg>\n"));
        let mut figure = figure(1, 1);
        figure.bars[0][0] = Some(Bar { value: 0.0, whisker: None, simulated: true });
        assert!(!figure.svg().contains("NaN"));
        assert!(figure.svg().contains("stroke-dasharray") && figure.svg().contains("MB/s (simulated)"));
    }

    #[test]
    fn ticks_are_round_numbers() {
        for (highest, step) in [(11.0, 5.0), (9.0, 2.0), (163.0, 50.0), (0.4, 0.1), (0.0, 1.0), (5e6, 1e6)] {
            assert!((tick_step(highest) - step).abs() < 1e-9, "{highest}: {}", tick_step(highest));
        }
        assert_eq!(number(12_345.0, 5000.0), "12,345");
        assert_eq!(number(0.25, 0.05), "0.25");
    }
}
