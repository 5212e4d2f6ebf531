//! Downloaded lists beside lists in files, with one authority.

use super::*;
use crate::grid::test_certificates::{
    DAY, DraftCertificate, DraftList, NOW, Name, TestDirectory, TestKey, element, extension, name, now,
    pem_of, revocation_list,
};
use crate::grid::{ChainRole, CrlLevel, GridTrust, GridTrustSettings};
use std::time::Duration;

/// The extension with the places of revocation lists.
const DISTRIBUTION_POINTS: &[u8] = &[0x55, 0x1d, 31];
const SERIAL: u64 = 200;

/// An authority with its directory, and a user.
struct ListSite {
    directory: TestDirectory,
    key: TestKey,
    user: Vec<u8>,
}

fn authority() -> Name {
    name(&[("O", "Grid"), ("CN", "Root")])
}

fn points(addresses: &[&str]) -> Vec<u8> {
    let point = |address: &&str| {
        let full_name = element(0xa0, &[&element(0x86, &[address.as_bytes()])]);
        element(0x30, &[&element(0xa0, &[&full_name])])
    };
    let all: Vec<u8> = addresses.iter().flat_map(point).collect();
    extension(DISTRIBUTION_POINTS, false, &element(0x30, &[&all]))
}

impl ListSite {
    fn new() -> Self {
        let (directory, key) = (TestDirectory::new("downloaded"), TestKey::p256());
        let mut root = DraftCertificate::new(&authority(), &authority(), 1).of_authority(None);
        root.extensions.push(points(&["http://of.example/point", "ldap://of.example/x"]));
        directory.put_hashed(&authority(), "0", pem_of(&root.sign(&key, &key)));
        let user = name(&[("O", "Grid"), ("CN", "User")]);
        let user = DraftCertificate::new(&user, &authority(), SERIAL).of_end_entity();
        let user = user.sign(&TestKey::p256(), &key);
        Self { directory, key, user }
    }

    fn trust(&self, crl_level: CrlLevel) -> GridTrust {
        let directories = vec![self.directory.0.clone()];
        let settings =
            GridTrustSettings { directories, crl_level, downloads_lists: true, ..Default::default() };
        GridTrust::open(settings).unwrap()
    }

    /// Returns a list that was issued some hours before now and is valid for a day.
    fn list(&self, hours: i64, serials: &[u64]) -> Vec<u8> {
        let issued = NOW - hours * 3600;
        revocation_list(&authority(), (issued, issued + DAY), serials, &self.key)
    }

    fn numbered(&self, number: &[u8], serials: &[u64]) -> Vec<u8> {
        let number = extension(&[0x55, 0x1d, 20], false, &element(2, &[number]));
        let draft = DraftList {
            issuer: &authority(),
            times: (NOW - 60, Some(NOW + DAY)),
            serials,
            extensions: vec![number],
            extensions_of_entries: Vec::new(),
        };
        draft.sign(&self.key)
    }

    /// Returns a list of a part of the certificates, which this `issuingDistributionPoint` names.
    fn partial(&self, hours: i64, part: &[u8], serials: &[u64]) -> Vec<u8> {
        let issued = NOW - hours * 3600;
        let draft = DraftList {
            issuer: &authority(),
            times: (issued, Some(issued + DAY)),
            serials,
            extensions: vec![extension(&[0x55, 0x1d, 28], true, &element(0x30, &[part]))],
            extensions_of_entries: Vec::new(),
        };
        draft.sign(&self.key)
    }

    fn put_file(&self, list: &[u8]) {
        self.directory.put_hashed(&authority(), "r0", list);
    }

    fn verdict(&self, trust: &GridTrust) -> String {
        let verified = trust.verify(std::slice::from_ref(&self.user), ChainRole::Client, now());
        verified.map_or_else(|fault| fault.to_string(), |_| "accepted".to_owned())
    }
}

fn add(trust: &GridTrust, list: &[u8]) -> Result<bool, String> {
    let sources = trust.list_sources();
    let source = sources.iter().find(|source| source.authority == "/O=Grid/CN=Root").unwrap();
    trust.add_downloaded(source, list, now()).map(|added| added.is_new).map_err(|reason| reason.to_string())
}

