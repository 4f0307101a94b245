//! Jobs with one planted fault, and jobs that resemble them: the short form of `scripts/bench audit`.

use std::path::Path;

use super::{PYTHON, script};
use crate::util::Dir;

/// One draw of each of these jobs in both variants. Tests share the machine, so only faults that other programs cannot
/// cause are judged here.
#[track_caller]
fn names(jobs: &str) {
    let dir = Dir::new();
    let run = script("audit_jobs/run.py");
    let binary = env!("CARGO_BIN_EXE_feedline");
    let draw = ["--draws", "1", "--seed", "1", "--healthy", "--busy"];
    let flags = [&["-B", &run, "--feedline", binary, "--jobs", jobs][..], &draw].concat();
    dir.command(Path::new(PYTHON), &flags).run().exits(0);
}

#[test]
fn stories_of_the_field_are_named() {
    names("one_handle,every_worker_reads_all,first_epochs_shards,contents_after_epoch_1");
}

#[test]
fn wrong_data_is_named() {
    names("shared_file_offset,duplicate_reads,order_never_changes,stale_shards");
}

#[test]
fn jobs_of_users_are_told_apart() {
    names("keeps_samples,random_windows,web_shards,healthy_evaluation,healthy_samplers");
}

#[test]
fn ordinary_jobs_have_no_fault() {
    names("healthy_images,healthy_ranges,healthy_hdf5,healthy_tfrecord,healthy_shards,healthy_tar");
}
