//! Reads: answered immediately or frame by frame, with data, an error, end of file or a redirect.
//!
//! They are separate from the other operations, because the front end and not the session sends
//! their data.

use base::{Error, ErrorKind};
use session::{DriverTask, PathId, ReadElement, ReadReply, ReadTask, ReadVectorTask, ReplyOutputs};
use vfs::{Now, RedirectAnswer};

use super::driver::{FuzzDriver, begin_uses, end_uses};
use super::files::FileUse;

/// Maximum length in bytes of a read that is answered immediately.
const SMALL_BYTES_MAX: usize = 1024;
/// Number of data bytes in one frame.
const FRAME_BYTES_MAX: usize = 4096;
/// Frames of pages are checked without their data, so any byte will do.
const DATA: u8 = 0xda;

/// A read in progress.
pub(super) struct PendingRead {
    reply: ReadReply,
    uses: Vec<FileUse>,
    kind: ReadKind,
}

enum ReadKind {
    Range { offset: u64, paged: bool },
    Vector(Vec<ReadElement>),
}

/// The way in which a read continues.
#[derive(Clone, Copy)]
enum ReadResult {
    Data,
    Short,
    End,
    Failure,
    Elsewhere,
}

impl ReadResult {
    fn of(number: usize) -> Self {
        match number % 5 {
            0 => Self::Data,
            1 => Self::Short,
            2 => Self::Failure,
            3 => Self::End,
            _ => Self::Elsewhere,
        }
    }

    /// Returns the number of available bytes out of `wanted`.
    fn there(self, wanted: usize) -> usize {
        match self {
            Self::Data => wanted,
            Self::Short => wanted / 2,
            Self::End | Self::Failure | Self::Elsewhere => 0,
        }
    }
}

fn failure() -> Error {
    Error::new(ErrorKind::IoError, "broken")
}

fn elsewhere() -> RedirectAnswer {
    RedirectAnswer { host: "h".to_owned(), port: 1094, cgi: String::new() }
}

impl FuzzDriver {
    /// Starts a read; every second one cannot be answered immediately.
    pub(super) fn read(&mut self, task: &ReadTask) {
        assert!(self.session.is_bound(task.link), "a reply for a connection that is not bound");
        let element = ReadElement { file: task.file, offset: task.offset, length: task.length };
        let uses = self.uses_of_reads(&[element]);
        begin_uses(&uses);
        let is_small = !task.paged && task.length <= SMALL_BYTES_MAX;
        let Some(how) = self.at_once().filter(|_| is_small) else {
            let kind = ReadKind::Range { offset: task.offset, paged: task.paged };
            let reply = self.session.read_began(task);
            return self.reads.push(PendingRead { reply, uses, kind });
        };
        end_uses(&uses);
        if let ReadResult::Elsewhere = how {
            return self.session.read_redirected(task, &elsewhere(), &mut self.out);
        }
        let out = self.out.link(task.link);
        let answered = task.answer(out, |out| match how {
            ReadResult::Failure => Now::Done(Err(failure())),
            how => {
                let there = how.there(task.length);
                out.resize(out.len() + there, DATA);
                Now::Done(Ok(there))
            }
        });
        assert!(answered, "available data is not sent");
        self.session.read_answered(task);
    }

    pub(super) fn read_vector(&mut self, task: ReadVectorTask) {
        let uses = self.uses_of_reads(&task.elements);
        begin_uses(&uses);
        if let Some(ReadResult::Elsewhere) = self.at_once() {
            end_uses(&uses);
            return self.session.vector_read_redirected(&task, &elsewhere(), &mut self.out);
        }
        let reply = self.session.vector_read_began(&task);
        assert_eq!(reply.left(), task.elements.len());
        self.reads.push(PendingRead { reply, uses, kind: ReadKind::Vector(task.elements) });
    }

    fn at_once(&mut self) -> Option<ReadResult> {
        self.started_reads += 1;
        self.started_reads.is_multiple_of(2).then(|| ReadResult::of(self.started_reads / 2))
    }

    /// Sends the next frame of a read, which may be the last one.
    pub(super) fn go_on_reading(&mut self, which: usize, how: usize) {
        let mut read = self.reads.swap_remove(which % self.reads.len());
        let how = ReadResult::of(how);
        if let ReadResult::Failure | ReadResult::Elsewhere = how {
            end_uses(&read.uses);
            self.session.read_failed(read.reply, &failure(), &mut self.out);
        } else if frame(&mut read, how, self.out.link(PathId::CONTROL)) {
            end_uses(&read.uses);
            self.session.read_ended(read.reply);
        } else {
            self.reads.push(read);
            return;
        }
        self.run(DriverTask::Nothing);
        self.take();
    }

    /// Ends all reads because their connections are lost.
    pub(super) fn drop_reads(&mut self) {
        for read in std::mem::take(&mut self.reads) {
            end_uses(&read.uses);
            self.session.read_ended(read.reply);
        }
        self.run(DriverTask::Nothing);
    }
}

/// Appends the next frame; returns whether it is the last one.
fn frame(read: &mut PendingRead, how: ReadResult, out: &mut Vec<u8>) -> bool {
    let left = read.reply.left();
    let wanted = left.min(FRAME_BYTES_MAX);
    let there = how.there(wanted);
    match &mut read.kind {
        ReadKind::Range { offset, paged: true } => {
            let frame = read.reply.page_frame(*offset, (wanted, there), there);
            out.extend_from_slice(&frame.header);
            out.resize(out.len() + there, DATA);
            *offset += there as u64;
            assert!(frame.is_last || (there == wanted && read.reply.left() > 0), "the reply never ends");
            frame.is_last
        }
        ReadKind::Range { paged: false, .. } => {
            let frame = read.reply.frame(wanted, there);
            out.extend_from_slice(&frame.header);
            out.resize(out.len() + there, DATA);
            out.extend(frame.end.into_iter().flatten());
            assert!(frame.is_last || (there == wanted && read.reply.left() > 0), "the reply never ends");
            frame.is_last
        }
        ReadKind::Vector(elements) => {
            let mut data = Vec::new();
            let rest = elements.split_off(elements.len().min(2));
            for element in elements.iter() {
                data.extend_from_slice(&element.header());
                data.resize(data.len() + element.length, DATA);
            }
            let frame = read.reply.vector_frame(elements.len(), data.len());
            out.extend_from_slice(&frame.header);
            out.extend_from_slice(&data);
            assert_eq!(frame.is_last, rest.is_empty(), "the mark of the last frame is wrong");
            *elements = rest;
            frame.is_last
        }
    }
}
