//! Parsers of directive values: sizes, times, counts, percentages, ports, paths, each with its
//! range.
//!
//! All directives use them, so that a type of value has one syntax and one error text.

use std::time::Duration;

use crate::directives::DirectiveFault;
use crate::language::DirectiveToken;
use crate::source::ConfigSource;

/// A day, in seconds.
pub(crate) const DAY: u64 = 86_400;

/// Maximum of most times, in seconds: ten years.
pub(crate) const TIME_MAX: u64 = 10 * 365 * DAY;

/// Maximum length of a path in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 1024;

/// An inclusive range; `None` means no upper limit.
#[derive(Clone, Copy)]
pub(crate) struct ValueRange {
    pub(crate) min: u64,
    pub(crate) max: Option<u64>,
}

/// Returns the range from `min` without upper limit.
pub(crate) const fn from(min: u64) -> ValueRange {
    ValueRange { min, max: None }
}

/// Returns the range from `min` to `max`.
pub(crate) const fn between(min: u64, max: u64) -> ValueRange {
    ValueRange { min, max: Some(max) }
}

impl ValueRange {
    fn check(
        self,
        token: &DirectiveToken,
        what: &str,
        value: u64,
        form: &str,
        show: fn(u64) -> String,
    ) -> Result<u64, DirectiveFault> {
        let allowed = match self.max {
            None => format!("allowed: {form}, at least {}", show(self.min)),
            Some(max) => format!("allowed: {form}, {} to {}", show(self.min), show(max)),
        };
        if value < self.min {
            let limit = show(self.min);
            return Err(DirectiveFault::at(
                token,
                format!("{what} {} may not be less than {limit}", token.text),
                allowed,
            ));
        }
        match self.max {
            Some(max) if value > max => {
                let limit = show(max);
                Err(DirectiveFault::at(
                    token,
                    format!("{what} {} may not be greater than {limit}", token.text),
                    allowed,
                ))
            }
            _ => Ok(value),
        }
    }
}

const SIZE_FORM: &str = "number[k|m|g|t]";
const TIME_FORM: &str = "number[s|m|h|d]";

/// Parses a size in bytes: `1.5g` is 1,610,612,736. A fraction of a byte is dropped.
pub(crate) fn size(token: &DirectiveToken, what: &str, range: ValueRange) -> Result<u64, DirectiveFault> {
    let (number, shift) = base::size_parts(&token.text);
    let value = decimal(number, shift).ok_or_else(|| not_a_number(token, what, SIZE_FORM))?;
    range.check(token, what, value, SIZE_FORM, show_size)
}

/// Returns `number << shift` for a number that may have decimals. A remaining fraction is dropped.
fn decimal(number: &str, shift: u32) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    base::scaled(whole, fraction, shift).filter(|value| i64::try_from(*value).is_ok())
}

/// Parses a time in seconds, minutes, hours or days. The default unit is seconds.
pub(crate) fn time(
    token: &DirectiveToken,
    what: &str,
    range: ValueRange,
) -> Result<Duration, DirectiveFault> {
    let text = token.text.as_str();
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's' | 'S')) => (&text[..at], 1),
        Some((at, 'm' | 'M')) => (&text[..at], 60),
        Some((at, 'h' | 'H')) => (&text[..at], 3600),
        Some((at, 'd' | 'D')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let value = digits(number).and_then(|number| number.checked_mul(unit));
    let value = value.filter(|seconds| *seconds <= i64::MAX.unsigned_abs());
    let value = value.ok_or_else(|| not_a_number(token, what, TIME_FORM))?;
    range.check(token, what, value, TIME_FORM, show_time).map(Duration::from_secs)
}

/// Parses a decimal number.
pub(crate) fn count(token: &DirectiveToken, what: &str, range: ValueRange) -> Result<u64, DirectiveFault> {
    let value = digits(&token.text).ok_or_else(|| not_a_number(token, what, "a decimal number"))?;
    range.check(token, what, value, "a decimal number", |n| n.to_string())
}

