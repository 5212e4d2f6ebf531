//! Tests of shared queries, and of the limits of waiting.

use super::*;
use crate::resolve::{QUERIES_MAX, WAITERS_MAX};

#[test]
fn many_waiters_cost_one_query_and_are_answered_together() {
    let mut stage = Stage::new(3);
    for token in 0..1000 {
        assert_eq!(stage.read(token, "/f"), None);
    }
    assert_eq!(stage.actions.len(), 1);
    assert_eq!(stage.machine.stats().waiters, 1000);
    stage.have(1, "/f");
    stage.pass(0.0);
    let answers = stage.answered();
    assert!(answers.iter().map(|(token, _)| *token).eq(0..1000));
    assert!(answers.iter().all(|(_, answer)| sent_to(answer) == 1));
    assert_eq!(stage.machine.stats().waiters, 0);
}

#[test]
fn beyond_the_limits_clients_are_asked_to_retry() {
    let mut stage = Stage::new(1);
    for n in 0..QUERIES_MAX as u64 {
        assert_eq!(stage.read(n, &format!("/f{n}")), None);
    }
    assert_eq!(stage.read(0, "/one/more"), Some(seconds(5)));
    for n in QUERIES_MAX as u64..WAITERS_MAX as u64 {
        assert_eq!(stage.read(n, "/f0"), None);
    }
    assert_eq!(stage.read(0, "/f0"), Some(seconds(5)));
    stage.actions.clear();
    stage.have(0, "/f0");
    stage.pass(0.0);
    let answered = stage.answered().len();
    assert_eq!(answered, WAITERS_MAX - QUERIES_MAX + 1);
    assert_eq!(stage.read(0, "/one/more"), None, "there is room again");
    stage.pass(30.0);
    assert_eq!(stage.answered().len() + answered, WAITERS_MAX + 1, "everybody is answered once");
    let stats = stage.machine.stats();
    assert_eq!((stats.queries, stats.waiters), (0, 0));
    assert_eq!(stage.machine.next_deadline(), None);
}

#[test]
fn messages_without_a_waiting_request_do_no_harm() {
    let mut stage = Stage::new(2);
    stage.not_here(&[0, 1], "/never");
    stage.gone(0, "/never");
    stage.have(0, "no path");
    stage.have(60, "/never");
    assert_eq!(stage.actions, []);
    stage.learn("/f", &[0]);
    // From a free slot, or from a child that does not export the path.
    stage.have(60, "/f");
    stage.gone(0, "/f");
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[1], "/f");
    assert_eq!(code(&stage.answer()), 1);
}
