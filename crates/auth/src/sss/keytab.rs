//! The key table of `sss`: a file with one key per line.
//!
//! ```text
//! 0 u:USER g:GROUP n:NAME N:ID c:CREATED e:EXPIRES f:FLAGS k:HEX
//! ```
//!
//! Fields are found by their letter and may be in any order; `N` and `k` are required. Times are
//! seconds since 1970, and a key with `e:0` never expires. Blank lines are skipped.
//!
//! Source: security facts, section 2.3.2.

use std::collections::HashSet;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::secret::Secret;
use crate::trusted_file::{FileTrust, TrustedFileError, TrustedOwner, read_trusted};

/// Maximum length of the name of a key.
pub const KEY_NAME_BYTES_MAX: usize = 191;
/// Maximum length of a user.
pub const USER_BYTES_MAX: usize = 127;
/// Maximum length of a group.
pub const GROUP_BYTES_MAX: usize = 63;
/// Maximum length of a key.
pub const KEY_BYTES_MAX: usize = 128;
/// Maximum size of a key table.
pub const KEYTAB_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum length of a line that is written: names, a key, four numbers and letters.
const LINE_BYTES_MAX: usize = KEY_NAME_BYTES_MAX + USER_BYTES_MAX + GROUP_BYTES_MAX + 2 * KEY_BYTES_MAX + 128;

/// User of a key with which clients name their user.
const ANYBODY: &str = "anybody";
/// User of a key with which clients may also forward the identities of others.
const ALL_USERS: &str = "allusers";
/// Group of a key with which clients name their groups.
const ANY_GROUP: &str = "anygroup";
/// Group of a key whose users have the primary group of their account.
const USER_GROUP: &str = "usrgroup";

/// A key of a key table.
#[derive(Clone, Debug)]
pub struct SssKey {
    /// Id; by convention `created << 32 | number`.
    pub id: i64,
    /// Name.
    pub name: String,
    /// User, or one of `anybody` and `allusers`.
    pub user: String,
    /// Group, or one of `anygroup` and `usrgroup`.
    pub group: String,
    /// Time of creation, seconds since 1970.
    pub created: u64,
    /// Time of expiry, seconds since 1970; 0: never.
    pub expires: u64,
    /// The key.
    pub secret: Secret,
}

impl SssKey {
    /// Reports whether the key is expired.
    #[must_use]
    pub const fn is_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Reports whether clients name their user (`anybody`, `allusers`).
    #[must_use]
    pub fn is_for_any_user(&self) -> bool {
        self.user == ANYBODY || self.user == ALL_USERS
    }

    /// Reports whether clients may forward the identities of others (`allusers`).
    #[must_use]
    pub fn is_for_all_users(&self) -> bool {
        self.user == ALL_USERS
    }

    /// Reports whether clients name their groups (`anygroup`).
    #[must_use]
    pub fn is_for_any_group(&self) -> bool {
        self.group == ANY_GROUP
    }

    /// Reports whether the group is the one of the user's account (`usrgroup`).
    #[must_use]
    pub fn is_for_user_group(&self) -> bool {
        self.group == USER_GROUP
    }

    /// Reports whether the server takes user and groups from the packets of this key, so that it can stand
    /// for the clients of a proxy.
    #[must_use]
    pub fn is_for_clients(&self) -> bool {
        self.is_for_any_user() && (self.is_for_any_group() || self.is_for_user_group())
    }

    /// Reports whether packets with this key are accepted from every host, because its name ends in
    /// `+`.
    #[must_use]
    pub fn is_forwardable(&self) -> bool {
        self.name.ends_with('+')
    }

    /// Returns the triple that identifies keys which replace each other.
    #[must_use]
    pub fn triple(&self) -> (&str, &str, &str) {
        (&self.name, &self.user, &self.group)
    }

    /// Returns the time of expiry for comparisons; the end of time for a key that never expires.
    const fn end(&self) -> u64 {
        if self.expires == 0 { u64::MAX } else { self.expires }
    }
}

/// The reason why a key table cannot be used. It contains nothing of a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeytabError {
    /// There is no file.
    #[error("there is no key table {path}; make one with xrdsssadmin add")]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened or read.
    #[error("cannot open the key table {path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// Other users could read or replace the keys.
    #[error("the key table {path} is not used: {reason}; {remedy}")]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// The property that is not safe.
        reason: String,
        /// What the owner can do.
        remedy: String,
    },
    /// A line violates the format.
    #[error("line {line} of the key table: {problem}")]
    BadLine {
        /// The line, from 1.
        line: usize,
        /// The violation.
        problem: &'static str,
    },
}

/// The keys of a file in the order of its lines.
#[derive(Clone, Default, Debug)]
pub struct Keytab {
    /// The keys.
    pub keys: Vec<SssKey>,
}

