//! Differences between two configurations, split by whether a running server can apply them.
//!
//! A reload applies the safe changes and reports the others, because they need a restart.

use crate::effective::Effective;
use crate::show::{EffectiveLine, Reload, show};

/// A directive whose value differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectiveChange {
    /// The directive.
    pub directive: &'static str,
    /// The values before: several for directives that accumulate, none if it was not set.
    pub old: Vec<String>,
    /// The values after.
    pub new: Vec<String>,
}

/// All differences.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Changes that apply immediately.
    pub safe: Vec<DirectiveChange>,
    /// Changes that need a restart.
    pub needs_restart: Vec<DirectiveChange>,
}

impl Changes {
    /// Reports whether the configurations are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.safe.is_empty() && self.needs_restart.is_empty()
    }
}

/// Compares two configurations by value, not by origin. `setenv` directives need a restart.
#[must_use]
pub fn changes(old: &Effective, new: &Effective) -> Changes {
    let (old_lines, new_lines) = (show(old), show(new));
    let mut keys: Vec<(&'static str, Reload)> = Vec::new();
    for line in old_lines.iter().chain(&new_lines) {
        if !keys.contains(&(line.directive, line.reload)) {
            keys.push((line.directive, line.reload));
        }
    }
    let mut changes = Changes::default();
    for (directive, reload) in keys {
        let values = |lines: &[EffectiveLine]| -> Vec<String> {
            let lines = lines.iter().filter(|line| line.directive == directive && line.reload == reload);
            lines.filter_map(|line| line.value.clone()).collect()
        };
        let change = DirectiveChange { directive, old: values(&old_lines), new: values(&new_lines) };
        if change.old != change.new {
            match reload {
                Reload::Safe => changes.safe.push(change),
                Reload::Restart => changes.needs_restart.push(change),
            }
        }
    }
    let environment = |effective: &Effective| -> Vec<String> {
        effective.environment.iter().map(|change| format!("{} = {}", change.name, change.value)).collect()
    };
    let change = DirectiveChange { directive: "setenv", old: environment(old), new: environment(new) };
    if change.old != change.new {
        changes.needs_restart.push(change);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigInput, MemorySource, load};

    fn effective(text: &str) -> Effective {
        let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
        let loaded = load(&request, &MemorySource::new().with("f", text));
        assert!(loaded.report.is_ok(), "{}", loaded.report);
        loaded.effective
    }

    #[test]
    fn equal_values_at_other_positions_are_no_change() {
        let old = effective("xrd.port 1094\nall.export /data\n");
        let new = effective("# moved\nall.export /data\n");
        assert!(changes(&old, &new).is_empty());
    }

    #[test]
    fn changes_are_classified_by_restart() {
        let old = effective("xrd.port 1094\nxrd.allow host a\nxrd.timeout hail 5\nofs.persist auto\n");
        let new = effective(
            "xrd.port 1095\nxrd.allow host a\nxrd.allow host b\nxrd.timeout hail 6\nofs.persist auto logdir /x\nsetenv A = 1\n",
        );
        let changes = changes(&old, &new);
        let names =
            |changes: &[DirectiveChange]| changes.iter().map(|change| change.directive).collect::<Vec<_>>();
        assert_eq!(names(&changes.safe), ["xrd.allow", "xrd.timeout"]);
        assert_eq!(names(&changes.needs_restart), ["xrd.port", "ofs.persist", "setenv"]);
        assert_eq!(changes.safe[0].old, ["host a"]);
        assert_eq!(changes.safe[0].new, ["host a", "host b"]);
    }
}
