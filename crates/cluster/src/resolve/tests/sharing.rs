//! Tests of a shared file system: one server answers for all.

use super::*;
use crate::SharedFilePolicy;
use crate::request::RetryReason;

fn stage(servers: u8, shared: SharedFilePolicy) -> Stage {
    Stage::with(cell(servers), Policy { shared: Some(shared), ..Policy::default() }, false)
}

fn checked_stage(servers: u8) -> Stage {
    stage(servers, SharedFilePolicy::default())
}

#[test]
fn one_server_is_queried_and_answers_for_all() {
    let mut stage = checked_stage(3);
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0]), "one");
    stage.have(0, "/f");
    sent_to(&stage.answer());
    let mut seen = SlotMask::EMPTY;
    for token in 2..8 {
        seen.insert(slot(sent_to(&stage.read(token, "/f").unwrap())));
    }
    assert_eq!(seen, mask(&[0, 1, 2]), "all have it");
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    assert_eq!(stage.read(9, "/g"), None);
    assert_eq!(stage.queried(), mask(&[1]), "they take turns");
    stage.not_here(&[1], "/g");
    assert_eq!(code(&stage.answer()), 1, "nobody has it");
    assert_eq!(code(&stage.read(10, "/g").unwrap()), 1, "and that is remembered");
}

#[test]
fn gone_at_one_is_gone_everywhere() {
    let mut stage = checked_stage(2);
    stage.learn("/f", &[0]);
    stage.gone(1, "/f");
    assert_eq!(stage.read(1, "/f"), None, "it is sought again");
    let queried = stage.queried();
    assert_eq!(queried.len(), 1);
    let queried = queried.lowest().unwrap().number();
    stage.not_here(&[queried], "/f");
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn another_server_is_queried_if_the_first_is_lost() {
    let mut stage = checked_stage(2);
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0]));
    stage.change(0, |child| child.state.connected = false);
    assert_eq!(stage.queried(), mask(&[1]));
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
}

#[test]
fn a_file_is_created_once_and_written_through_any_server() {
    let mut stage = checked_stage(2);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    let queried = stage.queried().lowest().unwrap().number();
    stage.not_here(&[queried], "/f");
    let maker = sent_to(&stage.answer());
    assert_eq!(stage.intend(2, "/f", Intent::Create), Some(seconds(5)), "it is being made");
    assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), maker, "until it is there, its maker alone has it");
    stage.have(maker, "/f");
    for token in 4..8 {
        sent_to(&stage.intend(token, "/f", Intent::Update).unwrap());
    }
    assert_eq!(code(&stage.intend(9, "/f", Intent::Create).unwrap()), 14);
}

#[test]
fn a_client_that_tried_two_servers_is_not_sent_to_a_third() {
    let mut stage = checked_stage(4);
    stage.learn("/f", &[0]);
    let options = SelectOptions { reason: RetryReason::Io, ..SelectOptions::default() };
    let tried = |stage: &Stage, slots: &[u8]| {
        let host =
            |number: &u8| stage.machine.cell().child(slot(*number)).unwrap().interfaces[0].host.to_string();
        slots.iter().map(host).collect::<Vec<_>>().join(",")
    };
    let one = tried(&stage, &[0]);
    assert_ne!(sent_to(&stage.select(1, "/f", options, &one).unwrap()), 0);
    let two = tried(&stage, &[0, 1]);
    assert_eq!(code(&stage.select(2, "/f", options, &two).unwrap()), 5, "an I/O error");
}

#[test]
fn unchecked_files_are_served_by_any_server() {
    let mut stage = stage(2, SharedFilePolicy { unchecked: true, ..SharedFilePolicy::default() });
    let mut seen = SlotMask::EMPTY;
    for token in 0..4 {
        seen.insert(slot(sent_to(&stage.read(token, "/f").unwrap())));
        sent_to(&stage.intend(token, "/new", Intent::Create).unwrap());
        sent_to(&stage.intend(token, "/f", Intent::Update).unwrap());
    }
    assert_eq!(seen, mask(&[0, 1]));
    assert_eq!(stage.queried(), SlotMask::EMPTY);
    let all = LocateFlags::default();
    assert_eq!(located(&locate(&mut stage, 1, all)).len(), 2);
    let unique = LocateFlags { unique: true, ..all };
    assert_eq!(located(&locate(&mut stage, 2, unique)).len(), 1);
}

fn locate(stage: &mut Stage, token: u64, options: LocateFlags) -> ClusterAnswer {
    stage.machine.locate(RequestToken(token), b"/f", options, stage.now, &mut stage.actions).unwrap()
}

fn located(answer: &ClusterAnswer) -> &[crate::request::LocatedChild] {
    match answer {
        ClusterAnswer::Located(list) => list,
        other => panic!("{other:?}"),
    }
}
