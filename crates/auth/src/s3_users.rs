//! [`S3Users`]: the keys by which clients of S3 log in, and the users that they are.
//!
//! The file has the form of `~/.aws/credentials`. The name of a section is that of the user, and a user may have
//! several sections, so that a key can be replaced without an interruption:
//!
//! ```text
//! [alice]
//! aws_access_key_id = ALICE-2026
//! aws_secret_access_key = …
//! groups = staff cms
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::entity::{Entity, EntityFields};
use crate::secret::Secret;
use crate::trusted_file::{FileTrust, TrustedOwner, read_trusted};

/// The name of the protocol in identities and rules.
pub const PROTOCOL: &str = "s3";
/// Maximum size of the file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Lengths of the name of a user, of a key id and of a secret. A short secret could be found by trying all, with one
/// request that was seen on the network.
const NAME_BYTES_MAX: usize = 255;
const KEY_ID_BYTES_MAX: usize = 128;
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 1024;

/// The key of a user.
#[derive(Debug)]
pub(crate) struct UserKey {
    pub(crate) id: Box<str>,
    pub(crate) secret: Secret,
    user: Box<str>,
    groups: Option<Box<str>>,
}

impl UserKey {
    /// Returns the identity of the user, at a host.
    pub(crate) fn entity(&self, host: &str) -> Entity {
        Entity::new(EntityFields {
            protocol: PROTOCOL.into(),
            name: Some(self.user.clone()),
            groups: self.groups.clone(),
            host: host.into(),
            ..EntityFields::default()
        })
    }
}

type KeyTable = HashMap<Box<str>, Arc<UserKey>>;

/// The keys of all users, by their ids.
#[derive(Debug)]
pub struct S3Users {
    path: PathBuf,
    keys: Mutex<Arc<KeyTable>>,
}

impl S3Users {
    /// Reads the keys from a file that nobody else may read. Blocks.
    ///
    /// # Errors
    /// A text with the remedy, without the content of the file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let keys = read(path)?;
        Ok(Self { path: path.to_owned(), keys: Mutex::new(Arc::new(keys)) })
    }

    /// Reads the file again. If it is not usable, the earlier keys stay in force. Blocks.
    ///
    /// # Errors
    /// As for [`S3Users::read`].
    pub fn refresh(&self) -> Result<(), String> {
        let keys = Arc::new(read(&self.path)?);
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Describes the keys in force.
    #[must_use]
    pub fn state(&self) -> String {
        format!("{PROTOCOL}: {} keys of {}", self.table().len(), self.path.display())
    }

    /// Returns the key with an id.
    pub(crate) fn key(&self, id: &str) -> Option<Arc<UserKey>> {
        self.table().get(id).cloned()
    }

    fn table(&self) -> Arc<KeyTable> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates the keys of a text.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self { path: PathBuf::new(), keys: Mutex::new(Arc::new(parse(text.as_bytes()).unwrap())) }
    }
}

fn read(path: &Path) -> Result<KeyTable, String> {
    let trust = FileTrust::private(TrustedOwner::Own, "read the keys of users of S3", FILE_BYTES_MAX);
    let (content, _) = read_trusted(path, &trust).map_err(|error| error.text_of(path))?;
    parse(&content).map_err(|why| format!("{}: {why}", path.display()))
}

/// A section that is being read.
struct UserSection<'a> {
    /// The line of its head.
    line: usize,
    user: &'a str,
    key_id: Option<&'a str>,
    secret: Option<&'a str>,
    groups: Option<&'a str>,
}

impl UserSection<'_> {
    fn finish(self, keys: &mut KeyTable) -> Result<(), String> {
        let missing = |what: &str| format!("the section [{}] of line {} has no {what}", self.user, self.line);
        let id: Box<str> = self.key_id.ok_or_else(|| missing("aws_access_key_id"))?.into();
        let secret = self.secret.ok_or_else(|| missing("aws_secret_access_key"))?;
        let groups: Vec<&str> = self.groups.unwrap_or_default().split_ascii_whitespace().collect();
        let key = UserKey {
            id: id.clone(),
            secret: Secret::from(secret.as_bytes()),
            user: self.user.into(),
            groups: (!groups.is_empty()).then(|| groups.join(" ").into()),
        };
        match keys.insert(id, Arc::new(key)) {
            None => Ok(()),
            Some(_) => Err(format!("the key id of the section of line {} occurs twice", self.line)),
        }
    }
}

