//! The floor: what a server on one epoll loop costs that answers from memory, without files, sessions and order.
//!
//! A request is 24 bytes (payload is thrown away), its answer 8 bytes and as many of content as the request asks for. The
//! login is answered so that the same generator can be used. All requests that one receive brought are answered with one
//! send.

use anyhow::Context;
use client::{Interest, Poller, Readiness};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use slab::Slab;
use std::fs::File;
use std::io::IoSliceMut;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use wire::xroot::header::HandshakeReply;
use wire::xroot::limits::{HANDSHAKE_BYTES, REQUEST_HEADER_BYTES};
use wire::xroot::{RequestCode, RequestHeader, ResponseHeader, Status, StreamId};

const LISTENER: u64 = u64::MAX;
/// Bytes received at once.
const BUFFER_BYTES: usize = 64 << 10;
/// The length of what is not a file: every offset is in it.
const ENDLESS: u64 = 1 << 40;
/// How long it looks for the next request when it polls.
const POLLING_TIME: Duration = Duration::from_micros(50);

struct Connection {
    socket: TcpStream,
    greeted: bool,
    /// Bytes of a request that is not whole.
    input: Vec<u8>,
    /// Bytes of payload to come.
    skip: usize,
    output: Vec<u8>,
    sent: usize,
    wants_room: bool,
}

/// Serves until killed; prints `port N` when it listens. Polling, it looks for the next request for a moment before it
/// sleeps, as our server does when it is told to.
pub(crate) fn serve(file: Option<&Path>, polling: bool) -> anyhow::Result<()> {
    let file = file.map(File::open).transpose().context("cannot open the file to serve")?;
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    listener.set_nonblocking(true)?;
    let mut poller = Poller::new()?;
    poller.add(&listener, LISTENER, Interest::Read)?;
    println!("port {}", listener.local_addr()?.port());
    let mut connections: Slab<Connection> = Slab::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut ready: Vec<Readiness> = Vec::new();
    let mut last = Instant::now();
    loop {
        ready.clear();
        let awake = polling && last.elapsed() < POLLING_TIME;
        ready.extend(poller.wait(awake.then_some(Duration::ZERO))?);
        if polling && !ready.is_empty() {
            last = Instant::now();
        }
        for ready in &ready {
            if ready.token == LISTENER {
                while let Ok((socket, _)) = listener.accept() {
                    socket.set_nonblocking(true)?;
                    socket.set_nodelay(true)?;
                    let entry = connections.vacant_entry();
                    poller.add(&socket, entry.key() as u64, Interest::Read)?;
                    entry.insert(Connection::new(socket));
                }
            } else if let Some(connection) = connections.get_mut(ready.token as usize) {
                let open = !ready.readable || connection.receive(&mut buffer, file.as_ref());
                if !open || !connection.flush(&poller, ready.token) {
                    connections.remove(ready.token as usize);
                }
            }
        }
    }
}

