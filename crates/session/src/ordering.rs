//! Integration of the sequencer into the work of a session.
//!
//! Operations on open files, closes, the release of files at the end of the session, and operations
//! on the names of files that are being closed start in their turn. `sequencer` decides the order;
//! this file registers the operations and starts them.

use crate::call::{BlockedOperation, CallKind};
use crate::ids::{CallId, FileIndex, PathId, SequenceId};
use crate::sequencer::{Access, FileAccesses};
use crate::step::{DriverTask, ReadTask, ReadVectorTask};
use crate::work::SessionWork;
use std::sync::Arc;
use vfs::{AttributeWork, FileOperation, OpenFile, Operation};
use wire::xroot::header::StreamId;

impl SessionWork {
    /// Registers an operation. Returns `todo` if it may start now, otherwise keeps it. `call` is
    /// the call whose end is the end of the operation; a read of the driver has none.
    pub(crate) fn submit(
        &mut self,
        call: Option<CallId>,
        touches: FileAccesses,
        todo: DriverTask,
    ) -> DriverTask {
        // If there is a call, it owns the charge.
        let charge = std::mem::take(&mut self.arriving);
        let (id, start) = self.sequencer.begin(touches, BlockedOperation { todo, _charge: charge });
        match call.and_then(|call| self.calls.get_mut(call.0)) {
            Some(call) => call.sequence = Some(id),
            None if start.is_none() => self.reads_waiting += 1,
            None => {}
        }
        start.map_or(DriverTask::Nothing, |waiting| self.started(id, waiting.todo))
    }

    /// Completes a task with data that is known only when the operation starts.
    fn started(&mut self, id: SequenceId, todo: DriverTask) -> DriverTask {
        let sequence = Some(id);
        match todo {
            DriverTask::Read(task) => DriverTask::Read(ReadTask { sequence, ..task }),
            DriverTask::ReadWithHints(task, hints) => {
                DriverTask::ReadWithHints(ReadTask { sequence, ..task }, hints)
            }
            DriverTask::ReadVector(task) => DriverTask::ReadVector(ReadVectorTask { sequence, ..task }),
            DriverTask::FileCall(call, file, FileOperation::Close { .. }) => {
                let index = self.sequencer.touches(id).first().copied();
                let is_ending = self.is_ending;
                let handle = index.and_then(|(index, _)| self.any_handle(index));
                let abandons = is_ending && handle.as_ref().is_some_and(|handle| handle.incomplete);
                let failed = handle.is_some_and(|handle| handle.errors() > 0);
                let operation =
                    if abandons { FileOperation::Abandon } else { FileOperation::Close { failed } };
                DriverTask::FileCall(call, file, operation)
            }
            todo => todo,
        }
    }

    /// Ends an operation and starts operations that waited for it.
    pub(crate) fn end_operation(&mut self, id: Option<SequenceId>) {
        let Some(id) = id else { return };
        for (id, BlockedOperation { todo, .. }) in self.sequencer.end(id) {
            self.reads_waiting -= usize::from(is_read(&todo));
            let todo = self.started(id, todo);
            self.push(todo);
        }
    }

    /// Starts an operation on names after the closes that the client requested before and that
    /// concern one of these names: a file must be released before it can be opened again. An open
    /// that copies `source` also follows the changes of that file.
    pub(crate) fn start_on_names(
        &mut self,
        call: CallId,
        operation: Operation,
        source: Option<FileIndex>,
    ) -> DriverTask {
        let closing = self.sequencer.has_exclusive().then(|| self.files.closing()).into_iter().flatten();
        let closing = closing.filter(|(_, file)| operation.concerns(file.path()));
        let mut touches: Vec<_> = closing.map(|(index, _)| (index, Access::AfterBarriers)).collect();
        touches.extend(source.map(|source| (source, Access::READ_ALL)));
        let todo = DriverTask::Call(call, operation);
        if touches.is_empty() { todo } else { self.submit(Some(call), FileAccesses::many(touches), todo) }
    }

