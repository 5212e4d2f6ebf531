//! Trees of our own nodes and real ones, as far as they are modelled: their pauses, their lists,
//! their ends.

use std::time::Duration;

use sim::formation::{Formation, FormationReport};
use sim::world::NetworkConditions;

/// A pause of 9 s and its consequences; a connection that falls silent costs a real node three
/// pings of 60 s.
const PATIENCE: Duration = Duration::from_secs(30);

fn form(formation: Formation) -> FormationReport {
    let conditions = NetworkConditions { faulty_per_million: 0, ..formation.conditions };
    let report = Formation { conditions, ..formation }.run(1, PATIENCE).expect("a complete tree");
    println!("{report}");
    assert_eq!(report.killed, 0, "no message of ours ends a real node");
    report
}

#[test]
fn real_servers_under_our_tree() {
    for formation in [Formation::new(890, 16), Formation::new(890, 16).supervisors_last()] {
        let report = form(Formation { real_servers_percent: 100, ..formation });
        assert!(report.after < Duration::from_secs(1), "parked, not sent away for 9 s: {report}");
        assert!(report.counts.logins < 3 * 906, "{report}");
    }
}

#[test]
fn a_mixed_tree() {
    for formation in [Formation::new(890, 18), Formation::new(890, 18).supervisors_last()] {
        form(Formation { real_servers_percent: 50, real_supervisors_percent: 50, ..formation });
    }
}

#[test]
fn real_supervisors_between_our_nodes() {
    for formation in [Formation::new(280, 6), Formation::new(280, 6).supervisors_last()] {
        form(Formation { real_supervisors_percent: 100, ..formation });
    }
}

#[test]
fn our_nodes_under_a_real_manager() {
    for formation in [Formation::new(280, 7), Formation::new(280, 7).supervisors_last()] {
        let report = form(Formation { real_manager: true, ..formation });
        assert!(report.after < Duration::from_secs(10), "{report}");
        form(Formation {
            real_manager: true,
            real_servers_percent: 50,
            real_supervisors_percent: 50,
            ..formation
        });
    }
}
