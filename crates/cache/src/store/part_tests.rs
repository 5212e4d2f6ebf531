//! Parts of stored files that are removed: stops after each call of the disk, and disks that fail.

#![allow(clippy::unwrap_used)]

use super::memory_disk::MemoryDisk;
use super::tests::{NOW, ONE, check, content, context, key, open, stored, write};
use super::{BlockStore, CacheDisk, StoreContext};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Stores all blocks.
fn store_all(context: &Arc<StoreContext>) -> BlockStore {
    let store = open(context, ONE).unwrap();
    (0..4).for_each(|block| write(&store, block).unwrap());
    store.flush(NOW).unwrap();
    store
}

fn remove(context: &StoreContext, range: Range<u64>) -> Result<Option<u64>, super::StoreError> {
    let ranges: super::RangesOfFile = Box::new(move |_| vec![range.clone()]);
    Ok(context.remove_ranges(&key(), &ranges)?.map(|left| left.bytes))
}

/// Returns the number of bytes of the data on disk.
fn allocated(context: &StoreContext) -> u64 {
    context.disk.open(key().data()).unwrap().status().unwrap().allocated
}

#[test]
fn the_space_of_evicted_blocks_is_freed_after_their_claim_has_ended() {
    let (disk, mut part) = (MemoryDisk::default(), [0; 10]);
    let context = context(&disk);
    let store = store_all(&context);
    store.evict(&[1, 3]);
    assert!(!store.read_now(1_000, &mut part) && store.has_new_claims());
    assert_eq!(store.read(1_000, &mut part), [1]);
    assert_eq!((stored(&store), allocated(&context)), (vec![0, 2], 3_500));
    // What cannot be claimed is not freed.
    disk.fail("rename", Errno::IO);
    store.flush(NOW).unwrap_err();
    assert_eq!((allocated(&context), store.claimed_bytes()), (3_500, 3_500));
    store.flush(NOW).unwrap();
    assert_eq!((allocated(&context), store.claimed_bytes()), (2_000, 2_000));
    assert_eq!((disk.count("discard"), store.has_new_claims()), (2, false));
    assert_eq!(disk.get(key().data()).unwrap().len(), 3_500, "the size stays");
    let again = open(&super::tests::context(&disk.after_kill()), ONE).unwrap();
    assert_eq!((stored(&again), check(&again)), (vec![0, 2], vec![]));
}

#[test]
fn an_evicted_block_is_written_again_only_after_its_space_was_freed() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    store.evict(&[0, 1]);
    disk.fail("rename", Errno::NOSPC);
    write(&store, 1).unwrap_err();
    write(&store, 1).unwrap();
    assert_eq!(disk.count("discard"), 1);
    store.flush(NOW).unwrap();
    store.flush(NOW).unwrap();
    assert_eq!((stored(&store), check(&store), disk.count("discard")), (vec![1, 2, 3], vec![], 1));
    assert_eq!(allocated(&context), 2_500);
    // A block that was written and not claimed yet.
    write(&store, 0).unwrap();
    store.evict(&[0]);
    store.flush(NOW).unwrap();
    assert_eq!((stored(&store), allocated(&context)), (vec![1, 2, 3], 2_500));
}

#[test]
fn a_store_that_is_closed_changes_nothing() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    store.evict(&[0]);
    store.detach();
    let another = open(&context, ONE).unwrap();
    store.flush(NOW).unwrap();
    assert_eq!((stored(&another), check(&another), disk.count("discard")), (vec![0, 1, 2, 3], vec![], 0));
}

#[test]
fn ranges_of_a_closed_file_are_removed() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    assert_eq!(remove(&context, 1_000..2_000).unwrap(), Some(2_500));
    assert_eq!(remove(&context, 1_000..2_000).unwrap(), Some(2_500), "it is not there");
    assert_eq!(remove(&context, 3_000..9_000).unwrap(), Some(2_000), "behind the end");
    assert_eq!((allocated(&context), disk.count("discard")), (2_000, 2));
    let store = open(&context, ONE).unwrap();
    assert_eq!((stored(&store), check(&store)), (vec![0, 2], vec![]));
    drop(store);
    assert_eq!(remove(&context, 0..3_500).unwrap(), Some(0));
    assert_eq!((disk.names().len(), remove(&context, 0..3_500).unwrap()), (0, None));
}

