//! Tests of the removal of single files by clients.

use super::room::read_all;
use super::world::{BLOCK, World, settings};
use super::{key, path};
use crate::FileEviction;
use base::Owner;
use rustix::io::Errno;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_removes_a_file_that_nobody_has_open() {
    let world = World::new();
    let cache = world.start(settings());
    assert_eq!(cache.evict_file(&key("/d/f"), false, Owner(7)).await, FileEviction::NotCached);
    world.put("/d/f", 4 * BLOCK);
    world.disk.put(&path("/d/of-others"), b"x");
    let reader = world.open(&cache, "/d/f").await.unwrap();
    assert_eq!(
        cache.evict_file(&key("/d/f"), true, Owner(7)).await,
        FileEviction::NotCached,
        "nothing was read"
    );
    world.check_read(&reader, 0, BLOCK).await.unwrap();
    drop(reader);
    world.settle(&cache).await;
    assert!(!cache.is_cached(&key("/d/f"), Owner(7)).await);
    read_all(&world, &cache, "/d/f", 4 * BLOCK).await;
    assert!(cache.is_cached(&key("/d/f"), Owner(7)).await && !cache.is_cached(&key("/d"), Owner(7)).await);
    assert_eq!(cache.evict_file(&key("/d"), true, Owner(7)).await, FileEviction::NotCached);
    assert_eq!(cache.evict_file(&key("/d/of-others"), true, Owner(7)).await, FileEviction::NotCached);
    world.disk.fail("remove", Errno::IO);
    assert_eq!(cache.evict_file(&key("/d/f"), false, Owner(7)).await, FileEviction::Failed);
    assert_eq!((cache.bytes(), cache.files()), (4 * BLOCK, 1), "it is still there");
    world.check_usage(&cache);
    assert_eq!(cache.evict_file(&key("/d/f"), false, Owner(7)).await, FileEviction::Removed);
    assert_eq!((cache.bytes(), cache.files(), world.disk.get(&path("/d/f"))), (0, 0, None));
    assert_eq!(world.disk.get(&path("/d/of-others")).as_deref(), Some(b"x".as_slice()));
    assert_eq!(cache.evict_file(&key("/d/f"), false, Owner(7)).await, FileEviction::NotCached);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_a_removed_file_go_on_and_later_ones_fetch_it_again() {
    let world = World::new();
    world.put("/f", 4 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/f").await.unwrap();
    world.check_read(&reader, 0, 2 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert_eq!(cache.evict_file(&key("/f"), false, Owner(7)).await, FileEviction::InUse);
    assert!(!cache.is_cached(&key("/f"), Owner(7)).await);
    assert_eq!(cache.evict_file(&key("/f"), true, Owner(7)).await, FileEviction::Removed);
    assert_eq!((cache.bytes(), world.disk.get(&path("/f"))), (0, None));
    let later = world.open(&cache, "/f").await.unwrap();
    let before = world.fetched();
    world.check_read(&later, 0, BLOCK).await.unwrap();
    assert_eq!(world.fetched() - before, BLOCK);
    // The first one stores nothing any longer.
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    drop(reader);
    world.settle_stores(&cache).await;
    assert_eq!(cache.bytes(), BLOCK);
    // It learns of a new version.
    let old = world.open(&cache, "/f").await.unwrap();
    assert_eq!(cache.evict_file(&key("/f"), true, Owner(7)).await, FileEviction::Removed);
    world.put("/f", 4 * BLOCK);
    assert!(world.check_read(&old, 0, BLOCK).await.is_err());
    drop((later, old));
    world.settle(&cache).await;
    world.check_usage(&cache);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removals_and_reads_at_once_leave_no_wrong_byte_and_an_exact_usage() {
    let world = World::new();
    world.put("/f", 6 * BLOCK);
    let cache = world.start(settings());
    let mut tasks = Vec::new();
    for number in 0..4 {
        let (world, cache) = (world.clone(), cache.clone());
        tasks.push(tokio::spawn(async move {
            for step in 0..60 {
                if number == 0 {
                    // The client leaves before the answer at times.
                    let file = key("/f");
                    let evicting = cache.evict_file(&file, step % 3 > 0, Owner(7));
                    if step % 2 == 0 {
                        evicting.await;
                    } else {
                        tokio::time::timeout(Duration::ZERO, evicting).await.ok();
                    }
                } else if let Some(reader) = world.open(&cache, "/f").await {
                    world.check_read(&reader, (step + number) % 5 * BLOCK + 7, BLOCK).await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    world.settle(&cache).await;
    world.check_usage(&cache);
}

/// Commands need only a request each, so one session can have many of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_one_session_leave_threads_of_the_disk_to_others() {
    let world = World::new();
    let cache = world.start(settings());
    for number in 0..20 {
        let name = format!("/{number}");
        world.put(&name, BLOCK);
        read_all(&world, &cache, &name, BLOCK).await;
    }
    world.put("/new", BLOCK);
    world.disk.set_hanging(true);
    let mut commands = tokio::task::JoinSet::new();
    for number in 0..40 {
        let (cache, file) = (cache.clone(), key(&format!("/{}", number % 20)));
        commands.spawn(async move {
            match number < 20 {
                true => cache.is_cached(&file, Owner(9)).await,
                false => cache.evict_file(&file, false, Owner(9)).await != FileEviction::Failed,
            }
        });
    }
    world.until(|| cache.shared.writes.queued() >= 20).await;
    // It is not stored, so its open does not hang.
    assert!(world.open(&cache, "/new").await.is_some());
    world.disk.set_hanging(false);
    let all = tokio::time::timeout(Duration::from_secs(60), commands.join_all()).await.unwrap();
    assert_eq!(all.len(), 40);
    world.settle(&cache).await;
    world.check_usage(&cache);
}
