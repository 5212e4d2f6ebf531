//! Directives of the xroot protocol layer: `xrootd.`.

use super::arguments::Arguments;
use super::authentication;
use super::definition::{Directive, Section};
use super::detailed_monitoring;
use super::draft::Draft;
use super::export;
use super::fault::DirectiveFault;
use super::gstreams;
use super::libraries::{self, LibraryPurpose};
use super::packet_marking;
use super::residency;
use super::shared::{option_not_yet, option_without_effect, trace};
use super::standing::{Standing, UsageFrequency};
use super::tls;
use crate::effective::{
    ChecksumConfig, ChecksumKind, ClientClass, HostPattern, RedirectFunction, RedirectRule, RedirectServer,
    RedirectWhen,
};
use crate::language::DirectiveToken;
use crate::report::ProblemKind;
use crate::setting::Setting;
use crate::values;

pub(crate) const TRACE: &[&str] = &[
    "auth", "debug", "emsg", "fs", "fsaio", "fsio", "login", "mem", "pgcserr", "redirect", "request",
    "response", "stall",
];

/// Maximum number of concurrent checksum computations.
const CHECKSUMS_MAX: u32 = 1024;
/// Maximum of the limit on prepare requests of a connection.
const PREPARES_MAX: u32 = 1_000_000_000;

