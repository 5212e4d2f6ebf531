//! The login of a client: the names and capabilities that it sends to a server.
//!
//! Source: xroot protocol 5.2.0, section 1.7.

use crate::zone::local_zone;
use nix::unistd::{Uid, User};
use wire::xroot::PROTOCOL_VERSION;
use wire::xroot::codes::Expect;
use wire::xroot::flags::{Ability, Ability2, ProtocolFlags};
use wire::xroot::header::Handshake;
use wire::xroot::limits::USERNAME_BYTES;
use wire::xroot::login_cgi::{self, LoginCgi};
use wire::xroot::request::{self, Request};
use wire::xroot::{SessionId, StreamId};

/// Release sent to servers, which choose their workarounds by it.
const RELEASE: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// Client generation 5 (supports TLS), and the bit for deferred replies.
const CAPVER: u8 = 5 | 0x80;
/// Country of a user whose locale names none. Servers of XRootD drop the first byte of the text, so
/// an unimportant field comes first.
const NO_COUNTRY: &str = "us";

/// The login data of a client. All of it is informational except for the user name, which servers
/// use if they have no authenticated name.
#[derive(Clone, Debug)]
pub struct Login {
    /// User name; only its first 8 bytes are sent.
    pub user: String,
    /// Name of the program.
    pub program: String,
    /// Text set by the owner of the program, for the monitoring of the server.
    pub info: String,
    /// Name of this host.
    pub host: String,
    /// Two-letter country code.
    pub country: String,
    /// Offset from UTC in hours.
    pub timezone_hours: i8,
    /// Set if redirects to URLs, with flags, and in reply to reads are supported.
    pub redirects: bool,
    /// Set if the caller continues with credentials when the server demands authentication.
    /// Otherwise such a login fails.
    pub authenticates: bool,
    /// Login token of the URL. It is a secret.
    pub token: Option<String>,
    /// The encryption that the caller supports.
    pub tls: TlsSupport,
}

/// The encryption that the owner of a connection supports.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TlsSupport {
    /// None. A server that requires it is refused.
    #[default]
    None,
    /// TLS where the server requires it.
    Supported,
    /// TLS from the start where the server has it, otherwise clear text.
    Preferred,
    /// TLS from the start; servers without it are refused.
    Required,
}

impl TlsSupport {
    fn flags(self) -> ProtocolFlags {
        match self {
            Self::None => ProtocolFlags::NONE,
            Self::Supported => ProtocolFlags::ABLE_TLS,
            Self::Preferred | Self::Required => ProtocolFlags::ABLE_TLS | ProtocolFlags::WANT_TLS,
        }
    }
}

impl Login {
    /// Creates the login of this process.
    #[must_use]
    pub fn of_process(program: &str) -> Self {
        let user = User::from_uid(Uid::effective()).ok().flatten();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| std::env::var(name).ok());
        let offset = local_zone().to_offset(jiff::Timestamp::now()).seconds() / 3600;
        Self {
            user: user.map_or_else(|| Uid::effective().to_string(), |user| user.name),
            program: program.to_owned(),
            info: String::new(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            country: locale.as_deref().and_then(country).unwrap_or_else(|| NO_COUNTRY.to_owned()),
            timezone_hours: i8::try_from(offset).unwrap_or(0),
            redirects: false,
            authenticates: false,
            token: None,
            tls: TlsSupport::None,
        }
    }

    /// Appends the first 44 bytes of a connection: handshake and `kXR_protocol`.
    pub fn encode_greeting(tls: TlsSupport, out: &mut Vec<u8>) {
        Self::encode_handshake(Expect::LOGIN, tls, out);
    }

    /// Appends the first requests of a data stream that is encrypted: handshake and `kXR_protocol`.
    /// The reply must switch to TLS; then [`Self::encode_bind`] follows.
    pub fn encode_encrypted_binding(out: &mut Vec<u8>) {
        Self::encode_handshake(Expect::BIND, TlsSupport::Required, out);
    }

    /// Appends `kXR_bind`.
    pub fn encode_bind(sessid: SessionId, out: &mut Vec<u8>) {
        Request::Bind(request::Bind { sessid }).encode(StreamId::default(), out);
    }

