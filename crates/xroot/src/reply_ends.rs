//! Finds the ends of replies in the output of an encrypted connection.

use wire::xroot::frames::{FrameBytes, response_bytes};

/// A position in the output, which is a sequence of replies.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct ReplyEnds {
    /// Bytes until the end of the current reply. 0 before a reply.
    left: usize,
}

impl ReplyEnds {
    /// The start of the output.
    pub(crate) const START: Self = Self { left: 0 };

    /// Advances by at most `most` of these bytes, which come next, and not beyond the end of the current
    /// reply. Returns the number. The bytes must contain the whole header of a reply that starts with
    /// them.
    pub(crate) fn next(&mut self, bytes: &[u8], most: usize) -> usize {
        if self.left == 0 {
            self.left = match response_bytes(bytes) {
                Ok(FrameBytes::Exactly(length)) => length,
                // Our own replies have a correct header.
                Ok(FrameBytes::AtLeast(_)) | Err(_) => bytes.len(),
            };
        }
        let passed = self.left.min(bytes.len()).min(most);
        self.skip(passed);
        passed
    }

    /// Advances by bytes within the current reply.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FixedLayout;
    use wire::xroot::codes::{RequestCode, ResponseType, Status};
    use wire::xroot::header::{ResponseHeader, StreamId};
    use wire::xroot::reply::status::StatusFrame;

    fn plain(body: i32) -> [u8; 8] {
        ResponseHeader { streamid: StreamId([0, 1]), status: Status::OK, dlen: body }.to_bytes()
    }

    #[test]
    fn a_reply_ends_after_its_data() {
        let pages = StatusFrame {
            streamid: StreamId([0, 2]),
            request: RequestCode::PGREAD,
            resptype: ResponseType::FINAL,
            dlen: 5,
            offset: 0,
        };
        let mut output = [plain(0).as_slice(), &plain(3), b"abc", &pages.to_bytes(), b"pages"].concat();
        output.extend_from_slice(&plain(1));
        let (mut ends, mut rest, mut lengths) = (ReplyEnds::START, output.as_slice(), Vec::new());
        while !rest.is_empty() {
            let length = ends.next(rest, usize::MAX);
            lengths.push(length);
            rest = &rest[length..];
        }
        assert_eq!(lengths, [8, 11, 37, 8]);
        // The data of the last reply come from elsewhere.
        ends.skip(1);
        assert_eq!(ends, ReplyEnds::START);
    }

    #[test]
    fn a_reply_is_sent_in_parts_of_any_length() {
        let output = [plain(3).as_slice(), b"abc", &plain(0)].concat();
        for part in 0..11 {
            let mut ends = ReplyEnds::START;
            assert_eq!(ends.next(&output, part), part);
            assert_eq!(ends.next(&output[part..], usize::MAX), 11 - part);
            assert_eq!(ends, ReplyEnds::START);
        }
    }
}
