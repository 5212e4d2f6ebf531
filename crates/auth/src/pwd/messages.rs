//! Steps, challenges and small parts of the messages.

use super::PWD;
use super::cipher::PwdCipher;
use crate::challenge::Challenge;
use crate::secret::Secret;
use crate::sut::{SutField, SutMessage, SutWriter};

/// The version of this implementation.
pub(super) const VERSION: u32 = 10_100;

/// The only crypto module.
pub(super) const CRYPTO_MODULE: &str = "ssl";

/// The number of the crypto module in front of the text of a public key.
const MODULE_PREFIX: &[u8; 5] = b"1\0\0\0\0";

/// Steps of clients and servers.
pub(super) mod step {
    pub(crate) const CLIENT_NORMAL: u32 = 1000;
    pub(crate) const CLIENT_VERIFIES_SERVER: u32 = 1001;
    pub(crate) const CLIENT_CREDENTIALS: u32 = 1003;
    pub(crate) const CLIENT_KNOWS_NO_KEY: u32 = 1004;
    pub(crate) const SERVER_WANTS_CREDENTIALS: u32 = 2001;
    pub(crate) const SERVER_SIGNED_CHALLENGE: u32 = 2003;
    pub(crate) const SERVER_NEW_KEY: u32 = 2004;
    pub(crate) const SERVER_KEY: u32 = 2005;
}

/// Length of the status of both sides in bytes.
pub(super) const STATUS_BYTES: usize = 4;

/// The high octet of the options in a status: the password must be changed.
const EXPIRED_OPTION: u8 = 0x01;
/// The low octet of the options in a status: the client answers further requests for passwords.
const ANSWERS_OPTION: u8 = 0x80;

/// The new password that a server asks for, the last octet of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum RequestedPassword {
    /// A new password.
    New = 3,
    /// The same new password once more.
    NewAgain = 4,
}

impl RequestedPassword {
    /// Returns the new password that a server asks for; `None` if it asks for the present one.
    pub(super) fn of_status([high, _, _, kind]: [u8; STATUS_BYTES]) -> Option<Self> {
        let is_change = high & EXPIRED_OPTION != 0;
        [Self::New, Self::NewAgain].into_iter().find(|known| is_change && *known as u8 == kind)
    }

    /// Returns the status with which a client that has sent `status` is asked for this password.
    pub(super) fn status([high, low, action, _]: [u8; STATUS_BYTES], kind: Self) -> [u8; STATUS_BYTES] {
        [high | EXPIRED_OPTION, low, action, kind as u8]
    }
}

/// Reports whether a client with this status answers further requests for passwords.
pub(super) fn answers_requests([_, low, ..]: [u8; STATUS_BYTES]) -> bool {
    low & ANSWERS_OPTION != 0
}

/// The type of a field that only `pwd` has: the status of a side.
pub(super) const STATUS: SutField = SutField(3015);
/// The credentials of a client.
pub(super) const CREDENTIALS: SutField = SutField(3010);
/// The time of a message.
pub(super) const TIMESTAMP: SutField = SutField(3021);

impl Challenge {
    /// Checks the answer of a peer, which has encrypted the challenge.
    pub(super) fn check_encrypted(
        &self,
        message: &SutMessage<'_>,
        cipher: &PwdCipher,
    ) -> Result<(), &'static str> {
        let answer =
            message.field(SutField::SIGNED_CHALLENGE).ok_or("the answer to the challenge is missing")?;
        let text = cipher.open(answer).unwrap_or_default();
        if text.is_equal(self.as_bytes()) { Ok(()) } else { Err("the answer to the challenge is wrong") }
    }
}

/// Begins a message with the field that all have.
pub(super) fn begin(step: u32) -> SutWriter {
    SutWriter::new(PWD, step).with(SutField::CRYPTO_MODULE, CRYPTO_MODULE.as_bytes())
}

/// Begins the message inside of a message of this step.
pub(super) fn begin_main(step: u32) -> SutWriter {
    SutWriter::new(PWD, step)
}

/// Decodes a message, and checks its crypto module.
pub(super) fn decode(bytes: &[u8]) -> Result<SutMessage<'_>, String> {
    let message = SutMessage::decode(PWD, bytes).map_err(|error| error.to_string())?;
    match message.text(SutField::CRYPTO_MODULE) {
        Some(CRYPTO_MODULE) => Ok(message),
        _ => Err("the crypto module is missing, or is not ssl".to_owned()),
    }
}

/// Decodes the message inside of a message of this step.
pub(super) fn decode_main(bytes: &[u8], step: u32) -> Result<SutMessage<'_>, String> {
    SutMessage::decode_inner(PWD, bytes, step)
}

/// Decrypts the inner message of a message.
pub(super) fn open_main(message: &SutMessage<'_>, cipher: &PwdCipher) -> Result<Secret, String> {
    let main = message.field(SutField::MAIN).ok_or("the inner message is missing")?;
    cipher.open(main).ok_or_else(|| "the inner message is not encrypted with the session key".to_owned())
}

/// Returns the public key in the inner message of a server.
pub(super) fn with_module(text: &str) -> Vec<u8> {
    [MODULE_PREFIX.as_slice(), text.as_bytes()].concat()
}

/// Returns the text of a public key in the inner message of a server.
pub(super) fn without_module(field: &[u8]) -> Option<&[u8]> {
    field.strip_prefix(MODULE_PREFIX)
}

/// Returns the status of a peer, or one without options.
pub(super) fn status_of(message: &SutMessage<'_>) -> [u8; STATUS_BYTES] {
    message.field(STATUS).and_then(|status| status.try_into().ok()).unwrap_or_default()
}
