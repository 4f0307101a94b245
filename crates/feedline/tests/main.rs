//! Black-box tests: every test starts the built binary in its own folder and checks exit code, output and files. All
//! tests are in one test binary, so that it is linked only once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

// Folders, commands with a time limit, and detailed failure messages.
mod util;
// A pseudo-terminal for a command, and the screen that a user sees.
mod pty;

// A run makes the same system calls as the frameworks' own readers.
mod access;
// Audits of jobs of other programs: exact counts, jobs that are not disturbed, planted faults.
mod audit;
// Pages, links and pictures of the documentation.
mod book;
// Where the bytes came from: the page cache is prepared, counted and judged.
mod cache;
// How many accelerators the storage can feed: how the search ends, and its report.
mod capacity;
// Existing data sets: the catalog compared with the disk, and damaged or outdated catalogs.
mod catalog;
// Tiers that are full, gone, in use, or have files of other programs: complete checkpoints are kept, and the error is
// named.
mod checkpoint_faults;
// Saves, drains, removals and restores that are killed at random moments.
mod checkpoint_kills;
// The three ways of saving, and what a restore verifies.
mod checkpoints;
// The command line: help, lists, JSON, quiet, completions, hints.
mod cli;
// Several processes that a launcher of MPI starts, also on several hosts.
mod cluster;
// Processes of a cluster that end, stop or lose their network.
mod cluster_failures;
// Every command on two hosts, and hosts that differ.
mod cluster_hosts;
// Processes of a cluster, and its launcher, that are killed at random moments.
mod cluster_kills;
// Failures of one process of three at chosen moments of a run with checkpoints.
mod cluster_moments;
// Processes that cannot run a command together: each reason has its own message.
mod cluster_refusals;
// Comparing two results: whether they differ, and whether they can be compared.
mod compare;
// DLIO's behaviour on request: what it changes, and what it does not.
mod compat;
// Completion scripts, in real shells.
mod completions;
// Damaged files are refused with their name and the position, without a crash and with little memory.
mod damage;
// DLIO's command lines and result folders, under the name dlio_benchmark.
mod dlio;
// The facts of --version, and checks of hosts and folders.
mod doctor;
// Each planned sample is delivered once, whatever the shape of the run.
mod exactly_once;
// Experiments from the literature, on simulated devices.
mod experiments;
// Every kind of fault with every I/O backend and both error policies.
mod fault_matrix;
// Commands that fail: their exit codes, and with --json one object on stdout.
mod failures;
// Failing storage, full disks and wrong input: one clear error, the right exit code, no partial files.
mod faults;
// Figures that prefetch, simulation or a misleading name could make look better than they are.
mod figures;
// Existing files, from other writers, are read and trained on.
mod foreign;
// Data sets that DLIO wrote run as they are, with the sizes that their files have.
mod found;
// The data set on disk: reproducible, complete, of the planned size.
mod generate;
// Storage that does not respond, and signals: every command ends in time and reports the reason.
mod hangs;
// What a file contains: its arrays, its samples, and csv headers.
mod inspect;
// Data that was read is compared with what was written: damaged, swapped and stale files are named.
mod integrity;
// Every format that feedline writes can be read by the libraries that training uses.
mod interop;
// Runs that are killed at random moments.
mod kills;
// Plans use the limits of the process, not those of the host.
mod limits;
// The live view on a terminal.
mod live;
// Links, pipes and files of other users at the names that feedline writes and removes.
mod links;
// The documentation in the program: pages, manual pages, generated pages.
mod manual;
// The manifest of a data set: which workload the folder belongs to, and whether its bytes are correct.
mod manifest;
// Live figures for Prometheus and node exporters, and hostile clients.
mod metrics;
// The rules of MLPerf Storage, on folders.
mod mlperf;
// Mistakes in workload files and flags: each has its own message, before any I/O.
mod mistakes;
// Object stores: servers, a proxy that injects faults, and objects of other programs.
mod objects;
// Catalogs of object stores: parallel, resumed, complete or an error.
mod objects_catalog;
// Faults of object stores: what is repeated, what ends a run, what is counted; writes that are refused.
mod objects_faults;
// Runs that are killed while they save, drain and restore checkpoints in an object store.
mod objects_kills;
// Object stores that cannot be used: wrong names, keys, endpoints and certificates.
mod objects_mistakes;
// What users see of object stores: the plan, the table of requests, sweeps.
mod objects_reports;
// The requests that commands make: none that is not needed.
mod objects_requests;
// Data sets in object stores: the same training as in a folder, interrupted generation, objects that changed.
mod objects_training;
// Settings from the command line: which one wins, and how messages name it.
mod overrides;
// File sizes, and counts and spans of reads, are the same on every I/O backend.
mod reads;
// Power failures: the order of flushes and renames.
mod power;
// Command lines of published MLPerf Storage runs, and the sizes that were published with them.
mod published;
// Versions are cut and checked before a release, and the oldest compiler is the same everywhere.
mod release;
// Commands that feedline suggests: a shell runs them as they are printed.
mod remedies;
// Pages of results in a real browser, and of folders that are damaged or of other programs.
mod reports;
// The result of a run: its files, keys, counts and checksums.
mod run;
// JSON documents and their schemas: all kinds match, changed documents and later versions are refused.
mod schemas;
// Secrets in workload files and arguments: in no message and in no file.
mod secrets;
// Several processes with one data set: all may read a complete one, and only one writes.
mod simultaneous;
// What stalls the accelerators: the parts of the time and the state of the page cache.
mod stall;
// Every I/O backend with every loader, and what backends refuse.
mod stores;
// Grids of settings: their files, mistakes in them, and interruptions.
mod sweep;
// What a terminal shows: width, colour, progress and Ctrl-C.
mod terminal;
// Rules for the text of the repository.
mod tidy;
// Traces: agreement with the ledger and with DFTracer, limits, kills, full disks.
mod traces;
// Sizes, times and shares, in flags, overrides and files.
mod units;
// The corpus of earlier versions: results, studies, data sets, catalogs, checkpoints and traces of these can be used.
mod upgrades;
// Validating results: changed bytes, changed rules, and folders that are not results.
mod validate;
// Workload files of all DLIO versions and MLPerf Storage rounds.
mod workload_files;
