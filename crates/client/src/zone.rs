//! The time zone of this machine, found without a look at all others.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jiff::tz::TimeZone;

const LOCAL: &str = "/etc/localtime";
const ZONES: &str = "/usr/share/zoneinfo";

/// The time zone of this process: what `TZ` names, or that of the machine. Its file is read by itself: to find it by name,
/// the whole database would be listed first, which takes longer than most requests.
#[must_use]
pub fn local_zone() -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(|| {
        let variable = std::env::var_os("TZ");
        let found = match file(variable.as_deref()) {
            Some(file) => std::fs::read(file).ok().and_then(|bytes| TimeZone::tzif("local", &bytes).ok()),
            None => Some(TimeZone::UTC),
        };
        // What is no file may be a rule such as `CET-1CEST`.
        found.unwrap_or_else(TimeZone::system)
    })
    .clone()
}

/// The file of the zone that `TZ` names; `None` for UTC.
fn file(variable: Option<&OsStr>) -> Option<PathBuf> {
    let Some(variable) = variable else { return Some(LOCAL.into()) };
    let name = variable.to_string_lossy();
    match name.strip_prefix(':').unwrap_or(&name) {
        "" | "UTC" | "UTC0" => None,
        name => Some(Path::new(ZONES).join(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_their_files() {
        let table = [
            (None, Some(LOCAL)),
            (Some(""), None),
            (Some("UTC"), None),
            (Some("Europe/Zurich"), Some("/usr/share/zoneinfo/Europe/Zurich")),
            (Some(":Europe/Zurich"), Some("/usr/share/zoneinfo/Europe/Zurich")),
            (Some("/some/zone"), Some("/some/zone")),
        ];
        for (variable, expected) in table {
            assert_eq!(file(variable.map(OsStr::new)), expected.map(PathBuf::from), "{variable:?}");
        }
    }
}
