//! Tests of prepare requests through a manager: several files in one request, with servers that
//! send the frames of XRootD nodes.

use crate::site::{Client, Refusal, Site, until};
use crate::wire_peer::Peer;
use client::xroot::flags::{PrepareOptions, PrepareOptionsX};
use client::xroot::request::{Prepare, Request};
use server::cluster::NodeRole;
use wire::cms::flags::{HaveModifier, PrepaddModifier, StateModifier, StatusModifier};
use wire::cms::message::{Have, Status};
use wire::cms::{Code, Message, StreamId};

const STAGE: PrepareOptions = PrepareOptions::STAGE;
const NOT_FOUND: u32 = 3011;

fn prepare(
    client: &mut Client,
    options: PrepareOptions,
    optionx: PrepareOptionsX,
    paths: &str,
) -> Result<String, Refusal> {
    let paths = paths.as_bytes();
    client.call(&Request::Prepare(Prepare { options, prty: 2, port: 0, optionx, paths }))
}

/// Answers queries for one file, and returns the received requests without their ids.
fn serve(mut peer: Peer, has: &'static [u8]) -> impl FnOnce() -> (Peer, u8, Vec<String>) {
    move || loop {
        enum Seen {
            Asked(StreamId),
            Ordered(u8, Vec<String>),
            Else,
        }
        let seen = peer.next(|frame| match Message::decode(&frame.header, frame.payload) {
            Ok(Message::State(state)) if state.path == has => Seen::Asked(frame.header.streamid),
            Ok(Message::Prepadd(m)) => {
                let fields = [m.priority, m.mode, m.path, m.opaque.unwrap_or(b"-"), m.reqid];
                let text = |field: &&[u8]| String::from_utf8_lossy(field).into_owned();
                Seen::Ordered(frame.header.modifier, fields.iter().map(text).collect())
            }
            _ => Seen::Else,
        });
        match seen.unwrap() {
            Seen::Asked(streamid) => {
                peer.say(streamid, Message::Have(Have { modifier: HaveModifier::ONLINE, path: has }));
            }
            Seen::Ordered(modifier, fields) => return (peer, modifier, fields),
            Seen::Else => {}
        }
    }
}

#[test]
fn each_of_several_paths_goes_to_the_server_that_has_it() {
    let mut site = Site::new();
    site.silence = std::time::Duration::from_millis(500);
    let manager = site.manager("manager");
    let ones = Peer::server(&manager, "s-one@there x", 1095);
    let others = Peer::server(&manager, "s-other@there x", 1096);
    manager.has_children(2);
    let one = std::thread::spawn(serve(ones, b"/a"));
    let other = std::thread::spawn(serve(others, b"/b"));
    let mut client = manager.client();
    let both =
        prepare(&mut client, STAGE | PrepareOptions::COLOC, PrepareOptionsX::NONE, "/a?x=1\n/b\n/none");
    let id = both.unwrap();
    assert_eq!(client.hops, 0, "one reply, of the manager");
    let (_one, modifier, fields) = one.join().unwrap();
    assert_eq!((modifier & !0x20, fields), (0x01, ["2", "rq", "/a", "x=1", &id].map(str::to_owned).to_vec()));
    let (_other, modifier, fields) = other.join().unwrap();
    assert_eq!(
        (modifier & !0x20, fields),
        (0x05, ["2 /a", "rq", "/b", "-", &id].map(str::to_owned).to_vec())
    );
    assert_eq!(prepare(&mut client, STAGE, PrepareOptionsX::NONE, "/c\n/d").unwrap_err().0, NOT_FOUND);
    // The id can be queried and cancelled.
    let query = format!("{id}\n/a\n/b");
    let asked = client::xroot::request::Query {
        infotype: client::xroot::codes::QueryType::PREP,
        fhandle: Default::default(),
        args: query.as_bytes(),
    };
    assert_eq!(client.call(&Request::Query(asked)).unwrap(), "No information found.");
    assert_eq!(prepare(&mut client, PrepareOptions::CANCEL, PrepareOptionsX::NONE, &id).unwrap(), "");
}

