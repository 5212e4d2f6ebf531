//! Attributes of VOMS with one defect each, and the files of signers.

use super::certificate::key_usage::DIGITAL_SIGNATURE;
use super::der::tag;
use super::signature::verifications;
use super::test_certificates::{
    DAY, DraftCertificate, NOW, Name, TestDirectory, TestKey, element, encoded_name, extension, integer,
    key_usage, name, now, oid, pem_of, proxy_info, server_auth_only, signed,
};
use super::*;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::time::{Duration, UNIX_EPOCH};

const ATTRIBUTES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 5];
const NAMES: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 4];
const SIGNERS: &[u8] = &[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 100, 100, 10];
const TARGETS: &[u8] = &[0x55, 0x1d, 55];
const NO_REVOCATION: &[u8] = &[0x55, 0x1d, 56];

const USER_SERIAL: u64 = 7;
const SIGNER_TEXT: &str = "/O=Grid/CN=host/voms.example.org";
const AUTHORITY_TEXT: &str = "/O=Grid/CN=Authority";

fn named(common_name: &str) -> Name {
    name(&[("O", "Grid"), ("CN", common_name)])
}

/// Keys and certificates of a site, and its directories.
struct Site {
    authority: TestKey,
    user: TestKey,
    proxy: TestKey,
    signer: TestKey,
    user_certificate: Vec<u8>,
    signer_certificate: Vec<u8>,
    authorities: TestDirectory,
    signers: TestDirectory,
}

impl Site {
    fn new() -> Self {
        let [authority, user, proxy, signer] = [(); 4].map(|()| TestKey::p256());
        let issuer = named("Authority");
        let root = DraftCertificate::new(&issuer, &issuer, 1).of_authority(None).sign(&authority, &authority);
        let authorities = TestDirectory::new("voms-ca");
        authorities.put_hashed(&issuer, "0", pem_of(&root));
        let of_user = DraftCertificate::new(&named("User"), &issuer, USER_SERIAL).of_end_entity();
        let mut of_signer =
            DraftCertificate::new(&named("host/voms.example.org"), &issuer, 9).of_end_entity();
        of_signer.extensions.push(server_auth_only());
        let user_certificate = of_user.sign(&user, &authority);
        let signer_certificate = of_signer.sign(&signer, &authority);
        let signers = TestDirectory::new("vomsdir");
        let site = Self {
            authority,
            user,
            proxy,
            signer,
            user_certificate,
            signer_certificate,
            authorities,
            signers,
        };
        site.list("voms.example.org", &format!("{SIGNER_TEXT}\n{AUTHORITY_TEXT}\n"));
        site
    }

    /// Writes the list of a server of the organization `cms`.
    fn list(&self, host: &str, text: &str) {
        std::fs::create_dir_all(self.signers.0.join("cms")).unwrap();
        self.signers.put(&format!("cms/{host}.lsc"), text);
    }

    /// Reads the directories.
    fn trust(&self) -> GridTrust {
        let settings = GridTrustSettings {
            directories: vec![self.authorities.0.clone()],
            ..GridTrustSettings::default()
        };
        let trust = GridTrust::open(settings).unwrap();
        trust.with_attributes(VomsDirectory::open(&self.signers.0).unwrap())
    }

    /// Returns the memberships of a chain whose proxy has these attributes.
    fn memberships(&self, attributes: &[Vec<u8>]) -> Vec<VomsMembership> {
        self.memberships_by(&self.trust(), attributes)
    }

    fn memberships_by(&self, trust: &GridTrust, attributes: &[Vec<u8>]) -> Vec<VomsMembership> {
        let user = named("User");
        let mut subject = user.clone();
        subject.push(("CN", "1".to_owned()));
        let mut proxy = DraftCertificate::new(&subject, &user, 1);
        let list = element(tag::SEQUENCE, &[&element(tag::SEQUENCE, &[&attributes.concat()])]);
        proxy.extensions = vec![
            key_usage(DIGITAL_SIGNATURE),
            extension(oid::PROXY, true, &proxy_info(None, oid::INHERIT_ALL)),
            extension(ATTRIBUTES, false, &list),
        ];
        let chain = [proxy.sign(&self.proxy, &self.user), self.user_certificate.clone()];
        trust.verify(&chain, ChainRole::Client, now()).unwrap().memberships().to_vec()
    }

    /// Returns the names in an attribute certificate with a change.
    fn names(&self, change: impl FnOnce(&mut DraftAttributes)) -> Vec<String> {
        let mut draft = DraftAttributes::new(self);
        change(&mut draft);
        let memberships = self.memberships(&[draft.sign(&self.signer)]);
        memberships.iter().flat_map(|one| &one.names).map(ToString::to_string).collect()
    }
}

