//! The size and the version that the open of a file of an HTTP server finds, at a scripted server.

#![allow(clippy::unwrap_used)]

mod http_support;

use client::Cause;
use client::xroot::ErrorCode;
use http_support::{FakeHttp, VERSION, client, content, file, head, reply, send};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn the_size_is_found_by_a_range_if_the_head_does_not_show_it() {
    let content = content(100);
    for without in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n",
    ] {
        let served = content.clone();
        let server = FakeHttp::start(move |request| match request.method() {
            "HEAD" => send(without),
            _ => file(request, &served, VERSION),
        })
        .await;
        let file = client().open_http(&server.url("/f")).await.unwrap();
        assert_eq!(file.read(90, 100).await.unwrap(), content[90..]);
        assert_eq!(client().http_files(&server.url("/")).stat("/f").await.unwrap().size, 100);
    }
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let server = FakeHttp::start(move |request| match request.method() {
        "HEAD" => send(chunked),
        _ => send(format!("{chunked}1\r\nx\r\n0\r\n\r\n")),
    })
    .await;
    let error = client().open_http(&server.url("/f")).await.unwrap_err();
    assert!(error.to_string().contains("size"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_cannot_be_opened() {
    let content = content(100);
    let server = FakeHttp::start(move |request| match request.method() {
        "GET" => reply("403 Forbidden", "", b"no"),
        _ => file(request, &content, VERSION),
    })
    .await;
    let error = client().open_http(&server.url("/f")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NOT_AUTHORIZED), "{error}");
    assert_eq!(client().http_files(&server.url("/")).stat("/f").await.unwrap().size, 100);
}

#[tokio::test]
async fn a_weak_tag_is_compared_and_identifies_nothing() {
    let is_new = Arc::new(AtomicBool::new(false));
    let (content, switch) = (content(100), is_new.clone());
    let server = FakeHttp::start(move |request| {
        let version = if switch.load(Ordering::Relaxed) { "2" } else { "1" };
        file(request, &content, &format!("ETag: W/\"{version}\"\r\n"))
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert!(!file.has_version() && file.stat_at_open().id == 0);
    file.read(0, 10).await.unwrap();
    is_new.store(true, Ordering::Relaxed);
    let error = file.read(0, 10).await.unwrap_err();
    assert!(matches!(error.cause(), Cause::Changed(_)), "{error}");
}

#[tokio::test]
async fn the_head_shows_the_version_that_data_do_not_show() {
    let content = content(100);
    let server = FakeHttp::start(move |request| match request.method() {
        "GET" => file(request, &content, ""),
        _ => file(request, &content, VERSION),
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert!(file.has_version());
    assert_eq!(&file.stat().await.unwrap(), file.stat_at_open());
    // Another server shows another time in the head.
    let server = FakeHttp::start(move |request| match request.method() {
        "GET" => reply("206 Partial Content", &format!("Content-Range: bytes 0-0/7\r\n{VERSION}"), b"x"),
        _ => head("200 OK", "Content-Length: 7\r\nLast-Modified: Mon, 07 Nov 1994 08:49:37 GMT\r\n"),
    })
    .await;
    let file = client().open_http(&server.url("/f")).await.unwrap();
    assert_eq!(&file.stat().await.unwrap(), file.stat_at_open());
}

#[tokio::test]
async fn a_file_is_empty_if_it_has_no_first_byte() {
    let content = content(100);
    for version in [VERSION, ""] {
        let served = content.clone();
        let server = FakeHttp::start(move |request| match request.method() {
            "HEAD" => head("200 OK", &format!("Content-Length: 0\r\n{version}")),
            _ => file(request, &served, version),
        })
        .await;
        let file = client().open_http(&server.url("/f")).await.unwrap();
        assert_eq!((file.stat_at_open().size, file.stat().await.unwrap().size), (100, 100));
        assert_eq!(client().http_files(&server.url("/")).stat("/f").await.unwrap().size, 100);
    }
    for (status, headers) in [
        ("416 Range Not Satisfiable", "Content-Range: bytes */0\r\n"),
        ("416 Range Not Satisfiable", ""),
        ("206 Partial Content", "Content-Range: bytes 0-0/0\r\n"),
        ("200 OK", ""),
        ("200 OK", VERSION),
    ] {
        let server = FakeHttp::start(move |request| match request.method() {
            "HEAD" => head("200 OK", &format!("Content-Length: 0\r\n{VERSION}")),
            _ => reply(status, headers, b""),
        })
        .await;
        let file = client().open_http(&server.url("/f")).await.unwrap();
        assert_eq!((file.stat_at_open().size, file.read(0, 10).await.unwrap().len()), (0, 0), "{status}");
        assert!(file.has_version());
    }
}
