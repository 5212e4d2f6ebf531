//! The order in which a full cache removes its units.
//!
//! | file | contents |
//! |---|---|
//! | `frequency_sketch` | `FrequencySketch`: how often units were requested lately, in fixed memory |
//! | `ghost_table` | `GhostTable`: units that were removed lately |
//! | `lru` | [`LruPolicy`]: the unit whose last request is longest ago goes first |
//! | `s3_fifo` | [`S3FifoPolicy`]: the policy of the cache |
//! | `unit_queue` | `UnitArena` and `UnitQueue`: linked queues of units |

mod frequency_sketch;
mod ghost_table;
mod lru;
mod s3_fifo;
mod unit_queue;

#[cfg(test)]
mod tests;

pub use lru::LruPolicy;
pub(crate) use s3_fifo::ParkedUnit;
pub use s3_fifo::S3FifoPolicy;

/// The order of removals. A unit is a part of a file that is stored and removed as a whole. A policy does not know the units' data; its owner calls
/// [`EvictionPolicy::evict`] until [`EvictionPolicy::bytes`] is within its limit.
pub trait EvictionPolicy<K> {
    /// Records a request for a unit. Returns whether the unit is cached.
    fn request(&mut self, key: K) -> bool;

    /// Adds a unit that is not cached. Does nothing if it is.
    fn insert(&mut self, key: K, bytes: u64);

    /// Removes the next unit. Returns it with its size in bytes; `None` if the cache is empty.
    fn evict(&mut self) -> Option<(K, u64)>;

    /// Removes a unit, as if it had never been stored. Returns its size in bytes.
    fn remove(&mut self, key: K) -> Option<u64>;

    /// Returns the size of all units in bytes.
    fn bytes(&self) -> u64;
}
