//! The loads and their goals.
//!
//! Ratios are ours to theirs: same machine, same run, server and generator on one processor each,
//! without authentication except for those of `secured`. The files are in the page cache of a disk's file system unless a load names
//! tmpfs.

use crate::figures::{Figure, Goal};
use crate::proxy_rows;
use crate::row::{
    CPU, ClientTask, ConcurrentLoads, MeasuredServers, Row, RowLoad, RowMethod, RowSetting, SourceServers,
    THROUGHPUT, bench, words,
};
use crate::secured;
use crate::server::POLLING;
use crate::site;
use crate::stage_requests;
use crate::web_rows;

/// Returns all loads.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = small_reads();
    rows.extend(single_connection());
    rows.extend(larger_reads());
    rows.extend(vectors_and_pages());
    rows.extend(writes());
    rows.extend(names());
    rows.extend(crowds());
    rows.extend(neighbours());
    rows.extend(secured::rows());
    rows.extend(site::rows());
    rows.extend(proxy_rows::rows());
    rows.extend(stage_requests::rows());
    rows.extend(web_rows::rows());
    rows.extend(clients());
    rows.extend(sources());
    rows
}

/// Returns loads of our client compared with `xrdcp` and `xrdfs`, at our server and some at theirs.
fn clients() -> Vec<Row> {
    let client = |name: &str, title: &str, errand, cast, goals: &[Goal]| Row {
        load: RowLoad::Errand(errand),
        setting: RowSetting { tmpfs: true, cast, ..RowSetting::default() },
        ..bench(name, title, "", "", "", goals)
    };
    let copy = [Goal::at_most(Figure::Wall, 0.7), Goal::at_most(Figure::ClientCpu, 0.5)];
    let mut rows = Vec::new();
    for (way, title, errand) in [
        ("download", "2 GiB", ClientTask::Download { streams: 0 }),
        ("download-s4", "2 GiB with four more connections", ClientTask::Download { streams: 4 }),
        ("upload", "2 GiB", ClientTask::Upload { streams: 0 }),
        ("upload-s4", "2 GiB with four more connections", ClientTask::Upload { streams: 4 }),
    ] {
        let kind = way.trim_end_matches("-s4");
        let title = |whose| format!("{kind} of {title}, tmpfs to tmpfs, {whose} server");
        rows.push(client(&format!("cp-{way}"), &title("our"), errand, MeasuredServers::Clients, &copy));
        rows.push(client(
            &format!("cp-{way}-theirs"),
            &title("their"),
            errand,
            MeasuredServers::TheirClients,
            &copy,
        ));
    }
    let fifth = [Goal::at_most(Figure::Wall, 0.2)];
    let title = |whose| format!("10,000 files of 10 KiB recursively, {whose} server");
    rows.push(client("cp-files", &title("our"), ClientTask::Directory, MeasuredServers::Clients, &fifth));
    rows.push(client(
        "cp-files-theirs",
        &title("their"),
        ClientTask::Directory,
        MeasuredServers::TheirClients,
        &fifth,
    ));
    let half = [Goal::at_most(Figure::Wall, 0.5)];
    rows.push(client(
        "ls-start",
        "a listing of a few names by a new process",
        ClientTask::List,
        MeasuredServers::Clients,
        &half,
    ));
    for (name, files, mebibytes) in [("open-1000", 1000, 100.0), ("open-10000", 10_000, 300.0)] {
        let goals = [
            Goal::at_most(Figure::Resident, mebibytes * 1048576.0).of_ours(),
            Goal::at_most(Figure::Threads, 8.0).of_ours(),
        ];
        let title = format!("{files} files open and read at once in one client");
        let row = client(name, &title, ClientTask::List, MeasuredServers::Clients, &goals);
        rows.push(Row { load: RowLoad::Crowd(files), ..row });
    }
    rows
}

/// Returns loads with servers that are limited to 6 MB/s per connection and 16 MB/s in total.
fn sources() -> Vec<Row> {
    let sources = [(1, 0), (1, 15), (4, 0), (4, 15), (5, 15)];
    let row = |(servers, streams): (usize, u64)| {
        let name = format!("sources-{servers}-s{streams}");
        let title = format!("a file from {servers} limited server(s), {streams} more connections to each");
        let goals = [Goal::at_least(Figure::OfSum, 0.9).of_ours()];
        Row {
            load: RowLoad::Gather(SourceServers { servers, streams }),
            setting: RowSetting { tmpfs: true, cast: MeasuredServers::Limited, ..RowSetting::default() },
            ..bench(&name, &title, "", "", "", &goals)
        }
    };
    sources.into_iter().map(row).collect()
}

