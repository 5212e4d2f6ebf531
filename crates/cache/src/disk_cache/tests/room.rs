//! Tests of the limits of the disk: which files are removed and when, and the effect of a failing disk.

use super::world::{BLOCK, TestCache, World, settings};
use super::{key, path};
use crate::disk_cache::{DiskShare, EVICTED_AT_ONCE};
use crate::store::StoreContext;
use crate::{BlockStore, CacheDisk, DiskCacheSettings, OriginVersion};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn limited(bytes: u64) -> DiskCacheSettings {
    let mut settings = settings();
    settings.limits.files = Some(bytes);
    settings
}

/// Reads all of a file and closes it. Returns whether nothing was fetched.
pub(super) async fn read_all(world: &World, cache: &TestCache, name: &str, size: u64) -> bool {
    let before = world.fetched();
    let reader = world.open(cache, name).await.unwrap();
    world.check_read(&reader, 0, size).await.unwrap();
    drop(reader);
    world.settle(cache).await;
    world.fetched() == before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_removes_no_file_that_is_read_again() {
    let world = World::new();
    let cache = world.start(limited(100 * BLOCK));
    world.put("/hot", 5 * BLOCK);
    read_all(&world, &cache, "/hot", 5 * BLOCK).await;
    for number in 0..60 {
        assert!(read_all(&world, &cache, "/hot", 5 * BLOCK).await, "removed before scanned file {number}");
        let name = format!("/scan/{number}");
        world.put(&name, 5 * BLOCK);
        assert!(!read_all(&world, &cache, &name, 5 * BLOCK).await);
        cache.make_room().await;
    }
    // A file of the scan that is read again has come to stay, because it was removed lately.
    let is_removed = |name: &String| world.disk.get(&path(name)).is_none();
    let last = (0..60).rev().map(|number| format!("/scan/{number}")).find(is_removed).unwrap();
    assert!(!read_all(&world, &cache, &last, 5 * BLOCK).await);
    // Nothing is stored while room is made, which goes on in the background.
    while !read_all(&world, &cache, &last, 5 * BLOCK).await {
        cache.make_room().await;
    }
    for number in 100..110 {
        let name = format!("/scan/{number}");
        world.put(&name, 5 * BLOCK);
        read_all(&world, &cache, &name, 5 * BLOCK).await;
        cache.make_room().await;
    }
    assert!(read_all(&world, &cache, &last, 5 * BLOCK).await);
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_larger_than_the_cache_does_not_pass_the_limit() {
    let world = World::new();
    let cache = world.start(limited(20 * BLOCK));
    world.put("/large", 400 * BLOCK);
    let reader = world.open(&cache, "/large").await.unwrap();
    for block in 0..400 {
        world.check_read(&reader, block * BLOCK, BLOCK).await.unwrap();
        world.settle_stores(&cache).await;
        // The block that passes the limit is written.
        assert!(cache.bytes() <= 21 * BLOCK, "{}", cache.bytes());
    }
    drop(reader);
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_made_as_soon_as_the_limit_is_passed() {
    let world = World::new();
    let cache = world.start(limited(20 * BLOCK));
    for number in 0..12 {
        let name = format!("/{number}");
        world.put(&name, 4 * BLOCK);
        // Nobody calls `make_room`.
        let reader = world.open(&cache, &name).await.unwrap();
        for block in 0..4 {
            world.check_read(&reader, block * BLOCK, BLOCK).await.unwrap();
            world.settle_stores(&cache).await;
            assert!(cache.bytes() <= 21 * BLOCK, "{}", cache.bytes());
            world.until(|| cache.shared.may_store()).await;
        }
        drop(reader);
        world.settle(&cache).await;
    }
    assert!(cache.bytes() >= 12 * BLOCK, "{}", cache.bytes());
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_is_not_repeated_at_once() {
    let world = World::new();
    let cache = world.start(settings());
    let mut readers = Vec::new();
    for number in 0..8 {
        let name = format!("/{number}");
        world.put(&name, 4 * BLOCK);
        let reader = world.open(&cache, &name).await.unwrap();
        world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
        readers.push(reader);
    }
    world.settle_stores(&cache).await;
    world.disk.fail_always("sync", Errno::IO);
    let before = world.disk.count("sync");
    for _ in 0..20 {
        cache.flush().await;
    }
    // Another one may be that of the regular flush.
    let failed = world.disk.count("sync") - before;
    assert!(failed <= 2, "{failed}");
    world.disk.clear_faults();
    world.pass_time();
    cache.make_room().await;
    cache.flush().await;
    drop(readers);
    world.settle(&cache).await;
    world.check_usage(&cache);
    assert!(cache.bytes() >= 6 * 4 * BLOCK, "what is left was synced later: {}", cache.bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_errors_of_the_disk_stop_all_storing() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 4 * BLOCK);
    let of_names = [Errno::ACCESS, Errno::PERM, Errno::NAMETOOLONG, Errno::FBIG, Errno::NXIO, Errno::NOENT];
    for error in of_names {
        world.disk.fail("create", error);
        read_all(&world, &cache, "/f", BLOCK).await;
        assert!(cache.shared.may_store(), "{error:?}");
        assert_eq!(cache.files(), 0, "{error:?}");
    }
    for error in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS] {
        world.disk.fail("create", error);
        read_all(&world, &cache, "/f", BLOCK).await;
        assert!(!cache.shared.may_store(), "{error:?}");
        world.pass_time();
        cache.make_room().await;
        assert!(cache.shared.may_store());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opens_of_a_stored_file_write_its_state_once_a_minute() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 4 * BLOCK);
    read_all(&world, &cache, "/f", 4 * BLOCK).await;
    let before = world.disk.count("rename");
    for _ in 0..4 {
        assert!(read_all(&world, &cache, "/f", 4 * BLOCK).await);
    }
    assert_eq!(world.disk.count("rename"), before);
    (0..7).for_each(|_| world.pass_time());
    read_all(&world, &cache, "/f", 4 * BLOCK).await;
    read_all(&world, &cache, "/f", 4 * BLOCK).await;
    assert_eq!(world.disk.count("rename"), before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sparse_file_of_somebody_else_is_left_alone() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 4 * BLOCK);
    world.disk.put_sparse(&path("/f"), 5_000);
    assert!(world.open(&cache, "/f").await.is_none());
    assert_eq!(world.disk.get(&path("/f")).unwrap().len(), 5_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_of_many_files_waits_for_no_sync() {
    let world = World::new();
    let cache = world.start(settings());
    for number in 0..150 {
        let name = format!("/d{}/{number}", number % 7);
        world.put(&name, BLOCK);
        read_all(&world, &cache, &name, BLOCK).await;
    }
    drop(cache);
    let world = world.restarted(None);
    let before = world.disk.count("sync_directory");
    let cache = world.start(limited(20 * BLOCK));
    world.until(|| cache.files() <= 20 && cache.files() > 0 && cache.shared.may_store()).await;
    assert_eq!(world.disk.count("sync_directory"), before);
    world.check_usage(&cache);
    // A file that comes back is created after its old names have gone for good.
    let names = world.disk.names();
    let mut gone = (0..150).map(|number| format!("/d{}/{number}", number % 7));
    let gone = gone.find(|name| !names.contains(&path(name))).unwrap();
    let reader = world.open(&cache, &gone).await.unwrap();
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert_eq!(world.disk.count("sync_directory"), before + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_stored_while_too_much_is() {
    let world = World::new();
    let mut settings = settings();
    (settings.limits.high, settings.limits.low) = (DiskShare::Bytes(60_000), DiskShare::Bytes(50_000));
    let cache = world.start(settings);
    for number in 0..40 {
        let name = format!("/{number}");
        world.put(&name, BLOCK);
        read_all(&world, &cache, &name, BLOCK).await;
    }
    assert!(cache.shared.may_store());
    world.disk.put(&path("/somebody"), &[0; 20_000]);
    world.disk.set_hanging(true);
    let removal = {
        let cache = cache.clone();
        tokio::spawn(async move { cache.make_room().await })
    };
    world.until(|| !cache.shared.may_store()).await;
    assert!(!removal.is_finished());
    world.disk.set_hanging(false);
    removal.await.unwrap();
    assert!(cache.shared.may_store());
    assert!(cache.bytes() >= 20 * BLOCK && cache.bytes() <= 30 * BLOCK, "{}", cache.bytes());
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_removed_are_still_counted() {
    let world = World::new();
    let cache = world.start(settings());
    for number in 0..40 {
        let name = format!("/{number}");
        world.put(&name, BLOCK);
        read_all(&world, &cache, &name, BLOCK).await;
    }
    drop(cache);
    let world = world.restarted(None);
    world.disk.fail_always("remove", Errno::IO);
    let cache = world.start(limited(20 * BLOCK));
    world.until(|| cache.files() == 40).await;
    cache.make_room().await;
    world.check_usage(&cache);
    assert!(!cache.shared.may_store());
    cache.change_name(&path("/7")).made().await;
    world.check_usage(&cache);
    world.disk.clear_faults();
    world.pass_time();
    cache.make_room().await;
    assert!(cache.bytes() <= 20 * BLOCK && cache.bytes() >= 10 * BLOCK, "{}", cache.bytes());
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_is_fetched_again_is_counted_once() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 5 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 5 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    for _ in 0..3 {
        world.disk.flip(&path("/f"), (2 * BLOCK + 7) as usize);
        world.check_read(&reader, 0, 5 * BLOCK).await.unwrap();
        world.settle_stores(&cache).await;
        assert_eq!(cache.bytes(), 5 * BLOCK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_version_still_writes_is_not_counted() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 5 * BLOCK);
    let old = world.open(&cache, "/f").await.unwrap();
    world.check_read(&old, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    cache.change_name(&path("/f")).made().await;
    world.pass_time();
    let new = world.open(&cache, "/f").await.unwrap();
    world.check_read(&new, 0, 2 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    // A write that had begun before the removal.
    old.0.count_stored(3);
    assert_eq!(cache.bytes(), 2 * BLOCK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_back_does_not_prolong_a_pause() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 5 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    world.disk.fail("write", Errno::IO);
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert!(cache.shared.has_failed() && !cache.shared.may_log());
    world.set_clock_back(86_400);
    cache.make_room().await;
    assert!(cache.shared.may_store() && !cache.shared.has_failed() && cache.shared.may_log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_closed_by_threads_of_the_disk() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/f", 5 * BLOCK);
    world.disk.take_closers();
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 5 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    // A file that was removed is freed by its last close.
    cache.change_name(&path("/f")).made().await;
    let before = world.disk.open_files();
    drop(reader);
    world.until(|| world.disk.open_files() < before).await;
    read_all(&world, &cache, "/f", 5 * BLOCK).await;
    world.until(|| world.disk.open_files() == 1).await;
    let closers = world.disk.take_closers();
    assert!(closers.iter().all(|name| name.starts_with("cache-")), "{closers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_without_a_read_leaves_the_disk_alone() {
    let world = World::new();
    let cache = world.start(settings());
    let changes = || {
        let calls = ["create", "remove", "rename", "sync", "sync_directory", "write"];
        calls.map(|call| world.disk.count(call))
    };
    world.put("/d/f", 5 * BLOCK);
    let before = changes();
    for _ in 0..5 {
        drop(world.open(&cache, "/d/f").await.unwrap());
        world.settle(&cache).await;
    }
    assert_eq!((changes(), cache.files(), cache.bytes()), (before, 0, 0));
    // What somebody puts there meanwhile is not touched.
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.disk.put(&path("/d/f"), b"precious");
    for _ in 0..3 {
        world.check_read(&reader, 0, 2 * BLOCK).await.unwrap();
        world.settle_stores(&cache).await;
    }
    let fetched = world.fetched();
    world.check_read(&reader, 7, 16).await.unwrap();
    assert_eq!(world.fetched() - fetched, 16, "only what is needed, because nothing can be stored");
    drop(reader);
    world.settle(&cache).await;
    assert_eq!((world.disk.get(&path("/d/f")).as_deref(), cache.files()), (Some(&b"precious"[..]), 0));
    assert!(cache.shared.may_store());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_file_leaves_no_directory_in_the_way() {
    let world = World::new();
    let cache = world.start(settings());
    world.put("/a/b/f", BLOCK);
    world.put("/a/g", BLOCK);
    read_all(&world, &cache, "/a/b/f", BLOCK).await;
    read_all(&world, &cache, "/a/g", BLOCK).await;
    cache.change_name(&path("/a/b/f")).made().await;
    let directories =
        || world.disk.directories().iter().map(|path| path.text().into_owned()).collect::<Vec<_>>();
    let directories =
        || directories().into_iter().filter(|name| !name.ends_with("/index")).collect::<Vec<_>>();
    assert_eq!(directories(), ["/.scalla-cache", "/.scalla-cache/new", "/a"]);
    cache.change_content(&path("/a/g")).made().await;
    assert_eq!(directories(), ["/.scalla-cache", "/.scalla-cache/new"]);
    // An empty directory that was left by somebody else, and one with a file.
    for name in ["/empty", "/full"] {
        world.disk.put_directory(&path(name));
        world.put(name, BLOCK);
    }
    world.disk.put(&path("/full/x"), b"precious");
    assert!(world.open(&cache, "/full").await.is_none());
    read_all(&world, &cache, "/empty", BLOCK).await;
    assert!(read_all(&world, &cache, "/empty", BLOCK).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_removes_files_that_nobody_has_open() {
    let world = World::new();
    let cache = world.start(settings());
    for name in ["/d/a", "/d/b", "/d/e/c", "/f"] {
        world.put(name, BLOCK);
        read_all(&world, &cache, name, BLOCK).await;
    }
    let reader = world.open(&cache, "/d/b").await.unwrap();
    world.disk.put(&path("/d/foreign"), b"precious");
    let eviction =
        |removed, in_use| crate::CacheEviction { removed, in_use, ..crate::CacheEviction::default() };
    assert_eq!(cache.evict(&path("/d"), || true).await, eviction(2, 1));
    assert_eq!(cache.evict(&path("/d"), || true).await, eviction(0, 1));
    assert_eq!((cache.files(), cache.bytes()), (2, 2 * BLOCK));
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    assert_eq!(cache.evict(&path("/d/b"), || true).await, eviction(1, 0));
    assert_eq!(cache.evict(&path("/d/foreign"), || true).await, eviction(0, 0));
    world.disk.fail("remove", Errno::IO);
    assert_eq!(cache.evict(&path("/f"), || true).await, crate::CacheEviction { failed: 1, ..eviction(0, 0) });
    world.check_usage(&cache);
    assert_eq!(cache.evict(&path("/"), || true).await, eviction(1, 0));
    assert_eq!((cache.files(), world.disk.get(&path("/d/foreign")).as_deref()), (0, Some(&b"precious"[..])));
    // What was removed does not come back.
    for seed in 0..16 {
        assert!(world.disk.after_power_cut(seed).get(&path("/f")).is_none());
    }
    read_all(&world, &cache, "/f", BLOCK).await;
    assert_eq!(cache.evict(&path("/f"), || false).await, eviction(0, 0));
}

/// The names are taken from the index in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_eviction_removes_more_files_than_it_takes_at_once() {
    let world = World::new();
    let names: Vec<_> = (0..2 * EVICTED_AT_ONCE + 3).map(|number| format!("/d/{number:04}")).collect();
    let context = Arc::new(StoreContext::new(Arc::new(world.disk.clone()), BLOCK));
    for name in names.iter().chain([&"/e".to_owned()]) {
        let version = OriginVersion { size: BLOCK, modified: 100, id: 1 };
        let store = BlockStore::open(&context, &key(name), version, 10_000).unwrap();
        store.write(0, &[1; BLOCK as usize], 10_000).unwrap();
        store.flush(10_000).unwrap();
    }
    let cache = world.start(settings());
    let until = Instant::now() + Duration::from_secs(60);
    while !cache.status().is_known {
        assert!(Instant::now() < until, "the disk is not looked through");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let removed = names.len() as u64;
    let expected = crate::CacheEviction { removed, ..crate::CacheEviction::default() };
    assert_eq!(cache.evict(&path("/d"), || true).await, expected);
    assert_eq!((cache.files(), world.disk.get(&path("/e")).is_some()), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_cache_does_is_counted() {
    let world = World::new();
    let cache = world.start(limited(20 * BLOCK));
    world.put("/f", 5 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 10, 20).await.unwrap();
    world.settle_stores(&cache).await;
    world.check_read(&reader, 0, 2 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    world.disk.flip(&path("/f"), 7);
    world.check_read(&reader, 5, 10).await.unwrap();
    world.settle_stores(&cache).await;
    let status = cache.status();
    assert_eq!((status.opens, status.uncached_opens, status.open_files), (1, 0, 1));
    assert_eq!(
        (status.bytes_hit, status.bytes_missed, status.bytes_stored),
        (BLOCK + 10, 3 * BLOCK, 3 * BLOCK)
    );
    assert_eq!((status.damaged_blocks, status.bytes_bypassed, status.memory), (1, 0, 0));
    assert_eq!((status.bytes_delivered, status.bytes_ahead, status.bypasses), (20 + 2 * BLOCK + 10, 0, 0));
    // A hit that turned out to be wrong stays one.
    assert_eq!(status.bytes_shared, 20 + BLOCK + 10);
    assert_eq!((status.closes, status.memory_limit, status.disk.0), (0, 1 << 20, 1 << 20));
    cache.make_room().await;
    assert_eq!(cache.status().disk_used, world.disk.usage().unwrap().1);
    cache.shared.set_full(true);
    assert!(cache.status().is_paused);
    world.check_read(&reader, 3 * BLOCK + 5, 30).await.unwrap();
    assert_eq!((cache.status().bytes_bypassed, cache.status().bypasses), (30, 1));
    cache.shared.set_full(false);
    drop(reader);
    world.settle(&cache).await;
    world.put("/young", BLOCK);
    world.put("/young", BLOCK);
    assert!(world.open(&cache, "/young").await.is_none());
    assert_eq!(cache.status().uncached_opens, 1);
    for number in 0..10 {
        let name = format!("/{number}");
        world.put(&name, 4 * BLOCK);
        read_all(&world, &cache, &name, 4 * BLOCK).await;
        cache.make_room().await;
    }
    let status = cache.status();
    assert!(status.evicted_files >= 2 && status.evicted_bytes >= 4 * BLOCK, "{status:?}");
    assert_eq!((status.files, status.bytes), (cache.files() as u64, cache.bytes()));
}
