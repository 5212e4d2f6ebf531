//! Directives of the network and of the process below it: `xrd.`.

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::libraries::{self, LibraryPurpose};
use super::shared::{option_without_effect, trace, unprotected, without_effect};
use super::standing::{Standing, UsageFrequency};
use super::{cluster, http, missing, monitoring, process, tls};
use crate::effective::{KeepAlive, MAX_FD_RANGE, MaxFd, Port};
use crate::setting::Setting;
use crate::values::{self, TIME_MAX, between, from};

pub(crate) const TRACE: &[&str] =
    &["conn", "debug", "mem", "net", "poll", "protocol", "sched", "tls", "tlsctx", "tlssio", "tlssok"];

/// Maximum number of unanswered probes of a connection.
const PROBES_MAX: u32 = 127;
/// Maximum size of a socket buffer, in bytes.
const SOCKET_BUFFER_MAX: u64 = 1 << 30;

pub(super) const SECTION: Section = Section {
    title: "Network: xrd.",
    about: "Port, who may connect, timeouts, descriptors. Certificates for TLS.",
    directives: &[
        Directive::new(&["xrd.port"], UsageFrequency::Most, "[tls] {port|any} [if]", port)
            .default("1094")
            .help("Port to listen on: a number, the name of a service, or `any` for a port chosen by the \
                   system.")
            .example("1094")
            .stops_with("tls 1094"),
        Directive::new(&["xrd.allow"], UsageFrequency::Common, "{host|netgroup} name [if]", allow)
            .default("everybody")
            .help("Hosts that may connect: name or address with at most one `*`. Repeatable. A name \
                   without `*` is resolved and stands for its addresses; one with `*` is compared with \
                   the name of the client's address. Netgroups are not in force and stop the start.")
            .example("host *.example.org")
            .stops_with("netgroup physics"),
        Directive::new(&["xrd.maxfd"], UsageFrequency::Common, "[strict] number", max_fd)
            .default("256k")
            .help("Maximum number of file descriptors, 1k to 1m. With `strict` the start fails if the \
                   system allows fewer.")
            .example("strict 64k"),
        Directive::new(
            &["xrd.network"],
            UsageFrequency::Common,
            "[tls] [[no]keepalive] [kaparms idle[,itvl[,cnt]]] [buffsz size] [cache time] [[no]dnr] \
             [routes {split|common|local} [use if1[,if2]]] [[no]rpipa] [[no]dyndns] [udprefresh time] [assumev4]",
            network,
        )
        .default("keepalive cache 3h dnr")
        .help("Socket options: keep-alive probes and their times, size of socket buffers, time for which \
               names of clients are cached, and whether they are resolved (`dnr`). The other options \
               have no effect.")
        .example("nokeepalive kaparms 30m,75,9 buffsz 1m cache 1h nodnr")
        .stops_with("tls"),
        Directive::new(
            &["xrd.timeout"],
            UsageFrequency::Common,
            "[read time] [hail time] [idle time] [kill time]",
            timeout,
        )
        .default("read 3s hail 30s idle 0 kill 3s")
        .help("`hail`: deadline for the login of a client; `idle`: timeout of idle connections, 0 \
               disables it. `read` and `kill` have no effect: no thread waits for the rest of a request \
               or for the end of a connection.")
        .example("hail 10 idle 1h"),
        Directive::new(&["xrd.homepath"], UsageFrequency::Common, "path [group]", process::home_path)
            .default("the directory in which the program was started")
            .help("Working directory; an instance uses its own directory in it.")
            .example("/var/lib/xrootd"),
        Directive::new(&["xrd.trace"], UsageFrequency::Common, "{all|off|none|[-]option}…", xrd_trace)
            .default("off")
            .help("Log level of the network: some options debug, `all` trace. \
                   Options: conn debug mem net poll protocol sched tls tlsctx tlssio tlssok.")
            .example("conn debug"),
        Directive::new(&["xrd.protocol"], UsageFrequency::Most, "[tls] name[:port] {library|*|+port} [parameters]", protocol)
            .default("xroot")
            .help("Protocols served. xroot is always served. `http`, or any name with `libXrdHttp.so`, adds HTTP and \
                   HTTPS. They have the port that is named, on which only they are served, or that of xroot, where the \
                   first bytes of a connection decide. The last line with a name counts; lines with other names, and \
                   those with the word `+port` in place of the library, add ports. See `docs/http.md`.")
            .example("http:8443 libXrdHttp.so")
            .stops_with("tls xrootd *"),
        Directive::new(&["xrd.tls"], UsageFrequency::Most, "cert [key] [[no]detail] [hsto time]", tls::certificate)
            .default("none")
            .help("Certificate and key of the server, as PEM files. The certificate comes first in its file, \
                   then those of intermediate authorities. Without `key` the same file has the key. Both are \
                   read again when they change. `hsto`: time limit of a handshake, 10s by default.")
            .example("/etc/grid-security/xrd/xrdcert.pem /etc/grid-security/xrd/xrdkey.pem"),
        Directive::new(
            &["xrd.tlsca"],
            UsageFrequency::Most,
            "noverify | {certdir|certfile} path [crlcheck {all|external|last}] [log {failure|off}] [[no]proxies] \
             [refresh time] [verdepth number] [allow-missing-crl]",
            tls::authorities,
        )
        .default("none; required with xrd.tls")
        .help("Certificate authorities that this host trusts: as those of the sources of third-party copies, \
               and with `certfile` as those of issuers of tokens. Clients are not asked for certificates, because \
               they authenticate by `sec.protocol`; so the options for those have no effect.")
        .example("certdir /etc/grid-security/certificates"),
        Directive::new(&["xrd.tlsciphers"], UsageFrequency::Rare, "list", tls::ciphers)
            .default("all with authenticated encryption and forward secrecy")
            .help("Ciphers of TLS 1.2, by their names in OpenSSL, separated by colons. Those of TLS 1.3 are \
                   always allowed.")
            .example("ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"),
        Directive::new(
            &["xrd.report"],
            UsageFrequency::Most,
            "dest[,dest2] [every time] [json] [off] [[-]option…]",
            monitoring::report,
        )
        .default("none; every 600s all")
        .help("Sends summaries of the counters to collectors: `host:port` over UDP, or the path of a datagram \
               socket. Options choose the parts: all addons buff info link plugins poll process protocols sched \
               sgen; a `-` removes one. Options after `json` are those of a second report in JSON, which has \
               only addons and plugins; `off` leaves out the report of its kind. `sync` and `syncwp` have no \
               effect.")
        .example("collector.example.org:9931 every 60s all"),
        Directive::new(&["xrd.tcpmonlib"], UsageFrequency::Rare, "[++] library [parameters]", monitor_library)
            .default("none")
            .help("Plug-in that reports on TCP connections. Not in force yet.")
            .example("libXrdTCPMonPlugin.so")
            .standing(Standing::NotYet),
        Directive::new(&["xrd.buffers"], UsageFrequency::Rare, "[maxbsz size] size [rint time]", buffers)
            .default("maxbsz 2m")
            .help("I/O buffer pool. Buffers are pooled and limited automatically here.")
            .example("512m")
            .standing(Standing::NoEffect),
        Directive::new(
            &["xrd.sched"],
            UsageFrequency::Common,
            "[mint n] [maxt n] [avlt n] [idle time] [stksz size] [core {asis|max|off}]",
            scheduler,
        )
        .default("mint 8 maxt 8192 idle 780s")
        .help("Thread pool. This server has one event loop per core and no thread per request.")
        .example("mint 64 maxt 1024")
        .standing(Standing::NoEffect),
    ],
};

