//! Tests of held requests, and of children that do not answer.

use super::*;
use crate::request::LocateFlags;
use crate::resolve::held_requests::HELD_BYTES_MAX;
use crate::resolve::queries::QUERY_BYTES_MAX;
use crate::tree::{Address, ChildChange};

/// Returns a resolver that holds requests for 30 s, and whose children have a minute to answer.
fn patient(servers: u8, has_parents: bool) -> Stage {
    let mut stage = Stage::with(cell(servers), Policy::default(), has_parents);
    let settings = ResolveSettings::default();
    stage.machine.engine.settings.hold = settings.hold;
    stage.machine.engine.queries.mute = settings.mute;
    stage
}

impl Stage {
    /// Does the work that is due now.
    fn turn(&mut self) {
        while self.machine.next_deadline().is_some_and(|due| due <= self.now) {
            self.machine.tick(self.now, &mut self.actions);
        }
    }

    fn join(&mut self, number: u8) {
        let exports = ChildExport::parse_list(b"w /").unwrap();
        self.machine.join(slot(number), server(number), &exports, self.now, &mut self.actions);
        self.machine.cell().meters().set_free_mb(slot(number), 1000);
    }
}

#[test]
fn a_restarted_manager_serves_with_the_first_node_that_has_the_file() {
    let mut stage = patient(0, false);
    stage.machine.set_quorum(false);
    assert_eq!(stage.read(1, "/f"), None, "that nobody exports it is not said while nobody is there");
    assert_eq!(stage.intend(2, "/new", Intent::Create), None);
    assert_eq!(stage.machine.stats().held, 2);
    stage.join(0);
    stage.turn();
    assert_eq!(stage.queried(), mask(&[0]));
    stage.not_here(&[0], "/f");
    stage.not_here(&[0], "/new");
    assert_eq!(stage.answered(), []);
    stage.join(1);
    stage.turn();
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
    stage.not_here(&[1], "/new");
    stage.turn();
    assert_eq!(stage.answered(), [], "nothing is made while too few are there");
    stage.machine.set_quorum(true);
    stage.turn();
    assert!(sent_to(&stage.answer()) < 2);
    let stats = stage.machine.stats();
    assert_eq!((stats.queries, stats.waiters, stats.held), (0, 0, 0));
}

#[test]
fn no_file_is_placed_for_a_disconnected_client() {
    let mut stage = patient(1, false);
    stage.machine.set_quorum(false);
    assert_eq!(stage.intend(1, "/new", Intent::Create), None);
    assert_eq!(stage.intend(2, "/other", Intent::Create), None);
    stage.not_here(&[0], "/new");
    assert_eq!((stage.machine.stats().held, stage.machine.stats().waiters), (1, 1));
    stage.machine.abandon(vec![RequestToken(2), RequestToken(1)]);
    assert_eq!((stage.machine.stats().held, stage.machine.stats().waiters), (0, 0));
    stage.machine.set_quorum(true);
    stage.turn();
    stage.not_here(&[0], "/other");
    assert_eq!(stage.answered(), []);
    for path in ["/new", "/other"] {
        let known = stage.machine.engine.known(path.as_bytes(), stage.now);
        assert_eq!(known.placed, None, "the next one who makes it is placed anew");
    }
}

#[test]
fn an_inventory_or_an_announcement_ends_a_wait() {
    let mut stage = patient(2, false);
    stage.machine.set_quorum(false);
    for path in ["/f", "/g"] {
        assert_eq!(stage.read(1, path), None);
        stage.not_here(&[0, 1], path);
    }
    assert_eq!(stage.machine.stats().held, 2);
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.answer()), 1);
    stage.machine.inventory(slot(0), b"/g", false, stage.now, &mut stage.actions);
    assert_eq!(sent_to(&stage.answer()), 0);
}

