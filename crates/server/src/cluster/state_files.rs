//! The files that keep the state of a node over a restart, and their names.

use super::lease_record::LeaseRecord;
use super::state_file::{StateFile, read};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files that a node keeps for its next start.
pub(super) struct NodeStateFiles {
    /// The address of its parent in the tree.
    pub(super) place: StateFile,
    /// Ids of child nodes that are out of use.
    pub(super) out_of_use: StateFile,
    /// The mark that the cluster was complete once; `None` after it is written.
    formed: Option<StateFile>,
    /// Numbers of child nodes that may have leases of this one, and the numbers that were written
    /// last.
    lessees: (StateFile, BTreeSet<u64>),
    /// The time until which clients may arrive that have leases of a node with children.
    pub(super) leases: LeaseRecord,
}

impl NodeStateFiles {
    /// Creates the records. All files lie beside the place file; without one nothing is kept.
    pub(super) fn new(place: Option<&Path>) -> Self {
        Self {
            place: StateFile::new(place.map(Path::to_owned)),
            out_of_use: StateFile::new(place.map(drained_file)),
            formed: Some(StateFile::new(place.map(formed_file))),
            lessees: (StateFile::new(place.map(lessees_file)), BTreeSet::new()),
            leases: LeaseRecord::new(place),
        }
    }

    /// Records the child nodes that may have leases of this one.
    pub(super) fn note_lessees(&mut self, lessees: BTreeSet<u64>) {
        let (kept, written) = &mut self.lessees;
        if *written != lessees {
            kept.keep(Some(lessees.iter().map(|lessee| format!("{lessee:016x}\n")).collect()));
            *written = lessees;
        }
    }

    /// Returns the nodes that may have leases of an earlier run of the node with this place file.
    pub(super) fn lessees(place: &Path) -> BTreeSet<u64> {
        let text = read(&lessees_file(place)).unwrap_or_default();
        text.lines().filter_map(|line| u64::from_str_radix(line, 16).ok()).collect()
    }

    /// Records that all expected children have joined.
    pub(super) fn note_formed(&mut self) {
        if let Some(formed) = self.formed.take() {
            formed.keep(Some("The cluster was complete once.\n".to_owned()));
        }
    }

    /// Reports whether all children had joined in an earlier run of the node with this place file.
    pub(super) fn has_formed(place: &Path) -> bool {
        read(&formed_file(place)).is_some()
    }
}

fn drained_file(place: &Path) -> PathBuf {
    place.with_file_name("drained")
}

/// Returns the ids of nodes that were out of use when the node with this place file ended.
pub(super) fn drained(place: &Path) -> Vec<String> {
    let text = read(&drained_file(place)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn formed_file(place: &Path) -> PathBuf {
    place.with_file_name("formed")
}

fn lessees_file(place: &Path) -> PathBuf {
    place.with_file_name("lessees")
}
