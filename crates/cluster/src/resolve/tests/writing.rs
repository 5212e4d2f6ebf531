//! Tests of `select` for writers and creators: one place, never two.

use super::*;

fn options(intent: Intent) -> SelectOptions {
    SelectOptions { intent, ..SelectOptions::default() }
}

#[test]
fn a_creator_waits_for_all_replies() {
    let mut stage = Stage::new(3);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.not_here(&[0, 1], "/f");
    assert_eq!(stage.answered(), []);
    stage.not_here(&[2], "/f");
    let placed = sent_to(&stage.answer());
    // Other clients are sent there, and a second creator waits until the file exists.
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), placed);
    assert_eq!(sent_to(&stage.intend(3, "/f", Intent::Truncate).unwrap()), placed);
    assert_eq!(stage.intend(4, "/f", Intent::Create), None);
    stage.leased_by(placed, "/f");
    assert_eq!(stage.answer(), seconds(5));
    stage.pending(placed, "/f");
    assert_eq!(code(&stage.intend(4, "/f", Intent::Create).unwrap()), 14);
}

#[test]
fn of_two_waiting_creators_one_creates_the_file() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    assert_eq!(stage.intend(2, "/f", Intent::Create), None);
    assert_eq!(stage.queried().len(), 2);
    stage.not_here(&[0, 1], "/f");
    let answers = stage.answered();
    let placed = sent_to(&answers[0].1);
    assert_eq!(answers[1].1, seconds(5));
    stage.have(placed, "/f");
    assert_eq!(code(&stage.intend(2, "/f", Intent::Create).unwrap()), 14);
}

#[test]
fn an_existing_file_is_not_created_but_truncated_in_place() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[1]);
    assert_eq!(code(&stage.intend(1, "/f", Intent::Create).unwrap()), 14);
    assert_eq!(sent_to(&stage.intend(1, "/f", Intent::Truncate).unwrap()), 1);
    assert_eq!(sent_to(&stage.intend(1, "/f", Intent::Update).unwrap()), 1);
    stage.learn("/g", &[]);
    assert_eq!(code(&stage.intend(1, "/g", Intent::Update).unwrap()), 1);
}

#[test]
fn replicas_are_written_only_if_allowed() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[0, 1]);
    assert_eq!(code(&stage.intend(1, "/f", Intent::Update).unwrap()), 14);
    let fine = SelectOptions { copies: true, ..options(Intent::Update) };
    assert!(sent_to(&stage.select(1, "/f", fine, "").unwrap()) < 2);
    let name = SelectOptions { name_only: true, ..options(Intent::Update) };
    assert!(sent_to(&stage.select(1, "/f", name, "").unwrap()) < 2);
    let mut stage = Stage::with(cell(3), Policy { copies: true, ..Policy::default() }, false);
    stage.learn("/f", &[0, 1]);
    assert!(sent_to(&stage.intend(1, "/f", Intent::Update).unwrap()) < 2);
}

#[test]
fn a_file_with_a_read_only_holder_is_not_written() {
    let mut cell = cell(1);
    cell.join(slot(1), server(1), &ChildExport::parse_list(b"r /").unwrap());
    let mut stage = Stage::with(cell, Policy::default(), false);
    stage.learn("/f", &[1]);
    assert_eq!(code(&stage.intend(1, "/f", Intent::Update).unwrap()), 14);
    stage.learn("/g", &[]);
    assert_eq!(
        sent_to(&stage.intend(1, "/g", Intent::Create).unwrap()),
        0,
        "new ones go where it may be written"
    );
    let mut readers = Cell::new(&[]);
    readers.join(slot(0), server(0), &ChildExport::parse_list(b"r /").unwrap());
    let mut stage = Stage::with(readers, Policy::default(), false);
    assert_eq!(code(&stage.intend(1, "/h", Intent::Create).unwrap()), 1);
    assert_eq!(stage.queried(), SlotMask::EMPTY);
}

