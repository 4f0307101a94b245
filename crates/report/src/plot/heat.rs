//! A heat map: a value for each row and column, as a shade. Shades differ in lightness, so they can be told apart
//! without colour. Neighbours with the same shade are drawn as one area, so that a large map stays small.

use std::fmt::Write;

use super::svg::{LETTER, LINE, PlotMedium, Svg, shortened};

/// The data of a map.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// What the shades stand for, with its unit.
    pub value_label: String,
    pub columns: Vec<String>,
    pub rows: Vec<String>,
    /// For each row, a value of each column; `None` if there is none.
    pub values: Vec<Vec<Option<f64>>>,
    /// Digits after the decimal point.
    pub digits: usize,
    /// The lowest and the highest value of the scale; `None`: those of the map.
    pub range: Option<(f64, f64)>,
}

/// From the lowest to the highest level: from dark to light.
const SHADES: [&str; 10] = [
    "#3b0f70", "#5b177f", "#7d2482", "#9f2f7f", "#c03a76", "#de4968", "#f66e5c", "#fe9f6d", "#fecf92",
    "#fcfdbf",
];
/// The level from which a label is dark.
const DARK_LABEL: usize = 6;
const RIGHT: f64 = 24.0;
const WIDTH: f64 = 640.0;
/// Cells with this much room show their values.
const ROOM: (f64, f64) = (44.0, 18.0);

/// The layout.
struct HeatFrame {
    left: f64,
    top: f64,
    cell: (f64, f64),
    range: (f64, f64),
}

impl HeatFrame {
    fn level(&self, value: f64) -> usize {
        let (low, high) = self.range;
        let share = if high > low { (value - low) / (high - low) } else { 1.0 };
        ((share * SHADES.len() as f64) as usize).min(SHADES.len() - 1)
    }
}

impl HeatMap {
    pub fn svg(&self, medium: PlotMedium) -> String {
        let frame = self.frame(medium);
        let height = frame.cell.1 * self.rows.len() as f64;
        let bottom = frame.top + height;
        let mut svg = Svg::new(medium, frame.left + WIDTH + RIGHT, bottom + 5.4 * LINE, &self.title);
        svg.title(frame.left, &self.title);
        self.cells(&mut svg, &frame);
        self.labels(&mut svg, &frame);
        svg.ink_line(&format!("M{:.1} {:.1}V{bottom:.1}h{WIDTH}", frame.left, frame.top));
        self.key(&mut svg, &frame, bottom + 3.4 * LINE);
        svg.finish()
    }

