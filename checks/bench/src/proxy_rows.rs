//! The loads of proxies and caches, with their goals.
//!
//! The column *floor* is a server without a proxy: ours with the files on its own disk for files in the cache, and the
//! origin for others.

use crate::figures::{Figure, Goal};
use crate::proxies::{CacheKind, ProxyFloor, ProxyPlan, WARM};
use crate::row::{CPU, MeasuredServers, Row, RowLoad, RowSetting, THROUGHPUT, bench, words};
use crate::server::ServerSide;

/// A load with a file that no cache has, or another preparation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProxyTask {
    /// One client reads a file from beginning to end.
    Cold,
    /// One client reads 22 % of a file.
    Sparse,
    /// 200 clients read the same file.
    Crowd,
    /// A proxy with 10,000 cached files starts, until a client has read one of them.
    Start,
    /// Clients read more files than a small cache can have.
    Fill,
}

/// Returns all loads of proxies and caches.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = cached();
    rows.extend(tasks());
    rows.extend(passed());
    rows
}

fn setting(cache: CacheKind, origin: ServerSide, floor: ProxyFloor) -> RowSetting {
    let plan = ProxyPlan { cache, origin, floor };
    RowSetting { cast: MeasuredServers::Proxies(plan), ..RowSetting::default() }
}

fn read(name: &str, title: &str, options: &str, goals: &[Goal], setting: RowSetting) -> Row {
    Row { setting, ..bench(name, title, "read", &format!("/{WARM}"), options, goals).floor() }
}

/// The two sizes of reads with the numbers of their connections.
const READS: [(&str, &str, &str); 2] = [
    ("2k-c64", "random reads of 2k, 64 connections", "-s 2k -c 64"),
    ("1m-c8", "random reads of 1m, 8 connections", "-s 1m -c 8 --discard"),
];

/// Returns reads of a file that the cache has.
fn cached() -> Vec<Row> {
    let goals = [Goal::at_least(THROUGHPUT, 2.0), Goal::at_least(THROUGHPUT, 0.95).of_floor()];
    let mut rows = Vec::new();
    for (name, title, options) in READS {
        for (kind, where_, cache) in
            [("warm", "disk", CacheKind::Disk), ("memory", "memory", CacheKind::Memory)]
        {
            let title =
                format!("{title}, in the {where_} cache of a proxy; the floor is our server with the file");
            let setting = setting(cache, ServerSide::Theirs, ProxyFloor::Local);
            rows.push(read(&format!("proxy-{kind}-{name}"), &title, options, &goals, setting));
        }
    }
    rows
}

fn tasks() -> Vec<Row> {
    let row = |name: &str, title: &str, task, cache, origin, goals: &[Goal]| Row {
        load: RowLoad::Proxy(task),
        setting: setting(cache, origin, ProxyFloor::Origin),
        ..bench(name, title, "", "", "", goals)
    };
    let stream = [Goal::at_least(THROUGHPUT, 2.0), Goal::at_least(THROUGHPUT, 0.95).of_floor()];
    let floor = Some(words(&format!("stream /{WARM} -s 1m -d 4 --discard")));
    let cold = |name, title, origin| Row {
        floor: floor.clone(),
        ..row(name, title, ProxyTask::Cold, CacheKind::Disk, origin, &stream)
    };
    let theirs = ServerSide::Theirs;
    vec![
        cold(
            "proxy-cold-stream",
            "256 MiB from beginning to end, not in the cache; the floor is the origin",
            theirs,
        ),
        cold("proxy-cold-stream-ours", "the same with an origin of ours", ServerSide::Ours),
        row(
            "proxy-sparse",
            "22 % of a file of 650 MB, in parts of 512 KiB, not in the cache",
            ProxyTask::Sparse,
            CacheKind::Disk,
            theirs,
            &[Goal::at_most(Figure::Fetched, 1.3).of_ours(), Goal::at_least(THROUGHPUT, 2.0)],
        ),
        row(
            "proxy-crowd-200",
            "200 clients read one file of 16 MiB, not in the cache",
            ProxyTask::Crowd,
            CacheKind::Disk,
            theirs,
            &[Goal::at_most(Figure::Fetched, 1.1).of_ours(), Goal::at_least(THROUGHPUT, 2.0)],
        ),
        row(
            "proxy-start-10k",
            "start of a proxy with 10,000 cached files, killed before, until a client has read one of them",
            ProxyTask::Start,
            CacheKind::Disk,
            theirs,
            &[Goal::at_most(Figure::Wall, 1.0)],
        ),
        row(
            "proxy-fill",
            "2 GiB of new files through a disk cache of 512 MiB, one after the other",
            ProxyTask::Fill,
            CacheKind::Small,
            theirs,
            &[Goal::at_most(Figure::OverLimit, 1.25).of_ours(), Goal::at_least(THROUGHPUT, 1.0)],
        ),
    ]
}

/// Returns reads through a proxy without a cache.
fn passed() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, title, options) in READS {
        for (suffix, whose, origin) in [("", "", ServerSide::Theirs), ("-ours", " of ours", ServerSide::Ours)]
        {
            let title = format!("{title}, through a proxy without a cache; the floor is the origin{whose}");
            let setting = setting(CacheKind::None, origin, ProxyFloor::Origin);
            let goals = [Goal::at_most(CPU, 0.5), Goal::at_least(THROUGHPUT, 1.0)];
            rows.push(read(&format!("proxy-pass-{name}{suffix}"), &title, options, &goals, setting));
        }
    }
    rows
}
