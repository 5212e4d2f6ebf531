//! Tests of reports to parents about load, space and draining.

use cluster::tree::{LoadReport, SpaceReport, StatusMessage};
use wire::cms::message::SpaceSums;

use super::*;

fn load(cpu: u8) -> LoadReport {
    LoadReport { cpu, ..LoadReport::default() }
}

fn server() -> (Bench, ConnectionId) {
    let settings =
        ChildSettings::new(vec![Address::new("m", 1213)], login("me", Mode::SERVER | Mode::NOSTAGE, true));
    let mut bench = Bench::new(None, vec![settings]);
    let mut out = Vec::new();
    bench.node.start(bench.now, &mut out);
    let link = match out[..] {
        [NodeAction::Connect { link, .. }] => link,
        _ => panic!("{out:?}"),
    };
    (bench, link)
}

fn statuses(out: &[NodeAction], link: ConnectionId) -> Vec<(Option<bool>, Option<bool>)> {
    let status = |message: NodeMessage| match message {
        NodeMessage::Status(StatusMessage { serves, drains, reset: false, .. }) => Some((serves, drains)),
        _ => None,
    };
    sent(out, link).into_iter().filter_map(status).collect()
}

#[test]
fn a_new_parent_receives_the_load_at_once() {
    let (mut bench, link) = server();
    let mut out = Vec::new();
    bench.node.set_load(load(70), true, &mut out);
    assert_eq!(out, [], "there is nobody to tell");
    bench.event(NodeEvent::Connected { link });
    let out = bench.says(link, reply(true));
    assert!(sent(&out, link).contains(&NodeMessage::Load { load: load(70), free_mb: 0 }));
}

#[test]
fn a_node_that_drains_still_serves_for_its_own_parents_and_does_not_for_others() {
    for (own, expected) in [(true, (Some(true), Some(true))), (false, (Some(false), Some(true)))] {
        let (mut bench, link) = server();
        bench.event(NodeEvent::Connected { link });
        bench.says(link, reply(own));
        let mut out = Vec::new();
        bench.node.set_draining(true, &mut out);
        assert_eq!(statuses(&out, link), [expected]);
        let mut again = Vec::new();
        bench.node.set_draining(true, &mut again);
        assert_eq!(statuses(&again, link), [], "it is no news");
        // The next parent receives it after the login.
        bench.event(NodeEvent::Closed { link });
        let out = bench.pass(Duration::from_millis(1900));
        let Some(NodeAction::Connect { link, .. }) = out.last().cloned() else { panic!("{out:?}") };
        bench.event(NodeEvent::Connected { link });
        let out = bench.says(link, reply(own));
        assert_eq!(statuses(&out, link), [expected]);
        let mut out = Vec::new();
        bench.node.set_draining(false, &mut out);
        assert_eq!(statuses(&out, link), [(Some(true), Some(false))]);
    }
}

#[test]
fn an_order_to_drain_and_a_failed_origin_do_not_end_each_other() {
    let (mut bench, link) = server();
    bench.event(NodeEvent::Connected { link });
    bench.says(link, reply(true));
    let order =
        |drains| NodeMessage::Status(StatusMessage { drains: Some(drains), ..StatusMessage::default() });
    let fails = |bench: &mut Bench, has_failed| {
        let mut out = Vec::new();
        bench.node.set_origin_failed(has_failed, &mut out);
        statuses(&out, link)
    };
    let drains = |drains| (Some(true), Some(drains));
    // The origin returns while the order lasts.
    assert_eq!(statuses(&bench.says(link, order(true)), link), [drains(true)]);
    assert_eq!(fails(&mut bench, true), []);
    assert_eq!(fails(&mut bench, false), []);
    assert_eq!(statuses(&bench.says(link, order(false)), link), [drains(false)]);
    // The order ends while the origin is away.
    assert_eq!(fails(&mut bench, true), [drains(true)]);
    assert_eq!(statuses(&bench.says(link, order(false)), link), []);
    assert_eq!(fails(&mut bench, false), [drains(false)]);
}

