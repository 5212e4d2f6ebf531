//! The location cache against a slow and simple model.
//!
//! The model has no shards, blocks or clocks, so that a difference shows an error of the cache.

use std::collections::HashMap;
use std::time::Duration;

use base::Rng;
use cluster::{Bounces, Cache, CacheSettings, CachedLocation, Slot, SlotMask};
use proptest::prelude::*;

struct Fixed;

impl Rng for Fixed {
    fn fill(&mut self, into: &mut [u8]) {
        into.fill(7);
    }
}

const TICK: u64 = 450;
const HOLD: u64 = cluster::PLACEMENT_HOLD.as_secs();

#[derive(Clone, Debug)]
enum Step {
    Enter { path: u8 },
    Refresh { path: u8 },
    Found { path: u8, slot: u8, pending: bool },
    Missed { path: u8, slot: u8 },
    Place { path: u8, slot: u8 },
    Done { path: u8 },
    Forget { path: u8 },
    Bounce { slot: u8 },
    Pass { seconds: u64 },
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = 0..24u8;
    let slot = 0..64u8;
    let step = prop_oneof![
        4 => path.clone().prop_map(|path| Step::Enter { path }),
        1 => path.clone().prop_map(|path| Step::Refresh { path }),
        4 => (path.clone(), slot.clone(), any::<bool>())
            .prop_map(|(path, slot, pending)| Step::Found { path, slot, pending }),
        2 => (path.clone(), slot.clone()).prop_map(|(path, slot)| Step::Missed { path, slot }),
        1 => (path.clone(), slot.clone()).prop_map(|(path, slot)| Step::Place { path, slot }),
        1 => path.clone().prop_map(|path| Step::Done { path }),
        1 => path.prop_map(|path| Step::Forget { path }),
        2 => slot.prop_map(|slot| Step::Bounce { slot }),
        2 => prop_oneof![0..5u64, 0..TICK, 0..20 * TICK].prop_map(|seconds| Step::Pass { seconds }),
        1 => Just(Step::Sweep),
    ];
    prop::collection::vec(step, 1..200)
}

/// One path in the model: a bounce visits every path, and the age counts whole ticks.
#[derive(Clone)]
struct Known {
    location: CachedLocation,
    tick: u64,
    since: u64,
}

#[derive(Default)]
struct Model {
    known: HashMap<u8, Known>,
    now: u64,
}

impl Model {
    fn pass(&mut self, seconds: u64) {
        self.now += seconds;
        let tick = self.now / TICK;
        self.known.retain(|_, known| tick - known.tick < 64);
    }

    fn change(&mut self, path: u8, change: impl FnOnce(&mut CachedLocation)) {
        let now = self.now;
        let Some(known) = self.known.get_mut(&path) else { return };
        if let Some(slot) = known.location.placed
            && now - known.since > HOLD
        {
            known.location.invalidate(slot.mask());
        }
        let placed = known.location.placed;
        change(&mut known.location);
        if known.location.placed != placed {
            known.since = now;
        }
    }

    fn bounce(&mut self, slot: SlotMask) {
        self.known.values_mut().for_each(|known| known.location.invalidate(slot));
    }
}

fn name(path: u8) -> Vec<u8> {
    format!("/store/run{path}/{}", "x".repeat(usize::from(path) * 3)).into_bytes()
}

