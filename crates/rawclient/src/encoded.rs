//! A request encoded without its stream id: the caller encodes it, the connection inserts the id.
//!
//! The caller cannot insert the id because the connection assigns it when the request is sent.

use wire::xroot::flags::OpenOptions;
use wire::xroot::limits::REQUEST_HEADER_BYTES;
use wire::xroot::request::Request;
use wire::xroot::{RequestCode, StreamId};

/// An encoded request without stream id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    code: RequestCode,
    bytes: Vec<u8>,
}

impl Encoded {
    /// Encodes a request without its file data.
    #[must_use]
    pub fn new(request: &Request<'_>) -> Self {
        let mut bytes = Vec::with_capacity(REQUEST_HEADER_BYTES * 2);
        request.encode(StreamId::default(), &mut bytes);
        Self { code: request.code(), bytes }
    }

    /// Returns the request code.
    #[must_use]
    pub const fn code(&self) -> RequestCode {
        self.code
    }

    /// Reports whether it opens a file that a close ends. Closing a file that is persisted on successful
    /// close would publish it.
    #[must_use]
    pub fn opens_file(&self) -> bool {
        let options = self.bytes.get(6..8).and_then(<[u8]>::first_chunk);
        let options = options.map_or(OpenOptions::NONE, |bytes| OpenOptions(u16::from_be_bytes(*bytes)));
        self.code == RequestCode::OPEN && !options.intersects(OpenOptions::POSC)
    }

    /// Returns the position of the path id in requests whose data may use a data stream.
    fn path_at(&self) -> Option<usize> {
        match self.code {
            RequestCode::READ | RequestCode::PGREAD => Some(REQUEST_HEADER_BYTES),
            RequestCode::WRITE | RequestCode::PGWRITE => Some(16),
            _ => None,
        }
        .filter(|at| *at < self.bytes.len())
    }

    /// Reports whether its data may use a data stream.
    pub fn has_path(&self) -> bool {
        self.path_at().is_some()
    }

    /// Appends the bytes with stream id and path id, also in the header of a nested request.
    pub fn append(&self, streamid: StreamId, path: u8, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&self.bytes);
        let mut put = |at: usize| {
            if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *place = streamid.0;
            }
        };
        put(at);
        if self.code == RequestCode::CHKPOINT && self.bytes.len() > REQUEST_HEADER_BYTES {
            put(at + REQUEST_HEADER_BYTES);
        }
        let path_at = self.path_at().filter(|_| path != 0);
        if let Some(place) = path_at.and_then(|path_at| out.get_mut(at + path_at)) {
            *place = path;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::FixedLayout;
    use wire::xroot::codes::ChkpointOpcode;
    use wire::xroot::flags::OpenTemplateOptions;
    use wire::xroot::request::{Chkpoint, Open, Ping, Truncate};
    use wire::xroot::{FileHandle, RequestHeader};

    #[test]
    fn the_stream_id_is_in_both_headers_of_a_checkpointed_request() {
        let fhandle = FileHandle([1, 2, 3, 4]);
        let mut inner = Vec::new();
        Request::Truncate(Truncate { fhandle, offset: 7, path: b"" }).encode(StreamId::default(), &mut inner);
        let embedded = Some(RequestHeader::from_bytes(inner.first_chunk().unwrap()));
        let outer = Request::Chkpoint(Chkpoint { fhandle, opcode: ChkpointOpcode::XEQ, embedded });
        let mut out = vec![0xee];
        Encoded::new(&outer).append(StreamId([5, 6]), 0, &mut out);
        assert_eq!(out.len(), 1 + 48);
        assert_eq!((&out[1..3], &out[25..27]), (&[5, 6][..], &[5, 6][..]));
    }

    #[test]
    fn only_opens_whose_file_a_close_leaves_as_it_is_are_closed_for_absent_callers() {
        let open = |options| {
            let (optiont, fhtemplt) = (OpenTemplateOptions::NONE, FileHandle::default());
            let target = b"/a";
            Encoded::new(&Request::Open(Open { mode: 0o644, options, optiont, fhtemplt, target }))
        };
        assert!(open(OpenOptions::READ).opens_file() && open(OpenOptions::NEW).opens_file());
        assert!(!open(OpenOptions::NEW.with(OpenOptions::POSC)).opens_file());
        assert!(!Encoded::new(&Request::Ping(Ping)).opens_file());
    }
}
