//! Orders without permission change no name and have no side effects, and the checks detect nodes
//! that break the rules.

use sim::orders;
use sim::own_process::Sabotage;

/// The number of seeds of an ordinary run; `make sim` runs more.
const SEEDS: u64 = 200;

/// The number of seeds within which a node that breaks the rules is detected.
const SPOILED_SEEDS: u64 = 50;

#[test]
fn an_order_without_permission_changes_no_name_and_disturbs_nobody() {
    let chosen = sim::faults::chosen();
    let is_whole = chosen.is_empty();
    let seeds = if is_whole { (1..=SEEDS).collect() } else { chosen };
    let outcome = orders::run_all(&seeds).unwrap();
    println!("{outcome:?}");
    assert!(!is_whole || outcome.refused > 0 && outcome.done > 0 && outcome.forgotten > 0, "{outcome:?}");
}

fn noticed(sabotage: Sabotage, words: &str) {
    let is_noticed = |seed| orders::run(seed, Some(sabotage)).is_err_and(|error| error.contains(words));
    assert!((1..=SPOILED_SEEDS).any(is_noticed), "{sabotage:?} went unnoticed");
}

#[test]
fn a_manager_that_carries_out_every_order_is_noticed() {
    noticed(Sabotage::Obeys, "a name changed");
}

#[test]
fn a_manager_that_forgets_a_location_for_a_refused_order_is_noticed() {
    noticed(Sabotage::Heeds, "the next readers caused");
}
