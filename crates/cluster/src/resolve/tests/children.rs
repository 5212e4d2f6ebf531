//! Tests of children that join, leave, are lost and reconnect.

use std::net::IpAddr;

use super::*;
use crate::cell::{ChildKind, Interface};
use crate::tree::{
    Address, ChildChange, ClusterMember, ConnectionId, Extensions, NodeId, NodeIdentity, Role,
};

fn root() -> Vec<ChildExport> {
    ChildExport::parse_list(b"w /").unwrap()
}

#[test]
fn a_newcomer_is_asked_while_those_known_serve() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let now = stage.now;
    stage.machine.join(slot(2), server(2), &root(), now, &mut stage.actions);
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 0);
    assert_eq!(stage.queried(), mask(&[2]));
    stage.have(2, "/f");
    let both: SlotMask = (0..2).map(|n| slot(sent_to(&stage.read(n, "/f").unwrap()))).collect();
    assert_eq!(both, mask(&[0, 2]));
}

#[test]
fn a_slot_with_a_new_owner_has_nothing_of_the_old_one() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let now = stage.now;
    stage.machine.join(slot(0), server(9), &root(), now, &mut stage.actions);
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0]));
    stage.not_here(&[0], "/f");
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn who_comes_back_unchanged_is_not_asked_again() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    stage.change(0, |child| child.state.connected = false);
    assert_eq!(stage.read(1, "/f"), Some(seconds(15)));
    stage.change(0, |child| (child.state.connected, child.port) = (true, 2094));
    let answer = stage.read(1, "/f").unwrap();
    assert_eq!(answer, ClusterAnswer::Redirect { slot: Some(slot(0)), host: "server0".into(), port: 2094 });
    assert_eq!(stage.queried(), SlotMask::EMPTY);
}

#[test]
fn a_real_supervisor_out_of_service_that_says_nothing_has_lost_what_it_had() {
    let mut stage = Stage::new(2).legacy(&[1]);
    stage.change(1, |child| child.kind = ChildKind::Inner);
    stage.learn("/f", &[1]);
    // Its connection breaks and is restored; then its servers move to another node.
    stage.machine.engine.locations.cell_mut().invalidate(slot(1));
    stage.change(1, |child| child.state.suspended = true);
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[1]));
    stage.pass(SILENCE.as_secs_f64());
    assert_eq!(code(&stage.answer()), 1, "nobody waits for ever");
    // The resolver waits for a child that answers.
    stage.machine.engine.locations.cell_mut().invalidate(slot(1));
    assert_eq!(stage.read(2, "/f"), None);
    stage.have(1, "/f");
    assert_eq!(stage.answer(), seconds(30));
}

#[test]
fn whoever_avoids_a_child_does_not_avoid_the_next_in_its_slot() {
    let exports = ChildExport::parse_list(b"w /").unwrap();
    for (next, sent) in [(7, Some(0)), (0, None)] {
        let mut stage = Stage::new(2);
        let remove = SelectOptions { intent: Intent::Update, name_only: true, ..SelectOptions::default() };
        assert_eq!(stage.select(1, "/f", remove, "server0"), None);
        let now = stage.now;
        stage.machine.join(slot(0), server(next), &exports, now, &mut stage.actions);
        stage.not_here(&[1], "/f");
        stage.have(0, "/f");
        let answer = stage.answer();
        match sent {
            Some(slot) => assert_eq!(sent_to(&answer), slot),
            None => assert_eq!(code(&answer), 1, "the same server with other paths"),
        }
    }
}

#[test]
fn a_freed_slot_does_not_count() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let now = stage.now;
    stage.machine.leave(slot(0), now, &mut stage.actions);
    assert_eq!(code(&stage.read(1, "/f").unwrap()), 1);
}

#[test]
fn reset_below_a_supervisor_voids_what_it_said() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[1]);
    stage.machine.bounce(slot(1));
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[1]));
}

#[test]
fn what_goes_below_a_supervisor_says_nothing_of_what_else_is_there() {
    let tree = || {
        let mut stage = Stage::new(2);
        stage.change(1, |child| child.kind = ChildKind::Inner);
        stage
    };
    // A node joined below it and may have the file; then another node there reports that it no
    // longer has it.
    let mut stage = tree();
    stage.learn("/f", &[]);
    stage.machine.bounce(slot(1));
    stage.gone(1, "/f");
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[1]));
    // This is not an answer to an open query.
    stage.gone(1, "/f");
    assert_eq!(stage.answered(), []);
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
    // The first holder no longer has the file; replies of others may be outstanding.
    stage.gone(1, "/f");
    assert_eq!(stage.read(2, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0, 1]));
    // A real node is not queried again, because that would take another query timeout.
    let mut stage = tree().legacy(&[1]);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0], "/f");
    stage.have(1, "/f");
    assert_eq!((sent_to(&stage.answer()), stage.queried().len()), (1, 2));
    stage.gone(1, "/f");
    assert_eq!(stage.read(2, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0]));
}

