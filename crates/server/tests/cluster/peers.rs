//! Tests with foreign peers: redirectors and servers that send the frames of XRootD nodes, and
//! hostile peers.

use crate::site::{Site, until};
use crate::wire_peer::Peer;
use cluster::tree::limits;
use config::{ForwardWay, Forwarding};
use server::cluster::NodeRole;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use wire::cms::flags::{HaveModifier, RelayModifier, SelectOptions};
use wire::cms::message::{Have, ModeChange, Mv, Removal, Trunc};
use wire::cms::{Code, Message, StreamId};

/// The login of a server without an id: version, mode, process, four sizes, two numbers, two ports,
/// and no more.
const NAMELESS: [u8; 48] = [
    0, 0, 0, 0, 0, 0, 0, 40, 128, 0, 3, 160, 0, 0, 0, 8, 160, 0, 0, 0, 1, 160, 0, 0, 0, 0, 160, 0, 0, 0, 0,
    160, 0, 0, 0, 0, 128, 0, 0, 128, 0, 0, 128, 4, 71, 128, 0, 0,
];

fn have(path: &[u8]) -> Message<'_> {
    Message::Have(Have { modifier: HaveModifier::ONLINE, path })
}

#[test]
fn a_redirector_is_promised_an_answer_and_gets_it() {
    let site = Site::new();
    let manager = site.manager("manager");
    let mut server = Peer::server(&manager, "s-real@there x", 1095);
    manager.has_children(1);
    let mut redirector = Peer::redirector(&manager);
    redirector.select(7, b"/f");
    // The promise arrives before the redirector's own deadline.
    assert_eq!(redirector.response(), (StreamId([7, 0, 0, 0]), false, "later 65792".to_owned()));
    // The query to the server has the hash of the path as its number, and so has the reply.
    let asked = server.next_of(Code::STATE, |frame| (frame.header.streamid, frame.payload.to_vec())).unwrap();
    assert_eq!(asked, (StreamId::of_path(b"/f"), b"/f\0".to_vec()));
    server.say(asked.0, have(b"/f"));
    assert_eq!(redirector.response(), (StreamId([0, 1, 1, 0]), true, "127.0.0.1:1095".to_owned()));
    redirector.select(8, b"/f");
    assert_eq!(redirector.response(), (StreamId([8, 0, 0, 0]), false, "127.0.0.1:1095".to_owned()));
    // An answer that arrives early needs no promise.
    redirector.select(7, b"/soon");
    let asked = server.next_of(Code::STATE, |frame| frame.header.streamid).unwrap();
    server.say(asked, have(b"/soon"));
    let soon = redirector.response();
    assert!(soon.2 == "127.0.0.1:1095" || soon.2.starts_with("later"), "{soon:?}");
    if soon.2.starts_with("later") {
        redirector.response();
    }
    // The answer to a change of names is not deferred, because XRootD redirectors do not pass
    // deferred answers on.
    redirector.select_for(8, b"/new", SelectOptions::CREATE | SelectOptions::WRITE | SelectOptions::METAOP);
    assert!(redirector.response().2.starts_with("wait "));
    // A request without a number expects no answer.
    redirector.select(0, b"/f");
    redirector.select(9, b"relative");
    assert_eq!(redirector.response(), (StreamId([9, 0, 0, 0]), false, "error 4".to_owned()));
}

#[test]
fn orders_of_unauthorized_peers_change_no_names() {
    let site = Site::new();
    let manager = site.node_with("manager", NodeRole::Manager, &[], |settings| {
        settings.forwarding = Forwarding { chmod: ForwardWay::OneWay, ..Forwarding::default() };
    });
    let server = site.server("server", &[&manager]);
    manager.has_children(1);
    server.put("/f", "content");
    let mut redirector = Peer::redirector(&manager);
    let (modifier, ident, path, opaque) = (RelayModifier::NONE, &b"stranger"[..], &b"/f"[..], None);
    let removal = Removal { modifier, ident, path, opaque };
    let change = |mode| ModeChange { modifier, ident, mode, path, opaque };
    let mv = Mv { modifier, ident, old: path, new: b"/g", old_opaque: None, new_opaque: None };
    let refused = [
        Message::Rm(removal),
        Message::Rmdir(removal),
        Message::Mkdir(change(b"755")),
        Message::Mkpath(change(b"755")),
        Message::Mv(mv),
        Message::Trunc(Trunc { modifier, ident, size: b"0", path, opaque }),
    ];
    for message in refused {
        redirector.say(StreamId([7, 0, 0, 0]), message);
        assert_eq!(redirector.answer(), "error 2", "{message:?}");
    }
    // An operation that the node forwards for its clients is forwarded for redirectors, too. It
    // arrives after the others.
    redirector.say(StreamId([8, 0, 0, 0]), Message::Chmod(change(b"600")));
    until("the mode is changed", || {
        server.path("/f").metadata().is_ok_and(|found| found.permissions().mode() & 0o777 == 0o600)
    });
    assert_eq!(std::fs::read_to_string(server.path("/f")).unwrap(), "content");
    assert!(!server.has("/g"));
}

#[test]
fn a_thousand_logins_of_one_host_leave_room() {
    let site = Site::new();
    let manager = site.manager("manager");
    let _server = site.server("server", &[&manager]);
    manager.has_children(1);
    let silent: Vec<Peer> = (0..300).map(|_| Peer::redirector(&manager)).collect();
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"relative");
    assert_eq!(redirector.answer(), "error 4");
    manager.until("the limit holds", |engine| {
        engine.node().redirectors().count() == limits::REDIRECTORS_PER_PEER_MAX
    });
    drop(silent);
}

