//! Files that stay in the cache because an administrator has pinned them or a directory above them.
//!
//! Pinned files have at most half of the cache: a pin for more is refused. When pinned directories grow beyond that, pins
//! are taken in the order of their first orders, and each one that would pass the half has no effect on removals for room,
//! quotas and age. Pins do not keep files that have changed at the origin.

use super::shared::CacheShared;
use crate::store::{CachePin, add_pin};
use crate::{CACHE_PINS_MAX, CacheKey};
use base::LogicalPath;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The part of the cache that pinned files can have: one in this number.
pub(super) const PINNED_SHARE: u64 = 2;

/// The reason why a pin was refused.
#[derive(Error, Debug)]
pub enum CachePinFailure {
    /// There are too many pins.
    #[error(
        "there are too many pins ({CACHE_PINS_MAX} at most, also of those that ended within a day); unpin a path, or pin a directory above several"
    )]
    TooMany,
    /// Pinned files would have more than half of the cache.
    #[error("pinned files would have {wanted} bytes, and they can have {limit}, which is half of the cache")]
    TooMuch {
        /// Their bytes.
        wanted: u64,
        /// The limit.
        limit: u64,
    },
    /// The path cannot be in the cache.
    #[error("no file of this name can be in the cache")]
    Name,
    /// An error of the disk.
    #[error("the pins cannot be stored: {0}")]
    Disk(#[from] io::Error),
}

/// A pin, and its effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachePinStatus {
    /// The pin.
    pub pin: CachePin,
    /// The stored bytes of its files.
    pub bytes: u64,
    /// It keeps them. Otherwise pinned files have more than half of the cache.
    pub is_kept: bool,
}

/// The pins of a cache.
pub(super) struct CachePins {
    pins: Mutex<Vec<CachePin>>,
    /// Held while pins are changed.
    changing: tokio::sync::Mutex<()>,
    /// The bytes that pinned files can have. It is known when the disk was looked through; until then all pins hold.
    limit: AtomicU64,
}

impl Default for CachePins {
    fn default() -> Self {
        Self {
            pins: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            limit: AtomicU64::new(u64::MAX),
        }
    }
}

/// Files that are not removed now.
pub(super) struct PinnedPaths(HashSet<LogicalPath>);

impl PinnedPaths {
    /// Reports whether a file is at or below one of the paths.
    pub(super) fn contain(&self, key: &CacheKey) -> bool {
        !self.0.is_empty()
            && std::iter::successors(Some(key.data().clone()), LogicalPath::parent)
                .any(|path| self.0.contains(&path))
    }
}

/// Paths of pins with the bytes of their files. Of paths within each other, it has the highest one.
#[derive(Default)]
struct CountedPins(Vec<(LogicalPath, u64)>);

impl CountedPins {
    /// Returns the number of bytes that a path adds.
    fn added(&self, path: &LogicalPath, bytes: u64) -> u64 {
        if self.0.iter().any(|(counted, _)| path.is_within(counted)) {
            return 0;
        }
        let below = self.0.iter().filter(|(counted, _)| counted.is_within(path));
        below.fold(bytes, |left, (_, bytes)| left.saturating_sub(*bytes))
    }

    fn add(&mut self, path: &LogicalPath, bytes: u64) {
        if !self.0.iter().any(|(counted, _)| path.is_within(counted)) {
            self.0.retain(|(counted, _)| !counted.is_within(path));
            self.0.push((path.clone(), bytes));
        }
    }

    fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

impl CachePins {
    fn lock(&self) -> MutexGuard<'_, Vec<CachePin>> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the size of the cache.
    pub(super) fn set_capacity(&self, capacity: u64) {
        self.limit.store(capacity / PINNED_SHARE, Ordering::Relaxed);
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}

impl CacheShared {
    /// Takes the pins of an earlier process.
    pub(super) fn take_pins(&self, pins: Vec<CachePin>) {
        pins.iter().for_each(|pin| self.index.count_below(&pin.path));
        *self.pins.lock() = pins;
    }

