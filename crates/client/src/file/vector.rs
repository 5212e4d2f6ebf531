//! Vector reads: many ranges of a file in few requests.
//!
//! Adjacent ranges are merged into one element, ranges above the limit of the server are split, and
//! elements are packed into requests of bounded size. The reply is divided without a copy, except
//! for split ranges. Source: xroot protocol 5.2.0, section 2.18.

use bytes::{Bytes, BytesMut};
use rawclient::Encoded;
use wire::xroot::FileHandle;
use wire::xroot::limits::{READV_SEGMENT_BYTES_MAX, READV_SEGMENTS_MAX, SEGMENT_BYTES};
use wire::xroot::request::{Readv, Request, Segment, SegmentList};
use wire::{Encode, FixedLayout};

use super::handle::RecoverableHandle;
use crate::buffer_pool::PooledBuffer;
use crate::channel::ReplySink;
use crate::failure::{Cause, Error};

/// Maximum number of bytes requested at once, because whole replies are kept in memory.
const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The limits of a server for one vector read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VectorLimits {
    /// Maximum size of an element.
    pub element_bytes: usize,
    /// Maximum number of elements.
    pub elements: usize,
}

impl Default for VectorLimits {
    fn default() -> Self {
        Self { element_bytes: READV_SEGMENT_BYTES_MAX, elements: READV_SEGMENTS_MAX }
    }
}

/// An element of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Element {
    offset: u64,
    length: usize,
}

/// The position of a requested range: elements from `first` on, starting at byte `skip`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RangePosition {
    first: usize,
    skip: usize,
    length: usize,
}

/// Returns the elements for the ranges and the position of each range in them.
fn plan(ranges: &[(u64, usize)], limits: VectorLimits) -> (Vec<Element>, Vec<RangePosition>) {
    let most = limits.element_bytes.max(1);
    let mut elements: Vec<Element> = Vec::new();
    let mut places = Vec::with_capacity(ranges.len());
    for &(offset, length) in ranges {
        let before = elements.len();
        if let Some(last) = elements.last_mut()
            && offset == last.offset + last.length as u64
            && last.length + length <= most
        {
            places.push(RangePosition { first: before - 1, skip: last.length, length });
            last.length += length;
            continue;
        }
        places.push(RangePosition { first: elements.len(), skip: 0, length });
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(most);
            elements.push(Element { offset: offset + done as u64, length: piece });
            done += piece;
        }
    }
    (elements, places)
}

/// Returns the number of elements of each request.
fn pack(elements: &[Element], limits: VectorLimits) -> Vec<usize> {
    let mut counts = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    for element in elements {
        if count > 0 && (count == limits.elements.max(1) || bytes + element.length > REQUEST_BYTES_MAX) {
            counts.push(std::mem::take(&mut count));
            bytes = 0;
        }
        count += 1;
        bytes += element.length;
    }
    if count > 0 {
        counts.push(count);
    }
    counts
}

/// Vector reads of a file.
pub(super) struct FileVectorRead<'a> {
    pub(super) handle: &'a RecoverableHandle,
    pub(super) limits: VectorLimits,
}

impl FileVectorRead<'_> {
    /// Implements [`File::read_vector_with`](super::File::read_vector_with).
    pub(super) async fn read(&self, ranges: &[(u64, usize)]) -> Result<Vec<Bytes>, Error> {
        let fits = |&(offset, length): &(u64, usize)| {
            offset.checked_add(length as u64).is_some_and(|end| i64::try_from(end).is_ok())
        };
        if !ranges.iter().all(fits) {
            let text = "a range ends beyond 2^63".to_owned();
            return Err(self.handle.error("readv", Cause::BadArgument(text)));
        }
        let (elements, places) = plan(ranges, self.limits);
        let mut found = Vec::with_capacity(elements.len());
        let mut rest = elements.as_slice();
        for count in pack(&elements, self.limits) {
            let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = later;
            self.send(now, &mut found).await?;
        }
        Ok(places.iter().map(|place| gather(&found, *place)).collect())
    }

    /// Sends one request, and adds the data of its elements to `found`.
    async fn send(&self, elements: &[Element], found: &mut Vec<Bytes>) -> Result<(), Error> {
        let most = elements.iter().map(|element| element.length + SEGMENT_BYTES).sum();
        let request = |fhandle: FileHandle| {
            let mut list = Vec::with_capacity(elements.len() * SEGMENT_BYTES);
            for element in elements {
                // Both fit: lengths are below 2 MiB, offsets were checked.
                let length = i32::try_from(element.length).unwrap_or(i32::MAX);
                let offset = i64::try_from(element.offset).unwrap_or(i64::MAX);
                Segment { fhandle, length, offset }.encode(&mut list);
            }
            Encoded::new(&Request::Readv(Readv { pathid: 0, segments: SegmentList::new(&list) }))
        };
        let sink = || ReplySink::Block(self.handle.blocks().take(most), most);
        let received = self.handle.ask_into("readv", true, Bytes::new(), request, sink).await?;
        let mut answer = received.block.map(PooledBuffer::into_bytes).unwrap_or_default();
        for element in elements {
            let data = take(&mut answer, element).ok_or_else(|| {
                let text = format!("the element at {} is not what was asked for", element.offset);
                self.handle.error("readv", Cause::BadAnswer(text))
            })?;
            found.push(data);
        }
        Ok(())
    }
}

