//! The account of requests and replies: every request is answered once, and nothing is answered that was not asked.

use std::collections::BTreeMap;

use session::Todo;
use wire::xroot::codes::{RequestCode, ResponseType, Status};
use wire::xroot::header::{RequestHeader, ResponseHeader, StreamId};
use wire::xroot::limits::RESPONSE_HEADER_BYTES;
use wire::xroot::reply::status::{STATUS_FRAME_BYTES, StatusFrame};

/// Bytes of a kXR_attn body before the reply in it.
const ATTN_BYTES: usize = 8;

/// Bytes of a kXR_status body before the data.
const STATUS_BYTES: usize = STATUS_FRAME_BYTES - RESPONSE_HEADER_BYTES;

/// Replies that are owed, by stream.
#[derive(Default)]
pub(super) struct Account {
    owed: BTreeMap<[u8; 2], i64>,
    greeted: bool,
}

impl Account {
    /// A request was taken from the front of `input`.
    pub(super) fn request(&mut self, input: &[u8], todo: &Todo) {
        if !std::mem::replace(&mut self.greeted, true) {
            return;
        }
        let Some(header) = input.first_chunk().map(RequestHeader::decode) else { return };
        // A signature has no reply of its own; a connection that joins elsewhere gets it there.
        if header.code != RequestCode::SIGVER && !matches!(todo, Todo::Bind { .. }) {
            *self.owed.entry(header.streamid.0).or_default() += 1;
        }
    }

    /// A frame was sent.
    pub(super) fn frame(&mut self, frame: &[u8]) {
        let Some((header, body)) = frame.split_first_chunk() else { panic!("a frame without a header") };
        let header = ResponseHeader::decode(header);
        match header.status {
            Status::OKSOFAR | Status::WAITRESP => {}
            Status::ATTN => {
                assert_eq!(header.streamid, StreamId::default(), "an attention has a stream");
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

    /// Nothing was answered twice; and nothing is owed by a session at rest.
    pub(super) fn check(&self, ending: bool, busy: bool) {
        if ending {
            return;
        }
        for (stream, &owed) in &self.owed {
            assert!(owed >= 0, "stream {stream:?} got {} replies that nobody asked for", -owed);
            assert!(busy || owed == 0, "stream {stream:?} waits for {owed} replies that nobody makes");
        }
    }
}
