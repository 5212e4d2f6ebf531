//! Tests of the cost of a message beside a large number of waiting requests.
//!
//! The resolver counts the requests and queries that it looks at, so the tests need no clock.

use super::*;
use crate::resolve::STEPS_MAX;
use crate::resolve::limits::REVIEWS_AT_ONCE;
use crate::tree::ChildChange;

const FEW: u64 = 10;
const MANY: u64 = 100_000;

impl Stage {
    /// Returns the steps of `work`.
    fn steps(&mut self, work: impl FnOnce(&mut Self)) -> u64 {
        let before = self.machine.stats().steps;
        work(self);
        self.machine.stats().steps - before
    }
}

/// Returns a resolver that holds requests for missing paths, because a lost child may have them.
fn holding(requests: u64) -> Stage {
    let mut stage = Stage::new(2);
    stage.machine.engine.settings.hold = Duration::from_secs(30);
    stage.machine.set_quorum(true);
    stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
    for token in 1..=requests {
        let path = format!("/missing/{token}");
        assert_eq!(stage.read(token, &path), None);
        stage.not_here(&[0], &path);
        stage.actions.clear();
    }
    assert_eq!(stage.machine.stats().held as u64, requests);
    stage
}

/// Returns the steps of each kind of message and request.
fn events(stage: &mut Stage) -> Vec<u64> {
    let mut steps = Vec::new();
    steps.push(stage.steps(|stage| assert!(stage.machine.next_deadline().is_some())));
    steps.push(stage.steps(|stage| stage.learn("/found", &[0])));
    steps.push(stage.steps(|stage| stage.have(0, "/missing/1")));
    steps.push(stage.steps(|stage| stage.gone(0, "/missing/2")));
    steps.push(stage.steps(|stage| stage.not_here(&[0], "/missing/3")));
    steps.push(stage.steps(|stage| {
        stage.machine.inventory(slot(0), b"/missing/4", false, stage.now, &mut stage.actions);
    }));
    steps.push(stage.steps(|stage| stage.machine.abandon([RequestToken(5)])));
    steps.push(stage.steps(|stage| stage.machine.abandon([RequestToken(u64::MAX - 1)])));
    steps.push(stage.steps(|stage| stage.pass(0.001)));
    steps
}

#[test]
fn a_message_costs_the_same_beside_ten_held_requests_and_beside_100_000() {
    assert_eq!(events(&mut holding(FEW)), events(&mut holding(MANY)));
}

#[test]
fn a_change_of_the_cell_is_worked_off_in_steps() {
    let mut stage = holding(MANY);
    // A child that is flapping, or changes its condition repeatedly.
    for port in 1..100 {
        let steps = stage.steps(|stage| stage.change(1, |child| child.port = port));
        assert_eq!(steps, 0, "a change looks at no request");
    }
    let limit = 4 * REVIEWS_AT_ONCE as u64;
    let mut ticks = 0;
    while stage.machine.next_deadline().is_some_and(|due| due <= stage.now) {
        let steps = stage.steps(|stage| stage.machine.tick(stage.now, &mut stage.actions));
        assert!((1..=limit).contains(&steps), "{steps} steps in one tick");
        ticks += 1;
    }
    assert_eq!(ticks, MANY.div_ceil(REVIEWS_AT_ONCE as u64));
    assert_eq!(stage.machine.stats().held as u64, MANY, "nothing was decided");
    assert_eq!(stage.actions, []);
}

#[test]
fn the_end_of_a_long_wait_of_many_is_worked_off_in_steps() {
    let mut stage = holding(MANY);
    stage.now += Duration::from_secs(30);
    let limit = 4 * REVIEWS_AT_ONCE as u64;
    let mut answered = 0;
    while stage.machine.next_deadline().is_some_and(|due| due <= stage.now) {
        let steps = stage.steps(|stage| stage.machine.tick(stage.now, &mut stage.actions));
        assert!((1..=limit).contains(&steps), "{steps} steps in one tick");
        answered += stage.answered().len() as u64;
    }
    assert_eq!((answered, stage.machine.stats().held), (MANY, 0));
}

#[test]
fn the_loss_of_a_child_costs_its_own_queries_only() {
    let lost = |queries: u64| {
        let mut stage = Stage::new(2);
        // Child 1 exports another path and was queried once.
        stage.machine.engine.locations.cell_mut().join(
            slot(0),
            server(0),
            &ChildExport::parse_list(b"w /zero").unwrap(),
        );
        stage.machine.engine.locations.cell_mut().join(
            slot(1),
            server(1),
            &ChildExport::parse_list(b"w /one").unwrap(),
        );
        for token in 1..=queries {
            assert_eq!(stage.read(token, &format!("/zero/{token}")), None);
        }
        assert_eq!(stage.read(queries + 1, "/one/1"), None);
        let now = stage.now;
        stage.steps(|stage| {
            stage.machine.follow(slot(1), ChildChange::Freed, None, Vec::new(), now, &mut stage.actions);
        })
    };
    assert_eq!(lost(FEW), lost(50_000));
}

#[test]
fn a_not_here_reply_looks_at_no_request_that_waits_for_other_children() {
    let steps = |waiters: u64| {
        let mut stage = Stage::new(3);
        for token in 1..=waiters {
            assert_eq!(stage.read(token, "/f"), None);
        }
        let steps = stage.steps(|stage| stage.not_here(&[0, 1], "/f"));
        stage.not_here(&[2], "/f");
        stage.pass(0.0);
        assert_eq!(stage.answered().len() as u64, waiters);
        steps
    };
    assert_eq!(steps(FEW), steps(MANY));
}

