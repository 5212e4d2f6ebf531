//! [`Transfers`]: the reads of a session, in place or in several steps.
//!
//! A small read of data in memory is answered in place. All others become transfers: large reads,
//! cold reads, vector reads and those with page checksums. A transfer makes one frame at a time
//! while the output has room. Data in memory is sent without a copy where possible. Cold data is
//! read by the pool, a block at a time, while other requests of the connection continue.
//!
//! The driver executes the tasks that the end of a read makes possible, so functions here report
//! such an end.

use super::context::SessionContext;
use super::frame_context::FrameContext;
use super::monitoring::SessionMonitor;
use crate::connections::SessionConnections;
use crate::lazy::Lazy;
use crate::range_read::{RangeRead, may_be_lent};
use crate::transfer::{FrameProgress, Transfer, TransferWork};
use crate::vector_read::VectorRead;
use crate::{FRAME_BYTES_MAX, OUTPUT_LOW_BYTES, SENDFILE_BYTES_MIN, SPOT_BYTES_MAX, TRANSFERS_MAX};
use base::{Charge, Error};
use session::{FileIndex, PathId, ReadReply, ReadTask, ReadVectorTask, Session};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::{Answer, OpenFile, RedirectAnswer};

/// Result of an attempt to read in place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadAttempt {
    /// The reply is complete.
    Answered,
    /// The read does not qualify.
    NotMade,
    /// The data is not in memory.
    Cold,
}

/// Result of a step of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TransferStep {
    /// The transfer has made a frame or waits for the pool.
    Made,
    /// Memory for its next piece is short now.
    Short,
    /// It has ended, so the session may have further tasks.
    Ended,
}

/// The reads of a session that take several steps.
#[derive(Default)]
pub(super) struct Transfers(Lazy<Slab<Transfer>>);

impl Transfers {
    /// Executes a read: in place if it is small and its data is in memory, otherwise as a transfer.
    /// Returns the connection of a transfer that has begun. Reads that are redirected are not monitored.
    pub(super) fn read(
        &mut self,
        context: &mut SessionContext,
        monitor: Option<&SessionMonitor>,
        mut task: ReadTask,
    ) -> Option<PathId> {
        context.hub.stats.reads.add(1);
        let file = context.session.file(task.file)?;
        let caller = context.session.caller();
        if caller.accepts_read_redirect
            && let Some(to) = context.hub.shared.files.read_redirect(caller, &**file)
        {
            // The client opens the file at the other server and continues there.
            context.session.read_redirected(&task, &to, &mut context.links);
            return None;
        }
        if let Some(monitor) = monitor {
            monitor.note_read(file, &task);
        }
        let lends = context.hub.shared.config.sendfile;
        let attempt = read_on_the_spot(&mut context.links, lends, &**file, &task);
        if attempt == ReadAttempt::Answered {
            context.session.read_answered(&task);
            return None;
        }
        let file = file.clone();
        let reply = context.session.read_began(&mut task);
        let range = RangeRead::new(reply, file, &task, attempt == ReadAttempt::Cold);
        self.begin(context, task.link, TransferWork::Range(range));
        Some(task.link)
    }

    /// Executes a vector read. Returns the connection of a transfer that has begun.
    pub(super) fn read_vector(
        &mut self,
        context: &mut SessionContext,
        monitor: Option<&mut SessionMonitor>,
        mut task: ReadVectorTask,
    ) -> Option<PathId> {
        context.hub.stats.vector_reads.add(1);
        context.hub.stats.read_segments.add(task.elements.len() as u64);
        if let Some(to) = vector_redirect(context, &task) {
            context.session.vector_read_redirected(&task, &to, &mut context.links);
            return None;
        }
        if let Some(monitor) = monitor {
            monitor.note_vector_read(context, &task);
        }
        let files = files_of(&context.session, &task);
        let reply = context.session.vector_read_began(&mut task);
        let link = reply.link();
        self.begin(context, link, TransferWork::Vector(VectorRead::new(reply, task.elements, files)));
        Some(link)
    }