#[test]
fn evictions_are_sent_to_scalla_servers_only() {
    let site = Site::new();
    let manager = site.manager("manager");
    let mut real = Peer::server(&manager, "s-real@there x", 1095);
    let own = site.server("own", &[&manager]);
    own.put("/f", "1");
    manager.has_children(2);
    let mut client = manager.client();
    assert_eq!(prepare(&mut client, PrepareOptions::NONE, PrepareOptionsX::EVICT, "/f\n/g").unwrap(), "");
    assert_eq!(client.hops, 0);
    // The XRootD server received no message about it before the next query.
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/next");
    loop {
        let (code, payload) = real.next(|frame| (frame.header.code, frame.payload.to_vec())).unwrap();
        assert_ne!(code, Code::PREPADD);
        if code == Code::STATE {
            assert_eq!(payload, b"/next\0");
            break;
        }
    }
}

#[test]
fn evictions_and_cancels_reach_scalla_servers_below_supervisors() {
    let site = Site::new();
    let manager = site.manager("manager");
    let supervisor = site.node("supervisor", NodeRole::Supervisor, &[&manager]);
    let mut real = Peer::server(&supervisor, "s-real@there x", 1095);
    let mut own = Peer::own_server(&supervisor, "s-own@there x", 1096);
    for peer in [&mut real, &mut own] {
        peer.say(StreamId::NONE, Message::Status(Status { modifier: StatusModifier::RESUME, port: None }));
    }
    supervisor.has_children(2);
    manager.has_children(1);
    let mut client = manager.client();
    assert_eq!(prepare(&mut client, PrepareOptions::NONE, PrepareOptionsX::EVICT, "/f").unwrap(), "");
    let evicts = |frame: &wire::cms::CmsFrame<'_>| match Message::decode(&frame.header, frame.payload) {
        Ok(Message::Prepadd(m)) => Some((m.modifier.contains(PrepaddModifier::EVICT), m.path.to_vec())),
        _ => None,
    };
    assert_eq!(own.next_of(Code::PREPADD, evicts).unwrap(), Some((true, b"/f".to_vec())));
    assert_eq!(prepare(&mut client, PrepareOptions::CANCEL, PrepareOptionsX::NONE, "an-id").unwrap(), "");
    assert!(own.next_of(Code::PREPDEL, |_| ()).is_some());
    // The XRootD server received neither message: its next message is a query.
    let mut redirector = Peer::redirector(&supervisor);
    redirector.select(1, b"/next");
    let told = std::iter::from_fn(|| real.next(|frame| frame.header.code)).find(|code| *code != Code::PING);
    assert_eq!(told, Some(Code::STATE));
}

#[test]
fn access_times_are_renewed_at_scalla_and_xrootd_servers_and_below_supervisors() {
    const FRESH: PrepareOptions = PrepareOptions::FRESH;
    let site = Site::new();
    let manager = site.manager("manager");
    let supervisor = site.node("supervisor", NodeRole::Supervisor, &[&manager]);
    let own = site.server("own", &[&supervisor]);
    own.put("/f", "1");
    let mut real = Peer::server(&supervisor, "s-real@there x", 1095);
    real.say(StreamId::NONE, Message::Status(Status { modifier: StatusModifier::RESUME, port: None }));
    supervisor.has_children(2);
    manager.has_children(1);
    let file = own.path("/f");
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let times = std::fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
    std::fs::File::open(&file).unwrap().set_times(times).unwrap();
    let mut client = manager.client();
    assert_eq!(prepare(&mut client, FRESH, PrepareOptionsX::NONE, "/f").unwrap(), "");
    assert_eq!(client.hops, 0, "it is done by the manager");
    until("the access time is renewed", || std::fs::metadata(&file).unwrap().accessed().unwrap() > long_ago);
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), long_ago);
    // For an XRootD server the order is a query that expects no reply.
    let quiet = |frame: &wire::cms::CmsFrame<'_>| match Message::decode(&frame.header, frame.payload) {
        Ok(Message::State(state)) => (state.modifier.contains(StateModifier::NO_REPLY), state.path.to_vec()),
        _ => (false, Vec::new()),
    };
    while real.next_of(Code::STATE, quiet).unwrap() != (true, b"/f".to_vec()) {}
}