#[test]
fn a_child_lost_during_a_query_is_not_waited_for_and_asked_when_back() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0], "/f");
    stage.queried();
    stage.change(1, |child| child.state.connected = false);
    assert_eq!(code(&stage.answer()), 1);
    stage.change(1, |child| child.state.connected = true);
    assert_eq!(stage.read(2, "/f"), None);
    assert_eq!(stage.queried(), mask(&[1]));
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
}

#[test]
fn a_child_that_joins_during_a_query_is_heard_too() {
    let mut stage = Stage::new(1);
    assert_eq!(stage.read(1, "/f"), None);
    stage.queried();
    let now = stage.now;
    stage.machine.join(slot(1), server(1), &root(), now, &mut stage.actions);
    stage.not_here(&[0], "/f");
    assert_eq!(stage.queried(), mask(&[1]));
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
}

#[test]
fn a_child_that_flaps_does_not_hold_clients_for_ever() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0], "/f");
    let mut answers = Vec::new();
    for _ in 0..60 {
        stage.pass(0.5);
        stage.change(1, |child| child.state.connected = false);
        let now = stage.now;
        stage.machine.join(slot(1), server(1), &root(), now, &mut stage.actions);
        answers.extend(stage.answered());
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(stage.machine.stats().queries, 0);
}

fn member(link: Option<u64>) -> ClusterMember {
    let ip = IpAddr::from([10, 0, 0, 7]);
    ClusterMember {
        identity: NodeIdentity { id: NodeId::new("s-a@b site").unwrap(), ip, data_port: 1094 },
        role: Role::Server,
        address: Address::new("seven", 2),
        data: Address::new("seven", 1094),
        paths: "w /".to_owned(),
        site: None,
        host: String::new(),
        software: None,
        instance: None,
        version: 3,
        extensions: Extensions(wire::cms::Extensions::NOT_HERE.0),
        condition: crate::tree::Condition::default(),
        space: crate::tree::SpaceReport {
            free_mb: 500,
            minimum_mb: 10,
            ..crate::tree::SpaceReport::default()
        },
        sums: None,
        share: 0,
        load: crate::tree::LoadReport::from_parts([1, 2, 3, 4, 5, 6]),
        link: link.map(ConnectionId),
        since: Duration::ZERO,
        heard: Duration::ZERO,
        pinged: Duration::ZERO,
        pings: 0,
        service: Default::default(),
    }
}

fn follow(stage: &mut Stage, change: ChildChange, member: Option<ClusterMember>) {
    let interface = Interface { host: "seven".into(), ip: IpAddr::from([10, 0, 0, 7]), private: false };
    let now = stage.now;
    stage.machine.follow(slot(7), change, member.as_ref(), vec![interface], now, &mut stage.actions);
}

#[test]
fn a_child_as_the_tree_tells_of_it() {
    let mut stage = Stage::new(0);
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(member(Some(1))));
    let child = stage.machine.cell().child(slot(7)).unwrap();
    assert!(child.says_not_here && child.state.connected && child.min_free_mb == 10);
    assert_eq!((&*child.cid, child.kind), ("site", crate::ChildKind::Server));
    let meters = stage.machine.cell().meters();
    assert_eq!((meters.free_mb(slot(7)), meters.load(slot(7)).parts()), (500, [1, 2, 3, 4, 5, 6]));
    let mut busy = member(Some(1));
    (busy.space.free_mb, busy.load.cpu) = (5, 99);
    follow(&mut stage, ChildChange::Figures, Some(busy));
    let meters = stage.machine.cell().meters();
    assert_eq!((meters.free_mb(slot(7)), meters.load(slot(7)).cpu), (5, 99));
    stage.learn("/f", &[7]);

    let mut suspended = member(Some(1));
    suspended.condition.suspended = true;
    follow(&mut stage, ChildChange::Condition, Some(suspended));
    assert_eq!(stage.read(1, "/f"), Some(seconds(30)));

    // It is lost: for a while no file is reported as missing.
    follow(&mut stage, ChildChange::Lost, Some(member(None)));
    assert_eq!(stage.read(1, "/f"), Some(seconds(15)));
    assert_eq!(stage.read(1, "/g"), Some(seconds(15)));
    assert_eq!(stage.machine.next_deadline(), Some(crate::EXPECTED_BACK));
    stage.pass(30.0);
    assert_eq!(code(&stage.read(1, "/g").unwrap()), 1);
    assert_eq!(stage.machine.next_deadline(), None);

    // It has reconnected: readers are redirected as before, and its files are queried again.
    follow(&mut stage, ChildChange::Joined { fresh: false }, Some(member(Some(2))));
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 7);
    assert_eq!(stage.queried(), mask(&[7]));
    stage.have(7, "/f");
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 7);
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    assert_eq!(stage.read(1, "/g"), None, "it may have got it while it was away");
    stage.have(7, "/g");
    assert_eq!(sent_to(&stage.answer()), 7);
    follow(&mut stage, ChildChange::Reset, Some(member(Some(2))));
    assert_eq!(stage.read(1, "/f"), None);
    // It was redirected, and may be on its way to another cell.
    follow(&mut stage, ChildChange::Freed, None);
    assert_eq!(stage.answer(), seconds(15));
    stage.pass(5.0);
    assert_eq!(code(&stage.read(1, "/f").unwrap()), 1);
    assert_eq!(stage.machine.cell().children().count(), 0);
}

