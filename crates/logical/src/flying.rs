//! Operations in flight: a file is let go only when the last of them has ended.

use crate::open_file::Open;
use std::sync::Arc;

/// One operation that the file is kept open for.
pub(crate) struct Flying(Arc<Open>);

impl Flying {
    /// `None` if the file is being let go.
    pub(crate) fn new(open: &Arc<Open>) -> Option<Self> {
        let mut flight = open.flight();
        if flight.closing {
            return None;
        }
        flight.count += 1;
        Some(Self(open.clone()))
    }

    pub(crate) fn open(&self) -> &Arc<Open> {
        &self.0
    }
}

impl Drop for Flying {
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
