//! Lost replies to requests that must not be repeated.
//!
//! Each is sent once, and the client queries the state of the server instead.

#![allow(clippy::unwrap_used)]

mod support;

use client::copy::{Copier, CopyError, CopyJob, CopyOptions, Place, ThirdParty, Watch};
use client::{Cause, Error, FileSystem, OpenWith};
use support::{Act, Asked, Fake, MANAGER, PLAIN, client, close, ok, opened, send, stat_text};
use wire::xroot::reply::{self, Redirect};
use wire::xroot::{ErrorCode, RequestCode};

fn not_found(asked: &Asked) -> Act {
    send(|out| reply::error(out, asked.header.streamid, ErrorCode::NOT_FOUND, "no such file"))
}

fn directory(asked: &Asked) -> Act {
    ok(asked, b"7 512 51 99 98 97 0755 me us\0")
}

/// Starts a server that loses each reply to `lost` and answers status requests with `stat` from
/// then on.
async fn losing(lost: RequestCode, stat: impl Fn(&Asked) -> Act + Send + 'static) -> Fake {
    let mut has_lost = false;
    Fake::start(PLAIN, move |asked| match asked.code() {
        code if code == lost => {
            has_lost = true;
            close()
        }
        RequestCode::STAT if has_lost => stat(asked),
        RequestCode::STAT => ok(asked, &stat_text(4)),
        _ => ok(asked, b""),
    })
    .await
}

async fn files(server: &Fake) -> FileSystem {
    client(&[]).file_system(&server.url("/"))
}

#[track_caller]
fn is_uncertain(done: Result<(), Error>, found: &str) {
    let error = done.unwrap_err();
    assert!(error.is_uncertain() && !error.is_transient(), "{error}");
    assert!(error.to_string().contains(&format!("it may have been carried out: {found}; look")), "{error}");
}

#[tokio::test]
async fn a_missing_file_counts_as_removed() {
    let server = losing(RequestCode::RM, not_found).await;
    files(&server).await.rm("/a").await.unwrap();
    assert_eq!(server.count(RequestCode::RM), 1);
    let server = losing(RequestCode::RMDIR, not_found).await;
    files(&server).await.rmdir("/a").await.unwrap();
    assert_eq!(server.count(RequestCode::RMDIR), 1);
}

#[tokio::test]
async fn an_existing_file_is_not_removed_a_second_time() {
    let server = losing(RequestCode::RM, |asked| ok(asked, &stat_text(9))).await;
    is_uncertain(files(&server).await.rm("/a").await, "something of that name is there");
    assert_eq!(server.count(RequestCode::RM), 1);
    let server = losing(RequestCode::RMDIR, directory).await;
    is_uncertain(files(&server).await.rmdir("/a").await, "something of that name is there");
    assert_eq!(server.count(RequestCode::RMDIR), 1);
}

#[tokio::test]
async fn only_the_same_server_can_confirm_a_removal() {
    // At the manager the file disappears together with its server.
    let server = losing(RequestCode::RM, |asked| {
        send(|out| reply::redirect(out, asked.header.streamid, &Redirect::to_host(b"127.0.0.1", 1)))
    })
    .await;
    let port = server.address.port();
    let manager = Fake::start(MANAGER, move |asked| match asked.code() {
        RequestCode::STAT => not_found(asked),
        _ => send(|out| reply::redirect(out, asked.header.streamid, &Redirect::to_host(b"127.0.0.1", port))),
    })
    .await;
    let error = files(&manager).await.rm("/a").await.unwrap_err();
    assert!(error.is_uncertain() && error.to_string().contains("its server cannot be asked"), "{error}");
    assert_eq!((manager.count(RequestCode::RM), manager.count(RequestCode::STAT)), (1, 0));
}

