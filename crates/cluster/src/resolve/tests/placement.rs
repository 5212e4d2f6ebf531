//! Which events end the choice of a child for a new file, and the leases that an inner node has from its parents.

use super::*;
use crate::leases::LEASE;

/// A machine that has placed `/f`, and where.
fn placed(stage: Stage) -> (Stage, u8) {
    let mut stage = stage;
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    let children: Vec<u8> = stage.machine.cell().children().map(|(slot, _)| slot.number()).collect();
    stage.not_here(&children, "/f");
    stage.asked();
    let at = sent_to(&stage.answer());
    (stage, at)
}

/// A client that was at `child` in vain asks again.
fn came_back(stage: &mut Stage, intent: Intent, reason: Reason, child: u8) -> Option<Answer> {
    let options = SelectOptions { intent, reason, ..SelectOptions::default() };
    stage.select(2, "/f", options, &format!("server{child}"))
}

#[test]
fn a_child_has_its_lease_before_the_client_is_redirected() {
    let mut stage = Stage::new(3);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.not_here(&[0, 1, 2], "/f");
    let order: Vec<bool> =
        stage.actions.iter().skip(1).map(|action| matches!(action, Action::Lease { .. })).collect();
    assert_eq!(order, [true, false]);
    let leased = stage.leased();
    assert_eq!(leased, [sent_to(&stage.answer())]);
    stage.learn("/g", &[1]);
    stage.intend(2, "/g", Intent::Update).unwrap();
    assert_eq!(stage.leased(), [0; 0], "what exists needs none");
    let (mut stage, _) = placed(Stage::new(2).legacy(&[0, 1]));
    assert_eq!(stage.leased(), [0; 0], "real daemons know none");
}

#[test]
fn replicated_managers_choose_the_same_child_whatever_each_chose_before() {
    let mut one = Stage::new(5);
    let mut other = Stage::new(5);
    for number in 0..7 {
        let path = format!("/other{number}");
        other.learn(&path, &[]);
        other.intend(1, &path, Intent::Create).unwrap();
    }
    let mut chosen = SlotMask::EMPTY;
    for number in 0..60 {
        let path = format!("/f{number}");
        one.learn(&path, &[]);
        other.learn(&path, &[]);
        let to = sent_to(&one.intend(1, &path, Intent::Create).unwrap());
        assert_eq!(sent_to(&other.intend(1, &path, Intent::Create).unwrap()), to);
        chosen.insert(slot(to));
    }
    assert_eq!(chosen.len(), 5, "all get some");
}

#[test]
fn a_reader_that_comes_before_the_creator_does_not_undo_the_choice() {
    for legacy in [&[][..], &[0, 1, 2]] {
        let (mut stage, at) = placed(Stage::new(3).legacy(legacy));
        assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), at);
        assert_eq!(came_back(&mut stage, Intent::Read, Reason::Missing, at), None);
        assert_eq!(stage.asked(), mask(&[at]));
        if legacy.is_empty() {
            stage.leased_by(at, "/f");
        } else {
            // A real server says so, too.
            stage.gone(at, "/f");
            stage.pass(5.0);
        }
        assert_eq!(code(&stage.answer()), 1);
        assert_eq!(stage.intend(3, "/f", Intent::Create), None, "the child is asked once more");
        if legacy.is_empty() {
            stage.leased_by(at, "/f");
        } else {
            stage.pass(5.0);
        }
        assert_eq!(stage.answer(), seconds(5));
        assert_eq!(sent_to(&stage.intend(4, "/f", Intent::Truncate).unwrap()), at);
    }
}

#[test]
fn a_child_ends_its_lease_by_gone_and_not_by_an_answer_that_may_be_older() {
    let (mut stage, at) = placed(Stage::new(3));
    stage.not_here(&[at], "/f");
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), at);
    stage.gone(at, "/f");
    // It may have sent that before the lease came: it is asked once more, and that follows the lease.
    assert_eq!(stage.intend(3, "/f", Intent::Create), None);
    assert!(stage.asked().contains(slot(at)));
    stage.leased_by(at, "/f");
    stage.not_here(&(0..3).filter(|other| *other != at).collect::<Vec<u8>>(), "/f");
    assert_eq!(stage.answer(), seconds(5));
    assert_eq!(stage.intend(4, "/f", Intent::Create), None);
    assert_eq!(stage.asked(), mask(&[at]));
    // As a child does whose lease has ended. Whoever waits is answered when all were asked once more.
    stage.gone(at, "/f");
    stage.not_here(&[at], "/f");
    assert_eq!(stage.answered(), []);
    stage.not_here(&[0, 1, 2], "/f");
    assert_eq!(sent_to(&stage.answer()), at, "the choice does not depend on what was");
}

