//! Tests of whole macaroons: the computed answers, changes by holders, layers, logins, and renewal.

use super::caveats::before;
use super::packets::Macaroon;
use super::*;
use crate::access::{
    AccessClient, AccessOperation, AccessPolicy, AuditedDecisions, AuthdbCheck, CredentialKind,
    CredentialLayer, LayerDecision, TokenOrigin,
};
use crate::tokens::test_issuer::{path, recorded_policy, vector};
use crate::tokens::{OnMissing, TokenVerdict};
use crate::ztn::{ExpiryCheck, ZtnServer, ZtnServerSettings};
use crate::{Entity, LoginPeer, Secret, ServerProtocol, ServerStep, SystemRng};
use base::LogicalPath;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SITE: &str = "Test-Site";
/// 2026-11-21T11:00:00Z, the clock of the cases.
const NOW: u64 = 1_795_258_800;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

fn settings() -> MacaroonSettings {
    MacaroonSettings {
        secret: "/f".into(),
        check: AuthdbCheck::None,
        site: SITE.to_owned(),
        lifetime_max: Some(Duration::from_secs(86_400)),
        on_missing: OnMissing::PassThrough,
    }
}

fn secret() -> MacaroonSecret {
    let vector = vector("macaroon.json");
    MacaroonSecret::parse(vector["secret_base64"].as_str().unwrap().as_bytes()).unwrap()
}

fn policy() -> MacaroonPolicy {
    MacaroonPolicy::new(settings(), secret())
}

fn text(macaroon: &Value) -> &[u8] {
    macaroon["token"].as_str().unwrap().as_bytes()
}

/// Returns a macaroon with these caveats and the right signature.
fn macaroon(caveats: &[&str]) -> Macaroon {
    let caveats: Vec<Vec<u8>> = caveats.iter().map(|caveat| caveat.as_bytes().to_vec()).collect();
    let (location, identifier) = (SITE.as_bytes().to_vec(), b"id".to_vec());
    let signature = *secret().signature(&identifier, &caveats);
    Macaroon { location, identifier, caveats, has_third_party: false, signature }
}

/// Returns the text of a macaroon for `/data/sub` with an expiry in an hour and more caveats.
fn issued(more: &[&str]) -> String {
    let expiry = before(now() + Duration::from_secs(3600));
    let all = [&["name:alice", "activity:DOWNLOAD,LIST", "path:/data/sub", &expiry], more].concat();
    macaroon(&all).encode().unwrap()
}

fn fault(text: &str) -> Option<MacaroonFault> {
    match policy().verify(text.as_bytes(), now()) {
        MacaroonVerdict::Valid(_) => None,
        MacaroonVerdict::OtherSite => Some(MacaroonFault::OtherSite),
        MacaroonVerdict::Refused(fault) | MacaroonVerdict::NotRecognized(fault) => Some(fault),
    }
}

fn verified(text: &str) -> Arc<VerifiedMacaroon> {
    match policy().verify(text.as_bytes(), now()) {
        MacaroonVerdict::Valid(macaroon) => macaroon,
        other => panic!("{other:?}"),
    }
}

/// Returns the answer of layers to a request with a credential, and the name that it gives its bearer.
fn answer(policy: &AccessPolicy, text: &[u8], operation: AccessOperation, at: &LogicalPath) -> &'static str {
    let token = policy.verify(text, TokenOrigin::Request, now());
    match policy.request(AccessClient::Host("h"), Some(&token)).layer(operation, at) {
        LayerDecision::Rules(_) => "next layer",
        decision if decision.allows_by_credential() => "allowed",
        _ => "denied",
    }
}

