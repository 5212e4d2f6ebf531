//! Synchronizations with deletions while the servers of a cluster are not all known.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use client::copy::{
    Copier, CopyDone, CopyError, CopyJob, CopyListener, CopyOptions, DirectorySync, Equal, Place, Watch,
};
use client::walk::{Tree, Walk};
use client::{Client, ListWith};
use support::{Act, Asked, Fake, MANAGER, SERVER, client, ok, send};
use tokio::net::TcpListener;
use wire::xroot::flags::LocateOptions;
use wire::xroot::reply;
use wire::xroot::{ErrorCode, RequestCode};

const DIRECTORY: &str = "51 99 98 97 0755 me us";

/// Starts a server whose directory has one file of 5 bytes.
async fn server(name: &'static str) -> Fake {
    Fake::start(SERVER, move |asked| match asked.code() {
        RequestCode::DIRLIST => {
            ok(asked, format!(".\n0 0 0 0\n{name}\n9 5 48 99 98 97 0644 me us\0").as_bytes())
        }
        RequestCode::MKDIR => ok(asked, b""),
        _ => ok(asked, format!("1 5 {DIRECTORY}\0").as_bytes()),
    })
    .await
}

/// Starts a manager that reports the values of `away` in turn, and the last one from then on. It
/// answers its locates with `locate`, which receives their number from 0.
async fn manager(
    away: &'static [&'static str],
    locate: impl Fn(&Asked, usize) -> Act + Send + 'static,
) -> Fake {
    let (mut queries, mut locates) = (0, 0);
    Fake::start(MANAGER, move |asked| match asked.code() {
        RequestCode::QUERY => {
            queries += 1;
            ok(asked, format!("{}\n\0", away[(queries - 1).min(away.len() - 1)]).as_bytes())
        }
        RequestCode::LOCATE => {
            locates += 1;
            locate(asked, locates - 1)
        }
        _ => ok(asked, format!("1 5 {DIRECTORY}\0").as_bytes()),
    })
    .await
}

fn overloaded(asked: &Asked) -> Act {
    send(|out| reply::error(out, asked.header.streamid, ErrorCode::OVERLOADED, "busy"))
}

/// A manager with one server, and a supervisor that has another one.
struct Cluster {
    manager: Fake,
    /// The two servers and the supervisor.
    others: [Fake; 3],
}

/// Starts a cluster with the files `near` and `far`. Each locate whose number is in the list fails
/// at the supervisor, or omits it at the manager.
async fn cluster(
    away: &'static [&'static str],
    failing: &'static [usize],
    omitting: &'static [usize],
) -> Cluster {
    let (near, far) = (server("near").await, server("far").await);
    let location = format!("Sw{}\0", far.address);
    let supervisor = manager(&["0"], move |asked, number| match failing.contains(&number) {
        true => overloaded(asked),
        false => ok(asked, location.as_bytes()),
    })
    .await;
    let [only, both] = ["", &format!(" Mw{}", supervisor.address)]
        .map(|supervisor| format!("Sw{}{supervisor}\0", near.address));
    let manager = manager(away, move |asked, number| match omitting.contains(&number) {
        true => ok(asked, only.as_bytes()),
        false => ok(asked, both.as_bytes()),
    })
    .await;
    Cluster { manager, others: [near, far, supervisor] }
}

/// A local directory with the files `near` and `far`.
struct Local(PathBuf);

impl Local {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-away-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for file in ["near", "far"] {
            std::fs::write(path.join(file), b"12345").unwrap();
        }
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The notes of a synchronization, which the first one may stop.
#[derive(Default)]
struct Notes {
    texts: std::sync::Mutex<Vec<String>>,
    stops: Option<Watch>,
}

impl CopyListener for Notes {
    fn ended(&self, _: &CopyJob, _: &Result<CopyDone, CopyError>) {}

    fn missed(&self, _: &CopyError) {}

