//! [`UploadMemory`]: the memory of parts on their way to an object store, for all files together.
//!
//! Each file that is written has memory for one part, or for all of it if it is small, until it is closed. So it
//! always gets on. Further parts take free memory, of which half is left to files that are opened later. All memory of
//! a file counts for the host of its client.

use base::ClientHost;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

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
    /// What clients of each host have.
    hosts: Mutex<HashMap<ClientHost, HostUnits>>,
    /// Notifies of memory of further parts that is free again.
    freed: Notify,
}

/// The units of clients of a host.
#[derive(Clone, Copy, Default)]
struct HostUnits {
    /// What files keep until they are closed.
    kept: usize,
    /// That of further parts.
    more: usize,
    /// Number of files that wait for what further parts have.
    waiting: usize,
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
    units: HostUnits,
}

/// No memory is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryShortage {
    /// Other files have all of it.
    Full,
    /// The clients of this host have as much as they may.
    Host,
}

impl Drop for HostCount {
    fn drop(&mut self) {
        if let Entry::Occupied(mut found) = self.memory.hosts().entry(self.host) {
            let units = found.get_mut();
            units.kept -= self.units.kept;
            units.more -= self.units.more;
            units.waiting -= self.units.waiting;
            if units.kept + units.more + units.waiting == 0 {
                found.remove();
            }
        }
        self.memory.freed.notify_waiters();
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
        let units = Arc::new(Semaphore::new(units_max));
        Arc::new(Self { units, units_max, hosts: Mutex::default(), freed: Notify::new() })
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<ClientHost, HostUnits>> {
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

    /// Counts units for a host. `None` if it would have too many.
    fn count(self: &Arc<Self>, host: ClientHost, units: HostUnits) -> Option<HostCount> {
        let mut hosts = self.hosts();
        let of_host = hosts.get(&host).copied().unwrap_or_default();
        let sum = HostUnits {
            kept: of_host.kept + units.kept,
            more: of_host.more + units.more,
            waiting: of_host.waiting + units.waiting,
        };
        let has_turn = units.more == 0 || of_host.waiting == 0;
        let adds = units.kept + units.more > 0;
        if !has_turn || adds && sum.kept + sum.more > self.units_max / HOST_SHARE {
            return None;
        }
        hosts.insert(host, sum);
        drop(hosts);
        Some(HostCount { memory: self.clone(), host, units })
    }

    /// Counts units that a file keeps. What its host has for further parts is free soon, so it is waited for.
    async fn count_kept(self: &Arc<Self>, host: ClientHost, units: usize) -> Option<HostCount> {
        let mut waits = None;
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            let count = self.count(host, HostUnits { kept: units, ..HostUnits::default() });
            let kept = self.hosts().get(&host).map_or(0, |of_host| of_host.kept);
            if count.is_some() || kept + units > self.units_max / HOST_SHARE {
                return count;
            }
            if waits.is_none() {
                // No further part is begun before.
                waits = self.count(host, HostUnits { waiting: 1, ..HostUnits::default() });
                continue;
            }
            freed.await;
        }
    }

    /// Waits for memory that a file keeps.
    pub(crate) async fn take(
        self: &Arc<Self>,
        bytes: usize,
        host: ClientHost,
    ) -> Result<PartMemory, MemoryShortage> {
        let units = Self::units_of(bytes);
        let deadline = Instant::now() + WAIT_TIME;
        let count = tokio::time::timeout_at(deadline, self.count_kept(host, units)).await;
        let count = count.ok().flatten().ok_or(MemoryShortage::Host)?;
        let units = u32::try_from(units).map_err(|_| MemoryShortage::Full)?;
        let permit = self.units.clone().acquire_many_owned(units);
        match tokio::time::timeout_at(deadline, permit).await {
            Ok(Ok(permit)) => Ok(PartMemory { permit, counts: vec![count], is_own: false }),
            _ => Err(MemoryShortage::Full),
        }
    }

    /// Takes memory for one more part of a file, if there is enough.
    pub(crate) fn take_more(self: &Arc<Self>, bytes: usize, host: ClientHost) -> Option<PartMemory> {
        let units = Self::units_of(bytes);
        if self.units.available_permits() < units + self.units_max / RESERVE {
            return None;
        }
        let count = self.count(host, HostUnits { more: units, ..HostUnits::default() })?;
        let permit = self.units.clone().try_acquire_many_owned(u32::try_from(units).ok()?).ok()?;
        Some(PartMemory { permit, counts: vec![count], is_own: false })
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

    #[tokio::test(start_paused = true)]
    async fn a_host_has_its_share_with_all_that_it_has() {
        let memory = UploadMemory::of_bytes(16 * UNIT_BYTES);
        let own = memory.take_own(2 * UNIT_BYTES, host(1)).await.unwrap();
        let more: Vec<_> = std::iter::from_fn(|| memory.take_more(2 * UNIT_BYTES, host(1))).collect();
        assert_eq!(more.len(), 3, "parts that are not kept count");
        assert!(memory.take_more(1, host(2)).is_none() && memory.free() == 8 * UNIT_BYTES);
        // A part is on its way, so its host waits for it.
        let wait = memory.take_own(2 * UNIT_BYTES, host(1));
        let (second, ()) = tokio::join!(wait, async {
            drop(more);
            assert!(memory.take_more(1, host(1)).is_none(), "it has its turn before");
        });
        let second = second.unwrap();
        assert!(memory.take_more(4 * UNIT_BYTES, host(1)).is_some());
        let begun = Instant::now();
        assert_eq!(memory.take(5 * UNIT_BYTES, host(1)).await.err(), Some(MemoryShortage::Host));
        assert_eq!(begun.elapsed(), Duration::ZERO, "files that are open keep theirs");
        drop((own, second));
        assert!(memory.hosts().is_empty());
    }

    #[tokio::test]
    async fn further_parts_leave_memory_to_files_that_are_opened_later() {
        let memory = UploadMemory::of_bytes(8 * UNIT_BYTES);
        let hosts = (2..=3).chain(2..=3);
        let more: Vec<_> = hosts.map_while(|number| memory.take_more(UNIT_BYTES, host(number))).collect();
        assert_eq!((more.len(), memory.take_more(1, host(4)).is_none()), (4, true));
        let mut own = memory.take_own(2 * UNIT_BYTES, host(1)).await.unwrap();
        own.add(memory.take(UNIT_BYTES, host(1)).await.unwrap());
        assert_eq!(memory.take(2 * UNIT_BYTES, host(1)).await.err(), Some(MemoryShortage::Host), "it counts");
        assert_eq!((own.bytes(), memory.free()), (3 * UNIT_BYTES, UNIT_BYTES));
    }
}
