//! What the commands with several runs (`sweep`, `capacity`, `stall`) share: the folder of a study, its journal and the
//! command that resumes it. What the runs are, and what follows from them, is up to each command.

pub(crate) mod journal;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use engine::meter;
use model::document::{self, DocumentKind};
use model::location::Location;
use model::spec::Spec;
use model::units::counted;
use serde_json::Value;
use session::study::{RunStart, StudyControl, StudyLog};
use session::{Asked, agree, check_folder, make_folder, path_argument};
use sha2::{Digest, Sha256};
use store::{FolderHandle, StoreError};

use super::{results_folder, supply_secrets, typed_command};
use crate::exit::Failure;
use crate::flags::FolderFlags;
use crate::progress::StudyProgress;
use crate::report;
use crate::report::folder::safe_name;
use ::report::html::{self, HtmlPage};
use ::report::plot::{Figure, PlotMedium};
use journal::{Journal, JournalHeader, JournalLine};

/// A kind of study, and the names of its files.
#[derive(Debug)]
pub(crate) struct StudyKind {
    pub name: &'static str,
    /// The folder in the results folder.
    pub folder: &'static str,
    pub journal: &'static str,
    pub journal_document: DocumentKind,
    /// Written when all runs are finished: CSV, JSON, a plot and a page.
    pub outputs: [&'static str; 4],
    pub document: DocumentKind,
    /// The page of its JSON document, by this version.
    pub page: fn(&Value, &str) -> HtmlPage,
}

pub(crate) const SWEEP: StudyKind = StudyKind {
    name: "sweep",
    folder: "sweep",
    journal: "cells.jsonl",
    journal_document: document::SWEEP_JOURNAL,
    outputs: ["sweep.csv", "sweep.json", "sweep.svg", "sweep.html"],
    document: document::SWEEP,
    page: html::sweep,
};

pub(crate) const CAPACITY: StudyKind = StudyKind {
    name: "capacity search",
    folder: "capacity",
    journal: "trials.jsonl",
    journal_document: document::CAPACITY_JOURNAL,
    outputs: ["capacity.csv", "capacity.json", "capacity.svg", "capacity.html"],
    document: document::CAPACITY,
    page: html::capacity,
};

pub(crate) const STALL: StudyKind = StudyKind {
    name: "stall analysis",
    folder: "stall",
    journal: "runs.jsonl",
    journal_document: document::STALL_JOURNAL,
    outputs: ["stall.csv", "stall.json", "stall.svg", "stall.html"],
    document: document::STALL,
    page: html::stall,
};

pub(crate) const KINDS: [&StudyKind; 3] = [&SWEEP, &CAPACITY, &STALL];

/// The kind of study whose files a folder has.
pub(crate) fn kind_of(folder: &Path) -> Option<&'static StudyKind> {
    let has = |name: &&str| folder.join(name).exists();
    KINDS.into_iter().find(|kind| has(&kind.journal) || kind.outputs.iter().any(has))
}

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
            let parent = results.join(kind.folder).join(safe_name(asked.name()));
            let stamp = meter::folder_stamp();
            let mut folders =
                (1..).map(|attempt| if attempt == 1 { stamp.clone() } else { format!("{stamp}-{attempt}") });
            folders.find(|name| !parent.join(name).exists()).map_or(parent.clone(), |name| parent.join(name))
        });
        check_folder(&path, "results folder")?;
        if let Some(other) =
            KINDS.iter().find(|other| other.name != kind.name && path.join(other.journal).exists())
        {
            let shown = path.display();
            return Err(Failure::refused(anyhow!(
                "{shown} is the folder of a {}; choose another one with --output",
                other.name
            )));
        }
        Ok(StudyFolder { kind, path, is_named: flags.output.is_some() })
    }

    pub(crate) fn shown(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// The journal of this folder, which is created if necessary. Says how many runs it holds already.
    pub(crate) fn journal<T: JournalLine>(
        &self,
        header: &impl JournalHeader,
        progress: &StudyProgress,
    ) -> Result<Journal<T>, Failure> {
        let Some(journal) = self.earlier_journal(header)? else { return self.new_journal(header) };
        let runs = counted(journal.runs().count() as u64, "finished run");
        progress.note(&format!("{}: {runs} will not be repeated", self.shown()));
        Ok(journal)
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
            let document = serde_json::to_value(self.kind.document.of(json))?;
            let page = (self.kind.page)(&document, env!("CARGO_PKG_VERSION"));
            let texts = [csv, report::pretty(&document)?, figure.svg(PlotMedium::Print), page.html()];
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
        let words: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let mut command = typed_command();
        if !self.is_named {
            command.push_str(&format!(" --output {}", path_argument(&self.path)));
        }
        command + supply_secrets(&words)
    }
}

/// Does at process 0 what only it does, such as opening files. If it fails, the other processes return its error.
pub(crate) fn at_process_0<T>(
    StudyControl { world, stop, .. }: &StudyControl<'_>,
    work: impl FnOnce() -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let done = (world.member() == 0).then(work).transpose();
    agree(done, *world, stop)
}

/// The number of processes, if there are several. A study with another number is a different one.
pub(crate) fn several(control: &StudyControl<'_>) -> Option<u64> {
    Some(control.world.members()).filter(|members| *members > 1)
}

/// A location with the absolute path of a folder, so that the header of a journal means the same in every working
/// directory.
pub(crate) fn absolute(place: &Location) -> PathBuf {
    match place {
        Location::Path(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        place => PathBuf::from(place.to_string()),
    }
}

/// Shows the runs of a study and records them in its journal.
pub(crate) struct JournalLog<'a, T: JournalLine, S> {
    pub journal: Journal<T>,
    pub progress: &'a StudyProgress,
    /// What is printed before a stage.
    pub stage_line: fn(&S) -> String,
    /// What is printed after a run.
    pub run_line: fn(&T) -> String,
}

impl<T: JournalLine + Clone, S> StudyLog for JournalLog<'_, T, S> {
    type Stage = S;
    type Run = T;
    type Failure = Failure;

    fn stage(&mut self, stage: &S) {
        self.progress.note(&(self.stage_line)(stage));
    }

    fn begins(&mut self, run: &RunStart) {
        self.progress.begins(run);
    }

    fn recorded(&self, is_it: &dyn Fn(&T) -> bool) -> Option<T> {
        self.journal.runs().find(|run| is_it(run)).cloned()
    }

    fn ended(&mut self, run: &T) -> Result<(), Failure> {
        self.progress.note(&(self.run_line)(run));
        self.journal.add(run.clone()).map_err(Failure::incomplete)
    }
}

/// A digest of all settings of a workload, with defaults, so that an edited workload is a different study.
pub(crate) fn spec_digest(spec: &Spec) -> String {
    let hash = Sha256::digest(spec.to_yaml().as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
