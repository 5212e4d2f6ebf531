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

/// Returns proxies on one host, which clients name without a port.
fn proxies(count: u8) -> Stage {
    let mut stage = stage(count, SharedFilePolicy { unchecked: true, ..SharedFilePolicy::default() });
    let host = stage.machine.cell().child(slot(0)).unwrap().interfaces.clone();
    for number in 1..count {
        stage.change(number, |child| child.interfaces.clone_from(&host));
        stage.change(number, |child| child.port += u16::from(number));
    }
    stage
}

/// The options of a client that returns from a server which has failed.
fn returning(intent: Intent) -> SelectOptions {
    SelectOptions { intent, reason: RetryReason::Server, ..SelectOptions::default() }
}

#[test]
fn a_proxy_that_drains_comes_after_one_that_the_client_may_have_tried() {
    for intent in [Intent::Read, Intent::Update, Intent::Create] {
        for name_only in [false, true] {
            let mut stage = proxies(2);
            stage.change(0, |child| child.state.draining = true);
            let options = SelectOptions { name_only, ..returning(intent) };
            for token in 0..4 {
                let path = format!("/f{token}");
                assert_eq!(sent_to(&stage.select(token, &path, options, "server0").unwrap()), 1);
            }
        }
    }
}

#[test]
fn the_proxy_that_failed_is_the_one_that_was_chosen_for_the_new_file() {
    for number in 0..8 {
        let (mut stage, path) = (proxies(3), format!("/f{number}"));
        let mut seen = SlotMask::EMPTY;
        for (token, tried) in ["", "server0", "server0,server0"].into_iter().enumerate() {
            let answer = stage.select(token as u64, &path, returning(Intent::Create), tried);
            seen.insert(slot(sent_to(&answer.unwrap_or_else(|| stage.answer()))));
        }
        assert_eq!(seen, mask(&[0, 1, 2]), "{path}");
    }
}

#[test]
fn a_client_that_met_any_number_of_failed_proxies_is_sent_to_another() {
    let mut stage = stage(4, SharedFilePolicy { unchecked: true, ..SharedFilePolicy::default() });
    let tried = "server0,server1,server2";
    assert_eq!(sent_to(&stage.select(1, "/f", returning(Intent::Read), tried).unwrap()), 3);
    let missing = stage.select(2, "/f", SelectOptions::default(), tried).unwrap();
    assert_eq!(code(&missing), 1, "all have the same files");
}

#[test]
fn a_client_may_meet_the_same_proxy_again_before_it_is_refused() {
    let mut stage = proxies(2);
    for mentions in 1..6 {
        let tried = vec!["server0"; mentions].join(",");
        let answer = stage.select(mentions as u64, "/f", returning(Intent::Read), &tried).unwrap();
        let is_refused = matches!(answer, ClusterAnswer::Error(ErrorCode::SERVER_ERROR, _));
        assert_eq!(is_refused, mentions >= 4, "{mentions}");
    }
}

#[test]
fn new_files_go_to_draining_proxies_if_there_are_no_others() {
    let options = SelectOptions { intent: Intent::Create, ..SelectOptions::default() };
    let mut stage = proxies(2);
    for number in 0..2 {
        stage.change(number, |child| child.state.draining = true);
    }
    sent_to(&stage.select(1, "/f", options, "").unwrap());
}
