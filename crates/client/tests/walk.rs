//! Walks through trees of malicious servers, and through trees that lead back into themselves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use client::Error;
use client::copy::{Copier, DirectorySync, Equal, Place, SyncStep, Watch};
use client::walk::{DEPTH_MAX, PATH_BYTES_MAX, Tree, TreeRemoval, Walk};
use client::xroot::ErrorCode;
use support::{Act, Asked, Fake, SERVER, client, ok, send, stat_text};
use wire::xroot::RequestCode;
use wire::xroot::reply;

const DIRECTORY: &str = "51 99 98 97 0755 me us";
const FILE: &str = "48 99 98 97 0644 me us";

/// Builds a listing with status from names, numbers and kinds.
fn listing(entries: &[(&str, u64, &str)]) -> Vec<u8> {
    let mut body = ".\n0 0 0 0\n".to_owned();
    for (name, id, kind) in entries {
        body += &format!("{name}\n{id} 5 {kind}\n");
    }
    body.pop();
    body.push('\0');
    body.into_bytes()
}

fn refuse(asked: &Asked, code: ErrorCode, text: &str) -> Act {
    send(|out| reply::error(out, asked.header.streamid, code, text))
}

async fn walk(server: &Fake) -> (Vec<String>, Vec<String>) {
    let url = server.url("/top");
    let tree = Tree::at_server(&client(&[]).file_system(&url), &url).await.unwrap();
    let mut walk = Walk::through(tree);
    let (mut seen, mut unknown) = (Vec::new(), Vec::new());
    while let Some(mut directory) = walk.next().await {
        walk.enter_all(&mut directory);
        seen.push(directory.path.to_string());
        unknown.extend(directory.unknown.iter().map(|unknown| unknown.error.to_string()));
    }
    (seen, unknown)
}

#[tokio::test]
async fn directories_without_end_have_one() {
    for (name, most) in [("d".to_owned(), DEPTH_MAX + 1), ("d".repeat(200), PATH_BYTES_MAX / 201 + 1)] {
        let next = AtomicU64::new(100);
        let server = Fake::start(SERVER, move |asked| match asked.code() {
            RequestCode::DIRLIST => {
                let id = next.fetch_add(1, Ordering::SeqCst);
                ok(asked, &listing(&[(&name, id, DIRECTORY)]))
            }
            _ => ok(asked, &stat_text(0)),
        })
        .await;
        let (seen, unknown) = walk(&server).await;
        assert_eq!(seen.len(), most);
        assert_eq!(unknown.len(), 1, "{unknown:?}");
        assert!(server.count(RequestCode::DIRLIST) <= most);
    }
}

#[tokio::test]
async fn a_directory_that_leads_back_is_not_entered() {
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::STAT => ok(asked, format!("1 5 {DIRECTORY}\0").as_bytes()),
        RequestCode::DIRLIST if asked.text() == "/top" => {
            ok(asked, &listing(&[("a", 2, DIRECTORY), ("b", 3, DIRECTORY), ("self", 1, DIRECTORY)]))
        }
        // The number 0 stands for an unknown one; the same directory twice is not a cycle.
        RequestCode::DIRLIST if asked.text() == "/top/a" => {
            let entries = [("again", 2), ("b", 3), ("up", 1), ("zero", 0)];
            ok(asked, &listing(&entries.map(|(name, id)| (name, id, DIRECTORY))))
        }
        _ => ok(asked, &listing(&[("f", 9, FILE)])),
    })
    .await;
    let (seen, unknown) = walk(&server).await;
    assert_eq!(seen, ["", "a", "a/b", "a/zero", "b"]);
    assert_eq!(unknown.len(), 3);
    assert!(unknown.iter().all(|text| text.contains("leads back to root://")), "{unknown:?}");
}

#[tokio::test]
async fn directories_whose_numbers_are_cut_alike_are_both_entered() {
    let server = Fake::start(SERVER, |asked| match (asked.code(), asked.text().as_str()) {
        // The size and the time differ.
        (RequestCode::STAT, _) => ok(asked, format!("1 6 {DIRECTORY}\0").as_bytes()),
        (RequestCode::DIRLIST, "/top") => ok(asked, &listing(&[("a", 1, DIRECTORY)])),
        (RequestCode::DIRLIST, "/top/a") => ok(asked, &listing(&[("b", 1, "51 97 98 97 0755 me us")])),
        _ => ok(asked, &listing(&[("f", 9, FILE)])),
    })
    .await;
    let (seen, unknown) = walk(&server).await;
    assert_eq!(seen, ["", "a", "a/b"]);
    assert_eq!(unknown, [""; 0]);
}

