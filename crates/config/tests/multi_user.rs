//! Directives of multi-user: the library that enables it, their values, and excluded directives.

use config::*;

const LOGIN: &str = "xrootd.seclib default\nsec.protocol sss\n";

fn read(text: &str) -> Loaded {
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    load(&request, &MemorySource::new().with("f", format!("{text}\n{LOGIN}")))
}

fn values(text: &str) -> MultiUserConfig {
    let loaded = read(text);
    assert_eq!(loaded.report.to_string(), "", "{text}");
    loaded.effective.multi_user
}

#[test]
fn the_library_enables_it_in_each_form() {
    assert!(!*values("").enabled);
    for text in [
        "ofs.osslib ++ libXrdMultiuser.so",
        "ofs.osslib ++ /usr/lib64/libXrdMultiuser-5.so",
        "ofs.osslib libXrdMultiuser.so",
        "xrootd.fslib libXrdMultiuser.so default",
        "xrootd.fslib ++ libXrdMultiuser.so",
        "ofs.osslib ++ libXrdMultiuser.so\nofs.ckslib * libXrdMultiuser.so",
        "ofs.osslib ++ libXrdMultiuser.so\nofs.ckslib ++ libXrdMultiuser.so",
    ] {
        let values = values(text);
        assert!(*values.enabled, "{text}");
        assert_eq!((*values.umask, *values.uid_min, *values.gid_min), (None, 500, 500));
        assert_eq!(*values.checksums, text.contains("ckslib"), "{text}");
    }
}

#[test]
fn values_are_read_and_shown_as_directives() {
    let text =
        "ofs.osslib ++ libXrdMultiuser.so\nmultiuser.umask 0027\nmultiuser.minuid 1000\nmultiuser.mingid 100";
    let loaded = read(text);
    let found = &loaded.effective.multi_user;
    assert_eq!((*found.umask, *found.uid_min, *found.gid_min), (Some(0o27), 1000, 100));
    let shown: Vec<String> = show(&loaded.effective).iter().map(ToString::to_string).collect();
    for line in text.lines() {
        assert!(shown.iter().any(|shown| shown.starts_with(line)), "{line} is not in {shown:#?}");
    }
    let off: Vec<String> = show(&read("").effective).iter().map(ToString::to_string).collect();
    assert!(!off.iter().any(|line| line.contains("multiuser")), "{off:#?}");
}

#[test]
fn wrong_values_and_what_cannot_act_as_users_stop_the_start() {
    for (text, expected) in [
        (
            "multiuser.umask 8",
            "f:1:17: error: multiuser.umask: mode '8' is invalid; allowed: octal, 0 to 0777",
        ),
        ("multiuser.umask 1777", "f:1:17: error: multiuser.umask: mode '1777' is invalid"),
        ("multiuser.minuid -1", "f:1:18: error: multiuser.minuid: minuid -1 is not a number"),
        ("multiuser.mingid 4294967295", "f:1:18: error: multiuser.mingid: "),
        (
            "multiuser.checksumonwrite yes",
            "f:1:27: error: multiuser.checksumonwrite: invalid checksumonwrite value",
        ),
        (
            "ofs.osslib ++ libXrdMultiuser.so\noss.space public /srv",
            "f:2:1: error: oss.space: spaces belong to the server's user, so users cannot create files in them",
        ),
        (
            "ofs.osslib ++ libXrdMultiuser.so\nofs.tpc pgm /bin/true",
            "f:2:1: error: ofs.tpc pgm: the program would write with the rights of the server instead of the user's",
        ),
        (
            "ofs.xattrlib libXrdMultiuser.so",
            "f:1:14: error: ofs.xattrlib: ofs.xattrlib does not act as the user",
        ),
    ] {
        let errors: Vec<String> = read(text).report.errors().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert!(errors[0].starts_with(expected), "{text}: {errors:?}");
    }
}

#[test]
fn doubtful_settings_are_reported() {
    for (text, expected) in [
        (
            "multiuser.umask 022",
            "multiuser.umask has no effect, because operations are made as the server's own user",
        ),
        ("multiuser.minuid 1", "multiuser.minuid has no effect"),
        ("ofs.ckslib * libXrdMultiuser.so", "ofs.ckslib has no effect"),
        (
            "ofs.osslib ++ libXrdMultiuser.so\nsec.protocol unix",
            "with sec.protocol unix each client chooses its user name",
        ),
        (
            "ofs.osslib ++ libXrdMultiuser.so\nxrd.protocol http *\nxrd.tls /c /k\nxrd.tlsca certdir /d",
            "certificates of clients of HTTPS name no accounts, so clients that show one are refused",
        ),
        ("multiuser.checksumonwrite on", "checksums of new files are computed while they are written"),
        ("multiuser.writebuffersize 1m", "data is written as it arrives"),
    ] {
        let report = read(text).report;
        assert!(report.is_ok() && report.to_string().contains(expected), "{text}: {report}");
    }
    let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
    let https = "\nxrd.protocol http *\nxrd.tls /c /k\nxrd.tlsca certdir /d\nhttp.gridmap /m";
    for (more, expected, is_named) in [
        ("", "no client logs in", true),
        (https, "only clients of HTTPS with certificates have names", true),
        ("\nhttp.tlsclientauth off", "no client logs in", true),
    ] {
        let text = format!("ofs.osslib ++ libXrdMultiuser.so{more}");
        let report = load(&request, &MemorySource::new().with("f", &text)).report.to_string();
        assert!(report.contains(expected), "{report}");
        assert_eq!(!report.contains("name no accounts"), is_named, "{report}");
    }
}
