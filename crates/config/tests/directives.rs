//! Tests of the tables as a whole: examples match the standing, guards stop the start, unknown
//! names are reported.
//!
//! They cover each directive, so that a new one cannot be added without a consistent entry.

use config::*;
use proptest::prelude::*;

fn load_text(text: &str, strictness: Strictness) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), strictness, ..ConfigInput::default() };
    load(
        &request,
        &MemorySource::new().with("f", text).with("/etc/services", "other 7/udp\nxroot 1094/tcp rootd # c\n"),
    )
}

fn kinds(loaded: &Loaded) -> Vec<ProblemKind> {
    loaded.report.problems().iter().map(|problem| problem.kind).collect()
}

#[test]
fn every_guard_stops_the_start_by_name() {
    let mut guards = 0;
    for directive in every_directive() {
        let Some(arguments) = directive.stops_with else { continue };
        for name in directive.names {
            for strictness in [Strictness::Strict, Strictness::Legacy] {
                let loaded = load_text(&format!("# site\n{name} {arguments}\n"), strictness);
                let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
                assert_eq!(kinds(&loaded), [ProblemKind::Unprotected], "{name} {arguments}");
                assert!(errors[0].starts_with("f:2:"), "{errors:?}");
                assert!(errors[0].contains(name), "{errors:?}");
                assert!(errors[0].contains("restricts access or demands encryption"), "{errors:?}");
            }
            guards += 1;
        }
    }
    assert!(guards >= 10, "{guards}");
}

#[test]
fn the_directive_in_the_file_is_named_without_authorization() {
    for (text, name) in [
        ("acc.spacechar +", "acc.spacechar"),
        ("acc.encoding space +", "acc.encoding"),
        ("acc.spacechar +\nacc.encoding pct path", "acc.encoding"),
        ("acc.encoding pct path\nacc.spacechar +", "acc.spacechar"),
    ] {
        let loaded = load_text(text, Strictness::Strict);
        let problem = loaded.report.errors().next().unwrap().to_string();
        assert!(problem.contains(&format!("{name}: restricts access")), "{text}: {problem}");
    }
}

#[test]
fn guards_are_in_the_tables() {
    // Listed independently of the tables, so that an entry cannot lose its guard unnoticed.
    for line in [
        "sec.protocol pwd",
        "sec.protocol /opt/lib gsi -cert:/x",
        "sec.protocol unix",
        "sec.protocol sss -s /k",
        "sec.level compatible",
        "sec.level all relaxed pedantic force",
        "sec.entitylib libX.so",
        "ofs.authlib libXrdMacaroons.so\nall.sitename S",
        "ofs.authorize\nofs.authlib libXrdMacaroons.so libSomethingElse.so",
        "ofs.authlib ++ libXrdAccSciTokens.so",
        "acc.authdb /x\nofs.authorize\nofs.authlib libXrdAccSciTokens.so",
        "ofs.authlib libSomethingElse.so",
        "acc.authdb /x",
        "acc.audit deny",
        "acc.pathmatch prefix",
        "acc.authrefresh 1h",
        "xrootd.tls all",
        "xrootd.tls capable all",
        "xrootd.tls none data",
        "xrootd.tls all -data",
        "xrd.tlsca noverify\nxrootd.tls capable login",
        "xrd.tlsciphers X",
        "xrd.port tls 1094",
        "xrd.network nodnr tls",
        "xrd.protocol tls xrootd *",
        "xrd.allow netgroup x",
        "ofs.osslib libXrdSecgsi.so",
        "xrd.protocol x libXrdAccSciTokens-5.so",
        "acc.nobodyknows 1",
        "sec.protocl krb5",
    ] {
        let loaded = load_text(line, Strictness::Legacy);
        assert_eq!(kinds(&loaded), [ProblemKind::Unprotected], "{line}: {}", loaded.report);
    }
    for line in [
        "sec.protocol host",
        "sec.protbind * none",
        "sec.protbind localhost only host",
        "sec.level none",
        "ofs.authorize",
        "ofs.authorize 1\nacc.authdb /x\nacc.audit deny grant",
        "acc.authdb /x\nofs.authorize\nofs.authlib default",
        "acc.authdb /x\nofs.authorize\nofs.authlib ++ libXrdAccSciTokens.so",
        "acc.authdb /x\nofs.authorize\nofs.authlib libXrdMacaroons.so\nall.sitename S\nmacaroons.secretkey /s",
        "xrootd.seclib default",
        "xrootd.seclib /usr/lib64/libXrdSec-5.so\nsec.protocol unix",
        "xrootd.tls off",
        "xrootd.tls all none",
        "xrootd.tls data -data",
        "xrootd.tls capable none",
        "xrootd.tls login\nxrootd.tls none",
        "xrd.tls /cert /key\nxrd.tlsca certdir /x\nxrootd.tls all",
        "xrd.tls /cert nodetail hsto 5\nxrd.tlsca noverify\nxrd.tlsciphers X\nxrootd.tls capable session -tpc data",
        "xrd.allow host a",
    ] {
        assert!(load_text(line, Strictness::Strict).report.is_ok(), "{line}");
    }
}

