//! Directives of HTTP and related plug-ins: `http.`, `tpc.`, `cors.`, and ours, `scalla.http`.
//!
//! Those that are not in force are known so that files of sites load. A directive that restricts
//! access and is not in force stops the start of a server with HTTP ([`check_http`]).

use super::arguments::Arguments;
use super::definition::{Directive, Section};
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::http_certificates::{self, check_certificates};
use super::http_copies;
use super::shared::{RESTRICTS, STOPS_UNPROTECTED, apply_not_yet};
use super::standing::{Standing, UsageFrequency};
use crate::effective::{
    AddressRange, Effective, HeaderRule, HttpPort, PageReaders, ServerPages, StaticHeaderRule,
};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Setting;
use crate::values::{self, between};

/// The begin of the paths of the tape API, unless the directive names another one.
const TAPE_PREFIX: &str = "/api/v1";

pub(super) const SECTION: Section = Section {
    title: "HTTP: http., tpc., cors.",
    about: "HTTP is served if `xrd.protocol http` asks for it, see `docs/http.md`. Directives that restrict access by HTTP and \
            are not in force stop the start.",
    directives: &[
        Directive::new(&["http.cert"], UsageFrequency::Most, "path", http_certificates::certificate)
            .default("xrd.tls")
            .help("Certificate of the server, if there is no `xrd.tls`, and HTTP is served. Clients of the xroot protocol \
                   may use it, too (`roots://`).")
            .example("/etc/grid-security/hostcert.pem"),
        Directive::new(&["http.key"], UsageFrequency::Most, "path", http_certificates::key)
            .default("the file of http.cert")
            .help("Key of the certificate of `http.cert`.")
            .example("/etc/grid-security/hostkey.pem"),
        Directive::new(&["http.cadir"], UsageFrequency::Most, "path", http_copies::authority_directory)
            .default("xrd.tlsca")
            .help("Directory of the authorities of clients with certificates, if there is no `sec.protocol gsi`, and of remote \
                   servers of third-party copies over HTTP.")
            .example("/etc/grid-security/certificates"),
        Directive::new(&["http.cafile"], UsageFrequency::Most, "path", http_copies::authority_file)
            .default("xrd.tlsca")
            .help("File of the authorities of clients with certificates, if there is no `sec.protocol gsi`, and of remote \
                   servers of third-party copies over HTTP.")
            .example("/etc/pki/tls/cert.pem"),
        Directive::not_yet(&["http.cipherfilter"], UsageFrequency::Most, "list")
            .default("library default")
            .help("Allowed ciphers.")
            .example("HIGH"),
        Directive::not_yet(&["http.httpsmode"], UsageFrequency::Common, "{auto|disable|manual}")
            .default("auto")
            .help("Use of TLS. HTTPS is served if and only if xrd.tls has a certificate.")
            .example("manual"),
        Directive::new(
            &["http.gridmap"],
            UsageFrequency::Common,
            "[required] [compatNameGeneration] file",
            http_certificates::grid_map,
        )
        .default("none")
        .help("Names of users by the subjects of their certificates. With `required`, clients whose subject is not in \
               it are refused, otherwise their name is a hash of the subject. `compatNameGeneration` is ignored. With \
               `sec.protocol gsi`, its map counts instead.")
        .example("/etc/grid-security/grid-mapfile"),
        Directive::new(
            &["http.secxtractor"],
            UsageFrequency::Common,
            "[required] library [parameters]",
            http_certificates::extractor,
        )
            .default("none")
            .help("With `libXrdVoms.so`, the attributes of VOMS in proxies count; its parameters and other libraries \
                   are not in force yet. With `required`, clients with a certificate and without attributes that \
                   count are refused. With `sec.protocol gsi`, its `-vomsat:` counts instead.")
            .example("libXrdVoms.so"),
        Directive::new(
            &["http.exthandler"],
            UsageFrequency::Most,
            "name [+notls] library [parameters]",
            http_copies::handler,
        )
            .default("none")
            .help("Additional handlers. With `libXrdHttpTPC.so`, clients can order third-party copies (COPY); with \
                   `libXrdMacaroons.so`, they can get macaroons (POST), if those count; see `docs/http.md`. Without \
                   `+notls` this needs a certificate (`xrd.tls`), and macaroons are issued over https only. Others \
                   are not in force yet.")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::new(
            &["http.header2cgi"],
            UsageFrequency::Most,
            "header key [strip-on-redirect]",
            header_to_cgi,
        )
            .default("none")
            .help("The value of a header of requests becomes the element `key` of the CGI, unless the URL has one. \
                   Redirects have it, except with `strip-on-redirect` and from an encrypted connection to \
                   `http://`.")
            .example("Authorization authz"),
        Directive::new(&["http.desthttps"], UsageFrequency::Common, "{yes|no}", redirects_to_https)
            .default("as the request")
            .help("Redirects use https. With `no`, also those from encrypted connections use http, without what \
                   headers have added.")
            .example("yes"),
        Directive::not_yet(&["http.selfhttps2http"], UsageFrequency::Rare, "{yes|no}")
            .default("no")
            .help("Redirect from https to http on this server.")
            .example("no"),
        Directive::new(&["http.listingdeny"], UsageFrequency::Common, "{yes|no}", denies_listings)
            .default("no")
            .help("Refuses pages of directories. PROPFIND still lists them, for those who may.")
            .example("yes"),
        Directive::new(&["http.listingredir"], UsageFrequency::Common, "URL", listing_redirect)
            .default("none")
            .help("Requests for pages of directories are redirected to this URL with the path.")
            .example("https://example.org/"),
        Directive::not_yet(&["http.staticpreload"], UsageFrequency::Rare, "/static/name file")
            .default("none")
            .help("Static content that is kept in memory.")
            .example("/static/css /etc/xrootd/a.css"),
        Directive::not_yet(&["http.staticredir"], UsageFrequency::Rare, "URL")
            .default("none")
            .help("Redirect target of static content.")
            .example("https://example.org/static"),
        Directive::not_yet(&["http.embeddedstatic"], UsageFrequency::Rare, "{yes|no}")
            .default("yes")
            .help("Built-in static content.")
            .example("no"),
        Directive::new(&["http.staticheader"], UsageFrequency::Rare, "[-verb=V] name [value]", static_header)
            .default("none")
            .help("A header of each reply, or of those to the method V. Without a value, earlier lines with this name \
                   are withdrawn.")
            .example("X-Server scalla"),
        Directive::new(&["http.secretkey"], UsageFrequency::Common, "{text | /file}", secret_key)
            .standing(Standing::NotYet)
            .default("none")
            .help("Secret key of redirects between servers. Such a server refuses other requests without TLS, so it \
                   does not start with HTTP here.")
            .example("/etc/xrootd/http.key"),
        Directive::new(&["http.maxdelay"], UsageFrequency::Common, "time", delay_max)
            .default("30s")
            .help("Maximum time for which a request waits while a file is staged or located. Then the client gets 503 \
                   with the time after which to repeat it.")
            .example("30"),
        Directive::new(
            &["http.tlsclientauth"],
            UsageFrequency::Common,
            "{on|off}",
            http_certificates::client_certificates,
        )
            .default("on")
            .help("Asks clients of HTTPS for certificates. Clients without one pass.")
            .example("off"),
        Directive::new(&["http.cors"], UsageFrequency::Rare, "[++] library [parameters]", cors)
            .default("none")
            .help("Lets pages of the sites in `cors.origin` read replies in a browser. The library is not loaded.")
            .example("libXrdHttpCors.so"),
        Directive::not_yet(&["http.auth"], UsageFrequency::Rare, "tpc fcreds")
            .default("off")
            .help("Forwarding of credentials for third-party copies.")
            .example("tpc fcreds"),
        Directive::not_yet(&["http.sslverifydepth"], UsageFrequency::Rare, "n")
            .default("9")
            .help("Maximum length of a certificate chain.")
            .example("9"),
        Directive::not_yet(&["http.tlsreuse"], UsageFrequency::Rare, "{on|off}")
            .default("on")
            .help("Cache of TLS sessions.")
            .example("on"),
        Directive::not_yet(&["http.trace"], UsageFrequency::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of HTTP.")
            .example("debug"),
        Directive::new(&["tpc.allow"], UsageFrequency::Common, "{local|private}", http_copies::allow)
            .default("as `scalla.tpcsource`")
            .help("Third-party copies over HTTP may use addresses of this host (`local`: loopback and link-local) or \
                   of private networks, unless `scalla.tpcsource` excludes them.")
            .example("local"),
        Directive::new(&["tpc.deny"], UsageFrequency::Common, "{local|private}", http_copies::deny)
            .default("as `scalla.tpcsource`")
            .help("Third-party copies over HTTP must not use these addresses.")
            .example("private"),
        Directive::new(&["tpc.timeout"], UsageFrequency::Common, "time [first]", http_copies::timeout)
            .default("60s, twice for the first")
            .help("Maximum time without progress of a third-party copy over HTTP. `first` counts until the first \
                   byte, and for the reply to an upload that is complete.")
            .example("30"),
        Directive::not_yet(&["tpc.fixed_route"], UsageFrequency::Rare, "{yes|no}")
            .default("no")
            .help("Third-party copies use the interface on which their request arrived.")
            .example("yes"),
        Directive::not_yet(&["tpc.header2cgi"], UsageFrequency::Rare, "header key")
            .default("none")
            .help("Headers of third-party copies that are converted to CGI.")
            .example("Authorization authz"),
        Directive::not_yet(&["tpc.trace"], UsageFrequency::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of third-party copies.")
            .example("debug"),
        Directive::not_yet(&["tpc.exthandler"], UsageFrequency::Rare, "[options]")
            .default("none")
            .help("Handler of third-party copies.")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::new(&["cors.origin"], UsageFrequency::Rare, "https://host[:port]…", cors_origins)
            .default("none")
            .help("Sites whose pages may read replies, if there is a line `http.cors`. The header `Origin` must be \
                   equal to one of them.")
            .example("https://example.org"),
        Directive::new(&["scalla.http"], UsageFrequency::Common, "{[[no]http2] [status] [metrics [all|network…]] [dashboard [all|network…]] [taperest [prefix]]|off}", pages)
            .default("http2")
            .help("`nohttp2`: only HTTP/1.1 is served, and not HTTP/2, which `http2` turns on again. `status`: over HTTP, `/healthz` and `/readyz` report without a login whether the server runs, and \
                   whether it is ending. `metrics`: `/metrics` has the figures of the server for Prometheus, for \
                   connections from 127.0.0.0/8 and ::1, for all, or for clients with an address of a network such as \
                   192.0.2.0/24; without a login. `dashboard`: `/dashboard` shows them live in a browser, for the same kinds of \
                   readers, with the nodes of the cluster. `taperest`: the WLCG Tape REST API, below `/api/v1` or the given path; \
                   it answers 501 if no export stages files. Files with these names are then not reached by HTTP. A line adds to \
                   earlier ones, and its readers of a page replace theirs; `off` withdraws all pages.")
            .example("status metrics 192.0.2.0/24 2001:db8::/32"),
    ],
};

/// Serves HTTP, as `xrd.protocol` asks. `port` is the text behind the name of the protocol and `:`. A later line with
/// the same name replaces an earlier one, unless it `is_added`.
pub(super) fn serve(
    arguments: &Arguments<'_>,
    (token, protocol, port): (&DirectiveToken, &str, Option<&str>),
    is_added: bool,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let number = match port {
        None => None,
        Some("any") => {
            let what = "HTTP on any free port: clients cannot know it";
            return Err(DirectiveFault::at(token, what, "name a port"));
        }
        Some(text) => Some(values::port(token, text, 1, draft.source)?),
    };
    let ports = &mut draft.effective.http.ports;
    if is_added && !ports.iter().any(|earlier| earlier.protocol == protocol) {
        let what = format!("+port adds a port to an earlier line, and none has the protocol '{protocol}'");
        return Err(DirectiveFault::at(token, what, "name the library first"));
    }
    let port = HttpPort { protocol: protocol.to_owned(), number };
    ports.retain(|earlier| if is_added { **earlier != port } else { earlier.protocol != protocol });
    ports.push(Setting::new(port, arguments.origin()));
    Ok(())
}

fn yes_or_no(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<bool, DirectiveFault> {
    let token = arguments.need("yes or no")?;
    let value = match token.text.as_str() {
        "yes" | "true" | "1" => true,
        "no" | "false" | "0" => false,
        _ => return Err(arguments.invalid(token, "answer")),
    };
    draft.finish(arguments);
    Ok(value)
}

fn redirects_to_https(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = yes_or_no(arguments, draft)?;
    draft.effective.http.redirects_to_https.set(value, arguments.origin());
    Ok(())
}

fn denies_listings(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = yes_or_no(arguments, draft)?;
    draft.effective.http.denies_listings.set(value, arguments.origin());
    Ok(())
}

fn listing_redirect(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("URL")?;
    let is_url = ["http://", "https://"].iter().any(|scheme| token.text.starts_with(scheme));
    if !is_url || !token.text.chars().all(|c| c.is_ascii_graphic()) {
        return Err(arguments.invalid(token, "URL"));
    }
    draft.effective.http.listing_redirect.set(Some(token.text.clone()), arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// Reads the name of a header.
fn header_name(arguments: &mut Arguments<'_>) -> Result<String, DirectiveFault> {
    let token = arguments.need("header")?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if token.text.is_empty() || !token.text.chars().all(is_token) {
        return Err(arguments.invalid(token, "header"));
    }
    Ok(token.text.clone())
}

fn header_to_cgi(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let header = header_name(arguments)?;
    let token = arguments.need("key of the CGI")?;
    let is_key = |c: char| c.is_ascii_graphic() && !"&=?#%".contains(c);
    if token.text.is_empty() || !token.text.chars().all(is_key) {
        return Err(arguments.invalid(token, "key"));
    }
    let key = token.text.clone();
    let strip_on_redirect = arguments.take("strip-on-redirect").is_some();
    draft.finish(arguments);
    let rules = &mut draft.effective.http.headers_to_cgi;
    // A later line replaces an earlier one.
    rules.retain(|rule| !rule.header.eq_ignore_ascii_case(&header));
    rules.push(Setting::new(HeaderRule { header, key, strip_on_redirect }, arguments.origin()));
    Ok(())
}

fn static_header(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut method = None;
    if let Some(verb) = arguments.peek().and_then(|first| first.strip_prefix("-verb=")) {
        let token = arguments.need("method")?;
        if verb.is_empty() || !verb.chars().all(|c| c.is_ascii_uppercase()) {
            return Err(arguments.invalid(token, "method"));
        }
        method = Some(verb.to_owned());
    }
    let name = header_name(arguments)?;
    let mut words = Vec::new();
    while let Some(token) = arguments.next() {
        if !token.text.chars().all(|c| c.is_ascii_graphic()) {
            return Err(arguments.invalid(token, "value"));
        }
        words.push(token.text.as_str());
    }
    let rules = &mut draft.effective.http.static_headers;
    rules.retain(|rule| !rule.name.eq_ignore_ascii_case(&name) || rule.method != method);
    if !words.is_empty() {
        let rule = StaticHeaderRule { method, name, value: words.join(" ") };
        rules.push(Setting::new(rule, arguments.origin()));
    }
    Ok(())
}

fn cors(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    arguments.need("library")?;
    while arguments.next().is_some() {}
    draft.effective.http.cors.set(true, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

fn cors_origins(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let mut next = Some(arguments.need("origin")?);
    while let Some(token) = next {
        let host = ["http://", "https://"].iter().find_map(|scheme| token.text.strip_prefix(scheme));
        let is_host = |host: &str| {
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c))
        };
        if !host.is_some_and(is_host) {
            return Err(arguments.invalid(token, "origin"));
        }
        let origins = &mut draft.effective.http.cors_origins;
        origins.push(Setting::new(token.text.clone(), arguments.origin()));
        next = arguments.next();
    }
    draft.finish(arguments);
    Ok(())
}

fn delay_max(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let value = arguments.time("http.maxdelay", between(0, values::TIME_MAX))?;
    draft.effective.http.delay_max.set(value, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// Adds pages to those of earlier lines; `off` withdraws them and leaves HTTP/2 as it is. Readers of a page replace earlier
/// ones.
fn pages(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let first = arguments.need("option")?;
    let is_off = first.text == "off";
    let mut pages = draft.effective.http.pages.value.clone();
    if is_off {
        pages = ServerPages { http2: pages.http2, ..ServerPages::default() };
    }
    let mut next = Some(first).filter(|_| !is_off);
    while let Some(token) = next {
        match token.text.as_str() {
            "http2" | "nohttp2" => pages.http2 = token.text == "http2",
            "status" => pages.status = true,
            "metrics" => pages.metrics = page_readers(arguments)?,
            "dashboard" => pages.dashboard = page_readers(arguments)?,
            "taperest" => pages.tape = Some(tape_prefix(arguments)?),
            _ => return Err(arguments.invalid(token, "option")),
        }
        next = arguments.next();
    }
    draft.effective.http.pages.set(pages, arguments.origin());
    draft.finish(arguments);
    Ok(())
}

/// The words of `scalla.http`. None is a network.
const PAGE_WORDS: [&str; 6] = ["status", "metrics", "dashboard", "taperest", "http2", "nohttp2"];

/// Reads the path behind `taperest`.
fn tape_prefix(arguments: &mut Arguments<'_>) -> Result<String, DirectiveFault> {
    if !arguments.peek().is_some_and(|next| next.starts_with('/')) {
        return Ok(TAPE_PREFIX.to_owned());
    }
    let token = arguments.need("path")?;
    let path = token.text.trim_end_matches('/');
    let is_plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    match path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_plain)) {
        true => Ok(path.to_owned()),
        false => Err(arguments.invalid(token, "path")),
    }
}

/// Reads the hosts behind `metrics` or `dashboard`.
fn page_readers(arguments: &mut Arguments<'_>) -> Result<PageReaders, DirectiveFault> {
    if arguments.take("all").is_some() {
        return Ok(PageReaders::All);
    }
    let mut ranges = Vec::new();
    while arguments.peek().is_some_and(|next| !PAGE_WORDS.contains(&next)) {
        let token = arguments.need("network")?;
        ranges.push(AddressRange::parse(&token.text).ok_or_else(|| arguments.invalid(token, "network"))?);
    }
    Ok(if ranges.is_empty() { PageReaders::Local } else { PageReaders::Networks(ranges) })
}

fn secret_key(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    note_guard(arguments, arguments.name.text.clone(), draft);
    apply_not_yet(arguments, draft)
}

pub(super) fn note_guard(arguments: &Arguments<'_>, what: String, draft: &mut Draft<'_>) {
    draft.effective.http.missing_guards.push(Setting::new(what, arguments.origin()));
}

/// Reports directives that would have to restrict HTTP, and those that are without effect.
pub(crate) fn check_http(effective: &Effective, report: &mut ConfigReport) {
    let http = &effective.http;
    if !effective.serves_http() {
        return;
    }
    if *http.copies && !effective.serves_http_copies() {
        let what =
            "http.exthandler: without a certificate there are no third-party copies, so COPY is refused";
        let allowed = "name a certificate by xrd.tls, or add +notls before the library";
        report.add(ProblemKind::Doubtful, http.copies.origin.clone(), what.to_owned(), allowed);
    }
    check_issued_macaroons(effective, report);
    check_certificates(effective, report);
    for guard in &http.missing_guards {
        let what = format!("{} {RESTRICTS} yet", guard.value);
        let allowed = format!("{STOPS_UNPROTECTED}; remove it, or remove xrd.protocol http");
        report.add_about(&guard.value, ProblemKind::Unprotected, guard.origin.clone(), what, allowed);
    }
}

/// Reports macaroons that nobody can get.
fn check_issued_macaroons(effective: &Effective, report: &mut ConfigReport) {
    let (http, authorization) = (&effective.http, &effective.authorization);
    if !*http.macaroons {
        return;
    }
    let (what, allowed) = if !*authorization.enabled || !authorization.layers.has_macaroons() {
        (
            "no macaroons are issued, because they do not count",
            "add ofs.authorize and ofs.authlib ++ libXrdMacaroons.so, or remove it",
        )
    } else if !effective.issues_macaroons() {
        (
            "without a certificate no macaroons are issued",
            "name a certificate by xrd.tls, or add +notls before the library",
        )
    } else if !authorization.layers.has_tokens() {
        (
            "nobody can get a macaroon over HTTP, because only clients with a token get one",
            "add ofs.authlib ++ libXrdAccSciTokens.so, or remove it",
        )
    } else {
        return;
    };
    let what = format!("http.exthandler: {what}");
    report.add(ProblemKind::Doubtful, http.macaroons.origin.clone(), what, allowed);
}