/// An attribute certificate before it is signed.
struct DraftAttributes {
    holder: Name,
    serial: u64,
    issuer: Name,
    validity: (i64, i64),
    address: String,
    names: Vec<String>,
    certificates: Vec<Vec<u8>>,
    extensions: Vec<Vec<u8>>,
}

fn general_name(name: &Name) -> Vec<u8> {
    element(tag::SEQUENCE, &[&element(0xa4, &[&encoded_name(name)])])
}

fn generalized(seconds: i64) -> Vec<u8> {
    let time = Duration::from_secs(seconds.unsigned_abs());
    let time = x509_cert::der::asn1::GeneralizedTime::from_unix_duration(time).unwrap();
    x509_cert::der::Encode::to_der(&time).unwrap()
}

impl DraftAttributes {
    fn new(site: &Site) -> Self {
        Self {
            holder: named("Authority"),
            serial: USER_SERIAL,
            issuer: named("host/voms.example.org"),
            validity: (NOW - 60, NOW + 60),
            address: "cms://VOMS.example.org:15000".to_owned(),
            names: vec!["/cms/Role=prod/Capability=NULL".to_owned(), "/cms/a".to_owned()],
            certificates: vec![site.signer_certificate.clone()],
            extensions: vec![extension(NO_REVOCATION, false, &[5, 0])],
        }
    }

    fn sign(&self, signer: &TestKey) -> Vec<u8> {
        let holder = element(tag::CONTEXT_0, &[&general_name(&self.holder), &integer(self.serial)]);
        let validity =
            element(tag::SEQUENCE, &[&generalized(self.validity.0), &generalized(self.validity.1)]);
        let names: Vec<Vec<u8>> =
            self.names.iter().map(|name| element(tag::OCTET_STRING, &[name.as_bytes()])).collect();
        let address = element(tag::CONTEXT_0, &[&element(0x86, &[self.address.as_bytes()])]);
        let syntax = element(tag::SEQUENCE, &[&address, &element(tag::SEQUENCE, &[&names.concat()])]);
        let kind = element(tag::OBJECT_IDENTIFIER, &[NAMES]);
        let attribute = element(tag::SEQUENCE, &[&kind, &element(tag::SET, &[&syntax])]);
        let mut extensions = self.extensions.clone();
        if !self.certificates.is_empty() {
            let list = element(tag::SEQUENCE, &[&self.certificates.concat()]);
            extensions.push(extension(SIGNERS, false, &element(tag::SEQUENCE, &[&list])));
        }
        let fields = element(
            tag::SEQUENCE,
            &[
                &integer(1),
                &element(tag::SEQUENCE, &[&holder]),
                &element(tag::CONTEXT_0, &[&general_name(&self.issuer)]),
                signer.algorithm(),
                &integer(5),
                &validity,
                &element(tag::SEQUENCE, &[&attribute]),
                &element(tag::SEQUENCE, &[&extensions.concat()]),
            ],
        );
        signed(&fields, signer.algorithm(), signer)
    }
}

/// A change of attributes before they are signed.
type Change = fn(&mut DraftAttributes);

const BOTH: [&str; 2] = ["/cms/Role=prod/Capability=NULL", "/cms/a"];

#[test]
fn verified_attributes_have_organization_names_and_end() {
    let site = Site::new();
    let attributes = DraftAttributes::new(&site).sign(&site.signer);
    let found = site.memberships(&[attributes]);
    let [member] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(member.organization, "cms");
    assert_eq!(member.names.iter().map(Fqan::as_str).collect::<Vec<_>>(), BOTH);
    assert_eq!(member.expires, UNIX_EPOCH + Duration::from_secs((NOW + 60).unsigned_abs()));
    // The holder may also be named by its own subject.
    assert_eq!(site.names(|draft| draft.holder = named("User")), BOTH);
}

