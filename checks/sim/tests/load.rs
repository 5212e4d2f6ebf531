//! Crowds and greedy clients: the cost of an event and the queues are bounded, and the checks
//! detect nodes that break the rules.

use sim::own_process::Sabotage;
use sim::sim_rng::SimRng;
use sim::{queues, request_crowds};

/// The number of seeds of an ordinary run; `make sim` runs more.
const SEEDS: u64 = 60;

/// The number of seeds within which a node that breaks the rules is detected.
const SPOILED_SEEDS: u64 = 40;

fn seeds() -> (bool, Vec<u64>) {
    let chosen = sim::faults::chosen();
    if chosen.is_empty() { (true, (1..=SEEDS).collect()) } else { (false, chosen) }
}

#[test]
fn no_event_costs_more_because_a_crowd_waits() {
    let (is_whole, seeds) = seeds();
    let outcome = request_crowds::run_all(&seeds).unwrap();
    println!("{outcome:?}");
    assert!(!is_whole || outcome.waiting_most as u64 > 2 * cluster::STEPS_MAX, "{outcome:?}");
}

#[test]
fn queues_are_bounded_and_fair_and_an_overflow_of_names_is_one_reset() {
    let (is_whole, seeds) = seeds();
    let outcome = queues::run_all(&seeds).unwrap();
    println!("{outcome:?}");
    assert!(!is_whole || outcome.storms > 0 && outcome.refused > 0, "{outcome:?}");
}

#[test]
fn a_manager_that_looks_at_all_requests_with_each_event_is_noticed() {
    let is_noticed = |seed| {
        request_crowds::run(seed, Some(Sabotage::Rescans))
            .is_err_and(|error| error.contains("steps for one event"))
    };
    assert!((1..=SPOILED_SEEDS).any(is_noticed), "it went unnoticed");
}

fn noticed(sabotage: Sabotage, words: &[&str]) {
    let is_noticed = |seed| {
        queues::run(seed, Some(sabotage)).is_err_and(|error| words.iter().any(|words| error.contains(words)))
    };
    assert!((1..=SPOILED_SEEDS).any(is_noticed), "{sabotage:?} went unnoticed");
}

#[test]
fn a_manager_that_serves_clients_in_the_order_of_arrival_is_noticed() {
    noticed(Sabotage::Lines, &["its share is"]);
}

#[test]
fn a_server_that_loses_track_of_names_and_does_not_report_it_is_noticed() {
    noticed(Sabotage::Loses, &["reports that it is missing", "where it is gone"]);
}

#[test]
fn a_queue_that_keeps_what_has_no_room_is_noticed() {
    let is_noticed = |seed| queues::bare(&mut SimRng::new(seed), true).is_err();
    assert!((1..=SPOILED_SEEDS).any(is_noticed));
}
