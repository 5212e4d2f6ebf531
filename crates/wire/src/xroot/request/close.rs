//! `kXR_close` (3003): closes an open file.
//!
//! | bytes  | field     | type   | meaning                      |
//! |--------|-----------|--------|------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply        |
//! | 2..4   | requestid | u16    | 3003                         |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open` |
//! | 8..20  | reserved  |        |                              |
//! | 20..24 | dlen      | i32    | 0                            |
//!
//! Reply: `kXR_ok` (dlen 0). Errors: 3004, 3007, 3009, and 3019 for uncorrected pages. The file is
//! closed after 3019 as well.
//!
//! Source: xroot protocol 5.2.0, section 2.3.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::header::FileHandle;

/// Closes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Close {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
}

impl RequestBody<'_> for Close {
    fn decode(header: &RequestHeader, _payload: &[u8]) -> Result<Self, WireError> {
        Ok(Self { fhandle: header.fhandle::<4>() })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header.with::<4, 4>(self.fhandle.0).finish(&[], out);
    }
}