#[test]
fn examples_match_the_standing() {
    // Examples that other lines complete.
    let completed = |name: &str| match name {
        "sec.protparm" => "sec.protocol sss\nxrootd.seclib default\n",
        "sec.signdata" => "sec.level intense\nsec.protocol unix\nxrootd.seclib default\n",
        "sec.bindtls" => "sec.protocol unix\nxrootd.seclib default\nxrd.tls /c\nxrd.tlsca noverify\n",
        "gsi.crlsource" => "sec.protocol gsi -crl:use,updt\nxrootd.seclib default\n",
        "gsi.compat" => "sec.protocol gsi\nxrootd.seclib default\n",
        "voms.mapfile" => "sec.protocol gsi -vomsat:extract\nxrootd.seclib default\n",
        "sec.entitymap" | "sec.entityprogram" => "sec.protocol unix\nxrootd.seclib default\n",
        // Settings of authorization need the directive that enables it.
        name if name.starts_with("acc.") || name == "ofs.authlib" => "ofs.authorize\n",
        "macaroons.secretkey" => "ofs.authorize\nofs.authlib ++ libXrdMacaroons.so\nall.sitename S\n",
        name if name.starts_with("macaroons.") => {
            "ofs.authorize\nofs.authlib ++ libXrdMacaroons.so\nmacaroons.secretkey /s\nall.sitename S\n"
        }
        // Acting as users needs a login that proves them.
        "ofs.osslib" => "sec.protocol sss\nxrootd.seclib default\n",
        // Settings of a proxy need the library and an origin.
        "pss.origin" => "ofs.osslib libXrdPss.so\n",
        "pss.permit" => "ofs.osslib libXrdPss.so\npss.origin = o.example.org:1094\n",
        name if name.starts_with("multiuser.") => {
            "ofs.osslib ++ libXrdMultiuser.so\nsec.protocol sss\nxrootd.seclib default\n"
        }
        // A certificate needs authorities, and requirements need a certificate.
        "xrd.tls" => "xrd.tlsca noverify\n",
        "xrd.tlsciphers" | "xrootd.tls" => "xrd.tls /c\nxrd.tlsca noverify\n",
        _ => "",
    };
    for directive in every_directive() {
        if directive.always_stops() {
            continue;
        }
        for name in directive.names {
            let loaded =
                load_text(&format!("{name} {}\n{}", directive.example, completed(name)), Strictness::Strict);
            let kinds = kinds(&loaded);
            let says = format!("{name} {}: {}", directive.example, loaded.report);
            match directive.standing {
                Standing::InForce => assert_eq!(kinds, [], "{says}"),
                Standing::NoEffect => assert_eq!(kinds, [ProblemKind::NoEffect], "{says}"),
                Standing::NotYet if directive.guards() => assert!(loaded.report.is_ok(), "{says}"),
                Standing::NotYet if directive.example.is_empty() && directive.grammar != "(flag)" => {
                    assert!(!loaded.report.is_ok(), "no form of it is accepted: {says}");
                }
                Standing::NotYet => {
                    assert_eq!(kinds, [ProblemKind::NotYet], "{says}");
                    let problem = &loaded.report.problems()[0];
                    assert!(!problem.allowed.is_empty() && problem.part.is_some(), "no consequence: {says}");
                }
            }
        }
    }
}

