//! Checks of the host, as far as this process may use it: kernel, limits, libraries. Probes belong to the crates that
//! use what they find; here is only what follows from them.

use engine::host::{self, Host};
use engine::world::{InstalledMpi, installed_mpi};
use model::objects::Service;
use model::units::{Bytes, counted, grouped};
use rustix::process::{Resource, Rlimit, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use store::{RingObstacle, page_cache, trusted_certificates, try_ring};

use super::{HealthAnswer, HealthCheck, HealthSubject};

/// Facts that several checks use.
pub(crate) struct HostView {
    host: Host,
    kernel: String,
    clock_sources: Vec<String>,
    /// The MPI library that the user names.
    mpi_library: Option<String>,
}

impl HostView {
    pub(crate) fn look(mpi_library: Option<&str>) -> HostView {
        let seen = host::seen_since(None, 0);
        HostView {
            host: Host::look(),
            kernel: seen.kernels.into_iter().next().unwrap_or_default(),
            clock_sources: seen.clock_sources.into_iter().collect(),
            mpi_library: mpi_library.map(ToOwned::to_owned),
        }
    }
}

pub(super) const CHECKS: &[HealthCheck] = &[
    HealthCheck {
        name: "kernel",
        about: "Compares the version of Linux with 5.19, from which on io_uring has what feedline uses, and with 6.5, \
                which has cachestat.",
        means: "Before Linux 5.19 the backend uring is refused; before 6.5 cached pages are counted through mappings, \
                which works only for the owner of the files and root.",
        remedy: "Use a newer kernel, or the backends posix and direct.",
        subject: HealthSubject::Host(kernel),
    },
    HealthCheck {
        name: "architecture",
        about: "Shows the architecture of the processor; feedline is tested on x86-64, and audits jobs on x86-64 and \
                64-bit ARM.",
        means: "feedline audit cannot observe jobs, and nothing was tested on this architecture.",
        remedy: "Use a host with x86-64 or 64-bit ARM.",
        subject: HealthSubject::Host(architecture),
    },
    HealthCheck {
        name: "proc",
        about: "Reads from /proc what feedline needs: the system calls of its own threads, the bytes that it has read, \
                memory and mounts.",
        means: "Hung storage is not noticed without the system calls of threads, and bytes from the storage are not \
                counted without /proc/self/io.",
        remedy: "Mount /proc, and allow this process to read its own entries there (ptrace restrictions of the \
                 container).",
        subject: HealthSubject::Host(proc),
    },
    HealthCheck {
        name: "io-uring",
        about: "Sets up a ring as the backend uring does; the error and the settings of the kernel tell which of the \
                obstacles there is.",
        means: "The backend uring is refused, for data and for checkpoints.",
        remedy: "Use --store posix or --store direct.",
        subject: HealthSubject::Host(io_uring),
    },
    HealthCheck {
        name: "cachestat",
        about: "Makes the system call cachestat, which counts the pages of a file in the page cache.",
        means: "Pages are counted through mappings (mincore), which is slower and works only for the owner of the \
                files and root.",
        remedy: "Use Linux 6.5 or newer, and a container runtime whose seccomp filter allows the call.",
        subject: HealthSubject::Host(cachestat),
    },
    HealthCheck {
        name: "memory",
        about: "Finds the memory that this process can still use, and the limits of its control groups and of ulimit.",
        means: "A run whose plan needs more is refused. The page cache counts towards the limit of a control group.",
        remedy: "Raise the limit, use fewer readers or a smaller prefetch, or set --memory.",
        subject: HealthSubject::Host(memory),
    },
    HealthCheck {
        name: "locked-memory",
        about: "Compares the limit of locked memory with 64 MiB. The backend uring reads into locked memory: one \
                buffer of reader.transfer_size (1 MiB) for each reader.",
        means: "The backend uring is refused with more readers than the limit has room for.",
        remedy: "Raise the limit (ulimit -l, or memlock in /etc/security/limits.conf), use fewer readers or a smaller \
                 reader.transfer_size.",
        subject: HealthSubject::Host(locked_memory),
    },
    HealthCheck {
        name: "open-files",
        about: "Compares the highest limit of open files that this process may set itself with 4,096. Each reader has \
                a file open, and feedline raises the limit by itself as far as it may.",
        means: "Runs with more readers than the limit has room for are refused.",
        remedy: "Raise the hard limit (ulimit -Hn, or nofile in /etc/security/limits.conf), or use fewer readers.",
        subject: HealthSubject::Host(open_files),
    },
    HealthCheck {
        name: "cpus",
        about: "Counts the cores that this process may use, by its affinity, its cpuset and its quota of CPU time.",
        means: "The other cores of the host are not used. A quota stops all threads for a part of each period, which \
                delays reads; the verdict reports it if accelerators are late.",
        remedy: "Remove the limit, or start processes without binding them (mpirun --bind-to none).",
        subject: HealthSubject::Host(cpus),
    },
    HealthCheck {
        name: "clock",
        about: "Shows the clock source of the kernel. Every operation is timed, so that reading the clock has to be \
                fast.",
        means: "Each reading of the clock is a slow access to a device, which adds time to every operation.",
        remedy: "Select a fast clock source at boot, such as clocksource=tsc, if the processor supports it.",
        subject: HealthSubject::Host(clock),
    },
    HealthCheck {
        name: "mpi",
        about: "Loads the MPI libraries that the loader finds (Open MPI, MPICH, the interface of MPI 5), or the one of \
                --mpi-library, without starting them.",
        means: "Runs of several processes are not possible; runs of one process need no MPI library.",
        remedy: "Install the MPI library of the launcher on every host, add its folder to LD_LIBRARY_PATH, or name it \
                 with --mpi-library.",
        subject: HealthSubject::Host(mpi),
    },
    HealthCheck {
        name: "audit",
        about: "Starts feedline itself with its preload library, and checks that its calls were observed.",
        means: "feedline audit cannot observe jobs.",
        remedy: "Use Linux with the GNU C library on x86-64 or 64-bit ARM, and a place that is not mounted with \
                 noexec, such as /dev/shm, /tmp or the folder of TMPDIR.",
        subject: HealthSubject::Host(audit_library),
    },
    HealthCheck {
        name: "page-faults",
        about: "Opens the perf events with which feedline audit records page faults of mapped files.",
        means: "Audits of jobs that map files know resident bytes only, not each page fault.",
        remedy: "Set sysctl kernel.perf_event_paranoid to 2 or less, or give the container the capability \
                 CAP_PERFMON.",
        subject: HealthSubject::Host(page_faults),
    },
    HealthCheck {
        name: "python",
        about: "Looks for python3 on the PATH. Audited jobs in Python are marked with epochs and batches.",
        means: "Jobs in Python that are started by this name cannot run here; audits of other programs can.",
        remedy: "Install Python 3, or name the job's own interpreter.",
        subject: HealthSubject::Host(python),
    },
    HealthCheck {
        name: "shared-memory",
        about: "Compares the free space of /dev/shm with 64 MiB. Training jobs, MPI libraries and audits share memory \
                there.",
        means: "Data loaders of audited jobs and MPI libraries can fail with bus errors; audits use /tmp instead.",
        remedy: "Mount a larger /dev/shm (docker run --shm-size=1g).",
        subject: HealthSubject::Host(shared_memory),
    },
    HealthCheck {
        name: "certificates",
        about: "Counts the TLS certificates that the system trusts.",
        means: "Object stores at https:// addresses are refused, because their certificates cannot be checked.",
        remedy: "Install the package ca-certificates, or name a file with SSL_CERT_FILE or storage.ca_bundle.",
        subject: HealthSubject::Host(certificates),
    },
    HealthCheck {
        name: "credentials",
        about: "Finds out where the credentials for S3, Google Cloud Storage and Azure would come from, without using \
                them. No value is shown.",
        means: "Requests to this service are refused, unless the workload has its credentials.",
        remedy: "Complete the settings that the message names ('feedline docs objects').",
        subject: HealthSubject::Host(credentials),
    },
];

/// The first two numbers of a version such as `6.18.5-generic`.
fn version(release: &str) -> Option<(u64, u64)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(view: &HostView) -> HealthAnswer {
    let observed = format!("Linux {}", view.kernel);
    match version(&view.kernel) {
        Some(version) if version >= (6, 5) => HealthAnswer::ok(observed),
        Some(version) if version >= (5, 19) => HealthAnswer::limited(observed).means(
            "Cached pages are counted through mappings, which works only for the owner of the files and root.",
        ),
        _ => HealthAnswer::limited(observed),
    }
}

fn architecture(_: &HostView) -> HealthAnswer {
    match std::env::consts::ARCH {
        known @ ("x86_64" | "aarch64") => HealthAnswer::ok(known),
        other => HealthAnswer::limited(other),
    }
}

fn proc(_: &HostView) -> HealthAnswer {
    let paths = ["/proc/meminfo", "/proc/self/mountinfo", "/proc/self/io", "/proc/thread-self/syscall"];
    let lacking: Vec<&str> =
        paths.into_iter().filter(|path| std::fs::read_to_string(path).is_err()).collect();
    match lacking.as_slice() {
        [] => HealthAnswer::ok("readable"),
        lacking if lacking.len() == paths.len() => HealthAnswer::missing("not readable")
            .means("Memory, cores, limits and mounts are not known, and hung storage is not noticed."),
        lacking => HealthAnswer::limited(format!("not readable: {}", lacking.join(", "))),
    }
}

fn io_uring(_: &HostView) -> HealthAnswer {
    match try_ring() {
        Ok(true) => HealthAnswer::ok("a ring with deferred completions was set up"),
        Ok(false) => HealthAnswer::ok("a ring was set up, without deferred completions (before Linux 6.1)"),
        Err(obstacle) => ring_answer(&obstacle),
    }
}

fn ring_answer(obstacle: &RingObstacle) -> HealthAnswer {
    let general = "or use --store posix or --store direct.";
    match obstacle {
        RingObstacle::Disabled(sysctl) => {
            HealthAnswer::limited(format!("disabled: sysctl kernel.io_uring_disabled is {sysctl}"))
                .remedy(format!("An administrator can allow it with sysctl kernel.io_uring_disabled=0; {general}"))
        }
        RingObstacle::Filtered => HealthAnswer::limited("a seccomp filter of this process forbids it").remedy(format!(
            "Container runtimes do this by default: start the container with a profile that allows io_uring (docker \
             run --security-opt seccomp=PROFILE); {general}"
        )),
        RingObstacle::NotBuilt => HealthAnswer::limited("the kernel was built without it")
            .remedy(format!("Use a kernel with CONFIG_IO_URING; {general}")),
        RingObstacle::NotPermitted => HealthAnswer::limited("the kernel does not permit it to this process")
            .remedy(format!("Ask the administrator to allow it in the security module (SELinux, AppArmor); {general}")),
        RingObstacle::TooOld => HealthAnswer::limited("the kernel is older than Linux 5.19")
            .remedy(format!("Use Linux 5.19 or newer; {general}")),
        RingObstacle::Failed(cause) => HealthAnswer::limited(cause.clone()),
    }
}

fn cachestat(_: &HostView) -> HealthAnswer {
    match page_cache::has_cachestat() {
        Some(true) => HealthAnswer::ok("it counts pages"),
        Some(false) => HealthAnswer::limited("the kernel does not have it, or a seccomp filter forbids it"),
        None => HealthAnswer::not_applicable("it cannot be tried without memfd_create"),
    }
}

fn memory(view: &HostView) -> HealthAnswer {
    let Some(room) = view.host.own_room() else {
        return HealthAnswer::limited("the available memory is not known")
            .means("Runs that do not fit into memory are not refused.");
    };
    let observed = room.to_string();
    match &view.host.memory_limit {
        Some(limit) if !observed.contains(limit.as_str()) => {
            HealthAnswer::limited(format!("{observed}; limit: {limit}"))
        }
        _ if observed.contains("limit") => HealthAnswer::limited(observed),
        _ => HealthAnswer::ok(observed),
    }
}

/// A limit as `ulimit` shows it.
fn shown_limit(limit: Option<u64>, unit: impl Fn(u64) -> String) -> String {
    limit.map_or("unlimited".to_owned(), unit)
}

fn locked_memory(_: &HostView) -> HealthAnswer {
    const ENOUGH: u64 = 64 << 20;
    let limit = getrlimit(Resource::Memlock).current;
    let observed = shown_limit(limit, |bytes| Bytes(bytes).to_string());
    let is_exempt = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    match limit {
        _ if is_exempt => HealthAnswer::ok(format!("{observed}; this process is exempt (CAP_IPC_LOCK)")),
        Some(bytes) if bytes < ENOUGH => HealthAnswer::limited(observed),
        _ => HealthAnswer::ok(observed),
    }
}

fn open_files(_: &HostView) -> HealthAnswer {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    files_answer(current, maximum)
}

fn files_answer(current: Option<u64>, maximum: Option<u64>) -> HealthAnswer {
    const ENOUGH: u64 = 4096;
    let [now, most] = [current, maximum].map(|limit| shown_limit(limit, grouped));
    let observed = if now == most { most } else { format!("{now}, can be raised to {most}") };
    match maximum.filter(|maximum| *maximum < ENOUGH) {
        Some(_) => HealthAnswer::limited(observed),
        None => HealthAnswer::ok(observed),
    }
}

fn cpus(view: &HostView) -> HealthAnswer {
    let limits: Vec<&str> = view
        .host
        .limits
        .iter()
        .filter(|limit| Some(*limit) != view.host.memory_limit.as_ref())
        .map(String::as_str)
        .collect();
    let observed = counted(view.host.cores, "core");
    match limits.as_slice() {
        [] => HealthAnswer::ok(observed),
        limits => HealthAnswer::limited(format!("{observed}; limit: {}", limits.join("; "))),
    }
}

fn clock(view: &HostView) -> HealthAnswer {
    const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "pit"];
    match view.clock_sources.first() {
        Some(source) if SLOW.contains(&source.as_str()) => HealthAnswer::limited(source.as_str()),
        Some(source) => HealthAnswer::ok(source.as_str()),
        None => HealthAnswer::not_applicable("the kernel does not show it"),
    }
}

