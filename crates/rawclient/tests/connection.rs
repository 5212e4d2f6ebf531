//! The state machine of a connection against bytes of a server, split at every place.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use rawclient::{
    AuthenticationStep, Connection, ConnectionError, ConnectionEvent, Demand, Login, RequestOutcome,
    SubmitError, TlsSupport,
};
use std::io::IoSlice;
use wire::xroot::codes::ResponseType;
use wire::xroot::flags::ServerFlags;
use wire::xroot::frames::{Direction, Frame, Splitter};
use wire::xroot::header::HandshakeReply;
use wire::xroot::reply::{self, LoginReply, ProtocolReply, Redirect, StatusFrame};
use wire::xroot::request::{self, Request};
use wire::xroot::{ErrorCode, FileHandle, RequestCode, RequestHeader, SessionId, StreamId};
use wire::{Encode, FixedLayout};

/// An event with its bytes copied.
#[derive(PartialEq, Eq, Debug)]
enum Seen {
    Ready,
    Data(u64, Vec<u8>),
    Pages(u64, i64, i32),
    Later(u64, i32),
    Ok(u64, Vec<u8>),
    Error(u64, ErrorCode),
    Redirect(u64, Vec<u8>),
    Wait(u64, i32),
    Notice,
    StartTls,
    Offers(Vec<u8>),
    Challenge(Vec<u8>),
    Refused(ErrorCode),
}

fn see(event: ConnectionEvent<'_>) -> Seen {
    match event {
        ConnectionEvent::Ready => Seen::Ready,
        ConnectionEvent::StartTls => Seen::StartTls,
        ConnectionEvent::Data { tag, bytes } => Seen::Data(tag, bytes.to_vec()),
        ConnectionEvent::Pages { tag, frame } => Seen::Pages(tag, frame.offset, frame.dlen),
        ConnectionEvent::Later { tag, wait } => Seen::Later(tag, wait.seconds),
        ConnectionEvent::Notice { .. } => Seen::Notice,
        ConnectionEvent::Authenticate(AuthenticationStep::Offers(text)) => Seen::Offers(text.to_vec()),
        ConnectionEvent::Authenticate(AuthenticationStep::Challenge(data)) => Seen::Challenge(data.to_vec()),
        ConnectionEvent::Authenticate(AuthenticationStep::Refused(error)) => Seen::Refused(error.code),
        ConnectionEvent::Done { tag, outcome } => match outcome {
            RequestOutcome::Ok(bytes) => Seen::Ok(tag, bytes.to_vec()),
            RequestOutcome::Error(error) => Seen::Error(tag, error.code),
            RequestOutcome::Redirect(redirect) => Seen::Redirect(tag, redirect.host.to_vec()),
            RequestOutcome::Wait(wait) => Seen::Wait(tag, wait.seconds),
        },
    }
}

/// Feeds `bytes` in pieces of `cut` bytes and joins adjacent data, so that all splits must give
/// equal events.
fn feed(connection: &mut Connection, bytes: &[u8], cut: usize) -> Result<Vec<Seen>, ConnectionError> {
    let mut all: Vec<Seen> = Vec::new();
    for mut piece in bytes.chunks(cut) {
        while let Some(event) = connection.next_event(&mut piece)? {
            let seen = see(event);
            match (all.last_mut(), seen) {
                (Some(Seen::Data(last, had)), Seen::Data(tag, more)) if *last == tag => had.extend(more),
                // If data was delivered early, the end of the reply carries the rest.
                (Some(Seen::Data(last, had)), Seen::Ok(tag, more)) if *last == tag => {
                    had.extend(more);
                    all.push(Seen::Ok(tag, Vec::new()));
                }
                (_, Seen::Ok(tag, data)) if is_read(tag) && !data.is_empty() => {
                    all.extend([Seen::Data(tag, data), Seen::Ok(tag, Vec::new())]);
                }
                (_, seen) => all.push(seen),
            }
        }
        assert!(piece.is_empty());
    }
    Ok(all)
}

/// Reports whether a tag is one of the requests with data in these tests.
fn is_read(tag: u64) -> bool {
    tag < 100
}

fn greeting(security: &[u8]) -> Vec<u8> {
    let mut out = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER }.encoded();
    let mut body = Vec::new();
    let flags = ServerFlags::IS_SERVER | ServerFlags::SUPPGRW;
    ProtocolReply { pval: 0x511, flags, bind_interfaces: None, security: None }.encode(&mut body);
    reply::ok(&mut out, StreamId::default(), &body);
    body.clear();
    LoginReply { sessid: Some(SessionId([7; 16])), security }.encode(&mut body);
    reply::ok(&mut out, StreamId::default(), &body);
    out
}

