//! A disk, a clock and origins for tests of the cache.

use crate::disk_cache::{
    CacheClock, CacheLimits, CacheOrigin, CacheReadError, CacheReader, CacheStartError, DiskCache,
    DiskCacheSettings, DiskShare,
};
use crate::part_layout::PartLayout;
use crate::store::memory_disk::MemoryDisk;
use crate::store::{DecodedState, StoreContext, StoredState};
use crate::{CacheKey, OriginVersion, VERSION_AGE_MIN};
use base::{LogicalPath, Owner, SplitMix64};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

pub(crate) const BLOCK: u64 = 1000;

pub(crate) fn settings() -> DiskCacheSettings {
    DiskCacheSettings {
        block_bytes: BLOCK,
        part_bytes: None,
        memory_bytes: 1 << 20,
        paged_bytes: 1 << 30,
        prefetch_bytes: 0,
        patience: Duration::from_secs(60),
        limits: CacheLimits {
            high: DiskShare::Bytes(u64::MAX),
            low: DiskShare::Bytes(u64::MAX),
            files: None,
            shares: None,
        },
        cold: None,
        quotas: Vec::new(),
        direct: None,
    }
}

/// The files of an origin.
type OriginFiles = HashMap<String, (OriginVersion, Bytes)>;

/// A disk, a clock and the files of an origin.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) disk: MemoryDisk,
    clock: Arc<AtomicI64>,
    uptime: Arc<AtomicI64>,
    files: Arc<Mutex<OriginFiles>>,
    fetched: Arc<AtomicU64>,
    waiting: Arc<AtomicU64>,
    /// Of this number of requests, one fails; 0 for none.
    failing: Arc<AtomicU64>,
    rng: Arc<Mutex<SplitMix64>>,
}

/// A file that a reader has open.
pub(crate) struct TestOrigin {
    world: World,
    name: String,
    opened: OriginVersion,
    content: Bytes,
    gate: Option<Arc<Semaphore>>,
    has_moved: bool,
    panics: bool,
}

impl TestOrigin {
    pub(crate) fn opened(&self) -> OriginVersion {
        self.opened
    }

    /// Returns the content of the version that the reader has opened.
    pub(crate) fn content(&self) -> Bytes {
        self.content.clone()
    }

    /// Lets requests wait until the gate has permits. They fail when it is closed.
    pub(crate) fn wait_at(&mut self, gate: Arc<Semaphore>) {
        self.gate = Some(gate);
    }

    /// Lets the task of each request panic.
    pub(crate) fn set_panics(&mut self) {
        self.panics = true;
    }

    /// Makes it a copy at another server.
    pub(crate) fn set_moved(&mut self) {
        self.has_moved = true;
    }