impl Connection {
    fn new(socket: TcpStream) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { socket, greeted: false, input, skip: 0, output, sent: 0, wants_room: false }
    }

    /// Answers what has come; `false` at the end.
    fn receive(&mut self, buffer: &mut [u8], file: Option<&File>) -> bool {
        let count = match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((count, _)) if count > 0 => count,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            _ => return false,
        };
        let mut rest = &buffer[..count];
        if !self.input.is_empty() {
            // Rare enough to take all of it apart in one piece.
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(rest);
            let mut rest = input.as_slice();
            self.answer(&mut rest, file);
            self.input = rest.to_vec();
            return true;
        }
        self.answer(&mut rest, file);
        self.input.extend_from_slice(rest);
        true
    }

    /// Answers the requests that are whole and takes them from the front.
    fn answer(&mut self, input: &mut &[u8], file: Option<&File>) {
        loop {
            let skipped = self.skip.min(input.len());
            *input = &input[skipped..];
            self.skip -= skipped;
            if self.skip > 0 {
                return;
            }
            if !self.greeted {
                let Some((_, rest)) = input.split_at_checked(HANDSHAKE_BYTES) else { return };
                *input = rest;
                self.greeted = true;
                let reply = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER };
                self.output.extend_from_slice(&reply.encode());
            }
            let Some((header, rest)) = input.split_first_chunk::<REQUEST_HEADER_BYTES>() else { return };
            *input = rest;
            self.reply(&RequestHeader::decode(header), file);
        }
    }

    fn reply(&mut self, header: &RequestHeader, file: Option<&File>) {
        self.skip = header.payload_bytes().unwrap_or(0);
        match header.code {
            RequestCode::READ => {
                let [_, _, _, _, offset @ .., a, b, c, d] = header.body;
                let length = u32::from_be_bytes([a, b, c, d]) as usize;
                self.header(header.streamid, length);
                let at = self.output.len();
                self.output.resize(at + length, 0);
                if let Some(file) = file {
                    let mut into = [IoSliceMut::new(&mut self.output[at..])];
                    // A page that is not in memory stays zeros: nobody measures with such.
                    preadv2(file, &mut into, u64::from_be_bytes(offset), ReadWriteFlags::NOWAIT).ok();
                }
            }
            RequestCode::PROTOCOL => self.body(header.streamid, &[0, 0, 5, 0x20, 0, 0, 0, 1]),
            RequestCode::LOGIN => self.body(header.streamid, &[1; 16]),
            RequestCode::OPEN => self.body(header.streamid, &[&[0; 12], stat(file).as_slice()].concat()),
            RequestCode::STAT => self.body(header.streamid, &stat(file)),
            _ => self.body(header.streamid, &[]),
        }
    }

    fn header(&mut self, streamid: StreamId, length: usize) {
        let header =
            ResponseHeader { streamid, status: Status::OK, dlen: i32::try_from(length).unwrap_or(i32::MAX) };
        self.output.extend_from_slice(&header.encode());
    }

    fn body(&mut self, streamid: StreamId, body: &[u8]) {
        self.header(streamid, body.len());
        self.output.extend_from_slice(body);
    }

    /// Sends what is there; `false` at the end.
    fn flush(&mut self, poller: &Poller, token: u64) -> bool {
        while self.sent < self.output.len() {
            match send(&self.socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        let wants_room = self.sent < self.output.len();
        if !wants_room {
            self.output.clear();
            self.sent = 0;
        }
        if wants_room != self.wants_room {
            self.wants_room = wants_room;
            let interest = if wants_room { Interest::ReadAndWrite } else { Interest::Read };
            return poller.modify(&self.socket, token, interest).is_ok();
        }
        true
    }
}

/// What is told of the file.
fn stat(file: Option<&File>) -> Vec<u8> {
    let known = file.and_then(|file| file.metadata().ok());
    format!("1 {} 48 0\0", known.map_or(ENDLESS, |known| known.len())).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::xroot::FileHandle;
    use wire::xroot::header::Handshake;
    use wire::xroot::request::{Read, Request, Write};

    #[test]
    fn requests_are_answered_however_they_are_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut bytes = Handshake::BYTES.to_vec();
        let fhandle = FileHandle::default();
        Request::Read(Read { fhandle, offset: 0, rlen: 5, argument: None })
            .encode(StreamId([1, 2]), &mut bytes);
        Request::Write(Write { fhandle, offset: 0, pathid: 0, dlen: 40 })
            .encode(StreamId([3, 4]), &mut bytes);
        bytes.extend([7; 40]);
        Request::Read(Read { fhandle, offset: 0, rlen: 0, argument: None })
            .encode(StreamId([5, 6]), &mut bytes);
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for cut in 1..=bytes.len() {
            let mut connection = Connection::new(socket.try_clone().unwrap());
            for piece in bytes.chunks(cut) {
                let mut whole = std::mem::take(&mut connection.input);
                whole.extend_from_slice(piece);
                let mut rest = whole.as_slice();
                connection.answer(&mut rest, None);
                connection.input = rest.to_vec();
            }
            let mut expected = HandshakeReply { protover: 0x520, role: 1 }.encode().to_vec();
            expected.extend([1, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0]);
            expected.extend([3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0]);
            assert_eq!(connection.output, expected, "{cut}");
        }
    }
}