#[test]
fn the_whole_file_goes_if_a_part_of_it_cannot() {
    for (call, error) in [("create", Errno::NOSPC), ("sync", Errno::DQUOT), ("discard", Errno::IO)] {
        let disk = MemoryDisk::default();
        let context = context(&disk);
        drop(store_all(&context));
        disk.fail(call, error);
        assert_eq!(remove(&context, 0..1_000).unwrap(), Some(0), "{call}");
        assert_eq!(disk.names(), [], "{call}");
    }
    // Other errors change nothing.
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    disk.fail("rename", Errno::IO);
    remove(&context, 0..1_000).unwrap_err();
    assert_eq!((stored(&open(&context, ONE).unwrap()).len(), allocated(&context)), (4, 3_500));
    // Nor does a state of which nothing can be removed.
    disk.put(&key().state(), b"not of a cache");
    remove(&context, 0..1_000).unwrap_err();
    assert_eq!(disk.get(key().data()).unwrap().len(), 3_500);
}

#[test]
fn a_disk_tells_whether_it_can_free_parts() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    assert!(context.can_discard().unwrap());
    disk.fail("discard", Errno::OPNOTSUPP);
    assert!(!context.can_discard().unwrap());
    disk.fail("discard", Errno::IO);
    context.can_discard().unwrap_err();
    assert_eq!(disk.names(), []);
    // A damaged disk may have parts that an earlier process could free.
    let store = store_all(&context);
    disk.fail_always("discard", Errno::OPNOTSUPP);
    store.evict(&[2]);
    store.flush(NOW).unwrap();
    assert_eq!((stored(&store), store.claimed_bytes()), (vec![0, 1, 3], 2_500));
}

/// Removes parts in all ways, until the disk stops.
fn history(context: &Arc<StoreContext>, store: BlockStore) -> io::Result<()> {
    store.evict(&[0, 1]);
    store.flush(NOW)?;
    write(&store, 1)?;
    store.flush(NOW)?;
    store.evict(&[1, 3]);
    write(&store, 0)?;
    write(&store, 3)?;
    store.flush(NOW)?;
    drop(store);
    remove(context, 0..1_000).map_err(io::Error::other)?;
    let store = open(context, ONE).map_err(io::Error::other)?;
    write(&store, 1)?;
    store.flush(NOW)?;
    drop(store);
    remove(context, 2_000..3_500).map_err(io::Error::other)?;
    Ok(())
}

#[test]
fn what_is_claimed_is_true_after_a_stop_at_each_call_of_an_eviction() {
    let mut steps = 0;
    for step in 0.. {
        let disk = MemoryDisk::default();
        let context = context(&disk);
        let store = store_all(&context);
        disk.sync_all().unwrap();
        disk.stop_after(step);
        let ended = history(&context, store);
        let survivors = std::iter::once(disk.after_kill())
            .chain((0..16).map(|seed| disk.after_power_cut(step * 1000 + seed)));
        for (number, survivor) in survivors.enumerate() {
            let again = super::tests::context(&survivor);
            let store = open(&again, ONE).unwrap();
            assert_eq!(check(&store), [], "step {step}, survivor {number}");
            (0..4).for_each(|block| write(&store, block).unwrap());
            store.flush(NOW).unwrap();
            drop(store);
            assert_eq!(remove(&again, 500..1_500).unwrap(), Some(1_500));
            let store = open(&again, ONE).unwrap();
            assert_eq!((stored(&store), check(&store)), (vec![2, 3], vec![]));
        }
        if !disk.has_stopped() {
            ended.unwrap();
            assert_eq!(disk.get(key().data()).unwrap()[1_000..2_000], content(ONE, 1));
            break;
        }
        steps = step;
    }
    assert!(steps > 60, "{steps} calls");
}