#[test]
fn the_word_for_draining_never_reaches_a_real_parent() {
    use cluster::tree::{Extensions, encode};
    let status = NodeMessage::Status(StatusMessage {
        serves: Some(false),
        drains: Some(true),
        ..StatusMessage::default()
    });
    let bytes = |peer| {
        let mut out = Vec::new();
        encode(&status, peer, &mut out).expect("a frame");
        out[5]
    };
    assert_eq!((bytes(Extensions::NONE), bytes(Extensions::ALL)), (0x08, 0x48));
    let avail = |peer| {
        let sums = Some(SpaceSums { total_mb: 1, free_mb: 1 });
        let mut out = Vec::new();
        encode(&NodeMessage::Avail { free_mb: 1, used_percent: 1, sums }, peer, &mut out).expect("a frame");
        out.len()
    };
    assert_eq!((avail(Extensions::NONE), avail(Extensions::ALL)), (8 + 8, 8 + 8 + 18));
}

#[test]
fn every_load_report_has_the_last_measured_disk_usage() {
    let (mut bench, link) = server();
    let space =
        SpaceReport { total_mb: 1000, free_mb: 110, minimum_mb: 10, used_percent: 89, file_systems: 1 };
    bench.node.set_space(space, false, &mut Vec::new());
    bench.node.set_load(load(70), true, &mut Vec::new());
    bench.event(NodeEvent::Connected { link });
    let out = bench.says(link, reply(true));
    let reported = NodeMessage::Load { load: LoadReport { disk: 89, ..load(70) }, free_mb: 110 };
    assert!(sent(&out, link).contains(&reported), "{out:?}");
}

#[test]
fn a_parent_takes_figures_and_draining_from_its_children() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |_| {});
    let (own, _) = bench.server("own", true);
    let (real, _) = bench.server("real", false);
    let figures = child(0, ChildChange::Figures);
    let out = bench.says(own, NodeMessage::Load { load: load(9), free_mb: 500 });
    assert_eq!(out, std::slice::from_ref(&figures));
    let out = bench.says(own, NodeMessage::Load { load: load(9), free_mb: 500 });
    assert_eq!(out, [], "nothing changed");
    let avail = |sums| NodeMessage::Avail { free_mb: 400, used_percent: 60, sums };
    assert_eq!(bench.says(own, avail(None)), [figures]);
    let drains = NodeMessage::Status(StatusMessage { drains: Some(true), ..StatusMessage::default() });
    assert_eq!(bench.says(own, drains.clone()), [child(0, ChildChange::Draining)]);
    assert_eq!(bench.says(real, drains), [], "that bit is nobody else's word for it");
    let drains = |bench: &Bench, number| {
        bench.node.members().and_then(|m| m.member(slot(number))).map(|m| m.condition.drains_itself)
    };
    assert_eq!((drains(&bench, 0), drains(&bench, 1)), (Some(true), Some(false)));
}

#[test]
fn a_real_server_that_reconnects_keeps_its_load() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |_| {});
    let busy =
        |bench: &Bench, number| bench.node.members().and_then(|m| m.member(slot(number))).map(|m| m.load.cpu);
    let (own, _) = bench.server("own", true);
    let (real, _) = bench.server("real", false);
    for link in [own, real] {
        bench.says(link, NodeMessage::Load { load: load(60), free_mb: 500 });
        bench.event(NodeEvent::Closed { link });
    }
    bench.server("own", true);
    let (real, _) = bench.server("real", false);
    assert_eq!(busy(&bench, 0), Some(0), "one of our own says it with its login");
    assert_eq!(busy(&bench, 1), Some(60));
    bench.says(real, NodeMessage::Load { load: load(0), free_mb: 500 });
    assert_eq!(busy(&bench, 1), Some(0));
    let (newcomer, _) = bench.server("newcomer", false);
    assert_eq!((busy(&bench, 2), newcomer == real), (Some(0), false));
}

