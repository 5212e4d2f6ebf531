//! Formatting of sizes, times, names and status, for display and JSON.

use client::xroot::flags::StatFlags;
use client::{StatInfo, Url};
use serde_json::{Map, Value, json};

use super::context::last;
use crate::local_time::local_time;
use crate::printer::Colour;

/// The state flags with their names in `--json`.
const STATES: [(&str, StatFlags); 6] = [
    ("executable", StatFlags::XSET),
    ("offline", StatFlags::OFFLINE),
    ("unfinished", StatFlags::POSCPEND),
    ("readable", StatFlags::READABLE),
    ("writable", StatFlags::WRITABLE),
    ("backed up", StatFlags::BKPEXIST),
];

/// Formats a size: `0`, `999`, `1.2K`, `35M`. At most four characters, in units of 1024, rounded
/// up.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let (mut unit, mut shift) = (0, 10);
    // 1023.5K is already 1.0M.
    while unit < 4 && bytes.div_ceil(1 << shift) >= 1024 {
        unit += 1;
        shift += 10;
    }
    let letter = ["K", "M", "G", "T", "P"].get(unit).copied().unwrap_or_default();
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
    if tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", bytes.div_ceil(1 << shift))
    }
}

/// Formats a size, human-readable or with all digits.
pub(super) fn size(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { human(bytes) }
}

/// Formats a time as `2026-11-20 15:24`, in the local time zone.
pub(super) fn time(seconds: i64) -> String {
    formatted(seconds, "%Y-%m-%d %H:%M")
}

/// Formats a time as `2026-11-20 15:24:12 +01:00`, in the local time zone.
pub(super) fn exact_time(seconds: i64) -> String {
    formatted(seconds, "%Y-%m-%d %H:%M:%S %:z")
}

fn formatted(seconds: i64, format: &str) -> String {
    local_time(seconds, format).unwrap_or_else(|| seconds.to_string())
}

/// Returns the colour of a name: blue for directories, green for programs, faint for files that
/// must be staged.
pub(super) fn colour(stat: &StatInfo) -> Option<Colour> {
    match stat {
        stat if stat.is_dir() => Some(Colour::BoldBlue),
        stat if stat.is_offline() => Some(Colour::Faint),
        stat if !stat.is_file() => Some(Colour::Yellow),
        stat if stat.flags.contains(StatFlags::XSET) => Some(Colour::BoldGreen),
        _ => None,
    }
}

/// Returns `directory`, `file` or `other`.
pub(super) const fn kind(stat: &StatInfo) -> &'static str {
    match (stat.is_dir(), stat.is_file()) {
        (true, _) => "directory",
        (_, true) => "file",
        _ => "other",
    }
}

/// Returns the names of the state flags that are set.
pub(super) fn states(flags: StatFlags) -> Vec<&'static str> {
    STATES.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(name, _)| *name).collect()
}

/// Returns all known facts about a file or directory. Times are seconds since the epoch. There is
/// no URL if no request can carry the name.
pub(super) fn facts(name: &str, url: Option<&Url>, stat: Option<&StatInfo>) -> Map<String, Value> {
    let mut facts = Map::new();
    let mut set = |name: &str, value: Value| facts.insert(name.to_owned(), value);
    if let Some(url) = url {
        set("url", url.to_string().into());
    }
    set("name", last(url.map_or(name, |url| &url.path)).into());
    let Some(stat) = stat else { return facts };
    set("type", kind(stat).into());
    set("size", stat.size.into());
    set("mtime", stat.mtime.into());
    set("state", json!(states(stat.flags)));
    if let Some(more) = &stat.more {
        set("ctime", more.ctime.into());
        set("atime", more.atime.into());
        set("mode", format!("{:04o}", more.mode & 0o7777).into());
        set("owner", more.owner.as_str().into());
        set("group", more.group.as_str().into());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_at_most_four_signs_and_are_never_too_small() {
        let table = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024, "1023K"),
            (1023 * 1024 + 1, "1.0M"),
            (1 << 30, "1.0G"),
            (5 << 40, "5.0T"),
            (u64::MAX, "16384P"),
        ];
        for (bytes, expected) in table {
            assert_eq!(human(bytes), expected, "{bytes}");
        }
    }
}
