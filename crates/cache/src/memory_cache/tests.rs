//! The memory cache with origins that change, fail and wait.

#![allow(clippy::unwrap_used)]

use super::{MemoryCache, MemoryCacheReader, MemoryCacheSettings};
use crate::disk_cache::tests::world::{TestOrigin, World};
use crate::{CacheKey, CacheReadError};
use base::{LogicalPath, SplitMix64};
use bytes::Bytes;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PAGE: u64 = 1024;
const SETTINGS: MemoryCacheSettings = MemoryCacheSettings {
    bytes: 1 << 20,
    page_bytes: PAGE,
    read_bytes_max: 8 * PAGE,
    patience: Duration::from_secs(60),
};

type Opened = (MemoryCacheReader<TestOrigin>, Bytes);

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn start(world: &World, settings: MemoryCacheSettings) -> Arc<MemoryCache> {
    MemoryCache::new(settings, world.cache_clock())
}

/// Opens a file as a client does.
fn open(world: &World, cache: &Arc<MemoryCache>, name: &str) -> Option<Opened> {
    open_with(world, cache, name, |_| {})
}

fn open_with(
    world: &World,
    cache: &Arc<MemoryCache>,
    name: &str,
    change: impl FnOnce(&mut TestOrigin),
) -> Option<Opened> {
    let key = CacheKey::new(&path(name)).unwrap();
    let ticket = cache.ticket(&key)?;
    let mut origin = world.new_origin(name);
    change(&mut origin);
    let (content, version) = (origin.content(), origin.opened());
    Some((cache.open(&key, ticket, version, Arc::new(origin))?, content))
}

/// Reads and compares with the version that the reader has opened.
async fn check_read(
    (reader, content): &Opened,
    offset: u64,
    length: u64,
) -> Result<(), CacheReadError<String>> {
    let mut into = vec![0x55; length as usize];
    let count = timeout(Duration::from_secs(60), reader.read(offset, &mut into)).await.unwrap()?;
    let begin = (offset as usize).min(content.len());
    let expected = &content[begin..(begin + length as usize).min(content.len())];
    assert!(into[..count] == *expected, "{length} bytes at {offset}");
    Ok(())
}

