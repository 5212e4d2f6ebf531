//! The socket of one connection: readiness from the reactor, and the cheapest system calls for its
//! bytes.
//!
//! Options that depend on the peer are set here too, because they need the connected socket.

use crate::batch::PLACE_BYTES;
use crate::reactor;
use crate::source::SourceFlags;
use crate::tls::TlsRecords;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Send buffer for peers on this machine, in bytes, far more than is ever in flight. The default of
/// the kernel is some megabytes, which leave the processor caches before the peer reads them. The
/// kernel doubles the value for its own overhead.
const HERE_SEND_BYTES: usize = 256 * 1024;

/// Congestion control for peers on this machine. It sends without timers, and all systems provide
/// and permit it.
const HERE_CONGESTION: &[u8] = b"reno";
/// Name prefix of congestion controls that send by a timer (pacing), even within the machine
/// (decision 020).
const PACING: &[u8] = b"bbr";

/// Options of accepted sockets.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Keep-alive probes of idle connections; `None` leaves lost peers to timeouts.
    pub keepalive: Option<Keepalive>,
    /// Size of the kernel's send and receive buffers in bytes; `None` lets the kernel adapt them.
    pub buffer_bytes: Option<usize>,
}

/// Parameters of keep-alive probes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keepalive {
    /// Idle time before the first probe; `None` means the value of the system.
    pub idle: Option<Duration>,
    /// Time between probes.
    pub interval: Option<Duration>,
    /// Number of unanswered probes after which the connection is closed.
    pub count: Option<u32>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self { keepalive: Some(Keepalive::default()), buffer_bytes: None }
    }
}

/// Sets the options of a listening socket. Accepted sockets inherit them, which saves system calls
/// per connection.
pub(crate) fn set_up(socket: &socket2::Socket, config: &SocketConfig) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if let Some(keepalive) = config.keepalive {
        let mut probes = socket2::TcpKeepalive::new();
        if let Some(idle) = keepalive.idle {
            probes = probes.with_time(idle);
        }
        if let Some(interval) = keepalive.interval {
            probes = probes.with_interval(interval);
        }
        if let Some(count) = keepalive.count {
            probes = probes.with_retries(count);
        }
        socket.set_tcp_keepalive(&probes)?;
    }
    if let Some(bytes) = config.buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(())
}

/// Disables pacing for peers on this machine if the system's congestion control uses it. Sets the
/// one for local peers on an open port, and returns the system's for all others. Pacing is fixed
/// when a connection is created, so it must be disabled on the port.
pub(crate) fn stop_pacing(port: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let port = socket2::SockRef::from(&port);
    let system = port.tcp_congestion().ok().filter(|name| name.starts_with(PACING))?;
    port.set_tcp_congestion(HERE_CONGESTION).is_ok().then_some(system)
}

/// Sets the options of an accepted connection that depend on its peer. `paced` is the result of
/// [`stop_pacing`]. Errors are ignored, because none of the options is required.
pub(crate) fn set_up_accepted(
    stream: &TcpStream,
    peer: SocketAddr,
    config: &SocketConfig,
    paced: Option<&[u8]>,
) {
    let socket = socket2::SockRef::from(stream);
    if !is_local_peer(peer.ip(), || Some(stream.local_addr().ok()?.ip())) {
        if let Some(system) = paced
            // The route of the connection may have its own setting.
            && socket.tcp_congestion().is_ok_and(|name| name.starts_with(HERE_CONGESTION))
        {
            let _ = socket.set_tcp_congestion(system);
        }
    } else if config.buffer_bytes.is_none() {
        let _ = socket.set_send_buffer_size(HERE_SEND_BYTES);
    }
}

/// Reports whether a peer is on this machine: it has the address at which it was accepted, or a
/// loopback address.
fn is_local_peer(peer: IpAddr, own: impl FnOnce() -> Option<IpAddr>) -> bool {
    peer.to_canonical().is_loopback() || own() == Some(peer)
}

/// A connected socket on a loop, used by one task at a time.
pub struct Socket {
    // Dropped before the descriptor, because closing the descriptor removes it from the epoll
    // instance.
    watched: SourceKey,
    fd: OwnedFd,
    /// `None` while the connection is not encrypted.
    pub(crate) tls: Option<Box<TlsRecords>>,
}

/// A connected socket on its way to another loop.
pub struct DetachedSocket {
    stream: TcpStream,
    tls: Option<Box<TlsRecords>>,
}

impl DetachedSocket {
    /// Returns the socket for another runtime than that of a loop; `None` if it is encrypted.
    pub fn into_stream(self) -> Option<TcpStream> {
        self.tls.is_none().then_some(self.stream)
    }
}

/// The registration of a socket with the reactor.
struct SourceKey(usize);

impl SourceKey {
    fn flags(&self) -> SourceFlags {
        reactor::flags(self.0)
    }

