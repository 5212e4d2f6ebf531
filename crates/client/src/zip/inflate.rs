//! [`Inflater`]: the bytes of a deflated member, in order.

use flate2::{Decompress, FlushDecompress, Status};

/// What is known of a member's end decides what is too much: never more bytes than the directory says.
pub(crate) struct Inflater {
    state: Decompress,
    /// Bytes to come.
    left: u64,
    ended: bool,
}

/// The compressed data makes no sense, or is not as long as the directory says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadData;

impl Inflater {
    /// Of a member of so many bytes.
    pub(crate) fn new(size: u64) -> Self {
        Self { state: Decompress::new(false), left: size, ended: false }
    }

    /// Whether all of it has come.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Appends to `out`, as far as its capacity goes, what `input` stands for, and returns how much of `input` is used up.
    /// `last`: no input follows.
    pub(crate) fn inflate(&mut self, input: &[u8], last: bool, out: &mut Vec<u8>) -> Result<usize, BadData> {
        if self.ended {
            return Ok(input.len());
        }
        let (read_before, made_before) = (self.state.total_in(), self.state.total_out());
        let status = if self.left == 0 {
            // Nothing but the end may come.
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
            // It will not go on.
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

    /// All of it, `step` bytes of input and `room` of output at a time.
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
    fn what_was_deflated_comes_back_in_whatever_pieces() {
        for data in [vec![], b"a".repeat(100_000), (0..=255).cycle().take(70_000).collect()] {
            let size = data.len() as u64;
            for (step, room) in [(1, 4096), (7, 11), (1 << 20, 1 << 20)] {
                assert!(inflated(&deflated(&data), size, step, room) == Ok(data.clone()), "{step} {room}");
            }
        }
    }

    #[test]
    fn neither_more_nor_less_than_announced() {
        let data = deflated(&b"a".repeat(1000));
        for size in [0, 999, 1001, u64::MAX] {
            assert_eq!(inflated(&data, size, 100, 100), Err(BadData), "{size}");
        }
        assert_eq!(inflated(&data[..data.len() - 1], 1000, 100, 100), Err(BadData));
        assert_eq!(inflated(&[], 10, 100, 100), Err(BadData));
        assert_eq!(inflated(&[0xff; 10], 10, 100, 100), Err(BadData));
    }
}
