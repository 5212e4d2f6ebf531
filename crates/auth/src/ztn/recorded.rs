//! Replays of the recorded logins (`ztn.json`, `scitokens.json`) on both sides.

use super::*;
use crate::access::CredentialLayer;
use crate::server::{LoginPeer, ServerProtocol, ServerStep};
use crate::tokens::test_issuer::{NOW, at, recorded_policy, recorded_token, token, vector};
use crate::{ClientContext, ClientProtocol, Entity, OfferedProtocol};
use serde_json::{Value, json};
use std::time::SystemTime;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn peer(is_tls: bool) -> LoginPeer {
    LoginPeer {
        address: "[::1]:1".parse().unwrap(),
        host: "h.o".to_owned(),
        login_id: "u".to_owned(),
        is_tls,
    }
}

fn login(server: &ZtnServer, credentials: &[u8], is_tls: bool, now: SystemTime) -> Result<Entity, String> {
    match server.begin(&peer(is_tls)).step(credentials, now) {
        ServerStep::Done(entity) => Ok(entity),
        ServerStep::Refused(refused) => Err(refused.reason().to_owned()),
        other => panic!("{other:?}"),
    }
}

fn verifying(more: &str) -> ZtnServer {
    ZtnServer::new(ZtnServerSettings::default(), Some(CredentialLayer::Tokens(recorded_policy(more))))
}

/// Returns the credentials of our client with this token.
fn credentials(token: &str, offer: &[u8], is_tls: bool) -> Option<Vec<u8>> {
    let places = TokenPlaces::of_environment(|name| (name == "BEARER_TOKEN").then(|| token.to_owned()));
    let offer = OfferedProtocol { id: ZTN.to_owned(), parameters: offer.to_vec() };
    let context = ClientContext { is_tls, ..ClientContext::new("[::1]:1".parse().unwrap(), "h.o", "s.o") };
    let mut login = ZtnClient::new(places).begin(&offer, &context).ok()?;
    login.step(None, SystemTime::UNIX_EPOCH).ok()
}

#[test]
fn the_recorded_logins_have_the_recorded_bytes() {
    let recorded = vector("ztn.json");
    for connection in recorded["connections"].as_array().unwrap() {
        let frames = connection["frames"].as_array().unwrap();
        let request = frames.iter().find(|frame| frame["request"] == "kXR_auth").unwrap();
        let sent = bytes(request["hex"].as_str().unwrap())[24..].to_vec();
        let end =
            10 + usize::try_from(connection["decoded"]["token_len_field"].as_u64().unwrap()).unwrap() - 1;
        let token = std::str::from_utf8(&sent[10..end]).unwrap();
        assert_eq!(credentials(token, b"0:4096:", true).as_deref(), Some(&sent[..]));
        let issued = connection["decoded"]["jwt_claims"]["iat"].as_u64().unwrap();
        let entity = login(&verifying("map_subject = true\n"), &sent, true, at(issued)).unwrap();
        assert_eq!((&*entity.protocol, entity.name.as_deref()), ("ztn", Some("alice")));
        assert_eq!(entity.attribute("token.subject"), Some("alice"));
        assert!(entity.credentials.as_ref().unwrap().is_equal(token.as_bytes()));
        let expires = connection["decoded"]["jwt_claims"]["exp"].as_u64().unwrap();
        assert_eq!(entity.expires, Some(at(expires)));
        // Neither the subject nor the name for scopes is a name of its own.
        assert_eq!(login(&verifying(""), &sent, true, at(issued)).unwrap().name, None);
        let expired = connection["decoded"]["jwt_claims"]["exp"].as_u64().unwrap();
        let refused = login(&verifying(""), &sent, true, at(expired)).unwrap_err();
        assert!(refused.contains("expired") && !refused.contains(token));
        for length in 0..end + 1 {
            assert!(login(&verifying(""), &sent[..length], true, at(issued)).is_err(), "{length}");
        }
    }
    assert_eq!(verifying("").parameters(), "0:4096:");
}

#[test]
fn the_recorded_tokens_log_in_or_not() {
    let server = verifying("");
    for case in vector("scitokens.json")["cases"].as_array().unwrap() {
        let sent = credentials(&recorded_token(case), b"0:4096:", true).unwrap();
        assert_eq!(login(&server, &sent, true, at(NOW)).is_ok(), case["auth"] == "ok", "{case}");
    }
}

#[test]
fn no_token_is_sent_or_accepted_without_encryption() {
    let valid = token(&json!({}));
    assert_eq!(credentials(&valid, b"0:4096:", false), None);
    let sent = credentials(&valid, b"0:4096:", true).unwrap();
    assert!(login(&verifying(""), &sent, false, at(NOW)).unwrap_err().contains("not encrypted"));
    assert!(verifying("").needs_tls());
    // A server that accepts shorter tokens only.
    assert_eq!(credentials(&valid, b"0:100:", true), None);
}

#[test]
fn without_a_verification_only_the_expiry_counts() {
    let unverified = |expiry| {
        let settings = ZtnServerSettings { expiry, ..ZtnServerSettings::default() };
        ZtnServer::new(settings, None)
    };
    let try_with = |expiry, changes: Value| {
        let sent = credentials(&token(&changes), b"0:4096:", true).unwrap();
        login(&unverified(expiry), &sent, true, at(NOW))
    };
    let (past, none) = (json!({ "exp": NOW }), json!({ "exp": null }));
    for (expiry, past_is_ok, none_is_ok) in [
        (ExpiryCheck::Ignore, true, true),
        (ExpiryCheck::Optional, false, true),
        (ExpiryCheck::Required, false, false),
    ] {
        assert_eq!(try_with(expiry, past.clone()).is_ok(), past_is_ok, "{expiry:?}");
        assert_eq!(try_with(expiry, none.clone()).is_ok(), none_is_ok, "{expiry:?}");
        let entity = try_with(expiry, json!({"iss": "https://other"})).unwrap();
        assert!(entity.name.is_none() && entity.attributes.is_empty() && entity.credentials.is_some());
    }
}

#[test]
fn a_refused_token_that_has_expired_is_explained() {
    let text = token(&json!({ "iss": "https://a", "exp": NOW }));
    let places = TokenPlaces::of_environment(|name| (name == "BEARER_TOKEN").then(|| text.clone()));
    let offer = OfferedProtocol { id: ZTN.to_owned(), parameters: b"0:4096:".to_vec() };
    let context =
        ClientContext { is_tls: true, ..ClientContext::new("[::1]:1".parse().unwrap(), "h.o", "s.o") };
    let mut login = ZtnClient::new(places).begin(&offer, &context).unwrap();
    // It is sent in any case: the clock of this client may be wrong.
    assert!(login.step(None, at(NOW + 10_800)).is_ok());
    assert_eq!(
        login.explain_refusal(at(NOW + 10_800)).as_deref(),
        Some("the token expired 3 h ago; get a new one")
    );
    assert_eq!(login.explain_refusal(at(NOW - 1)), None);
}
