//! [`GridCredential`]: the certificates and the key of a user, from files of proxies and certificates.

use super::certificate::GridCertificate;
use super::pem;
use super::proxy::{self, ProxyInformation, ProxyRequest};
use super::rsa_keys::RsaSigner;
use super::server_identity::{KEY_TRUST, read_file};
use crate::grid::DistinguishedName;
use crate::random::SystemRng;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner};
use base::Rng;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// The demands on the certificate of a user.
const CERTIFICATE_TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "replace the certificate",
    bytes_max: 1 << 20,
};

/// Returns the proxy file of the user of this process, if no other is named.
#[must_use]
pub fn default_proxy() -> PathBuf {
    PathBuf::from(format!("/tmp/x509up_u{}", rustix::process::getuid().as_raw()))
}

/// Certificates, of which the first one belongs to the key, and the key.
#[derive(Clone, Debug)]
pub struct GridCredential {
    chain: Vec<GridCertificate>,
    pub(super) signer: RsaSigner,
}

impl GridCredential {
    /// Reads a file with a proxy, its key, and the certificates above it. Blocks.
    ///
    /// # Errors
    /// The file and the reason why it cannot be used.
    pub fn read_proxy(path: &Path) -> Result<Self, String> {
        let text = read_file(path, &KEY_TRUST)?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the files of a certificate and its key. Blocks.
    ///
    /// # Errors
    /// The file and the reason why it cannot be used.
    pub fn read_pair(certificate: &Path, key: &Path) -> Result<Self, String> {
        let text = read_file(certificate, &CERTIFICATE_TRUST)?;
        let chain = GridCertificate::chain_of_pem(&text)
            .map_err(|error| format!("{}: {error}", certificate.display()))?;
        let text = read_file(key, &KEY_TRUST)?;
        let signer = RsaSigner::from_pem(&text).map_err(|error| format!("{}: {error}", key.display()))?;
        Self::new(chain, signer).map_err(|error| format!("{}: {error}", certificate.display()))
    }

    /// Parses the text of certificates and a key.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::new(GridCertificate::chain_of_pem(text)?, RsaSigner::from_pem(text)?)
    }

    pub(super) fn new(chain: Vec<GridCertificate>, signer: RsaSigner) -> Result<Self, String> {
        let leaf = chain.first().ok_or("no certificate found")?;
        if leaf.public_key()? != signer.public_key()? {
            return Err("the key is not that of the first certificate".to_owned());
        }
        Ok(Self { chain, signer })
    }

    /// Returns the certificates that are sent: without those of authorities.
    pub(super) fn sent_chain(&self) -> impl Iterator<Item = &GridCertificate> {
        self.chain.iter().filter(|certificate| !certificate.is_authority())
    }

    /// Returns the certificate of the user, which an authority has issued.
    pub(super) fn end_entity(&self) -> Option<&GridCertificate> {
        self.sent_chain().last()
    }

    /// Returns the certificate of the key.
    fn leaf(&self) -> Result<&GridCertificate, String> {
        self.chain.first().ok_or_else(|| "no certificate found".to_owned())
    }

    /// Reports whether it is a proxy.
    #[must_use]
    pub fn is_proxy(&self) -> bool {
        self.sent_chain().count() > 1
    }

    /// Returns the end of the validity of the whole chain.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        let ends = self.sent_chain().map(GridCertificate::not_after);
        ends.min().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns the size of the key in bits.
    #[must_use]
    pub fn bits(&self) -> usize {
        self.signer.bits()
    }

    /// Returns the maximum number of proxies below this one; `None` for any number.
    #[must_use]
    pub fn path_length(&self) -> Option<u32> {
        self.chain.first().and_then(ProxyInformation::of).and_then(|information| information.path_length)
    }

    /// Returns the subject of the certificate of the key: `/C=.../CN=...`.
    #[must_use]
    pub fn subject(&self) -> String {
        self.leaf().and_then(GridCertificate::subject).map(|name| name_text(&name)).unwrap_or_default()
    }

    /// Returns the issuer of the certificate of the key.
    #[must_use]
    pub fn issuer(&self) -> String {
        self.leaf().and_then(GridCertificate::issuer).map(|name| name_text(&name)).unwrap_or_default()
    }

