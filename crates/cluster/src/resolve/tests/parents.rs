//! Tests of reports to parents: replies to a `state` query, and announcements.

use super::*;

fn inner(servers: u8) -> Stage {
    Stage::with(cell(servers), Policy::default(), true)
}

fn state(stage: &mut Stage, token: u64, path: &str, ask: StateAsk) -> Option<StateReply> {
    stage.machine.state(RequestToken(token), path.as_bytes(), ask, stage.now, &mut stage.actions)
}

const PLAIN: StateAsk = StateAsk { refresh: false, quiet: false, via_meta: false };
const HAVE: StateReply = StateReply::Have { pending: false };

fn announced(stage: &mut Stage) -> Vec<ResolverAction> {
    stage.actions.extract_if(.., |action| !matches!(action, ResolverAction::Ask { .. })).collect()
}

#[test]
fn a_query_of_a_parent_goes_down_and_the_first_holder_is_reported_once() {
    let mut stage = inner(3);
    let ask = StateAsk { via_meta: true, ..PLAIN };
    assert_eq!(state(&mut stage, 1, "/f", ask), None);
    let down =
        ResolverAction::Ask { to: mask(&[0, 1, 2]), path: (*b"/f").into(), refresh: false, via_meta: true };
    assert_eq!(stage.actions, [down]);
    stage.have(0, "/f");
    let news = ResolverAction::Announce { path: (*b"/f").into(), pending: false };
    assert_eq!(announced(&mut stage), [news], "and no reply beside it");
    stage.have(1, "/f");
    assert_eq!(announced(&mut stage), []);
    assert_eq!(state(&mut stage, 2, "/f", PLAIN), Some(HAVE));
}

#[test]
fn not_here_is_sent_if_no_child_has_the_file() {
    let mut stage = inner(2);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.not_here(&[0], "/f");
    assert_eq!(announced(&mut stage), []);
    stage.not_here(&[1], "/f");
    let reply =
        ResolverAction::Reply { token: RequestToken(1), path: (*b"/f").into(), reply: StateReply::NotHere };
    assert_eq!(announced(&mut stage), [reply]);
    assert_eq!(state(&mut stage, 2, "/f", PLAIN), Some(StateReply::NotHere));
}

#[test]
fn a_file_on_draining_nodes_only_is_reported_so_and_comes_last() {
    let mut stage = inner(2);
    stage.change(0, |child| child.state.draining = true);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.have(0, "/f");
    let news = ResolverAction::Announce { path: (*b"/f").into(), pending: false };
    assert_eq!(announced(&mut stage), std::slice::from_ref(&news));
    assert!(stage.machine.is_draining(b"/f", stage.now));
    // Announced once more: it exists elsewhere now, and then no longer.
    stage.have(1, "/f");
    assert_eq!(announced(&mut stage), std::slice::from_ref(&news));
    assert!(!stage.machine.is_draining(b"/f", stage.now));
    stage.gone(1, "/f");
    assert_eq!(announced(&mut stage), [news]);
    assert!(stage.machine.is_draining(b"/f", stage.now));

    // At the parent such holders come last, whichever replies first.
    let mut above = Stage::new(3);
    assert_eq!(above.read(1, "/f"), None);
    above.machine.have_draining(slot(0), b"/f", above.now, &mut above.actions);
    assert_eq!(above.answered(), [], "another may say that it has it");
    above.have(1, "/f");
    assert_eq!(sent_to(&above.answer()), 1);
    above.not_here(&[2], "/f");
    for _ in 0..3 {
        assert_eq!(sent_to(&above.read(2, "/f").unwrap()), 1);
    }
    above.gone(1, "/f");
    above.not_here(&[1, 2], "/f");
    above.read(3, "/f");
    above.not_here(&[1, 2], "/f");
    assert_eq!(sent_to(&above.read(4, "/f").unwrap()), 0, "nobody else has it");
    // After draining it counts as any other child.
    above.have(0, "/f");
    above.have(1, "/f");
    let to: Vec<u8> = (0..4).map(|_| sent_to(&above.read(5, "/f").unwrap())).collect();
    assert!(to.contains(&0) && to.contains(&1), "{to:?}");
}

