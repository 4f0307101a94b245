//! Histograms of latencies: three significant digits from a nanosecond to an hour, with the bins of an HDR histogram.
//! Count, sum, minimum and maximum are exact, and histograms add up exactly in any order.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{AddAssign, Range};

use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::units::Nanos;

/// The longest span with its own bin. Nothing that feeds a step takes longer; longer spans are counted in this bin.
const LONGEST: Nanos = Nanos(3_600_000_000_000);
/// Spans below 2 << `DIGIT_BITS` have a bin each. Above, the bin width doubles with every power of two, so that no bin
/// is wider than 1/1,024 of its spans: 0.1 %.
const DIGIT_BITS: u32 = 10;
const BINS: usize = bin_of(LONGEST) + 1;

const fn bin_of(span: Nanos) -> usize {
    let span = if span.0 < LONGEST.0 { span.0 } else { LONGEST.0 };
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(DIGIT_BITS + 1);
    ((shift as usize) << DIGIT_BITS) + (span >> shift) as usize
}

/// The shortest span of a bin.
const fn bottom_of(bin: usize) -> Nanos {
    let shift = (bin >> DIGIT_BITS).saturating_sub(1);
    Nanos(((bin - (shift << DIGIT_BITS)) as u64) << shift)
}

/// Counts of spans. An unused histogram allocates no memory.
#[derive(Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "WrittenHistogram")]
pub struct Histogram {
    count: u64,
    sum: Nanos,
    min: Nanos,
    max: Nanos,
    /// Empty until the first span. The operating system provides zeroed pages only when they are written to, so a part
    /// of the 264 KiB is used.
    bins: Vec<u64>,
}

impl Histogram {
    pub fn record(&mut self, span: Nanos) {
        self.record_n(span, 1);
    }

    /// Records `times` spans of the same length.
    pub(crate) fn record_n(&mut self, span: Nanos, times: u64) {
        if times == 0 {
            return;
        }
        if self.bins.is_empty() {
            self.begin();
        }
        self.count += times;
        self.sum += Nanos(span.0.saturating_mul(times));
        self.min = self.min.min(span);
        self.max = self.max.max(span);
        self.bins[bin_of(span)] += times;
    }

    #[cold]
    fn begin(&mut self) {
        self.bins = vec![0; BINS];
        self.min = Nanos(u64::MAX);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all spans.
    pub fn sum(&self) -> Nanos {
        self.sum
    }

    /// The shortest span; zero if the histogram is empty.
    pub fn min(&self) -> Nanos {
        self.min
    }

    /// The longest span; zero if the histogram is empty.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The sum of what spans take in excess of a limit, to 0.1 %.
    pub(crate) fn excess(&self, limit: Nanos) -> Nanos {
        let beyond = self.used().map(|bin| (bottom_of(bin).since(limit), self.bins[bin]));
        Nanos(beyond.fold(0, |sum: u64, (excess, count)| sum.saturating_add(excess.0.saturating_mul(count))))
    }

    /// The span that the share `quantile` of all spans does not exceed; zero if the histogram is empty. Exact at both
    /// ends, otherwise less than 0.1 % too long.
    pub fn quantile(&self, quantile: f64) -> Nanos {
        let rank = ((quantile.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).max(1);
        if rank >= self.count {
            return self.max;
        }
        if rank == 1 {
            return self.min;
        }
        let mut seen = 0;
        let bin = self.used().find(|bin| {
            seen += self.bins[*bin];
            seen >= rank
        });
        // The upper end of the bin, so that the share holds.
        bin.map_or(self.max, |bin| (bottom_of(bin + 1) - Nanos(1)).clamp(self.min, self.max))
    }

    /// The values for a report; `None` if nothing was recorded.
    pub fn summary(&self) -> Option<Quantiles> {
        (!self.is_empty()).then(|| Quantiles {
            count: self.count,
            mean_ns: Nanos(self.sum.0 / self.count),
            p50_ns: self.quantile(0.5),
            p90_ns: self.quantile(0.9),
            p99_ns: self.quantile(0.99),
            p99_9_ns: self.quantile(0.999),
            max_ns: self.max,
        })
    }

    fn written(&self) -> WrittenHistogram {
        let spans = self.used().map(|bin| (bottom_of(bin), self.bins[bin])).filter(|(_, count)| *count > 0);
        WrittenHistogram { sum_ns: self.sum, min_ns: self.min, max_ns: self.max, spans: spans.collect() }
    }

    /// The bins from the shortest to the longest span.
    fn used(&self) -> Range<usize> {
        if self.is_empty() { 0..0 } else { bin_of(self.min)..bin_of(self.max) + 1 }
    }
}

impl AddAssign<&Histogram> for Histogram {
    fn add_assign(&mut self, other: &Histogram) {
        if other.is_empty() {
            return;
        }
        if self.bins.is_empty() {
            self.begin();
        }
        let Histogram { count, sum, min, max, bins } = other;
        self.count += count;
        self.sum += *sum;
        self.min = self.min.min(*min);
        self.max = self.max.max(*max);
        // Only the used bins: writing a zero would allocate a page, too.
        let used = other.used();
        self.bins[used.clone()].iter_mut().zip(&bins[used]).for_each(|(bin, more)| *bin += more);
    }
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Histogram) {
        if self.is_empty() { *self = other } else { *self += &other }
    }
}

impl Clone for Histogram {
    /// Clones by addition, so that the copy takes no more pages than the original.
    fn clone(&self) -> Histogram {
        let mut copy = Histogram::default();
        copy += self;
        copy
    }
}

impl fmt::Debug for Histogram {
    /// Shows the serialized form, without tens of thousands of zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written().fmt(f)
    }
}

