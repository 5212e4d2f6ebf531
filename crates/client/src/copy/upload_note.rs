//! [`UploadNote`]: the record about an upload, by which a later copy continues it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Copier;
use super::disk::DiskThreads;
use super::failure::CopyError;
use super::note::{Note, Noted};
use super::options::CopyOptions;
use crate::file::File;
use crate::url::Url;

/// Number of bytes of an upload after which its note is updated.
const NOTE_STEP: u64 = 32 * 1024 * 1024;

/// The note of an upload. It is stored on this machine, in the directory that the options name.
pub(super) struct UploadNote {
    note: Note,
    /// Content of the note without the number of written bytes.
    noted: std::sync::OnceLock<Noted>,
    written: AtomicU64,
}

impl UploadNote {
    /// Opens the note of a target; `None` if there is no directory for notes.
    pub(super) async fn open(
        copier: &Copier,
        url: &Url,
        options: &CopyOptions,
    ) -> Result<Option<Arc<Self>>, CopyError> {
        let Some(directory) = options.notes.clone() else { return Ok(None) };
        let name = format!("{}{}", url.authority(), url.path);
        let opened = copier.disk.run(move || Note::of_url(&directory, &name)).await;
        match opened {
            Some(Ok(Some(note))) => {
                let (noted, written) = (std::sync::OnceLock::new(), AtomicU64::new(0));
                Ok(Some(Arc::new(Self { note, noted, written })))
            }
            Some(Ok(None)) => Err(CopyError::InUse(url.to_string())),
            // Without a note, the next copy has to compare more.
            Some(Err(_)) | None => Ok(None),
        }
    }

    /// Returns the content of the note if it describes this open file.
    pub(super) fn of(&self, file: &File) -> Option<Noted> {
        let target = identity(file)?;
        self.note.read().filter(|noted| noted.target == target)
    }

    /// Records the identity of the source and that the file is written up to `written`. Returns
    /// `false` if the note cannot be written.
    pub(super) fn begin(&self, source: Option<&str>, file: &File, written: u64) -> bool {
        let (Some(source), Some(target)) = (source, identity(file)) else {
            self.remove();
            return false;
        };
        let noted = Noted { source: source.to_owned(), target, written, boot: String::new() };
        self.written.store(written, Ordering::Relaxed);
        let is_noted = self.note.write(&noted).is_ok();
        if !is_noted {
            self.remove();
        }
        self.noted.set(noted).ok();
        is_noted
    }

    /// Records in batches that all bytes up to `written` were acknowledged.
    pub(super) fn advance(self: &Arc<Self>, written: u64, disk: &DiskThreads) {
        let before = self.written.load(Ordering::Relaxed);
        if written < before + NOTE_STEP {
            return;
        }
        let order = Ordering::Relaxed;
        if self.written.compare_exchange(before, written, order, order).is_ok() {
            let this = self.clone();
            disk.post(move || this.reach(written));
        }
    }

    /// Records that all bytes up to `written` were acknowledged.
    pub(super) fn reach(&self, written: u64) {
        if let Some(noted) = self.noted.get() {
            // A stale note is harmless because it claims fewer bytes.
            self.note.write(&Noted { written, ..noted.clone() }).ok();
        }
    }

    pub(super) fn remove(&self) {
        self.note.remove();
    }
}

/// Returns the identity of a file at its server.
fn identity(file: &File) -> Option<String> {
    file.identity().map(|identity| format!("{} {}", identity.server, identity.id))
}