#[test]
fn each_held_request_has_a_deadline() {
    let mut stage = patient(1, true);
    stage.machine.set_quorum(false);
    assert_eq!(stage.read(1, "/f"), None);
    let ask = StateAsk::default();
    assert_eq!(stage.machine.state(RequestToken(2), b"/f", ask, stage.now, &mut stage.actions), None);
    stage.not_here(&[0], "/f");
    stage.queried();
    stage.pass(10.0);
    assert_eq!(stage.actions, [], "the parent listens no longer; it hears nothing");
    assert_eq!(stage.machine.stats().held, 1);
    for number in 1..20 {
        // Changes meanwhile do not restart the time.
        stage.change(0, |child| child.port = number);
        stage.pass(1.0);
    }
    assert_eq!(stage.answered(), []);
    stage.pass(1.0);
    assert_eq!(stage.answer(), seconds(15));
    assert_eq!(stage.machine.next_deadline(), None);
}

#[test]
fn a_supervisor_without_children_redirects_clients_back() {
    let deserted = || {
        let mut stage = patient(0, true);
        stage.machine.engine.settings.supervises = true;
        stage.machine.set_quorum(false);
        stage
    };
    // Its children may be on their way for the first seconds.
    let mut stage = deserted();
    let door = Address::new("manager", 1094);
    stage.machine.set_door(Some(&door));
    assert_eq!(stage.read(1, "/f"), None);
    stage.turn();
    let back = ClusterAnswer::Redirect { slot: None, host: "manager".into(), port: 1094 };
    assert_eq!(
        stage.machine.next_deadline(),
        Some(Duration::from_secs(5)),
        "not only when it was held for long"
    );
    stage.pass(5.0);
    assert_eq!(stage.answer(), back);
    assert_eq!(stage.intend(2, "/new", Intent::Create), Some(back.clone()));
    let locate = LocateFlags::default();
    assert_eq!(
        stage.machine.locate(RequestToken(3), b"/f", locate, stage.now, &mut stage.actions),
        Some(back)
    );
    stage.machine.set_door(Some(&Address::new("::1", 1094)));
    let written = ClusterAnswer::Redirect { slot: None, host: "[::1]".into(), port: 1094 };
    assert_eq!(stage.read(5, "/f"), Some(written), "as it stands before a port");
    // It serves with its first child.
    stage.join(0);
    assert_eq!(stage.read(4, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0]));
    // A real manager does not send the address of entry: an error sends clients back, but not at
    // once.
    let mut stage = deserted();
    assert_eq!(stage.read(1, "/f"), None);
    stage.pass(29.0);
    assert_eq!(stage.answered(), []);
    stage.pass(1.0);
    assert_eq!(code(&stage.answer()), ErrorCode::SERVER_ERROR.0);
    // Clients enter the cluster at a manager.
    let mut stage = patient(0, true);
    stage.machine.set_quorum(false);
    stage.machine.set_door(Some(&door));
    assert_eq!(stage.read(1, "/f"), None);
    stage.pass(30.0);
    assert_eq!(stage.answer(), seconds(15));
}

#[test]
fn a_reader_waits_for_a_holder_that_was_just_lost() {
    let mut stage = patient(2, false);
    stage.learn("/f", &[0]);
    stage.change(0, |child| (child.state.connected, child.state.expected) = (false, true));
    assert_eq!(stage.read(1, "/f"), None);
    stage.change(0, |child| (child.state.connected, child.state.expected) = (true, false));
    stage.turn();
    assert_eq!(sent_to(&stage.answer()), 0);
}

#[test]
fn a_supervisor_reports_no_file_as_missing_while_a_lost_child_is_expected() {
    let mut stage = patient(2, true);
    stage.learn("/f", &[]);
    stage.learn("/g", &[1]);
    let now = stage.now;
    stage.machine.follow(slot(0), ChildChange::Lost, None, Vec::new(), now, &mut stage.actions);
    stage.machine.follow(slot(0), ChildChange::Freed, None, Vec::new(), now, &mut stage.actions);
    let state = |stage: &mut Stage, token: u64, path: &str| {
        let Stage { machine, now, actions, .. } = stage;
        machine.state(RequestToken(token), path.as_bytes(), StateAsk::default(), *now, actions)
    };
    assert_eq!(state(&mut stage, 1, "/f"), None);
    assert_eq!(state(&mut stage, 2, "/g"), Some(StateReply::Have { pending: false }));
    stage.machine.set_quorum(true);
    stage.turn();
    assert_eq!(stage.actions, [], "whatever the driver says");
    // The parent waits for a part of the time only, and queries again.
    stage.pass(10.0);
    assert_eq!(state(&mut stage, 3, "/f"), None);
    stage.pass(19.0);
    assert_eq!((state(&mut stage, 4, "/f"), &*stage.actions), (None, &[][..]));
    stage.pass(1.0);
    stage.turn();
    let reply =
        ResolverAction::Reply { token: RequestToken(4), path: (*b"/f").into(), reply: StateReply::NotHere };
    assert_eq!(stage.actions, [reply]);
}