    async fn request(&self) -> Result<(OriginVersion, Bytes), String> {
        assert!(!self.panics, "a panic that the test has asked for");
        for _ in 0..self.world.draw(4) {
            tokio::task::yield_now().await;
        }
        if let Some(gate) = &self.gate {
            self.world.waiting.fetch_add(1, Ordering::AcqRel);
            gate.acquire().await.map_err(|_| "closed".to_owned())?.forget();
        }
        let one_of = self.world.failing.load(Ordering::Acquire);
        if one_of > 0 && self.world.draw(one_of) == 0 {
            return Err("the connection was lost".to_owned());
        }
        self.world.files.lock().unwrap().get(&self.name).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

impl CacheOrigin for TestOrigin {
    type Failure = String;

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes, String> {
        let (_, content) = self.request().await?;
        let begin = (offset as usize).min(content.len());
        let found = content.slice(begin..(begin + length).min(content.len()));
        self.world.fetched.fetch_add(found.len() as u64, Ordering::AcqRel);
        Ok(found)
    }

    async fn version(&self) -> Result<OriginVersion, String> {
        let (version, _) = self.request().await?;
        Ok(OriginVersion { id: version.id + u64::from(self.has_moved), ..version })
    }

    fn has_moved(&self) -> bool {
        self.has_moved
    }
}

pub(crate) type TestReader = CacheReader<TestOrigin>;
pub(crate) type TestCache = Arc<DiskCache<TestOrigin>>;

impl World {
    pub(crate) fn new() -> Self {
        let disk = MemoryDisk::default();
        // Tests count calls, and let the next ones fail.
        disk.set_index_quiet(true);
        Self {
            disk,
            clock: Arc::new(AtomicI64::new(1_000_000)),
            uptime: Arc::default(),
            files: Arc::default(),
            fetched: Arc::default(),
            waiting: Arc::default(),
            failing: Arc::default(),
            rng: Arc::new(Mutex::new(SplitMix64::new(1))),
        }
    }

    /// Returns the world after the end of the process, or after a power cut.
    pub(crate) fn restarted(&self, power_cut: Option<u64>) -> Self {
        let disk = match power_cut {
            Some(seed) => self.disk.after_power_cut(seed),
            None => self.disk.after_kill(),
        };
        Self { disk, fetched: Arc::default(), ..self.clone() }
    }

    pub(crate) fn start(&self, settings: DiskCacheSettings) -> TestCache {
        self.try_start(settings).unwrap()
    }

    pub(crate) fn try_start(&self, settings: DiskCacheSettings) -> Result<TestCache, CacheStartError> {
        DiskCache::start(Arc::new(self.disk.clone()), &settings, (Handle::current(), self.cache_clock()))
    }

    /// Returns the clock of a cache.
    pub(crate) fn cache_clock(&self) -> CacheClock {
        let (clock, uptime) = (self.clock.clone(), self.uptime.clone());
        CacheClock::new(move || clock.load(Ordering::Acquire), move || uptime.load(Ordering::Acquire))
    }

    pub(crate) fn draw(&self, end: u64) -> u64 {
        self.rng.lock().unwrap().draw() % end.max(1)
    }

    /// Replaces a file of the origin. It is modified now, and was created long ago.
    pub(crate) fn put(&self, name: &str, size: u64) {
        let mut files = self.files.lock().unwrap();
        let now = self.clock.load(Ordering::Acquire);
        let modified = if files.contains_key(name) { now } else { now - 100_000 };
        let seed = self.draw(u64::MAX);
        let mut rng = SplitMix64::new(seed);
        let content: Vec<u8> = (0..size).map(|_| rng.draw() as u8).collect();
        files.insert(name.to_owned(), (OriginVersion { size, modified, id: 5 }, content.into()));
    }

    /// Lets so much time pass that the last changes are recognisable.
    pub(crate) fn pass_time(&self) {
        self.pass(VERSION_AGE_MIN + 1);
    }

    /// Lets this number of seconds pass.
    pub(crate) fn pass(&self, seconds: i64) {
        self.uptime.fetch_add(seconds, Ordering::AcqRel);
        self.clock.fetch_add(seconds, Ordering::AcqRel);
    }

    /// Sets the clock back by this number of seconds.
    pub(crate) fn set_clock_back(&self, seconds: i64) {
        self.clock.fetch_sub(seconds, Ordering::AcqRel);
    }

    pub(crate) fn fail_one_of(&self, number: u64) {
        self.failing.store(number, Ordering::Release);
    }

    pub(crate) fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Acquire)
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    pub(crate) fn origin(&self, name: &str) -> Arc<TestOrigin> {
        Arc::new(self.new_origin(name))
    }

    pub(crate) fn new_origin(&self, name: &str) -> TestOrigin {
        let (opened, content) = self.files.lock().unwrap()[name].clone();
        TestOrigin {
            world: self.clone(),
            name: name.to_owned(),
            opened,
            content,
            gate: None,
            has_moved: false,
            panics: false,
        }
    }

    /// Opens a file as a client does.
    pub(crate) async fn open(&self, cache: &TestCache, name: &str) -> Option<(TestReader, Bytes)> {
        self.open_with(cache, name, |_| {}).await
    }

    pub(crate) async fn open_with(
        &self,
        cache: &TestCache,
        name: &str,
        change: impl FnOnce(&mut TestOrigin),
    ) -> Option<(TestReader, Bytes)> {
        let key = CacheKey::new(&LogicalPath::parse(name.as_bytes()).unwrap()).unwrap();
        let ticket = cache.ticket(&key)?;
        let mut origin = self.new_origin(name);
        change(&mut origin);
        let content = origin.content.clone();
        let reader = cache.open(&key, ticket, origin.opened, (Arc::new(origin), Owner(7))).await?;
        Some((reader, content))
    }

    /// Reads and compares with the version that the reader has opened.
    pub(crate) async fn check_read(
        &self,
        (reader, content): &(TestReader, Bytes),
        offset: u64,
        length: u64,
    ) -> Result<(), CacheReadError<String>> {
        let mut into = vec![0x55; length as usize];
        let count = reader.read(offset, &mut into).await?;
        let begin = (offset as usize).min(content.len());
        let expected = &content[begin..(begin + length as usize).min(content.len())];
        assert!(into[..count] == *expected, "{length} bytes at {offset}");
        Ok(())
    }

    /// Reads without waiting, if that is possible, and compares as [`World::check_read`] does. Returns whether it was.
    pub(crate) fn check_read_now(
        &self,
        (reader, content): &(TestReader, Bytes),
        offset: u64,
        length: u64,
    ) -> bool {
        let mut into = vec![0x55; length as usize];
        let Some(count) = reader.read_now(offset, &mut into) else { return false };
        let begin = (offset as usize).min(content.len());
        let expected = &content[begin..(begin + length as usize).min(content.len())];
        assert!(into[..count] == *expected, "{length} bytes at {offset}, now");
        true
    }

    /// Waits for a condition.
    pub(crate) async fn until(&self, mut holds: impl FnMut() -> bool) {
        let wait = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    }

    /// Waits until no file is open.
    pub(crate) async fn settle(&self, cache: &TestCache) {
        self.settle_to(cache, 0).await;
    }

    /// Waits until this number of files is open.
    pub(crate) async fn settle_to(&self, cache: &TestCache, open: usize) {
        self.until(|| cache.open_files() == open && cache.memory() == 0).await;
    }

    /// Waits until all that was fetched is written.
    pub(crate) async fn settle_stores(&self, cache: &TestCache) {
        self.until(|| cache.memory() == 0).await;
    }

    /// Compares the known usage with the disk. A round of removals in the background may be in progress.
    pub(crate) fn check_usage(&self, cache: &TestCache) {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while cache.bytes() != self.bytes_on_disk() {
            assert!(std::time::Instant::now() < end, "{} != {}", cache.bytes(), self.bytes_on_disk());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn bytes_on_disk(&self) -> u64 {
        self.states().iter().map(|(_, state)| state.stored_bytes()).sum()
    }

    /// Returns the valid states on disk.
    fn states(&self) -> Vec<(CacheKey, StoredState)> {
        let context = StoreContext::new(Arc::new(self.disk.clone()), BLOCK);
        let keys = self.disk.names().into_iter().filter_map(|name| CacheKey::of_state(&name));
        let valid = |key: CacheKey| match context.load(&key) {
            Ok(Some(DecodedState::Valid(state))) => Some((key, *state)),
            _ => None,
        };
        keys.filter_map(valid).collect()
    }

    /// Compares the known usage with the claims on disk and with the space of the data of all files.
    pub(crate) fn check_space(&self, cache: &TestCache, is_right: impl Fn(u64, u64, u64) -> bool) {
        let of_file = |(key, _)| self.space_of(&key, &(0..u64::MAX));
        let end = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let space = self.states().into_iter().map(of_file).sum::<u64>();
            let (known, claimed) = (cache.bytes(), self.bytes_on_disk());
            if is_right(known, claimed, space) {
                return;
            }
            assert!(
                std::time::Instant::now() < end,
                "{known} bytes are known, {claimed} claimed, {space} in use: {:?}",
                self.disk.names()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn space_of(&self, key: &CacheKey, bytes: &Range<u64>) -> u64 {
        self.disk.allocated_within(key.data(), bytes).unwrap_or(0)
    }

    /// Opens and closes all files, and reports whether parts of which nothing is stored have no space then. A space of at
    /// most one block is not looked for.
    pub(crate) async fn has_no_space_of_empty_parts(&self, cache: &TestCache) -> bool {
        let mut is_right = true;
        let names: Vec<String> = self.files.lock().unwrap().keys().cloned().collect();
        for name in names {
            if self.open(cache, &name).await.is_none() {
                continue;
            }
            self.settle(cache).await;
            let states = self.states().into_iter().filter(|(key, _)| key.data().text() == name);
            for (key, state) in states {
                let (size, block) = (state.cinfo.file_bytes, state.cinfo.block_bytes);
                let Some(layout) = PartLayout::new(size, cache.shared.context.part_bytes(), block) else {
                    continue;
                };
                let empty = layout.empty_parts(&state.cinfo.blocks).into_iter();
                let space: u64 = empty
                    .map(|blocks| self.space_of(&key, &(blocks.start * block..blocks.end * block)))
                    .sum();
                is_right &= space <= block;
            }
        }
        is_right
    }
}
