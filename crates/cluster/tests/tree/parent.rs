//! Tests of a parent: accepted logins, redirects, and the end of memberships.

use cluster::tree::limits;
use cluster::tree::{Blacklist, BlacklistRule, LoginRefusal, Notice, RefusalReason, Role, StatusMessage};

use super::*;

fn manager() -> Bench {
    Bench::parent(AcceptorRole::Manager, |_| {})
}

/// Returns a manager with 64 servers.
fn full(own: bool) -> (Bench, Vec<ConnectionId>) {
    let mut bench = manager();
    let links = (0..64)
        .map(|n| {
            let (link, out) = bench.server(&format!("s{n}"), own);
            assert!(taken_in(&out, link));
            link
        })
        .collect();
    (bench, links)
}

#[test]
fn a_login_without_room_waits_and_goes_straight_to_a_new_cell() {
    let (mut bench, links) = full(true);
    let (late, out) = bench.server("late", true);
    assert_eq!(sent(&out, late), []);
    assert!(!closes(&out, late));
    // It gets a notice, because it would treat silence as a dead connection.
    let out = bench.pass_alive(secs(3), &links);
    assert!(
        sent(&out, late).iter().all(|message| *message == NodeMessage::Ping) && sent(&out, late).len() >= 2
    );

    let (sup, out) = bench.supervisor("sup", true);
    assert!(taken_in(&out, sup));
    assert_eq!(
        tried(&out, links[63]),
        Some(vec!["sup".to_owned(), "root".to_owned()]),
        "the last server makes way"
    );
    assert!(closes(&out, links[63]));
    assert_eq!(sent(&out, late), [], "nobody is sent where no room was reported");
    let out = bench.reports(sup, "sup", 64);
    assert_eq!(tried(&out, late), Some(vec!["sup".to_owned(), "root".to_owned()]));
    assert!(closes(&out, late));
}

#[test]
fn a_small_cluster_is_flat_and_places_beyond_are_for_supervisors() {
    let mut bench = manager();
    let (sup, _) = bench.supervisor("sup", true);
    bench.reports(sup, "sup", 64);
    for n in 0..63 {
        let (link, out) = bench.server(&format!("s{n}"), true);
        assert!(taken_in(&out, link), "{n}");
    }
    let (link, out) = bench.server("next", true);
    assert_eq!(tried(&out, link), Some(vec!["sup".to_owned(), "root".to_owned()]));

    let mut bench = Bench::parent(AcceptorRole::Manager, |settings| settings.expected = 1000);
    let (link, out) = bench.server("s", true);
    assert_eq!(sent(&out, link), [], "a large cluster is expected");
    let out = bench.pass(secs(3));
    assert!(
        taken_in(&out[out.len() - 4..], link) || bench.node.slot(link).is_some(),
        "no supervisor came: better here than nowhere"
    );
}

#[test]
fn a_node_is_sent_to_an_address_of_the_kind_it_came_by() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |settings| settings.expected = 1000);
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut both = login("sup", Mode::MANAGER | Mode::SERVER, true);
    both.interfaces = vec![ip("10.0.0.9")];
    let (sup, _) = bench.comes_from(ip("fd00::9"), "fd00::9", NodeMessage::Login(Box::new(both)));
    bench.reports(sup, "sup", 64);
    // A reported cell below it has both families too.
    let places = Some(FreeSlots { free: 64, parents: 0, leaves: 0 });
    let address = Address::new("10.0.0.8", 1213).beside(&[ip("fd00::8")]);
    let deep = CellReport { id: id('u', "deep").digest(), address, depth: 1, places, joined: Vec::new() };
    bench.says(sup, NodeMessage::Occupancy(vec![deep]));
    for (from, cells) in [("10.0.0.5", ["10.0.0.8", "10.0.0.9"]), ("fd00::5", ["fd00::8", "fd00::9"])] {
        for own in [true, false] {
            let name = format!("{from}-{own}");
            let (link, out) = bench.comes_from(
                ip(from),
                &name,
                NodeMessage::Login(Box::new(login(&name, Mode::SERVER, own))),
            );
            let mut named = tried(&out, link).unwrap();
            assert_eq!(named.pop().as_deref(), Some("root"));
            assert!(
                !named.is_empty() && named.iter().all(|host| cells.contains(&host.as_str())),
                "{named:?}"
            );
        }
    }
}

