//! A vector read: one frame after another, cut between elements.
//!
//! Each element has a 16-byte header before its data. Data in memory is read in place, adjacent
//! elements in one call. At the first element that is not in memory, the pool reads the rest of the
//! frame, in one job per file instead of one per element.

use crate::block::{DataBlock, put};
use crate::costs::READ_ELEMENT_BYTES;
use crate::driver::FrameContext;
use crate::failures::unexpected_answer;
use crate::transfer::FrameProgress;
use base::{Charge, Error, ErrorKind, ReadPiece};
use session::{FileIndex, ReadElement, ReadReply};
use std::io::IoSliceMut;
use std::sync::Arc;
use vfs::{Answer, Now, OpenFile, Value};
use wire::xroot::limits::{READV_FRAME_BYTES_MAX, RESPONSE_HEADER_BYTES, SEGMENT_BYTES};

/// Maximum number of elements read in one call.
const NEIGHBOURS_MAX: usize = 32;

/// Largest gap in bytes between two elements that is cheaper to read than to skip by another system
/// call.
const GAP_BYTES_MAX: usize = 4096;

/// The gaps of one call are read into one block.
const _: () = assert!(NEIGHBOURS_MAX * GAP_BYTES_MAX <= net::BLOCK_BYTES);

/// Frames are filled up to this size, that of a pooled buffer. A frame of the protocol's maximum
/// ([`READV_FRAME_BYTES_MAX`]) needs fresh memory, which costs more than copying its content.
const GATHERED_BYTES_MAX: usize = net::BLOCK_BYTES;

const _: () = assert!(GATHERED_BYTES_MAX <= READV_FRAME_BYTES_MAX);

/// A vector read in progress.
pub(crate) struct VectorRead {
    pub(crate) reply: ReadReply,
    elements: Vec<ReadElement>,
    /// First element of the current frame.
    first: usize,
    /// End of the elements of the current frame (exclusive).
    end: usize,
    /// The next element to read.
    next: usize,
    /// The current frame. Its header occupies the first bytes.
    frame: DataBlock,
    /// Bytes of the frame that are filled.
    filled: usize,
    /// Lengths of the pieces that the pool reads.
    wanted: Vec<usize>,
    /// The files of the vector.
    files: Vec<(FileIndex, Arc<dyn OpenFile>)>,
}

impl VectorRead {
    pub(crate) fn new(
        reply: ReadReply,
        elements: Vec<ReadElement>,
        files: Vec<(FileIndex, Arc<dyn OpenFile>)>,
    ) -> Self {
        Self {
            reply,
            elements,
            first: 0,
            end: 0,
            next: 0,
            frame: DataBlock::default(),
            filled: 0,
            wanted: Vec::new(),
            files,
        }
    }

