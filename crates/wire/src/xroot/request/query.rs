//! `kXR_query` (3001): requests information about the server, a file or a request.
//!
//! | bytes  | field     | type   | meaning                                         |
//! |--------|-----------|--------|-------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                           |
//! | 2..4   | requestid | u16    | 3001                                            |
//! | 4..6   | infotype  | u16    | [`QueryType`]                                   |
//! | 6..8   | reserved  |        |                                                 |
//! | 8..12  | fhandle   | opaque | open file of the by-handle forms                |
//! | 12..20 | reserved  |        |                                                 |
//! | 20..24 | dlen      | i32    | bytes of argument; 0 selects the by-handle form |
//! | 24..   | args      | opaque | argument, often with a NUL at its end           |
//!
//! Reply: `kXR_ok` with a text. For checksums also `kXR_waitresp` or `kXR_wait`, because their
//! computation may take long.
//!
//! Source: xroot protocol 5.2.0, section 2.16. Recorded: `raw_query`, `fs_query_config`,
//! `fs_query_checksum`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::codes::QueryType;
use crate::xroot::header::FileHandle;

/// Requests information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// Type of the information.
    pub infotype: QueryType,
    /// Open file of the by-handle forms.
    pub fhandle: FileHandle,
    /// The argument as sent, with or without a final NUL; see [`Query::text`].
    pub args: &'a [u8],
}

impl<'a> RequestBody<'a> for Query<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { infotype: QueryType(header.u16::<4>()), fhandle: header.fhandle::<8>(), args: payload })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 2>(self.infotype.0.to_be_bytes())
            .with::<8, 4>(self.fhandle.0)
            .finish(self.args, out);
    }
}

impl<'a> Query<'a> {
    /// Returns the argument up to the first NUL, which XRootD clients append.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.args.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}