#[test]
fn not_here_is_sent_for_a_path_without_exporter() {
    let mut stage = Stage::with(Cell::new(&[]), Policy::default(), true);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), Some(StateReply::NotHere));
    assert_eq!(state(&mut stage, 1, "/f", StateAsk { quiet: true, ..PLAIN }), None);
}

#[test]
fn no_reply_is_sent_while_the_state_is_unknown() {
    let mut stage = inner(2);
    stage.change(1, |child| (child.state.connected, child.state.expected) = (false, true));
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.not_here(&[0], "/f");
    assert_eq!(announced(&mut stage), []);
    assert_eq!(stage.machine.stats().waiters, 0);
    // A missing reply of our own child is not treated as absence either.
    let mut stage = inner(1);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.pass(20.0);
    assert_eq!(announced(&mut stage), []);
}

#[test]
fn a_quiet_query_is_forwarded_but_not_answered() {
    let mut stage = inner(2);
    let quiet = StateAsk { quiet: true, ..PLAIN };
    assert_eq!(state(&mut stage, 1, "/f", quiet), None);
    assert_eq!(stage.queried().len(), 2);
    assert_eq!(stage.machine.stats().waiters, 0);
    stage.learn_rest("/f");
    assert_eq!(state(&mut stage, 1, "/f", quiet), None);
}

impl Stage {
    fn learn_rest(&mut self, path: &str) {
        self.have(0, path);
        self.not_here(&[1], path);
    }
}

#[test]
fn a_pending_file_is_reported_as_pending() {
    let mut stage = inner(2);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.pending(0, "/f");
    let news = |pending| ResolverAction::Announce { path: (*b"/f").into(), pending };
    assert_eq!(announced(&mut stage), [news(true)]);
    assert_eq!(state(&mut stage, 2, "/f", PLAIN), Some(StateReply::Have { pending: true }));
    stage.have(0, "/f");
    assert_eq!(announced(&mut stage), [news(false)]);
}

#[test]
fn a_file_without_a_query_is_announced_and_retracted() {
    let mut stage = inner(2);
    stage.have(0, "/never");
    assert_eq!(stage.actions, [ResolverAction::Announce { path: (*b"/never").into(), pending: false }]);
    stage.actions.clear();
    stage.gone(0, "/never");
    assert_eq!(stage.actions, [ResolverAction::Retract { path: (*b"/never").into() }]);
    stage.learn("/f", &[]);
    stage.have(1, "/f");
    assert_eq!(stage.actions, [ResolverAction::Announce { path: (*b"/f").into(), pending: false }]);
    // A root announces nothing.
    let mut root = Stage::new(2);
    root.learn("/f", &[]);
    root.have(1, "/f");
    assert_eq!(root.actions, []);
}

#[test]
fn the_loss_of_the_last_holder_is_reported_and_queried_again() {
    let mut stage = inner(3).legacy(&[2]);
    assert_eq!(stage.read(9, "/f"), None);
    stage.have(0, "/f");
    stage.have(1, "/f");
    stage.pass(5.0);
    stage.actions.clear();
    stage.gone(0, "/f");
    assert_eq!(stage.actions, []);
    stage.gone(1, "/f");
    assert_eq!(stage.actions, [ResolverAction::Retract { path: (*b"/f").into() }]);
    stage.actions.clear();
    // The children with NOT_HERE replies are queried, except the one that reported the removal, and
    // not one whose reply is silence.
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0]));
    stage.not_here(&[0], "/f");
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn orders_to_remove_or_rename_forget_the_location() {
    let mut stage = Stage::new(1);
    stage.learn("/a", &[0]);
    stage.learn("/b", &[]);
    stage.learn("/c", &[0]);
    stage.machine.rename(b"/a/", b"/b");
    stage.machine.forget(b"/c");
    for path in ["/a", "/b", "/c"] {
        assert_eq!(stage.read(1, path), None, "{path}");
    }
}