    fn frame(&self, medium: PlotMedium) -> HeatFrame {
        let values = || self.values.iter().flatten().flatten();
        let low = values().copied().fold(f64::INFINITY, f64::min);
        let high = values().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = self.range.unwrap_or(if low <= high { (low, high) } else { (0.0, 1.0) });
        let widest = self.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0).min(16);
        let rows = self.rows.len().max(1) as f64;
        // A map of few rows has high rows; one of many rows is at most this high.
        let height = (26.0 * rows).min(420.0);
        HeatFrame {
            left: 16.0 + LETTER * widest as f64,
            top: if medium == PlotMedium::Page { 24.0 } else { 24.0 + 1.8 * LINE },
            cell: (WIDTH / self.columns.len().max(1) as f64, height / rows),
            range,
        }
    }

    /// The cells, one path for each shade.
    fn cells(&self, svg: &mut Svg, frame: &HeatFrame) {
        let mut paths = vec![String::new(); SHADES.len()];
        for (row, values) in self.values.iter().enumerate() {
            let level = |column: usize| values.get(column).copied().flatten().map(|value| frame.level(value));
            let mut column = 0;
            while column < values.len() {
                let (start, shade) = (column, level(column));
                while column < values.len() && level(column) == shade {
                    column += 1;
                }
                let Some(shade) = shade else { continue };
                let (width, height) = frame.cell;
                let _ = write!(
                    paths[shade],
                    "M{:.1} {:.2}h{:.1}v{:.2}h-{:.1}z",
                    frame.left + width * start as f64,
                    frame.top + height * row as f64,
                    width * (column - start) as f64,
                    // Overlaps the next row, so that rounding leaves no gap.
                    height + if row + 1 < self.values.len() { 0.4 } else { 0.0 },
                    width * (column - start) as f64,
                );
            }
        }
        for (shade, path) in SHADES.iter().zip(&paths).filter(|(_, path)| !path.is_empty()) {
            svg.path(path, &format!("class=\"cell\" fill=\"{shade}\" shape-rendering=\"crispEdges\""));
        }
        if frame.cell.0 >= ROOM.0 && frame.cell.1 >= ROOM.1 {
            self.numbers(svg, frame);
        }
    }

    fn numbers(&self, svg: &mut Svg, frame: &HeatFrame) {
        for (row, values) in self.values.iter().enumerate() {
            for (column, value) in values.iter().enumerate() {
                let x = frame.left + frame.cell.0 * (column as f64 + 0.5);
                let y = frame.top + frame.cell.1 * (row as f64 + 0.5) + 4.0;
                match value {
                    Some(value) => {
                        let dark = frame.level(*value) >= DARK_LABEL;
                        let style = format!("fill=\"{}\"", if dark { "#111111" } else { "#ffffff" });
                        svg.label(x, y, "middle", &style, &format!("{value:.*}", self.digits));
                    }
                    None => svg.label(x, y, "middle", "", "x"),
                }
            }
        }
    }

    /// Names of rows and columns; names that would overlap are left out.
    fn labels(&self, svg: &mut Svg, frame: &HeatFrame) {
        let bottom = frame.top + frame.cell.1 * self.rows.len() as f64;
        let every = (14.0 / frame.cell.1).ceil().max(1.0) as usize;
        for (row, name) in self.rows.iter().enumerate().step_by(every) {
            let y = frame.top + frame.cell.1 * (row as f64 + 0.5) + 4.0;
            svg.label(frame.left - 6.0, y, "end", "", &shortened(name, 16));
        }
        let widest = self.columns.iter().map(|name| name.chars().count()).max().unwrap_or(1).min(20);
        let every = (LETTER * (widest as f64 + 1.0) / frame.cell.0).ceil().max(1.0) as usize;
        for (column, name) in self.columns.iter().enumerate().step_by(every) {
            let x = frame.left + frame.cell.0 * (column as f64 + 0.5);
            svg.label(x, bottom + 16.0, "middle", "", &shortened(name, 20));
        }
        svg.label(frame.left + WIDTH / 2.0, bottom + 2.1 * LINE, "middle", "font-size=\"13\"", &self.x_label);
        // The name of the rows stands above them: rows may be too few for a name that reads upwards.
        svg.label(4.0, frame.top - 6.0, "start", "font-size=\"13\"", &self.y_label);
    }

    /// The scale.
    fn key(&self, svg: &mut Svg, frame: &HeatFrame, y: f64) {
        let (low, high) = frame.range;
        let width = 22.0;
        for (level, shade) in SHADES.iter().enumerate() {
            let x = frame.left + width * level as f64;
            svg.path(
                &format!("M{x:.1} {y:.1}h{width}v12h-{width}z"),
                &format!("class=\"key\" fill=\"{shade}\""),
            );
        }
        let end = frame.left + width * SHADES.len() as f64;
        let text = |value: f64| format!("{value:.*}", self.digits);
        svg.label(frame.left, y + 12.0 + 0.8 * LINE, "start", "", &text(low));
        svg.label(end, y + 12.0 + 0.8 * LINE, "end", "", &text(high));
        svg.label(end + 10.0, y + 11.0, "start", "", &self.value_label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_cell_and_a_missing_one_a_mark() {
        let map = HeatMap {
            title: "speed".to_owned(),
            value_label: "samples/s".to_owned(),
            columns: ["1", "2", "4"].map(str::to_owned).into(),
            rows: ["a<b", "c"].map(str::to_owned).into(),
            values: vec![vec![Some(1.0), Some(2.0), None], vec![Some(5.0), Some(9.0), Some(10.0)]],
            digits: 1,
            ..HeatMap::default()
        };
        let svg = map.svg(PlotMedium::Print);
        for text in [">1.0<", ">9.0<", ">10.0<", ">x<", "a&lt;b", "samples/s"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(svg.matches("class=\"key\"").count(), SHADES.len());
    }

    #[test]
    fn a_large_map_is_small() {
        let row = |number: usize| {
            (0..100).map(|epoch| Some(if number == 7 && epoch > 50 { 60.0 } else { 99.0 })).collect()
        };
        let rows: Vec<Vec<Option<f64>>> = (0..256).map(row).collect();
        let map = HeatMap {
            columns: (0..100).map(|epoch| epoch.to_string()).collect(),
            rows: (0..256).map(|rank| rank.to_string()).collect(),
            values: rows,
            ..HeatMap::default()
        };
        let svg = map.svg(PlotMedium::Page);
        assert!(svg.len() < 20_000, "{}", svg.len());
        assert!(!svg.contains("NaN"));
        assert!(HeatMap::default().svg(PlotMedium::Page).ends_with("</svg>\n"));
    }
}
