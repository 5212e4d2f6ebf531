//! The directives of HTTP.

use config::{
    ConfigInput, HeaderRule, Loaded, MemorySource, Overrides, PageReaders, ProblemKind, StaticHeaderRule,
    Strictness, load, show,
};
use std::collections::BTreeSet;

fn loaded(text: &str) -> Loaded {
    loaded_with(text, Overrides::default())
}

fn loaded_with(text: &str, overrides: Overrides) -> Loaded {
    let (file, strictness) = (Some("f".to_owned()), Strictness::Strict);
    let request = ConfigInput { file, strictness, overrides, ..ConfigInput::default() };
    let services = "web 8080/udp\nweb 8080/tcp\n";
    load(&request, &MemorySource::new().with("f", text).with("/etc/services", services))
}

fn kinds(text: &str) -> Vec<ProblemKind> {
    loaded(text).report.problems().iter().map(|problem| problem.kind).collect()
}

#[test]
fn http_is_served_on_the_port_of_xroot_or_on_its_own() {
    let none: &[u16] = &[];
    for (text, is_shared, own) in [
        ("", false, none),
        ("xrd.protocol xrootd *", false, none),
        ("xrd.protocol http *", true, none),
        ("xrd.protocol https libXrdHttp-5.so", true, none),
        ("xrd.protocol http:1094 libXrdHttp.so", true, none),
        ("xrd.port 2094\nxrd.protocol http:2094 /usr/lib64/libXrdHttp.so", true, none),
        ("xrd.protocol XrdHttp:8443 /usr/lib64/libXrdHttp-5.so", false, &[8443]),
        ("xrd.port 2094\nxrd.protocol http:1094 libXrdHttp.so", false, &[1094]),
        ("xrd.port any\nxrd.protocol http:1094 libXrdHttp.so", false, &[1094]),
        ("xrd.protocol http:web *", false, &[8080]),
        // The last line with a name counts.
        ("xrd.protocol http:8443 *\nxrd.protocol http *", true, none),
        ("xrd.protocol http *\nxrd.protocol http:8443 libXrdHttp.so", false, &[8443]),
        // Another name, or `+port`, adds a port.
        ("xrd.protocol http:1094 *\nxrd.protocol XrdHttp:8443 libXrdHttp.so", true, &[8443]),
        (
            "xrd.protocol http:8443 *\nxrd.protocol http:9443 +port\nxrd.protocol http +port",
            true,
            &[8443, 9443],
        ),
        ("xrd.protocol http:8443 *\nxrd.protocol http:8443 +port", false, &[8443]),
        (
            "xrd.protocol a:8443 libXrdHttp.so\nxrd.protocol a:9443 +port\nxrd.protocol a:7443 libXrdHttp.so",
            false,
            &[7443],
        ),
    ] {
        let Loaded { effective, report } = loaded(text);
        let own: BTreeSet<u16> = own.iter().copied().collect();
        let found = (effective.shares_port_with_http(), effective.own_http_ports());
        assert_eq!(
            (found, effective.serves_http()),
            ((is_shared, own.clone()), is_shared || !own.is_empty()),
            "{text}"
        );
        assert!(report.is_ok() && !report.to_string().contains("not in force"), "{text}: {report}");
    }
    for text in [
        "xrd.protocol http:x *",
        "xrd.protocol http:0 *",
        "xrd.protocol http: *",
        "xrd.protocol http:+8443 *",
        "xrd.protocol http:any *",
        "xrd.protocol http:99999 *",
        "xrd.protocol http:8443 +port",
        "xrd.protocol http:8443 *\nxrd.protocol other:9443 +port",
    ] {
        assert_eq!(kinds(text), [ProblemKind::BadValue], "{text}");
    }
    let shown =
        loaded("xrd.protocol a:8443 libXrdHttp.so\nxrd.protocol http *\nxrd.protocol a:9443 +port").effective;
    let shown: Vec<String> = show(&shown)
        .into_iter()
        .filter(|line| line.directive == "xrd.protocol")
        .filter_map(|line| line.value)
        .collect();
    assert_eq!(shown, ["a:8443 libXrdHttp.so", "http *", "a:9443 +port"]);
    // Those of the xroot protocol are not in force.
    assert_eq!(kinds("xrd.protocol xroot:2094 +port"), [ProblemKind::NotYet]);
    // An encrypted port is not what `tls` in front of the name would give.
    assert_eq!(kinds("xrd.protocol tls http *"), [ProblemKind::Unprotected]);
}