fn hex(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16).unwrap()).unwrap();
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Computed: `macaroon.json`.
#[test]
fn the_chain_has_the_known_signatures() {
    let vector = vector("macaroon.json");
    let known = [(&vector["known_answer"], None), (&vector["issued"], Some(secret()))];
    for (known, secret) in known {
        let secret =
            secret.unwrap_or_else(|| MacaroonSecret::new(known["key_text"].as_str().unwrap().as_bytes()));
        let decoded = Macaroon::decode(text(known)).unwrap_or_else(|reason| panic!("{reason}"));
        assert_eq!(decoded.identifier, known["identifier"].as_str().unwrap().as_bytes());
        let location = known["location"].as_str().unwrap_or(SITE);
        assert_eq!(decoded.location, location.as_bytes());
        let caveats: Vec<&[u8]> = known["caveats"]
            .as_array()
            .unwrap()
            .iter()
            .map(|caveat| caveat.as_str().unwrap().as_bytes())
            .collect();
        assert_eq!(decoded.caveats, caveats);
        for (count, expected) in known["signatures_hex"].as_array().unwrap().iter().enumerate() {
            let signature = secret.signature(&decoded.identifier, &decoded.caveats[..count]);
            assert_eq!(signature.as_slice(), hex(expected), "{count}");
        }
        assert_eq!(secret.signature(&decoded.identifier, &decoded.caveats).as_slice(), decoded.signature);
        assert_eq!(decoded.encode().unwrap().as_bytes(), text(known));
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(text(known)).unwrap(), hex(&known["packets_hex"]));
    }
}

/// Computed: `macaroon.json`.
#[test]
fn the_cases_have_the_computed_answers() {
    let vector = vector("macaroon.json");
    let layers = AccessPolicy::new(
        vec![CredentialLayer::Macaroons(Arc::new(policy()))],
        None,
        AuditedDecisions::default(),
    );
    let cases = vector["cases"].as_array().unwrap();
    assert!(cases.len() >= 30, "{}", cases.len());
    for case in cases {
        let operation = AccessOperation::of_name(case["operation"].as_str().unwrap()).unwrap();
        // The protocol layer refuses other paths before they are decided about.
        let path = LogicalPath::parse(case["path"].as_str().unwrap().as_bytes());
        let found = path.map_or("denied", |path| answer(&layers, text(case), operation, &path));
        assert_eq!(found, case["answer"], "{}", case["label"]);
        if let Some(name) = case["request_name"].as_str() {
            assert_eq!(verified(case["token"].as_str().unwrap()).name(), Some(name));
        }
    }
    for duration in vector["durations"].as_array().unwrap() {
        let expected = duration[1].as_u64().map(Duration::from_secs);
        assert_eq!(validity(duration[0].as_str().unwrap()), expected, "{duration}");
    }
}

#[test]
fn an_issued_macaroon_is_accepted() {
    let request = MacaroonRequest {
        name: Some("alice".to_owned()),
        activities: vec![Activity::List, Activity::Download, Activity::List],
        path: path("/data/sub"),
        expires: now() + Duration::from_millis(60_700),
    };
    let issued = request.issue(&secret(), SITE, &mut SystemRng).unwrap();
    let verified = verified(&issued);
    let expected = ["name:alice", "activity:DOWNLOAD,LIST", "path:/data/sub", "before:2026-11-21T11:01:00Z"];
    assert_eq!(verified.caveats().collect::<Vec<_>>(), expected);
    assert_eq!((verified.site(), verified.name()), (SITE, Some("alice")));
    assert_eq!(verified.identifier().len(), 36);
    assert_eq!(verified.expires(), now() + Duration::from_secs(60));
    assert_ne!(request.issue(&secret(), SITE, &mut SystemRng).unwrap(), issued);
    let narrowed = with_caveat(issued.as_bytes(), b"path:/data/sub/x").unwrap();
    let MacaroonVerdict::Valid(narrowed) = policy().verify(narrowed.as_bytes(), now()) else {
        panic!("refused")
    };
    assert_eq!(narrowed.caveats().last(), Some("path:/data/sub/x"));
    assert_eq!(with_caveat(&issued.as_bytes()[1..], b"path:/"), None);
    assert_eq!(with_caveat(issued.as_bytes(), &[b'x'; 9000]), None);
    let unnamed = MacaroonRequest { name: None, ..request }.issue(&secret(), SITE, &mut SystemRng).unwrap();
    let MacaroonVerdict::Valid(unnamed) = policy().verify(unnamed.as_bytes(), now()) else {
        panic!("refused")
    };
    assert_eq!(unnamed.name(), None);
}

