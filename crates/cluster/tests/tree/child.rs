//! Tests of a node that finds a parent, keeps it, and finds another one.

use cluster::tree::{LoginRefusal, limits};

use super::*;

fn node(managers: &[&str], remembered: Option<&str>) -> Bench {
    let managers = managers.iter().map(|host| Address::new(host, 1213)).collect();
    let mut settings = ChildSettings::new(managers, login("me", Mode::SERVER, true));
    settings.remembered = remembered.map(|host| Address::new(host, 1213));
    Bench::new(None, vec![settings])
}

fn start(bench: &mut Bench) -> Vec<NodeAction> {
    let mut out = Vec::new();
    bench.node.start(bench.now, &mut out);
    out
}

/// Returns the requested connections.
fn connects(actions: &[NodeAction]) -> Vec<(ConnectionId, String)> {
    let connect = |action: &NodeAction| match action {
        NodeAction::Connect { link, address } => Some((*link, address.host().to_owned())),
        _ => None,
    };
    actions.iter().filter_map(connect).collect()
}

/// Returns the only requested connection, which leads to this host.
fn to(actions: &[NodeAction], host: &str) -> ConnectionId {
    match &connects(actions)[..] {
        [(link, name)] if name == host => *link,
        other => panic!("{other:?} instead of {host}"),
    }
}

fn attach(bench: &mut Bench, link: ConnectionId, own: bool) -> Vec<NodeAction> {
    let out = bench.event(NodeEvent::Connected { link });
    assert!(matches!(sent(&out, link)[..], [NodeMessage::Login(_)]));
    bench.says(link, reply(own))
}

fn send_on(bench: &mut Bench, link: ConnectionId, hosts: &[&str]) -> Vec<NodeAction> {
    let hosts = hosts.iter().map(|host| Address::new(host, 1213)).collect();
    bench.says(link, NodeMessage::Try { hosts, permanent: false })
}

#[test]
fn the_first_manager_decides_and_the_others_follow() {
    let mut bench = node(&["m1", "m2"], None);
    let out = start(&mut bench);
    let m1 = to(&out, "m1");
    let out = attach(&mut bench, m1, true);
    assert!(out.contains(&NodeAction::Attached { attached: true }));
    let m2 = to(&out, "m2");
    attach(&mut bench, m2, true);
    assert_eq!(bench.node.memberships()[0].attached_roots().count(), 2);
    // Each question of a real manager is answered.
    let out = bench.says(m1, NodeMessage::Ping);
    assert_eq!(sent(&out, m1), [NodeMessage::Pong]);
    assert!(matches!(sent(&bench.says(m2, NodeMessage::Usage), m2)[..], [NodeMessage::Load { .. }]));
}

#[test]
fn a_manager_that_is_down_does_not_delay_the_next() {
    let mut bench = node(&["m1", "m2"], None);
    let m1 = to(&start(&mut bench), "m1");
    let out = bench.event(NodeEvent::Closed { link: m1 });
    let m2 = to(&out, "m2");
    attach(&mut bench, m2, true);
    let out = bench.pass(secs(1));
    assert_eq!(connects(&out)[0].1, "m1", "and it is tried again");
}

#[test]
fn one_inner_node_or_all_managers() {
    let mut bench = node(&["m1", "m2"], None);
    let m1 = to(&start(&mut bench), "m1");
    let out = attach(&mut bench, m1, true);
    let m2 = to(&out, "m2");
    bench.event(NodeEvent::Connected { link: m2 });
    let out = send_on(&mut bench, m2, &["sup", "m2"]);
    let sup = to(&out, "sup");
    assert_eq!(bench.node.memberships()[0].attached_roots().count(), 1, "until the other one takes it in");
    let out = attach(&mut bench, sup, true);
    assert_eq!(sent(&out, m1), [NodeMessage::Disc]);
    assert!(closes(&out, m1));
    assert!(out.contains(&NodeAction::Remember { cell: Some(Address::new("sup", 1213)) }));
    assert_eq!(bench.node.memberships()[0].attached_roots().count(), 0);
}

#[test]
fn the_list_is_tried_in_order_and_its_last_entry_leads_back() {
    let mut bench = node(&["m"], None);
    let m = to(&start(&mut bench), "m");
    bench.event(NodeEvent::Connected { link: m });
    let out = send_on(&mut bench, m, &["a", "b", "m"]);
    let a = to(&out, "a");
    let out = bench.event(NodeEvent::Closed { link: a });
    let b = to(&out, "b");
    bench.event(NodeEvent::Connected { link: b });
    let out = send_on(&mut bench, b, &[]);
    assert_eq!(connects(&out), []);
    let out = bench.pass(secs(1));
    to(&out, "m");
}

