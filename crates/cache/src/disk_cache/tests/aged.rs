//! Tests of quotas of directories, of cold files, and of limits on a file system that others use.

use super::path;
use super::room::read_all;
use super::world::{BLOCK, TestCache, World, settings};
use crate::disk_cache::aged_removal::AgedRemoval;
use crate::disk_cache::clock::{ClockWatch, FileUse};
use crate::disk_cache::{CacheStartError, ColdFiles, DirectoryQuota, DiskShare, FileShares};
use crate::{DiskCache, DiskCacheSettings};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

const DAY: i64 = 86_400;

fn with_quotas(quotas: &[(&str, u64)]) -> DiskCacheSettings {
    let quotas =
        quotas.iter().map(|(name, blocks)| DirectoryQuota { directory: path(name), bytes: blocks * BLOCK });
    DiskCacheSettings { quotas: quotas.collect(), ..settings() }
}

/// Caches files, one second after the other.
async fn store_all(world: &World, cache: &TestCache, names: &[&str], blocks: u64) {
    for name in names {
        world.put(name, blocks * BLOCK);
        world.pass(1);
        read_all(world, cache, name, blocks * BLOCK).await;
    }
}

/// Removes cold files. The clock was not set.
pub(super) async fn remove_cold(cache: &TestCache, age: i64) {
    let mut watch = ClockWatch::new(cache.shared.clock.now());
    AgedRemoval(cache).remove_cold(age, &mut watch).await;
}