#[test]
fn attributes_with_one_defect_do_not_count() {
    let site = Site::new();
    assert_eq!(site.names(|_| {}), BOTH);
    let defects: [(&str, Change); 15] = [
        ("another serial number", |draft| draft.serial += 1),
        ("another holder", |draft| draft.holder = named("Other")),
        ("expired", |draft| draft.validity = (NOW - DAY, NOW - 1)),
        ("not valid yet", |draft| draft.validity = (NOW + 1, NOW + DAY)),
        ("a name of another organization", |draft| draft.names.push("/atlas".to_owned())),
        ("no name", |draft| draft.names.clear()),
        ("a malformed name", |draft| draft.names.push("/cms/".to_owned())),
        ("another organization", |draft| draft.address = "atlas://voms.example.org:15000".to_owned()),
        ("another host", |draft| draft.address = "cms://other.example.org:15000".to_owned()),
        ("a malformed address", |draft| draft.address = "cms".to_owned()),
        ("another issuer", |draft| draft.issuer = named("Other")),
        ("no certificate of the signer", |draft| draft.certificates.clear()),
        ("a restriction to other servers", |draft| {
            draft.extensions.push(extension(TARGETS, true, &[0x30, 0]));
        }),
        ("the same, not critical", |draft| {
            draft.extensions.push(extension(TARGETS, false, &[0x30, 0]));
        }),
        ("a path as organization", |draft| {
            draft.address = "../cms://voms.example.org:1".to_owned();
            draft.names = vec!["/../cms".to_owned()];
        }),
    ];
    for (defect, change) in defects {
        assert_eq!(site.names(change), [""; 0], "{defect}");
    }
    // An extension that is not critical is not a defect.
    let with_tag = |draft: &mut DraftAttributes| draft.extensions.push(extension(oid::UNKNOWN, false, &[]));
    assert_eq!(site.names(with_tag), BOTH);
}

#[test]
fn attributes_count_only_if_a_trusted_signer_has_signed_them() {
    let site = Site::new();
    let draft = DraftAttributes::new(&site);
    // Another key has signed.
    assert!(site.memberships(&[draft.sign(&site.user)]).is_empty());
    // The user signs with a certificate of the right name that an unknown authority has issued.
    let forged = DraftCertificate::new(&named("host/voms.example.org"), &named("Authority"), 9)
        .of_end_entity()
        .sign(&site.user, &site.user);
    let draft = DraftAttributes { certificates: vec![forged], ..DraftAttributes::new(&site) };
    assert!(site.memberships(&[draft.sign(&site.user)]).is_empty());
    // The user's own certificate, which is valid, but not that of a signer.
    let own = DraftAttributes {
        issuer: named("User"),
        certificates: vec![site.user_certificate.clone()],
        ..DraftAttributes::new(&site)
    };
    assert!(site.memberships(&[own.sign(&site.user)]).is_empty());
    // An authority does not sign attributes itself.
    let root = DraftCertificate::new(&named("Authority"), &named("Authority"), 1)
        .of_authority(None)
        .sign(&site.authority, &site.authority);
    site.list("voms.example.org", &format!("{AUTHORITY_TEXT}\n{AUTHORITY_TEXT}\n"));
    let by_authority = DraftAttributes {
        issuer: named("Authority"),
        certificates: vec![root],
        ..DraftAttributes::new(&site)
    };
    assert!(site.memberships(&[by_authority.sign(&site.authority)]).is_empty());
}

#[test]
fn lists_name_the_signer_and_those_above_it() {
    let cases = [
        (format!("{SIGNER_TEXT}\n{AUTHORITY_TEXT}"), true),
        (format!("\n {SIGNER_TEXT} \r\n{AUTHORITY_TEXT}\r\n\n"), true),
        (format!("/O=Old/CN=x\n/O=Old\n------ NEXT CHAIN ------\n{SIGNER_TEXT}\n{AUTHORITY_TEXT}"), true),
        (format!("{SIGNER_TEXT}\n/O=Grid/CN=Other"), false),
        (format!("{SIGNER_TEXT}\n{AUTHORITY_TEXT}\n/O=Above"), false),
        (format!("{AUTHORITY_TEXT}\n{SIGNER_TEXT}"), false),
        // Without the authority any authority could issue a certificate of this name.
        (SIGNER_TEXT.to_owned(), false),
        (format!("{SIGNER_TEXT}\nnothing"), false),
        (String::new(), false),
    ];
    for (text, is_trusted) in cases {
        let site = Site::new();
        site.list("voms.example.org", &text);
        assert_eq!(!site.names(|_| {}).is_empty(), is_trusted, "{text}");
    }
}

#[test]
fn certificates_of_signers_are_an_alternative_to_lists() {
    let site = Site::new();
    std::fs::remove_file(site.signers.0.join("cms/voms.example.org.lsc")).unwrap();
    assert_eq!(site.names(|_| {}), [""; 0]);
    site.signers.put("cms/signer.pem", pem_of(&site.signer_certificate));
    assert_eq!(site.names(|_| {}), BOTH);
    assert_eq!(site.names(|draft| draft.certificates.clear()), BOTH);
    // A file with a certificate that is malformed is not used at all.
    site.signers.put("cms/signer.pem", pem_of(&site.signer_certificate) + &pem_of(&[0x30, 0]));
    assert_eq!(site.names(|_| {}), [""; 0]);
    site.signers.put("cms/signer.pem", pem_of(&site.signer_certificate));
    // A file that anybody can write is not used.
    let writable = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(site.signers.0.join("cms/signer.pem"), writable).unwrap();
    assert_eq!(site.names(|_| {}), [""; 0]);
}

