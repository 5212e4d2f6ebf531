//! Names that no request can carry: nothing is asked for that would act on another file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use client::{Cause, Error, ListWith, NameError};
use support::{Asked, Fake, SERVER, client, ok, stat_text};
use wire::xroot::RequestCode;
use wire::xroot::flags::PrepareOptions;

/// Lists `data` and two names that begin as it does; everything else is done.
fn listed(asked: &Asked) -> support::Act {
    match asked.code() {
        RequestCode::DIRLIST => ok(asked, b"data?old\ndata\ndata\xff\0"),
        _ => ok(asked, &stat_text(4)),
    }
}

fn why(error: &Error) -> Option<NameError> {
    match error.cause() {
        Cause::BadName { why, .. } => Some(*why),
        _ => None,
    }
}

#[tokio::test]
async fn a_path_with_a_question_mark_is_never_sent() {
    let server = Fake::start(SERVER, listed).await;
    let files = client(&[]).file_system(&server.url("/"));
    let refused = [
        files.rm("/data?old").await.unwrap_err(),
        files.rmdir("/data?old").await.unwrap_err(),
        files.mkdir("/data?old", 0o755, true).await.unwrap_err(),
        files.mv("/data?old", "/b").await.unwrap_err(),
        files.mv("/data", "/b?old").await.unwrap_err(),
        files.chmod("/data?old", 0o600).await.unwrap_err(),
        files.truncate("/data?old", 0).await.unwrap_err(),
        files.stat("/data?old").await.unwrap_err(),
        files.stat_many(&["/data", "/data?old"]).await.unwrap_err(),
        files.list("/data?old", &ListWith::default()).await.unwrap_err(),
        files.checksum("/data?old", Some("md5")).await.unwrap_err(),
        files.remove_attributes("/data?old", &["a"]).await.unwrap_err(),
        files.matching("/data?ol*").await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(why(&error), Some(NameError::QuestionMark), "{error}");
    }
    assert!(server.asked.lock().unwrap().is_empty());
    // Text written by a user may contain cgi.
    let (files, path) = files.at("/data?a=1").unwrap();
    files.rm(&path).await.unwrap();
    assert_eq!(server.texts(RequestCode::RM), ["/data?a=1"]);
}

#[tokio::test]
async fn a_path_with_a_line_end_is_not_sent_as_two() {
    let server = Fake::start(SERVER, listed).await;
    let files = client(&[]).file_system(&server.url("/"));
    let refused = [
        files.stat_many(&["/a", "/b\n/c"]).await.unwrap_err(),
        files.prepare(&["/b\n/c"], PrepareOptions::STAGE, 0).await.unwrap_err(),
        files.evict(&["/b\n/c"]).await.unwrap_err(),
        files.prepare_status("id", &["/b\n/c"]).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(why(&error), Some(NameError::LineEnd), "{error}");
    }
    assert!(server.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_pattern_stands_for_the_names_that_can_be_carried_and_tells_the_others() {
    let server = Fake::start(SERVER, listed).await;
    let files = client(&[]).file_system(&server.url("/"));
    let found = files.matching("/d/data*").await.unwrap();
    assert_eq!(found.paths, ["/d/data", "/d/data\u{10ffff}"]);
    assert_eq!(found.failed.iter().map(why).collect::<Vec<_>>(), [Some(NameError::QuestionMark)]);
    // A byte that is not UTF-8 is sent as it came.
    files.rm(&found.paths[1]).await.unwrap();
    assert_eq!(server.asked.lock().unwrap().last().unwrap().payload, b"/d/data\xff");
    let entries = files.list("/d", &ListWith { stat: true, ..ListWith::default() }).await.unwrap();
    let named: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.stat.is_some())).collect();
    // The status of the other would be that of `data`.
    assert_eq!(named, [("data", true), ("data?old", false), ("data\u{10ffff}", true)]);
}
