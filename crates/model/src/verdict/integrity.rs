//! The rule about content: the bytes read are the bytes that were written.

use super::rules::{FINISH_EPOCH, RuleResult, no_plan};
use super::{Case, TrainingCase, seen_phases};
use crate::ledger::CheckedFetches;
use crate::plan::ListOrigin;
use crate::spec::Verify;
use crate::units::{Bytes, Nanos, grouped};

const GENERATE: &str = "to compare content, use a data set that 'feedline generate' wrote";

pub(super) fn data_verified(case: &Case<'_>) -> RuleResult {
    let (mut checked, mut read, mut cpu) = (CheckedFetches::default(), 0, Nanos::ZERO);
    for (epoch, phase) in seen_phases(case.ledger) {
        let node = case.ledger.node_total(epoch, phase);
        checked += node.checked;
        cpu += node.cpu_ns;
        read += case.ledger.total(epoch, phase).bytes_read;
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
        (Verify::Sample, 0) if unknown == 0 => {
            let compared = match plan.data.listed().map(|listed| listed.origin) {
                Some(ListOrigin::Catalog) => "only their sizes were compared, and equal the catalog's",
                Some(ListOrigin::SizesAsFound) => {
                    "sizes were taken as found, and did not change during the run"
                }
                None => "only their sizes were compared, and equal the plan's",
            };
            RuleResult::note(format!("existing files: {compared}")).with_remedy(GENERATE)
        }
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