#[test]
fn a_real_node_that_waits_hears_nothing_and_starts_anew_in_time() {
    let (mut bench, links) = full(true);
    let (late, _) = bench.server("late", false);
    let out = bench.pass_alive(secs(44), &links);
    assert_eq!(sent(&out, late), [], "before its reply it takes nothing else");
    let out = bench.pass_alive(secs(2), &links);
    assert_eq!(tried(&out, late), Some(vec!["root".to_owned()]), "at once again, without its pause of 9 s");
    assert!(closes(&out, late));
}

#[test]
fn a_supervisor_never_sends_a_real_node_on() {
    let (mut bench, up, _) = Bench::supervisor_below();
    bench.says(up, reply(true));
    let links: Vec<ConnectionId> = (0..64).map(|n| bench.server(&format!("s{n}"), n % 2 == 0).0).collect();
    let (late, out) = bench.server("late", false);
    assert_eq!((tried(&out, late), closes(&out, late)), (Some(vec![]), true));
    let (_, out) = bench.supervisor("sup1", true);
    assert_eq!(tried(&out, links[63]), Some(vec![]), "a real one at the end of its list would end");
    let (_, out) = bench.supervisor("sup2", true);
    assert_eq!(tried(&out, links[62]), Some(vec!["sup2".to_owned()]), "one of our own does not");
}

#[test]
fn a_supervisor_without_parent_accepts_no_supervisors_and_finally_no_nodes() {
    let mut bench = Bench::parent(AcceptorRole::Supervisor, |_| {});
    let (server, out) = bench.server("s", true);
    assert!(taken_in(&out, server));
    let (sup, out) = bench.supervisor("sup", true);
    assert_eq!((tried(&out, sup), closes(&out, sup)), (Some(vec![]), true));
    let out = bench.pass_alive(secs(16), &[server]);
    assert!(closes(&out, server), "nobody finds files below: better elsewhere");
    let (late, out) = bench.server("late", true);
    assert!(closes(&out, late));
}

#[test]
fn of_two_connections_of_one_node_the_silent_one_is_dead() {
    let mut bench = manager();
    let (old, _) = bench.server("s", true);
    let (new, out) = bench.server("s", true);
    assert_eq!((sent(&out, old), sent(&out, new)), (vec![NodeMessage::Ping], vec![]));
    let out = bench.pass(secs(1));
    assert!(closes(&out, old) && taken_in(&out, new));
    assert!(out.contains(&child(0, ChildChange::Joined { fresh: false })), "its files are known");

    let (twin, _) = bench.server("s", true);
    let out = bench.says(new, NodeMessage::Pong);
    assert!(matches!(sent(&out, twin)[..], [NodeMessage::Reply(_)]) && closes(&out, twin));
    assert!(out.iter().any(|action| matches!(action, NodeAction::Notice(Notice::Twins { .. }))));
}

#[test]
fn a_silent_child_is_lost_and_its_place_is_kept_for_a_time() {
    for (own, interval, limit) in [(true, 1, 4), (false, 20, 60)] {
        let mut bench = manager();
        let (link, _) = bench.server("s", own);
        bench.says(link, NodeMessage::Pong);
        let out = bench.pass(secs(limit) - Duration::from_millis(1));
        let pings = sent(&out, link).iter().filter(|message| **message == NodeMessage::Ping).count() as u64;
        assert!(pings >= limit / interval - 1 && pings <= limit / interval + 1, "{pings}");
        assert!(!closes(&out, link));
        let out = bench.pass(Duration::from_millis(2));
        assert!(closes(&out, link) && out.contains(&child(0, ChildChange::Lost)));
        let out = bench.pass(secs(300));
        assert_eq!(out, []);
        let (link, out) = bench.server("s", own);
        assert!(out.contains(&child(0, ChildChange::Joined { fresh: false })), "back in time");
        bench.event(NodeEvent::Closed { link });
        let out = bench.pass(secs(600));
        assert!(out.contains(&child(0, ChildChange::Freed)));
    }
}