/// Answers as a server whose `/top/link` leads elsewhere, and whose `/top/full` contains a file.
fn linked(asked: &Asked) -> Act {
    match (asked.code(), asked.text().as_str()) {
        (RequestCode::RMDIR, "/top/link") => refuse(asked, ErrorCode::FS_ERROR, "rmdir: Not a directory"),
        (RequestCode::RMDIR, "/top/empty") => ok(asked, b""),
        (RequestCode::RMDIR, "/top/odd") => refuse(asked, ErrorCode::NOT_AUTHORIZED, "no"),
        (RequestCode::RMDIR, _) => refuse(asked, ErrorCode::IT_EXISTS, "directory not empty"),
        (RequestCode::STAT, _) => ok(asked, format!("1 0 {DIRECTORY}\0").as_bytes()),
        (RequestCode::DIRLIST, "/top") => {
            let directories = ["empty", "full", "link", "odd"].map(|name| (name, 0, DIRECTORY));
            ok(asked, &listing(&directories))
        }
        (RequestCode::DIRLIST, _) => ok(asked, &listing(&[("f", 0, FILE)])),
        _ => ok(asked, b""),
    }
}

#[tokio::test]
async fn what_is_no_directory_of_its_own_is_not_emptied() {
    let server = Fake::start(SERVER, linked).await;
    let url = server.url("/top");
    let tree = Tree::at_server(&client(&[]).file_system(&url), &url).await.unwrap();
    let mut removal = TreeRemoval::of(tree);
    let mut failed = Vec::new();
    while let Some(removed) = removal.next().await {
        failed
            .extend(removed.into_iter().filter_map(|one| one.result.err()).map(|error| format!("{error:#}")));
    }
    assert_eq!(server.texts(RequestCode::RM), ["/top/full/f"]);
    assert!(!server.texts(RequestCode::DIRLIST).contains(&"/top/link".to_owned()));
    assert!(!server.texts(RequestCode::DIRLIST).contains(&"/top/odd".to_owned()));
    assert!(failed.iter().any(|text| text.contains("link to a directory")), "{failed:?}");
    assert!(failed.iter().any(|text| text.contains("kXR_NotAuthorized")), "{failed:?}");
}

#[tokio::test]
async fn a_directory_whose_entries_are_not_found_is_not_taken_for_removed() {
    // The listing shows a name that does not exist, as XRootD servers do with the longest names.
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::RM => refuse(asked, ErrorCode::NOT_FOUND, "no such file"),
        RequestCode::RMDIR => refuse(asked, ErrorCode::IT_EXISTS, "directory not empty"),
        RequestCode::DIRLIST => ok(asked, &listing(&[("f", 0, FILE)])),
        _ => ok(asked, format!("1 0 {DIRECTORY}\0").as_bytes()),
    })
    .await;
    let url = server.url("/top");
    let tree = Tree::at_server(&client(&[]).file_system(&url), &url).await.unwrap();
    let mut removal = TreeRemoval::of(tree);
    let mut failed = Vec::new();
    while let Some(removed) = removal.next().await {
        failed.extend(removed.into_iter().filter_map(|one| one.result.err()));
    }
    assert_eq!(failed.iter().map(Error::is_not_found).collect::<Vec<_>>(), [true, false]);
    assert!(failed[1].to_string().contains("not empty"), "{}", failed[1]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_identified_is_not_read() {
    // Otherwise a link in it that leads back to it would be entered.
    let server = Fake::start(SERVER, |asked| match asked.code() {
        RequestCode::STAT => refuse(asked, ErrorCode::IO_ERROR, "bad disk"),
        _ => ok(asked, &listing(&[("link", 7, DIRECTORY)])),
    })
    .await;
    let (seen, unknown) = walk(&server).await;
    assert_eq!((seen, unknown.len()), (vec![String::new()], 1));
    assert!(unknown[0].contains("bad disk"), "{unknown:?}");
    assert_eq!(server.count(RequestCode::DIRLIST), 0);
}

#[tokio::test]
async fn a_plan_asks_for_no_change() {
    let server = Fake::start(SERVER, linked).await;
    let source = std::env::temp_dir().join(format!("scalla-walk-{}", std::process::id()));
    std::fs::create_dir_all(&source).unwrap();
    let copier = Copier::new(&client(&[]));
    let sync = DirectorySync {
        source: Place::Local(source.clone()),
        target: Place::Remote(server.url("/top")),
        equal: Equal::Size,
        delete: true,
        max_delete: None,
        allow_empty: true,
        allow_away: false,
        allow_links: false,
        dry_run: true,
        parallel: 1,
        options: client::copy::CopyOptions::of(copier.client().settings()),
    };
    let told = std::sync::Mutex::new(Vec::new());
    let tell = |step: &SyncStep| told.lock().unwrap().push(step.clone());
    let tally = copier.sync(&sync, tell, std::sync::Arc::new(()), &Watch::default()).await.unwrap();
    assert_eq!((tally.copied, tally.failed), (0, 0));
    assert_eq!(told.lock().unwrap().len(), 8);
    let asked: Vec<RequestCode> = server.asked.lock().unwrap().iter().map(Asked::code).collect();
    assert!(asked.iter().all(|code| matches!(*code, RequestCode::STAT | RequestCode::DIRLIST)), "{asked:?}");
    std::fs::remove_dir_all(&source).unwrap();
}
