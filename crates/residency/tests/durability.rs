//! The durable queue: the same histories as for entries in memory, stopped at each statement, and
//! its use of memory and time with many entries.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use base::LogicalPath;
use proptest::prelude::*;
use residency::{
    CopyFailure, CopyOutcome, EntryKey, EntryStore, OwnerTurn, Priority, QueueAction, QueueLimits,
    QueuePlaces, RequestId, SqliteStore, StoreError, StoreOpenError, Submission, TransferDirection,
    TransferEntry, TransferQueue,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use storage::PrivateDirectory;
use support::{History, LIMITS, TestStore, steps, submission};

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In memory, because a process that is killed leaves what it has written. Each database that
        // is opened would wait for the disk otherwise.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let path = parent.join(format!("scalla-queue-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

type Contents = (Vec<TransferEntry>, Vec<(RequestId, EntryKey)>);

fn contents(store: &mut SqliteStore) -> Contents {
    let entries = store.entries(None, 1000).unwrap();
    let mut requests = Vec::new();
    for number in 0..4 {
        let id = support::id(number);
        let keys = store.keys_of_request(&id, None, 1000).unwrap();
        requests.extend(keys.into_iter().map(|key| (id.clone(), key)));
    }
    (entries, requests)
}

/// A store whose process could be killed after each statement: the files of the database are copied
/// then, and the copy must open with the state of the last command.
struct KilledStore {
    /// `None` while it restarts.
    store: Option<SqliteStore>,
    directory: Arc<Directory>,
    is_open: bool,
    committed: Contents,
    /// Counts the statements, because a copy after each one would take long.
    statements: u32,
    every: u32,
}

impl KilledStore {
    fn new(every: u32) -> Self {
        let directory = Arc::new(Directory::new());
        let store = Some(SqliteStore::open(&place(&directory.0)).unwrap());
        let mut new =
            Self { store, directory, is_open: false, committed: (vec![], vec![]), statements: 0, every };
        new.check_copy();
        new
    }

    /// Runs a statement in the transaction of its command.
    fn run<T>(&mut self, statement: impl FnOnce(&mut SqliteStore) -> Result<T, StoreError>) -> T {
        if !self.is_open {
            self.store.as_mut().unwrap().begin().unwrap();
            self.is_open = true;
        }
        let value = statement(self.store.as_mut().unwrap()).unwrap();
        self.statements += 1;
        if self.statements.is_multiple_of(self.every) {
            self.check_copy();
        }
        value
    }

    fn check_copy(&mut self) {
        let copy = Directory::new();
        copy_files(&self.directory.0, &copy.0);
        let mut store = SqliteStore::open(&place(&copy.0)).unwrap();
        assert_eq!(contents(&mut store), self.committed, "after statement {}", self.statements);
    }
}

fn place(directory: &Path) -> PrivateDirectory {
    PrivateDirectory::create(directory).unwrap()
}

fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

impl TestStore for KilledStore {
    fn contents(&mut self) -> Contents {
        contents(self.store.as_mut().unwrap())
    }

    fn restart(mut self) -> Self {
        // The files of a process that was killed, and not those of an orderly end.
        let other = Arc::new(Directory::new());
        copy_files(&self.directory.0, &other.0);
        self.store = Some(SqliteStore::open(&place(&other.0)).unwrap());
        self.directory = other;
        self
    }

    fn commit(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.store.as_mut().unwrap().commit().unwrap();
            self.committed = self.contents();
        }
        if self.statements.is_multiple_of(self.every) {
            self.check_copy();
        }
    }
}

impl EntryStore for KilledStore {
    type Error = StoreError;

    fn find(&mut self, key: &EntryKey) -> Result<Option<TransferEntry>, StoreError> {
        Ok(self.run(|store| store.find(key)))
    }

    fn put(&mut self, entry: &TransferEntry) -> Result<(), StoreError> {
        self.run(|store| store.put(entry));
        Ok(())
    }

    fn remove(&mut self, key: &EntryKey) -> Result<(), StoreError> {
        self.run(|store| store.remove(key));
        Ok(())
    }

