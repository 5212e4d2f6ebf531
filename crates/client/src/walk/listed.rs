//! The result of listing one directory, before it becomes part of a walk.

use super::identity::Identity;
use super::items::Items;
use super::unknown::{UNKNOWN_MAX, UnreliableEntry, whole};
use crate::answers::StatInfo;
use crate::entries::Entries;
use crate::failure::{Cause, Error};
use crate::path::{EntryName, Name, RelativePath};
use crate::url::Url;

/// The result of listing a directory.
#[derive(Default)]
pub(super) struct DirectoryListing {
    pub(super) items: Items,
    pub(super) unknown: Vec<UnreliableEntry>,
    pub(super) is_missing: bool,
    pub(super) at: Vec<usize>,
    pub(super) ids: Vec<Identity>,
}

impl DirectoryListing {
    /// Adds the entries listed by servers: the reliable ones as items, the others as unknown with
    /// the reasons.
    pub(super) fn take(&mut self, mut entries: Entries, url: &Url, path: &RelativePath) {
        let mut refused = 0;
        entries.retain(|entries, number| {
            let Some((name, cause)) = refusal(entries, number) else { return true };
            refused += 1;
            if refused <= UNKNOWN_MAX {
                let at = name.component().map_or_else(|_| url.clone(), |name| url.at(url.path.join(name)));
                let (name, error) = (Some(name.to_string()), Error::new("list", at, cause));
                self.unknown.push(UnreliableEntry { directory: path.clone(), name, error });
            }
            false
        });
        if refused > UNKNOWN_MAX {
            let text = format!("{refused} entries of it cannot be relied on, more than {UNKNOWN_MAX}");
            self.unknown.push(whole(path, Error::new("list", url, Cause::NotEntered(text))));
        }
        self.items = Items::all(entries);
    }
}

/// Returns the reason why an entry is unreliable.
fn refusal(entries: &Entries, number: u32) -> Option<(EntryName, Cause)> {
    let name = || EntryName::from_bytes(entries.name(number));
    if let Err(why) = Name::check(entries.name(number)) {
        let shown = name().to_string();
        return Some((name(), Cause::BadName { name: shown, why }));
    }
    let mut kinds = entries.at_servers(number).map(|(_, stat)| stat.as_ref().map(StatInfo::is_dir));
    let first = kinds.next().flatten();
    let is_same = kinds.all(|kind| kind == first);
    let text = match (first, is_same) {
        (Some(_), true) => return None,
        (None, true) => "its server does not tell what it is",
        (_, false) => "it is a directory at one server, and a file at another",
    };
    Some((name(), Cause::NotEntered(text.to_owned())))
}