/// The library of HTTP, which is built in.
const HTTP_LIBRARY: &str = "libXrdHttp";

/// The word in place of a library that adds a port to those of an earlier line.
const ADDED_PORT: &str = "+port";

/// The remedy for ports that begin with TLS.
const TLS_INSTEAD: &str = "use xrootd.tls all, with which every client must encrypt on the usual port";

fn port(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if let Some(tls) = arguments.take("tls") {
        return Err(unprotected(tls, "'tls'").instead(TLS_INSTEAD));
    }
    let token = arguments.need("tcp port")?;
    let value = match token.text.as_str() {
        "any" => Port::Any,
        text => match values::port(token, text, 0, draft.source)? {
            0 => Port::Any,
            number => Port::Number(number),
        },
    };
    draft.finish(arguments);
    draft.effective.network.port.set(value, arguments.origin());
    Ok(())
}

fn allow(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let pattern = cluster::host_pattern(arguments)?;
    draft.finish(arguments);
    draft.effective.network.allow.push(Setting::new(pattern, arguments.origin()));
    Ok(())
}

fn max_fd(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let strict = arguments.take("strict").is_some();
    let limit = arguments.size("maxfd", between(MAX_FD_RANGE.0, MAX_FD_RANGE.1))?;
    draft.finish(arguments);
    draft.effective.network.max_fd.set(MaxFd { limit, strict }, arguments.origin());
    Ok(())
}