#[test]
fn each_directive_in_force_requires_the_arguments_of_its_grammar() {
    for directive in every_directive().filter(|directive| directive.standing == Standing::InForce) {
        let name = directive.names[0];
        let is_flag = matches!(directive.grammar, "[check time] [path]" | "(flag)");
        if is_flag || matches!(name, "ofs.tpc" | "ofs.authorize" | "pss.cache" | "pss.dca") {
            continue; // All arguments are optional.
        }
        let loaded = load_text(name, Strictness::Strict);
        let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 1, "{name} without arguments");
        assert!(errors[0].starts_with(&format!("f:1:1: error: {name}: ")), "{errors:?}");
        assert!(errors[0].contains("not specified; allowed: "), "{errors:?}");
    }
}

#[test]
fn unknown_names_are_errors_or_warnings_with_the_same_text() {
    for (line, text) in [
        ("xrd.prot 1", "unknown directive 'xrd.prot'; did you mean xrd.port?"),
        ("all.expotr /x", "unknown directive 'all.expotr'; did you mean all.export?"),
        ("XRD.PORT 1", "unknown directive 'XRD.PORT'; there is no prefix 'XRD.'"),
        ("foo.bar 1", "unknown directive 'foo.bar'; there is no prefix 'foo.'"),
        ("ofs.qqqqqqqqqqqqq", "unknown directive 'ofs.qqqqqqqqqqqqq'; no similar directive exists"),
        ("bogus 1", "unknown directive 'bogus'; a directive has the form prefix.name"),
        (
            "xrd.timeout foo",
            "xrd.timeout: unknown option 'foo'; \
            allowed: [read time] [hail time] [idle time] [kill time]",
        ),
        ("xrd.trace conn nope", "xrd.trace: unknown option 'nope'; allowed: {all|off|none|[-]option}…"),
    ] {
        let strict = load_text(line, Strictness::Strict).report;
        let legacy = load_text(line, Strictness::Legacy).report;
        assert!(!strict.is_ok() && legacy.is_ok(), "{line}");
        assert!(strict.to_string().contains(&format!(" error: {text}\n")), "{strict}");
        assert_eq!(strict.to_string().replace(" error: ", " warning: "), legacy.to_string(), "{line}");
    }
    assert_eq!(kinds(&load_text("ssi.svclib x\nodc.role y\n", Strictness::Strict)), []);
}

