//! Memory that a request may use: its decoded argument, and the largest reply that waits in memory.
//!
//! It is computed from the header alone, so that a request without room stays unread. File data is
//! not included, because each piece of it is charged when it begins.

use crate::{LIST_PAGE_BYTES, SPOT_BYTES_MAX};
use wire::xroot::codes::{ChkpointOpcode, FattrSubcode, RequestCode};
use wire::xroot::header::RequestHeader;
use wire::xroot::limits::{
    ARGUMENT_BYTES_MAX, CONFIG_ANSWER_BYTES_MAX, FATTR_ATTRIBUTES_MAX, FATTR_NAME_BYTES_MAX,
    FATTR_VALUE_BYTES_MAX, SEGMENT_BYTES, WRITEV_SEGMENTS_MAX,
};

/// Memory of a call in flight and a short reply, in bytes.
pub(crate) const CALL_BYTES: usize = 1024;

/// Memory of an element of a vector read: the element, its piece in a job, and its header in the
/// reply.
pub(crate) const READ_ELEMENT_BYTES: usize = 64;

/// Memory of an element of a vector write: its extent in both forms.
const WRITE_ELEMENT_BYTES: usize = 80;

/// Memory of an attribute in a reply.
const ATTRIBUTE_BYTES: usize = FATTR_NAME_BYTES_MAX + FATTR_VALUE_BYTES_MAX + 8;

/// Memory of attribute names without values: the maximum that Linux lists for a file.
const ATTRIBUTE_NAMES_BYTES: usize = 64 * 1024;

/// Returns the memory in bytes for a request with this header.
pub(crate) fn of(header: &RequestHeader) -> usize {
    let argument = usize::try_from(header.dlen).unwrap_or(0).min(ARGUMENT_BYTES_MAX);
    let [.., opcode] = header.body;
    let items = argument / SEGMENT_BYTES;
    match header.code {
        RequestCode::READ => SPOT_BYTES_MAX,
        RequestCode::PING | RequestCode::PGREAD | RequestCode::WRITE | RequestCode::PGWRITE => CALL_BYTES,
        RequestCode::READV => CALL_BYTES + items * READ_ELEMENT_BYTES,
        RequestCode::WRITEV => CALL_BYTES + items * WRITE_ELEMENT_BYTES,
        // The executed request may be a vector write, whose list follows.
        RequestCode::CHKPOINT if ChkpointOpcode(opcode) == ChkpointOpcode::XEQ => {
            CALL_BYTES + WRITEV_SEGMENTS_MAX * WRITE_ELEMENT_BYTES
        }
        RequestCode::DIRLIST => CALL_BYTES + 2 * argument + LIST_PAGE_BYTES,
        RequestCode::FATTR => CALL_BYTES + 2 * argument + attributes(header),
        RequestCode::QUERY => CALL_BYTES + 2 * argument + CONFIG_ANSWER_BYTES_MAX,
        // Paths and cgi are copied. A list is not copied, and its answer is shorter.
        _ => CALL_BYTES + 2 * argument,
    }
}

/// Returns the memory in bytes for the reply to a kXR_fattr.
fn attributes(header: &RequestHeader) -> usize {
    let [_, _, _, _, subcode, count, options, ..] = header.body;
    let count = usize::from(count).min(FATTR_ATTRIBUTES_MAX);
    match FattrSubcode(subcode) {
        FattrSubcode::GET => count * ATTRIBUTE_BYTES,
        FattrSubcode::LIST if options == 0 => ATTRIBUTE_NAMES_BYTES,
        FattrSubcode::LIST => FATTR_ATTRIBUTES_MAX * ATTRIBUTE_BYTES,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SESSION_BYTES_FREE, SESSION_REQUEST_BYTES_MAX};
    use wire::xroot::header::StreamId;

    fn cost(code: RequestCode, dlen: i32, body: [u8; 16]) -> usize {
        of(&RequestHeader { dlen, body, ..RequestHeader::new(StreamId::default(), code) })
    }

    #[test]
    fn common_requests_fit_the_free_bytes() {
        for code in [RequestCode::READ, RequestCode::STAT, RequestCode::OPEN, RequestCode::PING] {
            assert!(cost(code, 2000, [0; 16]) <= SESSION_BYTES_FREE / 2, "{code:?}");
        }
        assert!(cost(RequestCode::READV, 16 * 1024, [0; 16]) <= SESSION_BYTES_FREE);
    }

    #[test]
    fn the_largest_requests_fit_a_session() {
        let mut body = [0; 16];
        (body[4], body[5]) = (FattrSubcode::GET.0, 16);
        assert!(cost(RequestCode::FATTR, 4000, body) > 16 * FATTR_VALUE_BYTES_MAX);
        for code in [RequestCode::FATTR, RequestCode::STATX, RequestCode::PREPARE, RequestCode::DIRLIST] {
            assert!(cost(code, i32::MAX, body) + 5000 < SESSION_REQUEST_BYTES_MAX + ARGUMENT_BYTES_MAX);
        }
    }
}
