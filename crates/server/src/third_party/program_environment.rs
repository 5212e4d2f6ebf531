//! The environment of a copy program: the authorities that it trusts, and the credentials that its
//! client has delegated.
//!
//! The credentials are in a private file that ends with the copy. The server locks the file, so that
//! the next start can distinguish files left by a crash from those of other servers. The program finds
//! no other credentials of `gsi` and uses no other protocol, because the user of the server can have
//! credentials that are not for clients.

use auth::SystemRng;
use auth::gsi::{DelegatedProxy, GSI};
use auth::tls::TrustAnchors;
use base::{Error, ErrorKind, Rng as _, errno_text};
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use storage::PrivateDirectory;
use tokio::process::Command;

/// Variables that name the credentials for all programs. Without them a program would look for those of
/// the server's user at the usual places.
const PROGRAM_CREDENTIALS: [&str; 3] = ["X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY"];

/// Variables by which programs would find other credentials of gsi.
const OTHER_CREDENTIALS: [&str; 5] =
    ["XrdSecCREDS", "XrdSecGSIUSERPROXY", "XrdSecGSIUSERCERT", "XrdSecGSIUSERKEY", "XrdSecGSIDELEGPROXY"];

/// Beginning of the names of files with credentials, before [`RANDOM_DIGITS`].
const NAME_PREFIX: &str = "tpc-";
/// Number of hexadecimal digits in these names.
const RANDOM_DIGITS: usize = 32;
/// Number of attempts to create a file while a starting server removes those that are not locked.
const ATTEMPTS: usize = 10;

/// Sources of the environment of programs.
#[derive(Clone)]
pub(crate) struct ProgramEnvironment {
    /// Authorities; `None` for those of the environment of the server.
    pub(crate) trusted: Option<TrustAnchors>,
    /// The variable with the file of delegated credentials.
    pub(crate) variable: Option<String>,
    /// The directory of these files.
    pub(crate) directory: PathBuf,
    /// Ids of the protocols by which clients log in, in the order of the server.
    pub(crate) login_protocols: Vec<String>,
}

impl ProgramEnvironment {
    /// Removes the files of credentials that a crash has left. Blocks.
    pub(crate) fn remove_leftovers(&self) {
        if self.variable.is_some() {
            remove_leftovers(&self.directory);
        }
    }

    /// Describes the logins of the server in the environment of a program, as XRootD does.
    fn describe_server(&self, command: &mut Command) {
        let protocols: String = self.login_protocols.iter().map(|id| format!(":{id}")).collect();
        let delegates = self.variable.is_some().then(|| GSI.to_owned());
        let protocols = Some(protocols).filter(|protocols| !protocols.is_empty());
        for (name, value) in [("XRDSECPROTOCOLS", protocols), ("XRDTPCDLG", delegates)] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

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
        self.describe_server(command);
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
        for name in PROGRAM_CREDENTIALS {
            command.env(name, file.path());
        }
        command.env("XrdSecPROTOCOL", "gsi").env(variable, file.path());
        Ok(Some(file))
    }
}

/// Removes the files of credentials that crashed servers have left, which nobody locks. Blocks. A
/// failure leaves them, and is logged.
fn remove_leftovers(path: &Path) {
    let directory = match PrivateDirectory::open(path) {
        Ok(directory) => directory,
        // The directory is created for the first copy, which reports other failures, too.
        Err(_) => return,
    };
    for name in directory.names().unwrap_or_default() {
        let Some(name) = name.to_str().filter(|name| is_name_of_credentials(name)) else { continue };
        let is_unused = directory.open_file(name).is_ok_and(|file| file.try_lock().is_ok());
        if !is_unused {
            continue;
        }
        let shown = path.join(name);
        match directory.remove(name) {
            Ok(()) => tracing::info!("removed {}, credentials of a copy that a crash ended", shown.display()),
            Err(error) => warn_of_remaining(&shown, &error),
        }
    }
}

fn is_name_of_credentials(name: &str) -> bool {
    let digits = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
    digits.len() == RANDOM_DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn warn_of_remaining(path: &Path, error: &io::Error) {
    let (shown, reason) = (path.display(), errno_text(error));
    tracing::warn!("the delegated credentials {shown} are not removed: {reason}; remove them");
}

/// A private file with credentials. It is removed on drop.
pub(super) struct CredentialFile {
    directory: PrivateDirectory,
    name: String,
    /// Locked as long as the file is in use.
    file: File,
}

impl CredentialFile {
    fn create(directory: &Path, content: &[u8]) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let directory = PrivateDirectory::create(directory)?;
            let mut random = [0; RANDOM_DIGITS / 2];
            SystemRng.fill(&mut random);
            let name = format!("{NAME_PREFIX}{:032x}", u128::from_ne_bytes(random));
            let file = directory.create_file(&name)?;
            let mut created = Self { directory, name, file };
            match created.file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Before it was locked, a starting server may have removed it.
            if created.file.metadata()?.nlink() > 0 {
                created.file.write_all(content)?;
                return Ok(created);
            }
        }
        Err(io::Error::from(io::ErrorKind::WouldBlock))
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }
}

impl Drop for CredentialFile {
    fn drop(&mut self) {
        if let Err(error) = self.directory.remove(&self.name) {
            warn_of_remaining(&self.path(), &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_removes_the_files_that_a_crash_has_left() {
        let top = std::env::temp_dir().join(format!("scalla-tpc-leftovers-{}", std::process::id()));
        remove_leftovers(&top);
        assert!(!top.exists());
        let used = CredentialFile::create(&top, b"used").unwrap();
        let left = top.join(format!("{NAME_PREFIX}{}", "0".repeat(RANDOM_DIGITS)));
        let others = [top.join("tpc-0"), top.join("other")];
        for path in others.iter().chain([&left]) {
            drop(
                PrivateDirectory::open(&top)
                    .unwrap()
                    .create_file(path.file_name().unwrap().to_str().unwrap()),
            );
        }
        remove_leftovers(&top);
        assert!(used.path().exists() && !left.exists() && others.iter().all(|path| path.exists()));
        std::fs::remove_dir_all(top).unwrap();
    }

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
