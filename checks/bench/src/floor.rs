//! The floor: a server with one epoll loop that replies from memory, without files and sessions.
//!
//! It shows the minimum cost of a server on this machine. A request has 24 bytes, and the payload
//! of a write is discarded. The reply has 8 bytes and the requested number of data bytes. The login
//! is answered, so that the same generator can be used. All requests received by one call are
//! answered by one send. With a directory it is the bare server ([`crate::bare_server`]).

use crate::bare_server::{BareFile, ServedDirectory};
use anyhow::Context;
use rawclient::{Interest, SocketPoller, SocketReadiness};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use slab::Slab;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use wire::xroot::flags::OpenOptions;
use wire::xroot::header::HandshakeReply;
use wire::xroot::limits::{HANDSHAKE_BYTES, REQUEST_HEADER_BYTES};
use wire::xroot::{ErrorCode, Request, RequestCode, RequestHeader, ResponseHeader, Status, StreamId};
use wire::{Encode, FixedLayout};

const LISTENER: u64 = u64::MAX;
/// Size of the receive buffer: a write of 64 KiB with its header.
const BUFFER_BYTES: usize = (64 << 10) + REQUEST_HEADER_BYTES;
/// Reported size of a file that does not exist, which contains every offset.
const ENDLESS: u64 = 1 << 40;
/// Duration of busy polling before the loop sleeps.
const POLLING_TIME: Duration = Duration::from_micros(50);

struct FloorConnection {
    socket: TcpStream,
    greeted: bool,
    /// Bytes of an incomplete request.
    input: Vec<u8>,
    /// A write whose payload is being received.
    written: Option<PendingWrite>,
    opened: BareFile,
    output: Vec<u8>,
    sent: usize,
    wants_room: bool,
}

/// A write that is answered when its payload is complete.
struct PendingWrite {
    streamid: StreamId,
    /// Offset of the next bytes.
    offset: u64,
    left: usize,
}

/// Serves until killed; prints `port N` when it listens. With `polling` it polls briefly before it
/// sleeps, as our server does with adaptive polling.
pub(crate) fn serve(directory: Option<&Path>, polling: bool) -> anyhow::Result<()> {
    let tree = directory.map(ServedDirectory::open).transpose()?;
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    listener.set_nonblocking(true)?;
    let mut poller = SocketPoller::new()?;
    poller.add(&listener, LISTENER, Interest::Read)?;
    println!("port {}", listener.local_addr()?.port());
    let mut connections: Slab<FloorConnection> = Slab::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut ready: Vec<SocketReadiness> = Vec::new();
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
                    entry.insert(FloorConnection::new(socket));
                }
            } else if let Some(connection) = connections.get_mut(ready.token as usize) {
                let open = !ready.readable || connection.receive(&mut buffer, tree.as_ref());
                if !open || !connection.flush(&poller, ready.token) {
                    connections.remove(ready.token as usize);
                }
            }
        }
    }
}

