//! A minimal client that sends given bytes and reads frames.
//!
//! It is independent of `client`, so that tests can send requests that a real client never would.

use super::{BIND, LOGIN, OK, OKSOFAR, OPEN, PATIENCE, PROTOCOL, READ, Raw, Reply, STATUS};
use rustls::{ClientConfig, ClientConnection};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

pub const HANDSHAKE: [u8; 20] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 7, 0xdc];

pub struct Client {
    pub stream: TcpStream,
    pub session: [u8; 16],
    /// Set after [`Client::encrypt`].
    tls: Option<Box<ClientConnection>>,
}

pub fn login_request() -> Raw {
    Raw::new(LOGIN).i32(4, 4711).at(8, b"tester").at(18, &[5])
}

impl Client {
    /// Returns a connection on which nothing was sent.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, session: [0; 16], tls: None }
    }

    /// Returns a connection after the handshake.
    pub fn greeted(address: SocketAddr) -> Self {
        let mut client = Self::connect(address);
        client.send_bytes(&HANDSHAKE);
        assert_eq!(client.bytes(16), [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1]);
        client
    }

    pub fn login(address: SocketAddr) -> Self {
        Self::login_as(address, &login_request())
    }

    pub fn login_as(address: SocketAddr, request: &Raw) -> Self {
        let mut client = Self::greeted(address);
        let reply = client.call(request);
        assert_eq!(reply.status, OK, "{reply:?}");
        client.session = reply.body.try_into().unwrap();
        client
    }

    /// Returns a connection bound to the session of `main`, and its path id.
    pub fn bound(main: &Self, address: SocketAddr) -> (Self, u8) {
        let mut client = Self::greeted(address);
        client.call(&Raw::new(PROTOCOL).i32(4, 0x520).u8(9, 1));
        let reply = client.call(&Raw::new(BIND).at(4, &main.session));
        assert_eq!((reply.status, reply.body.len()), (OK, 1), "{reply:?}");
        let path = reply.body[0];
        (client, path)
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.stream.write_all(bytes).unwrap(),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write_all(bytes).unwrap(),
        }
    }

    /// Announces the end of the data over an encrypted connection, which stays open.
    pub fn announce_end(&mut self) {
        let tls = self.tls.as_mut().unwrap();
        tls.send_close_notify();
        while tls.wants_write() {
            tls.write_tls(&mut self.stream).unwrap();
        }
    }

    /// Encrypts bytes without sending them.
    pub fn record(&mut self, bytes: &[u8]) -> Vec<u8> {
        let tls = self.tls.as_mut().unwrap();
        tls.writer().write_all(bytes).unwrap();
        let mut record = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut record).unwrap();
        }
        record
    }

    /// Performs a TLS handshake.
    pub fn encrypt(&mut self, config: &Arc<ClientConfig>) -> Result<(), rustls::Error> {
        let name = "localhost".try_into().unwrap();
        let mut tls = Box::new(ClientConnection::new(config.clone(), name).unwrap());
        while tls.is_handshaking() {
            if let Err(error) = tls.complete_io(&mut self.stream) {
                let inner = error.into_inner().and_then(|error| error.downcast::<rustls::Error>().ok());
                return Err(inner.map_or(rustls::Error::HandshakeNotComplete, |error| *error));
            }
        }
        self.tls = Some(tls);
        Ok(())
    }

    /// Returns the alert by which the server ends an encrypted connection.
    pub fn alert(&mut self) -> rustls::AlertDescription {
        let tls = self.tls.as_mut().unwrap();
        let error = rustls::Stream::new(&mut **tls, &mut self.stream).read(&mut [0]).expect_err("an alert");
        match error.downcast::<rustls::Error>() {
            Ok(rustls::Error::AlertReceived(alert)) => alert,
            other => panic!("{other:?}"),
        }
    }

    pub fn send(&mut self, request: &Raw) {
        self.send_bytes(&request.bytes());
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.exactly(count).unwrap()
    }

    /// Reads the next frame.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply")
    }

    /// Reads the next frame. Returns `None` at the end of the connection.
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut frame = self.exactly(8)?;
        let length = u32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]) as usize;
        frame.extend(self.exactly(length)?);
        if u16::from_be_bytes([frame[2], frame[3]]) == STATUS {
            let data = u32::from_be_bytes([frame[20], frame[21], frame[22], frame[23]]) as usize;
            frame.extend(self.exactly(data)?);
        }
        let mut all = Reply::all(&frame);
        assert_eq!(all.len(), 1);
        all.pop()
    }

    fn exactly(&mut self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        let read = match &mut self.tls {
            None => self.stream.read_exact(&mut bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read_exact(&mut bytes),
        };
        match read {
            Ok(()) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server is silent"),
            Err(_) => None,
        }
    }

    /// Asserts that the server closes the connection without sending more.
    pub fn is_closed(&mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest, b"", "{:?}", Reply::all(&rest)),
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the server is silent"),
        }
    }

    /// Sends one request and reads one frame.
    pub fn call(&mut self, request: &Raw) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Sends one request that must succeed, and joins the frames of its answer.
    pub fn ok(&mut self, request: &Raw) -> Vec<u8> {
        self.send(request);
        self.whole()
    }

    /// Reads the whole answer of the one request in flight.
    pub fn whole(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let reply = self.reply();
            assert!(reply.status == OK || reply.status == OKSOFAR, "{:?}", reply.error());
            body.extend(reply.body);
            if reply.status == OK {
                return body;
            }
        }
    }

    /// Opens a file and returns its handle.
    pub fn open(&mut self, path: &str, options: u16) -> u32 {
        let reply = self.call(&open(path, options));
        assert_eq!(reply.status, OK, "{path}: {:?}", reply.error());
        u32::from_le_bytes(reply.body[..4].try_into().unwrap())
    }

    pub fn read(&mut self, handle: u32, offset: usize, length: usize) -> Vec<u8> {
        self.ok(&read(handle, offset, length))
    }
}

/// Options of common opens.
pub const READING: u16 = 0x10;
pub const UPDATING: u16 = 0x20;
pub const CREATING: u16 = 0x22;

pub fn open(path: &str, options: u16) -> Raw {
    Raw::new(OPEN).u16(4, 0o644).u16(6, options).payload(path.as_bytes())
}

pub fn read(handle: u32, offset: usize, length: usize) -> Raw {
    Raw::new(READ).handle(handle).i64(8, offset as i64).i32(16, length as i32)
}

pub fn write(handle: u32, offset: usize, data: &[u8]) -> Raw {
    Raw::new(super::WRITE).handle(handle).i64(8, offset as i64).payload(data)
}