#[test]
fn no_place_is_kept_for_a_node_that_joined_below() {
    // A cell below has accepted a node whose connection here is dead, which is not known yet.
    let gone_below = |alive: bool| {
        let mut bench = manager();
        let (server, _) = bench.server("s", true);
        let (sup, _) = bench.supervisor("sup", true);
        bench.pass_alive(secs(10), &[server, sup]);
        bench.reports_joined(sup, "sup", 63, &["s"]);
        if alive {
            bench.pass_alive(secs(1), &[server, sup]);
        }
        let out = bench.pass_alive(secs(10), &[sup]);
        (bench.node.members().map(|members| members.used()), out)
    };
    let (used, out) = gone_below(false);
    assert_eq!(used, Some(slot(1).mask()));
    assert!(out.contains(&child(0, ChildChange::Freed)) && !out.contains(&child(0, ChildChange::Lost)));
    // It has sent something since: it came back from there before it was lost.
    let (used, out) = gone_below(true);
    assert_eq!(used.map(|used| used.len()), Some(2));
    assert!(out.contains(&child(0, ChildChange::Lost)));
}

#[test]
fn a_child_lost_right_after_its_login_is_not_missed() {
    let mut bench = manager();
    let nodes: Vec<ConnectionId> = (0..5).map(|n| bench.server(&format!("s{n}"), true).0).collect();
    bench.pass_alive(secs(5), &nodes);
    let serves = |bench: &Bench| bench.node.members().is_some_and(|members| members.serves());
    let used = |bench: &Bench| bench.node.members().map(|members| members.used().len());
    // One peer logs in under many names and then stays silent.
    let strangers: Vec<ConnectionId> = (0..20).map(|n| bench.server(&format!("x{n}"), false).0).collect();
    for link in strangers {
        bench.event(NodeEvent::Closed { link });
    }
    assert!(serves(&bench));
    assert_eq!(used(&bench), Some(25));
    bench.pass_alive(limits::DROP_UNHEARD, &nodes);
    assert_eq!(used(&bench), Some(5));
    // A node that has its place keeps its record despite another login under its name.
    bench.event(NodeEvent::Closed { link: nodes[0] });
    let (link, _) = bench.server("s0", true);
    bench.event(NodeEvent::Closed { link });
    bench.pass_alive(limits::DROP_UNHEARD + secs(1), &nodes[1..]);
    assert_eq!(used(&bench), Some(5));
}

#[test]
fn at_the_first_start_a_cluster_waits_for_slow_servers_before_it_is_settled() {
    for (first_start, until) in [(false, limits::SETTLE), (true, limits::FIRST_START)] {
        let mut bench = Bench::parent(AcceptorRole::Manager, |settings| settings.first_start = first_start);
        let settled =
            |bench: &Bench| bench.node.members().is_some_and(|members| members.is_settled(bench.now));
        let (link, _) = bench.server("s0", true);
        assert!(bench.node.serves(), "what it has is found at once");
        bench.pass_alive(until - secs(1), &[link]);
        assert!(!settled(&bench), "{until:?}");
        bench.pass_alive(secs(1), &[link]);
        assert!(settled(&bench), "{until:?}");
        // Later it is as with any other start.
        bench.event(NodeEvent::Closed { link });
        bench.pass_alive(secs(600), &[]);
        let (link, _) = bench.server("s0", true);
        bench.pass_alive(limits::SETTLE, &[link]);
        assert!(settled(&bench));
    }
}

#[test]
fn a_node_with_other_paths_is_queried_again() {
    let mut bench = manager();
    let (link, _) = bench.server("s", true);
    bench.event(NodeEvent::Closed { link });
    let changed = LoginMessage { paths: "w /new".to_owned(), ..login("s", Mode::SERVER, true) };
    let (_, out) = bench.comes("s", NodeMessage::Login(Box::new(changed)));
    assert!(out.contains(&child(0, ChildChange::Joined { fresh: true })));
}

fn minimum(bench: &Bench) -> Option<usize> {
    bench.node.members().map(|members| members.minimum(bench.now))
}

