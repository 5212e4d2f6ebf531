//! Errors of the client with their remedies.

use super::library::{KerberosContext, KerberosError};
use crate::age::age;
use crate::client::ClientAuthError;
use std::time::{SystemTime, UNIX_EPOCH};

// Numbers of `krb5.h`.
const NO_CACHE_FILE: i32 = -1_765_328_189;
const NO_TICKET: i32 = -1_765_328_243;
const TICKET_EXPIRED: i32 = -1_765_328_352;
const NO_KDC: i32 = -1_765_328_228;
const REALM_UNKNOWN: i32 = -1_765_328_230;
const REALM_NOT_RESOLVED: i32 = -1_765_328_164;
const SERVICE_UNKNOWN: i32 = -1_765_328_377;
const CLOCK_SKEW: i32 = -1_765_328_347;

const RUN_KINIT: &str = "run kinit";

/// The reason why a client has no ticket for a server.
pub(super) struct TicketFault {
    reason: String,
    remedy: String,
    /// Set if a new ticket of the user helps.
    pub(super) needs_ticket: bool,
}

impl TicketFault {
    pub(super) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: remedy.into(), needs_ticket: false }
    }

    fn of_ticket(reason: String) -> Self {
        Self { needs_ticket: true, ..Self::new(reason, RUN_KINIT) }
    }

    /// Adds the reason why `kinit` did not help.
    pub(super) fn after(self, kinit: &str) -> Self {
        Self { reason: format!("{}, and {kinit}", self.reason), ..self }
    }

    /// Returns the error for the user.
    pub(super) fn into_error(self) -> ClientAuthError {
        ClientAuthError::NoCredentials { reason: self.reason, remedy: self.remedy }
    }
}

/// Explains why there is no ticket for a service. The state of the cache counts first, because the
/// library reports an expired ticket in many ways.
pub(super) fn no_request(
    error: &KerberosError,
    context: &KerberosContext,
    cache: Option<&str>,
    service: &str,
    now: SystemTime,
) -> TicketFault {
    let shown = context.cache_name(cache).unwrap_or_else(|_| cache.unwrap_or("the default cache").to_owned());
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match context.ticket_end(cache) {
        Ok((owner, end)) if u64::from(end) <= now => {
            let ago = age(now.saturating_sub(u64::from(end)));
            return TicketFault::of_ticket(format!("the ticket of {owner} in {shown} expired {ago} ago"));
        }
        _ => {}
    }
    let text = &error.text;
    match error.code {
        NO_CACHE_FILE | NO_TICKET => TicketFault::of_ticket(format!("there is no ticket in {shown}")),
        TICKET_EXPIRED => TicketFault::of_ticket(format!("the ticket in {shown} has expired")),
        NO_KDC | REALM_UNKNOWN | REALM_NOT_RESOLVED => TicketFault::new(
            format!("no KDC gives a ticket for {service}: {text}"),
            "check the network, and the realm in krb5.conf",
        ),
        SERVICE_UNKNOWN => TicketFault::new(
            format!("the KDC does not know the principal {service} of the server"),
            "ask the administrator of the server for the right one in its sec.protocol krb5",
        ),
        CLOCK_SKEW => TicketFault::new(
            format!("the clock of this host differs from that of the KDC: {text}"),
            "set the clock",
        ),
        _ => TicketFault::of_ticket(format!("there is no ticket for {service} by {shown}: {text}")),
    }
}

/// Explains why a ticket is not forwarded.
pub(super) fn no_forwarding(error: &KerberosError) -> TicketFault {
    TicketFault::new(format!("the ticket cannot be forwarded: {}", error.text), "run kinit -f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_remedy() {
        let context = KerberosContext::new().unwrap();
        let missing = Some("FILE:/nonexistent/krb5cc");
        for (code, expected, needs_ticket) in [
            (NO_CACHE_FILE, "there is no ticket in FILE:/nonexistent/krb5cc; run kinit", true),
            (NO_KDC, "no KDC gives a ticket for x/h@R: why; check the network", false),
            (SERVICE_UNKNOWN, "the KDC does not know the principal x/h@R of the server; ask", false),
            (CLOCK_SKEW, "set the clock", false),
            (TICKET_EXPIRED, "has expired; run kinit", true),
            (1, "why; run kinit", true),
        ] {
            let error = KerberosError { code, text: "why".to_owned() };
            let fault = no_request(&error, &context, missing, "x/h@R", UNIX_EPOCH);
            assert_eq!(fault.needs_ticket, needs_ticket, "{code}");
            let text = fault.into_error().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