fn slot(number: u8) -> Slot {
    Slot::new(number).expect("below 64")
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn agrees_with_the_model(steps in steps()) {
        let cache = Cache::new(&CacheSettings::default(), &mut Fixed);
        let mut bounces = Bounces::new();
        let mut model = Model::default();
        for step in steps {
            let now = Duration::from_secs(model.now);
            match step {
                Step::Enter { path } => {
                    if cache.lookup(&name(path), now, &bounces).is_none() {
                        cache.enter(&name(path), now, &bounces, |_| ());
                        let fresh = Known {
                            location: CachedLocation::UNKNOWN, tick: model.now / TICK, since: model.now,
                        };
                        model.known.insert(path, fresh);
                    }
                }
                Step::Refresh { path } => {
                    cache.enter(&name(path), now, &bounces, |at| *at = CachedLocation::UNKNOWN);
                    let fresh = Known {
                        location: CachedLocation::UNKNOWN, tick: model.now / TICK, since: model.now,
                    };
                    model.known.insert(path, fresh);
                }
                Step::Found { path, slot: from, pending } => {
                    let found = |at: &mut CachedLocation| at.found(slot(from), pending);
                    cache.update(&name(path), now, &bounces, found);
                    model.change(path, found);
                }
                Step::Missed { path, slot: from } => {
                    let missed = |at: &mut CachedLocation| at.missed(slot(from));
                    cache.update(&name(path), now, &bounces, missed);
                    model.change(path, missed);
                }
                Step::Place { path, slot: to } => {
                    let place = |at: &mut CachedLocation| { at.placed = None; at.place(slot(to)); };
                    // The same slot twice is one placement.
                    if model.known.get(&path).is_some_and(|known| known.location.placed.is_none()) {
                        cache.update(&name(path), now, &bounces, place);
                        model.change(path, place);
                    }
                }
                Step::Done { path } => {
                    let done = |at: &mut CachedLocation| { at.unasked = SlotMask::EMPTY; at.querying = false; };
                    cache.update(&name(path), now, &bounces, done);
                    model.change(path, done);
                }
                Step::Forget { path } => {
                    cache.forget(&name(path));
                    model.known.remove(&path);
                }
                Step::Bounce { slot: number } => {
                    bounces.bounce(slot(number));
                    model.bounce(slot(number).mask());
                }
                Step::Pass { seconds } => model.pass(seconds),
                Step::Sweep => cache.sweep(now),
            }
            let now = Duration::from_secs(model.now);
            for path in 0..24 {
                model.change(path, |_| ());
                let known = model.known.get(&path).map(|known| known.location);
                prop_assert_eq!(cache.lookup(&name(path), now, &bounces), known, "path {}", path);
            }
        }
    }

}

proptest! {
    #![proptest_config(config(6))]

    /// A flood of distinct names leaves the cache within its bounds, and frequently used names
    /// stay.
    #[test]
    fn a_flood_stays_within_bounds(seed in any::<u32>(), entries in 1_000..9_000usize) {
        let settings = CacheSettings {
            locations_max: entries, ..CacheSettings::default()
        };
        let cache = Cache::new(&settings, &mut Fixed);
        let bounces = Bounces::new();
        let hot: Vec<Vec<u8>> = (0..8).map(|n| format!("/hot/{n}").into_bytes()).collect();
        let now = Duration::from_secs(1);
        for path in &hot {
            cache.enter(path, now, &bounces, |at| at.found(slot(3), false));
        }
        for n in 0..entries * 4 {
            let path = format!("/flood/{seed}/{n}");
            cache.enter(path.as_bytes(), now, &bounces, |_| ());
            if n % 16 == 0 {
                for path in &hot {
                    prop_assert!(cache.lookup(path, now, &bounces).is_some(), "lost after {}", n);
                }
            }
        }
        let stats = cache.stats();
        // The limit is rounded up in each shard.
        prop_assert!(stats.locations as usize <= entries + 4, "{} of {}", stats.locations, entries);
        prop_assert!(stats.evicted as usize >= entries * 2);
    }
}

#[test]
fn a_location_lives_63_to_64_ticks_from_its_query_whatever_its_use() {
    let cache = Cache::new(&CacheSettings::default(), &mut Fixed);
    let bounces = Bounces::new();
    let at = |seconds| Duration::from_secs(seconds);
    cache.enter(b"/early", at(0), &bounces, |_| ());
    cache.enter(b"/late", at(TICK - 1), &bounces, |_| ());
    for second in (0..64 * TICK).step_by(100) {
        assert!(cache.lookup(b"/early", at(second), &bounces).is_some(), "second {second}");
    }
    assert!(cache.lookup(b"/late", at(64 * TICK - 1), &bounces).is_some());
    assert!(cache.lookup(b"/early", at(64 * TICK), &bounces).is_none());
    assert!(cache.lookup(b"/late", at(64 * TICK), &bounces).is_none());
}