/// A line, and the beginning of its only error.
const BAD_VALUES: &[(&str, &str)] = &[
    (
        "xrd.port 70000",
        "1:10: error: xrd.port: tcp port 70000 may not be greater than 65535; allowed: port number up to 65535 or the name of a service",
    ),
    ("xrd.port abc", "1:10: error: xrd.port: unable to find tcp service abc; allowed: port"),
    ("xrd.port other", "1:10: error: xrd.port: unable to find tcp service other;"),
    ("xrd.port -1", "1:10: error: xrd.port: unable to find tcp service -1;"),
    (
        "xrd.maxfd 5",
        "1:11: error: xrd.maxfd: maxfd 5 may not be less than 1k; allowed: number[k|m|g|t], 1k to 1m",
    ),
    (
        "xrd.maxfd 2m",
        "1:11: error: xrd.maxfd: maxfd 2m may not be greater than 1m; allowed: number[k|m|g|t], 1k to 1m",
    ),
    (
        "xrd.timeout idle 5x",
        "1:18: error: xrd.timeout: timeout idle 5x is not a number; allowed: number[s|m|h|d]",
    ),
    ("xrd.timeout read 1.5m", "1:18: error: xrd.timeout: timeout read 1.5m is not a number;"),
    ("xrd.sched maxt x", "1:16: error: xrd.sched: maxt x is not a number; allowed: a decimal number"),
    ("xrd.sched mint 8 core big", "1:23: error: xrd.sched: invalid sched core 'big'; allowed: [mint n]"),
    ("xrd.buffers x", "1:13: error: xrd.buffers: buffer memory x is not a number; allowed: number[k|m|g|t]"),
    ("xrd.buffers 1g rint 5", "1:21: error: xrd.buffers: rint 5 may not be less than 5m"),
    ("oss.memfile max 120%", "1:17: error: oss.memfile: memfile max 120% may not be greater than 100"),
    ("oss.memfile check x", "1:19: error: oss.memfile: invalid memfile check 'x'; allowed: [off]"),
    ("xrootd.tlsreuse maybe", "1:17: error: xrootd.tlsreuse: invalid tlsreuse value 'maybe'; allowed: off |"),
    ("all.export *", "1:12: error: only object ids are exported; /tmp is not served instead"),
    ("xrd.timeout hail", "1:1: error: xrd.timeout: timeout hail value not specified; allowed: "),
    (
        "xrd.timeout kill 99999999999999999999",
        "1:18: error: xrd.timeout: timeout kill 99999999999999999999 is not a number",
    ),
    ("xrd.network kaparms 5s,3,x", "1:21: error: xrd.network: kaparms count x is not a number"),
    ("xrd.network kaparms 1,2,3,4", "1:21: error: xrd.network: invalid kaparms value '1,2,3,4'"),
    ("xrd.allow host a*b*", "1:16: error: xrd.allow: invalid host pattern 'a*b*'; allowed: at most one '*'"),
    ("xrd.allow all x", "1:11: error: xrd.allow: invalid allow type 'all'; allowed: {host|netgroup} name"),
    ("all.export data", "1:12: error: all.export: non-absolute export path - data; allowed: a path"),
    ("all.export /a/../b", "1:12: error: all.export: export path /a/../b is not normal;"),
    ("all.role bogus", "1:10: error: all.role: invalid role - bogus; allowed:"),
    ("all.role proxy bogus", "1:10: error: all.role: invalid role - proxy bogus; allowed:"),
    (
        "ofs.maxdelay 5",
        "1:14: error: ofs.maxdelay: maxdelay 5 may not be less than 30s; allowed: number[s|m|h|d], 30s to 365d",
    ),
    ("ofs.xattr maxnsz 7", "1:18: error: ofs.xattr: maxnsz 7 may not be less than 8"),
    ("ofs.xattr maxnsz 300", "1:18: error: ofs.xattr: maxnsz 300 may not be greater than 255"),
    ("ofs.chkpnt maxsz 1k", "1:18: error: ofs.chkpnt: chkpnt maxsz 1k may not be less than 1m"),
    ("ofs.crmode dirs 0:888", "1:17: error: ofs.crmode: mode '888' is invalid; allowed: octal, 0 to 0777"),
    ("ofs.crmode files 0700:0644", "1:18: error: ofs.crmode: mode 0700:0644 demands bits that it forbids"),
    ("ofs.cksrdsz 2g", "1:13: error: ofs.cksrdsz: cksrdsz 2g may not be greater than 1g"),
    ("oss.maxsize abc", "1:13: error: oss.maxsize: maxsize abc is not a number; allowed: number[k|m|g|t]"),
    ("oss.maxsize 10kb", "1:13: error: oss.maxsize: maxsize 10kb is not a number"),
    ("oss.maxsize 9000000t", "1:13: error: oss.maxsize: maxsize 9000000t is not a number"),
    ("oss.spacescan 10", "1:15: error: oss.spacescan: spacescan 10 may not be less than 30s"),
    ("oss.alloc 5 200", "1:13: error: oss.alloc: alloc headroom 200 may not be greater than 100"),
    ("oss.usage", "1:1: error: oss.usage: usage option not specified"),
    ("oss.usage sync 3", "1:11: error: oss.usage: invalid usage option 'sync'; allowed: {nolog"),
    ("oss.usage log", "1:1: error: oss.usage: usage log path not specified"),
    ("oss.usage log /x sync y", "1:23: error: oss.usage: usage sync y is not a number"),
    ("oss.space a/b /x", "1:11: error: oss.space: invalid space name 'a/b'"),
    (
        "oss.namelib libMine.so",
        "1:13: error: oss.namelib: unsupported library 'libMine.so'; write rules instead: scalla.namerule FROM TO",
    ),
    (
        "oss.namelib -lfn2pfn /usr/lib64/XrdName2NameDCP4RUCIO.so pssorigin=localhost",
        "1:22: error: oss.namelib: unsupported library '/usr/lib64/XrdName2NameDCP4RUCIO.so'; write rules instead",
    ),
    ("scalla.namerule /a", "1:1: error: scalla.namerule: namerule to path not specified"),
    ("scalla.namerule /a ../b", "1:20: error: scalla.namerule: non-absolute namerule to path"),
    ("scalla.namerule /a /b/../c", "1:20: error: scalla.namerule: namerule to path /b/../c is not normal"),
    (
        "scalla.namerule /a /b hash",
        "1:23: error: scalla.namerule: invalid name rule 'hash'; allowed: from to",
    ),
    ("scalla.namerule /a /b regex x y", "1:23: error: scalla.namerule: inverse not specified"),
    (
        "scalla.namerule /a /b regex x( y inverse y x",
        "1:29: error: scalla.namerule: invalid pattern: unclosed group",
    ),
    (
        "scalla.namerule /a /b regex x {1} inverse y x",
        "1:29: error: scalla.namerule: invalid pattern: '{1}': the pattern has no group 1",
    ),
    ("scalla.namerule /a /b\nscalla.namerule /a /c", "2:1: error: scalla.namerule: /a is in the rule at"),
    ("scalla.namerule /a /b\nscalla.namerule /c /b/", "2:1: error: scalla.namerule: /b is in the rule at"),
    ("ofs.osslib libXrdPss.so", "1:1: error: the proxy has no origin; set pss.origin host:port"),
    ("ofs.osslib ++ libXrdOssCsi.so", "1:15: error: ofs.osslib: stored page checksums"),
    ("xrd.protocol foo libFoo.so", "1:18: error: xrd.protocol: unsupported library 'libFoo.so'"),
    (
        "xrootd.chksum bogus",
        "1:15: error: xrootd.chksum: checksum 'bogus' is not built in; allowed: adler32 crc32c",
    ),
    ("xrootd.chksum max 0 md5", "1:19: error: xrootd.chksum: max 0 may not be less than 1"),
    (
        "xrootd.redirect h /x",
        "1:17: error: xrootd.redirect: redirect target 'h' is invalid; allowed: host:port",
    ),
    ("xrootd.redirect ::1:1094 /x", "1:17: error: xrootd.redirect: redirect target '::1:1094' is invalid"),
    ("xrootd.redirect h:1 bogus", "1:21: error: xrootd.redirect: invalid redirect function 'bogus'"),
    ("xrootd.tls bogus", "1:12: error: xrootd.tls: invalid tls requirement 'bogus'"),
    ("scalla.drain 2d", "1:14: error: scalla.drain: drain 2d may not be greater than 1d"),
    ("scalla.polling maybe", "1:16: error: scalla.polling: invalid polling 'maybe'; allowed: {on|off}"),
    ("scalla.memory 1m", "1:15: error: scalla.memory: memory 1m may not be less than 64m"),
    ("scalla.logformat xml", "1:18: error: scalla.logformat: invalid log format 'xml'; allowed: {text|json}"),
];