#[test]
fn what_restricts_http_and_is_not_in_force_stops_the_start() {
    let guards = ["http.secretkey 0123456789", "http.secxtractor required libOther.so"];
    for guard in guards {
        assert_eq!(kinds(guard), [ProblemKind::NotYet], "{guard}");
        let Loaded { report, .. } = loaded(&format!("xrd.protocol http *\n{guard}"));
        assert!(!report.is_ok(), "{report}");
        assert!(report.problems().iter().any(|problem| problem.kind == ProblemKind::Unprotected), "{report}");
    }
    for text in
        ["http.secxtractor libXrdVoms.so grps=/a", "http.exthandler x libXrdSomething.so", "tpc.trace all"]
    {
        assert_eq!(kinds(&format!("xrd.protocol http *\n{text}")), [ProblemKind::NotYet], "{text}");
    }
}

/// A server with certificate and authorities.
const ENCRYPTED: &str = "xrd.protocol http *\nxrd.tls /c /k\nxrd.tlsca certdir /a\n";

#[test]
fn certificates_of_clients_count_where_they_can_be_verified() {
    let Loaded { effective, report } =
        loaded(&format!("{ENCRYPTED}http.gridmap required /m\nhttp.secxtractor required /lib/libXrdVoms.so"));
    assert!(report.problems().is_empty(), "{report}");
    let map = effective.http.grid_map.value.clone().unwrap();
    assert_eq!((map.path.to_str(), map.is_required, *effective.http.voms), (Some("/m"), true, Some(true)));
    assert!(effective.asks_for_certificates());
    let Loaded { effective, .. } =
        loaded(&format!("{ENCRYPTED}http.gridmap /m\nhttp.secxtractor libXrdVoms.so"));
    assert_eq!(
        (effective.http.grid_map.as_ref().map(|map| map.is_required), *effective.http.voms),
        (Some(false), Some(false))
    );
    for text in [
        "xrd.protocol http *".to_owned(),
        "xrd.protocol http *\nxrd.tls /c /k\nxrd.tlsca noverify".to_owned(),
        format!("{ENCRYPTED}http.tlsclientauth off"),
        "xrd.tls /c /k\nxrd.tlsca certdir /a".to_owned(),
    ] {
        assert!(!loaded(&text).effective.asks_for_certificates(), "{text}");
    }
    let own = "xrd.protocol http *\nxrd.tls /c /k\nxrd.tlsca noverify\nhttp.cafile /f";
    assert!(loaded(own).effective.asks_for_certificates());
    assert_eq!(kinds(&format!("{ENCRYPTED}http.tlsclientauth maybe")), [ProblemKind::BadValue]);
}

