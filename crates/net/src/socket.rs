//! One connection's socket: readiness from the loop, bytes by the calls that cost least.

use crate::gather::PLACE_BYTES;
use crate::poller::{self, ENDED, FAILED, READABLE, RETURNED, SENDING, WRITABLE};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Bytes that wait in the kernel for a peer on this machine, which takes them at once: many times what is ever under way. Left
/// alone the kernel lets it be some megabytes, which fall out of the processors' caches before they are taken. The kernel
/// counts twice as much for its own needs.
const HERE_SEND_BYTES: usize = 256 * 1024;

/// Congestion control for peers on this machine, which sends as soon as there is room; every system has it and allows it.
const HERE_CONGESTION: &[u8] = b"reno";
/// How the names of those begin that send by a timer, also what never leaves the machine.
const PACING: &[u8] = b"bbr";

/// How accepted sockets are set up.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Probe idle connections; `None` leaves vanished peers to time-outs.
    pub keepalive: Option<Keepalive>,
    /// Bytes of the kernel's send and receive buffers; `None` leaves them to the kernel, which adapts them.
    pub buffer_bytes: Option<usize>,
}

/// When to probe a silent peer.
#[derive(Clone, Copy, Default, Debug)]
pub struct Keepalive {
    /// Silence before the first probe; the system's value when `None`.
    pub idle: Option<Duration>,
    /// Between probes.
    pub interval: Option<Duration>,
    /// Probes before giving up.
    pub count: Option<u32>,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self { keepalive: Some(Keepalive::default()), buffer_bytes: None }
    }
}

/// Sets up a listening socket: those it accepts inherit it all, which saves a connection some system calls.
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

/// Where the system's congestion control sends by a timer: gives the connections of an open port the one for peers on this
/// machine, and returns the system's, which is for all others. A connection that began with a timer keeps it whatever it is
/// given later, so the port must have the choice.
pub(crate) fn stop_pacing(port: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let port = socket2::SockRef::from(&port);
    let system = port.tcp_congestion().ok().filter(|name| name.starts_with(PACING))?;
    port.set_tcp_congestion(HERE_CONGESTION).is_ok().then_some(system)
}

/// Sets up what depends on where the peer of a connection is that was accepted; `paced` is what [`stop_pacing`] returned. Without
/// any of it all goes on as well.
pub(crate) fn set_up_accepted(
    stream: &TcpStream,
    peer: SocketAddr,
    config: &SocketConfig,
    paced: Option<&[u8]>,
) {
    let socket = socket2::SockRef::from(stream);
    if !is_here(peer.ip(), || Some(stream.local_addr().ok()?.ip())) {
        if let Some(system) = paced
            // Its route may have a choice of its own.
            && socket.tcp_congestion().is_ok_and(|name| name.starts_with(HERE_CONGESTION))
        {
            let _ = socket.set_tcp_congestion(system);
        }
    } else if config.buffer_bytes.is_none() {
        let _ = socket.set_send_buffer_size(HERE_SEND_BYTES);
    }
}

/// Is a peer on this machine? Then it has the address that it was accepted at, or one that leads nowhere else.
fn is_here(peer: IpAddr, own: impl FnOnce() -> Option<IpAddr>) -> bool {
    peer.to_canonical().is_loopback() || own() == Some(peer)
}

/// A connected socket on a loop, used by one task at a time.
pub struct Socket {
    // Dropped before the descriptor: closing that takes it off the poller's instance.
    watched: Watched,
    fd: OwnedFd,
}

/// An entry of the loop's poller.
struct Watched(usize);

impl Watched {
    fn bits(&self) -> u16 {
        poller::bits(self.0)
    }

    /// What was gathered for it leaves before anything else happens to it.
    fn settle(&self) {
        if self.bits() & SENDING != 0 {
            poller::exchange();
        }
    }

    fn received(&self) -> Vec<u8> {
        let mut received = Vec::new();
        let more = |received: &mut Vec<u8>| {
            received.reserve(PLACE_BYTES);
            let taken = poller::take_fetched(self.0, received.spare_capacity_mut());
            // SAFETY: so many bytes behind the present length were just initialised.
            unsafe { received.set_len(received.len() + taken) };
            taken > 0
        };
        while more(&mut received) {}
        received
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.settle();
        poller::forget(self.0);
    }
}

