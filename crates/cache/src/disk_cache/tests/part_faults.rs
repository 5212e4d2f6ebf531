//! Tests of removals of parts on disks that fail, and of the files that go then.

use super::parts::{PART, allocated, fill, limited, marked, read_part, release};
use super::room::read_all;
use super::world::{BLOCK, TestCache, World};
use super::{key, path};
use crate::CacheDisk;
use crate::disk_cache::cache_index::FileDifference;
use crate::disk_cache::cached_file::{OpenFileParts, PartUse};
use crate::disk_cache::clock::FileUse;
use rustix::io::Errno;

/// Stores closed files of this number of parts, in order.
async fn fill_closed(world: &World, cache: &TestCache, names: &[&str], parts: u64) {
    for name in names {
        drop(fill(world, cache, name, parts).await);
        world.settle(cache).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_always_fails_does_not_stop_the_removal_of_others() {
    for (call, error) in [("open", Errno::IO), ("open", Errno::ACCESS), ("rename", Errno::IO)] {
        let world = World::new();
        let cache = world.start(marked(245, 240));
        world.until(|| cache.status().is_known).await;
        fill_closed(&world, &cache, &["/bad/f", "/good1", "/good2"], 20).await;
        world.disk.fail_at(call, "/bad/", error);
        // Each round has to remove more, and the file is among the oldest ones.
        for round in 1..10 {
            world.disk.put(&path("/other"), &vec![1; 8_000 * round]);
            world.pass_time();
            cache.make_room().await;
            let too_much = (cache.bytes() / BLOCK + 8 * round as u64).saturating_sub(240);
            assert!(too_much <= 1, "{call}, {error:?}, round {round}: {too_much} blocks");
            world.pass_time();
            cache.make_room().await;
            assert!(cache.shared.may_store(), "{call}, {error:?}, round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_cannot_be_removed_do_not_stop_the_removal_of_others() {
    let world = World::new();
    let cache = world.start(marked(261, 260));
    world.until(|| cache.status().is_known).await;
    let names: Vec<String> = (0..20).map(|number| format!("/bad/{number}")).collect();
    fill_closed(&world, &cache, &names.iter().map(String::as_str).collect::<Vec<_>>(), 2).await;
    fill_closed(&world, &cache, &["/good"], 20).await;
    for call in ["rename", "remove"] {
        world.disk.fail_at(call, "/bad/", Errno::ACCESS);
    }
    world.disk.put(&path("/other"), &vec![1; 60_000]);
    cache.make_room().await;
    assert!(allocated(&world, "/good") <= 40 * BLOCK, "{}", cache.bytes());
    assert!(cache.shared.may_store());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_that_is_next_is_removed_also_if_it_was_requested() {
    for part_bytes in [None, Some(8 * BLOCK)] {
        let world = World::new();
        let cache = world.start(crate::DiskCacheSettings { part_bytes, ..marked(100, 100) });
        world.until(|| cache.status().is_known).await;
        for number in 0..20 {
            let name = format!("/f{number:02}");
            world.put(&name, 4 * BLOCK);
            for _ in 0..6 {
                read_all(&world, &cache, &name, 4 * BLOCK).await;
                world.settle(&cache).await;
            }
        }
        for number in 0..3 {
            let name = format!("/g{number}");
            world.put(&name, 4 * BLOCK);
            for _ in 0..2 {
                read_all(&world, &cache, &name, 4 * BLOCK).await;
                world.settle(&cache).await;
            }
        }
        // The main queue is full of the files with more requests.
        cache.shared.index.set_capacity(60_000);
        let next = cache.shared.index.next_to_remove().unwrap();
        assert!(!cache.shared.index.is_quiet(&next.key) && next.key.data().text().starts_with("/g"));
        let used = world.disk.usage().unwrap().1;
        world.disk.put(&path("/other"), &vec![1; (102_000 - used) as usize]);
        let before = cache.files();
        cache.make_room().await;
        assert_eq!(cache.files(), before - 1);
        assert!(world.disk.get(next.key.data()).is_none(), "{part_bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_could_not_be_tried_has_no_parts_until_it_has_freed_one() {
    for can_discard in [false, true] {
        let world = World::new();
        drop(world.start(marked(325, 320)));
        let world = world.restarted(None);
        world.disk.fail_always("create", Errno::NOSPC);
        let cache = world.start(marked(325, 320));
        assert_eq!(cache.shared.context.part_bytes(), None);
        world.until(|| cache.status().is_known).await;
        world.disk.clear_faults();
        if !can_discard {
            world.disk.fail_always("discard", Errno::OPNOTSUPP);
        }
        world.pass_time();
        cache.make_room().await;
        assert_eq!(cache.shared.context.part_bytes().is_some(), can_discard);
        let names = ["/1", "/2", "/3", "/4"];
        let mut readers = Vec::new();
        for name in names {
            readers.push(fill(&world, &cache, name, 20).await);
        }
        cache.flush().await;
        world.disk.put(&path("/other"), &vec![1; 26_000]);
        for _ in 0..5 {
            world.pass_time();
            cache.make_room().await;
        }
        let space: u64 = names.iter().map(|name| allocated(&world, name)).sum();
        assert_eq!(cache.bytes(), space);
        assert_eq!(space <= 292 * BLOCK, can_discard, "{space}");
        assert!(can_discard || space == 320 * BLOCK, "{space}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_cannot_free_parts_any_longer_loses_whole_files() {
    let world = World::new();
    let cache = world.start(marked(325, 320));
    world.until(|| cache.status().is_known).await;
    let open = fill(&world, &cache, "/open", 20).await;
    for name in ["/1", "/2", "/3"] {
        drop(fill(&world, &cache, name, 20).await);
        world.settle_to(&cache, 1).await;
    }
    cache.flush().await;
    world.disk.fail_always("discard", Errno::OPNOTSUPP);
    for more in [26_000, 106_000] {
        world.disk.put(&path("/other"), &vec![1; more]);
        for _ in 0..5 {
            world.pass_time();
            cache.make_room().await;
        }
        // What was not given up is claimed again.
        cache.flush().await;
        assert!(world.disk.usage().unwrap().1 <= 325 * BLOCK);
        let names = ["/open", "/1", "/2", "/3"].into_iter();
        let left = names.filter(|name| world.disk.get(&path(name)).is_some());
        let space: u64 = left.map(|name| allocated(&world, name)).sum();
        assert_eq!(cache.bytes(), space);
        assert!(world.bytes_on_disk() + PART * BLOCK >= space, "at most one part of the open file is lost");
    }
    assert_eq!(allocated(&world, "/open"), 80 * BLOCK);
    world.check_read(&open, 0, 80 * BLOCK).await.unwrap();
    assert!(cache.status().evicted_files >= 2, "{:?}", cache.status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_comparison_with_the_disk_does_not_bring_removed_parts_back() {
    let world = World::new();
    let cache = world.start(limited(400));
    world.until(|| cache.status().is_known).await;
    fill_closed(&world, &cache, &["/f"], 20).await;
    cache.recorder.record(&cache).unwrap();
    drop(cache);
    let world = world.restarted(None);
    let cache = world.start(limited(70));
    world.until(|| cache.status().is_known).await;
    // The comparison has read the state before the removal.
    let used = FileUse::recorded(1, cache.shared.clock.now());
    cache.make_room().await;
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (64 * BLOCK, 64 * BLOCK));
    assert_eq!(cache.shared.index.found(&key("/f"), 80 * BLOCK, used), FileDifference::AsKnown);
    assert_eq!(cache.bytes(), 64 * BLOCK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_that_a_close_could_not_free_is_freed_by_the_next_removal() {
    let world = World::new();
    let cache = world.start(marked(85, 84));
    world.until(|| cache.status().is_known).await;
    let reader = fill(&world, &cache, "/f", 20).await;
    cache.flush().await;
    world.disk.fail_always("discard", Errno::NOSPC);
    let (freed, result) = release(&cache, &[3]);
    assert!(freed.is_empty() && result.is_err());
    drop(reader);
    world.settle(&cache).await;
    world.disk.clear_faults();
    world.pass_time();
    // So another part is the next one.
    cache.shared.index.requested(&key("/f"), &[3]);
    assert_eq!((cache.bytes(), world.bytes_on_disk(), allocated(&world, "/f")), (80_000, 76_000, 80_000));
    world.disk.put(&path("/other"), &vec![1; 6_000]);
    cache.make_room().await;
    assert_eq!((cache.bytes(), world.bytes_on_disk(), allocated(&world, "/f")), (72_000, 72_000, 72_000));
    assert_eq!(cache.status().evicted_bytes, 8 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    assert!(read_part(&world, &cache, &reader, 5).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_file_without_claims_does_not_count() {
    let world = World::new();
    let cache = world.start(limited(400));
    world.until(|| cache.status().is_known).await;
    world.put("/f", 80 * BLOCK);
    let reader = world.open(&cache, "/f").await.unwrap();
    read_part(&world, &cache, &reader, 0).await;
    let another = world.open(&cache, "/f").await.unwrap();
    drop(reader);
    cache.flush().await;
    let file = cache.table.files().remove(0);
    world.until(|| OpenFileParts(&file).part_use(0) == PartUse::Unused).await;
    drop(file);
    for call in ["discard", "remove"] {
        world.disk.fail_always(call, Errno::IO);
    }
    assert!(release(&cache, &[0]).1.is_err());
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (PART * BLOCK, 0));
    drop(another);
    world.settle(&cache).await;
    assert_eq!((cache.bytes(), cache.files()), (0, 0));
    world.disk.clear_faults();
    world.pass_time();
    // The next open begins anew.
    let reader = world.open(&cache, "/f").await.unwrap();
    assert!(!read_part(&world, &cache, &reader, 0).await);
    cache.flush().await;
    assert_eq!((cache.bytes(), world.bytes_on_disk()), (PART * BLOCK, PART * BLOCK));
}