#[test]
fn a_storm_of_logins_that_answer_does_not_hold_up_service() {
    let mut bench = manager();
    let nodes: Vec<ConnectionId> = (0..5).map(|n| bench.server(&format!("s{n}"), true).0).collect();
    bench.pass_alive(secs(120), &nodes);
    // Many names of one host send something, stay for a while, and leave; others that never serve
    // stay.
    let mut storm: Vec<ConnectionId> = (0..20).map(|n| bench.server(&format!("x{n}"), false).0).collect();
    for link in &storm {
        bench.says(*link, NodeMessage::Pong);
    }
    for n in 0..20 {
        let idle = LoginMessage { ..login(&format!("y{n}"), Mode::SERVER | Mode::SUSPEND, false) };
        let (link, _) = bench.comes(&format!("y{n}"), NodeMessage::Login(Box::new(idle)));
        bench.says(link, NodeMessage::Pong);
        assert!(bench.node.serves());
    }
    for link in storm.drain(..) {
        bench.says(
            link,
            NodeMessage::Status(StatusMessage { serves: Some(false), ..StatusMessage::default() }),
        );
        assert!(bench.node.serves(), "{:?}", minimum(&bench));
        bench.event(NodeEvent::Closed { link });
        assert!(bench.node.serves(), "{:?}", minimum(&bench));
    }
    assert_eq!(minimum(&bench), Some(4), "of five and one more");
    // Children that served for long are missed for long.
    let out = [
        bench.event(NodeEvent::Closed { link: nodes[0] }),
        bench.event(NodeEvent::Closed { link: nodes[1] }),
    ]
    .concat();
    assert!(out.contains(&NodeAction::Service { serves: false }));
    assert!(!bench.pass_alive(secs(60), &nodes[2..]).contains(&NodeAction::Service { serves: true }));
    assert!(bench.pass_alive(secs(61), &nodes[2..]).contains(&NodeAction::Service { serves: true }));
}

#[test]
fn real_children_are_asked_for_their_figures_each_in_its_turn() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |settings| settings.usage = 2);
    let links: Vec<ConnectionId> = (0..2).map(|n| bench.server(&format!("s{n}"), false).0).collect();
    let out = bench.pass_alive(limits::PING * 6, &links);
    for link in links {
        let queries = sent(&out, link).into_iter().filter(|message| *message == NodeMessage::Usage).count();
        assert_eq!(queries, 3, "of six pings");
    }
}

#[test]
fn the_quorum_rises_and_falls() {
    let mut bench = manager();
    let links: Vec<ConnectionId> = (0..10).map(|n| bench.server(&format!("s{n}"), false).0).collect();
    bench.pass_alive(secs(600), &links);
    assert!(bench.node.serves());
    assert_eq!(minimum(&bench), Some(8));
    for link in &links[..2] {
        bench.event(NodeEvent::Closed { link: *link });
    }
    assert!(bench.node.serves());
    let out = bench.event(NodeEvent::Closed { link: links[2] });
    assert!(out.contains(&NodeAction::Service { serves: false }));
    let out = bench.pass_alive(secs(600), &links[3..]);
    assert!(
        out.contains(&NodeAction::Service { serves: true }),
        "they are not coming back: {:?}",
        minimum(&bench)
    );
    let (sup, _) = bench.supervisor("spare1", true);
    bench.says(sup, NodeMessage::Status(StatusMessage { serves: Some(false), ..StatusMessage::default() }));
    assert_eq!(minimum(&bench), Some(5), "a spare supervisor is none to wait for");
}

#[test]
fn a_hasty_status_counts() {
    let mut bench = manager();
    let early = StatusMessage {
        serves: Some(true),
        data_port: Some(22022),
        stages: Some(true),
        ..StatusMessage::default()
    };
    let (link, out) = bench.comes("s", NodeMessage::Status(early));
    assert_eq!(out, []);
    let out = bench.says(link, NodeMessage::Login(Box::new(login("s", Mode::SERVER | Mode::SUSPEND, false))));
    assert!(taken_in(&out, link));
    let member = bench.node.members().and_then(|members| members.member(slot(0))).expect("a member");
    assert_eq!((member.data.port(), member.condition.suspended), (22022, false));
}