pub(super) const SECTION: Section = Section {
    title: "Protocol: xrootd.",
    about: "The xroot protocol: checksums, static redirection, limits, log of sessions.",
    directives: &[
        Directive::new(&["xrootd.chksum"], UsageFrequency::Most, "[chkcgi] [max number] type… [/program [args]]", checksums)
            .default("none offered, max 4")
            .help("Checksums that clients may request, the default first: adler32 crc32 crc32c md5 sha1 \
                   sha256 zcrc32. `max`: maximum number of concurrent computations; `chkcgi`: clients \
                   may select one by the CGI key `cks.type`. All types are built in: a program is \
                   accepted and not run.")
            .example("chkcgi max 8 adler32 crc32c md5"),
        Directive::new(&["xrootd.export"], UsageFrequency::Most, "path [options]", export::export)
            .default("as all.export")
            .help("Equivalent to all.export.")
            .example("/data nolock"),
        Directive::new(
            &["xrootd.redirect"],
            UsageFrequency::Common,
            "host:port[%host:port] {[-]function… | /path… | {?|enoent} /path… | client {private|local|.domain}…}",
            redirect,
        )
        .default("none")
        .help("Redirects clients: for some requests (all chmod chksum dirlist locate mkdir mv openw \
               prepare prepstage rm rmdir stat trunc), for opens of paths, for files that do not exist \
               here (`?`), or by client. The target after `%` is for clients with a private address.")
        .example("other.example.org:1094 ? /data"),
        Directive::new(&["xrootd.log"], UsageFrequency::Common, "{all|none|[-]disc|[-]login}…", session_log)
            .default("disc")
            .help(
                "Session events to log: `disc` is one line at the end of each session with its duration and \
                 bytes, `login` one at its beginning (otherwise only at level debug).",
            )
            .example("all -disc"),
        Directive::new(&["xrootd.limit"], UsageFrequency::Rare, "[prepare number] [noerror]", limit)
            .default("unlimited")
            .help("Maximum number of prepare requests of one connection. Further ones fail, or with \
                   `noerror` are answered as successful without being executed.")
            .example("prepare 100 noerror"),
        Directive::new(
            &["xrootd.async"],
            UsageFrequency::Rare,
            "[limit n] [maxsegs n] [maxtot n] [segsize size] [minsize size] [maxstalls n] [timeout time] \
             [minsfsz size] [force] [syncw] [off] [nocache] [nosf]",
            asynchronous,
        )
        .default("sendfile on")
        .help("`nosf` disables sendfile. The other options tune threads that this server does not have.")
        .example("nosf"),
        Directive::new(&["xrootd.trace"], UsageFrequency::Common, "{all|off|none|[-]option}…", xrootd_trace)
            .default("off")
            .help("Log level of the protocol: some options debug, `all` trace. Options: auth debug emsg fs fsaio \
                   fsio login mem pgcserr redirect request response stall.")
            .example("login request"),
        Directive::new(&["xrootd.seclib"], UsageFrequency::Most, "{default|path}", authentication::library)
            .default("none: all clients are served")
            .help("Enables authentication, which is built in: `sec.protocol` names the protocols.")
            .example("libXrdSec.so"),
        Directive::new(&["xrootd.tls"], UsageFrequency::Most, "[capable] {[-]all|data|gpfile|login|none|off|session|tpc}…", tls::requirements)
            .default("none: connections are encrypted if the client asks for it")
            .help("Operations that must be encrypted. Lines add to each other. `session`: everything after the \
                   login; `data`: also the connections that clients bind to a session. A line that begins with \
                   `capable` serves clients without TLS in clear text.")
            .example("capable login data"),
        Directive::new(&["xrootd.tlsreuse"], UsageFrequency::Rare, "off | on [flush time]", tls::reuse)
            .default("off")
            .help("Clients may resume TLS sessions, which saves the expensive part of a handshake. `flush` has \
                   no effect: the number of sessions is limited, and they end with their certificate.")
            .example("on"),
        Directive::new(&["xrootd.fslib"], UsageFrequency::Most, "[throttle] {default|library} [parameters] | ++ library", file_system)
            .default("default")
            .help("File system plug-ins. The built-in one is in force; `throttle` is not yet. `libXrdMultiuser.so default` \
                   means `ofs.osslib ++ libXrdMultiuser.so`.")
            .example("libXrdOfs.so"),
        Directive::not_yet(&["xrootd.fsoverload"], UsageFrequency::Common, "[[no]bypass] [redirect h:p[%h:p]] [stall time]")
            .default("stall 33")
            .help("Reply to clients when the file system reports an overload.")
            .example("stall 60"),
        Directive::not_yet(&["xrootd.diglib"], UsageFrequency::Common, "* /authfile")
            .default("none")
            .help("Remote diagnostics. They are not available.")
            .example("* /etc/xrootd/dig.auth"),
        Directive::new(&["xrootd.gpflib"], UsageFrequency::Rare, "[++] library [parameters]", getfile)
            .default("none")
            .help("Plug-in for requests that were removed from the protocol.")
            .standing(Standing::NotYet),
        Directive::new(&["xrootd.redirlib"], UsageFrequency::Rare, "[++] [+iphold time] library [parameters]", redirect_library)
            .default("none")
            .help("Redirect plug-in. Not in force; use xrootd.redirect.")
            .example("libXrdCmsRedirectLocal.so")
            .standing(Standing::NotYet),
        Directive::new(
            &["xrootd.prep"],
            UsageFrequency::Common,
            "[keep time] [scrub time] [logdir path]",
            residency::prepare_records,
        )
        .default("keep 24h")
        .help(
            "`keep` is the time for which clients that query a prepare request see its files that could not be staged. Files \
               that wait are always shown, and the requests are in the queue of transfers. So `scrub` and `logdir` have no effect.",
        )
        .example("keep 3d"),
        Directive::new(
            &["xrootd.monitor"],
            UsageFrequency::Most,
            "[...] [all] [auth] [flush [io] {time|off}] [fstat time [lfn] [ops] [ssq] [xfr number]] [{fbuff|fbsz} size] \
             [gbuff size] [ident {time|off}] [mbuff size] [rbuff size] [rnums number] [window time] \
             dest [event…] host:port [dest [event…] host:port]",
            detailed_monitoring::monitor,
        )
        .default("off; flush 600s, fstat 0, fbuff 65472, ident 1h, mbuff 16k, rbuff 32k, window 60s")
        .help("Sends records about clients, files and redirects to collectors over UDP. The events of a collector are \
               files fstat info io iov redir user and the streams http pfc tpc of `xrootd.mongstream`; ccm tcpmon throttle \
               belong to parts that this server does not have. Without events it gets `files`. All clients are monitored, also without `all`. \
               `...` continues an earlier line. See [monitoring.md](monitoring.md).")
        .example("all auth ident 5m fstat 60 lfn ops xfr 5 dest fstat info user redir collector.example.org:9930"),
        Directive::new(
            &["xrootd.mongstream"],
            UsageFrequency::Most,
            "{all|stream…} use [flush time] [maxlen size] [send {{json|cgi} [{dflt|site|host|inst|full}hdr] [noident]|nohdr} \
             host:port]",
            gstreams::gstreams,
        )
        .default("flush and maxlen as xrootd.monitor, to its collectors")
        .help("Streams of JSON records: http pfc tpc. The streams ccm oss tcpmon throttle belong to parts that this \
               server does not have. `send` names a collector of the stream, which gets text; without it, the \
               collectors of `xrootd.monitor` that name the stream get packets in the binary form. See \
               [monitoring.md](monitoring.md).")
        .example("all use send json collector.example.org:9993"),
        Directive::new(
            &["xrootd.pmark"],
            UsageFrequency::Common,
            "[[no]debug] [[no]trace] [domain {any|local|remote}] [[no]fail] [ffdest host[:port][,origin[:port]]] [ffecho time] \
             [use [no]{firefly|flowlabel|flowlabel+ff|scitag}…] [map2exp {default|path /path|vo name} experiment] \
             [map2act experiment {default|role name|user name} activity] [defsfile [[no]fail] /file]",
            packet_marking::packet_marking,
        )
        .default("off; domain remote, use firefly scitag, port 10514")
        .help("Reports about flows of data with their experiment and activity (SciTags), sent to a collector and to the \
               clients (`origin`). Clients name both by the CGI key `scitag.flow`, otherwise the rules of `map2exp` and \
               `map2act` do, whose names have numbers in the file of `defsfile`. Packets are not marked by flow labels. \
               See [monitoring.md](monitoring.md).")
        .example("domain any ffdest collector.example.org:10514"),
        Directive::not_yet(&["xrootd.bindif"], UsageFrequency::Rare, "host:port[%prv:port]…")
            .default("own addresses")
            .help("Addresses used in redirects.")
            .example("data.example.org:1094"),
    ],
};