/// The summary of a histogram. Quantiles are less than 0.1 % too long; the rest is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean_ns: Nanos,
    pub p50_ns: Nanos,
    pub p90_ns: Nanos,
    pub p99_ns: Nanos,
    pub p99_9_ns: Nanos,
    pub max_ns: Nanos,
}

/// The serialized form of a histogram: the non-empty bins, by their shortest span.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenHistogram {
    sum_ns: Nanos,
    min_ns: Nanos,
    max_ns: Nanos,
    spans: Vec<(Nanos, u64)>,
}

/// Why a serialized histogram is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum HistogramError {
    #[error("a histogram's counts exceed 2^64")]
    TooMany,
    #[error("a histogram's shortest span, longest span and sum do not match its counts")]
    Ends,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

impl TryFrom<WrittenHistogram> for Histogram {
    type Error = HistogramError;

    fn try_from(written: WrittenHistogram) -> Result<Histogram, HistogramError> {
        let mut total = 0u64;
        let mut histogram = Histogram::default();
        for (span, count) in written.spans {
            total = total.checked_add(count).ok_or(HistogramError::TooMany)?;
            histogram.record_n(span, count);
        }
        let ends = |min, max| (bin_of(min), bin_of(max));
        let fits = written.min_ns <= written.max_ns
            && ends(written.min_ns, written.max_ns) == ends(histogram.min, histogram.max);
        if !fits || (histogram.is_empty() && written.sum_ns > Nanos::ZERO) {
            return Err(HistogramError::Ends);
        }
        (histogram.sum, histogram.min, histogram.max) = (written.sum_ns, written.min_ns, written.max_ns);
        Ok(histogram)
    }
}

/// How long each kind of operation took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Opening a file.
    pub open: Histogram,
    /// Making a connection to an object store, with the handshake of TLS.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub connect: Histogram,
    /// From a request to the first byte of its answer, for each attempt.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub first_byte: Histogram,
    /// From the first byte of an answer to its last.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub body: Histogram,
    /// Counting which pages of a sample are in memory, before they are read.
    #[serde(default)]
    pub probe: Histogram,
    /// One read.
    pub read: Histogram,
    /// Evicting the pages of a sample after they were read.
    #[serde(default)]
    pub forget: Histogram,
    /// Closing a file.
    pub close: Histogram,
    /// A sample, from its first request to its last byte.
    pub sample: Histogram,
    /// Preprocessing a sample.
    pub prep: Histogram,
    /// From the accelerator's request for a batch until it has it.
    pub batch_wait: Histogram,
}

impl Latencies {
    /// A summary of each kind that occurred.
    pub fn summaries(&self) -> BTreeMap<String, Quantiles> {
        self.each().filter_map(|(name, spans)| Some((name.to_owned(), spans.summary()?))).collect()
    }

    /// Every kind with its name, in the order in which a sample goes through them.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let Latencies {
            open,
            connect,
            first_byte,
            body,
            probe,
            read,
            forget,
            close,
            sample,
            prep,
            batch_wait,
        } = self;
        [
            ("open", open),
            ("connect", connect),
            ("first_byte", first_byte),
            ("body", body),
            ("probe", probe),
            ("read", read),
            ("forget", forget),
            ("close", close),
            ("sample", sample),
            ("prep", prep),
            ("batch_wait", batch_wait),
        ]
        .into_iter()
    }
}