fn sent(connection: &mut Connection, most: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while !connection.is_sent() {
        let mut slices = [IoSlice::new(&[]); 4];
        let used = connection.outgoing(&mut slices);
        let mut now: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
        now.truncate(most);
        connection.sent(now.len());
        all.extend(now);
    }
    all
}

fn ready() -> Connection {
    let mut connection = Connection::new(Login::of_process("test"));
    assert_eq!(feed(&mut connection, &greeting(b""), 1000).unwrap(), [Seen::Ready]);
    sent(&mut connection, usize::MAX);
    connection
}

fn read(rlen: i32) -> Request<'static> {
    Request::Read(request::Read { fhandle: FileHandle([1, 2, 3, 4]), offset: 5, rlen, argument: None })
}

fn stat() -> Request<'static> {
    let (options, wants) = Default::default();
    Request::Stat(request::Stat { options, wants, fhandle: FileHandle::default(), path: b"/a" })
}

#[test]
fn the_login_follows_the_protocol_reply() {
    for cut in 1..60 {
        let mut connection = Connection::new(Login::of_process("test"));
        assert_eq!(sent(&mut connection, usize::MAX).len(), 44);
        assert_eq!(connection.submit(&stat(), 1), Err(SubmitError::NotReady));
        let server = greeting(b"");
        assert_eq!(feed(&mut connection, &server[..32], cut), Ok(vec![]));
        let login = sent(&mut connection, usize::MAX);
        let header = RequestHeader::from_bytes(login.first_chunk().unwrap());
        assert_eq!((header.code, header.streamid), (RequestCode::LOGIN, StreamId::default()));
        assert_eq!(feed(&mut connection, &server[32..], cut), Ok(vec![Seen::Ready]));
        let server = connection.server();
        assert_eq!((server.protocol_version, server.session), (0x511, Some(SessionId([7; 16]))));
        assert!(server.flags.contains(ServerFlags::SUPPGRW));
    }
}

#[test]
fn unsupported_demands_of_a_server_are_named() {
    let mut connection = Connection::new(Login::of_process("test"));
    let demand = Demand::Authentication("gsi, unix".into());
    let answer = greeting(b"&P=gsi,v:1&P=unix");
    assert_eq!(feed(&mut connection, &answer, 9), Err(ConnectionError::Demands(demand)));

    let mut connection = Connection::new(Login::of_process("test"));
    let mut answer = greeting(b"")[..16].to_vec();
    reply::ok(&mut answer, StreamId::default(), &[0, 0, 5, 0x20, 0xc0, 0, 0, 1]);
    assert_eq!(feed(&mut connection, &answer, 9), Err(ConnectionError::Demands(Demand::Tls)));

    let required = Login { tls: TlsSupport::Required, ..Login::of_process("test") };
    let mut connection = Connection::new(required);
    assert_eq!(feed(&mut connection, &greeting(b""), 9), Err(ConnectionError::NoTls));

    let mut connection = Connection::new(Login::of_process("test"));
    let mut answer = greeting(b"")[..32].to_vec();
    reply::error(&mut answer, StreamId::default(), ErrorCode::TLS_REQUIRED, "login requires TLS");
    let Err(ConnectionError::Refused { request, code, text }) = feed(&mut connection, &answer, 9) else {
        panic!("not refused");
    };
    assert_eq!((request, code), (RequestCode::LOGIN, ErrorCode::TLS_REQUIRED));
    assert_eq!(text, "login requires TLS");
}

#[test]
fn a_connection_switches_to_tls_before_its_login_or_before_its_first_request() {
    let supported = || Login { tls: TlsSupport::Supported, ..Login::of_process("test") };
    // gotoTLS: the login follows the handshake.
    let mut connection = Connection::new(supported());
    sent(&mut connection, usize::MAX);
    let mut answer = greeting(b"")[..16].to_vec();
    reply::ok(&mut answer, StreamId::default(), &[0, 0, 5, 0x20, 0xc4, 0, 0, 1]);
    assert_eq!(feed(&mut connection, &answer, 9), Ok(vec![Seen::StartTls]));
    assert!(connection.is_sent(), "nothing is sent in clear text");
    connection.encrypted();
    let login = sent(&mut connection, usize::MAX);
    assert_eq!(RequestHeader::from_bytes(login.first_chunk().unwrap()).code, RequestCode::LOGIN);
    assert_eq!(feed(&mut connection, &greeting(b"")[32..], 9), Ok(vec![Seen::Ready]));
    // tlsSess: requests follow the handshake after the login.
    let mut connection = Connection::new(supported());
    let mut answer = greeting(b"")[..16].to_vec();
    reply::ok(&mut answer, StreamId::default(), &[0, 0, 5, 0x20, 0x88, 0, 0, 1]);
    answer.extend_from_slice(&greeting(b"")[32..]);
    assert_eq!(feed(&mut connection, &answer, 7), Ok(vec![Seen::StartTls]));
    assert_eq!(connection.submit(&stat(), 1), Err(SubmitError::NotReady));
    connection.encrypted();
    assert!(connection.is_ready() && connection.is_tls());
    // Bytes in clear text after the switch.
    let mut connection = Connection::new(supported());
    answer.extend_from_slice(b"x");
    assert_eq!(feed(&mut connection, &answer, 7), Err(ConnectionError::NoTls));
}

