//! The parts of a page: sections with sentences, tables, plots and notices, and how each becomes HTML. All text is
//! escaped here, so that a file name with markup in it is text.

use std::fmt::Write;

use serde_json::{Value, json};

use super::audit::FindingCard;
use crate::plot::escaped;
use crate::plot::{AxisScale, LinePlot, Plot, PlotMedium, ValueUnit};

/// A page: a title, a line below it, the status, and sections.
#[derive(Clone, Debug, Default)]
pub struct HtmlPage {
    pub(super) title: String,
    pub(super) lead: String,
    /// The status in a word, and how it is to be taken.
    pub(super) badge: Option<(String, PageTone)>,
    pub(super) notices: Vec<Notice>,
    pub(super) sections: Vec<PageSection>,
    /// Which program made the page.
    pub(super) footer: String,
}

/// How a status or a notice is to be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageTone {
    Good,
    #[default]
    Neutral,
    Doubtful,
    Bad,
}

impl PageTone {
    pub(super) fn class(self) -> &'static str {
        match self {
            PageTone::Good => "good",
            PageTone::Neutral => "neutral",
            PageTone::Doubtful => "doubtful",
            PageTone::Bad => "bad",
        }
    }
}

/// Something that a reader has to know before the figures.
#[derive(Clone, Debug)]
pub struct Notice {
    pub tone: PageTone,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct PageSection {
    pub id: &'static str,
    pub title: String,
    pub blocks: Vec<PageBlock>,
}

#[derive(Clone, Debug)]
pub(super) enum PageBlock {
    /// A sentence that says what the section shows, or what follows from it.
    Text(String),
    /// A sentence that follows from the figures.
    Finding(String),
    Table(DataTable),
    /// A table that is shown on request.
    Folded {
        summary: String,
        table: DataTable,
    },
    Plot(Box<PlotBlock>),
    Cards(Vec<Card>),
    /// Findings about a job.
    Findings(Vec<FindingCard>),
    /// A text that is shown on request.
    Source {
        summary: String,
        text: String,
    },
    /// A command, ready to be copied.
    Command(String),
}

/// A plot with its caption and its numbers.
#[derive(Clone, Debug)]
pub(super) struct PlotBlock {
    /// The name of its file, without the extension.
    pub name: String,
    pub plot: Plot,
    /// The caption: what is shown.
    pub caption: String,
    /// A plot that can be enlarged with a pointer.
    pub live: bool,
    pub numbers: Option<DataTable>,
}

/// A figure in large type.
#[derive(Clone, Debug)]
pub(super) struct Card {
    pub name: String,
    pub cell: Cell,
    pub unit: &'static str,
    pub note: String,
    pub tone: PageTone,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DataTable {
    pub caption: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// The number of columns at the start that hold text.
    pub text_columns: usize,
}

/// A cell of a table. One that is from a document says where in it, so that page and document can be compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub text: String,
    pub key: Option<String>,
    pub value: Option<Value>,
    pub tone: Option<PageTone>,
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell { text, ..Cell::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

impl Cell {
    pub(super) fn toned(self, tone: PageTone) -> Cell {
        Cell { tone: Some(tone), ..self }
    }

    /// Whether it is a remark in a column of numbers.
    fn is_words(&self) -> bool {
        let first = self.text.chars().next();
        self.text != "n/a" && first.is_some_and(|first| !first.is_ascii_digit() && first != '-')
    }

    /// The attributes that say where the figure is from.
    fn origin(&self) -> String {
        let value = self.value.as_ref().unwrap_or(&Value::Null);
        let value = if value.is_object() || value.is_array() { "" } else { &escaped(&value.to_string()) };
        match &self.key {
            Some(key) => format!(" data-key=\"{}\" data-value=\"{value}\"", escaped(key)),
            None => String::new(),
        }
    }
}

impl PageSection {
    pub(super) fn new(id: &'static str, title: &str, text: &str) -> PageSection {
        PageSection { id, title: title.to_owned(), blocks: vec![PageBlock::Text(text.to_owned())] }
    }

    pub(super) fn text(mut self, text: impl Into<String>) -> PageSection {
        self.blocks.push(PageBlock::Text(text.into()));
        self
    }

    pub(super) fn finding(mut self, text: impl Into<Option<String>>) -> PageSection {
        self.blocks.extend(text.into().map(PageBlock::Finding));
        self
    }

    pub(super) fn table(mut self, table: DataTable) -> PageSection {
        if !table.rows.is_empty() {
            self.blocks.push(PageBlock::Table(table));
        }
        self
    }

    /// Adds a table that is shown on request.
    pub(super) fn folded(mut self, summary: &str, table: DataTable) -> PageSection {
        self.blocks.push(PageBlock::Folded { summary: summary.to_owned(), table });
        self
    }

    pub(super) fn plot(
        mut self,
        name: &str,
        caption: &str,
        plot: Plot,
        numbers: Option<DataTable>,
    ) -> PageSection {
        let (name, caption) = (name.to_owned(), caption.to_owned());
        self.blocks.push(PageBlock::Plot(Box::new(PlotBlock { name, plot, caption, live: false, numbers })));
        self
    }

    /// Adds a plot that can be enlarged with a pointer.
    pub(super) fn live_plot(
        mut self,
        name: &str,
        caption: &str,
        plot: LinePlot,
        numbers: Option<DataTable>,
    ) -> PageSection {
        let (name, caption, plot) = (name.to_owned(), caption.to_owned(), Plot::Lines(plot));
        self.blocks.push(PageBlock::Plot(Box::new(PlotBlock { name, plot, caption, live: true, numbers })));
        self
    }

    pub(super) fn source(mut self, summary: &str, text: impl Into<String>) -> PageSection {
        self.blocks.push(PageBlock::Source { summary: summary.to_owned(), text: text.into() });
        self
    }

    fn html(&self) -> String {
        let mut html = format!("<section id=\"{}\"><h2>{}</h2>\n", self.id, escaped(&self.title));
        self.blocks.iter().for_each(|block| html.push_str(&block.html()));
        html + "</section>\n"
    }
}

impl PageBlock {
    fn html(&self) -> String {
        match self {
            PageBlock::Text(text) => format!("<p>{}</p>\n", escaped(text)),
            PageBlock::Finding(text) => format!("<p class=\"finding\">{}</p>\n", escaped(text)),
            PageBlock::Table(table) => table.html(),
            PageBlock::Folded { summary, table } => {
                format!("<details><summary>{}</summary>{}</details>\n", escaped(summary), table.html())
            }
            PageBlock::Plot(plot) => plot.html(),
            PageBlock::Cards(cards) => {
                let cards: String = cards.iter().map(Card::html).collect();
                format!("<dl class=\"cards\">{cards}</dl>\n")
            }
            PageBlock::Findings(cards) => cards.iter().map(FindingCard::html).collect(),
            PageBlock::Source { summary, text } => format!(
                "<details><summary>{}</summary><pre tabindex=\"0\">{}</pre></details>\n",
                escaped(summary),
                escaped(text)
            ),
            PageBlock::Command(text) => {
                format!("<pre class=\"command\" tabindex=\"0\"><code>{}</code></pre>\n", escaped(text))
            }
        }
    }
}

impl Card {
    fn html(&self) -> String {
        let Card { name, cell, unit, note, tone } = self;
        format!(
            "<div class=\"card {}\"><dt>{}</dt><dd><span class=\"figure\"{}>{}</span> \
             <span class=\"unit\">{unit}</span>\
             <span class=\"note\">{}</span></dd></div>",
            tone.class(),
            escaped(name),
            cell.origin(),
            escaped(&cell.text),
            escaped(note),
        )
    }
}

impl FindingCard {
    fn html(&self) -> String {
        let FindingCard { name, title, word, tone, cost, lines } = self;
        let cost = cost
            .as_ref()
            .map_or(String::new(), |cost| format!(" <span class=\"price\">{}</span>", escaped(cost)));
        let mut html = format!(
            "<article class=\"fault {}\" data-finding=\"{name}\"><h3><span class=\"word\">{word}</span> {}{cost}</h3>\n\
             <p class=\"name\"><code>{name}</code></p><dl>",
            tone.class(),
            escaped(title),
            name = escaped(name),
        );
        for (label, text) in lines {
            let text: Vec<String> = text.lines().map(|line| format!("<dd>{}</dd>", escaped(line))).collect();
            let _ = write!(html, "<div><dt>{label}</dt>{}</div>", text.concat());
        }
        html + "</dl></article>\n"
    }
}

impl DataTable {
    fn html(&self) -> String {
        let DataTable { caption, header, rows, text_columns } = self;
        let label = escaped(caption);
        let mut html = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{label}\"><table><caption>{label}\
             </caption><thead><tr>"
        );
        for name in header {
            let _ = write!(html, "<th scope=\"col\">{}</th>", escaped(name));
        }
        html.push_str("</tr></thead><tbody>\n");
        for row in rows {
            html.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let is_text = column < *text_columns || cell.is_words();
                let tone = cell.tone.map_or(String::new(), |tone| format!(" {}", tone.class()));
                let class = format!("{}{tone}", if is_text { "text" } else { "number" });
                let (tag, scope) = if column == 0 { ("th", " scope=\"row\"") } else { ("td", "") };
                let text = escaped(&cell.text);
                let _ = write!(html, "<{tag}{scope} class=\"{class}\"{}>{text}</{tag}>", cell.origin());
            }
            html.push_str("</tr>\n");
        }
        html + "</tbody></table></div>\n"
    }
}

impl PlotBlock {
    fn html(&self) -> String {
        let (name, label) = (escaped(&self.name), escaped(self.plot.title()));
        let live = match (&self.plot, self.live) {
            (Plot::Lines(plot), true) => format!(
                "<div class=\"live\"></div><script type=\"application/json\">{}</script>",
                in_script(&live_data(plot))
            ),
            _ => String::new(),
        };
        let numbers = self.numbers.as_ref().filter(|table| !table.rows.is_empty());
        let numbers = numbers.map_or(String::new(), |table| {
            format!(
                "<details class=\"numbers\"><summary>The numbers of this plot</summary>{}</details>",
                table.html()
            )
        });
        format!(
            "<figure class=\"plot\" data-plot=\"{name}\"><figcaption><b>{label}.</b> {}</figcaption>\
             <div class=\"scroll still\" tabindex=\"0\" role=\"group\" aria-label=\"{label}\">{}</div>\
             {live}{numbers}</figure>\n",
            escaped(&self.caption),
            self.plot.svg(PlotMedium::Page),
        )
    }
}

/// The data of a plot for the page's script. All series have the values of one list of x, or null.
fn live_data(plot: &LinePlot) -> Value {
    let mut x: Vec<f64> = plot.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x).collect();
    x.sort_by(f64::total_cmp);
    x.dedup();
    let values = |points: &[(f64, f64)]| -> Vec<Option<f64>> {
        let mut points = points.iter().peekable();
        let at = |x: &f64| {
            let value = points.next_if(|(there, _)| there == x).map(|(_, y)| short(*y));
            while points.next_if(|(there, _)| there == x).is_some() {}
            value
        };
        x.iter().map(at).collect()
    };
    let series: Vec<Value> = plot
        .series
        .iter()
        .map(|series| json!({"name": series.name, "y": values(&series.points), "style": format!("{:?}", series.style)}))
        .collect();
    json!({
        "x": x.iter().map(|x| short(*x)).collect::<Vec<_>>(),
        "series": series,
        "xLabel": plot.x.label,
        "yLabel": plot.y.label,
        "xScale": if plot.x.scale == AxisScale::Percentile { "percentile" } else { "linear" },
        "yScale": if plot.y.scale == AxisScale::Log { "log" } else { "linear" },
        "yUnit": if plot.y.unit == ValueUnit::Duration { "duration" } else { "number" },
        "borders": plot.borders,
        "line": plot.line.as_ref().map(|line| json!({"value": line.value, "label": line.label})),
    })
}