#[tokio::test]
async fn a_rename_is_confirmed_by_the_number_of_the_file() {
    // The number is 7 under the old name at first.
    let new_is = |id: u64| {
        move |asked: &Asked| match asked.text().as_str() {
            "/new" => ok(asked, format!("{id} 4 48 99 98 97 0644 me us\0").as_bytes()),
            _ => not_found(asked),
        }
    };
    let server = losing(RequestCode::MV, new_is(7)).await;
    files(&server).await.mv("/old", "/new").await.unwrap();
    assert_eq!(server.texts(RequestCode::MV), ["/old /new"]);
    for (stat, found) in [
        (Box::new(new_is(8)) as Box<dyn Fn(&Asked) -> Act + Send>, "there is nothing of the old name"),
        (Box::new(|asked: &Asked| ok(asked, &stat_text(4))), "something of the old name is there"),
    ] {
        let server = losing(RequestCode::MV, stat).await;
        is_uncertain(files(&server).await.mv("/old", "/new").await, found);
        assert_eq!(server.count(RequestCode::MV), 1);
    }
}

#[tokio::test]
async fn the_creator_of_a_directory_is_unknown() {
    let server = losing(RequestCode::MKDIR, directory).await;
    is_uncertain(files(&server).await.mkdir("/a", 0o755, false).await, "there is a directory of that name");
    assert_eq!(server.count(RequestCode::MKDIR), 1);
    let server = losing(RequestCode::MKDIR, not_found).await;
    is_uncertain(files(&server).await.mkdir("/a", 0o755, false).await, "there is none of that name now");
}

/// Starts a server that loses the reply to its first open and answers status requests with `stat`.
async fn losing_an_open(stat: impl Fn(&Asked) -> Act + Send + 'static) -> Fake {
    let mut opens = 0;
    Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN => {
            opens += 1;
            if opens == 1 { close() } else { opened(asked, 1, 0) }
        }
        RequestCode::STAT => stat(asked),
        _ => ok(asked, b""),
    })
    .await
}

/// Starts a manager that redirects to `first`, and to `second` after a failure of the first.
async fn manager(first: &Fake, second: &Fake) -> Fake {
    let (first, second) = (first.address.port(), second.address.port());
    Fake::start(MANAGER, move |asked| {
        let port = if asked.text().contains("tried=") { second } else { first };
        send(|out| reply::redirect(out, asked.header.streamid, &Redirect::to_host(b"127.0.0.1", port)))
    })
    .await
}

#[tokio::test]
async fn a_missing_new_file_is_created_at_the_same_server() {
    let server = losing_an_open(not_found).await;
    let other = losing_an_open(not_found).await;
    let manager = manager(&server, &other).await;
    let file = client(&[]).open(&manager.url("/a"), &OpenWith::create()).await.unwrap();
    assert_eq!(file.location().port, server.address.port());
    assert_eq!((server.count(RequestCode::OPEN), manager.count(RequestCode::OPEN)), (2, 1));
    assert_eq!(other.asked.lock().unwrap().len(), 0);
    // The session of the lost connection is ended before a file is created.
    let asked = server.asked.lock().unwrap();
    let codes: Vec<_> = asked.iter().map(Asked::code).collect();
    use RequestCode as Code;
    assert_eq!(codes, [Code::OPEN, Code::ENDSESS, Code::STAT, Code::OPEN]);
}

#[tokio::test]
async fn an_open_that_may_have_created_a_file_is_not_repeated() {
    let server = losing_an_open(|asked| ok(asked, &stat_text(0))).await;
    let other = losing_an_open(not_found).await;
    let manager = manager(&server, &other).await;
    let done = client(&[]).open(&manager.url("/a"), &OpenWith::create()).await;
    is_uncertain(done.map(|_| ()), "there is an empty file of that name");
    assert_eq!((server.count(RequestCode::OPEN), other.asked.lock().unwrap().len()), (1, 0));
    // A file with bytes belongs to another client.
    let server = losing_an_open(|asked| ok(asked, &stat_text(5))).await;
    let error = client(&[]).open(&server.url("/a"), &OpenWith::create()).await.unwrap_err();
    assert_eq!((error.code(), error.is_uncertain()), (Some(ErrorCode::IT_EXISTS), false));
}

