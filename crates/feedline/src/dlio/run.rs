//! Runs a job: turns it into a `session::Ask`, lets `session` settle and run it with all processes, one rank each, and
//! has its leaf written. The steps are those of `feedline run` and `feedline generate`; only input and output differ.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use engine::host::Host;
use engine::{Stop, World};
use model::spec::{DLIO_NUMBERS, UnknownKeys};
use model::verdict::Status;
use model::warning::Warning;
use session::{
    Ask, Asked, CalibrationTime, DataSetTask, FileCounts, Generate, WorkloadText, agree, default_writers,
    of_member_0,
};
use store::{FolderHandle, make_path};

use super::environment::Variables;
use super::job::Job;
use super::leaf::{self, LOG, LeafLead, LeafWriter, OwnRun};
use crate::commands::performed::{PerformedRun, RunSetup};
use crate::commands::read;
use crate::exit::{CommandResult, Exit, Failure};

/// How to write the data set that a run does not find.
const HOW_TO_GENERATE: &str = "\
create it with the same arguments and ++workload.workflow.generate_data=True ++workload.workflow.train=False";

/// Runs a job with all processes.
pub(super) fn run(job: &Job, variables: &Variables, world: &dyn World, stop: &Stop) -> CommandResult {
    let host = Host::look();
    // Held until the end: it keeps other runs out of the folder.
    let _claim = agree(prepare(job, world).map_err(Failure::refused), world, stop)?;
    let entered = job.changes_folder.then(|| WorkingFolder::enter(&job.folder)).transpose();
    let _back = agree(entered.map_err(Failure::refused), world, stop)?;
    let (overrides, notices) = variables.overrides();
    let scheme = variables.checkpoint_scheme().map_err(|what| Failure::usage(anyhow!(what)));
    let asked = scheme.and_then(|checkpoint_scheme| {
        read(Ask { overrides, checkpoint_scheme, ..ask(job, world) }).map_err(Failure::from)
    });
    let spec = asked.as_ref().map(|asked| &asked.spec).ok();
    let folder = spec.and_then(|spec| spec.output.folder.as_deref());
    let folder = folder.filter(|folder| !folder.is_empty()).map_or(job.folder.as_path(), Path::new);
    let log = spec.map_or(LOG, |spec| &spec.output.log_file);
    // Also for a workload that cannot be read: the folder may have the summary of an earlier run.
    let is_claimed = is_same(folder, &job.folder);
    let leads = (world.member() == 0).then(|| LeafLead { ranks: world.members(), is_claimed });
    let begun = LeafWriter::begin(folder, log, leads).map_err(Failure::refused);
    let leaf = agree(begun, world, stop)?;
    let mark = of_member_0(leaf.mark(), world, stop)?;
    agree(leaf.check_shared(mark.as_deref()).map_err(Failure::refused), world, stop)?;
    for notice in job.notices.iter().chain(&notices) {
        leaf.log().warning(notice);
    }
    let work = JobRun { leaf: &leaf, host: &host, variables, world, stop };
    asked.and_then(|asked| work.run(asked)).map_err(|failure| work.logged(failure))
}

/// Makes the output folder, keeps other runs out of it and writes the configuration to it, as Hydra does before a job
/// starts. Process 0 does this.
fn prepare(job: &Job, world: &dyn World) -> anyhow::Result<Option<FolderHandle>> {
    if world.member() > 0 {
        return Ok(None);
    }
    let place = || format!("cannot write to the output folder {}", job.folder.display());
    drop(make_path(&job.folder).with_context(place)?);
    let folder = FolderHandle::open(&job.folder).with_context(place)?;
    folder.lock().with_context(place)?;
    // First, so that the summary of an earlier run is never next to the configuration of this one.
    leaf::remove_summary(&folder).with_context(place)?;
    if let Some(subfolder) = &job.subfolder {
        write_configuration(job, &folder, Path::new(subfolder)).with_context(place)?;
    }
    Ok(Some(folder))
}

/// Writes the three files to a folder below the output folder. No link on the way is followed.
fn write_configuration(job: &Job, leaf: &FolderHandle, subfolder: &Path) -> anyhow::Result<()> {
    let mut folder = leaf.below(".")?;
    for part in subfolder.components() {
        let Component::Normal(name) = part else {
            bail!(
                "hydra.output_subdir is {}; give the name of a folder in hydra.run.dir",
                subfolder.display()
            );
        };
        folder.make_folder(name)?;
        folder = folder.below(name)?;
    }
    for (name, text) in
        [("config.yaml", &job.config), ("hydra.yaml", &job.hydra), ("overrides.yaml", &job.overrides)]
    {
        folder.put(name, text.as_bytes())?;
    }
    Ok(folder.sync()?)
}

/// Whether two paths lead to the same folder. A folder that does not exist yet is none that is locked.
fn is_same(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| path.canonicalize().ok();
    found(one).is_some_and(|path| Some(path) == found(other))
}

/// The output folder as the working folder of the process. The one before is restored at the end of the job.
struct WorkingFolder(PathBuf);

impl WorkingFolder {
    fn enter(folder: &Path) -> anyhow::Result<WorkingFolder> {
        let before = std::env::current_dir().context("cannot determine the working folder")?;
        std::env::set_current_dir(folder)
            .with_context(|| format!("cannot change to {}", folder.display()))?;
        Ok(WorkingFolder(before))
    }
}

