//! Fuzz target for credentials of `krb5`, in front of the Kerberos library, and for offers of servers.
//!
//! Decoding must not panic. Accepted credentials are exactly one message, because the library ignores
//! bytes after it.

use auth::krb5::{KRB5, KerberosMessage, kerberos_message, offered_service};

/// Checks `data` as credentials and as the offer of a server.
pub fn target(data: &[u8]) {
    for kind in [KerberosMessage::ApReq, KerberosMessage::KrbCred] {
        let Ok(message) = kerberos_message(data, kind) else { continue };
        let prefix = [KRB5.as_bytes(), b"\0"].concat();
        assert!(
            data.strip_prefix(prefix.as_slice()) == Some(message) && message.first() == Some(&(kind as u8))
        );
        // The length is that of the whole message.
        let longer = [data, b"\0"].concat();
        let shorter = data.get(..data.len().saturating_sub(1)).unwrap_or_default();
        assert!(kerberos_message(&longer, kind).is_err() && kerberos_message(shorter, kind).is_err());
    }
    if let Some((service, forwards)) = offered_service(data) {
        assert!(!service.is_empty() && !service.contains(['\0', ',']), "{service:?}");
        let kind = service.split(['/', '@']).next();
        assert!(!matches!(kind, Some("krbtgt" | "kadmin")), "{service:?}");
        assert!(!forwards || data.split(|byte| *byte == b',').any(|part| part == b"fwd"));
    }
}
