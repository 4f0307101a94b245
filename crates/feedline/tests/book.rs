//! The documentation as a whole: every page is in the summary, every link leads to a heading or a file that exists,
//! every picture is shown, and texts of the program name pages in one form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::util::{Dir, relative, walk};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Pages beside those in docs/ whose links are checked.
const OTHERS: [&str; 4] = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"];

/// The files below docs/, relative to the root of the repository.
fn files_of_docs() -> Vec<String> {
    let root = root();
    let mut files = Vec::new();
    walk(&root.join("docs"), &mut |path| {
        if path.is_file() {
            files.push(relative(&root, path));
        }
    });
    assert!(files.len() > 20, "{files:?}");
    files
}

/// The pages, by path, with their texts.
fn pages() -> BTreeMap<String, String> {
    let of_docs = files_of_docs().into_iter().filter(|path| path.ends_with(".md"));
    let all = of_docs.chain(OTHERS.map(str::to_owned));
    all.map(|path| (path.clone(), fs::read_to_string(root().join(&path)).unwrap())).collect()
}

/// The lines outside of blocks of code, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        if !is_code && !fence {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// A line without what is in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The targets of links and pictures in a line: `[text](target)` and `src="target"`.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let after = |mark: &str, end: char| -> Vec<String> {
        line.split(mark).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0.trim().to_owned())).collect()
    };
    let mut found = after("](", ')');
    found.extend(after("src=\"", '"'));
    if let Some((label, target)) = line.split_once("]: ").filter(|(label, _)| label.starts_with('[')) {
        assert!(!label.is_empty());
        found.push(target.trim().to_owned());
    }
    found
}

/// The anchor that GitHub and mdBook make of a heading.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading.trim();
    // `[text](target)` counts as its text.
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        match link.split_once("](").and_then(|(shown, after)| Some((shown, after.split_once(')')?.1))) {
            Some((shown, after)) => {
                text.push_str(shown);
                rest = after;
            }
            None => rest = link,
        }
    }
    text.push_str(rest);
    let kept = text
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ' '))
        .collect::<String>();
    kept.trim().replace(' ', "-")
}

