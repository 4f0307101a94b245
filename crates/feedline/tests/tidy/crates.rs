//! The crates: which may use which, which may read host facts, and that each says what it is for.

use super::{File, files, none};

/// Which crates of the workspace each crate may use. Tests of a crate may not use more than the crate itself.
const DIRECTION: [(&str, &[&str]); 8] = [
    ("model", &[]),
    ("format", &["model"]),
    ("store", &["model"]),
    ("engine", &["model", "format", "store"]),
    ("session", &["model", "format", "store", "engine"]),
    ("report", &["model"]),
    ("audit", &["model"]),
    ("feedline", &["model", "format", "store", "engine", "session", "report", "audit"]),
];

/// The dependencies that a manifest names, development and build dependencies included. A crate of the workspace may be
/// called by its package name.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_list = false;
    for line in manifest.lines() {
        let name = match line.strip_prefix('[') {
            Some(header) => {
                let header = header.trim_end_matches(']');
                is_list = header.ends_with("dependencies");
                header.rsplit_once("dependencies.").map(|(_, name)| name)
            }
            None if is_list && line.contains('=') => line.split(['.', ' ', '=']).next(),
            None => None,
        };
        found.extend(name.map(|name| name.strip_prefix("feedline-").unwrap_or(name)));
    }
    found
}

/// The dependencies of a crate that its row in [`DIRECTION`] does not allow.
fn wrong_directions(name: &str, manifest: &str) -> Vec<String> {
    let Some((_, allowed)) = DIRECTION.iter().find(|(other, _)| *other == name) else {
        return vec![format!("{name} is not in the table: add it")];
    };
    let is_ours = |dependency: &&str| DIRECTION.iter().any(|(name, _)| name == dependency);
    let used = dependencies(manifest).into_iter().filter(is_ours);
    used.filter(|used| !allowed.contains(used)).map(|used| format!("{name} may not use {used}")).collect()
}

/// The crates of the workspace: name, manifest, and the file with the crate's documentation.
fn crates(files: &[File]) -> Vec<(&str, &str, &File)> {
    let text = |path: String| files.iter().find(|file| file.path == path);
    let mut found = Vec::new();
    for file in files {
        let name = file.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        // A workspace inside of a crate is not a member of this one.
        let Some(name) = name.filter(|name| !name.contains('/')) else { continue };
        let root = ["lib", "main"].iter().find_map(|root| text(format!("crates/{name}/src/{root}.rs")));
        found.push((name, file.text.as_str(), root.unwrap()));
    }
    found
}

#[test]
fn crates_point_in_one_direction() {
    let files = files();
    let crates = crates(&files);
    assert_eq!(crates.len(), DIRECTION.len());
    let found: Vec<String> =
        crates.iter().flat_map(|(name, manifest, _)| wrong_directions(name, manifest)).collect();
    none("crates depend on each other in one direction", &found);
}

#[test]
fn the_direction_scan_sees_dependencies() {
    let manifest = "\
[package]
name = \"feedline-store\"
[dependencies]
libc.workspace = true
feedline-format = { path = \"../format\" }
[dev-dependencies]
model.workspace = true
engine = { workspace = true }
[dependencies.session]
workspace = true
[lints]
workspace = true";
    assert_eq!(dependencies(manifest), ["libc", "format", "model", "engine", "session"]);
    let wrong = ["store may not use format", "store may not use engine", "store may not use session"];
    assert_eq!(wrong_directions("store", manifest), wrong);
    assert_eq!(wrong_directions("other", manifest), ["other is not in the table: add it"]);
}

/// What is missing in the description and the documentation page of a crate: the page has 20 to 50 lines and names
/// every module of the crate, except for those that are compiled under a condition.
fn undocumented(name: &str, manifest: &str, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    let description = manifest.lines().find_map(|line| line.strip_prefix("description = \""));
    if description.is_none_or(|text| text.len() < 30) {
        found.push(format!("{name}: a description of at least 30 characters in Cargo.toml"));
    }
    let page: Vec<&str> = root.lines().take_while(|line| line.starts_with("//!")).collect();
    if !(20..=50).contains(&page.len()) {
        found.push(format!("{name}: a page of 20 to 50 lines, not {}", page.len()));
    }
    let text = page.join("\n");
    let mut is_conditional = false;
    for line in root.lines() {
        let module =
            line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        let is_named = |module: &str| text.contains(&format!("`{module}`"));
        if let Some(module) = module.filter(|module| !is_conditional && !is_named(module)) {
            found.push(format!("{name}: what module {module} is for"));
        }
        // Of several attributes of a module, any can be the condition.
        is_conditional = line.starts_with("#[cfg") || (is_conditional && line.starts_with("#["));
    }
    found
}

#[test]
fn every_crate_says_what_it_is_for() {
    let files = files();
    let found: Vec<String> = crates(&files)
        .iter()
        .flat_map(|(name, manifest, root)| undocumented(name, manifest, &root.text))
        .collect();
    none("a crate has a description and a documentation page", &found);
}

#[test]
fn the_page_scan_sees_what_is_missing() {
    let manifest = "description = \"a description of some length, as it should be\"\n";
    let page = "//! `a`\n".repeat(20);
    let root = format!("{page}\nmod a;\npub mod b;\n#[cfg(test)]\nmod c;\n");
    assert_eq!(undocumented("x", manifest, &root), ["x: what module b is for"]);
    let found = undocumented("x", "description = \"short\"\n", "//! `a`\nmod a;\n");
    assert_eq!(found.len(), 2, "{found:?}");
}
