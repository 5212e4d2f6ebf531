//! Tests of the end of a placement, and of the leases that an inner node has from its parents.

use super::*;
use crate::cell::ChildKind;
use crate::tree::ChildChange;

/// Returns a resolver that has placed `/f`, and the child.
pub(super) fn placed(stage: Stage) -> (Stage, u8) {
    let mut stage = stage;
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    let children: Vec<u8> = stage.machine.cell().children().map(|(slot, _)| slot.number()).collect();
    stage.not_here(&children, "/f");
    stage.queried();
    let at = sent_to(&stage.answer());
    (stage, at)
}

/// Returns a report of a lease with so many seconds left.
pub(super) fn left(number: u64, seconds: u64) -> Option<LeaseReport> {
    Some(LeaseReport { number: LeaseNumber(number), left: Some(Duration::from_secs(seconds)) })
}

/// A client that was at `child` in vain asks again.
fn came_back(stage: &mut Stage, intent: Intent, reason: RetryReason, child: u8) -> Option<ClusterAnswer> {
    let options = SelectOptions { intent, reason, ..SelectOptions::default() };
    stage.select(2, "/f", options, &format!("server{child}"))
}

#[test]
fn a_child_has_its_lease_before_the_client_is_redirected() {
    let mut stage = Stage::new(3);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.not_here(&[0, 1, 2], "/f");
    let order: Vec<bool> =
        stage.actions.iter().skip(1).map(|action| matches!(action, ResolverAction::Lease { .. })).collect();
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
fn a_reader_before_the_creator_does_not_end_the_placement() {
    for legacy in [&[][..], &[0, 1, 2]] {
        let (mut stage, at) = placed(Stage::new(3).legacy(legacy));
        assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), at);
        assert_eq!(came_back(&mut stage, Intent::Read, RetryReason::Missing, at), None);
        assert_eq!(stage.queried(), mask(&[at]));
        if legacy.is_empty() {
            stage.leased_by(at, "/f");
        } else {
            // A real server reports this, too.
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

/// Returns another child than the one of the placement, and the number of the lease of the latter.
fn rival(stage: &mut Stage, at: u8) -> (u8, u64) {
    let number = stage.actions.iter().find_map(|action| match action {
        ResolverAction::Lease { number, .. } => Some(number.0),
        _ => None,
    });
    stage.actions.clear();
    ((at + 1) % 3, number.unwrap())
}

#[test]
fn of_two_children_with_a_lease_the_earlier_one_ends_it() {
    let (mut stage, at) = placed(Stage::new(3));
    let (rival, number) = rival(&mut stage, at);
    // Another manager, which did not know this child, has chosen that one.
    let later = LeaseNumber(number + 1);
    stage.leased_as(rival, "/f", later);
    assert_eq!(stage.ended(), [(at, later)]);
    assert_eq!(stage.intend(2, "/f", Intent::Create), None, "both are asked");
    assert_eq!(stage.queried(), mask(&[at, rival]));
    stage.gone(at, "/f");
    stage.leased_as(rival, "/f", later);
    assert_eq!(stage.ended(), []);
    assert_eq!(stage.answer(), seconds(5));
    assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), rival);
}

#[test]
fn a_child_that_keeps_its_lease_ends_the_other_one() {
    let (mut stage, at) = placed(Stage::new(3));
    let (rival, number) = rival(&mut stage, at);
    stage.leased_as(rival, "/f", LeaseNumber(number - 1));
    assert_eq!(stage.ended(), [(at, LeaseNumber(number - 1))]);
    stage.leased_as(at, "/f", LeaseNumber(number));
    assert_eq!(stage.ended(), [(rival, LeaseNumber(number))]);
    stage.gone(rival, "/f");
    assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), at);
}

#[test]
fn the_report_of_a_lease_may_arrive_before_the_end_of_its_predecessor() {
    let (mut stage, at) = placed(Stage::new(3));
    let (successor, number) = rival(&mut stage, at);
    stage.leased_as(successor, "/f", LeaseNumber(number + 1));
    stage.ended();
    // The child sends it at the end of the lease, and once more for the order to end it.
    for _ in 0..2 {
        stage.gone(at, "/f");
        assert_eq!(stage.ended(), [], "the successor is valid");
        assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), successor);
    }
}