#[test]
fn new_files_go_where_there_is_space() {
    let mut stage = Stage::new(3);
    stage.machine.cell().meters().set_free_mb(slot(0), 99);
    stage.machine.cell().meters().set_free_mb(slot(2), 99);
    for n in 0..3 {
        let path = format!("/f{n}");
        stage.learn(&path, &[]);
        assert_eq!(sent_to(&stage.intend(1, &path, Intent::Create).unwrap()), 1);
    }
    stage.machine.cell().meters().set_free_mb(slot(1), 99);
    stage.learn("/g", &[]);
    assert_eq!(code(&stage.intend(1, "/g", Intent::Create).unwrap()), 7);
    // A change of a name needs no space: a full disk can be cleaned up.
    stage.learn("/h", &[0]);
    let remove = SelectOptions { name_only: true, ..options(Intent::Update) };
    assert_eq!(sent_to(&stage.select(1, "/h", remove, "").unwrap()), 0);
}

#[test]
fn a_further_replica_goes_to_a_child_without_one() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[0, 1]);
    let copy = SelectOptions { replica: true, ..options(Intent::Create) };
    assert_eq!(sent_to(&stage.select(1, "/f", copy, "").unwrap()), 2);
    assert_eq!(code(&stage.select(1, "/f", copy, "server2").unwrap()), 15);
    stage.learn("/g", &[0, 1, 2]);
    assert_eq!(code(&stage.select(1, "/g", copy, "").unwrap()), 15);
}

#[test]
fn a_choice_that_was_used_stays() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[]);
    let placed = sent_to(&stage.intend(1, "/f", Intent::Create).unwrap());
    stage.pending(placed, "/f");
    stage.pass(121.0);
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), placed);
    assert_eq!(stage.queried(), SlotMask::EMPTY);
}

#[test]
fn a_choice_survives_a_refresh() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[]);
    let placed = sent_to(&stage.intend(1, "/f", Intent::Create).unwrap());
    let refresh = SelectOptions { refresh: true, ..options(Intent::Create) };
    assert_eq!(stage.select(2, "/f", refresh, ""), None);
    stage.leased_by(placed, "/f");
    stage.not_here(&[1 - placed], "/f");
    assert_eq!(stage.answer(), seconds(5));
    assert_eq!(sent_to(&stage.read(3, "/f").unwrap()), placed);
}

#[test]
fn no_file_is_created_without_a_quorum() {
    let mut stage = Stage::new(2);
    stage.machine.set_quorum(false);
    stage.learn("/f", &[]);
    assert_eq!(stage.intend(1, "/f", Intent::Create), Some(seconds(15)));
    assert_eq!(stage.read(1, "/f"), Some(seconds(15)), "nor said to be nowhere");
    stage.learn("/g", &[1]);
    assert_eq!(sent_to(&stage.read(1, "/g").unwrap()), 1, "what is known is served");
    stage.machine.set_quorum(true);
    assert!(stage.intend(1, "/f", Intent::Create).is_some_and(|answer| sent_to(&answer) < 2));
}

#[test]
fn no_file_is_created_just_after_the_loss_of_a_child() {
    let mut stage = Stage::new(2);
    stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    assert_eq!(stage.queried(), mask(&[0]));
    stage.not_here(&[0], "/f");
    assert_eq!(stage.answer(), seconds(15));
    stage.change(1, |child| child.state.expected = false);
    assert_eq!(sent_to(&stage.intend(1, "/f", Intent::Create).unwrap()), 0);
}

#[test]
fn creators_wait_for_the_query_timeout_of_real_daemons() {
    let mut stage = Stage::new(2).legacy(&[0, 1]);
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.pass(5.0);
    sent_to(&stage.answer());
}

#[test]
fn a_child_that_is_drained_serves_what_only_it_has_and_gets_nothing_new() {
    let mut stage = Stage::new(2);
    stage.change(0, |child| child.state.draining = true);
    stage.learn("/only", &[0]);
    stage.learn("/both", &[0, 1]);
    assert_eq!(sent_to(&stage.read(1, "/only").unwrap()), 0);
    assert_eq!(sent_to(&stage.intend(1, "/only", Intent::Update).unwrap()), 0);
    assert!((0..4).all(|n| sent_to(&stage.read(n, "/both").unwrap()) == 1));
    stage.learn("/new", &[]);
    assert_eq!(sent_to(&stage.intend(1, "/new", Intent::Create).unwrap()), 1);
    stage.change(1, |child| child.state.draining = true);
    stage.learn("/newer", &[]);
    assert_eq!(stage.intend(1, "/newer", Intent::Create), Some(seconds(30)));
}
