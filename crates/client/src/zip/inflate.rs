//! [`Inflater`]: decompresses a deflated member in pieces of any size.

use flate2::{Decompress, FlushDecompress, Status};

/// A decompressor that never produces more bytes than the size in the directory.
pub(crate) struct Inflater {
    state: Decompress,
    /// Number of remaining bytes.
    left: u64,
    ended: bool,
}

/// The compressed data is invalid or differs in length from the directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadData;

impl Inflater {
    /// Creates a decompressor of a member of `size` bytes.
    pub(crate) fn new(size: u64) -> Self {
        Self { state: Decompress::new(false), left: size, ended: false }
    }

    /// Reports whether all bytes were produced.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Decompresses `input` into the free capacity of `out` and returns the number of consumed
    /// bytes. `last` is set if no input follows.
    pub(crate) fn inflate(&mut self, input: &[u8], last: bool, out: &mut Vec<u8>) -> Result<usize, BadData> {
        if self.ended {
            return Ok(input.len());
        }
        let (read_before, made_before) = (self.state.total_in(), self.state.total_out());
        let status = if self.left == 0 {
            // Only the end of the stream may follow.
            self.state.decompress(input, &mut [0], FlushDecompress::None)
        } else {
            self.state.decompress_vec(input, out, FlushDecompress::None)
        };
        let status = status.map_err(|_| BadData)?;
        let made = self.state.total_out() - made_before;
        self.left = self.left.checked_sub(made).ok_or(BadData)?;
        let used = usize::try_from(self.state.total_in() - read_before).map_err(|_| BadData)?;
        match status {
            Status::StreamEnd if self.left == 0 => self.ended = true,
            Status::StreamEnd => return Err(BadData),
            // No progress is possible.
            Status::Ok | Status::BufError if made == 0 && (used == 0 || last && used == input.len()) => {
                return Err(BadData);
            }
            Status::Ok | Status::BufError => {}
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};

    fn deflated(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(data.len() + 100);
        Compress::new(Compression::default(), false)
            .compress_vec(data, &mut out, FlushCompress::Finish)
            .unwrap();
        out
    }

    /// Decompresses all data with `step` bytes of input and `room` bytes of output at a time.
    fn inflated(data: &[u8], size: u64, step: usize, room: usize) -> Result<Vec<u8>, BadData> {
        let (mut inflater, mut all, mut at) = (Inflater::new(size), Vec::new(), 0);
        while !inflater.has_ended() {
            let end = data.len().min(at + step);
            let mut out = Vec::with_capacity(room);
            at += inflater.inflate(&data[at..end], end == data.len(), &mut out)?;
            all.extend(out);
        }
        Ok(all)
    }

    #[test]
    fn deflated_data_is_restored_in_pieces_of_any_size() {
        for data in [vec![], b"a".repeat(100_000), (0..=255).cycle().take(70_000).collect()] {
            let size = data.len() as u64;
            for (step, room) in [(1, 4096), (7, 11), (1 << 20, 1 << 20)] {
                assert!(inflated(&deflated(&data), size, step, room) == Ok(data.clone()), "{step} {room}");
            }
        }
    }

    #[test]
    fn other_lengths_than_announced_are_refused() {
        let data = deflated(&b"a".repeat(1000));
        for size in [0, 999, 1001, u64::MAX] {
            assert_eq!(inflated(&data, size, 100, 100), Err(BadData), "{size}");
        }
        assert_eq!(inflated(&data[..data.len() - 1], 1000, 100, 100), Err(BadData));
        assert_eq!(inflated(&[], 10, 100, 100), Err(BadData));
        assert_eq!(inflated(&[0xff; 10], 10, 100, 100), Err(BadData));
    }
}
