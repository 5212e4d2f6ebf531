//! Readers beside the machine.

use super::*;

fn read(reader: &mut Reader, stage: &Stage, path: &str) -> Option<Answer> {
    reader.select(path.as_bytes(), SelectOptions::default(), stage.now, &mut SplitMix64::new(0))
}

#[test]
fn what_is_plainly_known_is_answered_without_the_machine() {
    let mut stage = Stage::new(3);
    let mut reader = stage.machine.shared().reader();
    assert_eq!(read(&mut reader, &stage, "/f"), None);
    stage.learn("/f", &[0, 2]);
    stage.learn("/g", &[]);
    let turns: Vec<u8> = (0..4).map(|_| sent_to(&read(&mut reader, &stage, "/f").unwrap())).collect();
    assert_eq!(turns, [2, 0, 2, 0], "with the same counts as the machine's");
    assert_eq!(code(&read(&mut reader, &stage, "/g").unwrap()), 1);
    let list = reader.locate(b"/f", LocateOptions::default(), stage.now);
    assert!(matches!(list, Some(Answer::Located(list)) if list.len() == 2));
    assert_eq!(stage.actions, []);
}

#[test]
fn what_is_not_is_left_to_the_machine() {
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
    stage.machine.join(slot(3), server(3), &Export::parse_list(b"w /").unwrap(), now, &mut stage.actions);
    assert_eq!(read(&mut reader, &stage, "/f"), None, "a newcomer has to be asked");
}

#[test]
fn readers_see_what_the_tree_says_at_once() {
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
fn whoever_has_told_of_all_its_files_is_not_asked_for_copies() {
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
    let list = reader.locate(b"/f", LocateOptions::default(), now);
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
fn copies_that_came_by_other_means_get_known() {
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
    assert_eq!(stage.asked(), mask(&[1]));
    assert_eq!(sent_to(&read(&mut reader, &stage, "/g").unwrap()), 0, "not all at once are looked for");
    stage.have(1, "/f");
    let turns: Vec<u8> = (0..4).map(|_| sent_to(&read(&mut reader, &stage, "/f").unwrap())).collect();
    assert!(turns.contains(&0) && turns.contains(&1), "{turns:?}");
    stage.pass(0.01);
    assert_eq!(read(&mut reader, &stage, "/g"), None);
}
