//! Chains with one defect each, revocation lists, policies, and the recorded chain.

use super::certificate::GridCertificate;
use super::directory::AuthorityStore;
use super::path::{SignatureBudget, find_path};
use super::settings::{AuthorityLevel, ChainRole, CrlLevel, GridTrustSettings};
use super::test_certificates::{
    DAY, DraftCertificate, DraftList, NOW, TestDirectory, TestKey, element, encoded_name, extension, name,
    now, oid, pem_of, proxy_info, revocation_list, vector_certificate, vector_text,
};
use super::test_chains::{ChainPlan, Defect, TestKeys, authority_name, build, end_entity_name};
use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

const USER: &str = "/DC=org/O=Grid Test/OU=People/CN=Some User";

fn settings(directory: &TestDirectory, crl_level: CrlLevel) -> GridTrustSettings {
    GridTrustSettings { directories: vec![directory.0.clone()], crl_level, ..GridTrustSettings::default() }
}

/// Returns "accepted" or the reason.
fn verdict(plan: &ChainPlan, keys: &TestKeys, crl_level: CrlLevel) -> String {
    let directory = TestDirectory::new("defects");
    let chain = build(plan, keys, &directory);
    let trust = GridTrust::open(settings(&directory, crl_level)).unwrap();
    match trust.verify(&chain, ChainRole::Client, now()) {
        Ok(_) => "accepted".to_owned(),
        Err(fault) => fault.to_string(),
    }
}

/// Returns the part of the reason for which a chain with a defect is refused (S070 to S075).
fn expected(defect: Defect) -> &'static str {
    match defect {
        Defect::None | Defect::ProxyDraft => "accepted",
        Defect::ExpiredLeaf
        | Defect::ExpiredEndEntity
        | Defect::ExpiredIntermediate
        | Defect::ExpiredRoot => "expired",
        Defect::FutureLeaf => "not valid yet",
        Defect::AlteredSignature | Defect::ForeignLeafSignature | Defect::ForeignEndEntitySignature => {
            "signature is not that of its issuer"
        }
        Defect::UnknownRoot | Defect::MissingIntermediate => "is unknown; add the files of the authority",
        Defect::AuthorityAsEndEntity => "issued by an authority",
        Defect::AuthorityWithoutConstraints | Defect::EndEntityOfProxy => "its issuer is not an authority",
        Defect::AuthorityWithoutCertSign => "does not allow signatures of certificates",
        Defect::UnknownCriticalInLeaf => "a critical extension that is not supported",
        Defect::UnknownCriticalInEndEntity | Defect::UnknownCriticalInAuthority => {
            "UnsupportedCriticalExtension"
        }
        Defect::ServerPurposeOfEndEntity => "RequiredEkuNotFound",
        Defect::ServerPurposeOfLeaf => "its extended key usage does not allow this use",
        Defect::EndEntityWithoutSignatures => "the key usage of its issuer does not allow signatures",
        Defect::ProxyWithoutSignatures => "its key usage does not allow signatures",
        Defect::NameOutsideConstraints => "NameConstraintViolation",
        Defect::WeakLeafKey => "its key is neither RSA of at least 2048 bits",
        Defect::Sha1OnEndEntity => "not of SHA-2",
        Defect::ProxyOfForeignSubject | Defect::ProxyWithTwoNames | Defect::ProxyWithUnit => {
            "not that of its issuer and one common name"
        }
        Defect::ProxyOfAuthority => "it was issued by an authority",
        Defect::ProxyWithAlternativeName => "it has an alternative name",
        Defect::ProxyAsAuthority => "it claims to be an authority",
        Defect::ProxyNotCritical => "proxyCertInfo is not critical",
        Defect::ProxyIndependent => "it is independent",
        Defect::ProxyUnknownLanguage => "the language of its policy",
        Defect::ProxyMalformed => "malformed",
        Defect::ProxyLegacy => "the form before RFC 3820",
        Defect::RevokedEndEntity | Defect::RevokedIntermediate => "was revoked by its issuer",
        Defect::MissingList => "the revocation list of its issuer is missing",
        Defect::StaleList => "is not within its time",
        Defect::ForeignList => "has a wrong signature",
        Defect::ListOfOtherIssuer => "is of another issuer",
    }
}

