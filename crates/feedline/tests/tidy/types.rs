//! One name, one meaning: a type name is defined once in the whole workspace, so that a reader who sees it in any file
//! knows which type it is. Tests are exempt: their helpers are visible in one file only.

use std::collections::BTreeMap;

use super::{none, sources};

/// Names that several modules define, and why each is right in all of them.
const SHARED_NAMES: [(&str, &str); 1] = [(
    "Layout",
    "the sizes and offsets of one file of a container format; private to the module of each format, which has no other",
)];

/// The name of the type that a line defines. Indented `type`s are associated with a trait, which gives them their
/// meaning.
fn defined_type(line: &str) -> Option<&str> {
    let (indent, code) = (line.starts_with(' '), line.trim_start());
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => code,
    };
    let (keyword, rest) = code.strip_prefix("unsafe ").unwrap_or(code).split_once(' ')?;
    let defines = ["struct", "enum", "trait", "union"].contains(&keyword) || (keyword == "type" && !indent);
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (defines && name.starts_with(|c: char| c.is_uppercase())).then_some(name)
}

/// The names of the types that a file defines. A macro of this workspace that defines types is called at the outermost
/// level, and takes each as `Name {` on a line of its own, indented once.
fn defined_types(code: &str) -> impl Iterator<Item = &str> {
    let mut is_macro = false;
    code.lines().filter_map(move |line| {
        if !line.starts_with([' ', '/']) && !line.is_empty() {
            is_macro = line.ends_with("! {") && !line.starts_with("macro_rules!");
        }
        let name = line.strip_prefix("    ").and_then(|line| line.split_once(" {")).map(|(name, _)| name);
        let is_name =
            |name: &&str| name.chars().all(char::is_alphanumeric) && !name.starts_with(char::is_lowercase);
        defined_type(line).or(name.filter(|name| is_macro && is_name(name)))
    })
}

/// Violations among the definitions in these files, each a path and its code: names that are defined twice without a
/// reason, and reasons that are not needed.
fn name_clashes<'a>(files: impl Iterator<Item = (&'a str, &'a str)>, shared: &[(&str, &str)]) -> Vec<String> {
    let mut definitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, code) in files {
        for name in defined_types(code) {
            definitions.entry(name).or_default().push(path);
        }
    }
    let clashes = definitions.iter().filter(|(name, paths)| {
        paths.len() > 1 && !shared.iter().any(|(shared, reason)| shared == *name && !reason.is_empty())
    });
    let unneeded =
        shared.iter().filter(|(name, _)| definitions.get(name).is_none_or(|paths| paths.len() == 1));
    let clashes = clashes.map(|(name, paths)| format!("{name}: {}", paths.join(", ")));
    clashes.chain(unneeded.map(|(name, _)| format!("{name}: not shared any more"))).collect()
}

#[test]
fn the_type_scan_sees_types() {
    for (line, name) in [
        ("struct A;", Some("A")),
        ("pub struct Bc<'a> {", Some("Bc")),
        ("    pub(in crate::hdf5) enum C {", Some("C")),
        ("pub(super) unsafe trait D: Send {", Some("D")),
        ("type E = u64;", Some("E")),
        ("    type E = u64;", None),
        ("    pub structure: F,", None),
        ("/// struct G", None),
    ] {
        assert_eq!(defined_type(line), name, "{line}");
    }
    let code = "\
macro_rules! a {
    A { b }
}
a! {
    B {
        C { d }
    }
    /// E {
    F { G }
}
fn f() {
    H {";
    assert_eq!(defined_types(code).collect::<Vec<_>>(), ["B", "F"]);
    let files = [("a.rs", "struct A;\nstruct B;\n"), ("b.rs", "enum A {}\nstruct B;\n")];
    let shared = [("B", "a reason"), ("C", "a reason")];
    assert_eq!(name_clashes(files.into_iter(), &shared), ["A: a.rs, b.rs", "C: not shared any more"]);
    assert_eq!(name_clashes(files.into_iter(), &[("A", "a reason"), ("B", "")]), ["B: a.rs, b.rs"]);
}

#[test]
fn a_type_name_has_one_meaning() {
    let sources = sources();
    // The library of the audit is a program of its own.
    let is_ours = |path: &str| !path.starts_with("crates/audit/preload/");
    let code =
        || sources.iter().map(|file| (file.path.as_str(), file.code())).filter(|(path, _)| is_ours(path));
    let count = code().flat_map(|(_, code)| defined_types(code)).count();
    assert!(count > 500, "only {count} types were seen in the whole workspace");
    none("type names are defined once, or shared for a reason", &name_clashes(code(), &SHARED_NAMES));
}
