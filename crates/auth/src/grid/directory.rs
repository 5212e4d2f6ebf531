//! [`AuthorityStore`]: the files of directories of authorities.
//!
//! `HASH` is the new or the old hash of the name of the authority:
//!
//! | file | contents |
//! |---|---|
//! | `HASH.N` | certificates of the authority, PEM or DER |
//! | `HASH.signing_policy`, `HASH.namespaces` | subjects for which it may sign |
//! | `HASH.r0` | its revocation list, PEM or DER |
//! | `HASH.crl_url` | addresses of its revocation list, for downloads |
//!
//! An authority whose file cannot be used is left out, so that fewer chains are valid. A policy or a
//! revocation list that cannot be used makes all chains of its authority invalid, because without it
//! more of them would be valid.

use super::certificate::{GridCertificate, key_usage};
use super::downloaded_lists::{CrlSource, DownloadedLists, read_addresses};
use super::fault::{ChainFaultReason, GridTrustError};
use super::limits::{DIRECTORIES_BYTES_MAX, FILE_BYTES_MAX, FILES_MAX};
use super::name::DistinguishedName;
use super::namespaces::Namespaces;
use super::path::check_lists;
use super::pem::certificates_of_pem;
use super::revocation::RevocationList;
use super::settings::{AuthorityLevel, CrlLevel, GridTrustSettings};
use super::signing_policy::SigningPolicy;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner, read_trusted};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// The demands on the files.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "add an authority",
    bytes_max: FILE_BYTES_MAX,
};

/// Number of unusable files whose reasons are kept.
const FAULTS_KEPT: usize = 100;

/// A file that can be used, or the reason why it cannot.
type FileContent<T> = Result<T, String>;

/// A certificate of an authority in a directory.
pub(super) struct LocalAuthority {
    pub(super) certificate: GridCertificate,
    /// Whether it may end a chain.
    pub(super) is_root: bool,
}

/// A revocation list of a directory.
pub(super) struct StoredList {
    pub(super) list: RevocationList,
    /// Whether an authority of the directories has signed it.
    pub(super) is_verified: bool,
}

/// The content of directories of authorities.
#[derive(Default)]
pub(super) struct AuthorityStore {
    authorities: HashMap<Vec<u8>, Vec<LocalAuthority>>,
    /// Hashes of the names of files with an authority that can be used.
    hashes: Vec<String>,
    signing_policies: HashMap<String, FileContent<SigningPolicy>>,
    namespaces: HashMap<String, FileContent<Namespaces>>,
    revocation_lists: HashMap<String, FileContent<StoredList>>,
    /// Addresses of revocation lists by the hash of the file name.
    list_addresses: HashMap<String, FileContent<Vec<String>>>,
    downloaded: DownloadedLists,
    bytes: u64,
    unusable: usize,
    /// The reasons why files cannot be used, of the first [`FAULTS_KEPT`] of them.
    faults: Vec<String>,
}

impl AuthorityStore {
    /// Reads the directories. Blocks.
    pub(super) fn read(settings: &GridTrustSettings) -> Result<Self, GridTrustError> {
        let mut store = Self::default();
        for directory in &settings.directories {
            for file in files(directory)? {
                store.add_file(&file, settings.downloads_lists)?;
            }
        }
        for file in &settings.files {
            let certificates = store.content(file, bundle)?;
            store.add_authorities(certificates.unwrap_or_default());
        }
        store.find_roots(settings.authority_level);
        if store.authorities.is_empty() {
            let places = settings.directories.iter().chain(&settings.files);
            let places: Vec<String> = places.map(|one| one.display().to_string()).collect();
            let reason =
                "there is no certificate authority that can be used; install them as HASH.0 (openssl rehash)";
            return Err(GridTrustError::content(Path::new(&places.join(", ")), reason));
        }
        if settings.crl_level > CrlLevel::Ignore {
            let extension = settings.crl_extension.trim_start_matches('.');
            for directory in settings.crl_places() {
                for file in files(directory)? {
                    if file.extension == extension {
                        store.add_revocation_list(&file)?;
                    }
                }
            }
        }
        Ok(store)
    }

