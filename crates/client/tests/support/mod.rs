//! A scripted server on the runtime of the test, so that tests control each reply.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use client::codec::{Encode, FixedLayout};
use client::xroot::flags::ServerFlags;
use client::xroot::header::{Handshake, HandshakeReply};
use client::xroot::reply::{self, LoginReply, ProtocolReply, SecurityRequirements};
use client::xroot::request::SegmentList;
use client::xroot::{RequestCode, RequestHeader, SessionId};
use client::{Client, Credentials, Settings, Source, Url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

/// Flags of a data server.
pub(crate) const SERVER: ServerFlags =
    ServerFlags::IS_SERVER.with(ServerFlags::SUPPGRW).with(ServerFlags::SUPPOSC);
pub(crate) const PLAIN: ServerFlags = ServerFlags::IS_SERVER;
pub(crate) const MANAGER: ServerFlags = ServerFlags::IS_MANAGER;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Number of the connection, from 0.
    pub(crate) connection: u32,
    pub(crate) header: RequestHeader,
    pub(crate) payload: Vec<u8>,
}

impl Asked {
    pub(crate) fn code(&self) -> RequestCode {
        self.header.code
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.payload).into_owned()
    }
}

/// The action of the server for a request.
pub(crate) enum Act {
    /// Sends these bytes, possibly none.
    Send(Vec<u8>),
    /// Sends the bytes and closes the connection.
    SendAndClose(Vec<u8>),
    /// Sends the bytes on a signal and nothing else before; never, if the sender is dropped.
    When(oneshot::Receiver<()>, Vec<u8>),
}

impl Act {
    /// Delays the action until the signal.
    pub(crate) fn when(self, told: oneshot::Receiver<()>) -> Self {
        match self {
            Self::Send(bytes) | Self::SendAndClose(bytes) | Self::When(_, bytes) => Self::When(told, bytes),
        }
    }
}

/// Builds a reply of one frame that `frame` appends.
pub(crate) fn send(frame: impl FnOnce(&mut Vec<u8>)) -> Act {
    let mut out = Vec::new();
    frame(&mut out);
    Act::Send(out)
}

pub(crate) fn ok(asked: &Asked, body: &[u8]) -> Act {
    send(|out| reply::ok(out, asked.header.streamid, body))
}

pub(crate) fn silence() -> Act {
    Act::Send(Vec::new())
}

pub(crate) fn close() -> Act {
    Act::SendAndClose(Vec::new())
}

/// Builds the stat text of a file of `size` bytes.
pub(crate) fn stat_text(size: u64) -> Vec<u8> {
    format!("7 {size} 48 99 98 97 0644 me us\0").into_bytes()
}

/// Builds the reply to an open with handle and status.
pub(crate) fn opened(asked: &Asked, handle: u8, size: u64) -> Act {
    ok(asked, &[&[handle, 0, 0, 0][..], &[0; 8], &stat_text(size)].concat())
}

/// What a server announces: its role, its protocols of authentication, and the requests to be signed.
type Announced = (ServerFlags, &'static [u8], Option<SecurityRequirements<'static>>);

/// A running server. Its connections end with the runtime of the test.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    /// All received requests except handshake, protocol and login.
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    pub(crate) connections: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Fake {
    pub(crate) async fn start(
        flags: ServerFlags,
        answer: impl FnMut(&Asked) -> Act + Send + 'static,
    ) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), flags, answer)
    }

    pub(crate) fn listening(
        listener: TcpListener,
        flags: ServerFlags,
        answer: impl FnMut(&Asked) -> Act + Send + 'static,
    ) -> Self {
        Self::offering(listener, flags, b"", answer)
    }

    /// Starts a server that demands authentication by one of the protocols in `security`, if that
    /// is not empty.
    pub(crate) fn offering(
        listener: TcpListener,
        flags: ServerFlags,
        security: &'static [u8],
        answer: impl FnMut(&Asked) -> Act + Send + 'static,
    ) -> Self {
        Self::serving(listener, (flags, security, None), answer)
    }

    /// Starts a server that demands signatures of requests.
    pub(crate) async fn signing(
        requirements: SecurityRequirements<'static>,
        answer: impl FnMut(&Asked) -> Act + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serving(listener, (SERVER, b"", Some(requirements)), answer)
    }

    fn serving(
        listener: TcpListener,
        announced: Announced,
        answer: impl FnMut(&Asked) -> Act + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicU32::new(0));
        let answer = Arc::new(Mutex::new(answer));
        let (noted, count) = (asked.clone(), connections.clone());
        let task = tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            let paths = Paths::default();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = count.fetch_add(1, Ordering::SeqCst);
                let (noted, answer, paths) = (noted.clone(), answer.clone(), paths.clone());
                served.spawn(async move {
                    serve(stream, connection, announced, paths, |asked| {
                        noted.lock().unwrap().push(asked.clone());
                        (answer.lock().unwrap())(asked)
                    })
                    .await;
                });
            }
        });
        Self { address, asked, connections, task }
    }

    /// Closes its port and all its connections.
    pub(crate) async fn stop(self) -> SocketAddr {
        self.task.abort();
        let _ = self.task.await;
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("root://{}/{path}", self.address)).unwrap()
    }

    /// Returns the texts of all requests of a kind, in order.
    pub(crate) fn texts(&self, code: RequestCode) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.code() == code).map(Asked::text).collect()
    }

    pub(crate) fn count(&self, code: RequestCode) -> usize {
        self.texts(code).len()
    }
}

