//! Pipelined requests have the same replies and effects as requests sent one by one.
//!
//! 100,000 random sequences are compared with a sequential model (`in_order/model.rs`), because the
//! number of interleavings is too large for a list of cases.

#![allow(clippy::unwrap_used)]

#[path = "in_order/driver.rs"]
mod driver;
#[path = "in_order/model.rs"]
mod model;
mod support;

use driver::{Driver, Request};
use model::{Act, Content, FILES, Outcome, apply, random_act};
use std::collections::BTreeMap;
use support::Dice;

const SEQUENCES: u64 = 100_000;
const THREADS: u64 = 4;
/// The first stream id of the sequence. The set-up uses smaller ones.
const FIRST: u16 = 10;

/// Returns the requests of a seed, the outcome of each, and the final content of the files.
fn sequence(dice: &mut Dice) -> (Vec<Request>, BTreeMap<u16, Outcome>, [Content; FILES]) {
    let mut contents: [Content; FILES] = Default::default();
    let (mut requests, mut outcomes) = (Vec::new(), BTreeMap::new());
    let mut open = [true; FILES];
    for number in FIRST..FIRST + 2 + u16::try_from(dice.below(10)).unwrap() {
        let (file, act) = (dice.below(FILES), random_act(dice, open));
        let of_all = matches!(act, Act::ReadVector(_) | Act::WriteVector { .. });
        let outcome = if open[file] || of_all { apply(&mut contents, file, &act) } else { Outcome::Error };
        open[file] &= act != Act::Close;
        outcomes.insert(number, outcome);
        requests.push(Request { number, file, act });
    }
    (requests, outcomes, contents)
}

fn play(seed: u64) {
    let mut dice = Dice::new(seed);
    let (requests, wanted, mut contents) = sequence(&mut dice);
    let mut driver = Driver::new(dice.below(2) == 0);
    // One client in eight disconnects.
    let mut left = if dice.below(8) == 0 { dice.below(30) } else { usize::MAX };
    let mut coming = requests.iter();
    let vanishes = loop {
        if left == 0 {
            break true;
        }
        left -= 1;
        let feeds = driver.takes_requests() && dice.below(3) > 0;
        match feeds.then(|| coming.next()).flatten() {
            Some(request) => driver.request(request, &mut dice),
            None if driver.step(&mut dice) => {}
            // Nothing is in progress: take the next request, or end.
            None => match coming.next() {
                Some(request) => driver.request(request, &mut dice),
                None => break false,
            },
        }
    };
    if !vanishes {
        assert_eq!(driver.outcomes, wanted, "replies of seed {seed} to {requests:#?}");
    }
    driver.vanish(&mut dice);
    while driver.step(&mut dice) {}
    if !vanishes {
        contents.iter_mut().for_each(Content::undo);
        let found = driver.files.each_ref().map(|file| file.last_content());
        assert_eq!(found, contents, "files of seed {seed}");
    }
    let session = &driver.bench.session;
    let rest = (session.calls_in_flight(), session.files_open());
    assert!(session.is_finished(), "seed {seed} leaves {rest:?} calls and files behind: {requests:#?}");
    assert!(driver.files.iter().all(|file| file.is_released()), "a file of seed {seed} is never closed");
}

#[test]
fn pipelined_requests_have_the_effect_of_sequential_execution() {
    let share = SEQUENCES / THREADS;
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|n| drop(scope.spawn(move || (n * share..(n + 1) * share).for_each(play))));
    });
}