#[test]
fn a_defect_of_one_attribute_certificate_leaves_the_others() {
    let site = Site::new();
    let good = DraftAttributes::new(&site).sign(&site.signer);
    let late = DraftAttributes { validity: (NOW - DAY, NOW - 1), ..DraftAttributes::new(&site) };
    let late = late.sign(&site.signer);
    assert_eq!(site.memberships(&[late, good.clone()]).len(), 1);
    assert_eq!(site.memberships(&[good.clone(), good.clone()]).len(), 2);
    // More than the limit, or bytes that are none: nothing counts.
    assert_eq!(site.memberships(&vec![good.clone(); 9]).len(), 0);
    assert_eq!(site.memberships(&[good, vec![0x30, 0]]).len(), 0);
}

/// The proxy is signed again, so that only the attributes themselves are wrong.
#[test]
fn attributes_with_a_changed_byte_do_not_count() {
    let (site, mut attributes) = (Site::new(), Vec::new());
    let trust = site.trust();
    attributes.push(DraftAttributes::new(&site).sign(&site.signer));
    assert_eq!(site.memberships_by(&trust, &attributes).len(), 1);
    for index in 0..attributes[0].len() {
        let change = 1 << (index % 8);
        attributes[0][index] ^= change;
        assert!(site.memberships_by(&trust, &attributes).is_empty(), "{index}");
        attributes[0][index] ^= change;
    }
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error() {
    let error = VomsDirectory::open(std::path::Path::new("/nonexistent/vomsdir")).err().unwrap();
    assert!(error.to_string().contains("cannot read /nonexistent/vomsdir"), "{error}");
}

/// Whoever can add or exchange the directory of an organization decides who its signers are.
#[test]
fn organizations_count_only_in_a_directory_that_others_cannot_write() {
    let site = Site::new();
    let set = |mode| std::fs::set_permissions(&site.signers.0, Permissions::from_mode(mode)).unwrap();
    for (mode, is_used) in [(0o755, true), (0o775, false), (0o777, false), (0o1777, true)] {
        set(mode);
        assert_eq!(!site.names(|_| {}).is_empty(), is_used, "{mode:o}");
    }
    // In a sticky directory others can add links to directories that are trusted.
    let link = site.signers.0.join("atlas");
    symlink("cms", &link).unwrap();
    let of_atlas = |draft: &mut DraftAttributes| {
        draft.address = "atlas://voms.example.org:1".to_owned();
        draft.names = vec!["/atlas".to_owned()];
    };
    assert_eq!(site.names(of_atlas), ["/atlas"]);
    if rustix::process::geteuid().is_root() {
        lchown(&link, Some(4711), None).unwrap();
        assert_eq!(site.names(of_atlas), [""; 0]);
        assert_eq!(site.names(|_| {}), BOTH);
    }
}

#[test]
fn signers_are_read_again_although_the_authorities_cannot_be_read() {
    let site = Site::new();
    let trust = site.trust();
    let attributes = [DraftAttributes::new(&site).sign(&site.signer)];
    std::fs::remove_file(site.signers.0.join("cms/voms.example.org.lsc")).unwrap();
    std::fs::remove_dir_all(&site.authorities.0).unwrap();
    assert_eq!(site.memberships_by(&trust, &attributes).len(), 1);
    assert!(trust.refresh().is_err());
    assert_eq!(site.memberships_by(&trust, &attributes).len(), 0);
}

/// The name of a trusted signer is no secret: anybody can sign attributes with it, and send authorities
/// among which a path is searched for.
#[test]
fn forged_signers_cost_few_verifications() {
    let site = Site::new();
    let forged = named("Forged");
    let keys: Vec<TestKey> = (0..8).map(|_| TestKey::p256()).collect();
    let signer = DraftCertificate::new(&named("host/voms.example.org"), &forged, 9).of_end_entity();
    let mut certificates = vec![signer.sign(&site.user, &keys[7])];
    // The issuer of each is the last one that is tried.
    let authority = DraftCertificate::new(&forged, &forged, 1).of_authority(None);
    certificates.extend((1..8).map(|index| authority.sign(&keys[index], &keys[index - 1])));
    let draft = DraftAttributes { certificates, ..DraftAttributes::new(&site) };
    let forged = vec![draft.sign(&site.user); 8];
    let before = verifications();
    assert!(site.memberships(&forged).is_empty());
    let count = verifications() - before;
    assert!(count < 60, "{count}");
}
