//! Why the rate by the clock differs from the rate in the metric window: the time that the window excludes.

use super::Rates;
use crate::ledger::{Ledger, Phase};
use crate::plan::TrainingPlan;
use crate::units::{Nanos, counted, grouped};

/// Explain rates that differ by more than this.
const NOTABLE: f64 = 0.03;
/// The smallest share of the time that is named as a cause.
const CAUSE: f64 = 0.01;

/// Times of the finished epochs of a phase, summed over ranks and epochs.
#[derive(Default)]
struct TimeSums {
    /// Sums of the epochs' rates.
    rate: f64,
    clock_rate: f64,
    rows: u64,
    /// Steps of one rank in one epoch.
    steps: u64,
    /// Steps that the window excludes, and how much longer they took than the same number of steps in it.
    left_out_steps: u64,
    left_out: f64,
    checkpoints: f64,
    /// From the last batch to the end of the phase.
    after: f64,
    time: f64,
}

impl TimeSums {
    fn of(ledger: &Ledger, phase: Phase) -> TimeSums {
        let mut sums = TimeSums::default();
        for epoch in ledger.epochs(phase) {
            let rates = Rates::new(ledger, phase, epoch);
            let (Some(rate), Some(clock_rate)) = (rates.samples_per_second, rates.clock_samples_per_second)
            else {
                continue;
            };
            sums.rate += rate;
            sums.clock_rate += clock_rate;
            for (_, row) in ledger.rows(epoch, phase) {
                let time = row.steps_ns() + row.checkpoint_ns;
                sums.rows += 1;
                sums.steps = row.steps;
                sums.time += time.seconds();
                sums.checkpoints += row.checkpoint_ns.seconds();
                sums.after += (time - row.last_batch_ns).seconds();
                if phase == Phase::Train {
                    let (steps, window) = (row.steps - row.window.steps, row.window.time_ns.seconds());
                    let usual = window / row.window.steps.max(1) as f64 * steps as f64;
                    sums.left_out_steps = steps;
                    sums.left_out += row.steps_ns().seconds() - window - usual;
                }
            }
        }
        sums
    }

    fn mean(&self, seconds: f64) -> Nanos {
        Nanos::from_seconds(seconds / self.rows as f64)
    }
}

/// Explains the two rates of a phase if they differ by more than a few percent. With a plan, also says how much can be
/// read in advance.
pub fn difference(plan: Option<&TrainingPlan>, ledger: &Ledger, phase: Phase) -> Option<String> {
    let sums = TimeSums::of(ledger, phase);
    let more = sums.clock_rate / sums.rate - 1.0;
    // NaN if nothing was delivered.
    if sums.rows == 0 || more.is_nan() || more.abs() <= NOTABLE {
        return None;
    }
    let percent = 100.0 * more.abs();
    if more > 0.0 {
        return Some(format!(
            "by the clock the rate is {percent:.0} % higher: the clock stops at the last batch, and the last of the \
             {} then computes for {}",
            counted(sums.steps, "step"),
            sums.mean(sums.after)
        ));
    }
    let whole = sums.mean(sums.time);
    let mut causes = Vec::new();
    if sums.left_out > CAUSE * sums.time {
        let ahead = match plan.map_or(0, TrainingPlan::batches_ahead) {
            0 => String::new(),
            ahead => {
                format!("; up to {} batches per rank can be read in advance in that time", grouped(ahead))
            }
        };
        causes.push(format!(
            "the metric window excludes {}, which took {} longer than other steps (an epoch takes {whole}){ahead}",
            counted(sums.left_out_steps, "step"),
            sums.mean(sums.left_out)
        ));
    }
    if sums.checkpoints > CAUSE * sums.time {
        let took = sums.mean(sums.checkpoints);
        causes.push(format!(
            "the metric window excludes checkpoints, which took {took} (an epoch takes {whole})"
        ));
    }
    if causes.is_empty() {
        causes.push(
            "ranks received their last batches at different times, and the clock stops at the last one"
                .to_owned(),
        );
    }
    Some(format!("by the clock the rate is {percent:.0} % lower: {}", causes.join("; ")))
}
