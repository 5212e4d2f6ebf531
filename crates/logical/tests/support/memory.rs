//! A backend in memory, with a clock that a test turns and faults that a test injects.
//!
//! It stops like a process does: after a chosen number of changing calls every call fails, the last one having done half
//! of its work. What it held survives in [`Memory::survivor`], as a file system does.

use super::faults::{Faults, Step};
use super::time::ManualClock;
use base::LogicalPath;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use storage::{
    Backend, CreateHow, DirectoryStream, Metadata, Now, OpenHow, Pool, RawEntry, StoredFile, Usage,
};

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;
pub const POOL_THREADS: usize = 4;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

fn os<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

#[derive(Clone)]
struct Inner {
    bytes: Vec<u8>,
    mode: u32,
    modified: u64,
    accessed: u64,
    attributes: BTreeMap<String, Vec<u8>>,
}

struct Node {
    inode: u64,
    inner: Mutex<Inner>,
}

impl Node {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn is_directory(&self) -> bool {
        self.inner().mode & DIRECTORY != 0
    }
}

type Tree = BTreeMap<Vec<u8>, Arc<Node>>;

struct Disk {
    tree: Mutex<Tree>,
    next_inode: Mutex<u64>,
    clock: Arc<ManualClock>,
}

/// The backend. Clones share everything.
#[derive(Clone)]
pub struct Memory {
    disk: Arc<Disk>,
    faults: Arc<Faults>,
    pool: Arc<Pool>,
    /// Nothing is in memory: each `_now` call would block.
    cold: Arc<AtomicBool>,
}

