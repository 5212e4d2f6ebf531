//! The sockets of the cluster's thread: the listening port, connections to parents, receiving and
//! sending.
//!
//! The engine reaches them through the trait `BackgroundOperations`, so that it contains no system
//! calls itself.

use super::cluster_key::{self, ClusterKey};
use super::connection::ConnectionOutbox;
use super::engine::{BackgroundOperations, ClusterEngine, Frames, SharedEngine};
use super::node_login::NodeAuthentication;
use super::settings::Listen;
use crate::admission::run_blocking;
use cluster::tree::limits::{ANSWER_MIN, LOGIN};
use cluster::tree::{Address, ConnectionId};
use net::Admission;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use wire::cms::FrameSplitter;

/// Maximum number of connections waiting to be accepted, because thousands of nodes may start at
/// once. The kernel has its own limit.
const BACKLOG: i32 = 4096;

/// Maximum number of bytes of one read from a socket.
const READ_BYTES: usize = 64 * 1024;

/// Capacity that an outbox keeps after it was sent.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// The time for which pending bytes are sent after a connection is closed.
const PARTING: Duration = Duration::from_secs(2);

/// The backoff after the system had no descriptor for a new connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The maximum time for which a peer waits until it is known whether its host is exempt. Enough of the
/// time for a login must remain, so that nodes with the key can join without a name service.
const EXEMPTION: Duration = Duration::from_secs(1);
const _: () = assert!(
    EXEMPTION.as_millis() * 3 <= ANSWER_MIN.as_millis() && ANSWER_MIN.as_millis() <= LOGIN.as_millis()
);

/// The maximum time in which the kernel detects a peer that vanished.
const SILENCE: Duration = Duration::from_secs(30);

/// Opens the port for other nodes.
pub(super) fn open(listen: Listen) -> io::Result<std::net::TcpListener> {
    let wanted = listen.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let bind = |address: SocketAddr| {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() && listen.address.is_none() {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok::<_, io::Error>(socket.into())
    };
    bind(SocketAddr::new(wanted, listen.port)).or_else(|error| match (listen.address, error.raw_os_error()) {
        // The kernel does not support IPv6: fallback to IPv4.
        (None, Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
            bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listen.port))
        }
        _ => Err(error),
    })
}

