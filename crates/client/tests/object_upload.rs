//! Objects that are created in stores, at a scripted server.

#![allow(clippy::unwrap_used)]

mod http_support;

use client::http::{HttpFiles, ObjectStore, ObjectUpload, StoredPart};
use client::xroot::ErrorCode;
use client::{Bytes, Cause, Client, Error};
use http_support::{Action, FakeHttp, Received, VERSION, client, head, reply};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn store_client(server: &FakeHttp) -> Client {
    let client = client();
    client.use_object_store(ObjectStore::new(&server.url("/"), "b", "r", None));
    client
}

/// Answers that the object does not exist.
fn none(request: &Received) -> Option<Vec<Action>> {
    match request.method() {
        "HEAD" => Some(head("404 Not Found", "Content-Length: 0\r\n")),
        "GET" => Some(reply("200 OK", "", b"<ListBucketResult></ListBucketResult>")),
        _ => None,
    }
}

/// Begins an object at a server that answers changes with `script`, which gets their number.
async fn begin(
    is_new: bool,
    script: impl Fn(&Received, usize) -> Vec<Action> + Send + Sync + 'static,
) -> (ObjectUpload, FakeHttp) {
    let changes = AtomicUsize::new(0);
    let server = FakeHttp::start(move |request| {
        none(request).unwrap_or_else(|| script(request, changes.fetch_add(1, Ordering::Relaxed)))
    })
    .await;
    let upload = store_client(&server).create_object(&server.url("/b/d/a b?acl"), is_new).await.unwrap();
    (upload, server)
}

fn code(error: &Error) -> Option<ErrorCode> {
    error.code()
}

#[tokio::test]
async fn what_exists_is_not_created_and_a_directory_is_none() {
    let server = FakeHttp::start(|request| match (request.method(), request.target()) {
        ("HEAD", "/b/f") => head("200 OK", &format!("Content-Length: 3\r\n{VERSION}")),
        ("HEAD", "/b/hidden") => head("403 Forbidden", "Content-Length: 0\r\n"),
        ("GET", _) => reply(
            "200 OK",
            "",
            b"<ListBucketResult><CommonPrefixes><Prefix>d/e/</Prefix></CommonPrefixes></ListBucketResult>",
        ),
        _ => head("404 Not Found", "Content-Length: 0\r\n"),
    })
    .await;
    let client = store_client(&server);
    for (path, is_new, expected) in [
        ("/b/f", true, Some(ErrorCode::IT_EXISTS)),
        ("/b/f", false, None),
        ("/b/d", false, Some(ErrorCode::IS_DIRECTORY)),
        ("/b/d/", false, Some(ErrorCode::IS_DIRECTORY)),
        ("/b/hidden", true, Some(ErrorCode::NOT_AUTHORIZED)),
    ] {
        let found = client.create_object(&server.url(path), is_new).await;
        assert_eq!(found.err().and_then(|error| code(&error)), expected, "{path} {is_new}");
    }
    assert!(server.requests("PUT").is_empty());
    let unsupported = crate::client().create_object(&server.url("/b/f"), false).await.unwrap_err();
    assert!(matches!(unsupported.cause(), Cause::Unsupported(_)));
}

#[tokio::test]
async fn a_lost_request_is_repeated_only_if_that_replaces_nothing() {
    let lost_once = |_: &Received, number| match number {
        0 => vec![Action::Close],
        _ => reply("200 OK", "ETag: \"t\"\r\n", b""),
    };
    let (upload, server) = begin(false, lost_once).await;
    upload.put(Bytes::from_static(b"abc")).await.unwrap();
    let requests = server.requests("PUT");
    assert_eq!(requests.len(), 2);
    assert!(requests[0].starts_with("PUT /b/d/a%20b HTTP/1.1\r\n") && !requests[0].contains("If-None-Match"));
    let (upload, server) = begin(true, lost_once).await;
    let error = upload.put(Bytes::new()).await.unwrap_err();
    assert!(error.is_uncertain(), "{error}");
    let requests = server.requests("PUT");
    assert_eq!(requests.len(), 1);
    assert!(requests[0].contains("If-None-Match: *\r\n") && requests[0].contains("Content-Length: 0\r\n"));
    let (upload, server) = begin(true, |_, _| reply("412 Precondition Failed", "", b"")).await;
    let error = upload.put(Bytes::new()).await.unwrap_err();
    assert_eq!((code(&error), error.is_uncertain()), (Some(ErrorCode::IT_EXISTS), false));
    assert_eq!(server.requests("PUT").len(), 1);
}

