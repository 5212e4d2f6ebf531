//! Tests of the age of a lease: parents that learned of it at different times judge its end in the
//! same way.

use super::placement::{create, left, placed};
use super::*;

/// Returns a manager that learned of the lease of `/f` at child `at` by a report with this time
/// left.
fn manager_with_lease(at: u8, time: Option<Duration>) -> Stage {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[]);
    stage.leased_for(at, "/f", LeaseReport { number: LeaseNumber(1), left: time });
    stage
}

#[test]
fn a_child_that_reconnected_is_chosen_again_after_its_lease_ended_by_itself() {
    let (mut first, at) = placed(Stage::new(3));
    first.pass(27.3);
    // The connection to this manager was cut and made again. Its process may be a new one, too.
    let mut second = manager_with_lease(at, Some(Duration::from_millis(2700)));
    for stage in [&mut first, &mut second] {
        stage.pass(2.7);
        stage.gone(at, "/f");
        assert_eq!(create(stage, "/f"), Some(at));
    }
}

#[test]
fn a_lease_that_is_reported_during_a_query_keeps_its_age_when_the_query_ends() {
    let (_, at) = placed(Stage::new(3));
    let mut stage = Stage::new(3);
    assert!(stage.intend(1, "/f", Intent::Create).is_none(), "all children are queried");
    let lease = LeaseReport { number: LeaseNumber(1), left: Some(Duration::from_millis(26_800)) };
    stage.leased_for(at, "/f", lease);
    stage.not_here(&[(at + 1) % 3, (at + 2) % 3], "/f");
    stage.pass(26.8);
    stage.gone(at, "/f");
    stage.not_here(&[0, 1, 2], "/f");
    assert_eq!(create(&mut stage, "/f"), Some(at), "the lease ended by itself");
}

#[test]
fn a_child_that_ended_its_lease_early_is_avoided_by_a_parent_that_learned_of_it_late() {
    let (mut first, at) = placed(Stage::new(3));
    first.pass(12.0);
    let mut second = manager_with_lease(at, Some(Duration::from_secs(18)));
    // An older node does not report the time.
    let mut third = manager_with_lease(at, None);
    let chosen = [&mut first, &mut second, &mut third].map(|stage| {
        stage.pass(2.0);
        stage.gone(at, "/f");
        create(stage, "/f")
    });
    assert!(chosen[0].is_some_and(|other| other != at));
    assert_eq!(chosen, [chosen[0]; 3]);
}

#[test]
fn a_lease_that_was_extended_is_as_young_for_the_parent_that_granted_it_first() {
    let (mut stage, at) = placed(Stage::new(3));
    stage.pass(20.0);
    // Another manager has chosen the child, too.
    let lease = LeaseReport { number: LeaseNumber(u64::MAX - 1), left: Some(LEASE) };
    stage.leased_for(at, "/f", lease);
    stage.pass(15.0);
    stage.gone(at, "/f");
    assert!(create(&mut stage, "/f").is_some_and(|other| other != at), "the creation failed");
}

#[test]
fn a_report_does_not_change_the_age_of_the_lease_of_another_child() {
    let (mut stage, at) = placed(Stage::new(3));
    stage.have(at, "/f");
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), at);
    // The file exists, so this lease ends; the file is known for as long as before.
    stage.leased_for((at + 1) % 3, "/f", LeaseReport { number: LeaseNumber(1), left: Some(LEASE) });
    stage.gone((at + 1) % 3, "/f");
    assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), at);
}

#[test]
fn an_inner_node_reports_the_time_that_the_lease_of_its_child_has_left() {
    let (mut stage, at) = placed(Stage::with(cell(3), Policy::default(), true));
    let number = stage.machine.lease_report(b"/f", stage.now).unwrap().number;
    stage.pass(27.0);
    assert_eq!(stage.machine.lease_report(b"/f", stage.now), left(number.0, 3));
    assert_eq!(
        stage.machine.running_leases(stage.now),
        [(Arc::from(&b"/f"[..]), left(number.0, 3).unwrap())]
    );
    // The child creates the file beyond the deadline.
    stage.pass(10.0);
    stage.leased_for(at, "/f", left(LeaseNumber::CREATING.0, 0).unwrap());
    assert_eq!(stage.machine.lease_report(b"/f", stage.now), left(LeaseNumber::CREATING.0, 0));
}