#[test]
fn a_file_that_exists_ends_the_leases_of_other_children() {
    let (mut stage, at) = placed(Stage::new(3));
    let (rival, _) = rival(&mut stage, at);
    stage.have(rival, "/f");
    assert_eq!(stage.ended(), [(at, LeaseNumber::CREATING)]);
    let mut stage = Stage::new(3);
    stage.learn("/f", &[0]);
    stage.leased_as(1, "/f", LeaseNumber(9));
    assert_eq!(stage.ended(), [(1, LeaseNumber::CREATING)]);
    // An absent child may have lost it.
    stage.learn("/g", &[0]);
    stage.change(0, |child| child.state.connected = false);
    stage.leased_as(1, "/g", LeaseNumber(9));
    assert_eq!(stage.ended(), []);
}

#[test]
fn a_child_that_ended_its_lease_without_a_file_is_avoided_for_a_while() {
    let (mut stage, at) = placed(Stage::new(3));
    // Its disk is read-only, for example.
    stage.gone(at, "/f");
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    stage.not_here(&[0, 1, 2], "/f");
    let second = sent_to(&stage.answer());
    assert_ne!(second, at);
    stage.gone(second, "/f");
    stage.not_here(&[0, 1, 2], "/f");
    stage.pass(301.0);
    let again = match stage.intend(3, "/f", Intent::Create) {
        Some(answer) => answer,
        None => {
            stage.not_here(&[0, 1, 2], "/f");
            stage.answer()
        }
    };
    assert_eq!(sent_to(&again), at, "the choice does not depend on what was long ago");
    // It is the fallback if there is no other.
    let (mut stage, at) = placed(Stage::new(1));
    stage.gone(at, "/f");
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    stage.not_here(&[0], "/f");
    assert_eq!(sent_to(&stage.answer()), at);
}

/// Loses the child in this slot without keeping its place, as in a supervisor.
pub(super) fn lose(stage: &mut Stage, number: u8) {
    let Stage { machine, now, actions, .. } = stage;
    machine.follow(slot(number), ChildChange::Lost, None, Vec::new(), *now, actions);
    // The waits for other reasons are shorter than the leases.
    stage.pass(6.0);
}

/// Creates this path, and returns the child, or `None` if the creator waits.
pub(super) fn create(stage: &mut Stage, path: &str) -> Option<u8> {
    let answer = stage.intend(3, path, Intent::Create).unwrap_or_else(|| {
        let children: Vec<u8> = stage.machine.cell().children().map(|(slot, _)| slot.number()).collect();
        stage.not_here(&children, path);
        stage.answer()
    });
    (answer != seconds(15)).then(|| sent_to(&answer))
}

#[test]
fn a_creator_waits_for_a_lost_child_that_may_have_the_lease_until_it_is_over() {
    let (mut stage, at) = placed(Stage::with(cell(3), Policy::default(), true));
    let paths: Vec<String> = (0..40).map(|number| format!("/g{number}")).collect();
    let mut other = Stage::new(3);
    let winners: Vec<u8> = paths.iter().map(|path| create(&mut other, path).unwrap()).collect();
    lose(&mut stage, at);
    assert_eq!(state(&mut stage), Some(StateReply::Have { pending: true }), "another parent waits, too");
    assert!(stage.machine.lease_report(b"/f", stage.now).is_some());
    assert_eq!(create(&mut stage, "/f"), None);
    for (path, winner) in paths.iter().zip(&winners) {
        // Files that it would not have received are created, because the parent had the reply of
        // the lost child, too.
        stage.lease(path, LEASE, 1);
        assert_eq!(create(&mut stage, path), (*winner != at).then_some(*winner), "{path}");
    }
    stage.pass(25.0);
    assert!(create(&mut stage, "/f").is_some_and(|other| other != at));
}

#[test]
fn a_lost_child_with_another_fitness_keeps_the_files_that_were_placed_at_it() {
    // Other children were out of service when the file was placed.
    let mut stage = Stage::with(cell(3), Policy::default(), true);
    let winner = create(&mut Stage::new(3), "/f").unwrap();
    stage.change(winner, |child| child.state.suspended = true);
    let (mut stage, at) = placed(stage);
    assert_ne!(at, winner);
    stage.change(winner, |child| child.state.suspended = false);
    lose(&mut stage, at);
    assert_eq!(create(&mut stage, "/f"), None);
}

