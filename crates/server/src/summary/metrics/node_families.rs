//! Families about the server itself, its process and certificates, the cluster, and mass storage.

use super::ServerMetrics;
use super::process_status::ProcessStatus;
use crate::VERSION;
use crate::cluster::{NodeState, NodeStatus};
use crate::expiry::ListCertificates;
use crate::summary::{processor_time, seconds};
use monitor::{MetricKind, MetricValue, MetricsText};
use residency::QueueCounts;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::UNIX_EPOCH;

impl ServerMetrics {
    pub(super) fn identity(&self, text: &mut MetricsText) {
        let summary = &self.summary;
        text.family(MetricKind::Info, "scalla_build", "The version of the program.")
            .sample(&[("version", VERSION)], 1);
        text.family(
            MetricKind::Info,
            "scalla_server",
            "The role in a cluster, the instance and the site of the server.",
        )
        .sample(
            &[("role", summary.role.name()), ("instance_name", &summary.instance), ("site", &summary.site)],
            1,
        );
        let started = summary.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        text.gauge(
            "process_start_time_seconds",
            "Start time of the server, in seconds since 1970.",
            started.as_secs_f64(),
        );
    }

    pub(super) fn process(&self, text: &mut MetricsText, found: Option<&ProcessStatus>) {
        let time = processor_time();
        let (user, system) = (time.user.as_secs_f64(), time.system.as_secs_f64());
        text.counter("process_cpu_seconds", "Processor time in user and kernel mode.", user + system);
        let mut family = text.family(MetricKind::Counter, "scalla_cpu_seconds", "Processor time by mode.");
        family.sample(&[("mode", "user")], user);
        family.sample(&[("mode", "system")], system);
        let Some(found) = found else { return };
        for (name, help, value) in [
            ("process_open_fds", "Open descriptors.", found.descriptors),
            ("process_max_fds", "Maximum number of open descriptors.", found.descriptors_max),
            ("process_resident_memory_bytes", "Resident memory.", found.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory.", found.virtual_bytes),
            ("process_threads", "Threads of the process.", found.threads),
        ] {
            if let Some(value) = value {
                text.gauge(name, help, value);
            }
        }
    }

    pub(super) fn certificates(&self, text: &mut MetricsText) {
        let Some(ListCertificates(list)) = &self.summary.certificates else { return };
        let mut first = BTreeMap::new();
        for certificate in list() {
            let expires = seconds(certificate.expires);
            let first = first.entry(certificate.protocol).or_insert(expires);
            *first = expires.min(*first);
        }
        if first.is_empty() {
            return;
        }
        let name = "scalla_certificate_expiry_timestamp_seconds";
        let help = "The end of the validity of a certificate of the server, in seconds since 1970.";
        let mut family = text.family(MetricKind::Gauge, name, help);
        for (protocol, expires) in &first {
            family.sample(&[("protocol", protocol)], *expires);
        }
    }

    /// Writes the families of a node. `found` is `Some(None)` if its thread does not answer.
    pub(super) fn cluster(&self, text: &mut MetricsText, found: Option<Option<&NodeStatus>>) {
        let Some(found) = found else { return };
        let help = "1 if the thread of the cluster has answered within the last 10 seconds.";
        text.gauge("scalla_cluster_answers", help, u64::from(found.is_some()));
        let Some(found) = found else { return };
        let states = |text: &mut MetricsText, name: &str, help: &str, of: &dyn Fn(NodeState) -> u64| {
            let mut family = text.family(MetricKind::Gauge, name, help);
            for state in NodeState::ALL {
                family.sample(&[("state", &state.word().replace(' ', "_"))], of(state));
            }
        };
        states(text, "scalla_cluster_state", "1 for the state of this node.", &|state| {
            u64::from(state.is(&found.state))
        });
        text.gauge(
            "scalla_cluster_parents",
            "Nodes to which this node is logged in.",
            found.parents.len() as u64,
        );
        text.gauge(
            "scalla_cluster_sought_parents",
            "Managers that this node cannot join.",
            found.sought.len() as u64,
        );
        if text.is_bare() {
            nodes(text, found);
        }
        let Some(cache) = &found.cache else { return };
        states(
            text,
            "scalla_cluster_nodes",
            "Nodes that are logged in here, or were a short time ago.",
            &|state| found.children.iter().filter(|child| state.is(&child.state)).count() as u64,
        );
        text.gauge("scalla_cluster_waiting_nodes", "Nodes whose login waits for a free slot.", found.waiting);
        text.gauge("scalla_cluster_redirectors", "Redirectors that are logged in.", found.redirectors);
        text.gauge("scalla_locations", "Paths whose location is known.", cache.locations);
        text.family(MetricKind::Counter, "scalla_location_lookups", "Look-ups of locations.")
            .each("result", [("hit", cache.hits), ("miss", cache.misses)]);
        text.gauge("scalla_location_queries", "Paths whose location is being queried.", cache.queries);
        text.family(MetricKind::Gauge, "scalla_location_waiters", "Requests that wait for a location.")
            .each("reason", [("query", cache.waiters), ("node_away", cache.held)]);
    }

    pub(super) fn transfers(&self, text: &mut MetricsText, queue: Option<&QueueCounts>) {
        if let Some(queue) = queue {
            let help = "Transfers from (in) and to (out) mass storage in the queue.";
            let mut family = text.family(MetricKind::Gauge, "scalla_transfers", help);
            for (direction, of) in [("in", queue.inward), ("out", queue.outward)] {
                for (state, number) in [
                    ("queued", of.queued),
                    ("running", of.running),
                    ("cancelled", of.stopping),
                    ("failed", of.failed),
                ] {
                    family.sample(&[("direction", direction), ("state", state)], number);
                }
            }
        }
        let purge = self.purge.as_ref().and_then(Weak::upgrade);
        let Some(last) = purge.and_then(|purge| purge.last()) else { return };
        let ended = MetricValue::Whole(u64::try_from(last.ended).unwrap_or_default());
        let help = "The end of the last purge, in seconds since 1970.";
        text.gauge("scalla_purge_timestamp_seconds", help, ended);
        text.gauge("scalla_purge_files", "Files that the last purge has removed.", last.files);
        text.gauge(
            "scalla_purge_removed_bytes",
            "Bytes of files that the last purge has removed.",
            last.bytes,
        );
        let help = "File systems that had too little space after the last purge.";
        text.gauge("scalla_purge_short_file_systems", help, last.short.len() as u64);
    }
}

/// Writes a sample for each node that is logged in here, and for each one to which this node is logged in. Only the
/// dashboard gets them. Their labels change with the load, so a collector would begin a new series each time.
fn nodes(text: &mut MetricsText, found: &NodeStatus) {
    let mut family = text.family(MetricKind::Info, "scalla_dashboard_parent", "Nodes above this one.");
    for parent in &found.parents {
        family.sample(&[("address", &short(parent))], 1);
    }
    let mut family = text.family(MetricKind::Info, "scalla_dashboard_node", "Nodes below this one.");
    for child in &found.children {
        let (load, part) = child.load.highest();
        let numbers = [
            u64::from(child.slot),
            u64::from(load),
            u64::from(child.space.free_mb),
            child.space.total_mb,
            u64::from(child.space.used_percent),
        ];
        let [slot, load, free, total, used] = numbers.map(|number| number.to_string());
        let age = child.age_seconds.map(|age| age.to_string()).unwrap_or_default();
        let site = child.site.as_deref().unwrap_or_default();
        let [role, address, site, version, state] =
            [&child.role, &child.address, site, &child.version, &child.state].map(short);
        let labels = [
            ("slot", slot.as_str()),
            ("role", &role),
            ("address", &address),
            ("site", &site),
            ("version", &version),
            ("state", &state),
            ("age_seconds", &age),
            ("load_percent", &load),
            ("load_part", part),
            ("free_mb", &free),
            ("total_mb", &total),
            ("used_percent", &used),
        ];
        family.sample(&labels, 1);
    }
}

/// Maximum length of a name that another node has chosen, in characters.
const NAME_CHARS_MAX: usize = 128;

/// Returns a name that another node has chosen, with its control characters escaped, and cut.
fn short(name: &str) -> String {
    base::shown(name).to_string().chars().take(NAME_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_nodes_are_on_one_line_and_short() {
        assert_eq!(short("a site"), "a site");
        let odd = short("x\rid: 1\n\u{2028}y\u{85}");
        assert!(!odd.contains(|c: char| c.is_control()), "{odd:?}");
        assert_eq!(short(&"é".repeat(1000)).chars().count(), NAME_CHARS_MAX);
    }
}