/// Returns reads of 24 B, 2 KiB and 3 KiB, which are typical of analysis jobs.
fn small_reads() -> Vec<Row> {
    let loads: [(u32, u32, &[Goal]); 5] = [
        (64, 1, &[Goal::at_most(CPU, 0.60)]),
        (512, 1, &[Goal::at_most(CPU, 0.50), Goal::at_most(Figure::P99, 0.30)]),
        (64, 8, &[Goal::at_most(CPU, 0.27)]),
        (64, 32, &[Goal::at_most(CPU, 0.27)]),
        (512, 8, &[Goal::at_least(THROUGHPUT, 3.0), Goal::at_most(Figure::P99, 0.03)]),
    ];
    let mut rows = Vec::new();
    for (connections, depth, goals) in loads {
        for size in ["24", "2k", "3k"] {
            let name = format!("read-{size}-c{connections}-d{depth}");
            let title = format!("random reads of {size}, {connections} connections, {depth} in flight");
            let options = format!("-s {size} -c {connections} -d {depth}");
            rows.push(bench(&name, &title, "read", "/big", &options, goals).floor().bare());
        }
    }
    rows
}

/// Returns loads of one connection. The generator does not sleep, because the wake-up time of its
/// own processor must not be measured.
fn single_connection() -> Vec<Row> {
    let row = |name, title, options, goals: &[Goal]| {
        bench(name, title, "read", "/big", options, goals).floor().bare()
    };
    vec![
        row(
            "read-2k-c1-d8",
            "random reads of 2k, one connection, 8 in flight",
            "-s 2k -d 8 --spin",
            &[Goal::at_least(THROUGHPUT, 0.9)],
        ),
        row(
            "read-2k-c1-d8-polling",
            "the same with adaptive polling",
            "-s 2k -d 8 --spin",
            &[Goal::at_least(THROUGHPUT, 1.1)],
        )
        .ours(POLLING),
        row(
            "read-2k-c1-d1",
            "random reads of 2k, one connection, one in flight",
            "-s 2k --spin",
            &[Goal::at_most(Figure::P50, 1.0)],
        ),
        row(
            "read-2k-c1-d1-polling",
            "the same with adaptive polling",
            "-s 2k --spin",
            &[Goal::at_most(Figure::P50, 0.4)],
        )
        .ours(POLLING),
    ]
}

fn larger_reads() -> Vec<Row> {
    let row =
        |name, title, options, goal| bench(name, title, "read", "/big", options, &[goal]).floor().bare();
    vec![
        row("read-8k-c8", "random reads of 8k, 8 connections", "-s 8k -c 8", Goal::at_least(THROUGHPUT, 1.4)),
        row(
            "read-64k-aligned-c8",
            "random reads of 64k, aligned, 8 connections",
            "-s 64k -c 8 --align 64k --discard",
            Goal::at_least(THROUGHPUT, 1.4),
        ),
        row(
            "read-64k-unaligned-c8",
            "random reads of 64k, unaligned, 8 connections",
            "-s 64k -c 8 --discard",
            Goal::at_least(THROUGHPUT, 1.8),
        ),
        row(
            "read-1m-c1",
            "random reads of 1m, one connection",
            "-s 1m -c 1 --discard",
            Goal::at_most(CPU, 1.0),
        ),
        row(
            "read-1m-c8",
            "random reads of 1m, 8 connections",
            "-s 1m -c 8 --discard",
            Goal::at_most(CPU, 1.0),
        ),
        bench(
            "stream-2g",
            "2 GiB from beginning to end, 1m each, 4 in flight",
            "stream",
            "/stream",
            "-s 1m -d 4 --discard",
            &[Goal::at_most(CPU, 1.0)],
        )
        .floor(),
    ]
}

fn vectors_and_pages() -> Vec<Row> {
    let mut rows = Vec::new();
    for segments in [64, 1024] {
        let bytes = segments * (3072 + 16);
        for (kind, gap, limit) in [("random", "", 1.0), ("clustered", "--gap 3k", 0.7)] {
            let name = format!("readv-{segments}-{kind}-c8");
            let title = format!("vector reads of {segments} x 3k, {kind} offsets, 8 connections");
            let options = format!("-s 3k --segments {segments} {gap} -c 8 --discard");
            let row = bench(&name, &title, "readv", "/big", &options, &[Goal::at_most(CPU, limit)]);
            rows.push(row.floor_with("read", &format!("-s {bytes} -c 8 --discard")));
        }
    }
    for size in ["64k", "1m"] {
        let (name, title) = (format!("pgread-{size}-c8"), format!("page reads of {size}, 8 connections"));
        let options = format!("-s {size} -c 8 --align 4k --discard");
        let row = bench(&name, &title, "pgread", "/big", &options, &[Goal::at_least(THROUGHPUT, 5.0)]);
        rows.push(row.floor_with("read", &format!("-s {size} -c 8 --discard")).bare());
    }
    rows.push(Row {
        load: RowLoad::Download,
        setting: RowSetting { tmpfs: true, ..RowSetting::default() },
        ..bench(
            "xrdcp-download",
            "xrdcp of 2 GiB, from tmpfs to tmpfs",
            "",
            "",
            "",
            &[Goal::at_most(CPU, 0.5), Goal::at_most(Figure::Wall, 1.0)],
        )
    });
    rows
}