    /// Executes a batched send before any other operation on the socket.
    fn flush_batched_send(&self) {
        if self.flags().intersects(SourceFlags::SENDING) {
            reactor::exchange();
        }
    }

    fn received(&self) -> Vec<u8> {
        let mut received = Vec::new();
        let more = |received: &mut Vec<u8>| {
            received.reserve(PLACE_BYTES);
            let taken = reactor::take_fetched(self.0, received.spare_capacity_mut());
            // SAFETY: `taken` bytes after the present length were just initialised.
            unsafe { received.set_len(received.len() + taken) };
            taken > 0
        };
        while more(&mut received) {}
        received
    }
}

impl Drop for SourceKey {
    fn drop(&mut self) {
        self.flush_batched_send();
        reactor::forget(self.0);
    }
}

impl DetachedSocket {
    /// Returns the socket if it is not encrypted.
    #[cfg(test)]
    pub(crate) fn into_plain(self) -> Option<TcpStream> {
        self.tls.is_none().then_some(self.stream)
    }
}

impl Socket {
    /// Registers a connected non-blocking socket with the current loop.
    ///
    /// # Errors
    /// Outside of a loop, or when no more sockets can be watched.
    pub fn adopt(stream: TcpStream) -> io::Result<Self> {
        Self::attach(DetachedSocket { stream, tls: None })
    }

    /// Registers the socket of another loop with the current one.
    ///
    /// # Errors
    /// Those of [`Self::adopt`].
    pub fn attach(socket: DetachedSocket) -> io::Result<Self> {
        let DetachedSocket { stream, tls } = socket;
        let fd = OwnedFd::from(stream);
        let key = reactor::add(fd.as_fd(), SourceFlags::WRITABLE)?;
        Ok(Self { watched: SourceKey(key), fd, tls })
    }

    /// Removes the socket from its loop, so that another loop can attach it. Also returns data that
    /// was received but not read.
    pub fn release(self) -> io::Result<(DetachedSocket, Vec<u8>)> {
        let Self { watched, fd, mut tls } = self;
        let mut received = watched.received();
        drop(watched);
        reactor::delete(fd.as_fd())?;
        if let Some(records) = &mut tls {
            // These bytes are encrypted.
            records.append(&std::mem::take(&mut received));
        }
        Ok((DetachedSocket { stream: fd.into(), tls }, received))
    }