#[test]
fn silent_and_strange_connections_are_closed() {
    let mut bench = manager();
    bench.links += 1;
    let link = ConnectionId::accepted(bench.links);
    let peer = PeerAddress { ip: [10, 0, 0, 1].into(), host: "x".to_owned() };
    bench.event(NodeEvent::Accepted { link, peer });
    let out = bench.pass(secs(5));
    assert!(closes(&out, link));
    let (link, out) = bench.comes("x", NodeMessage::Pong);
    assert!(closes(&out, link));
}

#[test]
fn one_host_does_not_take_all_places_of_redirectors() {
    let mut bench = manager();
    let ip = |host: u8| IpAddr::from([10, 0, 0, host]);
    let director = || NodeMessage::Login(Box::new(login("director", Mode::DIRECTOR, false)));
    let (other, _) = bench.comes_from(ip(2), "other", director());
    for _ in 0..1024 {
        let (link, out) = bench.comes_from(ip(1), "flood", director());
        assert!(taken_in(&out, link) && !closes(&out, other));
    }
    for host in [3, 4] {
        let (link, out) = bench.comes_from(ip(host), "newcomer", director());
        assert!(taken_in(&out, link), "the places of host 1 are not those of all hosts");
    }
    let (local, out) = bench.comes_from([127, 0, 0, 1].into(), "localhost", director());
    assert!(taken_in(&out, local));
    assert!(bench.node.redirectors().any(|link| link == other));
    assert!(bench.node.redirectors().count() <= limits::REDIRECTORS_PER_PEER_MAX + 4);
}

#[test]
fn one_host_does_not_take_all_places_of_connections_without_a_login() {
    let mut bench = manager();
    let connect = |bench: &mut Bench, host: u8| {
        bench.links += 1;
        let link = ConnectionId::accepted(bench.links);
        let peer = PeerAddress { ip: [10, 0, 0, host].into(), host: "x".to_owned() };
        !closes(&bench.event(NodeEvent::Accepted { link, peer }), link)
    };
    let accepted = (0..2 * limits::LOGINS_MAX).filter(|_| connect(&mut bench, 1)).count();
    assert_eq!(accepted, limits::LOGINS_PER_PEER_MAX);
    assert!(connect(&mut bench, 2));
    bench.pass(limits::LOGIN);
    assert!(connect(&mut bench, 1), "the places are free again");
}

#[test]
fn a_few_hosts_do_not_take_all_places_of_connections_without_a_login() {
    let mut bench = manager();
    let connect = |bench: &mut Bench, host: u8| {
        bench.links += 1;
        let link = ConnectionId::accepted(bench.links);
        let peer = PeerAddress { ip: [10, 0, 0, host].into(), host: "x".to_owned() };
        let out = bench.event(NodeEvent::Accepted { link, peer });
        let closed = out.iter().filter(|action| matches!(action, NodeAction::Close { .. })).count();
        (!closes(&out, link), closed)
    };
    for number in 0..limits::LOGINS_MAX {
        assert_eq!(connect(&mut bench, (number % 8) as u8), (true, 0));
    }
    assert_eq!(connect(&mut bench, 1), (false, 1), "no host has more");
    assert_eq!(connect(&mut bench, 100), (true, 1), "a crowd makes room");
}

#[test]
fn logins_that_are_refused() {
    let mut bench = manager();
    let nobody = LoginMessage { id: String::new(), ..login("x", Mode::SERVER, false) };
    let (link, out) = bench.comes("x", NodeMessage::Login(Box::new(nobody)));
    assert!(matches!(sent(&out, link)[..], [NodeMessage::Reply(_)]) && closes(&out, link));
    let reason = RefusalReason::NoId;
    assert!(out.contains(&NodeAction::Notice(Notice::Refused { host: "x".to_owned(), reason })));
    let proxy = login("x", Mode::SERVER | Mode::PROXY, false);
    let (link, out) = bench.comes("x", NodeMessage::Login(Box::new(proxy)));
    assert!(matches!(sent(&out, link)[..], [NodeMessage::Reply(_)]) && closes(&out, link));
    let old = LoginMessage { version: 2, ..login("x", Mode::SERVER, false) };
    let (link, out) = bench.comes("x", NodeMessage::Login(Box::new(old)));
    assert!(
        matches!(&sent(&out, link)[..], [NodeMessage::Reply(reply)] if reply.id.is_empty()),
        "it knows no ids"
    );
}