#[test]
fn a_place_that_broke_is_tried_once_more_and_then_the_managers() {
    let mut bench = node(&["m"], Some("cell"));
    let cell = to(&start(&mut bench), "cell");
    attach(&mut bench, cell, true);
    bench.pass_alive(secs(10), &[cell]);
    let out = bench.event(NodeEvent::Closed { link: cell });
    let again = to(&out, "cell");
    let out = bench.event(NodeEvent::Closed { link: again });
    assert!(
        bench.done.contains(&NodeAction::Attached { attached: false })
            || out.contains(&NodeAction::Attached { attached: false })
    );
    let out = bench.pass(secs(1));
    let m = to(&out, "m");
    let out = attach(&mut bench, m, true);
    assert!(out.contains(&NodeAction::Remember { cell: None }));
}

#[test]
fn a_silent_parent_is_left() {
    for (own, limit) in [(true, 4), (false, 180)] {
        let mut bench = node(&["m"], None);
        let m = to(&start(&mut bench), "m");
        attach(&mut bench, m, own);
        let out = bench.pass(secs(limit) - Duration::from_millis(1));
        assert!(!closes(&out, m));
        let out = bench.pass(Duration::from_millis(2));
        assert!(closes(&out, m));
    }
}

#[test]
fn the_timeout_of_a_login_grows_with_each_attempt() {
    let mut bench = node(&["m"], None);
    let mut m = to(&start(&mut bench), "m");
    let mut waits = Vec::new();
    for _ in 0..6 {
        bench.event(NodeEvent::Connected { link: m });
        let start = bench.now;
        let closed = loop {
            let out = bench.pass(Duration::from_millis(100));
            if closes(&out, m) {
                break out;
            }
        };
        waits.push((bench.now - start).as_secs());
        let mut next = connects(&closed);
        while next.is_empty() {
            next = connects(&bench.pass(Duration::from_millis(100)));
        }
        m = next[0].0;
    }
    assert_eq!(waits, [3, 6, 12, 24, 48, 60]);
    // A sign of life while it waits for a cell restarts the timeout.
    bench.event(NodeEvent::Connected { link: m });
    for _ in 0..100 {
        bench.says(m, NodeMessage::Ping);
        assert!(!closes(&bench.pass(secs(2)), m));
    }
}

#[test]
fn pauses_are_short_but_grow_and_a_ban_makes_them_long() {
    let mut bench = node(&["m"], None);
    let mut out = start(&mut bench);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let m = to(&out, "m");
        bench.event(NodeEvent::Closed { link: m });
        let start = bench.now;
        out = loop {
            let out = bench.pass(Duration::from_millis(5));
            if !connects(&out).is_empty() {
                break out;
            }
        };
        pauses.push(bench.now - start);
    }
    assert!(pauses[0] <= limits::PAUSE_MIN + Duration::from_millis(5));
    assert!(pauses[9] >= limits::PAUSE_MAX / 2 && pauses[9] <= limits::PAUSE_MAX + Duration::from_millis(5));
    let m = to(&out, "m");
    let login = bench.event(NodeEvent::Connected { link: m });
    assert!(matches!(&sent(&login, m)[..], [NodeMessage::Login(login)] if login.mode.contains(Mode::TRYING)));
    bench.says(m, NodeMessage::Refusal(LoginRefusal { banned: true, text: String::new() }));
    assert_eq!(connects(&bench.pass(secs(59))), []);
    assert_eq!(connects(&bench.pass(secs(2))).len(), 1);
}

#[test]
fn a_permanent_list_replaces_the_managers() {
    let mut bench = node(&["m1", "m2"], None);
    let m1 = to(&start(&mut bench), "m1");
    bench.event(NodeEvent::Connected { link: m1 });
    let hosts = vec![Address::new("new", 0)];
    bench.says(m1, NodeMessage::Try { hosts, permanent: true });
    let out = bench.pass(secs(1));
    let new = to(&out, "new");
    let Some(NodeAction::Connect { address, .. }) =
        out.iter().find(|a| matches!(a, NodeAction::Connect { .. }))
    else {
        panic!("{out:?}")
    };
    assert_eq!(address.port(), 1213, "without a port the own one is meant");
    bench.event(NodeEvent::Closed { link: new });
    assert!(connects(&bench.pass(secs(10))).iter().all(|(_, host)| host == "new"));
}