    fn note(&self, text: &str) {
        self.texts.lock().unwrap().push(text.to_owned());
        if let Some(watch) = &self.stops {
            watch.cancel();
        }
    }
}

/// Makes a local directory equal to the cluster. Returns the notes.
async fn synchronize(cluster: &Cluster, local: &Local) -> Result<Vec<String>, CopyError> {
    let notes = Arc::new(Notes::default());
    synchronize_with(&client(&[]), cluster, local, &notes, &Watch::default()).await?;
    let notes = notes.texts.lock().unwrap().clone();
    Ok(notes)
}

async fn synchronize_with(
    client: &Client,
    cluster: &Cluster,
    local: &Local,
    notes: &Arc<Notes>,
    watch: &Watch,
) -> Result<(), CopyError> {
    let copier = Copier::new(client);
    let sync = DirectorySync {
        source: Place::Remote(cluster.manager.url("/top")),
        target: Place::Local(local.0.clone()),
        equal: Equal::Size,
        delete: true,
        max_delete: None,
        allow_empty: false,
        allow_away: false,
        allow_links: false,
        dry_run: false,
        parallel: 1,
        options: CopyOptions::of(copier.client().settings()),
    };
    copier.sync(&sync, |_| (), notes.clone(), watch).await.map(|_| ())
}

#[tokio::test]
async fn files_behind_a_supervisor_that_fails_once_are_kept() {
    // The second locate determines the servers of the tree; the others belong to the checks.
    let cluster = cluster(&["0"], &[1], &[]).await;
    let local = Local::new("fails");
    let error = synchronize(&cluster, &local).await.unwrap_err();
    assert_eq!(local.names(), ["far", "near"], "{error}");
}

#[tokio::test]
async fn files_of_a_server_that_joins_during_the_checks_are_kept() {
    let cluster = cluster(&["0"], &[], &[1]).await;
    let local = Local::new("joins");
    let error = synchronize(&cluster, &local).await.unwrap_err();
    assert!(error.to_string().contains("has joined the cluster of"), "{error}");
    assert_eq!(local.names(), ["far", "near"]);
}

#[tokio::test]
async fn a_manager_that_does_not_know_its_servers_refuses_deletions_after_the_window() {
    let cluster = cluster(&["unknown"], &[], &[]).await;
    let local = Local::new("restarts");
    let (notes, client) = (Arc::new(Notes::default()), client(&[("FormationWindow", "0")]));
    let done = synchronize_with(&client, &cluster, &local, &notes, &Watch::default()).await;
    let error = done.unwrap_err().to_string();
    let expected = format!("the manager {} has started a short time ago", cluster.manager.address);
    assert!(error.contains(&expected) && error.contains("--allow-away"), "{error}");
    assert_eq!(local.names(), ["far", "near"]);
    assert_eq!(cluster.manager.count(RequestCode::QUERY), 1);
    assert!(notes.texts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_manager_that_has_just_started_is_awaited() {
    let cluster = cluster(&["unknown", "unknown", "0"], &[], &[]).await;
    let local = Local::new("starts");
    std::fs::write(local.0.join("extra"), b"").unwrap();
    let notes = synchronize(&cluster, &local).await.unwrap();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("has started a short time ago") && note.ends_with("waiting up to 30 s"), "{note}");
    assert_eq!(local.names(), ["far", "near"]);
}

#[tokio::test]
async fn the_wait_for_a_manager_can_be_stopped() {
    let cluster = cluster(&["unknown"], &[], &[]).await;
    let local = Local::new("stops");
    let watch = Watch::default();
    let notes = Arc::new(Notes { stops: Some(watch.clone()), ..Notes::default() });
    let done = synchronize_with(&client(&[]), &cluster, &local, &notes, &watch).await;
    assert!(matches!(done, Err(CopyError::Cancelled)), "{done:?}");
    assert_eq!(local.names(), ["far", "near"]);
}

#[tokio::test]
async fn a_manager_that_starts_again_during_the_checks_refuses_deletions() {
    let cluster = cluster(&["0", "unknown", "0"], &[], &[]).await;
    let local = Local::new("again");
    let error = synchronize(&cluster, &local).await.unwrap_err().to_string();
    assert!(error.contains("has started a short time ago"), "{error}");
    assert_eq!(local.names(), ["far", "near"]);
}

#[tokio::test]
async fn a_manager_that_does_not_report_absent_servers_is_noted() {
    let replies: [(&[&str], usize); 4] = [(&["scalla.away"], 1), (&[""], 1), (&["many"], 1), (&["0"], 0)];
    for (away, noted) in replies {
        let cluster = cluster(away, &[], &[]).await;
        let local = Local::new("notes");
        std::fs::write(local.0.join("extra"), b"").unwrap();
        let notes = synchronize(&cluster, &local).await.unwrap();
        assert_eq!(notes.len(), noted, "{away:?}: {notes:?}");
        assert!(notes.iter().all(|note| note.contains("does not report")), "{notes:?}");
        assert_eq!(local.names(), ["far", "near"]);
    }
}

#[tokio::test]
async fn a_tree_without_the_servers_of_a_supervisor_is_not_complete() {
    let cluster = cluster(&["0"], &[0], &[]).await;
    let url = cluster.manager.url("/top");
    let tree = Tree::at_server(&client(&[]).file_system(&url), &url).await.unwrap();
    let directory = Walk::through(tree).next().await.unwrap();
    assert!(!directory.is_complete);
    assert_eq!(directory.unknown.len(), 1);
    assert_eq!(directory.unknown[0].error.code(), Some(ErrorCode::OVERLOADED));
    let names: Vec<_> = directory.items.iter().map(|item| item.name.to_string()).collect();
    assert_eq!(names, ["near"]);
}

#[tokio::test]
async fn a_directory_is_made_at_the_known_servers_and_a_failing_supervisor_is_reported() {
    let cluster = cluster(&["0"], &[0], &[]).await;
    let [near, far, supervisor] = &cluster.others;
    let files = client(&[]).file_system(&cluster.manager.url("/"));
    let error = files.mkdir_everywhere("/top/new", 0o755, false).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::OVERLOADED));
    assert!(error.to_string().contains(&supervisor.address.to_string()), "{error}");
    assert_eq!([near, far].map(|server| server.count(RequestCode::MKDIR)), [1, 0]);
    // The supervisor answers the second locate.
    files.mkdir_everywhere("/top/new", 0o755, true).await.unwrap();
    assert_eq!(far.count(RequestCode::MKDIR), 1);
}

