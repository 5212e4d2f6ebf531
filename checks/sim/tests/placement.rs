//! No file is ever created at two servers, and the checks notice when a node breaks the rules for that.

use sim::own::Sabotage;
use sim::placement;

/// Each has ten histories.
const SEEDS: u64 = 1000;

/// Seeds in which it may show that a node breaks the rules.
const SPOILED_SEEDS: u64 = 40;

#[test]
fn a_file_is_created_once_whoever_comes_late_and_whoever_asks_in_between() {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    let outcome = placement::run_all(&seeds).unwrap();
    println!("{outcome:?}");
    assert!(outcome.repeated > 0 && outcome.missing > 0, "{outcome:?}");
}

fn noticed(sabotage: Sabotage) {
    let noticed =
        |seed| placement::run(seed, Some(sabotage)).is_err_and(|error| error.contains("was created at"));
    assert!((1..=SPOILED_SEEDS).any(noticed), "{sabotage:?} went unnoticed");
}

#[test]
fn a_server_that_ignores_the_end_of_its_lease_is_noticed() {
    noticed(Sabotage::Ignores);
}

#[test]
fn a_server_that_conceals_its_leases_is_noticed() {
    noticed(Sabotage::Conceals);
}
