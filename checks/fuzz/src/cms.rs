//! Fuzz target for cms frames.
//!
//! Decoding must not panic for any kind of connection, decoded messages must encode to equal
//! messages, and texts must parse back. Splitting a stream must not lose a byte.

use wire::cms::login::{Env, ExportLine, ExportLines, SystemId};
use wire::cms::message::{PathBatch, TryList};
use wire::cms::response::MessageId;
use wire::cms::response::space_text::{SpaceText, TotalsText};
use wire::cms::{
    EncodeError, Extensions, FramePhase, FrameSplitter, Header, LoginAnswer, Message, NodeLogin, Response,
    ToRedirector,
};
use wire::xroot::cgi::CgiText;
use wire::{Decode, Encode, FixedLayout};

/// Checks `data` as a frame, whose announced length may be wrong, and as a stream.
pub fn target(data: &[u8]) {
    for phase in [FramePhase::Login, FramePhase::Established, FramePhase::Redirector] {
        split_stream(phase, data);
    }
    let Some((header, rest)) = data.split_first_chunk() else { return };
    let header = Header::from_bytes(header);
    let payload = rest.get(..header.payload_bytes()).unwrap_or(rest);
    texts(payload);
    message(&header, payload);
    login_answer(&header, payload);
    response(&header, payload);
}

/// Returns the frame that `encode` appends, or `None` on an error, after which no bytes may have
/// been appended.
fn encoded(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    let done = encode(&mut out);
    let frame = out.strip_prefix(b"before").map(<[u8]>::to_vec);
    match done {
        Ok(()) => frame,
        Err(_) => {
            assert_eq!(out, b"before");
            None
        }
    }
}

fn split_frame(frame: &[u8]) -> (Header, &[u8]) {
    let Some((header, payload)) = frame.split_first_chunk() else { panic!("no header") };
    let header = Header::from_bytes(header);
    assert_eq!(header.payload_bytes(), payload.len());
    (header, payload)
}

fn message(header: &Header, payload: &[u8]) {
    let Ok(message) = Message::decode(header, payload) else { return };
    examine(&message);
    let encode = |message: &Message<'_>| encoded(|out| message.encode(header.streamid, Extensions::ALL, out));
    let Some(first) = encode(&message) else { return };
    let (again_header, again) = split_frame(&first);
    assert_eq!(again_header.code, header.code);
    let Ok(again) = Message::decode(&again_header, again) else {
        panic!("{message:?} does not decode again")
    };
    assert_eq!(encode(&again).as_ref(), Some(&first), "{message:?}");
    match message {
        // Some numbers of these messages are limited when they are encoded.
        Message::Login(_) | Message::Load(_) | Message::Avail(_) => {}
        message => assert_eq!(message, again),
    }
    // Neither an extension nor `prepdel` is encoded for a peer without extensions.
    let to_real = encoded(|out| again.encode(header.streamid, Extensions::NONE, out));
    assert!(to_real.is_none() || !matches!(again.code().0, 7 | 28..), "{again:?}");
}

fn login_answer(header: &Header, payload: &[u8]) {
    let Ok(answer) = LoginAnswer::decode(header, payload) else { return };
    let Some(frame) = encoded(|out| answer.encode(out)) else { return };
    let (header, payload) = split_frame(&frame);
    assert!(payload.len() <= 4096);
    match (answer, LoginAnswer::decode(&header, payload)) {
        // Its text is cut to the limit of a redirector.
        (LoginAnswer::Refused { code, text }, Ok(LoginAnswer::Refused { code: same, text: cut })) => {
            assert!(code == same && text.starts_with(cut));
        }
        (answer, again) => assert_eq!(again, Ok(answer)),
    }
    if let LoginAnswer::Accepted(reply) = answer {
        assert!(Extensions::NOT_HERE.contains(reply.granted(Extensions::NOT_HERE)));
    }
}