    /// Reports whether it is a proxy with fewer rights than its issuer.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.chain.first().and_then(ProxyInformation::of).is_some_and(|information| information.is_limited)
    }

    /// Returns the certificates as they are encoded, the one of the key first.
    #[must_use]
    pub fn certificates(&self) -> Vec<Vec<u8>> {
        self.chain.iter().map(|certificate| certificate.der.clone()).collect()
    }

    /// Checks that all certificates are valid now.
    ///
    /// # Errors
    /// The reason.
    pub fn check_time(&self, now: SystemTime) -> Result<(), String> {
        for certificate in self.sent_chain() {
            let what = if certificate.is_proxy() { "proxy" } else { "certificate" };
            if let Ok(since) = now.duration_since(certificate.not_after()) {
                return Err(format!("the {what} expired {} ago", span(since)));
            }
            if let Ok(left) = certificate.not_before().duration_since(now)
                && !left.is_zero()
            {
                return Err(format!(
                    "the {what} is not valid until {} from now; check the clock",
                    span(left)
                ));
            }
        }
        Ok(())
    }

    /// Issues a proxy with a new key.
    ///
    /// # Errors
    /// The reason.
    pub fn issue_proxy(&self, request: ProxyRequest, now: SystemTime) -> Result<Self, String> {
        let signer = RsaSigner::generate(request.bits.max(proxy::PROXY_BITS_MIN))?;
        let issued = proxy::issue(self.leaf()?, &self.signer, &signer.public_key()?, request, now)?;
        let chain = std::iter::once(issued).chain(self.sent_chain().cloned()).collect();
        Self::new(chain, signer)
    }

    /// Signs the request of a server for a proxy below this one.
    pub(super) fn sign_request(
        &self,
        request: &[u8],
        properties: ProxyRequest,
        now: SystemTime,
    ) -> Result<Vec<u8>, String> {
        let properties = ProxyRequest { path_length: None, ..properties };
        let signed = proxy::sign_request(self.leaf()?, &self.signer, request, properties, now)?;
        Ok(signed.der)
    }

    /// Returns the content of a proxy file.
    ///
    /// # Errors
    /// The key cannot be encoded.
    pub fn to_text(&self) -> Result<Zeroizing<String>, String> {
        // The text of a certificate has about 4/3 of its size; growing would leave copies of the key.
        let bytes: usize = self.chain.iter().map(|certificate| 2 * certificate.der.len() + 128).sum();
        let mut text = Zeroizing::new(String::with_capacity(bytes + 16_384));
        pem::append(pem::CERTIFICATE, &self.leaf()?.der, &mut text);
        text.push_str(&self.signer.to_pem()?);
        self.chain.iter().skip(1).for_each(|one| pem::append(pem::CERTIFICATE, &one.der, &mut text));
        Ok(text)
    }

    /// Writes the proxy file, which only its owner may read. It replaces an earlier one as a whole.
    /// The file beside it, which is renamed, has a random name, because others can create files of
    /// names that they guess in `/tmp`.
    ///
    /// # Errors
    /// The error of the system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let text = self.to_text().map_err(io::Error::other)?;
        let mut random = [0; 8];
        SystemRng.fill(&mut random);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{:016x}", u64::from_ne_bytes(random)));
        let beside = PathBuf::from(name);
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&beside, path)
        };
        let written = write();
        if written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
            let _ = fs::remove_file(&beside);
        }
        written
    }
}

/// Returns the text of an encoded name.
fn name_text(encoded: &[u8]) -> String {
    DistinguishedName::parse(encoded).map_or_else(|| "malformed".to_owned(), |name| name.text().to_owned())
}

/// Returns a time span as text.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min", seconds / 60),
        3600..=86_399 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gsi::vectors::{load, text};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// In `/tmp`, others can create files with names that they guess, and links to files of the user.
    #[test]
    fn a_file_of_another_name_does_not_prevent_a_proxy() {
        let proxy = GridCredential::parse(text(&load("gsi.json")["keys"], "user_proxy_pem")).unwrap();
        let directory = std::env::temp_dir().join(format!("auth-proxy-file-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (path, victim) = (directory.join("proxy"), directory.join("victim"));
        fs::write(&victim, "untouched").unwrap();
        // The name that a process of this id would use, and the name of the proxy itself.
        symlink(&victim, directory.join(format!("proxy.{}", std::process::id()))).unwrap();
        symlink(&victim, &path).unwrap();
        proxy.save(&path).unwrap();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o7777 == 0o600);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(GridCredential::read_proxy(&path).unwrap().certificates(), proxy.certificates());
        // After a failure nothing with the key is left.
        let before = fs::read_dir(&directory).unwrap().count();
        fs::create_dir(directory.join("used")).unwrap();
        fs::write(directory.join("used/file"), "").unwrap();
        assert!(proxy.save(&directory.join("used")).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), before + 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
