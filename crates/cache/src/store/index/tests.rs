//! Tests of the recorded index: its entries after a stop at each call of the disk, and after damage.

#![allow(clippy::unwrap_used)]

use super::format::{HEAD_BYTES, IndexHead, JournalRecord};
use super::{IndexFileKind, RecordedFile, RecordedIndex, SnapshotWriter, path, resume};
use crate::store::memory_disk::MemoryDisk;
use crate::store::{DecodedState, FilePartsToRemove, StoreContext};
use crate::{BlockStore, CacheDisk, CacheKey, OriginVersion};
use base::{LogicalPath, SplitMix64};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const BLOCK: u64 = 100;
const NOW: i64 = 10_000;
const VERSION: OriginVersion = OriginVersion { size: 5 * BLOCK, modified: 100, id: 1 };

/// The files of a cache with their stored bytes.
type Files = BTreeMap<CacheKey, u64>;

fn key(text: &str) -> CacheKey {
    CacheKey::new(&LogicalPath::parse(text.as_bytes()).unwrap()).unwrap()
}

/// A process that uses a disk.
struct Process {
    context: Arc<StoreContext>,
    next: (u64, u64),
}

impl Process {
    /// Starts on a disk, and returns the index that it finds.
    fn start(disk: &MemoryDisk) -> (Self, Option<RecordedIndex>) {
        // The lock of the process.
        disk.create(&LogicalPath::parse(b"/.scalla-cache/lock").unwrap()).ok();
        Self::try_start(disk).unwrap()
    }

    /// Does the same. An index that can neither be continued nor removed stops the start.
    fn try_start(disk: &MemoryDisk) -> io::Result<(Self, Option<RecordedIndex>)> {
        let context = Arc::new(
            StoreContext::new(Arc::new(disk.clone()), BLOCK).with_parts_of(Some(BLOCK)).with_discard(),
        );
        let (found, next) = match resume(&context) {
            Ok(resumed) => resumed,
            Err(_) => (None, (context.journal.distrust().map(|()| 1)?, 0)),
        };
        Ok((Self { context, next }, found))
    }

    /// Writes a snapshot of these files.
    fn record(&mut self, files: &Files) -> io::Result<()> {
        let generation = self.next;
        self.next.0 += 1;
        self.context.journal.begin(generation)?;
        let mut writer = SnapshotWriter::new(&self.context, generation, 0)?;
        for (key, bytes) in files {
            writer.add(&RecordedFile { key: key.clone(), bytes: *bytes, used: NOW, rank: 5 })?;
        }
        writer.finish(&self.context).map(|_| ())
    }

    /// Stores blocks of a file.
    fn store(&self, name: &str, version: OriginVersion, blocks: &[u64]) -> Option<()> {
        let store = BlockStore::open(&self.context, &key(name), version, NOW).ok()?;
        for &block in blocks {
            store.write(block, &[7; BLOCK as usize], NOW).ok()?;
        }
        store.flush(NOW).ok()
    }

    /// Changes files in all ways, until the disk stops.
    fn change_files(&self) {
        self.store("/a/old", VERSION, &[2]);
        self.store("/a/new", VERSION, &[0, 1]);
        self.store("/b/deep/new", VERSION, &[4]);
        self.store("/a/other", OriginVersion { modified: 200, ..VERSION }, &[0]);
        self.context.remove(&key("/a/gone")).ok();
        self.store("/a/gone", VERSION, &[1]);
        self.context.remove_all(&["/b/one", "/b/two", "/missing"].map(key));
        self.context.remove_parts(&key("/a/new"), &FilePartsToRemove::Parts(vec![0]), false).ok();
        if let Ok(store) = BlockStore::open(&self.context, &key("/unclaimed"), VERSION, NOW) {
            store.write(3, &[7; BLOCK as usize], NOW).ok();
        }
        self.context.journal.flush();
    }
}

/// Returns what is stored on a disk.
fn stored(disk: &MemoryDisk) -> Files {
    let context = StoreContext::new(Arc::new(disk.clone()), BLOCK);
    let keys = disk.names().into_iter().filter_map(|name| CacheKey::of_state(&name));
    keys.filter_map(|key| look(&context, &key).map(|bytes| (key, bytes))).collect()
}