#[test]
fn a_downloaded_list_revokes() {
    let site = ListSite::new();
    let trust = site.trust(CrlLevel::Use);
    assert!(site.verdict(&trust).contains("is missing"), "{}", site.verdict(&trust));
    assert_eq!(add(&trust, &site.list(2, &[])), Ok(true));
    assert_eq!(site.verdict(&trust), "accepted");
    assert_eq!(add(&trust, &site.list(1, &[SERIAL])), Ok(true));
    assert!(site.verdict(&trust).contains("was revoked"), "{}", site.verdict(&trust));
    assert!(trust.state().contains("0 revocation lists and 1 downloaded ones"), "{}", trust.state());
    // A refresh reads the files again and keeps the list.
    trust.refresh().unwrap();
    assert!(site.verdict(&trust).contains("was revoked"), "{}", site.verdict(&trust));
}

#[test]
fn a_list_that_will_be_downloaded_is_not_reported_as_missing() {
    let site = ListSite::new();
    let warnings = |trust: &GridTrust| trust.warnings(now(), Duration::ZERO);
    assert_eq!(warnings(&site.trust(CrlLevel::Use)), [""; 0]);
    let directories = vec![site.directory.0.clone()];
    let from_files = GridTrustSettings { directories, crl_level: CrlLevel::Use, ..Default::default() };
    let found = warnings(&GridTrust::open(from_files).unwrap()).join("\n");
    assert!(found.contains("is missing"), "{found}");
}

#[test]
fn an_older_list_never_replaces_a_newer_one() {
    let site = ListSite::new();
    let trust = site.trust(CrlLevel::Require);
    let revoking = site.list(1, &[SERIAL]);
    assert_eq!(add(&trust, &revoking), Ok(true));
    assert_eq!(add(&trust, &revoking), Ok(false), "it is in force already");
    let older = add(&trust, &site.list(2, &[]));
    assert_eq!(older, Err("the list is older than the one in force".to_owned()));
    assert!(site.verdict(&trust).contains("was revoked"));
    // Nor one of the same second with a lower number.
    assert_eq!(add(&trust, &site.numbered(&[1, 0], &[SERIAL])), Ok(true));
    assert!(add(&trust, &site.numbered(&[0x7f], &[])).is_err());
    assert!(site.verdict(&trust).contains("was revoked"));
    assert_eq!(add(&trust, &site.numbered(&[1, 1], &[])), Ok(true));
    assert_eq!(site.verdict(&trust), "accepted");
}

const OF_USERS: &[u8] = &[0x81, 1, 0xff];
const OF_AUTHORITIES: &[u8] = &[0x82, 1, 0xff];

#[test]
fn a_list_of_other_certificates_replaces_none() {
    let site = ListSite::new();
    let trust = site.trust(CrlLevel::Require);
    assert_eq!(add(&trust, &site.list(1, &[SERIAL])), Ok(true));
    // An older one, from a time at which lists of this authority had another scope.
    assert_eq!(add(&trust, &site.partial(5, OF_USERS, &[])), Ok(true));
    assert!(site.verdict(&trust).contains("was revoked"), "{}", site.verdict(&trust));
    assert_eq!(add(&trust, &site.list(2, &[])), Err("the list is older than the one in force".to_owned()));
    // Both parts of the certificates have their lists.
    let trust = site.trust(CrlLevel::Require);
    assert_eq!(add(&trust, &site.partial(1, OF_AUTHORITIES, &[])), Ok(true));
    assert!(site.verdict(&trust).contains("is missing"), "{}", site.verdict(&trust));
    assert_eq!(add(&trust, &site.partial(1, OF_USERS, &[])), Ok(true));
    assert_eq!(site.verdict(&trust), "accepted");
    assert_eq!(add(&trust, &site.partial(0, OF_AUTHORITIES, &[])), Ok(true));
    trust.refresh().unwrap();
    assert_eq!(site.verdict(&trust), "accepted");
    // Their number is limited.
    assert_eq!(add(&trust, &site.list(1, &[])), Ok(true));
    let place = |address: &str| element(0xa0, &[&element(0xa0, &[&element(0x86, &[address.as_bytes()])])]);
    assert_eq!(add(&trust, &site.partial(1, &place("http://of.example/1"), &[])), Ok(true));
    let refused = add(&trust, &site.partial(1, &place("http://of.example/2"), &[])).unwrap_err();
    assert!(refused.contains("at most 4"), "{refused}");
}

