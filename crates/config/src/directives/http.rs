//! Directives of HTTP and related plug-ins: `http.`, `tpc.`, `cors.`, `macaroons.`. Not in force
//! yet.
//!
//! They are known so that files of sites load, and so that unknown names can be reported.

use super::definition::{Directive, Section};
use super::standing::UsageFrequency;

pub(super) const SECTION: Section = Section {
    title: "HTTP: http., tpc., cors., macaroons.",
    about: "HTTP is not in force yet: nothing is served through it, so what restricts it holds.",
    directives: &[
        Directive::later(&["http.cert"], UsageFrequency::Most, "path")
            .default("xrd.tls")
            .help("Certificate of the server.")
            .example("/etc/grid-security/hostcert.pem"),
        Directive::later(&["http.key"], UsageFrequency::Most, "path")
            .default("xrd.tls")
            .help("Key of the certificate.")
            .example("/etc/grid-security/hostkey.pem"),
        Directive::later(&["http.cadir"], UsageFrequency::Most, "path")
            .default("xrd.tlsca")
            .help("Directory of certificate authorities.")
            .example("/etc/grid-security/certificates"),
        Directive::later(&["http.cafile"], UsageFrequency::Most, "path")
            .default("xrd.tlsca")
            .help("File of certificate authorities.")
            .example("/etc/pki/tls/cert.pem"),
        Directive::later(&["http.cipherfilter"], UsageFrequency::Most, "list")
            .default("library default")
            .help("Allowed ciphers.")
            .example("HIGH"),
        Directive::later(&["http.httpsmode"], UsageFrequency::Common, "{auto|disable|manual}")
            .default("auto")
            .help("Use of TLS.")
            .example("manual"),
        Directive::later(&["http.gridmap"], UsageFrequency::Common, "[required] [compatNameGeneration] file")
            .default("none")
            .help("Mapping of certificates to user names.")
            .example("/etc/grid-security/grid-mapfile"),
        Directive::later(&["http.secxtractor"], UsageFrequency::Common, "[required] library [parameters]")
            .default("none")
            .help("Plug-in for VOMS attributes.")
            .example("libXrdVoms.so"),
        Directive::later(&["http.exthandler"], UsageFrequency::Most, "name [+notls] library [parameters]")
            .default("none")
            .help("Additional handlers (third-party copy, macaroons).")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::later(&["http.header2cgi"], UsageFrequency::Most, "header key [strip-on-redirect]")
            .default("Cache-Control cache-control")
            .help("Headers that are converted to CGI.")
            .example("Authorization authz"),
        Directive::later(&["http.desthttps"], UsageFrequency::Common, "{yes|no}")
            .default("no")
            .help("Redirects use https.")
            .example("yes"),
        Directive::later(&["http.selfhttps2http"], UsageFrequency::Rare, "{yes|no}")
            .default("no")
            .help("Redirect from https to http on this server.")
            .example("no"),
        Directive::later(&["http.listingdeny"], UsageFrequency::Common, "{yes|no}")
            .default("no")
            .help("Refuses directory listings.")
            .example("yes"),
        Directive::later(&["http.listingredir"], UsageFrequency::Common, "URL")
            .default("none")
            .help("Redirect target of directory listings.")
            .example("https://example.org/"),
        Directive::later(&["http.staticpreload"], UsageFrequency::Rare, "/static/name file")
            .default("none")
            .help("Static content that is kept in memory.")
            .example("/static/css /etc/xrootd/a.css"),
        Directive::later(&["http.staticredir"], UsageFrequency::Rare, "URL")
            .default("none")
            .help("Redirect target of static content.")
            .example("https://example.org/static"),
        Directive::later(&["http.embeddedstatic"], UsageFrequency::Rare, "{yes|no}")
            .default("yes")
            .help("Built-in static content.")
            .example("no"),
        Directive::later(&["http.staticheader"], UsageFrequency::Rare, "[-verb=V] name [value]")
            .default("none")
            .help("Headers added to each reply.")
            .example("X-Server scalla"),
        Directive::later(&["http.secretkey"], UsageFrequency::Common, "{text | /file}")
            .default("none")
            .help("Secret key of redirects between servers.")
            .example("/etc/xrootd/http.key"),
        Directive::later(&["http.maxdelay"], UsageFrequency::Common, "time")
            .default("30s")
            .help("Maximum delay of a client.")
            .example("30"),
        Directive::later(&["http.tlsclientauth"], UsageFrequency::Common, "{on|off}")
            .default("on")
            .help("Requests certificates from clients.")
            .example("off"),
        Directive::later(&["http.cors"], UsageFrequency::Rare, "[++] library [parameters]")
            .default("none")
            .help("Cross-origin requests.")
            .example("libXrdHttpCors.so"),
        Directive::later(&["http.auth"], UsageFrequency::Rare, "tpc fcreds")
            .default("off")
            .help("Forwarding of credentials for third-party copies.")
            .example("tpc fcreds"),
        Directive::later(&["http.sslverifydepth"], UsageFrequency::Rare, "n")
            .default("9")
            .help("Maximum length of a certificate chain.")
            .example("9"),
        Directive::later(&["http.tlsreuse"], UsageFrequency::Rare, "{on|off}")
            .default("on")
            .help("Cache of TLS sessions.")
            .example("on"),
        Directive::later(&["http.trace"], UsageFrequency::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of HTTP.")
            .example("debug"),
        Directive::later(&["tpc.allow"], UsageFrequency::Common, "{local|private}")
            .default("private")
            .help("Addresses that third-party copies may use.")
            .example("local"),
        Directive::later(&["tpc.deny"], UsageFrequency::Common, "{local|private}")
            .default("local")
            .help("Addresses that third-party copies must not use.")
            .example("private"),
        Directive::later(&["tpc.timeout"], UsageFrequency::Common, "time [first]")
            .default("60s, twice for the first")
            .help("Stall timeout of a third-party copy.")
            .example("30"),
        Directive::later(&["tpc.fixed_route"], UsageFrequency::Rare, "{yes|no}")
            .default("no")
            .help("Third-party copies use the interface on which their request arrived.")
            .example("yes"),
        Directive::later(&["tpc.header2cgi"], UsageFrequency::Rare, "header key")
            .default("none")
            .help("Headers of third-party copies that are converted to CGI.")
            .example("Authorization authz"),
        Directive::later(&["tpc.trace"], UsageFrequency::Rare, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of third-party copies.")
            .example("debug"),
        Directive::later(&["tpc.exthandler"], UsageFrequency::Rare, "[options]")
            .default("none")
            .help("Handler of third-party copies.")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::later(&["cors.origin"], UsageFrequency::Rare, "https://host…")
            .default("none")
            .help("Allowed origins.")
            .example("https://example.org"),
        Directive::later(&["macaroons.secretkey"], UsageFrequency::Common, "/file")
            .default("none")
            .help("Secret key of macaroons.")
            .example("/etc/xrootd/macaroon-secret"),
        Directive::later(&["macaroons.sitename"], UsageFrequency::Common, "name")
            .default("none")
            .help("Site name in macaroons.")
            .example("EXAMPLE"),
        Directive::later(&["macaroons.maxduration"], UsageFrequency::Common, "time")
            .default("24h")
            .help("Maximum lifetime of a macaroon.")
            .example("1h"),
        Directive::later(&["macaroons.onmissing"], UsageFrequency::Common, "{passthrough|allow|deny}")
            .default("passthrough")
            .help("Treatment of a request without a macaroon.")
            .example("passthrough"),
        Directive::later(&["macaroons.trace"], UsageFrequency::Common, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of macaroons.")
            .example("debug"),
    ],
};