/// Accepts connections forever.
pub(super) async fn accept(
    engine: SharedEngine,
    listener: TcpListener,
    admission: Option<Admission>,
) -> Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                spawn_local(admit(engine.clone(), admission.clone(), stream, peer));
            }
            Err(error) => {
                tracing::warn!("a connection to the cluster port could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection if its host may join. It counts among those without a login meanwhile, and
/// ends at their limits and deadline, so a slow name service does not let them accumulate.
async fn admit(engine: SharedEngine, admission: Option<Admission>, stream: TcpStream, peer: SocketAddr) {
    let ip = peer.ip().to_canonical();
    let link = engine.borrow_mut().accepted(SocketAddr::new(ip, peer.port()));
    let outbox = engine.borrow_mut().connection(link).map(|connection| connection.outbox.clone());
    let Some(outbox) = outbox else { return };
    let key = engine.borrow().settings().key.clone();
    let checks = async {
        if let Some(admits) = admission
            && !admits(ip).await
        {
            return false;
        }
        if let Some(key) = key {
            excuse(&engine, link, &key, ip).await;
        }
        true
    };
    tokio::select! {
        biased;
        () = outbox.closed() => {}
        is_admitted = checks => match is_admitted {
            true => drop(attach(&engine, link, stream)),
            false => engine.borrow_mut().not_allowed(link, ip),
        }
    }
}

/// Lets a peer join without authentication if its host is exempt. A look-up that takes too long goes
/// on for the next attempt of the peer.
async fn excuse(engine: &SharedEngine, link: ConnectionId, key: &ClusterKey, ip: IpAddr) {
    let is_exempt = tokio::time::timeout(EXEMPTION, key.exempts(ip)).await.unwrap_or(false);
    if let Some(connection) = engine.borrow_mut().connection(link).filter(|_| is_exempt) {
        connection.authentication = NodeAuthentication::Over;
    }
}

/// Reads the key table again at its interval. Each error is logged once while it lasts.
pub(super) async fn refresh(key: Arc<ClusterKey>) -> Infallible {
    let mut logged = None;
    loop {
        tokio::time::sleep(cluster_key::REFRESH).await;
        let read = key.clone();
        let result = run_blocking(move || read.refresh()).await;
        let error = result
            .unwrap_or_else(|| Err("scalla.clusterkey: there is no thread to read it".to_owned()))
            .err();
        if error != logged
            && let Some(error) = &error
        {
            tracing::error!("cluster: {error}");
        }
        logged = error;
    }
}

/// Opens connections, looks up names and makes credentials for the engine.
pub(super) struct Dialer(pub(super) Weak<RefCell<ClusterEngine>>);

impl BackgroundOperations for Dialer {
    fn connect(&self, link: ConnectionId, address: Address) {
        if let Some(engine) = self.0.upgrade() {
            // The task itself detects that the connection was removed.
            spawn_local(connect(engine, link, address));
        }
    }

    fn look_up(&self, link: ConnectionId, host: String) {
        if let Some(engine) = self.0.upgrade() {
            spawn_local(look_up(engine, link, host));
        }
    }

    fn authenticate(&self, link: ConnectionId, challenge: Vec<u8>, local: SocketAddr) {
        if let Some(engine) = self.0.upgrade() {
            spawn_local(authenticate(engine, link, challenge, local));
        }
    }
}

/// Opens a connection to a parent and reports the result to the engine.
async fn connect(engine: SharedEngine, link: ConnectionId, address: Address) {
    match dial(&address).await {
        Ok((stream, own)) => {
            if let Some(connection) = engine.borrow_mut().connection(link) {
                connection.other_addresses = own;
                connection.local = stream.local_addr().ok();
            }
            if attach(&engine, link, stream) {
                engine.borrow_mut().connected(link);
            }
        }
        Err(error) => {
            tracing::debug!("{address} cannot be reached: {error}");
            engine.borrow_mut().unreached(link, &error);
        }
    }
}

/// Connects to the first address of the host that answers. Also returns the addresses of this node
/// that face those of the host. The engine sets the deadline.
async fn dial(address: &Address) -> io::Result<(TcpStream, Vec<IpAddr>)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name leads to no address");
    let unknown =
        |error: io::Error| io::Error::new(error.kind(), format!("its name cannot be looked up: {error}"));
    let there: Vec<SocketAddr> =
        tokio::net::lookup_host((address.host(), address.port())).await.map_err(unknown)?.collect();
    for address in &there {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok((stream, facing(&there))),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the source addresses of this host for connections to these. It sends nothing.
fn facing(there: &[SocketAddr]) -> Vec<IpAddr> {
    let mut own = Vec::new();
    for peer in there {
        let any: IpAddr =
            if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let bound = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(peer)?;
            socket.local_addr()
        });
        if let Ok(address) = bound
            && !address.ip().is_loopback()
            && !own.contains(&address.ip())
        {
            own.push(address.ip());
        }
    }
    own
}

/// Looks up the addresses of the other family of a node. They count only if the name of the node
/// also resolves to the address of the connection.
async fn look_up(engine: SharedEngine, link: ConnectionId, host: String) {
    let Ok(found) = tokio::net::lookup_host((host, 0)).await else { return };
    let found: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
    engine.borrow_mut().named(link, &found);
}

/// Makes credentials for a parent on another thread, because that reads the key table. There is one
/// such thread at a time, so that attempts do not accumulate while the file cannot be read.
async fn authenticate(engine: SharedEngine, link: ConnectionId, challenge: Vec<u8>, local: SocketAddr) {
    let Some(key) = engine.borrow().settings().key.clone() else { return };
    let making = async {
        let Some(turn) = key.turn_to_read().await else {
            return Err(
                "it asks for credentials, and the key table (scalla.clusterkey) cannot be read in time"
                    .to_owned(),
            );
        };
        let make = move || {
            let made = key.credentials(&challenge, local, SystemTime::now());
            drop(turn);
            made
        };
        run_blocking(make).await.unwrap_or_else(|| Err("there is no thread to make credentials".to_owned()))
    };
    let credentials = making.await;
    engine.borrow_mut().proved(link, credentials);
}

/// Spawns the tasks of a connection. Returns `false` if the engine has removed it.
fn attach(engine: &SharedEngine, link: ConnectionId, stream: TcpStream) -> bool {
    if let Err(error) = prepare(&stream) {
        tracing::debug!("a cluster connection cannot be set up fully: {error}");
    }
    let (from, to) = stream.into_split();
    let mut borrowed = engine.borrow_mut();
    let Some(connection) = borrowed.connection(link) else { return false };
    spawn_local(send(Rc::downgrade(engine), link, connection.outbox.clone(), to));
    let receiving = spawn_local(receive(engine.clone(), link, from));
    connection.keep(receiving.abort_handle());
    drop(borrowed);
    let engine = engine.clone();
    spawn_local(async move {
        if receiving.await.is_err_and(|error| error.is_panic()) {
            tracing::error!("cluster: a connection led to a panic, and is closed");
            engine.borrow_mut().ended(link);
        }
    });
    true
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE / 2).with_interval(SILENCE / 6))?;
    socket.set_tcp_user_timeout(Some(SILENCE))
}

