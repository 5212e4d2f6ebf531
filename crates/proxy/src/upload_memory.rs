//! [`UploadMemory`]: the memory of parts on their way to an object store, for all files together.
//!
//! Each file that is written has memory for one part, or for all of it if it is small, until it is closed. So it
//! always gets on. More parts at once take what is free, and leave half to files that are opened later.

use base::ClientHost;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory in bytes.
const MEMORY_BYTES: usize = 512 << 20;
/// The size of which shares are multiples.
const UNIT_BYTES: usize = 64 << 10;
/// Part of the memory that files of clients of one host may keep.
const HOST_SHARE: usize = 2;
/// Part of the memory that only the first part of a file takes.
const RESERVE: usize = 2;
/// Time for which a file waits for its memory.
const WAIT_TIME: Duration = Duration::from_secs(30);

/// The memory of parts.
pub(crate) struct UploadMemory {
    units: Arc<Semaphore>,
    units_max: usize,
    /// Units of the open files of clients of each host.
    hosts: Mutex<HashMap<ClientHost, usize>>,
}

/// Memory of a part, which is free again when it is dropped.
pub(crate) struct PartMemory {
    permit: OwnedSemaphorePermit,
    /// The counts of what belongs to a host.
    counts: Vec<HostCount>,
    /// It is the memory that its file keeps.
    pub(crate) is_own: bool,
}

/// The count of memory that belongs to a host.
struct HostCount {
    memory: Arc<UploadMemory>,
    host: ClientHost,
    units: usize,
}

/// There is no memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryShortage {
    /// Other files have all of it.
    Full,
    /// The clients of this host have as much as they may.
    Host,
}

impl Drop for HostCount {
    fn drop(&mut self) {
        if let Entry::Occupied(mut units) = self.memory.hosts().entry(self.host) {
            *units.get_mut() -= self.units;
            if *units.get() == 0 {
                units.remove();
            }
        }
    }
}

impl PartMemory {
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits() * UNIT_BYTES
    }

    /// Adds memory.
    pub(crate) fn add(&mut self, more: Self) {
        self.permit.merge(more.permit);
        self.counts.extend(more.counts);
    }
}

impl UploadMemory {
    pub(crate) fn new() -> Arc<Self> {
        Self::of_bytes(MEMORY_BYTES)
    }

    pub(crate) fn of_bytes(bytes: usize) -> Arc<Self> {
        let units_max = bytes / UNIT_BYTES;
        Arc::new(Self { units: Arc::new(Semaphore::new(units_max)), units_max, hosts: Mutex::default() })
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<ClientHost, usize>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn units_of(bytes: usize) -> usize {
        bytes.max(1).div_ceil(UNIT_BYTES)
    }

    /// Takes the memory that a file of a client of this host keeps.
    pub(crate) async fn take_own(
        self: &Arc<Self>,
        bytes: usize,
        host: ClientHost,
    ) -> Result<PartMemory, MemoryShortage> {
        Ok(PartMemory { is_own: true, ..self.take(bytes, host).await? })
    }

    /// Waits for memory that counts for a host.
    pub(crate) async fn take(
        self: &Arc<Self>,
        bytes: usize,
        host: ClientHost,
    ) -> Result<PartMemory, MemoryShortage> {
        let units = Self::units_of(bytes);
        {
            let mut hosts = self.hosts();
            let of_host = hosts.get(&host).copied().unwrap_or_default();
            if of_host + units > self.units_max / HOST_SHARE {
                return Err(MemoryShortage::Host);
            }
            hosts.insert(host, of_host + units);
        }
        let count = HostCount { memory: self.clone(), host, units };
        let units = u32::try_from(units).map_err(|_| MemoryShortage::Full)?;
        let permit = self.units.clone().acquire_many_owned(units);
        match tokio::time::timeout(WAIT_TIME, permit).await {
            Ok(Ok(permit)) => Ok(PartMemory { permit, counts: vec![count], is_own: false }),
            _ => Err(MemoryShortage::Full),
        }
    }

    /// Takes memory for one more part of a file, if there is enough.
    pub(crate) fn take_more(&self, bytes: usize) -> Option<PartMemory> {
        let units = Self::units_of(bytes);
        if self.units.available_permits() < units + self.units_max / RESERVE {
            return None;
        }
        let permit = self.units.clone().try_acquire_many_owned(u32::try_from(units).ok()?).ok()?;
        Some(PartMemory { permit, counts: Vec::new(), is_own: false })
    }

    /// Returns the free bytes.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.units.available_permits() * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> ClientHost {
        ClientHost::from(Some(std::net::IpAddr::from([10, 0, 0, number])))
    }

    #[tokio::test(start_paused = true)]
    async fn no_host_has_more_than_half_and_others_wait_for_their_turn() {
        let memory = UploadMemory::of_bytes(8 * UNIT_BYTES);
        let first = memory.take_own(4 * UNIT_BYTES, host(1)).await.unwrap();
        assert_eq!(memory.take_own(1, host(1)).await.err(), Some(MemoryShortage::Host));
        let second = memory.take_own(3 * UNIT_BYTES + 1, host(2)).await.unwrap();
        assert_eq!((memory.free(), second.bytes()), (0, 4 * UNIT_BYTES));
        assert_eq!(memory.take_own(1, host(3)).await.err(), Some(MemoryShortage::Full));
        let wait = memory.take_own(1, host(3));
        let (waited, ()) = tokio::join!(wait, async { drop(first) });
        assert!(waited.is_ok());
        drop((waited, second));
        assert_eq!(memory.free(), 8 * UNIT_BYTES);
        assert!(memory.hosts().is_empty());
    }

    #[tokio::test]
    async fn further_parts_leave_memory_to_files_that_are_opened_later() {
        let memory = UploadMemory::of_bytes(8 * UNIT_BYTES);
        let more: Vec<_> = std::iter::from_fn(|| memory.take_more(UNIT_BYTES)).collect();
        assert_eq!(more.len(), 4);
        let mut own = memory.take_own(2 * UNIT_BYTES, host(1)).await.unwrap();
        own.add(memory.take(UNIT_BYTES, host(1)).await.unwrap());
        assert_eq!(memory.take(2 * UNIT_BYTES, host(1)).await.err(), Some(MemoryShortage::Host), "it counts");
        assert_eq!((own.bytes(), memory.free()), (3 * UNIT_BYTES, UNIT_BYTES));
    }
}