#[test]
fn a_supervisor_sends_a_reset_when_a_server_is_drained() {
    let (mut bench, up, _) = Bench::supervisor_below();
    bench.says(up, reply(true));
    let (a, _) = bench.server("a", true);
    let (b, _) = bench.server("b", false);
    for link in [a, b] {
        bench.says(
            link,
            NodeMessage::Status(StatusMessage { serves: Some(true), ..StatusMessage::default() }),
        );
    }
    let drains = |drains| StatusMessage { drains: Some(drains), ..StatusMessage::default() };
    let reset = NodeMessage::Status(StatusMessage { reset: true, ..StatusMessage::default() });
    let up_by = |out: &[NodeAction]| {
        let up: Vec<_> = sent(out, up).into_iter().collect();
        (
            up.contains(&reset),
            up.contains(&NodeMessage::Status(drains(true))),
            up.contains(&NodeMessage::Status(drains(false))),
        )
    };
    // The parent may know of files here although it never sent a query.
    let out = bench.says(a, NodeMessage::Status(drains(true)));
    assert_eq!(up_by(&out), (true, false, false), "{out:?}");
    let mut out = Vec::new();
    let now = bench.now;
    assert!(bench.node.drain(slot(1), true, now, &mut out));
    assert_eq!(up_by(&out), (true, true, false), "all below it are: {out:?}");
    let out = bench.says(a, NodeMessage::Status(drains(false)));
    assert_eq!(up_by(&out), (true, false, true), "{out:?}");
}

/// Returns a login with space.
fn with_space(name: &str, mode: Mode, total_mb: u32, free_mb: u32) -> NodeMessage {
    let space = SpaceReport { total_mb, free_mb, minimum_mb: 10, used_percent: 50, file_systems: 1 };
    NodeMessage::Login(Box::new(LoginMessage { space, ..login(name, mode, true) }))
}

#[test]
fn space_is_added_up_over_the_tree() {
    let (mut bench, up, _) = Bench::supervisor_below();
    bench.says(up, reply(true));
    let (a, _) = bench.comes("a", with_space("a", Mode::SERVER, 1000, 600));
    let (b, _) = bench.comes("b", with_space("b", Mode::SERVER, 2000, 100));
    let out = bench.pass_alive(secs(6), &[up, a, b]);
    let said = |out: &[NodeAction]| {
        sent(out, up).into_iter().rev().find_map(|message| match message {
            NodeMessage::Avail { free_mb, sums, .. } => Some((free_mb, sums)),
            _ => None,
        })
    };
    let sums = |total_mb, free_mb| Some(SpaceSums { total_mb, free_mb });
    assert_eq!(said(&out), Some((600, sums(3000, 700))));
    // The sum changed, the best did not.
    bench.says(b, NodeMessage::Avail { free_mb: 300, used_percent: 1, sums: None });
    let out = bench.pass_alive(secs(6), &[up, a, b]);
    assert_eq!(said(&out), Some((600, sums(3000, 900))));

    let mut root = Bench::parent(AcceptorRole::Manager, |_| {});
    let (sup, _) = root.comes("sup", with_space("sup", Mode::MANAGER | Mode::SERVER, 1, 0));
    root.says(sup, NodeMessage::Status(StatusMessage { serves: Some(true), ..StatusMessage::default() }));
    let (many, free) = (5 << 40, 3 << 40);
    root.says(sup, NodeMessage::Avail { free_mb: 700, used_percent: 3, sums: sums(many, free) });
    let (leaf, _) = root.comes("leaf", with_space("leaf", Mode::SERVER, 4000, 50));
    let totals = |bench: &Bench, slots| bench.node.members().map(|m| m.totals_of(slots)).expect("a parent");
    let all = totals(&root, cluster::SlotMask::ALL);
    assert_eq!((all.total_mb, all.free_mb, all.best_free_mb), (many + 4000, free + 50, 700));
    let one = totals(&root, slot(1).mask());
    assert_eq!((one.children, one.total_mb, one.free_mb), (1, 4000, 50));
    root.event(NodeEvent::Closed { link: leaf });
    assert_eq!(totals(&root, slot(1).mask()).children, 0, "who is away has no space");
}

