//! Reads that wait for nothing.

use super::world::{BLOCK, World, settings};
use super::{key, path};
use crate::DiskCacheSettings;
use rustix::io::Errno;

#[tokio::test]
async fn stored_blocks_are_read_without_waiting() {
    let world = World::new();
    world.put("/d/f", 10 * BLOCK + 17);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/d/f").await.unwrap();
    assert!(!world.check_read_now(&reader, 0, 10), "it is not there");
    world.check_read(&reader, BLOCK, 9 * BLOCK + 17).await.unwrap();
    world.settle_stores(&cache).await;
    let before = cache.status();
    for (offset, length) in [(BLOCK, 10), (2 * BLOCK - 5, 10), (9 * BLOCK, 5 * BLOCK), (10 * BLOCK + 16, 2)] {
        assert!(world.check_read_now(&reader, offset, length), "{length} bytes at {offset}");
    }
    assert!(!world.check_read_now(&reader, BLOCK - 1, 2), "the first block is not there");
    assert!(!world.check_read_now(&reader, 10 * BLOCK + 17, 5), "the end of the file");
    let after = cache.status();
    let bytes = 10 + 10 + BLOCK + 17 + 1;
    assert_eq!(after.bytes_hit - before.bytes_hit, bytes);
    assert_eq!(after.bytes_delivered - before.bytes_delivered, bytes);
}

#[tokio::test]
async fn damaged_bytes_are_never_read_without_waiting() {
    let world = World::new();
    world.put("/d/f", 4 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    let whole = |reader: &_| world.check_read_now(reader, 0, 4 * BLOCK);
    assert!(whole(&reader));
    // A moment after it was written and read, with the damage outside the bytes of the read and within them.
    world.disk.flip(&path("/d/f"), 2 * BLOCK as usize + 500);
    for (offset, length) in [(2 * BLOCK, 10), (2 * BLOCK + 500, 1), (2 * BLOCK, BLOCK), (2 * BLOCK - 1, 2)] {
        assert!(!world.check_read_now(&reader, offset, length), "{length} bytes at {offset}");
    }
    assert!(!whole(&reader) && world.check_read_now(&reader, BLOCK, BLOCK));
    let fetched = world.fetched();
    world.check_read(&reader, 2 * BLOCK, 10).await.unwrap();
    assert_eq!(world.fetched(), fetched + BLOCK);
    world.settle_stores(&cache).await;
    assert!(whole(&reader), "it was fetched again");
    drop(reader);
    world.settle(&cache).await;
    let reader = world.open(&cache, "/d/f").await.unwrap();
    assert!(whole(&reader), "after another open");
    world.disk.fail("read", Errno::IO);
    assert!(!whole(&reader), "the disk fails");
    world.disk.clear_faults();
    assert!(whole(&reader));
}

/// A block of several pages.
const LARGE: u64 = 4 * PAGE;
const PAGE: u64 = 4096;

#[tokio::test]
async fn small_reads_of_large_blocks_wait_until_their_blocks_were_compared() {
    let world = World::new();
    world.put("/d/f", 4 * LARGE + 17);
    let cache = world.start(DiskCacheSettings { block_bytes: LARGE, ..settings() });
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&reader, LARGE, 3 * LARGE + 17).await.unwrap();
    world.settle_stores(&cache).await;
    assert!(!world.check_read_now(&reader, LARGE + 5, 10), "all of the block would be read");
    world.check_read(&reader, LARGE + 5, 10).await.unwrap();
    let before = cache.status();
    for (offset, length) in [(0, 10), (PAGE - 5, 10), (PAGE, PAGE), (LARGE - 1, 1), (3 * PAGE - 7, PAGE + 7)]
    {
        assert!(
            world.check_read_now(&reader, LARGE + offset, length),
            "{length} bytes at {offset} of the block"
        );
    }
    assert_eq!(cache.status().bytes_hit - before.bytes_hit, 10 + 10 + PAGE + 1 + PAGE + 7);
    assert!(!world.check_read_now(&reader, 2 * LARGE - 1, 2), "the next block was not compared");
    assert!(!world.check_read_now(&reader, LARGE - 1, 2), "the block before is not there");
    world.check_read(&reader, 2 * LARGE - 1, 2 * LARGE + 18).await.unwrap();
    assert!(world.check_read_now(&reader, 2 * LARGE - 1, 2));
    assert!(world.check_read_now(&reader, 4 * LARGE + 3, 100), "the end of the file");
    // A file that is opened again is compared again.
    drop(reader);
    world.settle(&cache).await;
    let reader = world.open(&cache, "/d/f").await.unwrap();
    assert!(!world.check_read_now(&reader, LARGE + 5, 10));
}

