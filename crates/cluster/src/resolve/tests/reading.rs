//! Tests of `select` for readers.

use super::*;
use base::PATH_BYTES_MAX;

#[test]
fn a_miss_queries_all_exporters_and_the_first_holder_answers() {
    let mut stage = Stage::new(4);
    assert_eq!(stage.read(1, "/f"), None);
    assert_eq!(stage.queried(), mask(&[0, 1, 2, 3]));
    stage.have(2, "/f");
    assert_eq!(sent_to(&stage.answer()), 2);
    // The location is known now: the answer comes at once, although replies are outstanding.
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), 2);
    assert_eq!(stage.queried(), SlotMask::EMPTY);
}

#[test]
fn a_missing_file_costs_one_round_trip_among_our_own_nodes() {
    let mut stage = Stage::new(3);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0, 1], "/f");
    assert_eq!(stage.answered(), []);
    stage.not_here(&[2], "/f");
    assert_eq!(code(&stage.answer()), 1);
    assert_eq!(code(&stage.read(2, "/f").unwrap()), 1, "and then nothing");
    assert_eq!(stage.machine.stats().queries, 0);
}

#[test]
fn silence_of_real_daemons_is_listened_to_for_its_time() {
    let mut stage = Stage::new(3).legacy(&[1]);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0, 2], "/f");
    stage.pass(4.9);
    assert_eq!(stage.answered(), []);
    assert_eq!(stage.machine.next_deadline(), Some(SILENCE));
    stage.pass(0.1);
    assert_eq!(code(&stage.answer()), 1);
    // Too late for that answer, but not for the next.
    stage.have(1, "/f");
    assert_eq!(sent_to(&stage.read(2, "/f").unwrap()), 1);
}

#[test]
fn a_missing_reply_of_our_own_node_does_not_mean_absence() {
    let mut stage = Stage::new(2);
    assert_eq!(stage.read(1, "/f"), None);
    stage.not_here(&[0], "/f");
    stage.pass(9.9);
    assert_eq!(stage.answered(), []);
    stage.pass(0.1);
    assert_eq!(stage.answer(), seconds(5));
    // A client that returns causes a new query, to this child only.
    stage.queried();
    assert_eq!(stage.read(2, "/f"), None);
    assert_eq!(stage.queried(), mask(&[1]));
}

#[test]
fn a_draining_holder_does_not_answer_while_replies_are_outstanding() {
    let mut stage = Stage::new(3);
    stage.change(0, |child| child.state.draining = true);
    assert_eq!(stage.read(1, "/both"), None);
    stage.have(0, "/both");
    assert_eq!(stage.answered(), []);
    stage.have(2, "/both");
    assert_eq!(sent_to(&stage.answer()), 2);
    assert_eq!(stage.read(2, "/only"), None);
    stage.have(0, "/only");
    stage.not_here(&[1], "/only");
    assert_eq!(stage.answered(), []);
    stage.not_here(&[2], "/only");
    assert_eq!(sent_to(&stage.answer()), 0, "nobody else has it");
    // A silent child does not keep clients from the holder.
    assert_eq!(stage.read(3, "/silence"), None);
    stage.have(0, "/silence");
    stage.pass(10.0);
    assert_eq!(sent_to(&stage.answer()), 0);
}

#[test]
fn a_path_without_exporter_causes_no_query() {
    let mut stage = Stage::with(Cell::new(&[]), Policy::default(), false);
    assert_eq!(code(&stage.read(1, "/f").unwrap()), 1);
    let exports = ChildExport::parse_list(b"w /only").unwrap();
    let now = stage.now;
    stage.machine.join(slot(5), server(5), &exports, now, &mut stage.actions);
    assert_eq!(code(&stage.read(1, "/onlyx").unwrap()), 1);
    assert_eq!(stage.read(1, "/only/f"), None);
    assert_eq!(stage.queried(), mask(&[5]));
    assert_eq!(stage.machine.stats().cache.locations, 1);
}

#[test]
fn invalid_paths_are_refused() {
    let mut stage = Stage::new(1);
    assert_eq!(code(&stage.read(1, "f").unwrap()), 4);
    assert_eq!(code(&stage.read(1, "").unwrap()), 4);
    let long = format!("/{}", "x".repeat(PATH_BYTES_MAX));
    assert_eq!(code(&stage.read(1, &long).unwrap()), 8);
    assert_eq!(stage.read(1, &long[..PATH_BYTES_MAX]), None);
    assert_eq!(stage.read(1, "/"), None, "the root is a path");
    assert!(
        stage
            .actions
            .iter()
            .any(|action| matches!(action, ResolverAction::Ask { path, .. } if &**path == b"/"))
    );
    stage.have(0, "/");
    assert_eq!(sent_to(&stage.read(2, "//").unwrap()), 0);
}

