//! The command line of `xrdsssadmin`.

use std::path::PathBuf;

use auth::sss::{GROUP_BYTES_MAX, KEY_BYTES_MAX, KEY_NAME_BYTES_MAX, KeySelector, USER_BYTES_MAX};
use client::local_zone;
use jiff::civil::Date;
use jiff::{Timestamp, ToSpan};

use crate::xrootd_compat::options::{self, OptionError, OptionSpec};

/// Exit status for invalid command lines.
pub(super) const USAGE_STATUS: u8 = 1;
/// Exit status for names that are too long, and for a table that cannot be opened.
pub(super) const OPEN_STATUS: u8 = 4;

/// Number of keys of the same name, user and group that are kept.
const HOLD: usize = 3;
/// Length of a key in bytes unless it is given.
const KEY_BYTES: usize = 32;
/// Minimum time until the expiry of a new key, in seconds.
const EXPIRY_MIN: i64 = 60;

const OPTIONS: [OptionSpec; 9] = [
    OptionSpec::switch(Some('d'), "debug"),
    OptionSpec::valued(Some('g'), "group"),
    OptionSpec::valued(Some('h'), "hold"),
    OptionSpec::valued(Some('k'), "key"),
    OptionSpec::valued(Some('l'), "length"),
    OptionSpec::valued(Some('n'), "number"),
    OptionSpec::valued(Some('s'), "sort"),
    OptionSpec::valued(Some('u'), "user"),
    OptionSpec::valued(Some('x'), "expires"),
];

/// The action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeytabAction {
    Add,
    Delete,
    Install,
    List,
}

/// The property by which a list is sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SortKey {
    Created,
    Group,
    KeyName,
    Number,
    User,
    Expiry,
}

/// A parsed command line.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct KeytabRequest {
    pub(super) action: KeytabAction,
    /// The keys that the action applies to, and the properties of a new key.
    pub(super) selector: KeySelector,
    /// Number of keys of the same name, user and group that are kept.
    pub(super) hold: usize,
    /// Length of a new key in bytes.
    pub(super) key_bytes: usize,
    /// Expiry of a new key, seconds since 1970; 0: never.
    pub(super) expires: u64,
    pub(super) sort: SortKey,
    /// The table; `None` for the one in the home directory.
    pub(super) path: Option<PathBuf>,
}

/// An invalid command line: exit status and text. The usage is shown for [`USAGE_STATUS`].
pub(super) type UsageFault = (u8, String);

fn usage(text: impl Into<String>) -> UsageFault {
    (USAGE_STATUS, text.into())
}

/// Parses a command line at the time `now`.
pub(super) fn parse(words: &[String], now: Timestamp) -> Result<KeytabRequest, UsageFault> {
    let parsed = options::parse(words, &OPTIONS).map_err(|fault| match fault {
        OptionError::Invalid(option) => usage(format!("Invalid option '{option}'")),
        OptionError::NoValue(option) => usage(format!("Option '{option}' is missing its argument")),
    })?;
    let mut request = KeytabRequest {
        action: KeytabAction::List,
        selector: KeySelector::default(),
        hold: HOLD,
        key_bytes: KEY_BYTES,
        expires: 0,
        sort: SortKey::KeyName,
        path: None,
    };
    for (option, value) in parsed.options {
        take_option(&mut request, option, value, now)?;
    }
    let mut words = parsed.words.into_iter();
    request.action = match words.next().as_deref() {
        Some("add") => KeytabAction::Add,
        Some("del") => KeytabAction::Delete,
        Some("install") => KeytabAction::Install,
        Some("list") => KeytabAction::List,
        Some(word) => return Err(usage(format!("Invalid parameter argument - {word}"))),
        None => return Err(usage("Action not specified.")),
    };
    request.path = words.next().map(PathBuf::from);
    if let Some(word) = words.next() {
        return Err(usage(format!("Extraneous parameter, '{word}'")));
    }
    Ok(request)
}