#[test]
fn bad_values_are_errors_with_position_and_allowed_values() {
    for (line, says) in BAD_VALUES {
        let loaded = load_text(line, Strictness::Legacy);
        let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 1, "{line}: {}", loaded.report);
        assert!(errors[0].starts_with(&format!("f:{says}")), "{line}: {}", errors[0]);
    }
    let name = "x".repeat(64);
    assert!(!load_text(&format!("all.sitename {name}"), Strictness::Legacy).report.is_ok());
    assert!(load_text(&format!("all.sitename {}", &name[..63]), Strictness::Strict).report.is_ok());
    let odd = load_text("all.sitename T2_XX-a.b:c<\"&é>", Strictness::Strict);
    assert_eq!(odd.effective.process.site_name.as_deref(), Some("T2_XX-a.b:c......"));
    assert_eq!(kinds(&odd), [ProblemKind::Doubtful]);
}

#[test]
fn values_are_read_in_every_form() {
    let names = load_text("ofs.xattr maxnsz 20", Strictness::Strict).effective.logical.xattr;
    assert_eq!(names.name_bytes_max, 13, "user.U. precedes the client's name");
    let size = |text: &str| {
        load_text(&format!("oss.maxsize {text}"), Strictness::Strict).effective.storage.file_bytes_max.value
    };
    for (text, bytes) in [
        ("1", 1),
        ("2k", 2048),
        ("2K", 2048),
        ("3m", 3 << 20),
        ("1.5g", 1_610_612_736),
        ("1T", 1 << 40),
        (".5k", 512),
        ("1.", 1),
        ("0.3k", 307),
    ] {
        assert_eq!(size(text), Some(bytes), "{text}");
    }
    assert_eq!(size("0"), None);
    let time = |text: &str| {
        load_text(&format!("scalla.drain {text}"), Strictness::Strict).effective.process.drain.as_secs()
    };
    for (text, seconds) in
        [("0", 0), ("45", 45), ("45s", 45), ("2m", 120), ("3h", 10_800), ("1d", 86_400), ("1D", 86_400)]
    {
        assert_eq!(time(text), seconds, "{text}");
    }
    let port =
        |text: &str| load_text(&format!("xrd.port {text}"), Strictness::Strict).effective.network.port.value;
    for (text, expected) in [
        ("1094", Port::Number(1094)),
        ("any", Port::Any),
        ("0", Port::Any),
        ("65535", Port::Number(65_535)),
        ("xroot", Port::Number(1094)),
        ("rootd", Port::Number(1094)),
    ] {
        assert_eq!(port(text), expected, "{text}");
    }
    let alloc = load_text("oss.alloc 1g 50% 5", Strictness::Strict).effective.storage.allocation.value;
    assert_eq!(alloc, Allocation { bytes_min: 1 << 30, headroom_percent: 50, fuzz_percent: 5 });
    let reads = load_text("ofs.cksrdsz 100", Strictness::Strict).effective.logical.checksum_read_bytes.value;
    assert_eq!(reads, 65_536, "rounded up to the unit");
}

