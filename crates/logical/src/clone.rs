//! Copies of ranges between files of this server, and new files created as a copy of another one.
//!
//! A range may be as long as a file, and a request may contain many ranges. Therefore they are
//! copied in steps of [`STEP_BYTES_MAX`] bytes.

use crate::errno::{self, os, unable};
use crate::in_flight::InFlight;
use crate::open_file::OpenFileState;
use crate::persist::ClaimScope;
use crate::steps::{self, StepResult, StepwiseWork};
use base::{CopyRange, Error, ErrorKind, errno_text};
use std::io;
use std::sync::Arc;
use storage::{STEP_BYTES_MAX, StoredFile};
use vfs::{Answer, CloneRange, DeferredReply, OpenFile, Opened, ReplyTo, Started, Value};

/// One range that is copied piece by piece.
struct RangeCopy {
    source: Arc<dyn StoredFile>,
    range: CopyRange,
    /// Number of bytes copied.
    done: u64,
    /// Copy the last piece first, because the ranges overlap and the copy must contain the original
    /// bytes.
    backwards: bool,
}

impl RangeCopy {
    /// Prepares the copy. A source that ends before the range is `EINVAL`, before any byte is
    /// copied. May block.
    fn new(into: &dyn StoredFile, source: Arc<dyn StoredFile>, range: CopyRange) -> io::Result<Self> {
        let mut backwards = false;
        // A shorter range is a single piece, for which the storage makes these checks.
        if range.length > STEP_BYTES_MAX {
            let end = range.source_end().ok_or_else(|| os(errno::INVALID))?;
            let (of_source, of_target) = (source.stat()?, into.stat()?);
            if of_source.size < end {
                return Err(os(errno::INVALID));
            }
            let same = (of_source.device, of_source.inode) == (of_target.device, of_target.inode);
            backwards = same && range.from < range.to && range.to < end;
        }
        Ok(Self { source, range, done: 0, backwards })
    }

    /// Copies at most this number of bytes; returns the number of copied bytes. May block.
    fn copy(&mut self, into: &dyn StoredFile, bytes_max: u64) -> io::Result<u64> {
        let left = self.range.length - self.done;
        let bytes = left.min(bytes_max);
        let at = if self.backwards { left - bytes } else { self.done };
        into.clone_range(self.source.as_ref(), self.range.part(at, bytes))?;
        self.done += bytes;
        Ok(bytes)
    }

    fn is_done(&self) -> bool {
        self.done == self.range.length
    }
}

/// Starts cloning ranges into a file, in order.
pub(crate) fn start(flying: InFlight, ranges: Vec<CloneRange>, reply: &ReplyTo) -> Started {
    let (pool, caller) = (flying.open().file.pool().clone(), flying.open().caller.clone());
    let ranges = ranges.into_iter();
    steps::start(&pool, &caller, reply, CloneSteps { flying: Some(flying), ranges, current: None })
}

struct CloneSteps {
    /// Taken when the work is done, so that closing the file waits for the copy but not for the
    /// answer.
    flying: Option<InFlight>,
    ranges: std::vec::IntoIter<CloneRange>,
    current: Option<RangeCopy>,
}

impl CloneSteps {
    /// Copies the next bytes; `true` when all are copied.
    fn advance(&mut self, open: &OpenFileState) -> Result<bool, Error> {
        let mut left = STEP_BYTES_MAX;
        while left > 0 {
            let mut copy = match self.current.take() {
                Some(copy) => copy,
                None => match self.ranges.next() {
                    Some(range) => begin_range(open, &range)?,
                    None => return Ok(true),
                },
            };
            left -= copy.copy(open.file.as_ref(), left).map_err(|error| failed(open, error))?;
            if !copy.is_done() {
                self.current = Some(copy);
            }
        }
        Ok(false)
    }
}

impl StepwiseWork for CloneSteps {
    fn step(&mut self) -> StepResult {
        let Some(open) = self.flying.as_ref().map(|flying| flying.open().clone()) else {
            return StepResult::Done(Answer::DONE);
        };
        let answer = match self.advance(&open) {
            Ok(false) => return StepResult::More,
            Ok(true) => Answer::DONE,
            Err(error) => Answer::Error(error),
        };
        drop(open);
        self.flying = None;
        StepResult::Done(answer)
    }

    fn abandon(&mut self) {
        if let Some(flying) = &self.flying {
            flying.open().note_failure();
        }
    }
}

/// Starts a range. With an active checkpoint, all bytes that the range overwrites are saved before
/// the first one is written.
fn begin_range(open: &OpenFileState, range: &CloneRange) -> Result<RangeCopy, Error> {
    let source = OpenFileState::of(range.source.as_ref());
    let source = source.ok_or_else(|| unable_to_clone(open, os(errno::UNSUPPORTED)))?.file.clone();
    open.check_clone(range.range)?;
    open.before_clone(range.range, || {
        RangeCopy::new(open.file.as_ref(), source, range.range).map_err(|error| failed(open, error))
    })
}

