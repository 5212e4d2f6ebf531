//! Reads: answered immediately or frame by frame, with data, an error, end of file or a redirect.
//!
//! They are separate from the other operations, because the front end and not the session sends
//! their data.

use base::{Error, ErrorKind, Extent};
use session::{DriverTask, PathId, ReadElement, ReadTask, ReadVectorTask, ReplyOutputs};
use vfs::{Now, RedirectAnswer};

use super::driver::FuzzDriver;
use super::files::{begin_uses, end_uses};
use super::pending_read::{DATA, PendingRead, ReadKind, ReadResult, frame};

/// Maximum length in bytes of a read that is answered immediately.
const SMALL_BYTES_MAX: usize = 1024;
fn failure() -> Error {
    Error::new(ErrorKind::IoError, "broken")
}

fn elsewhere() -> RedirectAnswer {
    RedirectAnswer { host: "h".into(), port: 1094, cgi: String::new() }
}

impl FuzzDriver {
    /// Starts a read; every second one cannot be answered immediately.
    pub(super) fn read(&mut self, task: &mut ReadTask) {
        assert!(self.session.is_bound(task.link), "a reply for a connection that is not bound");
        let element =
            ReadElement { file: task.file, extent: Extent { offset: task.offset, length: task.length } };
        let uses = self.uses_of_reads(&[element]);
        begin_uses(&uses);
        let is_small = !task.paged && task.length <= SMALL_BYTES_MAX;
        // The reply to a read in steps has the error of one that fails at once.
        let at_once = self.at_once().filter(|how| is_small && !matches!(how, ReadResult::Failure));
        let Some(how) = at_once else {
            let kind = ReadKind::Range { offset: task.offset, paged: task.paged };
            let reply = self.session.read_began(task);
            return self.reads.push(PendingRead { reply, uses, kind });
        };
        end_uses(&uses);
        if let ReadResult::Elsewhere = how {
            return self.session.read_redirected(task, &elsewhere(), &mut self.out);
        }
        let out = self.out.link(task.link);
        let answered = task.answer(out, |out| {
            let there = how.there(task.length);
            out.resize(out.len() + there, DATA);
            Now::Done(Ok(there))
        });
        assert!(answered, "available data is not sent");
        self.session.read_answered(task);
    }

    pub(super) fn read_vector(&mut self, mut task: ReadVectorTask) {
        let uses = self.uses_of_reads(&task.elements);
        begin_uses(&uses);
        if let Some(ReadResult::Elsewhere) = self.at_once() {
            end_uses(&uses);
            return self.session.vector_read_redirected(&task, &elsewhere(), &mut self.out);
        }
        let reply = self.session.vector_read_began(&mut task);
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
