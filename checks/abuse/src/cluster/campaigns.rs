//! Hostile clients and nodes of a cluster, and the figures of others beside them: the latency of
//! first opens of another client, the time until a new file is found, the memory of a server. A
//! control run without them takes each time first.

use super::TestCluster;
use super::noise::Noise;
use super::opens::{first_opens, is_redirected};
use super::visitor::{Visitor, reset, stats};
use crate::raw::{CREATING, READING, RawClient, STAT, open, request};
use crate::reference_client::Latencies;
use anyhow::Result;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Memory by which a server may grow under clients that open missing files.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// The same in the quick run. Where the machine is busy, the requests of both clients wait: 8 MiB
/// of each session at most.
const GROWTH_BYTES_LOOSE: u64 = 3 * GROWTH_BYTES_MAX;

/// Time in which a file that was made at a server is found at its manager.
const FOUND_MAX: Duration = Duration::from_millis(100);

/// Latency of a first open at the manager.
const FIRST_OPEN_MAX: Duration = Duration::from_millis(2);

/// A file that is not found by then is lost.
const FOUND_GIVEN_UP: Duration = Duration::from_secs(60);

/// The quick run allows at least these, because it shares the machine and its build is not
/// optimised.
const FOUND_LOOSE: Duration = Duration::from_secs(1);
const FIRST_OPEN_LOOSE: Duration = Duration::from_millis(100);

/// The same for the 99th percentile.
const SLOWEST_LOOSE: Duration = Duration::from_secs(1);

/// Latency beside hostile clients as a multiple of that in the control run, which the quick run
/// allows, and which every run allows for the 99th percentile.
const SLOWER_MAX: u32 = 3;

/// First opens of each run.
const OPENS: usize = 200;

/// Names in the missing path, and the length of each with its slash: 1,500 bytes in all.
const MISSING_NAMES: usize = 15;
const MISSING_NAME_BYTES: usize = 100;

/// Requests of a connection that a server takes at most before it has answered.
const IN_FLIGHT: usize = 1000;

/// Requests that are sent before the manager is asked whether it holds them.
const SENT_AT_ONCE: usize = 10 * IN_FLIGHT;

/// Children that stand in the answer to a visitor of the cluster port.
const NODES: u16 = 40;

/// Visitors, and the requests that each has in flight.
const VISITORS: usize = 4;
const VISITOR_REQUESTS: usize = 500;

/// Frames of the node that sends resets, in one write.
const RESETS_AT_ONCE: usize = 1024;

/// Time of a flood of the cluster port before others are measured.
const FLOOD_START: Duration = Duration::from_millis(500);

/// The size of a campaign, and whether its limits of time are those of an optimised build on a
/// machine without other work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    flood: Duration,
    held: usize,
    is_strict: bool,
}

impl Scale {
    pub(crate) const QUICK: Self = Self { flood: Duration::from_secs(2), held: 10_000, is_strict: false };
    pub(crate) const FULL: Self = Self { flood: Duration::from_secs(10), held: 60_000, is_strict: true };
}

/// A campaign against a cluster.
pub(crate) struct ClusterCampaign {
    pub(crate) name: &'static str,
    run: fn(&Path, Scale) -> Result<ClusterCampaignOutcome>,
}

const fn campaign(
    name: &'static str,
    run: fn(&Path, Scale) -> Result<ClusterCampaignOutcome>,
) -> ClusterCampaign {
    ClusterCampaign { name, run }
}

pub(crate) const ALL: [ClusterCampaign; 4] = [
    campaign("server-missing-opens", missing_opens),
    campaign("held-requests", held_requests),
    campaign("cluster-port-stats", stats_flood),
    campaign("cluster-port-resets", reset_flood),
];

impl ClusterCampaign {
    /// Plays the campaign against a cluster of its own and prints its figures; returns the broken
    /// limits.
    pub(crate) fn play(&self, program: &Path, scale: Scale) -> Result<Vec<String>> {
        let outcome = (self.run)(program, scale)?;
        let mark = if outcome.faults.is_empty() { "" } else { "  BROKEN" };
        println!("{:<25} {}{mark}", self.name, outcome.figures.join("; "));
        Ok(outcome.faults)
    }
}

/// Figures in words, and the limits that are broken.
#[derive(Default)]
struct ClusterCampaignOutcome {
    figures: Vec<String>,
    faults: Vec<String>,
}