impl AddAssign<&Latencies> for Latencies {
    fn add_assign(&mut self, other: &Latencies) {
        let Latencies {
            open,
            connect,
            first_byte,
            body,
            probe,
            read,
            forget,
            close,
            sample,
            prep,
            batch_wait,
        } = other;
        self.open += open;
        self.connect += connect;
        self.first_byte += first_byte;
        self.body += body;
        self.probe += probe;
        self.read += read;
        self.forget += forget;
        self.close += close;
        self.sample += sample;
        self.prep += prep;
        self.batch_wait += batch_wait;
    }
}

impl AddAssign for Latencies {
    fn add_assign(&mut self, other: Latencies) {
        let Latencies {
            open,
            connect,
            first_byte,
            body,
            probe,
            read,
            forget,
            close,
            sample,
            prep,
            batch_wait,
        } = other;
        self.open += open;
        self.connect += connect;
        self.first_byte += first_byte;
        self.body += body;
        self.probe += probe;
        self.read += read;
        self.forget += forget;
        self.close += close;
        self.sample += sample;
        self.prep += prep;
        self.batch_wait += batch_wait;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(spans: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        spans.iter().for_each(|span| histogram.record(Nanos(*span)));
        histogram
    }

    fn sum(parts: &[&Histogram]) -> Histogram {
        parts.iter().fold(Histogram::default(), |mut sum, part| {
            sum += *part;
            sum
        })
    }

    #[test]
    fn excess_is_what_exceeds_the_limit() {
        let histogram = of(&[10, 20, 20, 1500]);
        assert_eq!(histogram.excess(Nanos(15)), Nanos(5 + 5 + 1485));
        assert_eq!((histogram.excess(Nanos(2000)), of(&[]).excess(Nanos(0))), (Nanos(0), Nanos(0)));
    }

    /// Spans of every magnitude, some longer than an hour.
    fn spans() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u32..44, any::<u64>()).prop_map(|(bits, word)| word >> (63 - bits)), 0..60)
    }

    #[test]
    fn bins_are_contiguous_and_none_is_too_wide() {
        for bin in 0..BINS {
            let (bottom, next) = (bottom_of(bin), bottom_of(bin + 1));
            assert_eq!((bin_of(bottom), bin_of(next - Nanos(1))), (bin, bin));
            assert!((next.0 - bottom.0 - 1) * 1000 <= bottom.0, "bin {bin}: {bottom:?} to {next:?}");
        }
        assert_eq!(bin_of(Nanos(u64::MAX)), BINS - 1);
    }

    proptest! {
        #[test]
        fn addition_commutes_and_associates(a in spans(), b in spans(), c in spans()) {
            let whole = of(&[a.clone(), b.clone(), c.clone()].concat());
            let (a, b, c) = (of(&a), of(&b), of(&c));
            prop_assert_eq!(sum(&[&a, &b, &c]), whole.clone());
            prop_assert_eq!(sum(&[&c, &a, &b]), whole.clone());
            prop_assert_eq!(sum(&[&a, &sum(&[&b, &c])]), whole.clone());
            let mut moved = a.clone();
            moved += b;
            moved += c;
            prop_assert_eq!(moved, whole);
        }

        #[test]
        fn quantiles_are_exact_to_one_thousandth(mut all in spans(), share in 0.0f64..=1.0) {
            prop_assume!(!all.is_empty());
            let histogram = of(&all);
            all.sort_unstable();
            let rank = ((share * all.len() as f64).ceil() as usize).max(1);
            let longest = all[all.len() - 1];
            // Above one hour only the minimum and maximum are known.
            let is_end = rank == 1 || rank == all.len();
            let exact = if is_end { all[rank - 1] } else { all[rank - 1].min(LONGEST.0) };
            prop_assert!(!is_end || histogram.quantile(share).0 == exact);
            let found = histogram.quantile(share).0;
            prop_assert!(found >= exact && found <= exact + exact / 1000, "{found} for {exact}");
            prop_assert_eq!((histogram.min().0, histogram.max().0), (all[0], longest));
            let total = all.iter().fold(0u64, |sum, span| sum.saturating_add(*span));
            prop_assert_eq!((histogram.count(), histogram.sum().0), (all.len() as u64, total));
        }

        #[test]
        fn another_implementation_gives_the_same_quantiles(all in spans(), share in 0.0f64..1.0) {
            prop_assume!(!all.is_empty());
            let mut other = hdrhistogram::Histogram::<u64>::new_with_bounds(1, LONGEST.0, 3).unwrap();
            all.iter().for_each(|span| other.saturating_record((*span).min(LONGEST.0)));
            let ours = of(&all);
            let theirs = Nanos(other.value_at_quantile(share)).clamp(ours.min(), ours.max());
            prop_assert_eq!(bin_of(ours.quantile(share)), bin_of(theirs));
        }

        #[test]
        fn json_keeps_everything(all in spans()) {
            let before = of(&all);
            let text = serde_json::to_string(&before).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), before);
        }
    }

    #[test]
    fn an_unused_histogram_is_empty_and_has_no_summary() {
        let mut histogram = Histogram::default();
        histogram.record_n(Nanos(5), 0);
        histogram += &Histogram::default();
        assert_eq!((histogram.bins.capacity(), histogram.summary()), (0, None));
        assert_eq!((histogram.min(), histogram.max(), histogram.quantile(0.5)), Default::default());
    }

    #[test]
    fn the_summary_covers_all_spans() {
        let mut histogram = Histogram::default();
        histogram.record_n(Nanos(1_000), 990);
        histogram.record_n(Nanos(2_000), 9);
        histogram.record(Nanos(7_200_000_000_001));
        let summary = histogram.summary().unwrap();
        assert_eq!((summary.count, summary.mean_ns), (1000, Nanos(7_200_001_008)));
        assert_eq!(
            (summary.p50_ns, summary.p90_ns, summary.p99_ns),
            (Nanos(1_000), Nanos(1_000), Nanos(1_000))
        );
        assert_eq!((summary.p99_9_ns, summary.max_ns), (Nanos(2_000), Nanos(7_200_000_000_001)));
    }

    #[test]
    fn damaged_histograms_are_refused() {
        let read = |text: &str| serde_json::from_str::<Histogram>(text).map_err(|error| error.to_string());
        assert!(read(r#"{"sum_ns":5,"min_ns":5,"max_ns":5,"spans":[[5,1]]}"#).is_ok());
        for (text, why) in [
            (r#"{"sum_ns":5,"min_ns":4,"max_ns":5,"spans":[[5,1]]}"#, "do not match"),
            (r#"{"sum_ns":5,"min_ns":5,"max_ns":9,"spans":[[5,1]]}"#, "do not match"),
            (r#"{"sum_ns":5,"min_ns":4097,"max_ns":4096,"spans":[[4096,1]]}"#, "do not match"),
            (r#"{"sum_ns":5,"min_ns":0,"max_ns":0,"spans":[]}"#, "do not match"),
            (r#"{"sum_ns":5,"min_ns":5,"max_ns":6,"spans":[[5,18446744073709551615],[6,1]]}"#, "exceed"),
        ] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn latencies_add_up_kind_by_kind() {
        let latencies = |by: u64| Latencies {
            open: of(&[by]),
            connect: of(&[2 * by]),
            first_byte: of(&[3 * by]),
            body: of(&[4 * by]),
            probe: of(&[5 * by]),
            read: of(&[6 * by]),
            forget: of(&[7 * by]),
            close: of(&[8 * by]),
            sample: of(&[9 * by]),
            prep: of(&[10 * by]),
            batch_wait: of(&[11 * by]),
        };
        let (mut borrowed, mut moved) = (latencies(1), latencies(1));
        borrowed += &latencies(100);
        moved += latencies(100);
        assert_eq!(borrowed, moved);
        let found: Vec<_> = moved.each().map(|(name, spans)| (name, spans.min().0, spans.max().0)).collect();
        let names = [
            "open",
            "connect",
            "first_byte",
            "body",
            "probe",
            "read",
            "forget",
            "close",
            "sample",
            "prep",
            "batch_wait",
        ];
        let expected: Vec<_> = names.iter().zip(1..).map(|(name, n)| (*name, n, 100 * n)).collect();
        assert_eq!(found, expected);
        let text = serde_json::to_string(&moved).unwrap();
        assert_eq!(serde_json::from_str::<Latencies>(&text).unwrap(), moved);
    }
}