#[test]
fn the_black_list_at_login_and_at_run_time() {
    let rule = |pattern: &str, redirect: &[&str]| BlacklistRule {
        pattern: pattern.to_owned(),
        redirect: redirect.iter().map(|host| Address::new(host, 1)).collect(),
    };
    let mut bench = manager();
    let (own, _) = bench.server("bad1", true);
    let (real, _) = bench.server("old1", false);
    let mut out = Vec::new();
    let rules = vec![rule("bad*", &[]), rule("old*", &["new"])];
    bench.node.set_blacklist(Blacklist { rules, inverted: false }, bench.now, &mut out);
    for link in [own, real] {
        assert_eq!(sent(&out, link), [NodeMessage::Disc]);
        assert!(closes(&out, link));
    }
    assert!(bench.node.members().is_some_and(|members| members.used().is_empty()));
    let (link, out) = bench.server("bad1", false);
    assert!(matches!(&sent(&out, link)[..], [NodeMessage::Refusal(LoginRefusal { banned: true, .. })]));
    assert!(closes(&out, link));
    let (link, out) = bench.server("old1", false);
    assert!(matches!(&sent(&out, link)[..], [NodeMessage::Try { permanent: true, .. }]));
    assert!(closes(&out, link));
}

#[test]
fn redirectors_learn_whether_there_is_service() {
    let mut bench = manager();
    let director = LoginMessage { version: 0, ..login("door", Mode::DIRECTOR, false) };
    let (door, out) = bench.comes("door", NodeMessage::Login(Box::new(director)));
    assert!(matches!(&sent(&out, door)[..], [NodeMessage::Reply(reply)] if reply.suspended));
    assert!(bench.node.is_redirector(door));
    let (server, out) = bench.server("s", true);
    assert!(matches!(sent(&out, door)[..], [NodeMessage::Status(StatusMessage { serves: Some(true), .. })]));
    let out = bench.says(door, NodeMessage::Update);
    assert!(matches!(sent(&out, door)[..], [NodeMessage::Status(StatusMessage { serves: Some(true), .. })]));
    let out = bench.event(NodeEvent::Closed { link: server });
    assert!(matches!(sent(&out, door)[..], [NodeMessage::Status(StatusMessage { serves: Some(false), .. })]));
    let out = bench.pass(secs(500));
    assert_eq!(sent(&out, door), [], "redirectors are never pinged");
}

#[test]
fn with_replicas_a_real_node_that_comes_back_is_never_taken_in_as_if_by_an_inner_node() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |settings| {
        settings.replicas = true;
        settings.expected = 100;
    });
    let (sup, _) = bench.supervisor("sup", true);
    bench.reports(sup, "sup", 1);
    let (link, out) = bench.server("s", false);
    assert_eq!(tried(&out, link), Some(vec!["sup".to_owned(), "root".to_owned()]));
    bench.reports(sup, "sup", 0);
    let (link, _) = bench.server("s", false);
    bench.pass_alive(secs(10), &[sup]);
    assert_eq!(bench.node.slot(link), None, "it counts the manager at the end of its list as an inner node");
}

#[test]
fn managers_of_one_site_share_a_place() {
    let mut bench = Bench::parent(AcceptorRole::MetaManager, |_| {});
    let manager = |name: &str| NodeMessage::Login(Box::new(login(name, Mode::MANAGER, false)));
    let (first, out) = bench.comes("m1", manager("m1"));
    assert!(taken_in(&out, first));
    let (second, out) = bench.comes("m2", manager("m2"));
    assert!(taken_in(&out, second));
    assert_eq!(bench.node.slot(second), None);
    let role = bench.node.members().and_then(|members| members.member(slot(0))).map(|member| member.role);
    assert_eq!(role, Some(Role::Manager));
    let out = bench.event(NodeEvent::Closed { link: first });
    assert_eq!(bench.node.slot(second), Some(slot(0)));
    assert!(!out.contains(&child(0, ChildChange::Lost)), "the files are the same");
}

