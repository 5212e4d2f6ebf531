//! The managers, the files and `cms.dfs` of a node by its role in a cluster of proxies.
//!
//! It is decided after all directives, because the last `all.role` counts, and that of cmsd.

use crate::effective::{ClusterConfig, Effective, NodeRole};
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;

/// Makes the node one of a cluster of proxies if its role says so, and reports directives that have no effect then.
pub(crate) fn finish_proxies(effective: &mut Effective, report: &mut ConfigReport) {
    let cluster = &mut effective.cluster;
    let proxy_managers = std::mem::take(&mut cluster.proxy_managers);
    if !cluster.of_proxies {
        return check_other_managers(cluster, &proxy_managers, report);
    }
    let managers = std::mem::replace(&mut cluster.managers, proxy_managers);
    if let Some(manager) = managers.first().filter(|_| cluster.managers.is_empty()) {
        let what = "all.manager has no effect on a proxy";
        report.add(ProblemKind::Doubtful, manager.origin.clone(), what, "write all.manager proxy host:port");
    }
    share_all_files(cluster, report);
    let enabled = &mut effective.proxy.enabled;
    if *cluster.role != NodeRole::Server {
        // One file for all nodes may name the library and the cache, but only the servers have files.
        *enabled = Setting::default_of(false);
    } else if !**enabled {
        enabled.set(true, cluster.role.origin.clone());
    }
}

/// Reports managers that a node outside of clusters of proxies does not use, if it has no others.
fn check_other_managers<T>(
    cluster: &ClusterConfig,
    proxy_managers: &[Setting<T>],
    report: &mut ConfigReport,
) {
    if let Some(manager) = proxy_managers.first().filter(|_| cluster.managers.is_empty()) {
        let what = format!("all.manager proxy has no effect, because the role is {}", cluster.role_name());
        let allowed = format!(
            "write all.role proxy {}, or all.manager host:port, or remove it",
            if cluster.role.redirects() { cluster.role.name() } else { NodeRole::Server.name() }
        );
        report.add(ProblemKind::Doubtful, manager.origin.clone(), what, &allowed);
    }
}

/// Each node has all files, so none is asked for one.
fn share_all_files(cluster: &mut ClusterConfig, report: &mut ConfigReport) {
    let origin = cluster.shared.origin.clone();
    let shared = cluster.shared.value.get_or_insert_default();
    if shared.central || shared.verified {
        let option = if shared.central { "lookup central" } else { "redirect verify" };
        let what = format!("cms.dfs: '{option}' has no effect in a cluster of proxies");
        report.add(
            ProblemKind::Doubtful,
            origin,
            what,
            "remove it; each proxy has all files (redirect immed)",
        );
    }
    (shared.unchecked, shared.central, shared.verified) = (true, false, false);
}