#[test]
fn a_refresh_queries_despite_a_known_location() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    let refresh = SelectOptions { refresh: true, ..SelectOptions::default() };
    assert_eq!(stage.select(1, "/f", refresh, ""), None);
    let ask =
        ResolverAction::Ask { to: mask(&[0, 1]), path: (*b"/f").into(), refresh: true, via_meta: false };
    assert_eq!(stage.actions, [ask]);
    // The same request during the refresh sends no further query.
    assert_eq!(stage.select(2, "/f", refresh, ""), None);
    assert_eq!(stage.actions.len(), 1);
    stage.have(1, "/f");
    assert_eq!(stage.answered().iter().map(|(_, answer)| sent_to(answer)).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn complete_replicas_are_preferred_to_staged_ones() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[1]);
    stage.pending(0, "/f");
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 1);
    stage.change(1, |child| child.state.suspended = true);
    assert_eq!(sent_to(&stage.read(1, "/f").unwrap()), 0);
    let online = SelectOptions { online: true, ..SelectOptions::default() };
    assert_eq!(stage.select(1, "/f", online, ""), Some(seconds(30)));
    stage.gone(1, "/f");
    assert_eq!(code(&stage.select(1, "/f", online, "").unwrap()), 1);
}

#[test]
fn holders_take_turns() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[0, 2]);
    // Slot 0 was counted when the query was answered.
    let turns: Vec<u8> = (0..4).map(|n| sent_to(&stage.read(n, "/f").unwrap())).collect();
    assert_eq!(turns, [2, 0, 2, 0]);
}

#[test]
fn a_client_that_returns_goes_to_another_holder_and_the_first_is_queried_again() {
    let mut stage = Stage::new(3);
    stage.learn("/f", &[0, 1]);
    let plain = SelectOptions::default();
    assert_eq!(sent_to(&stage.select(1, "/f", plain, "server0").unwrap()), 1);
    assert_eq!(stage.queried(), mask(&[0]));
    // It has the file after all: other clients are sent there, not this one.
    stage.have(0, "/f");
    assert_eq!(sent_to(&stage.select(1, "/f", plain, "server0").unwrap()), 1);
}

#[test]
fn a_client_is_never_redirected_to_a_tried_child_and_gets_the_reason_at_the_end() {
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0, 1]);
    let because = |reason| SelectOptions { reason, ..SelectOptions::default() };
    let tried = "server0,server1";
    for (reason, expected) in [
        (RetryReason::Io, 5),
        (RetryReason::FileSystem, 12),
        (RetryReason::Server, 13),
        (RetryReason::Missing, 1),
    ] {
        assert_eq!(code(&stage.select(1, "/f", because(reason), tried).unwrap()), expected);
    }
    // There is one holder: the query after the invalidation ends with an error, not with a redirect back.
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0]);
    assert_eq!(stage.select(1, "/f", because(RetryReason::Missing), "server0"), None);
    stage.have(0, "/f");
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn too_many_tries_lead_elsewhere_or_nowhere() {
    let policy = Policy { tried_max: Some(1), ..Policy::default() };
    let mut stage = Stage::with(cell(3), policy.clone(), false);
    stage.learn("/f", &[2]);
    let plain = SelectOptions::default();
    assert_eq!(sent_to(&stage.select(1, "/f", plain, "server0").unwrap()), 2);
    assert_eq!(code(&stage.select(1, "/f", plain, "server0,server1").unwrap()), 1);
    let elsewhere = crate::ForeignTarget { host: "far".into(), port: 1 };
    let policy = Policy { tried_elsewhere: Some(elsewhere), ..policy };
    let mut stage = Stage::with(cell(3), policy, false);
    let sent = stage.select(1, "/f", plain, "server0,server1").unwrap();
    assert_eq!(sent, ClusterAnswer::Redirect { slot: None, host: "far".into(), port: 1 });
}

#[test]
fn a_second_source_is_given_only_if_allowed() {
    let policy = Policy { one_source: true, ..Policy::default() };
    let mut stage = Stage::with(cell(2), policy, false);
    stage.learn("/f", &[0, 1]);
    let another = SelectOptions { another_source: true, ..SelectOptions::default() };
    assert_eq!(code(&stage.select(1, "/f", another, "server0").unwrap()), 2);
    let mut stage = Stage::new(2);
    stage.learn("/f", &[0, 1]);
    assert_eq!(sent_to(&stage.select(1, "/f", another, "server0").unwrap()), 1);
}