impl FloorConnection {
    fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            greeted: false,
            input: Vec::new(),
            written: None,
            opened: BareFile::default(),
            output: Vec::new(),
            sent: 0,
            wants_room: false,
        }
    }

    /// Answers the received requests; returns `false` at the end of the connection.
    fn receive(&mut self, buffer: &mut [u8], tree: Option<&ServedDirectory>) -> bool {
        let count = match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((count, _)) if count > 0 => count,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            _ => return false,
        };
        let mut rest = &buffer[..count];
        if !self.input.is_empty() {
            // This is rare enough to parse all input again.
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(rest);
            let mut rest = input.as_slice();
            self.answer(&mut rest, tree);
            self.input = rest.to_vec();
            return true;
        }
        self.answer(&mut rest, tree);
        self.input.extend_from_slice(rest);
        true
    }

    /// Answers the complete requests and removes them from the front.
    fn answer(&mut self, input: &mut &[u8], tree: Option<&ServedDirectory>) {
        loop {
            if let Some(written) = &mut self.written {
                let (piece, rest) = input.split_at(written.left.min(input.len()));
                self.opened.write(written.offset, piece);
                *input = rest;
                written.offset += piece.len() as u64;
                written.left -= piece.len();
                if written.left > 0 {
                    return;
                }
                let streamid = written.streamid;
                self.written = None;
                self.body(streamid, &[]);
            }
            if !self.greeted {
                let Some((_, rest)) = input.split_at_checked(HANDSHAKE_BYTES) else { return };
                *input = rest;
                self.greeted = true;
                let reply = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER };
                reply.encode(&mut self.output);
            }
            let Some((header, rest)) = input.split_first_chunk::<REQUEST_HEADER_BYTES>() else { return };
            let header = RequestHeader::from_bytes(header);
            let bytes = header.payload_bytes().unwrap_or(0);
            if matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE) {
                *input = rest;
                let offset = match Request::decode(&header, &[]) {
                    Ok(Request::Write(write)) => u64::try_from(write.offset).unwrap_or(0),
                    _ => 0,
                };
                self.written = Some(PendingWrite { streamid: header.streamid, offset, left: bytes });
                continue;
            }
            let Some((payload, rest)) = rest.split_at_checked(bytes) else { return };
            *input = rest;
            self.reply(&header, payload, tree);
        }
    }

    fn reply(&mut self, header: &RequestHeader, payload: &[u8], tree: Option<&ServedDirectory>) {
        let streamid = header.streamid;
        let size = |bytes: i32| usize::try_from(bytes).unwrap_or(0);
        match (Request::decode(header, payload), tree) {
            (Ok(Request::Read(read)), tree) => {
                let length = size(read.rlen);
                self.header(streamid, length);
                match tree {
                    Some(_) => self.opened.read(read.offset.unsigned_abs(), length, &mut self.output),
                    None => self.output.resize(self.output.len() + length, 0),
                }
            }
            (Ok(Request::Pgread(read)), Some(_)) => {
                self.opened.read_pages(streamid, read.offset.unsigned_abs(), size(read.rlen));
            }
            (Ok(Request::Protocol(_)), _) => self.body(streamid, &[0, 0, 5, 0x20, 0, 0, 0, 1]),
            (Ok(Request::Login(_)), _) => self.body(streamid, &[1; 16]),
            (Ok(Request::Open(open)), Some(tree)) => {
                let writes = open.options.0 & (OpenOptions::UPDT.0 | OpenOptions::NEW.0) != 0;
                if self.opened.open(tree, open.target, writes) {
                    self.body(streamid, &[&[0; 12], status(self.opened.size()).as_slice()].concat());
                } else {
                    self.error(streamid);
                }
            }
            (Ok(Request::Open(_)), None) => {
                self.body(streamid, &[&[0; 12], status(ENDLESS).as_slice()].concat());
            }
            (Ok(Request::Stat(stat)), Some(tree)) => match tree.stat(stat.path) {
                Some(status) => self.body(streamid, &status),
                None => self.error(streamid),
            },
            (Ok(Request::Stat(_)), None) => self.body(streamid, &status(ENDLESS)),
            _ => self.body(streamid, &[]),
        }
    }

    /// Appends the error for a missing file.
    fn error(&mut self, streamid: StreamId) {
        let mut body = ErrorCode::NOT_FOUND.0.to_be_bytes().to_vec();
        body.extend_from_slice(b"not found\0");
        let dlen = i32::try_from(body.len()).unwrap_or(0);
        let header = ResponseHeader { streamid, status: Status::ERROR, dlen };
        header.encode(&mut self.output);
        self.output.extend_from_slice(&body);
    }

    fn header(&mut self, streamid: StreamId, length: usize) {
        let header =
            ResponseHeader { streamid, status: Status::OK, dlen: i32::try_from(length).unwrap_or(i32::MAX) };
        header.encode(&mut self.output);
    }

    fn body(&mut self, streamid: StreamId, body: &[u8]) {
        self.header(streamid, body.len());
        self.output.extend_from_slice(body);
    }

    /// Sends the output; returns `false` at the end of the connection.
    fn flush(&mut self, poller: &SocketPoller, token: u64) -> bool {
        // Replies behind the header of a range would be sent before the range. Such loads have only
        // one request in flight.
        let flags =
            SendFlags::NOSIGNAL | if self.opened.has_range() { SendFlags::MORE } else { SendFlags::empty() };
        loop {
            if self.sent == self.output.len() {
                self.output.clear();
                self.sent = 0;
                if !self.opened.next_pages(&mut self.output) {
                    break;
                }
            }
            match send(&self.socket, &self.output[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        if self.output.is_empty() && !self.opened.send_range(&self.socket) {
            return false;
        }
        let wants_room = !self.output.is_empty() || self.opened.has_range();
        if wants_room != self.wants_room {
            self.wants_room = wants_room;
            let interest = if wants_room { Interest::ReadAndWrite } else { Interest::Read };
            return poller.modify(&self.socket, token, interest).is_ok();
        }
        true
    }
}

/// Returns the status of a file of this size.
fn status(size: u64) -> Vec<u8> {
    format!("1 {size} 48 0\0").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::pages;
    use std::io::Read as _;
    use wire::xroot::FileHandle;
    use wire::xroot::header::Handshake;
    use wire::xroot::request::{Pgread, Read, Write};

    #[test]
    fn requests_are_answered_for_every_segmentation() {
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
            let mut connection = FloorConnection::new(socket.try_clone().unwrap());
            for piece in bytes.chunks(cut) {
                let mut whole = std::mem::take(&mut connection.input);
                whole.extend_from_slice(piece);
                let mut rest = whole.as_slice();
                connection.answer(&mut rest, None);
                connection.input = rest.to_vec();
            }
            let mut expected = HandshakeReply { protover: 0x520, role: 1 }.encoded();
            expected.extend([1, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0]);
            expected.extend([3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0]);
            assert_eq!(connection.output, expected, "{cut}");
        }
    }

    /// Returns the reply of the bare server to a request on an open file.
    fn answer_of(tree: &ServedDirectory, request: &Request<'_>, payload: &[u8], length: usize) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let poller = SocketPoller::new().unwrap();
        poller.add(&server, 0, Interest::Read).unwrap();
        let mut connection = FloorConnection::new(server);
        connection.greeted = true;
        assert!(connection.opened.open(tree, b"//data?a=b", matches!(request, Request::Write(_))));
        let mut bytes = Vec::new();
        request.encode(StreamId([7, 8]), &mut bytes);
        bytes.extend_from_slice(payload);
        let reading = std::thread::spawn(move || {
            let mut came = vec![0; length];
            client.read_exact(&mut came).unwrap();
            came
        });
        connection.answer(&mut bytes.as_slice(), Some(tree));
        while !reading.is_finished() {
            assert!(connection.flush(&poller, 0));
        }
        assert!(connection.output.is_empty() && !connection.wants_room, "more than was asked for");
        reading.join().unwrap()
    }

    #[test]
    fn the_bare_server_sends_the_data_of_the_file() {
        let directory = std::env::temp_dir().join(format!("scalla-bare-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let data: Vec<u8> = (0..1_000_000_u32).map(|i| (i * 31 % 251) as u8).collect();
        std::fs::write(directory.join("data"), &data).unwrap();
        let tree = ServedDirectory::open(&directory).unwrap();
        let fhandle = FileHandle::default();
        // Sizes that are copied, and sizes that use sendfile.
        for (offset, length) in [(5, 3000), (4096, 65_536), (100, 800_000)] {
            let rlen = i32::try_from(length).unwrap();
            let read = Request::Read(Read { fhandle, offset: offset as i64, rlen, argument: None });
            let header = ResponseHeader { streamid: StreamId([7, 8]), status: Status::OK, dlen: rlen };
            let expected = [&header.to_bytes()[..], &data[offset..offset + length]].concat();
            assert!(answer_of(&tree, &read, &[], expected.len()) == expected, "{offset} {length}");
        }
        // Two frames of pages, of which the first page is incomplete.
        let (offset, first, second) = (96, 62 * 4096 - 96, 10_000);
        let rlen = first as i32 + second as i32;
        let read = Request::Pgread(Pgread { fhandle, offset, rlen, pathid: None, reqflags: None });
        let sizes =
            [(96, first), (62 * 4096, second)].map(|(at, length)| pages::interleaved_length(at, length));
        let frame = 32;
        let mut came = answer_of(&tree, &read, &[], 2 * frame + sizes[0] + sizes[1]);
        let mut second = came.split_off(frame + sizes[0]);
        for (at, part) in [(96_u64, &mut came), (62 * 4096, &mut second)] {
            let length = pages::separate(at, &mut part[frame..], |page| panic!("{page:?}"));
            let at = at as usize;
            assert!(part[frame..frame + length] == data[at..at + length]);
        }
        // Written to an unnamed file.
        let write = Request::Write(Write { fhandle, offset: 0, pathid: 0, dlen: 9 });
        assert_eq!(answer_of(&tree, &write, b"overwrite", 8), [7, 8, 0, 0, 0, 0, 0, 0]);
        assert!(std::fs::read(directory.join("data")).unwrap() == data);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