impl Drop for WorkingFolder {
    fn drop(&mut self) {
        // If it is gone, later jobs with absolute paths still work.
        let _ = std::env::set_current_dir(&self.0);
    }
}

/// The request that a job makes.
fn ask(job: &Job, world: &dyn World) -> Ask {
    let source = job.subfolder.as_ref().map(|subfolder| job.folder.join(subfolder).join("config.yaml"));
    let source = source.map_or("the configuration".to_owned(), |path| path.display().to_string());
    let (name, text) = (job.workload.clone(), job.resolved.clone());
    Ask {
        ranks: Some(world.members()),
        unknown_keys: UnknownKeys::Report,
        dlio_keys: DLIO_NUMBERS,
        file_counts: FileCounts::OfWorkload,
        record_steps: true,
        how_to_generate: HOW_TO_GENERATE.to_owned(),
        ..Ask::new(WorkloadText { name, source, text, ranks: 1, built_in: false })
    }
}

/// A job with its leaf.
struct JobRun<'a> {
    leaf: &'a LeafWriter,
    host: &'a Host,
    variables: &'a Variables,
    world: &'a dyn World,
    stop: &'a Stop,
}

impl JobRun<'_> {
    fn run(&self, mut asked: Asked) -> CommandResult {
        let workflow = &asked.spec.workflow;
        let (generates, trains, saves) = (workflow.generate_data, workflow.train, workflow.checkpoint);
        self.leaf.log().start(&asked.spec, self.world.members());
        if !trains && !saves {
            return match generates {
                true => self.generate(&mut asked),
                false => Err(Failure::usage(anyhow!(
                    "there is nothing to do: workflow.generate_data, workflow.train and workflow.checkpoint are \
                     all off"
                ))),
            };
        }
        // A run that trains writes the missing files itself.
        let mut shown = Vec::new();
        if generates && !trains {
            self.generate(&mut asked)?;
            asked.ask.generate = Generate::Never;
            shown.clone_from(&asked.warnings);
        }
        self.measure(asked, &shown)
    }

    fn generate(&self, asked: &mut Asked) -> CommandResult {
        asked.look_at_store(self.world);
        self.leaf.log().warnings(&asked.warnings);
        let writers = default_writers(asked, self.host, self.world);
        let task = DataSetTask { keep_seed: false, verify: false, writers, overwrite: false };
        task.run(asked, self.world, self.leaf.log(), self.stop)?;
        self.leaf.log().generated();
        self.leaf.log().finish().map_err(Failure::incomplete)?;
        Ok(Exit::Ok)
    }

    /// Runs a workload that trains or saves checkpoints. `shown` are warnings that are in the log already.
    fn measure(&self, asked: Asked, shown: &[Warning]) -> CommandResult {
        let is_strict = asked.spec.output.strict || self.variables.is_strict;
        let log = self.leaf.log();
        let warn = |warnings: &[Warning]| {
            let new: Vec<Warning> =
                warnings.iter().filter(|warning| !shown.contains(warning)).cloned().collect();
            log.warnings(&new);
        };
        let setup = RunSetup {
            host: self.host,
            world: self.world,
            observer: log,
            recorder: None,
            calibrate: CalibrationTime::AfterRun,
            warn: &warn,
            stop: self.stop,
        };
        let (run, ()) = setup.perform(asked, |settled| {
            log.planned(&settled.plan);
            Ok(())
        })?;
        let complete = run.measured.verdict.status != Status::Incomplete;
        if complete {
            agree(self.write_ranks(&run), self.world, self.stop)?;
        }
        agree(self.conclude(&run), self.world, self.stop)?;
        if let Some(fault) = session::fault(&run.measured.ledger) {
            return Err(fault.into());
        }
        match run.measured.verdict.status {
            Status::Incomplete => Err(Failure::incomplete(anyhow!("interrupted; there is no summary.json"))),
            Status::Invalid if is_strict => Ok(Exit::CheckFailed),
            Status::Invalid | Status::Valid | Status::Unverified => Ok(Exit::Ok),
        }
    }

    /// Every process writes the files of its rank.
    fn write_ranks(&self, PerformedRun { settled, measured, .. }: &PerformedRun<'_>) -> Result<(), Failure> {
        let (topology, ranks) = (self.world.topology(), settled.plan.ranks);
        let own = OwnRun {
            plan: &settled.plan,
            spec: &settled.asked.spec,
            ledger: &measured.ledger,
            host: self.host,
            ranks: self.world.ranks(ranks),
            ranks_on_host: topology.ranks_on(self.world.node(), ranks),
        };
        self.leaf.write_ranks(&own).map_err(Failure::incomplete)
    }

    /// Process 0 writes the rest, the summary last.
    fn conclude(&self, run: &PerformedRun<'_>) -> Result<(), Failure> {
        if self.world.member() > 0 {
            return Ok(());
        }
        self.leaf.conclude(&run.outcome(None)).map_err(Failure::incomplete)
    }

    /// Puts the failure into the log, which also prints it.
    fn logged(&self, failure: Failure) -> Failure {
        if self.world.member() > 0 {
            return failure;
        }
        self.leaf.log().error(&failure.text());
        Failure::printed(failure.exit, failure.error)
    }
}