#[test]
fn the_certificate_of_http_is_that_of_the_server_if_there_is_no_other() {
    let own = "xrd.protocol http *\nhttp.cert /c\nhttp.key /k\n";
    let files = |text: &str| {
        let Loaded { effective, report } = loaded(text);
        let tls = effective.network.tls.value.map(|tls| (tls.certificate, tls.key));
        (tls, report.problems().iter().map(|problem| problem.kind).collect::<Vec<_>>())
    };
    let of = |certificate: &str, key: &str| Some((certificate.into(), Some(key.into())));
    assert_eq!(
        files(own),
        (of("/c", "/k"), vec![]),
        "authorities are needed for certificates of clients only"
    );
    assert_eq!(files("xrd.protocol http *\nhttp.cert /c"), (Some(("/c".into(), None)), vec![]));
    assert_eq!(files("http.cert /c\nhttp.key /k"), (None, vec![]), "HTTP is not served");
    assert_eq!(files("xrd.protocol http *\nhttp.key /k"), (None, vec![ProblemKind::Doubtful]));
    let both = |files: &str| format!("xrd.tls {files}\nxrd.tlsca certdir /a\n{own}");
    assert_eq!(files(&both("/c /k")), (of("/c", "/k"), vec![]));
    assert_eq!(files(&both("/other /k")), (of("/other", "/k"), vec![ProblemKind::Doubtful]));
    assert_eq!(files(&format!("xrd.tls /c /k\n{own}")).1, [ProblemKind::Unsupported], "no authorities");
    let asks = |text: &str| loaded(text).effective.asks_for_certificates();
    assert!(asks(&format!("{own}http.cadir /a")) && !asks(own));
    // The lines that `config show` prints have the same effect.
    let shown: String = config::show(&loaded(own).effective)
        .iter()
        .filter(|line| ["xrd.protocol", "xrd.tls", "http.cert", "http.key"].contains(&line.directive))
        .filter_map(|line| Some(format!("{} {}\n", line.directive, line.value.as_deref()?)))
        .collect();
    assert_eq!(shown, own);
}

#[test]
fn rules_for_certificates_without_effect_are_reported() {
    let gsi = format!("{ENCRYPTED}xrootd.seclib libXrdSec.so\nsec.protocol gsi\n");
    for (base, reason) in [("xrd.protocol http *\n", "not asked"), (gsi.as_str(), "sec.protocol gsi decides")]
    {
        for rule in ["http.gridmap {}/m", "http.secxtractor {}libXrdVoms.so"] {
            for (required, kind) in [("", ProblemKind::Doubtful), ("required ", ProblemKind::Unprotected)] {
                let Loaded { report, .. } = loaded(&format!("{base}{}", rule.replace("{}", required)));
                let found = report.problems().iter().find(|problem| problem.kind == kind);
                assert!(found.is_some_and(|problem| problem.what.contains(reason)), "{rule}: {report}");
                assert_eq!(report.is_ok(), required.is_empty(), "{report}");
            }
        }
    }
}

#[test]
fn copies_over_http_need_a_certificate_or_an_option() {
    let http = "xrd.protocol http *\nhttp.exthandler xrdtpc libXrdHttpTPC.so\n";
    let Loaded { effective, report } = loaded(http);
    assert!(!effective.serves_http_copies());
    assert!(report.is_ok(), "{report}");
    assert!(report.problems().iter().any(|problem| problem.kind == ProblemKind::Doubtful), "{report}");
    let Loaded { effective, report } =
        loaded(&format!("{http}xrd.tls /cert.pem /key.pem\nxrd.tlsca noverify\n"));
    assert!(effective.serves_http_copies());
    assert!(report.problems().iter().all(|problem| problem.kind != ProblemKind::Doubtful), "{report}");
    let Loaded { effective, report } = loaded(&http.replace("libXrd", "+notls libXrd"));
    assert!(effective.serves_http_copies() && report.problems().is_empty(), "{report}");
    let shown = show(&effective);
    let line =
        shown.iter().find(|line| line.directive == "http.exthandler").and_then(|line| line.value.clone());
    assert_eq!(line.as_deref(), Some("xrdtpc +notls libXrdHttpTPC.so"));
}