    /// Starts an operation on an open file that is answered by a call of this kind.
    pub(crate) fn start_on_file(
        &mut self,
        id: StreamId,
        kind: CallKind,
        (index, access): (FileIndex, Access),
        (file, operation): (Arc<dyn OpenFile>, FileOperation),
    ) -> DriverTask {
        let call = self.call(id, PathId::CONTROL, kind);
        self.submit(Some(call), FileAccesses::one(index, access), DriverTask::FileCall(call, file, operation))
    }

    /// Closes a file at the request of the client.
    pub(crate) fn close(&mut self, index: FileIndex, id: StreamId, file: Arc<dyn OpenFile>) -> DriverTask {
        self.let_go(index, id, CallKind::Close(index), file, FileOperation::Close { failed: false })
    }

    /// Closes or abandons a file. This is a barrier, after which the file accepts no operation.
    fn let_go(
        &mut self,
        index: FileIndex,
        id: StreamId,
        kind: CallKind,
        file: Arc<dyn OpenFile>,
        operation: FileOperation,
    ) -> DriverTask {
        if let Some(handle) = self.any_handle(index) {
            handle.closing = true;
        }
        let todo = self.start_on_file(id, kind, (index, Access::Barrier), (file.clone(), operation));
        if matches!(todo, DriverTask::Nothing) {
            // The operation that is running may be a copy from another server, which is cancelled.
            file.interrupt();
        }
        todo
    }

    /// Abandons a file whose client has disconnected.
    pub(crate) fn abandon(&mut self, index: FileIndex) -> DriverTask {
        let Some(file) = self.file(index).cloned() else { return DriverTask::Nothing };
        let kind = CallKind::Release(index);
        self.let_go(index, StreamId::default(), kind, file, FileOperation::Abandon)
    }

