//! Vector reads: one frame after the other, cut between elements.
//!
//! Each element has a 16-byte header before its data. What is in memory is read on the spot; at the first element that is
//! not, all of the frame that is missing goes to the pool in one job for each file.

use crate::block::Block;
use crate::costs::READ_ELEMENT_BYTES;
use crate::driver::{JobWork, SessionDriver};
use crate::reads::{Made, Work, put, unexpected};
use base::{Charge, Error, ErrorKind, Purpose};
use session::{FileIndex, LinkId, ReadElement, ReadReply, ReadVectorTask};
use std::io::IoSliceMut;
use std::sync::Arc;
use vfs::{Answer, FileOperation, OpenFile, Piece, Redirect, Spot, Value};
use wire::xroot::limits::{READV_FRAME_BYTES_MAX, RESPONSE_HEADER_BYTES, SEGMENT_BYTES};

/// Elements that are read in one call.
const NEIGHBOURS_MAX: usize = 32;

/// Bytes between two elements that are cheaper read along than left out by another system call.
const GAP_BYTES_MAX: usize = 4096;

/// What all gaps of one call are read into.
const _: () = assert!(NEIGHBOURS_MAX * GAP_BYTES_MAX <= net::BLOCK_BYTES);

/// Elements are gathered in a frame up to this size, that of a warm buffer: a frame as large as the protocol allows
/// ([`READV_FRAME_BYTES_MAX`]) takes fresh memory, which costs more than all that is copied into it.
const GATHERED_BYTES_MAX: usize = net::BLOCK_BYTES;

const _: () = assert!(GATHERED_BYTES_MAX <= READV_FRAME_BYTES_MAX);

/// A vector read under way.
pub(crate) struct VectorRead {
    pub(crate) reply: ReadReply,
    elements: Vec<ReadElement>,
    /// The first element of the frame being made.
    first: usize,
    /// Behind its last element.
    end: usize,
    /// The next element to be read.
    next: usize,
    /// The frame being made, room for its header first.
    frame: Block,
    /// How far it is filled.
    filled: usize,
    /// What the pool reads: bytes wanted of each piece.
    wanted: Vec<usize>,
    /// The files it reads.
    files: Vec<(FileIndex, Arc<dyn OpenFile>)>,
}

impl SessionDriver {
    pub(crate) fn read_vector(&mut self, task: ReadVectorTask) {
        self.hub.stats.vector_reads.add(1);
        self.hub.stats.read_segments.add(task.elements.len() as u64);
        if let Some(to) = self.vector_goes_to(&task) {
            return self.session.vector_read_redirected(&task, &to, &mut self.links);
        }
        let mut files: Vec<(FileIndex, Arc<dyn OpenFile>)> = Vec::new();
        for element in &task.elements {
            let known = files.iter().any(|(index, _)| *index == element.file);
            if !known && let Some(file) = self.session.file(element.file).cloned() {
                files.push((element.file, file));
            }
        }
        let reply = self.session.vector_read_began(&task);
        let link = reply.link();
        self.begin_transfer(link, Work::Vector(VectorRead::new(reply, task.elements, files)));
    }

    /// Returns where the client is to read. One that reads several files at once moves with a read of a single one.
    fn vector_goes_to(&self, task: &ReadVectorTask) -> Option<Redirect> {
        let caller = self.session.caller();
        if !caller.moves {
            return None;
        }
        let first = task.elements.first()?.file;
        let is_one_file = task.elements.iter().all(|element| element.file == first);
        let file = self.session.file(first).filter(|_| is_one_file)?;
        self.hub.shared.files.elsewhere(caller, &**file)
    }

