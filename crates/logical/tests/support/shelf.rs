//! Journals in memory, with the same faults as the storage. In addition to stopping the process, a
//! power failure can be simulated: unsynced bytes are lost from some byte on.

use super::faults::{Faults, Step};
use logical::{Journal, JournalDirectory};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone, Default)]
struct Paper {
    bytes: Vec<u8>,
    /// Number of bytes that survive a power failure.
    stable: usize,
}

/// A directory of journals.
#[derive(Clone)]
pub struct Shelf {
    papers: Arc<Mutex<BTreeMap<String, Paper>>>,
    faults: Arc<Faults>,
    syncs: Arc<AtomicUsize>,
}

impl Shelf {
    pub fn new(faults: &Arc<Faults>) -> Self {
        Self { papers: Arc::default(), faults: faults.clone(), syncs: Arc::default() }
    }

    /// Returns the directory for the next process. With the seed of a power failure, it contains the
    /// synced bytes and possibly more.
    pub fn survivor(&self, faults: &Arc<Faults>, power_cut: Option<u64>) -> Self {
        let mut papers = self.papers().clone();
        if let Some(seed) = power_cut {
            for paper in papers.values_mut() {
                let unsynced = paper.bytes.len() - paper.stable;
                let kept = if unsynced == 0 { 0 } else { seed as usize % (unsynced + 1) };
                paper.bytes.truncate(paper.stable + kept);
            }
        }
        Self { papers: Arc::new(Mutex::new(papers)), ..Self::new(faults) }
    }

    /// Adds a stable journal.
    pub fn put(&self, name: &str, content: &[u8]) {
        self.papers().insert(name.to_owned(), Paper { bytes: content.to_vec(), stable: content.len() });
    }

    /// Returns the number of syncs of open journals so far.
    pub fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    pub fn len(&self) -> usize {
        self.papers().len()
    }

    fn papers(&self) -> MutexGuard<'_, BTreeMap<String, Paper>> {
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalDirectory for Shelf {
    fn names(&self) -> io::Result<Vec<String>> {
        self.faults.check("journal")?;
        Ok(self.papers().keys().cloned().collect())
    }
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.faults.check("journal")?;
        let papers = self.papers();
        papers.get(name).map(|paper| paper.bytes.clone()).ok_or_else(|| io::Error::from_raw_os_error(2))
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn Journal>> {
        if self.faults.step("journal")? == Step::Half {
            return Err(Faults::dead());
        }
        self.papers().insert(name.to_owned(), Paper::default());
        Ok(Box::new(Pen { shelf: self.clone(), name: name.to_owned() }))
    }
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>> {
        if self.faults.step("journal")? == Step::Half {
            return Err(Faults::dead());
        }
        let paper = Paper { bytes: content.to_vec(), stable: content.len() };
        self.papers().insert(name.to_owned(), paper);
        Ok(Box::new(Pen { shelf: self.clone(), name: name.to_owned() }))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        if self.faults.step("journal")? == Step::Half {
            return Err(Faults::dead());
        }
        self.papers().remove(name);
        Ok(())
    }
}

struct Pen {
    shelf: Shelf,
    name: String,
}

impl Journal for Pen {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let step = self.shelf.faults.step("journal")?;
        let mut papers = self.shelf.papers();
        let paper = papers.entry(self.name.clone()).or_default();
        if step == Step::Half {
            paper.bytes.extend_from_slice(&bytes[..bytes.len() / 2]);
            return Err(Faults::dead());
        }
        paper.bytes.extend_from_slice(bytes);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.shelf.syncs.fetch_add(1, Ordering::SeqCst);
        if self.shelf.faults.step("journal")? == Step::Half {
            return Err(Faults::dead());
        }
        let mut papers = self.shelf.papers();
        let paper = papers.entry(self.name.clone()).or_default();
        paper.stable = paper.bytes.len();
        Ok(())
    }
}