#[test]
fn an_endless_chain_of_redirects_is_not_followed() {
    let mut bench = node(&["m"], None);
    let m = to(&start(&mut bench), "m");
    bench.event(NodeEvent::Connected { link: m });
    let mut out = send_on(&mut bench, m, &["hop0"]);
    for hop in 1..100 {
        let Some((link, host)) = connects(&out).first().cloned() else { panic!("{out:?}") };
        if host == "m" {
            assert!(hop < 20);
            return;
        }
        bench.event(NodeEvent::Connected { link });
        out = send_on(&mut bench, link, &[&format!("hop{hop}")]);
        if connects(&out).is_empty() {
            out = bench.pass(secs(3));
        }
    }
    panic!("it went round and round");
}

#[test]
fn a_full_real_parent_redirects_after_its_reply() {
    let mut bench = node(&["m"], None);
    let m = to(&start(&mut bench), "m");
    bench.event(NodeEvent::Connected { link: m });
    let out = send_on(&mut bench, m, &["full", "free", "m"]);
    let full = to(&out, "full");
    attach(&mut bench, full, false);
    let out = send_on(&mut bench, full, &[]);
    let free = to(&out, "free");
    attach(&mut bench, free, false);
    assert_eq!(bench.node.memberships()[0].inner(), Some(&Address::new("free", 1213)));
}

/// Reports whether a login on this connection reports a newcomer.
fn is_newcomer(actions: &[NodeAction], link: ConnectionId) -> bool {
    match &sent(actions, link)[..] {
        [NodeMessage::Login(login)] => login.extensions.contains(Extensions::NEWCOMER),
        other => panic!("{other:?}"),
    }
}

/// Returns the number of reports on this connection that all managers know the node.
fn established(actions: &[NodeAction], link: ConnectionId) -> usize {
    let is_report =
        |message: &NodeMessage| matches!(message, NodeMessage::Status(status) if status.established);
    sent(actions, link).iter().filter(|message| is_report(message)).count()
}

#[test]
fn the_managers_receive_that_all_of_them_know_the_node() {
    let mut bench = node(&["m1", "m2"], None);
    let m1 = to(&start(&mut bench), "m1");
    assert!(is_newcomer(&bench.event(NodeEvent::Connected { link: m1 }), m1));
    let out = bench.says(m1, reply(true));
    assert_eq!(established(&out, m1), 0);
    let m2 = to(&out, "m2");
    assert!(is_newcomer(&bench.event(NodeEvent::Connected { link: m2 }), m2));
    let out = bench.says(m2, reply(true));
    assert_eq!([established(&out, m1), established(&out, m2)], [1, 1]);
    // A manager that was restarted is the only one that did not know it.
    let out = bench.event(NodeEvent::Closed { link: m1 });
    let again = bench.pass_alive(secs(2), &[m2]);
    let m1 = to(&[out, again].concat(), "m1");
    assert!(!is_newcomer(&bench.event(NodeEvent::Connected { link: m1 }), m1));
}

#[test]
fn a_manager_that_is_down_keeps_a_newcomer_from_new_files_for_a_limited_time() {
    let mut bench = node(&["m1", "m2"], None);
    let m1 = to(&start(&mut bench), "m1");
    let m2 = to(&bench.event(NodeEvent::Closed { link: m1 }), "m2");
    attach(&mut bench, m2, true);
    let mut pass = |time| {
        let mut reports = 0;
        for _ in 0..time {
            let out = bench.pass_alive(secs(1), &[m2]);
            reports += established(&out, m2);
            for (link, _) in connects(&out) {
                bench.event(NodeEvent::Closed { link });
            }
        }
        reports
    };
    assert_eq!(pass(29), 0);
    assert_eq!(pass(1), 1);
    assert_eq!(pass(60), 0);
}

#[test]
fn a_node_with_one_parent_is_no_newcomer() {
    let mut bench = node(&["m1"], None);
    let m1 = to(&start(&mut bench), "m1");
    assert!(!is_newcomer(&bench.event(NodeEvent::Connected { link: m1 }), m1));
    let mut bench = node(&["m1", "m2"], None);
    let m1 = to(&start(&mut bench), "m1");
    attach(&mut bench, m1, true);
    let inner = to(&send_on(&mut bench, m1, &["inner"]), "inner");
    assert!(!is_newcomer(&bench.event(NodeEvent::Connected { link: inner }), inner));
}
