//! Directives of HTTP and related plug-ins: `http.`, `tpc.`, `cors.`, `macaroons.`. Not in force
//! yet.
//!
//! They are known so that files of sites load, and so that unknown names can be reported.

use super::definition::{Directive, Section};
use super::standing::Mark;

pub(super) const SECTION: Section = Section {
    title: "HTTP: http., tpc., cors., macaroons.",
    about: "HTTP is not in force yet: nothing is served through it, so what restricts it holds.",
    directives: &[
        Directive::later(&["http.cert"], Mark::Most, "path")
            .default("xrd.tls")
            .help("Certificate of the server.")
            .example("/etc/grid-security/hostcert.pem"),
        Directive::later(&["http.key"], Mark::Most, "path")
            .default("xrd.tls")
            .help("Key of the certificate.")
            .example("/etc/grid-security/hostkey.pem"),
        Directive::later(&["http.cadir"], Mark::Most, "path")
            .default("xrd.tlsca")
            .help("Directory of certificate authorities.")
            .example("/etc/grid-security/certificates"),
        Directive::later(&["http.cafile"], Mark::Most, "path")
            .default("xrd.tlsca")
            .help("File of certificate authorities.")
            .example("/etc/pki/tls/cert.pem"),
        Directive::later(&["http.cipherfilter"], Mark::Most, "list")
            .default("library default")
            .help("Allowed ciphers.")
            .example("HIGH"),
        Directive::later(&["http.httpsmode"], Mark::Common, "{auto|disable|manual}")
            .default("auto")
            .help("Use of TLS.")
            .example("manual"),
        Directive::later(&["http.gridmap"], Mark::Common, "[required] [compatNameGeneration] file")
            .default("none")
            .help("Mapping of certificates to user names.")
            .example("/etc/grid-security/grid-mapfile"),
        Directive::later(&["http.secxtractor"], Mark::Common, "[required] library [parameters]")
            .default("none")
            .help("Plug-in for VOMS attributes.")
            .example("libXrdVoms.so"),
        Directive::later(&["http.exthandler"], Mark::Most, "name [+notls] library [parameters]")
            .default("none")
            .help("Additional handlers (third-party copy, macaroons).")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::later(&["http.header2cgi"], Mark::Most, "header key [strip-on-redirect]")
            .default("Cache-Control cache-control")
            .help("Headers that are converted to CGI.")
            .example("Authorization authz"),
        Directive::later(&["http.desthttps"], Mark::Common, "{yes|no}")
            .default("no")
            .help("Redirects use https.")
            .example("yes"),
        Directive::later(&["http.selfhttps2http"], Mark::Rare, "{yes|no}")
            .default("no")
            .help("Redirect from https to http on this server.")
            .example("no"),
        Directive::later(&["http.listingdeny"], Mark::Common, "{yes|no}")
            .default("no")
            .help("Refuses directory listings.")
            .example("yes"),
        Directive::later(&["http.listingredir"], Mark::Common, "URL")
            .default("none")
            .help("Redirect target of directory listings.")
            .example("https://example.org/"),
        Directive::later(&["http.staticpreload"], Mark::Rare, "/static/name file")
            .default("none")
            .help("Static content that is kept in memory.")
            .example("/static/css /etc/xrootd/a.css"),
        Directive::later(&["http.staticredir"], Mark::Rare, "URL")
            .default("none")
            .help("Redirect target of static content.")
            .example("https://example.org/static"),
        Directive::later(&["http.embeddedstatic"], Mark::Rare, "{yes|no}")
            .default("yes")
            .help("Built-in static content.")
            .example("no"),
        Directive::later(&["http.staticheader"], Mark::Rare, "[-verb=V] name [value]")
            .default("none")
            .help("Headers added to each reply.")
            .example("X-Server scalla"),
        Directive::later(&["http.secretkey"], Mark::Common, "{text | /file}")
            .default("none")
            .help("Secret key of redirects between servers.")
            .example("/etc/xrootd/http.key"),
        Directive::later(&["http.maxdelay"], Mark::Common, "time")
            .default("30s")
            .help("Maximum delay of a client.")
            .example("30"),
        Directive::later(&["http.tlsclientauth"], Mark::Common, "{on|off}")
            .default("on")
            .help("Requests certificates from clients.")
            .example("off"),
        Directive::later(&["http.cors"], Mark::Rare, "[++] library [parameters]")
            .default("none")
            .help("Cross-origin requests.")
            .example("libXrdHttpCors.so"),
        Directive::later(&["http.auth"], Mark::Rare, "tpc fcreds")
            .default("off")
            .help("Forwarding of credentials for third-party copies.")
            .example("tpc fcreds"),
        Directive::later(&["http.sslverifydepth"], Mark::Rare, "n")
            .default("9")
            .help("Maximum length of a certificate chain.")
            .example("9"),
        Directive::later(&["http.tlsreuse"], Mark::Rare, "{on|off}")
            .default("on")
            .help("Cache of TLS sessions.")
            .example("on"),
        Directive::later(&["http.trace"], Mark::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of HTTP.")
            .example("debug"),
        Directive::later(&["tpc.allow"], Mark::Common, "{local|private}")
            .default("private")
            .help("Addresses that third-party copies may use.")
            .example("local"),
        Directive::later(&["tpc.deny"], Mark::Common, "{local|private}")
            .default("local")
            .help("Addresses that third-party copies must not use.")
            .example("private"),
        Directive::later(&["tpc.timeout"], Mark::Common, "time [first]")
            .default("60s, twice for the first")
            .help("Stall timeout of a third-party copy.")
            .example("30"),
        Directive::later(&["tpc.fixed_route"], Mark::Rare, "{yes|no}")
            .default("no")
            .help("Third-party copies use the interface on which their request arrived.")
            .example("yes"),
        Directive::later(&["tpc.header2cgi"], Mark::Rare, "header key")
            .default("none")
            .help("Headers of third-party copies that are converted to CGI.")
            .example("Authorization authz"),
        Directive::later(&["tpc.trace"], Mark::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of third-party copies.")
            .example("debug"),
        Directive::later(&["tpc.exthandler"], Mark::Rare, "[options]")
            .default("none")
            .help("Handler of third-party copies.")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::later(&["cors.origin"], Mark::Rare, "https://host…")
            .default("none")
            .help("Allowed origins.")
            .example("https://example.org"),
        Directive::later(&["macaroons.secretkey"], Mark::Common, "/file")
            .default("none")
            .help("Secret key of macaroons.")
            .example("/etc/xrootd/macaroon-secret"),
        Directive::later(&["macaroons.sitename"], Mark::Common, "name")
            .default("none")
            .help("Site name in macaroons.")
            .example("EXAMPLE"),
        Directive::later(&["macaroons.maxduration"], Mark::Common, "time")
            .default("24h")
            .help("Maximum lifetime of a macaroon.")
            .example("1h"),
        Directive::later(&["macaroons.onmissing"], Mark::Common, "{passthrough|allow|deny}")
            .default("passthrough")
            .help("Treatment of a request without a macaroon.")
            .example("passthrough"),
        Directive::later(&["macaroons.trace"], Mark::Common, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of macaroons.")
            .example("debug"),
    ],
};