fn mpi(view: &HostView) -> HealthAnswer {
    let (found, lacking) = mpi_libraries(view.mpi_library.as_deref());
    match found.as_slice() {
        [] if view.mpi_library.is_some() => HealthAnswer::limited(lacking.join("; ")),
        [] => HealthAnswer::limited("no library was found"),
        found => HealthAnswer::ok(found.join("; ")),
    }
}

/// The MPI libraries, each with its file, and why others cannot be loaded.
pub(crate) fn mpi_libraries(named: Option<&str>) -> (Vec<String>, Vec<String>) {
    let (mut found, mut lacking) = (Vec::new(), Vec::new());
    for library in installed_mpi(named) {
        match library {
            Ok(InstalledMpi { version, path: Some(path), .. }) => {
                found.push(format!("{version} ({})", path.display()));
            }
            Ok(InstalledMpi { version, name, .. }) => found.push(format!("{version} ({name})")),
            Err(reason) => lacking.push(reason),
        }
    }
    (found, lacking)
}

fn audit_library(_: &HostView) -> HealthAnswer {
    match ::audit::observes() {
        Ok(()) => HealthAnswer::ok("the calls of a program were observed"),
        Err(reason) => HealthAnswer::limited(reason),
    }
}

fn page_faults(_: &HostView) -> HealthAnswer {
    match ::audit::page_faults() {
        Ok(()) => HealthAnswer::ok("perf events can be opened"),
        Err(reason) => HealthAnswer::limited(reason),
    }
}