fn parse(content: &[u8]) -> Result<KeyTable, String> {
    let text = std::str::from_utf8(content).map_err(|_| "it is not UTF-8 text".to_owned())?;
    let mut keys = KeyTable::new();
    let mut section: Option<UserSection<'_>> = None;
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(user) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let user = user.trim();
            if !is_name(user) {
                return Err(format!("line {number}: the section is not the name of a user"));
            }
            let next = UserSection { line: number, user, key_id: None, secret: None, groups: None };
            if let Some(last) = section.replace(next) {
                last.finish(&mut keys)?;
            }
            continue;
        }
        let (name, value) =
            line.split_once('=').ok_or_else(|| format!("line {number} is not NAME = VALUE"))?;
        let (name, value) = (name.trim(), value.trim());
        let Some(section) = &mut section else {
            return Err(format!("line {number} is not in a section [USER]"));
        };
        let (place, is_valid) = match name {
            "aws_access_key_id" => (&mut section.key_id, is_key_id(value)),
            "aws_secret_access_key" => (&mut section.secret, is_secret(value)),
            "groups" => (&mut section.groups, value.split_ascii_whitespace().all(is_name)),
            // Settings of clients, such as the region.
            _ => continue,
        };
        if !is_valid {
            return Err(format!("line {number}: the value of {name} is malformed{}", hint(name)));
        }
        if place.replace(value).is_some() {
            return Err(format!("line {number}: {name} occurs twice in its section"));
        }
    }
    match section {
        Some(last) => last.finish(&mut keys)?,
        None => return Err("it has no section [USER]".to_owned()),
    }
    Ok(keys)
}

fn hint(name: &str) -> String {
    match name {
        "aws_secret_access_key" => format!("; it has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} characters"),
        _ => String::new(),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '[' | ']' | ',');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain)
}

fn is_key_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=KEY_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(is_plain)
}

fn is_secret(secret: &str) -> bool {
    (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len())
        && secret.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_section_names_the_user_of_a_key() {
        let users = S3Users::of(
            "# keys\n[alice]\naws_access_key_id = A1\naws_secret_access_key = 0123456789abcdef=\n\
             groups = staff  cms\nregion = x\n\n[alice]\naws_access_key_id=A2\n\
             aws_secret_access_key=0123456789abcdeg\n; other\n[bob]\naws_access_key_id = B\n\
             aws_secret_access_key = 0123456789abcdeh\n",
        );
        let found = |id: &str| {
            users.key(id).map(|key| {
                let entity = key.entity("h.example.org");
                assert_eq!((&*entity.protocol, &*entity.host), ("s3", "h.example.org"));
                let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or("-").to_owned();
                (text(&entity.name), text(&entity.groups), key.secret.expose().len())
            })
        };
        let of = |user: &str, groups: &str, length| Some((user.to_owned(), groups.to_owned(), length));
        assert_eq!(found("A1"), of("alice", "staff cms", 17));
        assert_eq!(found("A2"), of("alice", "-", 16));
        assert_eq!(found("B"), of("bob", "-", 16));
        assert_eq!((found("a1"), found("")), (None, None));
    }

    #[test]
    fn faults_name_their_line_and_no_value() {
        let secret = "aws_secret_access_key = hunter2hunter2hunter2\n";
        for (text, expected) in [
            (String::new(), "no section"),
            (format!("aws_access_key_id = hunter2\n{secret}"), "line 1 is not in a section"),
            (format!("[a]\n{secret}"), "line 1 has no aws_access_key_id"),
            ("[a]\naws_access_key_id = A\n[b]\n".to_owned(), "line 1 has no aws_secret_access_key"),
            ("[a]\naws_secret_access_key = hunter2\n".to_owned(), "line 2: the value of aws_secret"),
            (format!("[a]\naws_access_key_id = hunter2/x\n{secret}"), "line 2: the value of aws_access"),
            (
                format!("[a]\naws_access_key_id = A\n{secret}{secret}"),
                "line 4: aws_secret_access_key occurs twice",
            ),
            (
                format!("[a]\naws_access_key_id = A\n{secret}[b]\naws_access_key_id = A\n{secret}"),
                "occurs twice",
            ),
            (format!("[a b]\naws_access_key_id = A\n{secret}"), "line 1: the section"),
            (format!("[a]\naws_access_key_id hunter2\n{secret}"), "line 2 is not NAME = VALUE"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{text}: {error}");
        }
        assert!(parse(b"[a]\n\xff").is_err());
        let printed = format!("{:?}", S3Users::of(&format!("[a]\naws_access_key_id = A\n{secret}")));
        assert!(!printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn a_file_that_is_no_longer_usable_leaves_the_earlier_keys() {
        let directory = std::env::temp_dir().join(format!("scalla-s3-users-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("keys");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let of =
            |id: &str| format!("[a]\naws_access_key_id = {id}\naws_secret_access_key = 0123456789abcdef\n");
        write(&of("A"), 0o640);
        let open = S3Users::read(&path).unwrap_err();
        write(&of("A"), 0o600);
        let users = S3Users::read(&path).unwrap();
        write("[a]\n", 0o600);
        let broken = (users.refresh().is_err(), users.key("A").is_some());
        write(&of("B"), 0o600);
        let replaced = (users.refresh().is_ok(), users.key("A").is_none(), users.key("B").is_some());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(open.contains("read the keys of users of S3"), "{open}");
        assert_eq!((broken, replaced), ((true, true), (true, true, true)));
    }
}