#[test]
fn an_alert_of_tls_in_clear_text_is_reported_as_what_it_is() {
    // A server that was to switch to TLS, according to a greeting that did not arrive, sends an
    // alert of 7 bytes to the login in clear text. It is shorter than the header of a reply.
    let alert = [21, 3, 3, 0, 2, 2, 10];
    for pieces in 1..=alert.len() {
        let mut connection = Connection::new(Login::of_process("test"));
        let answer = [&greeting(b"")[..32], &alert].concat();
        assert_eq!(feed(&mut connection, &answer, pieces), Err(ConnectionError::UnannouncedTls));
        let mut connection = Connection::new(Login::of_process("test"));
        let answer = [&greeting(b"")[..], &alert].concat();
        assert_eq!(feed(&mut connection, &answer, pieces), Err(ConnectionError::UnannouncedTls));
    }
}

#[test]
fn an_exchange_of_credentials_has_several_steps_in_any_pieces() {
    for cut in [1, 7, 200] {
        let login = Login { authenticates: true, ..Login::of_process("test") };
        let mut connection = Connection::new(login);
        let answer = greeting(b"&P=sss,0.+13:&P=unix");
        let offers = Seen::Offers(b"&P=sss,0.+13:&P=unix".to_vec());
        assert_eq!(feed(&mut connection, &answer, cut), Ok(vec![offers]));
        assert_eq!(connection.submit(&stat(), 1), Err(SubmitError::NotReady));
        sent(&mut connection, usize::MAX);
        connection.authenticate("sss", b"sss\0one");
        let request = sent(&mut connection, usize::MAX);
        assert_eq!(
            (&request[2..4], &request[16..20], &request[24..]),
            (&[11, 184][..], &b"sss\0"[..], &b"sss\0one"[..])
        );
        let mut answer = Vec::new();
        reply::authmore(&mut answer, StreamId::default(), b"more");
        assert_eq!(feed(&mut connection, &answer, cut), Ok(vec![Seen::Challenge(b"more".to_vec())]));
        let mut answer = Vec::new();
        reply::error(&mut answer, StreamId::default(), ErrorCode::AUTH_FAILED, "no");
        assert_eq!(feed(&mut connection, &answer, cut), Ok(vec![Seen::Refused(ErrorCode::AUTH_FAILED)]));
        connection.authenticate("unix", b"unix\0me\0");
        let mut answer = Vec::new();
        reply::ok(&mut answer, StreamId::default(), b"");
        assert_eq!(feed(&mut connection, &answer, cut), Ok(vec![Seen::Ready]));
        assert_eq!(connection.server().session, Some(SessionId([7; 16])));
        assert_eq!(connection.submit(&stat(), 1), Ok(()));
    }
}

#[test]
fn forced_signatures_precede_their_requests() {
    let mut connection = Connection::new(Login::of_process("test"));
    let mut answer = greeting(b"")[..16].to_vec();
    // Pedantic, with force.
    let protocol = [0, 0, 5, 0x20, 0, 0x30, 0, 1, b'S', 0, 0, 2, 4, 0];
    reply::ok(&mut answer, StreamId::default(), &protocol);
    answer.extend_from_slice(&greeting(b"")[32..]);
    assert_eq!(feed(&mut connection, &answer, 9), Ok(vec![Seen::Ready]));
    sent(&mut connection, usize::MAX);
    for sequence in 1..=2u64 {
        connection.submit(&stat(), sequence).unwrap();
        let bytes = sent(&mut connection, usize::MAX);
        let (signature, request) = bytes.split_at(24 + 32);
        let header = RequestHeader::from_bytes(signature.first_chunk().unwrap());
        let Ok(Request::Sigver(sigver)) = Request::decode(&header, &signature[24..]) else { panic!("none") };
        let stream = RequestHeader::from_bytes(request.first_chunk().unwrap()).streamid;
        assert_eq!((sigver.expectrid, sigver.seqno, header.streamid), (RequestCode::STAT, sequence, stream));
        let hash = auth::request_hash(sequence, request.first_chunk().unwrap(), &request[24..]);
        assert_eq!(sigver.signature, hash);
    }
}

