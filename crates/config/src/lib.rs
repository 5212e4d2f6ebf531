//! The directive language: text to typed structs per room, with file and line in every error.
//!
//! | module       | what it holds                                                             |
//! |--------------|---------------------------------------------------------------------------|
//! | `language`   | files to directives: tokens, conditions, variables, `continue`            |
//! | `values`     | sizes, times, counts, ports, paths, with their ranges                     |
//! | `directives` | every directive: names, grammar, default, help, standing, and what it does |
//! | `load`       | a file and a command line to the effective configuration                  |
//! | `effective`  | the result: one struct per room, every value with its origin              |
//! | `report`     | what there is to say, all at once                                         |
//! | `check`      | dead paths and contradictions: values against each other and the disk     |
//! | `show`       | the effective configuration as text                                       |
//! | `changes`    | what a running server can take over                                       |
//! | `manual`     | the reference in docs, made from the tables                                |
//! | `setting`    | a value and where it came from                                            |
//! | `source`     | where text is read from: the file system, or memory in tests              |

mod changes;
mod check;
mod directives;
mod effective;
mod language;
mod load;
mod manual;
mod report;
mod setting;
mod show;
mod source;
mod values;

pub use changes::{Change, Changes, changes};
pub use check::{Disk, LocalDisk, Look, check};
pub use directives::{
    Directive, EXPORT_OPTIONS, Mark, OptionEntry, SECTIONS, Section, Standing, every_directive,
    find_directive, nearest_directive,
};
pub use effective::*;
pub use language::{ANONYMOUS, Evaluation};
pub use load::{Load, Loaded, Overrides, load};
pub use manual::manual;
pub use report::{Problem, ProblemKind, Report, Severity, Strictness};
pub use setting::{Origin, Position, Setting};
pub use show::{Reload, Shown, show};
pub use source::{FILE_BYTES_MAX, Files, Kind, Memory, Source};