/// Returns a cell whose last child stages files below `/tape`.
fn with_stager(policy: Policy) -> Stage {
    let mut cell = cell(2);
    cell.join(slot(2), server(2), &ChildExport::parse_list(b"ws /tape").unwrap());
    cell.meters().set_free_mb(slot(2), 1000);
    Stage::with(cell, policy, false)
}

#[test]
fn a_file_without_holders_is_staged_and_later_clients_follow() {
    let mut stage = with_stager(Policy::default());
    assert_eq!(stage.read(1, "/tape/f"), None);
    stage.not_here(&[0, 1, 2], "/tape/f");
    assert_eq!(sent_to(&stage.answer()), 2);
    assert_eq!(sent_to(&stage.read(2, "/tape/f").unwrap()), 2);
    let online = SelectOptions { online: true, ..SelectOptions::default() };
    assert_eq!(code(&stage.select(3, "/tape/f", online, "").unwrap()), 1);
}

#[test]
fn no_staging_without_space_or_ability_or_after_enough_tries() {
    let mut stage = with_stager(Policy::default());
    stage.machine.cell().meters().set_free_mb(slot(2), 99);
    assert_eq!(stage.read(1, "/tape/f"), None);
    stage.not_here(&[0, 1, 2], "/tape/f");
    assert_eq!(code(&stage.answer()), 7);
    stage.machine.cell().meters().set_free_mb(slot(2), 100);
    stage.change(2, |child| child.state.nostage = true);
    assert_eq!(code(&stage.read(1, "/tape/f").unwrap()), 7);
    let mut stage = with_stager(Policy { stagers_tried_max: 0, ..Policy::default() });
    assert_eq!(stage.read(1, "/tape/f"), None);
    stage.not_here(&[0, 1, 2], "/tape/f");
    assert_eq!(code(&stage.answer()), 1);
}

#[test]
fn strong_affinity_waits_for_all_replies() {
    let policy = Policy { affinity: crate::ClientAffinity::Strong, ..Policy::default() };
    let mut stage = Stage::with(cell(3), policy, false);
    assert_eq!(stage.read(1, "/f"), None);
    stage.have(0, "/f");
    stage.have(1, "/f");
    assert_eq!(stage.answered(), []);
    stage.not_here(&[2], "/f");
    let first = sent_to(&stage.answer());
    assert!((0..4).all(|n| sent_to(&stage.read(n, "/f").unwrap()) == first));
}

#[test]
fn a_client_with_one_address_family_goes_to_a_reachable_child() {
    let mut stage = Stage::new(4);
    for number in [1, 3] {
        stage.change(number, |child| {
            child.interfaces.iter_mut().for_each(|one| one.ip = std::net::Ipv6Addr::LOCALHOST.into());
        });
    }
    let from = |net, alone| SelectOptions {
        client: crate::cell::ClientOrigin { net, private: false, alone },
        ..SelectOptions::default()
    };
    let (v4, v6) = (from(crate::Net::V4First, true), from(crate::Net::V6First, true));
    // The first holder that replies cannot be reached, as far as is known: another child may have
    // the file too.
    assert_eq!(stage.select(1, "/f", v4, ""), None);
    stage.have(1, "/f");
    assert_eq!(stage.answered(), []);
    stage.have(2, "/f");
    assert_eq!(sent_to(&stage.answer()), 2);
    stage.not_here(&[0, 3], "/f");
    for _ in 0..4 {
        assert_eq!(sent_to(&stage.select(2, "/f", v4, "").unwrap()), 2);
        assert_eq!(sent_to(&stage.select(3, "/f", v6, "").unwrap()), 1);
    }
    let both: Vec<u8> = (0..4)
        .map(|_| sent_to(&stage.select(4, "/f", from(crate::Net::V6First, false), "").unwrap()))
        .collect();
    assert!(both.contains(&1) && both.contains(&2), "who has both goes anywhere: {both:?}");
    // There is no other holder: the client may have more addresses than it reported.
    stage.learn("/six", &[3]);
    assert_eq!(sent_to(&stage.select(5, "/six", v4, "").unwrap()), 3);
    // New files go to children that the client can reach.
    for (number, (options, may)) in [(v4, [0, 2]), (v6, [1, 3])].into_iter().cycle().take(8).enumerate() {
        let path = format!("/new{number}");
        stage.learn(&path, &[]);
        let options = SelectOptions { intent: Intent::Create, ..options };
        let to = sent_to(&stage.select(6, &path, options, "").unwrap());
        assert!(may.contains(&to), "{to}");
    }
}
