//! Tests of the checks themselves: nodes with one deliberate fault, and the error that has to
//! detect it.
//!
//! A check that detects no fault would prove nothing.

use sim::faults;
use sim::host::HostKind;
use sim::own_process::Sabotage;

/// The number of seeds in which the fault may show.
const SEEDS: u64 = 12;

/// Gives some nodes of some worlds this fault: it is detected in at least one world, and only by
/// these errors.
fn noticed(sabotage: Sabotage, kind: HostKind, which: usize, words: &[&str]) {
    let mut seen = 0;
    for seed in 1..=SEEDS {
        let Err(error) = faults::spoiled(seed, sabotage, kind, which) else { continue };
        assert!(words.iter().any(|words| error.contains(words)), "{sabotage:?}, seed {seed}: {error}");
        seen += 1;
        if seen == 3 {
            return;
        }
    }
    assert!(seen > 0, "{sabotage:?} went unnoticed");
}

#[test]
fn a_file_that_is_there_and_is_not_found() {
    noticed(Sabotage::Denies, HostKind::Server, 1, &["is missing;", "was made at"]);
}

#[test]
fn a_client_that_runs_in_circles() {
    noticed(Sabotage::Circles, HostKind::Server, 1, &["Loop"]);
}

#[test]
fn a_client_that_gets_no_answer() {
    noticed(Sabotage::Swallows, HostKind::Manager, 1, &["no good end"]);
}

#[test]
fn a_node_that_does_not_come_back() {
    noticed(Sabotage::Stays, HostKind::Server, 7, &["nodes are in the tree; missing"]);
}

#[test]
fn memory_that_grows() {
    noticed(Sabotage::Keeps, HostKind::Manager, 1, &["still has"]);
}

#[test]
fn messages_without_end() {
    noticed(Sabotage::Chatters, HostKind::Server, 1, &["messages about files, more than"]);
    noticed(Sabotage::Reports, HostKind::Server, 1, &["messages, more than"]);
}
