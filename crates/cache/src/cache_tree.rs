//! [`CacheTree`]: the files of a cache on disk, for tools. They read beside a server, and remove files only while no
//! server uses the cache.

use crate::store::{
    DEPTH_MAX, DecodedState, StoreContext, StoredState, add_pin, found, look, open_disk, resume_index,
};
use crate::{
    CacheDirectory, CacheDisk, CacheDiskFile, CacheKey, CachePin, CachePinFailure, CacheStartError,
    StoreError,
};
use base::{LogicalPath, errno_text};
use digest::{Algorithm, RunningChecksum};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Maximum number of bytes that are read at once.
const PIECE_BYTES: u64 = 256 * 1024;
/// Number of tries to verify a file that a server changes meanwhile.
const TRIES: usize = 3;

/// The files of a cache.
pub struct CacheTree {
    context: StoreContext,
    /// The journal of removals was begun, if there is an index.
    journal: OnceLock<()>,
}

/// Keeps servers from using a cache until it is dropped.
pub struct CacheTreeLock {
    _file: Arc<dyn CacheDiskFile>,
}

/// The result of a verification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileVerification {
    /// All stored blocks were read.
    Verified(VerifiedBlocks),
    /// The state of the file is damaged, so nothing of it is used.
    DamagedState,
    /// There is no cached file of this name any longer.
    Gone,
}

/// The stored blocks of a file.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct VerifiedBlocks {
    /// Number of stored blocks.
    pub stored: u64,
    /// Number of blocks without a checksum, as XRootD stores them. They could only be read.
    pub without_checksum: u64,
    /// The blocks that are wrong or cannot be read, in order.
    pub damaged: Vec<u64>,
}

