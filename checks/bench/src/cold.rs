//! Repeated eviction of a file from the page cache while it is read, so that reads stay cold.

use anyhow::Context;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of evictions. With 20,000 reads per second of a file of 1 GiB, some hundred of its
/// 262,144 pages are cached between two evictions.
const INTERVAL: Duration = Duration::from_millis(20);

/// Evicts a file periodically until it is dropped.
pub(crate) struct Evictor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Evictor {
    pub(crate) fn start(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        // Dirty pages cannot be evicted.
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed).context("cannot drop a file from the page cache")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                fadvise(&file, 0, None, Advice::DontNeed).ok();
                std::thread::sleep(INTERVAL);
            }
        });
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