/// S070, S071, S072, S073, S074, S075.
#[test]
fn chains_with_one_defect_are_refused() {
    let keys = TestKeys::new();
    for defect in Defect::ALL {
        let found = verdict(&ChainPlan::usual(defect), &keys, CrlLevel::Require);
        assert!(found.contains(expected(defect)), "{defect:?}: {found}");
        // None of them is accepted because the intermediate authority is in the directory.
        let plan = ChainPlan { has_local_intermediates: true, ..ChainPlan::usual(defect) };
        let found = verdict(&plan, &keys, CrlLevel::Require);
        // Without its root, an intermediate authority of the directory may end a chain.
        let is_accepted = expected(defect) == "accepted" || defect == Defect::UnknownRoot;
        assert_eq!(found == "accepted", is_accepted, "{defect:?}: {found}");
    }
}

/// A peer without a certificate of a known authority.
#[test]
fn no_signature_is_verified_by_keys_of_a_peer_that_no_authority_knows() {
    let (authority, user) = (TestKey::p256(), TestKey::p256());
    let directory = TestDirectory::new("own-authorities");
    build(&ChainPlan::usual(Defect::None), &TestKeys::new(), &directory);
    let store = AuthorityStore::read(&settings(&directory, CrlLevel::Try)).unwrap();
    let [own, known] = [name(&[("CN", "Own")]), authority_name(0)];
    let signed = |draft: DraftCertificate, key| GridCertificate::parse(&draft.sign(key, &authority)).unwrap();
    let end_entity = signed(DraftCertificate::new(&end_entity_name(), &own, 1).of_end_entity(), &user);
    let sent: Vec<_> = (2..20)
        .map(|serial| signed(DraftCertificate::new(&own, &own, serial).of_authority(None), &authority))
        .collect();
    let used = |sent: &[GridCertificate]| {
        let mut budget = SignatureBudget::default();
        let found = find_path(&store, &end_entity, sent, now(), &mut budget);
        (budget.used(), found.err().unwrap().to_string())
    };
    let (signatures, fault) = used(&sent);
    assert!(signatures == 0 && fault.contains("is unknown"), "{signatures}: {fault}");
    // One that claims to be of a known authority costs a signature of that one only.
    let claims = signed(DraftCertificate::new(&own, &known, 1).of_authority(None), &authority);
    let (signatures, fault) = used(&[sent, vec![claims]].concat());
    assert!(signatures == 1 && fault.contains("signature"), "{signatures}: {fault}");
}

