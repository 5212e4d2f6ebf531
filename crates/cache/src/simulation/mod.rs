//! Caches that serve recorded requests without data: the hit rates of policies and sizes.
//!
//! | file | contents |
//! |---|---|
//! | `access_trace` | [`TraceReader`]: recorded requests from a text |
//! | `sample_traces` | [`SampleTrace`]: requests of typical work, from a seed |

mod access_trace;
mod sample_traces;

#[cfg(test)]
mod tests;

pub use access_trace::{TraceError, TraceReader, TraceRequest};
pub use sample_traces::{SampleTrace, SampleTraceKind};

use crate::eviction::{EvictionPolicy, LruPolicy, S3FifoPolicy};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// A part of a file: its number and the number of the part.
type Unit = (u32, u64);

/// The hash of a simulation has no key, so that a run gives the same result again.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// The policies that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimulatedPolicy {
    /// The unit whose last request is longest ago goes first, as in XRootD's disk cache.
    Lru,
    /// The policy of Scalla's cache.
    S3Fifo,
}

impl SimulatedPolicy {
    /// All policies, with their names.
    pub const ALL: [(&str, Self); 2] = [("LRU", Self::Lru), ("S3-FIFO", Self::S3Fifo)];
}

/// What a trace requests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TraceSize {
    /// The number of requests.
    pub requests: u64,
    /// The requested bytes.
    pub bytes: u64,
    /// The size in bytes of all units that are requested at least once.
    pub footprint: u64,
}

impl TraceSize {
    /// Measures a trace. It takes memory for each unit.
    ///
    /// # Errors
    /// The first error of the trace.
    pub fn measure<E>(trace: impl Iterator<Item = Result<TraceRequest, E>>, unit: u64) -> Result<Self, E> {
        let mut size = Self::default();
        let mut units: HashSet<Unit> = HashSet::new();
        for request in trace {
            let request = request?;
            size.requests += 1;
            size.bytes = size.bytes.saturating_add(request.length);
            units.extend(request.units(unit).map(|(index, _)| (request.file, index)));
        }
        size.footprint = (units.len() as u64).saturating_mul(unit);
        Ok(size)
    }
}

/// What a simulated cache did.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SimulatedCounts {
    /// Requests whose bytes were all cached.
    pub hits: u64,
    /// Requested bytes that were cached.
    pub hit_bytes: u64,
    /// Bytes of the units that were fetched and stored.
    pub stored_bytes: u64,
}

/// A cache without data.
pub struct SimulatedCache {
    policy: Box<dyn EvictionPolicy<Unit>>,
    capacity: u64,
    unit: u64,
    counts: SimulatedCounts,
}

impl SimulatedCache {
    /// Creates an empty cache of `capacity` bytes whose units have `unit` bytes.
    #[must_use]
    pub fn new(policy: SimulatedPolicy, capacity: u64, unit: u64) -> Self {
        let unit = unit.max(1);
        let hasher = FixedHasher::default();
        let units = usize::try_from(capacity / unit).unwrap_or(usize::MAX);
        let policy: Box<dyn EvictionPolicy<Unit>> = match policy {
            SimulatedPolicy::Lru => Box::new(LruPolicy::with_hasher(hasher)),
            SimulatedPolicy::S3Fifo => Box::new(S3FifoPolicy::with_hasher(capacity, units, hasher)),
        };
        Self { policy, capacity, unit, counts: SimulatedCounts::default() }
    }

    /// Serves a request.
    pub fn serve(&mut self, request: TraceRequest) {
        let mut is_hit = true;
        for (index, bytes) in request.units(self.unit) {
            let key = (request.file, index);
            if self.policy.request(key) {
                self.counts.hit_bytes += bytes;
                continue;
            }
            is_hit = false;
            if self.unit <= self.capacity {
                self.policy.insert(key, self.unit);
                self.counts.stored_bytes += self.unit;
            }
            while self.policy.bytes() > self.capacity && self.policy.evict().is_some() {}
        }
        self.counts.hits += u64::from(is_hit);
    }

    /// Returns what the cache did so far.
    #[must_use]
    pub const fn counts(&self) -> SimulatedCounts {
        self.counts
    }
}