/// Parses a count that fits 32 bits.
pub(crate) fn count32(token: &DirectiveToken, what: &str, min: u32, max: u32) -> Result<u32, DirectiveFault> {
    let value = count(token, what, between(min.into(), max.into()))?;
    u32::try_from(value).map_err(|_| not_a_number(token, what, "a decimal number"))
}

/// Parses a percentage from 0 to 100, with or without `%`.
pub(crate) fn percent(token: &DirectiveToken, what: &str) -> Result<u8, DirectiveFault> {
    let form = "a percentage";
    let number = token.text.strip_suffix('%').unwrap_or(&token.text);
    let value = digits(number).ok_or_else(|| not_a_number(token, what, form))?;
    let value = between(0, 100).check(token, what, value, form, |n| n.to_string())?;
    u8::try_from(value).map_err(|_| not_a_number(token, what, form))
}

/// Parses an octal file mode of at most 0777.
pub(crate) fn mode(token: &DirectiveToken, text: &str) -> Result<u32, DirectiveFault> {
    let value = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    value.ok_or_else(|| {
        DirectiveFault::at(token, format!("mode '{text}' is invalid"), "allowed: octal, 0 to 0777")
    })
}

/// Parses a port: a number from `min`, or the name of a TCP service in `/etc/services`.
pub(crate) fn port(
    token: &DirectiveToken,
    text: &str,
    min: u16,
    source: &dyn ConfigSource,
) -> Result<u16, DirectiveFault> {
    const FORM: &str = "allowed: port number up to 65535 or the name of a service";
    if let Some(number) = digits(text) {
        let number = u16::try_from(number).map_err(|_| {
            DirectiveFault::at(token, format!("tcp port {text} may not be greater than 65535"), FORM)
        })?;
        if number < min {
            return Err(DirectiveFault::at(
                token,
                format!("tcp port {text} may not be less than {min}"),
                FORM,
            ));
        }
        return Ok(number);
    }
    let services = source.read("/etc/services").unwrap_or_default();
    service_port(&String::from_utf8_lossy(&services), text)
        .ok_or_else(|| DirectiveFault::at(token, format!("unable to find tcp service {text}"), FORM))
}

/// Looks up a TCP service by name or alias in the text of a services file.
fn service_port(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let number = words.next()?.strip_suffix("/tcp")?;
        (first == name || words.any(|alias| alias == name)).then(|| number.parse().ok())?
    })
}

/// Parses an absolute path without `.` and `..`. Removes duplicate and trailing `/`.
pub(crate) fn path(token: &DirectiveToken, what: &str) -> Result<String, DirectiveFault> {
    const FORM: &str = "allowed: a path that begins with '/' and has no '.' or '..' in it";
    let text = token.text.as_str();
    if !text.starts_with('/') {
        return Err(DirectiveFault::at(token, format!("non-absolute {what} path - {text}"), FORM));
    }
    if text.len() > PATH_BYTES_MAX {
        let what = format!("{what} path of {} bytes", text.len());
        return Err(DirectiveFault::at(token, what, format!("allowed: at most {PATH_BYTES_MAX} bytes")));
    }
    let mut normal = String::with_capacity(text.len());
    for part in text.split('/').filter(|part| !part.is_empty()) {
        if part == "." || part == ".." {
            return Err(DirectiveFault::at(token, format!("{what} path {text} is not normal"), FORM));
        }
        normal.push('/');
        normal.push_str(part);
    }
    Ok(if normal.is_empty() { "/".to_owned() } else { normal })
}

/// Formats bytes with the largest unit that divides them.
pub(crate) fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, 't'), (30, 'g'), (20, 'm'), (10, 'k')] {
        if bytes >> shift != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Formats seconds with the largest unit that divides them.
pub(crate) fn show_time(seconds: u64) -> String {
    for (length, unit) in [(86_400, 'd'), (3600, 'h'), (60, 'm')] {
        if seconds != 0 && seconds.is_multiple_of(length) {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn not_a_number(token: &DirectiveToken, what: &str, form: &str) -> DirectiveFault {
    DirectiveFault::at(token, format!("{what} {} is not a number", token.text), format!("allowed: {form}"))
}