#[test]
fn a_missing_reply_of_an_xrootd_server_means_not_here() {
    let mut site = Site::new();
    site.silence = Duration::from_millis(100);
    let manager = site.manager("manager");
    let mut server = Peer::server(&manager, "s-real@there x", 1095);
    manager.has_children(1);
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/none");
    let modifier = server.next_of(Code::STATE, |frame| frame.header.modifier).unwrap();
    assert_eq!(modifier, 0x20, "nothing a real server does not know");
    assert_eq!(redirector.answer(), "error 1");
}

#[test]
fn invalid_frames_end_only_their_own_connection() {
    let site = Site::new();
    let manager = site.manager("manager");
    let server = site.server("a", &[&manager]);
    server.put("/f", "fine");
    manager.has_children(1);
    // Not a login; a login without an id; a frame that is too long, before and after the login; a
    // text login of an old version.
    let mut hasty = Peer::connect(&manager);
    hasty.say(StreamId::NONE, have(b"/f"));
    assert_eq!(hasty.next(|_| ()), None);
    let mut nameless = Peer::connect(&manager);
    nameless.send(&NAMELESS);
    while nameless.next(|_| ()).is_some() {}
    let mut long = Peer::connect(&manager);
    long.send(&[0, 0, 0, 0, 0, 0, 0x10, 0x01]);
    assert_eq!(long.next(|_| ()), None);
    let mut long = Peer::server(&manager, "s-long@there x", 1095);
    long.send(&[0, 0, 0, 0, 15, 0x20, 0x40, 0x01]);
    while long.next(|_| ()).is_some() {}
    let mut old = Peer::connect(&manager);
    old.send(b"login server port 1094\n");
    while old.next(|_| ()).is_some() {}
    assert_eq!(manager.client().read("/f").unwrap(), "fine");
}

#[test]
fn unknown_codes_and_invalid_messages_of_a_node_are_skipped() {
    let site = Site::new();
    let manager = site.manager("manager");
    let mut peer = Peer::server(&manager, "s-odd@there x", 1095);
    manager.has_children(1);
    for code in 0..=u8::MAX {
        // `disc` ends the connection, and a second login is invalid.
        if ![Code::DISC.0, Code::LOGIN.0, Code::STATUS.0].contains(&code) {
            peer.send(&[1, 2, 3, 4, code, 0xff, 0, 3, 0x7f, 0xff, 0]);
        }
    }
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/f");
    peer.next_of(Code::STATE, |_| ()).unwrap();
    peer.say(StreamId::NONE, have(b"/f"));
    assert_eq!(redirector.answer(), "127.0.0.1:1095");
}

#[test]
fn a_node_that_claims_every_file_is_no_trap_for_clients() {
    let site = Site::new();
    let manager = site.manager("manager");
    let server = site.server("a", &[&manager]);
    server.put("/f", "fine");
    let mut liar = Peer::server(&manager, "s-liar@there x", 9);
    manager.has_children(2);
    liar.say(StreamId::NONE, have(b"/f"));
    for number in 0..1000 {
        liar.say(StreamId::NONE, have(format!("/lie/{number}").as_bytes()));
    }
    // Unsolicited reports are not stored.
    let mut redirector = Peer::redirector(&manager);
    redirector.select(1, b"/f");
    liar.say(StreamId::of_path(b"/f"), have(b"/f"));
    // A client that was redirected to the hostile server returns and finds the file.
    assert_eq!(manager.client().read("/f?tried=127.0.0.1:9&triedrc=srverr").unwrap(), "fine");
    let kept = manager.look(|engine| engine.resolver().unwrap().stats().cache.locations);
    assert!(kept <= 2, "{kept} locations");
}

#[test]
fn a_node_that_does_not_read_is_disconnected() {
    let site = Site::new();
    let manager = site.small_outboxes("manager");
    let deaf = Peer::server(&manager, "s-deaf@there x", 1095);
    manager.has_children(1);
    let mut redirector = Peer::redirector(&manager);
    let name = "n".repeat(1500);
    let mut count = 0;
    // The socket buffers of the system fill first, then the outbox.
    while manager.look(|engine| engine.node().members().unwrap().online().len()) == 1 {
        for number in 1..=200u8 {
            redirector.select(number, format!("/{name}/{count}").as_bytes());
            count += 1;
        }
        manager.look(|_| ());
        assert!(count < 100_000, "it goes on for ever");
    }
    drop(deaf);
}

#[test]
fn a_meta_manager_sends_clients_to_the_manager_that_sends_them_on() {
    let site = Site::new();
    let meta = site.node("meta", NodeRole::MetaManager, &[]);
    let managers = ["m1", "m2"].map(|name| site.node(name, NodeRole::Manager, &[&meta]));
    let [a, b] = [0, 1].map(|number| site.server(&format!("s{number}"), &[&managers[number]]));
    a.put("/at/a", "a");
    b.put("/at/b", "b");
    managers.iter().for_each(|manager| manager.has_children(1));
    meta.has_children(2);
    let mut client = meta.client();
    assert_eq!(client.read("/at/a").unwrap(), "a");
    assert_eq!((client.at, client.hops), (a.port(), 2));
    assert_eq!(client.read("/at/b").unwrap(), "b");
    assert_eq!(client.read("/at/none").unwrap_err().0, 3011);
    assert_eq!(client.hops, 0);
}
