//! A storage backend in memory, with a manual clock and injected faults.
//!
//! It stops like a process: after a chosen number of changing calls every call fails, and the last
//! one was half executed. Its content survives in [`ChecksumCache::survivor`], as that of a file
//! system does. After a power failure, only synced content survives for certain ([`super::disk`]).

mod held;
mod rights;
mod stream;

use super::disk::{DIRECTORY, Disk, FILE, Node, Tree};
use super::faults::{Faults, Step};
use super::time::ManualClock;
use base::{CopyRange, LogicalPath, Owner};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use storage::{
    Backend, CreateMode, DirectoryStream, ExistingName, FileIdentity, Metadata, Now, OpenMode,
    ParentCreation, Pool, SpaceUsage, StorageUser, StoredFile, TransferStorage,
};
use stream::Stream;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;
pub const POOL_THREADS: usize = 4;

fn os<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

/// The backend. Clones share all state.
#[derive(Clone)]
pub struct Memory {
    disk: Arc<Disk>,
    clock: Arc<ManualClock>,
    faults: Arc<Faults>,
    pool: Arc<Pool>,
    /// Nothing is in memory, so each `_now` call would block.
    cold: Arc<AtomicBool>,
    /// The device number.
    device: Arc<AtomicU64>,
    /// The owner of all files.
    owner: Arc<AtomicU32>,
    /// The NFS server in the handles of files; 0: there are no handles.
    nfs_server: Arc<AtomicU64>,
    user: Option<u32>, // `None` for the server
}

impl Memory {
    pub fn new(clock: &Arc<ManualClock>) -> Self {
        Self::on(Arc::new(Disk::new(clock.nanoseconds())), clock)
    }

    fn on(disk: Arc<Disk>, clock: &Arc<ManualClock>) -> Self {
        Self {
            disk,
            clock: clock.clone(),
            faults: Arc::new(Faults::default()),
            pool: Pool::new("memory", POOL_THREADS),
            cold: Arc::default(),
            device: Arc::new(AtomicU64::new(9)),
            owner: Arc::default(),
            nfs_server: Arc::default(),
            user: None,
        }
    }

    /// Returns the disk for the next process. With a seed there was a power failure, and the seed
    /// selects the unsynced effects that survived.
    pub fn survivor(&self, power_cut: Option<u64>) -> Self {
        let disk = match power_cut {
            Some(seed) => Arc::new(self.disk.after_power_cut(seed)),
            None => self.disk.clone(),
        };
        let (cold, owner, nfs_server) = (self.cold.clone(), self.owner.clone(), self.nfs_server.clone());
        Self { cold, owner, nfs_server, ..Self::on(disk, &self.clock) }
    }

    /// Returns the disk for the next process after its tree was copied file by file to another one.
    pub fn copied(&self, keep_attributes: bool) -> Self {
        Self::on(Arc::new(self.disk.copied(keep_attributes)), &self.clock)
    }

    /// Sets the owner of all files; 0 is the user of the server.
    pub fn set_owner(&self, uid: u32) {
        self.owner.store(uid, Ordering::SeqCst);
    }

    pub fn set_device(&self, device: u64) {
        self.device.store(device, Ordering::SeqCst);
    }

    /// Gives files handles of this NFS server.
    pub fn set_nfs_server(&self, server: u64) {
        self.nfs_server.store(server, Ordering::SeqCst);
    }

    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Waits until the pool has executed all queued jobs.
    pub fn quiesce(&self) {
        // As many jobs as threads meet here, which is possible only when no thread runs an older
        // job. Jobs of other sessions may run later, so this is repeated until none waits.
        let meeting = Arc::new(std::sync::Barrier::new(POOL_THREADS + 1));
        self.meet(&meeting);
        while self.pool.queued() > 0 {
            self.meet(&meeting);
        }
    }

    fn meet(&self, meeting: &Arc<std::sync::Barrier>) {
        for _ in 0..POOL_THREADS {
            let meeting = meeting.clone();
            assert!(
                self.pool
                    .run(
                        Owner::SERVER,
                        Box::new(move || {
                            meeting.wait();
                        })
                    )
                    .is_ok()
            );
        }
        meeting.wait();
    }

    /// Makes the pool refuse jobs until the result is dropped: its threads, of which this number
    /// are free, hang, and the queue is full.
    pub fn fill_pool(&self, free: usize) -> impl Drop + use<> {
        /// The state (open, number of hanging jobs), and the number of jobs to wait for.
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
        (0..free).for_each(|_| assert!(self.pool.run(Owner::SERVER, job()).is_ok()));
        drop(gate.1.wait_while(gate.0.lock().unwrap(), |(_, come)| *come < free));
        while self.pool.run(Owner::SERVER, job()).is_ok() {
            full.1 += 1;
        }
        full
    }

