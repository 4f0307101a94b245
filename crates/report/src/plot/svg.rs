//! An SVG under construction: text, lines, areas and legends in the style of a medium.

use std::fmt::Write;

/// Where a plot is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotMedium {
    /// In an HTML page, whose style sheet has the colours `--ink`, `--grid`, `--alert`, `--s0` to `--s5`, and which
    /// has the patterns.
    Page,
    /// A file of its own.
    Print,
}

/// Distinguishable in print and with colour blindness (Okabe and Ito's palette, without black and yellow).
const COLOURS: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
/// The colours of a page, in the same order.
const PAGE_COLOURS: [&str; 6] =
    ["var(--s0)", "var(--s1)", "var(--s2)", "var(--s3)", "var(--s4)", "var(--s5)"];
/// The dashes of lines, so that they differ without colour.
const DASHES: [&str; 6] = ["none", "7 3", "2 3", "10 3 2 3", "5 2 1 2 1 2", "1 2"];

/// The height of a line of text.
pub(super) const LINE: f64 = 20.0;
/// Approximate width of a letter in labels.
pub(super) const LETTER: f64 = 7.0;

impl PlotMedium {
    pub(super) fn ink(self) -> &'static str {
        if self == PlotMedium::Page { "var(--ink)" } else { "#222222" }
    }

    pub(super) fn grid(self) -> &'static str {
        if self == PlotMedium::Page { "var(--grid)" } else { "#d9d9d9" }
    }

    pub(super) fn alert(self) -> &'static str {
        if self == PlotMedium::Page { "var(--alert)" } else { "#b00020" }
    }

    /// The colour of a series. After the last colour they repeat.
    pub(super) fn series(self, number: usize) -> &'static str {
        match self {
            PlotMedium::Page => PAGE_COLOURS[number % PAGE_COLOURS.len()],
            PlotMedium::Print => COLOURS[number % COLOURS.len()],
        }
    }
}

/// The dashes of a line series.
pub(super) fn dashes(number: usize) -> &'static str {
    DASHES[number % DASHES.len()]
}

/// Definitions of the patterns of bars: a page has them once, a file of its own has them in it. The first series is
/// plain.
pub fn patterns() -> String {
    let shapes =
        ["M0 8L8 0M-2 2L2 -2M6 10L10 6", "M0 0L8 8M-2 6L2 10M6 -2L10 2", "M4 0V8", "M0 4H8", "M0 4H8M4 0V8"];
    let mut text = "<defs>".to_owned();
    for (number, shape) in shapes.iter().enumerate() {
        let _ = write!(
            text,
            "<pattern id=\"hatch-{}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
             <path d=\"{shape}\" stroke=\"#ffffff\" stroke-opacity=\"0.55\" \
             stroke-width=\"1.4\" fill=\"none\"/></pattern>",
            number + 1
        );
    }
    text + "</defs>"
}

/// An SVG under construction.
pub(super) struct Svg {
    text: String,
    pub medium: PlotMedium,
}

/// A rectangle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Svg {
    /// Starts a drawing of this size. Screen readers read its title.
    pub(super) fn new(medium: PlotMedium, width: f64, height: f64, title: &str) -> Svg {
        // On a page, a plot grows with the text around it.
        let size = match medium {
            PlotMedium::Page => {
                format!("width=\"{:.2}rem\" height=\"{:.2}rem\"", width / 15.0, height / 15.0)
            }
            PlotMedium::Print => format!("width=\"{width:.0}\" height=\"{height:.0}\""),
        };
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" {size} \
             viewBox=\"0 0 {width:.0} {height:.0}\" {} font-size=\"12\" fill=\"{}\">\n",
            escaped(title),
            match medium {
                PlotMedium::Page => "font-family=\"inherit\"",
                PlotMedium::Print => "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\"",
            },
            medium.ink(),
        );
        if medium == PlotMedium::Print {
            text.push_str("<!-- Made by feedline -->");
            text.push_str(&patterns());
            text.push_str("\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
        }
        Svg { text, medium }
    }

    /// Draws the title, which a page shows in its caption instead. Returns where the drawing continues.
    pub(super) fn title(&mut self, x: f64, title: &str) -> f64 {
        if self.medium == PlotMedium::Page {
            return 8.0;
        }
        self.label(x, 24.0, "start", "font-size=\"15\" font-weight=\"bold\"", title);
        24.0 + 0.6 * LINE
    }

    pub(super) fn label(&mut self, x: f64, y: f64, anchor: &str, more: &str, content: &str) {
        let space = if more.is_empty() { "" } else { " " };
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{space}{more}>{}</text>",
            escaped(content)
        );
    }

    /// A label that reads upwards, at the left.
    pub(super) fn upward(&mut self, x: f64, y: f64, content: &str) {
        let turned = format!("font-size=\"13\" transform=\"rotate(-90 {x:.0} {y:.1})\"");
        self.label(x, y, "middle", &turned, content);
    }

    pub(super) fn path(&mut self, d: &str, more: &str) {
        let _ = writeln!(self.text, "<path d=\"{d}\" {more}/>");
    }

    pub(super) fn grid_line(&mut self, d: &str) {
        let more = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"1\"", self.medium.grid());
        self.path(d, &more);
    }

    pub(super) fn ink_line(&mut self, d: &str) {
        let more = format!("fill=\"none\" stroke=\"{}\"", self.medium.ink());
        self.path(d, &more);
    }

    /// An area of a series, in its colour and pattern, with the text that appears when a pointer rests on it.
    pub(super) fn area(&mut self, area: Area, series: usize, more: &str, tooltip: &str) {
        let Area { x, y, width, height } = area;
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        let tooltip =
            if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(tooltip)) };
        let fill = self.medium.series(series);
        // After the last colour they repeat, paler.
        let opacity = 0.5f64.powi((series / COLOURS.len()) as i32).max(0.1);
        let _ = writeln!(
            self.text,
            "<rect {place} fill=\"{fill}\" fill-opacity=\"{opacity}\" {more}>{tooltip}</rect>"
        );
        let hatch = series % COLOURS.len();
        if hatch > 0 {
            let _ =
                writeln!(self.text, "<rect {place} fill=\"url(#hatch-{hatch})\" pointer-events=\"none\"/>");
        }
    }

    /// The entries of a legend with the position of each.
    pub(super) fn legend(&mut self, names: &[String], places: &[(f64, f64)]) {
        for (number, (x, y)) in places.iter().enumerate() {
            self.area(Area { x: *x, y: y - 10.0, width: 12.0, height: 12.0 }, number, "class=\"key\"", "");
            self.label(x + 18.0, *y, "start", "", &names[number]);
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Positions of the entries of a legend from left to right, wrapped into lines. A single series needs no legend.
pub(super) fn legend_places(names: &[String], left: f64, right: f64, top: f64) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (left, top);
    let mut places = Vec::new();
    for name in names.iter().filter(|_| names.len() > 1) {
        let width = 18.0 + LETTER * name.chars().count() as f64 + 16.0;
        if x > left && x + width > right {
            (x, y) = (left, y + LINE);
        }
        places.push((x, y));
        x += width;
    }
    places
}

/// A text as XML or HTML: markup in it is text.
pub(crate) fn escaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            '\'' => plain.push_str("&#39;"),
            '\n' | '\t' => plain.push(c),
            c if c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}

pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(2)).chain("..".chars()).collect()
}
