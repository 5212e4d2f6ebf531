//! Stored files: stops after each call of the disk, damaged data, other versions, and files of others.

#![allow(clippy::unwrap_used)]

use super::memory_disk::MemoryDisk;
use super::{BlockStore, CacheKey, OriginVersion, StoreContext, StoreError};
use crate::CacheAccess;
use base::{LogicalPath, SplitMix64};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

pub(super) const BLOCK: u64 = 1000;
pub(super) const NOW: i64 = 10_000;
pub(super) const ONE: OriginVersion = OriginVersion { size: 3_500, modified: 100, id: 1 };
const TWO: OriginVersion = OriginVersion { size: 3_500, modified: 200, id: 1 };

pub(super) fn key() -> CacheKey {
    CacheKey::new(&LogicalPath::parse(b"/d/f").unwrap()).unwrap()
}

pub(super) fn context(disk: &MemoryDisk) -> Arc<StoreContext> {
    Arc::new(StoreContext::new(Arc::new(disk.clone()), BLOCK))
}

/// Returns the content of a block of a version.
pub(super) fn content(version: OriginVersion, block: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(version.modified as u64 * 1000 + block);
    let length = BLOCK.min(version.size - block * BLOCK);
    (0..length).map(|_| rng.draw() as u8).collect()
}

pub(super) fn open(context: &Arc<StoreContext>, version: OriginVersion) -> Result<BlockStore, StoreError> {
    BlockStore::open(context, &key(), version, NOW)
}

pub(super) fn write(store: &BlockStore, block: u64) -> io::Result<()> {
    store.write(block, &content(store.version(), block), NOW)
}

pub(super) fn stored(store: &BlockStore) -> Vec<u64> {
    (0..store.blocks().len()).filter(|block| store.blocks().contains(*block)).collect()
}

/// Compares all stored blocks with the content of the version. Returns the damaged ones.
pub(super) fn check(store: &BlockStore) -> Vec<u64> {
    let mut damaged = Vec::new();
    for block in stored(store) {
        let expected = content(store.version(), block);
        let mut found = vec![0; expected.len()];
        match store.read(block * BLOCK, &mut found).as_slice() {
            [] => assert_eq!(found, expected, "block {block}"),
            bad => damaged.extend(bad),
        }
    }
    damaged
}

#[test]
fn blocks_are_there_again_after_a_flush() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    write(&store, 0).unwrap();
    write(&store, 3).unwrap();
    assert_eq!(store.unclaimed_bytes(), 2 * BLOCK);
    store.flush(NOW).unwrap();
    write(&store, 1).unwrap();
    drop(store);
    let again = open(&context(&disk.after_kill()), ONE).unwrap();
    assert_eq!((stored(&again), check(&again)), (vec![0, 3], vec![]));
    // Parts of blocks.
    let mut part = [0; 700];
    assert!(again.read(3_100, &mut part[..400]).is_empty());
    assert_eq!(part[..400], content(ONE, 3)[100..]);
    assert!(again.read(150, &mut part).is_empty());
    assert_eq!(part[..], content(ONE, 0)[150..850]);
    assert_eq!(disk.open_files(), 0, "no descriptor is left");
}

#[test]
fn a_damaged_block_is_found_and_given_up() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    (0..4).for_each(|block| write(&store, block).unwrap());
    store.flush(NOW).unwrap();
    disk.flip(key().data(), 1_999);
    let mut part = [0; 900];
    assert_eq!(store.read(1_000, &mut part), [1], "its last byte is wrong, which was not requested");
    assert_eq!(store.read(1_000, &mut part), [1], "another read at the same time");
    store.flush(NOW).unwrap();
    drop(store);
    let again = open(&context(&disk), ONE).unwrap();
    assert_eq!((stored(&again), check(&again)), (vec![0, 2, 3], vec![]));
    write(&again, 1).unwrap();
    again.flush(NOW).unwrap();
    assert_eq!(stored(&again), [0, 1, 2, 3]);
    disk.fail("read", Errno::IO);
    assert_eq!(again.read(0, &mut part), [0], "an error of the disk");
}

#[test]
fn another_version_has_nothing_stored() {
    let disk = MemoryDisk::default();
    let old = open(&context(&disk), ONE).unwrap();
    write(&old, 0).unwrap();
    old.flush(NOW).unwrap();
    write(&old, 1).unwrap();
    old.remove().unwrap();
    let new = open(&context(&disk), TWO).unwrap();
    assert_eq!(stored(&new), []);
    write(&new, 2).unwrap();
    new.flush(NOW).unwrap();
    // The old store no longer claims anything, and its readers keep their bytes.
    old.flush(NOW).unwrap();
    old.remove().unwrap();
    assert_eq!(check(&old), []);
    assert_eq!((stored(&open(&context(&disk), TWO).unwrap()), check(&new)), (vec![2], vec![]));
    assert_eq!(stored(&open(&context(&disk), ONE).unwrap()), []);
}

