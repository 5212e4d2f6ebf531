//! Tests of the files of keys and certificates in `scalla config check`.

#![allow(clippy::unwrap_used)] // a test fails where it is

mod support;

use auth::tls::SelfSigned;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime};
use support::{Scratch, is_root, run, stderr, stdout};

const DAY: Duration = Duration::from_secs(86_400);

/// Returns the directive for a new certificate in a directory that was made so many days ago. It is
/// valid for a year.
fn certificate(directory: &Path, days: u32) -> String {
    certificate_of(directory, SystemTime::now() - DAY * days)
}

/// Returns the directive for a new certificate that is valid from this time.
fn certificate_of(directory: &Path, begin: SystemTime) -> String {
    fs::create_dir_all(directory).unwrap();
    let files = SelfSigned::create(directory, &["h.example.org".to_owned()], begin).unwrap().files;
    format!("xrd.tls {} {}\nxrd.tlsca noverify\n", files.certificate.display(), files.key.unwrap().display())
}

/// Writes a key table and returns the directives for it. `expires` is in seconds since 1970.
fn keytab(scratch: &Scratch, expires: u64, mode: u32) -> String {
    let path = scratch
        .write("keytab", format!("0 u:tester g:users n:site N:7 c:1 e:{expires} k:{}\n", "a7".repeat(32)));
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    format!("xrootd.seclib default\nsec.protocol sss -s {}\n", path.display())
}

/// Checks a configuration with these lines for credentials.
fn check(scratch: &Scratch, lines: &str, options: &[&str]) -> Output {
    let text = format!("oss.localroot {}\nall.export / r/o\n{lines}", scratch.text("data"));
    let file = scratch.write("site.cfg", text);
    run("scalla", scratch, &[&["config", "check", file.to_str().unwrap()], options].concat())
}