impl CacheTree {
    /// Opens the cache in a directory, which must exist. Nothing is created.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn open(directory: &Path) -> io::Result<Self> {
        Ok(Self::new(open_disk(directory)?))
    }

    pub(crate) fn new(disk: Arc<dyn CacheDisk>) -> Self {
        // No blocks are written.
        Self { context: StoreContext::new(disk, 1), journal: OnceLock::new() }
    }

    /// Locks the cache.
    ///
    /// # Errors
    /// [`CacheStartError`] if a server uses it, or it cannot be locked.
    pub fn lock(&self) -> Result<CacheTreeLock, CacheStartError> {
        let lock = CacheTreeLock { _file: crate::disk_cache::lock(&*self.context.disk)? };
        // With such a name, the removal of a file would free nothing.
        crate::disk_cache::remove_names(&*self.context.disk);
        Ok(lock)
    }

    /// Returns the total and the used space of the file system, in bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn usage(&self) -> io::Result<(u64, u64)> {
        self.context.disk.usage()
    }

    /// Looks through the directories at and below a path. A directory that was removed meanwhile is passed over.
    ///
    /// # Errors
    /// The first error of the operating system, or of `visit`.
    pub fn walk(
        &self,
        top: &LogicalPath,
        mut visit: impl FnMut(CacheDirectory) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut waiting = vec![(top.clone(), 0)];
        while let Some((directory, depth)) = waiting.pop() {
            let mut looked = match look(&self.context, &directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                // It belongs to the file system.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && is_lost_and_found(&directory) =>
                {
                    CacheDirectory { foreign: vec![directory], ..CacheDirectory::default() }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let unreadable = vec![(directory, errno_text(&error))];
                    CacheDirectory { unreadable, ..CacheDirectory::default() }
                }
                other => other?,
            };
            let below = std::mem::take(&mut looked.directories);
            if depth < DEPTH_MAX {
                waiting.extend(below.into_iter().map(|path| (path, depth + 1)));
            }
            visit(looked)?;
        }
        Ok(())
    }

    /// Removes a cached file, and directories that are empty then. Returns whether there was one.
    ///
    /// # Errors
    /// [`StoreError`] if something else is there, or for errors of the disk.
    pub fn remove(&self, key: &CacheKey, _lock: &CacheTreeLock) -> Result<bool, StoreError> {
        // The next server finds the removals in the index.
        if self.journal.get().is_none() {
            resume_index(&self.context)?;
            self.journal.set(()).ok();
        }
        let was_there = self.context.remove(key)?;
        if was_there {
            self.context.remove_empty_directories(key);
        }
        Ok(was_there)
    }

    /// Returns the pins, also those that have ended.
    ///
    /// # Errors
    /// Errors of the operating system, and `InvalidData` for damaged pins.
    pub fn pins(&self) -> io::Result<Vec<CachePin>> {
        self.context.load_pins()
    }

    /// Pins a file or directory. It is durable afterwards. The server that uses the cache later limits the bytes of
    /// pinned files.
    ///
    /// # Errors
    /// [`CachePinFailure`].
    pub fn pin(&self, pin: CachePin, _lock: &CacheTreeLock) -> Result<(), CachePinFailure> {
        if !pin.can_have_files() {
            return Err(CachePinFailure::Name);
        }
        let (now, mut pins) = (pin.created, self.context.load_pins()?);
        if !add_pin(&mut pins, pin, now) {
            return Err(CachePinFailure::TooMany);
        }
        Ok(self.context.save_pins(&pins)?)
    }

    /// Ends the pin of a path. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the operating system, and `InvalidData` for damaged pins.
    pub fn unpin(&self, path: &LogicalPath, _lock: &CacheTreeLock) -> io::Result<bool> {
        let mut pins = self.context.load_pins()?;
        let before = pins.len();
        pins.retain(|pin| pin.path != *path);
        let was_pinned = pins.len() < before;
        if was_pinned {
            self.context.save_pins(&pins)?;
        }
        Ok(was_pinned)
    }

    /// Makes removals durable.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn sync(&self, _lock: &CacheTreeLock) -> io::Result<()> {
        self.context.journal.flush();
        self.context.sync_removals()
    }

    /// Compares the stored blocks of a file with their checksums. Nothing is changed. `progress` gets the number of
    /// bytes of each block.
    ///
    /// # Errors
    /// [`StoreError`] if something else is there, or its state cannot be read.
    pub fn verify(
        &self,
        key: &CacheKey,
        mut progress: impl FnMut(u64),
    ) -> Result<FileVerification, StoreError> {
        let mut result = FileVerification::Gone;
        for _ in 0..TRIES {
            let state = match self.context.load(key)? {
                None => return Ok(FileVerification::Gone),
                Some(DecodedState::Foreign) => return Err(StoreError::Foreign),
                Some(DecodedState::Damaged) => return Ok(FileVerification::DamagedState),
                Some(DecodedState::Valid(state)) => state,
            };
            let data = found(self.context.disk.open(key.data()))?;
            let blocks = verify_blocks(&state, data.as_deref(), &mut progress);
            let is_good = blocks.damaged.is_empty();
            result = FileVerification::Verified(blocks);
            // A server may have stored another version after the state was read.
            let is_unchanged = || {
                let now = self.context.load(key);
                matches!(now, Ok(Some(DecodedState::Valid(now))) if now == state)
            };
            if is_good || is_unchanged() {
                return Ok(result);
            }
        }
        Ok(result)
    }
}

fn is_lost_and_found(directory: &LogicalPath) -> bool {
    directory.as_bytes() == b"/lost+found"
}

fn verify_blocks(
    state: &StoredState,
    data: Option<&dyn CacheDiskFile>,
    progress: &mut impl FnMut(u64),
) -> VerifiedBlocks {
    let (cinfo, mut result) = (&state.cinfo, VerifiedBlocks::default());
    let mut piece = Vec::new();
    for block in (0..cinfo.blocks.len()).filter(|block| cinfo.blocks.contains(*block)) {
        let begin = block.saturating_mul(cinfo.block_bytes);
        let end = begin.saturating_add(cinfo.block_bytes).min(cinfo.file_bytes);
        let expected = state.checksums.get(block);
        let found = data.and_then(|data| checksum(data, (begin, end), &mut piece));
        result.stored += 1;
        result.without_checksum += u64::from(expected.is_none());
        if found.is_none() || expected.is_some_and(|expected| found != Some(expected)) {
            result.damaged.push(block);
        }
        progress(end.saturating_sub(begin));
    }
    result
}