fn response(header: &Header, payload: &[u8]) {
    let Ok(ToRedirector::Response(response)) = ToRedirector::decode(header, payload) else { return };
    let Some(frame) = encoded(|out| response.encode(header.streamid, out)) else { return };
    let (header, payload) = split_frame(&frame);
    assert!(payload.len() <= FramePhase::Redirector.payload_bytes_max(header.code));
    let Ok(again) = Response::decode(&header, payload) else { panic!("{response:?} does not decode again") };
    let second = encoded(|out| again.encode(header.streamid, out));
    assert_eq!(second.as_ref(), Some(&frame), "{response:?}");
    assert!(!again.is_later() || MessageId::of_streamid(header.streamid).is_some());
}

/// Calls every accessor that a parent or node uses on a decoded message.
fn examine(message: &Message<'_>) {
    match message {
        Message::Login(login) => examine_login(login),
        Message::Select(select) => select.avoided().for_each(drop),
        Message::Locate(locate) => drop(locate.scope()),
        Message::Try(hosts) => {
            let list =
                hosts.hosts().last().map(|own| TryList::new(FramePhase::Established, hosts.hosts(), own));
            if let Some(Ok(list)) = list {
                assert_eq!(list.message().hosts().last(), hosts.hosts().last());
            }
        }
        Message::Inventory(inventory) => {
            let mut batch = PathBatch::default();
            let fitted = inventory.paths().take_while(|path| batch.push(path) == Ok(true)).count();
            assert!(batch.message(inventory.modifier).paths().eq(inventory.paths().take(fitted)));
        }
        Message::Chmod(change) => drop(change.permissions()),
        Message::Trunc(trunc) => drop(trunc.size_bytes()),
        _ => {}
    }
}

fn examine_login(login: &NodeLogin<'_>) {
    login.interfaces().for_each(|address| assert!(!address.is_empty()));
    let exports: Result<Vec<ExportLine<'_>>, _> = login.exports().collect();
    if let Ok(exports) = exports {
        let mut out = Vec::new();
        exports.iter().for_each(|&export| ExportLines::append(&mut out, export));
        assert_eq!(ExportLines::parse(&out).collect::<Result<Vec<_>, _>>(), Ok(exports));
    }
}

/// Checks the texts that occur in frames.
fn texts(text: &[u8]) {
    if let Ok(id) = SystemId::decode(text) {
        assert_eq!(id.encoded(), text);
        assert_eq!(SystemId::cluster_of(text), Some(id.cluster));
    }
    if let Ok(space) = SpaceText::decode(text) {
        assert_eq!(SpaceText::decode(&space.encoded()), Ok(space));
    }
    if let Ok(totals) = TotalsText::decode(text) {
        assert_eq!(TotalsText::decode(&totals.encoded()), Ok(totals));
    }
    let env = Env::parse(CgiText::new(text));
    assert_eq!(Env::parse(CgiText::new(&env.encoded())), env);
}

/// Checks that the frames do not depend on the segmentation of the stream, and that no byte is
/// lost.
fn split_stream(phase: FramePhase, stream: &[u8]) {
    let whole = frames(phase, stream, stream.len().max(1));
    assert_eq!(whole, frames(phase, stream, 5));
    let taken: usize = whole.0.iter().sum();
    assert_eq!(taken + whole.1, stream.len());
}

/// Returns the lengths of the frames, the number of remaining bytes, and whether the splitter
/// returned an error.
fn frames(phase: FramePhase, stream: &[u8], piece_bytes: usize) -> (Vec<usize>, usize, bool) {
    let mut splitter = FrameSplitter::new(phase);
    let mut lengths = Vec::new();
    let mut lost = false;
    for piece in stream.chunks(piece_bytes) {
        splitter.push(piece);
        while !lost {
            match splitter.next_frame() {
                Ok(Some(frame)) => {
                    assert!(frame.payload.len() <= phase.payload_bytes_max(frame.header.code));
                    lengths.push(8 + frame.payload.len());
                }
                Ok(None) => break,
                Err(_) => lost = true,
            }
        }
    }
    (lengths, splitter.unread().len(), lost)
}
