//! The begin of a connection: handshake, `kXR_protocol`, `kXR_login` and authentication.
//!
//! Source: xroot protocol 5.2.0, sections 1.2 and 1.7.

use std::sync::Arc;

use auth::{RequestSigner, SignatureCipher, SigningRequirements};
use wire::xroot::flags::ServerFlags;
use wire::xroot::header::HandshakeReply;
use wire::xroot::limits::RESPONSE_HEADER_BYTES;
use wire::xroot::reply::{LoginReply, ProtocolReply, Reply};
use wire::xroot::request::{Auth, Request};
use wire::xroot::{RequestCode, ResponseHeader, StreamId};
use wire::{Decode, FixedLayout};

use super::event::{AuthenticationStep, ConnectionEvent, Greeting};
use super::{Connection, LoginPhase};
use crate::error::{ConnectionError, Demand};
use crate::login::TlsSupport;

impl Connection {
    /// Sends credentials of the authentication protocol `id`, after
    /// [`ConnectionEvent::Authenticate`].
    pub fn authenticate(&mut self, id: &str, credentials: &[u8]) {
        let mut credtype = [0; 4];
        credtype.iter_mut().zip(id.bytes()).for_each(|(place, byte)| *place = byte);
        let request = Request::Auth(Auth { credtype, credentials });
        request.encode(StreamId::default(), self.control.outgoing.buffer());
    }

    /// Signs requests with the session key of an authentication protocol, where the server asks for
    /// signatures. Without a key they are signed if the server forces it.
    pub fn sign_with(&mut self, cipher: Arc<dyn SignatureCipher>) {
        self.has_session_key = true;
        self.signer = self.signing.clone().and_then(|signing| RequestSigner::new(signing, Some(cipher)));
    }

    /// Continues after the TLS handshake of [`ConnectionEvent::StartTls`]. After it the connection
    /// may be ready ([`Connection::is_ready`]).
    pub fn encrypted(&mut self) {
        self.is_tls = true;
        match self.phase {
            LoginPhase::TlsBeforeLogin => {
                self.login.encode(self.control.outgoing.buffer());
                self.phase = LoginPhase::Login;
            }
            LoginPhase::TlsBeforeUse => self.phase = LoginPhase::Ready,
            _ => {}
        }
    }

