//! [`Entries`]: the entries of a directory, stored in the wire format of listings (decision 015).
//!
//! A decoded entry takes ten times the bytes of its line in a listing, so entries are decoded on
//! access. Listings of several servers are merged by an index that is sorted by name, with 8 bytes
//! for each entry.

use wire::xroot::reply::{StatText, dirlist};

use crate::answers::{FileChecksum, RemoteEntry, StatInfo};
use crate::failure::Cause;
use crate::listing_memory::{ListingCharge, ListingMemory};
use crate::path::{EntryName, Name};

/// Maximum length of a name, so that the length fits into the index.
const NAME_BYTES_MAX: usize = 0x7fff;
/// Flag in the length of a name: a duplicate of the previous name at another server.
const SAME: u16 = 0x8000;

/// A listing in the wire format.
#[derive(Debug, Default)]
pub(crate) struct ServerListing {
    pub(crate) body: Vec<u8>,
    pub(crate) has_status: bool,
    /// The charged memory; local directories are not charged.
    pub(crate) charge: Option<ListingCharge>,
}

/// Number of bytes behind the name of a local entry.
pub(crate) const LOCAL_BYTES: usize = 33;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Names,
    Status,
    /// Names of local files, each followed by [`LOCAL_BYTES`] bytes.
    Local,
}

#[derive(Debug)]
struct ListingPart {
    /// Number of the server.
    server: usize,
    body: Vec<u8>,
    form: Form,
    charge: Option<ListingCharge>,
}

/// The position of an entry in a part.
#[derive(Clone, Copy, Debug)]
struct EntrySlot {
    offset: u32,
    part: u16,
    /// Length of the name, and [`SAME`].
    name: u16,
}

/// The entries of a directory without duplicates, sorted by name unless they were chosen in another
/// order.
#[derive(Debug, Default)]
pub struct Entries {
    parts: Vec<ListingPart>,
    slots: Vec<EntrySlot>,
    count: usize,
}

impl ServerListing {
    /// Creates an empty collection to which entries can be added.
    pub(crate) fn empty(memory: &ListingMemory, has_status: bool) -> Self {
        let body = if has_status { dirlist::STAT_PREFIX.to_vec() } else { Vec::new() };
        Self { body, has_status, charge: Some(memory.charge()) }
    }

    /// Adds an entry. Returns `false` if there is no memory for it.
    pub(crate) fn add(&mut self, name: &[u8], stat: Option<&StatText<'_>>) -> bool {
        match stat {
            Some(stat) => dirlist::entry_with_stat(&mut self.body, name, stat, None),
            None => dirlist::entry(&mut self.body, name),
        };
        let bytes = self.body.len();
        self.charge.as_mut().is_none_or(|charge| charge.reach(bytes))
    }

    /// Checks that `body` is a valid listing.
    ///
    /// # Errors
    /// [`Cause::BadAnswer`].
    pub(crate) fn check(body: &[u8]) -> Result<(), Cause> {
        scan(body, |_, _| ())
    }

    /// Returns the raw names in the listing.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        let names = dirlist::Listing::new(&self.body).filter_map(Result::ok).map(|entry| entry.name);
        names.filter(|name| !matches!(*name, b"." | b".."))
    }
}

impl ListingPart {
    fn bytes(&self, slot: EntrySlot) -> &[u8] {
        self.body.get(slot.offset as usize..).unwrap_or_default()
    }

    fn name(&self, slot: EntrySlot) -> &[u8] {
        self.bytes(slot).get(..slot.length()).unwrap_or_default()
    }

    /// Returns the bytes behind the name.
    fn rest(&self, slot: EntrySlot) -> &[u8] {
        self.bytes(slot).get(slot.length()..).unwrap_or_default()
    }

    /// Returns the line behind the name.
    fn line(&self, slot: EntrySlot) -> &[u8] {
        let rest = self.rest(slot).get(1..).unwrap_or_default();
        rest.split(|byte| matches!(byte, b'\n' | 0)).next().unwrap_or_default()
    }

    fn stat(&self, slot: EntrySlot) -> Option<(StatInfo, Option<FileChecksum>)> {
        if self.form != Form::Status {
            return None;
        }
        let (stat, checksum) = StatText::parse_listed(self.line(slot)).ok()?;
        Some((StatInfo::of(&stat), checksum.as_ref().and_then(FileChecksum::listed)))
    }

