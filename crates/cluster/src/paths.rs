//! The path table: the exports of the children as masks per prefix, for reading, writing and
//! staging.
//!
//! The rights of a child at a path are those of its longest prefix that covers the path. The entry
//! of a prefix holds the result for all 64 slots, so that a look-up needs only the longest prefix.
//! Prefixes end at component boundaries: `/only` does not cover `/onlyx`. (Real daemons compare
//! plain text there; a child that they would match by that accident exports more than it
//! announced.) Source: cms protocol 3, sections "paths" and "path table".

use std::collections::HashMap;

use base::LogicalPath;

use crate::slots::{Slot, SlotMask};

/// The maximum number of prefixes of one child. A login of 4096 bytes holds fewer.
pub const EXPORTS_MAX: usize = 1024;

/// One announced prefix. Every export can be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildExport {
    /// The prefix.
    pub path: LogicalPath,
    /// Files may be written.
    pub write: bool,
    /// Files may be staged.
    pub stage: bool,
}

/// The reason why a path list of a login is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportError {
    /// A line is not `<letters> <path>` with letters from `r`, `w`, `s`.
    Line,
    /// The path of a line is not an absolute path.
    Path,
    /// More than [`EXPORTS_MAX`].
    TooMany,
}

impl ChildExport {
    /// Parses the path list of a login: lines `<letters> <path>`. An empty list means `r /`.
    pub fn parse_list(text: &[u8]) -> Result<Vec<Self>, ExportError> {
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        let mut exports = Vec::new();
        for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
        {
            let blank = line.iter().position(|byte| *byte == b' ').ok_or(ExportError::Line)?;
            let (letters, path) = line.split_at_checked(blank).ok_or(ExportError::Line)?;
            if letters.is_empty() || !letters.iter().all(|letter| b"rws".contains(letter)) {
                return Err(ExportError::Line);
            }
            if exports.len() == EXPORTS_MAX {
                return Err(ExportError::TooMany);
            }
            exports.push(Self {
                path: LogicalPath::parse(path.trim_ascii()).map_err(|_| ExportError::Path)?,
                write: letters.contains(&b'w'),
                stage: letters.contains(&b's'),
            });
        }
        if exports.is_empty() {
            exports.push(Self { path: LogicalPath::root(), write: false, stage: false });
        }
        Ok(exports)
    }
}

/// The rights of the children below a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Children that export it.
    pub read: SlotMask,
    /// Those that allow writing.
    pub write: SlotMask,
    /// Those that can stage files.
    pub stage: SlotMask,
}

impl Rights {
    fn remove(&mut self, slot: Slot) {
        self.read.remove(slot);
        self.write.remove(slot);
        self.stage.remove(slot);
    }

    fn allow(&mut self, slot: Slot, write: bool, stage: bool) {
        self.remove(slot);
        self.read.insert(slot);
        if write {
            self.write.insert(slot);
        }
        if stage {
            self.stage.insert(slot);
        }
    }
}

#[derive(Clone, Default, Debug)]
struct PathEntry {
    rights: Rights,
    /// Children that announced exactly this prefix; without one the entry is removed.
    announced: SlotMask,
}

/// The path table of a cell.
#[derive(Clone, Default, Debug)]
pub struct PathTable {
    /// Entries by prefix without trailing slash; the root is the empty one.
    entries: HashMap<Box<[u8]>, PathEntry>,
    /// The lengths of all prefixes, longest first.
    lengths: Vec<usize>,
}

impl PathTable {
    /// Returns the rights at `path`, which is absolute and normalised; `None` if no child exports
    /// it.
    pub fn rights(&self, path: &[u8]) -> Option<Rights> {
        let prefix = self.lengths.iter().filter(|length| ends_component(path, **length));
        let entry = prefix.filter_map(|length| self.entries.get(path.get(..*length)?)).next()?;
        Some(entry.rights)
    }

    /// Returns all children that share a path with `slot`, including itself.
    pub fn sharing(&self, slot: Slot) -> SlotMask {
        let shared = self.entries.values().map(|entry| entry.rights.read).filter(|read| read.contains(slot));
        shared.fold(slot.mask(), |all, read| all | read)
    }

    /// Replaces the prefixes of the child in `slot`. Of two lines for one prefix the last counts.
    pub fn announce(&mut self, slot: Slot, exports: &[ChildExport]) {
        let own: HashMap<&[u8], &ChildExport> =
            exports.iter().map(|export| (stripped(export.path.as_bytes()), export)).collect();
        self.clear(slot);
        for prefix in own.keys() {
            if !self.entries.contains_key(*prefix) {
                let rights = self.rights(prefix).unwrap_or_default();
                self.entries.insert(Box::from(*prefix), PathEntry { rights, announced: SlotMask::EMPTY });
                if let Err(place) = self.lengths.binary_search_by(|length| prefix.len().cmp(length)) {
                    self.lengths.insert(place, prefix.len());
                }
            }
        }
        for (prefix, entry) in &mut self.entries {
            let covering = (0..=prefix.len()).rev().filter(|length| ends_component(prefix, *length));
            let found = covering.filter_map(|length| own.get(prefix.get(..length)?)).next();
            if let Some(export) = found {
                entry.rights.allow(slot, export.write, export.stage);
            }
            if own.contains_key(&**prefix) {
                entry.announced.insert(slot);
            }
        }
    }

    /// Removes the prefixes of the child in `slot`.
    pub fn remove(&mut self, slot: Slot) {
        self.clear(slot);
    }

