//! `sec.protocol gsi` and the directives `gsi.`: values, errors with their positions, and options that
//! stop the start.

use config::*;
use std::path::PathBuf;
use std::time::Duration;

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", format!("xrootd.seclib default\n{text}\n")))
}

fn options(text: &str) -> GsiOptions {
    let loaded = read(text);
    assert!(loaded.report.is_ok(), "{text}: {}", loaded.report);
    let AuthProtocol::Gsi(options) = loaded.effective.security.protocols[0].value.clone() else {
        panic!("{text}")
    };
    *options
}

fn errors(text: &str) -> Vec<String> {
    read(text).report.errors().map(ToString::to_string).collect()
}

#[test]
fn options_have_values() {
    assert_eq!(options("sec.protocol gsi"), GsiOptions::default());
    let found = options(
        "sec.protparm gsi -certdir:/a,/b -cert:/c -key:/k -c:ssl -d:2\n\
         sec.protparm gsi -cipher:aes-128-cbc -md:sha512:sha256 -ca:2 -crl:require -crldir:/d -crlext:.pem\n\
         sec.protocol /usr/lib64 gsi -crlrefresh:600 -gridmap:/m -gmapopt:11 -gmapto:60 -authzpxy:endor=fullchain \
         -moninfo:1 -showdn:1 -defaulthash -dlgpxy:1 -exppxy:/p/<user>-<vo> -vomsat:ignore -trustdns:false",
    );
    let expected = GsiOptions {
        authorities: vec!["/a".into(), "/b".into()],
        certificate: "/c".into(),
        key: "/k".into(),
        ciphers: vec![GridCipher::Aes128],
        digests: vec!["sha512".to_owned(), "sha256".to_owned()],
        authority_check: AuthorityCheck::Verify,
        revocation: RevocationCheck::Require,
        downloads_lists: false,
        revocation_directories: vec!["/d".into()],
        revocation_extension: ".pem".to_owned(),
        refresh: Duration::from_secs(600),
        map: Some(PathBuf::from("/m")),
        mapping: GridMapping::Try,
        names_by_subject: true,
        map_refresh: Duration::from_secs(60),
        voms: None,
        name_file: None,
        vo_names: None,
        forwarding: Some(GridForwarding { as_endorsements: true, is_full: true }),
        asks_for_proxy: true,
        export: Some(GridExport::File("/p/<user>-<vo>".to_owned())),
        monitors_subject: true,
        logs_subject: true,
        new_hash_only: true,
    };
    assert_eq!(found, expected);
}

#[test]
fn words_and_numbers_mean_the_same() {
    for (name, number) in [("ignore", "0"), ("try", "1"), ("use", "2"), ("require", "3")] {
        let of = |value| options(&format!("sec.protocol gsi -crl:{value}")).revocation;
        assert_eq!(of(name), of(number), "{name}");
    }
    for (name, number) in [("use,updt", "12"), ("require,updt", "13")] {
        let of = |value| options(&format!("sec.protocol gsi -crl:{value}"));
        assert_eq!(of(name), of(number), "{name}");
        assert!(of(name).downloads_lists && Some(of(name).revocation.name()) == name.strip_suffix(",updt"));
    }
    for (name, number) in [("noverify", "0"), ("verifyss", "1"), ("verify", "2")] {
        let of = |value| options(&format!("sec.protocol gsi -ca:{value}")).authority_check;
        assert_eq!(of(name), of(number), "{name}");
    }
    for (name, number) in
        [("nomap", "0"), ("trymap", "1"), ("usemap", "2"), ("nomap,usedn", "10"), ("trymap,usedn", "11")]
    {
        let of = |value| {
            let options = options(&format!("sec.protocol gsi -gmapopt:{value}"));
            (options.mapping, options.names_by_subject)
        };
        assert_eq!(of(name), of(number), "{name}");
    }
    for (name, number) in [("ignore", "0"), ("request", "1")] {
        let of = |value| options(&format!("sec.protocol gsi -dlgpxy:{value}")).asks_for_proxy;
        assert_eq!(of(name), of(number), "{name}");
    }
    let export = |value| options(&format!("sec.protocol gsi -exppxy:{value}")).export.unwrap();
    assert_eq!(export("=default"), export("/tmp/x509up_u<uid>"));
    assert_eq!(export("=creds"), GridExport::Credentials);
    let forwarding = |value| options(&format!("sec.protocol gsi -authzpxy{value}")).forwarding.unwrap();
    assert_eq!(forwarding(""), forwarding(":creds=lastcert"));
}

