//! Files of passwords on disk: read only if nobody else can have written them, replaced as a whole.

use super::FILE_BYTES_MAX;
use super::file::PwdFile;
use crate::trusted_file::{FileTrust, TrustedFileError, TrustedOwner, read_trusted};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The demands on the file.
const TRUST: FileTrust =
    FileTrust::private(TrustedOwner::Own, "read hashes of passwords", FILE_BYTES_MAX as u64);

impl PwdFile {
    /// Reads a file of passwords, which only its owner may read. Blocks.
    ///
    /// # Errors
    /// The file, and the reason why it cannot be used.
    pub fn read(path: &Path) -> Result<Self, String> {
        Self::read_with(path, &TRUST)
    }

    /// Reads a file that meets these demands.
    pub(super) fn read_with(path: &Path, trust: &FileTrust) -> Result<Self, String> {
        let shown = path.display();
        let (bytes, _) = read_trusted(path, trust).map_err(|error| match error {
            TrustedFileError::Unreadable(error) => {
                format!("cannot read {shown}: {}", base::errno_text(&error))
            }
            TrustedFileError::Untrusted { reason, remedy } => {
                format!("{shown} is not used: {reason}; {remedy}")
            }
        })?;
        Self::decode(&bytes).map_err(|error| format!("{shown}: {error}"))
    }

    /// Replaces a file by this content, which is there as a whole or not at all. Its directory is
    /// created if it is missing. `now` is the time in seconds since 1970. Blocks.
    ///
    /// # Errors
    /// The error of the system.
    pub fn write(&self, path: &Path, now: u32) -> io::Result<()> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let mut options = OpenOptions::new();
        let written = options.write(true).create_new(true).mode(0o600).open(&beside).and_then(|mut file| {
            file.write_all(&self.encode(now))?;
            file.sync_all()
        });
        let replaced = written.and_then(|()| std::fs::rename(&beside, path));
        if replaced.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        replaced
    }
}
