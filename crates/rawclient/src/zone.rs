//! The time zone of this machine, read from its own file for a fast start.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jiff::tz::TimeZone;

const LOCAL: &str = "/etc/localtime";
const ZONES: &str = "/usr/share/zoneinfo";

/// Returns the time zone of this process: the zone in `TZ`, or that of the machine. The file of the
/// zone is read directly, because a lookup by name would list the whole database first. That takes
/// longer than most requests.
#[must_use]
pub fn local_zone() -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(|| {
        let variable = std::env::var_os("TZ");
        let found = match file(variable.as_deref()) {
            Some(file) => std::fs::read(file).ok().and_then(|bytes| TimeZone::tzif("local", &bytes).ok()),
            None => Some(TimeZone::UTC),
        };
        // A text that is not a file may be a rule such as `CET-1CEST`.
        found.unwrap_or_else(TimeZone::system)
    })
    .clone()
}

/// Returns the file of the zone in `TZ`; `None` for UTC.
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
    fn zone_names_are_mapped_to_files() {
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
