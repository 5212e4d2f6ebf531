//! The effective configuration as text: each value as the directive that sets it, and its origin.
//!
//! The output is a valid file with the same effect, so that an operator can start from it.

mod authorization;
mod cluster;
mod detailed_monitoring;
mod grid;
mod gstreams;
mod http;
mod lines;
mod monitoring;
mod multi_user;
mod notification;
mod packet_marking;
mod proxy;
mod residency;
mod security;
mod third_party;
mod tls;

use std::time::Duration;

pub use lines::{EffectiveLine, Reload};

use lines::{EffectiveLines, time, trace};

use crate::directives::EXPORT_OPTIONS;
use crate::effective::{
    AddressFamily, CheckpointFailure, CheckpointMode, ChecksumConfig, ClientClass, CreationModes,
    DirectorySetting, Effective, ExportAttributes, KeepAlive, LogFormat, LogicalConfig, PersistMode, Port,
    PrepareLimit, ProtocolConfig, RedirectRule, RedirectServer, RedirectWhen, SessionLog, SpaceAccounting,
    SpacePartition, SpaceRule, Storage, XATTR_PREFIX_BYTES, XattrLimits,
};
use crate::values::show_size;

/// Returns every effective value in a fixed order, crate by crate. The lines with a value, without
/// their origins, are a configuration file with the same effect.
#[must_use]
pub fn show(effective: &Effective) -> Vec<EffectiveLine> {
    let mut lines = EffectiveLines(Vec::new());
    process(effective, &mut lines);
    network(effective, &mut lines);
    monitoring::show(&effective.monitoring, &mut lines);
    protocol(&effective.protocol, &mut lines);
    http::show(effective, &mut lines);
    security::show(&effective.security, &mut lines);
    authorization::show(&effective.authorization, &mut lines);
    logical(&effective.logical, &mut lines);
    notification::show(&effective.notification, &mut lines);
    multi_user::show(&effective.multi_user, &mut lines);
    storage(&effective.storage, &mut lines);
    proxy::show(&effective.proxy, &mut lines);
    residency::show(&effective.residency, &mut lines);
    residency::show_purge(&effective.residency, &mut lines);
    cluster::lines(effective, &mut lines);
    lines.0
}

fn process(effective: &Effective, lines: &mut EffectiveLines) {
    let process = &effective.process;
    lines.restart("all.adminpath", &process.admin_path, directory);
    lines.restart("all.pidpath", &process.pid_path, |path| path.display().to_string());
    lines.add(Reload::Restart, "xrd.homepath", &process.home_path, |home| home.as_ref().map(directory));
    // Macaroons of another site would be accepted.
    let site = if effective.authorization.layers.has_macaroons() { Reload::Restart } else { Reload::Safe };
    lines.add(site, "all.sitename", &process.site_name, Clone::clone);
    lines.safe("scalla.drain", &process.drain, time);
    lines.restart("scalla.logformat", &process.log_format, |format| match format {
        LogFormat::Text => "text".to_owned(),
        LogFormat::Json => "json".to_owned(),
    });
    let switch = |on: &bool| if *on { "on" } else { "off" }.to_owned();
    lines.restart("scalla.iouring", &process.io_uring, switch);
    lines.restart("scalla.polling", &process.polling, switch);
    let inventory = |complete: &bool| if *complete { "complete" } else { "partial" }.to_owned();
    lines.restart("scalla.inventory", &process.complete_inventory, inventory);
    lines.add(Reload::Restart, "scalla.memory", &process.memory, |bytes| bytes.map(show_size));
}

fn network(effective: &Effective, lines: &mut EffectiveLines) {
    let network = &effective.network;
    lines.restart("xrd.port", &network.port, |port| match port {
        Port::Number(number) => number.to_string(),
        Port::Any => "any".to_owned(),
    });
    lines.add(Reload::Restart, "-I", &network.family, |family| match family {
        AddressFamily::Both => None,
        AddressFamily::V4 => Some("v4".to_owned()),
        AddressFamily::V6 => Some("v6".to_owned()),
    });
    cluster::connect(effective, lines);
    lines.restart("xrd.maxfd", &network.max_fd, |max| {
        format!("{}{}", if max.strict { "strict " } else { "" }, show_size(max.limit))
    });
    lines.safe("xrd.network", &network.keepalive, |on| either(*on, "keepalive", "nokeepalive"));
    lines.add(Reload::Safe, "xrd.network", &network.keepalive_parameters, keepalive);
    lines.safe("xrd.network", &network.socket_buffer_bytes, |size| {
        format!("buffsz {}", show_size(size.unwrap_or(0)))
    });
    lines.safe("xrd.network", &network.name_cache, |cache| format!("cache {}", time(cache)));
    lines.safe("xrd.network", &network.resolve_names, |on| either(*on, "dnr", "nodnr"));
    lines.safe("xrd.timeout", &network.read_timeout, |value| format!("read {}", time(value)));
    lines.safe("xrd.timeout", &network.hail_timeout, |value| format!("hail {}", time(value)));
    lines.safe("xrd.timeout", &network.idle_timeout, |value| {
        format!("idle {}", time(&value.unwrap_or(Duration::ZERO)))
    });
    lines.safe("xrd.timeout", &network.kill_timeout, |value| format!("kill {}", time(value)));
    tls::network(effective, lines);
    lines.safe("xrd.trace", &network.trace, trace);
}