    pub(crate) fn make_vector(
        &mut self,
        key: usize,
        link: LinkId,
        vector: &mut VectorRead,
    ) -> Result<Made, Error> {
        if vector.next == vector.end {
            let (end, bytes) = vector.next_frame();
            let room = self.reserve(Purpose::Data, Block::size_for(bytes), 0);
            let Some(charge) = room else { return Ok(Made::Short) };
            vector.begin_frame(end, Block::with_room(bytes, charge));
        }
        while let Some(&element) = vector.elements.get(vector.next).filter(|_| vector.next < vector.end) {
            let file = vector.file_of(element.file)?;
            if vector.read_neighbours(&*file) {
                continue;
            }
            let at = vector.filled + SEGMENT_BYTES;
            put(&mut vector.frame, vector.filled, &element.header());
            let Some(room) = vector.frame.get_mut(at..at + element.length) else {
                return Err(beyond(&*file));
            };
            match file.read_now(element.offset, room) {
                Spot::Done(read) if read == element.length => {
                    vector.filled = at + read;
                    vector.next += 1;
                }
                Spot::Done(_) => return Err(beyond(&*file)),
                Spot::Failed(error) => return Err(error),
                Spot::WouldBlock => {
                    let (block, pieces) = vector.missing();
                    let (buffer, charge) = block.into_parts();
                    let operation = FileOperation::Read { buffer, pieces };
                    return match self.start_job(JobWork::Read(key), charge, &file, operation) {
                        Some((answer, charge)) => self.take_vector_piece(link, vector, answer, charge),
                        None => Ok(Made::Waits),
                    };
                }
            }
        }
        Ok(self.push_vector(link, vector))
    }

    fn push_vector(&mut self, link: LinkId, vector: &mut VectorRead) -> Made {
        let mut block = std::mem::take(&mut vector.frame);
        let body = vector.filled - RESPONSE_HEADER_BYTES;
        let frame = vector.reply.vector_frame(vector.end - vector.first, body);
        put(&mut block, 0, &frame.header);
        if let Some((state, account)) = self.links.get_with_account(link) {
            state.out.push_block(block, 0..vector.filled, account);
        }
        vector.first = vector.end;
        if frame.is_last { Made::Last } else { Made::Frame(body) }
    }

    /// The pool has read what was missing.
    pub(crate) fn take_vector_piece(
        &mut self,
        link: LinkId,
        vector: &mut VectorRead,
        answer: Answer,
        charge: Charge,
    ) -> Result<Made, Error> {
        let Answer::Value(Value::Data { buffer, lengths }) = answer else { return Err(unexpected(answer)) };
        vector.frame = Block::from_parts(buffer, charge);
        let index = vector.elements.get(vector.next).map(|element| element.file);
        if lengths != vector.wanted {
            let file = index.map(|index| vector.file_of(index)).transpose()?;
            return Err(file.map_or_else(|| unexpected(Answer::DONE), |file| beyond(&*file)));
        }
        for &length in &vector.wanted {
            vector.filled += SEGMENT_BYTES + length;
            vector.next += 1;
        }
        if vector.next == vector.end {
            return Ok(self.push_vector(link, vector));
        }
        Ok(Made::Frame(0))
    }
}

impl VectorRead {
    fn new(reply: ReadReply, elements: Vec<ReadElement>, files: Vec<(FileIndex, Arc<dyn OpenFile>)>) -> Self {
        Self {
            reply,
            elements,
            first: 0,
            end: 0,
            next: 0,
            frame: Block::default(),
            filled: 0,
            wanted: Vec::new(),
            files,
        }
    }

    /// Bytes of memory that it holds beside its frame.
    pub(crate) fn bytes(&self) -> usize {
        self.elements.len() * READ_ELEMENT_BYTES
    }

    /// A file that was open when the request came; a close waits for the whole of it.
    fn file_of(&self, index: FileIndex) -> Result<Arc<dyn OpenFile>, Error> {
        let found = self.files.iter().find(|(known, _)| *known == index).map(|(_, file)| file.clone());
        found.ok_or_else(|| Error::new(ErrorKind::FileNotOpen, "readv does not refer to an open file"))
    }

    /// Chooses the elements of the next frame: behind its last one, and the bytes that they take.
    fn next_frame(&self) -> (usize, usize) {
        let mut bytes = RESPONSE_HEADER_BYTES;
        let mut end = self.first;
        for element in self.elements.iter().skip(self.first) {
            let more = SEGMENT_BYTES + element.length;
            if end > self.first && bytes + more > GATHERED_BYTES_MAX {
                break;
            }
            bytes += more;
            end += 1;
        }
        (end, bytes)
    }