#[test]
fn signatures_of_proxies_are_verified_only_below_a_known_end_entity() {
    let keys = TestKeys::new();
    for (defect, expected) in
        [(Defect::UnknownRoot, "is unknown"), (Defect::None, "signature is not that of its issuer")]
    {
        let directory = TestDirectory::new("proxies-of-unknown");
        let mut chain = build(&ChainPlan::usual(defect), &keys, &directory);
        *chain[0].last_mut().unwrap() ^= 1;
        let trust = GridTrust::open(settings(&directory, CrlLevel::Try)).unwrap();
        let fault = trust.verify(&chain, ChainRole::Client, now()).err().unwrap().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn authorities_that_were_not_read_accept_nothing_until_they_are() {
    let directory = TestDirectory::new("unread");
    let chain = build(&ChainPlan::usual(Defect::None), &TestKeys::new(), &directory);
    let trust = GridTrust::unread(settings(&directory, CrlLevel::Try));
    assert!(trust.verify(&chain, ChainRole::Client, now()).is_err());
    trust.refresh().unwrap();
    assert!(trust.verify(&chain, ChainRole::Client, now()).is_ok());
}

/// Path lengths of authorities or proxies, the issuer first.
type PathLengths<'a> = &'a [Option<u32>];

/// S070, S074.
#[test]
fn path_lengths_limit_authorities_and_proxies() {
    let keys = TestKeys::new();
    let plan = |authorities: &[Option<u32>], proxies: &[Option<u32>]| ChainPlan {
        authorities: authorities.to_vec(),
        proxies: proxies.to_vec(),
        limited: vec![false; proxies.len()],
        ..ChainPlan::usual(Defect::None)
    };
    let cases: [(PathLengths<'_>, PathLengths<'_>, &str); 9] = [
        (&[Some(0)], &[], "accepted"),
        (&[Some(0), None], &[], "more authorities follow"),
        (&[Some(1), None], &[], "accepted"),
        (&[Some(1), None, None], &[], "more authorities follow"),
        (&[None, Some(0), None], &[], "PathLenConstraintViolated"),
        (&[None], &[Some(0)], "accepted"),
        (&[None], &[Some(0), None], "more proxies follow"),
        (&[None], &[Some(1), Some(7)], "accepted"),
        (&[None], &[Some(1), None, None], "more proxies follow"),
    ];
    for (authorities, proxies, expected) in cases {
        let found = verdict(&plan(authorities, proxies), &keys, CrlLevel::Require);
        let is_limit = expected != "accepted" && found.contains("more authorities follow");
        assert!(found.contains(expected) || is_limit, "{authorities:?} {proxies:?}: {found}");
    }
}

/// S071, S072, S073.
#[test]
fn levels_decide_about_revocation_lists() {
    use CrlLevel::{Ignore, Require, Try, Use};
    let keys = TestKeys::new();
    let cases = [
        (Defect::RevokedEndEntity, [(Ignore, true), (Try, false), (Use, false), (Require, false)]),
        (Defect::RevokedIntermediate, [(Ignore, true), (Try, false), (Use, false), (Require, false)]),
        (Defect::MissingList, [(Ignore, true), (Try, true), (Use, false), (Require, false)]),
        (Defect::StaleList, [(Ignore, true), (Try, true), (Use, true), (Require, false)]),
        (Defect::ForeignList, [(Ignore, true), (Try, false), (Use, false), (Require, false)]),
        (Defect::ListOfOtherIssuer, [(Ignore, true), (Try, false), (Use, false), (Require, false)]),
        (Defect::None, [(Ignore, true), (Try, true), (Use, true), (Require, true)]),
    ];
    for (defect, levels) in cases {
        for (level, is_accepted) in levels {
            let found = verdict(&ChainPlan::usual(defect), &keys, level);
            assert_eq!(found == "accepted", is_accepted, "{defect:?} {level:?}: {found}");
        }
    }
}

/// `scalla config check` reports the same lists for which logins fail.
#[test]
fn lists_that_refuse_all_certificates_are_warned_of() {
    let keys = TestKeys::new();
    let plan = |defect: Defect| ChainPlan { has_local_intermediates: true, ..ChainPlan::usual(defect) };
    // The other authority of the directory has no list.
    let warnings = |trust: &GridTrust| {
        let found = trust.warnings(now(), Duration::ZERO);
        found.into_iter().filter(|one| !one.contains("/CN=Other Root")).collect::<Vec<_>>()
    };
    for defect in [Defect::MissingList, Defect::StaleList, Defect::ForeignList, Defect::ListOfOtherIssuer] {
        for level in [CrlLevel::Ignore, CrlLevel::Try, CrlLevel::Use, CrlLevel::Require] {
            let directory = TestDirectory::new("warned");
            let chain = build(&plan(defect), &keys, &directory);
            let trust = GridTrust::open(settings(&directory, level)).unwrap();
            let is_refused = trust.verify(&chain, ChainRole::Client, now()).is_err();
            let is_stale = defect == Defect::StaleList && level > CrlLevel::Ignore;
            let found = warnings(&trust);
            let says = format!("{defect:?} {level:?}: {found:?}");
            assert_eq!(found.iter().any(|one| one.contains("are refused")), is_refused, "{says}");
            assert_eq!(found.len(), usize::from(is_refused || is_stale), "{says}");
        }
    }
    // Both files of an authority count.
    let directory = TestDirectory::new("warned-files");
    build(&plan(Defect::None), &keys, &directory);
    let trust = GridTrust::open(settings(&directory, CrlLevel::Require)).unwrap();
    assert_eq!(warnings(&trust), [""; 0]);
    let encoded = encoded_name(&authority_name(1));
    let subject = DistinguishedName::read(&encoded).unwrap();
    let (file, other) = (format!("{}.r0", subject.hash()), format!("{}.r0", subject.old_hash()));
    directory.put(&other, "no list");
    trust.refresh().unwrap();
    let found = warnings(&trust).join("\n");
    assert!(found.contains("cannot be used") && found.contains("are refused"), "{found}");
    directory.put(&other, std::fs::read(directory.0.join(file)).unwrap());
    trust.refresh().unwrap();
    assert_eq!(warnings(&trust), [""; 0]);
}

#[test]
fn a_malformed_list_counts_as_a_revocation_of_all() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("malformed-list"));
    let chain = build(&ChainPlan::usual(Defect::MissingList), &keys, &directory);
    directory.put_hashed(&authority_name(1), "r0", "no list");
    let trust = GridTrust::open(settings(&directory, CrlLevel::Try)).unwrap();
    let fault = trust.verify(&chain, ChainRole::Client, now()).unwrap_err().to_string();
    assert!(fault.contains("neither PEM nor DER"), "{fault}");
    assert!(trust.state().ends_with("1 unusable files"), "{}", trust.state());
}

