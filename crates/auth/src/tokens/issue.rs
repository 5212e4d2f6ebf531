//! [`SigningKey`]: the key by which a site issues tokens of its own.

use crate::secret::Secret;
use crate::trusted_file::{FileTrust, TrustedOwner, read_trusted};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base::Rng;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::KeyPair as NewKeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The demands on the file of the key, which can be one of the user of the server.
const KEY_TRUST: FileTrust = FileTrust::private(TrustedOwner::Any, "issue tokens", 64 * 1024);

/// Length of a coordinate of a public key in bytes.
const COORDINATE_BYTES: usize = 32;

/// Number of bytes of the hash of a key that are its id.
const KEY_ID_BYTES: usize = 12;

/// Number of random bytes that identify a token.
const TOKEN_ID_BYTES: usize = 16;

/// A token to be issued.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// The claim `iss`.
    pub issuer: String,
    /// The claim `aud`.
    pub audience: String,
    /// The claim `sub`.
    pub subject: String,
    /// The claim `scope`; empty for a token that only names its subject.
    pub scope: String,
    /// Time until the expiry.
    pub lifetime: Duration,
}

/// A key for signatures by ES256.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
}

impl SigningKey {
    /// Creates a key, and returns it with its text in PEM.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn create() -> Result<(Self, Zeroizing<String>), String> {
        let made = NewKeyPair::generate().map_err(|error| format!("no key is made: {error}"))?;
        let text = Zeroizing::new(made.serialize_pem());
        Ok((Self::of_pem(text.as_bytes())?, text))
    }

    /// Reads a key. Blocks.
    ///
    /// # Errors
    /// The file, and the reason why it is not used.
    pub fn open(path: &Path) -> Result<Self, String> {
        let (text, _) = read_trusted(path, &KEY_TRUST).map_err(|error| error.text_of(path))?;
        Self::of_pem(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn of_pem(text: &[u8]) -> Result<Self, String> {
        let encoded = PrivatePkcs8KeyDer::from_pem_slice(text)
            .map_err(|_| "it has no private key (BEGIN PRIVATE KEY)".to_owned())?;
        let encoded = Secret::new(encoded.secret_pkcs8_der().to_vec());
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, encoded.expose())
            .map_err(|_| "the key is not one for ES256 (P-256)".to_owned())?;
        let hash = Sha256::digest(pair.public_key().as_ref());
        let id = BASE64_URL_SAFE_NO_PAD.encode(hash.get(..KEY_ID_BYTES).unwrap_or_default());
        Ok(Self { pair, id })
    }

    /// Returns the public key as a JSON Web Key Set, for `jwks_file`.
    #[must_use]
    pub fn key_set(&self) -> String {
        // The first byte is the format: both coordinates follow.
        let point = self.pair.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at_checked(COORDINATE_BYTES).unwrap_or_default();
        let [x, y] = [x, y].map(|number| BASE64_URL_SAFE_NO_PAD.encode(number));
        let key = json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id, "x": x, "y": y,
        });
        format!("{}\n", json!({ "keys": [key] }))
    }

    /// Returns a signed token of the WLCG profile.
    ///
    /// # Errors
    /// The lifetime is too long for a clock.
    pub fn issue(&self, token: &NewToken, now: SystemTime, rng: &mut dyn Rng) -> Result<String, String> {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let expires = seconds.checked_add(token.lifetime.as_secs()).ok_or("the lifetime is too long")?;
        let mut id = [0; TOKEN_ID_BYTES];
        rng.fill(&mut id);
        let mut claims = json!({
            "wlcg.ver": "1.0",
            "iss": token.issuer,
            "aud": token.audience,
            "sub": token.subject,
            "iat": seconds,
            "nbf": seconds,
            "exp": expires,
            "jti": BASE64_URL_SAFE_NO_PAD.encode(id),
        });
        if !token.scope.is_empty()
            && let Some(claims) = claims.as_object_mut()
        {
            claims.insert("scope".to_owned(), token.scope.as_str().into());
        }
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": self.id });
        let [header, claims] = [header, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(|_| "the system has no random numbers".to_owned())?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_issuer::now;
    use super::*;
    use crate::SystemRng;
    use crate::access::AuthdbCheck;
    use crate::tokens::{IssuerFile, KeySet, TokenPolicy, TokenPolicySource, TokenVerdict};

    fn policy(keys: &str) -> TokenPolicy {
        let text =
            "[Global]\naudience = a\n[Issuer site]\nissuer = https://h/i\nbase_path = /\njwks_file = /keys\n";
        let file = IssuerFile::parse(text.as_bytes(), Path::new("/issuers"), &mut |_, _| {
            Ok(keys.as_bytes().to_vec())
        });
        let source = TokenPolicySource { path: "/issuers".into(), check: AuthdbCheck::None };
        TokenPolicy::new(source, file.unwrap())
    }

    #[test]
    fn issued_tokens_are_accepted_with_the_key_set_until_they_expire() {
        let (key, text) = SigningKey::create().unwrap();
        assert_eq!(KeySet::parse(key.key_set().as_bytes()).unwrap().len(), 1);
        let again = SigningKey::of_pem(text.as_bytes()).unwrap();
        assert_eq!(again.key_set(), key.key_set());
        let token = NewToken {
            issuer: "https://h/i".to_owned(),
            audience: "a".to_owned(),
            subject: "alice".to_owned(),
            scope: "storage.read:/d".to_owned(),
            lifetime: Duration::from_secs(60),
        };
        let issued = again.issue(&token, now(), &mut SystemRng).unwrap();
        let (own, foreign) = (policy(&key.key_set()), policy(&SigningKey::create().unwrap().0.key_set()));
        let is_valid = |policy: &TokenPolicy, after: u64| {
            let verdict = policy.verify(issued.as_bytes(), now() + Duration::from_secs(after));
            matches!(verdict, TokenVerdict::Valid(_))
        };
        assert!(is_valid(&own, 0) && is_valid(&own, 59));
        assert!(!is_valid(&own, 61), "it has expired");
        assert!(!is_valid(&foreign, 0), "the key is another one");
        assert_ne!(issued, again.issue(&token, now(), &mut SystemRng).unwrap(), "each has its own id");
    }
}
