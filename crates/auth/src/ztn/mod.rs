//! `ztn`: the client sends a bearer token. It is used on encrypted connections only.
//!
//! Credentials: `ztn` NUL, version 0, `T`, two zeros, the length of the token with its NUL as 16 bits,
//! the token, NUL. What follows is ignored; stock clients send two zeros. Source: security facts,
//! section 2.8.

mod client;
mod discovery;
mod server;

pub use client::{ZtnClient, credentials};
pub use discovery::TokenPlaces;
pub use server::{ExpiryCheck, ZtnServer, ZtnServerSettings};

/// The id of the protocol.
pub const ZTN: &str = "ztn";
/// Maximum length of a token that the length field can express, in bytes.
pub const ZTN_TOKEN_BYTES_MAX: usize = 65_534;
/// Maximum length of a token unless the server is configured otherwise.
pub const ZTN_TOKEN_BYTES_DEFAULT: usize = 4096;

const PREFIX: &[u8] = b"ztn\0";
const VERSION: u8 = 0;
/// The operation: a token follows.
const TOKEN_FOLLOWS: u8 = b'T';
/// Length of the credentials in front of the token.
const HEADER_BYTES: usize = 10;
/// The bytes that stock clients send behind the token.
const TRAILER: [u8; 2] = [0, 0];

#[cfg(test)]
mod recorded;