    /// Returns all bytes of an entry.
    fn whole(&self, slot: EntrySlot) -> &[u8] {
        let behind = match self.form {
            Form::Names => 1,
            Form::Status => self.line(slot).len() + 2,
            Form::Local => LOCAL_BYTES,
        };
        let bytes = self.bytes(slot);
        bytes.get(..slot.length() + behind).unwrap_or(bytes)
    }

    fn scan(&self, found: impl FnMut(u32, u16)) -> Result<(), Cause> {
        scan(&self.body, found)
    }
}

/// Checks a listing and passes the position and length of each name to `found`.
fn scan(body: &[u8], mut found: impl FnMut(u32, u16)) -> Result<(), Cause> {
    let mut listing = dirlist::Listing::new(body);
    loop {
        let at = body.len() - listing.remaining();
        let Some(entry) = listing.next() else { return Ok(()) };
        let entry = entry?;
        let bad = |why: &str| {
            let shown: String = String::from_utf8_lossy(entry.name).chars().take(100).collect();
            Err(Cause::BadAnswer(format!("`{shown}` is {why}")))
        };
        // Such a name would lead out of the directory when a walk removes or writes it.
        match entry.name {
            b"." | b".." => continue,
            name if name.contains(&b'/') => return bad("no name of an entry"),
            name if name.len() > NAME_BYTES_MAX => return bad("longer than names are"),
            _ => {}
        }
        let offset = u32::try_from(at).map_err(|_| Cause::BadAnswer("4 GiB of names".to_owned()))?;
        let name = u16::try_from(entry.name.len()).unwrap_or(0);
        found(offset, name);
    }
}

impl EntrySlot {
    const fn length(self) -> usize {
        (self.name & !SAME) as usize
    }

    const fn is_same(self) -> bool {
        self.name & SAME != 0
    }
}

impl Entries {
    /// Merges listings of servers.
    ///
    /// # Errors
    /// [`Cause::BadAnswer`].
    pub(crate) fn merge(listings: impl IntoIterator<Item = (usize, ServerListing)>) -> Result<Self, Cause> {
        let mut entries = Self::default();
        for (server, listing) in listings {
            let form = if listing.has_status { Form::Status } else { Form::Names };
            let ServerListing { body, charge, .. } = listing;
            let part = ListingPart { server, body, form, charge };
            let number = u16::try_from(entries.parts.len());
            let number = number.map_err(|_| Cause::BadAnswer("more than 65535 listings".to_owned()))?;
            part.scan(|offset, name| {
                entries.slots.push(EntrySlot { offset, part: number, name });
            })?;
            entries.parts.push(part);
        }
        entries.sort();
        Ok(entries)
    }

    /// Builds the entries of a local directory from names and their status.
    pub(crate) fn local(found: impl Iterator<Item = (Vec<u8>, [u8; LOCAL_BYTES])>) -> Self {
        let mut part = ListingPart { server: 0, body: Vec::new(), form: Form::Local, charge: None };
        let mut slots = Vec::new();
        for (name, known) in found {
            // The limits of the system are far below.
            let (Ok(offset), Ok(length)) = (u32::try_from(part.body.len()), u16::try_from(name.len())) else {
                continue;
            };
            part.body.extend_from_slice(&name);
            part.body.extend_from_slice(&known);
            slots.push(EntrySlot { offset, part: 0, name: length & !SAME });
        }
        let mut entries = Self { parts: vec![part], slots, count: 0 };
        entries.sort();
        entries
    }

    fn sort(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        slots.sort_unstable_by(|a, b| {
            let order = self.slot_name(*a).cmp(self.slot_name(*b));
            order.then((a.part, a.offset).cmp(&(b.part, b.offset)))
        });
        let mut before: Option<EntrySlot> = None;
        self.count = 0;
        for slot in &mut slots {
            let is_same = before.is_some_and(|before| self.slot_name(before) == self.slot_name(*slot));
            before = Some(*slot);
            if is_same { slot.name |= SAME } else { self.count += 1 }
        }
        self.slots = slots;
    }

    fn slot_name(&self, slot: EntrySlot) -> &[u8] {
        self.parts.get(usize::from(slot.part)).map_or(&[], |part| part.name(slot))
    }

