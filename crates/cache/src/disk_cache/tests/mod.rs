//! The disk cache with origins that change, fail and wait.

#![allow(clippy::unwrap_used)]

mod aged;
mod client_commands;
mod direct;
mod histories;
mod mistaken;
mod part_faults;
mod parts;
mod pins;
mod read_now;
mod recorded;
mod restart_times;
mod room;
pub(crate) mod world;

use super::{CacheReadError, DiskCache};
use crate::{CacheKey, DiskCacheSettings};
use base::{LogicalPath, Owner};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use world::{BLOCK, TestOrigin, World, settings};

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn key(text: &str) -> CacheKey {
    CacheKey::new(&path(text)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_readers_of_a_cold_file_fetch_it_once() {
    let world = World::new();
    world.put("/d/f", 50 * BLOCK + 17);
    let cache = world.start(settings());
    let mut readers = Vec::new();
    for number in 0..100 {
        let reader = world.open(&cache, "/d/f").await.unwrap();
        let world = world.clone();
        readers.push(tokio::spawn(async move {
            for step in 0..51 {
                let block = (step * 7 + number) % 51;
                world.check_read(&reader, block * BLOCK, BLOCK).await.unwrap();
            }
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(world.fetched(), 50 * BLOCK + 17);
    world.settle(&cache).await;
    assert_eq!((cache.bytes(), cache.memory()), (50 * BLOCK + 17, 0));
    // All of it is on disk now, also for another process.
    drop(cache);
    let world = world.restarted(None);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&reader, 0, 100 * BLOCK).await.unwrap();
    assert_eq!(world.fetched(), 0);
    drop(reader);
    world.settle(&cache).await;
    assert_eq!((cache.bytes(), cache.files(), cache.open_files()), (50 * BLOCK + 17, 1, 0));
    // The lock remains.
    world.until(|| world.disk.open_files() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_while_it_is_open_is_never_mixed() {
    let world = World::new();
    world.put("/f", 10 * BLOCK);
    let cache = world.start(settings());
    let (one, two) = (world.open(&cache, "/f").await.unwrap(), world.open(&cache, "/f").await.unwrap());
    world.check_read(&one, 0, 3 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    world.put("/f", 10 * BLOCK);
    // The stored blocks are those of the opened version. Missing blocks of that version no longer exist.
    world.check_read(&one, BLOCK, BLOCK).await.unwrap();
    assert_eq!(world.check_read(&one, 5 * BLOCK, 10).await, Err(CacheReadError::Changed));
    assert_eq!(world.check_read(&two, 9 * BLOCK, 10).await, Err(CacheReadError::Changed));
    assert!(world.open(&cache, "/f").await.is_none(), "it may change again within the same second");
    world.pass_time();
    let new = world.open(&cache, "/f").await.unwrap();
    world.check_read(&new, 0, 10 * BLOCK).await.unwrap();
    world.check_read(&one, 0, 3 * BLOCK).await.unwrap();
    drop((one, two, new));
    world.settle(&cache).await;
    let again = world.open(&cache, "/f").await.unwrap();
    let before = world.fetched();
    world.check_read(&again, 0, 10 * BLOCK).await.unwrap();
    assert_eq!(world.fetched(), before, "the new version is stored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_an_old_version_does_not_replace_a_newer_one() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(settings());
    let old = world.origin("/f");
    let ticket = cache.ticket(&key("/f")).unwrap();
    world.put("/f", 4 * BLOCK);
    world.pass_time();
    let new = world.open(&cache, "/f").await.unwrap();
    world.check_read(&new, 0, 4 * BLOCK).await.unwrap();
    assert!(cache.open(&key("/f"), ticket, old.opened(), (old, Owner(7))).await.is_none());
    world.check_read(&new, 0, 4 * BLOCK).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_at_another_server_is_read_and_not_stored() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    let moved = world.open_with(&cache, "/f", |origin| origin.set_moved()).await.unwrap();
    world.check_read(&moved, 0, 4 * BLOCK).await.unwrap();
    drop((reader, moved));
    world.settle(&cache).await;
    assert_eq!(cache.bytes(), BLOCK, "what was stored of the first server");
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_another_time_at_another_server_is_no_copy() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(settings());
    let moved = world.open_with(&cache, "/f", |origin| origin.set_moved()).await.unwrap();
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    // The other server has a file of this size that was modified at another time.
    world.put("/f", 4 * BLOCK);
    assert_eq!(world.check_read(&moved, 0, 4 * BLOCK).await, Err(CacheReadError::Changed));
    world.check_read(&moved, 0, BLOCK).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_through_the_server_ends_the_use_of_what_is_stored() {
    let world = World::new();
    world.put("/d/f", 4 * BLOCK);
    let cache = world.start(settings());
    let early = cache.ticket(&key("/d/f")).unwrap();
    let origin = world.origin("/d/f");
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    let mut change = cache.change_content(&path("/d/f"));
    assert!(cache.ticket(&key("/d/f")).is_none());
    // Nothing was changed so far.
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    change.made().await;
    assert_eq!((cache.bytes(), world.disk.get(&path("/d/f"))), (0, None));
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    // A file that is open for writing changes later.
    world.put("/d/f", 4 * BLOCK);
    assert_eq!(world.check_read(&reader, 0, BLOCK).await, Err(CacheReadError::Changed));
    assert!(cache.ticket(&key("/d/f")).is_none());
    drop(change);
    assert!(
        cache.open(&key("/d/f"), early, origin.opened(), (origin, Owner(7))).await.is_none(),
        "an early ticket"
    );
    world.pass_time();
    let new = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&new, 0, 4 * BLOCK).await.unwrap();
    drop((reader, new));
    world.settle(&cache).await;
    assert_eq!(cache.bytes(), 4 * BLOCK);
    // A removal or a renaming, of the directory as well.
    cache.change_name(&path("/d")).made().await;
    assert_eq!((cache.bytes(), cache.files()), (0, 0));
    let names = world.disk.names();
    assert!(names.iter().all(|name| name.as_bytes().starts_with(b"/.scalla-cache/")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_the_origin_refuses_removes_nothing() {
    let world = World::new();
    let cache = world.start(settings());
    for name in ["/d/f", "/d/g"] {
        world.put(name, 4 * BLOCK);
        let reader = world.open(&cache, name).await.unwrap();
        world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    }
    world.settle(&cache).await;
    let reader = world.open(&cache, "/d/f").await.unwrap();
    let (ticket, origin) = (cache.ticket(&key("/d/g")).unwrap(), world.origin("/d/g"));
    for _ in 0..3 {
        for change in [cache.change_content(&path("/d/f")), cache.change_name(&path("/d"))] {
            assert!(cache.ticket(&key("/d/f")).is_none());
            world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
            change.refused();
        }
    }
    assert_eq!((cache.bytes(), cache.files()), (8 * BLOCK, 2));
    let opened = cache.open(&key("/d/g"), ticket, origin.opened(), (origin, Owner(7))).await;
    assert!(opened.is_some(), "a reader that was opening a file uses the cache");
    // The reader does not ask the origin any longer.
    world.put("/d/f", 4 * BLOCK);
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changing_is_read_at_the_origin_and_a_lost_change_may_have_been_made() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    let change = cache.change_content(&path("/f"));
    // The origin has made the change, and its answer is still on the way.
    world.put("/f", 4 * BLOCK);
    assert_eq!(world.check_read(&reader, 0, BLOCK).await, Err(CacheReadError::Changed));
    // The client has left before the answer.
    drop(change);
    world.until(|| cache.bytes() == 0 && world.disk.get(&path("/f")).is_none()).await;
    world.until(|| cache.ticket(&key("/f")).is_some()).await;
    world.pass_time();
    let new = world.open(&cache, "/f").await.unwrap();
    world.check_read(&new, 0, 4 * BLOCK).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_reader_is_answered_when_the_one_that_fetches_fails_or_leaves() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(settings());
    let gate = Arc::new(Semaphore::new(0));
    let slow = world.open_with(&cache, "/f", |origin| origin.wait_at(gate.clone())).await.unwrap();
    let fast = world.open(&cache, "/f").await.unwrap();
    let fetching = {
        let (world, slow) = (world.clone(), slow);
        tokio::spawn(async move { world.check_read(&slow, 0, BLOCK).await })
    };
    world.until(|| world.waiting() == 1).await;
    let waiting = {
        let world = world.clone();
        tokio::spawn(async move { world.check_read(&fast, 0, BLOCK).await })
    };
    tokio::task::yield_now().await;
    // The one that fetches leaves, and its connection ends.
    fetching.abort();
    assert!(fetching.await.is_err());
    gate.close();
    waiting.await.unwrap().unwrap();
    world.settle(&cache).await;
    assert_eq!((cache.open_files(), cache.memory()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_is_answered_when_the_task_of_its_request_ends_without_a_result() {
    for memory_bytes in [1 << 20, 0] {
        let world = World::new();
        world.put("/f", 5 * BLOCK);
        let cache = world.start(DiskCacheSettings { memory_bytes, ..settings() });
        let reader = world.open_with(&cache, "/f", TestOrigin::set_panics).await.unwrap();
        let read = tokio::time::timeout(Duration::from_secs(60), world.check_read(&reader, 0, BLOCK));
        assert!(matches!(read.await.unwrap(), Err(CacheReadError::Ended)), "{memory_bytes}");
        drop(reader);
        world.settle(&cache).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_does_not_wait_forever_for_the_connection_of_another_one() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(DiskCacheSettings { patience: Duration::from_millis(5), ..settings() });
    let gate = Arc::new(Semaphore::new(0));
    let hanging = world.open_with(&cache, "/f", |origin| origin.wait_at(gate.clone())).await.unwrap();
    let (reader, late) = (world.open(&cache, "/f").await.unwrap(), world.open(&cache, "/f").await.unwrap());
    let fetching = {
        let world = world.clone();
        tokio::spawn(async move { world.check_read(&hanging, 0, 2 * BLOCK).await })
    };
    world.until(|| world.waiting() == 1).await;
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    // Its bytes are those of the opened version only.
    world.put("/f", 4 * BLOCK);
    assert_eq!(world.check_read(&late, BLOCK, BLOCK).await, Err(CacheReadError::Changed));
    assert_eq!(world.waiting(), 1, "the fetch still waits, and its own reader has not made it again");
    gate.close();
    assert!(fetching.await.unwrap().is_err());
    drop((reader, late));
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_disk_hangs_readers_are_served_from_the_origin() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(DiskCacheSettings { patience: Duration::from_millis(5), ..settings() });
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    world.disk.set_hanging(true);
    let before = world.fetched();
    world.check_read(&reader, 7, 2 * BLOCK).await.unwrap();
    assert_eq!(world.fetched() - before, 2 * BLOCK);
    // The origin has failed, and the disk was only slow.
    world.fail_one_of(1);
    let reading = {
        let world = world.clone();
        tokio::spawn(async move { world.check_read(&reader, 0, 4 * BLOCK).await })
    };
    tokio::task::yield_now().await;
    world.disk.set_hanging(false);
    reading.await.unwrap().unwrap();
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_has_a_limit_that_no_number_of_readers_passes() {
    let world = World::new();
    for number in 0..8 {
        world.put(&format!("/{number}"), 60 * BLOCK);
    }
    let mut settings = settings();
    settings.memory_bytes = 10 * BLOCK;
    let cache = world.start(settings);
    let mut tasks = Vec::new();
    for number in 0..40 {
        let (world, cache) = (world.clone(), cache.clone());
        tasks.push(tokio::spawn(async move {
            let reader = world.open(&cache, &format!("/{}", number % 8)).await.unwrap();
            for step in 0..30 {
                world.check_read(&reader, (step * 13 + number) % 57 * BLOCK + 5, 3 * BLOCK).await.unwrap();
                assert!(cache.memory() <= 10 * BLOCK, "{}", cache.memory());
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    world.settle(&cache).await;
    assert_eq!(cache.memory(), 0);
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_or_is_full_is_never_an_error_of_a_reader() {
    let world = World::new();
    world.put("/f", 10 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/f").await.unwrap();
    world.disk.set_room(Some(2 * BLOCK + 100));
    for _ in 0..3 {
        world.check_read(&reader, 0, 10 * BLOCK).await.unwrap();
    }
    drop(reader);
    world.settle(&cache).await;
    world.check_usage(&cache);
    // It cannot even be created.
    world.put("/g", 3 * BLOCK);
    world.pass_time();
    cache.make_room().await;
    world.disk.fail("create", Errno::ROFS);
    let reader = world.open(&cache, "/g").await.unwrap();
    world.check_read(&reader, 0, 3 * BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    assert_eq!(world.disk.get(&path("/g")), None);
    // A name that cannot be stored says nothing about the disk.
    world.pass_time();
    cache.make_room().await;
    world.put("/f/x", 3 * BLOCK);
    world.disk.fail("create", Errno::NOTDIR);
    let reader = world.open(&cache, "/f/x").await.unwrap();
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    assert!(cache.shared.may_store());
    // There is room again.
    world.disk.set_room(None);
    world.pass_time();
    cache.make_room().await;
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 10 * BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    assert_eq!(cache.bytes(), 10 * BLOCK);
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_blocks_are_fetched_again_within_the_read() {
    let world = World::new();
    world.put("/f", 5 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 5 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    let before = world.fetched();
    world.disk.flip(&path("/f"), (2 * BLOCK + 7) as usize);
    world.check_read(&reader, 0, 5 * BLOCK).await.unwrap();
    assert_eq!(world.fetched() - before, BLOCK);
    drop(reader);
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_without_readers_make_room() {
    let world = World::new();
    let mut settings = settings();
    settings.limits.files = Some(100 * BLOCK);
    let cache = world.start(settings);
    world.put("/kept", 30 * BLOCK);
    let kept = world.open(&cache, "/kept").await.unwrap();
    world.check_read(&kept, 0, 30 * BLOCK).await.unwrap();
    for number in 0..30 {
        let name = format!("/d{number}/f");
        world.put(&name, 10 * BLOCK);
        world.pass_time();
        let reader = world.open(&cache, &name).await.unwrap();
        world.check_read(&reader, 0, 10 * BLOCK).await.unwrap();
        drop(reader);
        world.settle_to(&cache, 1).await;
        cache.make_room().await;
        assert!(cache.bytes() <= 100 * BLOCK, "{}", cache.bytes());
    }
    assert!(cache.files() > 5, "{}", cache.files());
    let before = world.fetched();
    world.check_read(&kept, 0, 30 * BLOCK).await.unwrap();
    assert_eq!(world.fetched(), before, "a file with a reader stays");
    drop(kept);
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_finds_what_is_stored_and_removes_what_was_never_claimed() {
    let world = World::new();
    world.put("/a/f", 5 * BLOCK);
    world.put("/b/g", 5 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/a/f").await.unwrap();
    world.check_read(&reader, 0, 2 * BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    // A file that is still open is durable after a flush.
    world.put("/c/h", 5 * BLOCK);
    let open = world.open(&cache, "/c/h").await.unwrap();
    world.check_read(&open, 0, 3 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    cache.flush().await;
    let reader = world.open(&cache, "/b/g").await.unwrap();
    world.check_read(&reader, 0, 2 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    world.disk.put(&path("/foreign"), b"data of somebody");
    world.disk.put(&path("/.scalla-cache/new/7"), b"half of a state");
    let world = world.restarted(Some(4));
    let cache = world.start(settings());
    world.until(|| cache.files() == 2 && world.disk.get(&path("/b/g")).is_none()).await;
    assert_eq!(cache.bytes(), 5 * BLOCK);
    let mut names: Vec<_> = world.disk.names().iter().map(|name| name.text().into_owned()).collect();
    names.retain(|name| !name.starts_with("/.scalla-cache/index/"));
    assert_eq!(names, ["/.scalla-cache/lock", "/a/f", "/a/f.cinfo", "/c/h", "/c/h.cinfo", "/foreign"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opens_and_closes_in_a_row_leave_nothing_behind() {
    let world = World::new();
    world.put("/f", 3 * BLOCK);
    let cache: Arc<DiskCache<_>> = world.start(settings());
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (world, cache) = (world.clone(), cache.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..100_u64 {
                let reader = world.open(&cache, "/f").await.unwrap();
                if round.is_multiple_of(3) {
                    world.check_read(&reader, round % 3 * BLOCK, BLOCK).await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    world.settle(&cache).await;
    world.until(|| world.disk.open_files() == 1).await;
    assert!(world.fetched() <= 3 * BLOCK, "one store, one fetch of each block");
}
