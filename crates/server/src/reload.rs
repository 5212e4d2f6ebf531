//! Reload of the configuration: the directives that apply to a running server, and those that need
//! a restart.
//!
//! A reload is atomic, so that a configuration with an error changes nothing.

use config::{DirectiveChange, Effective};

/// Directives that a running server applies. Of `xrd.network` these are `dnr` and `cache`, because
/// the other arguments apply to sockets that are opened at the start.
const LIVE: [&str; 7] =
    ["xrd.allow", "xrd.report", "xrd.trace", "xrootd.trace", "ofs.trace", "oss.trace", "scalla.drain"];

/// Arguments of `xrd.network` that a running server applies.
const LIVE_NETWORK: [&str; 3] = ["cache ", "dnr", "nodnr"];

/// The difference between the configuration in force and a new one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Difference {
    /// Changes that are applied immediately.
    pub(crate) live: Vec<String>,
    /// Changes that need a restart.
    pub(crate) restart: Vec<String>,
}

impl Difference {
    pub(crate) fn between(old: &Effective, new: &Effective) -> Self {
        let changes = config::changes(old, new);
        let mut difference = Self::default();
        for change in &changes.safe {
            let list = if is_live(change) { &mut difference.live } else { &mut difference.restart };
            list.push(change.directive.to_owned());
        }
        difference.restart.extend(changes.needs_restart.iter().map(|change| change.directive.to_owned()));
        difference
    }
}

fn is_live(change: &DirectiveChange) -> bool {
    let differs = |value: &&String| change.old.contains(value) != change.new.contains(value);
    let mut changed = change.old.iter().chain(&change.new).filter(differs);
    LIVE.contains(&change.directive)
        || change.directive == "xrd.network"
            && changed.all(|value| LIVE_NETWORK.iter().any(|live| value.starts_with(live)))
}

/// Copies the values that a running server applies into the configuration in force.
pub(crate) fn take_over(current: &mut Effective, new: &Effective) {
    current.network.allow.clone_from(&new.network.allow);
    current.monitoring.reports.clone_from(&new.monitoring.reports);
    current.network.resolve_names = new.network.resolve_names.clone();
    current.network.name_cache = new.network.name_cache.clone();
    current.network.trace = new.network.trace.clone();
    current.protocol.trace = new.protocol.trace.clone();
    current.logical.trace = new.logical.trace.clone();
    current.storage.trace = new.storage.trace.clone();
    current.process.drain = new.process.drain.clone();
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{HostPattern, Origin, Setting};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn live_changes_are_distinguished_from_those_that_need_a_restart() {
        let old = Effective::for_directory(Path::new("/srv"), false);
        let mut new = old.clone();
        assert_eq!(Difference::between(&old, &new), Difference::default());
        new.network.allow.push(Setting::from_command_line(HostPattern::parse("*.example.org").unwrap()));
        new.process.drain.set(Duration::from_secs(5), Origin::CommandLine);
        new.storage.exports[0].attributes.read_only = true;
        new.network.hail_timeout.origin = Origin::CommandLine; // an equal value from another origin is not a change
        new.network.resolve_names.set(false, Origin::CommandLine);
        let difference = Difference::between(&old, &new);
        assert_eq!(difference.live, ["scalla.drain", "xrd.network", "xrd.allow"]);
        assert_eq!(difference.restart, ["all.export"]);
        let mut current = old;
        take_over(&mut current, &new);
        let left = Difference::between(&current, &new);
        new.network.keepalive.set(false, Origin::CommandLine);
        assert_eq!(Difference::between(&current, &new).restart, ["xrd.network", "all.export"]);
        assert_eq!(left, Difference { live: Vec::new(), restart: difference.restart });
    }
}