#[test]
fn one_that_stood_by_is_asked_what_the_one_before_it_was_asked() {
    let mut stage = Stage::new(0);
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(member(Some(1))));
    assert_eq!(stage.read(1, "/f"), None);
    stage.queried();
    follow(&mut stage, ChildChange::Condition, Some(member(Some(1))));
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    follow(&mut stage, ChildChange::Condition, Some(member(Some(2))));
    assert_eq!(stage.queried(), mask(&[7]));
    stage.have(7, "/f");
    assert_eq!(sent_to(&stage.answer()), 7);
}

#[test]
fn one_that_never_answered_is_taken_at_its_word_again_when_it_is_back() {
    let mut stage = Stage::new(0);
    stage.machine.engine.queries.mute = Duration::ZERO;
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(member(Some(1))));
    assert_eq!(stage.read(1, "/f"), None);
    stage.pass(10.0);
    assert_eq!(stage.answer(), seconds(5));
    assert_eq!(stage.read(1, "/f"), None);
    stage.pass(5.0);
    assert_eq!(code(&stage.answer()), 1, "it is listened to as a real daemon");
    follow(&mut stage, ChildChange::Joined { fresh: false }, Some(member(Some(2))));
    assert_eq!(stage.read(1, "/g"), None);
    stage.pass(5.0);
    assert_eq!(stage.answered(), [], "its silence means nothing");
    stage.not_here(&[7], "/g");
    assert_eq!(code(&stage.answer()), 1);
}

/// The child joins for one second and is lost for the next (flapping).
fn come_and_go(stage: &mut Stage, number: u64, kept: bool) {
    follow(stage, ChildChange::Joined { fresh: !kept }, Some(member(Some(number))));
    stage.pass(1.0);
    follow(stage, ChildChange::Lost, kept.then(|| member(None)));
    if !kept {
        follow(stage, ChildChange::Freed, None);
    }
    stage.pass(1.0);
}

#[test]
fn one_that_comes_and_goes_holds_up_a_supervisor_as_if_it_was_lost_once() {
    let mut stage = Stage::with(cell(2), Policy::default(), true);
    stage.learn("/f", &[]);
    let says = |stage: &mut Stage, number| {
        come_and_go(stage, number, false);
        let ask = StateAsk::default();
        stage.machine.state(RequestToken(1), b"/f", ask, stage.now, &mut stage.actions).is_some()
    };
    // For 30 s from the first loss no file is reported as missing.
    let said: Vec<bool> = (0..18).map(|number| says(&mut stage, number)).collect();
    assert_eq!(said, [[false; 15].as_slice(), &[true; 3]].concat());
    // It stays for a while, so the next loss counts from its own time.
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(member(Some(99))));
    stage.pass(10.0);
    follow(&mut stage, ChildChange::Lost, None);
    assert_eq!([100, 101].map(|number| says(&mut stage, number)), [false; 2]);
}

