//! [`MacaroonSecret`]: the secret of a site, and the chains of authentication codes that it begins.

use super::packets::SIGNATURE_BYTES;
use crate::access::AuthdbCheck;
use crate::secret::Secret;
use crate::trusted_file::{FileTrust, TrustedFileError, read_trusted};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Minimum length of a secret in bytes.
pub const MACAROON_SECRET_BYTES_MIN: usize = 32;
/// Maximum size of the file of a secret in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024;
/// The key with which the format derives the first key of a chain from a secret. The code pads keys
/// with zeros, so those at its end make no difference.
const GENERATOR: &[u8; 32] = b"macaroons-key-generator\0\0\0\0\0\0\0\0\0";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The reason why the file of a secret cannot be used. No part of the secret is in it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MacaroonSecretError {
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}; {REMEDY}", REMEDY = make(.path))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// Other users could read or replace the file.
    #[error("{path} is not used: {reason}; {remedy}")]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// The property that is not safe.
        reason: String,
        /// The action that makes it safe.
        remedy: String,
    },
    /// The file does not contain a secret.
    #[error("{path} is not used: {reason}; {REMEDY}", REMEDY = make(.path))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The violation.
        reason: &'static str,
    },
}

fn make(path: &Path) -> String {
    format!("make a secret with: (umask 077; openssl rand -base64 -out {} 64)", path.display())
}

/// The secret of a site, as the first key of its chains.
#[derive(Clone, Debug)]
pub struct MacaroonSecret(Secret);

impl MacaroonSecret {
    /// Derives the first key of chains from a secret.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(Secret::from(code(GENERATOR, secret).as_slice()))
    }

    /// Decodes the content of a file: base64, in any number of lines.
    ///
    /// # Errors
    /// The reason why it is not a secret.
    pub fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let mut encoded = Zeroizing::new(Vec::with_capacity(text.len()));
        encoded.extend(text.iter().filter(|byte| !byte.is_ascii_whitespace()));
        let secret = BASE64.decode(encoded.as_slice()).map(Zeroizing::new);
        let secret = secret.map_err(|_| "it is not base64")?;
        if secret.len() < MACAROON_SECRET_BYTES_MIN {
            return Err("its secret has fewer than 32 bytes");
        }
        Ok(Self::new(&secret))
    }

    /// Reads the secret from a file that nobody else may read or replace. Blocks.
    ///
    /// # Errors
    /// [`MacaroonSecretError`], with the remedy.
    pub fn load(path: &Path, check: AuthdbCheck) -> Result<Self, MacaroonSecretError> {
        let owned = || path.to_owned();
        let trust = FileTrust::private(check.owner(), "make macaroons", FILE_BYTES_MAX);
        let (text, _) = read_trusted(path, &trust).map_err(|error| match error {
            TrustedFileError::Unreadable(error) => {
                MacaroonSecretError::Unreadable { path: owned(), reason: base::errno_text(&error) }
            }
            TrustedFileError::Untrusted { reason, remedy } => {
                MacaroonSecretError::Unsafe { path: owned(), reason, remedy }
            }
        })?;
        Self::parse(&text).map_err(|reason| MacaroonSecretError::Invalid { path: owned(), reason })
    }

    /// Returns the signature of a macaroon with this identifier and these caveats.
    pub(super) fn signature(
        &self,
        identifier: &[u8],
        caveats: &[Vec<u8>],
    ) -> Zeroizing<[u8; SIGNATURE_BYTES]> {
        let first = code(self.0.expose(), identifier);
        caveats.iter().fold(first, |key, caveat| code(key.as_slice(), caveat))
    }

    pub(super) fn is_equal(&self, other: &Self) -> bool {
        self.0.is_equal(other.0.expose())
    }
}

/// Returns an authentication code.
pub(super) fn code(key: &[u8], text: &[u8]) -> Zeroizing<[u8; SIGNATURE_BYTES]> {
    let tag = sign(&Key::new(HMAC_SHA256, key), text);
    let mut code = Zeroizing::new([0; SIGNATURE_BYTES]);
    code.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::BASE64_STANDARD;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_base64_of_32_bytes_or_more() {
        let text = |length: usize| BASE64_STANDARD.encode(vec![7; length]);
        let lines = format!("{}\n{}\n\n", &text(64)[..64], &text(64)[64..]);
        for accepted in [text(32), text(64) + "\n", lines, text(64).trim_end_matches('=').to_owned()] {
            let length = if accepted.len() < 50 { 32 } else { 64 };
            let found = MacaroonSecret::parse(accepted.as_bytes()).unwrap();
            assert!(found.is_equal(&MacaroonSecret::new(&vec![7; length])), "{accepted}");
        }
        let refused = |text: &str| MacaroonSecret::parse(text.as_bytes()).unwrap_err();
        for short in [text(31), String::new(), "\n".to_owned()] {
            assert_eq!(refused(&short), "its secret has fewer than 32 bytes");
        }
        for other in [text(64).replace('B', "-"), text(64) + "!", "secret: x".to_owned()] {
            assert_eq!(refused(&other), "it is not base64", "{other}");
        }
        assert_eq!(format!("{:?}", MacaroonSecret::new(b"hunter2")), "MacaroonSecret(Secret(32 bytes))");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        let file = std::env::temp_dir().join(format!("auth-macaroon-secret-{}", std::process::id()));
        let load = |mode| {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            MacaroonSecret::load(&file, AuthdbCheck::ForServer)
        };
        let missing = MacaroonSecret::load(&file, AuthdbCheck::ForServer).unwrap_err().to_string();
        assert!(missing.contains("openssl rand -base64 -out"), "{missing}");
        fs::write(&file, BASE64_STANDARD.encode([9; 64])).unwrap();
        for mode in [0o600, 0o400] {
            assert!(load(mode).is_ok(), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602] {
            let refused = load(mode).unwrap_err().to_string();
            let expected =
                format!("its permissions {mode:04o} allow others to make macaroons; run chmod 600 ");
            assert!(refused.contains(&expected), "{refused}");
        }
        fs::write(&file, BASE64_STANDARD.encode([9; 31])).unwrap();
        let short = load(0o600).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert!(short.contains("fewer than 32 bytes; make a secret with"), "{short}");
    }
}
