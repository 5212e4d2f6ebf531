//! Directives of a proxy that are in force: its origins, and how they are reached.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::object_store;
use super::shared::{option_not_yet, part_without_effect, unprotected};
use crate::effective::{
    AddressProblem, AuthProtocol, Effective, HostPattern, OTHER_PROTOCOLS, OriginAddress, OriginBucket,
    OriginOption, OriginPermit, OriginProtocol, ProxyOrigin, ProxyServer,
};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::{Origin, Setting};
use crate::values;

/// Names of `pss.setopt`, and the settings of the client that they change; `None` for those without
/// effect.
const OPTIONS: [(&str, Option<&str>); 19] = [
    ("ConnectTimeout", Some("ConnectionWindow")),
    ("ConnectionRetry", Some("ConnectionRetry")),
    ("DataServerTTL", Some("DataServerTTL")),
    ("DataServerConn_ttl", Some("DataServerTTL")),
    ("LBServerConn_ttl", Some("LoadBalancerTTL")),
    ("LoadBalancerTTL", Some("LoadBalancerTTL")),
    ("RedirectorConn_ttl", Some("LoadBalancerTTL")),
    ("ParStreamsPerPhyConn", Some("SubStreamsPerChannel")),
    ("ReconnectWait", Some("StreamErrorWindow")),
    ("RedirectLimit", Some("RedirectLimit")),
    ("RequestTimeout", Some("RequestTimeout")),
    ("StreamTimeout", Some("StreamTimeout")),
    ("ParallelEvtLoop", None),
    ("WorkerThreads", None),
    ("DirlistAll", None),
    ("DirlistDflt", None),
    ("DebugLevel", None),
    ("DebugMask", None),
    ("TransactionTimeout", None),
];

/// Settings that are not 0.
const NOT_ZERO: [&str; 4] = ["ConnectionWindow", "RedirectLimit", "RequestTimeout", "StreamTimeout"];

/// `[=protocol,…] {host[:port| port] | URL | s3://bucket[/prefix] | /path}`.
pub(super) fn origin(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = Some(arguments.need("origin")?);
    let list = token.and_then(|token| token.text.strip_prefix('=').map(|list| (token, list)));
    let mut forwards = Vec::new();
    if let Some((first, list)) = list {
        for protocol in list.split(',').filter(|protocol| !protocol.is_empty()) {
            match OriginProtocol::parse(protocol) {
                Some(known) if forwards.contains(&known) => {}
                Some(known) => forwards.push(known),
                None if OTHER_PROTOCOLS.contains(&protocol) => option_not_yet(arguments, first, draft),
                None => {
                    let what = format!("unknown protocol '{protocol}'");
                    return Err(DirectiveFault::at(
                        first,
                        what,
                        "allowed: root, roots, xroot, xroots, http, https, dav, davs",
                    ));
                }
            }
        }
        if list.split(',').all(str::is_empty) {
            forwards.extend(OriginProtocol::DEFAULT);
        }
        token = arguments.next();
    }
    let (mut fixed, mut bucket) = (None, None);
    match token {
        Some(token) if OriginBucket::is_named(&token.text) => {
            let parsed = token.text.parse::<OriginBucket>();
            bucket = Some(parsed.map_err(|what| DirectiveFault::at(token, what, String::new()))?);
        }
        token => fixed = token.map(|token| server(token, arguments, draft)).transpose()?,
    }
    draft.finish(arguments);
    let origin = ProxyOrigin { forwards, fixed, bucket };
    draft.effective.proxy.origin.set(Some(origin), arguments.origin());
    Ok(())
}