    /// Returns the number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Reports whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the numbers of the entries in order.
    pub fn numbers(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let heads = self.slots.iter().enumerate().filter(|(_, slot)| !slot.is_same());
        heads.map(|(number, _)| u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// Returns the numbers of the entries in order, from the given one on.
    pub fn numbers_from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let slots = self.slots.get(first as usize..).unwrap_or_default();
        let heads = slots.iter().zip(first..).filter(|(slot, _)| !slot.is_same());
        heads.map(|(_, number)| number)
    }

    /// Returns the numbers of the entries of each server, in the order of the servers, including
    /// duplicates.
    pub(crate) fn numbers_by_server(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)).collect();
        numbers.sort_by_key(|number| self.server(*number));
        numbers
    }

    /// Returns the server that listed an entry.
    pub(crate) fn server(&self, number: u32) -> Option<usize> {
        let slot = self.slots.get(number as usize)?;
        self.parts.get(usize::from(slot.part)).map(|part| part.server)
    }

    /// Reports whether the entry has the same name as the previous one.
    pub(crate) fn is_duplicate(&self, number: u32) -> bool {
        self.slots.get(number as usize).is_some_and(|slot| slot.is_same())
    }

    /// Returns an iterator that decodes the entries one by one.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = RemoteEntry> + '_ {
        self.numbers().filter_map(|number| self.get(number))
    }

    /// Returns the entry with a number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<RemoteEntry> {
        let slot = *self.slots.get(number as usize)?;
        let part = self.parts.get(usize::from(slot.part))?;
        let (stat, checksum) = part.stat(slot).map_or((None, None), |(stat, sum)| (Some(stat), sum));
        Some(RemoteEntry { name: EntryName::from_bytes(part.name(slot)), stat, checksum })
    }

    /// Returns the name of the entry with a number.
    #[must_use]
    pub fn name(&self, number: u32) -> &[u8] {
        self.slots.get(number as usize).map_or(&[], |slot| self.slot_name(*slot))
    }

    /// Returns the number of a name, if the entries are sorted.
    pub(crate) fn find(&self, name: &[u8]) -> Option<u32> {
        let at = self.slots.partition_point(|slot| self.slot_name(*slot) < name);
        let slot = self.slots.get(at).filter(|slot| self.slot_name(**slot) == name)?;
        (!slot.is_same()).then(|| u32::try_from(at).ok()).flatten()
    }

    /// Returns the slots of an entry: one for each server that has it.
    fn group(&self, number: u32) -> &[EntrySlot] {
        let rest = self.slots.get(number as usize..).unwrap_or_default();
        let more = rest.iter().skip(1).take_while(|slot| slot.is_same()).count();
        rest.get(..(more + 1).min(rest.len())).unwrap_or_default()
    }

    /// Returns the entry in the listing of each server that has it.
    pub(crate) fn at_servers(&self, number: u32) -> impl Iterator<Item = (usize, Option<StatInfo>)> + '_ {
        self.group(number).iter().filter_map(|slot| {
            let part = self.parts.get(usize::from(slot.part))?;
            Some((part.server, part.stat(*slot).map(|(stat, _)| stat)))
        })
    }

    /// Returns the name and status of a local entry.
    pub(crate) fn local_at(&self, number: u32) -> Option<(Name, &[u8])> {
        let slot = *self.slots.get(number as usize)?;
        let part = self.parts.get(usize::from(slot.part)).filter(|part| part.form == Form::Local)?;
        let name = Name::on_this_machine(base_name(part.name(slot))).ok()?;
        Some((name, part.rest(slot).get(..LOCAL_BYTES)?))
    }

    /// Keeps the entries for which `keep` returns `true`.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Self, u32) -> bool) {
        let (mut from, mut to, mut count) = (0, 0, 0);
        while from < self.slots.len() {
            let number = u32::try_from(from).unwrap_or(u32::MAX);
            let end = from + self.group(number).len().max(1);
            if keep(self, number) {
                self.slots.copy_within(from..end, to);
                to += end - from;
                count += 1;
            }
            from = end;
        }
        self.slots.truncate(to);
        self.slots.shrink_to_fit();
        self.count = count;
    }

    /// Copies some entries in the order of `numbers`; `None` if there is no memory for them.
    pub(crate) fn choose(&self, numbers: &[u32], memory: &ListingMemory) -> Option<Self> {
        let part = |part: &ListingPart| {
            let charge = part.charge.as_ref().map(|_| memory.charge());
            ListingPart { server: part.server, body: Vec::new(), form: part.form, charge }
        };
        let mut chosen = Self { parts: self.parts.iter().map(part).collect(), ..Self::default() };
        for number in numbers {
            for slot in self.group(*number) {
                let index = usize::from(slot.part);
                let (from, to) = (self.parts.get(index)?, chosen.parts.get_mut(index)?);
                let offset = u32::try_from(to.body.len()).ok()?;
                to.body.extend_from_slice(from.whole(*slot));
                let bytes = to.body.len();
                if !to.charge.as_mut().is_none_or(|charge| charge.reach(bytes)) {
                    return None;
                }
                chosen.slots.push(EntrySlot { offset, ..*slot });
            }
        }
        chosen.count = numbers.len();
        Some(chosen)
    }

    /// Charges the entries to another memory. Returns `false` if that has no space.
    pub(crate) fn move_to(&mut self, memory: &ListingMemory) -> bool {
        let mut charges = self.parts.iter_mut().filter_map(|part| part.charge.as_mut());
        charges.all(|charge| charge.move_to(memory))
    }
}