#[test]
fn the_identity_is_that_of_the_end_entity() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("identity"));
    let plan = ChainPlan {
        proxies: vec![Some(3), None, Some(1)],
        limited: vec![false, true, false],
        ..ChainPlan::usual(Defect::None)
    };
    let chain = build(&plan, &keys, &directory);
    let trust = GridTrust::open(settings(&directory, CrlLevel::Require)).unwrap();
    let verified = trust.verify(&chain, ChainRole::Client, now()).unwrap();
    assert_eq!((verified.end_entity(), verified.common_name()), (USER, Some("Some User")));
    assert_eq!(verified.leaf(), format!("{USER}/CN=300/CN=301/CN=302"));
    assert_eq!((verified.proxies(), verified.is_limited(), verified.proxy_path_left()), (3, true, Some(1)));
    assert_eq!(verified.valid_until(), now() + Duration::from_secs(DAY.unsigned_abs()));
    let fault = trust.verify(&chain, ChainRole::Server, now()).unwrap_err().to_string();
    assert!(fault.contains("servers do not have proxies"), "{fault}");
    let users = &chain[3..];
    assert!(trust.verify(users, ChainRole::Client, now()).unwrap().leaf() == USER);
    assert!(trust.verify(users, ChainRole::Server, now()).is_ok());
    // The intermediate authority is not in the directory, and its own issuer is.
    assert!(trust.authority_hashes(&chain[3]).is_err());
    let hashes = trust.authority_hashes(&chain[4]).unwrap();
    assert!(trust.has_authority(&hashes.0) && trust.has_authority(&format!("{}.0", hashes.0)));
    assert!(!trust.has_authority("00000000") && !trust.has_authority(""));
}

#[test]
fn chains_that_are_incomplete_or_too_long_are_refused() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("sizes"));
    let chain = build(&ChainPlan::usual(Defect::None), &keys, &directory);
    let trust = GridTrust::open(settings(&directory, CrlLevel::Require)).unwrap();
    let fault = |chain: &[Vec<u8>]| trust.verify(chain, ChainRole::Client, now()).unwrap_err().to_string();
    assert!(fault(&[]).contains("1 to 20"));
    assert!(fault(&vec![chain[0].clone(); 21]).contains("1 to 20"));
    assert!(fault(&chain[..2]).contains("the end entity is missing"));
    assert!(fault(&[chain[1].clone(), chain[0].clone(), chain[2].clone()]).contains("is not its issuer"));
    assert!(fault(&[vec![0x30; 49 << 10]]).contains("48 KiB"));
    for end in 0..chain[0].len() {
        let mut cut = chain.clone();
        cut[0].truncate(end);
        assert!(fault(&cut).contains("malformed"), "{end}");
    }
    // Each single change of a certificate is noticed.
    for at in 0..chain[1].len() {
        let mut changed = chain.clone();
        changed[1][at] ^= 4;
        assert!(trust.verify(&changed, ChainRole::Client, now()).is_err(), "byte {at}");
    }
}

/// S074.
#[test]
fn legacy_proxies_need_a_setting() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("legacy"));
    let chain = build(&ChainPlan::usual(Defect::ProxyLegacy), &keys, &directory);
    let allowing = GridTrustSettings { allow_legacy: true, ..settings(&directory, CrlLevel::Require) };
    let trust = GridTrust::open(allowing).unwrap();
    assert!(!trust.verify(&chain, ChainRole::Client, now()).unwrap().is_limited());
}

