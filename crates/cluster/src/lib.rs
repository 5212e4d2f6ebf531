//! The cluster as pure machines: who belongs to the tree, where files are, and which server is chosen.
//!
//! | file | what it holds |
//! |---|---|
//! | `slots` | [`Slot`] and [`SlotMask`]: a child's place in its cell, and a set of places |
//!
//! No socket, no clock, no thread: what arrives and the time since the start are arguments, what should happen comes
//! out. So a test lets an hour pass in a microsecond, and ten thousand nodes form a tree in one process.

mod slots;

pub use slots::{CELL_SLOTS, Slot, SlotMask, Slots};
