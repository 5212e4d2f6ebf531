//! The body of the replies to `kXR_readv`.
//!
//! For each element, in the order of the request, the body contains its 16 bytes with the length
//! that was read, followed by the data. Frames are split only between elements, so that a client
//! can decode each frame separately. A server appends a [`Segment`] and the data.
//!
//! Source: xroot protocol 5.2.0, section 2.18. Recorded: `api_readv`, `raw_large_readv`.

use crate::codec::FixedLayout;
use crate::cursor::FieldReader;
use crate::error::WireError;
use crate::xroot::limits::SEGMENT_BYTES;
use crate::xroot::request::Segment;

/// An iterator over the elements of one frame.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    reader: FieldReader<'a>,
    index: usize,
}

impl<'a> Elements<'a> {
    /// Creates an iterator over the body of one frame.
    #[must_use]
    pub const fn new(body: &'a [u8]) -> Self {
        Self { reader: FieldReader::new(body), index: 0 }
    }
}

impl<'a> Iterator for Elements<'a> {
    /// An element with the length that was read, and its data.
    type Item = Result<(Segment, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let element = element(&mut self.reader);
        if element.is_none() {
            // The start of the next element is unknown.
            self.reader = FieldReader::new(&[]);
        }
        let index = self.index;
        self.index += 1;
        Some(element.ok_or(WireError::BadItem { field: "readv element", index }))
    }
}

fn element<'a>(reader: &mut FieldReader<'a>) -> Option<(Segment, &'a [u8])> {
    let segment = Segment::from_bytes(&reader.array::<SEGMENT_BYTES>("element").ok()?);
    let data = reader.bytes(usize::try_from(segment.length).ok()?, "data").ok()?;
    Some((segment, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xroot::header::FileHandle;

    #[test]
    fn an_incomplete_element_ends_the_iterator_with_an_error() {
        let segment = |length| Segment { fhandle: FileHandle([1; 4]), length, offset: 5 };
        let body = [&segment(3).to_bytes()[..], b"abc", &segment(0).to_bytes(), &segment(2).to_bytes(), b"x"]
            .concat();
        let mut elements = Elements::new(&body);
        assert_eq!(elements.next(), Some(Ok((segment(3), &b"abc"[..]))));
        assert_eq!(elements.next(), Some(Ok((segment(0), &b""[..]))));
        assert_eq!(elements.next(), Some(Err(WireError::BadItem { field: "readv element", index: 2 })));
        assert_eq!(elements.next(), None);
    }
}
