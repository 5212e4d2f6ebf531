//! The environment of a copy program: the authorities that it trusts, and the credentials that its
//! client has delegated.
//!
//! The credentials are in a private file that ends with the copy. The program finds no other ones of
//! `gsi`, and uses no other protocol, because the user of the server can have credentials that are not
//! for clients.

use auth::SystemRng;
use auth::gsi::DelegatedProxy;
use auth::tls::TrustAnchors;
use base::{Error, ErrorKind, Rng as _, errno_text};
use std::io::{self, Write as _};
use std::path::PathBuf;
use storage::PrivateDirectory;
use tokio::process::Command;

/// Variables by which programs would find other credentials of gsi.
const OTHER_CREDENTIALS: [&str; 8] = [
    "XrdSecCREDS",
    "XrdSecGSIUSERPROXY",
    "XrdSecGSIUSERCERT",
    "XrdSecGSIUSERKEY",
    "X509_USER_PROXY",
    "X509_USER_CERT",
    "X509_USER_KEY",
    "XrdSecGSIDELEGPROXY",
];

/// Sources of the environment of programs.
#[derive(Clone)]
pub(crate) struct ProgramEnvironment {
    /// Authorities; `None` for those of the environment of the server.
    pub(crate) trusted: Option<TrustAnchors>,
    /// The variable with the file of delegated credentials.
    pub(crate) variable: Option<String>,
    /// The directory of these files.
    pub(crate) directory: PathBuf,
}

impl ProgramEnvironment {
    /// Names the authorities, as XRootD does, and the credentials in the environment of a program. The
    /// file with the credentials exists as long as the returned value. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn apply(
        &self,
        command: &mut Command,
        credentials: Option<&DelegatedProxy>,
    ) -> Result<Option<CredentialFile>, Error> {
        if let Some(trusted) = &self.trusted {
            for (name, place) in [("X509_CERT_DIR", &trusted.directory), ("X509_CERT_FILE", &trusted.file)] {
                match place {
                    Some(place) => command.env(name, place),
                    None => command.env_remove(name),
                };
            }
        }
        let (Some(variable), Some(proxy)) = (&self.variable, credentials) else { return Ok(None) };
        let file = CredentialFile::create(&self.directory, proxy.text().expose()).map_err(|error| {
            let (directory, reason) = (self.directory.display(), errno_text(&error));
            tracing::warn!(
                "delegated credentials cannot be written below {directory} (ofs.tpc fcpath): {reason}"
            );
            Error::new(ErrorKind::FsError, "the delegated credentials cannot be stored for the copy program")
        })?;
        for name in OTHER_CREDENTIALS {
            command.env_remove(name);
        }
        command.env("XrdSecPROTOCOL", "gsi").env(variable, file.path());
        Ok(Some(file))
    }
}

/// A private file with credentials. It is removed on drop.
pub(super) struct CredentialFile {
    directory: PrivateDirectory,
    name: String,
}

impl CredentialFile {
    fn create(directory: &std::path::Path, content: &[u8]) -> io::Result<Self> {
        let directory = PrivateDirectory::create(directory)?;
        let mut random = [0; 16];
        SystemRng.fill(&mut random);
        let file = Self { directory, name: format!("tpc-{:032x}", u128::from_ne_bytes(random)) };
        file.directory.create_file(&file.name)?.write_all(content)?;
        Ok(file)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }
}

impl Drop for CredentialFile {
    fn drop(&mut self) {
        if let Err(error) = self.directory.remove(&self.name) {
            let (path, reason) = (self.path(), errno_text(&error));
            tracing::warn!(
                "the delegated credentials {} are not removed: {reason}; remove them",
                path.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_file_of_credentials_is_private_and_ends_with_its_copy() {
        let top = std::env::temp_dir().join(format!("scalla-tpc-credentials-{}", std::process::id()));
        let directory = top.join(".ofs/.tpccreds");
        let (one, other) =
            (CredentialFile::create(&directory, b"1"), CredentialFile::create(&directory, b"2"));
        let (one, other) = (one.unwrap(), other.unwrap());
        let metadata = std::fs::metadata(one.path()).unwrap();
        assert_eq!(
            (metadata.mode() & 0o7777, std::fs::metadata(&directory).unwrap().mode() & 0o7777),
            (0o600, 0o700)
        );
        assert_eq!(std::fs::read(one.path()).unwrap(), b"1");
        drop(one);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert_eq!(std::fs::read(other.path()).unwrap(), b"2");
        drop(other);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir_all(top).unwrap();
    }
}