#[test]
fn policies_restrict_the_subjects_of_an_authority() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("policies"));
    let chain = build(&ChainPlan::usual(Defect::None), &keys, &directory);
    let verdict = || {
        let trust = GridTrust::open(settings(&directory, CrlLevel::Require)).unwrap();
        trust.verify(&chain, ChainRole::Client, now()).map(drop).map_err(|fault| fault.to_string())
    };
    let policy = |authority: &str, subjects: &str| {
        format!(
            "access_id_CA X509 '{authority}'\npos_rights globus CA:sign\ncond_subjects globus '\"{subjects}\"'\n"
        )
    };
    let sub = "/DC=org/O=Grid Test/CN=Sub 1";
    directory.put_hashed(
        &authority_name(1),
        "signing_policy",
        policy(sub, "/DC=org/O=Grid Test/OU=People/*"),
    );
    assert_eq!(verdict(), Ok(()));
    directory.put_hashed(&authority_name(1), "signing_policy", policy(sub, "/DC=org/O=Grid Test/OU=Hosts/*"));
    assert!(verdict().unwrap_err().contains("the signing policy of"));
    directory.put_hashed(&authority_name(1), "signing_policy", policy("/CN=another", "*"));
    assert!(verdict().unwrap_err().contains("the signing policy of"));
    directory.put_hashed(&authority_name(1), "signing_policy", "unknown words\n");
    assert!(verdict().unwrap_err().contains("signing_policy: line 1"), "{:?}", verdict());
    directory.put_hashed(&authority_name(1), "signing_policy", policy(sub, "*"));
    let rule = |subjects: &str| format!("TO Issuer SELF PERMIT Subject \"{subjects}\"\n");
    directory.put_hashed(&authority_name(0), "namespaces", rule("/DC=org/O=Grid Test/CN=Sub .*"));
    assert_eq!(verdict(), Ok(()));
    directory.put_hashed(&authority_name(0), "namespaces", rule("/DC=org/O=Other/.*"));
    assert!(verdict().unwrap_err().contains("the namespaces file of"));
}

#[test]
fn files_of_authorities_have_the_hash_of_their_subject() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("hashes"));
    let chain = build(&ChainPlan::usual(Defect::UnknownRoot), &keys, &directory);
    let root = DraftCertificate::new(&authority_name(0), &authority_name(0), 100).of_authority(None);
    let other = TestKey::p256();
    directory.put_hashed(&authority_name(1), "0", pem_of(&root.sign(&other, &other)));
    let trust = GridTrust::open(settings(&directory, CrlLevel::Ignore)).unwrap();
    assert!(trust.state().starts_with("1 authorities, 0 revocation lists, 1 unusable"), "{}", trust.state());
    let fault = trust.verify(&chain, ChainRole::Client, now()).unwrap_err();
    assert!(matches!(fault.reason, ChainFaultReason::UnknownAuthority(_)), "{fault}");
    // Another key of the same name is not the authority.
    directory.put_hashed(&authority_name(0), "0", pem_of(&root.sign(&other, &other)));
    trust.refresh().unwrap();
    let fault = trust.verify(&chain, ChainRole::Client, now()).unwrap_err();
    assert_eq!(fault.reason, ChainFaultReason::Signature);
    let empty = TestDirectory::new("empty");
    let error = GridTrust::open(settings(&empty, CrlLevel::Ignore)).unwrap_err().to_string();
    assert!(error.contains("no certificate authority"), "{error}");
}

#[test]
fn a_directory_that_others_can_write_has_no_authorities() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("writable"));
    build(&ChainPlan::usual(Defect::None), &keys, &directory);
    std::fs::set_permissions(&directory.0, Permissions::from_mode(0o777)).unwrap();
    let error = GridTrust::open(settings(&directory, CrlLevel::Ignore)).unwrap_err().to_string();
    assert!(error.contains("no certificate authority"), "{error}");
    std::fs::set_permissions(&directory.0, Permissions::from_mode(0o755)).unwrap();
    assert!(GridTrust::open(settings(&directory, CrlLevel::Ignore)).is_ok());
}

