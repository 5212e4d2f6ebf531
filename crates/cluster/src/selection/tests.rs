//! Tests of the selection rules with the figures of cms protocol 3.

use super::*;
use crate::fixtures::cell;
use crate::paths::ChildExport;
use crate::tree::LoadReport;
use base::SplitMix64;

const READ: Need = Need {
    place: false,
    kind: AccessKind::Read,
    client: ClientOrigin { net: crate::Net::V4First, private: false, alone: false },
    space: false,
    stage: false,
};
const WRITE: Need = Need { kind: AccessKind::Write, space: true, ..READ };

fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

fn choose(
    chooser: &Chooser,
    cell: &Cell,
    need: Need,
    dice: &mut SplitMix64,
) -> Result<u8, UnavailableReasons> {
    let among = cell.children().map(|(slot, _)| slot).collect();
    let slot = chooser.choose(cell, among, need, ClientAffinity::None, b"/f", dice)?;
    chooser.count(cell, slot, need.kind);
    Ok(slot.number())
}

fn many(chooser: &Chooser, cell: &Cell, need: Need, times: usize) -> Vec<u32> {
    let mut counts = vec![0; cell.children().count()];
    let mut dice = SplitMix64::new(1);
    for _ in 0..times {
        counts[usize::from(choose(chooser, cell, need, &mut dice).unwrap())] += 1;
    }
    counts
}

#[test]
fn everybody_in_turn_lowest_slot_first() {
    let (cell, chooser) = (cell(3), Chooser::new(Policy::default()));
    let mut dice = SplitMix64::new(0);
    let turns: Vec<u8> = (0..6).map(|_| choose(&chooser, &cell, READ, &mut dice).unwrap()).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
    assert_eq!(choose(&chooser, &cell, WRITE, &mut dice), Ok(0), "writers are counted apart");
}

#[test]
fn writers_linger_readers_do_not() {
    let cell = cell(2);
    let chooser = Chooser::new(Policy { linger: 2, ..Policy::default() });
    let mut dice = SplitMix64::new(0);
    let mut turns =
        |need| -> Vec<u8> { (0..5).map(|_| choose(&chooser, &cell, need, &mut dice).unwrap()).collect() };
    assert_eq!(turns(WRITE), [0, 0, 0, 1, 0]);
    assert_eq!(turns(READ), [0, 1, 0, 1, 0]);
}

#[test]
fn a_newcomer_does_not_get_all_the_clients_the_others_had() {
    let (mut cell, chooser) = (cell(2), Chooser::new(Policy::default()));
    many(&chooser, &cell, READ, 1000);
    cell.join(slot(2), crate::fixtures::server(2), &ChildExport::parse_list(b"w /").unwrap());
    assert_eq!(many(&chooser, &cell, READ, 300), [100, 100, 100]);
}

#[test]
fn a_share_takes_its_part() {
    let (mut cell, chooser) = (cell(2), Chooser::new(Policy::default()));
    cell.change(slot(1), |child| child.share = Some(50));
    assert_eq!(many(&chooser, &cell, READ, 300), [200, 100]);
}

fn by_load(policy: Policy) -> Chooser {
    Chooser::new(Policy {
        weights: Weights { cpu: 50, io: 30, runq: 20, space: 100, ..Weights::default() },
        ..policy
    })
}

#[test]
fn the_least_busy_and_turns_within_the_fuzz() {
    let cell = cell(3);
    // 50 % of 100 + 30 % of 40 + 20 % of 10 = 64; 25; 40.
    cell.meters().set_load(slot(0), LoadReport { cpu: 100, net: 40, run_queue: 10, ..LoadReport::default() });
    cell.meters().set_load(slot(1), LoadReport { cpu: 50, ..LoadReport::default() });
    cell.meters().set_load(slot(2), LoadReport { cpu: 80, ..LoadReport::default() });
    let exact = by_load(Policy { fuzz: 14, ..Policy::default() });
    assert_eq!(many(&exact, &cell, READ, 10), [0, 10, 0]);
    cell.meters().reset_counts(SlotMask::ALL);
    let fuzzy = by_load(Policy { fuzz: 15, ..Policy::default() });
    assert_eq!(many(&fuzzy, &cell, READ, 10), [0, 5, 5]);
}

#[test]
fn filling_counts_for_writers_only() {
    let cell = cell(2);
    cell.meters().set_load(slot(0), LoadReport { disk: 90, ..LoadReport::default() });
    let chooser = by_load(Policy::default());
    assert_eq!(many(&chooser, &cell, WRITE, 4), [0, 4]);
    assert_eq!(many(&chooser, &cell, READ, 4), [2, 2]);
}

