//! What the commands with several runs (`sweep`, `capacity`, `stall`) share: the folder of a study, its journal and the
//! command that resumes it. What the runs are, and what follows from them, is up to each command.

pub(crate) mod journal;

use std::path::PathBuf;

use anyhow::Context;
use engine::meter;
use model::secret::redact;
use model::spec::Spec;
use serde_json::Value;
use session::{Asked, check_folder, make_folder, quoted};
use sha2::{Digest, Sha256};
use store::{FolderHandle, StoreError};

use super::results_folder;
use crate::exit::Failure;
use crate::flags::FolderFlags;
use crate::report;
use crate::report::folder::safe_name;
use crate::report::plot::Figure;
use journal::{Journal, JournalHeader, JournalLine};

/// A kind of study, and the names of its files.
#[derive(Debug)]
pub(crate) struct StudyKind {
    pub name: &'static str,
    pub journal: &'static str,
    /// Written when all runs are finished: CSV, JSON and a plot.
    pub outputs: [&'static str; 3],
}

pub(crate) const SWEEP: StudyKind =
    StudyKind { name: "sweep", journal: "cells.jsonl", outputs: ["sweep.csv", "sweep.json", "sweep.svg"] };

pub(crate) const KINDS: [&StudyKind; 1] = [&SWEEP];

/// The folder of a study.
#[derive(Debug)]
pub(crate) struct StudyFolder {
    kind: &'static StudyKind,
    path: PathBuf,
    /// Whether the user named it, so that the same command finds it again.
    is_named: bool,
}

impl StudyFolder {
    /// The folder that was asked for, else a new one, `RESULTS/STUDY/WORKLOAD/TIME`. It need not exist.
    pub(crate) fn choose(
        kind: &'static StudyKind,
        flags: &FolderFlags,
        asked: &Asked,
    ) -> Result<StudyFolder, Failure> {
        let path = flags.output.clone().unwrap_or_else(|| {
            let results = results_folder(flags.results_dir.as_deref(), &asked.spec);
            let parent = results.join(kind.name).join(safe_name(asked.name()));
            let stamp = meter::folder_stamp();
            let mut folders =
                (1..).map(|attempt| if attempt == 1 { stamp.clone() } else { format!("{stamp}-{attempt}") });
            folders.find(|name| !parent.join(name).exists()).map_or(parent.clone(), |name| parent.join(name))
        });
        check_folder(&path, "results folder")?;
        Ok(StudyFolder { kind, path, is_named: flags.output.is_some() })
    }

    pub(crate) fn shown(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// The journal of an earlier, interrupted or finished study in this folder.
    pub(crate) fn earlier_journal<T: JournalLine>(
        &self,
        header: &impl JournalHeader,
    ) -> Result<Option<Journal<T>>, Failure> {
        let exists = self.path.join(self.kind.journal).exists();
        exists.then(|| self.open(header)).transpose()
    }

    /// Creates the folder and its journal. A folder with files of these names but without a journal is refused: another
    /// program wrote them.
    pub(crate) fn new_journal<T: JournalLine>(
        &self,
        header: &impl JournalHeader,
    ) -> Result<Journal<T>, Failure> {
        make_folder(&self.path, "results folder")?;
        let check = || -> Result<(), StoreError> {
            let held = FolderHandle::open(&self.path)?;
            self.kind.outputs.iter().try_for_each(|name| held.check_free(name))
        };
        check().map_err(Failure::refused)?;
        self.open(header)
    }

    fn open<T: JournalLine>(&self, header: &impl JournalHeader) -> Result<Journal<T>, Failure> {
        Journal::open(&self.path, self.kind, header).map_err(Failure::refused)
    }

    /// Writes the files of a finished study.
    pub(crate) fn write(&self, csv: String, json: &Value, figure: &Figure) -> Result<(), Failure> {
        let write = || -> anyhow::Result<()> {
            let held = FolderHandle::open(&self.path)?;
            let texts = [csv, report::pretty(json)?, figure.svg()];
            for (name, text) in self.kind.outputs.into_iter().zip(texts) {
                held.put(name, text.as_bytes())?;
            }
            Ok(())
        };
        let place = || format!("cannot write the result to {}", self.shown());
        write().with_context(place).map_err(Failure::incomplete)
    }

    /// The command that resumes the study.
    pub(crate) fn resume_command(&self) -> String {
        let mut command = "feedline".to_owned();
        for word in std::env::args().skip(1) {
            command.push_str(&format!(" {}", quoted(&redact(&word))));
        }
        if !self.is_named {
            command.push_str(&format!(" --output {}", quoted(&self.path.display().to_string())));
        }
        command
    }
}

/// A digest of all settings of a workload, with defaults, so that an edited workload is a different study.
pub(crate) fn spec_digest(spec: &Spec) -> String {
    let hash = Sha256::digest(spec.to_yaml().as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