impl Socket {
    /// Brings a connected socket that does not block onto the current loop.
    ///
    /// # Errors
    /// Outside of a loop, or when no more can be watched.
    pub fn adopt(stream: TcpStream) -> io::Result<Self> {
        let fd = OwnedFd::from(stream);
        let key = poller::add(fd.as_fd(), WRITABLE)?;
        Ok(Self { watched: Watched(key), fd })
    }

    /// Takes it off its loop, to be adopted by another: and what has been received for it and not read.
    pub fn release(self) -> io::Result<(TcpStream, Vec<u8>)> {
        let Self { watched, fd } = self;
        let received = watched.received();
        drop(watched);
        poller::delete(fd.as_fd())?;
        Ok((fd.into(), received))
    }

    fn used_up(&self, bit: u16) {
        poller::used_up(self.watched.0, bit);
    }

    /// The address at this end.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(self.fd.as_fd())?;
        Ok(SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)?)
    }

    fn poll_ready(&self, bit: u16, context: &Context<'_>) -> Poll<io::Result<()>> {
        ready!(poller::poll_ready(self.watched.0, bit, false, context))?;
        Poll::Ready(Ok(()))
    }

    /// Asks to be woken when there may be room to write.
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(WRITABLE, context)
    }

    /// Asks to be woken when there may be something to read.
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_ready(READABLE, context)
    }

    /// Asks to be woken when the peer has closed its end or the connection is broken, even if there is unread data before that.
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        // An error is an end as well.
        self.poll_ready(ENDED, context).map(drop)
    }

    /// Reads into the spare capacity of `into`, at most `most` bytes, or asks to be woken when there is something. `Ok(0)` is
    /// the peer's end (or no capacity). A read that did not fill its room is not tried again until more has come: one
    /// system call for each arrival, not two.
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
            // SAFETY: `read` bytes of the spare capacity just behind the present length were initialised.
            unsafe { into.set_len(into.len() + read) };
        }
        read
    }

    /// The same into an initialised place.
    pub fn poll_read_into(&mut self, context: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        // SAFETY: what is initialised may be taken for what need not be; nothing but bytes are written to it.
        let place = unsafe { &mut *(std::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) };
        self.poll_receive(context, place, false)
    }

    /// Reads the first bytes that come into `head` and what follows them into `body`, with one call; tells how many in all.
    /// What was fetched before goes into `head` only.
    pub fn poll_read_split(
        &mut self,
        context: &mut Context<'_>,
        head: &mut [u8],
        body: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if ready!(poller::poll_ready(self.watched.0, READABLE, false, context))? {
                return self.poll_read_into(context, head);
            }
            let room = head.len() + body.len();
            let mut places = [IoSliceMut::new(&mut *head), IoSliceMut::new(&mut *body)];
            match rustix::io::readv(self.fd.as_fd(), &mut places) {
                Ok(came) => {
                    if came > 0 && came < room {
                        self.used_up(READABLE);
                    }
                    crate::polling::arrived();
                    return Poll::Ready(Ok(came));
                }
                Err(Errno::AGAIN) => poller::nothing_there(self.watched.0),
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
        loop {
            let fetched = ready!(poller::poll_receive(self.watched.0, into, fetch, context))?;
            if fetched > 0 {
                crate::polling::arrived();
                return Poll::Ready(Ok(fetched));
            }
            match rustix::net::recv(self.fd.as_fd(), &mut *into, RecvFlags::empty()) {
                Ok(((filled, rest), _)) => {
                    if !filled.is_empty() && !rest.is_empty() {
                        self.used_up(READABLE);
                    }
                    crate::polling::arrived();
                    return Poll::Ready(Ok(filled.len()));
                }
                Err(Errno::AGAIN) => poller::nothing_there(self.watched.0),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn written(&self, result: rustix::io::Result<usize>) -> io::Result<usize> {
        if result == Err(Errno::AGAIN) {
            self.used_up(WRITABLE);
        }
        Ok(result?)
    }

    /// May a call that writes be made now?
    fn may_write(&self) -> io::Result<()> {
        if poller::has_sends() {
            // Its own, or those of others, which have waited long enough.
            poller::exchange();
        }
        let bits = self.watched.bits();
        match () {
            () if bits & FAILED != 0 => Err(Errno::CONNRESET.into()),
            () if bits & WRITABLE == 0 || bits & RETURNED != 0 => Err(Errno::AGAIN.into()),
            () => Ok(()),
        }
    }

    /// Writes as much as fits of these pieces; `more` tells the kernel that further bytes follow at once.
    pub fn write(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.may_write()?;
        let mut flags = SendFlags::NOSIGNAL;
        if more {
            flags |= SendFlags::MORE;
        }
        if let [piece] = pieces {
            // The kernel does less for it.
            return self.written(rustix::net::send(self.fd.as_fd(), piece, flags));
        }
        let mut control = rustix::net::SendAncillaryBuffer::default();
        self.written(rustix::net::sendmsg(self.fd.as_fd(), pieces, &mut control, flags))
    }

    /// Sends a medium buffer ([`crate::take_medium`]) together with those of other connections that are ready, and gives it
    /// back to the pool; or returns it: there are none, and it is to leave at once. What does not leave then is to be taken
    /// back ([`Socket::returned`]); the task is woken for it.
    pub fn send_together(&self, buffer: Vec<u8>) -> Result<(), Vec<u8>> {
        poller::send(self.watched.0, buffer)
    }

    /// What was to be sent together and has not left, and how many bytes of it have.
    pub fn returned(&self) -> Option<(Vec<u8>, usize)> {
        if self.watched.bits() & (SENDING | RETURNED) == 0 {
            return None;
        }
        self.watched.settle();
        poller::take_returned(self.watched.0)
    }

    /// Sends a range of a file without copying it through this process. `Ok(0)` means the file ends before `offset`.
    pub fn send_file(&self, file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<usize> {
        self.may_write()?;
        let mut at = offset;
        self.written(rustix::fs::sendfile(self.fd.as_fd(), file, Some(&mut at), length))
    }

    /// No more will be sent; the peer sees the end of the stream after what was sent.
    pub fn finish_sending(&self) {
        self.watched.settle();
        // Already gone is as good.
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

    /// What each read of a split place brought: the bytes in its head, those in its body.
    fn reads_of(sent: &'static [&'static [u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nodelay(true).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let loops = crate::Loops::start(1).unwrap();
        let (tell, told) = mpsc::channel();
        loops.handles()[0].run(move || {
            crate::attend(async move {
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
    fn only_what_waits_for_a_peer_on_this_machine_is_bounded() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (peer, own, here) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("::ffff:127.0.0.2", "::ffff:127.0.0.1", true),
            ("::1", "::1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.8", "192.0.2.7", false),
            ("2001:db8::1", "2001:db8::2", false),
        ] {
            assert_eq!(is_here(address(peer), || Some(address(own))), here, "{peer} {own}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let bytes = || socket2::SockRef::from(&server).send_buffer_size().unwrap();
        let before = bytes();
        let chosen = SocketConfig { buffer_bytes: Some(before), ..SocketConfig::default() };
        set_up_accepted(&server, peer, &chosen, None);
        assert_eq!(bytes(), before, "what was configured stays");
        set_up_accepted(&server, peer, &SocketConfig::default(), None);
        // A system may allow less.
        assert!(bytes() != before && bytes() <= 2 * HERE_SEND_BYTES, "{before} {}", bytes());
    }

    #[test]
    fn only_peers_elsewhere_are_sent_to_by_a_timer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let chosen = |socket: &dyn AsFd| {
            let name = socket2::SockRef::from(&socket.as_fd()).tcp_congestion().unwrap();
            String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
        };
        let port = socket2::SockRef::from(&listener);
        port.set_tcp_congestion(b"reno").unwrap();
        assert_eq!(stop_pacing(listener.as_fd()), None, "it has no timer");
        // Systems without it, or that do not allow it, have no such port.
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
    fn what_comes_is_split_between_two_places() {
        let reads = reads_of(&[b"ab", b"abcd", b"abcdef", b"abcdefghij"]);
        let expected: [(&[u8], &[u8]); 4] =
            [(b"ab", b""), (b"abcd", b""), (b"abcd", b"ef"), (b"abcd", b"efghij")];
        assert_eq!(reads, expected.map(|(head, body)| (head.to_vec(), body.to_vec())));
        // What is more than both is there next time.
        let reads = reads_of(&[b"abcdefghijklm"]);
        let joined: Vec<u8> = reads.into_iter().flat_map(|(head, body)| [head, body].concat()).collect();
        assert_eq!(joined, b"abcdefghijklm");
    }
}