fn checksums(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = ChecksumConfig { offered: Vec::new(), from_cgi: false, concurrent_max: 4 };
    let mut token = arguments.need("checksum type")?;
    loop {
        match token.text.as_str() {
            "chkcgi" => value.from_cgi = true,
            "max" => value.concurrent_max = arguments.count("max", 1, CHECKSUMS_MAX)?,
            text if text.starts_with('/') => {
                let what = format!(
                    "{}: '{text}' is not run; the checksums before it are built in",
                    arguments.name.text
                );
                draft.note(ProblemKind::Ignored, token, what, "");
                break; // The remaining words are arguments of the program.
            }
            text => {
                let kind = ChecksumKind::from_name(text).ok_or_else(|| {
                    let names = ChecksumKind::ALL.map(ChecksumKind::name).join(" ");
                    DirectiveFault::at(
                        token,
                        format!("checksum '{text}' is not built in"),
                        format!("allowed: {names}"),
                    )
                })?;
                if !value.offered.contains(&kind) {
                    value.offered.push(kind);
                }
            }
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    if value.offered.is_empty() {
        return Err(DirectiveFault::at(
            arguments.name,
            "checksum type not specified",
            "allowed: at least one type",
        ));
    }
    draft.effective.protocol.checksums.set(value, arguments.origin());
    Ok(())
}

fn session_log(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = *draft.effective.protocol.session_log;
    let mut token = arguments.need("log option")?;
    loop {
        let (name, on) =
            token.text.strip_prefix('-').map_or((token.text.as_str(), true), |name| (name, false));
        match (name, on) {
            ("all", _) => (value.login, value.disconnect) = (on, on),
            ("none" | "off", true) => (value.login, value.disconnect) = (false, false),
            ("login", _) => value.login = on,
            ("disc", _) => value.disconnect = on,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.protocol.session_log.set(value, arguments.origin());
    Ok(())
}

fn limit(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut value = *draft.effective.protocol.prepare_limit;
    let mut token = arguments.need("limit type")?;
    loop {
        match token.text.as_str() {
            "prepare" => value.per_connection = Some(arguments.count("prepare", 0, PREPARES_MAX)?),
            "noerror" => value.silent = true,
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.protocol.prepare_limit.set(value, arguments.origin());
    Ok(())
}

fn asynchronous(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut token = arguments.need("async option")?;
    loop {
        match token.text.as_str() {
            "nosf" => draft.effective.protocol.sendfile.set(false, arguments.origin()),
            "limit" | "maxsegs" | "maxtot" | "maxstalls" => {
                arguments.count(&token.text, 0, u32::MAX)?;
                option_without_effect(arguments, token, draft);
            }
            "segsize" | "minsize" | "minsfsz" => {
                arguments.size(&token.text, values::from(0))?;
                option_without_effect(arguments, token, draft);
            }
            "timeout" => {
                arguments.time("timeout", values::from(0))?;
                option_without_effect(arguments, token, draft);
            }
            "force" | "syncw" | "off" | "nocache" => option_without_effect(arguments, token, draft),
            _ => draft.unknown_option(arguments, token),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn xrootd_trace(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = trace(arguments, TRACE, draft)?;
    draft.effective.protocol.trace.set(value, arguments.origin());
    Ok(())
}

fn redirect(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("redirect target")?;
    let (first, second) = match token.text.split_once('%') {
        Some((first, second)) => (first, Some(second)),
        None => (token.text.as_str(), None),
    };
    let target = target(token, first, draft)?;
    let private_target = second.map(|second| self::target(token, second, draft)).transpose()?;
    let what = arguments.need("redirect function or path")?;
    let when = match what.text.as_str() {
        "?" | "enoent" => {
            let first = arguments.need("redirect path")?;
            RedirectWhen::Missing(paths(first, arguments)?)
        }
        "client" => {
            let first = arguments.need("redirect client")?;
            RedirectWhen::Clients(clients(first, arguments)?)
        }
        text if text.starts_with('/') => RedirectWhen::Paths(paths(what, arguments)?),
        _ => RedirectWhen::Functions(functions(what, arguments)?),
    };
    let redirect = RedirectRule { target, private_target, when };
    draft.effective.protocol.redirects.push(Setting::new(redirect, arguments.origin()));
    Ok(())
}

/// Parses `host:port` or `[v6]:port`, a server to which clients are redirected.
pub(super) fn target(
    token: &DirectiveToken,
    text: &str,
    draft: &Draft<'_>,
) -> Result<RedirectServer, DirectiveFault> {
    let (host, port) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(|| {
        DirectiveFault::at(
            token,
            format!("redirect target '{text}' is invalid"),
            "allowed: host:port, [address]:port",
        )
    })?;
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        let what = format!("redirect target '{text}' is invalid");
        return Err(DirectiveFault::at(token, what, "an IPv6 address stands in brackets"));
    }
    Ok(RedirectServer { host: host.to_owned(), port: values::port(token, port, 1, draft.source)? })
}

fn paths(first: &DirectiveToken, arguments: &mut Arguments<'_>) -> Result<Vec<String>, DirectiveFault> {
    let mut found = vec![values::path(first, "redirect")?];
    while let Some(token) = arguments.next() {
        found.push(values::path(token, "redirect")?);
    }
    Ok(found)
}

fn clients(
    first: &DirectiveToken,
    arguments: &mut Arguments<'_>,
) -> Result<Vec<ClientClass>, DirectiveFault> {
    let mut found = Vec::new();
    let mut token = first;
    loop {
        found.push(match token.text.as_str() {
            "private" => ClientClass::Private,
            "local" => ClientClass::Local,
            text if text.starts_with('.') && text.len() > 1 => {
                let pattern = HostPattern::parse(&format!("*{text}"));
                ClientClass::Domain(pattern.ok_or_else(|| arguments.invalid(token, "redirect client"))?)
            }
            _ => return Err(arguments.invalid(token, "redirect client")),
        });
        match arguments.next() {
            Some(next) => token = next,
            None => return Ok(found),
        }
    }
}

fn functions(
    first: &DirectiveToken,
    arguments: &mut Arguments<'_>,
) -> Result<Vec<RedirectFunction>, DirectiveFault> {
    let mut on = [false; RedirectFunction::ALL.len()];
    let mut token = first;
    loop {
        let (name, value) =
            token.text.strip_prefix('-').map_or((token.text.as_str(), true), |name| (name, false));
        let known = RedirectFunction::ALL.iter().zip(&mut on).find(|((function, _), _)| *function == name);
        match known {
            Some((_, state)) => *state = value,
            None if name == "all" => on.fill(value),
            None => return Err(arguments.invalid(token, "redirect function")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    let chosen = RedirectFunction::ALL.iter().zip(on).filter(|(_, state)| *state).map(|((_, f), _)| *f);
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        return Err(DirectiveFault::at(
            first,
            "no redirect function remains",
            "allowed: at least one function",
        ));
    }
    Ok(chosen)
}

fn file_system(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if let Some(throttle) = arguments.take("throttle") {
        option_not_yet(arguments, throttle, draft);
        if arguments.peek().is_none() {
            return Ok(());
        }
    }
    let library = libraries::library(arguments)?;
    if library.text == "default" {
        return Ok(());
    }
    libraries::select(arguments, library, LibraryPurpose::FileSystem, draft)?;
    // The file system behind it, which is built in or named.
    if libraries::base_name(&library.text) == "libXrdMultiuser" && arguments.peek().is_some() {
        let behind = libraries::library(arguments)?;
        libraries::select(arguments, behind, LibraryPurpose::FileSystem, draft)?;
    }
    Ok(())
}

fn getfile(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let library = libraries::library(arguments)?;
    libraries::select(arguments, library, LibraryPurpose::FileSystem, draft)
}

fn redirect_library(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    if arguments.take("++").is_some() {
        // `++` does not change the treatment of the library.
    }
    if arguments.take("+iphold").is_some() {
        arguments.time("iphold", values::from(0))?;
    }
    let library = libraries::library(arguments)?;
    libraries::select(arguments, library, LibraryPurpose::Redirect, draft)
}