/// Receives bytes and passes each frame to the engine, until the end.
async fn receive(engine: SharedEngine, link: ConnectionId, mut from: OwnedReadHalf) {
    let mut splitter = FrameSplitter::new(match engine.borrow_mut().stage(link) {
        Some(stage) => stage.phase(),
        None => return,
    });
    loop {
        match read(&mut from, &mut splitter).await {
            Ok(0) => break,
            Ok(count) => {
                let mut more = None;
                loop {
                    let frames = engine.borrow_mut().arrived(link, &mut splitter);
                    match frames {
                        Frames::AllTaken => break,
                        Frames::More => {
                            more.get_or_insert_with(|| engine.borrow_mut().note_more_frames(link));
                            tokio::task::yield_now().await;
                        }
                        Frames::Ended => return,
                    }
                }
                drop(more);
                if count == READ_BYTES {
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => {
                tracing::debug!("a cluster connection broke: {error}");
                break;
            }
        }
    }
    engine.borrow_mut().ended(link);
}

thread_local! {
    /// The receive buffer of all connections, which share one thread.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Waits for bytes and passes them to the splitter. Returns their number, 0 at the end.
///
/// A read that does not fill the buffer has emptied the socket, and Tokio waits for the next event
/// without another read. (`readable` and `try_read` would read once more.)
async fn read(from: &mut OwnedReadHalf, splitter: &mut FrameSplitter) -> io::Result<usize> {
    poll_fn(|context| {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            ready!(Pin::new(&mut *from).poll_read(context, &mut buffer))?;
            splitter.push(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    })
    .await
}

/// Sends the content of an outbox until it is closed, then the remainder within a deadline.
async fn send(
    engine: Weak<RefCell<ClusterEngine>>,
    link: ConnectionId,
    outbox: Rc<ConnectionOutbox>,
    mut to: OwnedWriteHalf,
) {
    let mut batch = Vec::new();
    let mut sending = std::pin::pin!(async {
        while outbox.take(&mut batch).await {
            to.write_all(&batch).await?;
            batch.clear();
            if batch.capacity() > KEPT_BYTES_MAX {
                batch = Vec::new();
            }
        }
        to.shutdown().await
    });
    let sent = tokio::select! {
        biased;
        sent = &mut sending => sent,
        () = outbox.closed() => tokio::time::timeout(PARTING, sending).await.unwrap_or(Ok(())),
    };
    if sent.is_err()
        && let Some(engine) = engine.upgrade()
    {
        engine.borrow_mut().ended(link);
    }
}
