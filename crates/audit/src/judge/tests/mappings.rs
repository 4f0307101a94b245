//! The rule about mapped files, by resident bytes and by page faults.

use model::observed::Certainty;

use super::*;

/// A job that reads by page faults only: it brings 533 MiB from storage in each epoch.
fn mapping() -> Observed {
    let mut observed = starving();
    observed.storage[0].read_ahead_kb = Some(8192);
    each(&mut observed, |row| {
        row.io.reads = Calls::default();
        row.files.mapped_bytes = Some(512 * MIB);
        row.issued_bytes = Some(533 * MIB);
    });
    observed
}

/// Few samples of 4 KiB at random places: each fault reads ahead.
fn scattered() -> Observed {
    let mut observed = mapping();
    each(&mut observed, |row| {
        row.files.resident_bytes = Some(400 * MIB);
        row.files.resident_growth_bytes = Some(60 * MIB);
        (row.files.faults, row.files.faults_sequential, row.files.faults_major) =
            (Some(945), Some(4), Some(87));
        (row.files.fault_page_bytes, row.files.fault_piece_bytes) = (Some(945 * 4096), Some(430 * MIB));
    });
    observed
}

const NAME: &str = "mmap-amplification";

#[test]
fn by_resident_bytes() {
    let mut observed = mapping();
    each(&mut observed, |row| row.files.resident_bytes = Some(60 * MIB));
    only(NAME, &observed);
    assert_eq!(judge(&observed).findings[0].certainty, Certainty::Medium);
    each(&mut observed, |row| row.files.resident_bytes = Some(512 * MIB));
    not(NAME, &observed);
    // Mappings that were given up, so that nothing is known of them.
    each(&mut observed, |row| row.files.resident_bytes = None);
    assert_eq!(outcome(&judge(&observed), NAME), RuleAnswer::NotMeasurable);
}

#[test]
fn by_page_faults() {
    let observed = scattered();
    only(NAME, &observed);
    let finding = &judge(&observed).findings[0];
    assert_eq!(finding.certainty, Certainty::High);
    assert!(finding.evidence.contains("945 page faults, 87 waited for storage"), "{}", finding.evidence);
    assert_eq!(finding.figures["used_bytes"], (60 * MIB) as f64);
}

#[test]
fn healthy_mappings_are_no_fault() {
    // In order: nearly everything becomes resident.
    let mut observed = scattered();
    each(&mut observed, |row| {
        row.files.resident_growth_bytes = Some(512 * MIB);
        (row.files.faults_sequential, row.files.faults_major) = (Some(900), Some(64));
    });
    not(NAME, &observed);
    // Each file is mapped for a moment only: no fault can have mapped more than its piece.
    each(&mut observed, |row| {
        (row.files.resident_bytes, row.files.resident_growth_bytes) = (None, None);
        row.files.fault_piece_bytes = Some(512 * MIB);
    });
    not(NAME, &observed);
    // At random, with MADV_RANDOM: each fault brings its own page.
    let mut observed = scattered();
    each(&mut observed, |row| {
        row.issued_bytes = Some(945 * 4096);
        row.files.faults_major = Some(945);
    });
    not(NAME, &observed);
}

#[test]
fn programs_that_are_read_from_storage_are_no_matter_of_mappings() {
    // A small index: a few faults cannot have brought this.
    let mut observed = scattered();
    each(&mut observed, |row| {
        (row.files.faults, row.files.faults_major) = (Some(2), Some(1));
        row.files.resident_growth_bytes = Some(9 * MIB);
    });
    not(NAME, &observed);
    each(&mut observed, |row| (row.files.faults, row.files.faults_major) = (Some(0), Some(0)));
    not(NAME, &observed);
}

#[test]
fn incomplete_faults_are_not_relied_on() {
    for lost in [false, true] {
        let mut observed = scattered();
        each(&mut observed, |row| {
            if lost {
                row.files.faults_lost = 500;
            } else {
                row.files.faults_blind_ns = seconds(2.0);
            }
        });
        // What is resident says less.
        not(NAME, &observed);
        each(&mut observed, |row| row.files.resident_bytes = Some(60 * MIB));
        only(NAME, &observed);
    }
}

#[test]
fn rules_about_reads_are_not_judged_where_mappings_can_explain_them() {
    let mut observed = healthy();
    later(&mut observed, |row| row.io.reads.bytes = 0);
    only("contents-kept-in-memory", &observed);
    // Known from faults alone: no mapping lived when resident bytes were read.
    each(&mut observed, |row| row.files.fault_piece_bytes = Some(SAMPLES * FILE * 2));
    assert_eq!(outcome(&judge(&observed), "contents-kept-in-memory"), RuleAnswer::NotMeasurable);
}
