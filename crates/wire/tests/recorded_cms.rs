//! Recorded cms frames decode to the values in the recording and encode to the same bytes.
//!
//! Each frame is decoded with the type that its receiver would use, because codes have several
//! meanings.
#![allow(clippy::unwrap_used)]

mod cms_vectors;

use cms_vectors::{Link, Recorded, decoded_arguments, each_frame};
use serde_json::{Value, json};
use wire::cms::login::{Acceptor, Role, SystemId};
use wire::cms::message::{Avail, Avoided, Load, Try};
use wire::cms::response::{MessageId, ParsedRedirect};
use wire::cms::{
    EncodeError, Extensions, FramePhase, FrameSplitter, Header, LoginAnswer, Message, NodeLogin, Response,
    ResponseAnswer, StreamId, ToRedirector,
};
use wire::{Decode, FixedLayout};

/// A frame decoded with the type that its receiver would use.
#[derive(Debug, PartialEq)]
enum Decoded<'a> {
    Message(Message<'a>),
    Response(Response<'a>),
    LoginAnswer(LoginAnswer<'a>),
}

fn decode<'a>(recorded: &Recorded, header: &Header, payload: &'a [u8]) -> Decoded<'a> {
    let what = &recorded.what;
    let message = || Message::decode(header, payload).unwrap_or_else(|e| panic!("{what}: {e}"));
    if recorded.to_parent {
        return Decoded::Message(message());
    }
    if recorded.awaits_login_answer {
        let answer = LoginAnswer::decode(header, payload).unwrap_or_else(|e| panic!("{what}: {e}"));
        return Decoded::LoginAnswer(answer);
    }
    match recorded.link {
        Link::Node => Decoded::Message(message()),
        Link::Redirector => {
            match ToRedirector::decode(header, payload).unwrap_or_else(|e| panic!("{what}: {e}")) {
                ToRedirector::Response(response) => Decoded::Response(response),
                ToRedirector::Message(message) => Decoded::Message(message),
            }
        }
    }
}

fn encode(decoded: &Decoded<'_>, streamid: StreamId, peer: Extensions) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    match decoded {
        Decoded::Message(message) => message.encode(streamid, peer, &mut out),
        Decoded::Response(response) => response.encode(streamid, &mut out),
        Decoded::LoginAnswer(answer) => answer.encode(&mut out),
    }?;
    Ok(out)
}

#[test]
fn frames_decode_to_the_recorded_values() {
    let count = each_frame(|recorded| {
        let what = &recorded.what;
        let (header, payload) = recorded.bytes.split_first_chunk().unwrap();
        let header = Header::from_bytes(header);
        assert_eq!(header.payload_bytes(), payload.len(), "{what}");
        assert_eq!(
            Some(header.streamid.to_string().as_str()),
            recorded.decoded["streamid"].as_str(),
            "{what}"
        );
        let decoded = decode(recorded, &header, payload);
        assert_eq!(Some(name(&decoded).as_str()), recorded.decoded["name"].as_str(), "{what}: {decoded:?}");
        assert_eq!(arguments(&decoded), decoded_arguments(&recorded.decoded), "{what}: {decoded:?}");
    });
    assert!(count > 400, "{count}");
}

#[test]
fn decoded_frames_encode_to_the_same_bytes() {
    let mut differing = Vec::new();
    each_frame(|recorded| {
        let what = &recorded.what;
        let (header, payload) = recorded.bytes.split_first_chunk().unwrap();
        let header = Header::from_bytes(header);
        let decoded = decode(recorded, &header, payload);
        match encode(&decoded, header.streamid, Extensions::NONE) {
            Ok(bytes) if bytes == recorded.bytes => {}
            // Only relays and scripts omit absent arguments at the end, and only scripts set the
            // raw bit without a path.
            Ok(bytes) => {
                let relayed = header.modifier & 0xc0 != 0;
                assert!(recorded.synthetic || relayed, "{what}: {decoded:?} {bytes:?}");
                let filled = bytes.get(8..).unwrap().strip_prefix(payload);
                let filled = filled.is_some_and(|rest| rest.iter().all(|&byte| byte == 0));
                assert!(filled || header.modifier == 0x21, "{what}: {decoded:?} {bytes:?}");
                differing.push(recorded.scenario.clone());
            }
            // The encoder refuses these; `prepdel` is allowed between Scalla nodes.
            Err(EncodeError::NotForPeer { message: "prepdel" }) => {
                assert_eq!(recorded.scenario, "19-prepdel", "{what}");
                assert_eq!(encode(&decoded, header.streamid, Extensions::ALL).unwrap(), recorded.bytes);
                differing.push(recorded.scenario.clone());
            }
            Err(error) => {
                assert_eq!(recorded.scenario, "20-login-without-sid", "{what}: {error}");
                assert_eq!(error, EncodeError::Missing { field: "SID" }, "{what}");
                differing.push(recorded.scenario.clone());
            }
        }
    });
    differing.sort();
    assert_eq!(
        differing,
        [
            "14-forwarded-ops",
            "14-forwarded-ops",
            "15-select-locate-matrix",
            "19-prepdel",
            "20-login-without-sid"
        ]
    );
}

