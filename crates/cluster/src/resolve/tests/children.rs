//! Children that join, leave, go away and come back.

use super::*;

fn root() -> Vec<Export> {
    Export::parse_list(b"w /").unwrap()
}

#[test]
fn a_newcomer_is_asked_while_those_known_serve() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let now = stage.now;
    stage.machine.join(slot(2), server(2), &root(), now, &mut stage.actions);
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 0);
    assert_eq!(stage.asked(), mask(&[2]));
    stage.have(2, "/f");
    let both: SlotMask = (0..2).map(|n| slot(sent_to(&stage.read(n, "/f").unwrap()))).collect();
    assert_eq!(both, mask(&[0, 2]));
}

#[test]
fn a_slot_with_a_new_owner_has_nothing_of_the_old_one() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let now = stage.now;
    stage.machine.join(slot(0), server(9), &root(), now, &mut stage.actions);
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.asked(), mask(&[0]));
    stage.not_here(&[0], "/f");
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn who_comes_back_unchanged_is_not_asked_again() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    stage.change(0, |child| child.state.connected = false);
    assert_eq!(stage.read(1, "/f"), Some(seconds(15)));
    stage.change(0, |child| (child.state.connected, child.port) = (true, 2094));
    let answer = stage.read(1, "/f").unwrap();
    assert_eq!(answer, Answer::Redirect { slot: Some(slot(0)), host: "server0".into(), port: 2094 });
    assert_eq!(stage.asked(), SlotMask::EMPTY);
}

#[test]
fn a_freed_slot_does_not_count() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let now = stage.now;
    stage.machine.leave(slot(0), now, &mut stage.actions);
    assert_eq!(code(&stage.read(1, "/f").unwrap()), 1);
}

#[test]
fn reset_below_a_supervisor_voids_what_it_said() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[1]);
    stage.machine.bounce(slot(1));
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.asked(), mask(&[1]));
}

#[test]
fn a_child_lost_during_a_query_is_not_waited_for_and_asked_when_back() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0], "/f");
    stage.asked();
    stage.change(1, |child| child.state.connected = false);
    assert_eq!(code(&stage.answer()), 1);
    stage.change(1, |child| child.state.connected = true);
    assert_eq!(stage.read(2, "/f"), None);
    assert_eq!(stage.asked(), mask(&[1]));
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
}

#[test]
fn a_child_that_joins_during_a_query_is_heard_too() {
    let mut stage = Stage::new(1);
    assert_eq!(stage.read(1, "/f"), None);
    stage.asked();
    let now = stage.now;
    stage.machine.join(slot(1), server(1), &root(), now, &mut stage.actions);
    stage.not_here(&[0], "/f");
    assert_eq!(stage.asked(), mask(&[1]));
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
}

#[test]
fn a_child_that_flaps_does_not_hold_clients_for_ever() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0], "/f");
    let mut told = Vec::new();
    for _ in 0..60 {
        stage.pass(0.5);
        stage.change(1, |child| child.state.connected = false);
        let now = stage.now;
        stage.machine.join(slot(1), server(1), &root(), now, &mut stage.actions);
        told.extend(stage.answered());
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(stage.machine.stats().queries, 0);
}
