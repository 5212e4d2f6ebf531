//! Tests of a recorded index that differs from the disk: no file that is needed is removed for one that is not known, or
//! not there.

use super::recorded::{compare_now, record, recorded_world, start_known};
use super::room::read_all;
use super::world::{BLOCK, World, settings};
use super::{key, path};
use crate::disk_cache::DiskShare;
use crate::{CacheDisk, DiskCacheSettings};

fn name(number: u64) -> String {
    format!("/d{}/{number}", number % 7)
}

/// Returns the number of the first files of a recorded world that are still stored.
fn stored(world: &World, files: u64) -> usize {
    (0..files).filter(|number| world.disk.get(&path(&name(*number))).is_some()).count()
}

fn with_marks(high: u64, low: u64) -> DiskCacheSettings {
    let mut settings = settings();
    (settings.limits.high, settings.limits.low) = (DiskShare::Bytes(high), DiskShare::Bytes(low));
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_files_are_not_removed_for_others_that_are_not_known() {
    let world = recorded_world(30).await;
    let cache = start_known(&world, settings()).await;
    for number in 0..90 {
        read_all(&world, &cache, &name(number % 30), 2 * BLOCK).await;
    }
    record(&cache).await;
    let world = world.restarted(None);
    // Another cache has stored very much meanwhile, which nobody uses.
    let other = World::new();
    let cache = other.start(settings());
    other.put("/d0/0", 10 * BLOCK);
    read_all(&other, &cache, "/d0/0", 10 * BLOCK).await;
    for number in 0..30 {
        let to = key(&format!("/other/{number}"));
        world.disk.put(to.data(), &other.disk.get(&path("/d0/0")).unwrap());
        world.disk.put(&to.state(), &other.disk.get(&key("/d0/0").state()).unwrap());
    }
    let used = world.disk.usage().unwrap().1;
    let cache = world.start(with_marks(used - 10 * BLOCK, used - 100 * BLOCK));
    world.until(|| cache.shared.trust.is_compared()).await;
    cache.make_room().await;
    assert!(cache.status().is_known);
    assert!(world.disk.usage().unwrap().1 <= used - 100 * BLOCK);
    assert!(stored(&world, 30) >= 28, "{} are left", stored(&world, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_too_full_for_what_is_known_is_compared_at_once() {
    let world = recorded_world(10).await;
    let cache = start_known(&world, settings()).await;
    assert!(!cache.shared.trust.is_compared(), "it rests for a minute");
    drop(cache);
    let world = world.restarted(None);
    // Nothing that is known helps.
    let cache = start_known(&world, with_marks(100, 50)).await;
    cache.make_room().await;
    world.until(|| cache.shared.trust.is_compared()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_not_there_make_room_for_cached_bytes() {
    let world = recorded_world(20).await;
    // The oldest ones were removed by somebody.
    let gone: Vec<u64> = (0..6).collect();
    for number in &gone {
        world.disk.remove(&path(&name(*number))).unwrap();
        world.disk.remove(&key(&name(*number)).state()).unwrap();
    }
    let mut limited = settings();
    limited.limits.files = Some(36 * BLOCK);
    let cache = start_known(&world, limited).await;
    cache.make_room().await;
    assert!(cache.bytes() <= 36 * BLOCK);
    assert_eq!(stored(&world, 20), 14, "only files that were not there have left the index");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_with_more_bytes_than_the_disk_is_not_believed() {
    let world = recorded_world(20).await;
    let cache = start_known(&world, settings()).await;
    cache.shared.context.journal.stored(&key("/d0/0"), u64::MAX - 5, 3);
    cache.shared.context.journal.stored(&key("/another"), 1 << 40, 3);
    cache.shared.context.journal.flush();
    let world = world.restarted(None);
    let mut limited = settings();
    limited.limits.files = Some(50 * BLOCK);
    let cache = start_known(&world, limited).await;
    cache.make_room().await;
    assert_eq!((cache.files(), cache.bytes(), stored(&world, 20)), (20, 40 * BLOCK, 20));
    assert!(!compare_now(&cache).await);
    record(&cache).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cache_of_which_much_has_gone_removes_nothing_before_it_is_compared() {
    let world = recorded_world(40).await;
    for number in 0..20 {
        world.disk.remove(&path(&name(number))).unwrap();
        world.disk.remove(&key(&name(number)).state()).unwrap();
    }
    let mut limited = settings();
    limited.limits.files = Some(42 * BLOCK);
    limited.quotas.push(crate::DirectoryQuota { directory: path("/"), bytes: 42 * BLOCK });
    let cache = start_known(&world, limited).await;
    assert!(cache.shared.trust.is_compared());
    cache.make_room().await;
    assert_eq!((cache.bytes(), stored(&world, 40)), (40 * BLOCK, 20));
    world.put("/another", 2 * BLOCK);
    read_all(&world, &cache, "/another", 2 * BLOCK).await;
}
