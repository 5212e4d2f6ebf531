//! Vector reads: one frame after another, cut between elements.
//!
//! Each element has a 16-byte header before its data. Data in memory is read in place. At the first
//! element that is not in memory, the pool reads the rest of the frame, in one job per file instead
//! of one per element. Reads of one range are in `reads`.

use super::SessionDriver;
use super::jobs::JobWork;
use crate::block::{DataBlock, put};
use crate::failures::unexpected_answer;
use crate::transfer::{FrameProgress, TransferWork};
use crate::vector_read::VectorRead;
use base::{Charge, Error, ErrorKind, MemoryPurpose};
use session::{FileIndex, PathId, ReadVectorTask};
use std::sync::Arc;
use vfs::{Answer, FileOperation, Now, OpenFile, RedirectAnswer, Value};
use wire::xroot::limits::{RESPONSE_HEADER_BYTES, SEGMENT_BYTES};

impl SessionDriver {
    pub(crate) fn read_vector(&mut self, task: ReadVectorTask) {
        self.context.hub.stats.vector_reads.add(1);
        self.context.hub.stats.read_segments.add(task.elements.len() as u64);
        if let Some(to) = self.vector_goes_to(&task) {
            return self.context.session.vector_read_redirected(&task, &to, &mut self.context.links);
        }
        let mut files: Vec<(FileIndex, Arc<dyn OpenFile>)> = Vec::new();
        for element in &task.elements {
            let known = files.iter().any(|(index, _)| *index == element.file);
            if !known && let Some(file) = self.context.session.file(element.file).cloned() {
                files.push((element.file, file));
            }
        }
        let reply = self.context.session.vector_read_began(&task);
        let link = reply.link();
        self.begin_transfer(link, TransferWork::Vector(VectorRead::new(reply, task.elements, files)));
    }

    /// Returns the server to which the client is redirected, if any. A vector over several files is
    /// not redirected; the client moves with a read of a single file.
    fn vector_goes_to(&self, task: &ReadVectorTask) -> Option<RedirectAnswer> {
        let caller = self.context.session.caller();
        if !caller.accepts_read_redirect {
            return None;
        }
        let first = task.elements.first()?.file;
        let is_one_file = task.elements.iter().all(|element| element.file == first);
        let file = self.context.session.file(first).filter(|_| is_one_file)?;
        self.context.hub.shared.files.read_redirect(caller, &**file)
    }

    pub(crate) fn make_vector(
        &mut self,
        key: usize,
        link: PathId,
        vector: &mut VectorRead,
    ) -> Result<FrameProgress, Error> {
        if vector.next == vector.end {
            let (end, bytes) = vector.next_frame();
            let room = self.context.reserve(MemoryPurpose::Data, DataBlock::size_for(bytes), 0);
            let Some(charge) = room else { return Ok(FrameProgress::Short) };
            vector.begin_frame(end, DataBlock::with_room(bytes, charge));
        }
        while let Some(&element) = vector.elements.get(vector.next).filter(|_| vector.next < vector.end) {
            let file = vector.file_of(element.file)?;
            if vector.read_neighbours(&*file) {
                continue;
            }
            let at = vector.filled + SEGMENT_BYTES;
            put(&mut vector.frame, vector.filled, &element.header());
            let Some(room) = vector.frame.get_mut(at..at + element.extent.length) else {
                return Err(beyond(&*file));
            };
            match file.read_now(element.extent.offset, room) {
                Now::Done(Ok(read)) if read == element.extent.length => {
                    vector.filled = at + read;
                    vector.next += 1;
                }
                Now::Done(Ok(_)) => return Err(beyond(&*file)),
                Now::Done(Err(error)) => return Err(error),
                Now::WouldBlock => {
                    let (block, pieces) = vector.missing();
                    let (buffer, charge) = block.into_parts();
                    let operation = FileOperation::Read { buffer, pieces };
                    return match self.context.start_job(JobWork::Read(key), charge, &file, operation) {
                        Some((answer, charge)) => self.take_vector_piece(link, vector, answer, charge),
                        None => Ok(FrameProgress::Waits),
                    };
                }
            }
        }
        Ok(self.push_vector(link, vector))
    }

    fn push_vector(&mut self, link: PathId, vector: &mut VectorRead) -> FrameProgress {
        let mut block = std::mem::take(&mut vector.frame);
        let body = vector.filled - RESPONSE_HEADER_BYTES;
        let frame = vector.reply.vector_frame(vector.end - vector.first, body);
        put(&mut block, 0, &frame.header);
        if let Some((state, account)) = self.context.links.get_with_account(link) {
            state.out.push_block(block, 0..vector.filled, account);
        }
        vector.first = vector.end;
        if frame.is_last { FrameProgress::Last } else { FrameProgress::Frame(body) }
    }

    /// Continues after the pool has read the missing pieces.
    pub(crate) fn take_vector_piece(
        &mut self,
        link: PathId,
        vector: &mut VectorRead,
        answer: Answer,
        charge: Charge,
    ) -> Result<FrameProgress, Error> {
        let Answer::Value(Value::Data { buffer, lengths }) = answer else {
            return Err(unexpected_answer(answer));
        };
        vector.frame = DataBlock::from_parts(buffer, charge);
        let index = vector.elements.get(vector.next).map(|element| element.file);
        if lengths != vector.wanted {
            let file = index.map(|index| vector.file_of(index)).transpose()?;
            return Err(file.map_or_else(|| unexpected_answer(Answer::DONE), |file| beyond(&*file)));
        }
        for &length in &vector.wanted {
            vector.filled += SEGMENT_BYTES + length;
            vector.next += 1;
        }
        if vector.next == vector.end {
            return Ok(self.push_vector(link, vector));
        }
        Ok(FrameProgress::Frame(0))
    }
}

/// Returns the error of a vector read beyond the end of a file, which fails as a whole.
fn beyond(file: &dyn OpenFile) -> Error {
    Error::new(ErrorKind::FsError, format!("Unable to readv {}; illegal seek", file.path().text()))
}
