//! Files of HTTP servers, at a scripted server.

#![allow(clippy::unwrap_used)]

mod http_support;

use client::xroot::ErrorCode;
use client::{AddressFilter, Cause, Client, Credentials, ListWith, RequestPacing, Settings, Source, Url};
use http_support::{Action, FakeHttp, Received, VERSION, client, content, file, head, reply, send};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The range of the request of an open.
const FIRST_BYTE: Option<(usize, usize)> = Some((0, 0));

/// Starts a server with one file.
async fn start(size: usize) -> (FakeHttp, Vec<u8>) {
    let content = content(size);
    let served = content.clone();
    (FakeHttp::start(move |request| file(request, &served, VERSION)).await, content)
}

#[tokio::test]
async fn a_file_has_the_size_time_and_identity_that_the_server_shows() {
    let (server, content) = start(100_000).await;
    let client = client();
    let file = client.open_http(&server.url("/d/a b")).await.unwrap();
    let stat = file.stat_at_open().clone();
    assert_eq!((stat.size, stat.mtime, stat.is_file(), stat.id != 0), (100_000, 784_111_777, true, true));
    assert!(file.has_version());
    for (offset, length, expected) in [
        (0, 10, &content[..10]),
        (99_990, 100, &content[99_990..]),
        (100_000, 5, &[][..]),
        (u64::MAX, 5, &[][..]),
        (7, 0, &[][..]),
        (0, 200_000, &content[..]),
    ] {
        assert_eq!(file.read(offset, length).await.unwrap(), expected, "{offset} {length}");
    }
    assert_eq!(server.connections(), 1, "the connection is kept");
    assert!(client.is_connected(&server.url("")));
    let requests = server.requests("GET");
    assert!(requests[0].starts_with("GET /d/a%20b HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(
        requests[1].contains("Range: bytes=0-9\r\n") && requests[1].contains("Accept-Encoding: identity\r\n")
    );
    client.forget_connections();
    file.read(0, 10).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn headers_may_arrive_in_pieces() {
    let content = content(30);
    let server = FakeHttp::start(move |request| {
        let actions = file(request, &content, VERSION).into_iter();
        actions
            .map(|action| match action {
                Action::Send(bytes) => Action::Drip(bytes, Duration::from_millis(1)),
                other => other,
            })
            .collect()
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert_eq!(file.read(3, 20).await.unwrap().len(), 20);
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_replaced() {
    let content = content(100);
    let served = content.clone();
    // Each connection ends with its second request, without a reply.
    let server = FakeHttp::start(move |request| match request.number {
        0 => file(request, &served, VERSION),
        _ => vec![Action::Close],
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    for offset in 0..5 {
        assert_eq!(file.read(offset, 10).await.unwrap(), content[offset as usize..][..10]);
    }
    assert_eq!(server.connections(), 6);
}

#[tokio::test]
async fn a_server_that_closes_each_connection_is_an_error() {
    let server = FakeHttp::start(|_| vec![Action::Close]).await;
    let error = client().open_http(&server.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Lost(_)), "{error}");
    assert_eq!(server.connections(), 1);
    assert_eq!(error.failure().server.as_deref(), Some(server.address.to_string().as_str()));
}

#[tokio::test]
async fn a_transfer_that_breaks_off_is_continued() {
    let content = content(100);
    let served = content.clone();
    let server = FakeHttp::start(move |request| {
        let actions = file(request, &served, VERSION);
        if request.range() == FIRST_BYTE {
            return actions;
        }
        let Some(Action::Send(bytes)) = actions.into_iter().next() else { return Vec::new() };
        vec![Action::Send(bytes[..bytes.len() - 20].to_vec()), Action::Close]
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    let error = file.read(0, 20).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Lost(_)), "{error}");
    assert!(file.read(0, 40).await.is_err(), "the last bytes never arrive");
    assert_eq!(server.requests("GET").len(), 1 + 3 + 3);
    assert!(server.requests("GET")[5].contains("bytes=20-39"), "it continues where it broke off");
}

/// Opens a file of 100 bytes, and reads 10 of them, which the server answers with `answer`.
async fn read_with(answer: impl Fn(&Received) -> Vec<Action> + Send + Sync + 'static) -> Cause {
    let content = content(100);
    let server = FakeHttp::start(move |request| match request.range() {
        FIRST_BYTE => file(request, &content, VERSION),
        _ => answer(request),
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    file.read(10, 10).await.unwrap_err().cause().clone()
}

/// Returns the reply with this range and body.
fn part(range: &str, body: &[u8]) -> Vec<Action> {
    reply("206 Partial Content", &format!("Content-Range: {range}\r\n{VERSION}"), body)
}

#[tokio::test]
async fn replies_that_are_not_the_range_are_errors() {
    for range in
        ["bytes 0-9/100", "bytes 10-20/100", "bytes 11-19/100", "bytes 19-10/100", "nonsense", "bytes */100"]
    {
        let cause = read_with(move |_| part(range, &[7; 10])).await;
        assert!(matches!(cause, Cause::BadAnswer(_)), "{range}: {cause}");
    }
    let without_range = |_: &Received| reply("206 Partial Content", VERSION, &[7; 10]);
    assert!(matches!(read_with(without_range).await, Cause::BadAnswer(_)));
    let contradicting = |_: &Received| part("bytes 10-19/100", &[7; 11]);
    assert!(matches!(read_with(contradicting).await, Cause::BadAnswer(_)));
    let compressed = |_: &Received| {
        reply("206 Partial Content", "Content-Range: bytes 10-19/100\r\nContent-Encoding: gzip\r\n", &[7; 10])
    };
    assert!(matches!(read_with(compressed).await, Cause::BadAnswer(_)));
    let two = |_: &Received| {
        let headers = "Content-Range: bytes 10-19/100\r\nContent-Range: bytes 0-9/100\r\n";
        reply("206 Partial Content", headers, &[7; 10])
    };
    assert!(matches!(read_with(two).await, Cause::BadAnswer(_)));
}

#[tokio::test]
async fn a_longer_body_than_announced_is_an_error() {
    let longer = |_: &Received| {
        let head = "HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n";
        send(format!("{head}Content-Range: bytes 10-19/100\r\n\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"))
    };
    let cause = read_with(longer).await;
    assert!(matches!(&cause, Cause::BadAnswer(text) if text.contains("more bytes")), "{cause}");
}

#[tokio::test]
async fn another_version_is_never_read() {
    let size = |_: &Received| part("bytes 10-19/101", &[7; 10]);
    let tag = |_: &Received| {
        reply("206 Partial Content", "Content-Range: bytes 10-19/100\r\nETag: \"v2\"\r\n", &[7; 10])
    };
    let time = |_: &Received| {
        let headers = "Content-Range: bytes 10-19/100\r\nLast-Modified: Mon, 07 Nov 1994 08:49:37 GMT\r\n";
        reply("206 Partial Content", headers, &[7; 10])
    };
    let shorter = |_: &Received| reply("416 Range Not Satisfiable", "Content-Range: bytes */5\r\n", b"");
    let whole = |_: &Received| reply("200 OK", "ETag: \"v2\"\r\n", &[7; 100]);
    for cause in [
        read_with(size).await,
        read_with(tag).await,
        read_with(time).await,
        read_with(shorter).await,
        read_with(whole).await,
    ] {
        assert!(matches!(cause, Cause::Changed(_)), "{cause}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_ranges_serves_whole_files_only() {
    let cause = read_with(|_| reply("200 OK", VERSION, &content(100))).await;
    assert!(matches!(&cause, Cause::Unsupported(text) if text.contains("ignores ranges")), "{cause}");
    let content = content(100);
    let served = content.clone();
    let server = FakeHttp::start(move |request| match request.method() {
        "GET" => reply("200 OK", VERSION, &served),
        _ => file(request, &served, VERSION),
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert_eq!(file.read(0, 1000).await.unwrap(), content);
    let server = FakeHttp::start(|_| reply("200 OK", "Accept-Ranges: none\r\n", b"")).await;
    let error = client().open_http(&server.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Unsupported(_)), "{error}");
}

fn redirect(status: u16, location: impl std::fmt::Display) -> Vec<Action> {
    reply(&format!("{status} Moved"), &format!("Location: {location}\r\n"), b"elsewhere")
}

#[tokio::test]
async fn redirects_are_followed_without_secrets() {
    let (end, content) = start(100).await;
    let target = format!("http://{}/f?signature=s", end.address);
    let server = FakeHttp::start(move |request| match request.target() {
        "/start" => redirect(307, "/next"),
        _ => redirect(302, &target),
    })
    .await;
    let mut url = server.url("/start");
    url.merge_cgi("authz=Bearer%20secret");
    let file = client().open_http(&url).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), content[..10]);
    assert_eq!(file.location().authority(), end.address.to_string());
    // Later requests begin where the first one has arrived.
    file.read(10, 10).await.unwrap();
    assert_eq!(server.requests("").len(), 2);
    for request in server.requests("") {
        assert!(
            request.contains("Authorization: Bearer secret\r\n") && !request.contains("authz"),
            "{request}"
        );
    }
    for request in end.requests("") {
        assert!(!request.contains("secret") && request.contains(" /f?signature=s "), "{request}");
    }
    let error = format!("{:?} {file:?}", client().open_http(&Url { port: 1, ..url }).await.unwrap_err());
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_file_returns_to_its_url_when_the_place_of_a_redirect_refuses_it() {
    let content = content(100);
    let is_expired = Arc::new(AtomicBool::new(false));
    let (served, expired) = (content.clone(), is_expired.clone());
    let server = FakeHttp::start(move |request| match request.target() {
        "/start" if expired.load(Ordering::Relaxed) => redirect(302, "/new"),
        "/start" => redirect(302, "/old"),
        "/old" if expired.load(Ordering::Relaxed) => reply("403 Forbidden", "", b"expired"),
        _ => file(request, &served, VERSION),
    })
    .await;
    let file = client().open_http(&server.url("/start")).await.unwrap();
    is_expired.store(true, Ordering::Relaxed);
    assert_eq!(file.read(0, 10).await.unwrap(), content[..10]);
    assert!(server.requests("GET").last().unwrap().starts_with("GET /new "));
}

#[tokio::test]
async fn redirects_have_an_end() {
    let circle = FakeHttp::start(|request| match request.target() {
        "/a" => redirect(301, "/b"),
        _ => redirect(308, "/a"),
    })
    .await;
    let error = client().open_http(&circle.url("/a")).await.unwrap_err();
    assert_eq!(error.cause(), &Cause::RedirectLoop);
    let endless = FakeHttp::start(|request| redirect(302, format!("{}x", request.target()))).await;
    let error = client().open_http(&endless.url("/a")).await.unwrap_err();
    assert_eq!(error.cause(), &Cause::RedirectLimit(10));
    assert_eq!(endless.requests("GET").len(), 11);
    for location in ["ftp://h/f", "file:///etc/passwd", "http://user@h/f"] {
        let server = FakeHttp::start(move |_| redirect(302, location)).await;
        let error = client().open_http(&server.url("/a")).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::BadRedirect(_)), "{error}");
    }
    let nowhere = FakeHttp::start(|_| reply("302 Found", "", b"")).await;
    let error = client().open_http(&nowhere.url("/a")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::BadRedirect(_)), "{error}");
}

#[tokio::test]
async fn each_address_on_the_way_must_be_allowed() {
    let (end, _) = start(100).await;
    let port = end.address.port();
    let server = FakeHttp::start(move |_| redirect(302, format!("http://localhost:{port}/f"))).await;
    let filter = AddressFilter::new(|host, address| match host {
        "127.0.0.1" => Ok(vec![address]),
        _ => Err(format!("{host} is not permitted")),
    });
    let client = Client::for_server(Settings::default(), "test", filter, None, Credentials::none());
    let error = client.open_http(&server.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::NotAllowed(_)), "{error}");
    assert_eq!(error.failure().hops, [server.address.to_string()]);
    assert_eq!(end.connections(), 0);
}

#[tokio::test]
async fn a_slow_server_is_waited_for_and_a_silent_one_is_not() {
    let content = content(40);
    let served = content.clone();
    let server = FakeHttp::start(move |request| match (request.method(), request.range()) {
        ("GET", Some((0, 39))) => {
            let Some(Action::Send(bytes)) = file(request, &served, VERSION).into_iter().next() else {
                return Vec::new();
            };
            vec![Action::Drip(bytes, Duration::from_millis(10))]
        }
        ("GET", Some((1, _))) => vec![
            Action::Send(b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 1-9/40\r\n".to_vec()),
            Action::Send(b"Content-Length: 9\r\n\r\n123".to_vec()),
            Action::Hang,
        ],
        _ => file(request, &served, VERSION),
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert_eq!(file.read(0, 40).await.unwrap(), content);
    let error = file.read(1, 9).await.unwrap_err();
    assert_eq!(error.cause(), &Cause::TimedOut(2), "{error}");
}

/// A request that never gets its turn.
struct NoTurn;

impl RequestPacing for NoTurn {
    fn sent(&self) {}

    fn ended(&self) {}

    fn pause(&self) {}

    fn resume(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_request_waits_for_its_turn_until_its_deadline() {
    let (server, _) = start(100).await;
    let mut settings = Settings::default();
    settings.set("RequestTimeout", "1", Source::Option).unwrap();
    let client = Client::with(settings, Credentials::none(), "test").paced(Arc::new(NoTurn));
    let error = client.open_http(&server.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::TimedOut(_)), "{error}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn headers_are_limited() {
    let long = FakeHttp::start(|_| head("200 OK", &format!("X: {}\r\n", "x".repeat(100_000)))).await;
    let error = client().open_http(&long.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::TooLarge(_)), "{error}");
    let many = FakeHttp::start(|_| head("200 OK", &"X: y\r\n".repeat(200))).await;
    let error = client().open_http(&many.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::TooLarge(_) | Cause::BadAnswer(_)), "{error}");
    let other = FakeHttp::start(|_| send("220 mail.example.org ESMTP\r\n")).await;
    let error = client().open_http(&other.url("/f")).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::BadAnswer(_)), "{error}");
}

#[tokio::test]
async fn statuses_are_errors_with_a_code() {
    for (status, code) in [
        ("404 Not Found", ErrorCode::NOT_FOUND),
        ("410 Gone", ErrorCode::NOT_FOUND),
        ("403 Forbidden", ErrorCode::NOT_AUTHORIZED),
        ("500 Oops", ErrorCode::SERVER_ERROR),
        ("503 Busy", ErrorCode::OVERLOADED),
        ("429 Slow Down", ErrorCode::OVERLOADED),
    ] {
        let server = FakeHttp::start(move |_| head(status, "Content-Length: 0\r\n")).await;
        let error = client().open_http(&server.url("/f")).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{status}: {error}");
        assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    }
    let server = FakeHttp::start(|_| head("401 Unauthorized", "Content-Length: 0\r\n")).await;
    let error = client().open_http(&server.url("/f")).await.unwrap_err();
    assert!(
        matches!(error.cause(), Cause::NotAuthenticated(text) if text.contains("BEARER_TOKEN")),
        "{error}"
    );
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says() {
    let (is_busy, content) = (AtomicBool::new(true), content(100));
    let served = content.clone();
    let server = FakeHttp::start(move |request| match is_busy.swap(false, Ordering::Relaxed) {
        true => reply("503 Service Unavailable", "Retry-After: 0\r\n", b"later"),
        false => file(request, &served, VERSION),
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert_eq!(file.stat_at_open().size, 100);
    for pause in [86_400, u64::MAX] {
        let busy =
            move |_: &Received| head("429 Busy", &format!("Retry-After: {pause}\r\nContent-Length: 0\r\n"));
        let server = FakeHttp::start(busy).await;
        let error = client().open_http(&server.url("/f")).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Expired { seconds, .. } if *seconds == pause), "{error}");
    }
}

#[tokio::test]
async fn directories_are_recognized() {
    let server = FakeHttp::start(|request| match request.target() {
        "/d" => redirect(301, "/d/"),
        _ => head("403 Forbidden", "Content-Length: 0\r\n"),
    })
    .await;
    let files = client().http_files(&server.url("/"));
    assert!(files.stat("/d").await.unwrap().is_dir());
    let error = client().open_http(&server.url("/d")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::IS_DIRECTORY));
}

/// Returns a listing of WebDAV.
fn multistatus(entries: &[(&str, &str)]) -> String {
    let entry = |(path, properties): &(&str, &str)| {
        format!(
            "<D:response><D:href>{path}</D:href><D:propstat><D:prop>{properties}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        )
    };
    let entries: String = entries.iter().map(entry).collect();
    format!("<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">{entries}</D:multistatus>")
}

const DIRECTORY: &str = "<D:resourcetype><D:collection/></D:resourcetype>";

#[tokio::test]
async fn directories_are_listed_by_webdav() {
    let size = "<D:getcontentlength>7</D:getcontentlength>";
    let text = multistatus(&[("/d/", DIRECTORY), ("/d/e/", DIRECTORY), ("http://h/d/a%20b", size)]);
    let server = FakeHttp::start(move |request| {
        assert_eq!((request.target(), request.header("depth")), ("/d/", Some("1")));
        // In chunks that split the elements.
        let body: String = text
            .as_bytes()
            .chunks(7)
            .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
            .collect();
        send(format!("HTTP/1.1 207 Multi-Status\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n"))
    })
    .await;
    let files = client().http_files(&server.url("/"));
    let with = ListWith { stat: true, ..ListWith::default() };
    let entries = files.list_entries("/d", &with).await.unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.name.to_string(), entry.stat.map(|stat| (stat.size, stat.is_dir()))))
        .collect();
    assert_eq!(found, [("a b".to_owned(), Some((7, false))), ("e".to_owned(), Some((0, true)))]);
    let names = files.list_entries("/d", &ListWith::default()).await.unwrap();
    assert!(names.iter().all(|entry| entry.stat.is_none()) && names.iter().count() == 2);
}

#[tokio::test]
async fn a_listing_never_leads_out_of_its_directory() {
    for path in ["/other", "/d/../x", "/d/%2e%2e", "/d/a%2fb", "/d/a/b", "/"] {
        let text = multistatus(&[("/d/", DIRECTORY), (path, "")]);
        let server = FakeHttp::start(move |_| reply("207 Multi-Status", "", text.as_bytes())).await;
        let files = client().http_files(&server.url("/"));
        let error = files.list_entries("/d", &ListWith::default()).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::BadAnswer(_)), "{path}: {error}");
    }
}

/// Also an empty directory is an entry of its listing. Without it, entries may be missing.
#[tokio::test]
async fn a_listing_without_any_entry_is_no_empty_directory() {
    for (entries, expected) in [(vec![], None), (vec![("/d/", DIRECTORY)], Some(0))] {
        let text = multistatus(&entries);
        let server = FakeHttp::start(move |_| reply("207 Multi-Status", "", text.as_bytes())).await;
        let files = client().http_files(&server.url("/"));
        let found = files.list_entries("/d", &ListWith::default()).await;
        assert_eq!(found.ok().map(|entries| entries.iter().count()), expected);
    }
}

#[tokio::test]
async fn a_listing_is_limited() {
    let server = FakeHttp::start(|request| match request.target() {
        "/text/" => reply(
            "207 Multi-Status",
            "",
            format!("<D:multistatus xmlns:D=\"DAV:\" x=\"{}", "x".repeat(1 << 20)).as_bytes(),
        ),
        _ => {
            let entries: Vec<_> = (0..2000).map(|number| format!("/d/{number}")).collect();
            let entries: Vec<_> = entries.iter().map(|path| (path.as_str(), "")).collect();
            reply("207 Multi-Status", "", multistatus(&entries).as_bytes())
        }
    })
    .await;
    let mut settings = Settings::default();
    settings.listing_bytes = 20_000;
    let client = Client::with(settings, Credentials::none(), "test");
    let files = client.http_files(&server.url("/"));
    let with = ListWith { stat: true, ..ListWith::default() };
    let error = files.list_entries("/d", &with).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::TooLarge(_)), "{error}");
    let error = files.list_entries("/text", &with).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::BadAnswer(text) if text.contains("too long")), "{error}");
}

#[tokio::test]
async fn a_server_without_webdav_has_no_listings() {
    for status in ["405 Method Not Allowed", "501 Not Implemented", "200 OK"] {
        let server = FakeHttp::start(move |_| reply(status, "", b"<html></html>")).await;
        let files = client().http_files(&server.url("/"));
        let error = files.list_entries("/d", &ListWith::default()).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Unsupported(text) if text.contains("WebDAV")), "{error}");
    }
}

