//! Directives of authentication and signing: values, errors with their positions, and combinations
//! that stop the start.

use config::*;
use std::time::Duration;

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn security(text: &str) -> SecurityConfig {
    let loaded = read(text);
    assert!(loaded.report.is_ok(), "{text}: {}", loaded.report);
    loaded.effective.security
}

/// Returns the errors of a file, one text each.
fn errors(text: &str) -> Vec<String> {
    read(text).report.errors().map(ToString::to_string).collect()
}

#[test]
fn protocols_keep_the_order_of_the_file() {
    let security = security(
        "xrootd.seclib libXrdSec.so\n\
         sec.protparm sss -s /etc/k -l 5\n\
         sec.protparm sss -g\n\
         sec.protocol /usr/lib64 sss -c /home/k -p gsi:krb5 -l 6 -k -r 20 -e bf32\n\
         sec.protocol unix\n",
    );
    assert!(*security.enabled);
    let ids: Vec<_> = security.protocols.iter().map(|protocol| protocol.id()).collect();
    assert_eq!(ids, ["sss", "unix"]);
    let expected = SssOptions {
        server_keytab: Some("/etc/k".into()),
        client_keytab: Some("/home/k".to_owned()),
        wants_credentials: true,
        checks_key_name: true,
        lifetime: Duration::from_secs(360),
        forwarded_protocols: vec!["gsi".to_owned(), "krb5".to_owned()],
        refresh: Duration::from_secs(1200),
    };
    assert_eq!(security.protocols[0].value, AuthProtocol::Sss(expected));
}

#[test]
fn a_protocol_named_twice_is_offered_twice_with_its_first_options() {
    let text = "xrootd.seclib default\nsec.protocol sss -s /a\nsec.protocol unix\nsec.protocol sss -s /b\n";
    let loaded = read(text);
    assert!(loaded.report.to_string().contains("f:4:14: warning: sec.protocol: sss is named twice"));
    let protocols = loaded.effective.security.protocols;
    assert_eq!(protocols.len(), 3);
    assert_eq!(protocols[0].value, protocols[2].value);
}

/// A configuration with encryption and issuers of tokens.
const TOKENS: &str = "xrootd.seclib default\nxrd.tls /c /k\nxrd.tlsca noverify\nofs.authorize\n\
                      ofs.authlib ++ libXrdAccSciTokens.so\n";

#[test]
fn logins_by_tokens_have_options() {
    let options = |line: &str| {
        let protocol = security(&format!("{TOKENS}{line}\n")).protocols[0].value.clone();
        let AuthProtocol::Ztn(options) = protocol else { panic!("{protocol:?}") };
        (options.token_bytes_max, options.expiry, options.library)
    };
    assert_eq!(options("sec.protocol ztn"), (4096, TokenExpiry::Required, TokenLibrary::SciTokens));
    assert_eq!(
        options("sec.protparm ztn -maxsz 8k\nsec.protocol /usr/lib64 ztn -expiry ignore -tokenlib none"),
        (8192, TokenExpiry::Ignore, TokenLibrary::None)
    );
    for library in ["libXrdAccSciTokens.so", "/usr/lib64/libXrdAccSciTokens-5.so"] {
        let found = options(&format!("sec.protocol ztn -maxsz 512k -tokenlib {library}")).2;
        assert_eq!(found, TokenLibrary::SciTokens, "{library}");
    }
    let macaroons = "ofs.authlib ++ libXrdMacaroons.so\nmacaroons.secretkey /s\nall.sitename S\n";
    let found = options(&format!("{macaroons}sec.protocol ztn -tokenlib libXrdMacaroons-5.so"));
    assert_eq!(found.2, TokenLibrary::Macaroons);
    let loaded = read(&format!("{TOKENS}sec.protocol ztn -expiry optional\n"));
    let warning =
        "f:6:26: warning: sec.protocol: ztn -expiry optional: tokens must have an expiry all the same";
    assert!(loaded.report.to_string().contains(warning), "{}", loaded.report);
}