/// Checks these lines, and asserts the result and the texts about it.
fn expect(scratch: &Scratch, lines: &str, is_good: bool, expected: &[&str]) {
    let output = check(scratch, lines, &[]);
    let text = stdout(&output);
    assert_eq!(output.status.success(), is_good, "{lines}{text}{}", stderr(&output));
    for part in expected {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(expected.is_empty(), text.trim_end().ends_with(": good"), "{text}");
}

#[test]
fn certificates_that_cannot_be_used_are_reported() {
    let scratch = Scratch::new("credentials-tls");
    let directory = scratch.path("tls");
    let good = certificate(&directory, 0);
    expect(&scratch, &good, true, &[]);
    let of_days = |days| certificate(&scratch.path(&format!("tls{days}")), days);
    let soon = ["warning: xrd.tls: the certificate ", "expires in 19 days and 23 hours; replace the file"];
    expect(&scratch, &of_days(345), true, &soon);
    expect(&scratch, &of_days(366), false, &["error: xrd.tls: the certificate ", "has expired"]);
    let early = certificate_of(&scratch.path("early"), SystemTime::now() + DAY);
    expect(&scratch, &early, true, &["warning: xrd.tls: the certificate ", "is not valid yet"]);
    let key = directory.join("self-signed.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    expect(&scratch, &good, false, &["site.cfg:3:", "allow others to read the key; run chmod 600 "]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    // The key of another certificate.
    fs::copy(scratch.path("tls345").join("self-signed.key"), &key).unwrap();
    expect(&scratch, &good, false, &["it is not the key of the certificate in "]);
    fs::remove_file(&key).unwrap();
    expect(&scratch, &good, false, &["error: xrd.tls: cannot read ", "no such file"]);
}

#[test]
fn keys_of_logins_are_examined() {
    let scratch = Scratch::new("credentials-keys");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let day = DAY.as_secs();
    expect(&scratch, &keytab(&scratch, 0, 0o600), true, &[]);
    expect(&scratch, &keytab(&scratch, now + 31 * day, 0o600), true, &[]);
    let soon = ["warning: sec.protocol sss: ", "the key 7 (site, user tester) expires in 9 days"];
    expect(&scratch, &keytab(&scratch, now + 10 * day - 60, 0o600), true, &soon);
    expect(
        &scratch,
        &keytab(&scratch, now - day, 0o600),
        true,
        &["the key 7 (site, user tester) has expired"],
    );
    expect(&scratch, &keytab(&scratch, 0, 0o644), false, &["site.cfg:4:", "sss", "run chmod 600 "]);
    let pwd = format!("xrootd.seclib default\nsec.protocol pwd -dir:{}\n", scratch.text("data"));
    expect(&scratch, &pwd, false, &["error: sec.protocol: pwd: cannot read ", "pwdadmin"]);
    let gsi = format!("xrootd.seclib default\nsec.protocol gsi -certdir:{}\n", scratch.text("data"));
    expect(&scratch, &gsi, false, &["error: sec.protocol: gsi: ", "there is no certificate authority"]);
    let authorities = format!("xrd.tlsca certdir {}\n", scratch.text("data"));
    expect(&scratch, &authorities, true, &["warning: xrd.tlsca: no certificate authority found in "]);
}

#[test]
fn problems_of_keys_are_json_objects() {
    let scratch = Scratch::new("credentials-json");
    let output = check(&scratch, &keytab(&scratch, 0, 0o644), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let objects: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [problem] = objects.as_slice() else { panic!("{objects:?}") };
    assert_eq!((&problem["severity"], &problem["origin"]["line"]), (&"error".into(), &4.into()));
    assert!(problem["what"].as_str().unwrap().contains("run chmod 600 "), "{problem}");
}

#[test]
fn files_are_examined_as_the_user_of_the_server() {
    let scratch = Scratch::new("credentials-user");
    let lines = keytab(&scratch, 0, 0o600);
    if !is_root() {
        let refused = check(&scratch, &lines, &["--user", "nobody"]);
        assert!(stderr(&refused).contains("only root can switch to user `nobody`"), "{}", stderr(&refused));
        return;
    }
    let result = |options: &[&str]| {
        let output = check(&scratch, &lines, options);
        (output.status.success(), stdout(&output))
    };
    let (is_good, text) = result(&["--user", "nobody"]);
    assert!(!is_good && text.contains("sss") && text.contains("permission denied"), "{text}");
    std::os::unix::fs::chown(scratch.path("keytab"), Some(65534), None).unwrap();
    let (is_good, text) = result(&["--user", "nobody"]);
    assert!(is_good, "{text}");
    // Without the option, the user of the server is not known, and other problems are still errors.
    let (is_good, text) = result(&[]);
    assert!(is_good && text.contains("warning: ") && text.contains("belongs to user id 65534"), "{text}");
    assert!(text.contains("if the server runs as this user, name it with --user"), "{text}");
    fs::set_permissions(scratch.path("keytab"), fs::Permissions::from_mode(0o644)).unwrap();
    std::os::unix::fs::chown(scratch.path("keytab"), Some(0), None).unwrap();
    let (is_good, text) = result(&[]);
    assert!(!is_good && text.contains("run chmod 600 "), "{text}");
}

#[test]
fn the_privileges_of_programs_are_noted() {
    let scratch = Scratch::new("credentials-programs");
    let output = check(&scratch, "ofs.tpc pgm /bin/true\ncms.fsxeq rm /bin/true\n", &[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("note: programs that the server executes gain")
            && text.contains("because of ofs.tpc, cms.fsxeq;"),
        "{text}"
    );
}

/// `setenv` decides which files a server reads, and the home directory is that of its user.
#[test]
fn files_are_examined_in_the_environment_of_the_server() {
    let scratch = Scratch::new("credentials-environment");
    let configuration = |name: &str, key_number: u32| {
        let keytab = scratch.write(
            &format!("{name}/.xrd/sss.keytab"),
            format!("0 u:tester g:users n:site N:{key_number} c:1 e:1 k:{}\n", "a7".repeat(32)),
        );
        fs::set_permissions(keytab, fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "oss.localroot {}\nall.export / r/o\nxrootd.seclib default\nsec.protocol sss\nsetenv HOME = {}\n",
            scratch.text("data"),
            scratch.text(name)
        );
        scratch.write(&format!("{name}.cfg"), text).display().to_string()
    };
    let (one, other) = (configuration("one", 7), configuration("other", 8));
    let expired = |number: u32| format!("the key {number} (site, user tester) has expired");
    let output = run("scalla", &scratch, &["config", "check", &one]);
    assert!(output.status.success() && stdout(&output).contains(&expired(7)), "{output:?}");
    // Each file has its own environment, and one that is refused counts.
    let output = run("scalla", &scratch, &["config", "check", &one, &other]);
    assert!(output.status.success() && stdout(&output).contains(&expired(8)), "{output:?}");
    assert!(stdout(&output).contains(&expired(7)), "{output:?}");
    fs::remove_file(scratch.path("one/.xrd/sss.keytab")).unwrap();
    let output = run("scalla", &scratch, &["config", "check", "--json", &one, &other]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).lines().all(|line| line.starts_with('{')), "{output:?}");
    if is_root() {
        let output = check(&scratch, "xrootd.seclib default\nsec.protocol sss\n", &["--user", "nobody"]);
        let text = stdout(&output);
        assert!(text.contains(".xrd/sss.keytab"), "{text}");
        assert!(!text.contains(&scratch.text(".xrd")), "this is below HOME of the command: {text}");
    }
}
