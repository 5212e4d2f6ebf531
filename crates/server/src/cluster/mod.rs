//! The node of a cluster that this process is: the pure machines of `cluster`, driven over sockets.
//!
//! | file | what it holds |
//! |---|---|
//! | `health` | load, space and the list of who may join, measured beside all this |
//! | `settings` | [`Settings`]: what it is told |

#[allow(dead_code)] // nobody drives it yet
mod health;
mod settings;

pub use settings::{CONTACT_WAIT, INVENTORY_MAX, Listen, OUTBOX_BYTES_MAX, Role, Settings};