#[tokio::test(start_paused = true)]
async fn an_open_that_may_still_create_a_file_is_not_repeated() {
    let server = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => support::silence(),
        RequestCode::STAT => not_found(asked),
        _ => ok(asked, b""),
    })
    .await;
    let done = client(&[]).open(&server.url("/a"), &OpenWith::create()).await;
    is_uncertain(done.map(|_| ()), "there is none of that name now");
    assert_eq!(server.count(RequestCode::OPEN), 1);
}

#[tokio::test]
async fn a_truncated_file_is_not_written_at_another_server() {
    let server = losing_an_open(not_found).await;
    let other = losing_an_open(not_found).await;
    let manager = manager(&server, &other).await;
    let file = client(&[]).open(&manager.url("/a"), &OpenWith::overwrite()).await.unwrap();
    assert_eq!(file.location().port, server.address.port());
    assert_eq!((server.count(RequestCode::OPEN), other.asked.lock().unwrap().len()), (2, 0));
    // A reader continues where it can.
    let file =
        client(&[]).open(&self::manager(&other, &server).await.url("/a"), &OpenWith::read()).await.unwrap();
    assert_eq!(file.location().port, server.address.port());
}

#[tokio::test]
async fn an_upload_with_an_uncertain_target_is_not_retried() {
    let source = std::env::temp_dir().join(format!("scalla-lost-replies-{}", std::process::id()));
    std::fs::write(&source, b"data").unwrap();
    let server = losing_an_open(|asked| ok(asked, &stat_text(0))).await;
    let job = CopyJob {
        source: Place::Local(source.clone()),
        target: Place::Remote(server.url("/new")),
        size: None,
    };
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    options.retries = 3;
    let error = Copier::new(&client).copy(&job, &options, &Watch::default()).await.unwrap_err();
    std::fs::remove_file(&source).unwrap();
    assert!(error.is_uncertain(), "{error}");
    assert!(
        matches!(&error, CopyError::Remote { error, .. } if matches!(error.cause(), Cause::Lost(_))),
        "{error}"
    );
    assert_eq!((server.count(RequestCode::OPEN), server.count(RequestCode::RM)), (1, 0));
}

/// The status of an empty file that differs from the source.
const NEW_FILE: &[u8] = b"8 0 48 90 90 90 0644 me us\0";

#[tokio::test]
async fn a_forced_copy_overwrites_the_file_that_an_uncertain_open_has_created() {
    let source = Fake::start(PLAIN, |asked| match asked.code() {
        RequestCode::OPEN => opened(asked, 1, 4),
        RequestCode::STAT => ok(asked, &stat_text(4)),
        RequestCode::READ => ok(asked, b"data"),
        _ => ok(asked, b""),
    })
    .await;
    let mut is_there = false;
    let server = Fake::start(PLAIN, move |asked| match asked.code() {
        RequestCode::OPEN if is_there => ok(asked, &[&[1, 0, 0, 0][..], &[0; 8], NEW_FILE].concat()),
        // An open that does not create.
        RequestCode::OPEN if asked.header.body[3] & 0x08 == 0 => not_found(asked),
        RequestCode::OPEN => {
            is_there = true;
            close()
        }
        RequestCode::STAT => ok(asked, NEW_FILE),
        _ => ok(asked, b""),
    })
    .await;
    let job = CopyJob {
        source: Place::Remote(source.url("/old")),
        target: Place::Remote(server.url("/new")),
        size: None,
    };
    let client = client(&[]);
    let mut options = CopyOptions::of(client.settings());
    (options.force, options.third_party) = (true, ThirdParty::Never);
    let result = Copier::new(&client).copy(&job, &options, &Watch::default()).await;
    let asked: Vec<_> = server.asked.lock().unwrap().iter().map(Asked::code).collect();
    use RequestCode as Code;
    let end = [Code::OPEN, Code::TRUNCATE];
    assert!(asked.windows(2).any(|two| two == end), "{asked:?} {result:?}");
    assert_eq!(server.texts(Code::RM), [""; 0]);
}