#[test]
fn an_inventory_is_kept_without_a_query() {
    let mut stage = inner(3);
    let now = stage.now;
    for path in ["/f", "/g"] {
        stage.machine.inventory(slot(1), path.as_bytes(), path == "/g", now, &mut stage.actions);
    }
    assert_eq!(stage.actions, []);
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 1);
    assert_eq!(stage.queried(), mask(&[0, 2]), "others may have it too");
    assert_eq!(state(&mut stage, 1, "/g", PLAIN), Some(StateReply::Have { pending: true }));
    // A request waits for it.
    assert_eq!(stage.read(2, "/h"), None);
    let now = stage.now;
    stage.machine.inventory(slot(2), b"/h", false, now, &mut stage.actions);
    assert_eq!(sent_to(&stage.answer()), 2);
}

#[test]
fn a_file_is_announced_whose_location_was_forgotten_here_before_a_parent_forgets_it() {
    let mut stage = inner(2);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.not_here(&[0, 1], "/f");
    announced(&mut stage);
    // The parent queried again in between, and caches the absence until later.
    stage.pass(crate::cache::WINDOW.as_secs_f64() + 1.0);
    stage.have(1, "/f");
    let news = ResolverAction::Announce { path: (*b"/f").into(), pending: false };
    assert_eq!(announced(&mut stage), [news]);
    // Without parents there is nothing to report.
    let mut stage = Stage::new(2);
    stage.have(1, "/f");
    assert_eq!(stage.actions, []);
}

/// Returns an inner node whose parent relies on `/f` of child 0, which this node has forgotten.
fn forgotten() -> Stage {
    let mut stage = inner(3);
    assert_eq!(state(&mut stage, 1, "/f", PLAIN), None);
    stage.have(0, "/f");
    stage.not_here(&[1, 2], "/f");
    stage.pass(crate::cache::WINDOW.as_secs_f64() + 1.0);
    announced(&mut stage);
    stage.queried();
    stage
}

#[test]
fn a_file_that_goes_after_this_node_has_forgotten_it_is_retracted_if_no_other_child_has_it() {
    let retract = [ResolverAction::Retract { path: (*b"/f").into() }];
    let mut stage = forgotten();
    stage.gone(0, "/f");
    assert_eq!(stage.queried(), mask(&[1, 2]), "a real parent would take it for all of them");
    stage.not_here(&[1], "/f");
    assert_eq!(stage.actions, []);
    stage.not_here(&[2], "/f");
    assert_eq!(stage.actions, retract);
    assert_eq!(stage.machine.stats().queries, 0);
    // Another child has it, or received it meanwhile.
    let mut stage = forgotten();
    stage.gone(0, "/f");
    stage.queried();
    stage.have(2, "/f");
    stage.not_here(&[1], "/f");
    assert!(announced(&mut stage).iter().all(|action| matches!(action, ResolverAction::Announce { .. })));
    // A child without a reply does not serve it either.
    let mut stage = forgotten();
    stage.gone(0, "/f");
    stage.queried();
    stage.pass(60.0);
    assert_eq!(announced(&mut stage), retract);
    // No other child can be queried.
    let mut stage = forgotten();
    (1..3).for_each(|other| stage.change(other, |child| child.state.connected = false));
    stage.gone(0, "/f");
    assert_eq!(stage.actions, retract);
}

#[test]
fn the_removal_of_an_unreported_path_costs_no_query() {
    let mut stage = forgotten();
    stage.gone(0, "/other");
    let mut root = Stage::new(2);
    root.learn("/f", &[0]);
    root.pass(crate::cache::WINDOW.as_secs_f64() + 1.0);
    root.gone(0, "/f");
    assert_eq!((stage.actions, root.actions), (vec![], vec![]));
}