fn stored(world: &World, names: &[&str]) -> Vec<bool> {
    names.iter().map(|name| world.disk.get(&path(name)).is_some()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_reduced_to_its_quota_by_the_oldest_files() {
    const NAMES: [&str; 6] = ["/a/1", "/a/2", "/a/b/3", "/a/b/4", "/a-5", "/c/6"];
    let world = World::new();
    let cache = world.start(with_quotas(&[("/a", 13), ("/a/b", 100), ("/none", 0)]));
    store_all(&world, &cache, &NAMES, 4).await;
    // It was used again, and the oldest one is in use.
    world.pass(100);
    read_all(&world, &cache, "/a/2", 4 * BLOCK).await;
    world.pass(1);
    let reader = world.open(&cache, "/a/1").await.unwrap();
    cache.make_room().await;
    world.until(|| stored(&world, &NAMES) == [true, true, false, true, true, true]).await;
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    cache.make_room().await;
    assert_eq!(cache.bytes(), 5 * 4 * BLOCK, "12 blocks are within the quota");
    world.check_usage(&cache);
    // A restart knows the times of uses.
    drop(cache);
    let world = world.restarted(None);
    let cache = world.start(with_quotas(&[("/a", 8)]));
    world.until(|| cache.status().is_known).await;
    // A round in the background may have begun it. The file that stays was opened last.
    cache.make_room().await;
    world.until(|| stored(&world, &NAMES) == [true, false, false, false, true, true]).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_for_files_that_cannot_be_removed_at_once() {
    let world = World::new();
    let cache = world.start(settings());
    store_all(&world, &cache, &["/a/1", "/a/2"], 4).await;
    drop(cache);
    let world = world.restarted(None);
    world.disk.fail_always("remove", Errno::IO);
    let cache = world.start(with_quotas(&[("/a", 6)]));
    world.until(|| cache.status().is_known).await;
    let before = world.disk.count("remove");
    cache.make_room().await;
    // A round in the background may have the file at the moment.
    world.until(|| cache.bytes() == 8 * BLOCK && world.disk.count("remove") > before).await;
    world.disk.clear_faults();
    world.pass_time();
    cache.make_room().await;
    world.until(|| cache.bytes() == 4 * BLOCK).await;
    world.check_usage(&cache);
}

/// The removal for a quota can take long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_stored_while_a_directory_is_reduced_to_its_quota() {
    let world = World::new();
    let cache = world.start(with_quotas(&[("/q", 12)]));
    world.until(|| cache.status().is_known).await;
    store_all(&world, &cache, &["/q/1", "/q/2", "/q/3"], 4).await;
    world.disk.set_hanging(true);
    // The oldest file has to go, and then the next one.
    cache.shared.index.closed(&super::key("/q/4"), 100, cache.shared.used_now());
    let quotas = tokio::spawn({
        let cache = cache.clone();
        async move { AgedRemoval(&cache).keep_quotas().await }
    });
    world.until(|| cache.files() == 3).await;
    cache.shared.index.closed(&super::key("/q/5"), 4 * BLOCK, cache.shared.used_now());
    // The disk was full, and others have removed files.
    cache.shared.set_full(true);
    cache.shared.removal.notify_one();
    world.until(|| cache.shared.may_store()).await;
    assert!(!quotas.is_finished());
    world.disk.set_hanging(false);
    tokio::time::timeout(Duration::from_secs(60), quotas).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cold_files_are_removed_without_need_of_room() {
    const NAMES: [&str; 4] = ["/a/cold", "/a/used", "/a/open", "/b"];
    let world = World::new();
    let cache = world.start(settings());
    store_all(&world, &cache, &NAMES, 2).await;
    let reader = world.open(&cache, "/a/open").await.unwrap();
    world.pass(DAY);
    let used = world.open(&cache, "/a/used").await.unwrap();
    world.check_read(&used, 0, 2 * BLOCK).await.unwrap();
    drop(used);
    world.settle_to(&cache, 1).await;
    remove_cold(&cache, DAY + 10).await;
    assert_eq!(stored(&world, &NAMES), [true; 4], "not yet");
    remove_cold(&cache, DAY - 10).await;
    assert_eq!(stored(&world, &NAMES), [false, true, true, false]);
    world.check_read(&reader, 0, 2 * BLOCK).await.unwrap();
    world.check_usage(&cache);
    assert_eq!(cache.status().evicted_files, 2);
    // A long use ends with the close.
    drop(reader);
    world.settle(&cache).await;
    remove_cold(&cache, DAY - 10).await;
    assert_eq!(stored(&world, &NAMES), [false, true, true, false]);
    // The next process removes them by itself.
    drop(cache);
    let world = world.restarted(None);
    world.pass(2 * DAY);
    let cold = Some(ColdFiles { age: DAY, interval: Duration::from_millis(2) });
    let cache = world.start(DiskCacheSettings { cold, ..settings() });
    world.until(|| cache.status().is_known && cache.files() == 0).await;
    world.check_usage(&cache);
}

/// Stores `/a` and `/b`, and starts another process whose clock is ahead by this number of seconds.
async fn restarted_with_clock(seconds: i64) -> (World, TestCache) {
    let world = World::new();
    let cache = world.start(settings());
    ["/a", "/b"].into_iter().for_each(|name| world.put(name, BLOCK));
    world.pass(100 * DAY);
    for name in ["/a", "/b"] {
        read_all(&world, &cache, name, BLOCK).await;
    }
    drop(cache);
    let world = world.restarted(None);
    world.pass(1);
    world.set_clock_back(-seconds);
    let cache = world.start(settings());
    world.until(|| cache.status().is_known).await;
    (world, cache)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_before_the_clock_is_set_makes_no_file_cold() {
    for wrong in [-90 * DAY, 400 * DAY] {
        let (world, cache) = restarted_with_clock(wrong).await;
        let mut watch = ClockWatch::new(cache.shared.clock.now());
        world.pass(3600);
        // It is used while the clock is wrong.
        read_all(&world, &cache, "/b", BLOCK).await;
        world.set_clock_back(wrong);
        AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
        world.pass(DAY + 1);
        AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
        assert_eq!(stored(&world, &["/a", "/b"]), [true; 2], "{wrong}");
        world.pass(4 * DAY - 3600);
        AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
        assert_eq!(stored(&world, &["/a", "/b"]), [false, true], "{wrong}");
        world.pass(3600);
        AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
        assert_eq!(stored(&world, &["/a", "/b"]), [false; 2], "{wrong}");
        world.check_usage(&cache);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_wrong_for_a_while_removes_no_cold_file() {
    let (world, cache) = restarted_with_clock(0).await;
    let mut watch = ClockWatch::new(cache.shared.clock.now());
    world.set_clock_back(-400 * DAY);
    for _ in 0..20 {
        AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
        world.pass(3600);
    }
    world.set_clock_back(400 * DAY);
    AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
    assert_eq!(stored(&world, &["/a", "/b"]), [true; 2]);
    // Time that has certainly passed counts also while the clock is not believed.
    for days in 1..=4 {
        world.set_clock_back(100);
        AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
        world.pass(DAY);
        assert_eq!(stored(&world, &["/a", "/b"]), [true; 2], "{days}");
    }
    world.pass(DAY);
    world.set_clock_back(100);
    AgedRemoval(&cache).remove_cold(5 * DAY, &mut watch).await;
    assert_eq!(stored(&world, &["/a", "/b"]), [false; 2]);
}

/// A clock that was ahead when a file was used keeps it for the time of one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_use_in_the_future_keeps_no_file_forever() {
    let (world, cache) = restarted_with_clock(400 * DAY).await;
    read_all(&world, &cache, "/a", BLOCK).await;
    drop(cache);
    let world = world.restarted(None);
    world.set_clock_back(400 * DAY);
    let cache = world.start(settings());
    world.until(|| cache.status().is_known).await;
    world.pass(DAY);
    remove_cold(&cache, DAY).await;
    assert_eq!(stored(&world, &["/a", "/b"]), [true, false]);
    world.pass(1);
    remove_cold(&cache, DAY).await;
    assert_eq!(stored(&world, &["/a", "/b"]), [false; 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_that_is_ordered_during_the_removal_of_cold_files_holds() {
    let (world, cache) = restarted_with_clock(0).await;
    world.pass(DAY);
    // The records are read again before the removal.
    world.disk.set_hanging(true);
    let before = world.disk.count("open");
    let cold = tokio::spawn({
        let cache = cache.clone();
        async move { remove_cold(&cache, DAY).await }
    });
    world.until(|| world.disk.count("open") > before).await;
    cache.pin(&path("/a"), cache.shared.now() + DAY).await.unwrap();
    world.disk.set_hanging(false);
    tokio::time::timeout(Duration::from_secs(60), cold).await.unwrap().unwrap();
    assert_eq!(stored(&world, &["/a", "/b"]), [true, false]);
}

/// A file that could not be removed is the next one to go, but not because it is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_a_file_decides_whether_it_is_cold() {
    let (world, cache) = restarted_with_clock(0).await;
    world.disk.fail("remove", Errno::IO);
    assert_eq!(cache.evict(&path("/a"), || true).await.failed, 1);
    world.pass_time();
    remove_cold(&cache, DAY).await;
    assert_eq!(stored(&world, &["/a", "/b"]), [true; 2]);
    world.disk.fail("open", Errno::IO);
    world.pass(DAY);
    for expected in [1, 0] {
        remove_cold(&cache, DAY - 20).await;
        assert_eq!(cache.files(), expected, "one state could not be read");
    }
}

/// A round of removals for room passes over pinned files. When their pin ends meanwhile, another removal may take them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_pin_ends_during_a_round_is_not_forgotten() {
    let world = World::new();
    let mut settings = settings();
    (settings.limits.high, settings.limits.low) = (DiskShare::Bytes(60_000), DiskShare::Bytes(50_000));
    let cache = world.start(settings);
    world.until(|| cache.status().is_known).await;
    let pinned = ["/d/1", "/d/2", "/d/3", "/d/4", "/d/5"];
    let others: Vec<String> = (0..30).map(|number| format!("/o/{number}")).collect();
    store_all(&world, &cache, &pinned, 1).await;
    store_all(&world, &cache, &others.iter().map(String::as_str).collect::<Vec<_>>(), 1).await;
    cache.pin(&path("/d"), cache.shared.now() + 5).await.unwrap();
    world.disk.put(&path("/somebody"), &[0; 30_000]);
    world.disk.set_hanging(true);
    let round = tokio::spawn({
        let cache = cache.clone();
        async move { cache.make_room().await }
    });
    world.until(|| cache.files() < 35).await;
    assert!(cache.pins()[0].is_kept);
    world.pass(10);
    let cold = tokio::spawn({
        let cache = cache.clone();
        async move { remove_cold(&cache, -10).await }
    });
    world.until(|| cache.files() == 0).await;
    world.disk.set_hanging(false);
    for task in [round, cold] {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    assert_eq!(stored(&world, &pinned), [false; 5]);
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_files_than_are_looked_at_together_are_cold() {
    let world = World::new();
    let cache = world.start(settings());
    let used = |time_of_day| FileUse::recorded(time_of_day, cache.shared.clock.now());
    for number in 0..1100 {
        cache.shared.index.closed(&super::key(&format!("/{number}")), 1, used(i64::from(number % 2) * DAY));
    }
    // They are not on disk, so they only leave the index.
    remove_cold(&cache, cache.shared.now() - 5).await;
    assert_eq!(cache.files(), 550);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_files_keep_their_share_of_a_disk_that_others_fill() {
    let world = World::new();
    let limits = |blocks: [u64; 5]| {
        let [base, nominal, most, low, high] = blocks.map(|blocks| DiskShare::Bytes(blocks * BLOCK));
        let mut settings = settings();
        (settings.limits.low, settings.limits.high) = (low, high);
        settings.limits.shares = Some(FileShares { base, nominal, most });
        settings
    };
    // The disk has 1,048 blocks.
    let wrong = limits([10, 20, 601, 600, 800]);
    let disk = Arc::new(world.disk.clone());
    let clock = (tokio::runtime::Handle::current(), crate::CacheClock::new(|| 0, || 0));
    let started = DiskCache::<super::TestOrigin>::start(disk, &wrong, clock);
    assert!(matches!(started, Err(CacheStartError::Limits)), "max is more than low");
    let cache = world.start(limits([10, 20, 40, 600, 800]));
    for number in 0..30 {
        store_all(&world, &cache, &[&format!("/{number}")], 2).await;
        cache.make_room().await;
    }
    assert!((36 * BLOCK..=40 * BLOCK).contains(&cache.bytes()), "{}", cache.bytes());
    // Others need more and more of the disk.
    world.disk.put(&path("/of-others"), &vec![0; (700 * BLOCK) as usize]);
    cache.make_room().await;
    assert!((10 * BLOCK..=28 * BLOCK).contains(&cache.bytes()), "{}", cache.bytes());
    world.disk.put(&path("/of-others"), &vec![0; (1030 * BLOCK) as usize]);
    for _ in 0..5 {
        cache.make_room().await;
    }
    assert!((8 * BLOCK..=11 * BLOCK).contains(&cache.bytes()), "{}", cache.bytes());
    world.check_usage(&cache);
}
