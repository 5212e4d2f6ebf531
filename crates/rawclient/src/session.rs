//! A blocking connection for one request at a time.
//!
//! It is made for preparations, such as those of benchmarks, where simplicity counts more than
//! speed.

use bytes::Bytes;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use wire::Decode;
use wire::xroot::FileHandle;
use wire::xroot::flags::{OpenOptions, OpenTemplateOptions, StatOptions, StatWants};
use wire::xroot::reply::{OpenReply, Redirect, RedirectTarget, StatText};
use wire::xroot::request::{self, Request};

use crate::connection::{Connection, ConnectionEvent, RequestOutcome, ServerInfo};
use crate::error::SessionError;
use crate::login::Login;
use crate::polled::{PolledConnection, SocketRead};
use crate::poller::{Interest, SocketPoller};
use crate::security::LoginSecurity;

/// Size of the receive buffer.
const BUFFER_BYTES: usize = 64 * 1024;

/// A logged-in connection for one request at a time.
#[derive(Debug)]
pub struct BlockingSession {
    link: PolledConnection,
    poller: SocketPoller,
    patience: Duration,
    buffer: Vec<u8>,
}

impl BlockingSession {
    /// Connects to the first of `addresses` that answers and logs in, without TLS and credentials.
    /// No wait lasts longer than `patience`.
    ///
    /// # Errors
    /// The error of the last address.
    pub fn connect(
        addresses: &[SocketAddr],
        login: &Login,
        patience: Duration,
    ) -> Result<Self, SessionError> {
        Self::connect_secured(addresses, login, patience, || None)
    }

