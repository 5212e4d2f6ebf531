//! Bad minutes: no client gets a wrong answer, and afterwards every node is back and every file is
//! found.
//!
//! `SIM_SEEDS=17,18` repeats those seeds alone, `SIM_TRACE=/path` prints all messages about a file.

use sim::faults;

/// The number of seeds of an ordinary run; `make sim` runs more.
const SEEDS: u64 = 200;

/// Seeds of rare histories in which an invariant was violated once.
const RARE: [u64; 1] = [1133];

#[test]
fn everybody_finds_back() {
    let chosen = faults::chosen();
    let all = chosen.is_empty();
    let seeds: Vec<u64> = if all { (1..=SEEDS).chain(RARE).collect() } else { chosen };
    let minutes = faults::run_all(&seeds, |_| {});
    assert!(minutes.failed.is_empty(), "{}", minutes.failed.join("\n"));
    let occurred = minutes.occurred.expect("a seed");
    println!("{occurred}");
    assert!(!all || occurred.never().is_empty(), "never occurred: {:?}", occurred.never());
}

#[test]
fn a_seed_repeats_itself() {
    let run = || format!("{:?}", faults::run(7).expect("a good end"));
    assert_eq!(run(), run());
}
