//! The rule about content: the bytes read are the bytes that were written.

use super::rules::{FINISH_EPOCH, RuleResult, no_plan};
use super::{Case, TrainingCase, seen_phases, worst_part};
use crate::ledger::{CheckedFetches, LedgerPart};
use crate::plan::{ListOrigin, TrainingPlan};
use crate::spec::Verify;
use crate::units::{Bytes, Nanos, grouped};

const GENERATE: &str = "to compare content, use a data set that 'feedline generate' wrote";

pub(super) fn data_verified(case: &Case<'_>) -> RuleResult {
    worst_part(case.ledger, |part| data_verified_in(case, part))
}

fn data_verified_in(case: &Case<'_>, part: &LedgerPart<'_>) -> RuleResult {
    let (mut checked, mut read, mut cpu) = (CheckedFetches::default(), 0, Nanos::ZERO);
    for (epoch, phase) in seen_phases(case.ledger) {
        let node = part.observed(epoch, phase);
        checked += node.checked;
        cpu += node.cpu_ns;
        read += part.total(epoch, phase).bytes_read;
    }
    let CheckedFetches { fetches, unknown, foreign, wrong, bytes, ns } = checked;
    if wrong > 0 {
        return RuleResult::fail(format!("wrong bytes in {} fetches", grouped(wrong)));
    }
    let Some(TrainingCase { plan, .. }) = case.training() else { return no_plan() };
    match (plan.verify, fetches) {
        (Verify::None, _) => RuleResult::not_checkable("reader.verify is none: nothing was compared")
            .with_remedy("use --verify sample or full"),
        _ if fetches + unknown + foreign == 0 => RuleResult::not_checkable(
            "no bytes were read that could be compared",
        )
        .with_remedy(match plan.store.holds_files {
            true => FINISH_EPOCH,
            false => "use --store posix or another backend that reads files",
        }),
        (Verify::Sample, 0) if unknown == 0 => match plan.data.listed().map(|listed| listed.origin) {
            Some(ListOrigin::SizesAsFound) => sizes_as_found(plan),
            Some(ListOrigin::Catalog) => {
                RuleResult::note("existing files: only their sizes were compared, and equal the catalog's")
                    .with_remedy(GENERATE)
            }
            None => RuleResult::note("existing files: only their sizes were compared, and equal the plan's")
                .with_remedy(GENERATE),
        },
        (_, 0) if unknown == 0 => {
            RuleResult::not_checkable("existing files: their expected content is unknown")
                .with_remedy(GENERATE)
        }
        (_, 0) => RuleResult::not_checkable("compressed files can only be compared with --verify full")
            .with_remedy("use --verify full"),
        _ if unknown + foreign > 0 => RuleResult::not_checkable(format!(
            "{} of {} fetches read bytes whose expected content is unknown",
            grouped(unknown + foreign),
            grouped(fetches + unknown + foreign)
        )),
        _ => {
            // Wall-clock time, which includes time that other processes used: an upper bound.
            let share = 100.0 * ns.0.min(cpu.0) as f64 / cpu.0.max(1) as f64;
            let (compared, read) = (Bytes(bytes), Bytes(read));
            let fetches = grouped(fetches);
            RuleResult::pass(format!(
                "{fetches} fetches, {compared} of {read} compared with the written content, at most {share:.1} % of \
                 CPU time"
            ))
        }
    }
}

/// Files that are shorter than this share of what the workload describes are probably not its data set.
const LEAST_FOUND: f64 = 0.5;
/// A difference that needs no mention.
const ALIKE: f64 = 0.05;

/// The result for existing files whose sizes nothing states but the workload.
fn sizes_as_found(plan: &TrainingPlan) -> RuleResult {
    let train = &plan.data.train;
    let samples = (train.files * train.samples_per_file) as f64;
    let share = train.bytes as f64 / (plan.metric.record_length_bytes * samples).max(1.0);
    let found = format!(
        "existing files: sizes were taken as found, {:.0} % of the bytes that the workload describes, which figures \
         under DLIO's names count",
        100.0 * share
    );
    match share {
        share if share < LEAST_FOUND => RuleResult::not_checkable(found).with_remedy(
            "check that the files are complete and that dataset.record_length_bytes describes them",
        ),
        share if (share - 1.0).abs() > ALIKE => RuleResult::note(found).with_remedy(GENERATE),
        _ => RuleResult::note("existing files: sizes were taken as found").with_remedy(GENERATE),
    }
}
