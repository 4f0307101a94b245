//! Pages in headless Chromium, through scripts/browser_check.js, and what every page must fulfil.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::util::Dir;

/// Opening a page at every width, in both colour schemes, takes a few seconds; the limit allows for a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// What the browser found in a page.
pub(super) struct OpenedPage(Value);

/// Opens pages of a folder.
pub(super) fn open(dir: &Dir, pages: &[&str]) -> Vec<OpenedPage> {
    let modules = std::env::var("FEEDLINE_TEST_BROWSER")
        .expect("FEEDLINE_TEST_BROWSER is not set: run scripts/test, which installs what drives the browser");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/browser_check.js");
    let command =
        dir.command(Path::new("node"), &[script.to_str().unwrap()]).args(pages).env("NODE_PATH", modules);
    let done = command.start().wait_for(TIME_LIMIT).exits(0);
    let found: Vec<Value> = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(found.len(), pages.len());
    found.into_iter().map(OpenedPage).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

impl OpenedPage {
    pub(super) fn text(&self) -> &str {
        self.0["text"].as_str().unwrap()
    }

    pub(super) fn plots(&self) -> Vec<&str> {
        list(&self.0["plots"]).iter().map(|plot| plot["name"].as_str().unwrap()).collect()
    }

    pub(super) fn has_plot(&self, name: &str) -> bool {
        self.plots().contains(&name)
    }

    /// How many cells show a figure whose path has this start and end.
    pub(super) fn cells_of(&self, start: &str, end: &str) -> usize {
        let keys = list(&self.0["cells"]).iter().filter_map(|cell| cell["key"].as_str());
        keys.filter(|key| key.starts_with(start) && key.ends_with(end)).count()
    }

    /// What holds for every page.
    pub(super) fn check(&self) {
        let page = &self.0["file"];
        assert_eq!(list(&self.0["errors"]), [] as [Value; 0], "{page}: messages on the console");
        assert_eq!(list(&self.0["requests"]), [] as [Value; 0], "{page}: requests");
        for plot in list(&self.0["plots"]) {
            assert!(plot["shapes"].as_u64() > Some(0), "{page}: nothing drawn: {plot}");
            assert!(!list(&plot["axes"]).is_empty(), "{page}: no axis has a name: {plot}");
            assert!(plot["axes"][0].as_str().is_some_and(|name| !name.is_empty()), "{page}: {plot}");
            assert_eq!(plot["numbers"], true, "{page}: without numbers: {plot}");
            let is_live = plot["live"] == true;
            // A blank canvas has one colour.
            assert!(!is_live || plot["inked"].as_u64() > Some(2), "{page}: blank: {plot}");
        }
        for (view, found) in self.0["overflow"].as_object().unwrap() {
            assert_eq!(found["page"], 0, "{page} at {view}: {found}");
            assert_eq!(list(&found["elements"]), [] as [Value; 0], "{page} at {view}");
        }
        for (scheme, faults) in self.0["axe"].as_object().unwrap() {
            let serious = list(faults)
                .iter()
                .find(|fault| ["serious", "critical"].contains(&fault["impact"].as_str().unwrap()));
            assert_eq!(serious, None, "{page} in {scheme}");
        }
        assert!(
            (1..=3).contains(&self.0["printedPages"].as_u64().unwrap()),
            "{page}: {}",
            self.0["printedPages"]
        );
        let still = &self.0["withoutScript"];
        assert!(still["tables"].as_u64() > Some(0), "{page}");
        assert_eq!(still["pictures"], still["plots"], "{page}: every plot is there without JavaScript");
    }

    /// Compares every figure of the page with the document that it names.
    pub(super) fn equals(&self, document: &Value) {
        let cells = list(&self.0["cells"]);
        assert!(!cells.is_empty(), "{}", self.0["file"]);
        for cell in cells {
            let (key, text) = (cell["key"].as_str().unwrap(), cell["text"].as_str().unwrap());
            let found = value_at(document, key);
            let written: Value = serde_json::from_str(cell["value"].as_str().unwrap()).unwrap_or(Value::Null);
            if !matches!(found, Value::Object(_) | Value::Array(_)) {
                assert_eq!(written, found, "{key}");
            }
            assert_eq!(text == "n/a", found.is_null(), "{key}: '{text}' for {found}");
            let shown_digits = text.replace(',', "");
            if let (Some(shown), Some(number)) = (shown_digits.parse::<f64>().ok(), found.as_f64()) {
                // Half of the last digit that is shown, and a little for numbers that are rounded to three digits.
                let decimals = shown_digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
                let half = 0.501 * 0.1_f64.powi(i32::try_from(decimals).unwrap());
                let near = |number: f64| (shown - number).abs() <= half.max(0.006 * number.abs());
                // Shares are shown in percent.
                assert!(near(number) || near(100.0 * number), "{key}: {text} for {number}");
            }
        }
    }
}

/// The value at a path. Keys may have dots in them.
fn value_at(document: &Value, path: &str) -> Value {
    if path.is_empty() {
        return document.clone();
    }
    let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
    for end in ends {
        let (name, rest) = (&path[..end], path.get(end + 1..).unwrap_or(""));
        let next = match document {
            Value::Array(list) => name.parse::<usize>().ok().and_then(|index| list.get(index)),
            document => document.get(name),
        };
        if let Some(next) = next {
            return value_at(next, rest);
        }
    }
    Value::Null
}
