//! The xroot splitter returns exactly the recorded frames for any segmentation of the stream.
//!
//! Segment sizes are random, because TCP preserves no frame boundaries.
#![allow(clippy::unwrap_used)]

mod vectors;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use vectors::{Direction, Kind};
use wire::xroot::frames::{self, Splitter};
use wire::xroot::limits::ARGUMENT_BYTES_MAX;

#[test]
fn recorded_streams_split_into_the_recorded_frames() {
    let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut count = 0;
    for scenario in vectors::load() {
        for connection in &scenario.connections {
            for direction in [Direction::C2s, Direction::S2c] {
                let recorded = connection.frames.iter().filter(|frame| frame.dir == direction);
                // The following bytes are not frames of this protocol.
                let recorded =
                    recorded.take_while(|f| !matches!(f.kind, Kind::TlsBytes | Kind::BoundPayload));
                // The stream cannot be followed behind a frame whose length is refused.
                let recorded: Vec<_> = recorded
                    .take_while(|f| f.dlen.is_none_or(|d| d >= 0))
                    .map(vectors::Frame::bytes)
                    .collect();
                let recorded: Vec<_> =
                    recorded.into_iter().take_while(|bytes| whole(direction, bytes)).collect();
                let stream = recorded.concat();
                // Small segments at the start, where the headers are, then segments up to the size
                // of a socket buffer.
                for longest in [7, 100_000] {
                    let what =
                        format!("{} connection {} {direction:?}", scenario.name, connection.connection);
                    let split = split(direction, &stream, |left| {
                        let longest = if left + 4000 < stream.len() { 100_000 } else { longest };
                        1 + rng.next_u32() as usize % longest
                    });
                    assert_eq!(split.len(), recorded.len(), "{what}");
                    assert!(split == recorded, "{what}");
                    count += split.len();
                }
            }
        }
    }
    assert!(count > 2 * 1500, "{count}");
}

/// Reports whether a frame is complete. Requests of scripts may announce a longer payload than they
/// send.
fn whole(direction: Direction, bytes: &[u8]) -> bool {
    let greeting = matches!(bytes.len(), 16 | 20);
    let length = match direction {
        Direction::C2s => frames::request_bytes(bytes),
        Direction::S2c => frames::response_bytes(bytes),
    };
    greeting || length == Ok(frames::FrameBytes::Exactly(bytes.len()))
}

fn split(direction: Direction, stream: &[u8], mut piece_bytes: impl FnMut(usize) -> usize) -> Vec<Vec<u8>> {
    let kind = match direction {
        Direction::C2s => frames::Direction::Requests,
        Direction::S2c => frames::Direction::Responses,
    };
    let mut splitter = Splitter::new(kind, 16 * ARGUMENT_BYTES_MAX);
    let mut frames = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(piece_bytes(rest.len()).min(rest.len()));
        rest = later;
        splitter.push(piece);
        while let Some(frame) = splitter.next_frame().unwrap() {
            frames.push(frame.bytes().to_vec());
        }
    }
    assert!(splitter.unread().is_empty());
    frames
}