#[test]
fn all_problems_are_found_at_once() {
    let text = "xrd.port x\nif\nfoo.bar\nsec.entitylib x\nset a\nall.export y\n";
    let report = load_text(text, Strictness::Strict).report;
    let lines: Vec<u32> = report
        .errors()
        .filter_map(|problem| match &problem.origin {
            Origin::File(position) => Some(position.line),
            _ => None,
        })
        .collect();
    assert_eq!(lines, [2, 2, 1], "directives in an invalid if-fi are not evaluated: {report}");
    let report = load_text(&text.replace("if\n", ""), Strictness::Strict).report;
    assert_eq!(report.errors().count(), 5, "{report}");
    assert_eq!(report.summary(), "5 errors, 0 warnings: does not start. Works: 0 directives.");
}

#[test]
fn redirects_are_read_completely() {
    let text = "xrootd.redirect [::1]:1095 all -stat -locate\n\
                xrootd.redirect h:1%p:2 client private .example.org\nxrootd.redirect h:1 enoent /a /b\n";
    let loaded = load_text(text, Strictness::Strict);
    assert_eq!(loaded.report.problems(), []);
    let redirects = &loaded.effective.protocol.redirects;
    let RedirectWhen::Functions(functions) = &redirects[0].when else { panic!("{redirects:?}") };
    assert_eq!(functions.len(), RedirectFunction::ALL.len() - 2);
    assert!(!functions.contains(&RedirectFunction::Stat));
    assert_eq!(redirects[0].target, RedirectServer { host: "[::1]".to_owned(), port: 1095 });
    assert_eq!(redirects[1].private_target, Some(RedirectServer { host: "p".to_owned(), port: 2 }));
    let RedirectWhen::Clients(clients) = &redirects[1].when else { panic!("{redirects:?}") };
    assert!(matches!(&clients[1], ClientClass::Domain(domain) if domain.matches("a.example.org")));
    assert_eq!(redirects[2].when, RedirectWhen::Missing(vec!["/a".to_owned(), "/b".to_owned()]));
}