#[test]
fn round_robin_when_loads_are_not_asked_for_or_do_not_matter() {
    for policy in
        [Policy { fuzz: 100, ..Policy::default() }, Policy { loads_known: false, ..Policy::default() }]
    {
        let cell = cell(2);
        cell.meters().set_load(slot(0), LoadReport { cpu: 100, ..LoadReport::default() });
        assert_eq!(many(&by_load(policy), &cell, READ, 4), [2, 2]);
    }
}

#[test]
fn a_random_pick_gives_loaded_children_few_clients() {
    let cell = cell(3);
    cell.meters()
        .set_load(slot(2), LoadReport { cpu: 100, net: 100, run_queue: 100, ..LoadReport::default() });
    let chooser = by_load(Policy { fuzz: 50, randomized: true, ..Policy::default() });
    assert!(chooser.wants_all(ClientAffinity::None));
    let counts = many(&chooser, &cell, READ, 3000);
    // 150 : 150 : 50
    for (count, expected) in counts.iter().zip([1286u32, 1286, 428]) {
        assert!(count.abs_diff(expected) < 120, "{counts:?}");
    }
}

#[test]
fn the_reason_for_excluded_children_decides_the_answer() {
    let waits = WaitTimes::default();
    let answer = |change: &dyn Fn(&mut Cell), need: Need, policy: Policy| {
        let mut cell = cell(1);
        change(&mut cell);
        choose(&by_load(policy), &cell, need, &mut SplitMix64::new(0)).unwrap_err().answer(&waits)
    };
    let seconds = |seconds| Some(ClusterAnswer::Wait(Duration::from_secs(seconds)));
    let code = |answer: Option<ClusterAnswer>| match answer {
        Some(ClusterAnswer::Error(code, _)) => code.0,
        other => panic!("{other:?}"),
    };
    let state = |change: fn(&mut crate::ChildState)| {
        move |cell: &mut Cell| cell.change(slot(0), |child| change(&mut child.state))
    };
    let plain = Policy::default;
    assert_eq!(answer(&state(|state| state.connected = false), READ, plain()), seconds(15));
    assert_eq!(answer(&state(|state| state.suspended = true), READ, plain()), seconds(30));
    assert_eq!(answer(&state(|state| state.blacklisted = true), READ, plain()), seconds(30));
    assert_eq!(answer(&state(|state| state.disabled = true), READ, plain()), seconds(30));
    let busy = |cell: &mut Cell| {
        cell.meters()
            .set_load(slot(0), LoadReport { cpu: 100, net: 100, run_queue: 100, ..LoadReport::default() })
    };
    assert_eq!(answer(&busy, READ, Policy { load_max: Some(80), ..plain() }), seconds(630));
    let full = |cell: &mut Cell| cell.meters().set_free_mb(slot(0), 99);
    assert_eq!(code(answer(&full, WRITE, plain())), 7);
    let staging = Need { stage: true, ..WRITE };
    assert_eq!(code(answer(&state(|state| state.nostage = true), staging, plain())), 7);
    let v6 = Need { client: ClientOrigin { net: crate::Net::V6, private: false, alone: false }, ..READ };
    assert_eq!(code(answer(&|_| (), v6, plain())), 9);
}

#[test]
fn a_child_that_is_ourselves_is_never_chosen() {
    let mut cell = Cell::new(&["10.0.0.0:1094".parse().unwrap()]);
    cell.join(slot(0), crate::fixtures::server(0), &[]);
    let chooser = Chooser::new(Policy::default());
    let excuses = choose(&chooser, &cell, READ, &mut SplitMix64::new(0)).unwrap_err();
    assert_eq!(excuses.answer(&WaitTimes::default()), None);
}

#[test]
fn affinity_sends_equal_paths_to_the_same_child() {
    let cell = cell(5);
    let at = |path: &str, part| {
        let chooser = Chooser::new(Policy { affinity_path: part, ..Policy::default() });
        let all = SlotMask(0b11111);
        chooser
            .choose(&cell, all, READ, ClientAffinity::Strong, path.as_bytes(), &mut SplitMix64::new(0))
            .unwrap()
            .number()
    };
    let spread: std::collections::BTreeSet<u8> =
        (0..50).map(|n| at(&format!("/a/{n}"), AffinityPath::All)).collect();
    assert_eq!(spread.len(), 5);
    assert_eq!(at("/a/b/1", AffinityPath::All), at("/a/b/1", AffinityPath::All));
    assert_eq!(AffinityPath::First(2).part(b"/a/b/c"), b"/a/b");
    assert_eq!(AffinityPath::First(9).part(b"/a/b/c"), b"/a/b/c");
    assert_eq!(AffinityPath::Last(2).part(b"/a/b/c"), b"/b/c");
    assert_eq!(AffinityPath::Last(9).part(b"/a/b/c"), b"/a/b/c");
}

