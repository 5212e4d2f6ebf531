//! Parts of stored files that are removed: stops after each call of the disk, and disks that fail.

#![allow(clippy::unwrap_used)]

use super::memory_disk::MemoryDisk;
use super::tests::{BLOCK, NOW, ONE, check, content, key, open, stored, write};
use super::{BlockStore, CacheDisk, FilePartsToRemove, StoreContext, StoreError};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Returns a context in which each block is a part.
fn context(disk: &MemoryDisk) -> Arc<StoreContext> {
    Arc::new(StoreContext::new(Arc::new(disk.clone()), BLOCK).with_parts_of(Some(BLOCK)).with_discard())
}

/// Stores all blocks.
fn store_all(context: &Arc<StoreContext>) -> BlockStore {
    let store = open(context, ONE).unwrap();
    (0..4).for_each(|block| write(&store, block).unwrap());
    store.flush(NOW).unwrap();
    store
}

/// Releases blocks, except those of `used`. Returns those whose space is free.
fn release(store: &BlockStore, blocks: &[u64], used: &[u64]) -> io::Result<Vec<u64>> {
    let ranges: Vec<Range<u64>> = blocks.iter().map(|block| *block..block + 1).collect();
    let mut freed = Vec::new();
    let give_up = |range: &Range<u64>| {
        let may_go = !used.contains(&range.start);
        if may_go {
            store.give_up(range);
        }
        may_go
    };
    store.release(&ranges, give_up, |range| freed.push(range.start))?;
    Ok(freed)
}

fn remove_at_least(context: &StoreContext, bytes: u64) -> Result<Option<u64>, StoreError> {
    let parts = FilePartsToRemove::AtLeast(bytes);
    Ok(context.remove_parts(&key(), &parts, false)?.map(|left| left.bytes))
}

fn remove(context: &StoreContext, parts: &[u32], may_go_whole: bool) -> Result<Option<u64>, StoreError> {
    let parts = FilePartsToRemove::Parts(parts.to_vec());
    Ok(context.remove_parts(&key(), &parts, may_go_whole)?.map(|left| left.bytes))
}

/// Returns the number of bytes of the data on disk.
fn allocated(context: &StoreContext) -> u64 {
    context.disk.open(key().data()).unwrap().status().unwrap().allocated
}

#[test]
fn blocks_are_given_up_after_their_claim_has_ended_durably() {
    for (call, error) in [("create", Errno::NOSPC), ("rename", Errno::IO), ("sync_directory", Errno::IO)] {
        let disk = MemoryDisk::default();
        let context = context(&disk);
        let store = store_all(&context);
        disk.fail(call, error);
        release(&store, &[1, 3], &[]).unwrap_err();
        // Nothing is lost, neither now nor for the next process.
        assert_eq!((stored(&store), check(&store), allocated(&context)), (vec![0, 1, 2, 3], vec![], 3_500));
        assert_eq!((disk.count("discard"), store.has_new_claims()), (0, true), "{call}");
        store.flush(NOW).unwrap();
        let again = open(&self::context(&disk.after_kill()), ONE).unwrap();
        assert_eq!((stored(&again), check(&again)), (vec![0, 1, 2, 3], vec![]), "{call}");
        assert_eq!(release(&store, &[1, 3], &[]).unwrap(), [1, 3]);
        assert_eq!((stored(&store), check(&store), allocated(&context)), (vec![0, 2], vec![], 2_000));
        assert_eq!((store.claimed_bytes(), store.held_bytes()), (2_000, 2_000));
        assert!(!store.has_new_claims() && !store.read_now(1_000, &mut [0; 10]));
        assert_eq!(disk.get(key().data()).unwrap().len(), 3_500, "the size stays");
        let again = open(&self::context(&disk.after_kill()), ONE).unwrap();
        assert_eq!((stored(&again), check(&again)), (vec![0, 2], vec![]));
    }
}

#[test]
fn blocks_that_are_used_meanwhile_are_claimed_again() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    assert_eq!(release(&store, &[0, 1, 2], &[1]).unwrap(), [0, 2]);
    assert_eq!((stored(&store), check(&store), allocated(&context)), (vec![1, 3], vec![], 1_500));
    assert!(store.has_new_claims());
    let syncs = disk.count("sync");
    store.flush(NOW).unwrap();
    assert_eq!(disk.count("sync") - syncs, 1, "the data is durable");
    let again = open(&self::context(&disk.after_kill()), ONE).unwrap();
    assert_eq!((stored(&again), check(&again)), (vec![1, 3], vec![]));
}