impl ClusterCampaignOutcome {
    fn note(&mut self, figure: String) {
        self.figures.push(figure);
    }

    fn require(&mut self, is_met: bool, figure: String) {
        if !is_met {
            self.faults.push(figure.clone());
        }
        self.figures.push(figure);
    }

    /// Judges the latencies of first opens.
    fn judge_opens(&mut self, mut beside: Latencies, mut control: Latencies, scale: Scale) {
        for (name, percent) in [("p50", 50), ("p99", 99)] {
            let (beside, control) = (beside.percentile(percent), control.percentile(percent));
            // Many of the slowest opens are slow because of the machine.
            let limit = match (scale.is_strict, percent) {
                (true, 50) => FIRST_OPEN_MAX,
                (true, _) => FIRST_OPEN_MAX.max(SLOWER_MAX * control),
                (false, 50) => FIRST_OPEN_LOOSE.max(SLOWER_MAX * control),
                (false, _) => SLOWEST_LOOSE.max(SLOWER_MAX * control),
            };
            let figure = format!(
                "first opens {name} {:.2} ms (control {:.2}, at most {:.0})",
                milliseconds(beside),
                milliseconds(control),
                milliseconds(limit)
            );
            self.require(beside <= limit, figure);
        }
        self.note(format!(
            "slowest {:.2} ms ({:.2})",
            milliseconds(beside.worst()),
            milliseconds(control.worst())
        ));
    }
}

/// Two clients open one missing path at a server, without a pause between the requests.
fn missing_opens(program: &Path, scale: Scale) -> Result<ClusterCampaignOutcome> {
    let mut cluster = TestCluster::start(program, 1)?;
    let mut outcome = ClusterCampaignOutcome::default();
    let control = time_until_found(&mut cluster, "/made-before")?;
    let server = cluster.server(0)?;
    let port = server.port;
    let before = server.process.memory()?;
    server.process.reset_peak();
    let path = format!("/{}", "x".repeat(MISSING_NAME_BYTES - 1)).repeat(MISSING_NAMES);
    let requests = open(&path, READING).repeat(64);
    let mut noise = Noise::default();
    for _ in 0..2 {
        let client = RawClient::login(port)?;
        client.stream.set_write_timeout(None)?;
        noise.discard(client.stream.try_clone()?)?;
        noise.repeat(client.stream, requests.clone(), 64)?;
    }
    std::thread::sleep(scale.flood);
    noise.check()?;
    let sent = noise.sent();
    drop(noise);
    let found = time_until_found(&mut cluster, "/made-after")?;
    let growth = cluster.server(0)?.process.peak()?.saturating_sub(before);
    cluster.check_alive()?;
    outcome.note(format!("{sent} opens in {} s", scale.flood.as_secs()));
    let limit = if scale.is_strict { GROWTH_BYTES_MAX } else { GROWTH_BYTES_LOOSE };
    outcome.require(
        growth < limit,
        format!("the server grew by {:.1} MiB (less than {})", mebibytes(growth), limit >> 20),
    );
    let limit = if scale.is_strict { FOUND_MAX } else { FOUND_LOOSE.max(SLOWER_MAX * control) };
    outcome.require(
        found <= limit,
        format!(
            "a file made after it was found after {:.1} ms (control {:.1}, at most {:.0})",
            milliseconds(found),
            milliseconds(control),
            milliseconds(limit)
        ),
    );
    Ok(outcome)
}

/// The time from the creation of a file at the server, of which the manager has reported that it is
/// missing, until the manager sends a client there.
fn time_until_found(cluster: &mut TestCluster, path: &str) -> Result<Duration> {
    let mut reader = RawClient::login(cluster.port)?;
    anyhow::ensure!(!is_redirected(&mut reader, path)?, "{path} is found before it is made");
    let mut maker = RawClient::login(cluster.server(0)?.port)?;
    maker.open(path, CREATING)?;
    let begun = Instant::now();
    while !is_redirected(&mut reader, path)? {
        anyhow::ensure!(begun.elapsed() < FOUND_GIVEN_UP, "{path} is not found at the manager");
    }
    Ok(begun.elapsed())
}