#[test]
fn a_lost_child_that_reconnects_is_queried() {
    let (mut stage, at) = placed(Stage::with(cell(3), Policy::default(), true));
    lose(&mut stage, at);
    let (now, exports) = (stage.now, ChildExport::parse_list(b"w /").unwrap());
    stage.machine.join(slot(9), server(at), &exports, now, &mut stage.actions);
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    assert_eq!(stage.queried(), slot(9).mask());
    stage.leased_by(9, "/f");
    assert_eq!(stage.answer(), seconds(5));
    stage.lease("/g", LEASE, 1);
    assert!(create(&mut stage, "/g").is_some());
}

#[test]
fn after_a_restart_new_files_wait_for_the_children_of_the_earlier_run() {
    let stage = Stage::new(3);
    let recorded = stage.machine.lessees();
    assert_eq!(recorded.len(), 3);
    let mut stage = Stage::new(2);
    stage.machine.await_lessees(recorded.clone(), stage.now);
    stage.machine.await_lessees([], stage.now);
    assert_eq!(stage.machine.lessees(), recorded, "it may be restarted once more");
    stage.learn("/old", &[0]);
    assert_eq!(create(&mut stage, "/f"), None);
    assert_eq!(sent_to(&stage.read(1, "/old").unwrap()), 0, "what exists is served");
    let (now, exports) = (stage.now, ChildExport::parse_list(b"w /").unwrap());
    stage.machine.join(slot(2), server(2), &exports, now, &mut stage.actions);
    assert!(create(&mut stage, "/f").is_some());
    let mut stage = Stage::new(2);
    stage.machine.await_lessees(recorded, stage.now);
    stage.pass(29.0);
    assert_eq!(create(&mut stage, "/f"), None);
    stage.pass(1.0);
    assert!(create(&mut stage, "/f").is_some());
}

#[test]
fn requests_do_not_wait_for_a_child_that_joined_below() {
    let recorded = Stage::new(3).machine.lessees();
    let mut stage = Stage::new(2);
    stage.machine.await_lessees(recorded, stage.now);
    assert!(!stage.machine.found_below(&[server(0).id, 99]), "it is here, or was never waited for");
    assert_eq!(create(&mut stage, "/f"), None);
    assert!(stage.machine.found_below(&[99, server(2).id]));
    assert_eq!(
        stage.machine.lessees(),
        [server(0).id, server(1).id].into(),
        "the next run does not wait, either"
    );
    assert!(create(&mut stage, "/f").is_some());
    // The same for a child that was lost with a lease.
    let (mut stage, at) = placed(Stage::with(cell(3), Policy::default(), true));
    lose(&mut stage, at);
    assert_eq!(create(&mut stage, "/f"), None);
    assert!(stage.machine.found_below(&[server(at).id]));
    // The supervisor that accepted it is queried for the file, and answers for the lease.
    let (now, exports) = (stage.now, ChildExport::parse_list(b"w /").unwrap());
    let supervisor = CellChild { kind: ChildKind::Inner, ..server(9) };
    stage.machine.join(slot(9), supervisor, &exports, now, &mut stage.actions);
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    stage.leased_by(9, "/f");
    assert_eq!(stage.answer(), seconds(5));
}

/// Redirects the child in this slot to a cell below, to make way for a supervisor.
fn displace(stage: &mut Stage, number: u8) {
    let Stage { machine, now, actions, .. } = stage;
    machine.follow(slot(number), ChildChange::Freed, None, Vec::new(), *now, actions);
    let exports = ChildExport::parse_list(b"w /").unwrap();
    let supervisor = CellChild { kind: ChildKind::Inner, digest: 77, id: 77, ..server(9) };
    machine.join(slot(number), supervisor, &exports, *now, actions);
}

