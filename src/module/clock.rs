//! The time of day, for people.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Now in UTC, as in the header of a mail (RFC 5322, section 3.3).
pub fn now() -> String {
    rfc5322(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()))
}

/// Seconds since 1970 as a date, by the algorithm of days since an era of 400 years that begins in March.
fn rfc5322(seconds: u64) -> String {
    let days = seconds / 86_400;
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 2 } else { from_march - 10 };
    let year = year_of_era + era * 400 + u64::from(month < 2);
    let name = |names: &[&'static str], i: u64| names.get(usize::try_from(i).unwrap_or(0)).copied().unwrap_or("");
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} +0000",
        name(&DAYS, days % 7),
        name(&MONTHS, month),
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
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
}
