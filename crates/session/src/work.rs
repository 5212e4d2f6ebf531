//! The work of a session: its open files, its requests without an answer, and the order of their
//! operations.
//!
//! Requests register calls here (`handles`, `paths`, `query`); `ordering` starts the operations in
//! their turn; `answers` and `write_replies` end the calls.

use crate::call::{BlockedOperation, CallKind, UnansweredCall};
use crate::files::{FileTable, SessionFile};
use crate::ids::{CallId, FileIndex, PathId};
use crate::sequencer::Sequencer;
use crate::settings::Settings;
use crate::slots::StableKeyTable;
use crate::step::{Destination, DriverTask, PayloadAnnouncement};
use crate::timing::{self, RequestTimer};
use base::{Charge, Descriptor, Error, ErrorKind};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use vfs::OpenFile;
use wire::xroot::header::{FileHandle, StreamId};

/// State that a session has only while files are open or calls are in flight. It is allocated on
/// demand because most connections of a large server are idle.
#[derive(Default)]
pub(crate) struct SessionWork {
    pub(crate) files: FileTable,
    pub(crate) calls: StableKeyTable<UnansweredCall>,
    pub(crate) sequencer: Sequencer<BlockedOperation>,
    /// Reads that wait for earlier operations. They have no call.
    pub(crate) reads_waiting: usize,
    /// Set when the session ends: files are released, and answers have no reader.
    pub(crate) is_ending: bool,
    ready: VecDeque<DriverTask>,
    /// Charge of the request that is being taken. The first call made for the request takes it
    /// over.
    pub(crate) arriving: Charge,
    /// Number of calls that open a file.
    opening: usize,
}

impl SessionWork {
    /// Returns the work of a session, which begins if there is none.
    pub(crate) fn begin(work: &mut Option<Box<Self>>, is_ending: bool) -> &mut Self {
        work.get_or_insert_with(|| Box::new(Self { is_ending, ..Self::default() }))
    }

    /// Reports whether nothing is open, in flight or queued.
    pub(crate) fn is_over(&self) -> bool {
        self.files.len() == 0 && self.calls.is_empty() && self.ready.is_empty() && self.sequencer.is_idle()
    }

    /// Returns the number of requests without an answer, except reads that the driver has begun.
    pub(crate) fn calls_in_flight(&self) -> usize {
        self.calls.len() + self.reads_waiting
    }

    /// Returns the next task that has become possible.
    pub(crate) fn next_todo(&mut self) -> Option<DriverTask> {
        self.ready.pop_front()
    }

    /// Appends a task to the queue of [`SessionWork::next_todo`].
    pub(crate) fn push(&mut self, todo: DriverTask) {
        if !matches!(todo, DriverTask::Nothing) {
            self.ready.push_back(todo);
        }
    }

    /// Returns the file of a handle, if it accepts operations.
    pub(crate) fn open_file(&self, handle: FileHandle) -> Option<(FileIndex, &Arc<dyn OpenFile>)> {
        let index = crate::files::from_wire(handle);
        self.files.get(index).map(|found| (index, &found.file))
    }

    /// Returns a file, even if it is being closed.
    pub(crate) fn file(&self, index: FileIndex) -> Option<&Arc<dyn OpenFile>> {
        self.files.known(index).map(|handle| &handle.file)
    }

    /// Returns the state of a file, even if it is being closed.
    pub(crate) fn any_handle(&mut self, index: FileIndex) -> Option<&mut SessionFile> {
        self.files.any(index)
    }

    /// Registers a request that will be answered later.
    pub(crate) fn call(&mut self, streamid: StreamId, link: PathId, kind: CallKind) -> CallId {
        let charge = std::mem::take(&mut self.arriving);
        self.opening += usize::from(matches!(kind, CallKind::Open { .. }));
        let descriptor = Descriptor::NONE;
        let timer = match kind {
            // It is not a request, but can follow from one.
            CallKind::Release(_) => RequestTimer::default(),
            _ => timing::take_arriving(),
        };
        let call = UnansweredCall {
            streamid,
            link,
            is_deferred: false,
            is_signed: false,
            sequence: None,
            kind,
            charge,
            descriptor,
            timer,
        };
        CallId(self.calls.insert(call))
    }

    pub(crate) fn call_mut(&mut self, id: CallId) -> Option<&mut UnansweredCall> {
        self.calls.get_mut(id.0)
    }

    /// Measures the time of a write from now on, because all of its data has arrived, some of it later because the
    /// server refused it for a time.
    pub(crate) fn restart_timer(&mut self, id: CallId, refused: Duration) {
        if let Some(call) = self.call_mut(id) {
            call.timer.restart(refused);
        }
    }

    pub(crate) fn finish_call(&mut self, id: CallId) -> Option<UnansweredCall> {
        let call = self.calls.remove(id.0)?;
        self.opening -= usize::from(matches!(call.kind, CallKind::Open { .. }));
        Some(call)
    }

    /// Takes a descriptor for a file that is about to be opened.
    pub(crate) fn take_descriptor(&self, settings: &Settings) -> Result<Descriptor, Error> {
        let own = self.files.len() + self.opening;
        let descriptor = if own < settings.files_max { settings.descriptors.open(own) } else { None };
        descriptor.ok_or_else(|| Error::new(ErrorKind::Overloaded, "too many open files in this session"))
    }

    /// Announces data to discard. Then the error is sent on the connection `reply`.
    pub(crate) fn discard(
        &mut self,
        streamid: StreamId,
        reply: PathId,
        (link, length): (PathId, usize),
        error: Error,
    ) -> DriverTask {
        self.receive_nothing(streamid, reply, (link, length), CallKind::Refused(error))
    }

    /// Announces data to discard after a refusal that was sent already.
    pub(crate) fn discard_silently(&mut self, streamid: StreamId, length: usize) -> DriverTask {
        self.receive_nothing(streamid, PathId::CONTROL, (PathId::CONTROL, length), CallKind::Passed)
    }

    fn receive_nothing(
        &mut self,
        streamid: StreamId,
        reply: PathId,
        (link, length): (PathId, usize),
        kind: CallKind,
    ) -> DriverTask {
        let call = self.call(streamid, reply, kind);
        let into = Destination::Discard;
        let (checkpoint, held, signature) = (false, false, None);
        DriverTask::Receive(PayloadAnnouncement { call, link, length, into, checkpoint, held, signature })
    }
}