/// A server announces whether signatures cover the data of writes.
#[test]
fn the_signatures_of_a_connection_cover_data_on_request() {
    for (options, covers) in [(0, false), (1, false), (2, false), (3, true)] {
        let mut connection = Connection::new(Login::of_process("test"));
        let mut answer = greeting(b"")[..16].to_vec();
        let protocol = [0, 0, 5, 0x20, 0, 0x30, 0, 1, b'S', 0, 0, options, 3, 0];
        reply::ok(&mut answer, StreamId::default(), &protocol);
        answer.extend_from_slice(&greeting(b"")[32..]);
        assert_eq!(feed(&mut connection, &answer, 9), Ok(vec![Seen::Ready]));
        // Without a session key, only forced signatures are made.
        assert_eq!(connection.server().signs_data, covers, "{options}");
    }
}

#[test]
fn replies_arrive_in_any_order_and_in_pieces() {
    let first = StreamId([0, 1]);
    let (second, third) = (StreamId([0, 2]), StreamId([0, 3]));
    let mut answers = Vec::new();
    reply::oksofar(&mut answers, second, b"abcdefghijkl");
    reply::ok(&mut answers, first, b"hello");
    reply::error(&mut answers, third, ErrorCode::NOT_FOUND, "no such file");
    reply::oksofar(&mut answers, second, b"");
    reply::ok(&mut answers, second, b"mnopqrs");
    let expected = [
        Seen::Data(2, b"abcdefghijkl".to_vec()),
        Seen::Data(1, b"hello".to_vec()),
        Seen::Ok(1, vec![]),
        Seen::Error(100, ErrorCode::NOT_FOUND),
        Seen::Data(2, b"mnopqrs".to_vec()),
        Seen::Ok(2, vec![]),
    ];
    for cut in 1..=answers.len() {
        let mut connection = ready();
        for (request, tag) in [(read(5), 1), (read(19), 2), (stat(), 100)] {
            connection.submit(&request, tag).unwrap();
        }
        let out = sent(&mut connection, cut);
        let ids: Vec<_> = out.chunks(24).take(3).map(|bytes| [bytes[0], bytes[1]]).collect();
        assert_eq!(ids, [first.0, second.0, third.0]);
        assert_eq!(connection.in_flight(), 3);
        assert_eq!(feed(&mut connection, &answers, cut).unwrap(), expected, "{cut}");
        assert_eq!(connection.in_flight(), 0);
    }
}

#[test]
fn page_data_has_its_position() {
    let frame = |resptype, dlen, offset| {
        let (streamid, request) = (StreamId([0, 1]), RequestCode::PGREAD);
        StatusFrame { streamid, request, resptype, dlen, offset }
    };
    let mut answers = Vec::new();
    answers.extend(frame(ResponseType::PARTIAL, 9, 4096).to_bytes());
    answers.extend(b"crc4-data");
    answers.extend(frame(ResponseType::FINAL, 0, 8192).to_bytes());
    let expected = [
        Seen::Pages(1, 4096, 9),
        Seen::Data(1, b"crc4-data".to_vec()),
        Seen::Pages(1, 8192, 0),
        Seen::Ok(1, vec![]),
    ];
    for cut in 1..=answers.len() {
        let mut connection = ready();
        let (fhandle, pathid, reqflags) = (FileHandle::default(), None, None);
        let request = request::Pgread { fhandle, offset: 4096, rlen: 5000, pathid, reqflags };
        connection.submit(&Request::Pgread(request), 1).unwrap();
        assert_eq!(feed(&mut connection, &answers, cut).unwrap(), expected, "{cut}");
    }
    let mut connection = ready();
    connection.submit(&read(5), 1).unwrap();
    assert!(matches!(feed(&mut connection, &answers, 99), Err(ConnectionError::Unexpected { .. })));
}

#[test]
fn a_deferred_reply_arrives_as_a_message() {
    let mut answers = Vec::new();
    reply::waitresp(&mut answers, StreamId([0, 1]), 60, "busy");
    reply::attn::deferred(&mut answers, |out| reply::ok(out, StreamId([0, 1]), b"text"));
    reply::frame(&mut answers, StreamId::default(), wire::xroot::Status::ATTN, &[0, 0, 0x13, 0x8a][..]);
    for cut in 1..=answers.len() {
        let mut connection = ready();
        connection.submit(&stat(), 100).unwrap();
        let seen = feed(&mut connection, &answers, cut).unwrap();
        assert_eq!(seen, [Seen::Later(100, 60), Seen::Ok(100, b"text".to_vec()), Seen::Notice]);
    }
}

