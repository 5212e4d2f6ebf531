//! [`DownloadedLists`]: revocation lists that were downloaded, and the addresses to download from.
//!
//! They are kept beside the lists in files. A downloaded list replaces an older one in a file if both
//! cover the same certificates, and never a newer one. Its signature is verified before it is added,
//! because it may come over a connection that is not encrypted.

use super::certificate::address_in;
use super::directory::AuthorityStore;
use super::limits::{ADDRESS_BYTES_MAX, DOWNLOADED_BYTES_MAX, LIST_ADDRESSES_MAX, LIST_BYTES_MAX};
use super::name::DistinguishedName;
use super::revocation::RevocationList;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// An authority whose revocation list can be downloaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrlSource {
    /// The name of the authority.
    pub authority: String,
    /// The hash of the name.
    pub hash: String,
    /// HTTP and HTTPS addresses. Each has the whole list.
    pub addresses: Vec<String>,
}

/// The effect of a list that was downloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DownloadedList {
    /// The list was not in force before.
    pub is_new: bool,
    /// The time until which the authority makes the next list, if the list has it.
    pub next_update: Option<SystemTime>,
}

/// The downloaded lists by the names of their authorities.
#[derive(Default)]
pub(super) struct DownloadedLists(RwLock<HashMap<Vec<u8>, Arc<RevocationList>>>);

impl DownloadedLists {
    /// Returns the list of an authority.
    pub(super) fn of(&self, authority: &DistinguishedName) -> Option<Arc<RevocationList>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&authority.key()).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn all(&self) -> Vec<Arc<RevocationList>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Adds a list in place of that of its authority.
    fn put(&self, list: Arc<RevocationList>) -> Result<(), String> {
        let mut lists = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let key = list.issuer().key();
        let others = lists.iter().filter(|(known, _)| **known != key);
        let others: usize = others.map(|(_, list)| list.encoded().len()).sum();
        if others + list.encoded().len() > DOWNLOADED_BYTES_MAX {
            return Err(format!("the downloaded lists are larger than {DOWNLOADED_BYTES_MAX} bytes"));
        }
        lists.insert(key, list);
        Ok(())
    }
}

/// Reports whether a downloaded list is used instead of one in a file.
pub(super) fn replaces(downloaded: &RevocationList, in_file: &RevocationList) -> bool {
    downloaded.issuer() == in_file.issuer()
        && downloaded.has_scope_of(in_file)
        && downloaded.compare_age(in_file) != Ordering::Less
}

impl AuthorityStore {
    /// Implements [`GridTrust::list_sources`](super::GridTrust::list_sources).
    pub(super) fn list_sources(&self) -> Vec<CrlSource> {
        // The certificate of an authority names the list of its issuer, which is the list that may
        // revoke this certificate.
        let mut points: HashMap<Vec<u8>, Vec<&str>> = HashMap::new();
        for authority in self.authorities().flatten() {
            let addresses = authority.certificate.extensions.distribution_points.iter();
            let issuer = points.entry(authority.certificate.issuer().key()).or_default();
            issuer.extend(addresses.filter_map(|name| address_in(name)));
        }
        let mut sources = Vec::new();
        for authority in self.authorities().filter_map(<[_]>::first) {
            let name = authority.certificate.subject();
            let of_points = points.get(&name.key()).into_iter().flatten().copied();
            let mut addresses: Vec<String> = Vec::new();
            for address in self.list_addresses(name).chain(of_points) {
                let is_known = addresses.iter().any(|known| known == address);
                if is_usable(address) && !is_known && addresses.len() < LIST_ADDRESSES_MAX {
                    addresses.push(address.to_owned());
                }
            }
            if !addresses.is_empty() {
                sources.push(CrlSource { authority: name.text().to_owned(), hash: name.hash(), addresses });
            }
        }
        sources.sort_by(|one, other| one.hash.cmp(&other.hash));
        sources
    }

    /// Implements [`GridTrust::add_downloaded`](super::GridTrust::add_downloaded).
    pub(super) fn add_downloaded(
        &self,
        source: &CrlSource,
        text: &[u8],
        now: SystemTime,
    ) -> Result<DownloadedList, String> {
        if text.len() > LIST_BYTES_MAX {
            return Err(format!("the list is larger than {LIST_BYTES_MAX} bytes"));
        }
        let list = RevocationList::parse(text).map_err(|reason| format!("the list {reason}"))?;
        if list.issuer().text() != source.authority {
            return Err("the list is one of another authority".to_owned());
        }
        if !self.is_signed(&list) {
            return Err("the list is not signed by the authority".to_owned());
        }
        if list.issued() > now {
            return Err("the list is not valid yet; check the clocks".to_owned());
        }
        let next_update = list.next_update();
        let known = self.downloaded().of(list.issuer()).filter(|known| known.has_scope_of(&list));
        for other in self.comparable_files(&list).chain(known.as_deref()) {
            if other.encoded() == list.encoded() {
                return Ok(DownloadedList { is_new: false, next_update });
            }
            if list.compare_age(other) == Ordering::Less {
                return Err("the list is older than the one in force".to_owned());
            }
        }
        self.downloaded().put(Arc::new(list))?;
        Ok(DownloadedList { is_new: true, next_update })
    }

    /// Takes the lists of an earlier store, except those that an authority no longer signs or that a
    /// newer file replaces.
    pub(super) fn take_downloaded(&self, earlier: &Self) {
        for list in earlier.downloaded().all() {
            let is_older = |other: &RevocationList| list.compare_age(other) == Ordering::Less;
            if !self.comparable_files(&list).any(is_older) && self.is_signed(&list) {
                // The lists were within the limit before.
                let _ = self.downloaded().put(list.clone());
            }
        }
    }

    /// Returns the lists in files that a list replaces if it is newer.
    fn comparable_files<'a>(&'a self, list: &'a RevocationList) -> impl Iterator<Item = &'a RevocationList> {
        let verified = self.revocation_lists(list.issuer()).filter_map(|stored| stored.as_ref().ok());
        let verified = verified.filter(|stored| stored.is_verified).map(|stored| &stored.list);
        verified.filter(|other| other.issuer() == list.issuer() && other.has_scope_of(list))
    }

    fn is_signed(&self, list: &RevocationList) -> bool {
        self.of_name(list.issuer()).any(|authority| list.is_signed_by(&authority.certificate))
    }
}

fn is_usable(address: &str) -> bool {
    let has_scheme = ["http://", "https://"]
        .iter()
        .any(|scheme| address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    has_scheme && address.len() <= ADDRESS_BYTES_MAX && address.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads a file with addresses of revocation lists: separated by blanks, line ends or `;`, with `#`
/// before a comment. Addresses of other schemes are left out.
pub(super) fn read_addresses(text: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the file is not UTF-8 text".to_owned())?;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        // A semicolon may also be part of an address.
        let line = line.replace(";http", " http");
        found.extend(line.split_whitespace().filter(|address| is_usable(address)).map(str::to_owned));
        if found.len() > LIST_ADDRESSES_MAX {
            return Err(format!("the file has more than {LIST_ADDRESSES_MAX} addresses"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