    /// Returns the descriptor, for questions to the system.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reports whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn set_tls(&mut self, records: Box<TlsRecords>) {
        self.tls = Some(records);
    }

    pub(crate) fn tls_mut(&mut self) -> Option<&mut TlsRecords> {
        self.tls.as_deref_mut()
    }

    fn used_up(&self, flag: SourceFlags) {
        reactor::used_up(self.watched.0, flag);
    }

    /// Returns the local address.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(self.fd.as_fd())?;
        Ok(SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)?)
    }

    fn poll_ready(&self, flag: SourceFlags, context: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(reactor::poll_ready(self.watched.0, flag, false, context))?;
        Poll::Ready(Ok(()))
    }

    /// Waits for room to write.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(SourceFlags::WRITABLE, context)
    }

    /// Waits for data to read.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(SourceFlags::READABLE, context)
    }

    /// Waits until the peer has closed its end or the connection is broken, even if unread data
    /// remains.
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        // An error also means the end.
        self.poll_ready(SourceFlags::ENDED, context).map(drop)
    }

    /// Reads at most `most` bytes into the spare capacity of `into`, or waits for data. `Ok(0)`
    /// means the end of the stream (or no capacity). After a read that did not fill its room, the
    /// socket is not read again before more data arrives. This saves one system call per arrival.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let spare = into.spare_capacity_mut();
        let most = most.min(spare.len());
        let Some(spare) = spare.get_mut(..most).filter(|spare| !spare.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        let read = self.poll_receive(context, spare, true);
        if let Poll::Ready(Ok(read)) = &read {
            // SAFETY: `read` bytes of the spare capacity, directly after the present length, were
            // initialised.
            unsafe { into.set_len(into.len() + read) };
        }
        read
    }

    /// Reads bytes as they were received, without decryption, like [`Self::poll_read`].
    pub(crate) fn poll_append(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let read = self.poll_receive_raw(context, into.spare_capacity_mut(), true);
        if let Poll::Ready(Ok(read)) = &read {
            // SAFETY: `read` bytes of the spare capacity, directly after the present length, were
            // initialised.
            unsafe { into.set_len(into.len() + read) };
        }
        read
    }

    /// Reads into an initialised buffer, or waits for data.
    pub fn poll_read_into(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        // SAFETY: initialised memory may be treated as possibly uninitialised; only bytes are
        // written to it.
        let place = unsafe { &mut *(std::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) };
        self.poll_receive(context, place, false)
    }

    /// Reads the first bytes into `head` and the following ones into `body`, with one call. Returns
    /// the total. Data that was fetched before, or is encrypted, goes into `head` only.
    pub fn poll_read_split(
        &mut self,
        context: &mut Context<'_>,
        head: &mut [u8],
        body: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.tls.is_some() {
            return self.poll_read_into(context, head);
        }
        loop {
            if ready!(reactor::poll_ready(self.watched.0, SourceFlags::READABLE, false, context))? {
                return self.poll_read_into(context, head);
            }
            let room = head.len() + body.len();
            let mut places = [IoSliceMut::new(&mut *head), IoSliceMut::new(&mut *body)];
            match rustix::io::readv(self.fd.as_fd(), &mut places) {
                Ok(came) => {
                    if came > 0 && came < room {
                        self.used_up(SourceFlags::READABLE);
                    }
                    crate::polling::arrived();
                    return Poll::Ready(Ok(came));
                }
                Err(Errno::AGAIN) => reactor::clear_readiness(self.watched.0),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [MaybeUninit<u8>],
        fetch: bool,
    ) -> Poll<io::Result<usize>> {
        match self.tls.take() {
            None => self.poll_receive_raw(context, into, fetch),
            Some(records) => self.poll_decrypted(records, context, into),
        }
    }

    fn poll_receive_raw(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [MaybeUninit<u8>],
        fetch: bool,
    ) -> Poll<io::Result<usize>> {
        loop {
            let fetched = ready!(reactor::poll_receive(self.watched.0, into, fetch, context))?;
            if fetched > 0 {
                crate::polling::arrived();
                return Poll::Ready(Ok(fetched));
            }
            match rustix::net::recv(self.fd.as_fd(), &mut *into, RecvFlags::empty()) {
                Ok(((filled, rest), _)) => {
                    if !filled.is_empty() && !rest.is_empty() {
                        self.used_up(SourceFlags::READABLE);
                    }
                    crate::polling::arrived();
                    return Poll::Ready(Ok(filled.len()));
                }
                Err(Errno::AGAIN) => reactor::clear_readiness(self.watched.0),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn written(&self, result: rustix::io::Result<usize>) -> io::Result<usize> {
        if result == Err(Errno::AGAIN) {
            self.used_up(SourceFlags::WRITABLE);
        }
        Ok(result?)
    }

    /// Checks whether a write may be made now.
    fn may_write(&self) -> io::Result<()> {
        if reactor::has_sends() {
            // Either its own sends, or those of others, which have waited long enough.
            reactor::exchange();
        }
        let flags = self.watched.flags();
        match () {
            () if flags.intersects(SourceFlags::FAILED) => Err(Errno::CONNRESET.into()),
            () if !flags.intersects(SourceFlags::WRITABLE) || flags.intersects(SourceFlags::RETURNED) => {
                Err(Errno::AGAIN.into())
            }
            () => Ok(()),
        }
    }

    /// Writes as many bytes of these pieces as fit. `more` announces to the kernel that further
    /// bytes follow immediately.
    pub fn write(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match self.tls.take() {
            None => self.write_raw(pieces, more),
            Some(mut records) => {
                let written = self.write_records(&mut records, |records| records.encrypt(pieces));
                self.tls = Some(records);
                written
            }
        }
    }

    /// Sends bytes that [`Self::write`] or [`Self::send_file`] has encrypted and could not send.
    /// Other connections have none.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(mut records) = self.tls.take() else { return Ok(()) };
        let flushed = self.flush_records(&mut records);
        self.tls = Some(records);
        flushed
    }

    pub(crate) fn write_raw(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.may_write()?;
        let mut flags = SendFlags::NOSIGNAL;
        if more {
            flags |= SendFlags::MORE;
        }
        if let [piece] = pieces {
            // The system call for a single piece is cheaper.
            return self.written(rustix::net::send(self.fd.as_fd(), piece, flags));
        }
        let mut control = rustix::net::SendAncillaryBuffer::default();
        self.written(rustix::net::sendmsg(self.fd.as_fd(), pieces, &mut control, flags))
    }

    /// Adds a medium buffer ([`crate::take_medium`]) to the batch of ready connections; after the
    /// send it returns to the pool. Without a batch, returns the buffer, so that it can be sent
    /// immediately. Unsent bytes must be taken back ([`Socket::returned`]), for which the task is
    /// woken.
    pub fn send_together(&self, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.tls.is_some() {
            return Err(buffer);
        }
        reactor::send(self.watched.0, buffer)
    }

    /// Takes back a batched buffer that was not sent completely, with the number of bytes sent.
    pub fn returned(&self) -> Option<(Vec<u8>, usize)> {
        if !self.watched.flags().intersects(SourceFlags::SENDING | SourceFlags::RETURNED) {
            return None;
        }
        self.watched.flush_batched_send();
        reactor::take_returned(self.watched.0)
    }

    /// Sends a range of a file, without copying it through this process unless it is encrypted.
    /// `Ok(0)` means that the file ends before `offset`.
    pub fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<usize> {
        if let Some(mut records) = self.tls.take() {
            let sent = self.send_file_records(&mut records, file, offset, length);
            self.tls = Some(records);
            return sent;
        }
        self.may_write()?;
        let mut at = offset;
        self.written(rustix::fs::sendfile(self.fd.as_fd(), file, Some(&mut at), length))
    }

    /// Closes the sending direction. The peer sees the end of the stream after the bytes sent
    /// before.
    pub fn finish_sending(&mut self) {
        self.watched.flush_batched_send();
        if let Some(mut records) = self.tls.take() {
            self.close_records(&mut records);
        }
        // An error means that the connection is already closed.
        let _ = rustix::net::shutdown(self.fd.as_fd(), rustix::net::Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc;

    /// Returns the bytes in the head and in the body of each split read.
    fn reads_of(sent: &'static [&'static [u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let loops = crate::Loops::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        loops.handles()[0].run(move || {
            crate::spawn_local(async move {
                let mut socket = Socket::adopt(server).unwrap();
                loop {
                    let (mut head, mut body) = ([0; 4], [0; 6]);
                    let came = poll_fn(|context| socket.poll_read_split(context, &mut head, &mut body)).await;
                    let came = came.unwrap();
                    let in_head = came.min(head.len());
                    tell.send((head[..in_head].to_vec(), body[..came - in_head].to_vec())).unwrap();
                    if came == 0 {
                        return;
                    }
                }
            });
        });
        let mut all = Vec::new();
        for bytes in sent {
            client.write_all(bytes).unwrap();
            let mut left = bytes.len();
            while left > 0 {
                let read = told.recv().unwrap();
                left -= read.0.len() + read.1.len();
                all.push(read);
            }
        }
        drop(client);
        assert_eq!(told.recv().unwrap(), (vec![], vec![]), "its end");
        loops.stop();
        all
    }

    #[test]
    fn only_send_buffers_for_local_peers_are_limited() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (peer, own, here) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("::ffff:127.0.0.2", "::ffff:127.0.0.1", true),
            ("::1", "::1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.8", "192.0.2.7", false),
            ("2001:db8::1", "2001:db8::2", false),
        ] {
            assert_eq!(is_local_peer(address(peer), || Some(address(own))), here, "{peer} {own}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let bytes = || socket2::SockRef::from(&server).send_buffer_size().unwrap();
        let before = bytes();
        let chosen = SocketConfig { buffer_bytes: Some(before), ..SocketConfig::default() };
        set_up_accepted(&server, peer, &chosen, None);
        assert_eq!(bytes(), before, "a configured size is kept");
        set_up_accepted(&server, peer, &SocketConfig::default(), None);
        // A system may allow less.
        assert!(bytes() != before && bytes() <= 2 * HERE_SEND_BYTES, "{before} {}", bytes());
    }

    #[test]
    fn only_connections_to_remote_peers_are_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let chosen = |socket: &dyn AsFd| {
            let name = socket2::SockRef::from(&socket.as_fd()).tcp_congestion().unwrap();
            String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
        };
        let port = socket2::SockRef::from(&listener);
        port.set_tcp_congestion(b"reno").unwrap();
        assert_eq!(stop_pacing(listener.as_fd()), None, "reno has no timer");
        // Systems without bbr, or that do not permit it, cannot have such a port.
        if port.set_tcp_congestion(b"bbr").is_err() {
            return;
        }
        let system = stop_pacing(listener.as_fd()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        set_up_accepted(&server, peer, &SocketConfig::default(), Some(&system));
        assert_eq!(chosen(&server), "reno", "inherited from the port");
        let elsewhere = "192.0.2.7:1".parse().unwrap();
        set_up_accepted(&server, elsewhere, &SocketConfig::default(), Some(&system));
        assert_eq!(chosen(&server), "bbr");
    }

    #[test]
    fn received_data_is_split_between_two_buffers() {
        let reads = reads_of(&[b"ab", b"abcd", b"abcdef", b"abcdefghij"]);
        let expected: [(&[u8], &[u8]); 4] =
            [(b"ab", b""), (b"abcd", b""), (b"abcd", b"ef"), (b"abcd", b"efghij")];
        assert_eq!(reads, expected.map(|(head, body)| (head.to_vec(), body.to_vec())));
        // Bytes beyond both buffers are read next time.
        let reads = reads_of(&[b"abcdefghijklm"]);
        let joined: Vec<u8> = reads.into_iter().flat_map(|(head, body)| [head, body].concat()).collect();
        assert_eq!(joined, b"abcdefghijklm");
    }
}
