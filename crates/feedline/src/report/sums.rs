//! `SHA256SUMS`: the checksums of a result folder, in the format of `sha256sum -c`. It is written last, and a folder
//! that does not match it exactly is not accepted as a result.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use sha2::{Digest, Sha256};

pub(crate) const NAME: &str = "SHA256SUMS";

/// The checksum of each file, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums(BTreeMap<String, String>);

/// A writer that computes the checksum of what passes through it, so that the content need not be in memory as a whole.
#[derive(Debug)]
pub(crate) struct HashingWriter<W> {
    to: W,
    hash: Sha256,
}

impl<W> HashingWriter<W> {
    pub(crate) fn new(to: W) -> HashingWriter<W> {
        HashingWriter { to, hash: Sha256::new() }
    }

    /// Returns the writer and the checksum of what was written.
    pub(crate) fn finish(self) -> (W, Checksum) {
        (self.to, Checksum::of(self.hash))
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The checksum of a file, as `sha256sum` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(String);

impl Checksum {
    fn of(hash: Sha256) -> Checksum {
        Checksum(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Checksums {
    pub(crate) fn add(&mut self, name: &str, Checksum(sum): Checksum) {
        self.0.insert(name.to_owned(), sum);
    }

    /// Parses a text; lines that cannot be parsed are skipped.
    fn read(text: &str) -> Checksums {
        let pairs = text.lines().filter_map(|line| line.split_once("  "));
        Checksums(pairs.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect())
    }

    /// How these checksums, computed from a folder, differ from those in the file.
    fn against(&self, written: &Checksums) -> String {
        let missing = written.0.keys().find(|name| !self.0.contains_key(*name));
        let extra = self.0.keys().find(|name| !written.0.contains_key(*name));
        let changed =
            self.0.iter().find(|(name, sum)| written.0.get(*name).is_some_and(|other| other != *sum));
        match (missing, extra, changed) {
            (Some(name), ..) => format!("{name} is missing"),
            (None, Some(name), _) => format!("{name} does not belong to the result"),
            (None, None, Some((name, _))) => format!("{name} was changed: checksum mismatch"),
            (None, None, None) => format!("{NAME} was changed"),
        }
    }
}

impl fmt::Display for Checksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, sum)| writeln!(f, "{sum}  {name}"))
    }
}

/// The files of a folder with their bytes, if they are exactly those that were written.
pub(crate) fn checked(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let (mut files, mut sums) = (BTreeMap::new(), Checksums::default());
    for entry in fs::read_dir(folder).context("cannot read the folder")? {
        let entry = entry.context("cannot read the folder")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type().with_context(|| name.clone())?.is_file() {
            bail!("{name} does not belong to the result: it is not a regular file");
        }
        let bytes = fs::read(entry.path()).with_context(|| format!("cannot read {name}"))?;
        if name != NAME {
            sums.add(&name, Checksum::of(Sha256::new_with_prefix(&bytes)));
        }
        files.insert(name, bytes);
    }
    let written = files.remove(NAME).ok_or_else(|| {
        anyhow!("{NAME} is missing: the folder is incomplete, or was written by a version without checksums")
    })?;
    // Compares the whole text, so that only one form of the checksums is accepted.
    if written != sums.to_string().as_bytes() {
        bail!("{}", sums.against(&Checksums::read(&String::from_utf8_lossy(&written))));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(files: &[(&str, &str)]) -> Checksums {
        let mut sums = Checksums::default();
        for (name, text) in files {
            let mut summing = HashingWriter::new(Vec::new());
            summing.write_all(text.as_bytes()).unwrap();
            let (bytes, sum) = summing.finish();
            assert_eq!(bytes, text.as_bytes());
            sums.add(name, sum);
        }
        sums
    }

    #[test]
    fn the_text_is_that_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sums(&[("b", ""), ("a", "")]).to_string(), format!("{empty}  a\n{empty}  b\n"));
    }

    #[test]
    fn the_difference_is_named() {
        let written = sums(&[("a", "1"), ("b", "2")]);
        assert_eq!(Checksums::read(&written.to_string()), written);
        for (found, words) in [
            (sums(&[("a", "1")]), "b is missing"),
            (sums(&[("a", "1"), ("b", "2"), ("c", "3")]), "c does not belong to the result"),
            (sums(&[("a", "1"), ("b", "3")]), "b was changed: checksum mismatch"),
            (written.clone(), "SHA256SUMS was changed"),
        ] {
            assert_eq!(found.against(&written), words);
        }
    }
}