/// Splits the next element off a reply, if its header matches.
fn take(answer: &mut Bytes, element: &Element) -> Option<Bytes> {
    let header = Segment::from_bytes(answer.first_chunk()?);
    let right = u64::try_from(header.offset) == Ok(element.offset)
        && usize::try_from(header.length) == Ok(element.length);
    if !right || answer.len() < SEGMENT_BYTES + element.length {
        return None;
    }
    let mut data = answer.split_to(SEGMENT_BYTES + element.length);
    Some(data.split_off(SEGMENT_BYTES))
}

fn gather(found: &[Bytes], place: RangePosition) -> Bytes {
    let Some(first) = found.get(place.first).filter(|_| place.length > 0) else { return Bytes::new() };
    if place.skip + place.length <= first.len() {
        return first.slice(place.skip..place.skip + place.length);
    }
    let mut whole = BytesMut::with_capacity(place.length);
    for piece in found.iter().skip(place.first) {
        let missing = place.length - whole.len();
        if missing == 0 {
            break;
        }
        whole.extend_from_slice(piece.get(..missing.min(piece.len())).unwrap_or_default());
    }
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: VectorLimits = VectorLimits { element_bytes: 10, elements: 3 };

    /// Returns the bytes of every element: the low bytes of their offsets.
    fn answer(elements: &[Element]) -> Vec<Bytes> {
        let data = |element: &Element| {
            (0..element.length).map(|byte| (element.offset as usize + byte) as u8).collect::<Vec<_>>().into()
        };
        elements.iter().map(data).collect()
    }

    #[test]
    fn split_and_merged_ranges_are_reassembled() {
        let ranges = [(0, 4), (4, 6), (10, 1), (50, 25), (75, 0), (3, 2), (100, 10), (110, 10)];
        let (elements, places) = plan(&ranges, LIMITS);
        assert_eq!(elements[0], Element { offset: 0, length: 10 });
        assert!(elements.iter().all(|element| element.length <= 10));
        let found = answer(&elements);
        for ((offset, length), place) in ranges.iter().zip(places) {
            let expected: Vec<u8> = (0..*length).map(|byte| (*offset as usize + byte) as u8).collect();
            assert_eq!(gather(&found, place), expected, "{offset} {length}");
        }
    }

    #[test]
    fn requests_keep_to_the_limits() {
        let element = |length| Element { offset: 0, length };
        assert_eq!(pack(&[element(1); 7], LIMITS), [3, 3, 1]);
        assert_eq!(pack(&[], LIMITS), [0; 0]);
        let half = REQUEST_BYTES_MAX / 2;
        let many = VectorLimits { element_bytes: REQUEST_BYTES_MAX, elements: 1024 };
        assert_eq!(pack(&[element(half), element(half), element(1)], many), [2, 1]);
    }

    #[test]
    fn an_unrequested_element_is_refused() {
        let segment = Segment { fhandle: FileHandle::default(), length: 2, offset: 7 };
        let body = [&segment.to_bytes()[..], b"ab"].concat();
        let taken = |offset, length| take(&mut Bytes::from(body.clone()), &Element { offset, length });
        assert_eq!(taken(7, 2), Some(Bytes::from_static(b"ab")));
        assert_eq!((taken(8, 2), taken(7, 1), taken(7, 3)), (None, None, None));
    }
}
