//! Who a client says it is, and how that is known.

use std::net::IpAddr;

/// One client process, as far as it is known. Equality of user, pid and host is what the protocol calls the same client.
///
/// What was told is kept in one piece of text: a server holds one of these for each connection, idle ones too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Process number given at login.
    pub pid: u32,
    /// Peer's address; `None` for a local test peer.
    pub address: Option<IpAddr>,
    /// How the identity was established; `host` when only the address speaks for it.
    pub protocol: &'static str,
    /// All names, one behind the other in the order of [`Told`].
    text: Box<str>,
    /// Where each but the last of them ends.
    ends: [u16; 4],
}

/// What an [`Identity`] is made of. Names are cut at [`NAME_BYTES_MAX`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Told<'a> {
    /// Name given at login: at most 8 bytes, made printable. Not proven unless the protocol says how.
    pub user: &'a str,
    /// Peer's host: its name where known, else its address as text.
    pub host: &'a str,
    /// Name of the application, from the login's cgi.
    pub application: &'a str,
    /// What the client says its host is called, from the login's cgi; fit for convenience, never for permission.
    pub named_host: &'a str,
    /// Release of the client (`vX.Y.Z`), from the login's cgi.
    pub release: &'a str,
}

/// Bytes of one name at most: more than any host's has.
pub const NAME_BYTES_MAX: usize = 1024;

impl Identity {
    /// Who told this, at this address, with `protocol` as the proof.
    pub fn new(told: &Told<'_>, pid: u32, address: Option<IpAddr>, protocol: &'static str) -> Self {
        let names = [told.user, told.host, told.application, told.named_host, told.release].map(cut);
        let mut text = String::with_capacity(names.iter().map(|name| name.len()).sum());
        let mut ends = [0; 4];
        for (index, name) in names.iter().enumerate() {
            text.push_str(name);
            if let Some(end) = ends.get_mut(index) {
                *end = u16::try_from(text.len()).unwrap_or(u16::MAX);
            }
        }
        Self { pid, address, protocol, text: text.into_boxed_str(), ends }
    }

    fn name(&self, index: usize) -> &str {
        let end = |index: usize| self.ends.get(index).map_or(self.text.len(), |end| usize::from(*end));
        let begin = index.checked_sub(1).map_or(0, end);
        self.text.get(begin..end(index)).unwrap_or_default()
    }

    /// See [`Told::user`].
    pub fn user(&self) -> &str {
        self.name(0)
    }

    /// See [`Told::host`].
    pub fn host(&self) -> &str {
        self.name(1)
    }

    /// See [`Told::application`].
    pub fn application(&self) -> &str {
        self.name(2)
    }

    /// See [`Told::named_host`].
    pub fn named_host(&self) -> &str {
        self.name(3)
    }

    /// See [`Told::release`].
    pub fn release(&self) -> &str {
        self.name(4)
    }

    /// Same user, pid and host: the same client in another connection.
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.user() == other.user() && self.pid == other.pid && self.host() == other.host()
    }
}

fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default()
}

const _: () = assert!(4 * NAME_BYTES_MAX <= u16::MAX as usize);

/// Names as the client gave them: for a log, whose formatter escapes them. On the way to a terminal they go through
/// [`shown`](crate::shown()).
impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}@{}", self.user(), self.pid, self.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_out_as_they_went_in() {
        let told = Told {
            user: "uschi",
            host: "c.example.org",
            application: "",
            named_host: "é",
            release: "v6.1.0",
        };
        let identity = Identity::new(&told, 7, None, "host");
        assert_eq!((identity.user(), identity.host()), ("uschi", "c.example.org"));
        assert_eq!((identity.application(), identity.named_host()), ("", "é"));
        assert_eq!(identity.release(), "v6.1.0");
        assert_eq!(identity.to_string(), "uschi.7@c.example.org");
        let other = Identity::new(&Told { application: "other", ..told }, 7, None, "host");
        assert!(identity.is_same_client(&other) && identity != other);
        let nobody = Identity::new(&Told::default(), 0, None, "host");
        assert_eq!(nobody.to_string(), ".0@");
        assert!(!identity.is_same_client(&nobody));
    }

    #[test]
    fn names_without_end_are_cut_between_characters() {
        let long = "éx".repeat(NAME_BYTES_MAX);
        let told = Told { user: &long, host: &long, application: &long, named_host: &long, release: &long };
        let identity = Identity::new(&told, 0, None, "host");
        for name in [identity.user(), identity.host(), identity.named_host(), identity.release()] {
            assert_eq!(name.len(), NAME_BYTES_MAX - 1, "a cut inside of a character moves before it");
            assert!(long.starts_with(name));
        }
    }
}