#[test]
fn a_chain_ends_at_a_self_signed_authority_at_the_full_level() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("levels"));
    let plan = ChainPlan { has_local_intermediates: true, ..ChainPlan::usual(Defect::UnknownRoot) };
    let chain = build(&plan, &keys, &directory);
    for (authority_level, is_accepted) in
        [(AuthorityLevel::NoVerify, true), (AuthorityLevel::SelfSigned, true), (AuthorityLevel::Full, false)]
    {
        let settings = GridTrustSettings { authority_level, ..settings(&directory, CrlLevel::Require) };
        let verified = GridTrust::open(settings).unwrap().verify(&chain, ChainRole::Client, now());
        assert_eq!(verified.is_ok(), is_accepted, "{authority_level:?}");
    }
}

/// An authority that changed its key has two certificates of one name.
#[test]
fn an_authority_with_a_new_key_is_found_by_its_signature() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("rollover"));
    let chain = build(&ChainPlan::usual(Defect::None), &keys, &directory);
    let root = DraftCertificate::new(&authority_name(0), &authority_name(0), 100).of_authority(None);
    let new = TestKey::p256();
    directory.put_hashed(&authority_name(0), "1", pem_of(&root.sign(&new, &new)));
    let trust = GridTrust::open(settings(&directory, CrlLevel::Require)).unwrap();
    assert!(trust.verify(&chain, ChainRole::Client, now()).is_ok());
    let sub = DraftCertificate::new(&authority_name(1), &authority_name(0), 111).of_authority(None);
    let (sub_key, user_key) = (TestKey::p256(), TestKey::p256());
    let user = DraftCertificate::new(&end_entity_name(), &authority_name(1), 222).of_end_entity();
    let chain = [user.sign(&user_key, &sub_key), sub.sign(&sub_key, &new)];
    let trust = GridTrust::open(settings(&directory, CrlLevel::Ignore)).unwrap();
    assert!(trust.verify(&chain, ChainRole::Client, now()).is_ok());
}

/// S075: only a root may have a signature of SHA-1, because the directory vouches for it.
#[test]
fn sha1_is_accepted_on_roots_only() {
    let directory = TestDirectory::new("sha1");
    let (sha1, sha2) = (TestKey::sha1("ca_key_pem", &directory), TestKey::rsa("ca_key_pem"));
    let root = DraftCertificate::new(&authority_name(0), &authority_name(0), 1).of_authority(None);
    let user = DraftCertificate::new(&end_entity_name(), &authority_name(0), 2).of_end_entity();
    let user_key = TestKey::rsa("user_key_pem");
    directory.put_hashed(&authority_name(0), "0", pem_of(&root.sign(&sha1, &sha1)));
    let trust = GridTrust::open(settings(&directory, CrlLevel::Try)).unwrap();
    let verify = |chain: &[Vec<u8>]| trust.verify(chain, ChainRole::Client, now()).map(drop);
    let with_sha2 = user.sign(&user_key, &sha2);
    assert_eq!(verify(std::slice::from_ref(&with_sha2)), Ok(()));
    let fault = verify(&[user.sign(&user_key, &sha1)]).unwrap_err();
    assert_eq!(fault.reason, ChainFaultReason::SignatureAlgorithm);
    let mut subject = end_entity_name();
    subject.push(("CN", "7".to_owned()));
    let mut proxy = DraftCertificate::new(&subject, &end_entity_name(), 7);
    proxy.extensions.push(extension(oid::PROXY, true, &proxy_info(None, oid::INHERIT_ALL)));
    assert_eq!(verify(&[proxy.sign(&user_key, &user_key), with_sha2.clone()]), Ok(()));
    let user_with_sha1 = TestKey::sha1("user_key_pem", &directory);
    let with_sha1 = proxy.sign(&user_key, &user_with_sha1);
    let fault = verify(&[with_sha1.clone(), with_sha2.clone()]).unwrap_err();
    assert_eq!(fault.reason, ChainFaultReason::SignatureAlgorithm);
    // A client that delegates has just signed the first certificate itself.
    let delegated = |chain: &[Vec<u8>]| trust.verify(chain, ChainRole::Delegation, now()).map(drop);
    assert_eq!(delegated(&[with_sha1.clone(), with_sha2.clone()]), Ok(()));
    let fault = delegated(&[user.sign(&user_key, &sha1)]).unwrap_err();
    assert_eq!(fault.reason, ChainFaultReason::SignatureAlgorithm);
    let mut changed = with_sha1.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(delegated(&[changed, with_sha2.clone()]).unwrap_err().reason, ChainFaultReason::Signature);
    let mut below = subject.clone();
    below.push(("CN", "8".to_owned()));
    let mut second = DraftCertificate::new(&below, &subject, 8);
    second.extensions.push(extension(oid::PROXY, true, &proxy_info(None, oid::INHERIT_ALL)));
    let chain = [second.sign(&user_key, &user_key), with_sha1, with_sha2];
    assert_eq!(delegated(&chain).unwrap_err().reason, ChainFaultReason::SignatureAlgorithm);
    // A list with a signature of SHA-1 could be forged as well.
    let list = revocation_list(&authority_name(0), (NOW - DAY, NOW + DAY), &[9], &sha1);
    directory.put_hashed(&authority_name(0), "r0", list);
    trust.refresh().unwrap();
    let fault = trust.verify(&[user.sign(&user_key, &sha2)], ChainRole::Client, now()).unwrap_err();
    assert!(fault.to_string().contains("has a wrong signature"), "{fault}");
}