#[test]
fn spaces_are_read_completely() {
    let text = "oss.space public /disk1/xrd\noss.space fast /ssd/d* chkmount s1 nofail\noss.cache all /disks/*\n\
                oss.space fast assign /hot /warm\noss.space public default /\n";
    let loaded = load_text(text, Strictness::Strict);
    assert_eq!(kinds(&loaded), []);
    let storage = &loaded.effective.storage;
    let paths: Vec<_> = storage.spaces.iter().map(|s| (s.path.to_str().unwrap(), s.wildcard)).collect();
    assert_eq!(paths, [("/disk1/xrd", false), ("/ssd/d", true), ("/disks/", true)]);
    assert_eq!(storage.spaces[1].mount_check, Some(MountCheck { id: "s1".to_owned(), optional: true }));
    assert!(storage.space_rules[0].assign && !storage.space_rules[1].assign);
}

#[test]
fn two_local_roots_contradict_each_other() {
    let text = "oss.localroot /a\noss.localroot /a/\noss.localroot /b\n";
    let strict = load_text(text, Strictness::Strict);
    assert_eq!(kinds(&strict), [ProblemKind::Contradiction]);
    assert!(!strict.report.is_ok());
    let legacy = load_text(text, Strictness::Legacy);
    assert!(legacy.report.is_ok());
    assert_eq!(legacy.effective.storage.local_root.as_deref(), Some("/b".as_ref()));
}

#[test]
fn extra_arguments_are_ignored_with_a_warning() {
    let loaded = load_text("xrd.port 1095 # ours\n", Strictness::Strict);
    assert_eq!(kinds(&loaded), [ProblemKind::Ignored]);
    assert_eq!(loaded.effective.network.port.value, Port::Number(1095));
}

proptest! {
    #[test]
    fn nothing_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
        let loaded = load(&request, &MemorySource::new().with("f", bytes));
        let _ = (show(&loaded.effective), loaded.report.to_string());
    }

    #[test]
    fn nothing_panics_on_lines_made_of_the_language(
        words in proptest::collection::vec((0..4000usize, any::<bool>()), 0..60)
    ) {
        let extra = ["if", "else", "fi", "continue", "set", "setenv", "=", "$", "${", "$[a]", "\\", "&&", "defined",
            "exec", "named", "*", "-", "%", ":", "/", "1", "99999999999999999999", "-1", "é", ".5k", "tls", "?~A", "f"];
        let known: Vec<&str> = every_directive()
            .flat_map(|d| d.names.iter().copied().chain(d.example.split(' ')).chain(d.grammar.split([' ', '|', '[', ']'])))
            .chain(extra)
            .collect();
        let text: String =
            words.iter().map(|(i, end)| format!("{}{}", known[i % known.len()], if *end { "\n" } else { " " })).collect();
        let loaded = load_text(&text, Strictness::Legacy);
        let _ = (show(&loaded.effective), loaded.report.to_string());
        prop_assert!(!loaded.effective.storage.exports.is_empty());
    }

    #[test]
    fn sizes_and_times_show_as_they_were_written(number in 1u64..1_000_000, unit in 0..5usize) {
        let text = format!("oss.maxsize {number}{}", ["", "k", "m", "g", "t"][unit]);
        let effective = load_text(&text, Strictness::Strict).effective;
        let shown = show(&effective).into_iter().find(|line| line.directive == "oss.maxsize").unwrap();
        let again = load_text(&format!("oss.maxsize {}", shown.value.unwrap()), Strictness::Strict).effective;
        prop_assert_eq!(again.storage.file_bytes_max.value, effective.storage.file_bytes_max.value);
        prop_assert_eq!(effective.storage.file_bytes_max.value, Some(number << (10 * unit)));
    }
}