#[test]
fn blocks_that_were_used_during_the_close_are_claimed() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    store.flush(NOW).unwrap();
    release(&store, &[0, 1], &[1]).unwrap();
    store.detach(NOW);
    let again = open(&context, ONE).unwrap();
    assert_eq!((stored(&again), check(&again), store.held_bytes()), (vec![1, 2, 3], vec![], 2_500));
}

#[test]
fn space_that_cannot_be_freed_is_tried_again_and_counts() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    disk.fail_always("discard", Errno::NOSPC);
    release(&store, &[0, 1, 2], &[]).unwrap_err();
    // The others are not given up, because that would not help.
    assert_eq!((stored(&store), check(&store)), (vec![1, 2, 3], vec![]));
    release(&store, &[1, 2], &[]).unwrap_err();
    assert_eq!((stored(&store), allocated(&context)), (vec![1, 2, 3], 3_500));
    store.flush(NOW).unwrap();
    assert_eq!((store.claimed_bytes(), store.held_bytes()), (2_500, 3_500));
    // Nothing is written into it, because it could be freed afterwards.
    assert_eq!(write(&store, 0).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    store.free(|_| panic!("it is not free")).unwrap_err();
    disk.clear_faults();
    assert!(store.has_new_claims());
    let mut freed = Vec::new();
    store.free(|range| freed.push(range.start)).unwrap();
    assert_eq!((freed, allocated(&context), store.held_bytes()), (vec![0], 2_500, 2_500));
    write(&store, 0).unwrap();
    store.flush(NOW).unwrap();
    assert_eq!((stored(&store), check(&store)), (vec![0, 1, 2, 3], vec![]));
}

#[test]
fn blocks_are_not_written_before_their_space_is_counted_as_free() {
    let disk = MemoryDisk::default();
    let store = store_all(&context(&disk));
    let mut freed = Vec::new();
    let give_up = |range: &Range<u64>| {
        store.give_up(range);
        true
    };
    let note_freed = |_: &Range<u64>| freed.push(write(&store, 1).unwrap_err().kind());
    store.release(std::slice::from_ref(&(1..2)), give_up, note_freed).unwrap();
    assert_eq!(freed, [io::ErrorKind::ResourceBusy]);
    write(&store, 1).unwrap();
}

#[test]
fn a_block_that_is_not_claimed_yet_goes_without_a_new_state() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    release(&store, &[0], &[]).unwrap();
    write(&store, 0).unwrap();
    let renames = disk.count("rename");
    assert_eq!(release(&store, &[0], &[]).unwrap(), [0]);
    assert_eq!((disk.count("rename"), allocated(&context)), (renames, 2_500));
    store.flush(NOW).unwrap();
    assert_eq!((stored(&store), check(&store)), (vec![1, 2, 3], vec![]));
}

#[test]
fn the_claim_of_a_damaged_block_ends_before_its_space_is_freed() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    disk.flip(key().data(), 1_200);
    assert_eq!(store.read(1_000, &mut [0; 10]), [1]);
    release(&store, &[1], &[]).unwrap();
    let again = open(&self::context(&disk.after_kill()), ONE).unwrap();
    assert_eq!((stored(&again), check(&again), allocated(&context)), (vec![0, 2, 3], vec![], 2_500));
}

#[test]
fn a_closed_store_does_not_change_what_another_has_stored() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    disk.fail("discard", Errno::IO);
    release(&store, &[0], &[]).unwrap_err();
    store.detach(NOW);
    let another = open(&context, ONE).unwrap();
    write(&another, 0).unwrap();
    another.flush(NOW).unwrap();
    let discards = disk.count("discard");
    store.flush(NOW).unwrap();
    store.free(|_| panic!("it is closed")).unwrap();
    assert_eq!(release(&store, &[1], &[]).unwrap(), []);
    assert_eq!((stored(&another), check(&another)), (vec![0, 1, 2, 3], vec![]));
    assert_eq!(disk.count("discard"), discards);
}