/// Authorities divide their lists by the places that certificates name, or by kinds of certificates.
#[test]
fn a_list_counts_for_the_certificates_that_it_covers() {
    let directory = TestDirectory::new("parts");
    let (root_key, user_key) = (TestKey::p256(), TestKey::p256());
    let root = DraftCertificate::new(&authority_name(0), &authority_name(0), 1).of_authority(None);
    directory.put_hashed(&authority_name(0), "0", pem_of(&root.sign(&root_key, &root_key)));
    let place = |url: &str| element(0xa0, &[&element(0xa0, &[&element(0x86, &[url.as_bytes()])])]);
    let mut user = DraftCertificate::new(&end_entity_name(), &authority_name(0), 2).of_end_entity();
    let points = element(0x30, &[&element(0x30, &[&place("http://ca.example/1.crl")])]);
    user.extensions.push(extension(&[0x55, 0x1d, 31], false, &points));
    let chain = [user.sign(&user_key, &root_key)];
    let verdict = |fields: &[u8], serials: &[u64], level| {
        let scope = extension(&[0x55, 0x1d, 28], true, &element(0x30, &[fields]));
        let list = DraftList {
            issuer: &authority_name(0),
            times: (NOW - DAY, Some(NOW + DAY)),
            serials,
            extensions: vec![scope],
            extensions_of_entries: Vec::new(),
        };
        directory.put_hashed(&authority_name(0), "r0", list.sign(&root_key));
        let trust = GridTrust::open(settings(&directory, level)).unwrap();
        trust.verify(&chain, ChainRole::Client, now()).map(drop).map_err(|fault| fault.reason)
    };
    let (own, other) = (place("http://ca.example/1.crl"), place("http://ca.example/2.crl"));
    let (of_users, of_authorities) = ([0x81, 1, 0xff], [0x82, 1, 0xff]);
    for fields in [&own[..], &of_users] {
        assert_eq!(verdict(fields, &[3], CrlLevel::Require), Ok(()));
        assert_eq!(verdict(fields, &[2], CrlLevel::Try), Err(ChainFaultReason::Revoked));
    }
    for fields in [&other[..], &of_authorities] {
        let fault = verdict(fields, &[3], CrlLevel::Use).unwrap_err().to_string();
        assert!(fault.contains("does not cover it"), "{fault}");
        assert_eq!(verdict(fields, &[2], CrlLevel::Try), Ok(()));
    }
}

/// Policies and path lengths do not count certificates that an authority issues to itself.
#[test]
fn an_authority_may_certify_its_own_new_key() {
    let directory = TestDirectory::new("own-key");
    let (old, new, user) = (TestKey::p256(), TestKey::p256(), TestKey::p256());
    let of_root =
        |limit| DraftCertificate::new(&authority_name(0), &authority_name(0), 1).of_authority(limit);
    directory.put_hashed(&authority_name(0), "0", pem_of(&of_root(Some(0)).sign(&old, &old)));
    let policy = "access_id_CA X509 '/DC=org/O=Grid Test/CN=Root'\npos_rights globus CA:sign\n\
                  cond_subjects globus '\"/DC=org/O=Grid Test/OU=People/*\"'\n";
    directory.put_hashed(&authority_name(0), "signing_policy", policy);
    let end_entity = DraftCertificate::new(&end_entity_name(), &authority_name(0), 2).of_end_entity();
    let chain = [end_entity.sign(&user, &new), of_root(None).sign(&new, &old)];
    let settings =
        GridTrustSettings { crl_extension: "r0".to_owned(), ..settings(&directory, CrlLevel::Try) };
    let trust = GridTrust::open(settings).unwrap();
    assert_eq!(trust.verify(&chain, ChainRole::Client, now()).unwrap().end_entity(), USER);
    assert!(trust.verify(&chain[..1], ChainRole::Client, now()).is_err());
}