    fn clear(&mut self, slot: Slot) {
        self.entries.retain(|_, entry| {
            entry.rights.remove(slot);
            entry.announced.remove(slot);
            !entry.announced.is_empty()
        });
        self.lengths = self.entries.keys().map(|prefix| prefix.len()).collect();
        self.lengths.sort_unstable_by(|a, b| b.cmp(a));
        self.lengths.dedup();
    }
}

/// Returns a path without its trailing slashes; the root is empty.
pub(crate) fn stripped(path: &[u8]) -> &[u8] {
    let kept = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path.get(..kept).unwrap_or_default()
}

/// Returns a path in the form of queries: without its trailing slashes; the root is one slash.
pub(crate) fn plain(path: &[u8]) -> &[u8] {
    let kept = stripped(path);
    if kept.is_empty() { path.get(..1).unwrap_or_default() } else { kept }
}

/// Reports whether the first `length` bytes of `path` are whole components.
fn ends_component(path: &[u8], length: usize) -> bool {
    length == path.len() || path.get(length) == Some(&b'/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slot(number: u8) -> Slot {
        Slot::new(number).unwrap()
    }

    fn exports(list: &str) -> Vec<ChildExport> {
        ChildExport::parse_list(list.as_bytes()).unwrap()
    }

    #[test]
    fn lists_as_real_nodes_send_them() {
        let list = exports("rs /tape\nw /data/\n");
        assert_eq!(list.len(), 2);
        assert!(list[0].stage && !list[0].write && list[1].write);
        assert_eq!(exports(""), exports("r /"));
        assert_eq!(exports("\0"), exports("r /"));
        let error = |list: &[u8]| ChildExport::parse_list(list).unwrap_err();
        assert_eq!(error(b"q /"), ExportError::Line);
        assert_eq!(error(b"/only"), ExportError::Line);
        assert_eq!(error(b"r only"), ExportError::Path);
        assert_eq!(error(b"r /a/../b"), ExportError::Path);
        assert_eq!(error("r /\n".repeat(EXPORTS_MAX + 1).as_bytes()), ExportError::TooMany);
        assert!(ChildExport::parse_list("r /\n".repeat(EXPORTS_MAX).as_bytes()).is_ok());
    }

    #[test]
    fn a_prefix_ends_with_a_component() {
        let mut table = PathTable::default();
        table.announce(slot(2), &exports("w /only"));
        assert!(table.rights(b"/only").is_some() && table.rights(b"/only/x").is_some());
        assert_eq!(table.rights(b"/onlyx"), None);
        assert_eq!(table.rights(b"/"), None);
    }

    #[test]
    fn the_longest_prefix_of_each_child_counts() {
        let mut table = PathTable::default();
        table.announce(slot(0), &exports("r /"));
        table.announce(slot(1), &exports("w /a\nr /a/b"));
        table.announce(slot(2), &exports("ws /a/b/c"));
        let rights = |path: &str| table.rights(path.as_bytes()).unwrap();
        assert_eq!(rights("/x").read, slot(0).mask());
        assert_eq!(rights("/a/x").write, slot(1).mask());
        assert_eq!(rights("/a/b/x"), Rights { read: SlotMask(0b11), ..Rights::default() });
        let deepest = rights("/a/b/c/x");
        assert_eq!((deepest.read, deepest.write), (SlotMask(0b111), SlotMask(0b100)));
        assert_eq!(deepest.stage, slot(2).mask());
    }

    #[test]
    fn a_child_that_leaves_loses_its_prefixes() {
        let mut table = PathTable::default();
        table.announce(slot(0), &exports("r /a"));
        table.announce(slot(1), &exports("r /a\nw /a/b"));
        table.remove(slot(1));
        assert_eq!(table.rights(b"/a/b"), table.rights(b"/a"));
        assert_eq!(table.sharing(slot(0)), slot(0).mask());
        table.announce(slot(0), &exports("r /z"));
        assert_eq!(table.rights(b"/a"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        /// Any order of joins and leaves gives the result of the definition.
        #[test]
        fn agrees_with_the_definition(
            changes in prop::collection::vec((0..4u8, prop::collection::vec(
                ("(/[ab]){0,4}", any::<bool>(), any::<bool>()), 0..4)), 1..12),
            requested in prop::collection::vec("(/[ab]){1,5}", 1..12),
        ) {
            let mut table = PathTable::default();
            let mut announced: [Vec<ChildExport>; 4] = Default::default();
            for (number, paths) in changes {
                let list: Vec<ChildExport> = paths.into_iter().map(|(path, write, stage)| ChildExport {
                    path: LogicalPath::parse(format!("{path}/").as_bytes()).unwrap(), write, stage,
                }).collect();
                table.announce(slot(number), &list);
                announced[usize::from(number)] = list;
            }
            for path in requested {
                let requested = LogicalPath::parse(path.as_bytes()).unwrap();
                let mut expected = Rights::default();
                for (number, list) in announced.iter().enumerate() {
                    // The longest, and of equal ones the last: max_by_key keeps the last.
                    let covering = list.iter().filter(|export| requested.is_within(&export.path));
                    if let Some(best) = covering.max_by_key(|export| export.path.as_bytes().len()) {
                        expected.allow(slot(number as u8), best.write, best.stage);
                    }
                }
                prop_assert_eq!(table.rights(path.as_bytes()).unwrap_or_default(), expected, "{}", path);
            }
        }
    }
}
