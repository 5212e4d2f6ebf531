//! Tests of the memory of a location, counted at the allocator.
//!
//! It is a test of its own, because its allocator counts the whole process.

use std::alloc::System;
use std::time::Duration;

use base::Rng;
use cluster::{Bounces, Cache, CacheSettings, Slot};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

struct Fixed;

impl Rng for Fixed {
    fn fill(&mut self, into: &mut [u8]) {
        into.fill(1);
    }
}

const LOCATIONS: usize = 200_000;
const BYTES_MAX: usize = 64;

#[test]
fn a_location_costs_at_most_64_bytes() {
    let region = Region::new(GLOBAL);
    let held = || {
        let change = region.change();
        change.bytes_allocated - change.bytes_deallocated
    };
    // The number for each shard is that of ten million locations in the maximum number of shards.
    let settings = CacheSettings { locations_max: LOCATIONS * 11 / 10, ..CacheSettings::default() };
    let cache = Cache::new(&settings, &mut Fixed);
    let bounces = Bounces::new();
    let slot = Slot::new(17).unwrap();
    for n in 0..LOCATIONS {
        let path = format!("/store/data/Run2026A/AOD/000/{:03}/{n:09}.root", n / 1000);
        let now = Duration::from_millis(n as u64 * 10);
        cache.enter(path.as_bytes(), now, &bounces, |location| location.found(slot, false));
    }
    assert_eq!(cache.stats().locations as usize, LOCATIONS);
    let each = held() as f64 / LOCATIONS as f64;
    println!("{each:.1} bytes for each location");
    assert!(each <= BYTES_MAX as f64, "{each:.1} bytes");
    drop(cache);
    assert!(held() < 4096, "{} bytes are left", held());
}