#[test]
fn what_is_not_of_the_cache_is_left_alone() {
    let state = key().state();
    for (path, content) in [
        (key().data().clone(), &b"precious"[..]),
        (state.clone(), b"a file of somebody"),
        (state.clone(), b"abc"),
    ] {
        let disk = MemoryDisk::default();
        disk.put(&path, content);
        assert!(matches!(open(&context(&disk), ONE), Err(StoreError::Foreign)), "{path:?}");
        assert!(matches!(context(&disk).remove(&key()), Err(StoreError::Foreign)), "{path:?}");
        assert_eq!(disk.get(&path).as_deref(), Some(content));
    }
    for path in [key().data().clone(), state] {
        let disk = MemoryDisk::default();
        disk.put_link(&path);
        assert!(matches!(open(&context(&disk), ONE), Err(StoreError::Foreign)));
        assert_eq!(disk.names(), [path]);
    }
}

#[test]
fn halves_are_never_an_empty_or_complete_file() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    (0..4).for_each(|block| write(&store, block).unwrap());
    store.flush(NOW).unwrap();
    let (data, state) = (disk.get(key().data()).unwrap(), disk.get(&key().state()).unwrap());
    // A state without data, and with data that was cut off.
    for rest in [None, Some(&data[..3_000])] {
        let disk = MemoryDisk::default();
        disk.put(&key().state(), &state);
        rest.iter().for_each(|rest| disk.put(key().data(), rest));
        let store = open(&context(&disk), ONE).unwrap();
        assert_eq!((stored(&store), store.blocks().len()), (vec![], 4));
    }
    // Data of a store that was stopped before it could claim it.
    let disk = MemoryDisk::default();
    write(&open(&context(&disk), ONE).unwrap(), 2).unwrap();
    assert_eq!(disk.get(&key().state()), None);
    assert_eq!(stored(&open(&context(&disk), ONE).unwrap()), []);
    assert_eq!(disk.names(), []);
    write(&open(&context(&disk), ONE).unwrap(), 2).unwrap();
    assert!(context(&disk).remove(&key()).unwrap() && disk.names().is_empty());
    // An empty state, as XRootD creates it first.
    disk.put(&key().state(), b"");
    disk.put(key().data(), &data);
    assert_eq!(stored(&open(&context(&disk), ONE).unwrap()), []);
}

#[test]
fn without_attributes_the_state_comes_first() {
    let disk = MemoryDisk::default();
    disk.set_no_attributes();
    let store = open(&context(&disk), ONE).unwrap();
    write(&store, 1).unwrap();
    drop(store);
    let store = open(&context(&disk.after_kill()), ONE).unwrap();
    assert_eq!(stored(&store), []);
    write(&store, 1).unwrap();
    store.flush(NOW).unwrap();
    assert_eq!(check(&store), []);
}

#[test]
fn a_file_of_xrootd_is_used_and_gets_checksums() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    (0..4).for_each(|block| write(&store, block).unwrap());
    store.flush(NOW).unwrap();
    drop(store);
    let ours = disk.get(&key().state()).unwrap();
    let theirs = crate::Cinfo::decode(&ours).unwrap().encode();
    disk.put(&key().state(), &theirs);
    let store = open(&context(&disk), ONE).unwrap();
    // The later of two concurrent reads compares with the checksum that the first one has recorded.
    let right = digest::crc32c(&content(ONE, 3));
    assert!(
        store.has_checksum(3, right) && !store.has_checksum(3, right ^ 1) && !store.has_checksum(4, right)
    );
    assert_eq!((stored(&store), check(&store)), (vec![0, 1, 2, 3], vec![]));
    // The first read has recorded the checksums.
    disk.flip(key().data(), 5);
    assert_eq!(check(&store), [0]);
    drop(store);
    assert_eq!(disk.open_files(), 0);
    // The origin was modified after XRootD had begun.
    disk.put(&key().state(), &theirs);
    let newer = OriginVersion { modified: NOW, ..ONE };
    assert_eq!(stored(&open(&context(&disk), newer).unwrap()), []);
}