    /// Ends the work when the session ends: drops operations that have not started, and releases
    /// each file when its last operation has ended.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
        let open = self.files.indices();
        let dropped = self.sequencer.take_waiting(|waiting| is_dropped_at_the_end(&waiting.todo));
        for (id, _) in &dropped {
            self.mark_incomplete(Some(*id));
        }
        for (id, BlockedOperation { todo, .. }) in dropped {
            match todo {
                DriverTask::FileCall(call, ..) | DriverTask::Call(call, _) => drop(self.finish_call(call)),
                _ => self.reads_waiting -= usize::from(is_read(&todo)),
            }
            self.end_operation(Some(id));
        }
        for index in open {
            if self.any_handle(index).is_some_and(|handle| !handle.closing) {
                let todo = self.abandon(index);
                self.push(todo);
            }
        }
    }

    /// Marks the files of a change that was not executed as requested. If the client has
    /// disconnected, these files are incomplete.
    pub(crate) fn mark_incomplete(&mut self, id: Option<SequenceId>) {
        let Some(id) = id else { return };
        let files = &mut self.files;
        for (index, _) in self.sequencer.touches(id).iter().filter(|(_, access)| access.is_exclusive()) {
            if let Some(handle) = files.any(*index) {
                handle.incomplete = true;
            }
        }
    }

    /// Returns the access of a read. A read that may reach the end of a file that this handle can
    /// extend depends on everything after its start.
    fn read_access(&self, index: FileIndex, offset: u64, length: usize) -> Access {
        let fixed = Access::read(offset, length as u64);
        let Some(file) = self.file(index).filter(|file| file.is_writable()) else { return fixed };
        let barrier = self.sequencer.has_barrier(index);
        // While a barrier is unfinished the size is unknown.
        let size = if barrier { None } else { file.size_now() };
        let end = offset.saturating_add(length as u64);
        if size.is_some_and(|size| end <= size) { fixed } else { Access::read_to_end(offset) }
    }

    fn vector_touches(&self, task: &ReadVectorTask) -> FileAccesses {
        let ranges = task
            .elements
            .iter()
            .map(|element| (element.file, element.extent.offset, element.extent.end().unwrap_or(u64::MAX)));
        // Merged into one range per file, so that its size is requested once.
        let mut bounds: Vec<(FileIndex, u64, u64)> = Vec::new();
        for (file, start, end) in ranges {
            match bounds.last_mut() {
                Some(last) if last.0 == file => *last = (file, last.1.min(start), last.2.max(end)),
                _ => bounds.push((file, start, end)),
            }
        }
        let access = |(file, start, end): (FileIndex, u64, u64)| {
            (file, self.read_access(file, start, usize::try_from(end - start).unwrap_or(usize::MAX)))
        };
        FileAccesses::many(bounds.into_iter().map(access).collect())
    }

    /// Returns a read for the driver if no earlier operation affects it. Such a read is not
    /// registered: the driver completes it before it takes another request, or registers it by
    /// [`crate::Session::read_began`].
    pub(crate) fn submit_read(&mut self, task: ReadTask) -> DriverTask {
        if self.is_free_to_read(task.file) {
            DriverTask::Read(task)
        } else {
            let access = self.access_of_read(&task);
            self.submit(None, access, DriverTask::Read(task))
        }
    }

    /// Returns a read with hints for the driver if no earlier operation affects it.
    pub(crate) fn submit_read_with_hints(
        &mut self,
        task: ReadTask,
        hints: Vec<(Arc<dyn OpenFile>, u64, u64)>,
    ) -> DriverTask {
        if self.is_free_to_read(task.file) {
            return DriverTask::ReadWithHints(task, hints);
        }
        let access = self.access_of_read(&task);
        self.submit(None, access, DriverTask::ReadWithHints(task, hints))
    }

    fn is_free_to_read(&self, file: FileIndex) -> bool {
        self.sequencer.is_free_to_read(file)
    }

    fn access_of_read(&self, task: &ReadTask) -> FileAccesses {
        FileAccesses::one(task.file, self.read_access(task.file, task.offset, task.length))
    }

    /// Returns a vector read for the driver if no earlier operation affects it.
    pub(crate) fn submit_vector_read(&mut self, task: ReadVectorTask) -> DriverTask {
        if task.elements.iter().all(|element| self.is_free_to_read(element.file)) {
            return DriverTask::ReadVector(task);
        }
        let touches = self.vector_touches(&task);
        self.submit(None, touches, DriverTask::ReadVector(task))
    }

    pub(crate) fn register_read(&mut self, task: &ReadTask) -> SequenceId {
        task.sequence.unwrap_or_else(|| {
            let access = self.read_access(task.file, task.offset, task.length);
            self.sequencer.begin(FileAccesses::one(task.file, access), BlockedOperation::default()).0
        })
    }

    pub(crate) fn register_vector_read(&mut self, task: &ReadVectorTask) -> SequenceId {
        task.sequence.unwrap_or_else(|| {
            let touches = self.vector_touches(task);
            self.sequencer.begin(touches, BlockedOperation::default()).0
        })
    }
}

/// Returns the access of an operation on attributes.
pub(crate) fn access_of_attributes(work: &AttributeWork) -> Access {
    match work {
        AttributeWork::Get(_) | AttributeWork::List { .. } => Access::READ_ALL,
        AttributeWork::Set { .. } | AttributeWork::Remove(_) => Access::Barrier,
    }
}

/// Reports whether the driver replies to the task without a call.
fn is_read(todo: &DriverTask) -> bool {
    matches!(todo, DriverTask::Read(_) | DriverTask::ReadWithHints(..) | DriverTask::ReadVector(_))
}

/// Reports whether a task is dropped when the client has disconnected, because its reply has no
/// reader. Closes are not dropped, and neither are writes that were announced to the driver.
fn is_dropped_at_the_end(todo: &DriverTask) -> bool {
    !matches!(
        todo,
        DriverTask::Proceed(_)
            | DriverTask::FileCall(_, _, FileOperation::Close { .. } | FileOperation::Abandon)
    )
}
