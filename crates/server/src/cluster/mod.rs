//! The node of a cluster that this process is: the pure machines of `cluster`, driven over sockets.
//!
//! | file | what it holds |
//! |---|---|
//! | `announce` | what becomes of names here, for the parents |
//! | `forward` | operations on names on their way down |
//! | `configured` | from the configuration to what it is told |
//! | `identity` | who it is, over restarts |
//! | `health` | load, space and the list of who may join, measured beside all this |
//! | `operations` | operations on names that a parent passes on, done here |
//! | `settings` | [`Settings`]: what it is told |

#[allow(dead_code)] // nobody drives it yet
mod announce;
#[allow(dead_code)] // nobody drives it yet
mod configured;
#[allow(dead_code)] // nobody drives it yet
mod forward;
#[allow(dead_code)] // nobody drives it yet
mod health;
#[allow(dead_code)] // nobody drives it yet
mod identity;
#[allow(dead_code)] // nobody drives it yet
mod operations;
mod settings;

pub use settings::{CONTACT_WAIT, INVENTORY_MAX, Listen, OUTBOX_BYTES_MAX, Role, Settings};