    fn next_ready(
        &mut self,
        direction: TransferDirection,
        priority: Priority,
        now: u64,
        full: &[Arc<str>],
        turn: &OwnerTurn<'_>,
    ) -> Result<Option<TransferEntry>, StoreError> {
        Ok(self.run(|store| store.next_ready(direction, priority, now, full, turn)))
    }

    fn places(&mut self, owner: &str) -> Result<QueuePlaces, StoreError> {
        Ok(self.run(|store| store.places(owner)))
    }

    fn fail_requests(
        &mut self,
        entry: &TransferEntry,
        failure: &CopyFailure,
        until: u64,
    ) -> Result<(), StoreError> {
        self.run(|store| store.fail_requests(entry, failure, until));
        Ok(())
    }

    fn forget_failures(&mut self, request: &RequestId) -> Result<(), StoreError> {
        self.run(|store| store.forget_failures(request));
        Ok(())
    }

    fn next_ready_time(&mut self, now: u64) -> Result<Option<u64>, StoreError> {
        Ok(self.run(|store| store.next_ready_time(now)))
    }

    fn add_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), StoreError> {
        self.run(|store| store.add_request(request, key));
        Ok(())
    }

    fn remove_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), StoreError> {
        self.run(|store| store.remove_request(request, key));
        Ok(())
    }

    fn keys_of_request(
        &mut self,
        request: &RequestId,
        after: Option<&EntryKey>,
        most: usize,
    ) -> Result<Vec<EntryKey>, StoreError> {
        Ok(self.run(|store| store.keys_of_request(request, after, most)))
    }

    fn has_requests(&mut self, key: &EntryKey) -> Result<bool, StoreError> {
        Ok(self.run(|store| store.has_requests(key)))
    }

    fn recover(&mut self, now: u64, deny: u64) -> Result<(), StoreError> {
        self.run(|store| store.recover(now, deny));
        Ok(())
    }

    fn remove_expired(&mut self, now: u64, most: usize) -> Result<usize, StoreError> {
        Ok(self.run(|store| store.remove_expired(now, most)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn histories_that_are_killed_at_random_points_agree_with_the_model(steps in steps(), every in 1..12u32) {
        History::new(KilledStore::new(every)).run(&steps);
    }
}

#[test]
fn a_batch_that_fails_leaves_no_trace() {
    let directory = Directory::new();
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    let mut queue = TransferQueue::new(LIMITS);
    queue.submit(&mut store, &submission(0, 1, Some(1)), 1).unwrap();
    let before = contents(&mut store);
    let failed: Result<(), StoreError> = store.transaction(|store| {
        // More than SQLite keeps in memory, so a part of it is on disk before the end.
        for number in 0..20_000 {
            queue.submit(store, &numbered(number), 1).unwrap();
        }
        Err(StoreError::Row { number: 0, reason: "the disk is full".to_owned() })
    });
    assert!(failed.is_err());
    assert_eq!(contents(&mut store), before);
    drop(store);
    assert_eq!(contents(&mut SqliteStore::open(&place(&directory.0)).unwrap()), before);
}

#[test]
fn a_queue_of_a_later_version_and_one_that_is_no_database_are_refused() {
    let directory = Directory::new();
    drop(SqliteStore::open(&place(&directory.0)).unwrap());
    let file = directory.0.join("queue.sqlite");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 4).unwrap();
    drop(connection);
    assert!(matches!(
        SqliteStore::open(&place(&directory.0)),
        Err(StoreOpenError::Version { version: 4, .. })
    ));
    std::fs::write(&file, [b'x'; 4096]).unwrap();
    let Err(error) = SqliteStore::open(&place(&directory.0)) else { panic!("it is no database") };
    assert!(error.to_string().contains("queue.sqlite"), "{error}");
}

fn numbered(number: u32) -> Submission {
    Submission {
        key: EntryKey {
            direction: TransferDirection::In,
            path: LogicalPath::parse(format!("/store/user/directory/file-{number:08}").as_bytes()).unwrap(),
        },
        priority: Priority::new((number % 3) as u8),
        source: format!("host{}", number % 5).into(),
        ..submission(0, 0, Some((number % 4) as u8))
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Fills a queue, opens it again and empties a part of it.
fn fill(entries: u32) {
    const BATCH: u32 = 1000;
    const MEMORY_MAX: usize = 24 << 20;
    let directory = Directory::new();
    let limits = QueueLimits { slots_in: 10, slots_of_source: 10, slots_of_owner: 10, ..LIMITS };
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    let mut queue = TransferQueue::new(limits.clone());
    let before = resident();
    for start in (0..entries).step_by(BATCH as usize) {
        let submitted: Result<(), StoreError> = store.transaction(|store| {
            for number in start..entries.min(start + BATCH) {
                queue.submit(store, &numbered(number), u64::from(number)).unwrap();
            }
            Ok(())
        });
        submitted.unwrap();
    }
    drop(store);
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    store.recover(u64::from(entries), LIMITS.deny).unwrap();
    assert_eq!(store.unfinished().unwrap(), u64::from(entries));
    let mut queue = TransferQueue::new(limits);
    let now = u64::from(entries);
    let mut first = Vec::new();
    let emptied: Result<(), StoreError> = store.transaction(|store| {
        for _ in 0..100 {
            for action in queue.start_ready(store, now).unwrap() {
                let QueueAction::Start(entry) = action else { panic!("{action:?}") };
                queue.finish(store, &entry.key, CopyOutcome::Done, now).unwrap();
                first.push(entry);
            }
        }
        Ok(())
    });
    emptied.unwrap();
    // In each priority, the oldest entries were first.
    for priority in 0..3 {
        let of_class = first.iter().filter(|entry| entry.priority.number() == priority);
        let added: Vec<u64> = of_class.map(|entry| entry.added).collect();
        let oldest: Vec<u64> = (0..added.len() as u64).map(|n| 3 * n + u64::from(priority)).collect();
        assert!(!added.is_empty());
        assert_eq!(added, oldest);
    }
    let used = resident().saturating_sub(before);
    assert!(used < MEMORY_MAX, "{} MiB", used >> 20);
}

#[test]
fn a_hundred_thousand_entries_take_no_memory_of_their_own() {
    fill(100_000);
}

#[test]
#[ignore = "takes a minute"]
fn a_million_entries_take_no_memory_of_their_own() {
    fill(1_000_000);
}

/// Rows as another version of the program, or a fault of the disk, could leave them.
#[test]
fn rows_that_cannot_be_read_are_set_aside_and_harm_no_other() {
    let directory = Directory::new();
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    let limits = QueueLimits { slots_in: 100, slots_of_source: 100, slots_of_owner: 100, ..LIMITS };
    let mut queue = TransferQueue::new(limits);
    for file in 0..8 {
        queue.submit(&mut store, &submission(file, 1, Some(1)), 1).unwrap();
    }
    drop(store);
    let connection = rusqlite::Connection::open(directory.0.join("queue.sqlite")).unwrap();
    connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let bad = [
        "path = X'2f002f'",
        "path = X'61'",
        "priority = 1, tries = -1",
        "state = 0, anonymous = 7, added = -5",
        "state = 9",
        "state = 3, reason = 9, time = 20, text = 'x'",
    ];
    for (file, change) in bad.iter().enumerate() {
        let sql = format!("UPDATE entries SET {change} WHERE path = ?");
        let path = format!("/f{file:02}").into_bytes();
        assert_eq!(connection.execute(&sql, [&path]).unwrap(), 1, "{change}");
        if change.starts_with("path") {
            let value = change.split_once(" = ").unwrap().1;
            let sql = format!("UPDATE requests SET path = {value} WHERE path = ?");
            connection.execute(&sql, [&path]).unwrap();
        }
    }
    drop(connection);
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    store.recover(5, LIMITS.deny).unwrap();
    let mut started: Vec<String> = Vec::new();
    for action in queue.start_ready(&mut store, 5).unwrap() {
        let QueueAction::Start(entry) = action else { panic!("{action:?}") };
        started.push(entry.key.path.text().into_owned());
    }
    started.sort();
    assert_eq!(started, ["/f06", "/f07"]);
    // A client asks for the files again.
    for file in [4, 5] {
        queue.submit(&mut store, &submission(file, 1, None), 6).unwrap();
    }
    assert_eq!(queue.start_ready(&mut store, 6).unwrap().len(), 2);
    let keys = store.keys_of_request(&support::id(1), None, 10).unwrap();
    assert_eq!(keys, [support::key(6), support::key(7)]);
    let failures = store.failures_of_request(&support::id(1), 10).unwrap();
    assert_eq!(failures.len(), 6);
    assert!(failures.iter().all(|file| file.text.contains("unreadable row")), "{failures:?}");
    assert_eq!(store.unfinished().unwrap(), 4);
    let places = store.places(&support::owner(6)).unwrap();
    assert_eq!((places.own, places.all), (1, 4));
    drop(store);
    let connection = rusqlite::Connection::open(directory.0.join("queue.sqlite")).unwrap();
    let kept =
        connection.query_row("SELECT count(*) FROM unreadable_entries", [], |row| row.get::<_, i64>(0));
    assert_eq!(kept.unwrap(), 6, "nothing is lost");
}

/// A queue of the first version, with entries.
#[test]
fn a_queue_of_the_first_version_is_upgraded() {
    let directory = Directory::new();
    drop(SqliteStore::open(&place(&directory.0)).unwrap());
    let connection = rusqlite::Connection::open(directory.0.join("queue.sqlite")).unwrap();
    connection
        .execute_batch(
            "DROP TABLE owners; DROP TABLE totals; DROP TABLE failed_files; DROP TABLE unreadable_entries;
             DROP TRIGGER entry_added; DROP TRIGGER entry_removed; DROP TRIGGER entry_ended; DROP TRIGGER entry_begun; DROP INDEX ready_entries;
             ALTER TABLE entries DROP COLUMN owner; ALTER TABLE entries DROP COLUMN removes;
             CREATE INDEX ready_entries ON entries (direction, priority, source, time, number) WHERE state = 0;
             INSERT INTO entries VALUES (1, 0, X'2f663030', 1, 's', 'r1', 'u.1:2@h', 5, 0, 0, 0, 5, NULL, NULL);
             PRAGMA user_version = 1",
        )
        .unwrap();
    drop(connection);
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    assert_eq!(store.places("").unwrap(), QueuePlaces { own: 1, all: 1 });
    let mut queue = TransferQueue::new(LIMITS);
    assert_eq!(queue.start_ready(&mut store, 9).unwrap().len(), 1);
    queue.finish(&mut store, &support::key(0), CopyOutcome::Done, 9).unwrap();
    assert_eq!(store.places("").unwrap(), QueuePlaces::default());
}

#[test]
fn migrations_that_failed_are_counted_up_to_a_limit() {
    let directory = Directory::new();
    let mut store = SqliteStore::open(&place(&directory.0)).unwrap();
    let mut queue = TransferQueue::new(QueueLimits { slots_in: 9, slots_out: 9, ..LIMITS });
    // Files from 8 on are migrated.
    for file in [0, 1, 8, 9, 10, 11] {
        queue.submit(&mut store, &submission(file, 0, None), 1).unwrap();
    }
    for action in queue.start_ready(&mut store, 1).unwrap() {
        let QueueAction::Start(entry) = action else { panic!("{action:?}") };
        let failure = CopyFailure::new(residency::FailureReason::NotFound, "no drive");
        let done = entry.key == support::key(11);
        let outcome = if done { CopyOutcome::Done } else { CopyOutcome::Failed(failure) };
        queue.finish(&mut store, &entry.key, outcome, 1).unwrap();
    }
    assert_eq!([2, 10].map(|most| store.failed_migrations(most).unwrap()), [2, 3]);
}
