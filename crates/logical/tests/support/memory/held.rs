//! Files that are held open.

use super::{EISDIR, Memory, MemoryFile, os};
use base::LogicalPath;
use std::io;
use std::path::PathBuf;
use storage::{
    FileVersion, HeldFile, IncomingResult, Leftovers, Metadata, ParentCreation, StoredFile as _,
    TransferStorage, UnusedFile,
};

const ENOTSUP: i32 = 95;

impl TransferStorage for Memory {
    fn receive(&self, _: &LogicalPath, _: (u32, Option<u64>), _: Option<&ParentCreation>) -> IncomingResult {
        os(ENOTSUP)
    }
    fn remove_leftovers(&self, _: &LogicalPath) -> io::Result<Leftovers> {
        Ok(Leftovers::default())
    }
    fn hold(&self, path: &LogicalPath) -> io::Result<Box<dyn HeldFile>> {
        self.faults.check("hold")?;
        let node = self.find(path)?;
        if node.is_directory() {
            return os(EISDIR);
        }
        Ok(Box::new(Held(MemoryFile { memory: self.clone(), node }, path.clone())))
    }
    fn claim_unused(&self, _: &LogicalPath) -> io::Result<Box<dyn UnusedFile>> {
        os(ENOTSUP)
    }
}

/// A file, and the path at which it was opened.
struct Held(MemoryFile, LogicalPath);

impl HeldFile for Held {
    fn stat(&self) -> io::Result<Metadata> {
        self.0.stat()
    }
    fn version(&self) -> io::Result<FileVersion> {
        let Metadata { device, inode, size, modified, modified_nanoseconds, changed, .. } = self.0.stat()?;
        let modified = (modified, modified_nanoseconds.into());
        Ok(FileVersion { file: (device, inode), size, modified, changed: (changed, 0) })
    }
    fn attribute(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.attribute(name)
    }
    fn set_attribute(&self, name: &str, value: &[u8]) -> io::Result<()> {
        self.0.set_attribute(name, value, false)
    }
    fn remove_attribute(&self, name: &str) -> io::Result<()> {
        self.0.remove_attribute(name)
    }
    fn has_name(&self) -> io::Result<bool> {
        let named = self.0.memory.find(&self.1)?;
        Ok(std::sync::Arc::ptr_eq(&named, &self.0.node))
    }
    fn local_path(&self) -> io::Result<PathBuf> {
        os(ENOTSUP)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