#[test]
fn parents_of_a_supervisor_ask_again_when_they_have_asked_before() {
    let (mut bench, up, out) = Bench::supervisor_below();
    assert!(matches!(&sent(&out, up)[..], [NodeMessage::Login(login)] if login.mode.contains(Mode::SUSPEND)));
    bench.says(up, reply(false));
    let resets = |out: &[NodeAction]| {
        sent(out, up)
            .iter()
            .filter(|message| matches!(message, NodeMessage::Status(StatusMessage { reset: true, .. })))
            .count()
    };
    let (_, out) = bench.server("s1", true);
    assert_eq!(resets(&out), 0);
    assert!(
        sent(&out, up)
            .iter()
            .any(|m| matches!(m, NodeMessage::Status(StatusMessage { serves: Some(true), .. })))
    );
    bench.event(NodeEvent::Heard { link: up, state: true });
    let (_, out) = bench.server("s2", true);
    assert_eq!(resets(&out), 1);
    let (_, out) = bench.server("s3", true);
    assert_eq!(resets(&out), 1, "what it asked may have been answered after it was told");
    bench.event(NodeEvent::Heard { link: up, state: false });
    bench.now += limits::ANSWERED + Duration::from_millis(1);
    let (_, out) = bench.server("s4", true);
    assert_eq!(resets(&out), 1);
    let (_, out) = bench.server("s5", true);
    assert_eq!(resets(&out), 0, "all it was told since it asked is void");
    assert!(
        bench
            .done
            .iter()
            .all(|action| !matches!(action, NodeAction::Send { message: NodeMessage::Occupancy(_), .. }))
    );
}

#[test]
fn a_short_interruption_of_service_is_not_a_new_start() {
    let (mut bench, up, _) = Bench::supervisor_below();
    bench.says(up, reply(true));
    let settled = |bench: &Bench| bench.node.members().is_some_and(|members| members.is_settled(bench.now));
    let (mut link, _) = bench.server("a", true);
    assert!(!settled(&bench), "others may be on their way");
    bench.pass_alive(secs(2), &[up, link]);
    assert!(settled(&bench));
    // The only child is flapping.
    for _ in 0..5 {
        bench.event(NodeEvent::Closed { link });
        assert!(!settled(&bench), "nobody is there");
        bench.pass_alive(secs(1), &[up]);
        (link, _) = bench.server("a", true);
        assert!(settled(&bench), "nobody else is expected");
        bench.pass_alive(secs(1), &[up, link]);
    }
    bench.event(NodeEvent::Closed { link });
    bench.pass_alive(secs(5), &[up]);
    bench.server("a", true);
    assert!(!settled(&bench), "who has been alone for long begins anew");
}

#[test]
fn a_child_is_a_newcomer_until_it_reports_that_all_managers_know_it() {
    let mut bench = Bench::parent(AcceptorRole::Manager, |_| {});
    let is_newcomer =
        |bench: &Bench| bench.node.members().unwrap().member(slot(0)).unwrap().condition.newcomer;
    let (link, _) = bench.server("a", true);
    assert!(is_newcomer(&bench));
    let established = cluster::tree::StatusMessage { established: true, ..Default::default() };
    let out = bench.says(link, NodeMessage::Status(established));
    assert_eq!(out, [child(0, ChildChange::Condition)]);
    assert!(!is_newcomer(&bench));
    // Files were placed at it before, so a reconnection changes nothing.
    bench.event(NodeEvent::Closed { link });
    bench.pass(secs(29));
    let (link, _) = bench.server("a", true);
    assert!(!is_newcomer(&bench));
    // After a longer absence other children have been chosen for its files.
    bench.event(NodeEvent::Closed { link });
    bench.pass(secs(30));
    bench.server("a", true);
    assert!(is_newcomer(&bench));
}
