//! A token issuer, rules, and logins with a token, for tests of authorization.

use auth::access::{
    AuditedDecisions, AuthdbCheck, AuthdbEncoding, AuthdbSource, Authorizer, AuthorizerSettings,
    CredentialLayer, NetgroupDatabase, NetgroupMember, PathMatch,
};
use auth::tokens::{IssuerFile, KeySet, TokenPolicy, TokenPolicySource};
use auth::ztn::{ZtnServer, ZtnServerSettings};
use auth::{LoginPeer, ServerProtocol, ServerStep};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base::{Identity, LoginNames};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vfs::Caller;

struct NoNetgroups;
impl NetgroupDatabase for NoNetgroups {
    fn members(&self, _: &str) -> std::io::Result<Vec<NetgroupMember>> {
        Ok(Vec::new())
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer with a key of its own.
pub struct TestIssuer {
    pub key: EcdsaKeyPair,
    /// The address of the issuer that servers know; that in the tokens is `https://i`.
    pub address: &'static str,
    /// Further settings of the issuer at servers.
    pub settings: &'static str,
}

impl TestIssuer {
    pub fn new() -> Self {
        let (algorithm, rng) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &rng).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref()).unwrap();
        Self { key, address: "https://i", settings: "" }
    }

    pub fn tokens(&self) -> Arc<TokenPolicy> {
        let Self { address, settings, .. } = self;
        let text = format!(
            "[Global]\naudience = https://here\n[Issuer i]\nissuer = {address}\nbase_path = /data\n{settings}"
        );
        let mut read = |_: &Path, _| Err(String::new());
        let file = IssuerFile::parse(text.as_bytes(), Path::new("/f"), &mut read).unwrap();
        let source = TokenPolicySource { path: "/f".into(), check: AuthdbCheck::None };
        let tokens = TokenPolicy::new(source, file);
        tokens.set_keys(address, Some(self.keys()));
        Arc::new(tokens)
    }

    /// Returns the key set that the issuer publishes.
    pub fn keys(&self) -> KeySet {
        let point = self.key.public_key().as_ref();
        let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
        let keys = format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"k","x":"{x}","y":"{y}"}}]}}"#);
        KeySet::parse(keys.as_bytes()).unwrap()
    }

    /// Returns a token that expires in `seconds`.
    pub fn token_for(&self, scope: &str, seconds: i64) -> String {
        self.token_of("alice", scope, seconds)
    }

    pub fn token_of(&self, subject: &str, scope: &str, seconds: i64) -> String {
        self.token_in(&[], subject, scope, seconds)
    }

    /// Returns a token with groups.
    pub fn token_in(&self, groups: &[&str], subject: &str, scope: &str, seconds: i64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let expires = now.saturating_add_signed(seconds);
        let claims = format!(
            r#"{{"iss":"https://i","sub":"{subject}","aud":"https://here","exp":{expires},"wlcg.ver":"1.0","wlcg.groups":{groups:?},"scope":"{scope}"}}"#
        );
        let signed = format!("{}.{}", encode(r#"{"alg":"ES256","kid":"k"}"#), encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encode(signature))
    }

    pub fn token(&self, scope: &str) -> String {
        self.token_for(scope, 600)
    }
}

/// Returns the rules of a text.
pub fn rules(text: &str) -> Arc<Authorizer> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("scalla-token-rules-{}-{number}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let source = AuthdbSource {
        path: path.clone(),
        encoding: AuthdbEncoding::default(),
        matching: PathMatch::Component,
        netgroup_domain: None,
    };
    let audit = AuditedDecisions { grants: true, denials: true };
    let settings = AuthorizerSettings { source, audit, netgroup_lifetime: Duration::from_secs(60) };
    let rules = Authorizer::new(settings, Arc::new(NoNetgroups), Duration::ZERO).unwrap();
    std::fs::remove_file(path).unwrap();
    Arc::new(rules)
}

/// Returns the caller of a client that has logged in with a token of `ztn`, which a layer verified.
pub fn login_with(layer: CredentialLayer, token: &str, at: SystemTime) -> Arc<Caller> {
    let text = [
        b"ztn\0\0T\0\0",
        &u16::try_from(token.len() + 1).unwrap().to_be_bytes()[..],
        token.as_bytes(),
        b"\0",
    ];
    let server = ZtnServer::new(ZtnServerSettings::default(), Some(layer));
    let address = "[::1]:1".parse().unwrap();
    let peer = LoginPeer { address, host: "h.o".to_owned(), login_id: "u".to_owned(), is_tls: true };
    let ServerStep::Done(entity) = server.begin(&peer).step(&text.concat(), at) else { panic!("refused") };
    let names = LoginNames { user: "u", host: "h.o", ..LoginNames::default() };
    Arc::new(Caller::new(Identity::new(&names, 1, None, "ztn"), true, false).with_entity(entity))
}