#[test]
fn an_unresponsive_server_does_not_delay_requests_for_ever() {
    let mut stage = patient(2, false);
    let mut retries = 0;
    while stage.now < Duration::from_secs(60) {
        assert_eq!(stage.intend(1, "/f", Intent::Create), None);
        stage.not_here(&[0], "/f");
        assert_eq!(stage.answered(), []);
        stage.pass(10.0);
        retries += stage.answered().iter().filter(|(_, answer)| *answer == seconds(5)).count();
    }
    assert!(retries >= 6, "come again");
    // From now on it is treated as a real daemon without the file.
    assert_eq!(stage.intend(1, "/f", Intent::Create), None);
    stage.pass(5.0);
    assert_eq!(sent_to(&stage.answer()), 0, "and gets no new file while there are others");
    assert_eq!(stage.read(2, "/g"), None);
    stage.not_here(&[0], "/g");
    // This lasts until it replies.
    stage.not_here(&[1], "/g");
    assert_eq!(code(&stage.answer()), 1);
    assert_eq!(stage.read(3, "/h"), None);
    stage.not_here(&[0], "/h");
    stage.pass(5.0);
    assert_eq!(stage.answered(), [], "its silence means nothing again");
}

#[test]
fn announcements_of_an_unresponsive_server_do_not_count_as_replies() {
    let mut stage = patient(2, false);
    stage.learn("/news", &[]);
    let silent_for = |stage: &mut Stage, path: &str, seconds: f64| {
        assert_eq!(stage.intend(1, path, Intent::Create), None);
        stage.not_here(&[0], path);
        stage.pass(seconds);
        stage.answer()
    };
    while stage.now < Duration::from_secs(60) {
        assert_eq!(silent_for(&mut stage, "/f", 10.0), seconds(5));
        stage.have(1, "/news");
        stage.gone(1, "/news");
    }
    sent_to(&silent_for(&mut stage, "/f", 5.0));
    // Clients create files there, and it reports them.
    stage.change(0, |child| child.state.draining = true);
    for path in ["/g", "/h"] {
        assert_eq!(sent_to(&silent_for(&mut stage, path, 5.0)), 1, "nobody else waits a minute for each");
        stage.have(1, path);
    }
    // A report that it has a queried file is a reply.
    assert_eq!(stage.read(2, "/i"), None);
    stage.have(1, "/i");
    assert_eq!(sent_to(&stage.answer()), 1);
    assert_eq!(silent_for(&mut stage, "/j", 10.0), seconds(5), "its silence means nothing again");
}

/// Returns the retries to a creator when the first child replies "not here" and the second is
/// silent for this time.
fn silence_of_the_second(stage: &mut Stage, path: &str, seconds: f64) -> Vec<(u64, ClusterAnswer)> {
    assert_eq!(stage.intend(1, path, Intent::Create), None);
    stage.not_here(&[0], path);
    stage.pass(seconds);
    stage.answered()
}