#[test]
fn the_affinity_of_a_client_counts_only_if_allowed() {
    let wish = Some(ClientAffinity::Strict);
    let deaf = Chooser::new(Policy::default());
    assert_eq!(deaf.affinity(wish), ClientAffinity::None);
    let hears = Chooser::new(Policy {
        affinity: ClientAffinity::Weak,
        affinity_by_client: true,
        ..Policy::default()
    });
    assert_eq!((hears.affinity(wish), hears.affinity(None)), (ClientAffinity::Strict, ClientAffinity::Weak));
    assert!(hears.wants_all(ClientAffinity::Strong) && !hears.wants_all(ClientAffinity::Weak));
}

#[test]
fn counts_begin_anew_when_it_is_time_and_there_is_something_to_forget() {
    let cell = cell(2);
    let policy = Policy { reset: Duration::from_secs(60), linger: 1, ..Policy::default() };
    let chooser = Chooser::new(policy);
    let choices = |count: usize| (0..count).for_each(|_| chooser.count(&cell, slot(0), AccessKind::Write));
    let counted = || cell.meters().choices(slot(0));
    choices(383);
    chooser.refresh(&cell, Duration::from_secs(60));
    assert_eq!(counted(), 383, "192 for each");
    choices(1);
    chooser.refresh(&cell, Duration::from_secs(119));
    assert_eq!(counted(), 384, "not yet");
    chooser.refresh(&cell, Duration::from_secs(120));
    assert_eq!(counted(), 0);
}

#[test]
fn a_child_without_a_share_has_that_of_the_policy() {
    let cell = cell(1);
    let chooser = Chooser::new(Policy { share: Some(25), ..Policy::default() });
    chooser.count(&cell, slot(0), AccessKind::Read);
    assert_eq!(cell.meters().choices(slot(0)), 4);
}

/// Returns the child for each of 200 new files; `None` if it is undecided.
fn placed(cell: &Cell, chooser: &Chooser) -> Vec<Option<u8>> {
    let all = cell.children().map(|(slot, _)| slot).collect();
    let need = Need { place: true, ..WRITE };
    let place = |number: u8| {
        let path = format!("/f{number}");
        let mut dice = SplitMix64::new(0);
        match chooser.choose(cell, all, need, ClientAffinity::None, path.as_bytes(), &mut dice) {
            Ok(slot) => Some(slot.number()),
            Err(reasons) => {
                assert!(reasons.is_undecided());
                None
            }
        }
    };
    (0..200).map(place).collect()
}

#[test]
fn only_the_files_of_a_new_child_wait() {
    let (mut cell, chooser) = (cell(3), Chooser::new(Policy::default()));
    let mut set = |newness| {
        cell.change(slot(2), |child| child.state.newness = newness);
        placed(&cell, &chooser)
    };
    let [known, unknown, announced] = [Newness::None, Newness::Unknown, Newness::Announced].map(&mut set);
    assert!(known.contains(&Some(2)) && !unknown.contains(&Some(2)) && !unknown.contains(&None));
    for ((known, unknown), announced) in known.into_iter().zip(unknown).zip(announced) {
        assert_eq!(announced, known.filter(|child| *child != 2));
        assert!(known == Some(2) || known == unknown);
    }
}

#[test]
fn new_children_wait_for_each_other_if_the_known_ones_are_full() {
    let (mut cell, chooser) = (cell(3), Chooser::new(Policy::default()));
    cell.meters().set_free_mb(slot(0), 0);
    for new in [1, 2] {
        cell.change(slot(new), |child| child.state.newness = Newness::Unknown);
    }
    assert_eq!(placed(&cell, &chooser), [None; 200]);
    cell.leave(slot(0));
    assert!(!placed(&cell, &chooser).contains(&None), "there is no other child");
}

#[test]
fn the_load_of_a_new_child_does_not_decide_between_others() {
    let mut cell = cell(3);
    let chooser = by_load(Policy::default());
    for (child, cpu) in [(0, 20), (1, 50), (2, 0)] {
        cell.meters().set_load(slot(child), LoadReport { cpu, ..LoadReport::default() });
    }
    let both = {
        cell.change(slot(2), |child| child.state.newness = Newness::Unknown);
        placed(&cell, &chooser)
    };
    assert!(both.contains(&Some(0)) && both.contains(&Some(1)), "loads of 10 and 25");
    cell.change(slot(2), |child| child.state.newness = Newness::Announced);
    let early = placed(&cell, &chooser);
    assert!(both.iter().zip(&early).all(|(both, early)| early.is_none() || early == both));
    assert!(early.contains(&Some(0)) && !early.contains(&Some(1)), "25 is too much beside 0");
}
