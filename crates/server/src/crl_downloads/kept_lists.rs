//! [`KeptLists`]: downloaded lists on disk. They are verified again when they are read.

use auth::grid::{CrlSource, LIST_BYTES_MAX, LISTS_OF_AUTHORITY_MAX};
use config::Effective;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::PathBuf;
use storage::PrivateDirectory;

/// The directory for lists, below the administrative path.
const LISTS: &str = ".revocation-lists";

/// A directory with one file for each authority, which has all its lists that are in force.
pub(super) struct KeptLists(PathBuf);

impl KeptLists {
    /// Returns the lists of a server with this configuration.
    pub(super) fn of_server(effective: &Effective) -> Self {
        Self(effective.admin_directory().join(LISTS))
    }

    /// Returns the lists of an authority; `None` if there are none. Blocks.
    pub(super) fn read(&self, source: &CrlSource) -> io::Result<Option<Vec<u8>>> {
        match self.try_read(&file_name(source)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn try_read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = PrivateDirectory::open(&self.0)?.open_file(name)?;
        let mut text = Vec::new();
        let limit = u64::try_from(LIST_BYTES_MAX * LISTS_OF_AUTHORITY_MAX).unwrap_or(u64::MAX);
        // A longer file has a list that is not whole, which is refused.
        file.take(limit).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Replaces the lists of an authority, if they are not those on disk. Blocks.
    pub(super) fn write(&self, source: &CrlSource, text: &[u8]) -> io::Result<()> {
        let name = file_name(source);
        if self.try_read(&name).is_ok_and(|kept| kept == text) {
            return Ok(());
        }
        PrivateDirectory::create(&self.0)?.replace(&name, text).map(drop)
    }
}

/// Returns the name of a file. Two authorities may have one hash, so it has a part of another one.
fn file_name(source: &CrlSource) -> String {
    let digest = Sha256::digest(source.authority.as_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{digest}.r0", source.hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(authority: &str) -> CrlSource {
        let (authority, hash) = (authority.to_owned(), "0123abcd".to_owned());
        CrlSource { authority, hash, addresses: Vec::new() }
    }

    #[test]
    fn lists_are_kept_where_no_other_user_can_write() {
        let directory = std::env::temp_dir().join(format!("scalla-kept-lists-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let kept = KeptLists(directory.clone());
        let (own, other) = (source("/CN=Own"), source("/CN=Other"));
        assert_eq!(kept.read(&own).unwrap(), None);
        kept.write(&own, b"one").unwrap();
        kept.write(&own, b"two").unwrap();
        assert_eq!(kept.read(&own).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(kept.read(&other).unwrap(), None, "another authority of the same hash");
        let file = directory.join(file_name(&own));
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(kept.read(&own).is_err());
        // The next one of the same content replaces a file that cannot be used or that is missing.
        kept.write(&own, b"two").unwrap();
        assert_eq!(kept.read(&own).unwrap().as_deref(), Some(&b"two"[..]));
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::write(&directory, b"").unwrap();
        assert!(kept.write(&own, b"two").is_err());
        std::fs::remove_file(&directory).unwrap();
        kept.write(&own, b"two").unwrap();
        assert_eq!(kept.read(&own).unwrap().as_deref(), Some(&b"two"[..]));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
