//! Object stores with S3, at a scripted server.

#![allow(clippy::unwrap_used)]

mod http_support;

use auth::Secret;
use auth::s3::S3Credentials;
use client::http::{HttpFiles, ObjectStore};
use client::xroot::ErrorCode;
use client::{Cause, Client, Credentials, Error, ListWith, Settings};
use http_support::{Action, FakeHttp, Received, VERSION, client, content, file, head, reply};

const WITH_STATUS: ListWith = ListWith { stat: true, checksum: None, online: false };
/// The secret key of all tests.
const SECRET: &str = "hunter2";

/// Returns a client of the bucket `b` at a server.
fn store_client(server: &FakeHttp) -> Client {
    with_store(client(), server)
}

fn with_store(client: Client, server: &FakeHttp) -> Client {
    let keys = S3Credentials::new("AKID", Secret::from(SECRET.as_bytes()), None);
    client.use_object_store(ObjectStore::new(&server.url("/"), "b", "r", Some(keys)));
    client
}

/// Returns the files of the bucket `b` at a server.
fn files(server: &FakeHttp) -> HttpFiles {
    store_client(server).http_files(&server.url("/"))
}

/// Returns the code of the server in an error.
fn code(error: &Error) -> Option<ErrorCode> {
    match error.cause() {
        Cause::Server { code, .. } => Some(*code),
        _ => None,
    }
}

/// Answers with a page of a listing.
fn page(inner: &str) -> Vec<Action> {
    reply("200 OK", "", format!("<ListBucketResult>{inner}</ListBucketResult>").as_bytes())
}

fn object(key: &str, size: usize) -> String {
    let time = "<LastModified>1994-11-06T08:49:37.000Z</LastModified>";
    format!("<Contents><Key>{key}</Key>{time}<Size>{size}</Size></Contents>")
}

fn prefix(prefix: &str) -> String {
    format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>")
}

/// Reports whether a request is for a listing.
fn is_listing(request: &Received) -> bool {
    request.target().starts_with("/b?")
}

