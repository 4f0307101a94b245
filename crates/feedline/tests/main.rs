//! The program as its users meet it: every test starts the built binary in a folder of its own and looks at exit
//! code, streams and files. One binary for all of them, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test a panic is the report")]

// Folders, commands with a time limit, and failure messages with everything one needs to see.
mod util;

// What a run asks of the kernel is what the frameworks' own readers ask.
mod access;
// Where the bytes came from: the page cache made, counted and judged.
mod cache;
// How many accelerators a storage feeds: the ends of the search and its words.
mod capacity;
// Foreign data sets: the catalog against what is on disk, and everything that can be wrong with it.
mod catalog;
// Tiers that are full, gone, somebody else's, or in use: what is complete stays, and the error is named.
mod checkpoint_faults;
// Saves, drains, removals and restores killed at any moment.
mod checkpoint_kills;
// What is saved, three ways, and what a restore proves.
mod checkpoints;
// What the command line promises: help, lists, JSON, quiet, completions, hints.
mod cli;
// Two results side by side: whether they differ, and whether they may be compared.
mod compare;
// Bad files are refused with their name and a place, without a crash, in little memory.
mod damage;
// Each planned sample is delivered once, whatever the shape of the run.
mod exactly_once;
// What the literature measured, on simulated devices.
mod experiments;
// Every kind of fault beside every road and either policy.
mod fault_matrix;
// Storage, disks and users that misbehave: one clear error, the right exit code, nothing half-written.
mod faults;
// Figures that prefetch, simulation or a name could pass off as more than they are.
mod figures;
// Files that others wrote are understood and trained on.
mod foreign;
// The data set on disk: reproducible, whole, of the planned size.
mod generate;
// Storage that does not answer, and signals: every command ends in time and says why.
mod hangs;
// What was read is what was written: damaged, swapped and stale files are named.
mod integrity;
// Every format that we write is read by the library that training reads it with.
mod interop;
// The program killed at any moment.
mod kills;
// What a process may use of its host is what its plans go by.
mod limits;
// Links, pipes and files of other people at the names that we write and remove.
mod links;
// Whose folder it is, and whether its bytes are right.
mod manifest;
// Seeded mistakes in workload files and flags: each its own message, before any I/O.
mod mistakes;
// Settings from the command line: which one wins, and what a message calls it.
mod overrides;
// Sizes of files, and counts and spans of reads: alike on every store.
mod reads;
// What would be left after a power failure: the order of flushes and renames.
mod power;
// The result of a run: its files, keys, counts and sums.
mod run;
// What holds the accelerators up: the parts of the time and the state of the page cache.
mod stall;
// Every road to the bytes beside every loader, and what no road can do.
mod stores;
// Grids of settings: their files, their mistakes, and what happens when they are interrupted.
mod sweep;
// The repository's own text keeps the house's rules.
mod tidy;
// Results looked at again: every changed byte, every rule, every folder that is none.
mod validate;
