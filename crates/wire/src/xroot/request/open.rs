//! `kXR_open` (3010): opens or creates a file.
//!
//! | bytes  | field     | type   | meaning                                    |
//! |--------|-----------|--------|--------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                      |
//! | 2..4   | requestid | u16    | 3010                                       |
//! | 4..6   | mode      | u16    | permission bits of a new file              |
//! | 6..8   | options   | u16    | [`OpenOptions`]                            |
//! | 8..10  | optiont   | u16    | [`OpenTemplateOptions`]                    |
//! | 10..16 | reserved  |        |                                            |
//! | 16..20 | fhtemplt  | opaque | handle of the template with dup and samefs |
//! | 20..24 | dlen      | i32    | bytes of path                              |
//! | 24..   | path      | text   | path[?cgi]                                 |
//!
//! Reply: `kXR_ok`, see [`reply::open`](crate::xroot::reply::open). Also `kXR_wait`, `kXR_redirect`
//! and `kXR_waitresp`, because a file may have to be located or staged first.
//!
//! Source: xroot protocol 5.2.0, section 2.12. Recorded: `raw_open_read`, `api_posc`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::{OpenOptions, OpenTemplateOptions};
use crate::xroot::header::FileHandle;

/// Opens a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open<'a> {
    /// Permission bits of a new file. XRootD clients clear bit 0x80 when they repeat the request
    /// after a wait.
    pub mode: u16,
    /// Access and options.
    pub options: OpenOptions,
    /// Use of the template handle, and further options.
    pub optiont: OpenTemplateOptions,
    /// Handle of the template.
    pub fhtemplt: FileHandle,
    /// `path[?cgi]` as sent, see [`PathArgument`](crate::xroot::cgi::PathArgument).
    pub target: &'a [u8],
}

impl<'a> RequestBody<'a> for Open<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            mode: header.u16::<4>(),
            options: OpenOptions(header.u16::<6>()),
            optiont: OpenTemplateOptions(header.u16::<8>()),
            fhtemplt: header.fhandle::<16>(),
            target: payload,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 2>(self.mode.to_be_bytes())
            .with::<6, 2>(self.options.0.to_be_bytes())
            .with::<8, 2>(self.optiont.0.to_be_bytes())
            .with::<16, 4>(self.fhtemplt.0)
            .finish(self.target, out);
    }
}
