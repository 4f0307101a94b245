//! The pages of studies: sweep, capacity and stall, each from its JSON document.

use model::units::significant;
use serde_json::Value;

use super::doc::{Doc, percent, rate, seconds, whole};
use super::parts::{Cell, DataTable, HtmlPage, Notice, PageBlock, PageSection, PageTone};
use crate::plot::{Bar, Figure, HeatMap, LineAxis, LinePlot, LineSeries, Plot, ReferenceLine, SeriesStyle};

fn page(title: String, lead: String, study: &Doc<'_>, version: &str, sections: Vec<PageSection>) -> HtmlPage {
    let mut notices = Vec::new();
    if study.at("simulated").flag() == Some(true) {
        let text = "The storage was simulated: times follow from its model, not from a device.".to_owned();
        notices.push(Notice { tone: PageTone::Doubtful, text });
    }
    let footer = format!("Made by feedline {version} from the files of the study.");
    HtmlPage { title, lead, badge: None, notices, sections, footer }
}

/// A figure that a sweep can compare: its name in the document, its label, and whether more is better.
struct SweepMeasure {
    key: &'static str,
    label: &'static str,
    more: bool,
}

/// The figure that the speed-ups of a sweep compare.
fn measure(study: &Doc<'_>) -> SweepMeasure {
    match study.at("speed_up_of").text() {
        Some("blocked_seconds") => {
            SweepMeasure { key: "blocked_seconds", label: "seconds blocked by a save", more: false }
        }
        _ => SweepMeasure { key: "samples_per_second", label: "samples/s", more: true },
    }
}

/// A cell of a sweep.
struct ShownCell<'a> {
    settings: Vec<String>,
    doc: Doc<'a>,
    speed_up: Option<f64>,
    interval: Option<(f64, f64)>,
}

impl<'a> ShownCell<'a> {
    fn new(doc: Doc<'a>) -> ShownCell<'a> {
        let settings = doc.at("settings").entries().iter().map(|(_, value)| value.shown()).collect();
        let interval = doc.at("speed_up_interval");
        let interval = interval.at("0").number().zip(interval.at("1").number());
        ShownCell { settings, speed_up: doc.at("speed_up").number(), interval, doc }
    }
}

/// The page of a sweep.
pub fn sweep(document: &Value, version: &str) -> HtmlPage {
    let study = Doc::new(document);
    let cells: Vec<ShownCell<'_>> = study.at("cells").each().into_iter().map(ShownCell::new).collect();
    let first = study.at("cells.0.settings");
    let keys: Vec<String> = first.entries().iter().map(|(key, _)| (*key).to_owned()).collect();
    let measure = measure(&study);
    let mut section = PageSection::new(
        "sweep",
        "Speed-up",
        "Each cell is a combination of settings, run several times. A speed-up compares medians with the first cell.",
    );
    section = section.finding(best_sentence(&keys, &cells)).finding(knee_sentence(&keys, &cells));
    section = section.plot(
        "sweep",
        "Medians; whiskers are 95 % intervals",
        Plot::Bars(medians(&keys, &cells, &measure)),
        None,
    );
    section = section.plot(
        "sweep-speed-up",
        "Median speed-up over the first cell; whiskers are 95 % intervals",
        Plot::Lines(curves(&keys, &cells)),
        None,
    );
    if let [rows, columns] = keys.as_slice() {
        let map = grid(rows, columns, &cells, &measure);
        let caption = if measure.more { "Light is fast" } else { "Dark is short" };
        section = section.plot("sweep-map", caption, Plot::Heat(map), None);
    }
    let sections =
        vec![section.table(cells_table(&keys, &cells, &measure)), ceiling(&study), settings(&study)];
    let name = study.at("sweep.sweep").text().unwrap_or("sweep").to_owned();
    let lead = format!("Sweep over {}: {} cells", keys.join(" and "), cells.len());
    page(name, lead, &study, version, sections)
}

fn described(keys: &[String], cell: &ShownCell<'_>) -> String {
    let parts: Vec<String> =
        keys.iter().zip(&cell.settings).map(|(key, value)| format!("{key}={value}")).collect();
    parts.join(", ")
}

fn best_sentence(keys: &[String], cells: &[ShownCell<'_>]) -> Option<String> {
    let there = cells.iter().filter_map(|cell| Some((cell, cell.speed_up?)));
    let (best, speed_up) = there.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let sure = best.interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:.2} to {high:.2})"));
    Some(match speed_up > 1.0 {
        true => {
            format!("Best: {} is {speed_up:.2} times as fast as the first cell{sure}.", described(keys, best))
        }
        false => format!("No cell is faster than the first one, {}.", described(keys, cells.first()?)),
    })
}

