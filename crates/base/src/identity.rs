//! The identity of a client: the names of its login, its address and its authentication.

use std::net::IpAddr;

/// The identity of one client process. The protocol defines two connections with equal user, pid
/// and host as the same client.
///
/// All names share one allocation, because a server holds an identity for each connection,
/// including idle ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Process number sent at login.
    pub pid: u32,
    /// Address of the peer; `None` for a local test peer.
    pub address: Option<IpAddr>,
    /// All names, concatenated in the order of the fields of [`LoginNames`], without the last one; then
    /// the authentication protocol, [`INFO_SEPARATOR`] and [`LoginNames::info`]. The separator instead
    /// of another end keeps the identity small.
    text: Box<str>,
    /// End of each name.
    ends: [u16; 5],
}

/// The names of an [`Identity`]. Each is cut at [`NAME_BYTES_MAX`].
#[derive(Clone, Copy, Default, Debug)]
pub struct LoginNames<'a> {
    /// Name sent at login: at most 8 bytes, made printable. It is not authenticated unless the
    /// protocol does so.
    pub user: &'a str,
    /// Host of the peer: its name if known, otherwise its address as text.
    pub host: &'a str,
    /// Name of the application, from the CGI of the login.
    pub application: &'a str,
    /// Host name that the client sent in the CGI of the login. It may be used for display but never
    /// for authorization.
    pub named_host: &'a str,
    /// Release of the client (`vX.Y.Z`), from the CGI of the login.
    pub release: &'a str,
    /// Text of the user about the application, from the CGI of the login.
    pub info: &'a str,
}

/// The character before the information of an [`Identity`]. No protocol has it in its name.
const INFO_SEPARATOR: char = '\0';

/// Maximum length of one name in bytes; longer than any valid host name.
pub const NAME_BYTES_MAX: usize = 1024;

impl Identity {
    /// Creates the identity of a client with these names and address, authenticated by `protocol`.
    pub fn new(told: &LoginNames<'_>, pid: u32, address: Option<IpAddr>, protocol: &str) -> Self {
        let names =
            [told.user, told.host, told.application, told.named_host, told.release, protocol].map(cut);
        let info = cut(told.info);
        let mut text =
            String::with_capacity(names.iter().map(|name| name.len()).sum::<usize>() + 1 + info.len());
        let mut ends = [0; 5];
        for (index, name) in names.iter().enumerate() {
            text.push_str(name);
            if let Some(end) = ends.get_mut(index) {
                *end = u16::try_from(text.len()).unwrap_or(u16::MAX);
            }
        }
        if !info.is_empty() {
            text.push(INFO_SEPARATOR);
            text.push_str(info);
        }
        Self { pid, address, text: text.into_boxed_str(), ends }
    }

    fn name(&self, index: usize) -> &str {
        let end = |index: usize| self.ends.get(index).map_or(self.text.len(), |end| usize::from(*end));
        let begin = index.checked_sub(1).map_or(0, end);
        self.text.get(begin..end(index)).unwrap_or_default()
    }

    /// Returns [`LoginNames::user`].
    pub fn user(&self) -> &str {
        self.name(0)
    }

    /// Returns [`LoginNames::host`].
    pub fn host(&self) -> &str {
        self.name(1)
    }

    /// Returns [`LoginNames::application`].
    pub fn application(&self) -> &str {
        self.name(2)
    }

    /// Returns [`LoginNames::named_host`].
    pub fn named_host(&self) -> &str {
        self.name(3)
    }

    /// Returns [`LoginNames::release`].
    pub fn release(&self) -> &str {
        self.name(4)
    }

    /// Returns the name of the authentication protocol; `host` if only the address identifies the
    /// client.
    pub fn protocol(&self) -> &str {
        let (protocol, _) = self.name(5).split_once(INFO_SEPARATOR).unwrap_or((self.name(5), ""));
        protocol
    }

    /// Returns [`LoginNames::info`].
    pub fn info(&self) -> &str {
        self.name(5).split_once(INFO_SEPARATOR).map_or("", |(_, info)| info)
    }

    /// Returns the identity after authentication by `protocol`.
    #[must_use]
    pub fn authenticated_by(&self, protocol: &str) -> Self {
        let names = LoginNames {
            user: self.user(),
            host: self.host(),
            application: self.application(),
            named_host: self.named_host(),
            release: self.release(),
            info: self.info(),
        };
        Self::new(&names, self.pid, self.address, protocol)
    }

    /// Reports whether user, pid and host are equal, so that both connections belong to the same
    /// client.
    pub fn is_same_client(&self, other: &Self) -> bool {
        self.user() == other.user() && self.pid == other.pid && self.host() == other.host()
    }
}

fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default()
}

const _: () = assert!(5 * NAME_BYTES_MAX <= u16::MAX as usize);

/// Formats `user.pid@host` without escaping, because the formatter of the log escapes. Output to a
/// terminal must use [`shown`](crate::shown()).
impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}@{}", self.user(), self.pid, self.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_returned_unchanged() {
        let told = LoginNames {
            user: "uschi",
            host: "c.example.org",
            application: "",
            named_host: "é",
            release: "v6.1.0",
            info: "a job",
        };
        let identity = Identity::new(&told, 7, None, "host");
        assert_eq!((identity.user(), identity.host()), ("uschi", "c.example.org"));
        assert_eq!((identity.application(), identity.named_host()), ("", "é"));
        assert_eq!((identity.release(), identity.info()), ("v6.1.0", "a job"));
        assert_eq!(identity.to_string(), "uschi.7@c.example.org");
        assert_eq!(identity.protocol(), "host");
        let proved = identity.authenticated_by("sss");
        assert_eq!((proved.protocol(), proved.release(), proved.pid), ("sss", "v6.1.0", 7));
        assert_eq!(proved.info(), "a job");
        let without = Identity::new(&LoginNames { info: "", ..told }, 7, None, "gsi");
        assert_eq!((without.protocol(), without.info()), ("gsi", ""));
        let other = Identity::new(&LoginNames { application: "other", ..told }, 7, None, "host");
        assert!(identity.is_same_client(&other) && identity != other);
        let nobody = Identity::new(&LoginNames::default(), 0, None, "host");
        assert_eq!(nobody.to_string(), ".0@");
        assert!(!identity.is_same_client(&nobody));
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = "éx".repeat(NAME_BYTES_MAX);
        let told = LoginNames {
            user: &long,
            host: &long,
            application: &long,
            named_host: &long,
            release: &long,
            info: &long,
        };
        let identity = Identity::new(&told, 0, None, "host");
        for name in [identity.user(), identity.host(), identity.named_host(), identity.info()] {
            assert_eq!(name.len(), NAME_BYTES_MAX - 1, "the cut moves before an incomplete character");
            assert!(long.starts_with(name));
        }
    }
}
