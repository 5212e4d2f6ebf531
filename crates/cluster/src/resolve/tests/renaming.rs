//! Tests of reservations: the holder of a file gets the lease of its new name, if that is free.

use super::placement::{create, placed, state};
use super::*;
use crate::leases::LEASE;

fn reserve(stage: &mut Stage, path: &str, holder: u8) -> Option<ClusterAnswer> {
    let Stage { machine, now, actions, .. } = stage;
    let answer = machine.reserve(RequestToken(5), path.as_bytes(), slot(holder), *now, actions);
    stage.confirm();
    answer
}

#[test]
fn the_child_that_has_the_file_gets_the_lease_whichever_child_would_be_chosen() {
    for holder in 0..3 {
        let mut stage = Stage::new(3);
        assert_eq!(reserve(&mut stage, "/f", holder), None);
        assert_eq!(stage.queried(), mask(&[0, 1, 2]));
        stage.not_here(&[0, 1, 2], "/f");
        assert_eq!(stage.leased(), [holder]);
        assert_eq!(sent_to(&stage.answer()), holder);
        // A creator waits, and readers are sent there.
        assert_eq!(stage.intend(2, "/f", Intent::Create), None);
        stage.leased_by(holder, "/f");
        assert_eq!(stage.answer(), seconds(5));
        assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), holder);
        stage.have(holder, "/f");
        assert_eq!(code(&stage.intend(4, "/f", Intent::Create).unwrap()), ErrorCode::RW_CONFLICT.0);
    }
}

#[test]
fn a_name_that_is_leased_or_exists_is_not_free() {
    let (mut stage, at) = placed(Stage::new(3));
    let other = (at + 1) % 3;
    stage.leased();
    assert_eq!(reserve(&mut stage, "/f", other), None);
    stage.leased_by(at, "/f");
    assert_eq!(stage.answer(), seconds(5), "a client is on its way to create it");
    assert_eq!((stage.leased(), stage.ended()), (vec![], vec![]));
    stage.have(at, "/f");
    assert_eq!(code(&reserve(&mut stage, "/f", other).unwrap()), ErrorCode::RW_CONFLICT.0);
}

#[test]
fn a_name_is_free_at_a_child_that_takes_no_new_files() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[]);
    stage.change(1, |child| child.state.draining = true);
    assert_eq!(sent_to(&reserve(&mut stage, "/f", 1).unwrap()), 1);
    stage.learn("/g", &[]);
    assert!(create(&mut stage, "/g").is_some_and(|other| other != 1));
}

#[test]
fn an_inner_node_forwards_the_lease_of_a_name() {
    let mut stage = Stage::with(cell(3), Policy::default(), true);
    stage.lease("/f", LEASE, 1);
    assert_eq!(reserve(&mut stage, "/f", 2), None);
    stage.not_here(&[0, 1, 2], "/f");
    assert_eq!(sent_to(&stage.answer()), 2);
    assert_eq!(state(&mut stage), Some(StateReply::Have { pending: true }));
    stage.gone(2, "/f");
    assert!(stage.actions.contains(&ResolverAction::Retract { path: Arc::from(&b"/f"[..]) }));
}
