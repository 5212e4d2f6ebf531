//! Tests of an inner node after a restart or while it waits for a child: parents get only certain
//! answers.

use super::placement::{create, placed, state};
use super::*;
use crate::leases::EXPECTED_FOR;
use crate::tree::ChildChange;

const LEASED: Option<StateReply> = Some(StateReply::Have { pending: true });

/// Returns a supervisor of these servers.
fn supervisor(servers: u8) -> Stage {
    let mut stage = Stage::with(cell(servers), Policy::default(), true);
    stage.machine.engine.settings.supervises = true;
    stage
}

/// Returns a supervisor after a restart that had three children.
fn restarted(servers: u8) -> Stage {
    let recorded = supervisor(3).machine.lessees();
    let mut stage = supervisor(servers);
    stage.machine.await_lessees(recorded, stage.now);
    stage.machine.recover_leases(EXPECTED_FOR, stage.now);
    stage
}

fn join(stage: &mut Stage, number: u8) {
    let (now, exports) = (stage.now, ChildExport::parse_list(b"w /").unwrap());
    stage.machine.join(slot(number), server(number), &exports, now, &mut stage.actions);
    stage.machine.found_below(&[server(number).id]);
}

#[test]
fn after_a_restart_no_file_is_missing_until_all_children_reconnect_or_their_leases_end() {
    for is_back in [true, false] {
        let mut stage = restarted(2);
        stage.learn("/f", &[]);
        stage.learn("/old", &[1]);
        assert_eq!(state(&mut stage), None);
        assert_eq!(sent_to(&stage.read(1, "/old").unwrap()), 1, "what exists is served");
        stage.pass(29.0);
        assert_eq!(state(&mut stage), None);
        if is_back {
            join(&mut stage, 2);
            assert_eq!(stage.queried(), SlotMask::EMPTY);
            assert_eq!(state(&mut stage), None);
            assert_eq!(stage.queried(), mask(&[2]));
            stage.not_here(&[2], "/f");
        } else {
            stage.pass(1.0);
        }
        assert_eq!(state(&mut stage), Some(StateReply::NotHere));
        assert!(stage.machine.has_lease_ended(b"/f", stage.now), "no lease of the earlier run is left");
        stage.pass(100.0);
        assert!(!stage.machine.has_lease_ended(b"/f", stage.now));
    }
}

#[test]
fn a_supervisor_without_children_waits_for_those_of_the_earlier_run() {
    let spare = |recorded: &Stage| {
        let mut stage = Stage::with(Cell::new(&[]), Policy::default(), true);
        stage.machine.engine.settings.supervises = true;
        stage.machine.set_quorum(false);
        stage.machine.await_lessees(recorded.machine.lessees(), stage.now);
        stage.pass(0.0);
        stage
    };
    let mut stage = spare(&supervisor(2));
    stage.pass(6.0);
    assert_eq!(state(&mut stage), None);
    stage.machine.found_below(&[server(0).id, server(1).id]);
    assert_eq!(state(&mut stage), Some(StateReply::NotHere), "they have places below other nodes");
    let mut stage = spare(&supervisor(0));
    stage.pass(6.0);
    assert_eq!(state(&mut stage), Some(StateReply::NotHere), "a spare one holds up nobody");
}

#[test]
fn a_creator_with_a_lease_of_the_earlier_run_is_sent_back() {
    let mut stage = restarted(3);
    assert_eq!(create_at(&mut stage), seconds(1), "its lease may follow");
    assert_eq!(code(&create_at(&mut stage)), 13);
    stage.lease("/f", LEASE, 1);
    assert_eq!(state(&mut stage), LEASED);
    sent_to(&create_at(&mut stage));
}

#[test]
fn a_creator_of_a_parent_without_leases_is_served_after_a_restart() {
    let mut stage = restarted(3);
    stage.machine.set_plain_parent(true);
    sent_to(&create_at(&mut stage));
}

fn create_at(stage: &mut Stage) -> ClusterAnswer {
    stage.intend(3, "/f", Intent::Create).unwrap_or_else(|| {
        stage.not_here(&[0, 1, 2], "/f");
        stage.answer()
    })
}

#[test]
fn a_lease_is_not_reported_as_ended_to_a_parent_that_asked_before_it_came() {
    let mut stage = restarted(3);
    assert_eq!(state(&mut stage), None);
    stage.lease("/f", LEASE, 1);
    stage.not_here(&[0, 1, 2], "/f");
    let replies: Vec<_> = stage
        .actions
        .iter()
        .filter_map(|action| match action {
            ResolverAction::Reply { reply, .. } => Some(*reply),
            _ => None,
        })
        .collect();
    assert_eq!(replies, [StateReply::Have { pending: true }]);
    assert!(!stage.machine.has_lease_ended(b"/f", stage.now));
}

#[test]
fn after_a_restart_a_real_daemon_below_may_still_have_a_client() {
    // It creates the file however late that client arrives, so the parent must not place the file
    // elsewhere.
    let mut stage = restarted(3).legacy(&[2]);
    assert!(!stage.machine.has_lease_ended(b"/f", stage.now));
    stage.machine.leave(slot(2), stage.now, &mut stage.actions);
    assert!(stage.machine.has_lease_ended(b"/f", stage.now));
    assert_eq!(supervisor(3).legacy(&[2]).machine.lessees().len(), 3, "it is waited for, too");
    assert_eq!(Stage::new(3).legacy(&[2]).machine.lessees().len(), 2);
}

#[test]
fn a_lease_of_a_lost_child_does_not_end_by_order_of_a_parent_which_is_told_so_once() {
    let (mut stage, at) = placed(supervisor(3));
    let Stage { machine, now, actions, .. } = &mut stage;
    machine.follow(slot(at), ChildChange::Lost, None, Vec::new(), *now, actions);
    stage.actions.clear();
    stage.lease("/f", Duration::ZERO, u64::MAX);
    assert_eq!(stage.actions, [ResolverAction::Announce { path: Arc::from(&b"/f"[..]), pending: true }]);
    assert_eq!(state(&mut stage), LEASED);
    // Each of two parents repeats its order for each of the announcements, which go to both.
    stage.actions.clear();
    stage.lease("/f", Duration::ZERO, u64::MAX);
    assert_eq!(stage.actions, []);
}

#[test]
fn a_client_without_a_lease_creates_nothing_while_a_lost_child_may_have_the_file() {
    let mut stage = supervisor(3);
    let winner = create(&mut Stage::new(3), "/f").unwrap();
    let other = (winner + 1) % 3;
    stage.learn("/f", &[]);
    let Stage { machine, now, actions, .. } = &mut stage;
    machine.follow(slot(other), ChildChange::Lost, None, Vec::new(), *now, actions);
    stage.pass(6.0);
    assert_eq!(stage.intend(1, "/f", Intent::Create), Some(seconds(15)));
    // A parent grants leases only for files without a holder.
    stage.lease("/f", LEASE, 1);
    assert_eq!(sent_to(&stage.intend(1, "/f", Intent::Create).unwrap()), winner);
}
