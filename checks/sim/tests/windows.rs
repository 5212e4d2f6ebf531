//! Locations that expire or are evicted mislead readers no longer than documented, and the checks
//! detect nodes that break the rules.

use sim::own_process::Sabotage;
use sim::windows;

/// The number of seeds of an ordinary run; `make sim` runs more.
const SEEDS: u64 = 100;

/// The number of seeds within which a node that breaks the rules is detected.
const SPOILED_SEEDS: u64 = 100;

#[test]
fn no_reader_is_misled_by_locations_that_expired_or_were_evicted() {
    let chosen = sim::faults::chosen();
    let is_whole = chosen.is_empty();
    let seeds = if is_whole { (1..=SEEDS).collect() } else { chosen };
    let outcome = windows::run_all(&seeds).unwrap();
    println!("{outcome:?}");
    let has_all = outcome.expired > 0 && outcome.evicted > 0 && outcome.found > 0 && outcome.missing > 0;
    assert!(!is_whole || has_all, "{outcome:?}");
}

fn noticed(sabotage: Sabotage, words: &str) {
    let is_noticed = |seed| windows::run(seed, Some(sabotage)).is_err_and(|error| error.contains(words));
    assert!((1..=SPOILED_SEEDS).any(is_noticed), "{sabotage:?} went unnoticed");
}

#[test]
fn a_location_that_does_not_end_with_its_window_is_noticed() {
    noticed(Sabotage::Hoards, "reports that it is missing");
}

#[test]
fn a_supervisor_that_does_not_report_removed_files_is_noticed() {
    noticed(Sabotage::Retains, "where it is gone");
}

#[test]
fn a_supervisor_that_does_not_report_new_files_is_noticed() {
    noticed(Sabotage::Withholds, "reports that it is missing");
}
