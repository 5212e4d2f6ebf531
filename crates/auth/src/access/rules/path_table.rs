//! [`PathTable`]: the rule paths while rules are compiled.

use std::collections::BTreeMap;

use super::super::parse::{NAME_MARK, mark_in};
use super::super::records::{AuthdbRule, RecordKind};
use super::{PathEntries, PathEntry, RecordNumber, RulePath};

/// Rule paths during compilation.
#[derive(Default)]
pub(super) struct PathTable {
    paths: BTreeMap<Box<[u8]>, PathPairs>,
}

/// The pairs of one rule path during compilation.
#[derive(Default)]
struct PathPairs {
    entries: Vec<PathEntry>,
    named: Vec<(PathEntry, Box<[u8]>)>,
}

impl PathTable {
    /// Adds the pairs of a record. Records must be added in order.
    pub(super) fn add(&mut self, record: RecordNumber, rule: &AuthdbRule) {
        for (index, pair) in rule.pairs.iter().enumerate() {
            let entry = PathEntry {
                record,
                pair: u32::try_from(index).unwrap_or(u32::MAX),
                positive: pair.positive,
                negative: pair.negative,
                at: pair.at,
            };
            if rule.kind == RecordKind::Named {
                // Without the mark, the pair does not apply, as in XRootD.
                let mark = mark_in(&pair.path);
                let Some((before, after)) = mark.and_then(|mark| pair.path.split_at_checked(mark)) else {
                    continue;
                };
                let after = after.get(NAME_MARK.len()..).unwrap_or_default().into();
                self.paths.entry(before.into()).or_default().named.push((entry, after));
                continue;
            }
            let known = self.paths.entry(pair.path.clone()).or_default();
            // A second pair of the record with this path never applies.
            if known.entries.last().is_none_or(|last| last.record != record) {
                known.entries.push(entry);
            }
        }
    }

    /// Sorts the paths and links each to the longest one that is a prefix of it.
    pub(super) fn finish(self) -> Vec<RulePath> {
        let mut paths: Vec<RulePath> = Vec::with_capacity(self.paths.len());
        let mut open: Vec<u32> = Vec::new();
        for (text, known) in self.paths {
            let is_prefix = |at: &u32| {
                let path = usize::try_from(*at).ok().and_then(|at| paths.get(at));
                path.is_some_and(|path| text.starts_with(&path.text))
            };
            while open.pop_if(|at| !is_prefix(at)).is_some() {}
            let outer = open.last().copied();
            open.push(u32::try_from(paths.len()).unwrap_or(u32::MAX));
            let PathPairs { entries, named } = known;
            let entries = PathEntries::new(entries);
            paths.push(RulePath { text, outer, entries, named: named.into() });
        }
        paths
    }
}