    fn begin(&mut self, context: &mut SessionContext, link: PathId, work: TransferWork) {
        context.hub.stats.transfers.add(1);
        // The request was taken only because its memory was reserved.
        let charge = context.links.account().charge(work.bytes());
        let key = self.0.insert(Transfer::new(link, work, charge));
        match context.links.get(link) {
            Some(state) => {
                state.transfers.push_back(key);
                state.news = true;
            }
            None => self.end(context, key),
        }
    }

    /// Makes frames while the connection's output has room, in turn for all transfers that do not
    /// wait. Returns `true` if it stops because a transfer has ended.
    pub(super) fn advance(&mut self, context: &mut SessionContext, link: PathId) -> bool {
        loop {
            let Some(state) = context.links.get(link) else { return false };
            let work = &**state;
            if work.out.pending() >= OUTPUT_LOW_BYTES {
                return false;
            }
            let Some(key) = self.next_ready(&work.transfers) else { return false };
            match self.make_frame(context, key) {
                TransferStep::Made => {}
                TransferStep::Ended => return true,
                TransferStep::Short => {
                    // The memory may be held by the output of another connection.
                    context.links.get(link).into_iter().for_each(|state| state.short = true);
                    return false;
                }
            }
        }
    }

    /// Makes the next frame of a transfer.
    fn make_frame(&mut self, context: &mut SessionContext, key: usize) -> TransferStep {
        let Some(transfer) = self.0.get_mut(key) else { return TransferStep::Made };
        let link = transfer.link;
        let Some(mut work) = transfer.work.take() else { return TransferStep::Made };
        let made = work.make_frame(&mut FrameContext::new(context, key, link));
        let Some(transfer) = self.put_back(context, key, work) else { return TransferStep::Made };
        match made {
            Ok(FrameProgress::Short) => return TransferStep::Short,
            Ok(FrameProgress::Frame(bytes)) => {
                transfer.turn += bytes;
                if transfer.turn >= FRAME_BYTES_MAX {
                    transfer.turn = 0;
                    if let Some(state) = context.links.get(link)
                        && let Some(at) = state.transfers.iter().position(|&k| k == key)
                        && let Some(key) = state.transfers.remove(at)
                    {
                        state.transfers.push_back(key);
                    }
                }
            }
            Ok(FrameProgress::Waits) => transfer.waiting = true,
            Ok(FrameProgress::Last) => {
                self.end(context, key);
                return TransferStep::Ended;
            }
            Err(error) => {
                self.fail(context, key, &error);
                return TransferStep::Ended;
            }
        }
        TransferStep::Made
    }

    /// Returns the remaining work to its transfer after a frame. If the transfer was removed, ends
    /// the read.
    fn put_back(
        &mut self,
        context: &mut SessionContext,
        key: usize,
        work: TransferWork,
    ) -> Option<&mut Transfer> {
        let Some(transfer) = self.0.get_mut(key) else {
            context.session.read_ended(work.into_reply());
            return None;
        };
        transfer.work = Some(work);
        Some(transfer)
    }

    /// Takes a piece that the pool has read. Returns the connection of the transfer, which can
    /// advance now.
    pub(super) fn take_piece(
        &mut self,
        context: &mut SessionContext,
        key: usize,
        answer: Answer,
        charge: Charge,
    ) -> Option<(PathId, TransferStep)> {
        let transfer = self.0.get_mut(key)?;
        transfer.waiting = false;
        let link = transfer.link;
        let mut work = transfer.work.take()?;
        let made = work.take_piece(&mut FrameContext::new(context, key, link), answer, charge);
        self.put_back(context, key, work)?;
        let step = match made {
            Ok(FrameProgress::Last) => {
                self.end(context, key);
                TransferStep::Ended
            }
            Ok(_) => TransferStep::Made,
            Err(error) => {
                self.fail(context, key, &error);
                TransferStep::Ended
            }
        };
        Some((link, step))
    }

