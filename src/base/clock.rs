//! Dates and times, for people and for logs. Always UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The current time as in an e-mail header (RFC 5322, section 3.3).
pub fn now() -> String {
    rfc5322(since_1970(SystemTime::now()).as_secs())
}

/// Seconds since 1970 as in an e-mail header: `Thu, 29 Feb 2024 23:59:59 +0000`.
pub fn rfc5322(seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day) = civil(days);
    let name = |names: &[&'static str], i: u64| names.get(usize::try_from(i).unwrap_or(0)).copied().unwrap_or("");
    let (weekday, month) = (name(&DAYS, days % 7), name(&MONTHS, month.saturating_sub(1)));
    format!("{weekday}, {day:02} {month} {year} {} +0000", of_day(seconds))
}

/// A time as `2026-11-20 10:00:00`, followed by `separator` and the milliseconds unless it is empty.
pub fn timestamp(time: SystemTime, separator: &str) -> String {
    let since = since_1970(time);
    let (year, month, day) = civil(since.as_secs() / 86_400);
    let mut out = format!("{year:04}-{month:02}-{day:02} {}", of_day(since.as_secs()));
    if !separator.is_empty() {
        out += &format!("{separator}{:03}", since.subsec_millis());
    }
    out
}

/// The time since 1970; zero before that.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Parses an HTTP date, `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7), or one of an e-mail header
/// with the time zone `+0000`, to seconds since 1970. None for other formats, and for times before 1970.
pub fn parse_http_date(text: &str) -> Option<u64> {
    let mut words = text.split_once(',')?.1.split_ascii_whitespace();
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|m| *m == month)? as u64 + 1;
    let seconds = seconds_at(number(year)?, month, number(day)?, words.next()?)?;
    (words.next().is_some_and(|zone| matches!(zone, "GMT" | "+0000")) && words.next().is_none()).then_some(seconds)
}

/// Parses `2026-11-20T10:00:00` with a time zone (`Z`, `+0100`, `-05:30`) to seconds since 1970. None for
/// other formats, and for times before 1970.
pub fn parse_iso8601(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once('T')?;
    let (time, zone) = rest.split_at_checked(8)?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?)?, number(date.next()?)?, number(date.next()?)?);
    if date.next().is_some() {
        return None;
    }
    let seconds = seconds_at(year, month, day, time)?;
    let offset = |zone: &str| match *zone.replace(':', "").as_bytes() {
        [a, b, c, d] if zone.len() <= 5 => {
            let digit = |byte: u8| char::from(byte).to_digit(10).map(u64::from);
            Some((digit(a)? * 10 + digit(b)?) * 3_600 + (digit(c)? * 10 + digit(d)?) * 60)
        }
        _ => None,
    };
    match zone.split_at_checked(1)? {
        ("Z", "") => Some(seconds),
        ("+", ahead) => seconds.checked_sub(offset(ahead)?),
        ("-", behind) => seconds.checked_add(offset(behind)?),
        _ => None,
    }
}

/// Parses a number of one to four digits.
fn number(text: &str) -> Option<u64> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Seconds since 1970 of a date and a time `10:00:00`.
fn seconds_at(year: u64, month: u64, day: u64, time: &str) -> Option<u64> {
    let mut parts = time.split(':');
    let (hour, minute, second) = (number(parts.next()?)?, number(parts.next()?)?, number(parts.next()?)?);
    let valid = year >= 1970 && (1..=12).contains(&month) && (1..=31).contains(&day) && parts.next().is_none();
    if !valid || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = day_of(year, month, day).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The inverse of [`civil`]: the day of a date, counted from 0000-03-01.
fn day_of(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (cycle, of_cycle) = (year / 400, year % 400);
    cycle * 146_097 + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + (153 * month + 2) / 5 + day - 1
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
    fn dates_are_read_as_they_are_written() {
        for seconds in [0, 784_111_777, 951_782_400, 1_709_251_199, 4_102_444_800] {
            assert_eq!(parse_http_date(&rfc5322(seconds)), Some(seconds));
            let iso = timestamp(UNIX_EPOCH + Duration::from_secs(seconds), "").replace(' ', "T");
            for (zone, offset) in [("Z", 0), ("+0000", 0), ("-05:30", 5 * 3_600 + 1_800), ("-0100", 3_600)] {
                assert_eq!(parse_iso8601(&format!("{iso}{zone}")), Some(seconds + offset), "{iso}{zone}");
            }
        }
        assert_eq!(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(parse_iso8601("1994-11-06T09:49:37+0100"), Some(784_111_777));
        for wrong in [
            "",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49 GMT",
            "x, 1 Foo 1 1:1:1 GMT",
        ] {
            assert_eq!(parse_http_date(wrong), None, "{wrong}");
        }
        for wrong in [
            "",
            "T",
            "1994-11-06",
            "1994-11-06T08:49:37",
            "1994-13-06T08:49:37Z",
            "1994-11-06T08:49:37+01",
            "1994-11-06T08:49:3üZ",
            "1960-01-01T00:00:00Z",
            "1970-01-01T00:00:00+0100",
            "not a date",
        ] {
            assert_eq!(parse_iso8601(wrong), None, "{wrong}");
        }
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