#[tokio::test]
async fn ranges_of_all_kinds_are_read_cold_and_warm() {
    let world = World::new();
    let size = 10 * PAGE + 17;
    world.put("/d/f", size);
    for settings in [SETTINGS, MemoryCacheSettings { bytes: 4 * PAGE, ..SETTINGS }] {
        let cache = start(&world, settings);
        let reader = open(&world, &cache, "/d/f").unwrap();
        for _ in 0..2 {
            for offset in [0, 1, PAGE - 1, PAGE, 5 * PAGE + 3, size - 1, size, size + 5] {
                for length in [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 20 * PAGE] {
                    check_read(&reader, offset, length).await.unwrap();
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_readers_of_a_cold_file_fetch_it_once() {
    let world = World::new();
    world.put("/d/f", 50 * PAGE + 17);
    let cache = start(&world, SETTINGS);
    let mut readers = Vec::new();
    for number in 0..100 {
        let reader = open(&world, &cache, "/d/f").unwrap();
        readers.push(tokio::spawn(async move {
            for step in 0..51 {
                let page = (step * 7 + number) % 51;
                check_read(&reader, page * PAGE, PAGE + 1).await.unwrap();
            }
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(world.fetched(), 50 * PAGE + 17);
    let status = cache.status();
    assert_eq!((status.bytes_missed, status.opens, status.closes), (50 * PAGE + 17, 100, 100));
    assert_eq!(status.bytes_bypassed, 0);
    assert_eq!(status.bytes_hit + status.bytes_shared, status.bytes_delivered);
    assert!(status.bytes_delivered > 100 * 50 * PAGE && status.bytes <= status.limit, "{status:?}");
    let (reader, _) = open(&world, &cache, "/d/f").unwrap();
    assert_eq!(reader.file.fetches_in_progress(), 0);
    assert_eq!(reader.read_now(3, &mut [0; 2000]), Some(2000));
}

#[tokio::test]
async fn large_reads_are_not_kept_and_take_what_is_there() {
    let world = World::new();
    world.put("/d/f", 20 * PAGE);
    let cache = start(&world, SETTINGS);
    let reader = open(&world, &cache, "/d/f").unwrap();
    check_read(&reader, 0, 9 * PAGE).await.unwrap();
    assert_eq!((cache.status().pages, cache.status().bytes_bypassed), (0, 9 * PAGE));
    for page in 0..9 {
        check_read(&reader, page * PAGE, PAGE).await.unwrap();
    }
    let fetched = world.fetched();
    check_read(&reader, 0, 9 * PAGE).await.unwrap();
    assert_eq!(world.fetched(), fetched);
}

#[tokio::test]
async fn pages_that_another_reader_fetches_meanwhile_are_fetched_once() {
    let world = World::new();
    world.put("/d/f", 6 * PAGE);
    let cache = start(&world, SETTINGS);
    let gate = Arc::new(Semaphore::new(0));
    let first = open_with(&world, &cache, "/d/f", |origin| origin.wait_at(gate.clone())).unwrap();
    let second = open(&world, &cache, "/d/f").unwrap();
    let first = tokio::spawn(async move { check_read(&first, 3 * PAGE, PAGE).await });
    world.until(|| world.waiting() == 1).await;
    let mut all = Box::pin(check_read(&second, 2 * PAGE, 3 * PAGE));
    // It waits for the page of the first one.
    let is_waiting =
        std::future::poll_fn(|context| Poll::Ready(all.as_mut().poll(context).is_pending())).await;
    assert!(is_waiting);
    gate.add_permits(100);
    all.await.unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(world.fetched(), 3 * PAGE);
}

#[tokio::test]
async fn a_changed_file_is_an_error_for_its_readers_and_fetched_anew() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    let cache = start(&world, SETTINGS);
    let old = open(&world, &cache, "/d/f").unwrap();
    check_read(&old, 0, PAGE).await.unwrap();
    world.put("/d/f", 10 * PAGE);
    // It was modified a moment ago.
    assert!(open(&world, &cache, "/d/f").is_none());
    check_read(&old, 0, PAGE).await.unwrap();
    let changed = Err(CacheReadError::Changed);
    assert_eq!(check_read(&old, PAGE, PAGE).await, changed);
    assert_eq!(check_read(&old, 0, 9 * PAGE).await, changed);
    world.pass_time();
    let new = open(&world, &cache, "/d/f").unwrap();
    check_read(&new, 0, 10 * PAGE).await.unwrap();
    assert_eq!(check_read(&old, 2 * PAGE, PAGE).await, changed);
    assert_eq!(cache.status().uncached_opens, 1);
}

#[tokio::test]
async fn own_changes_are_seen_at_once() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    world.put("/d/g", 10 * PAGE);
    let cache = start(&world, SETTINGS);
    let (old, other) = (open(&world, &cache, "/d/f").unwrap(), open(&world, &cache, "/d/g").unwrap());
    check_read(&old, 0, PAGE).await.unwrap();
    check_read(&other, 0, PAGE).await.unwrap();
    let mut change = cache.change_content(&path("/d/f"));
    assert!(open(&world, &cache, "/d/f").is_none(), "it is being changed");
    check_read(&old, 0, PAGE).await.unwrap();
    assert_eq!(old.0.read_now(0, &mut [0; 10]), None);
    world.put("/d/f", 10 * PAGE);
    assert_eq!(check_read(&old, 0, PAGE).await, Err(CacheReadError::Changed));
    change.made();
    drop(change);
    world.pass_time();
    let new = open(&world, &cache, "/d/f").unwrap();
    check_read(&new, 0, PAGE).await.unwrap();
    assert_eq!(check_read(&old, 0, PAGE).await, Err(CacheReadError::Changed));
    let fetched = world.fetched();
    check_read(&other, 0, PAGE).await.unwrap();
    cache.change_content(&path("/d/g")).refused();
    check_read(&other, 0, PAGE).await.unwrap();
    assert_eq!(world.fetched(), fetched, "another file, and a change that was refused");
    // The files of a renamed directory are other files, also if its end is not reported.
    drop(cache.change_name(&path("/d")));
    let again = open(&world, &cache, "/d/g").unwrap();
    check_read(&again, 0, PAGE).await.unwrap();
    assert_eq!(world.fetched(), fetched + PAGE);
}

#[tokio::test]
async fn an_open_of_the_time_before_a_change_is_not_cached() {
    let world = World::new();
    world.put("/d/f", PAGE);
    let cache = start(&world, SETTINGS);
    let key = CacheKey::new(&path("/d/f")).unwrap();
    let (ticket, origin) = (cache.ticket(&key).unwrap(), world.origin("/d/f"));
    drop(cache.change_content(&path("/d/f")));
    assert!(cache.open(&key, ticket, origin.opened(), origin.clone()).is_none());
    let ticket = cache.ticket(&key).unwrap();
    assert!(cache.open(&key, ticket, origin.opened(), origin).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reader_does_not_wait_forever_for_the_connection_of_another_one() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    let cache = start(&world, SETTINGS);
    let gate = Arc::new(Semaphore::new(0));
    let hung = open_with(&world, &cache, "/d/f", |origin| origin.wait_at(gate.clone())).unwrap();
    let other = open(&world, &cache, "/d/f").unwrap();
    let waiting = tokio::spawn(async move { check_read(&hung, 0, 4 * PAGE).await });
    world.until(|| world.waiting() > 0).await;
    let slow = timeout(2 * SETTINGS.patience, other.0.read(0, &mut [0; PAGE as usize])).await;
    assert_eq!(slow.unwrap(), Ok(PAGE as usize));
    gate.close();
    // The read of a lost connection fails, and leaves the pages to others.
    waiting.abort();
    waiting.await.ok();
    check_read(&other, PAGE, 3 * PAGE).await.unwrap();
    assert_eq!(other.0.file.fetches_in_progress(), 0);
}

#[tokio::test]
async fn a_copy_at_another_server_is_read_and_not_kept() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    let cache = start(&world, SETTINGS);
    let moved = open_with(&world, &cache, "/d/f", TestOrigin::set_moved).unwrap();
    check_read(&moved, 0, PAGE).await.unwrap();
    check_read(&moved, 0, 3 * PAGE).await.unwrap();
    assert_eq!(cache.status().pages, 0);
    cache.change_content(&path("/d/f")).made();
    assert_eq!(check_read(&moved, 0, PAGE).await, Err(CacheReadError::Changed));
}

#[tokio::test]
async fn readers_of_a_replaced_version_see_own_changes() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    world.put("/d/g", 10 * PAGE);
    let cache = start(&world, SETTINGS);
    let old = open(&world, &cache, "/d/f").unwrap();
    check_read(&old, 0, PAGE).await.unwrap();
    world.put("/d/f", 10 * PAGE);
    world.pass_time();
    let _new = open(&world, &cache, "/d/f").unwrap();
    cache.change_content(&path("/d/f")).made();
    assert_eq!(old.0.read_now(0, &mut [0; 10]), None);
    assert_eq!(check_read(&old, 0, PAGE).await, Err(CacheReadError::Changed));
    // A renamed file is changed under a name by which the cache does not know it.
    let renamed = open(&world, &cache, "/d/g").unwrap();
    check_read(&renamed, 0, PAGE).await.unwrap();
    cache.change_name(&path("/d/g")).made();
    world.put("/d/g", 10 * PAGE);
    assert_eq!(check_read(&renamed, 0, PAGE).await, Err(CacheReadError::Changed));
}

#[tokio::test]
async fn a_reader_that_has_moved_keeps_nothing_and_others_do() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    let cache = start(&world, SETTINGS);
    let moved = open_with(&world, &cache, "/d/f", TestOrigin::set_moved).unwrap();
    check_read(&moved, 0, PAGE).await.unwrap();
    let other = open(&world, &cache, "/d/f").unwrap();
    check_read(&other, 0, PAGE).await.unwrap();
    assert_eq!(other.0.read_now(0, &mut [0; 10]), Some(10));
}

#[tokio::test]
async fn replies_in_progress_are_bounded_beside_the_pages() {
    let world = World::new();
    world.put("/d/f", 10 * PAGE);
    let cache = start(&world, MemoryCacheSettings { bytes: 4 * PAGE, ..SETTINGS });
    let gate = Arc::new(Semaphore::new(0));
    let slow = open_with(&world, &cache, "/d/f", |origin| origin.wait_at(gate.clone())).unwrap();
    let other = open(&world, &cache, "/d/f").unwrap();
    let waiting = tokio::spawn(async move { check_read(&slow, 0, PAGE).await });
    world.until(|| world.waiting() > 0).await;
    let fetched = world.fetched();
    check_read(&other, 5 * PAGE + 7, 1).await.unwrap();
    assert_eq!(world.fetched(), fetched + 1, "no more than the bytes of the read");
    gate.close();
    waiting.abort();
    waiting.await.ok();
    check_read(&other, 6 * PAGE, 1).await.unwrap();
    assert_eq!(other.0.read_now(6 * PAGE, &mut [0; 10]), Some(10));
}

/// One client: opens, reads, and changes files.
async fn client(world: World, cache: Arc<MemoryCache>, seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let mut open_files: Vec<Opened> = Vec::new();
    for _ in 0..80 {
        let name = format!("/d/{}", rng.draw() % 4);
        match rng.draw() % 20 {
            0..=3 => open_files.extend(open(&world, &cache, &name)),
            4 => world.pass_time(),
            5 if rng.draw().is_multiple_of(4) => world.put(&name, rng.draw() % (20 * PAGE)),
            6 if rng.draw().is_multiple_of(4) => {
                let mut change = cache.change_content(&path(&name));
                tokio::task::yield_now().await;
                world.put(&name, 1 + rng.draw() % (20 * PAGE));
                if rng.draw().is_multiple_of(2) {
                    change.made();
                }
            }
            7 => cache.change_content(&path(&name)).refused(),
            8 => cache.change_name(&path(&name)).made(),
            9 if !open_files.is_empty() => {
                let at = rng.draw() as usize % open_files.len();
                drop(open_files.swap_remove(at));
            }
            _ if !open_files.is_empty() => {
                let reader = &open_files[rng.draw() as usize % open_files.len()];
                let (offset, length) = (rng.draw() % (21 * PAGE), rng.draw() % (10 * PAGE));
                // It fails if the origin fails or changes.
                check_read(reader, offset, length).await.ok();
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_gets_a_byte_of_another_version() {
    for seed in 0..150 {
        let mut rng = SplitMix64::new(seed);
        let world = World::new();
        (0..4).for_each(|number| world.put(&format!("/d/{number}"), 1 + rng.draw() % (20 * PAGE)));
        world.fail_one_of(if rng.draw().is_multiple_of(2) { 20 } else { 0 });
        let bytes = if rng.draw().is_multiple_of(2) { 10 * PAGE } else { SETTINGS.bytes };
        let cache = start(&world, MemoryCacheSettings { bytes, ..SETTINGS });
        let clients: Vec<_> = (0..4)
            .map(|number| tokio::spawn(client(world.clone(), cache.clone(), seed * 100 + number)))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        let status = cache.status();
        assert!(status.bytes <= status.limit, "seed {seed}: {status:?}");
    }
}
