//! `kXR_clone` (3032): clones ranges of open files, so that the files share their blocks.
//!
//! | bytes  | field     | type   | meaning                                                    |
//! |--------|-----------|--------|------------------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                                      |
//! | 2..4   | requestid | u16    | 3032                                                       |
//! | 4..8   | fhandle   | opaque | destination, open for writing                              |
//! | 8..20  | reserved  |        |                                                            |
//! | 20..24 | dlen      | i32    | 32·n, n from 1 to 1024                                     |
//! | 24..   | items     | list   | `srcFH` opaque 4, reserved 4, `srcOffs srcLen dstOffs` u64 |
//!
//! Reply: `kXR_ok` (dlen 0). Errors: 3013, 3004, 3000 incomplete or empty list, 3002 too long.
//!
//! Source: xroot protocol 5.2.0, section 2.4. Recorded: `raw_errors` (an error only).

use super::body::{RequestBody, RequestHeader, WireError};
use crate::codec::FixedLayout;
use crate::xroot::header::FileHandle;
use crate::xroot::limits::CLONE_ITEM_BYTES;

/// Clones ranges into an open file. The name avoids a conflict with the trait `Clone`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneRanges<'a> {
    /// The destination.
    pub fhandle: FileHandle,
    /// The ranges.
    pub items: CloneList<'a>,
}

impl<'a> RequestBody<'a> for CloneRanges<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { fhandle: header.fhandle::<4>(), items: CloneList::new(payload) })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 4>(self.fhandle.0).finish(self.items.bytes, out);
    }
}

/// A range to clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneItem {
    /// The open source file.
    pub src_fhandle: FileHandle,
    /// Offset of the range in the source, in bytes.
    pub src_offset: u64,
    /// Length of the range in bytes.
    pub src_length: u64,
    /// Offset of the range in the destination, in bytes.
    pub dst_offset: u64,
}

impl FixedLayout for CloneItem {
    type Bytes = [u8; CLONE_ITEM_BYTES];

    fn to_bytes(&self) -> Self::Bytes {
        let FileHandle([f0, f1, f2, f3]) = self.src_fhandle;
        let [offset, length, target] =
            [self.src_offset, self.src_length, self.dst_offset].map(u64::to_be_bytes);
        let mut bytes = [0; CLONE_ITEM_BYTES];
        bytes.copy_from_slice([[f0, f1, f2, f3, 0, 0, 0, 0], offset, length, target].as_flattened());
        bytes
    }

    fn from_bytes(bytes: &Self::Bytes) -> Self {
        let mut words = [[0; 8]; CLONE_ITEM_BYTES / 8];
        words.as_flattened_mut().copy_from_slice(bytes);
        let [[f0, f1, f2, f3, ..], offset, length, target] = words;
        Self {
            src_fhandle: FileHandle([f0, f1, f2, f3]),
            src_offset: u64::from_be_bytes(offset),
            src_length: u64::from_be_bytes(length),
            dst_offset: u64::from_be_bytes(target),
        }
    }
}

/// A list of ranges to clone, decoded during iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CloneList<'a> {
    bytes: &'a [u8],
}

impl<'a> CloneList<'a> {
    /// Creates a list from `bytes` of any length; see [`CloneList::is_whole`].
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the number of complete items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / CLONE_ITEM_BYTES
    }

    /// Reports whether the list has no complete item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.len() < CLONE_ITEM_BYTES
    }

    /// Reports whether the list consists of complete items.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.bytes.len().is_multiple_of(CLONE_ITEM_BYTES)
    }

    /// Returns the items in the order of the request.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = CloneItem> + use<'a> {
        let (items, _) = self.bytes.as_chunks::<CLONE_ITEM_BYTES>();
        items.iter().map(CloneItem::from_bytes)
    }
}
