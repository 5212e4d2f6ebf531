//! Tests of clients that logged in with a token: the name and the rights that it gives, and when they
//! end.

use super::*;
use crate::entity::{EntityFields, TOKEN_ISSUER, TOKEN_SUBJECT};
use crate::{Entity, LoginPeer, ServerProtocol, ServerStep, ztn};

/// Returns the entity of a client that logs in with a token.
fn login(tokens: &Arc<TokenPolicy>, token: &str) -> Result<Entity, String> {
    let length = u16::try_from(token.len() + 1).unwrap().to_be_bytes();
    let credentials = [b"ztn\0\0T\0\0", &length[..], token.as_bytes(), b"\0"].concat();
    let server =
        ztn::ZtnServer::new(ztn::ZtnServerSettings::default(), Some(CredentialLayer::Tokens(tokens.clone())));
    let address = "[::1]:1".parse().unwrap();
    let peer = LoginPeer { address, host: "h.o".to_owned(), login_id: "u".to_owned(), is_tls: true };
    match server.begin(&peer).step(&credentials, now()) {
        ServerStep::Done(entity) => Ok(entity),
        ServerStep::Refused(refused) => Err(refused.reason().to_owned()),
        other => panic!("{other:?}"),
    }
}

/// Returns the layer that decides about a request of a client that logged in with a token, after the
/// issuers have changed to `later`.
fn layer_after_login(tokens: &Arc<TokenPolicy>, later: &Arc<TokenPolicy>, token: &str, at: &str) -> String {
    let entity = login(tokens, token).unwrap();
    layer_of(later, (token, TokenOrigin::Login), AccessClient::Entity(&entity), at)
}

#[test]
fn only_the_issuer_file_makes_a_name_of_a_token() {
    let named = token(&json!({"scope": null, "user": "root"}));
    for (lines, name) in [
        ("", None),
        ("default_user = pool\n", None),
        ("map_subject = true\n", Some("alice")),
        ("username_claim = user\n", Some("root")),
        ("username_claim = other\ndefault_user = pool\n", None),
        ("map_subject = true\nauthorization_strategy = capability group\n", None),
    ] {
        let tokens = recorded_policy(lines);
        let entity = login(&tokens, &named).unwrap();
        assert_eq!(entity.name.as_deref(), name, "{lines}");
        assert_eq!(entity.verified_bearer(), Some((ISSUER, "alice")));
        let expected = name.map_or("rules".to_owned(), |name| format!("rules {name} [] []"));
        assert_eq!(layer_after_login(&tokens, &tokens, &named, "/protected/f"), expected, "{lines}");
        assert_eq!(layer_after_login(&tokens, &tokens, &named, "/other"), expected, "{lines}");
        // In a request the same token names nobody, because only the map file names its bearer.
        assert_eq!(layer(&tokens, &named, "/protected/f"), "rules", "{lines}");
    }
}

#[test]
fn a_name_ends_with_its_issuer() {
    let (tokens, text) = (recorded_policy("map_subject = true\n"), token(&json!({})));
    let after = |later: &Arc<TokenPolicy>, at: &str| layer_after_login(&tokens, later, &text, at);
    assert_eq!(after(&tokens, "/protected/f"), "storage.read:/ alice");
    assert_eq!(after(&tokens, "/other"), "rules alice [] []");
    // The issuer no longer names its bearers.
    assert_eq!(after(&recorded_policy(""), "/other"), "rules");
    // Another one is trusted instead.
    let other =
        "[Issuer other]\nissuer = https://other.example.org\nbase_path = /protected\nmap_subject = true\n";
    let other = Arc::new(policy_of(other));
    for at in ["/protected/f", "/other"] {
        assert_eq!(after(&other, at), "rules", "{at}");
    }
    // The keys of the issuer are withdrawn.
    let tokens_without_keys = recorded_policy("map_subject = true\n");
    tokens_without_keys.set_keys(ISSUER, None);
    assert_eq!(after(&tokens_without_keys, "/other"), TokenFault::NoKeys.to_string());
}

#[test]
fn a_request_with_its_own_token_has_nothing_of_the_login() {
    let tokens = recorded_policy("map_subject = true\n");
    let entity = login(&tokens, &token(&json!({}))).unwrap();
    let own = token(&json!({"sub": "bob", "scope": "storage.read:/sub"}));
    let decided =
        |at: &str| layer_of(&tokens, (&own, TokenOrigin::Request), AccessClient::Entity(&entity), at);
    assert_eq!(decided("/protected/sub/f"), "storage.read:/sub bob");
    assert_eq!(decided("/protected/f"), "rules");
    let foreign =
        layer_of(&tokens, ("abc", TokenOrigin::Request), AccessClient::Entity(&entity), "/protected/f");
    assert_eq!(foreign, "rules");
    // The name of another kind of login stays.
    let fields = EntityFields { name: Some("carol".into()), ..EntityFields::default() };
    let entity = Entity::new(fields);
    let decided =
        layer_of(&tokens, (&own, TokenOrigin::Request), AccessClient::Entity(&entity), "/protected/f");
    assert_eq!(decided, "rules of the session for carol");
}

#[test]
fn tokens_that_must_be_refused_do_not_log_in() {
    let tokens = recorded_policy("map_subject = true\n");
    let (header, signer) = (json!({"alg": "ES256", "typ": "JWT", "kid": "test-1"}), Signer::recorded());
    let signed = |header: &Value| signer.token(header, &claims(&json!({})));
    let valid = signed(&header);
    assert!(login(&tokens, &valid).is_ok());
    let mut refused: Vec<(String, TokenFault)> = [
        (json!({ "exp": NOW }), TokenFault::Expired),
        (json!({"nbf": NOW + 600}), TokenFault::NotYetValid),
        (json!({ "exp": null }), TokenFault::NoExpiry),
        (json!({"iss": "https://other.example.org"}), TokenFault::UnknownIssuer),
        (json!({"iss": format!("{ISSUER}/")}), TokenFault::UnknownIssuer),
        (json!({ "aud": null }), TokenFault::NoAudience),
        (json!({"aud": "https://other.example.org"}), TokenFault::Audience),
    ]
    .map(|(changes, fault)| (token(&changes), fault))
    .into();
    refused.extend([
        (format!("{}.{}", valid.rsplit_once('.').unwrap().0, encode([1; 64])), TokenFault::Signature),
        (signed(&json!({"alg": "none"})), TokenFault::Algorithm),
        (signed(&json!({"alg": "HS256", "kid": "test-1"})), TokenFault::Algorithm),
        (signed(&json!({"alg": "ES256", "kid": "of-another-issuer"})), TokenFault::UnknownKey),
    ]);
    for (text, fault) in refused {
        let reason = login(&tokens, &text).unwrap_err();
        assert_eq!(reason, format!("token verification failed: {fault}"));
        assert!(text.split('.').all(|part| part.is_empty() || !reason.contains(part)));
    }
}

#[test]
fn only_our_own_code_identifies_a_bearer() {
    for key in [TOKEN_ISSUER, TOKEN_SUBJECT] {
        assert!(crate::is_reserved_attribute(key), "{key}");
    }
    assert_eq!(Entity::of_host("h").verified_bearer(), None);
}
