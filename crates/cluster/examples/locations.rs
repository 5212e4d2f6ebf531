//! Benchmark of a location: its memory, and the time to enter it, look it up, and make a redirect
//! of it.
//!
//! `cargo run --release -p scalla-cluster --example locations [millions]` (10). Times are means of
//! processor time over random paths in one thread, without the time to make the path; memory is
//! counted at the allocator.

use std::alloc::System;
use std::fmt::Write as _;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use base::SplitMix64;
use cluster::{
    Bounces, Cache, CacheSettings, Cell, CellChild, ChildExport, ChildKind, ChildState, Chooser, Interface,
    LocationResolver, Policy, ResolveSettings, SelectOptions, Slot,
};
use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BATCH: u32 = 20_000;
const BATCHES: u32 = 100;
const NOW: Duration = Duration::from_secs(1);

fn path(into: &mut String, number: u64) {
    into.clear();
    // Writing to memory cannot fail.
    let _ = write!(into, "/store/data/Run2026A/AOD/000/{:03}/{number:09}.root", number / 1000 % 1000);
}

/// Returns the processor time of this thread, so that other loads on the machine do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the time of a call with a random path in ns, without the time to make the path: for the
/// fastest batch, and for all of them.
fn time(of: u64, mut call: impl FnMut(&[u8])) -> String {
    let mut text = String::new();
    let mut dice = SplitMix64::new(5);
    let mut run = |call: &mut dyn FnMut(&[u8])| {
        let start = processor_time();
        for _ in 0..BATCH {
            path(&mut text, dice.draw() % of);
            call(text.as_bytes());
        }
        (processor_time() - start).as_nanos() as f64 / f64::from(BATCH)
    };
    let batches: Vec<(f64, f64)> = (0..BATCHES)
        .map(|_| {
            let making = run(&mut |path| {
                black_box(path);
            });
            (run(&mut call), making)
        })
        .collect();
    let mean = batches.iter().map(|(whole, making)| whole - making).sum::<f64>() / f64::from(BATCHES);
    let least = |pick: fn(&(f64, f64)) -> f64| batches.iter().map(pick).fold(f64::INFINITY, f64::min);
    format!("{:7.0} ns, mean {mean:.0}", least(|both| both.0) - least(|both| both.1))
}

fn cell() -> Cell {
    let mut cell = Cell::new(&[]);
    for (slot, number) in Slot::all().zip(0..4u8) {
        let interface = Interface {
            host: format!("server{number}").into(),
            ip: IpAddr::from([10, 0, 0, number]),
            private: false,
        };
        let child = CellChild {
            kind: ChildKind::Server,
            state: ChildState::SERVING,
            interfaces: vec![interface],
            port: 1094,
            cid: "site".into(),
            says_not_here: true,
            lists_all: false,
            takes_leases: true,
            digest: number.into(),
            id: number.into(),
            min_free_mb: 0,
            share: None,
        };
        cell.join(slot, child, &ChildExport::parse_list(b"w /").unwrap_or_default());
    }
    cell
}

fn main() {
    let millions = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10u64);
    let locations = millions * 1_000_000;
    // A shard is full before all are, so there is some room for an uneven distribution.
    let settings = CacheSettings { locations_max: locations as usize / 16 * 17, ..CacheSettings::default() };
    let region = Region::new(GLOBAL);
    let cache = Cache::new(&settings, &mut SplitMix64::new(1));
    let cell = cell();
    let bounces: Bounces = cell.bounces().clone();
    let holders: Vec<Slot> = cell.children().map(|(slot, _)| slot).collect();
    let mut text = String::new();
    let start = processor_time();
    for number in 0..locations {
        path(&mut text, number);
        let slot = holders[number as usize % holders.len()];
        cache.enter(text.as_bytes(), NOW, &bounces, |location| {
            location.unasked = cluster::SlotMask::EMPTY;
            location.found(slot, false);
        });
    }
    let entered = (processor_time() - start).as_nanos() as f64 / locations as f64;
    let change = region.change();
    let held = change.bytes_allocated - change.bytes_deallocated;
    let stats = cache.stats();
    println!("{} locations held, {} evicted", stats.locations, stats.evicted);
    println!("memory     {:7.1} bytes each", held as f64 / locations as f64);
    println!("enter      {entered:7.0} ns, the path made within");
    println!(
        "look up    {}",
        time(locations, |path| {
            black_box(cache.lookup(path, NOW, &bounces));
        })
    );
    let machine = LocationResolver::new(
        cell,
        cache,
        Chooser::new(Policy::default()),
        ResolveSettings::default(),
        Box::new(SplitMix64::new(2)),
    );
    let mut reader = machine.shared().reader();
    let mut dice = SplitMix64::new(3);
    println!(
        "redirect   {}",
        time(locations, |path| {
            black_box(reader.select(path, SelectOptions::default(), NOW, &mut dice));
        })
    );
    println!(
        "the same   {} (of a thousand paths)",
        time(1000, |path| {
            black_box(reader.select(path, SelectOptions::default(), NOW, &mut dice));
        })
    );
}
