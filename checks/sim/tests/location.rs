//! A look-up takes one round trip per level of the tree, and a restarted manager serves at once.

use std::time::Duration;

use cluster::tree::limits;
use sim::client::ClientResult;
use sim::formation::Formation;
use sim::location::{self, LocationReport, Restart};

fn locate(servers: usize, supervisors: usize) -> LocationReport {
    let report = location::locate(servers, supervisors, 1).expect("everything found");
    println!("{report}");
    let (levels, nodes) = (report.height as f64, (servers + supervisors) as u64);
    // The client asks the manager, which queries down the tree; rounding is less than a hundredth.
    assert!(report.missing.round_trips() <= levels + 1.01, "one round trip over the tree: {report}");
    assert_eq!(report.missing.messages, 2 * nodes, "everybody is asked once and answers once");
    assert_eq!(report.missing.requests, 1, "and the client waits for the answer");
    assert!(report.missing_again.round_trips() <= 1.01 && report.missing_again.messages == 0, "{report}");
    // The manager and each supervisor redirect the client, the server serves it.
    assert!(report.cold.round_trips() <= 2.0 * levels + 1.01, "{report}");
    assert!(report.cold.messages <= 2 * nodes, "{report}");
    assert!(report.warm.round_trips() <= levels + 1.01 && report.warm.messages == 0, "{report}");
    assert!(report.warm.requests as usize <= report.height + 1, "{report}");
    // Only the manager queries for an existing file: the nodes below have the result.
    assert!(report.create.round_trips() <= 2.0 * levels + 1.01, "{report}");
    report
}

#[test]
fn a_query_takes_as_many_round_trips_as_there_are_levels() {
    let heights: Vec<usize> = [(64, 0), (280, 5), (890, 16), (4096, 72), (10_000, 180)]
        .into_iter()
        .map(|(servers, supervisors)| locate(servers, supervisors).height)
        .collect();
    assert_eq!(heights, [1, 2, 2, 3, 3]);
}

fn restart(formation: Formation, down: u64, inventory: bool) -> Restart {
    let restart =
        location::restart(formation, Duration::from_secs(down), inventory, 1).expect("everything found");
    println!("{} servers, down for {down} s: {restart}", formation.servers);
    restart
}

#[test]
fn a_restarted_manager_serves_in_under_a_second() {
    // A supervisor without a parent for 15 s redirects its children: then the whole tree has to
    // form again.
    for (servers, supervisors, long) in [(60, 0, 60), (890, 16, 12)] {
        for (down, inventory) in [(0, false), (1, true), (long, false), (long, true)] {
            let restart = restart(Formation::new(servers, supervisors), down, inventory);
            assert!(restart.open < Duration::from_secs(1), "{restart}");
            // A file is reported as missing after two seconds without an arrival.
            assert!(restart.missing < Duration::from_secs(4), "{restart}");
            assert!(restart.create < Duration::from_secs(4), "{restart}");
        }
    }
}

#[test]
fn at_the_first_start_of_a_cluster_nothing_is_missing_that_comes_late() {
    let late = Duration::from_secs(11);
    let first = location::first_start(40, late, true, 1).expect("everything answered");
    assert!(first.late.iter().all(|end| *end == ClientResult::Done), "{first:?}");
    assert!(first.present < Duration::from_secs(1), "what is there is found at once: {first:?}");
    assert!(first.missing >= limits::FIRST_START && first.missing < Duration::from_secs(18), "{first:?}");
    // With a record of an earlier run the manager does not wait for that time.
    let later = location::first_start(40, late, false, 1).expect("everything answered");
    assert!(later.late.iter().all(|end| *end == ClientResult::Missing), "{later:?}");
    assert!(later.missing < Duration::from_secs(4), "{later:?}");
}

#[test]
fn with_real_nodes_only_missing_files_wait_for_the_timeout() {
    let formation = Formation { real_servers_percent: 50, ..Formation::new(60, 0) };
    let restart = restart(formation, 1, true);
    assert!(restart.open < Duration::from_secs(1), "what our own nodes have is found: {restart}");
    // Real nodes reconnect after up to 9 s; then their query timeout of 5 s has to pass.
    assert!(restart.missing < Duration::from_secs(20), "{restart}");
    assert!(restart.create < Duration::from_secs(20), "{restart}");
}
