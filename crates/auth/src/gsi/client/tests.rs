//! The settings of a client that the environment gives.

use super::super::vectors::{load, text};
use super::*;
use std::os::unix::fs::PermissionsExt;

fn of(variables: &[(&str, &str)]) -> GsiClientSettings {
    GsiClientSettings::of_environment(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

#[test]
fn the_environment_names_the_files() {
    let all = [
        ("HOME", "/home/u"),
        ("X509_USER_PROXY", "/x/proxy"),
        ("X509_USER_CERT", "/x/cert"),
        ("X509_USER_KEY", "/x/key"),
        ("XrdSecGSIUSERPROXY", "/sec/proxy"),
        ("XrdSecGSIUSERCERT", "/sec/cert"),
        ("XrdSecGSIUSERKEY", "/sec/key"),
    ];
    let files = |proxy: Option<&str>, certificate: &str, key: &str| GridFiles {
        proxy: proxy.map(PathBuf::from),
        certificate: Some(PathBuf::from(certificate)),
        key: Some(PathBuf::from(key)),
    };
    assert_eq!(of(&all).files, files(Some("/sec/proxy"), "/sec/cert", "/sec/key"));
    assert_eq!(of(&all[..4]).files, files(Some("/x/proxy"), "/x/cert", "/x/key"));
    let home = files(None, "/home/u/.globus/usercert.pem", "/home/u/.globus/userkey.pem");
    assert_eq!(of(&all[..1]).files, home);
    assert_eq!(of(&[]).files, GridFiles::default());
    // An empty variable is one that is not set.
    assert_eq!(of(&[("HOME", "/home/u"), ("XrdSecGSIUSERPROXY", ""), ("X509_USER_CERT", "")]).files, home);
}

#[test]
fn the_environment_has_the_choices_of_the_user() {
    let none = of(&[]);
    assert!(none.creates_proxy && !none.delegates && !none.new_hash_only && !none.accepts_weak_groups);
    assert!(none.proxy_text.is_none() && none.server_names.is_none() && none.user.is_none());
    let set = of(&[
        ("XrdSecGSICREATEPROXY", "0"),
        ("XrdSecGSIDELEGPROXY", "1"),
        ("XrdSecGSIUSEDEFAULTHASH", "1"),
        ("XrdSecGSISRVNAMES", "*.o"),
        ("XrdSecUSER", "bob"),
        ("XrdSecCREDS", "text"),
        ("SCALLA_GSI_WEAK_DH", "1"),
    ]);
    assert!(!set.creates_proxy && set.delegates && set.new_hash_only && set.accepts_weak_groups);
    assert_eq!(set.server_names.as_deref(), Some("*.o"));
    assert_eq!(set.user.as_deref(), Some("bob"));
    assert!(set.proxy_text.is_some_and(|text| text.is_equal(b"text")));
    // The key of a proxy is never sent.
    assert!(!of(&[("XrdSecGSIDELEGPROXY", "2")]).delegates && !of(&[("XrdSecGSIDELEGPROXY", "0")]).delegates);
}

#[test]
fn the_environment_describes_the_proxies_that_are_made() {
    let default = ProxyRequest::default();
    assert_eq!(of(&[]).proxy, default);
    let set = |valid, length, bits| {
        let names = ["XrdSecGSIPROXYVALID", "XrdSecGSIPROXYDEPLEN", "XrdSecGSIPROXYKEYBITS"];
        let values: Vec<_> = names.into_iter().zip([valid, length, bits]).collect();
        of(&values).proxy
    };
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let expected = ProxyRequest { bits: 4096, valid: hours(36), path_length: Some(3) };
    assert_eq!(set("36:00", "3", "4096"), expected);
    assert_eq!(set("00:30", "-1", "2048").valid, Duration::from_secs(1800));
    assert_eq!(set("00:30", "-1", "2048").path_length, None);
    // A key is never weaker than by default, and values that are none do not count.
    assert_eq!(set("12:00", "0", "1024").bits, default.bits);
    assert_eq!(set("soon", "far", "many"), default);
    assert_eq!(set("00:00", "", ""), default);
}

#[test]
fn a_proxy_is_made_as_the_environment_describes() {
    let keys = load("gsi.json")["keys"].clone();
    let directory = std::env::temp_dir().join(format!("auth-gsi-made-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let put = |name: &str, content: &str| {
        let path = directory.join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let pair = GridFiles {
        proxy: Some(PathBuf::from("/nonexistent")),
        certificate: Some(put("cert", text(&keys, "user_cert_pem"))),
        key: Some(put("key", text(&keys, "user_key_pem"))),
    };
    let recorded = GridCredential::parse(text(&keys, "user_proxy_pem")).unwrap();
    let now = recorded.expires() - Duration::from_secs(3600);
    let settings = of(&[("XrdSecGSIPROXYVALID", "00:30"), ("XrdSecGSIPROXYDEPLEN", "2")]);
    // The files of a URL count before those of the environment, of which there are none.
    let made = settings.credential(&pair, false, now).unwrap();
    assert!(made.is_proxy() && made.path_length() == Some(2));
    let left = made.expires().duration_since(now).unwrap();
    assert!(left <= Duration::from_secs(1800) && left > Duration::from_secs(1790), "{left:?}");
    // A proxy from which another one is delegated allows one.
    let delegating = of(&[("XrdSecGSIPROXYDEPLEN", "0")]).credential(&pair, true, now).unwrap();
    assert_eq!(delegating.path_length(), Some(1));
    let itself = of(&[("XrdSecGSICREATEPROXY", "0")]).credential(&pair, false, now).unwrap();
    assert!(!itself.is_proxy());
    std::fs::remove_dir_all(directory).unwrap();
}
