//! A scripted HTTP server.

#![allow(dead_code, clippy::unwrap_used)]

use base::SplitMix64;
use client::{Client, Credentials, Settings};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Headers that show a version.
pub(crate) const VERSION: &str =
    "ETag: \"v1\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nAccept-Ranges: bytes\r\n";

/// Returns a client without patience.
pub(crate) fn client() -> Client {
    let mut settings = Settings::default();
    settings.stream_timeout = 2;
    settings.connection_window = 4;
    Client::with(settings, Credentials::none(), "test")
}

/// Returns the content of a file.
pub(crate) fn content(size: usize) -> Vec<u8> {
    let mut rng = SplitMix64::new(7);
    (0..size).map(|_| rng.draw().to_le_bytes()[0]).collect()
}

/// What the server does with a request.
pub(crate) enum Action {
    Send(Vec<u8>),
    /// Sends these bytes one by one, with a pause after each.
    Drip(Vec<u8>, Duration),
    Close,
    /// Never answers.
    Hang,
}

/// A request: the number of its connection, its number on that, and its head.
pub(crate) struct Received {
    pub(crate) connection: usize,
    pub(crate) number: usize,
    pub(crate) head: String,
}

impl Received {
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Returns the first and the last byte of the range.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}

pub(crate) fn send(text: impl AsRef<[u8]>) -> Vec<Action> {
    vec![Action::Send(text.as_ref().to_vec())]
}

/// Returns a reply without a body.
pub(crate) fn head(status: &str, headers: &str) -> Vec<Action> {
    send(format!("HTTP/1.1 {status}\r\n{headers}\r\n"))
}

/// Returns a reply with a body and its length.
pub(crate) fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<Action> {
    let mut text =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len()).into_bytes();
    text.extend_from_slice(body);
    send(text)
}

/// Answers as a server with one file does.
pub(crate) fn file(request: &Received, content: &[u8], headers: &str) -> Vec<Action> {
    match (request.method(), request.range()) {
        ("HEAD", _) => head("200 OK", &format!("Content-Length: {}\r\n{headers}", content.len())),
        ("GET", Some((first, last))) => {
            let last = last.min(content.len() - 1);
            let range = format!("Content-Range: bytes {first}-{last}/{}\r\n{headers}", content.len());
            reply("206 Partial Content", &range, &content[first..=last])
        }
        ("GET", None) => reply("200 OK", headers, content),
        _ => reply("501 Not Implemented", "", b""),
    }
}

type HttpScript = dyn Fn(&Received) -> Vec<Action> + Send + Sync;

/// A server that ends with its runtime.
pub(crate) struct FakeHttp {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl FakeHttp {
    pub(crate) async fn start(script: impl Fn(&Received) -> Vec<Action> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
        let (script, seen, count): (Arc<HttpScript>, _, _) =
            (Arc::new(script), heads.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(stream, number, script.clone(), seen.clone()));
            }
        });
        Self { address, heads, connections }
    }

    pub(crate) fn url(&self, path: &str) -> client::Url {
        client::Url::parse(&format!("http://{}/{path}", self.address)).unwrap()
    }

    /// Returns the requests of a method.
    pub(crate) fn requests(&self, method: &str) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        heads.iter().filter(|head| head.starts_with(method)).cloned().collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(
    mut stream: TcpStream,
    connection: usize,
    script: Arc<HttpScript>,
    heads: Arc<Mutex<Vec<String>>>,
) {
    let mut received = Vec::new();
    for number in 0.. {
        let end = loop {
            if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&received[..end]).into_owned();
        let request = Received { connection, number, head };
        let body = request.header("content-length").map_or(0, |length| length.parse().unwrap());
        while received.len() < end + body {
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        }
        received.drain(..end + body);
        heads.lock().unwrap().push(request.head.clone());
        for action in script(&request) {
            match action {
                Action::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Action::Drip(bytes, pause) => {
                    for byte in bytes {
                        if stream.write_all(&[byte]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(pause).await;
                    }
                }
                Action::Close => return,
                Action::Hang => std::future::pending().await,
            }
        }
    }
}