    /// Returns the pins that hold. The earlier ones have precedence.
    pub(super) fn pin_status(&self) -> Vec<CachePinStatus> {
        let (now, limit, mut kept) = (self.now(), self.pins.limit(), CountedPins::default());
        let pins: Vec<CachePin> = self.pins.lock().iter().filter(|pin| pin.holds(now)).cloned().collect();
        let status = |pin: CachePin| {
            let bytes = self.index.bytes_below(&pin.path);
            let is_kept = kept.bytes().saturating_add(kept.added(&pin.path, bytes)) <= limit;
            if is_kept {
                kept.add(&pin.path, bytes);
            }
            CachePinStatus { pin, bytes, is_kept }
        };
        pins.into_iter().map(status).collect()
    }

    /// Returns the paths of pins that keep their files.
    pub(super) fn kept_paths(&self) -> PinnedPaths {
        let kept = self.pin_status().into_iter().filter(|status| status.is_kept);
        PinnedPaths(kept.map(|status| status.pin.path).collect())
    }

    /// Returns the stored bytes of files that pins keep.
    pub(super) fn pinned_bytes(&self) -> u64 {
        let mut kept = CountedPins::default();
        let status = self.pin_status().into_iter().filter(|status| status.is_kept);
        status.for_each(|status| kept.add(&status.pin.path, status.bytes));
        kept.bytes()
    }

    /// Reports whether a file is pinned, also by a pin that has no effect on other removals.
    pub(super) fn is_pinned(&self, key: &CacheKey) -> bool {
        let now = self.now();
        self.pins.lock().iter().any(|pin| pin.holds(now) && pin.covers(key))
    }
}

impl CacheShared {
    /// Pins a file or directory until a time. It is durable afterwards. Returns its stored bytes.
    ///
    /// # Errors
    /// [`CachePinFailure`].
    pub(super) async fn pin(&self, path: &LogicalPath, expires: i64) -> Result<u64, CachePinFailure> {
        let pin = CachePin { path: path.without_slash(), created: self.now(), expires };
        if !pin.can_have_files() {
            return Err(CachePinFailure::Name);
        }
        let path = pin.path.clone();
        let _changing = self.pins.changing.lock().await;
        // Counted for the comparison, and then for the pin.
        self.index.count_below(&path);
        let result = self.add_pin(pin).await;
        if !matches!(result, Ok((_, true))) {
            self.index.end_count_below(&path);
        }
        result.map(|(bytes, _)| bytes)
    }

    /// Stores a pin. Returns the bytes of its files, and whether it is new.
    async fn add_pin(&self, pin: CachePin) -> Result<(u64, bool), CachePinFailure> {
        let (bytes, limit) = (self.index.bytes_below(&pin.path), self.pins.limit());
        let mut all = CountedPins::default();
        self.pin_status().iter().for_each(|status| all.add(&status.pin.path, status.bytes));
        all.add(&pin.path, bytes);
        let wanted = all.bytes();
        if wanted > limit {
            return Err(CachePinFailure::TooMuch { wanted, limit });
        }
        let before = self.pins.lock().clone();
        let is_new = before.iter().all(|known| known.path != pin.path);
        let (now, mut after) = (pin.created, before.clone());
        if !add_pin(&mut after, pin, now) {
            return Err(CachePinFailure::TooMany);
        }
        self.replace_pins(&before, after).await?;
        Ok((bytes, is_new))
    }

    /// Ends the pin of a path. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(super) async fn unpin(&self, path: &LogicalPath) -> io::Result<bool> {
        let path = path.without_slash();
        let _changing = self.pins.changing.lock().await;
        let before = self.pins.lock().clone();
        let now = self.now();
        let after: Vec<CachePin> = before.iter().filter(|pin| pin.path != path).cloned().collect();
        let was_pinned = before.iter().any(|pin| pin.holds(now) && pin.path == path);
        self.replace_pins(&before, after).await?;
        Ok(was_pinned)
    }

    async fn replace_pins(&self, before: &[CachePin], after: Vec<CachePin>) -> io::Result<()> {
        if before == after {
            return Ok(());
        }
        let (context, saved) = (self.context.clone(), after.clone());
        let ended = || Err(io::Error::other("the threads of the disk have ended"));
        self.on_disk(move || context.save_pins(&saved)).await.unwrap_or_else(ended)?;
        let has_ended = |pin: &&CachePin| after.iter().all(|other| other.path != pin.path);
        before.iter().filter(has_ended).for_each(|pin| self.index.end_count_below(&pin.path));
        *self.pins.lock() = after;
        Ok(())
    }
}
