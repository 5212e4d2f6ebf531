//! `sim [SEEDS]`: the formations that the tests leave out for their size, then as many runs with faults as asked for.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::formation::Formation;

/// Servers and supervisors: the supervisors that are needed and about a tenth more.
const SIZES: [(usize, usize); 4] = [(280, 5), (890, 16), (10_000, 180), (65_536, 1_100)];

fn main() -> ExitCode {
    let mut fine = true;
    for (servers, supervisors) in SIZES {
        let formation = Formation::new(servers, supervisors);
        for formation in [formation, formation.supervisors_last()] {
            let start = Instant::now();
            match formation.run(1, Duration::from_secs(60)) {
                Ok(report) => println!("{report}; {:.1} s real", start.elapsed().as_secs_f64()),
                Err(error) => {
                    println!("{servers} + {supervisors}: {error}");
                    fine = false;
                }
            }
        }
    }
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
