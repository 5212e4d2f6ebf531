//! Tests of the messages that real nodes need, and of those that they must not get.
//!
//! Source: cms protocol 3, traps, and rules of thumb for new daemons.

use cluster::tree::{StatusMessage, limits};

use super::*;

fn node() -> Bench {
    let settings = ChildSettings::new(vec![Address::new("m1", 1213)], login("me", Mode::SERVER, true));
    Bench::new(None, vec![settings])
}

/// Connects the node and accepts it.
fn attach(bench: &mut Bench, own: bool) -> (ConnectionId, Vec<NodeAction>) {
    let mut out = Vec::new();
    bench.node.start(bench.now, &mut out);
    let link = out.iter().find_map(|action| match action {
        NodeAction::Connect { link, .. } => Some(*link),
        _ => None,
    });
    let link = link.expect("a connection");
    bench.event(NodeEvent::Connected { link });
    let extensions = if own { Extensions::ALL } else { Extensions::NONE };
    let out = bench.says(link, NodeMessage::Reply(ParentReply { extensions, ..ParentReply::default() }));
    (link, out)
}

#[test]
fn a_real_child_is_pinged_every_20_s_whatever_is_configured_and_not_asked_for_loads_unless_wanted() {
    for ping in [secs(1), secs(60), secs(3600)] {
        let mut bench = Bench::parent(AcceptorRole::Manager, |settings| settings.ping = ping);
        let (link, _) = bench.server("s1", false);
        let (start, mut pings) = (bench.now, 0);
        while bench.now < start + secs(600) {
            let out = bench.pass(secs(1));
            let sent = sent(&out, link);
            assert!(!sent.contains(&NodeMessage::Usage), "loads are not used");
            if sent.contains(&NodeMessage::Ping) {
                pings += 1;
                bench.says(link, NodeMessage::Pong);
            }
        }
        assert!((600 / limits::PING.as_secs()..=200).contains(&pings), "{ping:?}: {pings} pings in 600 s");
    }
}

#[test]
fn a_real_parent_gets_its_answers_at_once_and_a_word_that_what_it_knew_is_void() {
    let mut bench = node();
    let (link, out) = attach(&mut bench, false);
    let sent_first = sent(&out, link);
    let reset = NodeMessage::Status(StatusMessage { reset: true, ..StatusMessage::default() });
    let reset_follows = |pair: &[NodeMessage]| matches!(pair, [NodeMessage::Status(status), next] if !status.reset && *next == reset);
    assert!(sent_first.windows(2).any(reset_follows), "{sent_first:?}");
    assert_eq!(sent(&bench.says(link, NodeMessage::Ping), link), [NodeMessage::Pong]);
    assert!(matches!(sent(&bench.says(link, NodeMessage::Usage), link)[..], [NodeMessage::Load { .. }]));
    assert!(matches!(sent(&bench.says(link, NodeMessage::Space), link)[..], [NodeMessage::Avail { .. }]));
    // One of our own queries again by itself.
    let mut bench = node();
    let (link, out) = attach(&mut bench, true);
    assert!(!sent(&out, link).contains(&reset));
}

#[test]
fn a_real_node_that_leaves_is_let_go_as_it_expects() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |_| {});
    let (link, _) = bench.server("s1", false);
    let out = bench.says(link, NodeMessage::Disc);
    assert_eq!(sent(&out, link), [NodeMessage::Disc]);
    assert!(out.contains(&NodeAction::Close { link }));
    assert!(out.contains(&NodeAction::Child { slot: slot(0), change: ChildChange::Freed }));
}

#[test]
fn a_node_that_has_another_place_is_not_expected_at_the_old_one() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |_| {});
    let (server, _) = bench.server("s1", true);
    let (supervisor, _) = bench.supervisor("u1", true);
    let report = |joined| {
        let places = FreeSlots { free: 63, parents: 0, leaves: 1 };
        let (id, address) = (id('u', "u1").digest(), Address::new("u1", 1213));
        NodeMessage::Occupancy(vec![CellReport { id, address, depth: 0, places: Some(places), joined }])
    };
    let digest = id('s', "s1").digest();
    let freed = NodeAction::Child { slot: slot(0), change: ChildChange::Freed };
    // A report that was on its way while it came here.
    assert!(!bench.says(supervisor, report(vec![digest])).contains(&freed));
    bench.event(NodeEvent::Closed { link: server });
    let out = bench.says(supervisor, report(vec![digest]));
    // In this order: the place is free, and the files of the node are found below.
    assert_eq!(out, [freed, NodeAction::JoinedBelow { nodes: vec![digest] }]);
    assert_eq!(bench.says(supervisor, report(Vec::new())), [], "nobody has joined");
    assert_eq!(bench.node.members().map(|members| members.used().len()), Some(1));
}
