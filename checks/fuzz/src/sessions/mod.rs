//! Fuzz target for the session state machine: arbitrary lists of operations.
//!
//! Requests are segmented and mixed in any way, and answers come in any order and of any kind. Data
//! arrives or is lost, connections are bound and lost, and the session can end at any step. The
//! properties:
//!
//! * the output of every connection consists of complete frames;
//! * no call id is used twice concurrently, and the session counts as many calls as the driver;
//! * every request receives exactly one final reply, and no other reply is sent, until the session
//!   ends;
//! * a file is used only while it is open, is not closed while it is in use, and is closed or
//!   abandoned exactly once;
//! * two conflicting operations on a file never run concurrently;
//! * nothing uses files or other sessions before a required authentication;
//! * a session that has ended and whose calls are answered is finished, without an open file.
//!
//! An input is a list of steps, each with one or two bytes of parameters; see [`target`].

mod account;
mod driver;
mod files;
mod pending_read;
mod reads;

use auth::ServerProtocol;
use auth::unix::UnixServer;
use driver::FuzzDriver;
use session::{LoginPolicy, Settings, Signing, SigningByDistance};
use std::sync::Arc;
use wire::xroot::codes::{RequestCode, SecurityLevel};

/// Checks `data` as a list of steps: one byte for the step (modulo 8), then its parameters.
///
/// | step | parameters       | effect                                                      |
/// |------|------------------|-------------------------------------------------------------|
/// | 0..2 | length u8, bytes | bytes arrive on the control connection                      |
/// | 3    | which u8, how u8 | an operation is answered                                    |
/// | 4    | which u8, how u8 | received data is stored, fails, or has bad pages            |
/// | 5    | which u8         | a connection is bound (low bit 0), or a bound one is lost   |
/// | 6    | which u8, how u8 | a call is deferred, or the next frame of a read is sent     |
/// | 7    | which u8         | 7: the control connection is lost; else bytes arrive singly |
pub fn target(data: &[u8]) {
    let mut steps = StepReader { rest: data };
    let mut driver = FuzzDriver::new(settings(data));
    while let Some(step) = steps.byte() {
        match step % 8 {
            0..=2 => {
                let length = steps.byte().unwrap_or(0);
                driver.feed(steps.bytes(usize::from(length)));
            }
            3 => driver.answer(steps.parameter(), steps.parameter()),
            4 => driver.received(steps.parameter(), steps.parameter()),
            5 => driver.link(steps.parameter()),
            6 => driver.later(steps.parameter(), steps.parameter()),
            _ => match steps.parameter() {
                7 => driver.end(),
                length => {
                    let bytes = steps.bytes(usize::from(length));
                    bytes.iter().for_each(|byte| driver.feed(std::slice::from_ref(byte)));
                }
            },
        }
        driver.check();
    }
    driver.finish();
}

/// Returns the settings of the server, which the first step selects: 1 requires signatures, 2 has
/// low limits, 3 asks for authentication.
fn settings(data: &[u8]) -> Settings {
    let defaults = Settings::default();
    match data.first() {
        Some(1) => {
            let signing = SigningByDistance::of_all(Signing::new(SecurityLevel::INTENSE, true, false, &[]));
            Settings { signing, ..defaults }
        }
        Some(3) => Settings { login: Some(unix_logins()), ..defaults },
        Some(2) => Settings { files_max: 2, prepares_max: Some(1), ..defaults },
        _ => defaults,
    }
}

/// Returns a policy that asks for the user names of clients.
fn unix_logins() -> Arc<LoginPolicy> {
    let protocols: Vec<Arc<dyn ServerProtocol>> = vec![Arc::new(UnixServer)];
    match LoginPolicy::new(protocols, &["unix"], Vec::new(), false, "server.example.org") {
        Ok(policy) => Arc::new(policy),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the steps of a seed: each frame, followed by two rounds of answers.
#[must_use]
pub fn seed(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut steps = Vec::new();
    for frame in frames {
        for piece in frame.chunks(255) {
            steps.extend([0, u8::try_from(piece.len()).unwrap_or(u8::MAX)]);
            steps.extend_from_slice(piece);
        }
        steps.extend([4, 0, 0, 3, 0, 0, 3, 0, 0]);
    }
    steps
}

/// Returns a seed of pipelined requests on two files, with answers and data in an order that
/// `number` determines.
#[must_use]
pub fn pipelined_seed(number: u32) -> Vec<u8> {
    let request = |code: u16, body: [u8; 16], payload: &[u8]| {
        let header = [&[0, 1][..], &code.to_be_bytes(), &body].concat();
        let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
        [&header[..], &length, payload].concat()
    };
    let mut steps = Vec::new();
    let send = |bytes: &[u8], steps: &mut Vec<u8>| {
        steps.extend([0, u8::try_from(bytes.len()).unwrap_or(u8::MAX)]);
        steps.extend_from_slice(bytes);
    };
    let body = |at: usize, value: u8| std::array::from_fn(|index| if index == at { value } else { 0 });
    let handshake = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 7, 0xdc];
    send(&handshake, &mut steps);
    send(&request(RequestCode::LOGIN.0, body(14, 5), b""), &mut steps);
    for _ in 0..2 {
        // Opened for update; answered with an open file.
        send(&request(RequestCode::OPEN.0, body(3, 0x20), b"/f"), &mut steps);
        steps.extend([3, 0, 5]);
    }
    let element = |file: u8| [file, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2];
    let mut dice = number;
    let mut below = |limit: u32| {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from((dice >> 16) % limit).unwrap_or(0)
    };
    for _ in 0..12 {
        let file = below(2);
        let at_offset = |offset: u8| {
            std::array::from_fn(|index| match index {
                0 => file,
                11 => offset,
                15 => 4 * u8::from(offset < 8),
                _ => 0,
            })
        };
        let next = match below(9) {
            0 => request(RequestCode::TRUNCATE.0, body(0, file), b""),
            1 => request(RequestCode::CHKPOINT.0, body(0, file), b""),
            2 => request(RequestCode::SYNC.0, body(0, file), b""),
            3 => request(RequestCode::STAT.0, body(12, file), b""),
            4 => request(RequestCode::READV.0, [0; 16], &[element(0), element(1)].concat()),
            5 if below(4) == 0 => request(RequestCode::CLOSE.0, body(0, file), b""),
            5 | 6 => request(RequestCode::READ.0, at_offset(below(8)), b""),
            _ => {
                // The path id of a write is behind the offset.
                let mut place = at_offset(below(8));
                place[12..].fill(0);
                request(RequestCode::WRITE.0, place, b"data")
            }
        };
        send(&next, &mut steps);
        match below(4) {
            0 => steps.extend([3, below(8), 5]),
            1 => steps.extend([4, below(8), 0]),
            2 => steps.extend([6, below(8), 1]),
            _ => {}
        }
    }
    steps
}

struct StepReader<'a> {
    rest: &'a [u8],
}

impl<'a> StepReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn parameter(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        bytes
    }
}
