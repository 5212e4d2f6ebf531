//! Bad minutes: whatever breaks, nobody is told a lie, and afterwards everybody is in the tree again and everything is found.
//! `SIM_SEEDS=17,18` repeats those seeds alone, `SIM_TRACE=/path` tells all that was said about a file.

use sim::faults;

/// Seeds of an ordinary run; `make sim` runs more.
const SEEDS: u64 = 200;

#[test]
fn everybody_finds_back() {
    let chosen = std::env::var("SIM_SEEDS").ok();
    let chosen: Vec<u64> =
        chosen.iter().flat_map(|list| list.split(',')).filter_map(|seed| seed.parse().ok()).collect();
    let seeds = if chosen.is_empty() { (1..=SEEDS).collect() } else { chosen };
    let failed: Vec<String> = seeds.into_iter().filter_map(|seed| faults::run(seed).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_seed_repeats_itself() {
    let run = || format!("{:?}", faults::run(7).expect("a good end"));
    assert_eq!(run(), run());
}
