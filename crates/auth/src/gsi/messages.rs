//! Steps, options and small parts of the messages.
//!
//! Source: security facts, sections 2.6.2, 2.6.3 and 2.6.6.

use super::GSI;
use super::rsa_keys::RsaVerifier;
use crate::challenge::Challenge;
use crate::sut::{SutField, SutMessage, SutWriter};
use subtle::ConstantTimeEq;

/// The version of this implementation.
pub(super) const VERSION: u32 = 10_600;

/// The oldest version that signs its key agreement.
pub(super) const VERSION_MIN: u32 = 10_400;

/// The version of exchanges without such a signature.
pub(super) const VERSION_OLD: u32 = 10_300;

/// The digests of exchanges without such a signature.
pub(super) const OLD_DIGESTS: [&str; 2] = ["sha1", "md5"];

/// The only crypto module.
pub(super) const CRYPTO_MODULE: &str = "ssl";

/// The only digest. Its choice has no effect.
pub(super) const DIGEST: &str = "sha256";

/// Maximum time between the first and the last message in seconds.
pub(super) const EXCHANGE_SECONDS_MAX: u64 = 300;

/// Steps of clients and servers.
pub(super) mod step {
    pub(crate) const CLIENT_REQUEST: u32 = 1000;
    pub(crate) const CLIENT_CERTIFICATE: u32 = 1001;
    pub(crate) const CLIENT_SIGNED_PROXY: u32 = 1002;
    pub(crate) const SERVER_CERTIFICATE: u32 = 2001;
    pub(crate) const SERVER_PROXY_REQUEST: u32 = 2002;
}

/// Options of a client.
pub(super) mod client_option {
    /// The client wants to delegate by a signature.
    pub(crate) const DELEGATE: u32 = 0x001;
    /// The client sends the key of its proxy.
    pub(crate) const FORWARD: u32 = 0x002;
    /// The client signs a request of the server.
    pub(crate) const SIGN_REQUEST: u32 = 0x004;
    /// The client uses proxies.
    pub(crate) const CREATE_PROXY: u32 = 0x080;
    /// The options of a client that would sign a proxy for this server.
    pub(crate) const DELEGATES: u32 = DELEGATE | SIGN_REQUEST;
    /// The options that count.
    pub(crate) const KNOWN: u32 = DELEGATE | FORWARD | SIGN_REQUEST | CREATE_PROXY;
}

impl Challenge {
    /// Checks the answer of a peer, which has signed the challenge with its key.
    pub(super) fn check_signed(
        &self,
        message: &SutMessage<'_>,
        key: &RsaVerifier,
    ) -> Result<(), &'static str> {
        let answer =
            message.field(SutField::SIGNED_CHALLENGE).ok_or("random tag missing - protocol error")?;
        let signed = key.recover(answer).unwrap_or_default();
        let is_equal: bool = self.as_bytes().ct_eq(&signed).into();
        if is_equal { Ok(()) } else { Err("the signed challenge is wrong") }
    }
}

/// Begins a message with the field that all have.
pub(super) fn begin(step: u32) -> SutWriter {
    SutWriter::new(GSI, step).with(SutField::CRYPTO_MODULE, CRYPTO_MODULE.as_bytes())
}

/// Begins the message inside of a message of this step.
pub(super) fn begin_main(step: u32) -> SutWriter {
    SutWriter::new(GSI, step)
}

/// Decodes a message, and checks its step and its crypto module.
pub(super) fn decode(bytes: &[u8], step: u32) -> Result<SutMessage<'_>, String> {
    let message = SutMessage::decode(GSI, bytes).map_err(|error| error.to_string())?;
    if message.step != step {
        return Err(format!("step {} is not expected", message.step));
    }
    match message.text(SutField::CRYPTO_MODULE) {
        Some(CRYPTO_MODULE) => Ok(message),
        Some(_) => Err("the crypto module is not ssl, or does not pad secrets".to_owned()),
        None => Err("the crypto module is missing".to_owned()),
    }
}

/// Decodes the message inside of a message of this step.
pub(super) fn decode_main(bytes: &[u8], step: u32) -> Result<SutMessage<'_>, String> {
    SutMessage::decode_inner(GSI, bytes, step)
}

/// Returns the hashes of a list, without the ends of file names.
pub(super) fn hashes(list: &str) -> impl Iterator<Item = &str> {
    /// Maximum number of hashes that are looked at.
    const HASHES_MAX: usize = 16;
    let hash = |text: &'_ str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let names =
        list.split('|').take(HASHES_MAX).map(|name| name.split_once('.').map_or(name, |(hash, _)| hash));
    names.filter(move |name| hash(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRng;

    fn message(text: &[u8]) -> Vec<u8> {
        begin_main(1000).with(SutField::CHALLENGE, text).finish()
    }

    /// S069.
    #[test]
    fn only_challenges_are_signed() {
        let of = |text: &[u8]| {
            let bytes = message(text);
            Challenge::of_peer(&SutMessage::decode(GSI, &bytes).unwrap()).is_some()
        };
        assert!(of(b"C7rGQQiB") && of(b"/TzCCbF.") && of(Challenge::random(&mut SystemRng).as_bytes()));
        for other in [&b"C7rGQQi"[..], b"C7rGQQiBx", b"C7rGQQi ", b"C7rGQQi\0", b"C7rGQQi\xff", b""] {
            assert!(!of(other), "{other:?}");
        }
    }

    #[test]
    fn a_list_of_hashes() {
        let of = |list| hashes(list).collect::<Vec<_>>();
        assert_eq!(of("5cdab576.0|606cb0fc.0"), ["5cdab576", "606cb0fc"]);
        assert_eq!(of("5cdab576|../etc|x|606cb0fcx.0|"), ["5cdab576"]);
        assert_eq!(of(&"5cdab576|".repeat(100)).len(), 16);
    }
}