#[test]
fn logins_by_tokens_need_encryption_and_issuers() {
    let without = |lines: &[&str]| {
        let text: String = TOKENS
            .lines()
            .filter(|line| !lines.iter().any(|name| line.starts_with(name)))
            .map(|line| format!("{line}\n"))
            .collect();
        errors(&format!("{text}sec.protocol ztn\n"))
    };
    assert_eq!(without(&[]), [""; 0]);
    let clear = without(&["xrd.tls"]);
    assert_eq!(clear.len(), 1, "{clear:?}");
    assert!(
        clear[0]
            .starts_with("f:4:1: error: sec.protocol ztn: tokens are sent over encrypted connections only")
    );
    assert!(clear[0].contains("add xrd.tls"), "{clear:?}");
    for lines in [&["ofs.authlib"][..], &["ofs.authorize", "ofs.authlib"]] {
        let untrusted = without(lines);
        assert_eq!(untrusted.len(), 1, "{untrusted:?}");
        assert!(untrusted[0].contains("no issuer of tokens is trusted; add ofs.authorize"), "{untrusted:?}");
    }
    let with = |lines: &str| errors(&format!("{TOKENS}{lines}"));
    let macaroons = with("sec.protocol ztn -tokenlib libXrdMacaroons.so\n");
    assert!(macaroons.len() == 1 && macaroons[0].contains("macaroons do not count"), "{macaroons:?}");
    let replaced = "ofs.authlib libXrdMacaroons.so\nmacaroons.secretkey /s\nall.sitename S\nsec.protocol ztn";
    assert_eq!(with(&format!("{replaced} -tokenlib none\n")), [""; 0]);
    assert!(with(&format!("{replaced}\n"))[0].contains("no issuer of tokens is trusted"));
    let open = without(&["xrootd.seclib"]);
    assert!(open.len() == 1 && open[0].contains("xrootd.seclib is missing"), "{open:?}");
}

#[test]
fn bindings_name_hosts_and_protocols() {
    let security = security(
        "xrootd.seclib default\nsec.protocol unix\nsec.protocol sss\n\
         sec.protbind *.Example.org only sss unix\nsec.protbind [::ffff:192.0.2.* none\n\
         sec.protbind localhost host\nsec.protbind * unix\n",
    );
    let texts: Vec<_> = security
        .bindings
        .iter()
        .map(|binding| (binding.hosts.as_str(), binding.protocols.join(" "), binding.only))
        .collect();
    let expected = [
        ("*.example.org", "sss unix", true),
        ("[::ffff:192.0.2.*", "", false),
        ("localhost", "host", false),
        ("*", "unix", false),
    ];
    assert_eq!(texts, expected.map(|(hosts, ids, only)| (hosts, ids.to_owned(), only)));
    assert!(!*security.binding_offers);
}

#[test]
fn host_cancels_the_other_protocols_of_its_list() {
    let loaded = read("xrootd.seclib default\nsec.protocol unix\nsec.protbind * unix host\n");
    assert!(loaded.report.to_string().contains("f:3:1: warning: sec.protbind: host cancels"));
    assert_eq!(loaded.effective.security.bindings[0].protocols, ["host"]);
}

#[test]
fn levels_apply_to_near_and_far_clients() {
    use SigningLevel as L;
    let rule = |level, relaxed, force| SigningRule { level, relaxed, force };
    let head = "xrootd.seclib default\n";
    for (text, local, remote) in [
        ("sec.level standard", rule(L::Standard, false, false), rule(L::Standard, false, false)),
        (
            "sec.level all relaxed pedantic force",
            rule(L::Pedantic, true, true),
            rule(L::Pedantic, true, true),
        ),
        ("sec.level remote intense", rule(L::None, false, false), rule(L::Intense, false, false)),
        (
            "sec.level compatible force\nsec.level remote relaxed standard",
            rule(L::Compatible, false, true),
            rule(L::Standard, true, false),
        ),
    ] {
        let signing = security(&format!("{head}{text}\n")).signing.value;
        assert_eq!((signing.local, signing.remote), (local, remote), "{text}");
    }
    let inverted = read(&format!("{head}sec.level local intense\n"));
    assert!(inverted.report.to_string().contains("local clients must sign more (intense) than remote"));
}