#[test]
fn no_part_and_no_change_of_a_macaroon_is_valid() {
    let whole = issued(&[]);
    assert_eq!(fault(&whole), None);
    for end in 0..whole.len() {
        assert!(fault(&whole[..end]).is_some(), "{end}");
    }
    for at in 0..whole.len() {
        for change in [1, 2, 16] {
            let mut changed = whole.clone().into_bytes();
            changed[at] ^= change;
            let verdict = policy().verify(&changed, now());
            assert!(!matches!(verdict, MacaroonVerdict::Valid(_)), "{at} {change}");
        }
    }
    // Without a caveat, with the signature behind it or that of the rest.
    let decoded = Macaroon::decode(whole.as_bytes()).unwrap_or_else(|reason| panic!("{reason}"));
    for removed in 0..decoded.caveats.len() {
        let mut less = decoded.clone();
        less.caveats.remove(removed);
        assert_eq!(fault(&less.encode().unwrap()), Some(MacaroonFault::Signature), "{removed}");
        less.caveats.truncate(removed);
        less.signature = *secret().signature(&less.identifier, &less.caveats);
        assert!(matches!(fault(&less.encode().unwrap()), Some(MacaroonFault::Missing(_))), "{removed}");
    }
    let mut swapped = decoded.clone();
    swapped.caveats.swap(1, 2);
    assert_eq!(fault(&swapped.encode().unwrap()), Some(MacaroonFault::Signature));
    let other = Macaroon { identifier: b"other".to_vec(), ..decoded };
    assert_eq!(fault(&other.encode().unwrap()), Some(MacaroonFault::Signature));
}

#[test]
fn caveats_that_are_not_right_refuse_a_macaroon() {
    let caveat = |text: &str| issued(&[text]);
    let is_caveat = |text: &str| matches!(fault(&caveat(text)), Some(MacaroonFault::Caveat { .. }));
    for unknown in
        ["ip:192.0.2.1", "x", "", "path:relative", "path:/a/..", "before:tomorrow", "Activity:LIST"]
    {
        assert!(is_caveat(unknown), "{unknown}");
    }
    assert_eq!(fault(&caveat("name:alice")), Some(MacaroonFault::SecondName));
    let at = |offset: i64| before(UNIX_EPOCH + Duration::from_secs(NOW.saturating_add_signed(offset)));
    assert_eq!(fault(&caveat(&at(0))), Some(MacaroonFault::Expired));
    assert_eq!(fault(&caveat(&at(1))), None);
    assert_eq!(fault(&caveat(&at(86_400))), None);
    assert_eq!(fault(&caveat(&at(86_401))), Some(MacaroonFault::TooLong));
    // An earlier expiry does not make up for it.
    assert_eq!(fault(&issued(&[&at(86_401), &at(5)])), Some(MacaroonFault::TooLong));
    let unlimited = MacaroonPolicy::new(MacaroonSettings { lifetime_max: None, ..settings() }, secret());
    let late = unlimited.verify(caveat(&at(9_000_000)).as_bytes(), now());
    assert!(matches!(late, MacaroonVerdict::Valid(_)));
    assert_eq!(verified(&issued(&[&at(100), &at(50), &at(70)])).expires(), now() + Duration::from_secs(50));
    let parts = ["activity:LIST", "path:/", &at(60)];
    for missing in 0..parts.len() {
        let mut left = parts.to_vec();
        left.remove(missing);
        let key = parts[missing].split_once(':').unwrap().0;
        let expected = Some(key.to_owned());
        let found = match fault(&macaroon(&left).encode().unwrap()) {
            Some(MacaroonFault::Missing(key)) => Some(key.to_owned()),
            _ => None,
        };
        assert_eq!(found, expected);
    }
    let third = Macaroon { location: SITE.into(), ..macaroon(&parts) };
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(third.encode().unwrap()).unwrap();
    let signature = bytes.len() - 47;
    let with = [&bytes[..signature], b"000avid x\n0009cl x\n", &bytes[signature..]].concat();
    assert_eq!(fault(&BASE64_URL_SAFE_NO_PAD.encode(with)), Some(MacaroonFault::ThirdParty));
    let many = |count: usize| issued(&vec!["path:/"; count - 4]);
    assert_eq!(fault(&many(CAVEATS_MAX)), None);
    assert_eq!(fault(&many(CAVEATS_MAX + 1)), Some(MacaroonFault::TooMany));
    let long = caveat(&format!("ip:{}\n", "\u{202e}x".repeat(500)));
    let shown = fault(&long).unwrap().to_string();
    assert!(shown.len() < 1000 && !shown.contains(['\n', '\u{202e}']), "{shown}");
}