#[test]
fn the_window_of_a_refreshed_location_begins_anew() {
    let cache = Cache::new(&CacheSettings::default(), &mut Fixed);
    let bounces = Bounces::new();
    let at = |ticks: u64| Duration::from_secs(ticks * TICK);
    cache.enter(b"/a", at(0), &bounces, |location| location.found(slot(5), false));
    cache.enter(b"/a", at(40), &bounces, |_| ());
    let known = cache.lookup(b"/a", at(100), &bounces).unwrap();
    assert_eq!(known.have, slot(5).mask(), "what was known is kept unless reset");
    assert!(cache.lookup(b"/a", at(104), &bounces).is_none());
    assert!((0..100).any(|_| {
        cache.sweep(at(104));
        cache.stats().locations == 0
    }));
}

#[test]
fn a_cached_absence_has_its_own_configured_time() {
    let settings = CacheSettings { nowhere: Some(Duration::from_secs(65)), ..CacheSettings::default() };
    let cache = Cache::new(&settings, &mut Fixed);
    let bounces = Bounces::new();
    let at = Duration::from_secs;
    for path in [b"/none", b"/some"] {
        cache.enter(path, at(0), &bounces, |location| location.querying = true);
    }
    cache.update(b"/some", at(1), &bounces, |location| location.found(slot(1), false));
    for path in [b"/none", b"/some"] {
        cache.update(path, at(5), &bounces, |location| {
            location.unasked = SlotMask::EMPTY;
            location.querying = false;
        });
    }
    let unasked = |path: &[u8], second| cache.lookup(path, at(second), &bounces).unwrap().unasked;
    assert_eq!(unasked(b"/none", 70), SlotMask::EMPTY);
    assert_eq!(unasked(b"/none", 71), SlotMask::ALL);
    assert_eq!(unasked(b"/some", 71), SlotMask::EMPTY);
    // The other children were asked too long ago.
    cache.update(b"/some", at(80), &bounces, |location| location.missed(slot(1)));
    assert_eq!(unasked(b"/some", 80), SlotMask::ALL);
}

#[test]
fn a_query_of_some_children_does_not_extend_the_absence_at_others() {
    let settings = CacheSettings { nowhere: Some(Duration::from_secs(65)), ..CacheSettings::default() };
    let cache = Cache::new(&settings, &mut Fixed);
    let bounces = Bounces::new();
    let query = |from: u64, change: fn(&mut CachedLocation)| {
        let begin = |location: &mut CachedLocation| {
            change(location);
            location.unasked = SlotMask::EMPTY;
            location.querying = true;
        };
        let (from, to) = (Duration::from_secs(from), Duration::from_secs(from + 5));
        cache.update(b"/a", from, &bounces, begin).unwrap_or_else(|| {
            cache.enter(b"/a", from, &bounces, begin);
        });
        // News of a holder that is lost again restarts the window of the entry.
        cache.enter(b"/a", from, &bounces, |location| location.found(slot(2), false));
        cache.update(b"/a", from, &bounces, |location| location.missed(slot(2)));
        cache.update(b"/a", to, &bounces, |location| location.querying = false);
    };
    let unasked = |second| cache.lookup(b"/a", Duration::from_secs(second), &bounces).unwrap().unasked;
    query(0, |_| ());
    query(50, |location| location.invalidate(slot(1).mask()));
    assert_eq!(unasked(70), SlotMask::EMPTY);
    assert_eq!(unasked(71), SlotMask::ALL);
    query(72, |_| ());
    assert_eq!(unasked(77 + 65), SlotMask::EMPTY);
    assert_eq!(unasked(77 + 66), SlotMask::ALL);
}

#[test]
fn a_reader_behind_on_bounces_finds_no_newer_entry() {
    let cache = Cache::new(&CacheSettings::default(), &mut Fixed);
    let old = Bounces::new();
    let mut new = old.clone();
    new.bounce(slot(9));
    let now = Duration::ZERO;
    cache.enter(b"/a", now, &new, |location| location.found(slot(9), false));
    assert_eq!(cache.lookup(b"/a", now, &old), None);
    assert!(cache.lookup(b"/a", now, &new).is_some());
}