impl Memory {
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        let root = Node {
            inode: 1,
            inner: Mutex::new(Inner {
                bytes: Vec::new(),
                mode: DIRECTORY | 0o755,
                modified: clock.nanoseconds(),
                accessed: clock.nanoseconds(),
                attributes: BTreeMap::new(),
            }),
        };
        let tree = BTreeMap::from([(b"/".to_vec(), Arc::new(root))]);
        let disk = Disk { tree: Mutex::new(tree), next_inode: Mutex::new(2), clock: clock.clone() };
        Self {
            disk: Arc::new(disk),
            faults: Arc::new(Faults::default()),
            pool: Pool::new("memory", POOL_THREADS),
            cold: Arc::default(),
        }
    }

    /// The same disk for the next process.
    pub fn survivor(&self) -> Self {
        Self {
            disk: self.disk.clone(),
            faults: Arc::new(Faults::default()),
            pool: Pool::new("memory", POOL_THREADS),
            cold: self.cold.clone(),
        }
    }

    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Waits until the pool has done all that was queued before.
    pub fn quiesce(&self) {
        // As many jobs as threads, which meet: none can be there while a thread is still busy with older work.
        let meeting = Arc::new(std::sync::Barrier::new(POOL_THREADS + 1));
        for _ in 0..POOL_THREADS {
            let meeting = meeting.clone();
            assert!(
                self.pool
                    .run(Box::new(move || {
                        meeting.wait();
                    }))
                    .is_ok()
            );
        }
        meeting.wait();
    }

    /// The pool takes no more until the result is dropped: its threads, of which so many are free, hang, and the queue is
    /// full.
    pub fn fill_pool(&self, free: usize) -> impl Drop + use<> {
        /// Whether it is open, and how many have come; how many will have.
        struct Gate(Arc<(Mutex<(bool, usize)>, Condvar)>, usize);
        impl Drop for Gate {
            fn drop(&mut self) {
                let mut state = self.0.0.lock().unwrap();
                state.0 = true;
                self.0.1.notify_all();
                drop(self.0.1.wait_while(state, |(_, come)| *come < self.1));
            }
        }
        let mut full = Gate(Arc::default(), free);
        let gate = full.0.clone();
        let job = || {
            let gate = gate.clone();
            Box::new(move || {
                let mut state = gate.0.lock().unwrap();
                state.1 += 1;
                gate.1.notify_all();
                drop(gate.1.wait_while(state, |(open, _)| !*open));
            })
        };
        (0..free).for_each(|_| assert!(self.pool.run(job()).is_ok()));
        drop(gate.1.wait_while(gate.0.lock().unwrap(), |(_, come)| *come < free));
        while self.pool.run(job()).is_ok() {
            full.1 += 1;
        }
        full
    }

    pub fn set_cold(&self, cold: bool) {
        self.cold.store(cold, Ordering::SeqCst);
    }

    /// The content of a file, past all faults; `None` if there is none.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.tree().get(path.as_bytes()).map(|node| node.inner().bytes.clone())
    }

    pub fn mode(&self, path: &str) -> Option<u32> {
        self.tree().get(path.as_bytes()).map(|node| node.inner().mode & 0o7777)
    }

    pub fn attribute_of(&self, path: &str, name: &str) -> Option<Vec<u8>> {
        self.tree().get(path.as_bytes()).and_then(|node| node.inner().attributes.get(name).cloned())
    }

    pub fn put_attribute(&self, path: &str, name: &str, value: &[u8]) {
        let node = self.tree().get(path.as_bytes()).cloned().unwrap();
        node.inner().attributes.insert(name.to_owned(), value.to_vec());
    }

    /// Makes a file with its parents, past all faults.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let path = LogicalPath::parse(path.as_bytes()).unwrap();
        if let Some(parent) = path.parent() {
            self.make_parents(&mut self.tree(), &parent, 0o755).unwrap();
        }
        let node = self.node(FILE | 0o644, bytes.to_vec());
        self.tree().insert(path.as_bytes().to_vec(), node);
    }

    /// Takes a file away behind the server's back.
    pub fn take(&self, path: &str) {
        self.tree().remove(path.as_bytes());
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.disk.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, mode: u32, bytes: Vec<u8>) -> Arc<Node> {
        let mut next = self.disk.next_inode.lock().unwrap();
        *next += 1;
        let modified = self.disk.clock.nanoseconds();
        Arc::new(Node {
            inode: *next,
            inner: Mutex::new(Inner {
                bytes,
                mode,
                modified,
                accessed: modified,
                attributes: BTreeMap::new(),
            }),
        })
    }

    fn find(&self, path: &LogicalPath) -> io::Result<Arc<Node>> {
        let tree = self.tree();
        if let Some(node) = tree.get(path.as_bytes()) {
            return Ok(node.clone());
        }
        let mut above = path.parent();
        while let Some(parent) = above {
            match tree.get(parent.as_bytes()) {
                Some(node) if node.is_directory() => return os(ENOENT),
                Some(_) => return os(ENOTDIR),
                None => above = parent.parent(),
            }
        }
        os(ENOENT)
    }

    fn make_parents(&self, tree: &mut Tree, path: &LogicalPath, mode: u32) -> io::Result<()> {
        if let Some(node) = tree.get(path.as_bytes()) {
            return if node.is_directory() { Ok(()) } else { os(ENOTDIR) };
        }
        if let Some(parent) = path.parent() {
            self.make_parents(tree, &parent, mode)?;
        }
        tree.insert(path.as_bytes().to_vec(), self.node(DIRECTORY | mode, Vec::new()));
        Ok(())
    }

    fn check_parent(&self, tree: &Tree, path: &LogicalPath) -> io::Result<()> {
        match path.parent().map(|parent| tree.get(parent.as_bytes()).map(|node| node.is_directory())) {
            Some(Some(true)) | None => Ok(()),
            Some(Some(false)) => os(ENOTDIR),
            Some(None) => os(ENOENT),
        }
    }

    fn has_children(tree: &Tree, path: &LogicalPath) -> bool {
        tree.keys().any(|key| {
            let key = LogicalPath::parse(key).unwrap();
            key != *path && key.is_within(path)
        })
    }

    fn file(&self, node: Arc<Node>) -> Arc<dyn StoredFile> {
        Arc::new(MemoryFile { memory: self.clone(), node })
    }

    fn metadata(&self, node: &Node) -> Metadata {
        let inner = node.inner();
        let modified = inner.modified;
        Metadata {
            device: 9,
            inode: node.inode,
            mode: inner.mode,
            size: inner.bytes.len() as u64,
            uid: 0,
            gid: 0,
            modified: (modified / 1_000_000_000) as i64,
            modified_nanoseconds: (modified % 1_000_000_000) as u32,
            changed: (modified / 1_000_000_000) as i64,
            accessed: (inner.accessed / 1_000_000_000) as i64,
            offline: false,
        }
    }

    fn step(&self, kind: &'static str) -> io::Result<()> {
        match self.faults.step(kind)? {
            Step::Whole => Ok(()),
            Step::Half => Err(Faults::dead()),
        }
    }

    fn create(&self, path: &LogicalPath, how: &OpenHow, create: &CreateHow) -> io::Result<Arc<Node>> {
        self.step("create")?;
        let mut tree = self.tree();
        if let Some(parents) = create.parents
            && let Some(parent) = path.parent()
        {
            self.make_parents(&mut tree, &parent, parents)?;
        }
        self.check_parent(&tree, path)?;
        if let Some(node) = tree.get(path.as_bytes()) {
            return if create.exclusive { os(EEXIST) } else { self.existing(node.clone(), how) };
        }
        let node = self.node(FILE | create.mode, Vec::new());
        tree.insert(path.as_bytes().to_vec(), node.clone());
        Ok(node)
    }

    fn existing(&self, node: Arc<Node>, how: &OpenHow) -> io::Result<Arc<Node>> {
        if node.is_directory() && (how.write || how.truncate) {
            return os(EISDIR);
        }
        if how.truncate {
            let mut inner = node.inner();
            inner.bytes.clear();
            inner.modified = self.disk.clock.nanoseconds();
        }
        Ok(node)
    }
}

