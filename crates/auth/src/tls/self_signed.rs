//! A certificate that a server signs itself, for trying out.

use super::TlsError;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::CertificateFiles;

/// The files of a self-signed certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelfSigned {
    /// Certificate and key.
    pub files: CertificateFiles,
}

impl SelfSigned {
    /// Creates a certificate for these names of hosts, and its key, in a directory. Files of an
    /// earlier call are kept, so that clients that trust them continue to.
    ///
    /// # Errors
    /// The files cannot be written, or a name is not the name of a host.
    pub fn open(directory: &Path, names: &[String]) -> Result<Self, TlsError> {
        let files = CertificateFiles {
            certificate: directory.join("self-signed.pem"),
            key: Some(directory.join("self-signed.key")),
        };
        let is_present = |path: &PathBuf| path.exists();
        if is_present(&files.certificate) && files.key.as_ref().is_some_and(is_present) {
            return Ok(Self { files });
        }
        let invalid = |error: rcgen::Error| TlsError::Setting(format!("no self-signed certificate: {error}"));
        let mut params = CertificateParams::new(names).map_err(invalid)?;
        let name = names.first().map_or("localhost", String::as_str);
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        let now = time::OffsetDateTime::now_utc();
        params.not_before = now - time::Duration::hours(1);
        params.not_after = now + time::Duration::days(365);
        let key = KeyPair::generate().map_err(invalid)?;
        let certificate = params.self_signed(&key).map_err(invalid)?;
        if let Some(path) = &files.key {
            write(path, zeroize::Zeroizing::new(key.serialize_pem()).as_bytes(), 0o600)?;
        }
        write(&files.certificate, certificate.pem().as_bytes(), 0o644)?;
        Ok(Self { files })
    }
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), TlsError> {
    let replaced = || -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(content)?;
        file.sync_all()
    };
    replaced().map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}