#[test]
fn copies_over_http_need_their_handler() {
    assert!(!*loaded("xrd.protocol http *\n").effective.http.copies);
    let text = "xrd.protocol http *\nhttp.exthandler xrdtpc +notls /usr/lib64/libXrdHttpTPC-5.so\ntpc.allow local\n\
                tpc.deny private\ntpc.timeout 30s 2m\nhttp.cadir /c\nhttp.cafile /f\n";
    let Loaded { effective, report } = loaded(text);
    assert!(report.problems().is_empty(), "{report}");
    let http = &effective.http;
    assert!(*http.copies);
    assert_eq!((http.copy_networks.local, http.copy_networks.private), (Some(true), Some(false)));
    assert_eq!((http.copy_times.stall.as_secs(), http.copy_times.first.as_secs()), (30, 120));
    let shown: Vec<String> = show(&effective)
        .iter()
        .filter_map(|line| Some(format!("{} {}", line.directive, line.value.as_ref()?)))
        .collect();
    let again = loaded(&shown.join("\n")).effective.http;
    assert_eq!(*again.copy_networks, *http.copy_networks);
    assert_eq!((*again.copies, again.copies_without_tls), (true, true));
    assert_eq!(*again.copy_times, *http.copy_times);
    assert_eq!(*again.authority_directory, *http.authority_directory);
    assert_eq!(again.authority_file.as_deref().and_then(|path| path.to_str()), Some("/f"));
    let alone = loaded("xrd.protocol http *\ntpc.timeout 10\n").effective.http;
    assert_eq!((alone.copy_times.stall.as_secs(), alone.copy_times.first.as_secs()), (10, 20));
    for text in
        ["tpc.allow public", "tpc.deny", "tpc.timeout 0", "tpc.timeout x", "http.exthandler libXrdHttpTPC.so"]
    {
        assert_eq!(kinds(text).len(), 1, "{text}");
    }
}

