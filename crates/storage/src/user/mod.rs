//! Storage operations with the rights of a user of the system (multi-user, decision 045).
//!
//! | file | content |
//! |---|---|
//! | `account` | [`StorageUser`]: user id, group id and further groups |
//! | `switch` | [`UserSwitch`]: gives the calling thread the rights of a user and takes them back |
//! | `backend` | [`UserBackend`]: a storage whose calls are made as a user |
//! | `file` | an open file whose metadata is changed as a user |
//! | `directory` | an open directory whose entries are looked up as a user |

mod account;
mod backend;
mod directory;
mod file;
mod switch;

pub use account::StorageUser;
pub use backend::UserBackend;
pub(crate) use switch::is_acting;
pub use switch::{ActingAs, UserSwitch};