/// The smallest value of the first setting that nearly reaches the best speed, with the other settings of that cell.
fn knee_sentence(keys: &[String], cells: &[ShownCell<'_>]) -> Option<String> {
    let (key, known) = (keys.first()?, cells.iter().filter_map(|cell| Some((cell, cell.speed_up?))));
    let (best_cell, best) = known.max_by(|one, other| one.1.total_cmp(&other.1))?;
    let others = best_cell.settings.get(1..)?;
    let there = cells.iter().filter(|cell| cell.settings.get(1..) == Some(others));
    let there: Vec<(&String, f64)> =
        there.filter_map(|cell| Some((cell.settings.first()?, cell.speed_up?))).collect();
    if there.len() < 2 {
        return None;
    }
    let knee = there.iter().position(|(_, speed_up)| *speed_up >= 0.95 * best)?;
    let (value, speed_up) = there[knee];
    Some(match knee + 1 < there.len() {
        true => format!(
            "The knee is at {key}={value}: it reaches {:.0} % of the best speed, and larger values gain little.",
            100.0 * speed_up / best
        ),
        false => {
            format!("There is no knee yet: the last value, {key}={value}, is still faster than the others.")
        }
    })
}

/// The values of the first key along the x axis, a line for each combination of the others. Values that are not numbers
/// are numbered.
fn curves(keys: &[String], cells: &[ShownCell<'_>]) -> LinePlot {
    let values: Vec<&str> = {
        let mut values: Vec<&str> = Vec::new();
        for cell in cells {
            let value = cell.settings.first().map_or("", String::as_str);
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    };
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let x_of = |value: &str| {
        let place = values.iter().position(|known| *known == value).unwrap_or(0);
        numbers.as_ref().map_or(place as f64 + 1.0, |numbers| numbers[place])
    };
    let mut series: Vec<LineSeries> = Vec::new();
    for cell in cells {
        let (Some(first), Some(speed_up)) = (cell.settings.first(), cell.speed_up) else { continue };
        let others = keys.iter().zip(&cell.settings).skip(1);
        let name = others.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        let place = series.iter().position(|known| known.name == name).unwrap_or_else(|| {
            series.push(LineSeries { name, style: SeriesStyle::Marked, ..LineSeries::default() });
            series.len() - 1
        });
        series[place].points.push((x_of(first), speed_up));
        series[place].whiskers.push(cell.interval);
    }
    for line in &mut series {
        let mut both: Vec<_> = line.points.drain(..).zip(line.whiskers.drain(..)).collect();
        both.sort_by(|one, other| one.0.0.total_cmp(&other.0.0));
        (line.points, line.whiskers) = both.into_iter().unzip();
    }
    let key = keys.first().map_or("", String::as_str);
    let label = match numbers {
        Some(_) => key.to_owned(),
        None => format!(
            "{key}: {}",
            values.iter().enumerate().map(|(n, v)| format!("{}={v}", n + 1)).collect::<Vec<_>>().join(", ")
        ),
    };
    LinePlot {
        title: "Speed-up".to_owned(),
        x: LineAxis { label, ..LineAxis::default() },
        y: LineAxis { label: "speed-up (times)".to_owned(), ..LineAxis::default() },
        series,
        line: Some(ReferenceLine { value: 1.0, label: "first cell".to_owned() }),
        ..LinePlot::default()
    }
}

/// The compared figure of each cell: the values of the first key as groups, the others as series.
fn medians(keys: &[String], cells: &[ShownCell<'_>], measure: &SweepMeasure) -> Figure {
    let (mut groups, mut series): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let place = |names: &mut Vec<String>, name: String| {
        names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    };
    let mut found = Vec::new();
    for cell in cells {
        let others = keys.iter().zip(&cell.settings).skip(1);
        let name = others.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        let group = place(&mut groups, cell.settings.first().cloned().unwrap_or_default());
        let line = place(&mut series, name);
        let figure = cell.doc.at(measure.key);
        let ends = figure.at("interval");
        let whisker = ends.at("0").number().zip(ends.at("1").number());
        let whisker = whisker.or(ends.at("low").number().zip(ends.at("high").number()));
        let simulated = cell.doc.at("simulated").flag() == Some(true);
        let bar = figure.at("median").number().map(|value| Bar { value, whisker, simulated });
        found.push((group, line, bar));
    }
    let mut bars = vec![vec![None; series.len()]; groups.len()];
    found.into_iter().for_each(|(group, line, bar)| bars[group][line] = bar);
    Figure {
        title: format!("{} of each cell", measure.label),
        x_label: keys.first().cloned().unwrap_or_default(),
        y_label: measure.label.to_owned(),
        groups,
        series,
        bars,
        ..Figure::default()
    }
}

fn grid(rows: &str, columns: &str, cells: &[ShownCell<'_>], measure: &SweepMeasure) -> HeatMap {
    let of = |index: usize| -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for cell in cells.iter().filter_map(|cell| cell.settings.get(index)) {
            if !values.contains(cell) {
                values.push(cell.clone());
            }
        }
        values
    };
    let (row_names, column_names) = (of(0), of(1));
    let value = |row: &String, column: &String| {
        let cell = cells.iter().find(|cell| cell.settings.as_slice() == [row.clone(), column.clone()])?;
        cell.doc.at(&format!("{}.median", measure.key)).number()
    };
    let values: Vec<Vec<Option<f64>>> =
        row_names.iter().map(|row| column_names.iter().map(|column| value(row, column)).collect()).collect();
    let known = || values.iter().flatten().flatten().copied();
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    HeatMap {
        title: format!("{} of each combination", measure.label),
        x_label: columns.to_owned(),
        y_label: rows.to_owned(),
        value_label: measure.label.to_owned(),
        columns: column_names,
        rows: row_names,
        values,
        digits: if high < 10.0 { 2 } else { 0 },
        // Cells that hardly differ have the same shade.
        range: Some((low.min(0.9 * high), high)),
    }
}

fn cells_table(keys: &[String], cells: &[ShownCell<'_>], measure: &SweepMeasure) -> DataTable {
    let with_saves = !measure.more;
    let row = |cell: &ShownCell<'_>| -> Vec<Cell> {
        let mut row: Vec<Cell> = cell.settings.iter().map(|value| value.clone().into()).collect();
        let of = |key: &str| cell.doc.at(key);
        row.push(of("samples_per_second.median").cell(rate));
        row.push(of("mb_per_second.median").cell(rate));
        row.push(of("au_percent.median").cell(percent));
        if with_saves {
            row.push(of("blocked_seconds.median").cell(seconds));
        }
        row.push(of("speed_up").cell(|value| format!("{value:.2}")));
        let interval =
            cell.interval.map_or("too few runs".to_owned(), |(low, high)| format!("{low:.2} to {high:.2}"));
        row.push(interval.into());
        row.push(of("samples_per_second.values").each().len().to_string().into());
        let notes: Vec<String> = of("notes").each().iter().map(Doc::shown).collect();
        let tone = if of("broken").each().is_empty() { PageTone::Neutral } else { PageTone::Bad };
        row.push(Cell::from(notes.join("; ")).toned(tone));
        row
    };
    let mut header: Vec<String> = keys.to_vec();
    header.extend(["samples/s", "MB/s", "AU %"].map(str::to_owned));
    header.extend(with_saves.then(|| "blocked".to_owned()));
    header.extend(["speed-up", "95 % interval", "runs", "note"].map(str::to_owned));
    DataTable {
        caption: "Cells".to_owned(),
        header,
        rows: cells.iter().map(row).collect(),
        text_columns: keys.len(),
    }
}

fn ceiling(study: &Doc<'_>) -> PageSection {
    let own = study.at("calibration");
    let section = PageSection::new(
        "ceiling",
        "The benchmark's own ceiling",
        "The same plan on a backend that reads nothing: what feedline and this host can reach at most.",
    );
    section.table(DataTable {
        caption: "Ceiling".to_owned(),
        header: ["figure", "value"].map(str::to_owned).into(),
        rows: vec![
            vec!["AU %".into(), own.at("au_percent").cell(percent)],
            vec!["samples/s".into(), own.at("samples_per_second").cell(rate)],
            vec!["own time per step".into(), own.at("harness_seconds_per_step").cell(seconds)],
        ],
        text_columns: 1,
    })
}

/// The settings of a study, as its document has them.
fn settings(study: &Doc<'_>) -> PageSection {
    let section = PageSection::new("settings", "Settings", "What was asked for, and which version ran it.");
    let section = section.table(DataTable {
        caption: "Study".to_owned(),
        header: ["what", "value"].map(str::to_owned).into(),
        rows: [
            "version",
            "workload",
            "store",
            "ranks",
            "sweep.sweep",
            "sweep.store",
            "sweep.data_folder",
            "sweep.spec_digest",
        ]
        .iter()
        .map(|key| (key, study.at(key)))
        .filter(|(_, value)| value.exists())
        .map(|(key, value)| vec![key.trim_start_matches("sweep.").replace('_', " ").into(), value.plain()])
        .collect(),
        text_columns: 2,
    });
    let text = study.value().and_then(|value| serde_json::to_string_pretty(value).ok()).unwrap_or_default();
    section.source("The whole document", text)
}

/// The page of a capacity search.
pub fn capacity(document: &Value, version: &str) -> HtmlPage {
    let study = Doc::new(document);
    let trials = study.at("trials").each();
    let target = study.at("au_target_percent").number();
    let section = PageSection::new(
        "capacity",
        "Accelerators that the storage can feed",
        "AU for each number of accelerators that was tried. The answer is the largest number that meets the target.",
    );
    let statement = study.at("confidence.statement").text().map(|text| format!("Confidence: {text}."));
    let limit = (study.at("instrument_is_the_limit").flag() == Some(true)).then(|| {
        "The instrument is the limit, not the storage: use more hosts to find the capacity of the storage.".to_owned()
    });
    let answer = study.at("answer").text().map(|answer| format!("Answer: {answer}."));
    let section = section.finding(answer).finding(statement).finding(limit);
    let caption = "Each mark is a run; whiskers are 95 % intervals; the line is the target";
    let plot = Plot::Lines(capacity_plot(&trials, target));
    let row = |trial: &Doc<'_>| -> Vec<Cell> {
        let met = trial.at("met").flag();
        let word = Cell::from(if met == Some(true) { "met" } else { "not met" });
        let interval = trial.at("au_interval");
        let ends = interval.at("low").number().zip(interval.at("high").number());
        vec![
            trial.at("ranks").cell(whole),
            trial.at("depth").plain(),
            trial.at("au_percent").cell(percent),
            ends.map_or("n/a".to_owned(), |(low, high)| format!("{low:.2} to {high:.2}")).into(),
            trial.at("mb_per_second").cell(rate),
            trial.at("steps").cell(whole),
            word.toned(if met == Some(true) { PageTone::Good } else { PageTone::Bad }),
        ]
    };
    let table = DataTable {
        caption: "Runs".to_owned(),
        header: ["accelerators", "run", "AU %", "95 % interval", "MB/s", "steps", "target"]
            .map(str::to_owned)
            .into(),
        rows: trials.iter().map(row).collect(),
        text_columns: 0,
    };
    let mut evidence =
        PageSection::new("evidence", "Confidence", "What the answer rests on, and what it does not cover.");
    for key in ["confidence.evidence", "confidence.not_covered"] {
        let lead = if key.ends_with("covered") { "Not covered: " } else { "" };
        let lines = study.at(key).each();
        evidence.blocks.extend(lines.iter().map(|line| PageBlock::Text(format!("{lead}{}.", line.shown()))));
    }
    let sections = vec![
        section.plot("capacity", caption, plot, None).table(table),
        evidence,
        ceiling(&study),
        settings(&study),
    ];
    let name = study.at("workload").text().unwrap_or("capacity").to_owned();
    let target = target.map_or(String::new(), |target| format!(" at AU {target:.0} %"));
    let lead = format!("Capacity search{target}, {} backend", study.at("store").shown());
    page(name, lead, &study, version, sections)
}

/// Two coordinates, or the ends of an interval.
type Pair = (f64, f64);

fn capacity_plot(trials: &[Doc<'_>], target: Option<f64>) -> LinePlot {
    let mut points: Vec<(Pair, Option<Pair>)> = Vec::new();
    for trial in trials {
        let (Some(ranks), Some(au)) = (trial.at("ranks").number(), trial.at("au_percent").number()) else {
            continue;
        };
        let interval = trial.at("au_interval");
        let whisker = interval.at("low").number().zip(interval.at("high").number());
        // The later run of a number is the more thorough one.
        points.retain(|((known, _), _)| *known != ranks);
        points.push(((ranks, au), whisker));
    }
    points.sort_by(|one, other| one.0.0.total_cmp(&other.0.0));
    let (points, whiskers) = points.into_iter().unzip();
    LinePlot {
        title: "AU over accelerators".to_owned(),
        x: LineAxis { label: "emulated accelerators".to_owned(), ..LineAxis::default() },
        y: LineAxis { label: "AU in %".to_owned(), ..LineAxis::default() },
        series: vec![LineSeries { name: "AU".to_owned(), points, whiskers, style: SeriesStyle::Marked }],
        line: target.map(|value| ReferenceLine { value, label: format!("target {value:.0} %") }),
        ..LinePlot::default()
    }
}

/// The page of a stall analysis.
pub fn stall(document: &Value, version: &str) -> HtmlPage {
    let study = Doc::new(document);
    let parts = [
        ("compute", "parts.compute_seconds", "parts.ingestion_mb_per_second"),
        ("preprocessing stall", "parts.prep_stall_seconds", "parts.prep_mb_per_second"),
        ("fetch stall", "parts.fetch_stall_seconds", "parts.fetch_mb_per_second"),
    ];
    let total = study.at("parts.total_seconds").number().unwrap_or(0.0);
    let value = |key: &str| study.at(key).number().unwrap_or(0.0);
    let figure = Figure {
        title: "Time of the steps".to_owned(),
        x_label: "run".to_owned(),
        y_label: "seconds".to_owned(),
        groups: vec![study.at("workload").shown()],
        series: parts.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        bars: vec![
            parts
                .iter()
                .map(|(_, key, _)| Some(Bar { value: value(key), whisker: None, simulated: false }))
                .collect(),
        ],
        stacked: true,
        ..Figure::default()
    };
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (name, key, speed) in parts {
        let share = if total > 0.0 { format!("{:.1}", 100.0 * value(key) / total) } else { "n/a".to_owned() };
        rows.push(vec![name.into(), study.at(key).cell(seconds), share.into(), study.at(speed).cell(rate)]);
    }
    rows.push(vec![
        "total".into(),
        study.at("parts.total_seconds").cell(seconds),
        "100.0".into(),
        study.at("parts.cold_mb_per_second").cell(rate),
    ]);
    let table = DataTable {
        caption: "Time and rates".to_owned(),
        header: ["part", "time", "%", "MB/s"].map(str::to_owned).into(),
        rows,
        text_columns: 1,
    };
    let verdict = study.at("verdict").text().map(|text| format!("{}.", capitalised(text)));
    let section = PageSection::new(
        "stall",
        "Why accelerators wait",
        "The time of the steps: computing, waiting for preprocessing, and waiting for the storage.",
    );
    let mut section = section.finding(verdict);
    for step in study.at("next_steps").each() {
        section = section.text(format!("Next step: {}.", step.shown()));
    }
    let section =
        section.plot("stall", "Sum of the parts of all steps", Plot::Bars(figure), None).table(table);
    let name = study.at("workload").text().unwrap_or("stall").to_owned();
    let lead =
        format!("Stall analysis: {} ranks, {} backend", study.at("ranks").shown(), study.at("store").shown());
    page(name, lead, &study, version, vec![section, what_if(&study), settings(&study)])
}

fn what_if(study: &Doc<'_>) -> PageSection {
    let points: Vec<Doc<'_>> = study.at("what_if").each();
    let section = PageSection::new(
        "what-if",
        "What a cache would gain",
        "The predicted throughput if a share of the bytes came from memory.",
    );
    let needed = study.at("cached_share_needed").number().map(|share| {
        format!(
            "With {:.0} % of the bytes in memory the accelerators would not wait any more.",
            100.0 * share
        )
    });
    let line: Vec<(f64, f64)> = points
        .iter()
        .filter_map(|point| Some((point.at("cached_percent").number()?, point.at("mb_per_second").number()?)))
        .collect();
    let demand = study.at("parts.ingestion_mb_per_second").number();
    let plot = LinePlot {
        title: "Predicted throughput with a cache".to_owned(),
        x: LineAxis { label: "share of the bytes in memory, in %".to_owned(), ..LineAxis::default() },
        y: LineAxis { label: "MB/s".to_owned(), ..LineAxis::default() },
        series: vec![LineSeries {
            name: "predicted".to_owned(),
            points: line,
            style: SeriesStyle::Marked,
            ..LineSeries::default()
        }],
        line: demand.map(|value| ReferenceLine {
            value,
            label: format!("demand of the accelerators, {} MB/s", significant(value)),
        }),
        ..LinePlot::default()
    };
    let row = |point: &Doc<'_>| -> Vec<Cell> {
        vec![point.at("cached_percent").cell(whole), point.at("mb_per_second").cell(rate)]
    };
    let table = DataTable {
        caption: "Predicted throughput".to_owned(),
        header: ["in memory %", "MB/s"].map(str::to_owned).into(),
        rows: points.iter().map(row).collect(),
        text_columns: 0,
    };
    section
        .finding(needed)
        .plot("stall-what-if", "A prediction, not a measurement", Plot::Lines(plot), None)
        .table(table)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
