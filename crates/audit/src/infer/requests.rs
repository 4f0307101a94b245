//! The requests of a sample, from the sequences of reads that samples have in common.

use model::observed::{EpochRow, ValueCounts};
use model::units::{counted, grouped};

use super::inferred::Inferred;

/// Longer lists are replaced by one size.
const MOST: usize = 64;
/// The largest size that `reader.requests` takes.
const LARGEST: u64 = 1 << 40;

/// How the bytes of a sample are requested.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SampleRequests {
    pub sizes: Vec<u64>,
    /// Whether everything after the sizes is one request; without sizes, the sample is one request.
    pub rest: bool,
}

impl SampleRequests {
    pub(super) fn to_yaml(&self) -> String {
        let sizes = self.sizes.iter().map(|size| (*size).clamp(1, LARGEST).to_string());
        let items: Vec<String> = sizes.chain(self.rest.then(|| "rest".to_owned())).collect();
        format!("[{}]", items.join(", "))
    }
}

/// The requests of the samples of these epochs; `reads_per_sample` is their mean number.
pub(super) fn requests(
    rows: &[&EpochRow],
    sizes: &ValueCounts,
    reads_per_sample: f64,
) -> Inferred<SampleRequests> {
    let patterns: Vec<Vec<u64>> = rows
        .iter()
        .flat_map(|row| &row.sample_patterns)
        .map(|pattern| pattern.reads.iter().map(|(_, length)| *length).collect())
        .filter(|reads: &Vec<u64>| !reads.is_empty())
        .collect();
    let firsts = rows.iter().flat_map(|row| row.sample_patterns.first());
    let examined = firsts.fold(0u64, |sum, row| sum.saturating_add(row.examined));
    let all = rows.iter().flat_map(|row| &row.sample_patterns);
    let seen = all.fold(0u64, |sum, row| sum.saturating_add(row.samples));
    let fits = patterns.iter().any(|reads| reads.len() as f64 >= 0.5 * reads_per_sample.min(MOST as f64));
    if let Some(found) = common(&patterns).filter(|_| fits) {
        let source =
            format!("measured: {} of {} have such reads", counted(seen, "sample"), grouped(examined));
        return if seen as f64 >= 0.9 * examined as f64 {
            Inferred::certain(found, source)
        } else {
            Inferred::likely(found, source)
        };
    }
    if reads_per_sample < 1.5 {
        return Inferred::likely(
            SampleRequests::default(),
            format!("measured: {reads_per_sample:.2} reads per sample"),
        );
    }
    by_quantiles(sizes, reads_per_sample)
}

/// Samples whose reads have no common sequence: as many sizes as a sample has reads, with the same distribution.
fn by_quantiles(sizes: &ValueCounts, reads_per_sample: f64) -> Inferred<SampleRequests> {
    let number = reads_per_sample.round() as usize;
    let quantile = |share: f64| sizes.quantile(share).unwrap_or(1).max(1);
    let (list, what) = match number {
        0..=MOST => {
            let shares = (0..number).map(|index| (index as f64 + 0.5) / number as f64);
            (shares.map(quantile).collect(), "quantiles")
        }
        _ => (vec![quantile(0.5)], "median"),
    };
    let source =
        format!("{what} of {}; their order in a sample is not known", counted(sizes.count(), "read"));
    Inferred::guess(SampleRequests { sizes: list, rest: number <= MOST }, source)
}

/// What all sequences have in common: the same sizes, then one request of the rest, or the last size again and again.
fn common(patterns: &[Vec<u64>]) -> Option<SampleRequests> {
    let first = patterns.first()?;
    let shared = patterns.iter().fold(first.len(), |shared, reads| {
        first.iter().zip(reads).take(shared).take_while(|(one, other)| one == other).count()
    });
    let (mut sizes, mut rest) = (first[..shared].to_vec(), false);
    let repeats = |last: u64| {
        patterns.iter().all(|reads| {
            let tail = &reads[shared..];
            tail.split_last()
                .is_none_or(|(end, before)| *end <= last && before.iter().all(|size| *size == last))
        })
    };
    match sizes.last().copied() {
        Some(last) if repeats(last) => {}
        _ if patterns.iter().all(|reads| reads.len() <= shared + 1) => rest = true,
        _ => return None,
    }
    if !rest {
        // What follows is not more than the size before it, so that the range ends there.
        if sizes.len() > 1 && sizes[sizes.len() - 1] <= sizes[sizes.len() - 2] {
            sizes.pop();
        }
        while sizes.len() > 1 && sizes[sizes.len() - 1] == sizes[sizes.len() - 2] {
            sizes.pop();
        }
    }
    // One request of the whole sample needs no list.
    let is_whole = patterns.iter().all(|reads| reads.len() == 1);
    Some(if is_whole { SampleRequests::default() } else { SampleRequests { sizes, rest } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_become_lists() {
        for (patterns, sizes, rest) in [
            (&[&[100][..], &[90]][..], &[][..], false),
            (&[&[4096, 16384], &[4096, 16350]], &[4096], true),
            (&[&[8, 8, 8, 3]], &[8], false),
            (&[&[8, 8, 8, 3], &[8, 8, 2]], &[8], false),
            (&[&[12, 1000, 4]], &[12, 1000], false),
            (&[&[512, 64, 4096]], &[512, 64, 4096], false),
        ] {
            let patterns: Vec<Vec<u64>> = patterns.iter().map(|reads| reads.to_vec()).collect();
            assert_eq!(
                common(&patterns),
                Some(SampleRequests { sizes: sizes.to_vec(), rest }),
                "{patterns:?}"
            );
        }
        assert_eq!(common(&[vec![1, 5, 9], vec![1, 6, 2]]), None);
        assert_eq!(common(&[]), None);
    }

    #[test]
    fn sizes_without_a_sequence_keep_their_distribution() {
        let mut sizes = ValueCounts::default();
        sizes.record_n(16, 300);
        sizes.record_n(1000, 100);
        let found = by_quantiles(&sizes, 4.0).value;
        assert_eq!((found.sizes, found.rest), (vec![16, 16, 16, 1000], true));
        assert_eq!(by_quantiles(&sizes, 1000.0).value.sizes, [16]);
    }
}