#[test]
fn redirects_and_waits_end_a_request() {
    let mut answers = Vec::new();
    reply::redirect(&mut answers, StreamId([0, 2]), &Redirect::to_host(b"other", 1095));
    reply::wait(&mut answers, StreamId([0, 1]), 5, "");
    let mut connection = ready();
    connection.submit(&stat(), 101).unwrap();
    connection.submit(&stat(), 102).unwrap();
    let seen = feed(&mut connection, &answers, 7).unwrap();
    assert_eq!(seen, [Seen::Redirect(102, b"other".to_vec()), Seen::Wait(101, 5)]);
    // Both stream ids are free again, so a reply to either belongs to no request.
    assert_eq!(connection.in_flight(), 0);
    assert_eq!(feed(&mut connection, &answers[..8], 7), Ok(vec![]), "the header alone does not tell");
    assert_eq!(
        feed(&mut connection, &answers[8..], 7),
        Err(ConnectionError::UnknownStream(StreamId([0, 2])))
    );
}

#[test]
fn data_may_be_discarded() {
    let mut connection = ready();
    connection.submit(&read(100), 1).unwrap();
    let mut answers = Vec::new();
    reply::ok(&mut answers, StreamId([0, 1]), &[9; 100]);
    assert_eq!(feed(&mut connection, &answers[..20], 20).unwrap(), [Seen::Data(1, vec![9; 12])]);
    assert_eq!(connection.discardable(), Some((1, 88)));
    connection.discarded(80);
    assert_eq!(connection.next_event(&mut &[][..]), Ok(None));
    connection.discarded(8);
    assert_eq!(connection.discardable(), None);
    assert_eq!(feed(&mut connection, &[0], 1).unwrap(), [Seen::Ok(1, vec![])]);
}

#[test]
fn payloads_follow_their_requests() {
    for cut in [1, 7, 30, 1000] {
        let mut connection = ready();
        let fhandle = FileHandle::default();
        let payload = Bytes::from(vec![8; 50]);
        let write = Request::Write(request::Write { fhandle, offset: 0, pathid: 0, dlen: 50 });
        connection.submit_with_payload(&write, payload.clone(), 1).unwrap();
        connection.submit(&stat(), 2).unwrap();
        connection.submit_with_payload(&write, payload.clone(), 3).unwrap();
        let mut splitter = Splitter::new(Direction::Requests, 1000);
        splitter.push(&wire::xroot::header::Handshake::BYTES);
        splitter.push(&sent(&mut connection, cut));
        assert!(matches!(splitter.next_frame(), Ok(Some(Frame::Greeting(_)))));
        let mut lengths = Vec::new();
        while let Ok(Some(frame)) = splitter.next_frame() {
            lengths.push(frame.bytes().len());
        }
        assert_eq!(lengths, [74, 26, 74]);
        assert!(splitter.unread().is_empty());
    }
}

#[test]
fn invalid_bytes_end_the_connection() {
    let mut connection = ready();
    connection.submit(&stat(), 1).unwrap();
    let negative = [0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert!(matches!(feed(&mut connection, &negative, 8), Err(ConnectionError::Wire(_))));
    let mut connection = ready();
    connection.submit(&stat(), 1).unwrap();
    let huge = [0, 1, 0, 0, 0x7f, 0xff, 0xff, 0xff];
    assert!(matches!(feed(&mut connection, &huge, 3), Err(ConnectionError::Wire(_))), "not collected");
    let mut connection = ready();
    connection.submit(&read(i32::MAX), 1).unwrap();
    assert_eq!(feed(&mut connection, &huge, 3), Ok(vec![]), "file data may be as long as it likes");
}

#[test]
fn stream_ids_are_limited_and_reused() {
    let mut connection = ready();
    for tag in 0..rawclient::REQUESTS_IN_FLIGHT_MAX as u64 {
        connection.submit(&stat(), 100 + tag).unwrap();
    }
    assert_eq!(connection.submit(&stat(), 1), Err(SubmitError::Full));
    let mut answer = Vec::new();
    reply::ok(&mut answer, StreamId([0xff, 0xff]), b"");
    assert_eq!(feed(&mut connection, &answer, 8).unwrap(), [Seen::Ok(100 + 65_534, vec![])]);
    connection.submit(&stat(), 1).unwrap();
    assert_eq!(connection.submit(&stat(), 1), Err(SubmitError::Full));
}
