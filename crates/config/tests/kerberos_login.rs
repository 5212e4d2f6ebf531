//! `sec.protocol krb5`: values, errors with their positions, and the values as text.

use config::*;

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", format!("xrootd.seclib default\n{text}\n")))
}

fn options(text: &str) -> Krb5Options {
    let loaded = read(text);
    assert!(loaded.report.is_ok(), "{text}: {}", loaded.report);
    let protocol = loaded.effective.security.protocols[0].value.clone();
    let AuthProtocol::Krb5(options) = protocol else { panic!("{text}") };
    options
}

#[test]
fn options_have_values() {
    let plain = Krb5Options::new("xrootd/h@R".to_owned());
    assert_eq!(options("sec.protocol krb5 xrootd/h@R"), plain);
    let forwarding = Krb5Options { ticket_file: Some(KRB5_TICKET_FILE.to_owned()), ..plain };
    assert_eq!(options("sec.protocol /usr/lib64 krb5 -exptkn xrootd/h@R"), forwarding);
    let all = Krb5Options {
        keytab: Some("/etc/k".into()),
        checks_addresses: true,
        ticket_file: Some("/run/t/<user>".to_owned()),
        principal: "xrootd/<host>".to_owned(),
    };
    assert_eq!(options("sec.protocol krb5 /etc/k -ipchk -exptkn:/run/t/<user> xrootd/<host>"), all);
    assert_eq!(
        options("sec.protparm krb5 -ipchk -exptkn:/run/t/<user>\nsec.protocol krb5 /etc/k xrootd/<host>"),
        all
    );
}

#[test]
fn faults_have_a_position() {
    for (line, expected) in [
        ("sec.protocol krb5", "f:2:14: error: sec.protocol: krb5 has no principal"),
        ("sec.protocol krb5 /etc/k", "f:2:19: error: sec.protocol: krb5 has no principal"),
        ("sec.protocol krb5 p -ipchk", "f:2:21: error: sec.protocol: krb5 has no principal"),
        ("sec.protocol krb5 -ipcheck p", "f:2:19: error: sec.protocol: unknown option '-ipcheck' of krb5"),
        ("sec.protocol krb5 -exptknx p", "unknown option '-exptknx' of krb5"),
        ("sec.protocol krb5 p q", "f:2:19: error: sec.protocol: unknown option 'p' of krb5"),
        ("sec.protocol krb5 a&P=host", "invalid principal 'a&P=host' of krb5"),
        ("sec.protocol krb5 p,fwd", "invalid principal 'p,fwd' of krb5"),
        ("sec.protocol krb5 -exptkn:t/<uid> p", "krb5 ticket file"),
        ("sec.protocol krb5 -exptkn:/t/cc p", "all users of krb5 would share the ticket file '/t/cc'"),
    ] {
        let errors: Vec<String> = read(line).report.errors().map(ToString::to_string).collect();
        assert!(errors.len() == 1 && errors[0].contains(expected), "{line}: {errors:?}");
    }
}
