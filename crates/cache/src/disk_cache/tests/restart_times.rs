//! Times of restarts, and the memory of an index. They are printed, and only what is known is asserted:
//! `cargo test --release -p scalla-cache restart_times -- --ignored --nocapture --test-threads 1`

use super::key;
use super::world::{BLOCK, TestOrigin, World, settings};
use crate::disk_cache::{CacheClock, CacheStartError, DiskCache};
use crate::store::{RecordedFile, SnapshotWriter, StoreContext, open_disk, resume_index};
use crate::{BlockStore, CacheDisk, OriginVersion};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// A directory that is removed with all in it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn context(&self) -> Arc<StoreContext> {
        let disk: Arc<dyn CacheDisk> = open_disk(&self.0).unwrap();
        drop(crate::disk_cache::lock(&*disk).unwrap());
        Arc::new(StoreContext::new(disk, BLOCK))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Returns the resident memory of the process in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn name(number: u64) -> String {
    format!(
        "/store/data/Run2026A/AOD/{:03}/{:03}/{number:09}.root",
        number / 1_000_000,
        number / 1_000 % 1_000
    )
}

/// Starts a cache, and prints when it serves and when its usage is known. Returns it.
async fn start(directory: &Directory, about: &str) -> Arc<DiskCache<TestOrigin>> {
    let (mut begin, end) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    let cache = loop {
        let clock = (Handle::current(), CacheClock::system());
        match DiskCache::start(open_disk(&directory.0).unwrap(), &settings(), clock) {
            // The threads of the cache before still have it.
            Err(CacheStartError::InUse) if Instant::now() < end => begin = Instant::now(),
            other => break other.unwrap(),
        }
    };
    let serves = begin.elapsed();
    // A client opens a file at once.
    let world = World::new();
    world.put("/another", BLOCK);
    let opened = world.open(&cache, "/another").await;
    let is_open = begin.elapsed();
    drop(opened);
    while !cache.status().is_known {
        assert!(begin.elapsed() < Duration::from_secs(600));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let known = begin.elapsed();
    println!(
        "{about}: starts in {serves:?}, a file is open after {is_open:?}, usage is known after {known:?}"
    );
    cache
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints times"]
async fn a_restart_with_files() {
    const FILES: u64 = 10_000;
    let directory = Directory::new("restart");
    let version = OriginVersion { size: 3 * BLOCK, modified: 100, id: 1 };
    let context = directory.context();
    for number in 0..FILES {
        let store = BlockStore::open(&context, &key(&name(number)), version, 10_000).unwrap();
        store.write(1, &[7; BLOCK as usize], 10_000).unwrap();
        store.flush(10_000).unwrap();
    }
    drop(context);
    let cache = start(&directory, "10,000 files, by a search").await;
    assert!(cache.files() as u64 >= FILES);
    cache.recorder.record(&cache).unwrap();
    let (files, bytes) = (cache.files(), cache.bytes());
    drop(cache);
    let cache = start(&directory, "10,000 files, by the index").await;
    assert_eq!((cache.files(), cache.bytes()), (files, bytes));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints times, and needs 5 GB of memory"]
async fn a_restart_with_ten_million_records() {
    const FILES: u64 = 10_000_000;
    let directory = Directory::new("records");
    {
        let context = directory.context();
        let (_, next) = resume_index(&context).unwrap();
        context.journal.begin(next).unwrap();
        let others = context.disk.usage().unwrap().1.saturating_sub(704 * FILES);
        let mut writer = SnapshotWriter::new(&context, next, others).unwrap();
        for number in 0..FILES {
            // Uses are in another order than names.
            let used = 1_000_000_000 + (number.wrapping_mul(2_654_435_761) % 10_000_000) as i64;
            let file = RecordedFile { key: key(&name(number)), bytes: 700 + number % 9, used, rank: 4 };
            writer.add(&file).unwrap();
        }
        println!("the snapshot has {} bytes for each file", writer.finish(&context).unwrap() / FILES);
    }
    let before = memory();
    let cache = start(&directory, "10,000,000 records").await;
    assert!(cache.files() as u64 >= FILES);
    println!("memory: {} bytes for each file", (memory() - before) / FILES);
    let begin = Instant::now();
    cache.recorder.record(&cache).unwrap();
    println!("a snapshot is written in {:?}", begin.elapsed());
}
