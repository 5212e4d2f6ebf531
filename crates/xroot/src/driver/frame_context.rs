//! [`FrameContext`]: what a read needs of its session to make its next frame.

use super::context::SessionContext;
use super::jobs::JobWork;
use crate::connections::LinkState;
use base::{Account, Charge, MemoryPurpose, ReadPiece};
use session::PathId;
use std::rc::Rc;
use std::sync::Arc;
use vfs::{Answer, FileOperation, OpenFile};

/// The memory, the pool and the output that a transfer uses. The kinds of reads get them from here,
/// so that they do not know the tables of the session.
pub(crate) struct FrameContext<'a> {
    context: &'a mut SessionContext,
    /// Key of the transfer, to which the pool returns a piece.
    transfer: usize,
    /// The connection of the replies.
    link: PathId,
}

impl<'a> FrameContext<'a> {
    pub(super) fn new(context: &'a mut SessionContext, transfer: usize, link: PathId) -> Self {
        Self { context, transfer, link }
    }

    /// Reports whether plain data may be sent without a copy.
    pub(crate) fn may_send_file(&self) -> bool {
        self.context.hub.shared.config.sendfile
    }

    /// Reserves memory for file data. Returns `None` if memory is short.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<Charge> {
        self.context.reserve(MemoryPurpose::Data, bytes, 0)
    }

    /// Lets the pool read pieces of a file into a buffer. Returns the answer and the charge if it is
    /// there already.
    pub(crate) fn start_read(
        &mut self,
        file: &Arc<dyn OpenFile>,
        (buffer, charge): (Vec<u8>, Charge),
        pieces: Vec<ReadPiece>,
    ) -> Option<(Answer, Charge)> {
        let operation = FileOperation::Read { buffer, pieces };
        self.context.start_job(JobWork::Read(self.transfer), charge, file, operation)
    }

    /// Returns the connection of the replies, and the account to which additions to its output are
    /// charged. Returns `None` if the connection was lost.
    pub(crate) fn output(&mut self) -> Option<(&mut LinkState, &Rc<Account>)> {
        self.context.links.get_with_account(self.link)
    }
}
