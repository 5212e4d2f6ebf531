//! Plays hostile clients against a server, campaign by campaign, beside a well-behaved client.
//!
//! After each campaign the server's memory, descriptors, threads, connections and files must return
//! to their earlier values, within named bounds, and the latency of the well-behaved client must
//! stay within three times that of a control run; with half-open logins, within twice. The exit status
//! is 1 where a bound is broken.
//!
//! Campaigns against a cluster follow: they have limits of their own (`cluster/campaigns.rs`). With
//! `--quick`, in a build that is not optimised and on a machine with other work, those of bytes and
//! counts stay, and those of time depend on the control run.

mod campaigns;
mod cluster;
mod half_open;
mod process;
mod raw;
mod reference_client;
mod site;

use anyhow::{Context, Result, bail};
use campaigns::{ALL, Campaign};
use clap::Parser;
use cluster::campaigns::{ALL as CLUSTER, ClusterCampaign, Scale};
use process::ProcessUsage;
use raw::RawClient;
use site::Site;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Resident memory that a server may keep after a campaign: the buffers that its loops keep warm,
/// and memory that the allocator does not return.
const MEMORY_KEPT_MAX: u64 = 96 << 20;

/// Descriptors that it may keep.
const DESCRIPTORS_KEPT_MAX: usize = 16;

/// Threads that it may keep: those of its pools.
const THREADS_KEPT_MAX: u64 = 128;

/// Time in which the bounds must hold again.
const SETTLED_MAX: Duration = Duration::from_secs(20);

/// Below this the 99th percentile depends more on the machine's scheduler than on the server.
const LATENCY_FLOOR: Duration = Duration::from_millis(100);

/// Fewer requests than these have no 99th percentile worth judging: only the slowest counts.
const SAMPLES_MIN: usize = 200;

/// A request that takes longer is a hang.
const WORST_MAX: Duration = Duration::from_secs(2);

/// Time of a control run.
const CONTROL: Duration = Duration::from_millis(500);

/// The well-behaved client goes on for this time: work that was left behind can hold up others.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Play hostile clients against a server
#[derive(Parser)]
struct Options {
    /// The server's program
    #[arg(long, value_name = "PROGRAM", default_value = "target/release/scalla")]
    server: PathBuf,
    /// Only the campaigns of the run of one minute
    #[arg(long)]
    quick: bool,
    /// Go through the campaigns N times
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: usize,
    /// Campaigns to play; all of them if none is named
    campaigns: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let names: Vec<_> = ALL.iter().map(|one| one.name).chain(CLUSTER.iter().map(|one| one.name)).collect();
    if let Some(name) = options.campaigns.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("there is no campaign {name}; there are {}", names.join(", "));
    }
    let is_named = |name: &str| options.campaigns.iter().any(|one| one == name);
    let chosen = |campaign: &&Campaign| match options.campaigns.is_empty() {
        true => campaign.is_quick || !options.quick,
        false => is_named(campaign.name),
    };
    let chosen_cluster =
        |campaign: &&ClusterCampaign| options.campaigns.is_empty() || is_named(campaign.name);
    raise_descriptors();
    let program = std::path::absolute(&options.server)?;
    println!(
        "campaign                  seconds  peak MiB  kept MiB  fds  threads  p99 ms (control)  slowest ms"
    );
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let mut broken = Vec::new();
    let mut note = |name: &str, faults: Result<Vec<String>>| match faults {
        Ok(faults) if faults.is_empty() => {}
        Ok(faults) => broken.push(format!("{name}: {}", faults.join("; "))),
        Err(error) => broken.push(format!("{name}: {error:#}")),
    };
    for _ in 0..options.times {
        ALL.iter().filter(chosen).for_each(|one| note(one.name, play(one, &program)));
        CLUSTER.iter().filter(chosen_cluster).for_each(|one| note(one.name, one.play(&program, scale)));
    }
    if broken.is_empty() {
        println!("all bounds hold");
        return Ok(ExitCode::SUCCESS);
    }
    println!("BROKEN:\n  {}", broken.join("\n  "));
    Ok(ExitCode::FAILURE)
}

/// Both sides of a thousand connections are descriptors; those here are of this process.
fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

/// Plays one campaign against a server of its own; returns the broken bounds.
fn play(campaign: &Campaign, program: &Path) -> Result<Vec<String>> {
    let mut site = Site::start(program, campaign.prepare)?;
    let mut client = RawClient::login(site.port)?;
    let mut control = reference_client::work_for(&mut client, CONTROL)?;
    let before = site.holdings()?;
    site.process.reset_peak();
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let (played, worked) = std::thread::scope(|scope| {
        let working = scope.spawn(|| reference_client::work(&mut client, &over));
        let played = (campaign.run)(site.port);
        std::thread::sleep(AFTERMATH);
        over.store(true, Ordering::Relaxed);
        (played, working.join())
    });
    site.process.check_alive()?;
    played.context("the campaign could not be played")?;
    let worked = worked.map_err(|_| anyhow::anyhow!("the well-behaved client panicked"))?;
    let mut latencies = worked.context("the well-behaved client was not served")?;
    let seconds = begun.elapsed().as_secs_f64();
    let (after, mut faults) = settle(&site, &before)?;
    site.process.check_alive()?;
    let (p99, usual) = (latencies.percentile(99), control.percentile(99));
    if latencies.count() >= SAMPLES_MIN && p99 > LATENCY_FLOOR.max(campaign.slower_max * usual) {
        faults.push(format!("99 of 100 requests of the well-behaved client took {p99:?}, {usual:?} before"));
    }
    if latencies.worst() > WORST_MAX {
        faults.push(format!("a request of the well-behaved client took {:?}", latencies.worst()));
    }
    let peak = site.process.peak()?.saturating_sub(before.memory);
    if let Some(most) = campaign.peak_max.filter(|most| peak > *most) {
        faults.push(format!("{peak} bytes of memory while the clients were there, at most {most} expected"));
    }
    let mebibytes = |bytes: u64| bytes >> 20;
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    println!(
        "{:<25} {seconds:>7.1} {:>9} {:>9} {:>4} {:>8} {:>7.1} ({:>6.1}) {:>11.0}  {}",
        campaign.name,
        mebibytes(peak),
        mebibytes(after.memory.saturating_sub(before.memory)),
        after.descriptors.saturating_sub(before.descriptors),
        after.threads.saturating_sub(before.threads),
        milliseconds(p99),
        milliseconds(usual),
        milliseconds(latencies.worst()),
        if faults.is_empty() { "" } else { "BROKEN" },
    );
    Ok(faults)
}

/// Waits until the server's holdings are as before; returns the final holdings and the broken
/// bounds.
fn settle(site: &Site, before: &ProcessUsage) -> Result<(ProcessUsage, Vec<String>)> {
    let until = Instant::now() + SETTLED_MAX;
    loop {
        let now = site.holdings()?;
        let faults = excess(&now, before);
        if faults.is_empty() || Instant::now() > until {
            return Ok((now, faults));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn excess(now: &ProcessUsage, before: &ProcessUsage) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |what: &str, now: u64, most: u64| {
        if now > most {
            faults.push(format!("{now} {what}, at most {most} expected"));
        }
    };
    check("bytes of memory", now.memory, before.memory + MEMORY_KEPT_MAX);
    check("descriptors", now.descriptors as u64, (before.descriptors + DESCRIPTORS_KEPT_MAX) as u64);
    check("threads", now.threads, before.threads + THREADS_KEPT_MAX);
    check("connections", now.connections, before.connections);
    check("open files", now.open_files, before.open_files);
    faults
}
