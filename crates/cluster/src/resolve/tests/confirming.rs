//! Tests of confirmed leases: earlier messages of a child do not end its lease.

use super::placement::{create, lose, placed};
use super::*;
use crate::cell::ChildKind;

/// Returns a resolver that has placed `/f`, and the child. The lease is not confirmed.
fn unconfirmed(mut stage: Stage) -> (Stage, u8) {
    stage.confirmed = LeaseNumber(u64::MAX);
    placed(stage)
}

/// Confirms the lease as the child.
fn confirm(stage: &mut Stage) {
    stage.confirmed = LeaseNumber(0);
    stage.confirm();
    stage.actions.clear();
}

/// Returns a cell of three inner nodes.
fn supervisors() -> Stage {
    let mut stage = Stage::new(3);
    (0..3).for_each(|number| stage.change(number, |child| child.kind = ChildKind::Inner));
    stage
}

#[test]
fn messages_of_a_child_before_its_lease_do_not_end_the_lease() {
    for stage in [Stage::new(3), supervisors()] {
        let (mut stage, at) = unconfirmed(stage);
        // One of two queries was answered by an announcement, so replies to both are still to come.
        for _ in 0..2 {
            stage.gone(at, "/f");
            stage.not_here(&[at], "/f");
        }
        assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), at);
        assert_eq!(stage.intend(3, "/f", Intent::Create), None);
        assert_eq!(stage.queried(), mask(&[at]));
        confirm(&mut stage);
        stage.leased_by(at, "/f");
        assert_eq!(stage.answer(), seconds(5));
        stage.gone(at, "/f");
        assert_eq!(stage.intend(4, "/f", Intent::Create), None);
        stage.not_here(&[0, 1, 2], "/f");
        assert_ne!(sent_to(&stage.answer()), at);
    }
}

#[test]
fn a_server_ends_its_lease_by_an_answer_and_an_inner_node_by_gone_alone() {
    let (mut stage, at) = placed(Stage::new(3));
    stage.not_here(&[at], "/f");
    assert!(create(&mut stage, "/f").is_some(), "no lease runs there");
    // A restarted inner node has forgotten that it redirected the client to a real daemon.
    let (mut stage, at) = placed(supervisors());
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    stage.not_here(&[at], "/f");
    assert_eq!(stage.answer(), seconds(5));
    stage.gone(at, "/f");
    assert!(create(&mut stage, "/f").is_some_and(|other| other != at));
}

#[test]
fn the_next_creator_does_not_wait_for_a_lease_that_was_lost_with_its_connection() {
    let (mut stage, at) = unconfirmed(Stage::new(3));
    stage.actions.clear();
    stage.change(at, |child| child.state.connected = false);
    stage.change(at, |child| child.state.connected = true);
    stage.machine.engine.locations.cell_mut().invalidate(slot(at));
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    assert_eq!(stage.queried(), mask(&[at]));
    stage.not_here(&[at], "/f");
    sent_to(&stage.answer());
}

#[test]
fn a_child_that_is_lost_before_it_confirms_its_lease_may_have_it() {
    let (mut stage, at) = unconfirmed(Stage::with(cell(3), Policy::default(), true));
    // This was sent before the lease and arrived after it; then the connection ended.
    stage.gone(at, "/f");
    stage.not_here(&[at], "/f");
    lose(&mut stage, at);
    assert_eq!(create(&mut stage, "/f"), None);
    stage.pass(25.0);
    assert!(create(&mut stage, "/f").is_some());
}

#[test]
fn an_unconfirmed_lease_protects_the_placement_until_its_end() {
    let (mut stage, at) = unconfirmed(Stage::new(3));
    stage.pass(29.0);
    stage.gone(at, "/f");
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), at);
    stage.pass(1.0);
    stage.gone(at, "/f");
    assert!(create(&mut stage, "/f").is_some());
}