/// The anchors of a page: of its headings, where a repeated one has a number, and of `id="..."`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (_, line) in prose(text) {
        if let Some(heading) = line
            .strip_prefix('#')
            .map(|rest| rest.trim_start_matches('#'))
            .filter(|rest| rest.starts_with(' '))
        {
            let name = anchor(heading);
            let count = seen.entry(name.clone()).or_default();
            found.insert(if *count == 0 { name } else { format!("{name}-{count}") });
            *count += 1;
        }
        found.extend(line.split("id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
    found
}

/// A path without `.` and `..`; `None` if it leaves the repository.
fn resolved(folder: &Path, target: &str) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in folder.join(target).components() {
        match part {
            Component::Normal(name) => parts.push(name.to_str()?.to_owned()),
            Component::ParentDir => drop(parts.pop()?),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

fn is_elsewhere(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_lowercase()))
}

/// What is wrong with the links of these pages. `exists` answers for files that are no pages.
fn broken_links(pages: &BTreeMap<String, String>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (page, text) in pages {
        for (line, target) in prose(text)
            .into_iter()
            .flat_map(|(line, text)| targets(text).into_iter().map(move |target| (line, target)))
        {
            if is_elsewhere(&target) {
                continue;
            }
            let (path, fragment) =
                target.split_once('#').map_or((target.as_str(), None), |(path, at)| (path, Some(at)));
            let folder = Path::new(page).parent().unwrap();
            let place = if path.is_empty() { Some(page.clone()) } else { resolved(folder, path) };
            let place = place.filter(|place| pages.contains_key(place) || exists(place));
            match (place, fragment) {
                (None, _) => wrong.push(format!("{page}:{line}: {target} does not exist")),
                (Some(place), Some(fragment))
                    if pages.get(&place).is_some_and(|text| !anchors(text).contains(fragment)) =>
                {
                    wrong.push(format!("{page}:{line}: {place} has no heading for #{fragment}"));
                }
                _ => {}
            }
        }
    }
    wrong
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let links: usize = pages
        .values()
        .map(|text| prose(text).iter().map(|(_, line)| targets(line).len()).sum::<usize>())
        .sum();
    assert!(links > 100, "only {links} links were found");
    let wrong = broken_links(&pages, |path| root().join(path).exists());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_link_check_finds_broken_links() {
    let page = |text: &str| text.to_owned();
    let pages = BTreeMap::from([
        (
            "docs/a.md".to_owned(),
            page(
                "# A `b`, [c](x.png)\n## A\n## A\n[1](b.md#two) [2](b.md#three) [3](#a-b-c) [4](../x.svg) [5](y.svg)\n\
                 `[6](no.md)` [7](https://x) [8](#a-1) [9](#a-2) [10](../../z)\n```\n[11](no.md)\n```\n",
            ),
        ),
        ("docs/b.md".to_owned(), page("# One\n## Two\n```\n# Three\n```\n")),
    ]);
    let wrong = broken_links(&pages, |path| ["x.svg", "docs/x.png"].contains(&path));
    let expected = [
        "docs/a.md:4: docs/b.md has no heading for #three",
        "docs/a.md:4: y.svg does not exist",
        "docs/a.md:5: docs/a.md has no heading for #a-2",
        "docs/a.md:5: ../../z does not exist",
    ];
    assert_eq!(wrong, expected);
}

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed: Vec<String> = prose(&summary).iter().flat_map(|(_, line)| targets(line)).collect();
    listed.sort();
    // The index for readers of the repository is not a page of the book.
    let is_page =
        |path: &String| path.ends_with(".md") && !["SUMMARY.md", "README.md"].contains(&path.as_str());
    let mut pages: Vec<String> =
        files_of_docs().into_iter().map(|path| path["docs/".len()..].to_owned()).filter(is_page).collect();
    pages.sort();
    assert_eq!(listed, pages, "left: docs/SUMMARY.md, right: the files in docs/");
}

#[test]
fn every_picture_is_shown() {
    let pages = pages();
    let mut shown = BTreeSet::new();
    for (page, text) in &pages {
        let folder = Path::new(page).parent().unwrap();
        let all = prose(text).into_iter().flat_map(|(_, line)| targets(line));
        shown.extend(all.filter_map(|target| resolved(folder, &target)));
    }
    let is_picture = |path: &String| [".svg", ".png", ".jpg", ".gif"].iter().any(|end| path.ends_with(end));
    let unused: Vec<String> =
        files_of_docs().into_iter().filter(is_picture).filter(|path| !shown.contains(path)).collect();
    assert!(unused.is_empty(), "no page shows {unused:?}");
    assert!(shown.iter().any(|path| path.ends_with(".svg")), "no page shows a picture");
}

/// The sources of the program, without their unit tests: path and text.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut sources = Vec::new();
    walk(&root.join("crates"), &mut |path| {
        let name = relative(&root, path);
        if name.ends_with(".rs")
            && name.contains("/src/")
            && !name.ends_with("tests.rs")
            && !name.contains("/target/")
            // The tests that every backend has to pass.
            && !name.contains("/conformance/")
        {
            let text = fs::read_to_string(path).unwrap();
            let end = text.find("\n#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            sources.push((name, text[..end].to_owned()));
        }
    });
    assert!(sources.len() > 300, "{}", sources.len());
    sources
}

/// Lines of a source that can be a part of a text for users: all but comments. Help is in comments of the flags and
/// commands.
fn lines_for_users<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let has_help = ["flags", "commands", "recording"]
        .iter()
        .any(|name| path.strip_prefix("crates/feedline/src/").is_some_and(|rest| rest.starts_with(name)));
    let is_comment = move |line: &str| line.starts_with("//") && !(has_help && line.starts_with("/// "));
    text.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(move |(_, line)| !is_comment(line))
}

#[test]
fn texts_name_pages_as_feedline_docs_prints_them() {
    let dir = Dir::new();
    let list: serde_json::Value =
        serde_json::from_str(&dir.feedline(&["docs", "--json"]).run().exits(0).stdout).unwrap();
    let names: BTreeSet<String> = list["pages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|page| page["name"].as_str().unwrap().to_owned())
        .collect();
    let (mut wrong, mut named) = (Vec::new(), 0);
    for (path, text) in sources() {
        for (number, line) in lines_for_users(&path, &text) {
            let is_path = ["docs/guides/", "docs/reference/", "docs/explanation/", "docs/tutorials/"]
                .iter()
                .any(|folder| line.contains(folder));
            if is_path && !line.contains("include_str!") {
                wrong.push(format!(
                    "{path}:{number}: a path of the repository; write 'feedline docs NAME': {line}"
                ));
            }
            for rest in line.split("'feedline docs ").skip(1) {
                let name = rest.split('\'').next().unwrap();
                let is_name = name.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '/'));
                if is_name && !name.starts_with('-') {
                    named += 1;
                    if !names.contains(name) {
                        wrong.push(format!("{path}:{number}: there is no page '{name}'"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(named > 15, "only {named} pages are named");
}