#[test]
fn a_creator_whose_server_failed_gets_another_when_that_has_nothing() {
    // Our own server ends the lease when a creation fails.
    let (mut stage, at) = placed(Stage::new(3));
    stage.gone(at, "/f");
    assert_eq!(came_back(&mut stage, Intent::Create, Reason::Server, at), None);
    stage.not_here(&[0, 1, 2], "/f");
    assert_ne!(sent_to(&stage.answer()), at);
    // One that the client cannot reach is told to, whatever reason the client gives.
    for reason in [Reason::Server, Reason::Missing] {
        let (mut stage, at) = placed(Stage::new(3));
        assert_eq!(came_back(&mut stage, Intent::Truncate, reason, at), None);
        let ends = |action: &Action| matches!(action, Action::Lease { time: Duration::ZERO, .. });
        assert!(stage.actions.iter().any(ends));
        assert_eq!(stage.asked(), mask(&[at]));
        stage.gone(at, "/f");
        stage.not_here(&[0, 1, 2], "/f");
        assert_ne!(sent_to(&stage.answer()), at);
    }
    // From a real one the client itself is all that is heard.
    let (mut stage, at) = placed(Stage::new(3).legacy(&[0, 1, 2]));
    assert_eq!(came_back(&mut stage, Intent::Create, Reason::Server, at), None);
    assert_eq!(stage.asked(), mask(&[at]));
    stage.pass(5.0);
    assert_ne!(sent_to(&stage.answer()), at);
}

#[test]
fn at_a_real_daemon_a_choice_stands_as_long_as_a_client_can_take() {
    let (mut stage, at) = placed(Stage::new(3).legacy(&[0, 1, 2]));
    stage.gone(at, "/f");
    stage.pass(110.0);
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    assert_eq!(stage.asked(), mask(&[at]));
    stage.pass(5.0);
    assert_eq!(stage.answer(), seconds(5));
    stage.pass(6.0);
    assert_eq!(stage.intend(3, "/f", Intent::Create), None, "the time is over");
    stage.pass(5.0);
    sent_to(&stage.answer());
}

#[test]
fn a_creator_who_did_not_hear_where_to_go_may_ask_again() {
    let (mut stage, at) = placed(Stage::new(3));
    for _ in 0..2 {
        // Its connection broke, or its redirector gave up, before the answer came.
        assert_eq!(stage.intend(1, "/f", Intent::Create), None);
        stage.leased_by(at, "/f");
        assert_eq!(stage.answer(), seconds(5));
        stage.pass(5.0);
    }
    stage.gone(at, "/f");
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.not_here(&[0, 1, 2], "/f");
    sent_to(&stage.answer());
}

/// An inner node; its parent asks.
fn state(stage: &mut Stage) -> Option<StateReply> {
    let Stage { machine, now, actions } = stage;
    machine.state(Token(9), b"/f", StateAsk::default(), *now, actions)
}

#[test]
fn an_inner_node_reports_the_lease_of_its_parent_until_a_child_has_it() {
    let mut stage = Stage::with(cell(2), Policy::default(), true);
    stage.machine.lease(b"/f", LEASE, stage.now);
    assert_eq!(state(&mut stage), Some(StateReply::Have { pending: true }));
    assert!(stage.machine.is_leased(b"/f", stage.now));
    assert_eq!(stage.asked(), SlotMask::EMPTY);
    let (mut stage, at) = placed(stage);
    assert_eq!(stage.leased(), [at]);
    assert_eq!(state(&mut stage), Some(StateReply::Have { pending: true }));
    assert!(stage.machine.is_leased(b"/f", stage.now));
    stage.pass(31.0);
    assert_eq!(stage.actions, [], "the child says when its lease ends");
    stage.gone(at, "/f");
    assert_eq!(stage.actions, [Action::Retract { path: Arc::from(&b"/f"[..]) }]);
}

#[test]
fn an_inner_node_sends_a_creator_back_that_comes_too_late() {
    let mut stage = Stage::with(cell(2), Policy::default(), true);
    stage.machine.lease(b"/f", LEASE, stage.now);
    stage.pass(30.0);
    assert_eq!(stage.actions, [Action::Retract { path: Arc::from(&b"/f"[..]) }]);
    assert!(stage.machine.has_lease_ended(b"/f"));
    stage.actions.clear();
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.not_here(&[0, 1], "/f");
    assert_eq!(code(&stage.answer()), 13);
    assert_eq!(stage.leased(), [0; 0]);
    // The parent has chosen it once more.
    stage.machine.lease(b"/f", LEASE, stage.now);
    sent_to(&stage.intend(1, "/f", Intent::Create).unwrap());
}