fn protocol(protocol: &ProtocolConfig, lines: &mut EffectiveLines) {
    lines.add(Reload::Safe, "xrootd.chksum", &protocol.checksums, checksums);
    lines.safe("xrootd.log", &protocol.session_log, session_log);
    lines.add(Reload::Safe, "xrootd.limit", &protocol.prepare_limit, prepare_limit);
    for setting in &protocol.redirects {
        lines.safe("xrootd.redirect", setting, redirect);
    }
    lines.add(Reload::Safe, "xrootd.async", &protocol.sendfile, |on| (!on).then(|| "nosf".to_owned()));
    tls::protocol(protocol, lines);
    lines.safe("xrootd.trace", &protocol.trace, trace);
}

fn logical(logical: &LogicalConfig, lines: &mut EffectiveLines) {
    lines.safe("ofs.persist", &logical.persist, |persist| {
        let mode = match persist.mode {
            PersistMode::Auto => "auto",
            PersistMode::Manual => "manual",
            PersistMode::Off => "off",
        };
        let synced = if persist.synced { "" } else { " nosync" };
        format!("{mode} hold {} sync {}{synced}", time(&persist.hold), persist.sync)
    });
    lines.add(Reload::Restart, "ofs.persist", &logical.persist, |persist| {
        persist.log_path.as_ref().map(|path| format!("logdir {}", path.display()))
    });
    lines.restart("ofs.chkpnt", &logical.checkpoint, |checkpoint| {
        let mode = match checkpoint.mode {
            CheckpointMode::Automatic => "",
            CheckpointMode::Enabled => "enable ",
            CheckpointMode::Disabled => "disable ",
        };
        let action = match checkpoint.on_failure {
            CheckpointFailure::MakeReadOnly => "makero",
            CheckpointFailure::StopIo => "stopio",
        };
        let path = checkpoint.path.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default();
        format!("{mode}cprerr {action} maxsz {}{path}", show_size(checkpoint.bytes_max))
    });
    lines.safe("ofs.crmode", &logical.creation_modes, |modes| {
        let CreationModes { directories, files } = modes;
        format!(
            "dirs {:04o}:{:04o} files {:04o}:{:04o}",
            directories.min, directories.max, files.min, files.max
        )
    });
    lines.safe("ofs.cksrdsz", &logical.checksum_read_bytes, |bytes| show_size(*bytes));
    lines.safe("ofs.maxdelay", &logical.delay_max, time);
    lines.safe("ofs.xattr", &logical.xattr, |limits| {
        let XattrLimits { name_bytes_max, value_bytes_max, enabled } = limits;
        let on = either(*enabled, "on", "off");
        let name_bytes_max = name_bytes_max + XATTR_PREFIX_BYTES;
        format!("maxnsz {name_bytes_max} maxvsz {} uset {on}", show_size((*value_bytes_max).into()))
    });
    lines
        .add(Reload::Restart, "ofs.tpc", &logical.third_party, |value| value.as_ref().map(third_party::show));
    lines.add(Reload::Restart, "scalla.tpcsource", &logical.copy_sources, third_party::show_sources);
    lines.safe("ofs.trace", &logical.trace, trace);
}

fn storage(storage: &Storage, lines: &mut EffectiveLines) {
    // Printed before the exports, to which it applies.
    lines.restart("oss.defaults", &storage.defaults, |attributes| {
        show_attributes(&ExportAttributes::default(), attributes)
    });
    for export in &storage.exports {
        let attributes = show_attributes(&storage.defaults, &export.attributes);
        let value = Some(format!("{} {attributes}", export.prefix));
        let origin = export.origin.clone();
        lines.0.push(EffectiveLine { directive: "all.export", value, origin, reload: Reload::Restart });
    }
    lines.add(Reload::Restart, "oss.localroot", &storage.local_root, |path| {
        path.as_ref().map(|path| path.display().to_string())
    });
    for setting in &storage.name_rules {
        lines.restart("scalla.namerule", setting, ToString::to_string);
    }
    for setting in &storage.spaces {
        lines.restart("oss.space", setting, space);
    }
    for setting in &storage.space_rules {
        lines.restart("oss.space", setting, space_rule);
    }
    lines.restart("oss.usage", &storage.accounting, usage);
    lines.restart("oss.spacescan", &storage.space_scan, time);
    lines.safe("oss.alloc", &storage.allocation, |allocation| {
        let min = show_size(allocation.bytes_min);
        format!("{min} {} {}", allocation.headroom_percent, allocation.fuzz_percent)
    });
    lines.safe("oss.maxsize", &storage.file_bytes_max, |size| show_size(size.unwrap_or(0)));
    lines.safe("oss.trace", &storage.trace, trace);
}

