//! One piece of a vectored read.

/// One range of a file to read into a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPiece {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of bytes to read.
    pub length: usize,
    /// Position in the buffer.
    pub at: usize,
}
