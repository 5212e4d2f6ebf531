//! The release of a file that persists on close, and its effects on other components.

use crate::file_services::FileServices;
use crate::open_file::ReleaseReason;
use crate::persist::{PendingTicket, ReleasedFile};
use base::{Error, ErrorKind, LogicalPath};
use storage::{Metadata, StoredFile};

/// The release of a handle of such a file.
pub(crate) struct PersistRelease {
    pub(crate) ticket: PendingTicket,
    pub(crate) parting: ReleaseReason,
    /// A write failed.
    pub(crate) spoiled: bool,
    /// The file replaces another one.
    pub(crate) is_replacement: bool,
}

impl PersistRelease {
    /// Completes, keeps or removes the file. `path` is for errors. Blocks.
    pub(crate) fn finish(
        self,
        services: &FileServices,
        path: &LogicalPath,
        file: &dyn StoredFile,
    ) -> Result<(), Error> {
        let Self { ticket, parting, spoiled, is_replacement } = self;
        let (persist, backend) = (&services.persist, services.backend.as_ref());
        let present = persist.final_path_of(ticket);
        let check = |path: &LogicalPath, found: Option<&Metadata>| services.check_replaced(path, found);
        let fate = match parting {
            ReleaseReason::Close { failed } => {
                persist.close(ticket, file, (backend, &check), failed || spoiled).map_err(|error| {
                    // Nobody can continue a replacement, so it is not kept.
                    if is_replacement && persist.doom(ticket) {
                        persist.remove(ticket, backend);
                    }
                    Error::unable("close", path, error)
                })?
            }
            ReleaseReason::Abandon => persist.abandon(ticket, spoiled || is_replacement),
        };
        match fate {
            ReleasedFile::Kept => {}
            ReleasedFile::Persisted | ReleasedFile::Unsynced => {
                let path = present.as_ref().unwrap_or(path);
                if is_replacement {
                    services.open_table.locks.disturb(path);
                    persist.absent().end_replaced(path, backend);
                }
                services.events.created(path, false);
            }
            ReleasedFile::Doomed => {
                if let Some(path) = persist.remove(ticket, backend)
                    && !is_replacement
                {
                    services.events.removed(&path);
                }
            }
        }
        if fate == ReleasedFile::Unsynced {
            let text = format!(
                "Unable to close {}; the new file is in place, but may be lost by a power failure",
                path.text()
            );
            return Err(Error::new(ErrorKind::IoError, text));
        }
        Ok(())
    }
}