/// A holder can append caveats, but gains no operation and no path by them.
#[test]
fn added_caveats_never_widen() {
    let later = before(now() + Duration::from_secs(7200));
    let added = [
        "activity:DELETE,MANAGE,UPLOAD,DOWNLOAD,LIST,UPDATE_METADATA,READ_METADATA",
        "activity:LIST",
        "activity:",
        "path:/",
        "path:/data",
        "path:/data/sub/deep",
        "path:/other",
        "path:/data/subx",
        later.as_str(),
        "name:root",
        "ip:192.0.2.1",
        "",
    ];
    let paths =
        ["/", "/data", "/data/sub", "/data/sub/f", "/data/sub/deep/f", "/data/subx", "/other", "/other/f"];
    let allowed = |text: &str| {
        let MacaroonVerdict::Valid(macaroon) = policy().verify(text.as_bytes(), now()) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for operation in AccessOperation::ALL {
            let at = paths.iter().filter(|at| macaroon.allows(operation, &path(at)));
            found.extend(at.map(|at| (operation.name(), *at)));
        }
        let (first, nothing) = (found.first(), macaroon.grants_any());
        assert_eq!(first.is_some(), nothing, "{text}");
        found
    };
    let before = allowed(&issued(&[]));
    assert!(before.contains(&("read", "/data/sub/f")) && !before.contains(&("delete", "/data/sub/f")));
    for one in added {
        let narrowed = allowed(&issued(&[one]));
        assert!(narrowed.iter().all(|right| before.contains(right)), "{one}: {narrowed:?}");
        for other in added {
            let twice = allowed(&issued(&[one, other]));
            assert!(twice.iter().all(|right| narrowed.contains(right)), "{one} {other}: {twice:?}");
        }
    }
    // Activities intersect by the operations that they allow.
    let both = |first: &str, second: &str| {
        let expiry = before_text();
        let text = macaroon(&[first, second, "path:/", &expiry]).encode().unwrap();
        let found = verified(&text);
        let names = AccessOperation::ALL.into_iter().filter(|op| found.allows(*op, &path("/f")));
        names.map(AccessOperation::name).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(both("activity:DOWNLOAD", "activity:LIST"), "any stat");
    assert_eq!(both("activity:MANAGE", "activity:UPLOAD"), "any rename stat excl_create excl_insert");
    assert_eq!(both("activity:LIST", "activity:FUTURE"), "");
}

fn before_text() -> String {
    before(now() + Duration::from_secs(60))
}

#[test]
fn paths_are_compared_by_component() {
    let at = |caveats: &[&str]| {
        let expiry = before_text();
        let all = [&["activity:MANAGE", &expiry], caveats].concat();
        verified(&macaroon(&all).encode().unwrap())
    };
    let sub = at(&["path:/data//sub/"]);
    for (operation, inside) in [
        (AccessOperation::Update, "/data/sub/f"),
        (AccessOperation::Update, "/data/sub"),
        (AccessOperation::Update, "/data//sub/f"),
        (AccessOperation::Stat, "/data"),
        (AccessOperation::Stat, "/"),
        (AccessOperation::MakeDirectory, "/data"),
    ] {
        assert!(sub.allows(operation, &path(inside)), "{inside}");
    }
    for (operation, outside) in [
        (AccessOperation::Update, "/data/subx"),
        (AccessOperation::Update, "/data"),
        (AccessOperation::Create, "/data"),
        (AccessOperation::Stat, "/data/other"),
        (AccessOperation::MakeDirectory, "/dat"),
    ] {
        assert!(!sub.allows(operation, &path(outside)), "{outside}");
        assert_eq!(sub.denying_caveat(operation, &path(outside)), Some("path:/data//sub/"));
    }
    assert_eq!(sub.denying_caveat(AccessOperation::Read, &path("/other")), Some("activity:MANAGE"));
    let disjoint = at(&["path:/a", "path:/b"]);
    assert!(!disjoint.allows(AccessOperation::Stat, &path("/")) && !disjoint.grants_any());
    assert_eq!(disjoint.denying_caveat(AccessOperation::Stat, &path("/")), None);
    assert!(at(&["path:/"]).allows(AccessOperation::Update, &path("/any/f")));
}

#[test]
fn requests_without_a_macaroon_depend_on_onmissing() {
    let layers = |on_missing, tokens_first: bool| {
        let macaroons = MacaroonPolicy::new(MacaroonSettings { on_missing, ..settings() }, secret());
        let mut layers = vec![
            CredentialLayer::Macaroons(Arc::new(macaroons)),
            CredentialLayer::Tokens(recorded_policy("")),
        ];
        if tokens_first {
            layers.reverse();
        }
        AccessPolicy::new(layers, None, AuditedDecisions::default())
    };
    let ask = |policy: &AccessPolicy, text: Option<&str>, operation| {
        let token = text.map(|text| policy.verify(text.as_bytes(), TokenOrigin::Request, now()));
        let request = policy.request(AccessClient::Host("h"), token.as_ref());
        match request.layer(operation, &path("/data/sub/f")) {
            LayerDecision::Macaroon { is_allowed, .. } => format!("macaroon {is_allowed}"),
            LayerDecision::InvalidMacaroon(_) => "invalid".to_owned(),
            LayerDecision::OnMissing { kind: CredentialKind::Macaroon, is_allowed, .. } => {
                format!("onmissing {is_allowed}")
            }
            LayerDecision::Rules(_) => "next".to_owned(),
            other => format!("{other:?}"),
        }
    };
    let own = issued(&[]);
    let expired = issued(&["before:2026-11-21T10:00:00Z"]);
    let other = Macaroon { location: b"Test".to_vec(), ..macaroon(&["path:/"]) }.encode().unwrap();
    let cut = &own[..own.len() - 1];
    let read = AccessOperation::Read;
    for (on_missing, missing) in [
        (OnMissing::PassThrough, "next"),
        (OnMissing::Allow, "onmissing true"),
        (OnMissing::Deny, "onmissing false"),
    ] {
        for tokens_first in [false, true] {
            let policy = layers(on_missing, tokens_first);
            for text in [None, Some("abc"), Some("a.b"), Some(cut)] {
                assert_eq!(ask(&policy, text, read), missing, "{on_missing:?} {text:?}");
            }
            assert_eq!(ask(&policy, Some(&own), read), "macaroon true");
            assert_eq!(ask(&policy, Some(&own), AccessOperation::Delete), "macaroon false");
            assert_eq!(ask(&policy, Some(&own), AccessOperation::Any), "next", "it serves for no other one");
            assert_eq!(ask(&policy, Some(&expired), read), "invalid");
            assert_eq!(ask(&policy, Some(&expired), AccessOperation::Any), "invalid");
            assert_eq!(ask(&policy, Some(&other), read), "next");
        }
    }
}

/// Returns the entity of a client that logs in with a token.
fn login(server: &ZtnServer, token: &str, at: SystemTime) -> Result<Entity, String> {
    let length = u16::try_from(token.len() + 1).unwrap().to_be_bytes();
    let credentials = [b"ztn\0\0T\0\0", &length[..], token.as_bytes(), b"\0"].concat();
    let peer = LoginPeer {
        address: ([192, 0, 2, 1], 4711).into(),
        host: "c.example.org".to_owned(),
        login_id: "me".to_owned(),
        is_tls: true,
    };
    match server.begin(&peer).step(&credentials, at) {
        ServerStep::Done(entity) => Ok(entity),
        ServerStep::Refused(refused) => Err(format!("{refused:?}")),
        _ => Err("it continues".to_owned()),
    }
}

#[test]
fn a_login_by_a_macaroon_ends_with_it() {
    let server =
        ZtnServer::new(ZtnServerSettings::default(), Some(CredentialLayer::Macaroons(Arc::new(policy()))));
    let entity = login(&server, &issued(&[]), now()).unwrap();
    assert_eq!((&*entity.protocol, entity.name.as_deref()), ("ztn", Some("alice")));
    assert_eq!(entity.expires, Some(now() + Duration::from_secs(3600)));
    assert_eq!(entity.verified_bearer(), Some(("macaroons of Test-Site", "name:alice")));
    // The name is for logs: rules for it would apply without the caveats.
    assert_eq!(AccessClient::Entity(&entity).principal().name, None);
    let expiry = before_text();
    let unnamed = macaroon(&["activity:LIST", "path:/", &expiry]).encode().unwrap();
    let unnamed = login(&server, &unnamed, now()).unwrap();
    assert_eq!((unnamed.name.as_deref(), unnamed.verified_bearer().unwrap().1), (None, "identifier:id"));
    let other = Macaroon { location: b"Test".to_vec(), ..macaroon(&["path:/"]) }.encode().unwrap();
    for (text, expected) in [
        (issued(&["ip:x"]), "the caveat"),
        (issued(&["before:2026-11-21T10:00:00Z"]), "has expired"),
        (other, "of another site"),
        ("a.b.c".to_owned(), "not a macaroon"),
    ] {
        let refused = login(&server, &text, now()).unwrap_err();
        assert!(refused.contains(expected) && !refused.contains(&text), "{expected}: {refused}");
    }
    let tokens = CredentialLayer::Tokens(recorded_policy(""));
    assert!(login(&ZtnServer::new(ZtnServerSettings::default(), Some(tokens)), &issued(&[]), now()).is_err());
    let unverified = |expiry| {
        let settings = ZtnServerSettings { expiry, ..ZtnServerSettings::default() };
        ZtnServer::new(settings, None)
    };
    let required = unverified(ExpiryCheck::Required);
    let earlier = issued(&["before:2026-11-21T11:00:09Z"]);
    let expires = login(&required, &earlier, now()).unwrap().expires;
    assert_eq!(expires, Some(now() + Duration::from_secs(9)));
    assert!(login(&required, &earlier, now() + Duration::from_secs(9)).is_err());
    let endless = macaroon(&["activity:LIST", "path:/"]).encode().unwrap();
    assert!(login(&required, &endless, now()).is_err());
    assert!(login(&unverified(ExpiryCheck::Optional), &endless, now()).is_ok());
}

#[test]
fn a_changed_secret_counts_at_once_and_a_broken_file_changes_nothing() {
    let file = std::env::temp_dir().join(format!("auth-macaroons-{}", std::process::id()));
    let write = |text: &str| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let encoded = vector("macaroon.json")["secret_base64"].as_str().unwrap().to_owned();
    write(&encoded);
    let settings = MacaroonSettings { secret: file.clone(), check: AuthdbCheck::ForServer, ..settings() };
    let policy = MacaroonPolicy::load(settings).unwrap();
    let is_valid = || matches!(policy.verify(issued(&[]).as_bytes(), now()), MacaroonVerdict::Valid(_));
    assert!(is_valid());
    assert!(matches!(policy.refresh(), SecretRefresh::Unchanged));
    for broken in ["", "AAAA", &encoded[1..]] {
        write(broken);
        assert!(matches!(policy.refresh(), SecretRefresh::Kept(_)) && is_valid(), "{broken}");
        assert!(policy.state().contains("the present file is not in force"), "{}", policy.state());
    }
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(policy.refresh(), SecretRefresh::Kept(_)) && is_valid());
    write(&BASE64_STANDARD.encode([1; 32]));
    assert!(matches!(policy.refresh(), SecretRefresh::Replaced) && !is_valid());
    write(&encoded);
    assert!(matches!(policy.refresh(), SecretRefresh::Replaced) && is_valid());
    std::fs::remove_file(&file).unwrap();
    let expected = format!("macaroons of Test-Site with the secret in {}", file.display());
    assert_eq!(policy.state(), expected);
    assert_eq!(policy.failure(), None);
}

#[test]
fn no_message_contains_a_secret_or_a_signature() {
    let whole = issued(&[]);
    let signature = Macaroon::decode(whole.as_bytes()).map(|decoded| decoded.signature).unwrap_or_default();
    let shown = format!("{:?} {:?} {}", policy().verify(whole.as_bytes(), now()), secret(), policy().state());
    let parts = [
        whole.clone(),
        vector("macaroon.json")["secret_base64"].as_str().unwrap().to_owned(),
        format!("{signature:?}"),
        format!("{:?}", Secret::from(signature.as_slice()).expose()),
    ];
    assert!(parts.iter().all(|part| !shown.contains(part.as_str())), "{shown}");
    assert!(matches!(recorded_policy("").verify(whole.as_bytes(), now()), TokenVerdict::NotRecognized(_)));
}
