//! Processes that cannot run a command together: each reason has its own message, which is printed once, and nothing
//! runs as an independent copy.

use std::fs;
use std::path::Path;

use crate::cluster::launch::Mpi;
use crate::cluster::{FOR_8_RANKS, with_data};
use crate::util::Dir;

const RUN: [&str; 6] = ["run", "w.yaml", "--quiet", "--no-calibration", "--ranks", "4"];

/// Runs two processes, which must be refused.
#[track_caller]
fn refused(mpi: Mpi, dir: &Dir, more: &[&str], code: i32, text: &str) {
    let job = mpi.feedline(dir, 2, &[&RUN, more].concat()).set(&FOR_8_RANKS);
    job.run().exits(code).one_error().says(text);
    assert!(dir.results().is_empty());
}

#[test]
fn a_missing_library() {
    let dir = with_data();
    for mpi in Mpi::ALL {
        refused(
            mpi,
            &dir,
            &["--mpi-library", "/nowhere/libmpi.so.40"],
            3,
            "no MPI library that works with it was found",
        );
    }
}

#[test]
fn a_library_of_another_launcher() {
    let dir = with_data();
    let library =
        |mpi: Mpi, name: &str| mpi.library_folder().unwrap().join(name).to_str().unwrap().to_owned();
    let (openmpi, mpich) = (library(Mpi::OpenMpi5, "libmpi.so.40"), library(Mpi::Mpich, "libmpi.so.12"));
    for (mpi, library) in [(Mpi::OpenMpi4, &mpich), (Mpi::OpenMpi5, &mpich), (Mpi::Mpich, &openmpi)] {
        refused(mpi, &dir, &["--mpi-library", library], 3, "which does not work with it");
    }
    let listed = dir.command(Path::new("ldconfig"), &["-p"]).run().exits(0).stdout;
    let line =
        listed.lines().find(|line| line.contains("libmpi.so.40 ")).expect("Debian's Open MPI is installed");
    let openmpi4 = line.split_whitespace().last().unwrap();
    refused(Mpi::OpenMpi5, &dir, &["--mpi-library", openmpi4], 3, "which does not work with it");
}

#[test]
fn a_launcher_whose_library_is_not_found() {
    let dir = with_data();
    let job = Mpi::Mpich.feedline(&dir, 2, &RUN).set(&FOR_8_RANKS).env("LD_LIBRARY_PATH", "");
    job.run().exits(3).one_error().says("started by mpiexec of MPICH, but the MPI library is Open MPI v4");
}

#[test]
fn more_processes_than_ranks_and_other_shares() {
    let dir = with_data();
    let few = Mpi::Mpich.feedline(&dir, 3, &["run", "w.yaml", "--ranks", "2"]);
    few.set(&FOR_8_RANKS).run().exits(2).one_error().says("there are 3 processes, but only 2 ranks");
    for (shares, text) in [
        ("4", "--ranks-per-process has 1 number, but the number of processes is 2"),
        ("4,0", "--ranks-per-process gives process 1 no rank"),
        ("3,2", "--ranks-per-process adds up to 5 ranks, but --ranks is 4"),
    ] {
        refused(Mpi::Mpich, &dir, &["--ranks-per-process", shares], 2, text);
    }
}

#[test]
fn an_unknown_network() {
    let dir = with_data();
    refused(Mpi::Mpich, &dir, &["--interface", "nosuch0"], 3, "nosuch0");
}

#[test]
fn another_version() {
    let dir = with_data();
    let other = dir.path("other");
    // The same program with another major version. The compiler may have put the text into instructions, in pieces.
    let own = env!("CARGO_PKG_VERSION");
    let version = format!("7{}", &own[1..]);
    let mut bytes = fs::read(env!("CARGO_BIN_EXE_feedline")).unwrap();
    for at in 0..bytes.len() - own.len() {
        if bytes[at..].starts_with(&own.as_bytes()[..4]) {
            bytes[at] = b'7';
        }
    }
    dir.write("other", bytes);
    dir.set_mode("other", 0o755);
    let job = Mpi::Mpich.two_programs(&dir, &RUN, other.to_str().unwrap(), &RUN);
    let done = job.run().exits(3).one_error();
    done.says(&format!("is feedline {own}, but process 1")).says(&format!("is feedline {version};"));
}

/// Process 1 has another workload, or another flag, than process 0.
#[test]
fn another_workload_or_flag() {
    let dir = with_data();
    dir.write("other.yaml", dir.read("w.yaml").replace("batch_size: 2", "batch_size: 3"));
    let own = [&RUN[..], &["--set", FOR_8_RANKS[0]]].concat();
    let mut workload = own.clone();
    workload[1] = "other.yaml";
    let flag = [&own[..], &["--set", "train.epochs=3"]].concat();
    let feedline = env!("CARGO_BIN_EXE_feedline");
    for other in [workload, flag] {
        let done = Mpi::Mpich.two_programs(&dir, &own, feedline, &other).run().exits(3).one_error();
        assert!(
            done.stderr.contains("process 1 on ") && done.stderr.contains("process 0 on "),
            "{}",
            done.stderr
        );
        assert!(dir.results().is_empty());
    }
}
