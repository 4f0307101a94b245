//! Which launcher started this process, from the environment variables that it sets. Nothing is started or loaded here.

use std::fmt;

/// A program that starts the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// mpirun of Open MPI, with the first number of its version if it tells it.
    OpenMpi {
        major: Option<u64>,
    },
    /// mpiexec of MPICH and its relatives, such as MVAPICH2.
    Hydra,
    /// srun, and which interface it offers to MPI libraries.
    Slurm(SlurmInterface),
    Pals,
    Flux,
    /// Another launcher with PMIx, such as prterun.
    Pmix,
}

/// What srun offers to MPI libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmInterface {
    Pmix,
    Pmi2,
    None,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Launcher::OpenMpi { major: Some(major) } => write!(f, "mpirun of Open MPI {major}"),
            Launcher::OpenMpi { major: None } => f.write_str("mpirun of Open MPI"),
            Launcher::Hydra => f.write_str("mpiexec of MPICH"),
            Launcher::Slurm(SlurmInterface::Pmix) => f.write_str("srun with PMIx"),
            Launcher::Slurm(SlurmInterface::Pmi2) => f.write_str("srun with PMI-2"),
            Launcher::Slurm(SlurmInterface::None) => f.write_str("srun"),
            Launcher::Pals => f.write_str("mpiexec of PALS"),
            Launcher::Flux => f.write_str("flux run"),
            Launcher::Pmix => f.write_str("a launcher with PMIx"),
        }
    }
}

/// How a launcher started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub launcher: Launcher,
    /// Number of this process, and number of processes. Some launchers tell them only to the MPI library.
    pub rank: u64,
    pub size: Option<u64>,
}

/// Reads the environment through `get`. `None`: this process was not started by a launcher that is known.
pub fn launch(get: &dyn Fn(&str) -> Option<String>) -> Option<Launch> {
    let number = |name: &str| get(name)?.trim().parse::<u64>().ok();
    let is_set = |name: &str| get(name).is_some();
    let started = |launcher, rank: Option<u64>, size: Option<u64>| {
        Some(Launch { launcher, rank: rank.unwrap_or(0), size })
    };
    // srun also starts processes inside a job of another launcher: the variables of the innermost one decide. mpirun
    // inside a Slurm allocation sets its own variables, and those of the step that started mpirun's daemon remain.
    if is_set("OMPI_COMM_WORLD_SIZE") {
        let version = get("OMPI_VERSION").and_then(|text| text.split('.').next()?.parse().ok());
        let major = version.or_else(|| is_set("PRTE_LAUNCHED").then_some(5));
        return started(
            Launcher::OpenMpi { major },
            number("OMPI_COMM_WORLD_RANK"),
            number("OMPI_COMM_WORLD_SIZE"),
        );
    }
    if is_set("PALS_RANKID") {
        return started(Launcher::Pals, number("PALS_RANKID"), number("PMI_SIZE"));
    }
    if is_set("FLUX_TASK_RANK") {
        return started(Launcher::Flux, number("FLUX_TASK_RANK"), number("FLUX_JOB_SIZE"));
    }
    // SLURM_NTASKS is set in a batch script as well, where one process is right; this one is the step's.
    if is_set("SLURM_STEP_NUM_TASKS") && is_set("SLURM_PROCID") && !is_set("HYDI_CONTROL_FD") {
        let interface = match (is_set("PMIX_RANK"), is_set("PMI_FD") || is_set("PMI_SIZE")) {
            (true, _) => SlurmInterface::Pmix,
            (false, true) => SlurmInterface::Pmi2,
            (false, false) => SlurmInterface::None,
        };
        return started(Launcher::Slurm(interface), number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS"));
    }
    if is_set("PMI_SIZE") || is_set("PMI_FD") || is_set("PMI_PORT") {
        let rank = number("PMI_RANK").or_else(|| number("PMI_ID"));
        return started(Launcher::Hydra, rank, number("PMI_SIZE"));
    }
    // mpirun_rsh of MVAPICH2, whose library has the interface of MPICH's.
    if is_set("MV2_COMM_WORLD_SIZE") {
        return started(Launcher::Hydra, number("MV2_COMM_WORLD_RANK"), number("MV2_COMM_WORLD_SIZE"));
    }
    if is_set("PMIX_RANK") && is_set("PMIX_NAMESPACE") {
        return started(Launcher::Pmix, number("PMIX_RANK"), None);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Launch> {
        launch(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_launcher_is_known_by_its_variables() {
        let openmpi = [("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "2"), ("PMIX_RANK", "2")];
        let four = |launcher, rank| Some(Launch { launcher, rank, size: Some(4) });
        assert_eq!(of(&openmpi), four(Launcher::OpenMpi { major: None }, 2));
        let five = [&openmpi[..], &[("OMPI_VERSION", "5.0.11"), ("PRTE_LAUNCHED", "1")]].concat();
        assert_eq!(of(&five), four(Launcher::OpenMpi { major: Some(5) }, 2));
        let hydra = [("PMI_SIZE", "4"), ("PMI_RANK", "3"), ("PMI_FD", "6")];
        assert_eq!(of(&hydra), four(Launcher::Hydra, 3));
        let mvapich = [("MV2_COMM_WORLD_SIZE", "4"), ("MV2_COMM_WORLD_RANK", "1")];
        assert_eq!(of(&mvapich), four(Launcher::Hydra, 1));
        let step = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "1")];
        assert_eq!(of(&step), four(Launcher::Slurm(SlurmInterface::None), 1));
        let with = |more: &[(&'static str, &'static str)]| of(&[&step[..], more].concat());
        assert_eq!(with(&[("PMIX_RANK", "1")]), four(Launcher::Slurm(SlurmInterface::Pmix), 1));
        assert_eq!(with(&hydra), four(Launcher::Slurm(SlurmInterface::Pmi2), 1));
        assert_eq!(with(&openmpi), four(Launcher::OpenMpi { major: None }, 2), "mpirun inside a step");
        assert_eq!(of(&[("FLUX_TASK_RANK", "0"), ("FLUX_JOB_SIZE", "4")]), four(Launcher::Flux, 0));
        assert_eq!(of(&[("PALS_RANKID", "1"), ("PMI_SIZE", "4")]), four(Launcher::Pals, 1));
    }

    #[test]
    fn a_launcher_that_does_not_tell_the_size_is_a_launcher() {
        let unknown = |launcher, rank| Some(Launch { launcher, rank, size: None });
        assert_eq!(of(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-1")]), unknown(Launcher::Pmix, 1));
        assert_eq!(of(&[("PMI_PORT", "vm:4000"), ("PMI_ID", "1")]), unknown(Launcher::Hydra, 1));
        assert_eq!(of(&[("PALS_RANKID", "1")]), unknown(Launcher::Pals, 1));
        assert_eq!(of(&[("FLUX_TASK_RANK", "1")]), unknown(Launcher::Flux, 1));
        let unreadable = [("OMPI_COMM_WORLD_SIZE", "x"), ("OMPI_COMM_WORLD_RANK", "1")];
        assert_eq!(of(&unreadable), unknown(Launcher::OpenMpi { major: None }, 1));
    }

    #[test]
    fn a_batch_script_is_not_a_step_of_a_launcher() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0")]), None);
    }
}
