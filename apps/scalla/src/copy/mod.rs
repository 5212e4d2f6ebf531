//! `scalla cp` and `scalla sync`.
//!
//! | file | what it holds |
//! |---|---|
//! | `cp` | [`Cp`]: the command line, and what is done for it |
//! | `sync` | [`SyncCommand`]: the same for `scalla sync` |
//! | `alike` | failures that have their reason in a server as a whole |
//! | `asked` | values of options |
//! | `show` | progress on a terminal, lines of JSON, the summary |
//! | `work` | the runtime, and what an interrupt does |

mod alike;
pub(crate) mod asked;
mod cp;
mod show;
mod sync;
pub(crate) mod work;

pub(crate) use cp::Cp;
pub(crate) use sync::SyncCommand;
