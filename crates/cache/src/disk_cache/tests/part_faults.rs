//! Tests of removals of parts on disks that fail, and of the files that go then.

use super::parts::marked;
use super::room::read_all;
use super::world::{BLOCK, World};
use super::{key, path};
use crate::CacheDisk;

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
