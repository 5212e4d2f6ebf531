//! Measures decisions about clients with 100 groups by 10,000 rules:
//! `cargo run --release -p scalla-auth --example decisions`.
//!
//! The worst case is a client to all of whose groups a rule path is common. A typical one is a path
//! that few rules name. Both are measured, and the look-up of a client's records, which happens once
//! for each client and each version of the rules. Times are those of the processor.

use auth::access::{
    AccessDatabase, AuthdbEncoding, AuthdbSource, NetgroupDatabase, NetgroupMember, PathMatch, Principal,
};
use base::LogicalPath;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

const RECORDS: usize = 10_000;
const GROUPS: usize = 100;
const ROUNDS: u32 = 200_000;

struct NoNetgroups;

impl NetgroupDatabase for NoNetgroups {
    fn members(&self, _: &str) -> std::io::Result<Vec<NetgroupMember>> {
        Ok(Vec::new())
    }
}

/// Returns rules in which each group has a path of its own and one that all groups share.
fn rules() -> String {
    let mut text = String::from("u * /pub rl\nu = /home/@=/ a\n");
    for number in 0..RECORDS - 2 {
        let path = format!("/store/group{number}/data");
        let _ = writeln!(text, "g group{number} {path} a-d /shared/by/all rl");
    }
    text
}

/// Returns the processor time of this thread, so that other loads on the machine do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn measure(what: &str, mut decide: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = processor_time();
        (0..ROUNDS).for_each(|_| decide());
        best = best.min((processor_time() - start).as_secs_f64() / f64::from(ROUNDS) * 1e9);
    }
    println!("{what:<48} {best:8.0} ns");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = AuthdbSource {
        path: "rules".into(),
        encoding: AuthdbEncoding::default(),
        matching: PathMatch::Component,
        netgroup_domain: None,
    };
    let start = processor_time();
    let database = AccessDatabase::from_text(rules().as_bytes(), &source, &NoNetgroups)?;
    println!("{:<48} {:8.1} ms", "load and compile", (processor_time() - start).as_secs_f64() * 1e3);
    let groups: Vec<String> = (0..GROUPS).map(|number| format!("group{}", number * 97)).collect();
    let groups = groups.join(" ");
    let client =
        Principal { name: Some("bob"), host: "h1.example.org", groups: &groups, ..Principal::default() };
    let records = database.records_of(&client).ok_or("inconsistent attributes")?;
    for (what, path) in [
        ("decision: path of one group", "/store/group970/data/run7/file.root"),
        ("decision: path of no rule", "/elsewhere/run7/file.root"),
        ("decision: home directory", "/home/bob/file.root"),
        ("decision: path of all 100 groups", "/shared/by/all/file.root"),
    ] {
        let path = LogicalPath::parse(path.as_bytes()).map_err(|error| format!("{error:?}"))?;
        measure(what, || {
            black_box(database.privileges(black_box(&records), client.name, black_box(&path)));
        });
    }
    measure("look-up of the records of a client", || {
        black_box(database.records_of(black_box(&client)));
    });
    Ok(())
}