#[test]
fn faults_have_a_position() {
    for (line, expected) in [
        ("sec.protocol host x", "1:19: error: sec.protocol: unknown option 'x' of host"),
        ("sec.protocol unix -d", "1:19: error: sec.protocol: unknown option '-d' of unix"),
        ("sec.protocol sss -x", "1:18: error: sec.protocol: unknown option '-x' of sss"),
        ("sec.protocol sss -s", "1:18: error: sec.protocol: path of sss option '-s' not specified"),
        ("sec.protocol sss -s k", "1:21: error: sec.protocol: non-absolute sss keytab path - k"),
        ("sec.protocol sss -e aes", "1:21: error: sec.protocol: unknown cipher 'aes' of sss"),
        ("sec.protocol sss -l 0", "1:21: error: sec.protocol: sss lifetime 0 may not be less than 1"),
        ("sec.protocol sss -r 9", "1:21: error: sec.protocol: sss refresh 9 may not be less than 10"),
        ("sec.protocol sss -p gsi:", "1:21: error: sec.protocol: invalid list of protocols 'gsi:'"),
        ("sec.protocol ztn -x", "1:18: error: sec.protocol: unknown option '-x' of ztn"),
        ("sec.protocol ztn -maxsz", "1:18: error: sec.protocol: size of ztn option '-maxsz' not specified"),
        ("sec.protocol ztn -maxsz 0", "1:25: error: sec.protocol: ztn token size 0 may not be less than 1"),
        ("sec.protocol ztn -maxsz 513k", "1:25: error: sec.protocol: ztn token size 513k"),
        ("sec.protocol ztn -expiry never", "1:26: error: sec.protocol: invalid expiry 'never' of ztn"),
        (
            "sec.protocol ztn -tokenlib libX.so",
            "1:28: error: sec.protocol: unsupported token library 'libX.so'",
        ),
        ("sec.protocol pwd -a:2", "1:18: error: sec.protocol: unsupported option '-a:2' of pwd"),
        ("sec.protocol pwd -dir:x", "1:18: error: sec.protocol: non-absolute pwd directory path - x"),
        ("sec.protocol pwd -maxfail:0", "1:18: error: sec.protocol: pwd failures 0 may not be less than 1"),
        ("sec.protocol kerberos", "1:14: error: sec.protocol: invalid protocol 'kerberos'"),
        ("sec.protocol ldap", "1:14: error: sec.protocol: unknown protocol 'ldap'"),
        ("sec.protparm sss", "1:1: error: sec.protparm: protocol parameter not specified"),
        ("sec.protparm sss -g", "1:1: error: sec.protparm: there is no sec.protocol sss after it"),
        ("sec.protbind *", "1:1: error: sec.protbind: protbind protocol not specified"),
        ("sec.protbind a*b* unix", "1:14: error: sec.protbind: invalid host pattern 'a*b*'"),
        ("sec.protbind * none unix", "1:21: error: sec.protbind: 'unix' follows none"),
        ("sec.protbind * unix", "1:1: error: sec.protbind: there is no sec.protocol unix"),
        ("sec.bindmode weak", "1:14: error: sec.bindmode: invalid bind mode 'weak'"),
        ("sec.bindtls", "1:1: error: sec.bindtls: protocol name not specified"),
        ("sec.bindtls unix", "1:1: error: sec.bindtls: there is no sec.protocol unix"),
        ("sec.bindtls ldap", "1:13: error: sec.bindtls: unknown protocol 'ldap'"),
        ("sec.bindtls host", "1:13: error: sec.bindtls: 'host' cannot be limited to TLS; it has no"),
        ("sec.entityprogram map", "1:19: error: sec.entityprogram: non-absolute program path - map"),
        ("sec.entityprogram /map", "1:1: error: sec.entityprogram: no client is mapped or refused"),
        ("sec.signdata maybe", "1:14: error: sec.signdata: invalid signature of data 'maybe'"),
        ("sec.signdata on", "1:1: error: sec.signdata: no client has to sign writes; add sec.level intense"),
        (
            "sec.level standard\nsec.signdata on\nxrootd.seclib default",
            "2:1: error: sec.signdata: no client has",
        ),
        ("sec.level weird", "1:11: error: sec.level: invalid security level 'weird'"),
        ("sec.level standard maybe", "1:20: error: sec.level: invalid security level modifier 'maybe'"),
        ("sec.level relaxed all none", "1:19: error: sec.level: invalid security level 'all'"),
        ("sec.entitylib rel/path.so", "1:1: error: sec.entitylib: restricts access"),
        ("xrootd.seclib libOther.so", "1:15: error: xrootd.seclib: unsupported library 'libOther.so'"),
        ("xrootd.seclib libXrdSecgsi.so", "1:15: error: xrootd.seclib: unsupported library"),
        (
            "sec.protocol unix",
            "1:1: error: sec.protocol: clients do not authenticate, because xrootd.seclib is missing",
        ),
        ("sec.level intense", "1:1: error: sec.level: clients do not authenticate"),
    ] {
        let said = errors(line);
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        assert!(said[0].starts_with(&format!("f:{expected}")), "{line}: {}", said[0]);
    }
    let twice =
        errors("xrootd.seclib default\nsec.protocol unix\nsec.protbind a unix\nsec.protbind A none\n");
    assert_eq!(twice, ["f:4:14: error: sec.protbind: 'A' is bound twice; it is bound at f:3:1"]);
}