    fn begin_frame(&mut self, end: usize, frame: Block) {
        self.end = end;
        self.next = self.first;
        self.filled = RESPONSE_HEADER_BYTES;
        self.frame = frame;
    }

    /// Reads the next elements in one call, if they lie behind each other in the file with little between them and all of it
    /// is in memory. What lies between is read too, and forgotten.
    fn read_neighbours(&mut self, file: &dyn OpenFile) -> bool {
        let (run, skips) = self.neighbours();
        if run < 2 {
            return false;
        }
        let mut between = if skips { net::take_block() } else { Vec::new() };
        let read = self.read_run(file, run, &mut between);
        net::give_block(between);
        read
    }

    /// Reads the next `run` elements, and into `gaps` what lies between them.
    fn read_run(&mut self, file: &dyn OpenFile, run: usize, mut gaps: &mut [u8]) -> bool {
        let Some(start) = self.elements.get(self.next).map(|first| first.offset) else { return false };
        let Some(mut rest) = self.frame.get_mut(self.filled..) else { return false };
        let mut places = Vec::with_capacity(2 * run);
        let mut end = start;
        let mut filled = self.filled;
        for element in self.elements.iter().skip(self.next).take(run) {
            let gap = usize::try_from(element.offset - end).unwrap_or(0);
            let Some((skipped, others)) = std::mem::take(&mut gaps).split_at_mut_checked(gap) else {
                return false;
            };
            gaps = others;
            let Some((head, behind)) = rest.split_at_mut_checked(SEGMENT_BYTES) else { return false };
            let Some((data, behind)) = behind.split_at_mut_checked(element.length) else { return false };
            rest = behind;
            put(head, 0, &element.header());
            if gap > 0 {
                places.push(IoSliceMut::new(skipped));
            }
            places.push(IoSliceMut::new(data));
            end = element.offset + element.length as u64;
            filled += SEGMENT_BYTES + element.length;
        }
        if file.read_scattered_now(start, &mut places).is_none() {
            return false;
        }
        self.filled = filled;
        self.next += run;
        true
    }

    /// How many elements from the next one on lie close behind each other in one file, and whether anything lies between.
    fn neighbours(&self) -> (usize, bool) {
        let (mut count, mut skips) = (0, false);
        let mut end = None;
        for element in self.elements.iter().take(self.end).skip(self.next).take(NEIGHBOURS_MAX) {
            let gap = match end {
                None => Some(0),
                Some((file, end)) if file == element.file => {
                    element.offset.checked_sub(end).and_then(|gap| usize::try_from(gap).ok())
                }
                Some(_) => None,
            };
            let behind = element.offset.checked_add(element.length as u64);
            let (Some(gap), Some(behind)) = (gap.filter(|&gap| gap <= GAP_BYTES_MAX), behind) else { break };
            if element.length == 0 {
                break;
            }
            end = Some((element.file, behind));
            skips |= gap > 0;
            count += 1;
        }
        (count, skips)
    }

    /// What is still missing of the frame, as far as it is of one file: the frame itself as the buffer, and the pieces.
    fn missing(&mut self) -> (Block, Vec<Piece>) {
        let file = self.elements.get(self.next).map(|element| element.file);
        let mut pieces = Vec::new();
        self.wanted.clear();
        let mut at = self.filled;
        let mut frame = std::mem::take(&mut self.frame);
        for element in self.elements.iter().take(self.end).skip(self.next) {
            if Some(element.file) != file {
                break;
            }
            put(&mut frame, at, &element.header());
            at += SEGMENT_BYTES;
            pieces.push(Piece { offset: element.offset, length: element.length, at });
            self.wanted.push(element.length);
            at += element.length;
        }
        // What follows of other files belongs to the frame too.
        let rest = self.elements.iter().take(self.end).skip(self.next + pieces.len());
        let length = at + rest.map(|element| SEGMENT_BYTES + element.length).sum::<usize>();
        (frame.cut(length), pieces)
    }
}

/// A vector read beyond the end of a file fails as a whole.
fn beyond(file: &dyn OpenFile) -> Error {
    Error::new(ErrorKind::FsError, format!("Unable to readv {}; illegal seek", file.path().text()))
}
