//! Copies from and to HTTP servers, and changes of their names, at a scripted server.

#![allow(clippy::unwrap_used)]

mod http_support;

use client::copy::Against;
use client::copy::{ChecksumWish, Copier, CopyDone, CopyError, CopyJob, CopyOptions, Place, Watch};
use client::xroot::ErrorCode;
use client::{Algorithm, Cause, Client};
use http_support::{Action, FakeHttp, Received, VERSION, client, content, file, head, reply, send};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A directory that is removed at the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-http-copies-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn place(&self, name: &str) -> Place {
        Place::Local(self.0.join(name))
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

async fn copy(
    client: &Client,
    (source, target): (Place, Place),
    change: impl FnOnce(&mut CopyOptions),
) -> Result<CopyDone, CopyError> {
    let mut options = CopyOptions::of(client.settings());
    options.retries = 0;
    change(&mut options);
    let job = CopyJob { source, target, size: None };
    Copier::new(client).copy(&job, &options, &Watch::default()).await
}

#[tokio::test]
async fn a_file_that_may_be_the_source_is_not_overwritten() {
    let scratch = Scratch::new("itself");
    let source = scratch.0.join("source");
    std::fs::write(&source, b"hello").unwrap();
    // The time of `VERSION`.
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
    std::fs::File::options().write(true).open(&source).unwrap().set_modified(time).unwrap();
    let server = FakeHttp::start(|request| match request.target() {
        "/without-time" => whole(request, b"hello"),
        "/other" => file(request, b"hell", VERSION),
        _ => file(request, b"hello", VERSION),
    })
    .await;
    let at = |path: &str| Place::Remote(server.url(path));
    for (source, target) in [
        (scratch.place("source"), at("f")),
        (at("f"), at("f")),
        (at("f"), at("/f")),
        (at("f"), at("g")),
        (at("f"), at("without-time")),
        (at("without-time"), at("f")),
    ] {
        let names = format!("{source} {target}");
        let error = copy(&client(), (source, target), |options| options.force = true).await.unwrap_err();
        assert!(matches!(error, CopyError::Usage(_)), "{names}: {error}");
    }
    assert_eq!(server.requests("PUT").len(), 0);
    let different = copy(&client(), (at("f"), at("other")), |options| options.force = true).await;
    assert!(!matches!(different, Err(CopyError::Usage(_))));
    assert_eq!(server.requests("PUT").len(), 1);
}

/// Answers as a server without ranges does.
fn whole(request: &Received, content: &[u8]) -> Vec<Action> {
    match request.method() {
        "HEAD" => head("200 OK", &format!("Content-Length: {}\r\n", content.len())),
        "GET" => reply("200 OK", "", content),
        _ => reply("501 Not Implemented", "", b""),
    }
}

#[tokio::test]
async fn a_server_without_ranges_sends_the_whole_file_once() {
    let (scratch, content) = (Scratch::new("whole"), content(3_000_000));
    let served = content.clone();
    let server = FakeHttp::start(move |request| whole(request, &served)).await;
    let places = (Place::Remote(server.url("f")), scratch.place("copy"));
    let done = copy(&client(), places, |options| options.chunk_bytes = 70_001).await.unwrap();
    assert_eq!((done.size, done.copied), (3_000_000, 3_000_000));
    assert_eq!(std::fs::read(scratch.0.join("copy")).unwrap(), content);
    let whole = server.requests("GET").into_iter().filter(|request| !request.contains("Range:"));
    assert_eq!(whole.count(), 1);
}

#[tokio::test]
async fn a_file_without_a_size_is_copied_if_it_comes_in_chunks_only() {
    let scratch = Scratch::new("chunks");
    for (headers, body, expected) in [
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", Some("hello")),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", None),
        ("Connection: close\r\n", "hello", None),
        ("Content-Length: 9\r\n", "hello", None),
    ] {
        let server = FakeHttp::start(move |request| match request.method() {
            "HEAD" => head("200 OK", ""),
            _ => {
                let mut actions =
                    send(format!("HTTP/1.1 200 OK\r\nAccept-Ranges: none\r\n{headers}\r\n{body}"));
                actions.push(Action::Close);
                actions
            }
        })
        .await;
        let places = (Place::Remote(server.url("f")), scratch.place("copy"));
        let copied = copy(&client(), places, |options| options.force = true).await;
        match expected {
            Some(text) => {
                copied.unwrap();
                assert_eq!(std::fs::read_to_string(scratch.0.join("copy")).unwrap(), text);
                std::fs::remove_file(scratch.0.join("copy")).unwrap();
            }
            None => drop(copied.unwrap_err()),
        }
        assert_eq!(scratch.names(), [""; 0], "{headers}");
    }
}

