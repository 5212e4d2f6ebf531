//! The program `sim [SEEDS [TABLE ...]]`: tables of measurements, then random histories.
//!
//! The tables are formations, up to those that the tests leave out for their size; look-ups in
//! trees of these sizes; and look-ups by a restarted manager. Then random histories of all kinds
//! follow, SEEDS of each. TABLE is `formations`, `locations`, `restarts`, `placements`, `windows`,
//! `orders`, `crowds`, `queues` or `minutes`; without one, all run. `SIM_SEEDS=17,18 sim` repeats
//! the minutes of these seeds, `SIM_SEEDS=17 sim 1 windows` another history; `SIM_TRACE=/path`
//! prints all messages about a file.

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::faults;
use sim::formation::{self, Formation};
use sim::location;
use sim::orders;
use sim::placement::{self, PlacementFault, PlacementOutcome};
use sim::queues;
use sim::request_crowds;
use sim::windows;

/// The numbers of servers and supervisors: the required supervisors and about a tenth more.
const SIZES: [(usize, usize); 4] = [(280, 5), (890, 16), (10_000, 180), (65_536, 1_100)];

/// The number of minutes in which every kind of fault must occur.
const ENOUGH: usize = 200;

/// The maximum memory of the largest formation.
const MEMORY_KIB_MAX: u64 = 4 * 1024 * 1024;

fn main() -> ExitCode {
    let chosen = faults::chosen();
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(200);
    let mut wanted: Vec<String> = std::env::args().skip(2).collect();
    if wanted.is_empty() && !chosen.is_empty() {
        wanted.push("minutes".to_owned());
    }
    let left_out = |name: &str| !wanted.is_empty() && !wanted.iter().any(|one| one == name);
    let seeds: Vec<u64> = if chosen.is_empty() { (1..=count).collect() } else { chosen };
    // All of them run, even after a failure.
    let formed = [
        left_out("formations") || formations(),
        left_out("locations") || locations(),
        left_out("restarts") || restarts(),
        left_out("placements") || placements(&seeds),
        left_out("windows") || histories("locations that end", &seeds, windows::run_all),
        left_out("orders") || histories("orders of strangers", &seeds, orders::run_all),
        left_out("crowds") || histories("crowds", &seeds, request_crowds::run_all),
        left_out("queues") || histories("queues", &seeds, queues::run_all),
        left_out("minutes") || minutes(&seeds),
    ];
    verdict(formed.iter().all(|fine| *fine))
}

fn verdict(fine: bool) -> ExitCode {
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn formations() -> bool {
    let mut fine = true;
    println!("{}", formation::HEAD);
    for (servers, supervisors) in SIZES {
        let formation = Formation::new(servers, supervisors);
        let replicated = Formation { managers: 2, ..formation };
        for formation in [formation, formation.supervisors_last(), replicated, replicated.supervisors_last()]
        {
            let start = Instant::now();
            match formation.run(1, Duration::from_secs(60)) {
                Ok(report) => println!("{} {:.1} s |", report.row(), start.elapsed().as_secs_f64()),
                Err(error) => {
                    println!("{servers} + {supervisors}: {error}");
                    fine = false;
                }
            }
        }
    }
    let memory = memory_kib();
    println!("most memory: {} MiB", memory / 1024);
    fine && memory <= MEMORY_KIB_MAX
}

/// Measures look-ups in trees of 64 to 65,536 servers.
fn locations() -> bool {
    let mut fine = true;
    println!("\n{}", location::HEAD);
    for (servers, supervisors) in [(64, 0), (280, 5), (890, 16), (4096, 72), (10_000, 180), (65_536, 1_100)] {
        match location::locate(servers, supervisors, 1) {
            Ok(report) => println!("{report}"),
            Err(error) => {
                println!("{servers} + {supervisors}: {error}");
                fine = false;
            }
        }
    }
    fine
}

/// Measures the time until a restarted manager serves.
fn restarts() -> bool {
    let mut fine = true;
    println!("\n| nodes | down for | all files opened | missing | made |\n|---|---|---|---|---|");
    let mixed = Formation { real_servers_percent: 50, ..Formation::new(60, 0) };
    for (nodes, formation) in [
        ("60 servers", Formation::new(60, 0)),
        ("890 servers, 16 supervisors", Formation::new(890, 16)),
        ("10,000 servers, 180 supervisors", Formation::new(10_000, 180)),
        ("65,536 servers, 1,100 supervisors", Formation::new(65_536, 1_100)),
        ("60 servers, half of them real nodes", mixed),
    ] {
        for down in [0, 1, 12] {
            match location::restart(formation, Duration::from_secs(down), true, 1) {
                Ok(restart) => println!("| {nodes} | {down} s | {restart} |"),
                Err(error) => {
                    println!("{nodes}, down for {down} s: {error}");
                    fine = false;
                }
            }
        }
    }
    fine
}

/// Checks that no file is created twice, in ten histories of each kind for each seed.
fn placements(seeds: &[u64]) -> bool {
    let mut fine = true;
    println!(
        "\n| new files, {} seeds | created | sent back | found missing | gave up | real |\n|---|---|---|---|---|---|",
        seeds.len()
    );
    for trouble in PlacementFault::ALL {
        let start = Instant::now();
        match placement::run_all(seeds, trouble) {
            Ok(PlacementOutcome { created, repeated, missing, failed }) => {
                let real = start.elapsed().as_secs_f64();
                println!("| {trouble:?} | {created} | {repeated} | {missing} | {failed} | {real:.1} s |");
            }
            Err(error) => {
                println!("{trouble:?}: {error}");
                fine = false;
            }
        }
    }
    fine
}

/// Runs random histories of one kind. Reports whether all succeeded.
fn histories<T: Debug>(name: &str, seeds: &[u64], run_all: impl Fn(&[u64]) -> Result<T, String>) -> bool {
    let start = Instant::now();
    let result = run_all(seeds);
    let time = start.elapsed().as_secs_f64();
    match &result {
        Ok(outcome) => println!("\n{name}, {} seeds: {outcome:?}, {time:.1} s real", seeds.len()),
        Err(error) => println!("\n{name}: {error}"),
    }
    result.is_ok()
}

/// Returns the peak memory of this process; 0 if the kernel does not report it.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs the bad minutes of all seeds. Reports whether all succeeded, and each kind of fault
/// occurred if their number suffices.
fn minutes(seeds: &[u64]) -> bool {
    let start = Instant::now();
    let minutes = faults::run_all(seeds, |end| match end {
        Ok(outcome) if seeds.len() < 10 => println!("{outcome:?}"),
        Ok(_) => {}
        Err(error) => println!("{error}"),
    });
    let failed = minutes.failed.len();
    println!(
        "{} seeds, {failed} failed, slowest healing {:.1} s; {:.1} s real; SIM_SEEDS=<seed>,… repeats some",
        seeds.len(),
        minutes.slowest.as_secs_f64(),
        start.elapsed().as_secs_f64(),
    );
    let never = minutes.occurred.map_or_else(Vec::new, |all| {
        println!("{all}");
        all.never()
    });
    let enough = seeds.len() < ENOUGH || never.is_empty();
    if !enough {
        println!("never occurred: {never:?}");
    }
    failed == 0 && enough
}