#[tokio::test]
async fn what_replaces_nothing_is_made_once() {
    // The store has made it, and a repetition would find it.
    let (upload, server) = begin(true, |_, number| match number {
        0 => reply("500 Internal Server Error", "", b""),
        _ => reply("412 Precondition Failed", "", b""),
    })
    .await;
    let error = upload.put(Bytes::new()).await.unwrap_err();
    assert_eq!((code(&error), error.is_uncertain()), (Some(ErrorCode::SERVER_ERROR), true), "{error}");
    assert_eq!(server.requests("PUT").len(), 1);
    for status in ["412 Precondition Failed", "409 Conflict"] {
        let (upload, server) = begin(true, move |_, number| match number {
            0 => reply("503 Slow Down", "", b""),
            _ => reply(status, "", b""),
        })
        .await;
        let error = upload.put(Bytes::new()).await.unwrap_err();
        assert_eq!((code(&error), error.is_uncertain()), (Some(ErrorCode::IT_EXISTS), true), "{error}");
        assert_eq!(server.requests("PUT").len(), 2);
    }
    let (upload, _server) = begin(true, |_, _| reply("409 Conflict", "", b"")).await;
    let error = upload.put(Bytes::new()).await.unwrap_err();
    assert_eq!((code(&error), error.is_uncertain()), (Some(ErrorCode::IT_EXISTS), false), "{error}");
    // One that replaces is repeated, and may have been made once it has failed.
    let (upload, _server) = begin(false, |_, number| match number {
        0 => reply("500 Internal Server Error", "", b""),
        _ => reply("403 Forbidden", "", b""),
    })
    .await;
    assert!(upload.put(Bytes::new()).await.unwrap_err().is_uncertain());
}

#[tokio::test]
async fn parts_are_sent_under_the_id_of_their_upload() {
    let (upload, server) = begin(false, |request, number| match (request.method(), number) {
        ("POST", 0) => reply("200 OK", "", b"<R><UploadId>u&amp;1/+</UploadId></R>"),
        ("PUT", 1) => vec![Action::Close],
        ("PUT", _) => reply("200 OK", "ETag: \"t\"\r\n", b""),
        ("POST", _) => reply("200 OK", "", b"  <CompleteMultipartUploadResult/>"),
        _ => reply("404 Not Found", "", b""),
    })
    .await;
    let id = upload.begin().await.unwrap();
    let part = upload.put_part(&id, 1, Bytes::from_static(b"abc")).await.unwrap();
    assert_eq!(part, StoredPart::of("\"t\""));
    upload.complete(&id, &[part]).await.unwrap();
    // An upload that is not known has no parts.
    upload.abort(&id).await.unwrap();
    for (method, target, count) in [
        ("POST", "/b/d/a%20b?uploads=", 1),
        ("PUT", "/b/d/a%20b?partNumber=1&uploadId=u%261%2F%2B", 2),
        ("POST", "/b/d/a%20b?uploadId=u%261%2F%2B", 1),
        ("DELETE", "/b/d/a%20b?uploadId=u%261%2F%2B", 1),
    ] {
        let head = format!("{method} {target} HTTP/1.1\r\n");
        let found = server.requests(method).iter().filter(|request| request.starts_with(&head)).count();
        assert_eq!(found, count, "{head}");
    }
}

#[tokio::test]
async fn only_a_certain_success_completes_an_object() {
    type Answer = fn() -> Vec<Action>;
    let answers: [(Answer, bool); 9] = [
        (|| vec![Action::Close], true),
        (|| reply("200 OK", "", b""), true),
        (|| reply("200 OK", "", b"<Error><Code>InternalError</Code></Error>"), true),
        (|| reply("200 OK", "", b"<Error><Code>InvalidPart</Code></Error>"), false),
        (|| reply("500 Internal Server Error", "", b""), true),
        (|| reply("502 Bad Gateway", "", b""), true),
        (|| reply("404 Not Found", "", b"<Error><Code>NoSuchUpload</Code></Error>"), true),
        (|| reply("403 Forbidden", "", b"<Error><Code>AccessDenied</Code></Error>"), false),
        (|| reply("200 OK", "", &[b' '; 70_000]), true),
    ];
    for (number, (answer, is_uncertain)) in answers.into_iter().enumerate() {
        let (upload, server) = begin(false, move |_, asked| match asked {
            0 => reply("200 OK", "", b"<UploadId>u</UploadId>"),
            _ => answer(),
        })
        .await;
        let id = upload.begin().await.unwrap();
        let error = upload.complete(&id, &[]).await.unwrap_err();
        assert_eq!(error.is_uncertain(), is_uncertain, "{number}: {error}");
        assert_eq!(server.requests("POST").len(), 2, "{number}");
    }
}