#[test]
fn faults_have_a_position() {
    for (option, expected) in [
        ("-x", "unknown option '-x' of gsi"),
        ("-x:1", "unknown option '-x:1' of gsi"),
        ("-cert:", "unknown option '-cert:' of gsi"),
        ("-cert:rel", "non-absolute gsi path - rel"),
        ("-c:other", "unknown option '-c:other' of gsi"),
        ("-cipher:aes-256-cbc:bf-cbc", "invalid option '-cipher:aes-256-cbc:bf-cbc' of gsi"),
        ("-md:crc", "invalid option '-md:crc' of gsi"),
        ("-crl:4", "invalid option '-crl:4' of gsi"),
        ("-crl:11", "invalid option '-crl:11' of gsi"),
        ("-crl:try,updt", "invalid option '-crl:try,updt' of gsi"),
        ("-ca:3", "invalid option '-ca:3' of gsi"),
        ("-gmapopt:12", "invalid option '-gmapopt:12' of gsi"),
        ("-gmapopt:trymap,x", "invalid option '-gmapopt:trymap,x' of gsi"),
        ("-authzpxy:x", "invalid option '-authzpxy:x' of gsi"),
        ("-vomsat:3", "invalid option '-vomsat:3' of gsi"),
        ("-vomsfunparms:grpopt=3", "invalid option '-vomsfunparms:grpopt=3' of gsi"),
        ("-vomsfunparms:vos=", "invalid option '-vomsfunparms:vos=' of gsi"),
        ("-vomsfunparms:x", "invalid option '-vomsfunparms:x' of gsi"),
        ("-vomsx:1", "unknown option '-vomsx:1' of gsi"),
        ("-gmapto:0", "gsi time 0 may not be less than 1"),
        ("-crlext:r0", "unknown option '-crlext:r0' of gsi"),
        ("-dlgpxy:2", "invalid option '-dlgpxy:2' of gsi"),
        ("-exppxy:/p/proxy", "invalid option '-exppxy:/p/proxy' of gsi"),
        ("-exppxy:/p/<user><x>", "invalid option '-exppxy:/p/<user><x>' of gsi"),
        ("-exppxy:<user>", "non-absolute gsi path - <user>"),
    ] {
        let found = errors(&format!("sec.protocol gsi {option}"));
        assert_eq!(found.len(), 1, "{option}: {found:?}");
        assert!(found[0].starts_with(&format!("f:2:18: error: sec.protocol: {expected}")), "{}", found[0]);
    }
    assert!(errors("gsi.minrsa 1024")[0].contains("key size 1024 may not be less than 2048"));
    assert!(errors("gsi.limited maybe")[0].contains("invalid use of limited proxies 'maybe'"));
    assert!(errors("gsi.proxytypes draft")[0].contains("invalid proxy type 'draft'"));
}

#[test]
fn plug_ins_of_names_stand_for_the_code_of_this_server() {
    let found = options(
        "sec.protparm gsi -gmapfunparms:/n|d -authzcall:novoms\n\
         sec.protocol gsi -gmapfun:/usr/lib64/libXrdSecgsiGMAPDN.so -authzto:60 -authzfun:libXrdSecgsiAUTHZVO.so \
         -authzfunparms:debug=1&valido=cms,atlas&vo2grp=g-%s&vo2usr=%susr",
    );
    assert_eq!(found.name_file, Some(PathBuf::from("/n")));
    let names = GridVoNames {
        organizations: vec!["cms".to_owned(), "atlas".to_owned()],
        group: Some("g-%s".to_owned()),
        user: GridVoUser::Format("%susr".to_owned()),
        only_without_attributes: true,
    };
    assert_eq!(found.vo_names, Some(names));
    let found = options("sec.protocol gsi -authzfun:libXrdSecgsiAUTHZVO.so -authzfunparms:vo2usr=*");
    assert_eq!(found.vo_names.map(|names| names.user), Some(GridVoUser::Unchanged));
    let found = options("sec.protocol gsi -authzfun:libXrdSecgsiAUTHZVO.so");
    assert_eq!(found.vo_names, Some(GridVoNames::default()));
    for wrong in [
        "-gmapfun:libXrdSecgsiGMAPDN.so",
        "-gmapfunparms:/n",
        "-gmapfun:libXrdSecgsiGMAPDN.so -gmapfunparms:n",
        "-gmapfun:libXrdSecgsiGMAPDN.so -gmapfunparms:/n|/m",
        "-authzfunparms:vo2usr=*",
        "-authzto:x",
        "-authzcall:sometimes",
        "-authzfun:libXrdSecgsiAUTHZVO.so -authzfunparms:valido=",
        "-authzfun:libXrdSecgsiAUTHZVO.so -authzfunparms:vo2usr=alice",
        "-authzfun:libXrdSecgsiAUTHZVO.so -authzfunparms:vo2grp=%s%s",
        "-authzfun:libXrdSecgsiAUTHZVO.so -authzfunparms:vo2grp=%d-%s",
        "-authzfun:libXrdSecgsiAUTHZVO.so -authzfunparms:other=1",
    ] {
        let found = errors(&format!("sec.protocol gsi {wrong}"));
        assert_eq!(found.len(), 1, "{wrong}: {found:?}");
    }
}