fn take_option(
    request: &mut KeytabRequest,
    option: &str,
    value: String,
    now: Timestamp,
) -> Result<(), UsageFault> {
    let invalid = |letter: char| usage(format!("Invalid -{letter} argument - {value}"));
    match option {
        "group" => request.selector.group = Some(name(value, GROUP_BYTES_MAX, "Group")?),
        "key" => request.selector.name = Some(name(value, KEY_NAME_BYTES_MAX, "Key")?),
        "user" => request.selector.user = Some(name(value, USER_BYTES_MAX, "User")?),
        "hold" => request.hold = value.parse().ok().filter(|hold| *hold > 0).ok_or_else(|| invalid('h'))?,
        "number" => {
            let number = value.parse().ok().filter(|number| *number > 0);
            request.selector.number = Some(number.ok_or_else(|| invalid('n'))?);
        }
        "length" => {
            let bytes = value.parse().ok().filter(|bytes| (1..=KEY_BYTES_MAX).contains(bytes));
            request.key_bytes = (bytes.ok_or_else(|| invalid('l'))? & !3).max(4);
        }
        "sort" => {
            request.sort = match value.as_str() {
                "c" => SortKey::Created,
                "g" => SortKey::Group,
                "k" => SortKey::KeyName,
                "n" => SortKey::Number,
                "u" => SortKey::User,
                "x" => SortKey::Expiry,
                _ => return Err(invalid('s')),
            }
        }
        "expires" => request.expires = expiry(&value, now).ok_or_else(|| invalid('x'))?,
        // More detail than the messages of the actions does not exist.
        _ => {}
    }
    Ok(())
}

fn name(value: String, bytes_max: usize, what: &str) -> Result<String, UsageFault> {
    if value.len() > bytes_max {
        let text = format!("{what} name must be less than {} characters.", bytes_max + 1);
        return Err((OPEN_STATUS, text));
    }
    if value.is_empty() || value.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err(usage(format!("{what} name is empty or contains blanks")));
    }
    Ok(value)
}

/// Returns the expiry of `days` or `mm/dd/yy`: a midnight in the local time zone, at least a minute
/// ahead; 0 for 0 days.
fn expiry(value: &str, now: Timestamp) -> Option<u64> {
    if value == "0" {
        return Some(0);
    }
    let zone = local_zone();
    let date = match value.parse::<u32>() {
        Ok(days) => now.to_zoned(zone.clone()).date().checked_add(i64::from(days).days()).ok()?,
        Err(_) => {
            let mut parts = value.split('/');
            let mut part = || parts.next()?.parse::<i16>().ok();
            let (month, day, year) = (part()?, part()?, part()?);
            let month = i8::try_from(month).ok()?;
            // Two digits are a year of this century.
            let year = if (0..100).contains(&year) { 2000 + year } else { year };
            Date::new(year, month, i8::try_from(day).ok()?).ok().filter(|_| parts.next().is_none())?
        }
    };
    let at = date.to_zoned(zone).ok()?.timestamp().as_second();
    u64::try_from(at).ok().filter(|_| at >= now.as_second() + EXPIRY_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_at(line: &str) -> Result<KeytabRequest, UsageFault> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words, "2026-11-26T19:37:38Z".parse().unwrap())
    }

    #[test]
    fn options_and_actions() {
        let request = parse_at("-k k1 -u alice -g staff -h 2 -l 31 -s x -n 5 add a.keytab").unwrap();
        let selector = &request.selector;
        assert_eq!((selector.name.as_deref(), selector.number), (Some("k1"), Some(5)));
        assert_eq!((request.hold, request.key_bytes, request.sort), (2, 28, SortKey::Expiry));
        assert_eq!(request.path, Some("a.keytab".into()));
        assert_eq!(parse_at("-l 3 add").unwrap().key_bytes, 4);
        assert_eq!(parse_at("del").unwrap().action, KeytabAction::Delete);
    }

    #[test]
    fn an_expiry_is_a_midnight() {
        let expires = |value: &str| parse_at(&format!("-x {value} add")).map(|request| request.expires);
        let days = expires("30").unwrap();
        assert_eq!(expires("12/26/26"), Ok(days));
        assert_eq!(expires("12/26/2026"), Ok(days));
        assert_eq!(expires("0"), Ok(0));
        for invalid in ["1/1/20", "13/45/22", "11/26/26", "soon", "1/2/3/4", "-1"] {
            assert_eq!(expires(invalid), Err(usage(format!("Invalid -x argument - {invalid}"))), "{invalid}");
        }
    }

    #[test]
    fn invalid_command_lines() {
        let long = "x".repeat(192);
        let table = [
            ("", 1, "Action not specified."),
            ("frob", 1, "Invalid parameter argument - frob"),
            ("-q list", 1, "Invalid option '-q'"),
            ("-h 0 add", 1, "Invalid -h argument - 0"),
            ("-l 129 add", 1, "Invalid -l argument - 129"),
            ("-s q list", 1, "Invalid -s argument - q"),
            ("-n x list", 1, "Invalid -n argument - x"),
            ("list a b", 1, "Extraneous parameter, 'b'"),
        ];
        for (line, status, text) in table {
            assert_eq!(parse_at(line), Err((status, text.to_owned())), "{line}");
        }
        let fault = parse_at(&format!("-k {long} add"));
        assert_eq!(fault, Err((4, "Key name must be less than 192 characters.".to_owned())));
    }
}