#[test]
fn kept_lists_are_those_in_force() {
    let site = ListSite::new();
    let trust = site.trust(CrlLevel::Require);
    let source = trust.list_sources().remove(0);
    assert!(trust.downloaded_lists(&source).is_empty());
    add(&trust, &site.list(1, &[])).unwrap();
    add(&trust, &site.partial(1, OF_USERS, &[SERIAL])).unwrap();
    let kept = trust.downloaded_lists(&source);
    let later = site.trust(CrlLevel::Require);
    assert_eq!(later.add_kept(&source, &kept, now()), Ok(()));
    assert!(site.verdict(&later).contains("was revoked"));
    assert_eq!(later.downloaded_lists(&source), kept);
    // Not before their time, by a clock that is behind.
    let later = site.trust(CrlLevel::Require);
    let before = now() - std::time::Duration::from_secs(2 * 3600);
    assert_eq!(later.add_kept(&source, &kept, before), Err(ListRefusal::NotValidYet));
    assert!(later.downloaded_lists(&source).is_empty());
    let cut = later.add_kept(&source, &kept[..kept.len() - 1], now());
    assert_eq!(cut, Err(ListRefusal::Content("is malformed")));
}

#[test]
fn an_authority_that_returns_has_its_list() {
    let site = ListSite::new();
    let other = name(&[("CN", "Other")]);
    let key = TestKey::p256();
    let root = DraftCertificate::new(&other, &other, 1).of_authority(None).sign(&key, &key);
    site.directory.put_hashed(&other, "0", pem_of(&root));
    let trust = site.trust(CrlLevel::Use);
    add(&trust, &site.list(1, &[SERIAL])).unwrap();
    let file = site.directory.0.join(format!("{}.0", authority_hash(&trust)));
    let text = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    trust.refresh().unwrap();
    assert!(!trust.state().contains("downloaded"), "{}", trust.state());
    std::fs::write(&file, text).unwrap();
    // A list in a file that is older.
    site.put_file(&site.list(2, &[]));
    trust.refresh().unwrap();
    assert!(site.verdict(&trust).contains("was revoked"), "{}", site.verdict(&trust));
}

fn authority_hash(trust: &GridTrust) -> String {
    let sources = trust.list_sources();
    sources.iter().find(|source| source.authority == "/O=Grid/CN=Root").unwrap().hash.clone()
}

/// Otherwise each refresh would seem to change the addresses.
#[test]
fn addresses_have_one_order() {
    let site = ListSite::new();
    for number in 0..6 {
        let below = name(&[("O", "Grid"), ("CN", &format!("Below {number}"))]);
        let mut intermediate = DraftCertificate::new(&below, &authority(), 10 + number).of_authority(None);
        intermediate.extensions.push(points(&[&format!("http://of.example/{number}")]));
        let intermediate = intermediate.sign(&TestKey::p256(), &site.key);
        site.directory.put_hashed(&below, "0", pem_of(&intermediate));
    }
    let trust = site.trust(CrlLevel::Use);
    let first = trust.list_sources();
    assert_eq!(first.iter().map(|source| source.addresses.len()).max(), Some(7));
    for _ in 0..9 {
        trust.refresh().unwrap();
        assert_eq!(trust.list_sources(), first);
    }
}

#[test]
fn the_newer_one_of_file_and_download_counts() {
    let site = ListSite::new();
    site.put_file(&site.list(30, &[SERIAL]));
    let trust = site.trust(CrlLevel::Require);
    assert!(site.verdict(&trust).contains("was revoked"));
    // Older than the file.
    assert!(add(&trust, &site.list(31, &[])).unwrap_err().contains("older"));
    // The list in the file is past its time, and the downloaded one replaces it.
    assert_eq!(add(&trust, &site.list(2, &[])), Ok(true));
    assert_eq!(site.verdict(&trust), "accepted");
    trust.refresh().unwrap();
    assert_eq!(site.verdict(&trust), "accepted");
    // A newer file replaces the downloaded list.
    site.put_file(&site.list(1, &[SERIAL]));
    trust.refresh().unwrap();
    assert!(site.verdict(&trust).contains("was revoked"));
    assert!(trust.state().contains("1 revocation lists, "), "{}", trust.state());
    // A file that cannot be used still refuses all.
    site.put_file(b"no list");
    trust.refresh().unwrap();
    assert_eq!(add(&trust, &site.list(0, &[])), Ok(true));
    assert!(site.verdict(&trust).contains("cannot be used"), "{}", site.verdict(&trust));
}