#[test]
fn options_that_are_not_in_force_stop_the_start() {
    for option in ["-gmapfun:libX.so", "-authzfun:libX.so", "-vomsfun:libOther.so"] {
        let report = read(&format!("sec.protocol gsi {option}")).report;
        let kinds: Vec<_> = report.errors().map(|problem| problem.kind).collect();
        assert_eq!(kinds, [ProblemKind::Unprotected], "{option}: {report}");
    }
    for line in ["gsi.nobodyknows 1", "voms.nobodyknows 1"] {
        let report = read(line).report;
        let kinds: Vec<_> = report.errors().map(|problem| problem.kind).collect();
        assert_eq!(kinds, [ProblemKind::Unprotected], "{line}: {report}");
    }
}

#[test]
fn hosts_of_old_clients_accumulate() {
    let gsi =
        "sec.protocol gsi\ngsi.compat olddh *.old.org\ngsi.compat olddh 10.1.*\nxrootd.seclib default\n";
    let read = read(gsi);
    assert!(read.report.is_ok(), "{}", read.report);
    assert_eq!(*read.effective.security.grid_old_clients, ["*.old.org", "10.1.*"]);
    for (line, expected) in [
        ("gsi.compat olddh", "2:1: error: gsi.compat: host pattern not specified"),
        ("gsi.compat newdh *", "2:12: error: gsi.compat: invalid mode 'newdh'"),
        ("gsi.compat olddh * x", "f:2:20: "),
        ("gsi.compat olddh *", "2:1: warning: gsi.compat has no effect, because no client can log in by gsi"),
    ] {
        let report = self::read(line).report.to_string();
        assert!(report.contains(expected), "{line}: {report}");
    }
}

#[test]
fn options_that_are_not_in_force_name_the_remedy() {
    for (line, remedy) in [
        ("sec.protocol gsi -gmapfun:libX.so", "sec.entityprogram"),
        ("sec.protocol gsi -authzfun:libX.so", "sec.entityprogram"),
        ("sec.protocol gsi -vomsfun:libOther.so", "-vomsfun:default"),
        ("sec.protocol gsi -trustdns:1", "remove it"),
        ("sec.protocol pwd -a:1", "xrdpwdadmin add USER -random -change"),
        ("sec.protocol pwd -a:2", "xrdpwdadmin add USER -random -change"),
        ("sec.protocol pwd -upwd:2", "xrdpwdadmin add"),
        ("sec.protocol pwd -syspwd", "xrdpwdadmin add"),
        ("sec.protocol pwd -expcreds:/x", "passwords of users are not stored"),
        ("sec.entitylib libX.so", "sec.entityprogram"),
        ("all.seclib libXrdSec.so", "scalla.clusterkey"),
        ("xrd.port tls 1094", "xrootd.tls all"),
        ("xrd.network tls", "xrootd.tls all"),
        ("xrd.protocol tls xrootd *", "xrootd.tls all"),
        ("cms.allow netgroup storage", "name the hosts"),
    ] {
        let report = read(line).report;
        let errors: Vec<_> = report.errors().collect();
        assert_eq!(errors.len(), 1, "{line}: {report}");
        assert!(errors[0].allowed.contains(remedy), "{line}: {report}");
    }
}