fn usage(accounting: &SpaceAccounting) -> String {
    let log = match &accounting.log {
        None => "nolog".to_owned(),
        Some(log) => match log.changes_per_sync {
            0 => format!("log {}", log.directory.display()),
            changes => format!("log {} sync {changes}", log.directory.display()),
        },
    };
    match &accounting.quota_file {
        None => format!("{log} noquotafile"),
        Some(path) => format!("{log} quotafile {}", path.display()),
    }
}

fn either(on: bool, yes: &str, no: &str) -> String {
    (if on { yes } else { no }).to_owned()
}

fn directory(directory: &DirectorySetting) -> String {
    format!("{}{}", directory.path.display(), if directory.group { " group" } else { "" })
}

fn keepalive(value: &KeepAlive) -> Option<String> {
    let KeepAlive { idle, interval, count } = value;
    if idle.is_none() && interval.is_none() && count.is_none() {
        return None;
    }
    let part = |value: &Option<Duration>| value.as_ref().map(time).unwrap_or_default();
    let count = count.map(|count| count.to_string()).unwrap_or_default();
    Some(format!("kaparms {},{},{count}", part(idle), part(interval)))
}

fn checksums(value: &ChecksumConfig) -> Option<String> {
    if value.offered.is_empty() {
        return None;
    }
    let cgi = if value.from_cgi { "chkcgi " } else { "" };
    let kinds: Vec<&str> = value.offered.iter().map(|kind| kind.name()).collect();
    Some(format!("{cgi}max {} {}", value.concurrent_max, kinds.join(" ")))
}

fn session_log(value: &SessionLog) -> String {
    match (value.login, value.disconnect) {
        (true, true) => "all",
        (true, false) => "none login",
        (false, true) => "none disc",
        (false, false) => "none",
    }
    .to_owned()
}

fn prepare_limit(value: &PrepareLimit) -> Option<String> {
    let limit = value.per_connection.map(|limit| format!("prepare {limit}"));
    let silent = value.silent.then(|| "noerror".to_owned());
    let words: Vec<String> = limit.into_iter().chain(silent).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn redirect(value: &RedirectRule) -> String {
    let target = |target: &RedirectServer| format!("{}:{}", target.host, target.port);
    let private = value.private_target.as_ref().map(|t| format!("%{}", target(t))).unwrap_or_default();
    let when = match &value.when {
        RedirectWhen::Functions(functions) => {
            functions.iter().map(|function| function.name()).collect::<Vec<_>>().join(" ")
        }
        RedirectWhen::Paths(paths) => paths.join(" "),
        RedirectWhen::Missing(paths) => format!("? {}", paths.join(" ")),
        RedirectWhen::Clients(clients) => {
            let names = clients.iter().map(|client| match client {
                ClientClass::Private => "private",
                ClientClass::Local => "local",
                ClientClass::Domain(pattern) => pattern.as_str().trim_start_matches('*'),
            });
            format!("client {}", names.collect::<Vec<_>>().join(" "))
        }
    };
    format!("{}{private} {when}", target(&value.target))
}

fn space(value: &SpacePartition) -> String {
    let star = if value.wildcard { "*" } else { "" };
    let check = value
        .mount_check
        .as_ref()
        .map(|check| format!(" chkmount {}{}", check.id, if check.optional { " nofail" } else { "" }));
    format!("{} {}{star}{}", value.name, value.path.display(), check.unwrap_or_default())
}

fn space_rule(value: &SpaceRule) -> String {
    let kind = if value.assign { "assign" } else { "default" };
    format!("{} {kind} {}", value.name, value.prefixes.join(" "))
}

/// Returns the options that lead from `start` to `attributes`: access and locking always, then the
/// differences.
fn show_attributes(start: &ExportAttributes, attributes: &ExportAttributes) -> String {
    let access = match (attributes.read_only, attributes.force_read_only) {
        (_, true) => "forcero",
        (true, false) => "r/o",
        (false, false) => "r/w",
    };
    let lock = if attributes.lock { "lock" } else { "nolock" };
    let mut words = vec![access, lock];
    let mut reached = ExportAttributes {
        read_only: attributes.read_only,
        force_read_only: attributes.force_read_only,
        lock: attributes.lock,
        ..*start
    };
    for option in EXPORT_OPTIONS {
        // An option is part of the result if it does not change the goal but changes the attributes
        // reached.
        let mut goal = *attributes;
        (option.set)(&mut goal);
        let mut next = reached;
        (option.set)(&mut next);
        if goal == *attributes && next != reached {
            words.extend(option.names.first());
            reached = next;
        }
    }
    words.join(" ")
}
