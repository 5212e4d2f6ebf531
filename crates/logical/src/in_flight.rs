//! A count of operations in progress on an open file, because the file may be released only after
//! the last one has ended.

use crate::open_file::OpenFileState;
use std::sync::Arc;

/// An operation in progress that keeps its file open.
pub(crate) struct InFlight(Arc<OpenFileState>);

impl InFlight {
    /// Starts an operation; `None` if the file is being closed.
    pub(crate) fn new(open: &Arc<OpenFileState>) -> Option<Self> {
        let mut flight = open.flight();
        if flight.closing {
            return None;
        }
        flight.count += 1;
        Some(Self(open.clone()))
    }

    pub(crate) fn open(&self) -> &Arc<OpenFileState> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut flight = self.0.flight();
        flight.count -= 1;
        if flight.count == 0
            && let Some(then) = flight.then.take()
        {
            drop(flight);
            then();
        }
    }
}
