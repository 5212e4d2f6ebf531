//! Directives of HTTP and related plug-ins: `http.`, `tpc.`, `cors.`. Not in force yet.
//!
//! They are known so that files of sites load, and so that unknown names can be reported.

use super::definition::{Directive, Section};
use super::standing::UsageFrequency;

pub(super) const SECTION: Section = Section {
    title: "HTTP: http., tpc., cors.",
    about: "HTTP is not in force yet: nothing is served through it, so what restricts it holds.",
    directives: &[
        Directive::not_yet(&["http.cert"], UsageFrequency::Most, "path")
            .default("xrd.tls")
            .help("Certificate of the server.")
            .example("/etc/grid-security/hostcert.pem"),
        Directive::not_yet(&["http.key"], UsageFrequency::Most, "path")
            .default("xrd.tls")
            .help("Key of the certificate.")
            .example("/etc/grid-security/hostkey.pem"),
        Directive::not_yet(&["http.cadir"], UsageFrequency::Most, "path")
            .default("xrd.tlsca")
            .help("Directory of certificate authorities.")
            .example("/etc/grid-security/certificates"),
        Directive::not_yet(&["http.cafile"], UsageFrequency::Most, "path")
            .default("xrd.tlsca")
            .help("File of certificate authorities.")
            .example("/etc/pki/tls/cert.pem"),
        Directive::not_yet(&["http.cipherfilter"], UsageFrequency::Most, "list")
            .default("library default")
            .help("Allowed ciphers.")
            .example("HIGH"),
        Directive::not_yet(&["http.httpsmode"], UsageFrequency::Common, "{auto|disable|manual}")
            .default("auto")
            .help("Use of TLS.")
            .example("manual"),
        Directive::not_yet(
            &["http.gridmap"],
            UsageFrequency::Common,
            "[required] [compatNameGeneration] file",
        )
        .default("none")
        .help("Mapping of certificates to user names.")
        .example("/etc/grid-security/grid-mapfile"),
        Directive::not_yet(&["http.secxtractor"], UsageFrequency::Common, "[required] library [parameters]")
            .default("none")
            .help("Plug-in for VOMS attributes.")
            .example("libXrdVoms.so"),
        Directive::not_yet(&["http.exthandler"], UsageFrequency::Most, "name [+notls] library [parameters]")
            .default("none")
            .help("Additional handlers: third-party copy, and the issue of macaroons (`scalla auth macaroon` makes them).")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::not_yet(&["http.header2cgi"], UsageFrequency::Most, "header key [strip-on-redirect]")
            .default("Cache-Control cache-control")
            .help("Headers that are converted to CGI.")
            .example("Authorization authz"),
        Directive::not_yet(&["http.desthttps"], UsageFrequency::Common, "{yes|no}")
            .default("no")
            .help("Redirects use https.")
            .example("yes"),
        Directive::not_yet(&["http.selfhttps2http"], UsageFrequency::Rare, "{yes|no}")
            .default("no")
            .help("Redirect from https to http on this server.")
            .example("no"),
        Directive::not_yet(&["http.listingdeny"], UsageFrequency::Common, "{yes|no}")
            .default("no")
            .help("Refuses directory listings.")
            .example("yes"),
        Directive::not_yet(&["http.listingredir"], UsageFrequency::Common, "URL")
            .default("none")
            .help("Redirect target of directory listings.")
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
        Directive::not_yet(&["http.staticheader"], UsageFrequency::Rare, "[-verb=V] name [value]")
            .default("none")
            .help("Headers added to each reply.")
            .example("X-Server scalla"),
        Directive::not_yet(&["http.secretkey"], UsageFrequency::Common, "{text | /file}")
            .default("none")
            .help("Secret key of redirects between servers.")
            .example("/etc/xrootd/http.key"),
        Directive::not_yet(&["http.maxdelay"], UsageFrequency::Common, "time")
            .default("30s")
            .help("Maximum delay of a client.")
            .example("30"),
        Directive::not_yet(&["http.tlsclientauth"], UsageFrequency::Common, "{on|off}")
            .default("on")
            .help("Requests certificates from clients.")
            .example("off"),
        Directive::not_yet(&["http.cors"], UsageFrequency::Rare, "[++] library [parameters]")
            .default("none")
            .help("Cross-origin requests.")
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
        Directive::not_yet(&["tpc.allow"], UsageFrequency::Common, "{local|private}")
            .default("private")
            .help("Addresses that third-party copies may use.")
            .example("local"),
        Directive::not_yet(&["tpc.deny"], UsageFrequency::Common, "{local|private}")
            .default("local")
            .help("Addresses that third-party copies must not use.")
            .example("private"),
        Directive::not_yet(&["tpc.timeout"], UsageFrequency::Common, "time [first]")
            .default("60s, twice for the first")
            .help("Stall timeout of a third-party copy.")
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
        Directive::not_yet(&["cors.origin"], UsageFrequency::Rare, "https://host…")
            .default("none")
            .help("Allowed origins.")
            .example("https://example.org"),
    ],
};
