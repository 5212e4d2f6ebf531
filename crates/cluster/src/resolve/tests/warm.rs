//! Tests of readers beside the resolver.

use super::*;

fn read(reader: &mut LocationReader, stage: &Stage, path: &str) -> Option<ClusterAnswer> {
    reader.select(path.as_bytes(), SelectOptions::default(), stage.now, &mut SplitMix64::new(0))
}

#[test]
fn a_known_location_is_answered_without_the_resolver() {
    let mut stage = Stage::new(3);
    let mut reader = stage.machine.shared().reader();
    assert_eq!(read(&mut reader, &stage, "/f"), None);
    stage.learn("/f", &[0, 2]);
    stage.learn("/g", &[]);
    let turns: Vec<u8> = (0..4).map(|_| sent_to(&read(&mut reader, &stage, "/f").unwrap())).collect();
    assert_eq!(turns, [2, 0, 2, 0], "with the same counts as the machine's");
    assert_eq!(code(&read(&mut reader, &stage, "/g").unwrap()), 1);
    let list = reader.locate(b"/f", LocateFlags::default(), stage.now);
    assert!(matches!(list, Some(ClusterAnswer::Located(list)) if list.len() == 2));
    assert_eq!(stage.actions, []);
}

#[test]
fn an_unknown_location_is_left_to_the_resolver() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[0]);
    stage.learn("/g", &[]);
    let mut reader = stage.machine.shared().reader();
    let mut select =
        |options, path: &str| reader.select(path.as_bytes(), options, stage.now, &mut SplitMix64::new(0));
    let plain = SelectOptions::default();
    assert_eq!(select(SelectOptions { refresh: true, ..plain }, "/f"), None);
    assert_eq!(
        select(SelectOptions { intent: Intent::Create, ..plain }, "/g"),
        None,
        "it would come to exist"
    );
    assert_eq!(select(plain, "/unknown"), None);
    let now = stage.now;
    stage.machine.join(
        slot(3),
        server(3),
        &ChildExport::parse_list(b"w /").unwrap(),
        now,
        &mut stage.actions,
    );
    assert_eq!(read(&mut reader, &stage, "/f"), None, "a newcomer has to be asked");
}

#[test]
fn readers_see_changes_of_the_tree_at_once() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0, 1]);
    let mut reader = stage.machine.shared().reader();
    stage.change(0, |child| child.state.suspended = true);
    assert!((0..4).all(|_| sent_to(&read(&mut reader, &stage, "/f").unwrap()) == 1));
    let now = stage.now;
    stage.machine.leave(slot(1), now, &mut stage.actions);
    assert_eq!(read(&mut reader, &stage, "/f"), None, "whether that is waited for the machine decides");
    assert_eq!(stage.read(1, "/f"), Some(seconds(30)));
}

#[test]
fn a_child_with_an_inventory_is_not_queried_for_replicas() {
    let mut stage = Stage::new(3);
    let (mut reader, now) = (stage.machine.shared().reader(), stage.now);
    stage.machine.inventory(slot(0), b"/f", false, now, &mut stage.actions);
    stage.machine.listed(slot(0));
    stage.machine.listed(slot(1));
    assert_eq!(read(&mut reader, &stage, "/f"), None, "one has yet to tell");
    stage.machine.inventory(slot(2), b"/g", false, now, &mut stage.actions);
    stage.machine.listed(slot(2));
    assert_eq!(read(&mut reader, &stage, "/g"), None, "one in a while is looked for");
    assert_eq!(sent_to(&read(&mut reader, &stage, "/f").unwrap()), 0);
    assert_eq!(sent_to(&read(&mut reader, &stage, "/g").unwrap()), 2);
    assert_eq!(read(&mut reader, &stage, "/none"), None, "somebody may have put it on a disk");
    let list = reader.locate(b"/f", LocateFlags::default(), now);
    assert_eq!(list, None, "a list is to be complete");
    let update = SelectOptions { intent: Intent::Update, ..SelectOptions::default() };
    let writes = reader.select(b"/f", update, now, &mut SplitMix64::new(0));
    assert_eq!(writes, None, "no copy is to be overlooked");
    stage.change(0, |child| child.state.draining = true);
    assert_eq!(read(&mut reader, &stage, "/f"), None, "there may be a better place");
    stage.change(0, |child| child.state.suspended = true);
    assert_eq!(read(&mut reader, &stage, "/f"), None);
    stage.change(0, |child| (child.state.draining, child.state.suspended) = (false, false));
    assert_eq!(sent_to(&read(&mut reader, &stage, "/f").unwrap()), 0);
    stage.machine.bounce(slot(1));
    assert_eq!(read(&mut reader, &stage, "/f"), None, "what is there now is another matter");
    stage.machine.listed(slot(1));
    stage.change(2, |child| child.state.connected = false);
    assert_eq!(sent_to(&read(&mut reader, &stage, "/f").unwrap()), 0);
    stage.change(2, |child| child.state.connected = true);
    assert_eq!(read(&mut reader, &stage, "/f"), None, "back, it tells anew");
}