#[tokio::test]
async fn a_damaged_page_is_never_read_and_those_beside_it_are() {
    let world = World::new();
    world.put("/d/f", 2 * LARGE);
    let cache = world.start(DiskCacheSettings { block_bytes: LARGE, ..settings() });
    let reader = world.open(&cache, "/d/f").await.unwrap();
    for _ in 0..2 {
        world.check_read(&reader, 0, 2 * LARGE).await.unwrap();
        world.settle_stores(&cache).await;
    }
    world.disk.flip(&path("/d/f"), (LARGE + PAGE) as usize + 500);
    assert!(world.check_read_now(&reader, LARGE, PAGE) && world.check_read_now(&reader, LARGE + 2 * PAGE, 9));
    for (offset, length) in [(PAGE, 1), (PAGE + 500, 1), (PAGE - 1, 2), (2 * PAGE - 1, 2), (0, LARGE)] {
        assert!(
            !world.check_read_now(&reader, LARGE + offset, length),
            "{length} bytes at {offset} of the block"
        );
    }
    let fetched = world.fetched();
    world.check_read(&reader, LARGE + PAGE, 1).await.unwrap();
    assert_eq!(world.fetched(), fetched + LARGE);
    world.settle_stores(&cache).await;
    assert!(world.check_read_now(&reader, LARGE + PAGE, 1), "it was fetched again");
    world.disk.fail("read", Errno::IO);
    assert!(!world.check_read_now(&reader, 0, 10), "the disk fails");
}

#[tokio::test]
async fn reads_of_very_many_bytes_of_blocks_wait() {
    let world = World::new();
    world.put("/d/f", 400 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&reader, 0, 400 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert!(world.check_read_now(&reader, BLOCK, 256 * BLOCK));
    assert!(!world.check_read_now(&reader, BLOCK, 300 * BLOCK));
}

#[tokio::test]
async fn nothing_is_read_without_waiting_during_and_after_an_own_change() {
    let world = World::new();
    world.put("/d/f", 4 * BLOCK);
    let cache = world.start(settings());
    let reader = world.open(&cache, "/d/f").await.unwrap();
    world.check_read(&reader, 0, 4 * BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert!(world.check_read_now(&reader, 0, 10));
    let mut change = cache.change_content(&path("/d/f"));
    assert!(!world.check_read_now(&reader, 0, 10));
    change.made().await;
    drop(change);
    world.until(|| cache.ticket(&key("/d/f")).is_some()).await;
    assert!(!world.check_read_now(&reader, 0, 10));
}

#[tokio::test]
async fn a_reader_whose_next_blocks_are_missing_fetches_them() {
    let world = World::new();
    world.put("/d/f", 40 * BLOCK);
    let cache = world.start(DiskCacheSettings { prefetch_bytes: 4 * BLOCK, ..settings() });
    let reader = world.open(&cache, "/d/f").await.unwrap();
    for block in 0..5 {
        world.check_read(&reader, block * BLOCK, BLOCK).await.unwrap();
        world.settle_stores(&cache).await;
    }
    let fetched = world.fetched();
    assert!(fetched > 5 * BLOCK, "{fetched}");
    // Its own blocks are there, but not all of those ahead of it.
    assert!(!world.check_read_now(&reader, 5 * BLOCK, BLOCK));
    world.check_read(&reader, 5 * BLOCK, BLOCK).await.unwrap();
    world.settle_stores(&cache).await;
    assert!(world.fetched() > fetched);
    // Another reader does not go on there.
    let other = world.open(&cache, "/d/f").await.unwrap();
    assert!(world.check_read_now(&other, 2 * BLOCK, 10));
}