/// Returns writes. XRootD writes faster without its asynchronous I/O, so ours is compared with that
/// configuration.
fn writes() -> Vec<Row> {
    const WITHOUT_ASYNC: &str = "xrootd.async off";
    let goals = [Goal::at_least(THROUGHPUT, 1.2), Goal::at_most(CPU, 0.7)];
    let mut rows = Vec::new();
    for kind in ["write", "pgwrite"] {
        for size in ["4k", "64k", "1m"] {
            let (name, title) =
                (format!("{kind}-{size}-c8"), format!("{kind} of {size} in files of 8 MiB, 8 connections"));
            // After the warm-up all pages are allocated, so that the server is measured and not the
            // page allocation of the kernel.
            let options = format!("-s {size} -c 8 --file-size 8m");
            let row = bench(&name, &title, kind, "/out/w", &options, &goals);
            let row = row.floor_with("write", &options).theirs(WITHOUT_ASYNC);
            rows.push(if kind == "write" { row.bare() } else { row });
        }
    }
    let upload = bench("xrdcp-upload", "xrdcp of 2 GiB, from tmpfs to disk", "", "", "", &goals);
    rows.push(Row { load: RowLoad::Upload, ..upload }.theirs(WITHOUT_ASYNC));
    rows
}

fn names() -> Vec<Row> {
    let half = [Goal::at_most(CPU, 0.5)];
    vec![
        bench(
            "stat-c64",
            "stat of 10,000 files, 64 connections",
            "stat",
            "/many/f%d",
            "--files 10000 -c 64",
            &half,
        )
        .floor()
        .bare(),
        bench(
            "open-c64",
            "open and close of 10,000 files, 64 connections",
            "open",
            "/many/f%d",
            "--files 10000 -c 64",
            &half,
        ),
        bench(
            "dirlist-10k",
            "listing of 10,000 entries with status, 4 connections",
            "dirlist",
            "/many",
            "-c 4",
            &half,
        ),
        bench(
            "connect-c64",
            "connect, login, disconnect, 64 connections",
            "connect",
            "",
            "-c 64",
            &[Goal::at_least(THROUGHPUT, 2.5)],
        )
        .floor(),
    ]
}

/// Returns loads with concurrent loads, many idle and many busy connections.
fn crowds() -> Vec<Row> {
    let mixed = |name, title, rate, tail| {
        let goals = [
            Goal::at_least(THROUGHPUT, rate),
            Goal::at_least(Figure::BesideThroughput, rate),
            Goal::at_most(Figure::P99, tail),
        ];
        Row { load: RowLoad::Mixed, ..bench(name, title, "", "", "", &goals) }
    };
    vec![
        mixed("mixed", "cached reads of 2k on 8 connections beside uncached 4k on 16", 2.0, 0.25),
        mixed("mixed-no-uring", "the same with io_uring forbidden", 1.5, 0.4).ours("scalla.iouring off"),
        bench(
            "idle-10k",
            "10,000 logged-in connections at rest",
            "idle",
            "",
            "-c 10000",
            &[Goal::at_most(Figure::Memory, 1024.0).of_ours()],
        )
        .fresh(),
        Row {
            load: RowLoad::Busy,
            bare: true,
            ..bench(
                "busy-2k",
                "random reads of 2k, 2,000 connections",
                "",
                "",
                "",
                &[Goal::at_least(Figure::Share, 0.9).of_ours()],
            )
        }
        .fresh(),
    ]
}

/// Returns loads that measure the effect of one load on the latency of another.
fn neighbours() -> Vec<Row> {
    const CACHED: &str = "read /big -s 2k -c 64";
    let row = |name, title, watched: &str, other: &str, how, times| {
        let load = RowLoad::Beside(ConcurrentLoads { watched: words(watched), other: words(other), how });
        let goals = [Goal::at_most(Figure::Rise, times).of_ours()];
        Row { load, ..bench(name, title, "", "", "", &goals) }
    };
    let slow = row(
        "slow-storage",
        "cached reads of 2k on 64 connections beside 64 that read 4k of a file whose storage answers in 50 ms",
        CACHED,
        "read /slow -s 4k -c 64 --align 4k",
        RowMethod::Slow,
        2.0,
    );
    let cold = |name, title, other| row(name, title, CACHED, other, RowMethod::Cold, 2.0);
    vec![
        Row { setting: RowSetting { cast: MeasuredServers::Slow, ..RowSetting::default() }, ..slow },
        cold(
            "slow-disk",
            "the same beside 64 that read 4k of an uncached file on disk",
            "read /cold -s 4k -c 64 --align 4k",
        ),
        row(
            "fairness",
            "reads of 2k on one connection beside one with 1,000 in flight",
            "read /big -s 2k",
            "read /big -s 2k -d 1000",
            RowMethod::GivesWay,
            3.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_each_load_has_a_goal() {
        let rows = all();
        let names: BTreeSet<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.iter().all(|row| !row.goals.is_empty()));
    }
}