/// One server is lost, and connections have requests for missing names in flight, which the manager
/// holds until the server is back or has been away for long.
fn held_requests(program: &Path, scale: Scale) -> Result<ClusterCampaignOutcome> {
    let mut cluster = TestCluster::start(program, 2)?;
    let (control, paths) = (cluster.put_files(0, OPENS)?, cluster.put_files(0, OPENS)?);
    let control = first_opens(cluster.port, &control)?;
    let mut clients = Vec::new();
    for number in 0..scale.held / IN_FLIGHT {
        let client = RawClient::login(cluster.port)?;
        client.stream.set_write_timeout(None)?;
        let stat = |n| request(STAT, [0; 16], format!("/held/{number}/{n}").as_bytes());
        clients.push((client, (0..IN_FLIGHT).flat_map(stat).collect::<Vec<u8>>()));
    }
    // From now on there is half a minute: then the server counts as gone, and the requests are
    // answered.
    cluster.server(1)?.kill();
    cluster.await_children("away", 1)?;
    let mut noise = Noise::default();
    let are_held = |count: usize| {
        move |status: &serde_json::Value| status["cache"]["held"].as_u64() >= Some(count as u64)
    };
    for (number, (mut client, requests)) in clients.into_iter().enumerate() {
        client.send(&requests)?;
        noise.discard(client.stream)?;
        let sent = (number + 1) * IN_FLIGHT;
        // More at once than the manager's queue takes would be answered by a wait.
        if sent.is_multiple_of(SENT_AT_ONCE) || sent == scale.held {
            cluster.await_status(&format!("{sent} requests are held"), are_held(sent))?;
        }
    }
    let beside = first_opens(cluster.port, &paths)?;
    noise.check()?;
    anyhow::ensure!(
        are_held(scale.held)(&cluster.status()?),
        "the requests were not held long enough to measure"
    );
    cluster.check_alive()?;
    let mut outcome = ClusterCampaignOutcome::default();
    outcome.note(format!("{} requests held", scale.held));
    outcome.judge_opens(beside, control, scale);
    Ok(outcome)
}

/// Visitors of the cluster port ask for the state of a manager with many children.
fn stats_flood(program: &Path, scale: Scale) -> Result<ClusterCampaignOutcome> {
    flood_cluster_port(program, scale, |port, noise| {
        for _ in 0..VISITORS {
            let mut visitor = Visitor::redirector(port)?;
            let request = stats()?;
            visitor.send(&request.repeat(VISITOR_REQUESTS))?;
            let answered = noise.counter();
            noise.work(visitor.sender()?, move || {
                while visitor.next(|_| ()).and_then(|()| visitor.send(&request)).is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })?;
        }
        Ok(())
    })
}

/// A node has the manager ask again for all that it knows of it, without a pause between the
/// frames.
fn reset_flood(program: &Path, scale: Scale) -> Result<ClusterCampaignOutcome> {
    flood_cluster_port(program, scale, |port, noise| {
        let node = Visitor::node(port, NODES)?;
        noise.discard(node.sender()?)?;
        noise.repeat(node.sender()?, reset()?.repeat(RESETS_AT_ONCE), RESETS_AT_ONCE as u64)
    })
}

fn flood_cluster_port(
    program: &Path,
    scale: Scale,
    flood: impl FnOnce(u16, &mut Noise) -> Result<()>,
) -> Result<ClusterCampaignOutcome> {
    let mut cluster = TestCluster::start(program, 1)?;
    let (control, paths) = (cluster.put_files(0, OPENS)?, cluster.put_files(0, OPENS)?);
    let mut nodes = Noise::default();
    for number in 0..NODES {
        let node = Visitor::node(cluster.node_port, number)?;
        nodes.work(node.sender()?, move || {
            node.answer_pings().ok();
        })?;
    }
    cluster.await_children("serving", usize::from(NODES) + 1)?;
    let control = first_opens(cluster.port, &control)?;
    let mut noise = Noise::default();
    flood(cluster.node_port, &mut noise)?;
    std::thread::sleep(FLOOD_START);
    let (begun, before) = (Instant::now(), noise.sent());
    let beside = first_opens(cluster.port, &paths)?;
    let rate = (noise.sent() - before) as f64 / begun.elapsed().as_secs_f64();
    noise.check()?;
    nodes.check()?;
    cluster.check_alive()?;
    let mut outcome = ClusterCampaignOutcome::default();
    outcome.note(format!("{rate:.0} requests/s"));
    outcome.judge_opens(beside, control, scale);
    Ok(outcome)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
