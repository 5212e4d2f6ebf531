//! [`UsageError`]: invalid arguments that the parser of the command line accepts.

use std::fmt;

/// Invalid arguments. The command has done nothing.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}
