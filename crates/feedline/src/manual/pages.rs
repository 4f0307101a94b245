//! The pages of the book that the program contains: their list, a page by its name, and the lines with given words.

use std::fmt::Write;

use model::spec::nearest;

/// A page of the book. `build.rs` makes the table from docs/SUMMARY.md.
#[derive(Debug)]
pub(crate) struct DocPage {
    /// The part of the book.
    pub part: &'static str,
    pub title: &'static str,
    /// Below docs/, with `.md`.
    pub path: &'static str,
    pub text: &'static str,
}

/// All pages, in the order of the book.
pub(crate) const PAGES: &[DocPage] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

impl DocPage {
    /// The path without `.md`, which is always unique: `explanation/cache`.
    pub(crate) fn full_name(&self) -> &'static str {
        self.path.strip_suffix(".md").unwrap_or(self.path)
    }

    /// The name that `feedline docs` lists: `cache`, or the full name if another page has the same file name.
    pub(crate) fn name(&self) -> &'static str {
        let name = stem(self.full_name());
        match PAGES.iter().filter(|page| stem(page.full_name()) == name).count() {
            1 => name,
            _ => self.full_name(),
        }
    }
}

fn stem(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The page with this name: `cache`, `explanation/cache`, or the path of its file.
pub(crate) fn named(asked: &str) -> Result<&'static DocPage, String> {
    let name = asked.trim_start_matches("./").trim_start_matches("docs/");
    let name = name.strip_suffix(".md").unwrap_or(name);
    let found = PAGES.iter().find(|page| page.full_name() == name || page.name() == name);
    found.ok_or_else(|| unknown(asked, name))
}

fn unknown(asked: &str, name: &str) -> String {
    let same_stem: Vec<&str> =
        PAGES.iter().map(DocPage::full_name).filter(|full| stem(full) == stem(name)).collect();
    if let [_, _, ..] = same_stem.as_slice() {
        return format!("several pages are named '{asked}'; use one of {}", same_stem.join(", "));
    }
    let near = same_stem.first().copied().or_else(|| {
        let names: Vec<&str> = PAGES.iter().map(DocPage::name).collect();
        nearest(stem(name), &names)
    });
    match near {
        Some(near) => format!("there is no page '{asked}'; did you mean '{near}'?"),
        None => format!("there is no page '{asked}'; 'feedline docs' lists them, and --search finds words"),
    }
}

/// The pages by part, as names and titles.
pub(crate) fn parts() -> Vec<(&'static str, Vec<&'static DocPage>)> {
    let mut parts: Vec<(&str, Vec<&DocPage>)> = Vec::new();
    for page in PAGES {
        match parts.last_mut() {
            Some((part, pages)) if *part == page.part => pages.push(page),
            _ => parts.push((page.part, vec![page])),
        }
    }
    parts
}

/// A part of a page that has all words of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageMatch {
    pub page: &'static str,
    /// The heading above it.
    pub heading: &'static str,
    /// The first line, counted from 1.
    pub line: usize,
    pub text: String,
}

/// The lines with all of these words. Case does not matter. If no line has all of them, the paragraphs that do.
pub(crate) fn search(words: &[String]) -> Vec<PageMatch> {
    let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
    let has_all = |found: &PageMatch| {
        let text = found.text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    };
    let found = |parts: fn(&'static DocPage) -> Vec<PageMatch>| -> Vec<PageMatch> {
        PAGES.iter().flat_map(parts).filter(has_all).collect()
    };
    let by_line = found(lines);
    if by_line.is_empty() { found(paragraphs) } else { by_line }
}

/// Every line of a page that is not empty.
fn lines(page: &'static DocPage) -> Vec<PageMatch> {
    let (mut heading, mut is_code) = (page.title, false);
    let mut lines = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        is_code ^= line.starts_with("```");
        if let Some(title) = line.strip_prefix('#').filter(|_| !is_code) {
            heading = title.trim_start_matches('#').trim();
        }
        if !line.trim().is_empty() {
            lines.push(PageMatch {
                page: page.name(),
                heading,
                line: number + 1,
                text: line.trim().to_owned(),
            });
        }
    }
    lines
}

/// Every paragraph of a page: neighbouring lines below the same heading.
fn paragraphs(page: &'static DocPage) -> Vec<PageMatch> {
    let mut paragraphs: Vec<PageMatch> = Vec::new();
    let mut end = 0;
    for line in lines(page) {
        let next = line.line;
        match paragraphs.last_mut() {
            Some(paragraph) if next == end + 1 && paragraph.heading == line.heading => {
                paragraph.text.push(' ');
                paragraph.text.push_str(&line.text);
            }
            _ => paragraphs.push(line),
        }
        end = next;
    }
    paragraphs
}

/// The list of `feedline docs`.
pub(crate) fn list() -> String {
    let mut text = String::new();
    let width = PAGES.iter().map(|page| page.name().len()).max().unwrap_or_default();
    for (part, pages) in parts() {
        let _ = writeln!(text, "{part}");
        for page in pages {
            let _ = writeln!(text, "  {:<width$}  {}", page.name(), page.title);
        }
        text.push('\n');
    }
    text.push_str("'feedline docs NAME' prints a page; 'feedline docs --search WORD...' finds lines.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_its_name_and_by_its_path() {
        for asked in [
            "cache",
            "explanation/cache",
            "docs/explanation/cache.md",
            "./docs/explanation/cache.md",
            "cache.md",
        ] {
            assert_eq!(named(asked).unwrap().path, "explanation/cache.md", "{asked}");
        }
    }

    #[test]
    fn an_unknown_page_gets_the_nearest() {
        assert_eq!(named("cahce").unwrap_err(), "there is no page 'cahce'; did you mean 'cache'?");
        assert_eq!(
            named("guides/cache").unwrap_err(),
            "there is no page 'guides/cache'; did you mean 'explanation/cache'?"
        );
        assert_eq!(
            named("xyzzy").unwrap_err(),
            "there is no page 'xyzzy'; 'feedline docs' lists them, and --search finds words"
        );
    }

    #[test]
    fn every_name_leads_to_its_page() {
        assert!(PAGES.len() > 20, "{}", PAGES.len());
        for page in PAGES {
            for name in [page.name(), page.full_name()] {
                assert_eq!(named(name).unwrap().path, page.path);
            }
            assert!(
                !page.part.is_empty()
                    && !page.title.is_empty()
                    && page.text.starts_with('#') | page.text.starts_with("<!--")
            );
        }
    }

    #[test]
    fn a_search_finds_lines_then_paragraphs() {
        static PAGE: DocPage = DocPage {
            part: "p",
            title: "T",
            path: "p/t.md",
            text: "# T\n\none two\nthree\n\n## Next\n```\n# four\n```\n",
        };
        let found = |parts: Vec<PageMatch>| -> Vec<(&str, usize, String)> {
            parts.into_iter().map(|part| (part.heading, part.line, part.text)).collect()
        };
        let all = found(lines(&PAGE));
        assert_eq!(all[1..3], [("T", 3, "one two".into()), ("T", 4, "three".into())]);
        assert_eq!(all[5], ("Next", 8, "# four".into()));
        assert_eq!(found(paragraphs(&PAGE))[1], ("T", 3, "one two three".into()));
        let words = |words: &[&str]| search(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        let cache = words(&["PAGE", "cache"]);
        assert!(cache.len() > 3 && cache.iter().all(|found| found.text.to_lowercase().contains("page")));
        assert!(words(&["xyzzy"]).is_empty());
    }
}