/// Returns the checksum of a range; `None` if it cannot be read.
fn checksum(data: &dyn CacheDiskFile, (begin, end): (u64, u64), piece: &mut Vec<u8>) -> Option<u32> {
    let mut running = RunningChecksum::new(Algorithm::Crc32c);
    let mut from = begin;
    while from < end {
        let length = (end - from).min(PIECE_BYTES);
        piece.resize(usize::try_from(length).ok()?, 0);
        if data.read_at(from, piece).ok()? as u64 != length {
            return None;
        }
        running.update(piece);
        from += length;
    }
    Some(running.finish().bytes().iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory_disk::MemoryDisk;
    use crate::{BlockStore, OriginVersion};

    const VERSION: OriginVersion = OriginVersion { size: 3_500, modified: 100, id: 1 };

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    fn key(text: &str) -> CacheKey {
        CacheKey::new(&path(text)).unwrap()
    }

    /// Stores some blocks of a file.
    fn store(disk: &MemoryDisk, name: &str, blocks: &[u64]) {
        let context = Arc::new(StoreContext::new(Arc::new(disk.clone()), 1000));
        let store = BlockStore::open(&context, &key(name), VERSION, 10_000).unwrap();
        for &block in blocks {
            let length = if block == 3 { 500 } else { 1000 };
            store.write(block, &vec![block as u8 + 1; length], 10_000).unwrap();
        }
        store.flush(10_000).unwrap();
    }

    #[test]
    fn damaged_blocks_are_named_and_stay_as_they_are() {
        let disk = MemoryDisk::default();
        store(&disk, "/d/f", &[0, 1, 3]);
        let tree = CacheTree::new(Arc::new(disk.clone()));
        let verify = |name: &str| {
            let mut bytes = 0;
            let result = tree.verify(&key(name), |more| bytes += more).unwrap();
            (result, bytes)
        };
        let verified = |damaged: &[u64]| {
            let damaged = damaged.to_vec();
            FileVerification::Verified(VerifiedBlocks { stored: 3, without_checksum: 0, damaged })
        };
        assert_eq!(verify("/d/f"), (verified(&[]), 2_500));
        disk.flip(&path("/d/f"), 1_999);
        disk.flip(&path("/d/f"), 2_500);
        assert_eq!(verify("/d/f").0, verified(&[1]), "nothing of block 2 is stored");
        assert_eq!(verify("/d/f").0, verified(&[1]));
        // Data that was cut off, and that has gone.
        let data = disk.get(&path("/d/f")).unwrap();
        disk.put(&path("/d/f"), &data[..3_400]);
        assert_eq!(verify("/d/f").0, verified(&[1, 3]));
        disk.remove(&path("/d/f")).unwrap();
        assert_eq!(verify("/d/f").0, verified(&[0, 1, 3]));
        let state = key("/d/f").state();
        disk.flip(&state, 60);
        assert_eq!(verify("/d/f"), (FileVerification::DamagedState, 0));
        assert_eq!(verify("/d/g"), (FileVerification::Gone, 0));
        disk.put(&state, b"a text of somebody");
        assert!(matches!(tree.verify(&key("/d/f"), |_| {}), Err(StoreError::Foreign)));
    }

    #[test]
    fn blocks_of_xrootd_can_only_be_read() {
        let disk = MemoryDisk::default();
        store(&disk, "/f", &[0, 3]);
        let theirs = crate::Cinfo::decode(&disk.get(&key("/f").state()).unwrap()).unwrap().encode();
        disk.put(&key("/f").state(), &theirs);
        disk.flip(&path("/f"), 5);
        let result = CacheTree::new(Arc::new(disk)).verify(&key("/f"), |_| {}).unwrap();
        let blocks = VerifiedBlocks { stored: 2, without_checksum: 2, damaged: Vec::new() };
        assert_eq!(result, FileVerification::Verified(blocks));
    }

    #[test]
    fn each_file_is_of_one_kind() {
        let disk = MemoryDisk::default();
        store(&disk, "/d/f", &[0, 3]);
        store(&disk, "/d/e/g", &[1]);
        store(&disk, "/damaged", &[1]);
        disk.flip(&key("/damaged").state(), 60);
        disk.put(&path("/d/foreign"), b"x");
        disk.put(&path("/d/text.cinfo"), b"a text of somebody");
        disk.put(&path("/pfc-stats/DirStat.json"), b"{}");
        let context = Arc::new(StoreContext::new(Arc::new(disk.clone()), 1000));
        let unclaimed = BlockStore::open(&context, &key("/d/u"), VERSION, 10_000).unwrap();
        unclaimed.write(0, &[1; 1000], 10_000).unwrap();
        let tree = CacheTree::new(Arc::new(disk.clone()));
        let list = |top: &str| {
            let mut lines = Vec::new();
            let visit = |found: CacheDirectory| {
                lines.extend(
                    found.files.iter().map(|file| format!("{} {}", file.key.data().text(), file.stored)),
                );
                lines.extend(found.damaged.iter().map(|key| format!("damaged {}", key.data().text())));
                lines.extend(found.unclaimed.iter().map(|key| format!("unclaimed {}", key.data().text())));
                lines.extend(found.foreign.iter().map(|path| format!("foreign {}", path.text())));
                lines.extend(found.unreadable.iter().map(|(path, why)| format!("{}: {why}", path.text())));
                Ok(())
            };
            tree.walk(&path(top), visit).unwrap();
            lines.sort();
            lines
        };
        assert_eq!(list("/d/e"), ["/d/e/g 1000"]);
        let all = [
            "/d/e/g 1000",
            "/d/f 1500",
            "damaged /damaged",
            "foreign /d/foreign",
            "foreign /d/text.cinfo",
            "unclaimed /d/u",
        ];
        assert_eq!(list("/"), all);
        disk.fail("list", rustix::io::Errno::ACCESS);
        assert_eq!(list("/d"), ["/d: permission denied"]);
        disk.fail("list", rustix::io::Errno::ACCESS);
        assert_eq!(list("/lost+found"), ["foreign /lost+found"]);
        disk.fail("open", rustix::io::Errno::IO);
        assert_eq!(list("/d/e"), ["/d/e/g.cinfo: input/output error"]);
        let lock = tree.lock().unwrap();
        for name in ["/d/e/g", "/damaged", "/d/u"] {
            assert!(tree.remove(&key(name), &lock).unwrap(), "{name}");
            assert!(!tree.remove(&key(name), &lock).unwrap(), "{name}");
        }
        assert!(matches!(tree.remove(&key("/d/foreign"), &lock), Err(StoreError::Foreign)));
        assert_eq!(list("/"), ["/d/f 1500", "foreign /d/foreign", "foreign /d/text.cinfo"]);
        assert!(!disk.directories().contains(&path("/d/e")));
    }

    #[test]
    fn pins_of_a_cache_without_a_server() {
        let tree = CacheTree::new(Arc::new(MemoryDisk::default()));
        assert_eq!(tree.pins().unwrap(), []);
        let lock = tree.lock().unwrap();
        let pin = |name: &str, created| CachePin { path: path(name), created, expires: 100 };
        tree.pin(pin("/a", 5), &lock).unwrap();
        tree.pin(pin("/b", 50), &lock).unwrap();
        assert!(matches!(tree.pin(pin("/a.cinfo", 5), &lock), Err(CachePinFailure::Name)));
        assert!(tree.unpin(&path("/a"), &lock).unwrap() && !tree.unpin(&path("/a"), &lock).unwrap());
        assert_eq!(tree.pins().unwrap(), [pin("/b", 50)]);
        tree.pin(pin("/c", 100), &lock).unwrap();
        assert_eq!(tree.pins().unwrap(), [pin("/b", 50), pin("/c", 100)], "one that has ended stays");
    }
}
