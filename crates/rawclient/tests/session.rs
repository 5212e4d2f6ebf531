//! Blocking sessions over real sockets, against a scripted server.

#![allow(clippy::unwrap_used)]

use rawclient::{BlockingSession, Login, SessionError};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::xroot::flags::{OpenOptions, ServerFlags};
use wire::xroot::header::{Handshake, HandshakeReply};
use wire::xroot::reply::{self, LoginReply, ProtocolReply};
use wire::xroot::{ErrorCode, RequestCode, RequestHeader, SessionId, StreamId};
use wire::{Encode, FixedLayout};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a server for one connection that accepts the login and answers each request with the
/// bytes that `answer` appends.
fn server(
    mut answer: impl FnMut(&RequestHeader, &[u8], &mut Vec<u8>) + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut handshake = [0; 20];
        stream.read_exact(&mut handshake).unwrap();
        assert!(Handshake::is(&handshake));
        let mut out = HandshakeReply { protover: 0x520, role: HandshakeReply::DATA_SERVER }.encoded();
        while let Some((header, payload)) = request(&mut stream) {
            let mut body = Vec::new();
            match header.code {
                RequestCode::PROTOCOL => {
                    let flags = ServerFlags::IS_SERVER;
                    ProtocolReply { pval: 0x520, flags, bind_interfaces: None, security: None }
                        .encode(&mut body);
                    reply::ok(&mut out, header.streamid, &body);
                }
                RequestCode::LOGIN => {
                    LoginReply { sessid: Some(SessionId([1; 16])), security: b"" }.encode(&mut body);
                    reply::ok(&mut out, header.streamid, &body);
                }
                _ => answer(&header, &payload, &mut out),
            }
            stream.write_all(&std::mem::take(&mut out)).unwrap();
        }
    });
    (address, thread)
}

fn request(stream: &mut TcpStream) -> Option<(RequestHeader, Vec<u8>)> {
    let mut header = [0; 24];
    stream.read_exact(&mut header).ok()?;
    let header = RequestHeader::from_bytes(&header);
    let mut payload = vec![0; header.payload_bytes().unwrap()];
    stream.read_exact(&mut payload).unwrap();
    Some((header, payload))
}

fn connect(address: SocketAddr) -> Result<BlockingSession, SessionError> {
    BlockingSession::connect(&[address], &Login::of_process("test"), PATIENCE)
}

#[test]
fn a_file_is_opened_after_a_wait_and_read_in_pieces() {
    let mut waited = false;
    let (address, thread) = server(move |header, payload, out| match header.code {
        RequestCode::OPEN if !std::mem::replace(&mut waited, true) => {
            reply::wait(out, header.streamid, 0, "not yet");
        }
        RequestCode::OPEN => {
            assert_eq!(payload, b"/a?b=c");
            reply::ok(out, header.streamid, &[1, 2, 3, 4]);
        }
        RequestCode::READ => {
            assert_eq!(header.body[..4], [1, 2, 3, 4]);
            reply::oksofar(out, header.streamid, &vec![5; 100_000]);
            reply::ok(out, header.streamid, &vec![6; 70_000]);
        }
        _ => reply::ok(out, header.streamid, b"7 1234 16 99\0"),
    });
    let mut session = connect(address).unwrap();
    assert_eq!(session.server().session, Some(SessionId([1; 16])));
    assert_eq!(session.size("/a").unwrap(), 1234);
    let file = session.open("/a?b=c", OpenOptions::READ, 0).unwrap();
    let data = session.read(file, 0, 170_000).unwrap();
    assert_eq!((data.len(), data[99_999], data[100_000]), (170_000, 5, 6));
    drop(session);
    thread.join().unwrap();
}

#[test]
fn errors_redirects_and_the_end_are_distinguished() {
    let (address, thread) = server(|header, payload, out| match payload {
        b"/missing" => reply::error(out, header.streamid, ErrorCode::NOT_FOUND, "no such file"),
        b"/elsewhere" => {
            reply::redirect(out, header.streamid, &reply::Redirect::to_host(b"other?tried=me", 1095))
        }
        _ => reply::ok(out, StreamId([9, 9]), b""),
    });
    let mut session = connect(address).unwrap();
    let missing = session.size("/missing").unwrap_err();
    assert_eq!(missing.to_string(), "kXR_NotFound: no such file");
    let SessionError::Redirected { host, port, cgi } = session.size("/elsewhere").unwrap_err() else {
        panic!("not redirected");
    };
    assert_eq!((host.as_str(), port, cgi.as_str()), ("other", Some(1095), "tried=me"));
    assert!(matches!(session.size("/odd"), Err(SessionError::Connection(_))));
    drop(session);
    thread.join().unwrap();
}

#[test]
fn a_refused_connection_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let Err(SessionError::Io(error)) = connect(address) else { panic!("connected") };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(matches!(
        BlockingSession::connect(&[], &Login::of_process("test"), PATIENCE),
        Err(SessionError::Closed)
    ));
}
