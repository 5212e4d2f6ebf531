//! What the personalities of client programs share: how they tell success and failure, write sizes and times, and wait.
//!
//! | file | what it holds |
//! |---|---|
//! | `status` | [`Status`]: error texts and exit statuses |
//! | `options` | command lines taken apart |
//! | `text` | sizes, times and permissions as these programs print them |

pub(crate) mod options;
mod status;
pub(crate) mod text;

pub(crate) use status::{INVALID_ARGUMENTS, Side, Status, code};

use std::ffi::OsString;
use std::future::Future;

use crate::environment::{self, Ground};

/// The words of a command line; what is no UTF-8 in them cannot be named over the wire.
pub(crate) fn words(arguments: Vec<OsString>) -> Vec<String> {
    arguments.into_iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Drives connections while a command waits.
pub(crate) struct Runtime(Ground);

impl Runtime {
    pub(crate) fn new() -> Result<Self, Status> {
        environment::begin(0).map(Self).map_err(|error| Status::of_system(code::OS_ERROR, &error))
    }

    /// Waits for an operation.
    pub(crate) fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.0.runtime.block_on(operation)
    }

    /// Runs something that blocks, such as waiting for a person, while connections are kept alive; `None` if it panics.
    pub(crate) fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || done.send(work()));
        self.wait(result).ok()
    }
}
