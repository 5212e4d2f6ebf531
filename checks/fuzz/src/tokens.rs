//! Fuzz target for bearer tokens: as credentials of `ztn`, as text, and as claims.
//!
//! Decoding must not panic, and nothing is accepted, because no issuer has signed it.

use auth::access::{AuthdbCheck, CredentialLayer};
use auth::tokens::{IssuerFile, KeySet, TokenPolicy, TokenPolicySource, TokenVerdict, is_token_text};
use auth::ztn::{ZtnServer, ZtnServerSettings};
use auth::{LoginPeer, ServerProtocol, ServerStep};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The issuer of the recorded tokens.
const ISSUERS: &str = "[Global]\naudience = https://localhost:23040\n\
    [Issuer one]\nissuer = https://localhost:23050/one\nbase_path = /protected /other\nrestricted_path = /a /b\n";

/// A public key of that issuer.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"test-1",
    "x":"JkgK92d_hl2m_9KTYaHrg_v1rQAG4TUHKQXl1E8vcEM","y":"8aANFaBDhvvc9WhrYyMsD7uA-waj8LYKnUe449-Pkxs"}]}"#;

/// A header `{"alg":"ES256","kid":"test-1"}`.
const HEADER: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3QtMSJ9";

fn policy() -> &'static Arc<TokenPolicy> {
    static POLICY: OnceLock<Arc<TokenPolicy>> = OnceLock::new();
    POLICY.get_or_init(|| {
        let mut read = |_: &Path, _| Err(String::new());
        let file = IssuerFile::parse(ISSUERS.as_bytes(), Path::new("f"), &mut read)
            .unwrap_or_else(|error| panic!("{error}"));
        let policy = TokenPolicy::new(TokenPolicySource { path: "f".into(), check: AuthdbCheck::None }, file);
        let keys = KeySet::parse(KEYS.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        policy.set_keys("https://localhost:23050/one", Some(keys));
        Arc::new(policy)
    })
}

/// The time of the recorded tokens.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_187_600)
}

/// Checks `data` as credentials, as a token, and as the claims of one.
pub fn target(data: &[u8]) {
    let peer = LoginPeer {
        address: ([192, 0, 2, 1], 4711).into(),
        host: "client.example.org".to_owned(),
        login_id: "me".to_owned(),
        is_tls: true,
    };
    let server =
        ZtnServer::new(ZtnServerSettings::default(), Some(CredentialLayer::Tokens(policy().clone())));
    if let ServerStep::Done(entity) = server.begin(&peer).step(data, now()) {
        // The recorded logins are seeds.
        assert_eq!((&*entity.protocol, entity.attribute("token.subject")), ("ztn", Some("alice")));
    }
    as_token(data);
    let claims = [HEADER.as_bytes(), b".", encode(data).as_bytes(), b".AAAA"].concat();
    assert!(!as_token(&claims), "a token without a signature was accepted");
}

fn as_token(text: &[u8]) -> bool {
    let verdict = policy().verify(text, now());
    assert!(is_token_text(text) || matches!(verdict, TokenVerdict::NotRecognized(_)));
    matches!(verdict, TokenVerdict::Valid(_))
}

/// Encodes in base64url without padding.
fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for index in 0..=three.len() {
            let at = usize::try_from(bits >> (18 - 6 * index) & 0x3f).unwrap_or(0);
            text.push(char::from(ALPHABET[at]));
        }
    }
    text
}