    fn add_file(&mut self, file: &HashedName, with_addresses: bool) -> Result<(), GridTrustError> {
        match file.extension.as_str() {
            "crl_url" if with_addresses => {
                let addresses = self.content(&file.path, read_addresses)?;
                self.list_addresses.insert(file.hash.clone(), addresses);
            }
            "signing_policy" => {
                let policy = self.content(&file.path, SigningPolicy::parse)?;
                self.signing_policies.insert(file.hash.clone(), policy);
            }
            "namespaces" => {
                let namespaces = self.content(&file.path, Namespaces::parse)?;
                self.namespaces.insert(file.hash.clone(), namespaces);
            }
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => self.add_authority(file)?,
            _ => {}
        }
        Ok(())
    }

    /// Reads and parses a file. A file that cannot be used is logged and is part of the result.
    fn content<T>(
        &mut self,
        path: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<FileContent<T>, GridTrustError> {
        let content = match read_trusted(path, &TRUST) {
            Ok((text, _)) => {
                self.count(path, &text)?;
                parse(&text).map_err(|reason| GridTrustError::content(path, reason))
            }
            Err(error) => Err(GridTrustError::of_file(path, error)),
        };
        Ok(content.map_err(|error| {
            self.unusable += 1;
            tracing::warn!("a file of an authority cannot be used: {error}");
            let text = error.to_string();
            if self.faults.len() < FAULTS_KEPT {
                self.faults.push(text.clone());
            }
            text
        }))
    }

    fn count(&mut self, path: &Path, text: &Zeroizing<Vec<u8>>) -> Result<(), GridTrustError> {
        self.bytes = self.bytes.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        if self.bytes > DIRECTORIES_BYTES_MAX {
            let reason = format!("the files of authorities are larger than {DIRECTORIES_BYTES_MAX} bytes");
            return Err(GridTrustError::content(path, reason));
        }
        Ok(())
    }

    fn add_authority(&mut self, file: &HashedName) -> Result<(), GridTrustError> {
        let Ok(certificates) = self.content(&file.path, |text| authorities(text, &file.hash))? else {
            return Ok(());
        };
        self.hashes.push(file.hash.clone());
        self.add_authorities(certificates);
        Ok(())
    }

    fn add_authorities(&mut self, certificates: Vec<GridCertificate>) {
        for certificate in certificates {
            let same_name = self.authorities.entry(certificate.subject().key()).or_default();
            if !same_name.iter().any(|known| known.certificate.encoded() == certificate.encoded()) {
                same_name.push(LocalAuthority { certificate, is_root: false });
            }
        }
    }

    /// Finds the authorities that may end chains.
    fn find_roots(&mut self, level: AuthorityLevel) {
        let known: Vec<Vec<u8>> = self.authorities.keys().cloned().collect();
        for authority in self.authorities.values_mut().flatten() {
            let certificate = &authority.certificate;
            let signs_itself = || {
                let key = certificate.key();
                level == AuthorityLevel::NoVerify
                    || key.is_ok_and(|key| certificate.signed().is_of(&key, true))
            };
            authority.is_root = if certificate.is_self_issued() {
                signs_itself()
            } else {
                level != AuthorityLevel::Full && !known.contains(&certificate.issuer().key())
            };
        }
    }

    fn add_revocation_list(&mut self, file: &HashedName) -> Result<(), GridTrustError> {
        let parsed = self.content(&file.path, |text| {
            RevocationList::parse(text).map_err(|reason| format!("the revocation list {reason}"))
        })?;
        let stored = parsed.map(|list| {
            let is_verified =
                self.of_name(list.issuer()).any(|authority| list.is_signed_by(&authority.certificate));
            StoredList { list, is_verified }
        });
        self.revocation_lists.insert(file.hash.clone(), stored);
        Ok(())
    }

    /// Returns the authorities of a name.
    pub(super) fn of_name(&self, name: &DistinguishedName) -> impl Iterator<Item = &LocalAuthority> {
        self.authorities.get(&name.key()).into_iter().flatten()
    }

    pub(super) fn has(&self, hash: &str) -> bool {
        self.hashes.iter().any(|known| known == hash)
    }

    /// Returns the revocation lists in the files of an authority.
    pub(super) fn revocation_lists(
        &self,
        authority: &DistinguishedName,
    ) -> impl Iterator<Item = &FileContent<StoredList>> {
        hashes_of(authority).into_iter().filter_map(|hash| self.revocation_lists.get(&hash))
    }

    /// Returns the revocation lists that were downloaded.
    pub(super) fn downloaded(&self) -> &DownloadedLists {
        &self.downloaded
    }

    /// Returns the certificates of all authorities, one list for each name.
    pub(super) fn authorities(&self) -> impl Iterator<Item = &[LocalAuthority]> {
        self.authorities.values().map(Vec::as_slice)
    }

    /// Returns the addresses of revocation lists in the files of an authority.
    pub(super) fn list_addresses(&self, authority: &DistinguishedName) -> impl Iterator<Item = &str> {
        let of_hash = |hash| self.list_addresses.get(&hash)?.as_ref().ok();
        hashes_of(authority).into_iter().filter_map(of_hash).flatten().map(String::as_str)
    }

    /// Returns an error if a policy of an authority does not allow it to sign for a subject.
    pub(super) fn check_policies(
        &self,
        issuer: &DistinguishedName,
        subject: &DistinguishedName,
    ) -> Result<(), String> {
        // An authority may certify its own new key.
        if issuer == subject {
            return Ok(());
        }
        let (issuer_text, subject_text) = (issuer.text(), subject.text());
        let refused = |kind: &str| format!("the {kind} of {issuer_text:?} does not allow this subject");
        for hash in hashes_of(issuer) {
            if let Some(policy) = self.signing_policies.get(&hash)
                && !policy.as_ref()?.allows(issuer_text, subject_text)
            {
                return Err(refused("signing policy"));
            }
            if let Some(namespaces) = self.namespaces.get(&hash)
                && !namespaces.as_ref()?.allows(issuer_text, subject_text)
            {
                return Err(refused("namespaces file"));
            }
        }
        Ok(())
    }

    /// Returns reasons for attention, in the order of their texts.
    pub(super) fn warnings(
        &self,
        settings: &GridTrustSettings,
        now: SystemTime,
        soon: Duration,
    ) -> Vec<String> {
        let mut warnings = self.faults.clone();
        let sources = if settings.downloads_lists { self.list_sources() } else { Vec::new() };
        for LocalAuthority { certificate, .. } in self.authorities.values().flatten() {
            let name = certificate.subject().text();
            let left = certificate.not_after.duration_since(now).unwrap_or_default();
            if left.is_zero() {
                warnings
                    .push(format!("the certificate of the authority {name} has expired; replace its file"));
            } else if left < soon {
                let days = left.as_secs() / 86_400;
                warnings.push(format!(
                    "the certificate of the authority {name} expires in {days} days; replace its file"
                ));
            }
            if !self.awaits_list(certificate.subject(), &sources) {
                warnings.extend(self.list_warning(certificate, settings.crl_level, now));
            }
        }
        warnings.sort();
        // An authority can have two files, one for each hash of its name.
        warnings.dedup();
        warnings
    }

    /// Reports whether an authority has no list yet and one will be downloaded.
    fn awaits_list(&self, authority: &DistinguishedName, sources: &[CrlSource]) -> bool {
        let has_address =
            |source: &CrlSource| source.authority == authority.text() && !source.addresses.is_empty();
        self.revocation_lists(authority).next().is_none()
            && self.downloaded.of(authority).is_empty()
            && sources.iter().any(has_address)
    }

    /// Returns the warning about the revocation lists of an authority, if the level uses them. Its
    /// certificates are refused for the same reasons as those of clients.
    fn list_warning(&self, authority: &GridCertificate, level: CrlLevel, now: SystemTime) -> Option<String> {
        let subject = authority.subject();
        let is_below = |other: &LocalAuthority| {
            other.certificate.issuer() == subject && !other.certificate.is_self_issued()
        };
        let has_authorities = self.authorities.values().flatten().any(is_below);
        let covers =
            |list: &RevocationList| list.covers_kind(false) || has_authorities && list.covers_kind(true);
        let name = subject.text();
        if let Err(reason) = check_lists(self, (level, now), authority, covers, |_| false) {
            return Some(match reason {
                ChainFaultReason::RevocationList(what) => format!(
                    "the revocation list of the authority {name} {what}, so its certificates are refused; \
                     run fetch-crl, or check the setting of -crl"
                ),
                reason => format!("the authority {name}: {reason}"),
            });
        }
        if self.downloaded.of(subject).iter().any(|list| list.is_current(now)) {
            return None;
        }
        let mut lists = self.revocation_lists(subject).filter_map(|list| list.as_ref().ok());
        let is_stale = level > CrlLevel::Ignore && lists.any(|stored| !stored.list.is_current(now));
        is_stale.then(|| {
            format!("the revocation list of the authority {name} is out of date; fetch the present one")
        })
    }

    /// Returns the numbers of authorities, revocation lists and unusable files.
    pub(super) fn report(&self) -> String {
        let authorities = self.authorities.values().map(Vec::len).sum::<usize>();
        let lists = self.revocation_lists.values().filter(|list| list.is_ok()).count();
        let downloaded = match self.downloaded.len() {
            0 => String::new(),
            number => format!(" and {number} downloaded ones"),
        };
        let unusable = self.unusable;
        format!("{authorities} authorities, {lists} revocation lists{downloaded}, {unusable} unusable files")
    }
}

fn hashes_of(name: &DistinguishedName) -> [String; 2] {
    [name.hash(), name.old_hash()]
}

/// Returns the authorities of a file, all of which must have its hash.
fn authorities(text: &[u8], hash: &str) -> Result<Vec<GridCertificate>, String> {
    let encoded = if text.first() == Some(&super::der::tag::SEQUENCE) {
        vec![text.to_vec()]
    } else {
        certificates_of_pem(text).map_err(|fault| fault.reason.to_string())?
    };
    let mut found = Vec::new();
    for certificate in encoded {
        let certificate = GridCertificate::parse(&certificate).map_err(|reason| reason.to_string())?;
        let extensions = &certificate.extensions;
        if !hashes_of(certificate.subject()).iter().any(|one| one == hash) {
            let right = certificate.subject().hash();
            return Err(format!("the hash of the certificate is {right}; rename the file (openssl rehash)"));
        }
        if !is_authority(&certificate) {
            return Err("the certificate is not one of an authority".to_owned());
        }
        if extensions.has_unknown_critical {
            return Err("the certificate has a critical extension that is not supported".to_owned());
        }
        found.push(certificate);
    }
    Ok(found)
}

fn is_authority(certificate: &GridCertificate) -> bool {
    let extensions = &certificate.extensions;
    extensions.is_authority() && extensions.allows(key_usage::KEY_CERT_SIGN)
}

/// Returns the authorities of a file of any authorities. Those that cannot be used are left out, because
/// the files of systems have some of them.
fn bundle(text: &[u8]) -> Result<Vec<GridCertificate>, String> {
    let mut found = Vec::new();
    for encoded in CertificateDer::pem_slice_iter(text) {
        let encoded = encoded.map_err(|error| format!("not a PEM file: {error}"))?;
        let Ok(certificate) = GridCertificate::parse(&encoded) else { continue };
        if is_authority(&certificate) && !certificate.extensions.has_unknown_critical {
            found.push(certificate);
        }
    }
    Ok(found)
}

/// A file whose name begins with a hash.
struct HashedName {
    path: PathBuf,
    hash: String,
    extension: String,
}

/// Returns the files of a directory whose names begin with a hash, in the order of their names.
fn files(directory: &Path) -> Result<Vec<HashedName>, GridTrustError> {
    let unreadable = |source| GridTrustError::Unreadable { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let Some((hash, extension)) = hashed_name(&path) else { continue };
        if found.len() >= FILES_MAX {
            return Err(GridTrustError::content(directory, format!("more than {FILES_MAX} files")));
        }
        found.push(HashedName { path, hash, extension });
    }
    found.sort_by(|one: &HashedName, other| one.path.cmp(&other.path));
    Ok(found)
}

fn hashed_name(path: &Path) -> Option<(String, String)> {
    let (hash, extension) = path.file_name()?.to_str()?.split_once('.')?;
    let is_hash = hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && !extension.is_empty()).then(|| (hash.to_ascii_lowercase(), extension.to_owned()))
}
