//! The compact form of signed tokens (RFC 7515): `header.claims.signature`, each in base64url.

use super::fault::TokenFault;
use super::json::JsonObject;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Maximum length of a token in bytes.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of an encoded header in bytes.
const HEADER_BYTES_MAX: usize = 1024;
/// Maximum length of the id of a key in bytes.
pub(super) const KEY_ID_BYTES_MAX: usize = 256;

/// A signature algorithm that is accepted. Symmetric algorithms and `none` are not, because with them
/// everyone who knows the public key could make tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TokenAlgorithm {
    /// RSA PKCS #1 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl TokenAlgorithm {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            _ => None,
        }
    }
}

/// A token whose signature has not been verified.
pub(super) struct UnverifiedToken<'a> {
    /// `None` if the algorithm is not accepted.
    pub(super) algorithm: Option<TokenAlgorithm>,
    /// Id of the key.
    pub(super) key_id: Option<String>,
    pub(super) claims: JsonObject,
    /// The text that the signature covers.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

/// Reports whether a text has the form of a token: three parts of letters, digits and `+/_-`,
/// separated by dots. Other texts, such as macaroons, are credentials of other kinds.
#[must_use]
pub fn is_token_text(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/_-".contains(byte);
    let dots = text.iter().filter(|byte| **byte == b'.').count();
    dots == 2 && text.split(|byte| *byte == b'.').all(|part| part.iter().all(is_plain))
}

impl<'a> UnverifiedToken<'a> {
    /// Parses a token.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, TokenFault> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::TooLong);
        }
        let malformed = TokenFault::Malformed;
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed("it does not have three parts"));
        };
        let decode = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let signed = text.get(..header.len() + 1 + claims.len()).unwrap_or_default();
        let header = Some(header).filter(|header| header.len() <= HEADER_BYTES_MAX).and_then(decode);
        let header = header.and_then(|header| JsonObject::parse(&header));
        let header = header.ok_or(malformed("its header is not a short JSON object in base64url"))?;
        let claims = decode(claims).and_then(|claims| JsonObject::parse(&claims));
        let claims = claims.ok_or(malformed("its claims are not a JSON object in base64url"))?;
        let signature = decode(signature).ok_or(malformed("its signature is not base64url"))?;
        // A header parameter that must be understood changes the meaning of others.
        if header.get("crit").is_some() {
            return Err(malformed("its header has critical parameters"));
        }
        let algorithm = header.get("alg").and_then(|name| name.as_str());
        let key_id = match header.get("kid") {
            None => None,
            Some(id) => {
                let id = id.as_str().filter(|id| id.len() <= KEY_ID_BYTES_MAX);
                Some(id.ok_or(malformed("the id of its key is not a short text"))?.to_owned())
            }
        };
        Ok(Self { algorithm: algorithm.and_then(TokenAlgorithm::of_name), key_id, claims, signed, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", encode(header), encode(claims), encode("signature"))
    }

    fn fault(text: &str) -> Option<TokenFault> {
        UnverifiedToken::parse(text.as_bytes()).err()
    }

    #[test]
    fn the_form_tells_tokens_from_other_credentials() {
        assert!(is_token_text(b"eyJ.eyJ.c2ln") && is_token_text(b"a+/.b_-.") && is_token_text(b".."));
        for text in ["abc", "a.b", "a.b.c.d", "a.b.c=", "a.b.c d", "Bearer%20a.b.c", ""] {
            assert!(!is_token_text(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_token_is_taken_apart() {
        let text = token(r#"{"alg":"ES256","kid":"k","typ":"JWT"}"#, r#"{"iss":"i"}"#);
        let parsed = UnverifiedToken::parse(text.as_bytes()).unwrap();
        assert_eq!((parsed.algorithm, parsed.key_id.as_deref()), (Some(TokenAlgorithm::Es256), Some("k")));
        assert_eq!(parsed.claims.get("iss").and_then(|issuer| issuer.as_str()), Some("i"));
        assert_eq!(parsed.signature, b"signature");
        assert_eq!(parsed.signed, text.rsplit_once('.').unwrap().0.as_bytes());
        for algorithm in ["none", "HS256", "RS512", "es256", "None", ""] {
            let text = token(&format!(r#"{{"alg":"{algorithm}"}}"#), "{}");
            assert_eq!(UnverifiedToken::parse(text.as_bytes()).unwrap().algorithm, None, "{algorithm}");
        }
        assert_eq!(UnverifiedToken::parse(token("{}", "{}").as_bytes()).unwrap().algorithm, None);
    }

    #[test]
    fn malformed_tokens_are_refused() {
        let critical = token(r#"{"alg":"ES256","crit":["b64"]}"#, "{}");
        let long_header =
            token(&format!(r#"{{"alg":"ES256","x":"{}"}}"#, "x".repeat(HEADER_BYTES_MAX)), "{}");
        let long_id = token(&format!(r#"{{"kid":"{}"}}"#, "x".repeat(KEY_ID_BYTES_MAX + 1)), "{}");
        let padded = format!("{}=", token("{}", "{}"));
        // The last character has bits that belong to no byte.
        let loose = format!("{}.e31.YQ", BASE64_URL_SAFE_NO_PAD.encode("{}")).replace("YQ", "YR");
        let texts = [
            critical,
            long_header,
            long_id,
            padded,
            loose,
            token("{}", "{}") + ".x",
            token(r#"{"alg":"ES256","alg":"ES256"}"#, "{}"),
            token("{}", r#"{"iss":"a","iss":"b"}"#),
            token("{}", "[]"),
            token(r#"{"kid":7}"#, "{}"),
            "a.b.c".to_owned(),
            "..".to_owned(),
            String::new(),
        ];
        for text in texts {
            assert!(matches!(fault(&text), Some(TokenFault::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn the_length_of_a_token_is_limited() {
        let short = token("{}", "{}");
        let fill = |length: usize| format!("{short}{}", "A".repeat(length - short.len()));
        assert_eq!(fault(&fill(TOKEN_BYTES_MAX + 1)), Some(TokenFault::TooLong));
        assert_ne!(fault(&fill(TOKEN_BYTES_MAX)), Some(TokenFault::TooLong));
    }
}