/// Reads the address of a fixed origin.
fn server(
    token: &DirectiveToken,
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<ProxyServer, DirectiveFault> {
    let OriginAddress { protocol, host, port } =
        OriginAddress::parse(&token.text).map_err(|problem| match problem {
            AddressProblem::Unsupported(what) => {
                let allowed = "not starting, because its files would not be served; use root://, roots://, http://, https:// or s3://";
                DirectiveFault::at(token, what, allowed).of(ProblemKind::Unsupported)
            }
            AddressProblem::Malformed(what) => {
                DirectiveFault::at(token, what, format!("allowed: {}", arguments.grammar))
            }
        })?;
    let port = match (port, arguments.peek()) {
        (Some(port), _) => values::port(token, port, 1, draft.source)?,
        (None, Some(_)) => {
            let next = arguments.need("origin port")?;
            values::port(next, &next.text, 1, draft.source)?
        }
        (None, None) => {
            let what = format!("{}: no port is given for {host}", arguments.name.text);
            let port = protocol.default_port();
            // The default of the others is known to everybody.
            if !protocol.is_http() {
                draft.note(ProblemKind::Doubtful, token, what, &format!("using port {port}"));
            }
            port
        }
    };
    Ok(ProxyServer { protocol, host: host.to_owned(), port })
}

/// `[/] [*] host`.
pub(super) fn permit(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let (mut paths, mut ids) = (false, false);
    let mut token = arguments.need("permit host")?;
    while !arguments.rest().is_empty() && matches!(token.text.as_str(), "/" | "*") {
        if token.text == "/" {
            paths = true
        } else {
            ids = true
        }
        token = arguments.need("permit host")?;
    }
    if token.text.starts_with('@') {
        let what = format!("netgroup '{}' is not supported", token.text);
        return Err(DirectiveFault::at(token, what, "name the hosts"));
    }
    let host = HostPattern::parse(&token.text).ok_or_else(|| {
        let what = format!("invalid host pattern '{}'", token.text);
        DirectiveFault::at(token, what, "allowed: at most one '*'")
    })?;
    draft.finish(arguments);
    let permit = OriginPermit { host, paths: paths || !ids };
    draft.effective.proxy.permits.push(Setting::new(permit, arguments.origin()));
    Ok(())
}

/// `{client|server} [strict|nonstrict] [[no]verify]`.
pub(super) fn persona(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("persona")?;
    let of_clients = match token.text.as_str() {
        "server" => false,
        "client" => true,
        _ => return Err(arguments.invalid(token, "persona")),
    };
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "strict" | "verify" => {}
            "nonstrict" if of_clients => {
                part_without_effect(arguments, token, "all requests have the identity of the client", draft);
            }
            "nonstrict" => {}
            "noverify" => part_without_effect(arguments, token, "certificates are always verified", draft),
            _ => draft.unknown_option(arguments, token),
        }
    }
    draft.effective.proxy.has_client_identities.set(of_clients, arguments.origin());
    Ok(())
}

/// Checks that requests can have the identities of clients: there is no fallback to that of the proxy.
fn check_persona(effective: &Effective, origin: &ProxyOrigin, stop: &mut dyn FnMut(&Origin, &str, &str)) {
    let values = &effective.proxy;
    let persona = &values.has_client_identities;
    if !**persona {
        return;
    }
    if !*effective.security.enabled {
        let what = "pss.persona client: clients do not log in, so they have no identities";
        stop(&persona.origin, what, "set xrootd.seclib and sec.protocol, or use pss.persona server");
    }
    if *values.cache.enabled || *values.memory_cache.enabled {
        let what = "pss.persona client: not with a cache";
        stop(&persona.origin, what, "remove pss.cachelib and pss.cache, or use pss.persona server");
    }
    let is_http = origin.fixed.as_ref().is_some_and(|server| server.protocol.is_http());
    if is_http || origin.bucket.is_some() || !origin.forwards.is_empty() {
        let what = "pss.persona client: only for a fixed origin of the xroot protocol";
        stop(&persona.origin, what, "use pss.persona server");
    }
    let mut logins = effective.security.protocols.iter().map(|one| &one.value);
    if *effective.security.enabled && !logins.any(AuthProtocol::proves_name) {
        let what = "pss.persona client: no protocol of sec.protocol proves the names of clients";
        stop(&persona.origin, what, "add sec.protocol gsi, krb5, pwd or sss, or use pss.persona server");
    }
}

pub(super) fn local_root(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("localroot")?;
    draft.finish(arguments);
    draft.effective.proxy.local_root.set(Some(path), arguments.origin());
    Ok(())
}

pub(super) fn host_arena(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let path = arguments.path("hostarena")?;
    draft.finish(arguments);
    draft.effective.proxy.host_arena.set(Some(path), arguments.origin());
    Ok(())
}

/// `name value`. The last value of a name counts.
pub(super) fn option(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("setopt name")?;
    let known = OPTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&token.text));
    let Some((name, setting)) = known else {
        let what = format!("{}: unknown or retired option '{}'", arguments.name.text, token.text);
        draft.note(ProblemKind::Ignored, token, what, "");
        return Ok(());
    };
    // Without time or redirects no request would succeed.
    let least = u32::from(setting.is_some_and(|setting| NOT_ZERO.contains(&setting)));
    let number = arguments.count("setopt", least, i32::MAX.unsigned_abs())?;
    draft.finish(arguments);
    let Some(setting) = setting else {
        part_without_effect(arguments, token, "the client of the proxy does not need it", draft);
        return Ok(());
    };
    let options = &mut draft.effective.proxy.options;
    options.retain(|option| option.setting != *setting);
    options.push(Setting::new(OriginOption { name, setting, number }, arguments.origin()));
    Ok(())
}

