//! Trees form quickly, completely, with the least depth, and at a cost per node that does not grow
//! with their size.

use std::time::Duration;

use sim::formation::{Formation, FormationReport};

/// The time from the last start to the complete tree, with connections that fall silent.
const PATIENCE: Duration = Duration::from_secs(10);

fn form(formation: Formation) -> FormationReport {
    let report = formation.run(1, PATIENCE).expect("a complete tree");
    println!("{report}");
    assert_eq!(Some(report.shape.height), report.least_height(), "no deeper than it must be");
    assert!(report.shape.widest <= 64);
    assert!(report.messages_per_node() < 12.0, "{report}");
    report
}

#[test]
fn one_cell() {
    let report = form(Formation::new(60, 4));
    assert_eq!(report.shape.height, 1);
    assert_eq!(report.counts.tries, 0, "nobody is sent anywhere");
}

#[test]
fn trees_of_280_and_890_servers() {
    for (servers, supervisors) in [(280, 5), (890, 16)] {
        form(Formation::new(servers, supervisors));
        form(Formation::new(servers, supervisors).supervisors_last());
    }
}

#[test]
fn a_tree_of_10_000_servers() {
    let small = form(Formation::new(890, 16));
    let large = form(Formation::new(10_000, 180));
    let last = form(Formation::new(10_000, 180).supervisors_last());
    for report in [large, last] {
        assert!(
            report.messages_per_node() < 1.5 * small.messages_per_node(),
            "what a node costs does not grow with the cluster"
        );
    }
}

#[test]
fn a_tree_without_a_spare_place() {
    // 64 places at the root, 14 of them for supervisors with 64 places each.
    let formation = Formation::new(50 + 14 * 64, 14);
    form(formation);
    form(formation.supervisors_last());
}

#[test]
fn all_at_once() {
    let formation = Formation { within: Duration::from_secs(1), ..Formation::new(4096, 72) };
    form(formation);
    form(formation.supervisors_last());
}

#[test]
fn two_managers_have_the_same_tree() {
    form(Formation { managers: 2, ..Formation::new(280, 6) });
    form(Formation { managers: 2, ..Formation::new(280, 6).supervisors_last() });
    form(Formation { managers: 3, ..Formation::new(50, 3) });
}
