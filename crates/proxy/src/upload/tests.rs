//! Tests of files that are written, at a scripted store or web server.

use crate::address::tests::proxy;
use crate::limits::Requester;
use crate::open_file::{CacheUse, ProxiedFile};
use crate::origin::{OriginDialer, OriginServer};
use crate::origin_file::http_support::{Action, FakeHttp, Received, reply};
use crate::place::RequestFailure;
use crate::remote_file::RemoteFile;
use crate::settings::ProxyConfig;
use base::{ClientHost, ErrorKind, Identity, LogicalPath, LoginNames, Owner};
use client::http::ObjectStore;
use client::xroot::flags::OpenOptions;
use client::{Bytes, ListingMemory, OpenWith, Url};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use vfs::{Answer, Caller, FileOperation, Mailbox, OpenFile, ReplyTo, ReplyToken};

const REQUESTER: Requester = Requester { owner: Owner(1), host: ClientHost::Unknown };
const PATIENCE: Duration = Duration::from_secs(60);
const PART: usize = 8 << 20;

/// Answers as an empty store does, and stalls requests of the method `stalls`.
fn store(request: &Received, stalls: &str) -> Vec<Action> {
    let target = request.target();
    match request.method() {
        method if method == stalls => vec![Action::Hang],
        "GET" => reply("200 OK", "", b"<ListBucketResult></ListBucketResult>"),
        "HEAD" => reply("404 Not Found", "", b""),
        "POST" if target.contains("uploads=") => reply("200 OK", "", b"<R><UploadId>u1</UploadId></R>"),
        "POST" => reply("200 OK", "", b"<CompleteMultipartUploadResult/>"),
        "PUT" => reply("200 OK", "ETag: \"1\"\r\n", b""),
        _ => reply("204 No Content", "", b""),
    }
}

/// Opens a file to replace it, with an announced size, in a store or at a web server.
async fn open(server: &FakeHttp, size: &str, in_store: bool) -> RemoteFile {
    let mut url: Url = server.url("/b/f");
    url.cgi.insert("oss.asize".to_owned(), size.to_owned());
    let listings = ListingMemory::new(1000);
    let store = in_store.then(|| ObjectStore::new(&url, "b", "r", None));
    let config = Arc::new(ProxyConfig { store, ..proxy(Some(&url.to_string()), true) });
    let origin = OriginServer::new(&url, OriginDialer::fixed(&config, Handle::current(), &listings));
    let with = OpenWith::options(OpenOptions::UPDT.with(OpenOptions::DELETE));
    RemoteFile::open(origin, url, with, REQUESTER).await.unwrap()
}

fn part() -> Bytes {
    vec![7; PART].into()
}

async fn wait_until(mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_shorter_than_announced_does_not_appear() {
    for (size, in_store) in [("10", true), ("1k", true), ("10", false)] {
        let server = FakeHttp::start(|request| store(request, "none")).await;
        let file = open(&server, size, in_store).await;
        file.write(0, Bytes::from_static(b"12345")).await.unwrap();
        let failure = file.close().await.unwrap_err();
        let text = failure.to_error("close", &LogicalPath::parse(b"/f").unwrap()).to_string();
        let bytes = if size == "10" { "5 of the 10 bytes" } else { "5 of the 1024 bytes" };
        assert!(text.contains(bytes), "{text}");
        assert!(server.requests("PUT").is_empty());
        // More than announced is a file.
        let file = open(&server, "4", in_store).await;
        file.write(0, Bytes::from_static(b"12345")).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(server.requests("PUT").len(), 1);
    }
}

#[tokio::test]
async fn a_file_in_parts_that_is_shorter_than_announced_does_not_appear() {
    let server = FakeHttp::start(|request| store(request, "none")).await;
    let file = open(&server, "9m", true).await;
    file.write(0, part()).await.unwrap();
    file.close().await.unwrap_err();
    wait_until(|| !server.requests("DELETE").is_empty()).await;
    let completed = |head: &String| head.contains("uploadId=");
    assert!(!server.requests("POST").iter().any(completed));
}

#[tokio::test]
async fn no_close_waits_for_the_removal_of_parts() {
    let server = FakeHttp::start(|request| store(request, "DELETE")).await;
    let file = open(&server, "9m", true).await;
    file.write(0, part()).await.unwrap();
    file.write(0, Bytes::from_static(b"sent")).await.unwrap_err();
    let closed = tokio::time::timeout(PATIENCE, file.close()).await.unwrap();
    assert!(matches!(closed, Err(RequestFailure::Incomplete)));
    wait_until(|| !server.requests("DELETE").is_empty()).await;
}

/// Passes answers to the test.
struct Post(tokio::sync::mpsc::UnboundedSender<Answer>);

impl Mailbox for Post {
    fn deliver(&self, _: ReplyToken, answer: Answer) {
        self.0.send(answer).ok();
    }
}

#[tokio::test]
async fn writes_of_a_client_that_has_left_end() {
    let server = FakeHttp::start(|request| store(request, "PUT")).await;
    let remote = Arc::new(open(&server, "9m", true).await);
    let names = LoginNames { user: "u", host: "h", ..LoginNames::default() };
    let caller = Arc::new(Caller::new(Identity::new(&names, 7, None, "host"), true, false));
    let path = LogicalPath::parse(b"/f").unwrap();
    let context = (caller.clone(), None, Handle::current());
    let file = ProxiedFile::new(path, remote, CacheUse::default(), (true, false), context);
    let (send, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let reply = ReplyTo::new(Arc::new(Post(send)), ReplyToken { owner: 1, call: 1 });
    file.start(FileOperation::Write { buffer: vec![7; PART], offset: 0, checkpoint: false }, &reply);
    wait_until(|| !server.requests("PUT").is_empty()).await;
    caller.disconnect();
    file.interrupt();
    let ended = tokio::time::timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
    assert!(matches!(ended, Answer::Error(error) if error.kind == ErrorKind::Cancelled));
    file.start(FileOperation::Abandon, &reply);
    let ended = tokio::time::timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
    assert!(matches!(ended, Answer::Value(_)));
    wait_until(|| !server.requests("DELETE").is_empty()).await;
}
