//! [`SssParameters`]: the parameters of `sss` in a server's list of protocols.
//!
//! `enc "." ["+" ["0"]] lifetime ":" keytab`, for example `0.+013:/etc/xrd/sss.keytab`: the cipher
//! `0`, support for version 2, a wish for credentials of forwarded identities, the lifetime of
//! packets in seconds, and the suggested key table of the client.
//!
//! Source: security facts, section 2.3.1.

use std::fmt;
use std::path::PathBuf;

/// The parameters of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SssParameters {
    /// Set if the server supports packets of version 2.
    pub is_version_2: bool,
    /// Set if the server wants the credentials of forwarded identities.
    pub wants_credentials: bool,
    /// Lifetime of packets in seconds, at least 1.
    pub lifetime: u64,
    /// The key table that the server suggests to clients.
    pub client_keytab: Option<PathBuf>,
}

impl SssParameters {
    /// Parses the parameters; `None` if they are malformed or name an unknown cipher.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let rest = text.strip_prefix("0.")?;
        let (numbers, keytab) = rest.split_once(':')?;
        let (is_version_2, numbers) = match numbers.strip_prefix('+') {
            Some(numbers) => (true, numbers),
            None => (false, numbers),
        };
        // A lifetime never begins with a zero, so a zero in front is the wish for credentials.
        let (wants_credentials, lifetime) = match numbers.strip_prefix('0').filter(|_| is_version_2) {
            Some(lifetime) => (true, lifetime),
            None => (false, numbers),
        };
        let is_number = lifetime.bytes().all(|byte| byte.is_ascii_digit());
        let lifetime = lifetime.parse().ok().filter(|lifetime| is_number && *lifetime > 0)?;
        let client_keytab = Some(keytab).filter(|path| !path.is_empty()).map(PathBuf::from);
        Some(Self { is_version_2, wants_credentials, lifetime, client_keytab })
    }
}

impl fmt::Display for SssParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.is_version_2 { "+" } else { "" };
        let credentials = if self.is_version_2 && self.wants_credentials { "0" } else { "" };
        write!(f, "0.{version}{credentials}{}:", self.lifetime)?;
        match &self.client_keytab {
            Some(path) => write!(f, "{}", path.display()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_and_written() {
        let table = [
            ("0.+013:/etc/xrd/sss.client.keytab", true, true, 13, Some("/etc/xrd/sss.client.keytab")),
            ("0.+600:", true, false, 600, None),
            ("0.13:/a:b", false, false, 13, Some("/a:b")),
        ];
        for (text, is_version_2, wants_credentials, lifetime, keytab) in table {
            let client_keytab = keytab.map(PathBuf::from);
            let expected = SssParameters { is_version_2, wants_credentials, lifetime, client_keytab };
            assert_eq!(SssParameters::parse(text.as_bytes()), Some(expected.clone()), "{text}");
            assert_eq!(expected.to_string(), text);
        }
        for text in ["", "0", "1.13:", "0.13", "0.+:", "0.00:", "0.-1:", "0.+00:", "0.x:", "0.+1x:"] {
            assert_eq!(SssParameters::parse(text.as_bytes()), None, "{text}");
        }
    }
}
