//! When minor page faults are recorded: while there are mappings of data files, and not more of them than a job can
//! bear. Most minor faults of a job concern its own memory, and the kernel cannot select those of files.

/// Recorded faults per second on one CPU, and on all of them: what recording them takes of a CPU is a few percent at
/// most (`scripts/bench audit` compares storms of faults with and without an audit).
const MOST_PER_CPU: u64 = 50_000;
const MOST: u64 = 400_000;
/// Switching all processes on or off is not repeated before this multiple of the time that it takes.
const PAUSE: u64 = 50;
const LONGEST_BREAK_NS: u64 = 1_000_000_000;
/// Recorded before a rate is judged.
const SHORTEST_LOOK_NS: u64 = 20_000_000;

/// What it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Switch {
    On,
    Off,
}

/// The rate of recorded faults, and what follows from it. Times are those of the clock.
#[derive(Debug, Default)]
pub(super) struct Governor {
    is_on: bool,
    /// Since when the counts below are taken.
    since_ns: u64,
    /// By CPU.
    counts: Vec<u64>,
    /// Not switched on before.
    not_before_ns: u64,
    /// What switching took last.
    took_ns: u64,
    /// Up to here, it is known whether faults were recorded.
    told_ns: u64,
}

impl Governor {
    pub(super) fn counted(&mut self, cpu: usize, count: u64) {
        if self.counts.len() <= cpu {
            self.counts.resize(cpu + 1, 0);
        }
        self.counts[cpu] += count;
    }

    /// What is to be done. `mapped`: whether a process has mappings of data files.
    pub(super) fn decide(&mut self, mapped: bool, now: u64) -> Option<Switch> {
        if !self.is_on {
            return (mapped && now >= self.not_before_ns).then_some(Switch::On);
        }
        if !mapped {
            return Some(Switch::Off);
        }
        let took = now.saturating_sub(self.since_ns);
        if took < SHORTEST_LOOK_NS {
            return None;
        }
        let per_second = |count: u64| u128::from(count) * 1_000_000_000 / u128::from(took);
        let of_one = per_second(self.counts.iter().copied().max().unwrap_or(0));
        let of_all = per_second(self.counts.iter().sum());
        self.restart(now);
        // By how many times the rates are too high, in percent.
        let excess = (of_one * 100 / u128::from(MOST_PER_CPU)).max(of_all * 100 / u128::from(MOST));
        if excess <= 100 {
            return None;
        }
        // On average, recording takes no more than it may.
        let pause = u128::from(took) * (excess - 100) / 100;
        let pause = u64::try_from(pause).unwrap_or(u64::MAX).min(LONGEST_BREAK_NS);
        self.not_before_ns = now.saturating_add(pause.max(self.took_ns.saturating_mul(PAUSE)));
        Some(Switch::Off)
    }

    /// It was done, from `now` to `end`.
    pub(super) fn switched(&mut self, to: Switch, now: u64, end: u64) {
        self.is_on = to == Switch::On;
        self.took_ns = end.saturating_sub(now);
        self.restart(end);
    }

    fn restart(&mut self, now: u64) {
        self.since_ns = now;
        self.counts.iter_mut().for_each(|count| *count = 0);
    }

    /// The time since the last call in which minor faults of mappings, which exist since `mapped_ns`, were not
    /// recorded.
    pub(super) fn blind_ns(&mut self, mapped_ns: Option<u64>, now: u64) -> u64 {
        let from = std::mem::replace(&mut self.told_ns, now);
        match mapped_ns {
            Some(mapped_ns) if !self.is_on => now.saturating_sub(from.max(mapped_ns)),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Decides every 50 ms while each CPU has so many faults per second, and returns the share of time it was on.
    fn share_on(per_second: u64, cpus: usize) -> f64 {
        let mut governor = Governor::default();
        let (mut on, mut all) = (0, 0);
        for round in 0..2000 {
            let now = round * 50 * MS;
            if governor.is_on {
                on += 1;
                (0..cpus).for_each(|cpu| governor.counted(cpu, per_second / 20));
            }
            all += 1;
            if let Some(to) = governor.decide(true, now) {
                governor.switched(to, now, now);
            }
        }
        f64::from(on) / f64::from(all)
    }

    #[test]
    fn storms_of_faults_are_recorded_for_a_part_of_the_time() {
        assert!(share_on(MOST_PER_CPU, 2) > 0.99);
        let share = share_on(5 * MOST_PER_CPU, 2);
        assert!((0.15..0.35).contains(&share), "{share}");
        let share = share_on(2_000_000, 2);
        assert!((0.02..0.1).contains(&share), "{share}");
        // Many CPUs, none of which has many.
        let share = share_on(40_000, 40);
        assert!((0.15..0.35).contains(&share), "{share}");
    }

    #[test]
    fn nothing_is_recorded_without_mappings() {
        let mut governor = Governor::default();
        assert_eq!(governor.decide(false, 10), None);
        assert_eq!(governor.decide(true, 20), Some(Switch::On));
        governor.switched(Switch::On, 20, 30);
        assert_eq!(governor.decide(true, 40), None);
        assert_eq!(governor.decide(false, 50), Some(Switch::Off));
    }

    #[test]
    fn time_without_records_is_counted_from_the_first_mapping_on() {
        let mut governor = Governor::default();
        assert_eq!(governor.blind_ns(None, 100), 0);
        assert_eq!(governor.blind_ns(Some(150), 200), 50);
        governor.switched(Switch::On, 200, 210);
        assert_eq!(governor.blind_ns(Some(150), 300), 0);
        governor.switched(Switch::Off, 300, 300);
        assert_eq!(governor.blind_ns(Some(150), 400), 100);
    }
}
