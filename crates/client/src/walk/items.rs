//! [`Items`]: the known entries of a directory, decoded one by one.

use std::sync::Arc;

use base::bytes_of;

use super::identity::{DirectoryMark, Identity};
use crate::answers::{RemoteEntry, StatInfo};
use crate::entries::{Entries, LOCAL_BYTES};
use crate::listing_memory::ListingMemory;
use crate::path::Name;

/// A known entry.
#[derive(Clone, Debug)]
pub struct WalkItem {
    /// The name.
    pub name: Name,
    /// Set for a directory.
    pub is_directory: bool,
    /// Size in bytes.
    pub size: u64,
    /// Last modification, seconds since the epoch.
    pub modified: i64,
    /// The complete status sent by a server.
    pub stat: Option<StatInfo>,
    /// The identity of the entry at each server that has it.
    pub(super) ids: Vec<Identity>,
    number: u32,
}

impl WalkItem {
    /// Returns the indices of the servers that have it.
    pub(crate) fn servers(&self) -> Vec<usize> {
        self.ids.iter().map(|(server, _)| *server).collect()
    }

    /// Returns its number at a server, if only one server has it.
    pub(crate) fn server_number(&self) -> Option<u64> {
        self.stat.as_ref().filter(|_| self.ids.len() == 1).map(|stat| stat.id)
    }

    /// Returns its number among the items of its directory.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }
}

/// An entry as a server listed it.
#[derive(Clone, Debug)]
pub struct ListedEntry {
    /// The entry.
    pub entry: RemoteEntry,
    /// The index of the server.
    pub server: usize,
    /// The number of the item; `None` for the second and each further server of an entry.
    pub number: Option<u32>,
}

/// The known entries of a directory, sorted by name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Items(Arc<Entries>);

impl Items {
    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether it has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator over the items.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = WalkItem> + '_ {
        self.0.numbers().filter_map(|number| self.get(number))
    }

    /// Returns the numbers of the items.
    pub fn numbers(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.numbers()
    }

    /// Returns the item with a number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<WalkItem> {
        if let Some((name, known)) = self.0.local_at(number) {
            return Some(LocalStatus::decode(known)?.item(name, number));
        }
        let name = Name::from_bytes(self.0.name(number)).ok()?;
        let mut stat = None;
        let mut ids = Vec::new();
        for (server, here) in self.0.at_servers(number) {
            ids.push((server, DirectoryMark::of(here.as_ref().filter(|here| here.is_dir()))));
            stat = stat.or(here);
        }
        let stat = stat?;
        Some(WalkItem {
            name,
            is_directory: stat.is_dir(),
            size: stat.size,
            modified: stat.mtime,
            stat: Some(stat),
            ids,
            number,
        })
    }

    /// Returns the item with a name.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<WalkItem> {
        self.0.find(&name.to_bytes()).and_then(|number| self.get(number))
    }

    /// Reports whether an item has this name, as text.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.find(&bytes_of(name)).is_some()
    }

    /// Returns the bytes of a name, without decoding the status.
    #[must_use]
    pub fn name(&self, number: u32) -> &[u8] {
        self.0.name(number)
    }

    /// Returns the entries as they were listed, also those that no request can name
    /// ([`Tree::to_display`](super::Tree::to_display)): each name once, or all entries of each
    /// server in the order of the servers. Both are sorted by name.
    pub fn listed(&self, of_each_server: bool) -> impl Iterator<Item = ListedEntry> + '_ {
        let numbers = if of_each_server { self.0.numbers_by_server() } else { self.0.numbers().collect() };
        numbers.into_iter().filter_map(|number| {
            let (entry, server) = (self.0.get(number)?, self.0.server(number)?);
            let number = (!self.0.is_duplicate(number)).then_some(number);
            Some(ListedEntry { entry, server, number })
        })
    }

    pub(super) fn all(entries: Entries) -> Self {
        Self(Arc::new(entries))
    }

    pub(super) fn local(found: impl Iterator<Item = (Vec<u8>, LocalStatus)>) -> Self {
        Self(Arc::new(Entries::local(found.map(|(name, known)| (name, known.encode())))))
    }

    /// Copies only these items, in this order; `None` if there is no memory for them.
    pub(super) fn choose(&self, numbers: &[u32], memory: &ListingMemory) -> Option<Self> {
        self.0.choose(numbers, memory).map(|chosen| Self(Arc::new(chosen)))
    }

    /// Charges the items to another memory. Returns `false` if that has no space.
    pub(super) fn move_to(&mut self, memory: &ListingMemory) -> bool {
        Arc::get_mut(&mut self.0).is_some_and(|entries| entries.move_to(memory))
    }
}

/// The status of an entry of a directory of this machine.
pub(super) struct LocalStatus {
    pub(super) is_directory: bool,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl LocalStatus {
    fn encode(&self) -> [u8; LOCAL_BYTES] {
        let mut known = [0; LOCAL_BYTES];
        let numbers = [self.size, self.modified.cast_unsigned(), self.device, self.inode];
        for (place, number) in known.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        if let Some(last) = known.last_mut() {
            *last = u8::from(self.is_directory);
        }
        known
    }

    fn decode(known: &[u8]) -> Option<Self> {
        let mut numbers = known.chunks_exact(8).map(|place| place.try_into().map(u64::from_le_bytes));
        let mut next = || numbers.next()?.ok();
        let (size, modified, device, inode) = (next()?, next()?.cast_signed(), next()?, next()?);
        Some(Self { is_directory: *known.last()? != 0, size, modified, device, inode })
    }

    fn item(self, name: Name, number: u32) -> WalkItem {
        WalkItem {
            name,
            is_directory: self.is_directory,
            size: self.size,
            modified: self.modified,
            stat: None,
            ids: vec![(0, DirectoryMark::Local(self.device, self.inode))],
            number,
        }
    }
}
