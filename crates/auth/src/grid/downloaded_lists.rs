//! [`DownloadedLists`]: revocation lists that were downloaded, and the addresses to download from.
//!
//! They are kept beside the lists in files. A downloaded list replaces an older one in a file if both
//! cover the same certificates, and never a newer one. Lists of other certificates of the same authority
//! are in force beside it. Signatures are verified before lists are added, because lists may come over
//! connections that are not encrypted.

use super::certificate::address_in;
use super::der::DerReader;
use super::directory::AuthorityStore;
use super::limits::{
    ADDRESS_BYTES_MAX, DOWNLOADED_BYTES_MAX, LIST_ADDRESSES_MAX, LIST_BYTES_MAX, LISTS_OF_AUTHORITY_MAX,
};
use super::name::DistinguishedName;
use super::revocation::RevocationList;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// An authority, and the places of its revocation lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrlSource {
    /// The name of the authority.
    pub authority: String,
    /// The hash of the name.
    pub hash: String,
    /// HTTP and HTTPS addresses.
    pub addresses: Vec<String>,
}

/// The effect of a list that was downloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DownloadedList {
    /// The list was not in force before.
    pub is_new: bool,
    /// The time until which the authority makes the next list, if the list has it.
    pub next_update: Option<SystemTime>,
    /// The list covers all certificates of the authority.
    pub is_whole: bool,
}

/// The reason why a downloaded list is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListRefusal {
    /// It is too large.
    #[error("the list is larger than {LIST_BYTES_MAX} bytes")]
    Size,
    /// It is not a list that is supported.
    #[error("the list {0}")]
    Content(&'static str),
    /// Its issuer is another authority.
    #[error("the list is one of another authority")]
    Issuer,
    /// Its signature is not that of the authority.
    #[error("the list is not signed by the authority")]
    Signature,
    /// It was issued in the future.
    #[error("the list is not valid yet; check the clocks")]
    NotValidYet,
    /// A newer one of the same certificates is in force.
    #[error("the list is older than the one in force")]
    Older,
    /// There are too many lists.
    #[error("the downloaded lists exceed a limit: {0}")]
    Limit(&'static str),
}

/// A list that was downloaded.
#[derive(Clone)]
struct StoredDownload {
    list: Arc<RevocationList>,
    /// The directory has the authority. Lists of authorities that are missing in it, perhaps only while
    /// files are replaced, are not used until they return.
    is_signed: bool,
}

/// The downloaded lists by the names of their authorities. Those of one authority differ in the
/// certificates that they cover.
#[derive(Default)]
pub(super) struct DownloadedLists(RwLock<HashMap<Vec<u8>, Vec<StoredDownload>>>);

impl DownloadedLists {
    /// Returns the lists of an authority that are in force.
    pub(super) fn of(&self, authority: &DistinguishedName) -> Vec<Arc<RevocationList>> {
        let lists = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let lists = lists.get(&authority.key()).into_iter().flatten();
        lists.filter(|stored| stored.is_signed).map(|stored| stored.list.clone()).collect()
    }

    /// Returns the number of lists in force.
    pub(super) fn len(&self) -> usize {
        self.all().iter().filter(|stored| stored.is_signed).count()
    }

    /// Returns the lists of an authority that are in force, one after the other.
    pub(super) fn text_of(&self, source: &CrlSource) -> Vec<u8> {
        let is_own = |one: &&StoredDownload| one.is_signed && one.list.issuer().text() == source.authority;
        let all = self.all();
        let lists: Vec<&[u8]> = all.iter().filter(is_own).map(|stored| stored.list.encoded()).collect();
        lists.concat()
    }

    fn all(&self) -> Vec<StoredDownload> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect()
    }

    /// Adds a list in place of that of the same certificates.
    fn put(&self, new: StoredDownload) -> Result<(), ListRefusal> {
        let mut lists = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_replaced = |stored: &StoredDownload| {
            stored.list.issuer() == new.list.issuer() && stored.list.has_scope_of(&new.list)
        };
        let others = lists.values().flatten().filter(|stored| !is_replaced(stored));
        let others: usize = others.map(|stored| stored.list.encoded().len()).sum();
        if others + new.list.encoded().len() > DOWNLOADED_BYTES_MAX {
            return Err(ListRefusal::Limit("all together have at most 256 MiB"));
        }
        let of_authority = lists.entry(new.list.issuer().key()).or_default();
        if let Some(stored) = of_authority.iter_mut().find(|stored| is_replaced(stored)) {
            *stored = new;
        } else if of_authority.len() < LISTS_OF_AUTHORITY_MAX {
            of_authority.push(new);
        } else {
            // The removal of another one could bring an older one of its certificates back.
            return Err(ListRefusal::Limit("an authority has at most 4 lists of different scopes"));
        }
        Ok(())
    }
}

/// Splits lists that follow each other.
pub(super) fn split_lists(text: &[u8]) -> Result<Vec<&[u8]>, ListRefusal> {
    let (mut lists, mut rest) = (Vec::new(), DerReader::new(text));
    while !rest.is_empty() && lists.len() < LISTS_OF_AUTHORITY_MAX {
        lists.push(rest.next().map_err(|_| ListRefusal::Content("is malformed"))?.whole);
    }
    Ok(lists)
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
        // The order must not change from one refresh to the next.
        points.values_mut().for_each(|addresses| addresses.sort_unstable());
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
            sources.push(CrlSource { authority: name.text().to_owned(), hash: name.hash(), addresses });
        }
        sources.sort_by(|one, other| one.authority.cmp(&other.authority));
        sources
    }

    /// Implements [`GridTrust::add_downloaded`](super::GridTrust::add_downloaded).
    pub(super) fn add_downloaded(
        &self,
        source: &CrlSource,
        text: &[u8],
        now: SystemTime,
    ) -> Result<DownloadedList, ListRefusal> {
        if text.len() > LIST_BYTES_MAX {
            return Err(ListRefusal::Size);
        }
        let list = RevocationList::parse(text).map_err(ListRefusal::Content)?;
        if list.issuer().text() != source.authority {
            return Err(ListRefusal::Issuer);
        }
        if !self.is_signed(&list) {
            return Err(ListRefusal::Signature);
        }
        if list.issued() > now {
            return Err(ListRefusal::NotValidYet);
        }
        let (next_update, is_whole) = (list.next_update(), list.is_whole());
        let known = self.downloaded().of(list.issuer());
        let known = known.iter().map(AsRef::as_ref).filter(|known| known.has_scope_of(&list));
        for other in self.comparable_files(&list).chain(known) {
            if other.encoded() == list.encoded() {
                return Ok(DownloadedList { is_new: false, next_update, is_whole });
            }
            if list.compare_age(other) == Ordering::Less {
                return Err(ListRefusal::Older);
            }
        }
        self.downloaded().put(StoredDownload { list: Arc::new(list), is_signed: true })?;
        Ok(DownloadedList { is_new: true, next_update, is_whole })
    }

    /// Takes the lists of an earlier store, except those that an authority no longer signs or that a
    /// newer file replaces.
    pub(super) fn take_downloaded(&self, earlier: &Self) {
        for StoredDownload { list, .. } in earlier.downloaded().all() {
            let is_older = |other: &RevocationList| list.compare_age(other) == Ordering::Less;
            let is_signed = self.is_signed(&list);
            let is_missing = self.of_name(list.issuer()).next().is_none();
            if !self.comparable_files(&list).any(is_older) && (is_signed || is_missing) {
                // The lists were within the limits before.
                let _ = self.downloaded().put(StoredDownload { list, is_signed });
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
