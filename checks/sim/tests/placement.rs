//! No file is ever created at two servers, and the checks detect nodes that break the rules for
//! that.

use sim::own_process::Sabotage;
use sim::placement::{self, PlacementFault};

/// The number of seeds, each with ten histories.
const SEEDS: u64 = 1000;

/// The number of seeds within which a node that breaks the rules is detected.
const SPOILED_SEEDS: u64 = 400;

/// The maximum number of these seeds in which managers that know different servers create a file at
/// the same moment.
const ACCIDENTS_MAX: usize = 4;

/// The number of seeds within which two managers create a file at the same moment at servers that
/// only one of them knows.
const RUSH_SEEDS: u64 = 10_000;

/// Returns the seeds of `SIM_SEEDS`, or all.
fn seeds() -> Vec<u64> {
    let chosen = sim::faults::chosen();
    if chosen.is_empty() { (1..=SEEDS).collect() } else { chosen }
}

#[test]
fn a_file_is_created_once_whoever_comes_late_and_whoever_asks_in_between() {
    let seeds = seeds();
    let outcome = placement::run_all(&seeds, PlacementFault::Suspensions).unwrap();
    println!("{outcome:?}");
    assert!(outcome.repeated > 0 && outcome.missing > 0, "{outcome:?}");
}

#[test]
fn a_file_is_created_once_whoever_loses_a_connection_or_is_restarted_in_between() {
    let seeds = seeds();
    let outcome = placement::run_all(&seeds, PlacementFault::Outages).unwrap();
    println!("{outcome:?}");
    assert!(outcome.repeated > 0 && outcome.missing > 0, "{outcome:?}");
}

#[test]
fn managers_that_learned_of_a_lease_at_different_times_choose_the_same_server_after_it() {
    // One manager receives the report of a lease, at the return of the server, 3 s before its end.
    placement::run(1311, PlacementFault::Outages, None).unwrap();
    // One manager receives the report while it queries all servers.
    placement::run(6578, PlacementFault::Outages, None).unwrap();
}

#[test]
fn a_file_is_created_once_below_supervisors_that_are_lost_or_restarted_in_between() {
    let seeds = seeds();
    let outcome = placement::run_all(&seeds, PlacementFault::Branches).unwrap();
    println!("{outcome:?}");
    assert!(outcome.repeated > 0 && outcome.missing > 0, "{outcome:?}");
}

#[test]
fn a_file_is_created_once_while_new_servers_reach_one_manager_after_the_other() {
    let seeds = seeds();
    let outcome = placement::run_all(&seeds, PlacementFault::Growth).unwrap();
    println!("{outcome:?}");
    assert!(outcome.repeated > 0 && outcome.missing > 0, "{outcome:?}");
}

#[test]
fn managers_that_know_different_servers_leave_only_the_later_lease() {
    // Clients that arrive within one round trip of the managers may create a file twice, about one
    // of 5,000 here. Servers that keep their leases have 20 times as many, see below.
    let wrong = |seed: &u64| placement::run(*seed, PlacementFault::Divergence, None).is_err();
    let wrong: Vec<u64> = (1..=SPOILED_SEEDS).filter(wrong).collect();
    assert!(wrong.len() <= ACCIDENTS_MAX, "{wrong:?}");
}

fn is_second(error: String) -> bool {
    error.contains("was created at")
}

fn noticed(trouble: PlacementFault, sabotage: Sabotage) {
    let is_wrong = |seed: &u64| placement::run(*seed, trouble, Some(sabotage)).is_err_and(is_second);
    let least = if trouble == PlacementFault::Divergence { ACCIDENTS_MAX + 1 } else { 1 };
    let wrong = (1..=SPOILED_SEEDS).filter(is_wrong).take(least).count();
    assert_eq!(wrong, least, "{sabotage:?} went unnoticed");
}

#[test]
fn a_server_that_ignores_the_end_of_its_lease_is_noticed() {
    noticed(PlacementFault::Suspensions, Sabotage::Ignores);
}

#[test]
fn a_server_that_conceals_its_leases_is_noticed() {
    noticed(PlacementFault::Divergence, Sabotage::Conceals);
}

#[test]
fn a_server_that_does_not_end_its_lease_for_a_later_one_is_noticed() {
    noticed(PlacementFault::Divergence, Sabotage::Clings);
}

#[test]
fn a_server_that_takes_files_before_all_managers_know_it_is_noticed() {
    let noticed = |seed| placement::run(seed, PlacementFault::Divergence, None).is_err_and(is_second);
    assert!((1..=RUSH_SEEDS).any(noticed));
}

#[test]
fn a_node_that_forgets_what_an_earlier_run_knew_is_noticed() {
    noticed(PlacementFault::Outages, Sabotage::Forgets);
}

#[test]
fn a_supervisor_that_forgets_what_an_earlier_run_knew_is_noticed() {
    noticed(PlacementFault::Branches, Sabotage::Forgets);
}
