//! The values of the cluster as text.
//!
//! They are separate from `show` because a standalone server omits them.

use std::time::Duration;

use super::lines::{EffectiveLine, EffectiveLines, Reload, time, trace};
use crate::effective::{
    AffinityPart, Delays, Effective, ForwardWay, Forwarding, FreeSpace, HostPattern, Limit,
    LoadProgramSetting, OutsideAddress, Port, Quorum, Scheduling, SelectionSpace, SharedFilesConfig,
    WaitTime,
};
use crate::setting::Setting;
use crate::values::show_size;

/// Shows `xrd.allow`, which both programs read. Patterns that only one of them reads carry a
/// condition.
pub(super) fn connect(effective: &Effective, lines: &mut EffectiveLines) {
    let (xrootd, cmsd) = (&effective.network.allow, &effective.cluster.connect);
    let in_list = |list: &[Setting<HostPattern>], pattern: &Setting<HostPattern>| {
        list.iter().any(|other| other.value == pattern.value)
    };
    let one_file = effective.program == "xrootd" && effective.cluster.is_cluster_node();
    for pattern in xrootd {
        let only = one_file && !in_list(cmsd, pattern);
        let end = if only { " if exec xrootd" } else { "" };
        lines.safe("xrd.allow", pattern, |pattern| format!("host {}{end}", pattern.as_str()));
    }
    for pattern in cmsd.iter().filter(|pattern| one_file && !in_list(xrootd, pattern)) {
        lines.restart("xrd.allow", pattern, |pattern| format!("host {} if exec cmsd", pattern.as_str()));
    }
}

/// Shows all other values. A standalone server shows only values that were set.
pub(super) fn lines(effective: &Effective, lines: &mut EffectiveLines) {
    let mut all = EffectiveLines(Vec::new());
    values(effective, &mut all);
    let cluster = effective.cluster.is_cluster_node();
    let counts = |line: &EffectiveLine| cluster || line.directive == "all.role" || !line.origin.is_default();
    lines.0.extend(all.0.into_iter().filter(counts));
}

fn values(effective: &Effective, lines: &mut EffectiveLines) {
    let cluster = &effective.cluster;
    lines.restart("all.role", &cluster.role, |_| cluster.role_name());
    let kind = if cluster.of_proxies { "proxy " } else { "" };
    for manager in &cluster.managers {
        lines.restart("all.manager", manager, |manager| format!("{kind}{manager}"));
    }
    for manager in &cluster.meta_managers {
        lines.restart("all.manager", manager, |manager| format!("meta {manager}"));
    }
    lines.add(Reload::Restart, "all.subcluster", &cluster.subcluster, |manager| {
        manager.as_ref().map(ToString::to_string)
    });
    if let Some(port) = cluster.port.value {
        let value = Some(format!("{} if exec cmsd", show_port(port)));
        let origin = cluster.port.origin.clone();
        lines.0.push(EffectiveLine { directive: "xrd.port", value, origin, reload: Reload::Restart });
    }
    lines.restart("cms.superport", &cluster.supervisor_port, |port| show_port(*port));
    for pattern in &cluster.allow {
        lines.restart("cms.allow", pattern, |pattern| format!("host {}", pattern.as_str()));
    }
    lines
        .add(Reload::Restart, "scalla.clusterkey", &cluster.key, |key| key.as_ref().map(ToString::to_string));
    if let Some(list) = &cluster.node_list.value {
        let directive = if list.white { "cms.whitelist" } else { "cms.blacklist" };
        let path = list.path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default();
        lines.restart(directive, &cluster.node_list, |_| format!("check {}{path}", time(&list.check)));
    }
    lines.add(Reload::Restart, "cms.cidtag", &cluster.tag, Clone::clone);
    lines.add(Reload::Restart, "cms.vnid", &cluster.virtual_id, |id| id.as_ref().map(|id| format!("={id}")));
    delay(&cluster.delay, lines);
    sched(&cluster.sched, lines);
    space(&cluster.space, lines);
    lines.restart("cms.fxhold", &cluster.location_hold, time);
    lines.add(Reload::Restart, "cms.fxhold", &cluster.nowhere_hold, |hold| {
        hold.as_ref().map(|hold| format!("noloc {}", time(hold)))
    });
    // One directive sets both, so the second line must repeat the first value.
    lines.restart("cms.ping", &cluster.ping, time);
    let ping = time(&cluster.ping);
    lines.restart("cms.ping", &cluster.ping_usage, |usage| format!("{ping} usage {usage}"));
    lines.restart("cms.perf", &cluster.load_interval, |interval| format!("int {}", time(interval)));
    lines.add(Reload::Restart, "cms.perf", &cluster.load_source, |source| match source {
        LoadProgramSetting::Own => None,
        LoadProgramSetting::Program(words) => Some(format!("pgm {}", words.join(" "))),
    });
    lines.add(Reload::Restart, "cms.dfs", &cluster.shared, |shared| shared.as_ref().map(shared_files));
    for setting in &cluster.programs {
        lines.restart("cms.fsxeq", setting, |value| {
            format!("{} {}", value.operations.join(" "), value.program.join(" "))
        });
    }
    if !cluster.contact_wait.origin.is_default() {
        lines.restart("cms.conwait", &cluster.contact_wait, time);
    }
    for (way, name) in [(ForwardWay::OneWay, "1way"), (ForwardWay::TwoWay, "2way")] {
        lines.add(Reload::Restart, "ofs.forward", &cluster.forwarding, |value| forwarded(value, way, name));
    }
    lines.restart("cms.trace", &cluster.trace, trace);
}