impl Backend for Memory {
    fn open(&self, path: &LogicalPath, how: &OpenHow) -> io::Result<Arc<dyn StoredFile>> {
        self.faults.check("open")?;
        let node = match &how.create {
            Some(create) => self.create(path, how, create)?,
            None => {
                if how.truncate {
                    self.step("truncate")?;
                }
                self.existing(self.find(path)?, how)?
            }
        };
        Ok(self.file(node))
    }
    fn open_now(&self, path: &LogicalPath, how: &OpenHow) -> Now<Arc<dyn StoredFile>> {
        if self.cold.load(Ordering::SeqCst) { Now::WouldBlock } else { Now::Done(self.open(path, how)) }
    }
    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata> {
        self.faults.check("stat")?;
        Ok(self.metadata(self.find(path)?.as_ref()))
    }
    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata> {
        if self.cold.load(Ordering::SeqCst) { Now::WouldBlock } else { Now::Done(self.stat(path)) }
    }
    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>> {
        self.faults.check("list")?;
        if !self.find(path)?.is_directory() {
            return os(ENOTDIR);
        }
        let tree = self.tree();
        let children = tree.keys().filter_map(|key| {
            let key = LogicalPath::parse(key).unwrap();
            (key.parent().as_ref() == Some(path)).then(|| key.file_name().unwrap().to_vec())
        });
        let names: Vec<_> = children.collect();
        drop(tree);
        Ok(Box::new(Stream { memory: self.clone(), path: path.clone(), names, at: 0 }))
    }
    fn make_directory(&self, path: &LogicalPath, mode: u32, parents: bool) -> io::Result<()> {
        self.step("mkdir")?;
        let mut tree = self.tree();
        if tree.contains_key(path.as_bytes()) {
            return os(EEXIST);
        }
        if parents && let Some(parent) = path.parent() {
            self.make_parents(&mut tree, &parent, mode)?;
        }
        self.check_parent(&tree, path)?;
        tree.insert(path.as_bytes().to_vec(), self.node(DIRECTORY | mode, Vec::new()));
        Ok(())
    }
    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        self.step("remove")?;
        let node = self.find(path)?;
        let mut tree = self.tree();
        if !node.is_directory() {
            return os(ENOTDIR);
        }
        if Self::has_children(&tree, path) {
            return os(ENOTEMPTY);
        }
        tree.remove(path.as_bytes());
        Ok(())
    }
    fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        self.step("remove")?;
        if self.find(path)?.is_directory() {
            return os(EISDIR);
        }
        self.tree().remove(path.as_bytes());
        Ok(())
    }
    fn rename(&self, from: &LogicalPath, to: &LogicalPath, parents: Option<u32>) -> io::Result<()> {
        self.step("rename")?;
        self.find(from)?;
        let mut tree = self.tree();
        if let (Some(mode), Some(parent)) = (parents, to.parent()) {
            self.make_parents(&mut tree, &parent, mode)?;
        }
        self.check_parent(&tree, to)?;
        let moved: Vec<_> =
            tree.keys().filter(|key| LogicalPath::parse(key).unwrap().is_within(from)).cloned().collect();
        for key in moved {
            let node = tree.remove(&key).unwrap();
            let new = [to.as_bytes(), &key[from.as_bytes().len()..]].concat();
            tree.insert(new, node);
        }
        Ok(())
    }
    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        self.file(self.find(path)?).set_mode(mode)
    }
    fn renew_access(&self, path: &LogicalPath) -> io::Result<()> {
        self.find(path)?.inner().accessed = self.disk.clock.nanoseconds();
        Ok(())
    }
    fn truncate(&self, path: &LogicalPath, size: u64) -> io::Result<()> {
        self.file(self.find(path)?).truncate(size)
    }
    fn attribute(&self, path: &LogicalPath, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.file(self.find(path)?).attribute(name)
    }
    fn set_attribute(&self, path: &LogicalPath, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.file(self.find(path)?).set_attribute(name, value, new)
    }
    fn remove_attribute(&self, path: &LogicalPath, name: &str) -> io::Result<()> {
        self.file(self.find(path)?).remove_attribute(name)
    }
    fn attributes(&self, path: &LogicalPath) -> io::Result<Vec<String>> {
        self.file(self.find(path)?).attributes()
    }
    fn usage(&self, path: &LogicalPath, _space: Option<&str>) -> io::Result<Usage> {
        self.find(path)?;
        Ok(Usage { total: 1000 << 20, free: 400 << 20, largest_free: 300 << 20 })
    }
    fn space_of(&self, _path: &LogicalPath) -> String {
        "public".into()
    }
    fn pool(&self, _path: &LogicalPath) -> &Arc<Pool> {
        &self.pool
    }
}