    pub fn set_cold(&self, cold: bool) {
        self.cold.store(cold, Ordering::SeqCst);
    }

    fn node_at(&self, path: &str) -> Option<Arc<Node>> {
        self.disk.see(|tree| tree.get(path.as_bytes()).cloned())
    }

    /// Returns the content of a file without faults; `None` if it does not exist.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        Some(self.node_at(path)?.see(|inner| inner.bytes.clone()))
    }

    pub fn mode(&self, path: &str) -> Option<u32> {
        Some(self.node_at(path)?.see(|inner| inner.mode & 0o7777))
    }

    pub fn attribute_of(&self, path: &str, name: &str) -> Option<Vec<u8>> {
        self.node_at(path)?.see(|inner| inner.attributes.get(name).cloned())
    }

    pub fn put_attribute(&self, path: &str, name: &str, value: &[u8]) {
        self.node_at(path).unwrap().set_attribute(name, Some(value));
        self.disk.sync_everything();
    }

    /// Creates a stable file with its parents, without faults.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        self.put_with_mode(path, bytes, 0o644);
    }

    /// Creates such a file with these permission bits.
    pub fn put_with_mode(&self, path: &str, bytes: &[u8], mode: u32) {
        let path = LogicalPath::parse(path.as_bytes()).unwrap();
        if let Some(parent) = path.parent() {
            self.make_parents(&parent, &ParentCreation::everywhere(0o755)).unwrap();
        }
        self.disk.add(path.as_bytes(), self.node(FILE | mode, bytes.to_vec()));
        for name in std::iter::successors(Some(path), LogicalPath::parent) {
            self.disk.sync_name(name.as_bytes()).unwrap();
        }
    }

    /// Gives a file a stable second name.
    pub fn link(&self, from: &str, to: &str) {
        self.disk.add(to.as_bytes(), self.node_at(from).unwrap());
        self.disk.sync_everything();
    }

    /// Renames without the server; the result is stable.
    pub fn shift(&self, from: &str, to: &str) {
        self.disk.rename(from.as_bytes(), to.as_bytes());
        self.disk.sync_everything();
    }

    /// Removes a file without the server; the result is stable.
    pub fn take(&self, path: &str) {
        self.disk.remove(path.as_bytes());
        self.disk.sync_everything();
    }

    fn node(&self, mode: u32, bytes: Vec<u8>) -> Arc<Node> {
        self.disk.node(mode, bytes, self.clock.nanoseconds())
    }

    fn find(&self, path: &LogicalPath) -> io::Result<Arc<Node>> {
        if self.is_of_another_user(path) {
            return os(EACCES);
        }
        self.disk.see(|tree| {
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
        })
    }

    fn make_parents(&self, path: &LogicalPath, parents: &ParentCreation) -> io::Result<()> {
        if let Some(node) = self.disk.see(|tree| tree.get(path.as_bytes()).cloned()) {
            return if node.is_directory() { Ok(()) } else { os(ENOTDIR) };
        }
        if !parents.allows(path) {
            return os(EACCES);
        }
        if let Some(parent) = path.parent() {
            self.make_parents(&parent, parents)?;
        }
        self.disk.add(path.as_bytes(), self.node(DIRECTORY | parents.mode, Vec::new()));
        Ok(())
    }

    fn check_parent(&self, path: &LogicalPath) -> io::Result<()> {
        let is_directory = |path: &LogicalPath| {
            self.disk.see(|tree| tree.get(path.as_bytes()).map(|node| node.is_directory()))
        };
        match path.parent().map(|parent| is_directory(&parent)) {
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
        node.see(|inner| Metadata {
            device: self.device.load(Ordering::SeqCst),
            inode: node.inode,
            mode: inner.mode,
            size: inner.bytes.len() as u64,
            uid: self.owner.load(Ordering::SeqCst),
            gid: 0,
            modified: (inner.modified / 1_000_000_000) as i64,
            modified_nanoseconds: (inner.modified % 1_000_000_000) as u32,
            changed: (inner.modified / 1_000_000_000) as i64,
            accessed: (inner.accessed / 1_000_000_000) as i64,
            offline: false,
        })
    }

    fn identity_of(&self, node: &Node) -> FileIdentity {
        let (device, server) = (self.device.load(Ordering::SeqCst), self.nfs_server.load(Ordering::SeqCst));
        let handle = (server != 0).then_some((server, node.inode));
        FileIdentity { device, inode: node.inode, born: None, handle }
    }

    fn step(&self, kind: &'static str) -> io::Result<()> {
        match self.faults.step(kind)? {
            Step::Whole => Ok(()),
            Step::Half => Err(Faults::dead()),
        }
    }

    fn create(&self, path: &LogicalPath, how: &OpenMode, create: &CreateMode) -> io::Result<Arc<Node>> {
        self.step("create")?;
        if let Some(parents) = &create.parents
            && let Some(parent) = path.parent()
        {
            self.make_parents(&parent, parents)?;
        }
        self.check_parent(path)?;
        if let Some(node) = self.disk.see(|tree| tree.get(path.as_bytes()).cloned()) {
            return if create.exclusive { os(EEXIST) } else { self.existing(node, how) };
        }
        let node = self.node(FILE | create.mode, Vec::new());
        self.disk.add(path.as_bytes(), node.clone());
        Ok(node)
    }

    fn existing(&self, node: Arc<Node>, how: &OpenMode) -> io::Result<Arc<Node>> {
        if node.is_directory() && (how.write || how.truncate) {
            return os(EISDIR);
        }
        if how.truncate {
            node.resize(0);
            node.touch(|inner| inner.modified = self.clock.nanoseconds());
        }
        Ok(node)
    }
}