    /// Appends all setup requests of a data stream: handshake, `kXR_protocol`, `kXR_bind`.
    pub fn encode_binding(sessid: SessionId, out: &mut Vec<u8>) {
        Self::encode_handshake(Expect::BIND, TlsSupport::None, out);
        Self::encode_bind(sessid, out);
    }

    fn encode_handshake(expect: Expect, tls: TlsSupport, out: &mut Vec<u8>) {
        out.extend_from_slice(&Handshake::BYTES);
        let flags = ProtocolFlags::SECREQS | tls.flags();
        let protocol = request::Protocol { clientpv: PROTOCOL_VERSION, flags, expect: expect.0 };
        Request::Protocol(protocol).encode(StreamId::default(), out);
    }

    /// Appends `kXR_login`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut username = [0; USERNAME_BYTES];
        username.iter_mut().zip(self.user.bytes()).for_each(|(place, byte)| *place = byte);
        let mut cgi = Vec::new();
        let login = LoginCgi {
            country: Some(self.country.as_bytes()),
            timezone_hours: Some(self.timezone_hours),
            appname: Some(self.program.as_bytes()),
            info: Some(self.info.as_bytes()),
            hostname: Some(self.host.as_bytes()),
            release: Some(RELEASE.as_bytes()),
            ..LoginCgi::default()
        };
        login_cgi::encode(&mut cgi, &login);
        if let Some(token) = &self.token {
            cgi.push(b'&');
            cgi.extend_from_slice(token.as_bytes());
        }
        let login = request::Login {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            username,
            ability2: Ability2::NONE,
            // Only implemented abilities are sent: no redirects to local files or other protocols.
            ability: if self.redirects {
                Ability::HASIPV64 | Ability::FULLURL | Ability::READRDOK | Ability::REDIRFLAGS
            } else {
                Ability::HASIPV64
            },
            capver: CAPVER,
            cgi: &cgi,
        };
        Request::Login(login).encode(StreamId::default(), out);
    }
}

/// Returns the country of a locale: `ch` for `de_CH.UTF-8`.
fn country(locale: &str) -> Option<String> {
    let (_, rest) = locale.split_once('_')?;
    let letters: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    (letters.len() == 2).then(|| letters.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FixedLayout;
    use wire::xroot::RequestHeader;

    #[test]
    fn the_login_of_a_long_user_with_a_token() {
        let login =
            Login { user: "longusername".into(), token: Some("secret".into()), ..Login::of_process("t") };
        let mut out = Vec::new();
        login.encode(&mut out);
        let (header, payload) = out.split_first_chunk().unwrap();
        let header = RequestHeader::from_bytes(header);
        let Ok(Request::Login(decoded)) = Request::decode(&header, payload) else { panic!("no login") };
        assert_eq!(decoded.username_bytes(), b"longuser");
        assert!(decoded.accepts_deferred());
        let cgi = LoginCgi::parse(decoded.cgi);
        assert_eq!(cgi.appname, Some(&b"t"[..]));
        assert_eq!(cgi.release, Some(RELEASE.as_bytes()));
        assert!(decoded.cgi.ends_with(b"&secret"));
    }

    #[test]
    fn the_greeting_is_what_stock_clients_send_in_one_segment() {
        let mut out = Vec::new();
        Login::encode_greeting(TlsSupport::None, &mut out);
        assert_eq!(out.len(), 44);
        assert_eq!(out[20..30], [0, 0, 0x0b, 0xbe, 0, 0, 5, 0x20, 1, 3]);
        for (tls, flags) in [(TlsSupport::Supported, 0x03), (TlsSupport::Required, 0x07)] {
            let mut out = Vec::new();
            Login::encode_greeting(tls, &mut out);
            assert_eq!(out[28], flags);
        }
    }

    #[test]
    fn countries_of_locales() {
        assert_eq!(country("de_CH.UTF-8").as_deref(), Some("ch"));
        assert_eq!(country("C.UTF-8"), None);
        assert_eq!(country("en_USA"), None);
    }
}