    fn fail(&mut self, context: &mut SessionContext, key: usize, error: &Error) {
        context.note_failure(error);
        if let Some(reply) = self.remove(context, key) {
            context.session.read_failed(reply, error, &mut context.links);
        }
    }

    /// Ends a transfer that has made its last frame or whose connection was lost.
    pub(super) fn end(&mut self, context: &mut SessionContext, key: usize) {
        if let Some(reply) = self.remove(context, key) {
            context.session.read_ended(reply);
        }
    }

    /// Removes a transfer from the tables. The result of a piece that the pool still reads is
    /// dropped; its buffer lives until then.
    fn remove(&mut self, context: &mut SessionContext, key: usize) -> Option<ReadReply> {
        context.jobs.orphan_reads_of(key);
        let transfer = self.0.try_remove(key)?;
        if let Some(state) = context.links.get(transfer.link) {
            state.transfers.retain(|&other| other != key);
        }
        transfer.work.map(TransferWork::into_reply)
    }

    /// Returns the first of these transfers that does not wait for the pool.
    fn next_ready(&self, keys: &VecDeque<usize>) -> Option<usize> {
        keys.iter().copied().find(|&key| self.0.get(key).is_some_and(|transfer| !transfer.waiting))
    }

    /// Reports whether one of these transfers can make a frame.
    pub(super) fn has_ready(&self, keys: &VecDeque<usize>) -> bool {
        self.next_ready(keys).is_some()
    }

    /// Reports whether no further read may begin (back-pressure).
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= TRANSFERS_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops all transfers after a panic.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Frees the table if it is empty.
    pub(super) fn shrink(&mut self) {
        self.0.shrink();
    }
}

/// Answers a small read whose data is in memory (the fast path).
fn read_on_the_spot(
    links: &mut SessionConnections,
    lends: bool,
    file: &dyn OpenFile,
    task: &ReadTask,
) -> ReadAttempt {
    if task.paged || task.length > SPOT_BYTES_MAX {
        return ReadAttempt::NotMade;
    }
    if lends && task.length >= SENDFILE_BYTES_MIN && may_be_lent(file) {
        return ReadAttempt::NotMade;
    }
    let Some((link, account)) = links.get_with_account(task.link) else { return ReadAttempt::Answered };
    if !link.transfers.is_empty() {
        return ReadAttempt::NotMade;
    }
    link.news = true;
    let out = link.out.tail_for(task.answer_bytes(), account);
    match task.answer(out, |out| file.append_now(task.offset, task.length, out)) {
        true => ReadAttempt::Answered,
        false => ReadAttempt::Cold,
    }
}

/// Returns the server to which the client of a vector read is redirected, if any. A vector over
/// several files is not redirected; the client moves with a read of a single file.
fn vector_redirect(context: &SessionContext, task: &ReadVectorTask) -> Option<RedirectAnswer> {
    let caller = context.session.caller();
    if !caller.accepts_read_redirect {
        return None;
    }
    let first = task.elements.first()?.file;
    let is_one_file = task.elements.iter().all(|element| element.file == first);
    let file = context.session.file(first).filter(|_| is_one_file)?;
    context.hub.shared.files.read_redirect(caller, &**file)
}

/// Returns the open files that a vector read names, each once.
fn files_of(session: &Session, task: &ReadVectorTask) -> Vec<(FileIndex, Arc<dyn OpenFile>)> {
    let mut files: Vec<(FileIndex, Arc<dyn OpenFile>)> = Vec::new();
    for element in &task.elements {
        let known = files.iter().any(|(index, _)| *index == element.file);
        if !known && let Some(file) = session.file(element.file).cloned() {
            files.push((element.file, file));
        }
    }
    files
}