#[test]
fn parts_of_a_closed_file_are_removed() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    assert_eq!(remove(&context, &[1], false).unwrap(), Some(2_500));
    let renames = disk.count("rename");
    assert_eq!(remove(&context, &[1, 9], false).unwrap(), Some(2_500), "it is not there");
    assert_eq!((disk.count("rename"), disk.count("discard")), (renames, 2), "its space is freed again");
    assert_eq!(remove_at_least(&context, 1).unwrap(), Some(2_000), "the last one");
    assert_eq!(allocated(&context), 2_000);
    let store = open(&context, ONE).unwrap();
    assert_eq!((stored(&store), check(&store)), (vec![0, 2], vec![]));
    drop(store);
    assert_eq!(remove_at_least(&context, 1_001).unwrap(), Some(0));
    assert_eq!((disk.names().len(), remove(&context, &[0], false).unwrap()), (0, None));
}

#[test]
fn a_file_without_parts_is_removed_as_a_whole() {
    // Its only block is larger than a part.
    let disk = MemoryDisk::default();
    let context = Arc::new(
        StoreContext::new(Arc::new(disk.clone()), 7 * BLOCK).with_parts_of(Some(BLOCK)).with_discard(),
    );
    for parts in [FilePartsToRemove::AtLeast(1), FilePartsToRemove::Parts(vec![0])] {
        let store = open(&context, ONE).unwrap();
        store.write(0, &vec![7; 3_500], NOW).unwrap();
        store.flush(NOW).unwrap();
        drop(store);
        assert_eq!(context.remove_parts(&key(), &parts, false).unwrap().unwrap().bytes, 0);
        assert_eq!(disk.names(), []);
    }
}

#[test]
fn a_full_disk_loses_the_whole_file_only_if_it_may_go() {
    let faults = [("create", Errno::NOSPC), ("sync", Errno::DQUOT), ("discard", Errno::NOSPC)];
    for (call, error) in faults {
        for may_go in [false, true] {
            let disk = MemoryDisk::default();
            let context = context(&disk);
            drop(store_all(&context));
            disk.fail(call, error);
            match remove(&context, &[0], may_go) {
                Ok(left) => assert_eq!((may_go, left, disk.names().len()), (true, Some(0), 0), "{call}"),
                Err(_) => {
                    let store = open(&self::context(&disk.after_kill()), ONE).unwrap();
                    assert!(!may_go && stored(&store).ends_with(&[1, 2, 3]), "{call}");
                    assert_eq!(check(&store), []);
                    assert_eq!(remove(&context, &[0], may_go).unwrap(), Some(2_500));
                    assert_eq!(allocated(&context), 2_500);
                }
            }
        }
    }
}

#[test]
fn a_closed_file_stays_if_the_disk_fails() {
    for call in ["rename", "sync_directory", "discard"] {
        let disk = MemoryDisk::default();
        let context = context(&disk);
        drop(store_all(&context));
        disk.fail(call, Errno::IO);
        remove(&context, &[1], true).unwrap_err();
        assert_eq!(allocated(&context), 3_500);
        // A claim may have ended without the release of the space.
        assert_eq!(remove(&context, &[1], true).unwrap(), Some(2_500), "{call}");
        assert_eq!(allocated(&context), 2_500, "{call}");
    }
    // Nor is anything removed of a file whose state is that of another program.
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    disk.put(&key().state(), b"not of a cache");
    remove(&context, &[0], true).unwrap_err();
    assert_eq!(disk.get(key().data()).unwrap().len(), 3_500);
}

#[test]
fn the_hole_of_another_store_is_no_block_of_a_removed_one() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    // A file of XRootD has no checksums of ours.
    let theirs = crate::Cinfo::decode(&disk.get(&key().state()).unwrap()).unwrap().encode();
    disk.put(&key().state(), &theirs);
    let store = open(&context, ONE).unwrap();
    disk.fail("remove", Errno::IO);
    store.remove().unwrap_err();
    let another = open(&context, ONE).unwrap();
    release(&another, &[1], &[]).unwrap();
    assert_eq!(store.read(1_000, &mut [0; 10]), [1]);
    assert_eq!((check(&another), stored(&another)), (vec![], vec![0, 2, 3]));
}

#[test]
fn a_closed_file_loses_no_more_while_its_space_cannot_be_freed() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    disk.fail_always("discard", Errno::IO);
    for parts in [[1, 2], [1, 3], [0, 1]] {
        remove(&context, &parts, false).unwrap_err();
        let survivor = open(&self::context(&disk.after_kill()), ONE).unwrap();
        assert_eq!(stored(&survivor), [0, 3]);
    }
    disk.clear_faults();
    assert_eq!((remove(&context, &[3], false).unwrap(), allocated(&context)), (Some(1_000), 1_000));
}

