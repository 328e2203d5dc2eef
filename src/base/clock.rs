//! The time of day, for people and for logs. Always UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Now, as in the header of a mail (RFC 5322, section 3.3).
pub fn now() -> String {
    rfc5322(since_1970(SystemTime::now()).as_secs())
}

/// Seconds since 1970 as in the header of a mail: `Thu, 29 Feb 2024 23:59:59 +0000`.
pub fn rfc5322(seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let name = |names: &[&'static str], i: u64| names.get(usize::try_from(i).unwrap_or(0)).copied().unwrap_or("");
    let (weekday, month) = (name(&DAYS, days % 7), name(&MONTHS, month.saturating_sub(1)));
    format!("{weekday}, {day:02} {month} {year} {} +0000", of_day(seconds))
}

/// A time as `2026-11-20 10:00:00` and the milliseconds after `separator`; without them where that is empty.
pub fn timestamp(time: SystemTime, separator: &str) -> String {
    let since = since_1970(time);
    let (year, month, day) = civil(since.as_secs() / 86_400);
    let mut out = format!("{year:04}-{month:02}-{day:02} {}", of_day(since.as_secs()));
    if !separator.is_empty() {
        out += &format!("{separator}{:03}", since.subsec_millis());
    }
    out
}

/// How long after 1970 a time is; nothing for one before.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

fn of_day(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

/// The Gregorian date of a day counted from 1970-01-01, by cycles of 400 years (146,097 days) that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (cycle, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(rfc5322(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(rfc5322(951_782_400), "Tue, 29 Feb 2000 00:00:00 +0000");
        assert_eq!(rfc5322(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 +0000");
        assert_eq!(rfc5322(4_102_444_800), "Fri, 01 Jan 2100 00:00:00 +0000");
    }

    #[test]
    fn timestamps() {
        let at = |s: u64| timestamp(UNIX_EPOCH + Duration::from_millis(s * 1000 + 7), ",");
        assert_eq!(at(0), "1970-01-01 00:00:00,007");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00,007");
        assert_eq!(at(1_795_170_896), "2026-11-20 10:34:56,007");
        assert_eq!(timestamp(UNIX_EPOCH, ""), "1970-01-01 00:00:00");
    }
}
