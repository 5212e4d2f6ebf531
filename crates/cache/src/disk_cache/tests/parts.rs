//! Tests of files of which the cache removes parts.

use super::room::read_all;
use super::world::{BLOCK, TestCache, TestReader, World, settings};
use super::{key, path};
use crate::{CacheDisk, DiskCacheSettings, FileEviction};
use base::Owner;
use bytes::Bytes;
use rustix::io::Errno;

/// The number of blocks of a part.
const PART: u64 = 4;

/// A cache of this number of blocks.
fn limited(blocks: u64) -> DiskCacheSettings {
    let mut settings = DiskCacheSettings { part_bytes: Some(PART * BLOCK), ..settings() };
    settings.limits.files = Some(blocks * BLOCK);
    settings
}

/// Reads a part of an open file. Returns whether nothing was fetched.
async fn read_part(world: &World, cache: &TestCache, reader: &(TestReader, Bytes), part: u64) -> bool {
    world.until(|| cache.shared.may_store()).await;
    let before = world.fetched();
    world.check_read(reader, part * PART * BLOCK, PART * BLOCK).await.unwrap();
    world.settle_stores(cache).await;
    world.fetched() == before
}

/// Returns the space that the data of a file has on disk.
fn allocated(world: &World, name: &str) -> u64 {
    world.disk.open(&path(name)).unwrap().status().unwrap().allocated
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_parts_of_an_open_file_go_and_a_hot_one_stays() {
    let world = World::new();
    let cache = world.start(limited(40));
    world.put("/f", 400 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    assert!(!read_part(&world, &cache, &reader, 7).await);
    for part in 0..100 {
        let is_stored = read_part(&world, &cache, &reader, part).await;
        assert_eq!(is_stored, part == 7, "part {part}");
        assert!(read_part(&world, &cache, &reader, 7).await, "removed while part {part} was read");
        cache.make_room().await;
        assert!(cache.bytes() <= 40 * BLOCK, "{}", cache.bytes());
    }
    let status = cache.status();
    // Some are stored only in part, because nothing is stored while room is made.
    assert!(status.evicted_parts >= 50 && status.evicted_files == 0, "{status:?}");
    assert_eq!(status.evicted_bytes, status.bytes_stored - cache.bytes());
    cache.flush().await;
    assert_eq!(allocated(&world, "/f"), cache.bytes(), "the space of the others is free");
    world.check_usage(&cache);
    drop(reader);
    world.settle(&cache).await;
    world.check_usage(&cache);
    // The next process has the same parts.
    let bytes = cache.bytes();
    drop(cache);
    let world = world.restarted(Some(3));
    let cache = world.start(limited(40));
    world.until(|| cache.status().is_known).await;
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (bytes, bytes));
    let reader = world.open(&cache, "/f").await.unwrap();
    assert!(read_part(&world, &cache, &reader, 7).await);
    world.check_read(&reader, 0, 400 * BLOCK).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_parts_of_a_closed_file_go_and_a_hot_one_stays() {
    let world = World::new();
    let cache = world.start(limited(40));
    world.put("/d/f", 200 * BLOCK);
    for part in 0..50 {
        for part in [0, part] {
            let reader = world.open(&cache, "/d/f").await.unwrap();
            let is_stored = read_part(&world, &cache, &reader, part).await;
            assert!(is_stored || part > 0 || cache.status().evicted_parts == 0, "part {part}");
            drop(reader);
            world.settle(&cache).await;
        }
        cache.make_room().await;
        world.check_usage(&cache);
    }
    let status = cache.status();
    assert!(status.evicted_parts >= 20 && status.evicted_files == 0, "{status:?}");
    assert_eq!(allocated(&world, "/d/f"), cache.bytes());
    // All of it goes by order.
    assert_eq!(cache.evict(&path("/d"), || true).await.removed, 1);
    assert!(world.disk.get(&path("/d/f")).is_none() && cache.shared.index.next_to_remove().is_none());
    assert!(!world.disk.directories().contains(&path("/d")));
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_larger_than_the_cache_is_cached_while_it_is_read() {
    let world = World::new();
    let cache = world.start(DiskCacheSettings { prefetch_bytes: 2 * BLOCK, ..limited(20) });
    world.put("/large", 400 * BLOCK + 77);
    let reader = world.open(&cache, "/large").await.unwrap();
    for block in 0..401 {
        world.until(|| cache.shared.may_store()).await;
        world.check_read(&reader, block * BLOCK, BLOCK).await.unwrap();
        world.settle_stores(&cache).await;
        assert!(cache.bytes() <= 24 * BLOCK, "{}", cache.bytes());
    }
    let before = world.fetched();
    world.check_read(&reader, 399 * BLOCK, 2 * BLOCK).await.unwrap();
    assert_eq!(world.fetched(), before, "its end is stored");
    drop(reader);
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smaller_and_pinned_files_are_removed_wholly_or_not_at_all() {
    let world = World::new();
    let cache = world.start(limited(40));
    world.until(|| cache.status().is_known).await;
    cache.make_room().await;
    cache.pin(&path("/pinned"), cache.shared.now() + 1000).await.unwrap();
    world.put("/pinned", 3 * PART * BLOCK);
    world.put("/small", PART * BLOCK);
    read_all(&world, &cache, "/pinned", 3 * PART * BLOCK).await;
    read_all(&world, &cache, "/small", PART * BLOCK).await;
    world.put("/large", 200 * BLOCK);
    let reader = world.open(&cache, "/large").await.unwrap();
    for part in 0..50 {
        read_part(&world, &cache, &reader, part).await;
        cache.make_room().await;
        let small = world.disk.get(&path("/small")).map(|_| allocated(&world, "/small"));
        assert!(small.is_none_or(|bytes| bytes == PART * BLOCK));
    }
    assert!(cache.status().evicted_parts > 0 && cache.status().evicted_files == 1, "{:?}", cache.status());
    assert_eq!(allocated(&world, "/pinned"), 3 * PART * BLOCK);
    let (pinned, before) = (world.open(&cache, "/pinned").await.unwrap(), world.fetched());
    world.check_read(&pinned, 0, 3 * PART * BLOCK).await.unwrap();
    assert_eq!(world.fetched(), before);
    drop(pinned);
    // Also a file with parts is removed by order.
    assert_eq!(cache.evict_file(&key("/large"), true, Owner(7)).await, FileEviction::Removed);
    world.check_read(&reader, 0, 200 * BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    world.check_usage(&cache);
    assert_eq!(cache.bytes(), 3 * PART * BLOCK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_being_read_from_the_disk_stay() {
    let world = World::new();
    let cache = world.start(limited(400));
    world.put("/f", 80 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    for part in 0..20 {
        read_part(&world, &cache, &reader, part).await;
    }
    let file = cache.table.files().remove(0);
    world.disk.set_hanging(true);
    let (reader, content) = reader;
    // Of the first part, two blocks are read.
    let read = reader.begin(BLOCK, 2 * BLOCK as usize);
    let elsewhere = reader.begin(40 * BLOCK, BLOCK as usize);
    let results = [file.evict_part(10), file.evict_part(0), file.evict_part(0)];
    use crate::disk_cache::cached_file::PartEviction::{Evicted, InUse, Requested};
    assert_eq!(results, [InUse, Requested, Evicted(2 * BLOCK)]);
    assert_eq!((file.evict_part(0), file.evict_part(1)), (Evicted(0), Evicted(4 * BLOCK)));
    world.disk.set_hanging(false);
    let mut into = vec![0; 2 * BLOCK as usize];
    assert_eq!(read.finish(&mut into).await.unwrap(), 2 * BLOCK as usize);
    assert_eq!(into, content[BLOCK as usize..3 * BLOCK as usize]);
    assert_eq!(elsewhere.finish(&mut into).await.unwrap(), BLOCK as usize);
    assert_eq!(file.evict_part(0), Evicted(2 * BLOCK));
    assert_eq!(cache.bytes(), 72 * BLOCK);
    // Reads fetch them again, also while their space is freed.
    world.check_read(&(reader, content), 0, 80 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert_eq!(cache.bytes(), 80 * BLOCK);
    cache.flush().await;
    assert_eq!((allocated(&world, "/f"), world.bytes_on_disk()), (80 * BLOCK, 80 * BLOCK));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_loses_no_part_that_is_claimed() {
    let faults =
        [("create", Errno::NOSPC), ("rename", Errno::IO), ("sync", Errno::IO), ("discard", Errno::IO)];
    for is_open in [false, true] {
        for (call, error) in faults {
            let world = World::new();
            let cache = world.start(limited(400));
            world.put("/f", 80 * BLOCK);
            let reader = world.open(&cache, "/f").await.unwrap();
            for part in 0..20 {
                read_part(&world, &cache, &reader, part).await;
            }
            drop(reader);
            world.settle(&cache).await;
            drop(cache);
            let world = world.restarted(None);
            let cache = world.start(limited(60));
            world.until(|| cache.status().is_known).await;
            let reader = world.open(&cache, "/f").await.filter(|_| is_open);
            world.settle_to(&cache, usize::from(is_open)).await;
            world.disk.fail(call, error);
            cache.make_room().await;
            world.pass_time();
            world.disk.clear_faults();
            cache.make_room().await;
            cache.flush().await;
            assert!(cache.bytes() <= 60 * BLOCK, "{call}: {}", cache.bytes());
            if let Some(reader) = reader {
                world.check_read(&reader, 0, 80 * BLOCK).await.unwrap();
                drop(reader);
            }
            world.settle(&cache).await;
            world.check_usage(&cache);
            let reader = world.open(&cache, "/f").await.unwrap();
            world.check_read(&reader, 0, 80 * BLOCK).await.unwrap();
            assert_eq!(cache.status().damaged_blocks, 0, "{call}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_that_cannot_free_parts_has_whole_files() {
    let world = World::new();
    world.disk.fail_always("discard", Errno::OPNOTSUPP);
    let cache = world.start(limited(40));
    for number in 0..10 {
        let name = format!("/{number}");
        world.put(&name, 30 * BLOCK);
        world.until(|| cache.shared.may_store()).await;
        read_all(&world, &cache, &name, 30 * BLOCK).await;
        cache.make_room().await;
    }
    let status = cache.status();
    assert!(status.evicted_files > 0 && status.evicted_parts == 0, "{status:?}");
    assert!(cache.bytes() <= 40 * BLOCK);
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_file_that_was_not_opened_since_the_start_only_the_needed_parts_go() {
    let world = World::new();
    let cache = world.start(limited(400));
    world.put("/f", 80 * BLOCK);
    read_all(&world, &cache, "/f", 80 * BLOCK).await;
    drop(cache);
    for call in [None, Some("rename")] {
        let world = world.restarted(None);
        // Rounds of removals run in the background too.
        call.iter().for_each(|call| world.disk.fail_always(call, Errno::IO));
        let cache = world.start(limited(70));
        world.until(|| cache.status().is_known).await;
        if call.is_some() {
            cache.make_room().await;
            assert_eq!((cache.bytes(), world.bytes_on_disk()), (80 * BLOCK, 80 * BLOCK));
            world.disk.clear_faults();
            world.pass_time();
        }
        cache.make_room().await;
        // Down to 95 % of the limit, by whole parts.
        assert_eq!((cache.bytes(), cache.status().evicted_parts), (64 * BLOCK, 4));
        assert_eq!(allocated(&world, "/f"), 64 * BLOCK);
        world.check_usage(&cache);
        let reader = world.open(&cache, "/f").await.unwrap();
        world.check_read(&reader, 16 * BLOCK, 64 * BLOCK).await.unwrap();
        assert_eq!(world.fetched(), 0);
        world.check_read(&reader, 0, 80 * BLOCK).await.unwrap();
        assert_eq!(world.fetched(), 16 * BLOCK);
    }
}
