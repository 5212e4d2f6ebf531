//! [`VomsDirectory`]: the signers of attributes that are trusted, by a directory of files.
//!
//! | file | contents |
//! |---|---|
//! | `VO/HOST.lsc` | names of the signer of the server HOST, of its issuer, and so on, a name per line |
//! | `VO/NAME.pem` | certificate of a signer |
//!
//! A file that cannot be used is left out and logged, so that fewer attributes are trusted. So is an
//! organization whose directory others could add or exchange.

use super::certificate::GridCertificate;
use super::fault::GridTrustError;
use super::map::usual_name;
use super::name::DistinguishedName;
use super::pem::certificates_of_pem;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner, check_place, read_trusted};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The default directory.
pub const VOMS_DIRECTORY: &str = "/etc/grid-security/vomsdir";

/// Maximum number of organizations, and of files of one.
const ENTRIES_MAX: usize = 1_000;
/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of names in a list.
const NAMES_MAX: usize = 16;

/// The demands on the files.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "add a server of a virtual organization",
    bytes_max: FILE_BYTES_MAX,
};

/// The signers of an organization.
#[derive(Default)]
pub(super) struct OrganizationSigners {
    /// Lists of names by the host of the server. A file has several lists if several are valid.
    lists: HashMap<String, Vec<NameList>>,
    certificates: Vec<GridCertificate>,
}

/// The names of a signer and of the authorities above it.
struct NameList(Vec<String>);

/// A directory of signers, which can be read again.
pub struct VomsDirectory {
    path: PathBuf,
    content: RwLock<Arc<HashMap<String, OrganizationSigners>>>,
}

impl VomsDirectory {
    /// Reads the directory. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> Result<Self, GridTrustError> {
        Ok(Self { path: path.to_owned(), content: RwLock::new(Arc::new(read(path)?)) })
    }

    /// Reads the directory again. The earlier content stays in force after an error. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn refresh(&self) -> Result<(), GridTrustError> {
        let content = Arc::new(read(&self.path)?);
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = content;
        Ok(())
    }

    pub(super) fn content(&self) -> Arc<HashMap<String, OrganizationSigners>> {
        self.content.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl OrganizationSigners {
    /// Returns the certificates of signers with this name.
    pub(super) fn of_name(&self, name: &DistinguishedName) -> impl Iterator<Item = &GridCertificate> {
        self.certificates.iter().filter(move |one| one.subject() == name)
    }

    /// Reports whether a signer and the names above it, up to its root, are in a list of a host, or
    /// whether its certificate is there.
    pub(super) fn trusts(&self, host: &str, signer: &GridCertificate, names: &[&DistinguishedName]) -> bool {
        let is_listed = |list: &NameList| {
            list.0.len() <= names.len() && list.0.iter().zip(names).all(|(one, name)| one == name.text())
        };
        self.certificates.iter().any(|one| one.encoded() == signer.encoded())
            || self.lists.get(host).is_some_and(|lists| lists.iter().any(is_listed))
    }

    /// Reports whether a list of a host begins with this name, or a certificate has it.
    pub(super) fn may_trust(&self, host: &str, signer: &DistinguishedName) -> bool {
        let begins = |list: &NameList| list.0.first().is_some_and(|name| name == signer.text());
        self.of_name(signer).next().is_some()
            || self.lists.get(host).is_some_and(|lists| lists.iter().any(begins))
    }

    fn add(&mut self, path: &Path) -> Result<(), String> {
        let (Some(stem), Some(extension)) = (path.file_stem(), path.extension()) else { return Ok(()) };
        if extension != "lsc" && extension != "pem" {
            return Ok(());
        }
        let (content, _) =
            read_trusted(path, &TRUST).map_err(|error| GridTrustError::of_file(path, error).to_string())?;
        if extension == "pem" {
            let encoded = certificates_of_pem(&content).map_err(|fault| fault.reason.to_string())?;
            let parsed = encoded.iter().map(|one| GridCertificate::parse(one));
            let parsed: Vec<_> = parsed.collect::<Result<_, _>>().map_err(|reason| reason.to_string())?;
            self.certificates.extend(parsed);
            return Ok(());
        }
        let text = std::str::from_utf8(&content).map_err(|_| "it is not UTF-8")?;
        let lists = name_lists(text).ok_or("a list has not the names of the signer and of its issuer")?;
        self.lists.insert(stem.to_string_lossy().to_ascii_lowercase(), lists);
        Ok(())
    }
}

/// Returns the names in a file `HOST.lsc`: lists of a signer, its issuer and so on. `None` if one of them
/// is malformed.
#[must_use]
pub fn signer_names(text: &str) -> Option<Vec<Vec<String>>> {
    Some(name_lists(text)?.into_iter().map(|list| list.0).collect())
}

/// Parses lists, which lines of dashes separate; `None` if one of them is malformed.
fn name_lists(text: &str) -> Option<Vec<NameList>> {
    let mut lists = vec![NameList(Vec::new())];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('-') {
            lists.push(NameList(Vec::new()));
            continue;
        }
        let list = lists.last_mut()?;
        if !line.starts_with('/') || list.0.len() >= NAMES_MAX {
            return None;
        }
        list.0.push(usual_name(line));
    }
    lists.retain(|list| !list.0.is_empty());
    let is_whole = |list: &NameList| list.0.len() >= 2;
    (!lists.is_empty() && lists.iter().all(is_whole)).then_some(lists)
}

fn read(directory: &Path) -> Result<HashMap<String, OrganizationSigners>, GridTrustError> {
    let mut found = HashMap::new();
    for path in entries(directory)? {
        let Some(organization) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if !path.is_dir() {
            continue;
        }
        if let Err(error) = check_place(&path, &TRUST) {
            tracing::warn!("VOMS: {}", GridTrustError::of_file(&path, error));
            continue;
        }
        let mut signers = OrganizationSigners::default();
        for file in entries(&path)? {
            if let Err(reason) = signers.add(&file) {
                tracing::warn!("VOMS: {} is not used: {reason}", file.display());
            }
        }
        found.insert(organization.to_owned(), signers);
    }
    Ok(found)
}

/// Returns the entries of a directory in the order of their names.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, GridTrustError> {
    let unreadable = |source| GridTrustError::Unreadable { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        if found.len() >= ENTRIES_MAX {
            return Err(GridTrustError::content(directory, format!("more than {ENTRIES_MAX} entries")));
        }
        found.push(entry.map_err(unreadable)?.path());
    }
    found.sort();
    Ok(found)
}