impl Backend for Memory {
    fn as_user(&self, user: &Arc<StorageUser>) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(Self { user: Some(user.uid()), ..self.clone() }))
    }
    fn transfers(&self) -> Option<&dyn TransferStorage> {
        Some(self)
    }
    fn open(&self, path: &LogicalPath, how: &OpenMode) -> io::Result<Arc<dyn StoredFile>> {
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
    fn open_now(&self, path: &LogicalPath, how: &OpenMode) -> Now<Arc<dyn StoredFile>> {
        if self.cold.load(Ordering::SeqCst) { Now::WouldBlock } else { Now::Done(self.open(path, how)) }
    }
    fn stat(&self, path: &LogicalPath) -> io::Result<Metadata> {
        self.faults.check("stat")?;
        Ok(self.metadata(self.find(path)?.as_ref()))
    }
    fn identity(&self, path: &LogicalPath) -> io::Result<FileIdentity> {
        self.faults.check("stat")?;
        let node = self.find(path)?;
        // Directories can be examined while files are held.
        if !node.is_directory() {
            self.faults.check("identity")?;
        }
        Ok(self.identity_of(&node))
    }
    fn stat_now(&self, path: &LogicalPath) -> Now<Metadata> {
        if self.cold.load(Ordering::SeqCst) { Now::WouldBlock } else { Now::Done(self.stat(path)) }
    }
    fn list(&self, path: &LogicalPath) -> io::Result<Box<dyn DirectoryStream>> {
        self.faults.check("list")?;
        if !self.find(path)?.is_directory() {
            return os(ENOTDIR);
        }
        let names = self.disk.see(|tree| {
            let children = tree.keys().filter_map(|key| {
                let key = LogicalPath::parse(key).unwrap();
                (key.parent().as_ref() == Some(path)).then(|| key.file_name().unwrap().to_vec())
            });
            children.collect()
        });
        Ok(Box::new(Stream { memory: self.clone(), path: path.clone(), names, at: 0 }))
    }
    fn make_directory(
        &self,
        path: &LogicalPath,
        mode: u32,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        self.step("mkdir")?;
        if self.disk.see(|tree| tree.contains_key(path.as_bytes())) {
            return os(EEXIST);
        }
        if let (Some(parents), Some(parent)) = (parents, path.parent()) {
            self.make_parents(&parent, parents)?;
        }
        self.check_parent(path)?;
        self.disk.add(path.as_bytes(), self.node(DIRECTORY | mode, Vec::new()));
        Ok(())
    }
    fn remove_directory(&self, path: &LogicalPath) -> io::Result<()> {
        self.step("remove")?;
        if !self.find(path)?.is_directory() {
            return os(ENOTDIR);
        }
        if self.disk.see(|tree| Self::has_children(tree, path)) {
            return os(ENOTEMPTY);
        }
        self.disk.remove(path.as_bytes());
        Ok(())
    }
    fn remove_file(&self, path: &LogicalPath) -> io::Result<()> {
        self.step("remove")?;
        if self.find(path)?.is_directory() {
            return os(EISDIR);
        }
        self.disk.remove(path.as_bytes());
        Ok(())
    }
    fn rename(
        &self,
        from: &LogicalPath,
        to: &LogicalPath,
        existing: ExistingName,
        parents: Option<&ParentCreation>,
    ) -> io::Result<()> {
        self.step("rename").and_then(|()| self.find(from))?;
        if existing == ExistingName::Keep && self.find(to).is_ok() {
            return os(EEXIST);
        }
        if let (Some(parents), Some(parent)) = (parents, to.parent()) {
            self.make_parents(&parent, parents)?;
        }
        self.check_parent(to).map(|()| self.disk.rename(from.as_bytes(), to.as_bytes()))
    }
    fn sync_name(&self, path: &LogicalPath) -> io::Result<()> {
        self.step("sync_name")?;
        self.disk.sync_name(path.as_bytes())
    }
    fn set_mode(&self, path: &LogicalPath, mode: u32) -> io::Result<()> {
        self.file(self.find(path)?).set_mode(mode)
    }
    fn renew_access(&self, path: &LogicalPath) -> io::Result<()> {
        self.find(path)?.touch(|inner| inner.accessed = self.clock.nanoseconds());
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
    fn usage(&self, path: &LogicalPath, _space: Option<&str>) -> io::Result<SpaceUsage> {
        self.find(path)?;
        Ok(SpaceUsage { total: 1000 << 20, free: 400 << 20, largest_free: 300 << 20, ..Default::default() })
    }
    fn space_of(&self, _path: &LogicalPath) -> String {
        "public".into()
    }
    fn pool(&self, _path: &LogicalPath) -> &Arc<Pool> {
        &self.pool
    }
}

struct MemoryFile {
    memory: Memory,
    node: Arc<Node>,
}

impl MemoryFile {
    fn is_cold(&self) -> bool {
        self.memory.cold.load(Ordering::SeqCst)
    }
    fn touch(&self) {
        self.node.touch(|inner| inner.modified = self.memory.clock.nanoseconds());
    }
}

impl StoredFile for MemoryFile {
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        if self.is_cold() { Now::WouldBlock } else { Now::Done(self.read(offset, into)) }
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.memory.faults.check("read")?;
        self.node.see(|inner| {
            let rest = inner.bytes.get(offset as usize..).unwrap_or_default();
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        })
    }
    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        if self.is_cold() { Now::WouldBlock } else { Now::Done(self.write(offset, from)) }
    }
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let step = self.memory.faults.step("write")?;
        let from = if step == Step::Half { &from[..from.len() / 2] } else { from };
        self.node.write(offset as usize, from);
        self.touch();
        if step == Step::Half { Err(Faults::dead()) } else { Ok(()) }
    }
    fn truncate(&self, size: u64) -> io::Result<()> {
        self.memory.step("truncate")?;
        self.node.resize(size as usize);
        self.touch();
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        self.memory.step("sync")?;
        self.node.sync(false);
        Ok(())
    }
    fn sync_all(&self) -> io::Result<()> {
        self.memory.step("sync")?;
        self.node.sync(true);
        Ok(())
    }
    fn stat(&self) -> io::Result<Metadata> {
        self.memory.faults.check("fstat")?;
        Ok(self.memory.metadata(&self.node))
    }
    fn identity(&self) -> io::Result<FileIdentity> {
        self.memory.faults.check("fstat")?;
        Ok(self.memory.identity_of(&self.node))
    }
    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.memory.step("set_mode")?;
        self.node.set_mode(mode);
        Ok(())
    }
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.memory.faults.check("attribute")?;
        Ok(self.node.see(|inner| inner.attributes.get(name).cloned()))
    }
    fn set_attribute(&self, name: &str, value: &[u8], new: bool) -> io::Result<()> {
        self.memory.step("set_attribute")?;
        if new && self.node.see(|inner| inner.attributes.contains_key(name)) {
            return os(EEXIST);
        }
        self.node.set_attribute(name, Some(value));
        Ok(())
    }
    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        self.memory.step("set_attribute")?;
        if !self.node.see(|inner| inner.attributes.contains_key(name)) {
            return os(ENODATA);
        }
        self.node.set_attribute(name, None);
        Ok(())
    }
    fn attributes(&self) -> io::Result<Vec<String>> {
        self.memory.faults.check("attribute")?;
        Ok(self.node.see(|inner| inner.attributes.keys().cloned().collect()))
    }
    fn clone_range(&self, source: &dyn StoredFile, range: CopyRange) -> io::Result<()> {
        self.memory.faults.check("clone")?;
        let mut bytes = vec![0; range.length as usize];
        let read = source.read(range.from, &mut bytes)?;
        self.write(range.to, &bytes[..read])
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn is_resident(&self, _offset: u64, _length: usize) -> bool {
        !self.is_cold()
    }
    fn prefetch(&self, _offset: u64, _length: u64) {}
    fn pool(&self) -> &Arc<Pool> {
        &self.memory.pool
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