#[tokio::test]
async fn a_listing_without_the_servers_of_a_supervisor_has_the_reason() {
    let cluster = cluster(&["0"], &[0, 1], &[]).await;
    let files = client(&[]).file_system(&cluster.manager.url("/"));
    let listed = files.list_cluster("/top", &ListWith::default()).await.unwrap();
    let names: Vec<_> = listed.entries.iter().map(|entry| entry.name.to_string()).collect();
    assert_eq!(names, ["near"]);
    let codes: Vec<_> = listed.failed.iter().map(client::Error::code).collect();
    assert_eq!(codes, [Some(ErrorCode::OVERLOADED)]);
    let found = files.matching("/top/n*").await.unwrap();
    assert_eq!((found.paths.len(), found.failed.len()), (1, 1), "{found:?}");
    let listed = files.list_cluster("/top", &ListWith::default()).await.unwrap();
    assert_eq!((listed.entries.iter().count(), listed.failed.len()), (2, 0));
}

#[tokio::test]
async fn an_operation_on_all_servers_needs_the_servers_of_each_supervisor() {
    let cluster = cluster(&["0"], &[0, 1], &[]).await;
    let files = client(&[]).file_system(&cluster.manager.url("/"));
    assert_eq!(files.servers("/top").await.unwrap_err().code(), Some(ErrorCode::OVERLOADED));
    assert_eq!(files.holders("/top/far").await.unwrap_err().code(), Some(ErrorCode::OVERLOADED));
    assert_eq!(files.servers("/top").await.unwrap().len(), 2);
    assert_eq!(files.holders("/top/far").await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_cluster_with_too_many_nodes_is_an_error() {
    // One manager under many names: each locate returns another one.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, mut number) = (listener.local_addr().unwrap(), 0);
    let endless = Fake::listening(listener, MANAGER, move |asked| {
        number += 1;
        ok(asked, format!("Mwname{number}@{address}\0").as_bytes())
    });
    // One reply with many servers.
    let wide = manager(&["0"], |asked, _| {
        let all: Vec<String> = (0..=65_536).map(|number| format!("Sw127.0.0.1:{number}")).collect();
        ok(asked, format!("{}\0", all.join(" ")).as_bytes())
    })
    .await;
    let files = client(&[]).file_system(&endless.url("/"));
    let error = files.locate_deep("/a", LocateOptions::NONE).await.unwrap_err();
    assert!(error.to_string().contains("4096 nodes"), "{error}");
    let files = client(&[]).file_system(&wide.url("/"));
    for error in [files.servers("/a").await.unwrap_err(), files.servers_away("/a").await.unwrap_err()] {
        assert!(error.to_string().contains("65536 nodes"), "{error}");
    }
}
