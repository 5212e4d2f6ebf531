//! [`MonitoredUser`]: the texts about a client.

use super::super::transfer_records::line;
use std::fmt::Write;
use std::net::IpAddr;

/// The result of the authentication of a client. A name that the protocol does not have is empty.
#[derive(Clone, Copy, Default, Debug)]
pub struct AuthenticatedUser<'a> {
    /// The protocol.
    pub protocol: &'a str,
    /// Name, or subject of a certificate.
    pub name: &'a str,
    /// Name of the host.
    pub host: &'a str,
    /// Organizations.
    pub organizations: &'a str,
    /// Roles.
    pub roles: &'a str,
    /// Groups.
    pub groups: &'a str,
    /// Text for monitoring.
    pub info: &'a str,
    /// Subject of the token; `None` if the client has none.
    pub token_subject: Option<&'a str>,
}

/// A client after its login. Its texts are of the client, except for the result of its authentication.
#[derive(Clone, Copy, Debug)]
pub struct MonitoredUser<'a> {
    /// Name that the client has sent.
    pub name: &'a str,
    /// Number of its process.
    pub process: u32,
    /// Name or address of its host.
    pub host: &'a str,
    /// Its address.
    pub address: Option<IpAddr>,
    /// Its release.
    pub release: &'a str,
    /// Its program.
    pub application: &'a str,
    /// Text of the user about the program.
    pub info: &'a str,
    /// The result of its authentication; `None` if its address identifies it.
    pub authenticated: Option<AuthenticatedUser<'a>>,
}

impl MonitoredUser<'_> {
    /// Returns the first line of all texts about the client.
    pub(super) fn id(&self, server: u64) -> String {
        let host = match self.host.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(address)) => format!("[::ffff:{address}]"),
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            Err(_) => part(self.host),
        };
        format!("xroot/{}.{}:{server}@{host}", part(self.name), self.process)
    }

    /// Returns the second line of the record of the client.
    pub(super) fn details(&self, with_authentication: bool) -> String {
        let mut text = String::new();
        if let Some(user) = self.authenticated.filter(|_| with_authentication) {
            let names = [
                ('p', user.protocol),
                ('n', user.name),
                ('h', user.host),
                ('o', user.organizations),
                ('r', user.roles),
                ('g', user.groups),
                ('m', user.info),
            ];
            names.into_iter().for_each(|(key, value)| field(&mut text, key, value));
        }
        for (key, value) in [('R', self.release), ('x', self.application), ('y', self.info)] {
            field(&mut text, key, value);
        }
        field(&mut text, 'I', if self.address.is_some_and(|address| address.is_ipv6()) { "6" } else { "4" });
        text
    }

    /// Returns the second line of the record of the token of the client, if it has one.
    pub(super) fn token(&self, user: u32) -> Option<String> {
        let authenticated = self.authenticated?;
        let subject = authenticated.token_subject?;
        let mut text = format!("&Uc={user}");
        for (key, value) in [
            ('s', subject),
            ('n', authenticated.name),
            ('o', authenticated.organizations),
            ('r', authenticated.roles),
            ('g', authenticated.groups),
        ] {
            field(&mut text, key, value);
        }
        Some(text)
    }
}

/// Returns a name as a part of the first line, whose parts end with these characters.
fn part(name: &str) -> String {
    line(name).replace(['/', ':', '@'], "?")
}

/// Appends a field. Its value neither begins another field nor another line.
fn field(text: &mut String, key: char, value: &str) {
    let value = line(value).replace('&', "%26");
    // Writing to a string cannot fail.
    let _ = write!(text, "&{key}={value}");
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::streams) fn user() -> MonitoredUser<'static> {
        MonitoredUser {
            name: "root",
            process: 7,
            host: "h.example.org",
            address: Some([127, 0, 0, 1].into()),
            release: "v5.5.3",
            application: "xrdcp",
            info: "",
            authenticated: None,
        }
    }

    #[test]
    fn texts_have_the_fields_of_their_description() {
        let user = user();
        assert_eq!(user.id(81_001_100_416_550), "xroot/root.7:81001100416550@h.example.org");
        assert_eq!(user.details(true), "&R=v5.5.3&x=xrdcp&y=&I=4");
        for (host, text) in [("192.0.2.7", "[::ffff:192.0.2.7]"), ("2001:db8::1", "[2001:db8::1]")] {
            assert_eq!(MonitoredUser { host, ..user }.id(1), format!("xroot/root.7:1@{text}"));
        }
        let authenticated = AuthenticatedUser {
            protocol: "gsi",
            name: "/DC=org/CN=A & B",
            host: "h",
            organizations: "vo",
            token_subject: Some("sub"),
            ..AuthenticatedUser::default()
        };
        let address = Some("::1".parse().unwrap());
        let user = MonitoredUser { authenticated: Some(authenticated), address, ..user };
        let own = "&R=v5.5.3&x=xrdcp&y=&I=6";
        assert_eq!(user.details(true), format!("&p=gsi&n=/DC=org/CN=A %26 B&h=h&o=vo&r=&g=&m={own}"));
        assert_eq!(user.details(false), own);
        assert_eq!(user.token(5).as_deref(), Some("&Uc=5&s=sub&n=/DC=org/CN=A %26 B&o=vo&r=&g="));
    }

    #[test]
    fn texts_of_clients_neither_add_lines_nor_fields() {
        let user =
            MonitoredUser { name: "a\nb/c:1@x\u{2028}", application: "x\n&I=6", info: "\0&y=\x7f", ..user() };
        assert_eq!(user.id(1), "xroot/a?b?c?1?x?.7:1@h.example.org");
        assert_eq!(user.details(true), "&R=v5.5.3&x=x?%26I=6&y=?%26y=?&I=4");
    }
}
