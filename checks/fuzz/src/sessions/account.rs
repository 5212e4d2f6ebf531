//! Accounting of requests and replies: every request receives exactly one final reply.
//!
//! A client matches replies to requests by streamid, so a missing or duplicate reply would hang or
//! confuse it.

use std::collections::BTreeMap;

use session::DriverTask;
use wire::FixedLayout;
use wire::xroot::codes::{RequestCode, ResponseType, Status};
use wire::xroot::header::{RequestHeader, ResponseHeader, StreamId};
use wire::xroot::limits::RESPONSE_HEADER_BYTES;
use wire::xroot::reply::status::{STATUS_FRAME_BYTES, StatusFrame};

/// Size in bytes of the part of a kXR_attn body in front of the embedded reply.
const ATTN_BYTES: usize = 8;

/// Size in bytes of a kXR_status body in front of the data.
const STATUS_BYTES: usize = STATUS_FRAME_BYTES - RESPONSE_HEADER_BYTES;

/// Outstanding replies by streamid.
#[derive(Default)]
pub(super) struct ReplyAccount {
    owed: BTreeMap<[u8; 2], i64>,
    greeted: bool,
}

impl ReplyAccount {
    /// Records a request at the front of `input`.
    pub(super) fn request(&mut self, input: &[u8], todo: &DriverTask) {
        if !std::mem::replace(&mut self.greeted, true) {
            return;
        }
        let Some(header) = input.first_chunk().map(RequestHeader::from_bytes) else { return };
        // A signature has no reply of its own. The session that a connection joins replies to its
        // bind request.
        if header.code != RequestCode::SIGVER && !matches!(todo, DriverTask::Bind { .. }) {
            *self.owed.entry(header.streamid.0).or_default() += 1;
        }
    }

    /// Records a frame that was sent.
    pub(super) fn frame(&mut self, frame: &[u8]) {
        let Some((header, body)) = frame.split_first_chunk() else { panic!("a frame without a header") };
        let header = ResponseHeader::from_bytes(header);
        match header.status {
            Status::OKSOFAR | Status::WAITRESP => {}
            Status::ATTN => {
                assert_eq!(header.streamid, StreamId::default(), "kXR_attn has a streamid");
                self.frame(body.get(ATTN_BYTES..).unwrap_or_default());
            }
            Status::STATUS => {
                let Ok(status) = StatusFrame::decode(&header, body.get(..STATUS_BYTES).unwrap_or(body))
                else {
                    panic!("a status frame cannot be read")
                };
                *self.owed.entry(header.streamid.0).or_default() -=
                    i64::from(status.resptype == ResponseType::FINAL);
            }
            _ => *self.owed.entry(header.streamid.0).or_default() -= 1,
        }
    }

    /// Checks that no reply was sent twice, and that no reply is outstanding when the session is
    /// idle.
    pub(super) fn check(&self, ending: bool, busy: bool) {
        if ending {
            return;
        }
        for (stream, &owed) in &self.owed {
            assert!(owed >= 0, "stream {stream:?} received {} replies without a request", -owed);
            assert!(busy || owed == 0, "stream {stream:?} waits for {owed} replies of an idle session");
        }
    }
}
