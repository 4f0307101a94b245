//! Dates as signatures need them, computed from seconds since 1970: nothing here reads a clock.

/// A moment in the forms of the two signature schemes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) seconds: u64,
    /// `20260131T235959Z`
    pub(crate) compact: [u8; 16],
    /// `Sat, 31 Jan 2026 23:59:59 GMT`
    pub(crate) http: [u8; 29],
}

const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

impl Stamp {
    /// Valid until the year 9999.
    pub(crate) fn of(seconds: u64) -> Stamp {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let mut compact = *b"00000000T000000Z";
        for (at, width, value) in
            [(0, 4, year), (4, 2, month), (6, 2, day), (9, 2, hour), (11, 2, minute), (13, 2, second)]
        {
            digits(&mut compact[at..at + width], value);
        }
        let mut http = *b"ddd, 00 mmm 0000 00:00:00 GMT";
        http[..3].copy_from_slice(DAYS[(days % 7) as usize]);
        http[8..11].copy_from_slice(MONTHS[(month - 1) as usize]);
        for (at, width, value) in
            [(5, 2, day), (12, 4, year), (17, 2, hour), (20, 2, minute), (23, 2, second)]
        {
            digits(&mut http[at..at + width], value);
        }
        Stamp { seconds, compact, http }
    }

    /// The day, as in `compact`.
    pub(crate) fn day(&self) -> &[u8] {
        &self.compact[..8]
    }
}

/// Seconds since 1970 of a date in HTTP's form; `None` if it has another form.
pub(crate) fn parse_http(text: &[u8]) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        std::str::from_utf8(text.get(range)?).ok()?.trim().parse().ok()
    };
    if text.len() != 29 || !text.ends_with(b" GMT") {
        return None;
    }
    let month = MONTHS.iter().position(|month| text.get(8..11) == Some(month.as_slice()))? as u64 + 1;
    let days = days_before(number(12..16)?, month)? + number(5..7)?.checked_sub(1)?;
    Some(days * 86_400 + number(17..19)? * 3600 + number(20..22)? * 60 + number(23..25)?)
}

fn digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Year, month and day of a number of days since 1970, in the proleptic Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the leap day is the last one of a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from 1970 to the first of a month.
fn days_before(year: u64, month: u64) -> Option<u64> {
    let year = year - u64::from(month <= 2);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * march_month + 2) / 5;
    days.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_forms_of_signatures_and_http() {
        for (seconds, compact, http) in [
            (0, "19700101T000000Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_399, "20000228T235959Z", "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "20000229T000000Z", "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_369_353_600, "20130524T000000Z", "Fri, 24 May 2013 00:00:00 GMT"),
            (4_102_444_799, "20991231T235959Z", "Thu, 31 Dec 2099 23:59:59 GMT"),
        ] {
            let stamp = Stamp::of(seconds);
            assert_eq!(std::str::from_utf8(&stamp.compact).unwrap(), compact);
            assert_eq!(std::str::from_utf8(&stamp.http).unwrap(), http);
            assert_eq!(parse_http(http.as_bytes()), Some(seconds));
        }
        for wrong in ["", "120", "Thu, 01 Jan 1970 00:00:00 CET", "Thu, 00 Jan 1970 00:00:00 GMT"] {
            assert_eq!(parse_http(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = (1969, 12, 31);
        for days in 0..60_000 {
            let (year, month, day) = civil(days);
            let is_next = (year, month, day) == (last.0, last.1, last.2 + 1)
                || (year, month, day) == (last.0, last.1 + 1, 1)
                || (year, month, day) == (last.0 + 1, 1, 1) && last.1 == 12;
            assert!(is_next && day <= 31, "{year}-{month}-{day} after {last:?}");
            last = (year, month, day);
        }
    }
}
