//! `kXR_prepare` (3021): stages files, evicts them, or cancels a request.
//!
//! | bytes  | field     | type   | meaning                                            |
//! |--------|-----------|--------|----------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                              |
//! | 2..4   | requestid | u16    | 3021                                               |
//! | 4      | options   | u8     | [`PrepareOptions`]                                 |
//! | 5      | prty      | u8     | priority 0 to 3                                    |
//! | 6..8   | port      | u16    | port for the notification                          |
//! | 8..10  | optionX   | u16    | [`PrepareOptionsX`]                                |
//! | 10..20 | reserved  |        |                                                    |
//! | 20..24 | dlen      | i32    | bytes of paths                                     |
//! | 24..   | paths     | text   | paths separated by LF, or the request id to cancel |
//!
//! Reply: `kXR_ok`, with a request id for stage, so that the client can query or cancel the
//! request.
//!
//! Source: xroot protocol 5.2.0, section 2.15. Recorded: `fs_prepare`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::xroot::flags::{PrepareOptions, PrepareOptionsX};

/// Stages or evicts files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepare<'a> {
    /// Options.
    pub options: PrepareOptions,
    /// Priority from 0 to 3.
    pub prty: u8,
    /// Port of the client for the notification.
    pub port: u16,
    /// Further options.
    pub optionx: PrepareOptionsX,
    /// Paths separated by LF, each `path[?cgi]`; or a request id.
    pub paths: &'a [u8],
}

impl<'a> RequestBody<'a> for Prepare<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            options: PrepareOptions(header.u8::<4>()),
            prty: header.u8::<5>(),
            port: header.u16::<6>(),
            optionx: PrepareOptionsX(header.u16::<8>()),
            paths: payload,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 1>([self.options.0])
            .with::<5, 1>([self.prty])
            .with::<6, 2>(self.port.to_be_bytes())
            .with::<8, 2>(self.optionx.0.to_be_bytes())
            .finish(self.paths, out);
    }
}