fn look(context: &StoreContext, key: &CacheKey) -> Option<u64> {
    match context.load(key) {
        Ok(Some(DecodedState::Valid(state))) => Some(state.stored_bytes()),
        _ => None,
    }
}

/// Returns the files of an index after a look at those whose last change has no result, and whether it is complete.
fn recorded(context: &StoreContext, index: &RecordedIndex) -> io::Result<(Files, bool)> {
    let mut changes = index.changes(&*context.disk)?;
    let mut files = Files::new();
    index.files(&*context.disk, &mut changes, |found| {
        files.extend(found.into_iter().map(|file| (file.key, file.bytes)));
        true
    })?;
    for key in &changes.unresolved {
        files.remove(key);
        files.extend(look(context, key).map(|bytes| (key.clone(), bytes)));
    }
    Ok((files, changes.is_complete))
}

/// Returns a disk with some files, whose index is recorded.
fn recorded_disk() -> (MemoryDisk, Process) {
    let disk = MemoryDisk::default();
    let (mut process, found) = Process::start(&disk);
    assert!(found.is_none());
    for name in ["/a/old", "/a/other", "/a/gone", "/b/one", "/b/two", "/c"] {
        process.store(name, VERSION, &[0, 4]).unwrap();
    }
    process.record(&stored(&disk)).unwrap();
    (disk, process)
}

/// Compares the index of a disk with the disk. Returns whether there is a complete one.
fn check(disk: &MemoryDisk, about: &str) -> bool {
    let (process, found) = Process::start(disk);
    let Some(index) = found else { return false };
    let (files, is_complete) = recorded(&process.context, &index).unwrap();
    if is_complete {
        assert_eq!(files, stored(disk), "{about}");
    }
    is_complete
}

#[test]
fn the_index_is_exact_after_the_end_of_the_process_at_each_call() {
    for calls in 0.. {
        let (disk, process) = recorded_disk();
        disk.stop_after(calls);
        process.change_files();
        let has_stopped = disk.has_stopped();
        assert!(check(&disk.after_kill(), &format!("{calls} calls")), "{calls}");
        for seed in 0..3 {
            let is_complete = check(&disk.after_power_cut(seed), "");
            assert!(!is_complete, "{calls}: records can be missing after a power cut");
        }
        if !has_stopped {
            assert!(calls > 80);
            break;
        }
    }
}

#[test]
fn the_index_is_exact_after_each_failed_call() {
    let calls = ["write", "create", "rename", "sync", "remove", "open", "read", "sync_directory"];
    for call in calls {
        for after in 0.. {
            let (disk, process) = recorded_disk();
            disk.fail_later(call, after, Errno::NOSPC);
            process.change_files();
            let has_failed = disk.clear_faults();
            // Without an index there is a search.
            check(&disk.after_kill(), &format!("{call} {after}"));
            if !has_failed {
                assert!(after > 0, "{call}");
                break;
            }
        }
    }
}

#[test]
fn a_snapshot_is_that_of_before_or_after_a_stop_at_each_call() {
    for calls in 0.. {
        let (disk, mut process) = recorded_disk();
        process.change_files();
        disk.stop_after(calls);
        let written = process.record(&stored(&disk.after_kill()));
        // There is a search after the end between the creation of a journal and its first bytes.
        assert!(check(&disk.after_kill(), &format!("{calls} calls")) || calls == 1, "{calls}");
        (0..3).for_each(|seed| _ = check(&disk.after_power_cut(seed), ""));
        if written.is_ok() {
            assert!(calls > 8);
            break;
        }
    }
}

