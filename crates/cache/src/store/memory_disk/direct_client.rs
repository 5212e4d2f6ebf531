//! [`DirectClient`]: a program beside the cache that has a file open.

use super::MemoryDisk;
use base::LogicalPath;

/// A program beside the cache that has a file open.
pub(crate) struct DirectClient {
    disk: MemoryDisk,
    inode: usize,
}

impl DirectClient {
    /// Opens a file; `None` if there is none at this name.
    pub(crate) fn open(disk: &MemoryDisk, name: &LogicalPath) -> Option<Self> {
        let mut state = disk.lock();
        let inode = *state.names.get(name)?;
        state.inodes[inode].readers += 1;
        Some(Self { disk: disk.clone(), inode })
    }

    /// Returns the content that it reads now.
    pub(crate) fn content(&self) -> Vec<u8> {
        self.disk.lock().inodes[self.inode].content.clone()
    }

    /// Goes on after the end of the process of the cache, whose disk is this one now.
    pub(crate) fn survive(self, disk: &MemoryDisk) -> Self {
        disk.lock().inodes[self.inode].readers += 1;
        Self { disk: disk.clone(), inode: self.inode }
    }
}

impl Drop for DirectClient {
    fn drop(&mut self) {
        self.disk.lock().inodes[self.inode].readers -= 1;
    }
}
