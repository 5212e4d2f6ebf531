//! A client of raw bytes, which sends what no proper client would.

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

pub(crate) const AUTH: u16 = 3000;
pub(crate) const QUERY: u16 = 3001;
pub(crate) const DIRLIST: u16 = 3004;
pub(crate) const PROTOCOL: u16 = 3006;
pub(crate) const LOGIN: u16 = 3007;
pub(crate) const OPEN: u16 = 3010;
pub(crate) const PING: u16 = 3011;
pub(crate) const READ: u16 = 3013;
pub(crate) const STAT: u16 = 3017;
pub(crate) const WRITE: u16 = 3019;
pub(crate) const FATTR: u16 = 3020;
pub(crate) const PREPARE: u16 = 3021;
pub(crate) const STATX: u16 = 3022;
pub(crate) const BIND: u16 = 3024;
pub(crate) const READV: u16 = 3025;
pub(crate) const PGREAD: u16 = 3030;
pub(crate) const WRITEV: u16 = 3031;
pub(crate) const CLONE: u16 = 3032;

/// kXR_open_read.
pub(crate) const READING: u16 = 0x10;
/// kXR_new, kXR_delete and kXR_open_updt.
pub(crate) const CREATING: u16 = 0x2a;

/// Longest wait for a reply. A hostile client gives up; a well-behaved one fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest wait for room to send: the server does not read on, as it should.
const SEND_PATIENCE: Duration = Duration::from_millis(100);

/// The first bytes of a connection.
pub(crate) fn handshake() -> Vec<u8> {
    [[0; 12].as_slice(), &4u32.to_be_bytes(), &2012u32.to_be_bytes()].concat()
}

/// A request that announces `length` bytes and sends those of `payload`.
pub(crate) fn announcing(code: u16, body: [u8; 16], length: usize, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    [&[0, 1], code.to_be_bytes().as_slice(), &body, &length.to_be_bytes(), payload].concat()
}

/// A whole request.
pub(crate) fn request(code: u16, body: [u8; 16], payload: &[u8]) -> Vec<u8> {
    announcing(code, body, payload.len(), payload)
}

/// The parameters of a read: handle, offset, length.
pub(crate) fn range(handle: [u8; 4], offset: u64, length: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[..4].copy_from_slice(&handle);
    body[4..12].copy_from_slice(&offset.to_be_bytes());
    body[12..].copy_from_slice(&length.to_be_bytes());
    body
}

/// The login request.
pub(crate) fn login() -> Vec<u8> {
    let mut body = [0; 16];
    body[3] = 7;
    body[4..9].copy_from_slice(b"abuse");
    body[14] = 5;
    request(LOGIN, body, b"")
}

/// The request to open a file.
pub(crate) fn open(path: &str, options: u16) -> Vec<u8> {
    let mut body = [0; 16];
    body[..2].copy_from_slice(&0o644u16.to_be_bytes());
    body[2..4].copy_from_slice(&options.to_be_bytes());
    request(OPEN, body, path.as_bytes())
}

/// A connection.
pub(crate) struct RawClient {
    pub(crate) stream: TcpStream,
    session: Vec<u8>,
}

impl RawClient {
    /// Connects and sends nothing.
    pub(crate) fn silent(port: u16) -> Result<Self> {
        Self::of(TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?)
    }

    /// Connects from another address of the loopback network and sends nothing.
    pub(crate) fn silent_from(source: Ipv4Addr, port: u16) -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        socket.connect(&target.into()).with_context(|| format!("cannot connect from {source}"))?;
        Self::of(socket.into())
    }

    fn of(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(SEND_PATIENCE))?;
        Ok(Self { stream, session: Vec::new() })
    }

    /// Connects and logs in.
    pub(crate) fn login(port: u16) -> Result<Self> {
        let mut client = Self::silent(port)?;
        client.send(&handshake())?;
        client.reply()?;
        client.session = client.ask(&login())?;
        Ok(client)
    }

    /// Connects and joins the session of `main`; returns the path id, too.
    pub(crate) fn bound(main: &Self, port: u16) -> Result<(Self, u8)> {
        let mut client = Self::silent(port)?;
        client.send(&handshake())?;
        client.reply()?;
        let mut body = [0; 16];
        body[..4].copy_from_slice(&0x520u32.to_be_bytes());
        client.ask(&request(PROTOCOL, body, b""))?;
        let id = main.session.first_chunk::<16>().context("no session id")?;
        let path = client.ask(&request(BIND, *id, b""))?;
        Ok((client, path.first().copied().unwrap_or(0)))
    }

    /// Sends all of it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends as much as the server takes; reports whether that was all.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The next reply: status and data.
    pub(crate) fn reply(&mut self) -> Result<(u16, Vec<u8>)> {
        let mut header = [0; 8];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let mut data = vec![0; usize::try_from(length)?];
        self.stream.read_exact(&mut data)?;
        Ok((u16::from_be_bytes([header[2], header[3]]), data))
    }

    /// Sends a request and returns the data of its reply.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.send(bytes)?;
        match self.reply()? {
            (0, data) => Ok(data),
            (status, data) => bail!("status {status}: {}", String::from_utf8_lossy(&data)),
        }
    }

    /// Opens a file and returns its handle.
    pub(crate) fn open(&mut self, path: &str, options: u16) -> Result<[u8; 4]> {
        let data = self.ask(&open(path, options))?;
        data.first_chunk().copied().context("no file handle")
    }

    /// Leaves as a killed process does: by a reset.
    pub(crate) fn vanish(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).ok();
    }
}