fn python(_: &HostView) -> HealthAnswer {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("python3"));
    let can_run = |path: &std::path::PathBuf| {
        path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    match found.into_iter().find(can_run) {
        Some(path) => HealthAnswer::ok(path.display().to_string()),
        None => HealthAnswer::limited("python3 was not found on the PATH"),
    }
}

fn shared_memory(_: &HostView) -> HealthAnswer {
    const ENOUGH: u64 = 64 << 20;
    let Ok(facts) = rustix::fs::statvfs("/dev/shm") else {
        return HealthAnswer::limited("/dev/shm does not exist");
    };
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    let (free, all) = (bytes(facts.f_bavail), bytes(facts.f_blocks));
    let observed = format!("{} of {} free", Bytes(free), Bytes(all));
    if free < ENOUGH { HealthAnswer::limited(observed) } else { HealthAnswer::ok(observed) }
}

fn certificates(_: &HostView) -> HealthAnswer {
    let (count, errors) = trusted_certificates();
    match (count, errors.first()) {
        (0, Some(error)) => HealthAnswer::limited(format!("none: {error}")),
        (0, None) => HealthAnswer::limited("none"),
        (count, _) => HealthAnswer::ok(counted(count as u64, "certificate")),
    }
}

/// The services, and what the names of variables that belong to each begin with.
const SERVICES: [(Service, &str, &[&str]); 3] = [
    (Service::S3, "S3", &["AWS_"]),
    (Service::Gcs, "Google Cloud Storage", &["GOOGLE_", "GCS_", "CLOUDSDK_"]),
    (Service::Azure, "Azure", &["AZURE_"]),
];

