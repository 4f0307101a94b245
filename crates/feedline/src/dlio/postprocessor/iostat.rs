//! `iostat.json`: what DLIO's profiler recorded about the disks and CPUs of the first host, one sample per second. The
//! file is optional.

use std::collections::BTreeMap;

use jiff::civil::DateTime;
use serde_json::Value;

use super::LeafReader;
use super::leaf::{TimeSpan, number};
use crate::report;

/// Columns of a disk in the report, and their names in the file.
pub(super) const DISK: [(&str, &str); 7] = [
    ("R Bandwidth (MiB/s):", "rMB/s"),
    ("W Bandwidth (MiB/s):", "wMB/s"),
    ("R IOPS:", "r/s"),
    ("W IOPS:", "w/s"),
    ("Avg R Time (ms):", "r_await"),
    ("Avg W Time (ms):", "w_await"),
    ("Avg Queue Length:", "aqu-sz"),
];

/// Columns of the CPUs, and what is added up for each: `user` includes processes with low priority.
pub(super) const CPU: [(&str, &[&str]); 5] = [
    ("User (%):", &["user", "nice"]),
    ("System (%):", &["system"]),
    ("IO Wait (%):", &["iowait"]),
    ("Steal (%):", &["steal"]),
    ("Idle (%):", &["idle"]),
];

/// The samples of iostat, in order.
pub(super) struct HostLoad(Vec<LoadSample>);

struct LoadSample {
    time: Option<DateTime>,
    sample: Value,
}

impl HostLoad {
    /// Reads the file. A file that cannot be used causes a notice, because the rest of the report does not need it.
    pub(super) fn read(reader: &LeafReader<'_>) -> Option<HostLoad> {
        let name = "iostat.json";
        let samples = match reader.json(name) {
            Ok(file) => file?["sysstat"]["hosts"][0]["statistics"].take(),
            Err(error) => {
                report::note(&format!("notice: the report has no disks and CPUs: {error:#}"));
                return None;
            }
        };
        let Value::Array(samples) = samples else {
            let path = reader.folder.join(name);
            report::note(&format!(
                "notice: the report has no disks and CPUs: {} has no samples",
                path.display()
            ));
            return None;
        };
        let samples = samples.into_iter().map(|sample| LoadSample { time: moment(&sample), sample });
        Some(HostLoad(samples.collect()))
    }

    /// The names of all disks.
    pub(super) fn disks(&self) -> Vec<&str> {
        let mut names: BTreeMap<&str, ()> = BTreeMap::new();
        for disk in self.0.iter().flat_map(|sample| disks(&sample.sample)) {
            names.extend(disk["disk_device"].as_str().map(|name| (name, ())));
        }
        names.into_keys().collect()
    }

    /// A column of a disk during a span of time.
    pub(super) fn disk(&self, name: &str, column: &str, span: &TimeSpan) -> Vec<f64> {
        let samples = self.during(span).flat_map(disks);
        let samples = samples.filter(|disk| disk["disk_device"].as_str() == Some(name));
        samples.filter_map(|disk| number(&disk[column])).collect()
    }

    /// A column of the CPUs during a span of time: the sum of these fields.
    pub(super) fn cpu(&self, fields: &[&str], span: &TimeSpan) -> Vec<f64> {
        let sum = |sample: &Value| {
            fields.iter().map(|field| number(&sample["avg-cpu"][*field])).sum::<Option<f64>>()
        };
        self.during(span).filter_map(sum).collect()
    }

    fn during<'a>(&'a self, span: &TimeSpan) -> impl Iterator<Item = &'a Value> {
        let (start, end) = (span.start, span.end);
        let within = move |time: DateTime| {
            start.is_some_and(|start| start <= time) && end.is_some_and(|end| time < end)
        };
        self.0.iter().filter(move |sample| sample.time.is_some_and(within)).map(|sample| &sample.sample)
    }
}

fn disks(sample: &Value) -> impl Iterator<Item = &Value> {
    sample["disk"].as_array().into_iter().flatten()
}

/// The time of a sample, which is local. Its form depends on the locale and on `S_TIME_FORMAT`.
fn moment(sample: &Value) -> Option<DateTime> {
    const FORMS: [&str; 4] =
        ["%m/%d/%y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%m/%d/%y %I:%M:%S %p", "%m/%d/%Y %I:%M:%S %p"];
    let text = sample["timestamp"].as_str()?;
    let iso = text.get(..19).and_then(|text| text.parse().ok());
    iso.or_else(|| FORMS.iter().find_map(|form| DateTime::strptime(form, text).ok()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_of_a_sample_is_read_in_all_locales() {
        let expected: DateTime = "2026-11-17T19:00:01".parse().unwrap();
        let forms = [
            "11/17/26 19:00:01",
            "11/17/2026 19:00:01",
            "11/17/2026 07:00:01 PM",
            "2026-11-17T19:00:01+0100",
            "2026-11-17 19:00:01",
        ];
        for form in forms {
            assert_eq!(moment(&json!({"timestamp": form})), Some(expected), "{form}");
        }
        assert_eq!(moment(&json!({"timestamp": "yesterday"})), None);
    }
}