#[test]
fn a_supervisor_reports_the_mean_load_of_its_children() {
    let (mut bench, up, _) = Bench::supervisor_below();
    bench.says(up, reply(true));
    let (a, _) = bench.server("a", true);
    let (b, _) = bench.server("b", true);
    bench.pass_alive(secs(6), &[up, a, b]);
    bench.says(a, NodeMessage::Load { load: load(80), free_mb: 1 });
    bench.says(b, NodeMessage::Load { load: load(20), free_mb: 1 });
    let out = bench.pass_alive(secs(6), &[up, a, b]);
    let reported: Vec<LoadReport> = sent(&out, up)
        .into_iter()
        .filter_map(|message| match message {
            NodeMessage::Load { load, .. } => Some(load),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [load(50)]);
    bench.says(b, NodeMessage::Load { load: load(26), free_mb: 1 });
    let out = bench.pass_alive(secs(6), &[up, a, b]);
    assert!(
        !sent(&out, up).iter().any(|m| matches!(m, NodeMessage::Load { .. })),
        "a change that matters to nobody"
    );
}

#[test]
fn a_drained_child_receives_the_order_and_the_address_of_entry() {
    let door = Address::new("root", 1094);
    let mut manager = Bench::parent(AcceptorRole::Manager, |settings| settings.door = Some(door.clone()));
    let (own, out) = manager.server("own", true);
    let said = |out: &[NodeAction], link| {
        sent(out, link).into_iter().find_map(|message| match message {
            NodeMessage::Reply(reply) => Some(reply.door),
            _ => None,
        })
    };
    assert_eq!(said(&out, own), Some(Some(door.clone())));
    let (real, out) = manager.server("real", false);
    assert_eq!(said(&out, real), Some(None));
    let mut out = Vec::new();
    for number in 0..2 {
        assert!(manager.node.drain(slot(number), true, manager.now, &mut out));
    }
    assert_eq!(statuses(&out, own), [(None, Some(true))]);
    assert_eq!(statuses(&out, real), [], "it would not understand");
    // A child that reconnects receives it again.
    manager.event(NodeEvent::Closed { link: own });
    let (own, out) = manager.server("own", true);
    assert_eq!(statuses(&out, own), [(None, Some(true))]);

    // The node itself notifies all parents, and its driver.
    let (mut node, link) = server();
    node.event(NodeEvent::Connected { link });
    let greeting = NodeMessage::Reply(ParentReply {
        id: id('m', "root").as_str().to_owned(),
        door: Some(door.clone()),
        extensions: cluster::tree::Extensions::ALL,
        ..ParentReply::default()
    });
    node.says(link, greeting);
    let drains =
        |drains| NodeMessage::Status(StatusMessage { drains: Some(drains), ..StatusMessage::default() });
    let out = node.says(link, drains(true));
    assert_eq!(statuses(&out, link), [(Some(true), Some(true))]);
    assert!(out.contains(&NodeAction::Drain { draining: true, door: Some(door.clone()) }));
    let out = node.says(link, drains(false));
    assert!(out.contains(&NodeAction::Drain { draining: false, door: Some(door) }));
}

#[test]
fn a_supervisor_forwards_the_address_of_entry() {
    let (mut bench, up, _) = Bench::supervisor_below();
    let door = Address::new("::1", 1094);
    bench.says(
        up,
        NodeMessage::Reply(ParentReply {
            id: id('m', "root").as_str().to_owned(),
            door: Some(door.clone()),
            extensions: cluster::tree::Extensions::ALL,
            ..ParentReply::default()
        }),
    );
    let (leaf, out) = bench.server("leaf", true);
    assert!(matches!(&sent(&out, leaf)[0], NodeMessage::Reply(reply) if reply.door.as_ref() == Some(&door)));
}
