//! The table of open files of a session.
//!
//! Handles are indices, the lowest free one first, as clients are used to. A file whose close was requested takes no new
//! operation; the close itself is a barrier among the operations on the file.

use crate::step::{BadPage, FileIndex};
use base::Descriptor;
use std::sync::Arc;
use vfs::OpenFile;
use wire::xroot::header::FileHandle;
use wire::xroot::limits::FILE_BAD_PAGES_MAX;

/// An open file.
pub(crate) struct Handle {
    pub(crate) file: Arc<dyn OpenFile>,
    /// It takes no new operation.
    pub(crate) closing: bool,
    /// The client has gone and something that it asked for before a close was not done.
    pub(crate) incomplete: bool,
    /// Pages that came with a wrong checksum and were not repeated yet.
    pub(crate) bad_pages: Vec<BadPage>,
    /// Further ones, past the limit: they can only be written anew, and the close fails.
    pub(crate) unlisted: usize,
    /// Returns when the file is closed.
    _descriptor: Descriptor,
}

impl Handle {
    /// Pages that are known to be bad.
    pub(crate) fn errors(&self) -> usize {
        self.bad_pages.len() + self.unlisted
    }

    /// A page came with a wrong checksum.
    pub(crate) fn remember(&mut self, page: BadPage) {
        if self.bad_pages.contains(&page) {
            return;
        }
        if self.bad_pages.len() < FILE_BAD_PAGES_MAX {
            self.bad_pages.push(page);
        } else {
            self.unlisted += 1;
        }
    }
}

/// All open files of a session.
#[derive(Default)]
pub(crate) struct Files {
    slots: Vec<Option<Handle>>,
    open: usize,
}

impl Files {
    pub(crate) fn len(&self) -> usize {
        self.open
    }

    /// Puts a file into the lowest free slot.
    pub(crate) fn insert(&mut self, file: Arc<dyn OpenFile>, descriptor: Descriptor) -> FileIndex {
        let handle = Handle {
            file,
            closing: false,
            incomplete: false,
            bad_pages: Vec::new(),
            unlisted: 0,
            _descriptor: descriptor,
        };
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        match self.slots.get_mut(free) {
            Some(slot) => *slot = Some(handle),
            None => self.slots.push(Some(handle)),
        }
        self.open += 1;
        FileIndex(u32::try_from(free).unwrap_or(u32::MAX))
    }

    /// A file that takes operations.
    pub(crate) fn get(&self, index: FileIndex) -> Option<&Handle> {
        self.known(index).filter(|handle| !handle.closing)
    }

    /// A file, also one that is being closed.
    pub(crate) fn known(&self, index: FileIndex) -> Option<&Handle> {
        self.slots.get(index.0 as usize)?.as_ref()
    }

    /// The same, to change it.
    pub(crate) fn any(&mut self, index: FileIndex) -> Option<&mut Handle> {
        self.slots.get_mut(index.0 as usize)?.as_mut()
    }

    /// Frees the slot.
    pub(crate) fn remove(&mut self, index: FileIndex) -> Option<Handle> {
        let handle = self.slots.get_mut(index.0 as usize)?.take()?;
        self.open -= 1;
        while matches!(self.slots.last(), Some(None)) {
            self.slots.pop();
        }
        Some(handle)
    }

    /// Slots that hold a file.
    pub(crate) fn indices(&self) -> Vec<FileIndex> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        used.filter_map(|(index, _)| u32::try_from(index).ok()).map(FileIndex).collect()
    }
}

/// The four bytes on the wire.
pub(crate) fn to_wire(index: FileIndex) -> FileHandle {
    FileHandle(index.0.to_le_bytes())
}

/// The slot that four bytes of a client mean; it may be empty.
pub(crate) fn from_wire(handle: FileHandle) -> FileIndex {
    FileIndex(u32::from_le_bytes(handle.0))
}