fn base_name(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(body: &[u8]) -> ServerListing {
        let has_status = dirlist::Listing::new(body).has_stat();
        ServerListing { body: body.to_vec(), has_status, charge: None }
    }

    fn names(entries: &Entries) -> Vec<String> {
        entries.iter().map(|entry| entry.name.to_string()).collect()
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        let of = |body: &[u8]| Entries::merge([(0, listing(body))]).map(|entries| names(&entries));
        assert_eq!(of(b".\na\n..\n...\0"), Ok(vec!["...".to_owned(), "a".to_owned()]));
        for bad in [&b"a\n../b\0"[..], b"/etc\0", b"a/b\0", &[b'n'; NAME_BYTES_MAX + 1]] {
            assert!(matches!(of(bad), Err(Cause::BadAnswer(_))), "{bad:?}");
        }
    }

    #[test]
    fn listings_of_servers_are_merged_by_name() {
        let one = listing(b".\n0 0 0 0\nb\n1 5 0 7\na\n2 6 2 8 9 9 0755 me us\0");
        let two = listing(b".\n0 0 0 0\nb\n3 5 0 9\nc\xff\n4 5 0 9\0");
        let mut entries = Entries::merge([(4, one), (7, two)]).unwrap();
        assert_eq!((names(&entries).concat(), entries.len()), ("abc\u{10ffff}".to_owned(), 3));
        let all: Vec<u32> = entries.numbers().collect();
        for (index, number) in all.iter().enumerate() {
            assert!(entries.numbers_from(*number).eq(all[index..].iter().copied()));
        }
        assert_eq!(entries.numbers_from(9).count(), 0);
        let number = entries.find(b"b").unwrap();
        let at: Vec<_> =
            entries.at_servers(number).map(|(server, stat)| (server, stat.unwrap().id)).collect();
        assert_eq!(at, [(4, 1), (7, 3)]);
        assert_eq!(entries.get(number).unwrap().stat.unwrap().mtime, 7);
        let listed: Vec<_> = entries.numbers_by_server().into_iter().collect();
        let listed = listed.iter().map(|number| (entries.name(*number), entries.is_duplicate(*number)));
        let expected = [(&b"a"[..], false), (b"b", false), (b"b", true), (b"c\xff", false)];
        assert_eq!(listed.collect::<Vec<_>>(), expected);
        assert!(entries.find(b"d").is_none() && entries.find(b"").is_none());
        let memory = ListingMemory::new(1000);
        let numbers: Vec<u32> = entries.numbers().rev().take(2).collect();
        let chosen = entries.choose(&numbers, &memory).unwrap();
        assert_eq!((names(&chosen).concat(), chosen.len()), ("c\u{10ffff}b".to_owned(), 2));
        assert_eq!(chosen.at_servers(1).count(), 2);
        entries.retain(|entries, number| entries.name(number) != b"b");
        assert_eq!((names(&entries).concat(), entries.len()), ("ac\u{10ffff}".to_owned(), 2));
        assert_eq!(entries.get(0).unwrap().stat.unwrap().more.unwrap().owner, "me");
    }
}