/// Several authorities of one name do not make the server verify signatures without end.
#[test]
fn many_authorities_of_one_name_have_a_limit() {
    let (keys, directory) = (TestKeys::new(), TestDirectory::new("many"));
    build(&ChainPlan::usual(Defect::None), &keys, &directory);
    let loop_name = name(&[("O", "Loop"), ("CN", "A")]);
    let loop_key = TestKey::p256();
    let mut chain = vec![
        DraftCertificate::new(&end_entity_name(), &loop_name, 1)
            .of_end_entity()
            .sign(&TestKey::p256(), &loop_key),
    ];
    // Each is issued by the same name and key, which is a different certificate each time.
    for serial in 0..19 {
        let authority = DraftCertificate::new(&loop_name, &loop_name, serial).of_authority(None);
        chain.push(authority.sign(&loop_key, &loop_key));
    }
    let trust = GridTrust::open(settings(&directory, CrlLevel::Require)).unwrap();
    assert!(trust.verify(&chain, ChainRole::Client, now()).is_err());
}

/// S071.
#[test]
fn the_recorded_chain_is_verified_and_its_revoked_user_refused() {
    let directory = TestDirectory::new("recorded");
    directory.put("5cdab576.0", vector_text("ca_cert_pem"));
    directory.put("606cb0fc.0", vector_text("ca_cert_pem"));
    directory.put("5cdab576.r0", vector_text("crl_pem"));
    let now = vector_certificate("user_proxy_pem").not_after - Duration::from_secs(60);
    let chain = |prefix: &str| {
        ["proxy", "cert"].map(|kind| vector_certificate(&format!("{prefix}_{kind}_pem")).encoded().to_vec())
    };
    for level in [CrlLevel::Try, CrlLevel::Use, CrlLevel::Require] {
        let trust = GridTrust::open(settings(&directory, level)).unwrap();
        assert!(trust.has_authority("5cdab576.0") && trust.has_authority("606cb0fc"));
        let verified = trust.verify(&chain("user"), ChainRole::Client, now).unwrap();
        assert!(verified.leaf().starts_with(verified.end_entity()) && verified.proxies() == 1);
        let fault = trust.verify(&chain("revoked"), ChainRole::Client, now).unwrap_err();
        assert_eq!(fault.reason, ChainFaultReason::Revoked, "{level:?}");
        let host = certificates_of_pem(vector_text("host_cert_pem").as_bytes()).unwrap();
        assert!(trust.verify(&host, ChainRole::Server, now).is_ok());
        let hashes = trust.authority_hashes(&host[0]).unwrap();
        assert_eq!(hashes, ("5cdab576".to_owned(), "606cb0fc".to_owned()));
        let fault = trust.verify(&host, ChainRole::Server, UNIX_EPOCH).unwrap_err();
        assert_eq!(fault.reason, ChainFaultReason::NotValidYet);
    }
}

/// S086.
#[test]
fn texts_with_anything_else_than_certificates_are_refused() {
    let certificate = vector_text("user_cert_pem");
    let refused = |text: &str| certificates_of_pem(text.as_bytes()).unwrap_err().to_string();
    assert!(refused("").contains("there is no certificate"));
    assert!(refused(&(certificate.clone() + &vector_text("user_key_pem"))).contains("not a certificate"));
    let encrypted = vector_text("user_key_pem").replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert!(refused(&(certificate.clone() + &encrypted)).contains("not a certificate"));
    assert!(refused(&certificate.repeat(21)).contains("too many"));
    assert!(refused("-----BEGIN CERTIFICATE-----\n???\n-----END CERTIFICATE-----\n").contains("not PEM"));
    assert!(refused(&" ".repeat(300 << 10)).contains("too much"));
}
