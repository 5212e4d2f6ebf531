//! [`KeptLists`]: downloaded lists on disk. They are verified again when they are read.

use auth::grid::LIST_BYTES_MAX;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use storage::PrivateDirectory;

/// A directory with one file for each authority, whose name is the hash of the name of the authority.
pub(super) struct KeptLists(PathBuf);

impl KeptLists {
    pub(super) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Returns the list of an authority. Blocks.
    pub(super) fn read(&self, hash: &str) -> Option<Vec<u8>> {
        let text = self.try_read(hash);
        text.map_err(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let (directory, error) = (self.0.display(), base::errno_text(&error));
                tracing::warn!("the kept revocation list {hash} in {directory} is not used: {error}");
            }
        })
        .ok()
    }

    fn try_read(&self, hash: &str) -> io::Result<Vec<u8>> {
        let file = PrivateDirectory::open(&self.0)?.open_file(&file_name(hash))?;
        let mut text = Vec::new();
        let limit = u64::try_from(LIST_BYTES_MAX).unwrap_or(u64::MAX);
        // One byte more, so that a longer file is not taken for a whole list.
        file.take(limit.saturating_add(1)).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Replaces the list of an authority. Blocks.
    pub(super) fn write(&self, hash: &str, text: &[u8]) -> io::Result<()> {
        PrivateDirectory::create(&self.0)?.replace(&file_name(hash), text).map(drop)
    }
}

fn file_name(hash: &str) -> String {
    format!("{hash}.r0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_kept_where_no_other_user_can_write() {
        let directory = std::env::temp_dir().join(format!("scalla-kept-lists-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let kept = KeptLists::new(&directory);
        assert_eq!(kept.read("0123abcd"), None);
        kept.write("0123abcd", b"one").unwrap();
        kept.write("0123abcd", b"two").unwrap();
        assert_eq!(kept.read("0123abcd").as_deref(), Some(&b"two"[..]));
        assert_eq!(kept.read("00000000"), None);
        let file = directory.join("0123abcd.r0");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(kept.read("0123abcd"), None);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