#[test]
fn attributes_of_voms_are_used_if_an_option_asks_for_them() {
    let voms = |text: &str| {
        let effective = read(text).effective;
        match &effective.security.protocols[0].value {
            AuthProtocol::Gsi(options) => options.voms.clone(),
            other => panic!("{other:?}"),
        }
    };
    let default = VomsOptions::default();
    assert_eq!(voms("sec.protocol gsi"), None);
    assert_eq!(voms("sec.protocol gsi -vomsfunparms:vos=cms"), None);
    assert_eq!(voms("sec.protocol gsi -vomsfun:default -vomsat:0"), None);
    assert_eq!(voms("sec.protocol gsi -vomsfun:/usr/lib/libXrdVoms.so"), Some(default.clone()));
    assert_eq!(voms("sec.protocol gsi -vomsat:extract"), Some(default.clone()));
    let text = "sec.protparm gsi -vomsfunparms:certfmt=raw|grpopt=10|vos=cms,atlas\n\
                sec.protparm gsi -vomsfunparms:grps=/cms|vofmt=<vo>-<g>|dbg\n\
                sec.protocol gsi -vomsat:2";
    let expected = VomsOptions {
        is_required: true,
        choice: VomsGroups::First,
        groups: vec!["/cms".to_owned()],
        organizations: vec!["cms".to_owned(), "atlas".to_owned()],
        organization_format: Some("<vo>-<g>".to_owned()),
        ..default
    };
    assert_eq!(voms(text), Some(expected));
}

#[test]
fn a_map_of_groups_that_nothing_uses_is_reported() {
    let problems =
        |text: &str| -> Vec<_> { read(text).report.problems().iter().map(ToString::to_string).collect() };
    assert_eq!(problems("voms.mapfile /v\nsec.protocol gsi -vomsat:extract"), [""; 0]);
    for text in [
        "voms.mapfile /v\nsec.protocol gsi",
        "voms.mapfile /v\nsec.protocol gsi -vomsat:0",
        "voms.mapfile /v",
    ] {
        let problems = problems(text);
        let [problem] = problems.as_slice() else { panic!("{text}: {problems:?}") };
        assert!(
            problem.contains("voms.mapfile has no effect, because attributes of VOMS are not used"),
            "{problem}"
        );
    }
}

#[test]
fn sources_of_lists_that_are_not_downloaded_are_reported() {
    let problems =
        |text: &str| -> Vec<_> { read(text).report.problems().iter().map(ToString::to_string).collect() };
    let line = "gsi.crlsource allow loopback\nsec.protocol gsi";
    assert_eq!(problems(&format!("{line} -crl:12")), [""; 0]);
    let problems = problems(&format!("{line} -crl:2"));
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(problem.contains("gsi.crlsource has no effect"), "{problem}");
    assert!(errors("gsi.crlsource maybe x")[0].contains("invalid list 'maybe'"));
}

#[test]
fn shown_values_have_the_same_effect() {
    let text = "sec.protocol gsi -certdir:/a,/b -crldir:/d -ca:0 -crl:require,updt -gridmap:/m -gmapopt:usemap,usedn -authzpxy \
                -dlgpxy:1 -exppxy:/p/<vo>/<user> -moninfo -showdn:1 -defaulthash -vomsat:require -gmapfun:libXrdSecgsiGMAPDN.so -gmapfunparms:/n -authzfun:libXrdSecgsiAUTHZVO.so \
                -authzfunparms:valido=a,b&vo2grp=%s&vo2usr=* -authzcall:0 \
                -vomsfunparms:grpopt=uselast|grps=/a/b|vos=a|grpfmt=<g>|rolefmt=<r>|vofmt=<an> -cipher:aes-128-cbc:aes-256-cbc\n\
                gsi.limited full\ngsi.proxytypes rfc legacy\ngsi.minrsa 3072\ngsi.crlsource allow loopback *.example.org\n\
                gsi.compat olddh a.org\ngsi.compat olddh *.b.org\nvoms.mapfile /v";
    let before = read(text).effective;
    let shown: Vec<_> = show(&before)
        .into_iter()
        .filter(|line| {
            line.directive.starts_with("gsi.")
                || line.directive.starts_with("voms.")
                || line.directive == "sec.protocol"
        })
        .filter_map(|line| line.value.map(|value| format!("{} {value}\n", line.directive)))
        .collect();
    let after = read(&shown.concat()).effective;
    let values = |effective: &Effective| {
        let security = &effective.security;
        let protocol = security.protocols[0].value.clone();
        let map = security.voms_map.value.clone();
        let sources = security.grid_list_sources.value.clone();
        (protocol, *security.grid_limited, *security.grid_legacy, *security.grid_key_bits, map, sources)
    };
    assert_eq!(values(&before), values(&after), "{shown:?}");
    assert_eq!((values(&before).1, values(&before).2, values(&before).3), (GridLimited::Full, true, 3072));
}