/// Checks that a truncated frame, or one with a wrong length in its header, never panics and is
/// never complete.
#[test]
fn truncated_frames_never_panic() {
    each_frame(|recorded| {
        let (header, payload) = recorded.bytes.split_first_chunk().unwrap();
        let header = Header::from_bytes(header);
        for end in (0..payload.len()).take(300) {
            let cut = payload.get(..end).unwrap();
            let _ = Message::decode(&header, cut);
            let _ = LoginAnswer::decode(&header, cut);
            let _ = ToRedirector::decode(&header, cut);
            let mut splitter = FrameSplitter::new(FramePhase::Established);
            splitter.push(recorded.bytes.get(..8 + end).unwrap());
            assert_eq!(splitter.next_frame(), Ok(None), "{}", recorded.what);
        }
    });
}

fn name(decoded: &Decoded<'_>) -> String {
    match decoded {
        Decoded::Message(message) => message.code().to_string(),
        Decoded::Response(response) => response.answer.code().to_string(),
        Decoded::LoginAnswer(LoginAnswer::Accepted(_)) => "login".to_owned(),
        Decoded::LoginAnswer(LoginAnswer::Refused { .. }) => "error".to_owned(),
        Decoded::LoginAnswer(LoginAnswer::Try(_)) => "try".to_owned(),
        Decoded::LoginAnswer(LoginAnswer::Xauth(_)) => "xauth".to_owned(),
        Decoded::LoginAnswer(LoginAnswer::Other(code)) => code.to_string(),
    }
}

fn text(bytes: &[u8]) -> Value {
    json!(std::str::from_utf8(bytes).unwrap())
}

fn optional(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, text)
}

/// Returns the arguments in the order sent, without absent texts at the end.
fn arguments(decoded: &Decoded<'_>) -> Vec<Value> {
    let mut arguments = match decoded {
        Decoded::Message(message) => of_message(message),
        Decoded::Response(response) => of_answer(&response.answer),
        Decoded::LoginAnswer(LoginAnswer::Accepted(reply)) => {
            let mut arguments = vec![json!(reply.version), json!(reply.mode.0), json!(reply.hold_ms)];
            arguments.extend(vec![json!(0); 7]);
            arguments.extend([optional(reply.sid), Value::Null, Value::Null, optional(reply.env)]);
            arguments
        }
        Decoded::LoginAnswer(LoginAnswer::Refused { code, text: why }) => vec![json!(code.0), text(why)],
        Decoded::LoginAnswer(LoginAnswer::Try(hosts)) => of_try(hosts),
        Decoded::LoginAnswer(LoginAnswer::Xauth(token)) => vec![text(token)],
        Decoded::LoginAnswer(LoginAnswer::Other(_)) => Vec::new(),
    };
    while arguments.last().is_some_and(Value::is_null) {
        arguments.pop();
    }
    arguments
}

fn of_answer(answer: &ResponseAnswer<'_>) -> Vec<Value> {
    match *answer {
        ResponseAnswer::Data { value, text: bytes } => vec![json!(value), optional(bytes)],
        ResponseAnswer::Error { code, text: bytes } => vec![json!(code.0), text(bytes)],
        ResponseAnswer::Redirect(redirect) => vec![json!(redirect.port), text(redirect.text)],
        ResponseAnswer::Wait { seconds } => vec![json!(seconds)],
        ResponseAnswer::Waitresp { id } => vec![json!(id)],
        ResponseAnswer::Unknown(_) => Vec::new(),
    }
}

fn of_try(hosts: &Try<'_>) -> Vec<Value> {
    hosts
        .hosts()
        .map(|host| json!(format!("{}:{}", std::str::from_utf8(host.host).unwrap(), host.port.unwrap())))
        .collect()
}

fn of_message(message: &Message<'_>) -> Vec<Value> {
    match *message {
        Message::Login(login) => of_login(&login),
        Message::Chmod(m) | Message::Mkdir(m) | Message::Mkpath(m) => {
            vec![text(m.ident), text(m.mode), text(m.path), optional(m.opaque)]
        }
        Message::Locate(m) => {
            vec![text(m.ident), json!(m.options.0), text(m.path), optional(m.opaque), optional(m.avoid)]
        }
        Message::Select(m) => {
            vec![text(m.ident), json!(m.options.0), text(m.path), optional(m.opaque), optional(m.avoid)]
        }
        Message::Mv(m) => {
            vec![text(m.ident), text(m.old), text(m.new), optional(m.old_opaque), optional(m.new_opaque)]
        }
        Message::Prepadd(m) => {
            let mut arguments: Vec<_> =
                [m.ident, m.reqid, m.notify, m.priority, m.mode, m.path].into_iter().map(text).collect();
            arguments.push(optional(m.opaque));
            arguments
        }
        Message::Prepdel(m) => vec![text(m.ident), text(m.reqid)],
        Message::Rm(m) | Message::Rmdir(m) => vec![text(m.ident), text(m.path), optional(m.opaque)],
        Message::Trunc(m) => vec![text(m.ident), text(m.size), text(m.path), optional(m.opaque)],
        Message::Avail(Avail { free_mb, used_percent, sums: None }) => {
            vec![json!(free_mb), json!(used_percent)]
        }
        Message::Load(Load { cpu, net, runq, mem, pag, dsk, free_mb }) => {
            let vector: String =
                [cpu, net, runq, mem, pag, dsk].iter().map(|percent| format!("{percent:02x}")).collect();
            vec![json!(vector), json!(free_mb)]
        }
        Message::Gone(m) => vec![text(m.path)],
        Message::Have(m) => vec![text(m.path)],
        Message::State(m) => vec![text(m.path)],
        Message::Statfs(m) => vec![text(m.path)],
        Message::Try(hosts) => of_try(&hosts),
        Message::Xauth(bytes) => vec![text(bytes)],
        _ => Vec::new(),
    }
}

