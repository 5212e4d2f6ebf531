//! Bad minutes: whatever breaks, nobody is told a lie, and afterwards everybody is in the tree again and everything is found.
//! `SIM_SEEDS=17,18` repeats those seeds alone, `SIM_TRACE=/path` tells all that was said about a file.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::faults;
use sim::occurred::Occurred;

/// Seeds of an ordinary run; `make sim` runs more.
const SEEDS: u64 = 200;

#[test]
fn everybody_finds_back() {
    let chosen = std::env::var("SIM_SEEDS").ok();
    let chosen: Vec<u64> =
        chosen.iter().flat_map(|list| list.split(',')).filter_map(|seed| seed.parse().ok()).collect();
    let all = chosen.is_empty();
    let seeds: Vec<u64> = if all { (1..=SEEDS).collect() } else { chosen };
    let (next, ended) = (AtomicUsize::new(0), Mutex::new((Vec::new(), None::<Occurred>)));
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let end = faults::run(*seed);
            let (failed, occurred) = &mut *ended.lock().expect("nobody failed");
            match (end, occurred) {
                (Ok(outcome), Some(before)) => before.add(&outcome.occurred),
                (Ok(outcome), none) => *none = Some(outcome.occurred),
                (Err(error), _) => failed.push(error),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (failed, occurred) = ended.into_inner().expect("nobody failed");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let occurred = occurred.expect("a seed");
    println!("{occurred}");
    assert!(!all || occurred.never().is_empty(), "never occurred: {:?}", occurred.never());
}

#[test]
fn a_seed_repeats_itself() {
    let run = || format!("{:?}", faults::run(7).expect("a good end"));
    assert_eq!(run(), run());
}