#[test]
fn changes_during_a_snapshot_are_in_the_new_journal() {
    let (disk, mut process) = recorded_disk();
    let before = stored(&disk);
    let (context, generation) = (process.context.clone(), process.next);
    process.next.0 += 1;
    // A change that was begun before, and whose result is not known.
    context.journal.started(&key("/c"));
    context.journal.begin(generation).unwrap();
    let mut writer = SnapshotWriter::new(&context, generation, 0).unwrap();
    process.change_files();
    disk.remove(key("/c").data()).unwrap();
    disk.remove(&key("/c").state()).unwrap();
    for (key, bytes) in before {
        writer.add(&RecordedFile { key, bytes, used: NOW, rank: 0 }).unwrap();
    }
    writer.finish(&context).unwrap();
    assert!(check(&disk.after_kill(), "after a snapshot"));
    // Each start adds a journal.
    for _ in 0..5 {
        let (process, found) = Process::start(&disk);
        let index = found.unwrap();
        assert!(recorded(&process.context, &index).unwrap() == (stored(&disk), true));
        process.context.remove(&key("/a/new")).unwrap();
        process.store("/a/new", VERSION, &[0]);
        process.store("/e", VERSION, &[1, 2]);
        process.context.journal.flush();
    }
    assert!(check(&disk.after_kill(), "after starts"));
}

#[test]
fn a_damaged_index_is_not_believed() {
    let (disk, process) = recorded_disk();
    process.change_files();
    let [snapshot, journal] =
        [IndexFileKind::Snapshot, IndexFileKind::Journal].map(|kind| path(2, kind).unwrap());
    for file in [snapshot, journal.clone()] {
        let content = disk.get(&file).unwrap();
        let is_wrong = |content: &[u8]| {
            let disk = disk.after_kill();
            disk.put(&file, content);
            let (process, found) = Process::start(&disk);
            let read = found.map(|index| recorded(&process.context, &index));
            !matches!(read, Some(Ok((files, true))) if files != stored(&disk))
        };
        // A cut between two records cannot be noticed.
        let mut ends = vec![HEAD_BYTES];
        while let Some((.., length)) = JournalRecord::decode(&content[ends[ends.len() - 1]..]) {
            ends.push(ends[ends.len() - 1] + length);
        }
        for at in 0..content.len() {
            let is_between = file == journal && ends.contains(&at);
            assert!(is_between || is_wrong(&content[..at]), "{file:?} cut at {at}");
            for bit in 0..8 {
                let mut changed = content.clone();
                changed[at] ^= 1 << bit;
                assert!(is_wrong(&changed), "{file:?}: bit {bit} of byte {at}");
            }
        }
        assert!(is_wrong(&[content, vec![0; 40]].concat()), "{file:?}: more");
        let gone = disk.after_kill();
        gone.remove(&file).unwrap();
        assert!(!check(&gone, "without a file"));
    }
}

#[test]
fn a_journal_between_others_must_not_be_missing() {
    let (disk, _process) = recorded_disk();
    let processes: Vec<Process> = (0..3).map(|_| Process::start(&disk).0).collect();
    processes[2].store("/new", VERSION, &[0]);
    processes[2].context.journal.flush();
    assert!(check(&disk.after_kill(), "with all journals"));
    let journals = (0..20).filter_map(|number| path(number, IndexFileKind::Journal).ok());
    let journals: Vec<LogicalPath> = journals.filter(|path| disk.get(path).is_some()).collect();
    assert!(journals.len() > 3);
    for journal in &journals[..journals.len() - 1] {
        let disk = disk.after_kill();
        disk.remove(journal).unwrap();
        assert!(!check(&disk, "a journal is missing"));
    }
}

#[test]
fn a_start_that_fails_to_read_the_index_leaves_none_that_is_believed() {
    for removals_fail in [false, true] {
        for call in ["identity", "list", "open", "read", "status", "create", "write", "remove"] {
            for after in 0..6 {
                let (disk, _process) = recorded_disk();
                disk.fail_later(call, after, Errno::IO);
                if removals_fail {
                    disk.fail_always("remove", Errno::IO);
                }
                let started = Process::try_start(&disk);
                disk.clear_faults();
                // The changes of days.
                let about = format!("{call} {after} {removals_fail}");
                match started {
                    Ok((process, _)) => process.change_files(),
                    Err(_) => assert!(removals_fail, "{about}"),
                }
                check(&disk.after_kill(), &about);
            }
        }
    }
}