#[test]
fn space_that_a_stop_has_left_is_freed_at_the_next_open() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    drop(store_all(&context));
    for call in ["discard", "sync_directory"] {
        disk.fail(call, Errno::IO);
        remove(&context, &[if call == "discard" { 1 } else { 3 }], false).unwrap_err();
    }
    let survivor = disk.after_kill();
    let again = self::context(&survivor);
    let store = open(&again, ONE).unwrap();
    assert_eq!((stored(&store), check(&store), allocated(&again)), (vec![0, 2], vec![], 2_000));
    // What is allocated is not looked at for each file.
    assert_eq!(survivor.count("discard") - disk.count("discard"), 2);
    drop(store);
    drop(open(&again, ONE).unwrap());
    assert_eq!(survivor.count("discard") - disk.count("discard"), 2);
}

#[test]
fn there_are_parts_only_if_the_disk_has_freed_one() {
    let disk = MemoryDisk::default();
    let new = |bytes| StoreContext::new(Arc::new(disk.clone()), BLOCK).with_parts_of(bytes);
    let context = new(Some(BLOCK));
    for call in ["create", "discard"] {
        for error in [Errno::NOSPC, Errno::IO] {
            disk.fail(call, error);
            context.try_discard().unwrap_err();
            assert_eq!((context.part_bytes(), disk.names().len()), (None, 0), "{call}, {error:?}");
        }
    }
    context.try_discard().unwrap();
    assert_eq!((context.part_bytes(), disk.names().len()), (Some(BLOCK), 0));
    // It is known now.
    let creates = disk.count("create");
    context.try_discard().unwrap();
    new(None).try_discard().unwrap();
    assert_eq!(disk.count("create"), creates);
    let another = new(Some(BLOCK));
    disk.fail("discard", Errno::OPNOTSUPP);
    another.try_discard().unwrap();
    another.try_discard().unwrap();
    assert_eq!((another.part_bytes(), disk.count("create")), (None, creates + 1));
}

#[test]
fn a_disk_that_cannot_free_parts_any_longer_has_none() {
    let disk = MemoryDisk::default();
    let context = context(&disk);
    let store = store_all(&context);
    disk.fail_always("discard", Errno::OPNOTSUPP);
    release(&store, &[2], &[]).unwrap_err();
    assert_eq!((stored(&store), store.held_bytes(), context.part_bytes()), (vec![0, 1, 3], 3_500, None));
    store.free(|_| panic!("it is not free")).unwrap();
    drop(store);
    // A removal of parts that has begun before.
    let context = self::context(&disk);
    assert_eq!(remove(&context, &[1], false).unwrap(), Some(0));
    assert_eq!((disk.names().len(), context.part_bytes()), (0, None));
}

#[test]
fn a_state_that_cannot_be_looked_at_stays_and_is_no_success() {
    let disk = MemoryDisk::default();
    let store = store_all(&context(&disk));
    disk.fail_later("open", 1, Errno::IO);
    store.remove().unwrap_err();
    assert_eq!(stored(&open(&context(&disk), ONE).unwrap()), [0, 1, 2, 3]);
}

/// Removes parts in all ways, until the disk stops.
fn history(context: &Arc<StoreContext>, store: BlockStore) -> io::Result<()> {
    release(&store, &[0, 1], &[])?;
    write(&store, 1)?;
    store.flush(NOW)?;
    write(&store, 0)?;
    release(&store, &[0, 1, 3], &[1])?;
    write(&store, 0)?;
    store.flush(NOW)?;
    write(&store, 3)?;
    store.flush(NOW)?;
    drop(store);
    remove(context, &[0], false).map_err(io::Error::other)?;
    let store = open(context, ONE).map_err(io::Error::other)?;
    write(&store, 1)?;
    store.flush(NOW)?;
    drop(store);
    remove_at_least(context, 1_200).map_err(io::Error::other)?;
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
            let again = self::context(&survivor);
            let store = open(&again, ONE).unwrap();
            assert_eq!(check(&store), [], "step {step}, survivor {number}");
            (0..4).for_each(|block| write(&store, block).unwrap());
            store.flush(NOW).unwrap();
            drop(store);
            assert_eq!(remove(&again, &[0, 1], false).unwrap(), Some(1_500));
            let store = open(&again, ONE).unwrap();
            assert_eq!((stored(&store), check(&store), allocated(&again)), (vec![2, 3], vec![], 1_500));
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