/// A server that has no file at first, and takes uploads.
async fn taker(answer: &'static str) -> FakeHttp {
    let is_there = AtomicBool::new(false);
    FakeHttp::start(move |request| match request.method() {
        "PUT" => {
            is_there.store(answer.starts_with("201"), Ordering::Relaxed);
            reply(answer, "", b"no room\r\n")
        }
        "HEAD" if is_there.load(Ordering::Relaxed) => head("200 OK", "Content-Length: 5\r\n"),
        "HEAD" => head("404 Not Found", "Content-Length: 0\r\n"),
        "GET" => file(request, b"hello", VERSION),
        _ => reply("201 Created", "", b""),
    })
    .await
}

async fn upload(server: &FakeHttp, name: &str) -> Result<CopyDone, CopyError> {
    let scratch = Scratch::new(name);
    std::fs::write(scratch.0.join("source"), b"hello").unwrap();
    let checksums = vec![ChecksumWish { algorithm: Some(Algorithm::Adler32), against: Against::EachOther }];
    let places = (scratch.place("source"), Place::Remote(server.url("d/f")));
    copy(&client(), places, |options| options.checksums = checksums).await
}

#[tokio::test]
async fn an_upload_has_its_size_and_a_condition_and_is_read_back() {
    let server = taker("201 Created").await;
    let done = upload(&server, "upload").await.unwrap();
    assert_eq!((done.size, done.checksums[0].1.value.as_str()), (5, "062c0215"));
    let request = server.requests("PUT").remove(0).to_ascii_lowercase();
    for header in
        ["put /d/f http", "content-length: 5\r\n", "if-none-match: *\r\n", "expect: 100-continue\r\n"]
    {
        assert!(request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn refused_uploads_have_the_text_of_the_server() {
    let server = taker("507 Insufficient Storage").await;
    let error = upload(&server, "refused").await.unwrap_err();
    assert_eq!(error.remote_error().unwrap().code(), Some(ErrorCode::NO_SPACE));
    assert!(error.to_string().contains("no room"), "{error}");
    let server = taker("412 Precondition Failed").await;
    assert!(matches!(upload(&server, "there").await, Err(CopyError::Exists(_))));
}

#[tokio::test]
async fn a_missing_directory_is_created_for_an_upload() {
    let (is_made, is_there) = (AtomicBool::new(false), AtomicBool::new(false));
    let server = FakeHttp::start(move |request| match request.method() {
        "MKCOL" => {
            is_made.store(true, Ordering::Relaxed);
            reply("201 Created", "", b"")
        }
        "PUT" if is_made.load(Ordering::Relaxed) => {
            is_there.store(true, Ordering::Relaxed);
            reply("201 Created", "", b"")
        }
        "PUT" => reply("409 Conflict", "", b""),
        "HEAD" if !is_there.load(Ordering::Relaxed) => head("404 Not Found", "Content-Length: 0\r\n"),
        _ => file(request, b"hello", VERSION),
    })
    .await;
    upload(&server, "conflict").await.unwrap();
    assert_eq!(server.requests("PUT").len(), 2);
    assert!(server.requests("MKCOL")[0].starts_with("MKCOL /d/ HTTP"));
}

#[tokio::test]
async fn an_upload_whose_reply_is_lost_may_have_been_carried_out() {
    let server = FakeHttp::start(|request| match request.method() {
        "PUT" => vec![Action::Close],
        _ => head("404 Not Found", "Content-Length: 0\r\n"),
    })
    .await;
    let error = upload(&server, "lost").await.unwrap_err();
    assert!(error.is_uncertain() && !error.is_transient(), "{error}");
}

#[tokio::test]
async fn an_upload_with_a_wrong_checksum_is_removed() {
    let is_there = AtomicBool::new(false);
    let server = FakeHttp::start(move |request| match request.method() {
        "PUT" => {
            is_there.store(true, Ordering::Relaxed);
            reply("201 Created", "", b"")
        }
        "HEAD" if is_there.load(Ordering::Relaxed) => {
            head("200 OK", &format!("Content-Length: 5\r\nDigest: adler32=11111111\r\n{VERSION}"))
        }
        "HEAD" => head("404 Not Found", "Content-Length: 0\r\n"),
        "PROPFIND" => reply("207 Multi-Status", "", &entries(&[("/d/f", FILE)])),
        _ => reply("204 No Content", "", b""),
    })
    .await;
    assert!(matches!(upload(&server, "wrong").await, Err(CopyError::Checksum { .. })));
    assert!(server.requests("DELETE")[0].starts_with("DELETE /d/f HTTP"));
}

const COLLECTION: &str = "<D:resourcetype><D:collection/></D:resourcetype>";
const FILE: &str = "<D:resourcetype/>";

/// A listing of WebDAV with these paths and properties.
fn entries(of: &[(&str, &str)]) -> Vec<u8> {
    let mut text = "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">".to_owned();
    for (path, properties) in of {
        text.push_str(&format!(
            "<D:response><D:href>{path}</D:href><D:propstat><D:prop>{properties}</D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        ));
    }
    text.push_str("</D:multistatus>");
    text.into_bytes()
}

#[tokio::test]
async fn an_upload_removes_only_what_it_has_left() {
    // What the server answers to the PUT, whether --force is given, the size of the file that is there then, and whether
    // another client replaces it after the first look.
    for (answer, is_forced, size, is_replaced) in [
        ("500 Internal Server Error", false, 2, false),
        ("507 Insufficient Storage", false, 2, false),
        ("201 Created", true, 5, false),
        ("201 Created", false, 5, true),
    ] {
        let looks = AtomicUsize::new(0);
        let server = FakeHttp::start(move |request| match request.method() {
            "PUT" => {
                looks.store(1, Ordering::Relaxed);
                reply(answer, "", b"")
            }
            "HEAD" if looks.load(Ordering::Relaxed) == 0 => head("404 Not Found", "Content-Length: 0\r\n"),
            "HEAD" => {
                let number = looks.fetch_add(1, Ordering::Relaxed);
                let version = if is_replaced { number } else { 0 };
                head(
                    "200 OK",
                    &format!(
                        "Content-Length: {size}\r\nETag: \"{version}\"\r\nDigest: adler32=11111111\r\n\
                         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                    ),
                )
            }
            "PROPFIND" => reply("207 Multi-Status", "", &entries(&[("/d/f", FILE)])),
            _ => reply("204 No Content", "", b""),
        })
        .await;
        let scratch = Scratch::new("left");
        std::fs::write(scratch.0.join("source"), b"hello").unwrap();
        let wish = ChecksumWish { algorithm: Some(Algorithm::Adler32), against: Against::EachOther };
        let places = (scratch.place("source"), Place::Remote(server.url("d/f")));
        let change = |options: &mut CopyOptions| {
            options.checksums = vec![wish];
            options.force = is_forced;
        };
        copy(&client(), places, change).await.unwrap_err();
        assert_eq!(server.requests("PUT").len(), 1);
        assert_eq!(server.requests("DELETE").len(), 0, "{answer} {is_forced} {is_replaced}");
    }
}

#[tokio::test]
async fn directories_with_entries_are_never_removed() {
    let server = FakeHttp::start(|request| match (request.method(), request.target()) {
        ("HEAD", "/d") => head("301 Moved Permanently", "Location: /d/\r\nContent-Length: 0\r\n"),
        ("HEAD", _) => head("200 OK", "Content-Length: 0\r\n"),
        ("PROPFIND", _) => reply("207 Multi-Status", "", &entries(&[("/d/", COLLECTION), ("/d/a", FILE)])),
        _ => reply("204 No Content", "", b""),
    })
    .await;
    let files = client().file_system(&server.url(""));
    assert_eq!(files.rmdir("/d").await.unwrap_err().code(), Some(ErrorCode::IT_EXISTS));
    assert_eq!(files.rm("/d").await.unwrap_err().code(), Some(ErrorCode::IS_DIRECTORY));
    assert_eq!(server.requests("DELETE").len(), 0);
}

#[tokio::test]
async fn what_may_be_a_directory_is_never_removed_as_a_file() {
    let page = || head("200 OK", &format!("Content-Length: 5\r\n{VERSION}"));
    let moved = |to: &str| head("301 Moved Permanently", &format!("Location: {to}\r\nContent-Length: 0\r\n"));
    let collection = || reply("207 Multi-Status", "", &entries(&[("/d/", COLLECTION)]));
    type Answer = Box<dyn Fn(&Received) -> Vec<Action> + Send + Sync>;
    let table: [(&str, &str, Answer); 8] = [
        ("a page of its own", "/d", Box::new(move |_| collection())),
        ("a slash at its end", "/d/", Box::new(move |_| reply("501 Not Implemented", "", b""))),
        ("no rights to see it", "/d", Box::new(|_| reply("403 Forbidden", "", b""))),
        ("an error of the server", "/d", Box::new(|_| reply("500 Internal Server Error", "", b""))),
        ("no entry", "/d", Box::new(|_| reply("207 Multi-Status", "", &entries(&[])))),
        ("no type", "/d", Box::new(|_| reply("207 Multi-Status", "", &entries(&[("/d", "")])))),
        ("no WebDAV, but a page", "/d", Box::new(|_| reply("405 Method Not Allowed", "", b""))),
        (
            "another path",
            "/d",
            Box::new(move |request| match request.target() {
                "/d" => moved("/e"),
                _ => reply("207 Multi-Status", "", &entries(&[("/e", FILE)])),
            }),
        ),
    ];
    for (why, path, answer) in table {
        let server = FakeHttp::start(move |request| match request.method() {
            "HEAD" => page(),
            "PROPFIND" => answer(request),
            _ => reply("204 No Content", "", b""),
        })
        .await;
        client().file_system(&server.url("")).rm(path).await.expect_err(why);
        assert_eq!(server.requests("DELETE").len(), 0, "{why}");
    }
}

#[tokio::test]
async fn changes_stay_with_their_path_when_they_are_redirected() {
    for (status, to, is_followed) in [
        ("307 Temporary Redirect", "//d/f?token=x", true),
        ("308 Permanent Redirect", "/d//f", true),
        ("307 Temporary Redirect", "/d/f/", false),
        ("307 Temporary Redirect", "/d/", false),
        ("301 Moved Permanently", "/d//f", false),
        ("302 Found", "/d/", false),
        ("303 See Other", "/d/", false),
    ] {
        // The target has the host, so that two slashes at its beginning are none of a host.
        let server = FakeHttp::start(move |request| match (request.method(), request.target()) {
            ("PROPFIND", _) => reply("207 Multi-Status", "", &entries(&[("/d/f", FILE)])),
            ("DELETE", "/d/f") => {
                let host = request.header("host").unwrap_or_default().to_owned();
                head(status, &format!("Location: http://{host}{to}\r\nContent-Length: 0\r\n"))
            }
            _ => reply("204 No Content", "", b""),
        })
        .await;
        let removed = client().file_system(&server.url("")).rm("/d/f").await;
        assert_eq!(removed.is_ok(), is_followed, "{status} {to}: {removed:?}");
        assert_eq!(server.requests("DELETE").len(), if is_followed { 2 } else { 1 }, "{status} {to}");
        if let Err(error) = removed {
            assert_eq!(error.is_uncertain(), status.starts_with("303"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_directory_is_empty_only_if_its_listing_says_so() {
    for (listing, is_removed) in [
        (entries(&[("/d/", COLLECTION)]), true),
        (entries(&[("/d/", COLLECTION), ("/d/a%0Ab", FILE)]), false),
        (entries(&[("/d/", COLLECTION), ("/elsewhere", FILE)]), false),
        (entries(&[]), false),
        (entries(&[("/d/", FILE)]), false),
    ] {
        let server = FakeHttp::start(move |request| match (request.method(), request.target()) {
            ("HEAD", "/d") => head("301 Moved Permanently", "Location: /d/\r\nContent-Length: 0\r\n"),
            ("HEAD", _) => head("200 OK", "Content-Length: 0\r\n"),
            ("PROPFIND", _) => reply("207 Multi-Status", "", &listing),
            _ => reply("204 No Content", "", b""),
        })
        .await;
        let removed = client().file_system(&server.url("")).rmdir("/d").await;
        assert_eq!((removed.is_ok(), server.requests("DELETE").len() == 1), (is_removed, is_removed));
    }
}

#[tokio::test]
async fn a_removal_is_a_success_only_if_nothing_is_left() {
    for status in ["404 Not Found", "410 Gone", "202 Accepted"] {
        let server = FakeHttp::start(move |request| match request.method() {
            "PROPFIND" => reply("207 Multi-Status", "", &entries(&[("/f", FILE)])),
            "DELETE" => reply(status, "", b""),
            _ => file(request, b"hello", VERSION),
        })
        .await;
        let error = client().file_system(&server.url("")).rm("/f").await.unwrap_err();
        assert!(error.to_string().contains("still there"), "{error}");
    }
}

#[tokio::test]
async fn one_of_two_clients_creates_a_directory() {
    for (parents, is_success) in [(true, true), (false, false)] {
        let is_asked = AtomicBool::new(false);
        let server = FakeHttp::start(move |request| match request.method() {
            "MKCOL" => {
                is_asked.store(true, Ordering::Relaxed);
                reply("405 Method Not Allowed", "", b"")
            }
            "HEAD" if is_asked.load(Ordering::Relaxed) => head("200 OK", "Content-Length: 0\r\n"),
            "PROPFIND" => reply("207 Multi-Status", "", &entries(&[("/d/", COLLECTION)])),
            _ => head("404 Not Found", "Content-Length: 0\r\n"),
        })
        .await;
        let made = client().file_system(&server.url("")).mkdir("/d", 0o755, parents).await;
        assert_eq!(made.is_ok(), is_success);
        if let Err(error) = made {
            assert_eq!(error.code(), Some(ErrorCode::IT_EXISTS));
        }
    }
}

#[tokio::test]
async fn a_removal_whose_reply_is_lost_is_looked_at() {
    for (is_gone, is_removed) in [(true, true), (false, false)] {
        let is_asked = Arc::new(AtomicBool::new(false));
        let server = FakeHttp::start(move |request| match request.method() {
            "DELETE" => {
                is_asked.store(is_gone, Ordering::Relaxed);
                vec![Action::Close]
            }
            _ if request.target().ends_with('/') => head("404 Not Found", "Content-Length: 0\r\n"),
            _ if is_asked.load(Ordering::Relaxed) => head("404 Not Found", "Content-Length: 0\r\n"),
            _ => file(request, b"hello", VERSION),
        })
        .await;
        let removed = client().file_system(&server.url("")).rm("/f").await;
        match removed {
            Ok(()) => assert!(is_removed),
            Err(error) => assert!(!is_removed && error.is_uncertain(), "{error}"),
        }
    }
}

#[tokio::test]
async fn what_http_does_not_have_is_an_error_before_a_request() {
    let server = FakeHttp::start(|_| vec![Action::Close]).await;
    let scratch = Scratch::new("refused-options");
    std::fs::write(scratch.0.join("source"), b"hello").unwrap();
    let changes: [fn(&mut CopyOptions); 5] = [
        |options| options.preserve = true,
        |options| options.resume = true,
        |options| options.attributes = true,
        |options| options.persist_on_successful_close = true,
        |options| options.coerce = true,
    ];
    for change in changes {
        let places = (scratch.place("source"), Place::Remote(server.url("f")));
        assert!(matches!(copy(&client(), places, change).await, Err(CopyError::Usage(_))));
    }
    for login in ["user@", "user:password@", "other,"] {
        let url = format!("http://{login}{}/f", server.address);
        let places = (scratch.place("source"), Place::parse(&url).unwrap());
        assert!(matches!(copy(&client(), places, |_| ()).await, Err(CopyError::Usage(_))));
    }
    let client = client();
    let files = client.file_system(&server.url(""));
    assert!(matches!(files.mv("/a", "/b").await.unwrap_err().cause(), Cause::Unsupported(_)));
    assert_eq!(server.connections(), 0);
}