#[test]
fn an_index_that_could_not_be_removed_is_removed_before_the_next_change() {
    let (disk, process) = recorded_disk();
    disk.set_room(Some(10));
    disk.fail_always("remove", Errno::IO);
    assert_eq!(process.store("/new", VERSION, &[0]), None);
    disk.set_room(None);
    disk.clear_faults();
    process.context.remove(&key("/a/gone")).unwrap();
    assert!(!check(&disk.after_kill(), "after a change that is not recorded"));
}

#[test]
fn a_journal_that_has_lost_its_end_with_a_mount_is_not_believed() {
    let (disk, process) = recorded_disk();
    process.store("/new", VERSION, &[0]);
    process.context.journal.flush();
    let mut journals = (0..9).rev().filter_map(|number| path(number, IndexFileKind::Journal).ok());
    let journal = journals.find(|path| disk.get(path).is_some()).unwrap();
    let before = disk.get(&journal).unwrap();
    process.store("/newer", VERSION, &[0]);
    process.context.remove(&key("/a/gone")).unwrap();
    process.context.journal.flush();
    assert!(check(&disk.after_kill(), "a whole journal"));
    // It ends with a whole record.
    disk.put(&journal, &before);
    disk.remount();
    assert!(!check(&disk, "records are missing"));
}

#[test]
fn an_index_of_another_disk_is_not_believed() {
    let (disk, _process) = recorded_disk();
    assert!(check(&disk.after_kill(), "the same disk"));
    let another = disk.after_kill();
    another.become_another();
    assert!(!check(&another, "another disk"));
    assert!(!check(&another, "nothing is left of it"));
}

#[test]
fn a_journal_that_cannot_be_written_ends_the_index() {
    let (disk, mut process) = recorded_disk();
    disk.set_room(Some(10));
    process.store("/new", VERSION, &[0]);
    disk.set_room(None);
    assert_eq!(process.context.journal.length(), None);
    process.store("/newer", VERSION, &[0]);
    assert!(!check(&disk.after_kill(), "no index"));
    process.record(&stored(&disk)).unwrap();
    process.store("/newest", VERSION, &[0]);
    assert!(check(&disk.after_kill(), "a new one"));
}

#[test]
fn names_of_all_lengths_are_recorded() {
    let disk = MemoryDisk::default();
    let mut process = Process::start(&disk).0;
    let mut rng = SplitMix64::new(3);
    let mut files = Files::new();
    for _ in 0..5_000 {
        let depth = 1 + rng.draw() % 12;
        let mut name = String::new();
        for _ in 0..depth {
            name.push('/');
            (0..1 + rng.draw() % 200).for_each(|_| name.push(char::from(b'a' + (rng.draw() % 2) as u8)));
        }
        files.insert(key(&name), rng.draw());
    }
    process.record(&files).unwrap();
    let (process, found) = Process::start(&disk);
    assert_eq!(recorded(&process.context, &found.unwrap()).unwrap(), (files, true));
    // Nothing.
    let disk = MemoryDisk::default();
    Process::start(&disk).0.record(&Files::new()).unwrap();
    assert!(check(&disk, "an empty cache"));
}

#[test]
fn numbers_of_records_are_those_that_were_written() {
    let records = [
        JournalRecord::Started,
        JournalRecord::Stored(u64::MAX - 1, -5),
        JournalRecord::Stored(0, i64::MAX),
        JournalRecord::Removed,
    ];
    for record in records {
        let mut bytes = Vec::new();
        record.encode(&key("/a/f"), &mut bytes);
        let length = bytes.len();
        bytes.push(9);
        assert_eq!(JournalRecord::decode(&bytes), Some((key("/a/f"), record, length)));
        assert_eq!(JournalRecord::decode(&bytes[..length - 1]), None);
    }
    let head =
        IndexHead { kind: IndexFileKind::Snapshot, generation: 1, disk: 2, mounted: u64::MAX, others: 3 };
    let bytes = head.encode().try_into().unwrap();
    assert_eq!(IndexHead::decode(IndexFileKind::Snapshot, &bytes), Some(head));
    assert_eq!(IndexHead::decode(IndexFileKind::Journal, &bytes), None);
}
