//! Reading the configuration again: what can change while the server runs, and what needs a restart.
//!
//! All or nothing: files with an error change nothing at all.

use config::Effective;

/// Directives whose new values are taken over by a running server.
const LIVE: [&str; 8] = [
    "xrd.allow",
    "xrd.network dnr",
    "xrd.network cache",
    "xrd.trace",
    "xrootd.trace",
    "ofs.trace",
    "oss.trace",
    "scalla.drain",
];

/// What differs between the configuration in force and a new one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Difference {
    /// Taken over at once.
    pub(crate) live: Vec<String>,
    /// In force after a restart.
    pub(crate) restart: Vec<String>,
}

impl Difference {
    pub(crate) fn between(old: &Effective, new: &Effective) -> Self {
        let mut difference = Self::default();
        for (name, changed) in comparisons(old, new) {
            if changed {
                let list = if LIVE.contains(&name) { &mut difference.live } else { &mut difference.restart };
                list.push(name.to_owned());
            }
        }
        difference
    }
}

/// Puts the values that a running server takes over into the configuration in force.
pub(crate) fn take_over(current: &mut Effective, new: &Effective) {
    current.network.allow.clone_from(&new.network.allow);
    current.network.resolve_names = new.network.resolve_names.clone();
    current.network.name_cache = new.network.name_cache.clone();
    current.network.trace = new.network.trace.clone();
    current.protocol.trace = new.protocol.trace.clone();
    current.logical.trace = new.logical.trace.clone();
    current.storage.trace = new.storage.trace.clone();
    current.process.drain = new.process.drain.clone();
}

/// Each directive, and whether its value differs. Values count, not where they stand.
fn comparisons(old: &Effective, new: &Effective) -> Vec<(&'static str, bool)> {
    let mut all = process(old, new);
    all.extend(network(&old.network, &new.network));
    all.extend(protocol(&old.protocol, &new.protocol));
    all.extend(logical(&old.logical, &new.logical));
    all.extend(storage(&old.storage, &new.storage));
    all
}

/// Pairs of a directive's name and whether the named field's value differs.
macro_rules! differ {
    ($old:expr, $new:expr, $($name:literal: $field:ident),+ $(,)?) => {
        vec![$(($name, $old.$field.value != $new.$field.value)),+]
    };
}

fn process(old: &Effective, new: &Effective) -> Vec<(&'static str, bool)> {
    let mut all = differ!(old.process, new.process,
        "all.adminpath": admin_path, "all.pidpath": pid_path, "xrd.homepath": home_path,
        "all.sitename": site_name, "all.role": role, "scalla.drain": drain,
    );
    all.push((
        "setenv",
        values(&old.environment, |c| (&c.name, &c.value))
            != values(&new.environment, |c| (&c.name, &c.value)),
    ));
    all.push(("scalla.logformat", old.process.log_format.value != new.process.log_format.value));
    all
}

fn network(old: &config::Network, new: &config::Network) -> Vec<(&'static str, bool)> {
    let mut all = differ!(old, new,
        "xrd.port": port, "xrd.maxfd": max_fd, "xrd.network keepalive": keepalive,
        "xrd.network kaparms": keepalive_parameters, "xrd.network buffsz": socket_buffer_bytes,
        "xrd.network dnr": resolve_names, "xrd.network cache": name_cache, "xrd.timeout read": read_timeout,
        "xrd.timeout hail": hail_timeout, "xrd.timeout idle": idle_timeout, "xrd.timeout kill": kill_timeout,
        "xrd.trace": trace,
    );
    all.push(("xrd.allow", values(&old.allow, |s| &s.value) != values(&new.allow, |s| &s.value)));
    all
}

fn protocol(old: &config::Protocol, new: &config::Protocol) -> Vec<(&'static str, bool)> {
    let mut all = differ!(old, new,
        "xrootd.chksum": checksums, "xrootd.log": session_log, "xrootd.limit": prepare_limit,
        "xrootd.async": sendfile, "xrootd.trace": trace,
    );
    all.push((
        "xrootd.redirect",
        values(&old.redirects, |s| &s.value) != values(&new.redirects, |s| &s.value),
    ));
    all
}

fn logical(old: &config::Logical, new: &config::Logical) -> Vec<(&'static str, bool)> {
    differ!(old, new,
        "ofs.persist": persist, "ofs.chkpnt": checkpoint, "ofs.crmode": creation_modes,
        "ofs.cksrdsz": checksum_read_bytes, "ofs.maxdelay": delay_max, "ofs.xattr": xattr, "ofs.trace": trace,
    )
}

fn storage(old: &config::Storage, new: &config::Storage) -> Vec<(&'static str, bool)> {
    let mut all = differ!(old, new,
        "oss.defaults": defaults, "oss.localroot": local_root, "oss.spacescan": space_scan,
        "oss.alloc": allocation, "oss.maxsize": file_bytes_max,
        "oss.trace": trace,
    );
    let exports = |of: &config::Storage| {
        of.exports.iter().map(|e| (e.prefix.clone(), e.attributes)).collect::<Vec<_>>()
    };
    let spaces = values(&old.spaces, |s| &s.value) != values(&new.spaces, |s| &s.value);
    let rules = values(&old.space_rules, |s| &s.value) != values(&new.space_rules, |s| &s.value);
    all.push(("all.export", exports(old) != exports(new)));
    all.push(("oss.space", spaces || rules));
    all
}

fn values<'a, T, V: 'a>(of: &'a [T], value: impl Fn(&'a T) -> V) -> Vec<V> {
    of.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{HostPattern, Origin, Setting};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn what_differs_is_told_apart_by_whether_it_can_change_now() {
        let old = Effective::for_directory(Path::new("/srv"), false);
        let mut new = old.clone();
        assert_eq!(Difference::between(&old, &new), Difference::default());
        new.network.allow.push(Setting::from_command_line(HostPattern::parse("*.example.org").unwrap()));
        new.process.drain.set(Duration::from_secs(5), Origin::CommandLine);
        new.storage.exports[0].attributes.read_only = true;
        new.network.hail_timeout.origin = Origin::CommandLine; // the same value from elsewhere is no change
        let difference = Difference::between(&old, &new);
        assert_eq!(difference.live, ["scalla.drain", "xrd.allow"]);
        assert_eq!(difference.restart, ["all.export"]);
        let mut current = old;
        take_over(&mut current, &new);
        let left = Difference::between(&current, &new);
        assert_eq!(left, Difference { live: Vec::new(), restart: difference.restart });
    }
}
