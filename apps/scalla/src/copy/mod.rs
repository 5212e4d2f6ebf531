//! `scalla cp` and `scalla sync`.
//!
//! | file | contents |
//! |---|---|
//! | `cp` | [`Cp`]: the `scalla cp` command |
//! | `sync` | [`SyncCommand`]: the `scalla sync` command |
//! | `alike` | deduplication of failures that concern a server as a whole |
//! | `asked` | parsers of option values |
//! | `show` | progress on a terminal, lines of JSON, the summary |
//! | `work` | the runtime, and the handling of interrupts |

mod alike;
pub(crate) mod asked;
mod cp;
mod show;
mod sync;
pub(crate) mod work;

pub(crate) use cp::Cp;
pub(crate) use sync::SyncCommand;
