//! `scalla cp` and what goes with it.
//!
//! | file | what it holds |
//! |---|---|
//! | `cp` | [`Cp`]: the command line, and what is done for it |
//! | `asked` | values of options |
//! | `show` | progress on a terminal, lines of JSON, the summary |
//! | `work` | the runtime, and what an interrupt does |

pub(crate) mod asked;
mod cp;
mod show;
pub(crate) mod work;

pub(crate) use cp::Cp;