#[tokio::test]
async fn an_upload_is_begun_once() {
    for answer in
        [(|| vec![Action::Close]) as fn() -> Vec<Action>, || reply("500 Internal Server Error", "", b"")]
    {
        let (upload, server) = begin(false, move |_, _| answer()).await;
        let error = upload.begin().await.unwrap_err();
        assert!(!error.is_uncertain(), "no object was to appear: {error}");
        assert_eq!(server.requests("POST").len(), 1);
    }
    let (upload, _server) = begin(false, |_, number| match number {
        0 => reply("503 Slow Down", "", b""),
        _ => reply("200 OK", "", b"<UploadId>u</UploadId>"),
    })
    .await;
    upload.begin().await.unwrap();
}

#[tokio::test]
async fn a_part_that_may_arrive_later_is_removed_again() {
    for is_dropped in [false, true] {
        // The lost part has arrived after the first removal.
        let removals = AtomicUsize::new(0);
        let (upload, server) = begin(false, move |request, _| match request.method() {
            "POST" => reply("200 OK", "", b"<UploadId>u</UploadId>"),
            "PUT" if is_dropped => vec![Action::Hang],
            "PUT" => vec![Action::Close],
            _ => match removals.fetch_add(1, Ordering::Relaxed) {
                0 => head("204 No Content", ""),
                _ => reply("404 Not Found", "", b""),
            },
        })
        .await;
        let id = upload.begin().await.unwrap();
        let part = upload.put_part(&id, 1, Bytes::from_static(b"abc"));
        tokio::select! {
            sent = part => assert!(sent.is_err()),
            () = received(&server, "PUT", if is_dropped { 1 } else { usize::MAX }) => {}
        }
        upload.abort(&id).await.unwrap();
        received(&server, "DELETE", 2).await;
    }
}

/// Waits until a server has received requests of a method.
async fn received(server: &FakeHttp, method: &str, count: usize) {
    let wait = async {
        while server.requests(method).len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
}

#[tokio::test]
async fn replies_without_what_is_needed_are_errors() {
    let (upload, _server) = begin(false, |_, _| reply("200 OK", "", b"<R/>")).await;
    assert!(matches!(upload.begin().await.unwrap_err().cause(), Cause::BadAnswer(_)));
    let (upload, _server) = begin(false, |_, number| match number {
        0 => reply("200 OK", "", b"<UploadId>u</UploadId>"),
        _ => reply("200 OK", "", b""),
    })
    .await;
    let id = upload.begin().await.unwrap();
    let error = upload.put_part(&id, 1, Bytes::new()).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::BadAnswer(_)), "{error}");
}

#[tokio::test]
async fn directories_are_changed_as_those_of_a_disk() {
    let server = FakeHttp::start(|request| match (request.method(), request.target()) {
        ("HEAD", "/b/f") => head("200 OK", &format!("Content-Length: 3\r\n{VERSION}")),
        ("GET", target) => {
            let keys = match target.rsplit_once("prefix=").map(|(_, prefix)| prefix) {
                Some("empty%2F") => "<Contents><Key>empty/</Key><Size>0</Size></Contents>",
                Some("full%2F") => "<CommonPrefixes><Prefix>full/d/</Prefix></CommonPrefixes>",
                _ => "",
            };
            reply("200 OK", "", format!("<ListBucketResult>{keys}</ListBucketResult>").as_bytes())
        }
        ("HEAD", _) => head("404 Not Found", "Content-Length: 0\r\n"),
        ("PUT", _) => reply("200 OK", "", b""),
        _ => head("204 No Content", ""),
    })
    .await;
    let files = store_client(&server).http_files(&server.url("/"));
    for (path, made, removed, removed_as_file) in [
        ("/b/f", Some(ErrorCode::IT_EXISTS), Some(ErrorCode::FS_ERROR), None),
        ("/b/empty", None, None, None),
        ("/b/full", None, Some(ErrorCode::IT_EXISTS), Some(ErrorCode::IT_EXISTS)),
        ("/b/none", None, None, Some(ErrorCode::NOT_FOUND)),
    ] {
        // Only servers give codes.
        let of = |changed: Result<(), Error>| {
            changed.err().map(|error| code(&error).unwrap_or_else(|| panic!("{error}")))
        };
        assert_eq!(of(files.make_directory(path, false).await), made, "{path}");
        assert_eq!(of(files.remove_directory(path).await), removed, "{path}");
        assert_eq!(of(files.remove_file(path).await), removed_as_file, "{path}");
    }
    let lines = |method: &str| -> Vec<String> {
        server.requests(method).iter().map(|head| head.lines().next().unwrap().to_owned()).collect()
    };
    assert_eq!(lines("PUT"), ["PUT /b/none/ HTTP/1.1"], "only what is missing is made");
    let marker = "DELETE /b/empty/ HTTP/1.1";
    assert_eq!(lines("DELETE"), ["DELETE /b/f HTTP/1.1", marker, marker]);
}

