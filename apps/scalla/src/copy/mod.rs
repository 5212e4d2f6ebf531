//! `scalla cp` and `scalla sync`.
//!
//! | file | contents |
//! |---|---|
//! | `cp` | [`CpCommand`]: the `scalla cp` command |
//! | `sync` | [`SyncCommand`]: the `scalla sync` command |
//! | `repeated_failures` | deduplication of failures that concern a server as a whole |
//! | `option_values` | parsers of option values |
//! | `reporter` | progress on a terminal, lines of JSON, the summary |
//! | `interrupts` | the runtime, and the handling of interrupts |

mod cp;
pub(crate) mod interrupts;
pub(crate) mod option_values;
mod repeated_failures;
mod reporter;
mod sync;

pub(crate) use cp::CpCommand;
pub(crate) use sync::SyncCommand;
