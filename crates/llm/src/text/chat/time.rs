//! `strftime_now`: the date as templates print it, in UTC and in English.

use std::{
    fmt::Write,
    time::{SystemTime, UNIX_EPOCH},
};

use minijinja::{Error, ErrorKind, Value};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/// A template function that formats `now`.
pub(super) fn function(now: SystemTime) -> Value {
    Value::from_function(move |format: String| strftime(now, &format))
}

struct Date {
    year: i64,
    /// From zero.
    month: usize,
    day: i64,
    /// From Sunday.
    weekday: usize,
    day_of_year: i64,
    second_of_day: i64,
}

impl Date {
    /// The civil date of a time, by Howard Hinnant's `civil_from_days`: years begin in March, eras have 400 of them.
    fn of(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let from_march = days + 719_468;
        let (era, day_of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march_month = (5 * day_of_march_year + 2) / 153;
        let day = day_of_march_year - (153 * from_march_month + 2) / 5 + 1;
        let month = (from_march_month as usize + 2) % 12;
        let year = year_of_era + era * 400 + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = if month < 2 { day_of_march_year - 306 } else { day_of_march_year + 59 + i64::from(leap) } + 1;
        Self { year, month, day, weekday: (days + 4).rem_euclid(7) as usize, day_of_year, second_of_day }
    }
}

fn strftime(time: SystemTime, format: &str) -> Result<String, Error> {
    let date = Date::of(time);
    let (hour, minute, second) = (date.second_of_day / 3600, date.second_of_day / 60 % 60, date.second_of_day % 60);
    let (weekday, month) = (DAYS.get(date.weekday).copied().unwrap_or(""), MONTHS.get(date.month).copied().unwrap_or(""));
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let specifier = characters.next();
        let padded = specifier != Some('-');
        let specifier = if padded { specifier } else { characters.next() };
        let mut number = |value: i64, width: usize| if padded { write!(out, "{value:0width$}") } else { write!(out, "{value}") }.map_err(Error::from);
        match specifier {
            Some('Y') => number(date.year, 4)?,
            Some('y') => number(date.year % 100, 2)?,
            Some('m') => number(date.month as i64 + 1, 2)?,
            Some('d') => number(date.day, 2)?,
            Some('e') => write!(out, "{:2}", date.day)?,
            Some('j') => number(date.day_of_year, 3)?,
            Some('H') => number(hour, 2)?,
            Some('I') => number((hour + 11) % 12 + 1, 2)?,
            Some('M') => number(minute, 2)?,
            Some('S') => number(second, 2)?,
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('A') => out.push_str(weekday),
            Some('a') => out.push_str(weekday.get(..3).unwrap_or("")),
            Some('B') => out.push_str(month),
            Some('b') => out.push_str(month.get(..3).unwrap_or("")),
            Some('F') => write!(out, "{:04}-{:02}-{:02}", date.year, date.month + 1, date.day)?,
            Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}")?,
            Some('Z') => out.push_str("UTC"),
            Some('z') => out.push_str("+0000"),
            Some('%') => out.push('%'),
            other => {
                let found = other.map(String::from).unwrap_or_default();
                return Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now: '%{found}' is not supported")));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| strftime(UNIX_EPOCH + Duration::from_secs(seconds), "%a %d %b %Y, %j, %H:%M:%S").unwrap();
        assert_eq!(at(0), "Thu 01 Jan 1970, 001, 00:00:00");
        assert_eq!(at(951_782_400), "Tue 29 Feb 2000, 060, 00:00:00");
        assert_eq!(at(1_709_251_199), "Thu 29 Feb 2024, 060, 23:59:59");
        assert_eq!(at(1_735_689_599), "Tue 31 Dec 2024, 366, 23:59:59");
        assert_eq!(at(4_107_542_400), "Mon 01 Mar 2100, 060, 00:00:00");
    }

    #[test]
    fn specifiers_are_those_of_python() {
        let time = UNIX_EPOCH + Duration::from_secs(1_754_485_205);
        assert_eq!(strftime(time, "%A %-d %B %y %I %p %F %T 100%%").unwrap(), "Wednesday 6 August 25 01 PM 2025-08-06 13:00:05 100%");
        assert!(strftime(time, "%Q").unwrap_err().to_string().contains("'%Q' is not supported"));
        assert!(strftime(time, "%").is_err());
    }
}