#[tokio::test]
async fn a_bucket_is_never_changed() {
    // An empty bucket is an empty directory.
    let server = FakeHttp::start(|request| none(request).unwrap_or_else(|| head("204 No Content", ""))).await;
    let files = store_client(&server).http_files(&server.url("/"));
    for path in ["/b", "/b/", "/b//"] {
        let error = files.remove_directory(path).await.unwrap_err();
        assert_eq!(code(&error), Some(ErrorCode::FS_ERROR), "{error}");
        files.remove_file(path).await.unwrap_err();
        files.rename("/b/old", path).await.unwrap_err();
        store_client(&server).create_object(&server.url(path), false).await.unwrap_err();
    }
    for method in ["DELETE", "PUT", "POST"] {
        assert!(server.requests(method).is_empty(), "{method}");
    }
}

/// Returns the files of a store with the object `old`, and the requests for changes are answered by `script`.
async fn renamed(script: impl Fn(&Received) -> Vec<Action> + Send + Sync + 'static) -> (HttpFiles, FakeHttp) {
    let server = FakeHttp::start(move |request| match (request.method(), request.target()) {
        ("HEAD", "/b/old") => head("200 OK", &format!("Content-Length: 3\r\n{VERSION}")),
        ("HEAD" | "GET", _) => none(request).unwrap(),
        _ => script(request),
    })
    .await;
    (store_client(&server).http_files(&server.url("/")), server)
}

#[tokio::test]
async fn a_name_is_removed_only_when_its_copy_is_there() {
    let copied = |request: &Received| match request.method() {
        "PUT" => reply("200 OK", "", b"<CopyObjectResult/>"),
        _ => head("204 No Content", ""),
    };
    let (files, server) = renamed(copied).await;
    files.rename("/b/old", "/b/new").await.unwrap();
    let put = server.requests("PUT").pop().unwrap();
    assert!(put.starts_with("PUT /b/new ") && put.contains("X-Amz-Copy-Source: /b/old\r\n"), "{put}");
    assert!(put.contains("X-Amz-Copy-Source-If-Match: \"v1\"\r\n"), "{put}");
    assert!(server.requests("DELETE")[0].starts_with("DELETE /b/old "));
    for answer in [
        reply("200 OK", "", b"<Error><Code>InternalError</Code></Error>") as Vec<Action>,
        reply("200 OK", "", b""),
        reply("412 Precondition Failed", "", b""),
    ] {
        let answer = std::sync::Mutex::new(Some(answer));
        let (files, server) = renamed(move |_| answer.lock().unwrap().take().unwrap()).await;
        files.rename("/b/old", "/b/new").await.unwrap_err();
        assert!(server.requests("DELETE").is_empty());
    }
    // The new name may be there.
    for step in ["PUT", "DELETE"] {
        let (files, _server) = renamed(move |request| match request.method() {
            method if method == step => vec![Action::Close],
            _ => copied(request),
        })
        .await;
        let error = files.rename("/b/old", "/b/new").await.unwrap_err();
        assert!(error.is_uncertain() && matches!(error.cause(), Cause::Lost(_)), "{error}");
    }
    let (files, _server) = renamed(|_| vec![Action::Close]).await;
    for error in [
        files.remove_file("/b/old").await.unwrap_err(),
        files.make_directory("/b/d", false).await.unwrap_err(),
    ] {
        assert!(error.is_uncertain(), "{error}");
    }
    let (files, server) = renamed(copied).await;
    for from in ["/b/none", "/b/"] {
        files.rename(from, "/b/new").await.unwrap_err();
    }
    files.rename("/b/old", "/b/old").await.unwrap();
    assert!(server.requests("PUT").is_empty() && server.requests("DELETE").is_empty());
}
