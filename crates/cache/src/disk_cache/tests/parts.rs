//! Tests of files of which the cache removes parts.

use super::room::read_all;
use super::world::{BLOCK, TestCache, TestReader, World, settings};
use super::{key, path};
use crate::disk_cache::DiskShare;
use crate::disk_cache::cache_index::RemovalUnit;
use crate::disk_cache::cached_file::{OpenFileParts, PartUse};
use crate::{CacheDisk, DiskCacheSettings, FileEviction};
use base::Owner;
use bytes::Bytes;
use rustix::io::Errno;

/// The number of blocks of a part.
pub(super) const PART: u64 = 4;

/// A cache of this number of blocks.
pub(super) fn limited(blocks: u64) -> DiskCacheSettings {
    let mut settings = DiskCacheSettings { part_bytes: Some(PART * BLOCK), ..settings() };
    settings.limits.files = Some(blocks * BLOCK);
    settings
}

/// Reads a part of an open file. Returns whether nothing was fetched.
pub(super) async fn read_part(
    world: &World,
    cache: &TestCache,
    reader: &(TestReader, Bytes),
    part: u64,
) -> bool {
    world.until(|| cache.shared.may_store()).await;
    let before = world.fetched();
    world.check_read(reader, part * PART * BLOCK, PART * BLOCK).await.unwrap();
    world.settle_stores(cache).await;
    world.fetched() == before
}

/// A cache that removes files above this number of used blocks of the disk, down to another one.
pub(super) fn marked(high: u64, low: u64) -> DiskCacheSettings {
    let mut settings = DiskCacheSettings { part_bytes: Some(PART * BLOCK), ..settings() };
    (settings.limits.high, settings.limits.low) =
        (DiskShare::Bytes(high * BLOCK), DiskShare::Bytes(low * BLOCK));
    settings
}

/// Stores all of a file of this number of parts, in order.
pub(super) async fn fill(world: &World, cache: &TestCache, name: &str, parts: u64) -> (TestReader, Bytes) {
    world.put(name, parts * PART * BLOCK);
    let reader = world.open(cache, name).await.unwrap();
    for part in 0..parts {
        read_part(world, cache, &reader, part).await;
    }
    reader
}