#[test]
fn values_are_read_and_shown() {
    let text = "xrd.protocol http *\nhttp.header2cgi Authorization authz\nhttp.header2cgi X-Tag tag strip-on-redirect\n\
                http.staticheader X-All a b\nhttp.staticheader -verb=GET X-Get 1\nhttp.staticheader X-Gone 1\n\
                http.staticheader X-Gone\nhttp.desthttps yes\nhttp.listingdeny true\nhttp.maxdelay 1m\n\
                http.listingredir https://h/\nscalla.http status metrics 192.0.2.0/24 ::1\n";
    let Loaded { effective, report } = loaded(text);
    assert!(report.problems().is_empty(), "{report}");
    let http = &effective.http;
    let rule = |header: &str, key: &str, strip_on_redirect| HeaderRule {
        header: header.to_owned(),
        key: key.to_owned(),
        strip_on_redirect,
    };
    let rules: Vec<_> = http.headers_to_cgi.iter().map(|rule| rule.value.clone()).collect();
    assert_eq!(rules, [rule("Authorization", "authz", false), rule("X-Tag", "tag", true)]);
    let header = |method: Option<&str>, name: &str, value: &str| StaticHeaderRule {
        method: method.map(str::to_owned),
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let headers: Vec<_> = http.static_headers.iter().map(|rule| rule.value.clone()).collect();
    assert_eq!(headers, [header(None, "X-All", "a b"), header(Some("GET"), "X-Get", "1")]);
    assert!(*http.redirects_to_https && *http.denies_listings && http.pages.status);
    let includes = |address: &str| http.pages.metrics.includes(address.parse().unwrap());
    assert!(includes("192.0.2.9") && includes("::1") && !includes("127.0.0.1") && !includes("::2"));
    assert_eq!((http.delay_max.as_secs(), http.listing_redirect.as_deref()), (60, Some("https://h/")));
    let lines = show(&effective);
    let shown: Vec<String> = lines
        .iter()
        .filter_map(|line| Some(format!("{} {}", line.directive, line.value.as_ref()?)))
        .collect();
    let again = loaded(&shown.join("\n")).effective.http;
    assert_eq!(
        (again.headers_to_cgi.len(), again.static_headers.len(), &again.pages.value, &again.ports[0].value),
        (2, 2, &http.pages.value, &http.ports[0].value)
    );
}

#[test]
fn headers_that_no_request_can_have_are_refused() {
    for text in [
        "http.header2cgi X:Y z",
        "http.header2cgi X a&b",
        "http.header2cgi X",
        "http.staticheader -verb=get X 1",
        "http.staticheader X\u{e9} 1",
        "http.staticheader X \u{e9}",
        "http.listingredir ftp://h/",
        "http.listingdeny maybe",
        "http.maxdelay soon",
        "scalla.http everything",
        "scalla.http",
        "scalla.http metrics 192.0.2.1/24",
        "scalla.http metrics host.example.org",
        "scalla.http metrics off",
        "scalla.http metrics all 192.0.2.1",
        "scalla.http taperest api",
        "scalla.http taperest /",
        "scalla.http taperest /a//b",
        "scalla.http taperest /a/../b",
        "scalla.http taperest /a?b",
    ] {
        assert_eq!(kinds(text), [ProblemKind::BadValue], "{text}");
    }
}

#[test]
fn metrics_are_for_the_machine_unless_others_are_named() {
    for (text, shown, readers) in [
        ("", "off", [false; 3]),
        ("status", "status", [false; 3]),
        ("off", "off", [false; 3]),
        ("metrics", "metrics", [true, false, false]),
        ("metrics status", "status metrics", [true, false, false]),
        ("status metrics 192.0.2.0/24", "status metrics 192.0.2.0/24", [false, true, false]),
        ("metrics 192.0.2.0/24 127.0.0.1", "metrics 192.0.2.0/24 127.0.0.1/32", [true, true, false]),
        ("metrics all status", "status metrics all", [true; 3]),
    ] {
        let line = if text.is_empty() { String::new() } else { format!("scalla.http {text}\n") };
        let effective = loaded(&format!("xrd.protocol http *\n{line}")).effective;
        let includes = |address: &str| effective.http.pages.metrics.includes(address.parse().unwrap());
        assert_eq!(["127.0.0.1", "::ffff:192.0.2.7", "2001:db8::1"].map(includes), readers, "{text}");
        let lines = show(&effective);
        let found =
            lines.iter().find(|line| line.directive == "scalla.http").and_then(|line| line.value.clone());
        assert_eq!(found.as_deref(), Some(shown), "{text}");
    }
}

#[test]
fn readers_of_the_dashboard_are_others_than_those_of_metrics() {
    let text = "xrd.protocol http *\nscalla.http dashboard 192.0.2.0/24 metrics\n";
    let pages = loaded(text).effective.http.pages.value;
    let includes = |readers: &PageReaders| {
        ["127.0.0.1", "192.0.2.7"].map(|address| readers.includes(address.parse().unwrap()))
    };
    assert_eq!([includes(&pages.dashboard), includes(&pages.metrics)], [[false, true], [true, false]]);
}

#[test]
fn the_command_line_turns_on_http_and_the_dashboard_of_the_machine() {
    let with = |text: &str, http| {
        let overrides = Overrides { http, ..Overrides::default() };
        loaded_with(text, overrides).effective
    };
    let off = with("", false);
    assert!(!off.serves_http() && off.http.pages.dashboard == PageReaders::Nobody);
    let on = with("", true);
    assert!(on.serves_http() && on.http.pages.dashboard == PageReaders::Local);
    assert!(on.http.pages.metrics == PageReaders::Nobody);
    let named = with("scalla.http status dashboard all\n", true).http.pages.value;
    assert!(named.dashboard == PageReaders::All && named.status);
    // Clients of the ports in the file find HTTP there.
    let own = with("xrd.protocol http:8443 *\n", true);
    assert!(!own.shares_port_with_http() && own.own_http_ports().contains(&8443));
}

#[test]
fn a_line_of_pages_adds_to_earlier_ones() {
    for (lines, shown) in [
        (&["status", "metrics 192.0.2.0/24"][..], "status metrics 192.0.2.0/24"),
        (&["metrics all", "status"], "status metrics all"),
        (&["metrics all status", "metrics 192.0.2.0/24"], "status metrics 192.0.2.0/24"),
        (&["metrics 192.0.2.0/24", "metrics"], "metrics"),
        (&["status", "metrics", "off"], "off"),
        (&["metrics all", "off", "status"], "status"),
        (&["taperest", "status"], "status taperest /api/v1"),
        (&["metrics taperest /tape/v1/ status"], "status metrics taperest /tape/v1"),
        (&["taperest", "off"], "off"),
        (&["nohttp2"], "nohttp2"),
        (&["metrics nohttp2 status", "off"], "nohttp2"),
        (&["nohttp2", "metrics http2"], "metrics"),
        (&["metrics dashboard", "dashboard 192.0.2.0/24"], "metrics dashboard 192.0.2.0/24"),
        (&["dashboard all metrics 192.0.2.0/24 dashboard status"], "status metrics 192.0.2.0/24 dashboard"),
    ] {
        let text: String = lines.iter().map(|line| format!("scalla.http {line}\n")).collect();
        let Loaded { effective, report } = loaded(&format!("xrd.protocol http *\n{text}"));
        assert!(report.problems().is_empty(), "{report}");
        let lines = show(&effective);
        let found = lines.iter().find(|line| line.directive == "scalla.http");
        assert_eq!(found.and_then(|line| line.value.as_deref()), Some(shown), "{text}");
    }
}

#[test]
fn macaroons_over_http_need_their_handler() {
    let layers = "ofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so config=/c\nofs.authlib ++ libXrdMacaroons.so\n\
                  all.sitename S\nmacaroons.secretkey /s\n";
    let tls = "xrd.tls /cert.pem /key.pem\nxrd.tlsca noverify\n";
    let handler = "http.exthandler xrdmacaroons /usr/lib64/libXrdMacaroons-5.so\n";
    let open = handler.replace("/usr", "+notls /usr");
    let tokens = "ofs.authlib ++ libXrdAccSciTokens.so config=/c\n";
    for (text, is_issued, warning) in [
        (format!("{layers}{tls}"), false, None),
        (format!("{layers}{tls}{handler}"), true, None),
        (format!("{layers}{open}"), true, None),
        (format!("{layers}{handler}"), false, Some("without a certificate no macaroons are issued")),
        (format!("{tls}{handler}"), false, Some("because they do not count")),
        (layers.replace(tokens, "") + tls + handler, true, Some("only clients with a token get one")),
    ] {
        let Loaded { effective, report } = loaded(&format!("xrd.protocol http *\n{text}"));
        assert_eq!(effective.issues_macaroons(), is_issued, "{text}");
        let found: Vec<String> = report.problems().iter().map(ToString::to_string).collect();
        let expected =
            warning.into_iter().filter(|text| found.iter().any(|line| line.contains(text))).count();
        assert_eq!(found.len(), expected, "{text}: {report}");
        assert_eq!(found.is_empty(), warning.is_none(), "{text}: {report}");
    }
    let shown = show(&loaded(&format!("xrd.protocol http *\n{layers}{open}")).effective);
    let line =
        shown.iter().find(|line| line.directive == "http.exthandler").and_then(|line| line.value.clone());
    assert_eq!(line.as_deref(), Some("xrdmacaroons +notls libXrdMacaroons.so"));
}

#[test]
fn nodes_of_a_cluster_serve_http_where_managers_redirect_to() {
    for role in ["manager", "supervisor", "server"] {
        let text = format!("all.role {role}\nall.manager h:2131\nxrd.protocol http:8443 *\n");
        let effective = loaded(&text).effective;
        assert!(effective.shares_port_with_http(), "{role}");
        assert_eq!(effective.own_http_ports(), BTreeSet::from([8443]), "{role}");
    }
    let none = loaded("all.role server\nall.manager h:2131\n").effective;
    assert!(!none.shares_port_with_http());
}