/// The data streams by path id. Each receives the requests whose data it carries.
type Paths = Arc<Mutex<HashMap<u8, mpsc::UnboundedSender<Asked>>>>;

/// Returns the path id of the data stream for a request; `None` for the connection itself.
fn path_of(header: &RequestHeader, payload: &[u8]) -> Option<u8> {
    let path = match header.code {
        RequestCode::READ | RequestCode::PGREAD => payload.first().copied(),
        RequestCode::WRITE | RequestCode::PGWRITE => Some(header.body[12]),
        _ => None,
    };
    path.filter(|path| *path != 0)
}

/// Serves a data stream: it receives payloads and sends replies of requests from the main
/// connection.
async fn serve_path(
    stream: &mut TcpStream,
    mut handed: mpsc::UnboundedReceiver<Asked>,
    mut answer: impl FnMut(&Asked) -> Act,
) {
    while let Some(mut asked) = handed.recv().await {
        if matches!(asked.code(), RequestCode::WRITE | RequestCode::PGWRITE) {
            asked.payload = vec![0; asked.header.payload_bytes().unwrap()];
            stream.read_exact(&mut asked.payload).await.unwrap();
        }
        let (Act::Send(bytes) | Act::SendAndClose(bytes) | Act::When(_, bytes)) = answer(&asked);
        stream.write_all(&bytes).await.unwrap();
    }
}

async fn read_request(stream: &mut TcpStream, connection: u32) -> Option<Asked> {
    let mut header = [0; 24];
    stream.read_exact(&mut header).await.ok()?;
    let header = RequestHeader::from_bytes(&header);
    let elsewhere = matches!(header.code, RequestCode::WRITE | RequestCode::PGWRITE) && header.body[12] != 0;
    let mut payload = vec![0; if elsewhere { 0 } else { header.payload_bytes().unwrap() }];
    stream.read_exact(&mut payload).await.ok()?;
    if header.code == RequestCode::WRITEV {
        let more = SegmentList::new(&payload).total_bytes().unwrap();
        let at = payload.len();
        payload.resize(at + usize::try_from(more).unwrap(), 0);
        stream.read_exact(&mut payload[at..]).await.ok()?;
    }
    Some(Asked { connection, header, payload })
}

async fn serve(
    mut stream: TcpStream,
    connection: u32,
    (flags, security, requirements): Announced,
    paths: Paths,
    mut answer: impl FnMut(&Asked) -> Act,
) {
    let mut handshake = [0; 20];
    if stream.read_exact(&mut handshake).await.is_err() {
        return;
    }
    assert!(Handshake::is(&handshake));
    let role = HandshakeReply::DATA_SERVER;
    let greeting = HandshakeReply { protover: 0x520, role }.encoded();
    stream.write_all(&greeting).await.unwrap();
    while let Some(asked) = read_request(&mut stream, connection).await {
        let mut body = Vec::new();
        let act = match asked.code() {
            RequestCode::PROTOCOL => {
                let security = requirements;
                ProtocolReply { pval: 0x520, flags, bind_interfaces: None, security }.encode(&mut body);
                ok(&asked, &body)
            }
            RequestCode::LOGIN => {
                let id = [u8::try_from(connection + 1).unwrap(); 16];
                LoginReply { sessid: Some(SessionId(id)), security }.encode(&mut body);
                ok(&asked, &body)
            }
            RequestCode::BIND => {
                let path = u8::try_from(connection).unwrap();
                let (hand, handed) = mpsc::unbounded_channel();
                paths.lock().unwrap().insert(path, hand);
                let Act::Send(bytes) = ok(&asked, &[path]) else { return };
                stream.write_all(&bytes).await.unwrap();
                return serve_path(&mut stream, handed, answer).await;
            }
            _ => match path_of(&asked.header, &asked.payload) {
                Some(path) => {
                    paths.lock().unwrap()[&path].send(asked).unwrap();
                    continue;
                }
                None => answer(&asked),
            },
        };
        match act {
            Act::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::SendAndClose(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Act::When(told, bytes) => {
                if told.await.is_ok() && stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Creates a client with these settings.
pub(crate) fn client(settings: &[(&str, &str)]) -> Client {
    let mut all = Settings::default();
    for (name, value) in settings {
        all.set(name, value, Source::Option).unwrap();
    }
    Client::with(all, Credentials::none(), "test")
}