#[tokio::test]
async fn the_status_of_a_file_without_a_time_is_asked_by_webdav() {
    let time = "<D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>";
    let server = FakeHttp::start(move |request| match (request.method(), request.target()) {
        ("HEAD", _) => head("200 OK", "Content-Length: 4096\r\nETag: \"7\"\r\n"),
        (_, "/d") => reply("207 Multi-Status", "", multistatus(&[("/d", DIRECTORY)]).as_bytes()),
        (_, path) => reply("207 Multi-Status", "", multistatus(&[(path, time)]).as_bytes()),
    })
    .await;
    let files = client().http_files(&server.url("/"));
    assert!(files.stat("/d").await.unwrap().is_dir());
    let stat = files.stat("/f").await.unwrap();
    assert_eq!((stat.is_file(), stat.size, stat.mtime), (true, 4096, 784_111_777));
}

#[tokio::test]
async fn a_refusal_for_one_path_does_not_end_the_use_of_webdav() {
    let time = "<D:getlastmodified>Sun, 06 Nov 1994 08:49:37 GMT</D:getlastmodified>";
    for (status, is_used) in [("400 Bad Request", true), ("405 Method Not Allowed", false)] {
        let server = FakeHttp::start(move |request| match (request.method(), request.target()) {
            ("HEAD", _) => head("200 OK", "Content-Length: 4096\r\n"),
            (_, "/bad") => reply(status, "", b""),
            (_, path) => reply("207 Multi-Status", "", multistatus(&[(path, time)]).as_bytes()),
        })
        .await;
        let files = client().http_files(&server.url("/"));
        assert_eq!(files.stat("/bad").await.unwrap().mtime, 0);
        assert_eq!(files.stat("/f").await.unwrap().mtime != 0, is_used, "{status}");
    }
}