/// Does all due work; each tick has limited steps.
fn work_off(stage: &mut Stage) {
    while stage.machine.next_deadline().is_some_and(|due| due <= stage.now) {
        let steps = stage.steps(|stage| stage.machine.tick(stage.now, &mut stage.actions));
        assert!(steps <= STEPS_MAX, "{steps} steps in one tick");
    }
}

#[test]
fn the_loss_of_a_child_with_a_large_number_of_queries_is_handled_in_steps() {
    const QUERIES: u64 = 50_000;
    let mut stage = Stage::new(2);
    for token in 1..=QUERIES {
        assert_eq!(stage.read(token, &format!("/f/{token}")), None);
        stage.not_here(&[0], &format!("/f/{token}"));
    }
    let now = stage.now;
    let steps = stage.steps(|stage| {
        stage.machine.follow(slot(1), ChildChange::Freed, None, Vec::new(), now, &mut stage.actions);
    });
    assert!(steps <= STEPS_MAX, "{steps} steps at the loss");
    work_off(&mut stage);
    assert_eq!((stage.answered().len() as u64, stage.machine.stats().queries), (QUERIES, 0));
}

#[test]
fn a_child_that_is_lost_and_comes_back_is_asked_again_for_everything() {
    const QUERIES: u64 = 5_000;
    let mut stage = Stage::new(1);
    for token in 1..=QUERIES {
        assert_eq!(stage.read(token, &format!("/f/{token}")), None);
    }
    stage.change(0, |child| child.state.connected = false);
    let at_once = stage.answered().len() as u64;
    stage.actions.clear();
    stage.change(0, |child| child.state.connected = true);
    work_off(&mut stage);
    let queried: std::collections::BTreeSet<Vec<u8>> = stage
        .actions
        .iter()
        .filter_map(|action| match action {
            ResolverAction::Ask { path, .. } => Some(path.to_vec()),
            _ => None,
        })
        .collect();
    assert_eq!(queried.len() as u64 + at_once, QUERIES, "{at_once} were told to come again at the loss");
    (1..=QUERIES).for_each(|token| stage.not_here(&[0], &format!("/f/{token}")));
    work_off(&mut stage);
    assert_eq!((stage.answered().len() as u64 + at_once, stage.machine.stats().queries), (QUERIES, 0));
}

#[test]
fn a_message_that_answers_none_of_many_creators_is_worked_off_in_steps() {
    let mut stage = Stage::new(3);
    for token in 1..=MANY {
        assert_eq!(stage.intend(token, "/f", Intent::Create), None);
    }
    for from in [0, 1] {
        let steps = stage.steps(|stage| stage.have(from, "/f"));
        assert!(steps <= STEPS_MAX, "{steps} steps for a message");
    }
    work_off(&mut stage);
    assert_eq!(stage.machine.stats().waiters as u64, MANY);
    let steps = stage.steps(|stage| stage.not_here(&[2], "/f"));
    assert!(steps <= STEPS_MAX, "{steps} steps for the last answer");
    work_off(&mut stage);
    assert_eq!((stage.answered().len() as u64, stage.machine.stats().queries), (MANY, 0));
}

#[test]
fn a_message_about_a_path_for_which_many_are_held_is_worked_off_in_steps() {
    let mut stage = Stage::new(2);
    stage.machine.engine.settings.hold = Duration::from_secs(30);
    stage.machine.set_quorum(true);
    stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
    for token in 1..=MANY {
        assert_eq!(stage.read(token, "/f"), None);
    }
    stage.not_here(&[0], "/f");
    work_off(&mut stage);
    assert_eq!(stage.machine.stats().held as u64, MANY);
    let steps = stage.steps(|stage| stage.have(0, "/f"));
    assert!(steps <= STEPS_MAX, "{steps} steps for a message");
    work_off(&mut stage);
    assert_eq!((stage.answered().len() as u64, stage.machine.stats().held), (MANY, 0));
}

#[test]
fn requests_of_clients_that_left_one_by_one_cost_a_constant_each() {
    let mut stage = Stage::new(1);
    for token in 1..=MANY {
        assert_eq!(stage.read(token, "/f"), None);
    }
    let steps = stage.steps(|stage| (1..MANY).for_each(|token| stage.machine.abandon([RequestToken(token)])));
    assert!(steps <= 4 * MANY, "{steps} steps");
    stage.pass(0.0);
    assert_eq!(stage.machine.stats().waiters, 1);
    stage.have(0, "/f");
    assert_eq!(stage.answered().len(), 1);
}

#[test]
fn no_file_is_placed_for_a_client_that_left_while_it_was_held() {
    let mut stage = holding(FEW);
    stage.machine.engine.review_held();
    stage.now += Duration::from_secs(30);
    stage.answered();
    stage.machine.tick_for(stage.now, &|token| token.0 % 2 == 0, &mut stage.actions);
    let answered: Vec<u64> = stage.answered().into_iter().map(|(token, _)| token).collect();
    assert_eq!(answered, [1, 3, 5, 7, 9]);
    assert_eq!(stage.machine.stats().held, 0);
}
