//! Requests to stage files: how fast they are recorded.
//!
//! Ours are those of clients (`prepare`), whose replies come when the requests are durable. XRootD's server has no queue for
//! them without a cluster, so theirs are lines of its program `frm_xfragent`, which records them before its end.

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use rawclient::{BlockingSession, Login};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::xroot::flags::{PrepareOptions, PrepareOptionsX};
use wire::xroot::request::{Prepare, Request};

use crate::children::{SERVER_CPU, pinned, user};
use crate::data::Data;
use crate::figures::{Figure, Figures, Goal};
use crate::measure::ProcessTime;
use crate::row::{Row, RowLoad, THROUGHPUT, bench};
use crate::server::{Server, ServerSide};

/// Number of clients, and of files of each of their requests.
const CLIENTS: usize = 8;
const FILES: u64 = 10;

/// Number of lines for their program.
const LINES: u64 = 2000;

/// Number of significant digits of latencies.
const DIGITS: u8 = 3;

const AGENT: &str = "/usr/bin/frm_xfragent";

/// Maximum time of a request, and of their program.
const PATIENCE: Duration = Duration::from_secs(120);

/// No file is requested twice, because it would join the first request.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Returns the load.
pub(crate) fn rows() -> Vec<Row> {
    let title = format!(
        "files to stage that are recorded, {CLIENTS} clients with {FILES} in each prepare request; theirs are {LINES} lines for frm_xfragent"
    );
    let goals = [Goal::at_least(THROUGHPUT, 2.0)];
    let row = Row { load: RowLoad::StageRequests, ..bench("stage-requests", &title, "", "", "", &goals) };
    vec![
        row.ours("all.export / stage")
            .ours("frm.xfr.copycmd in /bin/sleep 20")
            .ours("frm.xfr.copymax 1")
            .ours("scalla.stageshare queued 10000000"),
    ]
}

/// Measures the requests of a side.
pub(crate) fn measure(data: &Data, server: &Server, time: Duration) -> anyhow::Result<Figures> {
    match server.side {
        ServerSide::Ours => prepare(server, time),
        _ if Path::new(AGENT).exists() => lines(data),
        _ => Ok(Figures::new()),
    }
}

/// Prepares files for a time.
fn prepare(server: &Server, time: Duration) -> anyhow::Result<Figures> {
    let used = ProcessTime::from_now(server.pid())?;
    let start = Instant::now();
    let latencies = std::thread::scope(|scope| -> anyhow::Result<_> {
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| scope.spawn(move || client(server, start, time))).collect();
        let mut all = latencies()?;
        for client in clients {
            all.add(client.join().ok().context("a client has ended")??)?;
        }
        Ok(all)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if latencies.is_empty() {
        bail!("no request has ended");
    }
    let files = latencies.len() as f64 * FILES as f64;
    let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Figures::from([
        (Figure::Throughput, files / seconds),
        (Figure::Cpu, used.microseconds()? / files),
        (Figure::P50, at(0.5)),
        (Figure::P99, at(0.99)),
    ]))
}

/// Returns no latencies in nanoseconds, with the precision of those of `scalla bench`.
fn latencies() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new(DIGITS)?)
}

/// Connects, sends requests for a time, and returns their latencies in nanoseconds.
fn client(server: &Server, start: Instant, time: Duration) -> anyhow::Result<Histogram<u64>> {
    let mut session = BlockingSession::connect(&[server.address()], &Login::of_process("bench"), PATIENCE)?;
    let mut latencies = latencies()?;
    while start.elapsed() < time {
        let first = NEXT.fetch_add(FILES, Ordering::Relaxed);
        let paths: Vec<String> = (first..first + FILES).map(|number| format!("/tape/f{number}")).collect();
        let names = paths.join("\n");
        let request = Prepare {
            options: PrepareOptions::STAGE,
            prty: 0,
            port: 0,
            optionx: PrepareOptionsX(0),
            paths: names.as_bytes(),
        };
        let sent = Instant::now();
        session.call(&Request::Prepare(request))?;
        latencies.record(u64::try_from(sent.elapsed().as_nanos())?)?;
    }
    Ok(latencies)
}

/// Gives lines to their program.
fn lines(data: &Data) -> anyhow::Result<Figures> {
    let directory = data.run_directory("stage-agent")?;
    let (file, requests) = (directory.join("agent.cfg"), directory.join("requests"));
    let work = directory.display();
    let text = format!("all.export / stage\nall.adminpath {work}\nfrm.xfr.copycmd /bin/false $SRC $DST\n");
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let first = NEXT.fetch_add(LINES, Ordering::Relaxed);
    let text: String =
        (first..first + LINES).map(|number| format!("+ ID{number} - 0 w /tape/f{number}\n")).collect();
    fs::write(&requests, text).with_context(|| format!("cannot write {}", requests.display()))?;
    let log = File::create(directory.join("agent.log"))?;
    let mut command = pinned(Path::new(AGENT), SERVER_CPU);
    command.arg("-c").arg(&file).current_dir(&directory);
    command.stdin(File::open(&requests)?).stdout(log.try_clone()?).stderr(log);
    if let Some(user) = user()? {
        use std::os::unix::process::CommandExt as _;
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {AGENT}"))?;
    // Its status at the end of its input is not 0.
    while child.try_wait()?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().ok();
            child.wait().ok();
            bail!("{AGENT} does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Figures::from([(Figure::Throughput, LINES as f64 / start.elapsed().as_secs_f64())]))
}
