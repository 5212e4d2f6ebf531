//! A certificate that a server signs itself, for trying out.

use super::certificate::{KEY_TRUST, read_file};
use super::{CertificateFiles, ServerCertificate, TlsError, TlsServerOptions};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// The time for which a self-signed certificate is valid.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The time before its end at which a self-signed certificate is renewed. It is short, because
/// clients may trust only the very certificate that was copied to them.
const RENEWAL: Duration = Duration::from_secs(2 * 24 * 3600);

/// A self-signed certificate and its key in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelfSigned {
    /// Certificate and key.
    pub files: CertificateFiles,
}

impl SelfSigned {
    fn of_directory(directory: &Path) -> Self {
        let (certificate, key) = (directory.join("self-signed.pem"), directory.join("self-signed.key"));
        Self { files: CertificateFiles { certificate, key: Some(key) } }
    }

    /// Creates a certificate for these names of hosts, and its key, in a directory. Files of an
    /// earlier call are kept, so that clients that trust them continue to, and renewed if necessary.
    ///
    /// # Errors
    /// The files cannot be written, or a name is not the name of a host.
    pub fn open(directory: &Path, names: &[String]) -> Result<Self, TlsError> {
        let this = Self::of_directory(directory);
        let is_present = |path: &PathBuf| path.exists();
        if !is_present(&this.files.certificate) || !this.files.key.as_ref().is_some_and(is_present) {
            return Self::create(directory, names, SystemTime::now());
        }
        // Files that cannot be read are reported by the start of the server.
        if let Ok(present) = ServerCertificate::read(&this.files, &TlsServerOptions::default()) {
            Self::renew_if_due(&this.files, &present, SystemTime::now())?;
        }
        Ok(this)
    }

    /// Creates a certificate that is valid for a year from `begin`, and its key.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn create(directory: &Path, names: &[String], begin: SystemTime) -> Result<Self, TlsError> {
        let this = Self::of_directory(directory);
        let key = KeyPair::generate().map_err(invalid)?;
        if let Some(path) = &this.files.key {
            write(path, Zeroizing::new(key.serialize_pem()).as_bytes(), 0o600)?;
        }
        write(&this.files.certificate, made(&key, names, begin)?.as_bytes(), 0o644)?;
        Ok(this)
    }

    /// Replaces a self-signed certificate that expires in less than two days, or begins only after
    /// `now` because the clock was ahead. The key stays, so clients of ours that trust the earlier
    /// certificate accept the new one until the earlier one expires. Blocks.
    ///
    /// # Errors
    /// The key cannot be read, or the certificate cannot be written.
    pub fn renew_if_due(
        files: &CertificateFiles,
        present: &ServerCertificate,
        now: SystemTime,
    ) -> Result<(), TlsError> {
        if present.left(now) > RENEWAL && !present.is_early(now) {
            return Ok(());
        }
        let path = files.key.as_deref().unwrap_or(&files.certificate);
        let (text, _) = read_file(path, &KEY_TRUST)?;
        let text = std::str::from_utf8(&text).map_err(|_| TlsError::content(path, "not a PEM file"))?;
        let key = KeyPair::from_pem(text)
            .map_err(|error| TlsError::content(path, format!("the key cannot be used: {error}")))?;
        write(&files.certificate, made(&key, present.names(), now)?.as_bytes(), 0o644)
    }
}

fn invalid(error: rcgen::Error) -> TlsError {
    TlsError::Setting(format!("no self-signed certificate: {error}"))
}

/// Returns a certificate in PEM.
fn made(key: &KeyPair, names: &[String], begin: SystemTime) -> Result<String, TlsError> {
    let mut params = CertificateParams::new(names).map_err(invalid)?;
    let name = names.first().map_or("localhost", String::as_str);
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    let begin = time::OffsetDateTime::from(begin);
    params.not_before = begin - time::Duration::hours(1);
    params.not_after = begin + VALIDITY;
    Ok(params.self_signed(key).map_err(invalid)?.pem())
}

/// Replaces a file at once, so that no reader finds part of it.
fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), TlsError> {
    let new = path.with_extension("new");
    let replaced = || -> io::Result<()> {
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    replaced().map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}
