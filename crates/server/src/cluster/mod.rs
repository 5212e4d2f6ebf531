//! The node of a cluster that this process is: the pure machines of `cluster`, driven over sockets.
//!
//! | file | what it holds |
//! |---|---|
//! | `settings` | [`Settings`]: what it is told |

mod settings;

pub use settings::{CONTACT_WAIT, INVENTORY_MAX, Listen, OUTBOX_BYTES_MAX, Role, Settings};