#[test]
fn lists_that_prove_nothing_are_refused() {
    let site = ListSite::new();
    let trust = site.trust(CrlLevel::Use);
    let in_force = site.list(3, &[SERIAL]);
    assert_eq!(add(&trust, &in_force), Ok(true));
    let times = (NOW - 60, NOW + DAY);
    let foreign = revocation_list(&authority(), times, &[], &TestKey::p256());
    let of_another = revocation_list(&name(&[("CN", "Other")]), times, &[], &site.key);
    let future = site.list(-1, &[]);
    let mut altered = site.list(1, &[]);
    *altered.last_mut().unwrap() ^= 1;
    for (list, reason) in [
        (&foreign, "is not signed by the authority"),
        (&altered, "is not signed by the authority"),
        (&of_another, "the list is one of another authority"),
        (&future, "is not valid yet"),
        (&b"<html>no</html>".to_vec(), "is neither PEM nor DER"),
        (&in_force[..in_force.len() - 1].to_vec(), "is malformed"),
        (&vec![0x30; LIST_BYTES_MAX + 1], "is larger than"),
    ] {
        let found = add(&trust, list).unwrap_err();
        assert!(found.contains(reason), "{reason}: {found}");
    }
    assert!(site.verdict(&trust).contains("was revoked"));
}

#[test]
fn a_list_ends_with_the_key_of_its_authority() {
    let site = ListSite::new();
    let trust = site.trust(CrlLevel::Try);
    assert_eq!(add(&trust, &site.list(1, &[])), Ok(true));
    let other = TestKey::p256();
    let root = DraftCertificate::new(&authority(), &authority(), 1).of_authority(None);
    site.directory.put_hashed(&authority(), "0", pem_of(&root.sign(&other, &other)));
    trust.refresh().unwrap();
    assert!(!trust.state().contains("downloaded"), "{}", trust.state());
}

#[test]
fn addresses_come_from_files_and_certificates() {
    let site = ListSite::new();
    let below = name(&[("O", "Grid"), ("CN", "Below")]);
    let mut intermediate = DraftCertificate::new(&below, &authority(), 7).of_authority(None);
    // This is the place of the list of the root.
    intermediate.extensions.push(points(&["https://of.example/second"]));
    let intermediate = intermediate.sign(&TestKey::p256(), &site.key);
    site.directory.put_hashed(&below, "0", pem_of(&intermediate));
    let file =
        "# comment http://no.example/\nHTTP://a.example/1;https://b.example/2;x\n  ftp://c.example/3\n";
    site.directory.put_hashed(&authority(), "crl_url", file);
    let sources = site.trust(CrlLevel::Use).list_sources();
    let [of_below, source] = sources.as_slice() else { panic!("{sources:?}") };
    assert_eq!((of_below.authority.as_str(), &of_below.addresses), ("/O=Grid/CN=Below", &Vec::new()));
    assert_eq!(source.authority, "/O=Grid/CN=Root");
    let of_file = ["HTTP://a.example/1", "https://b.example/2;x"];
    assert_eq!(source.addresses[..2], of_file);
    assert_eq!(source.addresses[2..], ["http://of.example/point", "https://of.example/second"]);
    let many: String = (0..9).map(|number| format!("http://a.example/{number}\n")).collect();
    assert!(read_addresses(many.as_bytes()).unwrap_err().contains("more than 8"));
    assert!(read_addresses(&[0xff]).is_err());
    // Without downloads these files are not read.
    site.directory.put_hashed(&below, "crl_url", [0xff]);
    assert!(site.trust(CrlLevel::Use).state().ends_with("1 unusable files"));
    let directories = vec![site.directory.0.clone()];
    let trust = GridTrust::open(GridTrustSettings { directories, ..Default::default() }).unwrap();
    assert!(trust.state().ends_with("0 unusable files"), "{}", trust.state());
}