#[test]
fn faults_of_a_map_of_identities_have_a_position() {
    for (line, expected) in [
        ("sec.entitymap map", "1:15: error: sec.entitymap: non-absolute map path - map"),
        (
            "sec.entitymap /map maybe",
            "1:20: error: sec.entitymap: invalid treatment of clients without a rule 'maybe'",
        ),
        (
            "sec.entitymap /map",
            "1:1: error: sec.entitymap: no client is mapped or refused, because xrootd.seclib is",
        ),
        (
            "sec.entitymap /map refuse\nxrootd.seclib default\nsec.protocol host",
            "1:1: error: sec.entitymap: no client is mapped or refused, because clients are identified by their host",
        ),
    ] {
        let said = errors(line);
        assert_eq!(said.len(), 1, "{line}: {said:?}");
        assert!(said[0].starts_with(&format!("f:{expected}")), "{line}: {}", said[0]);
    }
}

#[test]
fn bindings_that_never_apply_are_reported() {
    let head = "xrootd.seclib default\nsec.protocol unix\n";
    let warnings = |bindings: &str| -> Vec<String> {
        let loaded = read(&format!("{head}{bindings}"));
        loaded.report.to_string().lines().filter(|line| line.contains("never")).map(str::to_owned).collect()
    };
    for (bindings, hidden) in [
        ("sec.protbind *.example.org unix\nsec.protbind h.Example.org none\n", "h.example.org"),
        ("sec.protbind *.example.org unix\nsec.protbind *.a.example.org none\n", "*.a.example.org"),
        ("sec.protbind farm* unix\nsec.protbind farm1*.example.org none\n", "farm1*.example.org"),
        ("sec.protbind 192.0.* unix\nsec.protbind 192.0.2.7 none\n", "192.0.2.7"),
    ] {
        let found = warnings(bindings);
        let text = format!("f:4:1: warning: sec.protbind: '{hidden}' never applies, because '");
        assert!(found.len() == 1 && found[0].starts_with(&text), "{bindings}: {found:?}");
        assert!(found[0].ends_with("(f:3:1) covers it; move it before that line, or remove it"), "{found:?}");
    }
    for bindings in [
        // The narrow one first.
        "sec.protbind h.example.org none\nsec.protbind *.example.org unix\n",
        // `*` is for all others, wherever it is.
        "sec.protbind * unix\nsec.protbind h.example.org none\n",
        "sec.protbind *.example.org unix\nsec.protbind * none\n",
        // The name of the own host is not known here.
        "sec.protbind l* unix\nsec.protbind localhost none\n",
        "sec.protbind localhost unix\nsec.protbind localhost.example.org none\n",
        // Both can match hosts that the other does not.
        "sec.protbind a*c unix\nsec.protbind a*b none\nsec.protbind aa* none\n",
        // A pattern of addresses matches no name.
        "sec.protbind 192.0.* unix\nsec.protbind 192.0.host none\n",
        // The parts of a pattern do not overlap.
        "sec.protbind ab*bc unix\nsec.protbind abc none\n",
    ] {
        assert_eq!(warnings(bindings), [""; 0], "{bindings}");
    }
}