impl Keytab {
    /// Parses the content of a key table.
    ///
    /// # Errors
    /// [`KeytabError::BadLine`]. One malformed line makes the whole table unusable.
    pub fn parse(text: &[u8]) -> Result<Self, KeytabError> {
        let mut keys = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let fault = |problem| KeytabError::BadLine { line: index + 1, problem };
            let line = std::str::from_utf8(line).map_err(|_| fault("it is not text"))?;
            if !line.trim().is_empty() {
                keys.push(parse_line(line).map_err(fault)?);
            }
        }
        Ok(Self { keys })
    }

    /// Opens a key table, checks that no other user can read or replace it, and parses it.
    ///
    /// # Errors
    /// [`KeytabError`].
    pub fn open(path: &Path) -> Result<Self, KeytabError> {
        Self::open_owned(path, TrustedOwner::Own).map(|(table, _)| table)
    }

    /// Opens a key table. Returns also the user and the group of the file.
    pub(super) fn open_owned(path: &Path, owner: TrustedOwner) -> Result<(Self, (u32, u32)), KeytabError> {
        let trust = FileTrust {
            owner,
            modes: keytab_mode(path),
            danger: "use the keys",
            bytes_max: KEYTAB_BYTES_MAX,
        };
        let owned = || path.to_owned();
        let (text, stamp) = read_trusted(path, &trust).map_err(|error| match error {
            TrustedFileError::Unreadable(error) if error.kind() == ErrorKind::NotFound => {
                KeytabError::Absent { path: owned() }
            }
            TrustedFileError::Unreadable(error) => {
                KeytabError::Unreadable { path: owned(), reason: base::errno_text(&error) }
            }
            TrustedFileError::Untrusted { reason, remedy } => {
                KeytabError::Unsafe { path: owned(), reason, remedy }
            }
        })?;
        Ok((Self::parse(&text)?, stamp.owner))
    }

    /// Returns the lines, without a newline at the end.
    #[must_use]
    pub fn encode(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(self.keys.len() * LINE_BYTES_MAX));
        for (index, key) in self.keys.iter().enumerate() {
            let SssKey { id, name, user, group, created, expires, secret } = key;
            let newline = if index == 0 { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ =
                write!(text, "{newline}0 u:{user} g:{group} n:{name} N:{id} c:{created} e:{expires} f:0 k:");
            for byte in secret.expose() {
                let _ = write!(text, "{byte:02x}");
            }
        }
        text
    }

    /// Returns the key with this id that is not expired. A name, if given, must match as well.
    #[must_use]
    pub fn find(&self, id: i64, name: Option<&str>, now: u64) -> Option<&SssKey> {
        let matches =
            |key: &&SssKey| key.id == id && name.is_none_or(|name| key.name == name) && !key.is_expired(now);
        self.keys.iter().find(matches)
    }

    /// Returns the key that a client uses. Of keys with the same name, user and group it is the one
    /// that expires last, the first of these if several do. Of different ones it is that whose first
    /// key is on the latest line, as real clients choose. Expired keys do not take part.
    #[must_use]
    pub fn choose(&self, now: u64) -> Option<&SssKey> {
        let usable = || self.keys.iter().filter(|key| !key.is_expired(now));
        let mut seen = HashSet::new();
        let last = usable().filter(|key| seen.insert(key.triple())).last()?;
        let alike = usable().filter(|key| key.triple() == last.triple());
        alike.reduce(|best, key| if key.end() > best.end() { key } else { best })
    }
}

/// Returns the permissions that a key table may have at most.
#[must_use]
pub fn keytab_mode(path: &Path) -> u32 {
    if path.extension().is_some_and(|extension| extension == "grp") { 0o640 } else { 0o600 }
}

fn parse_line(line: &str) -> Result<SssKey, &'static str> {
    let mut words = line.split_ascii_whitespace();
    if !matches!(words.next(), Some("0" | "1")) {
        return Err("it does not begin with the version 0 or 1");
    }
    let (mut id, mut secret) = (None, None);
    let mut key = SssKey {
        id: 0,
        name: "nowhere".to_owned(),
        user: "nobody".to_owned(),
        group: "nogroup".to_owned(),
        created: 0,
        expires: 0,
        secret: Secret::default(),
    };
    for word in words {
        let (letter, value) = word.split_once(':').ok_or("a field has no colon")?;
        match letter {
            "u" => key.user = name(value, USER_BYTES_MAX, "the user is empty or too long")?,
            "g" => key.group = name(value, GROUP_BYTES_MAX, "the group is empty or too long")?,
            "n" => key.name = name(value, KEY_NAME_BYTES_MAX, "the name of the key is empty or too long")?,
            "N" => id = Some(value.parse().map_err(|_| "the id of the key (N:) is not a number")?),
            "c" => key.created = value.parse().map_err(|_| "the creation time (c:) is not a number")?,
            "e" => key.expires = value.parse().map_err(|_| "the expiry (e:) is not a number")?,
            "k" => secret = Some(parse_key(value)?),
            // The flags (`f`) have no meaning yet, and later versions may have further fields.
            _ => {}
        }
    }
    key.id = id.ok_or("it has no id of the key (N:)")?;
    key.secret = secret.ok_or("it has no key (k:)")?;
    Ok(key)
}