#[test]
fn a_hung_disk_does_not_delay_requests_for_ever() {
    let mut stage = patient(2, false);
    while stage.now < Duration::from_secs(60) {
        assert_eq!(silence_of_the_second(&mut stage, "/hung/f", 10.0), [(1, seconds(5))]);
        // For its other disks it replies as usual.
        let path = format!("/well/{:?}", stage.now);
        assert_eq!(stage.read(2, &path), None);
        stage.not_here(&[0, 1], &path);
        assert_eq!(code(&stage.answer()), 1);
    }
    for path in ["/hung/f", "/hung/g"] {
        let answered = silence_of_the_second(&mut stage, path, 5.0);
        assert_eq!(answered.len(), 1, "it is like a real daemon there");
        assert_eq!(sent_to(&answered[0].1), 0, "and gets no new file there");
    }
    for path in ["/well/f", "/hung/below/f", "/hung"] {
        assert_eq!(
            silence_of_the_second(&mut stage, path, 5.0),
            [],
            "its silence about other directories means nothing"
        );
        stage.not_here(&[1], path);
        sent_to(&stage.answer());
    }
    // This lasts until it replies there.
    assert_eq!(stage.read(2, "/hung/h"), None);
    stage.not_here(&[0, 1], "/hung/h");
    assert_eq!(code(&stage.answer()), 1);
    assert_eq!(silence_of_the_second(&mut stage, "/hung/i", 5.0), []);
}

#[test]
fn an_inner_node_out_of_service_does_not_delay_requests_for_ever() {
    let mut stage = patient(2, false);
    stage.change(1, |child| child.kind = crate::ChildKind::Inner);
    stage.learn("/below", &[1]);
    stage.change(1, |child| child.state.suspended = true);
    while stage.now < Duration::from_secs(50) {
        assert_eq!(silence_of_the_second(&mut stage, "/d/f", 10.0), [(1, seconds(5))]);
        // It reports its own files: it is not dead.
        let path = format!("/d/{:?}", stage.now);
        assert_eq!(stage.read(2, &path), None);
        stage.not_here(&[0], &path);
        stage.have(1, &path);
        assert_eq!(stage.answered(), [], "who reads it waits until it is in service");
        stage.machine.abandon(vec![RequestToken(2)]);
    }
    stage.pass(10.0);
    for path in ["/d/f", "/d/g"] {
        let answered = silence_of_the_second(&mut stage, path, 5.0);
        assert_eq!(answered.len(), 1, "it is listened to as a real one is");
        assert_eq!(sent_to(&answered[0].1), 0);
    }
    assert_eq!(stage.read(3, "/below"), None);
    stage.change(1, |child| child.port = 2094);
    assert_eq!(silence_of_the_second(&mut stage, "/d/h", 5.0).len(), 1, "whatever else it says of itself");
    stage.change(1, |child| child.state.suspended = false);
    stage.turn();
    assert_eq!(sent_to(&stage.answer()), 1, "what it has is found again");
    assert_eq!(silence_of_the_second(&mut stage, "/d/i", 5.0), [], "it is taken at its word again");
    stage.not_here(&[1], "/d/i");
    assert!(sent_to(&stage.answer()) < 2);
}

#[test]
fn paths_that_wait_are_bounded_by_their_bytes() {
    let long = |number: usize| format!("/{}/{number:08}", "x".repeat(4000));
    let bytes = long(0).len();
    // Queries that no child retries.
    let mut stage = Stage::new(2);
    let queried = (0..).take_while(|number| stage.read(*number as u64, &long(*number)).is_none()).count();
    assert_eq!(queried, QUERY_BYTES_MAX / bytes);
    assert_eq!(stage.machine.stats().waiters, queried);
    // Requests that are held for a lost child. The first one beyond the limit is asked to retry.
    let mut stage = Stage::new(2);
    stage.machine.engine.settings.hold = Duration::from_secs(30);
    stage.machine.set_quorum(true);
    stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
    let hold = |stage: &mut Stage, number: usize| {
        let answer = stage.read(number as u64, &long(number));
        stage.not_here(&[0], &long(number));
        answer.is_none() && stage.answered().is_empty()
    };
    let most = HELD_BYTES_MAX / bytes;
    for number in 0..most {
        assert!(hold(&mut stage, number), "{number} of {most}");
    }
    assert!(!hold(&mut stage, most));
    assert_eq!(stage.machine.stats().held, most);
    // Others that wait for the same path take no room; those that leave free theirs.
    let again = stage.read(u64::MAX, &long(0));
    assert_eq!((again, stage.machine.stats().held), (None, most + 1));
    stage.machine.abandon([RequestToken(7)]);
    assert!(hold(&mut stage, most + 1));
}