#[test]
fn protocols_can_be_limited_to_encrypted_connections() {
    let tls = "xrd.tls /c\nxrd.tlsca noverify\n";
    let head = "xrootd.seclib default\nsec.protocol unix\nsec.protocol sss -s /k\nsec.bindtls unix\n";
    let loaded = security(&format!("{head}sec.bindtls sss unix\n{tls}"));
    let ids: Vec<_> =
        loaded.tls_protocols.iter().map(|id| (id.value.as_str(), id.origin.to_string())).collect();
    assert_eq!(ids, [("unix", "f:4:1".to_owned()), ("sss", "f:5:1".to_owned())]);
    // Without a certificate there are no encrypted connections.
    let said = errors(head);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("f:4:1: error: sec.bindtls: no client can authenticate by unix"),
        "{}",
        said[0]
    );
}

#[test]
fn parameters_after_their_protocol_are_ignored() {
    let loaded = read("xrootd.seclib default\nsec.protocol sss\nsec.protparm sss -g\n");
    assert!(loaded.report.is_ok());
    assert!(loaded.report.to_string().contains("f:3:14: warning: sec.protparm: it follows sec.protocol sss"));
    assert_eq!(loaded.effective.security.protocols[0].value, AuthProtocol::Sss(SssOptions::default()));
}

#[test]
fn parameters_and_protocols_have_limits() {
    let long = format!("sec.protparm sss -c /{}\n", "k".repeat(900));
    let text = format!("{}sec.protocol sss\nxrootd.seclib default\n", long.repeat(5));
    assert!(errors(&text)[0].contains("the parameters of sss exceed 4096 bytes"));
    let text = format!("xrootd.seclib default\n{}", "sec.protocol unix\n".repeat(AUTH_PROTOCOLS_MAX + 1));
    assert_eq!(errors(&text), ["f:33:14: error: sec.protocol: more than 31 protocols"]);
}

#[test]
fn shown_values_have_the_same_effect() {
    let text = "xrootd.seclib default\nsec.protocol sss -s /k -l 3 -p gsi -r 30 -g -k -c /c\nsec.protocol unix\n\
                sec.protocol ztn -maxsz 8k -expiry ignore -tokenlib none\n\
                sec.protocol krb5 /t -ipchk -exptkn:/c/<user> x/<host>@R\n\
                sec.protocol pwd -dir:/p -maxfail:3\nsec.protocol sss\nsec.protbind a.x only unix\nsec.protbind b.* none\nsec.protbind * unix sss\n\
                sec.bindmode offer\nsec.bindtls unix sss\nsec.level local relaxed none\nsec.level remote intense force\nsec.signdata on\nsec.trace auth\n";
    let before = read(text).effective;
    let shown: Vec<_> = show(&before)
        .into_iter()
        .filter(|line| line.directive.starts_with("sec.") || line.directive == "xrootd.seclib")
        .filter_map(|line| line.value.map(|value| format!("{} {value}\n", line.directive)))
        .collect();
    let after = read(&shown.concat()).effective;
    let values = |security: &SecurityConfig| {
        let protocols: Vec<_> = security.protocols.iter().map(|setting| setting.value.clone()).collect();
        let bindings: Vec<_> = security.bindings.iter().map(|setting| setting.value.clone()).collect();
        let rest = (*security.enabled, *security.binding_offers, *security.signing, *security.signed_data);
        let tls: Vec<_> = security.tls_protocols.iter().map(|setting| setting.value.clone()).collect();
        (protocols, bindings, tls, rest, security.trace.value.clone())
    };
    assert_eq!(values(&before.security), values(&after.security), "{shown:?}");
}