fn network(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut token = arguments.need("network option")?;
    loop {
        match token.text.as_str() {
            "tls" => return Err(unprotected(token, "'tls'").instead(TLS_INSTEAD)),
            "keepalive" => draft.effective.network.keepalive.set(true, origin.clone()),
            "nokeepalive" => draft.effective.network.keepalive.set(false, origin.clone()),
            "kaparms" => {
                let value = keepalive_parameters(arguments)?;
                draft.effective.network.keepalive_parameters.set(value, origin.clone());
            }
            "buffsz" => {
                let value = arguments.size("buffsz", between(0, SOCKET_BUFFER_MAX))?;
                let value = (value > 0).then_some(value);
                draft.effective.network.socket_buffer_bytes.set(value, origin.clone());
            }
            "cache" => {
                let value = arguments.time("cache time", between(0, TIME_MAX))?;
                draft.effective.network.name_cache.set(value, origin.clone());
            }
            "dnr" => draft.effective.network.resolve_names.set(true, origin.clone()),
            "nodnr" => draft.effective.network.resolve_names.set(false, origin.clone()),
            "routes" => {
                let kind = arguments.need("routes type")?;
                if !matches!(kind.text.as_str(), "split" | "common" | "local") {
                    return Err(arguments.invalid(kind, "routes type"));
                }
                if arguments.take("use").is_some() {
                    arguments.need("routes interface")?;
                }
                option_without_effect(arguments, token, draft);
            }
            "udprefresh" => {
                arguments.time("udprefresh", from(1800))?;
                option_without_effect(arguments, token, draft);
            }
            "rpipa" | "norpipa" | "dyndns" | "nodyndns" | "assumev4" => {
                option_without_effect(arguments, token, draft)
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

/// `idle[,itvl[,cnt]]`, where each part is optional.
fn keepalive_parameters(arguments: &mut Arguments<'_>) -> Result<KeepAlive, DirectiveFault> {
    let token = arguments.need("kaparms value")?;
    let mut parts = token.text.split(',');
    let mut part = || {
        let text = parts.next().filter(|text| !text.is_empty())?;
        Some(crate::language::DirectiveToken { text: text.to_owned(), position: token.position.clone() })
    };
    let range = between(1, 32_767);
    let idle = part().map(|part| values::time(&part, "kaparms idle", range)).transpose()?;
    let interval = part().map(|part| values::time(&part, "kaparms interval", range)).transpose()?;
    let count = part().map(|part| values::count32(&part, "kaparms count", 1, PROBES_MAX)).transpose()?;
    if parts.next().is_some() {
        return Err(arguments.invalid(token, "kaparms value"));
    }
    Ok(KeepAlive { idle, interval, count })
}

fn timeout(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let origin = arguments.origin();
    let mut token = arguments.need("timeout option")?;
    loop {
        let network = &mut draft.effective.network;
        match token.text.as_str() {
            "read" => {
                let value = arguments.time("timeout read", between(1, TIME_MAX))?;
                network.read_timeout.set(value, origin.clone());
                option_without_effect(arguments, token, draft);
            }
            "hail" => {
                let value = arguments.time("timeout hail", between(1, TIME_MAX))?;
                network.hail_timeout.set(value, origin.clone());
            }
            "idle" => {
                let value = arguments.time("timeout idle", between(0, TIME_MAX))?;
                network.idle_timeout.set((!value.is_zero()).then_some(value), origin.clone());
            }
            "kill" => {
                let value = arguments.time("timeout kill", between(0, TIME_MAX))?;
                network.kill_timeout.set(value, origin.clone());
                option_without_effect(arguments, token, draft);
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn xrd_trace(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = trace(arguments, TRACE, draft)?;
    draft.effective.network.trace.set(value, arguments.origin());
    Ok(())
}

fn protocol(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if let Some(tls) = arguments.take("tls") {
        return Err(unprotected(tls, "'tls'").instead(TLS_INSTEAD));
    }
    let token = arguments.need("protocol name")?;
    let (name, port) = match token.text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (token.text.as_str(), None),
    };
    let library = arguments.need("protocol library")?;
    let is_added = library.text == ADDED_PORT;
    match name {
        "xroot" | "xrootd" => {
            if port.is_some() || is_added {
                let what = format!("{}: a second port is not in force yet", arguments.name.text);
                draft.not_yet(token, what, Some(missing::PORTS), None);
            }
            if library.text == "*" || is_added {
                return Ok(());
            }
        }
        // The library decides; sites choose the name.
        _ if is_added || libraries::base_name(&library.text) == HTTP_LIBRARY => {
            return http::serve(arguments, (token, name, port), is_added, draft);
        }
        "http" | "https" if library.text == "*" => {
            return http::serve(arguments, (token, name, port), false, draft);
        }
        _ => {}
    }
    libraries::select(arguments, library, LibraryPurpose::Protocol, draft)
}

fn monitor_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let library = libraries::library(arguments)?;
    libraries::select(arguments, library, LibraryPurpose::Monitoring, draft)
}

fn buffers(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if arguments.take("maxbsz").is_some() {
        arguments.size("maxbsz", from(0))?;
    }
    arguments.size("buffer memory", from(0))?;
    if arguments.take("rint").is_some() {
        arguments.time("rint", from(300))?;
    }
    draft.finish(arguments);
    without_effect(arguments, draft)
}

fn scheduler(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("sched option")?;
    loop {
        match token.text.as_str() {
            "mint" | "maxt" | "avlt" => {
                arguments.count(&token.text, 0, u32::MAX)?;
            }
            "idle" => {
                arguments.time("sched idle", from(0))?;
            }
            "stksz" => {
                arguments.size("sched stksz", from(0))?;
            }
            "core" => {
                let value = arguments.need("sched core")?;
                if !matches!(value.text.as_str(), "asis" | "max" | "off") {
                    return Err(arguments.invalid(value, "sched core"));
                }
            }
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return without_effect(arguments, draft),
        }
    }
}
