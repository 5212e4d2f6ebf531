//! An issuer for tests: its keys, its tokens, and those of the recorded cases.

use super::{IssuerFile, KeySet, TokenPolicy, TokenPolicySource};
use crate::access::AuthdbCheck;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base::LogicalPath;
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://localhost:23050/one";

pub(crate) fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(crate) fn now() -> SystemTime {
    at(NOW)
}

pub(crate) fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn vector(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/security").join(name);
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the bytes of a key in PEM or base64.
pub(crate) fn key_bytes(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with("-----"));
    BASE64_STANDARD.decode(lines.collect::<String>()).unwrap()
}

/// A key that signs tokens.
pub(crate) enum Signer {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

impl Signer {
    pub(crate) fn recorded() -> Self {
        let key = vector("ztn.json")["keys"]["es256_private_pem"].as_str().unwrap().to_owned();
        Self::es256(&key_bytes(&key))
    }

    pub(crate) fn es256(key: &[u8]) -> Self {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        Self::Es256(EcdsaKeyPair::from_pkcs8(algorithm, key).unwrap())
    }

    pub(crate) fn rs256() -> Self {
        Self::Rs256(RsaKeyPair::from_pkcs8(&key_bytes(include_str!("tests/rsa_key.txt"))).unwrap())
    }

    pub(crate) fn sign(&self, text: &str) -> Vec<u8> {
        let rng = SystemRandom::new();
        match self {
            Self::Es256(key) => key.sign(&rng, text.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &rng, text.as_bytes(), &mut signature).unwrap();
                signature
            }
        }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        if matches!(self, Self::Es256(_)) { "ES256" } else { "RS256" }
    }

    pub(crate) fn public_key(&self, id: &str) -> Value {
        match self {
            Self::Es256(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": encode(&point[1..33]), "y": encode(&point[33..])})
            }
            Self::Rs256(key) => {
                // DER of two numbers: a modulus of 256 bytes and an exponent of 3.
                let numbers = key.public_key().as_ref();
                json!({"kty": "RSA", "kid": id, "n": encode(&numbers[9..265]), "e": encode(&numbers[267..])})
            }
        }
    }

    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        format!("{signed}.{}", encode(self.sign(&signed)))
    }
}

pub(crate) fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "sub": "alice", "aud": "https://localhost:23040", "nbf": NOW - 10, "exp": NOW + 1200,
        "wlcg.ver": "1.0", "scope": "storage.read:/",
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// Returns a token of the recorded issuer with changed claims.
pub(crate) fn token(changes: &Value) -> String {
    Signer::recorded().token(&json!({"alg": "ES256", "typ": "JWT", "kid": "test-1"}), &claims(changes))
}

pub(crate) fn recorded_keys() -> KeySet {
    KeySet::parse(vector("ztn.json")["keys"]["jwks"].to_string().as_bytes()).unwrap()
}

/// Returns the policy of an issuer file that names no files, without keys.
pub(crate) fn policy_of(text: &str) -> TokenPolicy {
    let mut read = |_: &Path, _| Err("no files here".to_owned());
    let file = IssuerFile::parse(text.as_bytes(), Path::new("/f"), &mut read).unwrap();
    TokenPolicy::new(TokenPolicySource { path: "/f".into(), check: AuthdbCheck::None }, file)
}

/// Returns the policy of the recorded issuer file with more lines in the section of its issuer.
pub(crate) fn recorded_policy(more: &str) -> Arc<TokenPolicy> {
    let file = vector("scitokens.json")["scitokens_cfg"].as_str().unwrap().to_owned();
    let policy = policy_of(&(file + more));
    policy.set_keys(ISSUER, Some(recorded_keys()));
    Arc::new(policy)
}

/// Returns the claims of a recorded case, whose times are relative.
pub(crate) fn recorded_changes(case: &Value) -> Value {
    let mut changes = case["claims_changed"].clone();
    for value in changes.as_object_mut().unwrap().values_mut() {
        let relative = value.as_str().and_then(|text| text.strip_prefix("now"));
        if let Some(offset) = relative.and_then(|offset| offset.parse::<i64>().ok()) {
            *value = json!(i64::try_from(NOW).unwrap() + offset);
        }
    }
    changes
}

/// Returns the token of a recorded case.
pub(crate) fn recorded_token(case: &Value) -> String {
    let mut changes = recorded_changes(case);
    let special: Vec<Option<Value>> = ["token", "signature", "alg"]
        .map(|name| changes.as_object_mut().unwrap().remove(name))
        .into_iter()
        .collect();
    match &special[..] {
        [Some(text), None, None] => text.as_str().unwrap().to_owned(),
        [None, Some(_), None] => {
            let mut text = token(&changes);
            let last = text.split_off(text.len() - 4);
            let changed = if last == "AAAA" { "BBBB" } else { "AAAA" };
            text + changed
        }
        [None, None, Some(algorithm)] => {
            Signer::recorded().token(&json!({"alg": algorithm, "kid": "test-1"}), &claims(&changes))
        }
        _ => token(&changes),
    }
}
