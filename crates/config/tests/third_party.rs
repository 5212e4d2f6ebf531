//! `ofs.tpc`: each option, accumulation, errors, and output.

use config::*;
use std::time::Duration;

fn load_text(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", text))
}

fn value(text: &str) -> ThirdPartyCopy {
    let loaded = load_text(text);
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    loaded.effective.logical.third_party.value.expect("it is on")
}

#[test]
fn third_party_copies_are_off_by_default() {
    assert_eq!(load_text("").effective.logical.third_party.value, None);
    assert_eq!(value("ofs.tpc\n"), ThirdPartyCopy::default());
}

#[test]
fn each_option_takes_effect() {
    let all = value(
        "ofs.tpc ttl 60 2m xfr 4 streams 3,8 cksum adler32 echo logok oids scan stderr restrict /a restrict /b/c\n\
         ofs.tpc allow host *.example.org allow dn /CN=x vo atlas require client gsi require dest krb5+ require all sss\n\
         ofs.tpc redirect delegated d.example.org:1094 redirect undelegated [fd00::1]:2000 a=b\n\
         ofs.tpc pgm /usr/bin/xrdcp --server -f\n",
    );
    assert_eq!((all.ttl, all.ttl_max), (Duration::from_secs(60), Duration::from_secs(120)));
    assert_eq!((all.jobs_max, all.streams, all.streams_max), (4, 3, 8));
    assert_eq!(all.checksum, Some(ChecksumKind::Adler32));
    assert!(all.echo && all.log_success && all.object_ids && all.scan == CopyScan::Stderr);
    assert_eq!(all.restrict, ["/a", "/b/c"]);
    assert_eq!(all.allow[0].host.as_ref().map(HostPattern::as_str), Some("*.example.org"));
    let attributes =
        [(CopyAttribute::Subject, "/CN=x".to_owned()), (CopyAttribute::Organization, "atlas".to_owned())];
    assert_eq!((&all.allow[1].host, all.allow[1].attributes.as_slice()), (&None, attributes.as_slice()));
    let rules: Vec<_> =
        all.require.iter().map(|r| (r.client, r.destination, r.protocol.as_str(), r.encrypted)).collect();
    assert_eq!(rules, [(true, false, "gsi", false), (false, true, "krb5", true), (true, true, "sss", false)]);
    assert!(all.redirects[0].delegated && !all.redirects[0].undelegated);
    assert_eq!((all.redirects[1].target.host.as_str(), all.redirects[1].cgi.as_str()), ("[fd00::1]", "a=b"));
    let credentials = |text| value(text).credentials.map(|found| (found.variable, found.is_optional));
    assert_eq!(all.credentials, None);
    assert_eq!(credentials("ofs.tpc fcreds gsi =X509_USER_PROXY\n"), Some(("X509_USER_PROXY".into(), false)));
    for text in ["ofs.tpc fcreds ?gsi =X\n", "ofs.tpc fcreds ? gsi =X\n"] {
        assert_eq!(credentials(text), Some(("X".into(), true)), "{text}");
    }
    let program = all.program.expect("a program");
    assert_eq!(program.path.to_str(), Some("/usr/bin/xrdcp"));
    assert_eq!(program.arguments, ["--server", "-f"]);
}

#[test]
fn the_shown_directive_has_the_same_effect() {
    for text in [
        "ofs.tpc",
        "ofs.tpc ttl 5 restrict /a cksum md5 streams 2,9 allow host a dn x require all gsi+ echo scan stdout pgm /x/y z",
        "ofs.tpc fcreds ?gsi =X fcpath /p",
        "ofs.tpc fcreds gsi =Y",
        "ofs.tpc redirect undelegated h:1 ?a=b redirect g:2 oids logok xfr 1",
    ] {
        let first = load_text(text);
        let lines = show(&first.effective);
        let line = lines.iter().find(|line| line.directive == "ofs.tpc").expect("it is shown");
        let again = format!("ofs.tpc {}\n", line.value.as_deref().expect("a value"));
        assert_eq!(value(&again), value(text), "{again}");
    }
}

#[test]
fn invalid_options_are_refused_with_a_position() {
    for (text, says) in [
        ("ofs.tpc ttl x", "ttl"),
        ("ofs.tpc ttl 20 10", "ttl max"),
        ("ofs.tpc xfr 0", "xfr"),
        ("ofs.tpc streams 16", "streams '16' is invalid"),
        ("ofs.tpc streams 5,4", "the default exceeds the maximum"),
        ("ofs.tpc cksum foo", "'foo' is not built in"),
        ("ofs.tpc restrict data", "non-absolute"),
        ("ofs.tpc allow", "allow type not specified"),
        ("ofs.tpc allow host *a*", "invalid host pattern"),
        ("ofs.tpc require server gsi", "require entity"),
        ("ofs.tpc require all +", "require protocol"),
        ("ofs.tpc scan err", "scan value"),
        ("ofs.tpc pgm", "pgm path not specified"),
        ("ofs.tpc redirect h", "redirect target"),
        ("ofs.tpc fcreds gsi X", "fcreds variable"),
        ("ofs.tpc fcreds gsi =", "fcreds variable"),
        ("ofs.tpc fcreds gsi =X=Y", "fcreds variable"),
        ("ofs.tpc logko", "unknown option"),
    ] {
        let loaded = load_text(text);
        let errors: Vec<String> = loaded.report.errors().map(ToString::to_string).collect();
        assert!(
            errors.len() == 1 && errors[0].starts_with("f:1:") && errors[0].contains(says),
            "{text}: {errors:?}"
        );
    }
}

#[test]
fn options_not_in_force_are_reported() {
    let kinds = |text: &str| -> Vec<ProblemKind> {
        load_text(text).report.problems().iter().map(|problem| problem.kind).collect()
    };
    assert_eq!(kinds("ofs.tpc fcreds ?krb5 =KRB5CCNAME\n"), [ProblemKind::NotYet]);
    assert_eq!(kinds("ofs.tpc fcreds ? krb5 =X\n"), [ProblemKind::NotYet]);
    assert!(kinds("ofs.tpc fcreds ?gsi =X509_USER_PROXY fcpath /x\n").is_empty());
    assert_eq!(kinds("ofs.tpc autorm\n"), [ProblemKind::NoEffect]);
    assert!(kinds("ofs.tpc allow group x dn /CN=y vo z\n").is_empty());
    assert!(kinds("ofs.tpc allow host x ttl 5 xfr 3 restrict /a require client host\n").is_empty());
}