#[test]
fn a_child_that_was_sent_to_another_cell_keeps_its_files_and_leases_on_the_way() {
    let (mut stage, at) = placed(Stage::new(3));
    stage.learn("/old", &[at]);
    displace(&mut stage, at);
    assert_eq!(stage.read(1, "/old"), None);
    stage.not_here(&[0, 1, 2], "/old");
    assert_eq!(stage.answer(), seconds(15), "it may be on the way");
    // This holds even if the newcomer fits better than all others.
    let paths: Vec<String> = (0..40).map(|number| format!("/g{number}")).collect();
    stage.pass(6.0);
    let mut other = Stage::new(3);
    let (its_own, others): (Vec<_>, Vec<_>) =
        paths.iter().partition(|path| create(&mut other, path) == Some(at));
    assert!(its_own.iter().all(|path| create(&mut stage, path).is_none()));
    assert!(others.iter().all(|path| create(&mut stage, path).is_some()));
    assert!(stage.machine.found_below(&[server(at).id]));
    assert!(its_own.iter().all(|path| create(&mut stage, path).is_some()));
    // Requests wait for files until it has arrived, but only briefly.
    let mut stage = Stage::new(3);
    displace(&mut stage, 1);
    assert_eq!(stage.read(1, "/old"), None);
    stage.not_here(&[0, 1, 2], "/old");
    assert_eq!(stage.answer(), seconds(15));
    assert!(stage.machine.found_below(&[server(1).id]));
    assert_eq!(stage.read(1, "/old").map(|answer| code(&answer)), Some(ErrorCode::NO_ENTRY.0));
}

#[test]
fn a_creator_waits_for_a_child_that_is_expected_back_although_it_did_not_have_the_file() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[]);
    // Another manager, which still reaches it, may send a creator there.
    stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
    assert_eq!(create(&mut stage, "/f"), None);
    stage.change(1, |child| child.state.expected = false);
    assert!(create(&mut stage, "/f").is_some());
}

#[test]
fn a_creator_whose_server_failed_gets_another_when_that_has_nothing() {
    // Our own server ends the lease when a creation fails.
    let (mut stage, at) = placed(Stage::new(3));
    stage.gone(at, "/f");
    assert_eq!(came_back(&mut stage, Intent::Create, RetryReason::Server, at), None);
    stage.not_here(&[0, 1, 2], "/f");
    assert_ne!(sent_to(&stage.answer()), at);
    // A child that the client cannot reach is ordered to, whatever reason the client gives.
    for reason in [RetryReason::Server, RetryReason::Missing] {
        let (mut stage, at) = placed(Stage::new(3));
        assert_eq!(came_back(&mut stage, Intent::Truncate, reason, at), None);
        let ends =
            |action: &ResolverAction| matches!(action, ResolverAction::Lease { time: Duration::ZERO, .. });
        assert!(stage.actions.iter().any(ends));
        assert_eq!(stage.queried(), mask(&[at]));
        stage.gone(at, "/f");
        stage.not_here(&[0, 1, 2], "/f");
        assert_ne!(sent_to(&stage.answer()), at);
    }
    // For a real one the client is the only source.
    let (mut stage, at) = placed(Stage::new(3).legacy(&[0, 1, 2]));
    assert_eq!(came_back(&mut stage, Intent::Create, RetryReason::Server, at), None);
    assert_eq!(stage.queried(), mask(&[at]));
    stage.pass(5.0);
    assert_ne!(sent_to(&stage.answer()), at);
}

#[test]
fn at_a_real_daemon_a_choice_stands_as_long_as_a_client_can_take() {
    let (mut stage, at) = placed(Stage::new(3).legacy(&[0, 1, 2]));
    stage.gone(at, "/f");
    stage.pass(110.0);
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    assert_eq!(stage.queried(), mask(&[at]));
    stage.pass(5.0);
    assert_eq!(stage.answer(), seconds(5));
    stage.pass(6.0);
    assert_eq!(stage.intend(3, "/f", Intent::Create), None, "the time is over");
    stage.pass(5.0);
    sent_to(&stage.answer());
}

