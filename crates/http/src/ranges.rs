//! The header `Range`. Source: RFC 9110, section 14.

use crate::RANGES_MAX;
use std::ops::Range;

/// The meaning of a header `Range` for a file of a size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RangeOutcome {
    /// The header is not understood, or asks for more than it is worth: the reply is the whole file.
    Whole,
    /// These ranges, each not empty and within the file, at least one.
    Ranges(Vec<Range<u64>>),
    /// No range is within the file.
    Unsatisfiable,
}

/// Parses a header. Ranges behind the end of the file are left out. Ranges that together are larger
/// than the file, because they overlap, would cost more than the file itself.
#[must_use]
pub fn parse(header: &str, size: u64) -> RangeOutcome {
    let Some(specs) = specs(header) else { return RangeOutcome::Whole };
    let mut ranges = Vec::new();
    let mut left = size;
    for spec in specs.split(',').map(|spec| spec.trim_matches([' ', '\t'])).filter(|spec| !spec.is_empty()) {
        let Some(range) = range(spec, size) else { return RangeOutcome::Whole };
        let Some(range) = range else { continue };
        match left.checked_sub(range.end - range.start) {
            Some(rest) if ranges.len() < RANGES_MAX => left = rest,
            _ => return RangeOutcome::Whole,
        }
        ranges.push(range);
    }
    match (ranges.is_empty(), specs.trim_matches([' ', '\t', ',']).is_empty()) {
        (_, true) => RangeOutcome::Whole,
        (true, false) => RangeOutcome::Unsatisfiable,
        (false, false) => RangeOutcome::Ranges(ranges),
    }
}

/// Returns the text behind `bytes=`.
fn specs(header: &str) -> Option<&str> {
    let (unit, specs) = header.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(specs)
}

/// Parses `first-last`, `first-` or `-length`. Returns `Some(None)` for a range behind the end.
#[expect(clippy::option_option, reason = "malformed, or behind the end")]
fn range(spec: &str, size: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let length = number(last)?.min(size);
        return Some((length > 0).then(|| size - length..size));
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some((first < size).then(|| first..last.saturating_add(1).min(size)))
}

/// Parses digits. Numbers that are too large are the largest one.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(all: &[Range<u64>]) -> RangeOutcome {
        RangeOutcome::Ranges(all.to_vec())
    }

    fn one(range: Range<u64>) -> RangeOutcome {
        ranges(&[range])
    }

    #[test]
    fn ranges_are_those_of_the_rfc() {
        for (header, expected) in [
            ("bytes=0-9", one(0..10)),
            ("bytes=0-0", one(0..1)),
            ("Bytes = 5-", one(5..12)),
            ("bytes=-3", one(9..12)),
            ("bytes=-99", one(0..12)),
            ("bytes=4-99", one(4..12)),
            ("bytes=4-99999999999999999999999", one(4..12)),
            ("bytes=0-2,4-6", ranges(&[0..3, 4..7])),
            ("bytes= 0-2 ,\t,4-6 ,", ranges(&[0..3, 4..7])),
            ("bytes=0-2,20-", one(0..3)),
            ("bytes=12-", RangeOutcome::Unsatisfiable),
            ("bytes=-0", RangeOutcome::Unsatisfiable),
            ("bytes=99999999999999999999999-", RangeOutcome::Unsatisfiable),
        ] {
            assert_eq!(parse(header, 12), expected, "{header}");
        }
        assert_eq!(parse("bytes=0-", 0), RangeOutcome::Unsatisfiable);
        assert_eq!(parse("bytes=-1", 0), RangeOutcome::Unsatisfiable);
        assert_eq!(parse("bytes=0-18446744073709551615", u64::MAX), one(0..u64::MAX));
    }

    #[test]
    fn what_is_not_understood_is_the_whole_file() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=a-b",
            "bytes=1",
            "bytes=-",
            "bytes=5-4",
            "bytes=0-1,x",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes=0x1-2",
            "lines=0-1",
            "bytes=1 - 2",
            "bytes=--1",
        ] {
            assert_eq!(parse(header, 12), RangeOutcome::Whole, "{header}");
        }
    }

    #[test]
    fn many_or_overlapping_ranges_are_the_whole_file() {
        assert_eq!(parse("bytes=0-,0-", 12), RangeOutcome::Whole);
        assert_eq!(parse("bytes=0-6,5-11", 12), RangeOutcome::Whole);
        let list = |count: usize| {
            let specs: Vec<String> = (0..count).map(|n| format!("{}-{}", 2 * n, 2 * n)).collect();
            format!("bytes={}", specs.join(","))
        };
        assert!(
            matches!(parse(&list(RANGES_MAX), 1 << 20), RangeOutcome::Ranges(all) if all.len() == RANGES_MAX)
        );
        assert_eq!(parse(&list(RANGES_MAX + 1), 1 << 20), RangeOutcome::Whole);
    }

    proptest! {
        #[test]
        fn each_range_is_within_the_file(header in "bytes=[0-9, -]{0,40}", size in 0..100_u64) {
            if let RangeOutcome::Ranges(all) = parse(&header, size) {
                prop_assert!(!all.is_empty() && all.len() <= RANGES_MAX);
                prop_assert!(all.iter().all(|range| range.start < range.end && range.end <= size));
                prop_assert!(all.iter().map(|range| range.end - range.start).sum::<u64>() <= size);
            }
        }
    }
}
