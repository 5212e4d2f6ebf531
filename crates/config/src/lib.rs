//! The directive language: configuration text to typed structs, with file and line in every error
//! (decision 017).
//!
//! The crate changes nothing and starts nothing, so that `config check` can use all of it.
//!
//! | module | content |
//! |---|---|
//! | `language` | files to directives: tokens, conditions, variables, `continue` |
//! | `values` | sizes, times, counts, ports, paths, with their ranges |
//! | `directives` | each directive: names, grammar, default, help, standing, effect |
//! | `load` | a file and a command line to the effective configuration |
//! | `effective` | the result: one struct per crate, each value with its origin |
//! | `report` | all problems of a configuration |
//! | `cache_quotas` | the file with quotas of the disk cache |
//! | `check` | validation of values against each other and the disk |
//! | `show` | the effective configuration as text |
//! | `changes` | differences between two configurations, by need of a restart |
//! | `manual` | generator of the reference in `docs/` |
//! | `setting` | a value and its origin |
//! | `source` | the source of text: the file system, or memory in tests |

mod cache_quotas;
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

pub use cache_quotas::{CACHE_QUOTAS_MAX, cache_quotas};
pub use changes::{Changes, DirectiveChange, changes};
pub use check::{Disk, LocalDisk, PathAccess, check};
pub use directives::{
    Directive, EXPORT_OPTIONS, OptionEntry, SECTIONS, Section, Standing, UsageFrequency, every_directive,
    find_directive, nearest_directive, program_directives,
};
pub use effective::*;
pub use language::{ANONYMOUS, Evaluation};
pub use load::{ConfigInput, Loaded, Overrides, load};
pub use manual::{manual, manual_of};
pub use report::{ConfigReport, Problem, ProblemKind, Severity, Strictness};
pub use setting::{Origin, Position, Setting};
pub use show::{EffectiveLine, Reload, show};
pub use source::{ConfigSource, FILE_BYTES_MAX, LocalFiles, MemorySource, PathKind};
