//! Tests of the recorded index: the used space is known after a restart without a search, and what other programs have
//! changed is found.

use super::room::read_all;
use super::world::{BLOCK, TestCache, World, settings};
use super::{key, path};
use crate::disk_cache::scan::compare;
use crate::{CacheDisk, CacheTree, DiskCacheSettings};
use base::LogicalPath;
use rustix::io::Errno;
use std::sync::Arc;

/// Returns the world after the end of a process that has stored some files and has recorded them.
pub(super) async fn recorded_world(files: u64) -> World {
    let world = World::new();
    let cache = world.start(settings());
    for number in 0..files {
        let name = format!("/d{}/{number}", number % 7);
        world.put(&name, 2 * BLOCK);
        read_all(&world, &cache, &name, 2 * BLOCK).await;
    }
    record(&cache).await;
    world.restarted(None)
}

pub(super) async fn record(cache: &TestCache) {
    let of_job = cache.clone();
    cache.shared.on_disk(move || of_job.recorder.record(&of_job)).await.unwrap().unwrap();
}

pub(super) async fn start_known(world: &World, settings: DiskCacheSettings) -> TestCache {
    let cache = world.start(settings);
    world.until(|| cache.status().is_known).await;
    cache
}

/// Compares the index with the disk as it is done in the background.
pub(super) async fn compare_now(cache: &TestCache) -> bool {
    compare(&Arc::downgrade(cache), false).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_used_space_is_known_after_a_restart_without_a_search() {
    let mut world = recorded_world(100).await;
    for round in 0..3 {
        let before = world.disk.count("open");
        let cache = start_known(&world, settings()).await;
        let opened = world.disk.count("open") - before;
        assert!(opened < 20, "{opened} files were opened");
        assert_eq!((cache.files(), cache.bytes()), (100 + round, (200 + 2 * round as u64) * BLOCK));
        world.check_usage(&cache);
        // The next process finds what this one changes.
        let name = format!("/new/{round}");
        world.put(&name, 2 * BLOCK);
        read_all(&world, &cache, &name, 2 * BLOCK).await;
        world = world.restarted(None);
    }
    // After a power cut, files are looked at.
    world = world.restarted(Some(7));
    let before = world.disk.count("open");
    let cache = start_known(&world, settings()).await;
    assert!(world.disk.count("open") - before >= 100);
    world.check_usage(&cache);
    assert!(cache.files() >= 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_cannot_be_read_is_replaced() {
    let world = recorded_world(30).await;
    let files =
        world.disk.names().into_iter().filter(|name| name.text().starts_with("/.scalla-cache/index/"));
    for file in files {
        let world = world.restarted(None);
        let length = world.disk.get(&file).unwrap().len();
        (0..length).step_by(11).for_each(|at| world.disk.flip(&file, at));
        let cache = start_known(&world, settings()).await;
        world.check_usage(&cache);
        assert_eq!(cache.files(), 30);
        // The search makes a new one.
        world.until(|| cache.shared.context.journal.length().is_some()).await;
        record(&cache).await;
        let world = world.restarted(None);
        let before = world.disk.count("open");
        let cache = start_known(&world, settings()).await;
        assert!(world.disk.count("open") - before < 20);
        world.check_usage(&cache);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_program_has_changed_is_found() {
    let world = recorded_world(70).await;
    let disk = &world.disk;
    let files = |name: &str| [path(name), key(name).state()];
    let moved = |from: &str, to: &str| {
        for (from, to) in files(from).iter().zip(files(to)) {
            let content = disk.get(from).unwrap();
            disk.put(&to, &content);
        }
    };
    // A file was removed, one was added, one is another one now, and one is no file of the cache any longer.
    files("/d0/0").iter().for_each(|file| disk.remove(file).unwrap());
    moved("/d1/1", "/added/1");
    let half = World::new();
    {
        let cache = half.start(settings());
        half.put("/d2/2", 9 * BLOCK);
        let reader = half.open(&cache, "/d2/2").await.unwrap();
        half.check_read(&reader, 0, 5 * BLOCK).await.unwrap();
        drop(reader);
        half.settle(&cache).await;
    }
    files("/d2/2").iter().for_each(|file| disk.put(file, &half.disk.get(file).unwrap()));
    disk.put(&key("/d3/3").state(), b"a text of somebody");
    // A directory was replaced.
    for number in (4..70).step_by(7) {
        let name = format!("/d4/{number}");
        moved(&name, &format!("/d4/{number}.new"));
        files(&name).iter().for_each(|file| disk.remove(file).unwrap());
    }
    let cache = start_known(&world, settings()).await;
    assert_eq!(cache.bytes(), 140 * BLOCK, "as it was recorded");
    // It is found also while clients use the cache.
    world.put("/d5/5.more", 2 * BLOCK);
    read_all(&world, &cache, "/d5/5.more", 2 * BLOCK).await;
    assert!(compare_now(&cache).await);
    assert_eq!(cache.bytes(), world.bytes_on_disk());
    assert_eq!(cache.files(), 70);
    assert!(!compare_now(&cache).await, "nothing is left to be found");
    assert_eq!(disk.get(&key("/d3/3").state()).unwrap(), b"a text of somebody");
    assert!(disk.get(&path("/d3/3")).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_whose_data_is_gone_is_removed() {
    // A kill between the removals of the two files of a cached file leaves it.
    for has_index in [true, false] {
        let world = recorded_world(30).await;
        world.disk.remove(&path("/d0/0")).unwrap();
        let index = |name: &LogicalPath| name.text().starts_with("/.scalla-cache/index/") && !has_index;
        world
            .disk
            .names()
            .iter()
            .filter(|name| index(name))
            .for_each(|name| world.disk.remove(name).unwrap());
        let cache = start_known(&world, settings()).await;
        assert_eq!(compare_now(&cache).await, has_index, "without an index, the search has found it");
        assert_eq!((cache.files(), cache.bytes()), (29, 58 * BLOCK), "{has_index}");
        assert!(world.disk.get(&key("/d0/0").state()).is_none(), "{has_index}");
        assert!(!compare_now(&cache).await);
        read_all(&world, &cache, "/d0/0", 2 * BLOCK).await;
        assert_eq!(cache.files(), 30);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_of_the_cache_any_longer_is_not_removed() {
    let world = recorded_world(20).await;
    for number in 0..20 {
        let name = format!("/d{}/{number}", number % 7);
        world.disk.put(&key(&name).state(), b"a text of somebody");
    }
    let mut settings = settings();
    settings.limits.files = Some(10 * BLOCK);
    let cache = start_known(&world, settings).await;
    cache.make_room().await;
    assert!(cache.bytes() <= 10 * BLOCK);
    for number in 0..20 {
        let name = format!("/d{}/{number}", number % 7);
        assert!(world.disk.get(&path(&name)).is_some(), "{name}");
        assert_eq!(world.disk.get(&key(&name).state()).unwrap(), b"a text of somebody");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_removals_outlives_the_process() {
    let world = World::new();
    let mut limited = settings();
    limited.limits.files = Some(60 * BLOCK);
    let cache = world.start(limited.clone());
    world.put("/hot", 10 * BLOCK);
    for number in 0..20 {
        read_all(&world, &cache, "/hot", 10 * BLOCK).await;
        let name = format!("/scan/{number}");
        world.put(&name, 2 * BLOCK);
        read_all(&world, &cache, &name, 2 * BLOCK).await;
        world.pass_time();
        cache.make_room().await;
    }
    assert!(cache.bytes() >= 50 * BLOCK);
    record(&cache).await;
    let world = world.restarted(None);
    limited.limits.files = Some(20 * BLOCK);
    let cache = start_known(&world, limited).await;
    cache.make_room().await;
    world.until(|| cache.bytes() <= 20 * BLOCK).await;
    assert!(
        read_all(&world, &cache, "/hot", 10 * BLOCK).await,
        "it was removed before files that were read once"
    );
    assert!(read_all(&world, &cache, "/scan/19", 2 * BLOCK).await, "it was removed before older files");
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removals_without_a_server_are_recorded() {
    let world = recorded_world(20).await;
    let tree = CacheTree::new(Arc::new(world.disk.clone()));
    let lock = tree.lock().unwrap();
    assert!(tree.remove(&key("/d3/3"), &lock).unwrap());
    assert!(tree.remove(&key("/d4/4"), &lock).unwrap());
    drop((lock, tree));
    let before = world.disk.count("open");
    let cache = start_known(&world, settings()).await;
    assert!(world.disk.count("open") - before < 20);
    assert_eq!((cache.files(), cache.bytes()), (18, 36 * BLOCK));
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_and_pins_count_recorded_files() {
    let world = recorded_world(35).await;
    let mut settings = settings();
    settings.quotas.push(crate::DirectoryQuota { directory: path("/d1"), bytes: 7 * BLOCK });
    let cache = start_known(&world, settings).await;
    assert_eq!(cache.pin(&path("/d2"), i64::MAX).await.unwrap(), 10 * BLOCK);
    cache.make_room().await;
    assert!(cache.bytes() <= 67 * BLOCK, "{}", cache.bytes());
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_or_a_tool_that_cannot_read_the_index_does_not_leave_it() {
    let world = recorded_world(20).await;
    let tree = CacheTree::new(Arc::new(world.disk.clone()));
    let lock = tree.lock().unwrap();
    world.disk.fail("identity", Errno::IO);
    assert!(tree.remove(&key("/d3/3"), &lock).is_err(), "the index would still have it");
    assert!(tree.remove(&key("/d3/3"), &lock).unwrap());
    drop((lock, tree));
    world.disk.fail("identity", Errno::IO);
    let cache = start_known(&world, settings()).await;
    assert_eq!(cache.files(), 19);
    let world = world.restarted(None);
    assert!(!world.disk.names().iter().any(|name| name.text().ends_with(".snapshot")));
}