#[test]
fn one_that_comes_and_goes_is_waited_for_as_if_it_was_lost_once() {
    let mut stage = Stage::new(2);
    stage.machine.engine.settings.hold = Duration::from_secs(60);
    let mut link = 1;
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(member(Some(link))));
    let mut token = 0;
    let mut create = |stage: &mut Stage, path: &str| {
        token += 1;
        assert_eq!(stage.intend(token, path, Intent::Create), None);
        stage.not_here(&[0, 1], path);
        stage.answered().len()
    };
    for _ in 0..2 {
        // It was connected for a while.
        stage.pass(10.0);
        let lost = stage.now;
        for number in 0..15 {
            follow(&mut stage, ChildChange::Lost, Some(member(None)));
            stage.pass(1.0);
            assert_eq!(create(&mut stage, &format!("/{number}{lost:?}")), 0, "it may have it");
            link += 1;
            follow(&mut stage, ChildChange::Joined { fresh: false }, Some(member(Some(link))));
            stage.pass(1.0);
        }
        assert_eq!(stage.now, lost + crate::EXPECTED_BACK);
        follow(&mut stage, ChildChange::Lost, Some(member(None)));
        stage.pass(0.0);
        assert_eq!(stage.answered().len(), 15, "now it is as if it had not come back");
        for number in 0..4 {
            assert_eq!(create(&mut stage, &format!("/new{number}{lost:?}")), 1);
            link += 1;
            come_and_go(&mut stage, link, true);
        }
        link += 1;
        follow(&mut stage, ChildChange::Joined { fresh: false }, Some(member(Some(link))));
    }
}

/// Creates a file that the newcomer in slot 7 wins against the server in slot 0.
fn winner_of_newcomer(stage: &mut Stage, newcomer: &ClusterMember) -> String {
    for number in 0.. {
        let path = format!("/new{number}");
        let mut alone = Stage::new(1);
        follow(&mut alone, ChildChange::Joined { fresh: true }, Some(newcomer.clone()));
        alone.learn(&path, &[]);
        if sent_to(&alone.intend(1, &path, Intent::Create).unwrap()) == 7 {
            stage.learn(&path, &[]);
            return path;
        }
    }
    unreachable!()
}

#[test]
fn a_newcomer_gets_new_files_when_all_managers_know_it() {
    let mut stage = Stage::new(1);
    let known = member(Some(1));
    let mut newcomer = known.clone();
    newcomer.condition.newcomer = true;
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(newcomer.clone()));
    let early = winner_of_newcomer(&mut stage, &known);
    let to = stage.intend(1, &early, Intent::Create).unwrap();
    assert_eq!(sent_to(&to), 0, "other managers choose this one");

    let mut stage = Stage::new(1);
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(newcomer));
    let path = winner_of_newcomer(&mut stage, &known);
    follow(&mut stage, ChildChange::Condition, Some(known.clone()));
    // The others may not have the report of the newcomer yet.
    assert_eq!(stage.intend(1, &path, Intent::Create), Some(seconds(15)));
    let mut loaded = known.clone();
    loaded.condition.nostage = true;
    follow(&mut stage, ChildChange::Condition, Some(loaded));
    stage.pass(4.9);
    assert_eq!(stage.intend(1, &path, Intent::Create), Some(seconds(15)));
    stage.pass(0.1);
    assert_eq!(sent_to(&stage.intend(1, &path, Intent::Create).unwrap()), 7);
}

#[test]
fn a_child_of_an_earlier_run_is_no_newcomer() {
    let mut stage = Stage::new(1);
    let known = member(Some(1));
    stage.machine.await_lessees([known.identity.id.digest()], stage.now);
    let mut newcomer = known.clone();
    newcomer.condition.newcomer = true;
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(newcomer.clone()));
    newcomer.condition.nostage = true;
    follow(&mut stage, ChildChange::Condition, Some(newcomer));
    let path = winner_of_newcomer(&mut stage, &known);
    assert_eq!(sent_to(&stage.intend(1, &path, Intent::Create).unwrap()), 7);
}

#[test]
fn a_newcomer_without_others_gets_files_at_once() {
    let mut stage = Stage::new(0);
    let mut newcomer = member(Some(1));
    newcomer.condition.newcomer = true;
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(newcomer));
    stage.learn("/f", &[]);
    assert_eq!(sent_to(&stage.intend(1, "/f", Intent::Create).unwrap()), 7);
}

#[test]
fn a_creator_waits_until_all_managers_choose_the_newcomer() {
    let mut stage = Stage::with(cell(1), Policy::default(), false);
    stage.machine.engine.settings.hold = Duration::from_secs(30);
    let known = member(Some(1));
    let mut newcomer = known.clone();
    newcomer.condition.newcomer = true;
    follow(&mut stage, ChildChange::Joined { fresh: true }, Some(newcomer));
    let path = winner_of_newcomer(&mut stage, &known);
    follow(&mut stage, ChildChange::Condition, Some(known));
    assert_eq!(stage.intend(1, &path, Intent::Create), None);
    stage.pass(4.9);
    assert_eq!(stage.answered(), []);
    stage.pass(0.1);
    assert_eq!(sent_to(&stage.answer()), 7);
}