#[test]
fn a_full_disk_fails_writes_and_claims_nothing() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    write(&store, 0).unwrap();
    store.flush(NOW).unwrap();
    disk.set_room(Some(500));
    assert!(write(&store, 1).is_err());
    disk.set_room(Some(1_000));
    write(&store, 2).unwrap();
    assert!(store.flush(NOW).is_err(), "no room for the state");
    let before = disk.after_power_cut(1);
    assert_eq!(stored(&open(&context(&before), ONE).unwrap()), [0], "the old claim is still there");
    disk.set_room(None);
    store.flush(NOW).unwrap();
    drop(store);
    let again = open(&context(&disk), ONE).unwrap();
    assert_eq!((stored(&again), check(&again)), (vec![0, 2], vec![]));
    assert!(!disk.names().iter().any(|name| name.as_bytes().starts_with(b"/.scalla-cache")));
}

#[test]
fn blocks_whose_sync_has_failed_are_never_claimed() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    write(&store, 0).unwrap();
    disk.fail("sync", Errno::IO);
    assert!(store.flush(NOW).is_err());
    write(&store, 1).unwrap();
    store.flush(NOW).unwrap();
    let mut part = [0; 100];
    assert_eq!(store.read(0, &mut part), [0], "it is fetched again");
    drop(store);
    assert_eq!(stored(&open(&context(&disk), ONE).unwrap()), [1]);
}

#[test]
fn accesses_are_recorded_with_the_blocks_or_after_a_minute() {
    let disk = MemoryDisk::default();
    let store = open(&context(&disk), ONE).unwrap();
    let access = CacheAccess {
        attached: NOW,
        detached: NOW + 5,
        opens: 2,
        duration: 5,
        merged: 0,
        bytes_hit: 1,
        bytes_missed: 2,
        bytes_bypassed: 3,
    };
    write(&store, 0).unwrap();
    store.record_access(access, NOW);
    store.flush(NOW).unwrap();
    let recorded = || crate::Cinfo::decode(&disk.get(&key().state()).unwrap()).unwrap();
    assert_eq!((recorded().opens, recorded().accesses), (2, vec![access]));
    store.record_access(access, NOW);
    store.flush(NOW + 10).unwrap();
    assert_eq!(recorded().opens, 2);
    store.flush(NOW + 60).unwrap();
    assert_eq!((recorded().opens, recorded().accesses.len()), (4, 2));
    store.record_access(access, NOW - 1_000);
    store.flush(NOW - 1_000).unwrap();
    assert_eq!(recorded().opens, 6, "the clock was set back");
}

/// Writes, damages, replaces and removes versions of a file. Ends with the first error.
fn history(disk: &MemoryDisk) -> Result<(), StoreError> {
    let context = context(disk);
    let store = open(&context, ONE)?;
    write(&store, 0)?;
    write(&store, 3)?;
    store.flush(NOW)?;
    write(&store, 1)?;
    disk.flip(key().data(), 10);
    store.read(0, &mut [0; 100]);
    write(&store, 0)?;
    store.flush(NOW)?;
    drop(store);
    let store = open(&context, ONE)?;
    write(&store, 2)?;
    store.flush(NOW)?;
    let new = {
        store.remove()?;
        open(&context, TWO)?
    };
    write(&new, 0)?;
    write(&new, 1)?;
    new.flush(NOW)?;
    drop(new);
    // Without a removal before.
    let old = open(&context, ONE)?;
    write(&old, 3)?;
    old.flush(NOW)?;
    drop(old);
    context.remove(&key())?;
    let last = open(&context, TWO)?;
    write(&last, 2)?;
    last.flush(NOW)?;
    Ok(())
}

#[test]
fn what_is_claimed_is_true_after_a_stop_at_each_call() {
    let mut steps = 0;
    for step in 0.. {
        let disk = MemoryDisk::default();
        disk.stop_after(step);
        let ended = history(&disk);
        let survivors = std::iter::once(disk.after_kill())
            .chain((0..16).map(|seed| disk.after_power_cut(step * 1000 + seed)));
        for (number, survivor) in survivors.enumerate() {
            let is_damaged_on_purpose = step > 0 && survivor.get(key().data()).is_some();
            for version in [ONE, TWO] {
                let copy = survivor.after_kill();
                let Ok(store) = open(&context(&copy), version) else {
                    panic!("step {step}, survivor {number}: the place is lost")
                };
                let damaged = check(&store);
                // The byte that the history has changed is the only damage.
                assert!(
                    damaged.is_empty() || (damaged == [0] && is_damaged_on_purpose),
                    "step {step}, survivor {number}, {version:?}: {damaged:?}"
                );
                write(&store, 0).unwrap();
                store.flush(NOW).unwrap();
                drop(store);
                assert_eq!(check(&open(&context(&copy), version).unwrap()), []);
            }
        }
        if !disk.has_stopped() {
            ended.unwrap();
            break;
        }
        steps = step;
    }
    assert!(steps > 60, "{steps} calls");
}
