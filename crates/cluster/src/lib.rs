//! The cluster as pure machines: who belongs to the tree, where files are, and which server is chosen.
//!
//! | file | what it holds |
//! |---|---|
//! | `slots` | [`Slot`] and [`SlotMask`]: a child's place in its cell, and a set of places |
//! | `cache` | [`Cache`]: which children have a file, as far as it is known |
//! | [`tree`] | who belongs to the tree: how nodes find their places, and how parents give places away |
//!
//! No socket, no clock, no thread: what arrives and the time since the start are arguments, what should happen comes
//! out. So a test lets an hour pass in a microsecond, and ten thousand nodes form a tree in one process.

mod cache;
mod slots;
pub mod tree;

pub use cache::{
    Bounces, Cache, CacheSettings, CacheStats, LOCATIONS_MAX, Location, PATH_BYTES_TOTAL_MAX, PLACEMENT_HOLD,
    WINDOW, WINDOW_TICKS,
};
pub use slots::{CELL_SLOTS, Slot, SlotMask, Slots};
