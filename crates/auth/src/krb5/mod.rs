//! `krb5`: the client proves its Kerberos principal with a ticket for the server.
//!
//! Credentials: `krb5` NUL AP-REQ. A server that wants the ticket of the user continues with `fwdtgt`
//! NUL; the client then sends `krb5` NUL KRB-CRED. The server does not prove itself. Source:
//! security facts, section 2.5.
//!
//! | file        | contents                                                         |
//! |-------------|------------------------------------------------------------------|
//! | `client`    | [`Krb5Client`]                                                   |
//! | `explain`   | errors of the client with their remedy                           |
//! | `forwarded` | the files of forwarded tickets                                   |
//! | `kinit`     | the program that asks the user for a password                    |
//! | `library`   | the Kerberos library of the system                               |
//! | `message`   | the framing of credentials                                       |
//! | `server`    | [`Krb5Server`]                                                   |
//! | `settings`  | settings of both sides                                           |

use std::sync::Arc;

mod client;
mod explain;
mod forwarded;
mod kinit;
mod library;
mod message;
mod server;
mod settings;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod test_realm;

pub use client::{Krb5Client, offered_service};
pub use message::{KerberosMessage, message as kerberos_message};
pub use server::Krb5Server;
pub use settings::{Krb5ClientSettings, Krb5ServerSettings};

/// The id of the protocol.
pub const KRB5: &str = "krb5";
/// Begins all credentials.
const PREFIX: &[u8] = b"krb5\0";
/// The parameter of a server that wants the ticket of the user.
const FORWARD_PARAMETER: &str = "fwd";
/// The challenge of a server that wants the ticket of the user.
const FORWARD_CHALLENGE: &[u8] = b"fwdtgt\0";

/// Creates the context of an exchange.
type ContextMaker = Arc<dyn Fn() -> Result<library::KerberosContext, library::LibraryFault> + Send + Sync>;

/// Returns the function that creates contexts with the configuration of the system.
fn system_contexts() -> ContextMaker {
    Arc::new(library::KerberosContext::new)
}