#[tokio::test]
async fn requests_are_signed_and_have_no_query_of_the_caller() {
    let content = content(1000);
    let served = content.clone();
    let server = FakeHttp::start(move |request| file(request, &served, VERSION)).await;
    let client = store_client(&server);
    let url = server.url("/b/d/a b?acl&versionId=7&authz=Bearer%20tok");
    let file = client.open_http(&url).await.unwrap();
    assert!(file.has_version());
    assert_eq!(file.read(5, 20).await.unwrap(), content[5..25]);
    let requests = server.requests("GET");
    for request in &requests {
        assert!(request.starts_with("GET /b/d/a%20b HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("AWS4-HMAC-SHA256 Credential=AKID/"), "{request}");
        assert!(request.contains("SignedHeaders=host;"), "{request}");
        assert!(!request.contains(SECRET) && !request.contains("tok"), "{request}");
    }
    assert!(
        requests[1].contains("If-Match: \"v1\"\r\n") && requests[1].contains("host;if-match;range;x-amz")
    );
    // A probe is a request of nobody.
    client.probe(&server.url("/")).await.unwrap();
    assert!(!server.requests("HEAD")[0].contains("Authorization"));
}

#[tokio::test]
async fn a_store_without_keys_gets_requests_without_a_signature() {
    let server = FakeHttp::start(|request| file(request, b"abc", VERSION)).await;
    let client = client();
    client.use_object_store(ObjectStore::new(&server.url("/"), "b", "r", None));
    assert_eq!(client.open_http(&server.url("/b/f")).await.unwrap().read(0, 3).await.unwrap(), "abc");
    assert!(server.requests("GET").iter().all(|request| !request.contains("Authorization")));
}

#[tokio::test]
async fn another_version_is_an_error_whoever_notices_it() {
    for answer in [
        reply as fn(&str, &str, &[u8]) -> Vec<Action>,
        |_, _, _| reply("206 Partial Content", "Content-Range: bytes 0-9/100\r\nETag: \"v2\"\r\n", &[0; 10]),
        |_, _, _| reply("206 Partial Content", "Content-Range: bytes 0-9/99\r\nETag: \"v1\"\r\n", &[0; 10]),
    ] {
        let content = content(100);
        let server = FakeHttp::start(move |request| match request.range() {
            Some((0, 0)) => file(request, &content, VERSION),
            _ => answer("412 Precondition Failed", "", b"<Error><Code>PreconditionFailed</Code></Error>"),
        })
        .await;
        let file = store_client(&server).open_http(&server.url("/b/f")).await.unwrap();
        let error = file.read(0, 10).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let other = FakeHttp::start(|_| reply("200 OK", "", b"")).await;
    let target = format!("Location: {}\r\n", other.url("/b/f"));
    for (status, headers, expected) in [
        ("301 Moved Permanently", "x-amz-bucket-region: eu-west-1\r\n".to_owned(), "its region is eu-west-1"),
        ("307 Temporary Redirect", target, "the bucket is elsewhere"),
    ] {
        let server = FakeHttp::start(move |_| reply(status, &headers, b"")).await;
        let error = store_client(&server).open_http(&server.url("/b/f")).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn errors_have_the_code_of_the_store_and_nothing_else_of_it() {
    for (status, name, expected) in [
        ("403 Forbidden", "SignatureDoesNotMatch", ErrorCode::NOT_AUTHORIZED),
        ("403 Forbidden", "RequestTimeTooSkewed", ErrorCode::NOT_AUTHORIZED),
        ("400 Bad Request", "AuthorizationHeaderMalformed", ErrorCode::NOT_AUTHORIZED),
        ("401 Unauthorized", "", ErrorCode::NOT_AUTHORIZED),
        ("400 Bad Request", "InvalidArgument", ErrorCode::ARG_INVALID),
        ("501 Not Implemented", "NotImplemented", ErrorCode::UNSUPPORTED),
    ] {
        let body = format!("<Error><Code>{name}</Code><StringToSign>signed</StringToSign></Error>");
        let server = FakeHttp::start(move |_| reply(status, "", body.as_bytes())).await;
        let error = store_client(&server).open_http(&server.url("/b/f")).await.unwrap_err();
        assert_eq!(code(&error), Some(expected), "{error}");
        assert!(error.to_string().contains(name) && !error.to_string().contains("signed"), "{error}");
    }
}

#[tokio::test]
async fn a_store_that_asks_to_slow_down_is_asked_again() {
    let server = FakeHttp::start(|request| match request.number {
        0 => reply("503 Slow Down", "", b"<Error><Code>SlowDown</Code></Error>"),
        _ => file(request, b"abc", VERSION),
    })
    .await;
    let file = store_client(&server).open_http(&server.url("/b/f")).await.unwrap();
    assert_eq!(file.stat_at_open().size, 3);
    assert_eq!(server.requests("GET").len(), 2);
}

#[tokio::test]
async fn objects_are_read_as_they_are_stored() {
    let headers = format!("{VERSION}Content-Encoding: gzip\r\n");
    let server = FakeHttp::start(move |request| file(request, b"\x1f\x8babc", &headers)).await;
    let file = store_client(&server).open_http(&server.url("/b/f")).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), &b"\x1f\x8babc"[..]);
}

#[tokio::test]
async fn an_empty_object_is_a_file() {
    let server = FakeHttp::start(|request| match request.method() {
        "HEAD" => head("200 OK", &format!("Content-Length: 0\r\n{VERSION}")),
        _ => reply("416 Range Not Satisfiable", "", b"<Error><Code>InvalidRange</Code></Error>"),
    })
    .await;
    let file = store_client(&server).open_http(&server.url("/b/f")).await.unwrap();
    assert_eq!(file.stat_at_open().size, 0);
    assert_eq!(file.read(0, 10).await.unwrap(), "");
    assert_eq!(files(&server).stat("/b/f").await.unwrap().size, 0);
}

#[tokio::test]
async fn a_path_is_an_object_or_a_directory_of_them() {
    let server = FakeHttp::start(|request| {
        if is_listing(request) {
            return match request.target().rsplit('=').next() {
                Some("d%2F") => page(&object("d/a", 1)),
                Some("") => page(&prefix("d/")),
                Some("e%2F") => page(&object("other", 1)),
                _ => page(""),
            };
        }
        match request.target() {
            "/b/f" => file(request, b"abc", VERSION),
            _ => head("404 Not Found", "Content-Length: 0\r\n"),
        }
    })
    .await;
    let files = files(&server);
    let file = files.stat("/b/f").await.unwrap();
    assert_eq!((file.size, file.mtime, file.is_file()), (3, 784_111_777, true));
    assert!(files.stat("/b/d").await.unwrap().is_dir() && files.stat("/b").await.unwrap().is_dir());
    let error = files.stat("/b/e").await.unwrap_err();
    assert!(matches!(error.cause(), Cause::BadAnswer(_)), "the store ignores the prefix: {error}");
    assert_eq!(code(&files.stat("/b/x").await.unwrap_err()), Some(ErrorCode::NOT_FOUND));
    assert_eq!(
        code(&files.list_entries("/b/x", &WITH_STATUS).await.unwrap_err()),
        Some(ErrorCode::NOT_FOUND)
    );
    let error = files.list_entries("/b/f", &WITH_STATUS).await.unwrap_err();
    assert!(error.to_string().contains("not a directory"), "{error}");
    let client = store_client(&server);
    assert_eq!(
        code(&client.open_http(&server.url("/b/d/")).await.unwrap_err()),
        Some(ErrorCode::IS_DIRECTORY)
    );
}

#[tokio::test]
async fn a_listing_has_all_pages_and_only_names_of_its_directory() {
    let server =
        FakeHttp::start(|request| match request.target().contains("continuation-token=t%2F%2B%3D&") {
            false => page(&format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>t/+=</NextContinuationToken>{}{}{}{}",
                object("d/", 0),
                object("d/a &amp; b", 7),
                prefix("d/e/"),
                prefix("d/../"),
            )),
            true => page(&format!("{}{}{}", object("d/z", 1), object("d/e", 2), object("d/x\ny", 3))),
        })
        .await;
    let entries = files(&server).list_entries("/b/d", &WITH_STATUS).await.unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.name.to_string(), entry.stat.map(|stat| (stat.size, stat.mtime, stat.is_dir()))))
        .collect();
    let expected = [("a & b", (7, 784_111_777, false)), ("e", (0, 0, true)), ("z", (1, 784_111_777, false))];
    assert_eq!(found, expected.map(|(name, stat)| (name.to_owned(), Some(stat))));
    let requests = server.requests("GET");
    assert_eq!(requests.len(), 2);
    assert!(
        requests[0].starts_with("GET /b?delimiter=%2F&list-type=2&max-keys=1000&prefix=d%2F HTTP"),
        "{}",
        requests[0]
    );
}