fn credentials(_: &HostView) -> HealthAnswer {
    let (mut said, mut is_limited) = (Vec::new(), false);
    for (service, name, prefixes) in SERVICES {
        match session::credentials_from(service) {
            Ok(from) => said.push(format!("{name}: {from}")),
            // Without any setting there is nothing to complete.
            Err(_) if !has_variable(prefixes) => said.push(format!("{name}: none")),
            Err(error) => {
                is_limited = true;
                said.push(format!("{name}: {error}"));
            }
        }
    }
    let observed = said.join("; ");
    if is_limited { HealthAnswer::limited(observed) } else { HealthAnswer::ok(observed) }
}

/// Whether a variable of the environment begins so.
fn has_variable(prefixes: &[&str]) -> bool {
    std::env::vars_os().any(|(name, _)| {
        let name = name.to_string_lossy();
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::super::HealthState;
    use super::*;

    fn view(kernel: &str, clock: &str) -> HostView {
        HostView {
            host: Host { cores: 4, memory_bytes: 1 << 30, ..Host::default() },
            kernel: kernel.to_owned(),
            clock_sources: vec![clock.to_owned()],
            mpi_library: None,
        }
    }

    #[test]
    fn kernels_are_judged_by_their_version() {
        for (release, state) in [
            ("6.18.5-generic", HealthState::Ok),
            ("6.5.0", HealthState::Ok),
            ("6.4.16-rc1", HealthState::Limited),
            ("5.19.0", HealthState::Limited),
            ("5.4.0-150-generic", HealthState::Limited),
            ("unknown", HealthState::Limited),
        ] {
            assert_eq!(kernel(&view(release, "tsc")).state, state, "{release}");
        }
        let between = kernel(&view("6.1.0", "tsc")).means.unwrap();
        assert!(!between.contains("uring"), "io_uring works there: {between}");
    }

    #[test]
    fn slow_clocks_are_limited() {
        for (source, state) in
            [("tsc", HealthState::Ok), ("kvm-clock", HealthState::Ok), ("hpet", HealthState::Limited)]
        {
            assert_eq!(clock(&view("6.5.0", source)).state, state, "{source}");
        }
    }

    #[test]
    fn each_obstacle_of_rings_has_a_remedy() {
        for (obstacle, observed, remedy) in [
            (RingObstacle::Disabled("2".to_owned()), "kernel.io_uring_disabled is 2", "io_uring_disabled=0"),
            (RingObstacle::Filtered, "seccomp", "--security-opt"),
            (RingObstacle::NotBuilt, "built without", "CONFIG_IO_URING"),
            (RingObstacle::NotPermitted, "does not permit", "security module"),
            (RingObstacle::TooOld, "5.19", "5.19"),
        ] {
            let answer = ring_answer(&obstacle);
            assert_eq!(answer.state, HealthState::Limited);
            assert!(answer.observed.contains(observed), "{answer:?}");
            let told = answer.remedy.unwrap();
            assert!(told.contains(remedy) && told.contains("--store posix"), "{told}");
        }
    }

    #[test]
    fn the_limit_of_files_is_the_one_that_can_be_reached() {
        assert_eq!(files_answer(Some(1024), Some(1 << 20)).state, HealthState::Ok);
        assert_eq!(files_answer(Some(1024), None), HealthAnswer::ok("1,024, can be raised to unlimited"));
        assert_eq!(files_answer(Some(256), Some(256)), HealthAnswer::limited("256"));
    }

    #[test]
    fn limits_of_memory_and_cores_are_told_apart() {
        let mut view = view("6.5.0", "tsc");
        let (of_memory, of_cores) =
            ("memory 1.0 GiB, control group /a", "2 of 4 cores (CPU affinity or cpuset)");
        view.host.memory_limit = Some(of_memory.to_owned());
        view.host.limits = [of_memory.to_owned()].into();
        assert_eq!(cpus(&view), HealthAnswer::ok("4 cores"));
        view.host.limits.insert(of_cores.to_owned());
        assert_eq!(cpus(&view), HealthAnswer::limited(format!("4 cores; limit: {of_cores}")));
        let answer = memory(&view);
        assert!(answer.state == HealthState::Limited && answer.observed.contains("/a"), "{answer:?}");
    }
}