fn show_port(port: Port) -> String {
    match port {
        Port::Number(number) => number.to_string(),
        Port::Any => "any".to_owned(),
    }
}

fn delay(delay: &Delays, lines: &mut EffectiveLines) {
    let times: [(&str, &Setting<Duration>); 4] = [
        ("startup", &delay.startup),
        ("service", &delay.service),
        ("lookup", &delay.lookup),
        ("suspend", &delay.suspend),
    ];
    for (name, setting) in times {
        // Values without effect are shown only if they are set.
        if name != "startup" || !setting.origin.is_default() {
            lines.restart("cms.delay", setting, |value| format!("{name} {}", time(value)));
        }
    }
    for (name, setting) in [("qdl", &delay.silence), ("drop", &delay.drop)] {
        lines.add(Reload::Restart, "cms.delay", setting, |value| {
            value.as_ref().map(|value| format!("{name} {}", time(value)))
        });
    }
    for (name, setting) in [("full", &delay.full), ("overload", &delay.overload)] {
        lines.add(Reload::Restart, "cms.delay", setting, |value| match value {
            WaitTime::ByRole => None,
            WaitTime::ByReports => Some(format!("{name} *")),
            WaitTime::Time(value) => Some(format!("{name} {}", time(value))),
        });
    }
    lines.restart("cms.delay", &delay.hold, |hold| format!("hold {}", hold.as_millis()));
    lines.restart("cms.delay", &delay.quorum, |quorum| match quorum {
        Quorum::Count(count) => format!("servers {count}"),
        Quorum::Percent(percent) => format!("servers {percent}%"),
    });
    lines.restart("cms.delay", &delay.stagers, |count| format!("nostage {count}"));
}