/// A number with as many digits as a screen can show.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let power = 10f64.powi(6 - value.abs().log10().floor() as i32);
    if power.is_finite() { (value * power).round() / power } else { value }
}

/// JSON inside a script element, which `</script>` or a comment would end.
pub(super) fn in_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e")
}

impl HtmlPage {
    /// The plots of the page and the names of their files.
    pub fn plots(&self) -> Vec<(&str, &Plot)> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        let plots = blocks.filter_map(|block| match block {
            PageBlock::Plot(plot) => Some((plot.name.as_str(), &plot.plot)),
            _ => None,
        });
        plots.collect()
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    /// The body of the page.
    pub(super) fn body(&self) -> String {
        let badge = self.badge.as_ref().map_or(String::new(), |(text, tone)| {
            format!(" <span class=\"badge {}\">{}</span>", tone.class(), escaped(text))
        });
        let mut html = format!(
            "<header><h1>{}{badge}</h1>\n<p class=\"lead\">{}</p></header>\n<main>\n",
            escaped(&self.title),
            escaped(&self.lead)
        );
        for Notice { tone, text } in &self.notices {
            let _ =
                writeln!(html, "<p class=\"notice {}\" role=\"note\">{}</p>", tone.class(), escaped(text));
        }
        html.push_str(&self.contents());
        self.sections.iter().for_each(|section| html.push_str(&section.html()));
        let _ = writeln!(html, "</main>\n<footer><p>{}</p></footer>", escaped(&self.footer));
        html
    }

    /// Links to the sections.
    fn contents(&self) -> String {
        let links = self
            .sections
            .iter()
            .map(|section| format!("<li><a href=\"#{}\">{}</a></li>", section.id, escaped(&section.title)));
        format!("<nav aria-label=\"Sections\"><ul>{}</ul></nav>\n", links.collect::<String>())
    }
}