/// Returns the space that the data of a file has on disk.
pub(super) fn allocated(world: &World, name: &str) -> u64 {
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

/// Removes parts of an open file. Returns the removed ones with their sizes.
pub(super) fn release(cache: &TestCache, parts: &[u32]) -> (Vec<(u32, u64)>, std::io::Result<()>) {
    let file = cache.table.files().remove(0);
    let key = file.key.clone();
    let bytes = PART * BLOCK;
    let unit = |part: &u32| {
        (*part, cache.shared.index.take(&RemovalUnit { key: key.clone(), part: Some(*part), bytes }).unwrap())
    };
    let taken: Vec<_> = parts.iter().map(unit).collect();
    let (freed, result) = OpenFileParts(&file).release(&taken);
    let mut left = crate::disk_cache::cache_index::ParkedFiles::default();
    taken
        .into_iter()
        .filter(|(part, _)| !freed.iter().any(|(one, _)| one == part))
        .for_each(|(_, unit)| left.push(unit));
    cache.shared.index.put_back_as_oldest(left);
    (freed, result)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_being_read_from_the_disk_stays() {
    let world = World::new();
    let cache = world.start(limited(400));
    world.put("/f", 80 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    for part in 0..20 {
        read_part(&world, &cache, &reader, part).await;
    }
    cache.flush().await;
    let file = cache.table.files().remove(0);
    world.disk.set_hanging(true);
    let (reader, content) = reader;
    // Of the first part, two blocks are read.
    let read = reader.begin(BLOCK, 2 * BLOCK as usize);
    let elsewhere = reader.begin(40 * BLOCK, BLOCK as usize);
    use PartUse::{InUse, Requested, Unused};
    assert_eq!([10, 0, 1].map(|part| OpenFileParts(&file).part_use(part)), [InUse, InUse, Unused]);
    let bytes = PART * BLOCK;
    assert_eq!(release(&cache, &[0, 10, 1]).0, [(1, bytes)]);
    world.disk.set_hanging(false);
    let mut into = vec![0; 2 * BLOCK as usize];
    assert_eq!(read.finish(&mut into).await.unwrap(), 2 * BLOCK as usize);
    assert_eq!(into, content[BLOCK as usize..3 * BLOCK as usize]);
    assert_eq!(elsewhere.finish(&mut into).await.unwrap(), BLOCK as usize);
    assert_eq!(
        [10, 0].map(|part| OpenFileParts(&file).part_use(part)),
        [InUse, InUse],
        "the reader is there"
    );
    let reader = (reader, content);
    for part in [12, 13] {
        read_part(&world, &cache, &reader, part).await;
    }
    assert_eq!(
        [10, 0, 0, 13].map(|part| OpenFileParts(&file).part_use(part)),
        [Requested, Requested, Unused, InUse]
    );
    assert_eq!(release(&cache, &[0]).0, [(0, bytes)]);
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (72 * BLOCK, 72 * BLOCK));
    assert_eq!(allocated(&world, "/f"), 72 * BLOCK);
    world.check_read(&reader, 0, 80 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert_eq!(cache.bytes(), 80 * BLOCK);
    cache.flush().await;
    assert_eq!((allocated(&world, "/f"), world.bytes_on_disk()), (80 * BLOCK, 80 * BLOCK));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_space_of_a_part_of_an_open_file_counts_until_it_is_freed() {
    for is_closed in [false, true] {
        let world = World::new();
        let cache = world.start(limited(400));
        let reader = fill(&world, &cache, "/f", 20).await;
        cache.flush().await;
        world.disk.fail("discard", Errno::NOSPC);
        let (freed, result) = release(&cache, &[3, 4, 5]);
        assert!(freed.is_empty() && result.is_err());
        assert_eq!((cache.bytes(), allocated(&world, "/f")), (80 * BLOCK, 80 * BLOCK));
        let reader = if is_closed {
            // The close frees it.
            drop(reader);
            world.settle(&cache).await;
            world.open(&cache, "/f").await.unwrap()
        } else {
            cache.flush().await;
            reader
        };
        assert_eq!((cache.bytes(), world.bytes_on_disk()), (76 * BLOCK, 76 * BLOCK), "closed: {is_closed}");
        assert_eq!(allocated(&world, "/f"), 76 * BLOCK);
        // Only one part was given up.
        let before = world.fetched();
        world.check_read(&reader, 0, 80 * BLOCK).await.unwrap();
        assert_eq!(world.fetched() - before, 4 * BLOCK);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_never_frees_parts_loses_no_more_in_later_rounds() {
    for is_open in [true, false] {
        let world = World::new();
        let cache = world.start(marked(90, 80));
        world.until(|| cache.status().is_known).await;
        let reader = Some(fill(&world, &cache, "/f", 21).await).filter(|_| is_open);
        world.settle_to(&cache, usize::from(is_open)).await;
        cache.flush().await;
        world.disk.fail_always("discard", Errno::IO);
        world.disk.put(&path("/other"), &vec![1; 20_000]);
        let mut left = Vec::new();
        for _ in 0..10 {
            world.pass_time();
            cache.make_room().await;
            left.push(world.bytes_on_disk());
        }
        assert_eq!((cache.bytes(), allocated(&world, "/f")), (84 * BLOCK, 84 * BLOCK), "its space is in use");
        assert!(left.iter().all(|bytes| *bytes >= 56 * BLOCK && *bytes == left[0]), "{left:?}");
        world.disk.clear_faults();
        world.pass(3600);
        cache.make_room().await;
        cache.flush().await;
        // Of a closed file, other parts may be next, and are removed too.
        let left = cache.bytes() / BLOCK;
        assert!(left == 56 || !is_open && left == 28, "{left}");
        assert_eq!(allocated(&world, "/f"), left * BLOCK, "open: {is_open}");
        world.check_usage(&cache);
        drop(reader);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_a_closed_file_without_new_requests_first() {
    let world = World::new();
    let cache = world.start(marked(325, 320));
    world.until(|| cache.status().is_known).await;
    let one = fill(&world, &cache, "/open1", 20).await;
    let two = fill(&world, &cache, "/open2", 20).await;
    drop(fill(&world, &cache, "/hot", 20).await);
    drop(fill(&world, &cache, "/cold", 20).await);
    world.settle_to(&cache, 2).await;
    let again = world.open(&cache, "/hot").await.unwrap();
    read_part(&world, &cache, &again, 7).await;
    drop(again);
    world.settle_to(&cache, 2).await;
    cache.flush().await;
    world.disk.fail_always("create", Errno::NOSPC);
    world.disk.put(&path("/other"), &vec![1; 20_000]);
    for _ in 0..5 {
        cache.make_room().await;
    }
    assert!(world.disk.get(&path("/cold")).is_none(), "{:?}", cache.status());
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (240 * BLOCK, 240 * BLOCK));
    for name in ["/open1", "/open2", "/hot"] {
        assert_eq!(allocated(&world, name), 80 * BLOCK, "{name}");
    }
    let before = world.fetched();
    world.check_read(&one, 0, 80 * BLOCK).await.unwrap();
    world.check_read(&two, 0, 80 * BLOCK).await.unwrap();
    assert_eq!(world.fetched(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_fails_on_a_full_disk_waits_for_the_next_round() {
    let world = World::new();
    let cache = world.start(marked(165, 160));
    world.until(|| cache.status().is_known).await;
    let _readers = [fill(&world, &cache, "/open1", 20).await, fill(&world, &cache, "/open2", 20).await];
    cache.flush().await;
    world.disk.fail_always("create", Errno::NOSPC);
    world.disk.put(&path("/other"), &vec![1; 20_000]);
    world.pass_time();
    let (usages, creates) = (world.disk.count("usage"), world.disk.count("create"));
    cache.make_room().await;
    // A round that the failure has caused would have begun by then.
    let file = cache.table.files().remove(0);
    cache.shared.on_disk(move || drop(file)).await;
    tokio::time::timeout(std::time::Duration::ZERO, cache.shared.removal.notified()).await.unwrap_err();
    let creates = world.disk.count("create") - creates;
    // The regular rounds make one attempt each.
    let rounds = world.disk.count("usage") - usages;
    assert!((1..=rounds).contains(&creates), "{creates} attempts in {rounds} rounds");
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (160 * BLOCK, 160 * BLOCK), "nothing is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_starts_on_a_full_disk_and_makes_room() {
    for (call, error) in [("create", Errno::NOSPC), ("create", Errno::DQUOT), ("discard", Errno::INVAL)] {
        let world = World::new();
        let cache = world.start(limited(400));
        drop(fill(&world, &cache, "/f", 20).await);
        world.settle(&cache).await;
        drop(cache);
        let world = world.restarted(None);
        world.disk.fail_always(call, error);
        let cache = world.start(limited(60));
        world.until(|| cache.status().is_known).await;
        cache.make_room().await;
        // Parts, if that works, and the whole file otherwise.
        assert!(cache.bytes() <= 60 * BLOCK, "{call}: {}", cache.bytes());
        world.check_usage(&cache);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_between_the_size_of_a_part_and_of_a_block_are_removed() {
    let world = World::new();
    let mut settings = limited(1000);
    (settings.part_bytes, settings.block_bytes) = (Some(10 * BLOCK), 7 * BLOCK);
    let cache = world.start(settings.clone());
    for number in 0..10 {
        let name = format!("/{number}");
        world.put(&name, 13 * BLOCK);
        read_all(&world, &cache, &name, 13 * BLOCK).await;
    }
    drop(cache);
    let world = world.restarted(None);
    settings.limits.files = Some(125 * BLOCK);
    let cache = world.start(settings);
    world.until(|| cache.status().is_known).await;
    let renames = world.disk.count("rename");
    cache.make_room().await;
    assert_eq!((cache.bytes(), cache.status().evicted_files), (117 * BLOCK, 1));
    assert_eq!(world.disk.count("rename"), renames);
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_state_cannot_be_replaced_does_not_stop_others() {
    let world = World::new();
    let cache = world.start(marked(165, 160));
    world.until(|| cache.status().is_known).await;
    let _first = fill(&world, &cache, "/first", 20).await;
    let _second = fill(&world, &cache, "/second", 20).await;
    cache.flush().await;
    world.disk.fail("rename", Errno::ISDIR);
    world.disk.put(&path("/other"), &vec![1; 6_000]);
    cache.make_room().await;
    assert_eq!((allocated(&world, "/first"), allocated(&world, "/second")), (80 * BLOCK, 72 * BLOCK));
    cache.flush().await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_are_read_without_waiting_go_meanwhile_and_no_byte_is_wrong() {
    let world = World::new();
    let settings = DiskCacheSettings { block_bytes: 4096, part_bytes: Some(8192), ..limited(1 << 20) };
    let cache = world.start(settings);
    world.put("/f", 40 * 8192);
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 40 * 8192).await.unwrap();
    world.settle_stores(&cache).await;
    cache.flush().await;
    cache.flush().await;
    let (ended, file) = (std::sync::atomic::AtomicBool::new(false), cache.table.files().remove(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for part in 0..39 {
                let bytes = 8192;
                let unit = RemovalUnit { key: file.key.clone(), part: Some(part), bytes };
                // It is used in between.
                let Some(unit) = cache.shared.index.take(&unit) else { continue };
                OpenFileParts(&file).release(&[(part, unit)]).1.unwrap();
            }
            ended.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut offset = 0;
        while !ended.load(std::sync::atomic::Ordering::Acquire) {
            offset = (offset + 4096 * 7 + 100) % (39 * 8192);
            world.check_read_now(&reader, offset, 300);
        }
    });
    assert_eq!(cache.status().damaged_blocks, 0);
    world.check_read(&reader, 0, 40 * 8192).await.unwrap();
    assert_eq!(cache.status().damaged_blocks, 0);
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
        // The first parts are needed most.
        world.check_read(&reader, 0, 64 * BLOCK).await.unwrap();
        assert_eq!(world.fetched(), 0);
        world.check_read(&reader, 0, 80 * BLOCK).await.unwrap();
        assert_eq!(world.fetched(), 16 * BLOCK);
    }
}