fn sched(sched: &Scheduling, lines: &mut EffectiveLines) {
    lines.restart("cms.sched", &sched.weights, |weights| {
        format!(
            "cpu {} io {} runq {} mem {} pag {} space {}",
            weights.cpu, weights.io, weights.runq, weights.mem, weights.pag, weights.space
        )
    });
    lines.restart("cms.sched", &sched.fuzz, |fuzz| format!("fuzz {fuzz}"));
    lines.add(Reload::Restart, "cms.sched", &sched.load_max, |max| max.map(|max| format!("maxload {max}")));
    if !sched.reset.origin.is_default() {
        lines.restart("cms.sched", &sched.reset, |reset| format!("refreset {}", time(reset)));
    }
    lines.restart("cms.sched", &sched.share, |share| format!("gshr {share}"));
    if !sched.share_default.origin.is_default() {
        lines.restart("cms.sched", &sched.share_default, |share| format!("gsdflt {share}"));
    }
    lines.restart("cms.sched", &sched.affinity, |affinity| {
        let by_client = if affinity.by_client { "default " } else { "" };
        let kind = if affinity.randomized { "randomized" } else { affinity.kind.name() };
        format!("affinity {by_client}{kind}")
    });
    lines.restart("cms.sched", &sched.affinity_part, |part| match part {
        AffinityPart::All => "affpath all".to_owned(),
        AffinityPart::First(count) => format!("affpath first {count}"),
        AffinityPart::Last(count) => format!("affpath last {count}"),
    });
    if !sched.try_names.origin.is_default() {
        lines.restart("cms.sched", &sched.try_names, |names| format!("tryhname {}", u8::from(*names)));
    }
    lines.add(Reload::Restart, "cms.sched", &sched.tried_max, |limit| {
        let Limit { limit, outside } = limit.as_ref()?;
        Some(format!("maxretries {limit}{}", host_and_port(outside.as_ref())))
    });
    lines.add(Reload::Restart, "cms.sched", &sched.one_source, |limit| {
        Some(format!("nomultisrc{}", host_and_port(limit.as_ref()?.outside.as_ref())))
    });
}

/// Formats `@host:port`.
fn host_and_port(outside: Option<&OutsideAddress>) -> String {
    match outside {
        Some(OutsideAddress { host, port }) if host.contains(':') => format!("@[{host}]:{port}"),
        Some(OutsideAddress { host, port }) => format!("@{host}:{port}"),
        None => String::new(),
    }
}

fn space(space: &SelectionSpace, lines: &mut EffectiveLines) {
    lines.restart("cms.space", &space.linger, |linger| format!("linger {linger}"));
    lines.restart("cms.space", &space.recalculate, |recalculate| format!("recalc {}", time(recalculate)));
    let limit = |limit: &FreeSpace| match limit.percent {
        0 => show_size(limit.bytes),
        percent => format!("{percent}% {}", show_size(limit.bytes)),
    };
    let enough = limit(&space.enough);
    lines.restart("cms.space", &space.least, |least| format!("min {} {enough}", limit(least)));
    lines.add(Reload::Restart, "cms.space", &space.copies, |copies| copies.then(|| "mwfiles".to_owned()));
}

fn shared_files(shared: &SharedFilesConfig) -> String {
    let lookup = if shared.central { "central" } else { "distrib" };
    let redirect = if shared.unchecked { "immed" } else { "verify" };
    let mut text = format!("lookup {lookup} redirect {redirect} retries {}", shared.retries);
    if shared.rate_max > 0 {
        let central = if shared.rate_central { "central " } else { "" };
        let even = if shared.rate_even { "=" } else { "" };
        text.push_str(&format!(" limit {central}{even}{}", shared.rate_max));
    }
    if !shared.missing_hold.is_zero() {
        text.push_str(&format!(" mdhold {}", time(&shared.missing_hold)));
    }
    if shared.queue_max > 0 {
        text.push_str(&format!(" qmax {}", shared.queue_max));
    }
    text
}

fn forwarded(value: &Forwarding, way: ForwardWay, name: &str) -> Option<String> {
    let operations = [
        (value.chmod, "chmod"),
        (value.mkdir, "mkdir"),
        (value.mv, "mv"),
        (value.rm, "rm"),
        (value.rmdir, "rmdir"),
        (value.trunc, "trunc"),
    ];
    let chosen: Vec<&str> =
        operations.into_iter().filter(|(its, _)| *its == way).map(|(_, name)| name).collect();
    (!chosen.is_empty()).then(|| format!("{name} {}", chosen.join(" ")))
}