/// S126: a configuration with half of the encryption stops the start at the directive.
#[test]
fn encryption_without_its_parts_stops_the_start() {
    let without_certificate = errors("all.export /\nxrootd.tls login\n").join("\n");
    let expected =
        "2:1: error: xrootd.tls: connections are not encrypted, because xrd.tls is missing; add xrd.tls";
    assert!(without_certificate.contains(expected), "{without_certificate}");
    let without_authorities = errors("xrd.tls /c /k\n").join("\n");
    let expected =
        "1:1: error: xrd.tls: the authorities that this host trusts are not specified; add xrd.tlsca";
    assert!(without_authorities.contains(expected), "{without_authorities}");
    for complete in ["xrd.tls /c /k\nxrd.tlsca noverify\nxrootd.tls login\n", "xrootd.tls none\n"] {
        assert_eq!(errors(complete), [""; 0], "{complete}");
    }
}

/// Clients of HTTPS are asked for certificates, those of the xroot protocol are not.
#[test]
fn authorities_and_rules_for_client_certificates_are_in_force() {
    let read = |options: &str| read(&format!("xrd.tls /c /k\nxrd.tlsca {options}\n"));
    let loaded = read("certdir /a certfile /b");
    assert!(loaded.report.problems().is_empty(), "{}", loaded.report);
    let authorities = loaded.effective.network.tls_authorities.value.clone().unwrap();
    assert_eq!((authorities.directory, authorities.file), (Some("/a".into()), Some("/b".into())));
    let rules = |options: &str| {
        let loaded = read(&format!("certdir /a {options}"));
        assert!(loaded.report.problems().is_empty(), "{}", loaded.report);
        let found = loaded.effective.network.tls_authorities.value.clone().unwrap();
        (found.revocation, found.accepts_proxies, found.depth_max, found.refresh.as_secs())
    };
    assert_eq!(rules(""), (TlsRevocation::Present, true, 9, 8 * 3600));
    assert_eq!(rules("crlcheck last proxies"), (TlsRevocation::Last, true, 9, 8 * 3600));
    let all = "crlcheck all noproxies verdepth 3 refresh 60";
    assert_eq!(rules(all), (TlsRevocation::All, false, 3, 60));
    assert_eq!(rules("allow-missing-crl crlcheck all").0, TlsRevocation::Present);
    for option in ["crlcheck external", "log failure", "log off"] {
        let report = read(&format!("certdir /a {option}")).report;
        let kinds: Vec<_> = report.problems().iter().map(|problem| problem.kind).collect();
        assert_eq!(kinds, [ProblemKind::NoEffect], "{option}: {report}");
    }
    for (options, expected) in [
        ("certdir /a crlcheck some", "2:31: error: xrd.tlsca: invalid crlcheck value 'some'"),
        ("certdir /a log on", "2:26: error: xrd.tlsca: invalid log value 'on'"),
        ("certdir /a refresh 59", "2:30: error: xrd.tlsca: refresh 59 may not be less than 1m"),
        ("certdir /a verdepth 256", "2:31: error: xrd.tlsca: verdepth 256 may not be greater than 255"),
        ("certdir /a verdepth 0", "2:31: error: xrd.tlsca: verdepth 0 may not be less than 1"),
        ("certdir /a other", "2:22: error: xrd.tlsca: invalid tlsca parameter 'other'"),
        ("certdir a", "2:19: error: xrd.tlsca: non-absolute certdir path - a"),
        ("crlcheck all", "2:1: error: xrd.tlsca: neither certdir nor certfile specified"),
        ("", "2:1: error: xrd.tlsca: tlsca parameter not specified"),
    ] {
        let found = read(options).report;
        let found: Vec<_> = found.errors().map(ToString::to_string).collect();
        assert!(found.iter().any(|error| error.contains(expected)), "{options}: {found:?}");
    }
}
