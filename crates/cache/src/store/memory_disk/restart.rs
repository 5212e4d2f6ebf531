//! What of a disk survives the end of the process, and a power cut.

use super::MemoryDisk;
use base::SplitMix64;
use std::sync::{Arc, Mutex};
use storage::SECOND_NAME_ATTRIBUTE;

/// The unit in which unsynced data survives a power cut.
const SECTOR: usize = 512;

impl MemoryDisk {
    /// Returns the disk after the end of the process.
    pub(crate) fn after_kill(&self) -> Self {
        let mut state = self.lock().clone();
        (state.stop_after, state.opened) = (None, 0);
        state.inodes.iter_mut().for_each(|inode| (inode.readers, inode.opened) = (0, 0));
        state.faults.clear();
        state.always.clear();
        state.faults_at.clear();
        Self(Arc::new(Mutex::new(state)), Arc::default())
    }

    /// Returns the disk after a power cut. Of each name one of its last states has survived, and of each file the
    /// sectors that chance has chosen.
    pub(crate) fn after_power_cut(&self, seed: u64) -> Self {
        let (survivor, mut rng) = (self.after_kill(), SplitMix64::new(seed));
        {
            let mut state = survivor.lock();
            let mut names = state.durable.clone();
            let pending = std::mem::take(&mut state.pending);
            for (name, inode) in &pending {
                if rng.draw() % 2 == 0 {
                    match inode {
                        Some(inode) => drop(names.insert(name.clone(), *inode)),
                        None => drop(names.remove(name)),
                    }
                }
            }
            // A file that has its new name has lost the old one: file systems rename in one step.
            for (name, _) in pending.iter().filter(|(_, inode)| inode.is_none()) {
                let Some(&inode) = names.get(name) else { continue };
                let is_marked = state.inodes[inode].attributes.contains(SECOND_NAME_ATTRIBUTE);
                if !is_marked && names.values().filter(|of| **of == inode).count() > 1 {
                    names.remove(name);
                }
            }
            for inode in &mut state.inodes {
                let longest = inode.content.len().max(inode.durable.len());
                let size = if rng.draw() % 2 == 0 { inode.content.len() } else { inode.durable.len() };
                let mut after = vec![0; longest];
                for begin in (0..longest).step_by(SECTOR) {
                    let source = if rng.draw() % 2 == 0 { &inode.content } else { &inode.durable };
                    let end = (begin + SECTOR).min(source.len());
                    if begin < end {
                        after[begin..end].copy_from_slice(&source[begin..end]);
                    }
                }
                after.truncate(size);
                (inode.content, inode.durable, inode.freed) = (after.clone(), after, Vec::new());
            }
            (state.names, state.durable) = (names.clone(), names);
            state.mounts += 1;
        }
        survivor
    }
}
