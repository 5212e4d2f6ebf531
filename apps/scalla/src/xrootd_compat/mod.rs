//! Common code of the client programs: statuses, options, sizes and times, and the runtime.
//!
//! | file | contents |
//! |---|---|
//! | `status` | [`XrdClStatus`]: error texts and exit statuses |
//! | `options` | parser of command lines |
//! | `format` | sizes, times and permissions in the format of these programs |

pub(crate) mod format;
pub(crate) mod options;
mod status;

pub(crate) use status::{CopySide, INVALID_ARGUMENTS, XrdClStatus, code};

use std::ffi::OsString;
use std::future::Future;

use crate::environment::{self, ClientRuntime};

/// The text of the options that print the licence.
pub(crate) const LICENCE: &str = "\
Licensed under the Apache License, Version 2.0: you may use, change and pass on this program under
its terms, which are at https://www.apache.org/licenses/LICENSE-2.0. There is no warranty.
";

/// Returns the words of a command line. Invalid UTF-8 is replaced, because it cannot be sent to a
/// server.
pub(crate) fn words(arguments: Vec<OsString>) -> Vec<String> {
    arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Drives connections while a command waits.
pub(crate) struct CommandRuntime(ClientRuntime);

impl CommandRuntime {
    pub(crate) fn new() -> Result<Self, XrdClStatus> {
        environment::start_runtime(0)
            .map(Self)
            .map_err(|error| XrdClStatus::of_system(code::OS_ERROR, &error))
    }

    /// Waits for an operation.
    pub(crate) fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.0.runtime.block_on(operation)
    }

    /// Runs a blocking function, such as a prompt, while connections are driven. Returns `None` if
    /// it panics.
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || done.send(work()));
        self.wait(result).ok()
    }
}