fn name(value: &str, bytes_max: usize, problem: &'static str) -> Result<String, &'static str> {
    let is_valid = (1..=bytes_max).contains(&value.len()) && !value.contains(char::is_control);
    if is_valid { Ok(value.to_owned()) } else { Err(problem) }
}

fn parse_key(hex: &str) -> Result<Secret, &'static str> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err("the key (k:) has an odd number of digits");
    }
    if !(1..=KEY_BYTES_MAX).contains(&pairs.len()) {
        return Err("the key (k:) is empty or too long");
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    // One allocation, because growing would leave copies behind.
    let mut bytes = Vec::with_capacity(pairs.len());
    for pair in pairs {
        bytes.push(byte(pair).ok_or("the key (k:) is not hexadecimal")?);
    }
    Ok(Secret::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, id: i64, expires: u64) -> String {
        format!("0 u:alice g:staff n:{name} N:{id} c:7 e:{expires} f:0 k:00ff10")
    }

    fn table(lines: &[String]) -> Keytab {
        Keytab::parse(lines.join("\n").as_bytes()).unwrap()
    }

    #[test]
    fn a_table_is_written_as_it_was_read() {
        let text = [line("a", 1, 0), line("b", -2, 99)].join("\n");
        let table = Keytab::parse(text.as_bytes()).unwrap();
        assert_eq!(*table.encode(), text);
        assert!(table.keys[0].secret.is_equal(&[0, 255, 16]));
        assert!(!format!("{table:?}").contains("ff10"), "keys are not printed");
    }

    #[test]
    fn fields_have_any_order_and_defaults() {
        let table = Keytab::parse(b"\n1 k:AB  N:5 z:later\n \n").unwrap();
        assert_eq!(table.keys[0].triple(), ("nowhere", "nobody", "nogroup"));
        assert_eq!((table.keys[0].id, table.keys[0].expires), (5, 0));
    }

    #[test]
    fn malformed_lines_are_named() {
        let long = "x".repeat(192);
        let table = [
            ("0 N:1".to_owned(), "no key"),
            ("0 k:00".to_owned(), "no id"),
            ("0 N:1 k:000".to_owned(), "odd"),
            ("0 N:1 k:".to_owned(), "empty or too long"),
            ("0 N:1 k:0g".to_owned(), "hexadecimal"),
            (format!("0 N:1 k:{}", "00".repeat(129)), "too long"),
            (format!("0 N:1 k:00 n:{long}"), "name of the key"),
            (format!("0 N:1 k:00 u:{long}"), "user"),
            ("2 N:1 k:00".to_owned(), "version"),
            ("0 N:1 k:00 e:soon".to_owned(), "expiry"),
            ("0 N:1 k:00 lost".to_owned(), "colon"),
        ];
        for (line, expected) in table {
            let error = Keytab::parse(format!("\n{line}\n").as_bytes()).unwrap_err();
            assert!(matches!(error, KeytabError::BadLine { line: 2, .. }), "{line}: {error}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
        assert!(Keytab::parse(format!("0 N:1 k:{}", "00".repeat(128)).as_bytes()).is_ok());
    }

    #[test]
    fn expired_keys_are_absent() {
        let table = table(&[line("a", 1, 100), line("a", 2, 0)]);
        assert!(table.find(1, None, 99).is_some() && table.find(1, None, 100).is_none());
        assert!(table.find(2, Some("a"), 100).is_some() && table.find(2, Some("b"), 100).is_none());
    }

    /// Real clients choose so (5.5.3).
    #[test]
    fn a_client_uses_the_longest_key_of_the_triple_that_begins_last() {
        let chosen = |lines: &[String], now| table(lines).choose(now).map(|key| key.id);
        assert_eq!(chosen(&[line("a", 1, 0), line("b", 2, 0)], 50), Some(2));
        assert_eq!(chosen(&[line("a", 1, 0), line("b", 2, 0), line("a", 3, 200)], 50), Some(2));
        assert_eq!(chosen(&[line("a", 1, 200), line("b", 2, 0), line("a", 3, 0)], 50), Some(2));
        assert_eq!(chosen(&[line("b", 1, 200), line("a", 2, 0), line("a", 3, 0)], 50), Some(2), "the first");
        assert_eq!(chosen(&[line("a", 1, 200), line("a", 2, 300)], 50), Some(2), "it expires later");
        assert_eq!(chosen(&[line("a", 1, 0), line("a", 2, 200)], 50), Some(1), "it never expires");
        assert_eq!(chosen(&[line("a", 1, 0), line("b", 2, 40)], 50), Some(1), "the other is expired");
        assert_eq!(chosen(&[line("a", 1, 40)], 50), None);
    }
}