#[test]
fn settings_of_authorization() {
    let text = "ofs.authorize\nacc.authdb /etc/rules\nacc.authrefresh 2m\nacc.audit grant\nacc.audit deny\n\
                acc.encoding pct path space +\nacc.pathmatch prefix\nacc.gidlifetime 1h\nacc.nisdomain example.org\n";
    let loaded = load_text(text, Strictness::Strict);
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    let values = &loaded.effective.authorization;
    assert!(*values.enabled && values.audit.denials && !values.audit.grants, "the last acc.audit counts");
    assert_eq!(values.encoding.value, RuleEncoding { decode_paths: true, space: Some(b'+') });
    assert_eq!((values.refresh.as_secs(), values.lookup_lifetime.as_secs()), (120, 3600));
    assert_eq!(values.path_match.value, RulePathMatch::Prefix);
    for (line, expected) in [
        ("ofs.authorize 0", "invalid argument '0'"),
        ("ofs.authorize\nacc.audit foo", "invalid audit option 'foo'"),
        ("ofs.authorize\nacc.authrefresh 10", "may not be less than 1m"),
        ("ofs.authorize\nacc.encoding space pct", "invalid encoding space character 'pct'"),
        ("ofs.authorize\nacc.encoding pct name", "invalid encoding pct value 'name'"),
        ("ofs.authorize\nacc.spacechar ++", "invalid spacechar character '++'"),
        ("ofs.authorize\nacc.pathmatch some", "invalid pathmatch value 'some'"),
        ("ofs.authorize\nacc.authdb rules", "acc.authdb"),
        ("acc.authdb /x", "acc.authdb: restricts access or demands encryption, and is not in force without"),
    ] {
        let errors: Vec<String> =
            load_text(line, Strictness::Legacy).report.errors().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{line}: {errors:?}");
    }
}

#[test]
fn name_rules_are_read_and_shown_as_directives() {
    let text = "scalla.namerule /a/ //b\nscalla.namerule /r /data rucio\n\
                scalla.namerule /p / regex ([a-z]+)/(\\\\w{2}.*) {2}/\\$/{1} inverse (.*)/[\\$]/(.*) {2}/{1}\n";
    let loaded = load_text(text, Strictness::Strict);
    assert_eq!(kinds(&loaded), []);
    let rules = &loaded.effective.storage.name_rules;
    assert_eq!(rules[0].to_string(), "/a /b");
    assert_eq!(rules[1].layout, NameLayout::Rucio);
    let NameLayout::Pattern(pair) = &rules[2].layout else { panic!("{rules:?}") };
    assert_eq!(pair.forward.apply(b"x/abc").as_deref(), Some(&b"abc/$/x"[..]));
    assert_eq!(pair.inverse.apply(b"abc/$/x").as_deref(), Some(&b"x/abc"[..]));
    let shown = config::show(&loaded.effective).into_iter().filter_map(|line| {
        (line.directive == "scalla.namerule").then(|| format!("{} {}\n", line.directive, line.value.unwrap()))
    });
    let again = load_text(&shown.collect::<String>(), Strictness::Strict);
    let values = |loaded: &Loaded| -> Vec<_> {
        loaded.effective.storage.name_rules.iter().map(|rule| rule.value.clone()).collect()
    };
    assert_eq!(values(&again), values(&loaded));
}

#[test]
fn there_may_be_64_name_rules() {
    let rules = |count| (0..count).map(|n| format!("scalla.namerule /a{n} /b{n}\n")).collect::<String>();
    assert_eq!(kinds(&load_text(&rules(64), Strictness::Strict)), []);
    let loaded = load_text(&rules(65), Strictness::Strict);
    let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("65:1: error: scalla.namerule: there are more than 64 rules"), "{errors:?}");
}

#[test]
fn accounting_is_read_and_shown_as_a_directive() {
    let read = |text: &str| load_text(text, Strictness::Strict).effective.storage.accounting.value;
    let value = read("oss.usage quotafile /q log /var/u sync 5\noss.usage noquotafile");
    let log = UsageLogConfig { directory: "/var/u".into(), instance: None, changes_per_sync: 5 };
    assert_eq!(value, SpaceAccounting { log: Some(log), quota_file: None });
    for text in [
        "oss.usage log /u quotafile /q",
        "oss.usage log /u sync 7 noquotafile",
        "oss.usage nolog noquotafile",
    ] {
        let loaded = load_text(text, Strictness::Strict);
        assert_eq!(kinds(&loaded), []);
        let line =
            config::show(&loaded.effective).into_iter().find(|line| line.directive == "oss.usage").unwrap();
        assert_eq!(
            read(&format!("oss.usage {}", line.value.unwrap())),
            loaded.effective.storage.accounting.value
        );
    }
}
