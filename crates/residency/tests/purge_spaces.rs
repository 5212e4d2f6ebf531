//! Purges of files in spaces. The free space of their disk is what a test sets.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use base::LogicalPath;
use residency::{
    FreeSpaceMark, KeptReason, PathResidency, PurgePolicies, PurgePolicy, Purger, ResidencyEvents,
    ResidencyPaths,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use storage::posix::{Config, SpaceConfig};
use storage::{
    Backend as _, COPY_RECORD_ATTRIBUTE, COPY_TIME_ATTRIBUTE, CopyRecord, CopyTime, Faulty, ParentCreation,
    Posix,
};

/// Modification time of the files, in seconds since the epoch.
const MODIFIED: i64 = 1000;

/// Bytes of each file.
const SIZE: u64 = 64 * 1024;

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

struct Paths;
impl ResidencyPaths for Paths {
    fn roots(&self) -> Vec<LogicalPath> {
        vec![LogicalPath::root()]
    }
    fn of(&self, _: &LogicalPath) -> PathResidency {
        PathResidency { stage: true, purge: true, ..PathResidency::default() }
    }
}

struct NoEvents;
impl ResidencyEvents for NoEvents {
    fn arrived(&self, _: &LogicalPath) {}
    fn removed(&self, _: &LogicalPath) {}
}

/// The spaces `a` and `b` for files below `/a` and `/b`, on one disk.
struct Disk {
    root: PathBuf,
    backend: Arc<Faulty>,
}

impl Disk {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("scalla-spaces-{}-{number}", std::process::id()));
        let mut spaces = SpaceConfig { in_place: vec![(path("/"), false)], ..SpaceConfig::default() };
        for name in ["a", "b"] {
            fs::create_dir_all(root.join("disk").join(name)).unwrap();
            spaces.partitions.push(config::SpacePartition {
                name: name.to_owned(),
                path: root.join("disk").join(name),
                wildcard: false,
                mount_check: None,
            });
            let prefixes = vec![format!("/{name}")];
            spaces.rules.push(config::SpaceRule { name: name.to_owned(), assign: true, prefixes });
        }
        fs::create_dir(root.join("names")).unwrap();
        let posix = Posix::new(&Config { spaces, ..Config::new(root.join("names")) }).unwrap();
        let backend = Arc::new(Faulty::new(Arc::new(posix)));
        backend.rules().set_room(Some(0));
        Self { root, backend }
    }

    /// Creates a file with a copy, in the space of its path.
    fn copied(&self, name: &str) {
        let parents = ParentCreation::everywhere(0o755);
        let size = Some(SIZE);
        let transfers = self.backend.transfers().unwrap();
        let mut file = transfers.receive(&path(name), (0o644, size), Some(&parents)).unwrap();
        fs::write(file.local_path().unwrap(), vec![7; usize::try_from(SIZE).unwrap()]).unwrap();
        file.stat().unwrap();
        file.set_modified(MODIFIED).unwrap();
        let record = CopyRecord::new(&path(name), &file.stat().unwrap());
        file.set_attribute(COPY_RECORD_ATTRIBUTE, record.encode()).unwrap();
        file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime(MODIFIED).encode()).unwrap();
        file.publish().unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.backend.stat(&path(name)).is_ok()
    }

    fn purger(&self, default: Option<PurgePolicy>, spaces: &[(&str, Option<PurgePolicy>)]) -> Purger {
        let spaces: BTreeMap<_, _> =
            spaces.iter().map(|(name, policy)| ((*name).to_owned(), *policy)).collect();
        Purger {
            backend: self.backend.clone(),
            paths: Arc::new(Paths),
            events: Arc::new(NoEvents),
            catalog: None,
            policies: PurgePolicies { default, spaces },
            stop_file: None,
            program: None,
            directory_hold: None,
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).ok();
    }
}

/// Returns the policy by which this number of files would fit afterwards.
fn policy(files: u64, hold: u64) -> Option<PurgePolicy> {
    let high = FreeSpaceMark::Bytes(files * SIZE);
    Some(PurgePolicy { low: high, high, hold, asks_program: false })
}

fn kept(purger: &Purger, name: &str) -> Option<KeptReason> {
    let mut found = Vec::new();
    purger.examine(Some(&path(name)), &mut |file| {
        found.push(file.kept);
        true
    });
    found.pop().unwrap()
}

#[test]
fn each_space_has_its_policy() {
    let disk = Disk::new();
    for name in ["/a/1", "/a/2", "/b/1"] {
        disk.copied(name);
    }
    let purger = disk.purger(policy(100, 0), &[("b", None)]);
    assert_eq!(kept(&purger, "/b/1"), Some(KeptReason::SpaceNotPurged));
    assert_eq!(kept(&purger, "/a/1"), None);
    assert_eq!(purger.purge().files, 2);
    assert!(disk.has("/b/1") && !disk.has("/a/1") && !disk.has("/a/2"));
    // The hold time is that of the space.
    disk.copied("/a/3");
    let purger = disk.purger(None, &[("a", policy(100, 3600)), ("b", policy(100, 0))]);
    assert_eq!(kept(&purger, "/a/3"), Some(KeptReason::InHold));
    assert_eq!(purger.purge().files, 1);
    assert!(disk.has("/a/3") && !disk.has("/b/1"));
    assert_eq!(disk.purger(None, &[]).purge().files, 0);
}

#[test]
fn two_spaces_on_one_disk_lose_no_more_than_was_missing() {
    let disk = Disk::new();
    for number in 0..4 {
        disk.copied(&format!("/a/{number}"));
        disk.copied(&format!("/b/{number}"));
    }
    let purger = disk.purger(None, &[("a", policy(3, 0)), ("b", policy(2, 0))]);
    let volumes = purger.purged_volumes();
    assert_eq!((volumes.len(), volumes[0].high, volumes[0].spaces.len()), (1, 3 * SIZE, 2));
    assert_eq!(purger.purge().files, 3);
    let data = fs::read_dir(disk.root.join("disk")).unwrap().map(|entry| entry.unwrap().path());
    let left: usize = data.map(|directory| count(&directory)).sum();
    assert_eq!(left, 5, "no data is left without a name");
}

/// For example one from before the spaces.
#[test]
fn a_file_outside_of_the_spaces_is_in_the_default_one() {
    let disk = Disk::new();
    disk.copied("/a/1");
    let name = path("/plain");
    fs::write(disk.root.join("names/plain"), vec![7; usize::try_from(SIZE).unwrap()]).unwrap();
    let found = disk.backend.stat(&name).unwrap();
    let (copied, record) = (CopyTime(found.modified), CopyRecord::new(&name, &found));
    disk.backend.set_attribute(&name, COPY_RECORD_ATTRIBUTE, record.encode(), false).unwrap();
    disk.backend.set_attribute(&name, COPY_TIME_ATTRIBUTE, &copied.encode(), false).unwrap();
    assert_eq!(disk.purger(None, &[("a", policy(0, 0))]).purge().files, 0);
    let purger = disk.purger(policy(100, 0), &[("a", None)]);
    assert_eq!(kept(&purger, "/plain"), None);
    assert_eq!(purger.purge().files, 1);
    assert!(!disk.has("/plain") && disk.has("/a/1"));
}

fn count(directory: &std::path::Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}
