//! Keeps a file out of the page cache while others read it.

use anyhow::Context;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two evictions. Of a file of a GiB, 20,000 reads a second leave some hundred of 262,144 pages in the cache
/// meanwhile.
const INTERVAL: Duration = Duration::from_millis(20);

/// Evicts a file again and again until it is dropped.
pub(crate) struct Evictor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Evictor {
    pub(crate) fn start(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        // Pages that are not written yet cannot be dropped.
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
