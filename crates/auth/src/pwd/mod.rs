//! `pwd`: passwords. The server has a static key, by which clients recognize it, and a file with hashes
//! of passwords.
//!
//! | file         | contents                                                     |
//! |--------------|--------------------------------------------------------------|
//! | `change`     | the change of a password during a login                      |
//! | `cipher`     | the cipher of the inner messages                             |
//! | `client`     | [`PwdClient`]: the client's side                             |
//! | `failures`   | the failed attempts of users and addresses                   |
//! | `file`       | [`PwdFile`]: the file format                                 |
//! | `guesses`    | the guesses that are being checked, and those that wait      |
//! | `hash`       | hashes of passwords                                          |
//! | `known_keys` | the keys of servers that a user knows                        |
//! | `messages`   | steps, challenges                                            |
//! | `netrc`      | passwords in a file                                          |
//! | `server`     | [`PwdServer`]: the server's side                             |
//! | `server_key` | [`ServerKey`]: the static key of a server                    |
//! | `stored`     | files of passwords on disk                                   |
//! | `terminal`   | [`ask_password`]: a password typed at a terminal             |
//! | `users`      | the content of the file of a server, by which it checks      |
//!
//! Source: security facts, section 2.4.

use std::time::{SystemTime, UNIX_EPOCH};

mod change;
mod cipher;
mod client;
mod failures;
mod file;
mod guesses;
mod hash;
mod known_keys;
mod messages;
mod netrc;
mod server;
mod server_key;
mod stored;
mod terminal;
mod users;

#[cfg(test)]
mod changes;
#[cfg(test)]
mod recorded;

pub use client::{PasswordPrompt, PwdClient, PwdClientSettings};
pub use file::{ENTRIES_MAX, EntryStatus, FILE_BYTES_MAX, NAME_BYTES_MAX, PwdEntry, PwdFile, PwdFileError};
pub use hash::{PASSWORD_BYTES_MAX, StoredPassword};
pub use server::{PwdServer, PwdServerSettings};
pub use server_key::{SERVER_ID, SERVER_KEY, ServerKey};
pub use terminal::ask_password;
pub use users::{SERVER_ID_BYTES_MAX, is_server_id, is_user_name};

/// The id of the protocol.
pub const PWD: &str = "pwd";

/// The file of a server, below its directory.
pub const ADMIN_FILE: &str = "pwdadmin";

/// The end of the names of entries, which stands for the crypto module `ssl`.
pub const MODULE_SUFFIX: &str = "_1";

/// Returns the seconds since 1970, as messages and files have them.
#[must_use]
pub fn unix_seconds(time: SystemTime) -> u32 {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