    /// Implements [`BlockingSession::connect`] with the security that `security` creates for each
    /// address.
    ///
    /// # Errors
    /// The error of the last address.
    pub fn connect_secured(
        addresses: &[SocketAddr],
        login: &Login,
        patience: Duration,
        security: impl Fn() -> Option<Box<dyn LoginSecurity>>,
    ) -> Result<Self, SessionError> {
        let mut last = SessionError::Closed;
        for address in addresses {
            match Self::connect_to(*address, login.clone(), patience, security()) {
                Ok(session) => return Ok(session),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_to(
        address: SocketAddr,
        login: Login,
        patience: Duration,
        security: Option<Box<dyn LoginSecurity>>,
    ) -> Result<Self, SessionError> {
        let mut link = PolledConnection::connect(address, Connection::new(login))?;
        if let Some(security) = security {
            link = link.secured_by(security);
        }
        let mut session =
            Self { link, poller: SocketPoller::new()?, patience, buffer: vec![0; BUFFER_BYTES] };
        session.poller.add(&session.link, 0, Interest::ReadAndWrite)?;
        session.run(|event| Ok(matches!(event, ConnectionEvent::Ready).then_some(())))?;
        Ok(session)
    }

    /// Returns the description that the server sent at login.
    pub fn server(&mut self) -> ServerInfo {
        self.link.connection().server()
    }

    /// Sends a request and waits for its complete reply. A `kXR_wait` is followed until the
    /// timeout.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn call(&mut self, request: &Request<'_>) -> Result<Vec<u8>, SessionError> {
        self.call_with_payload(request, &Bytes::new())
    }

    /// Sends a request whose payload is file data, and waits for its complete reply.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn call_with_payload(
        &mut self,
        request: &Request<'_>,
        payload: &Bytes,
    ) -> Result<Vec<u8>, SessionError> {
        let until = Instant::now() + self.patience;
        loop {
            let submitted = self.link.connection().submit_with_payload(request, payload.clone(), 0);
            // A session is logged in and has one request in flight.
            submitted.map_err(|error| SessionError::Io(std::io::Error::other(error)))?;
            let mut answer = Vec::new();
            let wait = self.run(|event| match event {
                ConnectionEvent::Data { bytes, .. } => {
                    answer.extend_from_slice(bytes);
                    Ok(None)
                }
                ConnectionEvent::Done { outcome: RequestOutcome::Ok(bytes), .. } => {
                    answer.extend_from_slice(bytes);
                    Ok(Some(None))
                }
                ConnectionEvent::Done { outcome: RequestOutcome::Wait(wait), .. } => {
                    Ok(Some(Some(Duration::from_secs(u64::try_from(wait.seconds).unwrap_or(0)))))
                }
                ConnectionEvent::Done { outcome: RequestOutcome::Error(error), .. } => {
                    Err(SessionError::Failed {
                        code: error.code,
                        text: String::from_utf8_lossy(error.text).into_owned(),
                    })
                }
                ConnectionEvent::Done { outcome: RequestOutcome::Redirect(redirect), .. } => {
                    Err(redirected(&redirect)?)
                }
                ConnectionEvent::Ready
                | ConnectionEvent::StartTls
                | ConnectionEvent::Authenticate(_)
                | ConnectionEvent::Pages { .. }
                | ConnectionEvent::Later { .. }
                | ConnectionEvent::Notice { .. } => Ok(None),
            })?;
            match wait {
                None => return Ok(answer),
                Some(wait) if Instant::now() + wait > until => return Err(SessionError::TimedOut),
                Some(wait) => std::thread::sleep(wait),
            }
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn open(
        &mut self,
        target: &str,
        options: OpenOptions,
        mode: u16,
    ) -> Result<FileHandle, SessionError> {
        let open = request::Open {
            mode,
            options,
            optiont: OpenTemplateOptions::NONE,
            fhtemplt: FileHandle::default(),
            target: target.as_bytes(),
        };
        let answer = self.call(&Request::Open(open))?;
        Ok(OpenReply::decode(&answer)?.fhandle)
    }

    /// Reads at most `length` bytes; fewer are returned only at the end of the file.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn read(&mut self, fhandle: FileHandle, offset: u64, length: u32) -> Result<Vec<u8>, SessionError> {
        let read = request::Read {
            fhandle,
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            rlen: i32::try_from(length).unwrap_or(i32::MAX),
            argument: None,
        };
        self.call(&Request::Read(read))
    }

    /// Returns the size of a file in bytes.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn size(&mut self, target: &str) -> Result<u64, SessionError> {
        let stat = request::Stat {
            options: StatOptions::NONE,
            wants: StatWants::NONE,
            fhandle: FileHandle::default(),
            path: target.as_bytes(),
        };
        let answer = self.call(&Request::Stat(stat))?;
        Ok(StatText::decode(&answer)?.size)
    }

    /// Sends the queued bytes and passes events to `take` until it returns a result.
    fn run<T>(
        &mut self,
        mut take: impl FnMut(ConnectionEvent<'_>) -> Result<Option<T>, SessionError>,
    ) -> Result<T, SessionError> {
        let until = Instant::now() + self.patience;
        loop {
            let interest = if self.link.flush()? { Interest::Read } else { Interest::ReadAndWrite };
            self.poller.modify(&self.link, 0, interest)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SessionError::TimedOut);
            }
            if !self.poller.wait(Some(left))?.any(|ready| ready.readable) {
                continue;
            }
            let mut input = match self.link.receive(&mut self.buffer)? {
                SocketRead::Bytes(count) => self.buffer.get(..count).unwrap_or_default(),
                SocketRead::Nothing => continue,
                SocketRead::Encrypted => &[],
                SocketRead::End => return Err(SessionError::Closed),
            };
            while let Some(event) = self.link.next_event(&mut input)? {
                // Only one request is in flight, so the events behind the result are not needed.
                if let Some(found) = take(event)? {
                    return Ok(found);
                }
            }
        }
    }
}

fn redirected(redirect: &Redirect<'_>) -> Result<SessionError, SessionError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(match redirect.target()? {
        RedirectTarget::Host { host, port, cgi, .. } => {
            SessionError::Redirected { host: text(host), port: Some(port), cgi: text(cgi) }
        }
        RedirectTarget::Url { url, .. } => {
            SessionError::Redirected { host: text(url), port: None, cgi: String::new() }
        }
    })
}