    /// Reports whether the connection is encrypted.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(super) fn awaits_tls(&self) -> bool {
        matches!(self.phase, LoginPhase::TlsBeforeLogin | LoginPhase::TlsBeforeUse)
    }

    /// Returns the event about the kept reply.
    pub(super) fn authentication_event(&self) -> ConnectionEvent<'_> {
        let header = self.frame.first_chunk().map(ResponseHeader::from_bytes);
        let body = self.frame.get(RESPONSE_HEADER_BYTES..).unwrap_or_default();
        let reply = header.and_then(|header| Reply::decode(&header, body).ok());
        ConnectionEvent::Authenticate(match reply {
            Some(Reply::Authmore(challenge)) => AuthenticationStep::Challenge(challenge),
            Some(Reply::Error(error)) => AuthenticationStep::Refused(error),
            _ => AuthenticationStep::Offers(
                LoginReply::decode(body).map(|reply| reply.security).unwrap_or_default(),
            ),
        })
    }

    /// Processes a reply to the handshake, `kXR_protocol`, `kXR_login` or `kXR_auth`.
    pub(super) fn greet(&mut self, frame: Vec<u8>) -> Result<Greeting, ConnectionError> {
        let Some((header, body)) = frame.split_first_chunk() else { return Ok(Greeting::Continues) };
        let header = ResponseHeader::from_bytes(header);
        let request = match self.phase {
            // The handshake has no request code of its own.
            LoginPhase::Handshake | LoginPhase::Protocol | LoginPhase::TlsBeforeLogin => {
                RequestCode::PROTOCOL
            }
            LoginPhase::Login | LoginPhase::TlsBeforeUse | LoginPhase::Ready => RequestCode::LOGIN,
            LoginPhase::Authentication => RequestCode::AUTH,
        };
        let is_authentication = self.phase == LoginPhase::Authentication;
        match Reply::decode(&header, body)? {
            _ if header.streamid != StreamId::default() => {
                return Err(ConnectionError::UnknownStream(header.streamid));
            }
            Reply::Ok(_) => {}
            Reply::Authmore(_) | Reply::Error(_) if is_authentication => {
                self.frame = frame;
                return Ok(Greeting::NeedsCredentials);
            }
            Reply::Error(error) => {
                let text = String::from_utf8_lossy(error.text).into_owned();
                return Err(ConnectionError::Refused { request, code: error.code, text });
            }
            _ => return Err(ConnectionError::Unexpected { request, status: header.status }),
        }
        match self.phase {
            LoginPhase::Handshake => {
                self.server.protocol_version = HandshakeReply::decode(&frame)?.protover;
                self.phase = LoginPhase::Protocol;
            }
            LoginPhase::Protocol => {
                if self.take_protocol(&ProtocolReply::decode(body)?)? {
                    self.phase = LoginPhase::TlsBeforeLogin;
                    return Ok(Greeting::StartTls);
                }
                self.login.encode(self.control.outgoing.buffer());
                self.phase = LoginPhase::Login;
            }
            LoginPhase::Login => {
                let needs_credentials = self.take_login(&LoginReply::decode(body)?)?;
                if needs_credentials {
                    self.frame = frame;
                    return Ok(Greeting::NeedsCredentials);
                }
            }
            _ => self.complete(),
        }
        if self.phase == LoginPhase::Ready && self.must_switch() {
            self.phase = LoginPhase::TlsBeforeUse;
            return Ok(Greeting::StartTls);
        }
        let is_complete = self.phase == LoginPhase::Ready;
        Ok(if is_complete { Greeting::Complete } else { Greeting::Continues })
    }

    /// Takes the reply to the login and reports whether the server demands authentication.
    fn take_login(&mut self, reply: &LoginReply<'_>) -> Result<bool, ConnectionError> {
        self.server.session = reply.sessid;
        if reply.security.is_empty() {
            self.complete();
            return Ok(false);
        }
        if !self.login.authenticates {
            let names: Vec<_> = reply.protocols().map(|offer| String::from_utf8_lossy(offer.name)).collect();
            return Err(ConnectionError::Demands(Demand::Authentication(names.join(", "))));
        }
        self.phase = LoginPhase::Authentication;
        Ok(true)
    }

    /// Ends the login. Without a session key only forced signatures are made.
    fn complete(&mut self) {
        self.frame = Vec::new();
        self.signer = self.signing.clone().and_then(|signing| RequestSigner::new(signing, None));
        self.phase = LoginPhase::Ready;
    }

    /// Reports whether the rest of the session must be encrypted.
    fn must_switch(&self) -> bool {
        let is_required = !self.is_tls && self.server.flags.intersects(ServerFlags::TLS_SESS);
        // A server with `capable` serves a client without TLS; another one sends an error next.
        is_required && self.login.tls != TlsSupport::None
    }

    /// Takes the reply to kXR_protocol and reports whether the connection switches to TLS.
    fn take_protocol(&mut self, reply: &ProtocolReply<'_>) -> Result<bool, ConnectionError> {
        self.server.protocol_version = reply.pval;
        self.server.flags = reply.flags;
        self.signing = reply.security.as_ref().map(SigningRequirements::new);
        match (reply.flags.intersects(ServerFlags::GOTO_TLS), self.login.tls) {
            (true, TlsSupport::None) => Err(ConnectionError::Demands(Demand::Tls)),
            (false, TlsSupport::Required) => Err(ConnectionError::NoTls),
            (switches, _) => Ok(switches),
        }
    }
}
