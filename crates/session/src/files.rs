//! The table of open files of a session.
//!
//! A handle is the index of the lowest free slot, because clients rely on small handles. A file
//! whose close was requested accepts no new operation. The close itself is a barrier among the
//! operations on the file.

use crate::ids::FileIndex;
use crate::step::BadPage;
use base::Descriptor;
use std::sync::Arc;
use vfs::OpenFile;
use wire::xroot::header::FileHandle;
use wire::xroot::limits::FILE_BAD_PAGES_MAX;

/// An open file.
pub(crate) struct SessionFile {
    pub(crate) file: Arc<dyn OpenFile>,
    /// Set after a close request: no new operations.
    pub(crate) closing: bool,
    /// Set if the client disconnected and an operation requested before a close was not executed.
    pub(crate) incomplete: bool,
    /// Pages that arrived with a wrong checksum and were not retried successfully.
    pub(crate) bad_pages: Vec<BadPage>,
    /// Number of further bad pages beyond the limit. They cannot be corrected by a retry, so the
    /// close fails.
    pub(crate) unlisted: usize,
    /// Returned to the budget when the file is closed.
    _descriptor: Descriptor,
}

impl SessionFile {
    /// Returns the number of pages known to be bad.
    pub(crate) fn errors(&self) -> usize {
        self.bad_pages.len() + self.unlisted
    }

    /// Records a page that arrived with a wrong checksum. A duplicate is ignored.
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
pub(crate) struct FileTable {
    slots: Vec<Option<SessionFile>>,
    open: usize,
}

impl FileTable {
    pub(crate) fn len(&self) -> usize {
        self.open
    }

    /// Inserts a file into the lowest free slot.
    pub(crate) fn insert(&mut self, file: Arc<dyn OpenFile>, descriptor: Descriptor) -> FileIndex {
        let handle = SessionFile {
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

    /// Returns a file that accepts operations.
    pub(crate) fn get(&self, index: FileIndex) -> Option<&SessionFile> {
        self.known(index).filter(|handle| !handle.closing)
    }

    /// Returns a file, even if it is being closed.
    pub(crate) fn known(&self, index: FileIndex) -> Option<&SessionFile> {
        self.slots.get(index.0 as usize)?.as_ref()
    }

    /// Returns a file mutably, even if it is being closed.
    pub(crate) fn any(&mut self, index: FileIndex) -> Option<&mut SessionFile> {
        self.slots.get_mut(index.0 as usize)?.as_mut()
    }

    /// Removes a file and frees its slot.
    pub(crate) fn remove(&mut self, index: FileIndex) -> Option<SessionFile> {
        let handle = self.slots.get_mut(index.0 as usize)?.take()?;
        self.open -= 1;
        while matches!(self.slots.last(), Some(None)) {
            self.slots.pop();
        }
        Some(handle)
    }

    /// Returns the slots of the files that are being closed.
    pub(crate) fn closing(&self) -> impl Iterator<Item = (FileIndex, &Arc<dyn OpenFile>)> {
        let used = (0..).map(FileIndex).zip(&self.slots);
        used.filter_map(|(index, slot)| {
            slot.as_ref().filter(|handle| handle.closing).map(|handle| (index, &handle.file))
        })
    }

    /// Returns the slots that hold a file.
    pub(crate) fn indices(&self) -> Vec<FileIndex> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_some());
        used.filter_map(|(index, _)| u32::try_from(index).ok()).map(FileIndex).collect()
    }
}

/// Encodes a slot as the four bytes on the wire.
pub(crate) fn to_wire(index: FileIndex) -> FileHandle {
    FileHandle(index.0.to_le_bytes())
}

/// Decodes a slot from the four bytes of a client. The slot may be empty.
pub(crate) fn from_wire(handle: FileHandle) -> FileIndex {
    FileIndex(u32::from_le_bytes(handle.0))
}