struct Stream {
    memory: Memory,
    path: LogicalPath,
    names: Vec<Vec<u8>>,
    at: usize,
}

impl DirectoryStream for Stream {
    fn next(&mut self, most: usize) -> io::Result<Vec<RawEntry>> {
        self.memory.faults.check("next")?;
        let page = self
            .names
            .iter()
            .skip(self.at)
            .take(most)
            .map(|name| RawEntry { name: name.clone(), link: false });
        let page: Vec<_> = page.collect();
        self.at += page.len();
        Ok(page)
    }
    fn stat(&self, name: &[u8]) -> io::Result<Metadata> {
        self.memory.stat(&self.path.join(name).unwrap())
    }
    fn attribute(&self, name: &[u8], attribute: &str) -> io::Result<Option<Vec<u8>>> {
        self.memory.attribute(&self.path.join(name).unwrap(), attribute)
    }
}

struct MemoryFile {
    memory: Memory,
    node: Arc<Node>,
}

impl MemoryFile {
    fn touch(&self, inner: &mut Inner) {
        inner.modified = self.memory.disk.clock.nanoseconds();
    }
}

impl StoredFile for MemoryFile {
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        if self.memory.cold.load(Ordering::SeqCst) {
            Now::WouldBlock
        } else {
            Now::Done(self.read(offset, into))
        }
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.memory.faults.check("read")?;
        let inner = self.node.inner();
        let rest = inner.bytes.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        if self.memory.cold.load(Ordering::SeqCst) {
            Now::WouldBlock
        } else {
            Now::Done(self.write(offset, from))
        }
    }
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let step = self.memory.faults.step("write")?;
        let from = if step == Step::Half { &from[..from.len() / 2] } else { from };
        let mut inner = self.node.inner();
        let end = offset as usize + from.len();
        if inner.bytes.len() < end {
            inner.bytes.resize(end, 0);
        }
        inner.bytes[offset as usize..end].copy_from_slice(from);
        self.touch(&mut inner);
        if step == Step::Half { Err(Faults::dead()) } else { Ok(()) }
    }
    fn truncate(&self, size: u64) -> io::Result<()> {
        let step = self.memory.faults.step("truncate")?;
        let mut inner = self.node.inner();
        if step == Step::Whole {
            inner.bytes.resize(size as usize, 0);
            self.touch(&mut inner);
            return Ok(());
        }
        Err(Faults::dead())
    }
    fn sync(&self) -> io::Result<()> {
        self.memory.faults.step("sync").map(|_| ())
    }
    fn stat(&self) -> io::Result<Metadata> {
        self.memory.faults.check("fstat")?;
        Ok(self.memory.metadata(&self.node))
    }
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.memory.step("set_mode")?;
        let mut inner = self.node.inner();
        inner.mode = inner.mode & 0o170_000 | mode & 0o7777;
        Ok(())
    }
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.memory.faults.check("attribute")?;
        Ok(self.node.inner().attributes.get(name).cloned())
    }
    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.memory.step("set_attribute")?;
        let mut inner = self.node.inner();
        if new && inner.attributes.contains_key(name) {
            return os(EEXIST);
        }
        inner.attributes.insert(name.to_owned(), value.to_vec());
        Ok(())
    }
    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        self.memory.step("set_attribute")?;
        self.node.inner().attributes.remove(name).map(|_| ()).map_or_else(|| os(ENODATA), Ok)
    }
    fn attributes(&self) -> io::Result<Vec<String>> {
        self.memory.faults.check("attribute")?;
        Ok(self.node.inner().attributes.keys().cloned().collect())
    }
    fn clone_range(
        &self,
        from: &dyn StoredFile,
        from_offset: u64,
        length: u64,
        offset: u64,
    ) -> io::Result<()> {
        self.memory.faults.check("clone")?;
        let mut bytes = vec![0; length as usize];
        let read = from.read(from_offset, &mut bytes)?;
        self.write(offset, &bytes[..read])
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn is_resident(&self, _offset: u64, _length: usize) -> bool {
        !self.memory.cold.load(Ordering::SeqCst)
    }
    fn prefetch(&self, _offset: u64, _length: u64) {}
    fn pool(&self) -> &Arc<Pool> {
        &self.memory.pool
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
