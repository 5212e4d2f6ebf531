//! Tests of pins: the files that they keep, their limit, and their end.

use super::aged::remove_cold;
use super::room::read_all;
use super::world::{BLOCK, TestCache, World, settings};
use super::{key, path};
use crate::disk_cache::{CachePinFailure, CacheStartError, DirectoryQuota, DiskShare};
use crate::{CachePin, DiskCacheSettings, FileEviction};
use base::Owner;
use rustix::io::Errno;

const DAY: i64 = 86_400;

fn limited(blocks: u64) -> DiskCacheSettings {
    let mut settings = settings();
    settings.limits.files = Some(blocks * BLOCK);
    settings
}

async fn started(world: &World, settings: DiskCacheSettings) -> TestCache {
    let cache = world.start(settings);
    world.until(|| cache.status().is_known).await;
    cache.make_room().await;
    cache
}

async fn store(world: &World, cache: &TestCache, name: &str, blocks: u64) {
    world.put(name, blocks * BLOCK);
    read_all(world, cache, name, blocks * BLOCK).await;
}

fn is_stored(world: &World, name: &str) -> bool {
    world.disk.get(&path(name)).is_some()
}

/// Caches more files than fit.
async fn scan(world: &World, cache: &TestCache, round: u64) {
    for number in 0..40 {
        store(world, cache, &format!("/scan/{round}-{number}"), 2).await;
        cache.make_room().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_files_stay_until_the_end_of_their_pin() {
    let world = World::new();
    let settings =
        DiskCacheSettings { quotas: vec![DirectoryQuota { directory: path("/d"), bytes: 0 }], ..limited(40) };
    let cache = started(&world, settings.clone()).await;
    let expires = cache.shared.now() + DAY;
    assert_eq!(cache.pin(&path("/d/"), expires).await.unwrap(), 0);
    for name in ["/d/f", "/d/g", "/dd"] {
        store(&world, &cache, name, 3).await;
    }
    scan(&world, &cache, 0).await;
    remove_cold(&cache, -10).await;
    assert_eq!(cache.bytes(), 6 * BLOCK, "all other files have gone");
    assert!(is_stored(&world, "/d/f") && is_stored(&world, "/d/g"));
    assert_eq!(cache.evict_file(&key("/d/f"), true, Owner(7)).await, FileEviction::Pinned);
    let evicted = cache.evict(&path("/"), || true).await;
    assert_eq!((evicted.removed, evicted.pinned), (0, 2));
    let pins = cache.pins();
    assert_eq!((pins.len(), pins[0].bytes, pins[0].is_kept), (1, 6 * BLOCK, true));
    // A change at the origin through this server also removes pinned data.
    cache.change_content(&path("/d/g")).made().await;
    assert!(!is_stored(&world, "/d/g"));
    // After a power cut, the pin still holds.
    drop(cache);
    let world = world.restarted(Some(3));
    let cache = started(&world, settings).await;
    scan(&world, &cache, 1).await;
    remove_cold(&cache, -10).await;
    // A removed file may come back.
    assert!(is_stored(&world, "/d/f") && cache.bytes() <= 6 * BLOCK, "{}", cache.bytes());
    world.pass(DAY + 10);
    assert_eq!(cache.pins(), []);
    cache.make_room().await;
    // The quota removes it, here or in the background.
    world.until(|| !is_stored(&world, "/d/f")).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_is_renewed_and_ended() {
    let world = World::new();
    let cache = started(&world, limited(40)).await;
    let now = cache.shared.now();
    cache.pin(&path("/f"), now + DAY).await.unwrap();
    cache.pin(&path("/f"), now + 5).await.unwrap();
    assert_eq!(cache.pins()[0].pin.expires, now + 5);
    store(&world, &cache, "/f", 2).await;
    assert_eq!(cache.pins()[0].bytes, 2 * BLOCK);
    assert!(cache.unpin(&path("/f/")).await.unwrap() && !cache.unpin(&path("/f")).await.unwrap());
    assert_eq!(cache.evict_file(&key("/f"), false, Owner(7)).await, FileEviction::Removed);
    assert!(matches!(cache.pin(&path("/f.cinfo"), now + 5).await, Err(CachePinFailure::Name)));
    assert!(matches!(cache.pin(&path("/.scalla-cache"), now + 5).await, Err(CachePinFailure::Name)));
    // A pin that cannot be stored is none, and one that is to end stays.
    world.disk.fail("sync", Errno::IO);
    assert!(matches!(cache.pin(&path("/g"), now + DAY).await, Err(CachePinFailure::Disk(_))));
    assert_eq!(cache.pins(), []);
    cache.pin(&path("/g"), now + DAY).await.unwrap();
    world.disk.fail("rename", Errno::IO);
    assert!(cache.unpin(&path("/g")).await.is_err());
    assert_eq!(cache.pins().len(), 1);
    drop(cache);
    let cache = started(&world.restarted(None), limited(40)).await;
    assert_eq!(cache.pins().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_of_pins_within_each_other_are_counted_once() {
    let world = World::new();
    let cache = started(&world, limited(40)).await;
    let expires = cache.shared.now() + DAY;
    let kept = || cache.pins().iter().map(|status| status.is_kept).collect::<Vec<_>>();
    store(&world, &cache, "/a/b/f", 10).await;
    cache.pin(&path("/a/b"), expires).await.unwrap();
    cache.pin(&path("/a"), expires).await.unwrap();
    store(&world, &cache, "/a/g", 5).await;
    assert_eq!(kept(), [true, true], "15 of 20 blocks");
    // Each of them fits in, in each order.
    cache.pin(&path("/a/b/f"), expires).await.unwrap();
    cache.pin(&path("/"), expires).await.unwrap();
    store(&world, &cache, "/c", 6).await;
    assert_eq!(kept(), [true, true, true, false]);
    assert!(cache.unpin(&path("/")).await.unwrap());
    let refused = cache.pin(&path("/c"), expires).await.unwrap_err();
    assert!(
        matches!(refused, CachePinFailure::TooMuch { wanted, limit } if (wanted, limit) == (21_000, 20_000))
    );
    assert!(cache.unpin(&path("/a")).await.unwrap());
    cache.pin(&path("/c"), expires).await.unwrap();
    assert_eq!(kept(), [true, true, true], "16 of 20 blocks");
}

/// Orders at a moment when the clock is wrong do not end the other pins for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_at_a_wrong_time_leave_other_pins() {
    let world = World::new();
    let cache = started(&world, limited(40)).await;
    let expires = cache.shared.now() + DAY;
    for name in ["/a", "/b", "/c"] {
        cache.pin(&path(name), expires).await.unwrap();
    }
    world.set_clock_back(-400 * DAY);
    assert_eq!(cache.pins(), []);
    cache.pin(&path("/d"), expires + 400 * DAY).await.unwrap();
    assert!(!cache.unpin(&path("/a")).await.unwrap(), "it seems to have ended");
    world.set_clock_back(400 * DAY);
    let names = |cache: &TestCache| {
        cache.pins().iter().map(|status| status.pin.path.text().into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&cache), ["/b", "/c", "/d"]);
    store(&world, &cache, "/b", 2).await;
    assert_eq!(cache.pins()[0].bytes, 2 * BLOCK, "its bytes are still counted");
    drop(cache);
    let cache = started(&world.restarted(None), limited(40)).await;
    assert_eq!(names(&cache), ["/b", "/c", "/d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_files_have_at_most_half_of_the_cache() {
    let world = World::new();
    let cache = started(&world, limited(40)).await;
    let expires = cache.shared.now() + DAY;
    store(&world, &cache, "/a/1", 15).await;
    store(&world, &cache, "/b/1", 6).await;
    assert_eq!(cache.pin(&path("/a"), expires).await.unwrap(), 15 * BLOCK);
    let refused = cache.pin(&path("/b"), expires).await.unwrap_err();
    assert!(
        matches!(refused, CachePinFailure::TooMuch { wanted, limit } if (wanted, limit) == (21_000, 20_000))
    );
    assert_eq!(cache.pins().len(), 1);
    cache.pin(&path("/c"), expires).await.unwrap();
    // The directory of the later pin grows.
    for number in 0..4 {
        store(&world, &cache, &format!("/c/{number}"), 2).await;
    }
    let kept: Vec<bool> = cache.pins().iter().map(|status| status.is_kept).collect();
    assert_eq!(kept, [true, false]);
    scan(&world, &cache, 0).await;
    assert!(is_stored(&world, "/a/1"));
    assert!(cache.pins()[1].bytes <= 5 * BLOCK, "it was reduced");
    assert!((0..40).any(|number| is_stored(&world, &format!("/scan/0-{number}"))), "others are cached too");
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pins_hold_until_the_disk_was_looked_through() {
    let world = World::new();
    let mut settings = settings();
    (settings.limits.high, settings.limits.low) = (DiskShare::Bytes(50_000), DiskShare::Bytes(45_000));
    let cache = started(&world, settings.clone()).await;
    store(&world, &cache, "/a/1", 15).await;
    store(&world, &cache, "/b/1", 25).await;
    drop(cache);
    // Nothing but the search reads, and it hangs.
    let world = world.restarted(None);
    world.disk.forget_index();
    world.disk.set_hanging(true);
    let cache = world.start(settings);
    let expires = cache.shared.now() + DAY;
    cache.shared.take_pins(vec![CachePin { path: path("/a"), created: 0, expires }]);
    cache.shared.index.found(&key("/a/1"), 15 * BLOCK, cache.shared.used_now());
    for _ in 0..20 {
        cache.make_room().await;
    }
    assert!(!cache.status().is_known);
    // Files that the index does not know yet count as files of others, so the capacity seems to be small.
    let pins = cache.pins();
    assert_eq!((pins[0].bytes, pins[0].is_kept), (15 * BLOCK, true));
    world.disk.set_hanging(false);
    world.until(|| cache.status().is_known).await;
    scan(&world, &cache, 0).await;
    assert!(cache.pins()[0].is_kept && is_stored(&world, "/a/1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_that_cannot_be_read_stop_the_start() {
    let world = World::new();
    let cache = started(&world, limited(40)).await;
    let expires = cache.shared.now() + DAY;
    cache.pin(&path("/a"), expires).await.unwrap();
    drop(cache);
    let world = world.restarted(None);
    world.disk.fail("read", Errno::IO);
    let refused = world.try_start(limited(40)).err().unwrap();
    assert!(matches!(refused, CacheStartError::Pins(_)), "{refused}");
    assert!(refused.to_string().contains(".scalla-cache/pins"), "{refused}");
    let world = world.restarted(None);
    let cache = started(&world, limited(40)).await;
    cache.pin(&path("/b"), expires).await.unwrap();
    assert_eq!(cache.pins().len(), 2);
}

/// They would stop all readers otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_pins_are_set_aside() {
    let mut world = World::new();
    for number in 1..3 {
        let cache = started(&world, limited(40)).await;
        let expires = cache.shared.now() + DAY;
        assert_eq!(cache.pins(), []);
        cache.pin(&path("/a"), expires).await.unwrap();
        assert_eq!(cache.pins().len(), 1);
        drop(cache);
        world = world.restarted(None);
        world.disk.flip(&path("/.scalla-cache/pins"), 5);
        let content = world.disk.get(&path("/.scalla-cache/pins"));
        drop(started(&world, limited(40)).await);
        // A power cut does not bring it back.
        world = world.restarted(Some(number));
        assert_eq!(world.disk.get(&path("/.scalla-cache/pins")), None);
        let aside = path(&format!("/.scalla-cache/pins.damaged-{number}"));
        assert_eq!(world.disk.get(&aside), content, "it can be looked at");
    }
}
