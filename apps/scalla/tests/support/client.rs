//! A client that sends raw bytes: handshake, login, and single or pipelined requests.

use super::PATIENCE;
use super::codes::request::{BIND, OPEN, PING, PROTOCOL, READ, STAT, WRITE};
use std::io::{Read, Write};
use std::net::TcpStream;

fn handshake() -> Vec<u8> {
    let mut hello = vec![0; 12];
    hello.extend([0, 0, 0, 4, 0, 0, 0x07, 0xdc]);
    hello
}

/// A connection that has logged in.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    session: [u8; 16],
}

impl Client {
    /// Connects without sending anything.
    pub(crate) fn silent(port: u16) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Connects without sending anything.
    pub(crate) fn connected(port: u16) -> Self {
        Self { stream: Self::silent(port), session: [0; 16] }
    }

    /// Connects and performs the handshake.
    fn greeted(port: u16) -> Self {
        let mut client = Self::connected(port);
        client.stream.write_all(&handshake()).unwrap();
        client.reply(); // the handshake's own
        client
    }

    /// Creates a connection bound to the session of `main`, and returns it with its path id.
    pub(crate) fn bound(main: &Self, port: u16) -> (Self, u8) {
        let mut client = Self::greeted(port);
        let mut protocol = [0; 16];
        protocol[0..4].copy_from_slice(&0x520u32.to_be_bytes());
        assert_eq!(client.ask(PROTOCOL, protocol, b"").0, 0);
        let (status, path) = client.ask(BIND, main.session, b"");
        assert_eq!((status, path.len()), (0, 1));
        (client, path[0])
    }

    /// Logs in. Returns `None` if the server closes the connection immediately.
    pub(crate) fn try_login(port: u16) -> Option<Self> {
        let mut probe = Self::connected(port);
        probe.stream.write_all(&handshake()).ok()?;
        probe.stream.read_exact(&mut [0; 16]).ok()?;
        Some(probe.logged_in())
    }

    pub(crate) fn login(port: u16) -> Self {
        Self::greeted(port).logged_in()
    }

    fn logged_in(mut self) -> Self {
        let client = &mut self;
        let mut login = [0; 16];
        login[0..4].copy_from_slice(&7u32.to_be_bytes());
        login[4..8].copy_from_slice(b"test");
        login[14] = 5;
        let (status, session) = client.ask(3007, login, b"");
        assert_eq!(status, 0);
        client.session.copy_from_slice(&session[..16]);
        self
    }

    /// Encodes a request.
    pub(crate) fn request(code: u16, body: [u8; 16], payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 1];
        bytes.extend(code.to_be_bytes());
        bytes.extend(body);
        bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, code: u16, body: [u8; 16], payload: &[u8]) {
        self.stream.write_all(&Self::request(code, body, payload)).unwrap();
    }

    /// Returns the next reply: status and data.
    pub(crate) fn reply(&mut self) -> (u16, Vec<u8>) {
        let mut header = [0; 8];
        self.stream.read_exact(&mut header).unwrap();
        let status = u16::from_be_bytes([header[2], header[3]]);
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data).unwrap();
        (status, data)
    }

    pub(crate) fn ask(&mut self, code: u16, body: [u8; 16], payload: &[u8]) -> (u16, Vec<u8>) {
        self.send(code, body, payload);
        self.reply()
    }

    pub(crate) fn stat(&mut self, path: &str) -> (u16, Vec<u8>) {
        self.ask(STAT, [0; 16], path.as_bytes())
    }

    /// Opens for reading and returns the handle.
    pub(crate) fn open(&mut self, path: &str) -> [u8; 4] {
        self.open_with(path, 0x0010)
    }

    /// Creates for writing and returns the handle.
    pub(crate) fn create(&mut self, path: &str) -> [u8; 4] {
        self.open_with(path, 0x0008 | 0x0020)
    }

    fn open_with(&mut self, path: &str, options: u16) -> [u8; 4] {
        let (status, data) = self.try_open(path, options);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&data));
        data[..4].try_into().unwrap()
    }

    /// Sends an open and returns its reply.
    pub(crate) fn try_open(&mut self, path: impl AsRef<[u8]>, options: u16) -> (u16, Vec<u8>) {
        let mut body = [0; 16];
        body[0..2].copy_from_slice(&0o600u16.to_be_bytes());
        body[2..4].copy_from_slice(&options.to_be_bytes());
        self.ask(OPEN, body, path.as_ref())
    }

    /// Writes to an open file.
    pub(crate) fn write(&mut self, handle: [u8; 4], offset: u64, bytes: &[u8]) {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        body[4..12].copy_from_slice(&offset.to_be_bytes());
        let (status, data) = self.ask(WRITE, body, bytes);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&data));
    }

    /// Sends a read request without reading the reply.
    pub(crate) fn send_read(&mut self, handle: [u8; 4], offset: u64, length: u32) {
        self.send_read_by(0, handle, offset, length);
    }

    /// Sends a read request whose reply is to arrive over the connection with this path id.
    pub(crate) fn send_read_by(&mut self, path: u8, handle: [u8; 4], offset: u64, length: u32) {
        let mut body = [0; 16];
        body[..4].copy_from_slice(&handle);
        body[4..12].copy_from_slice(&offset.to_be_bytes());
        body[12..16].copy_from_slice(&length.to_be_bytes());
        let argument = [path, 0, 0, 0, 0, 0, 0, 0];
        self.send(READ, body, if path == 0 { b"" } else { &argument });
    }

    /// Announces a write of `length` bytes, sends the first of them, and waits until the server has
    /// received them. They are sent in one piece after a ping, whose reply is read here.
    pub(crate) fn begin_write(&mut self, handle: [u8; 4], length: u32, first: &[u8]) {
        let mut bytes = vec![0, 1];
        bytes.extend(PING.to_be_bytes());
        bytes.extend([0; 20]);
        bytes.extend([0, 2]);
        bytes.extend(WRITE.to_be_bytes());
        bytes.extend(handle);
        bytes.extend([0; 12]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(first);
        self.stream.write_all(&bytes).unwrap();
        assert_eq!(self.reply(), (0, Vec::new()));
    }

    /// Returns the data of all frames of a reply.
    pub(crate) fn data(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (status, data) = self.reply();
            all.extend(data);
            match status {
                0 => return all,
                4000 => {}
                other => panic!("status {other}: {}", String::from_utf8_lossy(&all)),
            }
        }
    }

    /// Waits until the server closes the connection. Earlier data is discarded.
    pub(crate) fn closed(mut self) {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
}