    /// Returns the memory that the vector holds in addition to its frame, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.elements.len() * READ_ELEMENT_BYTES
    }

    /// Makes the next frame, or lets the pool read the part of it that is not in memory.
    pub(crate) fn make_frame(&mut self, context: &mut FrameContext<'_>) -> Result<FrameProgress, Error> {
        if self.next == self.end {
            let (end, bytes) = self.next_frame();
            let room = context.reserve(DataBlock::size_for(bytes));
            let Some(charge) = room else { return Ok(FrameProgress::Short) };
            self.begin_frame(end, DataBlock::with_room(bytes, charge));
        }
        while let Some(&element) = self.elements.get(self.next).filter(|_| self.next < self.end) {
            let file = self.file_of(element.file)?;
            if self.read_neighbours(&*file) {
                continue;
            }
            let at = self.filled + SEGMENT_BYTES;
            put(&mut self.frame, self.filled, &element.header());
            let Some(room) = self.frame.get_mut(at..at + element.extent.length) else {
                return Err(beyond(&*file));
            };
            match file.read_now(element.extent.offset, room) {
                Now::Done(Ok(read)) if read == element.extent.length => {
                    self.filled = at + read;
                    self.next += 1;
                }
                Now::Done(Ok(_)) => return Err(beyond(&*file)),
                Now::Done(Err(error)) => return Err(error),
                Now::WouldBlock => {
                    let (block, pieces) = self.missing();
                    return match context.start_read(&file, block.into_parts(), pieces) {
                        Some((answer, charge)) => self.take_pieces(context, answer, charge),
                        None => Ok(FrameProgress::Waits),
                    };
                }
            }
        }
        Ok(self.push_frame(context))
    }

    fn push_frame(&mut self, context: &mut FrameContext<'_>) -> FrameProgress {
        let mut block = std::mem::take(&mut self.frame);
        let body = self.filled - RESPONSE_HEADER_BYTES;
        let frame = self.reply.vector_frame(self.end - self.first, body);
        put(&mut block, 0, &frame.header);
        if let Some((state, account)) = context.output() {
            state.out.push_block(block, 0..self.filled, account);
        }
        self.first = self.end;
        if frame.is_last { FrameProgress::Last } else { FrameProgress::Frame(body) }
    }

    /// Continues after the pool has read the missing pieces.
    pub(crate) fn take_pieces(
        &mut self,
        context: &mut FrameContext<'_>,
        answer: Answer,
        charge: Charge,
    ) -> Result<FrameProgress, Error> {
        let Answer::Value(Value::Data { buffer, lengths }) = answer else {
            return Err(unexpected_answer(answer));
        };
        self.frame = DataBlock::from_parts(buffer, charge);
        let index = self.elements.get(self.next).map(|element| element.file);
        if lengths != self.wanted {
            let file = index.map(|index| self.file_of(index)).transpose()?;
            return Err(file.map_or_else(|| unexpected_answer(Answer::DONE), |file| beyond(&*file)));
        }
        for &length in &self.wanted {
            self.filled += SEGMENT_BYTES + length;
            self.next += 1;
        }
        if self.next == self.end {
            return Ok(self.push_frame(context));
        }
        Ok(FrameProgress::Frame(0))
    }

    /// Returns a file that was open when the request arrived. A close waits for the whole vector.
    fn file_of(&self, index: FileIndex) -> Result<Arc<dyn OpenFile>, Error> {
        let found = self.files.iter().find(|(known, _)| *known == index).map(|(_, file)| file.clone());
        found.ok_or_else(|| Error::new(ErrorKind::FileNotOpen, "readv does not refer to an open file"))
    }

    /// Selects the elements of the next frame. Returns their end and the length of the frame in
    /// bytes.
    fn next_frame(&self) -> (usize, usize) {
        let mut bytes = RESPONSE_HEADER_BYTES;
        let mut end = self.first;
        for element in self.elements.iter().skip(self.first) {
            let more = SEGMENT_BYTES + element.extent.length;
            if end > self.first && bytes + more > GATHERED_BYTES_MAX {
                break;
            }
            bytes += more;
            end += 1;
        }
        (end, bytes)
    }

    fn begin_frame(&mut self, end: usize, frame: DataBlock) {
        self.end = end;
        self.next = self.first;
        self.filled = RESPONSE_HEADER_BYTES;
        self.frame = frame;
    }

    /// Reads adjacent elements in one call if they ascend with small gaps and all data is in
    /// memory. The gaps are read too and discarded.
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

    /// Reads the next `run` elements. The data between them goes to `gaps`.
    fn read_run(&mut self, file: &dyn OpenFile, run: usize, mut gaps: &mut [u8]) -> bool {
        let Some(start) = self.elements.get(self.next).map(|first| first.extent.offset) else { return false };
        let Some(mut rest) = self.frame.get_mut(self.filled..) else { return false };
        let mut places = Vec::with_capacity(2 * run);
        let mut end = start;
        let mut filled = self.filled;
        for element in self.elements.iter().skip(self.next).take(run) {
            let gap = usize::try_from(element.extent.offset - end).unwrap_or(0);
            let Some((skipped, others)) = std::mem::take(&mut gaps).split_at_mut_checked(gap) else {
                return false;
            };
            gaps = others;
            let Some((head, behind)) = rest.split_at_mut_checked(SEGMENT_BYTES) else { return false };
            let Some((data, behind)) = behind.split_at_mut_checked(element.extent.length) else {
                return false;
            };
            rest = behind;
            put(head, 0, &element.header());
            if gap > 0 {
                places.push(IoSliceMut::new(skipped));
            }
            places.push(IoSliceMut::new(data));
            end = element.extent.offset + element.extent.length as u64;
            filled += SEGMENT_BYTES + element.extent.length;
        }
        if file.read_scattered_now(start, &mut places).is_none() {
            return false;
        }
        self.filled = filled;
        self.next += run;
        true
    }

    /// Returns the number of adjacent elements from the next one on in one file, and whether there
    /// are gaps.
    fn neighbours(&self) -> (usize, bool) {
        let (mut count, mut skips) = (0, false);
        let mut end = None;
        for element in self.elements.iter().take(self.end).skip(self.next).take(NEIGHBOURS_MAX) {
            let gap = match end {
                None => Some(0),
                Some((file, end)) if file == element.file => {
                    element.extent.offset.checked_sub(end).and_then(|gap| usize::try_from(gap).ok())
                }
                Some(_) => None,
            };
            let behind = element.extent.end();
            let (Some(gap), Some(behind)) = (gap.filter(|&gap| gap <= GAP_BYTES_MAX), behind) else { break };
            if element.extent.length == 0 {
                break;
            }
            end = Some((element.file, behind));
            skips |= gap > 0;
            count += 1;
        }
        (count, skips)
    }

    /// Returns the missing part of the frame for one file: the frame as the buffer, and the pieces.
    fn missing(&mut self) -> (DataBlock, Vec<ReadPiece>) {
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
            pieces.push(ReadPiece { extent: element.extent, at });
            self.wanted.push(element.extent.length);
            at += element.extent.length;
        }
        // The remaining elements, of other files, belong to the frame too.
        let rest = self.elements.iter().take(self.end).skip(self.next + pieces.len());
        let length = at + rest.map(|element| SEGMENT_BYTES + element.extent.length).sum::<usize>();
        (frame.cut(length), pieces)
    }
}

/// Returns the error of a vector read beyond the end of a file, which fails as a whole.
fn beyond(file: &dyn OpenFile) -> Error {
    Error::new(ErrorKind::FsError, format!("Unable to readv {}; illegal seek", file.path().text()))
}