fn failed(open: &OpenFileState, error: io::Error) -> Error {
    open.note_failure();
    unable_to_clone(open, error)
}

fn unable_to_clone(open: &OpenFileState, error: io::Error) -> Error {
    let text = format!("Unable to clone {} from file ranges; {}", open.path.text(), errno_text(&error));
    Error { kind: ErrorKind::from_io(&error), text, source: Some(error) }
}

/// Fills a new file with the content of another one, then sends the answer of the open. If that
/// fails, or the client leaves meanwhile, the file is removed.
pub(crate) fn fill(opened: Opened, template: &Arc<dyn OpenFile>, reply: DeferredReply) {
    let (open, source) = (OpenFileState::of(opened.file.as_ref()), OpenFileState::of(template.as_ref()));
    let (Some(flying), Some(source)) = (open.and_then(InFlight::new), source) else {
        return reply.send(Answer::Error(unable("clone", opened.file.path(), errno::UNSUPPORTED)));
    };
    let (open, source) = (flying.open().clone(), source.file.clone());
    let fill = FillSteps { created: Some(UnannouncedFile { opened, flying }), source, copy: None };
    steps::start_with(open.file.pool(), &open.caller, reply, fill);
}

struct FillSteps {
    created: Option<UnannouncedFile>,
    source: Arc<dyn StoredFile>,
    copy: Option<RangeCopy>,
}

impl FillSteps {
    /// Copies the next bytes; `true` when all are copied.
    fn advance(&mut self, open: &OpenFileState) -> io::Result<bool> {
        let mut copy = match self.copy.take() {
            Some(copy) => copy,
            None => {
                let length = self.source.stat()?.size;
                RangeCopy::new(open.file.as_ref(), self.source.clone(), CopyRange { from: 0, to: 0, length })?
            }
        };
        copy.copy(open.file.as_ref(), STEP_BYTES_MAX)?;
        let done = copy.is_done();
        self.copy = Some(copy);
        Ok(done)
    }
}

impl StepwiseWork for FillSteps {
    fn step(&mut self) -> StepResult {
        let Some(open) = self.created.as_ref().map(|created| created.flying.open().clone()) else {
            return StepResult::Done(Answer::DONE);
        };
        open.end_running_checksum();
        let result = match self.advance(&open) {
            Ok(false) => return StepResult::More,
            Ok(true) => Ok(()),
            Err(error) => Err(Error::unable("clone", &open.path, error)),
        };
        let Some(created) = self.created.take() else { return StepResult::Done(Answer::DONE) };
        StepResult::Done(match result {
            Ok(()) => created.complete(),
            Err(error) => {
                created.discard();
                Answer::Error(error)
            }
        })
    }

    fn abandon(&mut self) {
        if let Some(created) = self.created.take() {
            created.discard();
        }
    }
}

/// A new file that has not been announced yet.
struct UnannouncedFile {
    opened: Opened,
    flying: InFlight,
}

impl UnannouncedFile {
    fn complete(self) -> Answer {
        let Self { mut opened, flying } = self;
        let open = flying.open();
        if opened.stat.is_some() {
            // The size has changed since the file was opened.
            match open.stat() {
                Ok(Value::Stat(stat)) => opened.stat = Some(stat),
                Ok(_) => {}
                Err(error) => return Answer::Error(error),
            }
        }
        if !open.persists_on_close() {
            open.services.events.created(&open.path, false);
        }
        drop(flying);
        Answer::Value(Value::Opened(opened))
    }

    /// Removes the file. May block.
    fn discard(self) {
        let Self { opened, flying } = self;
        let open = flying.open().clone();
        open.note_failure();
        if !open.persists_on_close()
            && let Err(error) = remove_same(&open)
        {
            tracing::warn!(path = %open.path.shown(), %error, "cannot remove a new file whose copy failed; remove it by hand");
        }
        drop(flying);
        if let Some(open) = OpenFileState::of(opened.file.as_ref()) {
            open.release_unannounced();
        }
    }
}

/// Removes a file, unless its name belongs to another file by now. May block.
fn remove_same(open: &OpenFileState) -> io::Result<()> {
    let services = &open.services;
    let _claim = services.persist.claim(&[&open.path], ClaimScope::Name);
    let (own, there) = (open.file.stat()?, services.backend.stat(&open.path)?);
    if (own.device, own.inode) == (there.device, there.inode) {
        services.backend.remove_file(&open.path)?;
    }
    Ok(())
}