pub(super) fn inet_mode(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("inetmode value")?;
    let only_ipv4 = match token.text.as_str() {
        "v4" => true,
        "v6" => false,
        _ => return Err(arguments.invalid(token, "inetmode value")),
    };
    draft.finish(arguments);
    draft.effective.proxy.only_ipv4.set(only_ipv4, arguments.origin());
    Ok(())
}

/// Checks that a proxy has an origin, and that nothing contradicts it.
pub(crate) fn check_proxy(effective: &Effective, report: &mut ConfigReport) {
    let values = &effective.proxy;
    let origin = &values.origin;
    if !*values.enabled {
        // All nodes of a cluster of proxies may have one file.
        if origin.is_some() && !effective.cluster.of_proxies {
            let what = "pss.origin has no effect, because this server is no proxy";
            let allowed = "add ofs.osslib libXrdPss.so, or remove it";
            report.add(ProblemKind::Doubtful, origin.origin.clone(), what, allowed);
        }
        return;
    }
    super::cache::check(effective, report);
    super::memory_cache::check(effective, report);
    object_store::check(effective, report);
    let mut stop = |origin: &Origin, what: &str, allowed: &str| {
        report.add(ProblemKind::Unsupported, origin.clone(), what, allowed);
    };
    if *effective.multi_user.enabled {
        let what = "ofs.osslib: a proxy cannot act as the user";
        stop(&effective.multi_user.enabled.origin, what, "remove libXrdMultiuser.so, or libXrdPss.so");
    }
    // Clients would be sent here for files that are in the cache only in part.
    if effective.cluster.is_cluster_node() && !effective.cluster.of_proxies {
        let what = "a proxy cannot be a server of a cluster that is not one of proxies";
        let allowed = "set all.role proxy server and all.manager proxy host:port, or remove all.manager";
        stop(&values.enabled.origin, what, allowed);
    }
    let is_origin =
        |value: &&ProxyOrigin| value.fixed.is_some() || value.bucket.is_some() || !value.forwards.is_empty();
    let Some(value) = origin.value.as_ref().filter(is_origin) else {
        return stop(&values.enabled.origin, "the proxy has no origin", "set pss.origin host:port");
    };
    check_persona(effective, value, &mut stop);
    let mut warn = |origin: &Origin, what: &str, allowed: &str| {
        report.add(ProblemKind::Doubtful, origin.clone(), what, allowed);
    };
    let copies = &effective.logical.third_party;
    if copies.as_ref().is_some_and(|copies| copies.program.is_some()) {
        let what = "ofs.tpc pgm: a program cannot write the files of a proxy, so the built-in client copies";
        warn(&copies.origin, what, "remove pgm");
    }
    match (!value.forwards.is_empty(), values.permits.first()) {
        (true, None) => {
            let what = "pss.origin =: clients reach each host that this server reaches";
            warn(&origin.origin, what, "limit the hosts by pss.permit");
        }
        (false, Some(permit)) if value.fixed.as_ref().is_none_or(|server| !server.protocol.is_http()) => {
            let what = "pss.permit has no effect, because clients cannot name origins";
            warn(&permit.origin, what, "add = to pss.origin, or remove it");
        }
        _ => {}
    }
    if value.fixed.is_none() && value.bucket.is_none() && values.local_root.is_some() {
        let what = "pss.localroot has no effect, because all paths name their origin";
        warn(&values.local_root.origin, what, "use pss.hostarena");
    }
}

/// `[option] library [parameters]`.
pub(super) fn name_library(
    arguments: &mut Arguments<'_>,
    _draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("namelib library")?;
    while token.text.starts_with('-') {
        token = arguments.need("namelib library")?;
    }
    let what = format!("unsupported library '{}'; clients would get other files", token.text);
    let allowed = "use pss.localroot and pss.hostarena, which put text before each path";
    Err(DirectiveFault::at(token, what, allowed).of(ProblemKind::ForeignLibrary))
}

/// `pss.export`.
pub(super) fn proxy_export(
    arguments: &mut Arguments<'_>,
    _draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    Err(unprotected(arguments.name, "").instead("use all.export, which the proxy follows"))
}

/// `pss.defaults`.
pub(super) fn proxy_defaults(
    arguments: &mut Arguments<'_>,
    _draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    Err(unprotected(arguments.name, "").instead("use oss.defaults, which the proxy follows"))
}
