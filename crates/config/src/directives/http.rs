//! Directives of HTTP and what stands beside it: `http.`, `tpc.`, `cors.`, `macaroons.`. Not in force yet.

use super::{Directive, Mark, Section};

pub(super) const SECTION: Section = Section {
    title: "HTTP: http., tpc., cors., macaroons.",
    about: "HTTP is not in force yet: nothing is served through it, so what restricts it holds.",
    directives: &[
        Directive::later(&["http.cert"], Mark::Most, "path")
            .default("xrd.tls")
            .help("Certificate.")
            .example("/etc/grid-security/hostcert.pem"),
        Directive::later(&["http.key"], Mark::Most, "path")
            .default("xrd.tls")
            .help("Key.")
            .example("/etc/grid-security/hostkey.pem"),
        Directive::later(&["http.cadir"], Mark::Most, "path")
            .default("xrd.tlsca")
            .help("Directory of authorities.")
            .example("/etc/grid-security/certificates"),
        Directive::later(&["http.cafile"], Mark::Most, "path")
            .default("xrd.tlsca")
            .help("File of authorities.")
            .example("/etc/pki/tls/cert.pem"),
        Directive::later(&["http.cipherfilter"], Mark::Most, "list")
            .default("library default")
            .help("Ciphers.")
            .example("HIGH"),
        Directive::later(&["http.httpsmode"], Mark::Common, "{auto|disable|manual}")
            .default("auto")
            .help("When TLS is used.")
            .example("manual"),
        Directive::later(&["http.gridmap"], Mark::Common, "[required] [compatNameGeneration] file")
            .default("none")
            .help("Names of certificates.")
            .example("/etc/grid-security/grid-mapfile"),
        Directive::later(&["http.secxtractor"], Mark::Common, "[required] library [parameters]")
            .default("none")
            .help("VOMS attributes.")
            .example("libXrdVoms.so"),
        Directive::later(&["http.exthandler"], Mark::Most, "name [+notls] library [parameters]")
            .default("none")
            .help("Further handlers (third-party copy, macaroons).")
            .example("xrdtpc libXrdHttpTPC.so"),
        Directive::later(&["http.header2cgi"], Mark::Most, "header key [strip-on-redirect]")
            .default("Cache-Control cache-control")
            .help("Headers that become CGI.")
            .example("Authorization authz"),
        Directive::later(&["http.desthttps"], Mark::Common, "{yes|no}")
            .default("no")
            .help("Redirects go to https.")
            .example("yes"),
        Directive::later(&["http.selfhttps2http"], Mark::Rare, "{yes|no}")
            .default("no")
            .help("Redirect from https to http on this server.")
            .example("no"),
        Directive::later(&["http.listingdeny"], Mark::Common, "{yes|no}")
            .default("no")
            .help("No directory listings.")
            .example("yes"),
        Directive::later(&["http.listingredir"], Mark::Common, "URL")
            .default("none")
            .help("Where directory listings are found.")
            .example("https://example.org/"),
        Directive::later(&["http.staticpreload"], Mark::Rare, "/static/name file")
            .default("none")
            .help("Static content kept in memory.")
            .example("/static/css /etc/xrootd/a.css"),
        Directive::later(&["http.staticredir"], Mark::Rare, "URL")
            .default("none")
            .help("Where static content is found.")
            .example("https://example.org/static"),
        Directive::later(&["http.embeddedstatic"], Mark::Rare, "{yes|no}")
            .default("yes")
            .help("Built-in static content.")
            .example("no"),
        Directive::later(&["http.staticheader"], Mark::Rare, "[-verb=V] name [value]")
            .default("none")
            .help("Headers of every reply.")
            .example("X-Server scalla"),
        Directive::later(&["http.secretkey"], Mark::Common, "{text | /file}")
            .default("none")
            .help("Key of redirects between servers.")
            .example("/etc/xrootd/http.key"),
        Directive::later(&["http.maxdelay"], Mark::Common, "time")
            .default("30s")
            .help("Longest delay of a client.")
            .example("30"),
        Directive::later(&["http.tlsclientauth"], Mark::Common, "{on|off}")
            .default("on")
            .help("Clients are asked for certificates.")
            .example("off"),
        Directive::later(&["http.cors"], Mark::Rare, "[++] library [parameters]")
            .default("none")
            .help("Cross-origin requests.")
            .example("libXrdHttpCors.so"),
        Directive::later(&["http.auth"], Mark::Rare, "tpc fcreds")
            .default("off")
            .help("Credentials of third-party copies.")
            .example("tpc fcreds"),
        Directive::later(&["http.sslverifydepth"], Mark::Rare, "n")
            .default("9")
            .help("Longest chain of certificates.")
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
            .help("Addresses third-party copies may use.")
            .example("local"),
        Directive::later(&["tpc.deny"], Mark::Common, "{local|private}")
            .default("local")
            .help("Addresses third-party copies may not use.")
            .example("private"),
        Directive::later(&["tpc.timeout"], Mark::Common, "time [first]")
            .default("60s, twice for the first")
            .help("Stall of a third-party copy.")
            .example("30"),
        Directive::later(&["tpc.fixed_route"], Mark::Rare, "{yes|no}")
            .default("no")
            .help("Third-party copies leave by the interface their request came in.")
            .example("yes"),
        Directive::later(&["tpc.header2cgi"], Mark::Rare, "header key")
            .default("none")
            .help("Headers of third-party copies that become CGI.")
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
            .help("Origins that are allowed.")
            .example("https://example.org"),
        Directive::later(&["macaroons.secretkey"], Mark::Common, "/file")
            .default("none")
            .help("Key of macaroons.")
            .example("/etc/xrootd/macaroon-secret"),
        Directive::later(&["macaroons.sitename"], Mark::Common, "name")
            .default("none")
            .help("Site named in macaroons.")
            .example("EXAMPLE"),
        Directive::later(&["macaroons.maxduration"], Mark::Common, "time")
            .default("24h")
            .help("Longest life of a macaroon.")
            .example("1h"),
        Directive::later(&["macaroons.onmissing"], Mark::Common, "{passthrough|allow|deny}")
            .default("passthrough")
            .help("What a request without a macaroon may.")
            .example("passthrough"),
        Directive::later(&["macaroons.trace"], Mark::Common, "{all|off|none|[-]option}…")
            .default("off")
            .help("Log level of macaroons.")
            .example("debug"),
    ],
};