#[test]
fn replicas_made_by_other_means_become_known() {
    let mut stage = Stage::new(2);
    let mut reader = stage.machine.shared().reader();
    for number in 0..2 {
        stage.machine.listed(slot(number));
    }
    for path in ["/f", "/g"] {
        stage.machine.inventory(slot(0), path.as_bytes(), false, stage.now, &mut stage.actions);
    }
    assert_eq!(read(&mut reader, &stage, "/f"), None);
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 0, "nobody waits for it");
    assert_eq!(stage.queried(), mask(&[1]));
    assert_eq!(sent_to(&read(&mut reader, &stage, "/g").unwrap()), 0, "not all at once are looked for");
    stage.have(1, "/f");
    let turns: Vec<u8> = (0..4).map(|_| sent_to(&read(&mut reader, &stage, "/f").unwrap())).collect();
    assert!(turns.contains(&0) && turns.contains(&1), "{turns:?}");
    stage.pass(0.01);
    assert_eq!(read(&mut reader, &stage, "/g"), None);
}

/// Returns three servers with complete inventories; `/d/f` is at the first.
fn complete() -> Stage {
    let mut stage = Stage::new(3);
    stage.machine.inventory(slot(0), b"/d/f", false, stage.now, &mut stage.actions);
    for number in 0..3 {
        stage.machine.begin_list(slot(number));
        stage.machine.listed(slot(number));
        stage.machine.listed_completely(slot(number));
    }
    stage
}

#[test]
fn a_name_in_no_complete_inventory_is_missing_without_a_query() {
    let mut stage = complete();
    let mut reader = stage.machine.shared().reader();
    let entered = stage.machine.stats().cache.locations;
    for number in 0..1000 {
        assert_eq!(code(&read(&mut reader, &stage, &format!("/none/{number}")).unwrap()), 1);
    }
    let list = reader.locate(b"/none", LocateFlags::default(), stage.now);
    assert_eq!(code(&list.unwrap()), 1);
    assert_eq!(stage.machine.stats().cache.locations, entered, "they take no place of others");
    // Its directory has a name without being listed.
    assert_eq!(read(&mut reader, &stage, "/d"), None);
    for intent in [Intent::Create, Intent::Truncate, Intent::Update] {
        let options = SelectOptions { intent, ..SelectOptions::default() };
        let answer = reader.select(b"/none", options, stage.now, &mut SplitMix64::new(0));
        assert_eq!(answer, None, "each child is asked before a file is made");
    }
    let refresh = SelectOptions { refresh: true, ..SelectOptions::default() };
    assert_eq!(reader.select(b"/none", refresh, stage.now, &mut SplitMix64::new(0)), None);
    assert_eq!(stage.actions, []);
    // A name that is created is queried for, even when nothing else is known of it any longer.
    stage.have(1, "/none/7");
    assert_eq!(read(&mut reader, &stage, "/none/7"), None);
    assert_eq!(read(&mut reader, &stage, "/none"), None);
    assert_eq!(code(&read(&mut reader, &stage, "/none/8").unwrap()), 1);
}

#[test]
fn a_forgotten_location_is_not_treated_as_missing() {
    let mut stage = complete();
    let mut reader = stage.machine.shared().reader();
    stage.now += crate::WINDOW * 2;
    stage.machine.tick(stage.now, &mut stage.actions);
    assert_eq!(read(&mut reader, &stage, "/d/f"), None);
    stage.machine.forget(b"/d/f");
    assert_eq!(read(&mut reader, &stage, "/d/f"), None);
    assert_eq!(code(&read(&mut reader, &stage, "/none").unwrap()), 1);
}

#[test]
fn one_child_without_a_complete_inventory_causes_a_query() {
    type Change = fn(&mut Stage);
    let changes: [(&str, Change); 6] = [
        ("what it said is void", |stage| stage.machine.bounce(slot(1))),
        ("another in its place, whose list began before", |stage| {
            let exports = ChildExport::parse_list(b"w /").unwrap();
            stage.machine.join(slot(1), server(1), &exports, stage.now, &mut stage.actions);
            stage.machine.listed(slot(1));
            stage.machine.listed_completely(slot(1));
        }),
        ("it was lost", |stage| {
            stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
        }),
        ("a newcomer", |stage| {
            let exports = ChildExport::parse_list(b"w /").unwrap();
            stage.machine.join(slot(3), server(3), &exports, stage.now, &mut stage.actions);
        }),
        ("another in its place, which lists only files", |stage| {
            let exports = ChildExport::parse_list(b"w /").unwrap();
            stage.machine.join(slot(1), server(1), &exports, stage.now, &mut stage.actions);
            stage.machine.listed(slot(1));
        }),
        ("it is being asked, and does not list everything", |stage| {
            let exports = ChildExport::parse_list(b"w /").unwrap();
            let child = CellChild { lists_all: false, ..server(1) };
            stage.machine.join(slot(1), child, &exports, stage.now, &mut stage.actions);
            stage.machine.begin_list(slot(1));
            stage.machine.listed(slot(1));
            stage.machine.listed_completely(slot(1));
            assert_eq!(stage.read(1, "/none"), None);
            stage.not_here(&[0, 2], "/none");
        }),
    ];
    for (what, change) in changes {
        let mut stage = complete();
        let mut reader = stage.machine.shared().reader();
        change(&mut stage);
        assert_eq!(read(&mut reader, &stage, "/none"), None, "{what}");
    }
}

#[test]
fn children_are_queried_if_parents_know_of_leases() {
    let mut stage = Stage::with(cell(1), Policy::default(), true);
    stage.machine.begin_list(slot(0));
    stage.machine.listed(slot(0));
    stage.machine.listed_completely(slot(0));
    let mut reader = stage.machine.shared().reader();
    assert_eq!(read(&mut reader, &stage, "/none"), None);
}
