//! [`DirectUse`]: the use of a file by clients that read it directly.

use super::{CachedFile, added};
use crate::ReadId;
use crate::disk_cache::CacheOrigin;
use crate::store::DirectData;
use std::sync::Arc;

/// The use of a file by clients that read it directly.
pub(in crate::disk_cache) struct DirectUse<'a, O: CacheOrigin>(
    pub(in crate::disk_cache) &'a Arc<CachedFile<O>>,
);

impl<O: CacheOrigin> DirectUse<'_, O> {
    /// Counts a client that reads all of the file.
    pub(in crate::disk_cache) fn note_read(&self) {
        let file = self.0;
        let size = file.version().size;
        let mut state = file.state();
        state.access.bytes_hit = added(state.access.bytes_hit, size);
        file.shared.counters.bytes_hit.add(size);
        file.shared.counters.bytes_delivered.add(size);
    }

    /// Compares a stored block with its checksum. A damaged one is fetched again when it is read.
    pub(in crate::disk_cache) fn compare(&self, block: u64) -> bool {
        let file = self.0;
        let is_good = DirectData(&file.store).compare(block);
        if !is_good {
            file.shared.note_damage(&file.key, &[block]);
            let (read, bytes) = {
                let mut state = file.state();
                (ReadId(state.next()), state.fill.bytes_of(block))
            };
            // Nobody waits for this read.
            file.read_stored(read, bytes, Vec::new(), &[block]);
        }
        is_good
    }
}