#[tokio::test]
async fn a_listing_of_another_directory_is_an_error() {
    for inner in [object("e/a", 1), object("d", 1), object("d/a/b", 1), prefix("d/a"), prefix("d/a/b/")] {
        let server = FakeHttp::start(move |_| page(&inner)).await;
        let error = files(&server).list_entries("/b/d", &WITH_STATUS).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::BadAnswer(_)), "{error}");
    }
}

#[tokio::test]
async fn a_listing_without_an_end_is_an_error() {
    let more = |token: usize| {
        let token = format!("<NextContinuationToken>{token}</NextContinuationToken>");
        format!("<IsTruncated>true</IsTruncated>{token}")
    };
    let same = FakeHttp::start(move |_| page(&format!("{}{}", object("a", 1), more(7)))).await;
    let error = files(&same).list_entries("/b", &WITH_STATUS).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::BadAnswer(text) if text.contains("repeats")), "{error}");
    assert_eq!(same.requests("GET").len(), 2);
    for inner in [String::new(), object(".", 1)] {
        let empty = FakeHttp::start(move |request| page(&format!("{inner}{}", more(request.number)))).await;
        let error = files(&empty).list_entries("/b", &WITH_STATUS).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::BadAnswer(text) if text.contains("without names")), "{error}");
    }
    let full = FakeHttp::start(move |request| {
        page(&format!("{}{}", object(&"x".repeat(1000), 1), more(request.number)))
    })
    .await;
    let mut settings = Settings::default();
    settings.listing_bytes = 20_000;
    let client = with_store(Client::with(settings, Credentials::none(), "test"), &full);
    let error = client.http_files(&full.url("/")).list_entries("/b", &WITH_STATUS).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::TooLarge(_)), "{error}");
    assert!(full.requests("GET").len() < 30);
}

#[tokio::test]
async fn what_is_no_listing_is_an_error() {
    for body in [
        "<html></html>".to_owned(),
        "<!DOCTYPE x [<!ENTITY a \"aa\"><!ENTITY b \"&a;&a;\">]><ListBucketResult>&b;</ListBucketResult>"
            .to_owned(),
        format!("<ListBucketResult x=\"{}", "x".repeat(1 << 20)),
        "<ListBucketResult><Contents>".to_owned(),
        "<Error><Code>InternalError</Code></Error>".to_owned(),
    ] {
        let server = FakeHttp::start(move |_| reply("200 OK", "", body.as_bytes())).await;
        let error = files(&server).list_entries("/b/d", &WITH_STATUS).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::BadAnswer(_)), "{error}");
    }
    let server =
        FakeHttp::start(|_| reply("404 Not Found", "", b"<Error><Code>NoSuchBucket</Code></Error>")).await;
    let error = files(&server).list_entries("/b/d", &WITH_STATUS).await.unwrap_err();
    assert!(
        code(&error) == Some(ErrorCode::NOT_FOUND) && error.to_string().contains("NoSuchBucket"),
        "{error}"
    );
}
