//! `sss`, the simple shared secret: both sides have a table of keys, and a client proves that it has
//! one of them by a packet that is encrypted with it.
//!
//! | file         | contents                                                              |
//! |--------------|-----------------------------------------------------------------------|
//! | `cipher`     | Blowfish in cipher feedback mode                                      |
//! | `client`     | [`SssClient`]: the client's side                                      |
//! | `keytab`     | [`Keytab`]: the table of keys and its file                            |
//! | `keytab_changes` | [`KeySelector`]: adding, removing and saving keys                    |
//! | `packet`     | [`PacketHeader`], [`PacketBody`]: the bytes of credentials            |
//! | `parameters` | [`SssParameters`]: the parameters in a server's list of protocols     |
//! | `replay`     | the store of packets that were used                                   |
//! | `server`     | [`SssServer`]: the server's side                                      |
//! | `settings`   | [`SssServerSettings`]: its configuration                              |
//! | `identity`   | the identity that a key and a packet give                             |
//!
//! The cipher protects packets from strangers who have no key. It does not protect a connection, so
//! on networks that are not trusted it needs TLS.

mod cipher;
mod client;
mod identity;
mod keytab;
mod keytab_changes;
mod packet;
mod parameters;
mod replay;
mod server;
mod settings;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod test_clock;

pub use client::{
    HOME_KEYTAB, IdentitySource, IdentityTable, OriginalClient, SssClient, SssClientSettings, SssIdentity,
};
pub use keytab::{
    GROUP_BYTES_MAX, KEY_BYTES_MAX, KEY_NAME_BYTES_MAX, KEYTAB_BYTES_MAX, Keytab, KeytabError, SssKey,
    USER_BYTES_MAX, keytab_mode,
};
pub use keytab_changes::KeySelector;
pub use packet::{
    CREDENTIAL_BYTES_MAX, ItemKind, PACKET_BYTES_MIN, PacketBody, PacketError, PacketHeader, PacketItem,
    PacketItems, RANDOM_BYTES, TIME_BASE,
};
pub use parameters::SssParameters;
pub use server::SssServer;
pub use settings::SssServerSettings;

/// The id of the protocol.
pub const SSS: &str = "sss";

/// Returns the seconds since 1970.
fn seconds(time: std::time::SystemTime) -> u64 {
    time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