#[test]
fn a_creator_without_an_answer_may_ask_again() {
    let (mut stage, at) = placed(Stage::new(3));
    for _ in 0..2 {
        // Its connection broke, or its redirector gave up, before the answer arrived.
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

/// Queries an inner node as its parent.
pub(super) fn state(stage: &mut Stage) -> Option<StateReply> {
    let Stage { machine, now, actions, .. } = stage;
    machine.state(RequestToken(9), b"/f", StateAsk::default(), *now, actions)
}

#[test]
fn an_inner_node_reports_the_lease_of_its_parent_until_a_child_has_it() {
    let mut stage = Stage::with(cell(2), Policy::default(), true);
    stage.lease("/f", LEASE, 1);
    assert_eq!(state(&mut stage), Some(StateReply::Have { pending: true }));
    assert!(stage.machine.lease_report(b"/f", stage.now).is_some());
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    let (mut stage, at) = placed(stage);
    assert_eq!(stage.leased(), [at]);
    assert_eq!(state(&mut stage), Some(StateReply::Have { pending: true }));
    assert!(stage.machine.lease_report(b"/f", stage.now).is_some());
    stage.pass(31.0);
    assert_eq!(stage.actions, [], "the child says when its lease ends");
    stage.gone(at, "/f");
    assert_eq!(stage.actions, [ResolverAction::Retract { path: Arc::from(&b"/f"[..]) }]);
}

#[test]
fn an_inner_node_forwards_the_end_of_a_lease_and_reports_a_lease_that_stays() {
    let announced = [ResolverAction::Announce { path: Arc::from(&b"/f"[..]), pending: true }];
    let mut stage = Stage::with(cell(3), Policy::default(), true);
    stage.lease("/f", LEASE, 7);
    stage.lease("/f", Duration::ZERO, 6);
    assert_eq!(stage.actions, announced);
    assert_eq!(stage.machine.lease_report(b"/f", stage.now), left(7, 30));
    stage.actions.clear();
    let (mut stage, at) = placed(stage);
    let (_, number) = rival(&mut stage, at);
    assert!(number > 7, "the child has a later one");
    assert_eq!(stage.machine.lease_report(b"/f", stage.now), left(number, 30));
    assert_eq!(stage.machine.running_leases(stage.now), [(Arc::from(&b"/f"[..]), left(number, 30).unwrap())]);
    stage.lease("/f", Duration::ZERO, number - 1);
    assert_eq!(stage.ended(), [(at, LeaseNumber(number - 1))]);
    stage.leased_as(at, "/f", LeaseNumber(number));
    assert_eq!(stage.actions, announced);
    stage.actions.clear();
    stage.lease("/f", Duration::ZERO, number + 1);
    assert_eq!(stage.ended(), [(at, LeaseNumber(number + 1))]);
    stage.gone(at, "/f");
    assert_eq!(stage.actions, [ResolverAction::Retract { path: Arc::from(&b"/f"[..]) }]);
    assert_eq!(stage.machine.running_leases(stage.now), []);
}

#[test]
fn a_supervisor_sends_creators_back_once_it_has_reported_the_end_of_the_lease_of_its_child() {
    let mut stage = Stage::with(cell(2), Policy::default(), true);
    stage.machine.engine.settings.supervises = true;
    stage.lease("/f", LEASE, 1);
    let (mut stage, at) = placed(stage);
    stage.actions.clear();
    // The client did not arrive at the child.
    stage.gone(at, "/f");
    assert_eq!(stage.actions, [ResolverAction::Retract { path: Arc::from(&b"/f"[..]) }]);
    stage.actions.clear();
    // Another client, which a parent sent here for the same lease, arrives late: the file may have
    // been created elsewhere.
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    stage.not_here(&[0, 1], "/f");
    assert_eq!(stage.answer(), seconds(1));
    assert_eq!(code(&stage.intend(2, "/f", Intent::Create).unwrap()), 13);
    stage.ended();
    assert_eq!(stage.leased(), [0; 0]);
    stage.lease("/f", LEASE, 2);
    sent_to(&stage.intend(2, "/f", Intent::Create).unwrap());
}

#[test]
fn an_inner_node_sends_a_creator_back_that_comes_too_late() {
    let mut stage = Stage::with(cell(2), Policy::default(), true);
    stage.lease("/f", LEASE, 1);
    stage.pass(30.0);
    assert_eq!(stage.actions, [ResolverAction::Retract { path: Arc::from(&b"/f"[..]) }]);
    assert!(stage.machine.has_lease_ended(b"/f", stage.now));
    stage.actions.clear();
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.not_here(&[0, 1], "/f");
    assert_eq!(stage.answer(), seconds(1), "its lease may follow");
    assert_eq!(code(&stage.intend(1, "/f", Intent::Create).unwrap()), 13);
    assert_eq!(stage.leased(), [0; 0]);
    // The parent has chosen it once more.
    stage.lease("/f", LEASE, 1);
    sent_to(&stage.intend(1, "/f", Intent::Create).unwrap());
}