fn of_login(login: &NodeLogin<'_>) -> Vec<Value> {
    let mut arguments = vec![json!(login.version), json!(login.mode.0), json!(login.pid)];
    arguments.extend([login.total_mb, login.free_mb, login.free_mb_min].map(|space| json!(space)));
    arguments.extend(
        [login.file_systems, login.used_percent, login.data_port, login.node_port]
            .map(|number| json!(number)),
    );
    arguments.extend([login.sid, login.paths, login.interfaces, login.env].map(optional));
    arguments
}

/// Checks the values that a parent uses of a login and a node of its reply.
#[test]
fn recorded_logins_have_the_roles_of_their_senders() {
    let mut logins = 0;
    each_frame(|recorded| {
        let what = &recorded.what;
        let (header, payload) = recorded.bytes.split_first_chunk().unwrap();
        match decode(recorded, &Header::from_bytes(header), payload) {
            Decoded::Message(Message::Login(login)) => {
                let meta = recorded.server.contains("meta");
                let acceptor = if meta { Acceptor::MetaManager } else { Acceptor::Manager };
                let expected = match (recorded.link, recorded.client.as_str()) {
                    (Link::Redirector, _) => Role::Redirector,
                    (_, client) if client.contains("role supervisor") => Role::Supervisor,
                    (_, client) if client.contains("role manager") => Role::Manager,
                    _ if recorded.what.contains("sup0") => Role::Supervisor,
                    _ => Role::Server,
                };
                assert_eq!(login.role(acceptor), Some(expected), "{what}");
                assert!(login.exports().all(|export| export.is_ok()), "{what}");
                assert_eq!(login.env().extensions, Extensions::NONE, "{what}");
                let sid = login.sid.map(SystemId::decode);
                assert!(sid.is_none_or(|sid| sid.is_ok()), "{what}");
                logins += 1;
            }
            Decoded::LoginAnswer(LoginAnswer::Accepted(reply)) => {
                assert_eq!(reply.version, wire::cms::PROTOCOL_VERSION, "{what}");
                assert_eq!(reply.sid.is_some(), recorded.link == Link::Node, "{what}");
                assert_eq!(reply.granted(Extensions::ALL), Extensions::NONE, "{what}");
            }
            _ => {}
        }
    });
    assert!(logins > 25, "{logins}");
}

/// Checks the values that a node uses of a query and a redirector of an answer.
#[test]
fn recorded_queries_and_answers_have_valid_fields() {
    let (mut questions, mut targets, mut avoided) = (0, 0, Vec::new());
    each_frame(|recorded| {
        let what = &recorded.what;
        let (header, payload) = recorded.bytes.split_first_chunk().unwrap();
        let header = Header::from_bytes(header);
        match decode(recorded, &header, payload) {
            Decoded::Message(Message::State(state)) => {
                // The streamid is 0 if no answer is wanted.
                let expected =
                    if header.streamid.is_none() { StreamId::NONE } else { StreamId::of_path(state.path) };
                assert_eq!(header.streamid, expected, "{what}");
                questions += 1;
            }
            Decoded::Message(Message::Select(select)) => {
                avoided.extend(select.avoided().map(|avoided| match avoided {
                    Avoided::Host(host) => ("host", text(host)),
                    Avoided::Cluster(cluster) => ("cluster", text(cluster)),
                }));
            }
            Decoded::Response(response) => match response.answer {
                ResponseAnswer::Redirect(redirect) => {
                    assert!(matches!(redirect.target(), Some(ParsedRedirect::Host { .. })), "{what}");
                    targets += 1;
                }
                ResponseAnswer::Waitresp { id } => assert!(MessageId::of_value(id).is_some(), "{what}"),
                _ => {}
            },
            _ => {}
        }
    });
    assert!(questions > 40 && targets > 30, "{questions} questions, {targets} targets");
    assert_eq!(avoided, [("cluster", json!("22000localhost")), ("host", json!("vm"))]);
}
