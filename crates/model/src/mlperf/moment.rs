//! Times in results: in the names of folders, and in documents as local time without a zone.

/// Seconds since some fixed moment, in local time.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct LocalMoment(f64);

impl LocalMoment {
    /// From the name of a folder: `YYYYMMDD_HHMMSS`.
    pub(super) fn of_folder(name: &str) -> Option<LocalMoment> {
        let (date, time) = name.split_once('_')?;
        let digits =
            |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(date, 8) || !digits(time, 6) {
            return None;
        }
        let part = |text: &str, at: usize, length: usize| text.get(at..at + length)?.parse::<i64>().ok();
        LocalMoment::new(
            [part(date, 0, 4)?, part(date, 4, 2)?, part(date, 6, 2)?],
            [part(time, 0, 2)?, part(time, 2, 2)?],
            part(time, 4, 2)? as f64,
        )
    }

    /// From `YYYY-MM-DDTHH:MM:SS`, with or without a fraction. A time with a zone is refused: mlpstorage cannot compare
    /// it with one without.
    pub(super) fn of_text(text: &str) -> Option<LocalMoment> {
        let (date, time) = text.split_once(['T', ' '])?;
        let whole =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<i64>().ok()).flatten();
        let date: Vec<i64> = date.split('-').map(whole).collect::<Option<_>>()?;
        let [hour, minute, second] = time.split(':').collect::<Vec<_>>().try_into().ok()?;
        let is_plain = second.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let second = second.parse().ok().filter(|_| is_plain)?;
        LocalMoment::new(date.try_into().ok()?, [whole(hour)?, whole(minute)?], second)
    }

    fn new([year, month, day]: [i64; 3], [hour, minute]: [i64; 2], second: f64) -> Option<LocalMoment> {
        let fits = (1..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0.0..61.0).contains(&second);
        // Years start in March here, so that a leap day is the last day of a year.
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
        fits.then(|| LocalMoment((days * 86_400 + hour * 3600 + minute * 60) as f64 + second))
    }

    /// Seconds from this moment to a later one; negative if it is earlier.
    pub(super) fn until(self, later: LocalMoment) -> f64 {
        later.0 - self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_documents_have_the_same_time() {
        let folder = LocalMoment::of_folder("20260720_152622").unwrap();
        assert_eq!(LocalMoment::of_text("2026-07-20T15:26:22"), Some(folder));
        let later = LocalMoment::of_text("2026-07-20T15:26:27.775469").unwrap();
        assert!((folder.until(later) - 5.775_469).abs() < 1e-5, "{}", folder.until(later));
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        for (one, other, days) in [
            ("2024-02-28", "2024-03-01", 2.0),
            ("2025-02-28", "2025-03-01", 1.0),
            ("2025-12-31", "2026-01-01", 1.0),
            ("2000-01-01", "2001-01-01", 366.0),
        ] {
            let [one, other] =
                [one, other].map(|day| LocalMoment::of_text(&format!("{day}T00:00:00")).unwrap());
            assert_eq!(one.until(other), days * 86_400.0);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "2026-07-20", "2026-07-20T15:26:27Z", "2026-07-20T15:26:27+02:00", "2026-13-20T15:26:27"]
        {
            assert_eq!(LocalMoment::of_text(text), None, "{text}");
        }
        for name in
            ["2026072_0152622", "20260720-152622", "20260720_1526220", "20261320_152622", "ä0260720_152622"]
        {
            assert_eq!(LocalMoment::of_folder(name), None, "{name}");
        }
    }
}
