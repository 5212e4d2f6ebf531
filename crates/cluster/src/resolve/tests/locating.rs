//! Tests of all forms of `locate`.

use super::*;
use crate::cell::{ClientOrigin, Interface, Net};
use crate::request::LocatedChild;

fn locate(stage: &mut Stage, token: u64, path: &str, options: LocateFlags) -> Option<ClusterAnswer> {
    stage.machine.locate(RequestToken(token), path.as_bytes(), options, stage.now, &mut stage.actions)
}

#[track_caller]
fn lines(answer: &ClusterAnswer) -> Vec<String> {
    match answer {
        ClusterAnswer::Located(list) => {
            String::from_utf8(LocatedChild::text(list)).unwrap().split(' ').map(str::to_owned).collect()
        }
        other => panic!("{other:?}"),
    }
}

const PLAIN: LocateFlags = LocateFlags {
    refresh: false,
    names: false,
    unique: false,
    asap: false,
    all_nets: false,
    client: ClientOrigin { net: Net::V4First, private: false, alone: false },
};

#[test]
fn children_are_listed_from_the_highest_slot_down() {
    let mut stage = Stage::new(3);
    stage.change(0, |child| child.kind = crate::ChildKind::Inner);
    stage.change(1, |child| child.state.suspended = true);
    let all = locate(&mut stage, 1, "*", PLAIN).unwrap();
    assert_eq!(lines(&all), ["Sr[::10.0.0.2]:1094", "sr[::10.0.0.1]:1094", "Mr[::10.0.0.0]:1094"]);
    let names = locate(&mut stage, 1, "*", LocateFlags { names: true, ..PLAIN }).unwrap();
    assert_eq!(lines(&names)[0], "Srserver2:1094");
    let mut empty = Stage::new(0);
    assert_eq!(code(&locate(&mut empty, 1, "*", PLAIN).unwrap()), 1);
}

#[test]
fn a_listing_of_exporters_has_all_children_that_export_the_path() {
    let mut cell = cell(1);
    cell.join(slot(1), server(1), &ChildExport::parse_list(b"r /a").unwrap());
    let mut stage = Stage::with(cell, Policy::default(), false);
    let exporters = locate(&mut stage, 1, "*/a/f", PLAIN).unwrap();
    assert_eq!(lines(&exporters), ["Sr[::10.0.0.1]:1094", "Sw[::10.0.0.0]:1094"]);
    assert_eq!(lines(&locate(&mut stage, 1, "*/b", PLAIN).unwrap()), ["Sw[::10.0.0.0]:1094"]);
    assert_eq!(stage.queried(), SlotMask::EMPTY);
}

#[test]
fn the_list_of_holders_is_complete_unless_asap_is_set() {
    let mut stage = Stage::new(3);
    assert_eq!(locate(&mut stage, 1, "/f", PLAIN), None);
    assert_eq!(locate(&mut stage, 2, "/f", LocateFlags { asap: true, ..PLAIN }), None);
    stage.have(0, "/f");
    let first = stage.answered();
    assert_eq!((first[0].0, lines(&first[0].1)), (2, vec!["Sw[::10.0.0.0]:1094".to_owned()]));
    assert_eq!(first.len(), 1);
    stage.pending(2, "/f");
    stage.not_here(&[1], "/f");
    assert_eq!(lines(&stage.answer()), ["sw[::10.0.0.2]:1094", "Sw[::10.0.0.0]:1094"]);
    assert_eq!(lines(&locate(&mut stage, 3, "/f", PLAIN).unwrap()).len(), 2);
}

#[test]
fn a_file_without_holders_is_not_found() {
    let mut stage = Stage::new(2);
    assert_eq!(locate(&mut stage, 1, "/f", PLAIN), None);
    stage.not_here(&[0, 1], "/f");
    assert_eq!(code(&stage.answer()), 1);
    let mut stage = Stage::new(0);
    assert_eq!(code(&locate(&mut stage, 1, "/f", PLAIN).unwrap()), 1);
}

#[test]
fn holders_that_are_away_are_left_out_and_an_empty_list_is_never_sent() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0, 1]);
    stage.change(0, |child| child.state.connected = false);
    assert_eq!(lines(&locate(&mut stage, 1, "/f", PLAIN).unwrap()), ["Sw[::10.0.0.1]:1094"]);
    stage.change(1, |child| child.state.connected = false);
    assert_eq!(locate(&mut stage, 1, "/f", PLAIN), Some(seconds(15)));
}

#[test]
fn holders_are_listed_by_addresses_that_the_client_can_use() {
    let mut stage = Stage::new(1);
    stage.learn("/f", &[0]);
    stage.change(0, |child| {
        child.interfaces = vec![
            Interface { host: "here".into(), ip: "192.168.0.1".parse().unwrap(), private: true },
            Interface { host: "[2001:db8::1]".into(), ip: "2001:db8::1".parse().unwrap(), private: false },
        ];
    });
    let mut from = |net, private, all_nets| {
        let options = LocateFlags {
            names: true,
            client: ClientOrigin { net, private, alone: false },
            all_nets,
            ..PLAIN
        };
        locate(&mut stage, 1, "/f", options).unwrap()
    };
    assert_eq!(lines(&from(Net::V4First, true, false)), ["Swhere:1094"]);
    assert_eq!(lines(&from(Net::V6First, true, false)), ["Sw[2001:db8::1]:1094"]);
    assert_eq!(lines(&from(Net::V4First, false, false)), ["Sw[2001:db8::1]:1094"]);
    assert_eq!(code(&from(Net::V4, false, false)), 9);
    assert_eq!(lines(&from(Net::V4, false, true)), ["Swhere:1094"]);
}

#[test]
fn a_refresh_queries_again() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    assert_eq!(locate(&mut stage, 1, "/f", LocateFlags { refresh: true, ..PLAIN }), None);
    assert_eq!(stage.queried().len(), 2);
}