#[tokio::test]
async fn checksums_are_those_of_the_server() {
    let server = FakeHttp::start(|request| match request.header("want-digest") {
        Some("adler32") => head("200 OK", "Content-Length: 9\r\nDigest: adler32=3da0195\r\n"),
        _ => head("200 OK", "Content-Length: 9\r\n"),
    })
    .await;
    let files = client().http_files(&server.url("/"));
    assert_eq!(files.checksum("/f", None).await.unwrap().value, "03da0195");
    let error = files.checksum("/f", Some("md5")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UNSUPPORTED), "{error}");
}

#[tokio::test]
async fn a_probe_is_answered_by_each_server_that_lives() {
    let server = FakeHttp::start(|_| head("500 Oops", "Content-Length: 0\r\n")).await;
    client().probe(&server.url("/")).await.unwrap();
    let mut url = server.url("/");
    url.merge_cgi("authz=secret");
    client().probe(&url).await.unwrap();
    let requests = server.requests("HEAD / HTTP/1.1");
    assert_eq!(requests.len(), 2);
    assert!(!requests[1].contains("secret"), "the server may be that of a redirect: {}", requests[1]);
    let closed = { std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let error = client().probe(&Url::parse(&format!("http://{closed}/")).unwrap()).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Unreachable(_)), "{error}");
}
