//! [`TraceReader`]: recorded requests from a text.

use std::collections::HashMap;
use std::io::BufRead;

/// Maximum length of a line of a trace, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Maximum length of a request, in bytes. A longer one is a defect of the trace.
const REQUEST_BYTES_MAX: u64 = 1 << 40;

/// A request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRequest {
    /// The number of the file.
    pub file: u32,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

impl TraceRequest {
    /// Returns the units that the request touches: their numbers in the file, and the requested bytes
    /// of each.
    pub(super) fn units(self, unit: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = self.offset.saturating_add(self.length);
        let indexes = self.offset / unit..end.div_ceil(unit);
        indexes.map(move |index| {
            let begin = index.saturating_mul(unit);
            let bytes = end.min(begin.saturating_add(unit)) - self.offset.max(begin);
            (index, bytes)
        })
    }
}

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input ended with an error.
    #[error("the trace cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    /// A line is not a request.
    #[error("line {line}: {reason}")]
    Malformed {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Reads a trace: one request in a line, as `TIME FILE OFFSET LENGTH`, separated by blanks or commas.
/// The time is not used, and the order of the lines counts. A line that is empty or begins with `#` is
/// skipped. It remembers the name of each file.
pub struct TraceReader<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
    files: HashMap<Box<[u8]>, u32>,
}

impl<R: BufRead> TraceReader<R> {
    /// Creates a reader.
    pub fn new(input: R) -> Self {
        Self { input, line: 0, buffer: Vec::new(), files: HashMap::new() }
    }

    /// Reads the next line into the buffer. Returns `false` at the end.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        self.buffer.clear();
        self.line += 1;
        let mut input = std::io::Read::take(&mut self.input, LINE_BYTES_MAX as u64 + 1);
        if input.read_until(b'\n', &mut self.buffer)? > LINE_BYTES_MAX {
            return Err(self.malformed("it is too long"));
        }
        Ok(!self.buffer.is_empty())
    }

    fn malformed(&self, reason: &'static str) -> TraceError {
        TraceError::Malformed { line: self.line, reason }
    }

    /// Parses the line in the buffer; `None` if it is no request.
    fn parse(&mut self) -> Result<Option<TraceRequest>, TraceError> {
        let is_separator = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        let mut fields = self.buffer.split(is_separator).filter(|field| !field.is_empty());
        let Some(first) = fields.next().filter(|first| !first.starts_with(b"#")) else { return Ok(None) };
        let _: &[u8] = first;
        let (Some(name), Some(offset), Some(length), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(self.malformed("it has not the four fields TIME FILE OFFSET LENGTH"));
        };
        let number = |field: &[u8]| str::from_utf8(field).ok()?.parse::<u64>().ok();
        let (Some(offset), Some(length)) = (number(offset), number(length)) else {
            return Err(self.malformed("OFFSET and LENGTH must be numbers of bytes"));
        };
        if length > REQUEST_BYTES_MAX || offset > i64::MAX as u64 {
            return Err(self.malformed("OFFSET or LENGTH is too large for a read"));
        }
        let file = match self.files.get(name) {
            Some(file) => *file,
            None => {
                let Ok(file) = u32::try_from(self.files.len()) else {
                    return Err(self.malformed("there are too many files"));
                };
                self.files.insert(name.into(), file);
                file
            }
        };
        Ok(Some(TraceRequest { file, offset, length }))
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_line() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
            match self.parse() {
                Ok(None) => {}
                Ok(Some(request)) => return Some(Ok(request)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
