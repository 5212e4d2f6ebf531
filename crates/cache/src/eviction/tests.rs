//! Tests of the order of removals.

#![allow(clippy::unwrap_used)]

use super::frequency_sketch::FrequencySketch;
use super::{EvictionPolicy, LruPolicy, S3FifoPolicy};
use base::SplitMix64;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

type FixedHasher = BuildHasherDefault<DefaultHasher>;

fn s3_fifo(capacity: u64, units: usize) -> S3FifoPolicy<u64, FixedHasher> {
    S3FifoPolicy::with_hasher(capacity, units, FixedHasher::default())
}

/// Requests a unit of one byte, stores it if it is missing, and evicts units until the cache fits its
/// capacity. Returns whether the unit was cached.
fn request(policy: &mut dyn EvictionPolicy<u64>, key: u64, capacity: u64) -> bool {
    let is_hit = policy.request(key);
    if !is_hit {
        policy.insert(key, 1);
    }
    while policy.bytes() > capacity {
        policy.evict().unwrap();
    }
    is_hit
}

#[test]
fn sizes_and_units_agree_with_a_model() {
    const CAPACITY: u64 = 5_000;
    let policies: [Box<dyn EvictionPolicy<u64>>; 2] =
        [Box::new(s3_fifo(CAPACITY, 100)), Box::new(LruPolicy::with_hasher(FixedHasher::default()))];
    for mut policy in policies {
        let mut rng = SplitMix64::new(7);
        let mut model: HashMap<u64, u64> = HashMap::new();
        for _ in 0..50_000 {
            let key = rng.draw() % 400;
            match rng.draw() % 10 {
                0 => assert_eq!(policy.remove(key), model.remove(&key)),
                1..5 => assert_eq!(policy.request(key), model.contains_key(&key)),
                _ => {
                    let bytes = rng.draw() % 100;
                    policy.insert(key, bytes);
                    model.entry(key).or_insert(bytes);
                }
            }
            assert_eq!(policy.bytes(), model.values().sum::<u64>());
            while policy.bytes() > CAPACITY {
                let (key, bytes) = policy.evict().unwrap();
                assert_eq!(model.remove(&key), Some(bytes));
            }
        }
        while let Some((key, bytes)) = policy.evict() {
            assert_eq!(model.remove(&key), Some(bytes));
        }
        assert!(model.is_empty() && policy.bytes() == 0);
    }
}

#[test]
fn the_unit_without_requests_for_the_longest_time_is_the_least_recently_used() {
    let mut policy = LruPolicy::with_hasher(FixedHasher::default());
    for key in 0..4 {
        policy.insert(key, 10);
    }
    assert!(policy.request(0) && policy.request(2) && !policy.request(9));
    let order: Vec<u64> = std::iter::from_fn(|| policy.evict()).map(|(key, _)| key).collect();
    assert_eq!(order, [1, 3, 0, 2]);
}

#[test]
fn a_scan_does_not_displace_units_that_are_in_use() {
    const CAPACITY: u64 = 1_000;
    let hits = |policy: &mut dyn EvictionPolicy<u64>| {
        for key in (0..800).chain(0..800).chain(0..800) {
            request(policy, key, CAPACITY);
        }
        // Nine of ten requests are for units that nobody requests again.
        let mut hits = 0;
        for scanned in 0..20_000 {
            request(policy, 1_000_000 + scanned, CAPACITY);
            if scanned % 9 == 0 {
                hits += u64::from(request(policy, scanned / 9 % 800, CAPACITY));
            }
        }
        hits
    };
    let used = 20_000_u64.div_ceil(9);
    let kept = hits(&mut s3_fifo(CAPACITY, 1_000));
    assert!(kept > used * 98 / 100, "{kept} of {used}");
    let kept = hits(&mut LruPolicy::with_hasher(FixedHasher::default()));
    assert!(kept < used / 10, "LRU: {kept} of {used}");
}

#[test]
fn units_that_are_requested_twice_do_not_displace_those_that_are_requested_more_often() {
    const CAPACITY: u64 = 1_000;
    const POPULAR: u64 = 600;
    const ROUNDS: u64 = 60;
    let hits = |policy: &mut dyn EvictionPolicy<u64>| {
        let mut hits = 0;
        for number in 0..ROUNDS * POPULAR {
            let is_hit = request(policy, number % POPULAR, CAPACITY);
            hits += u64::from(is_hit && number > ROUNDS * POPULAR / 2);
            // More units pass between two requests for a popular unit than fit.
            request(policy, 1_000_000 + number, CAPACITY);
            request(policy, 1_000_000 + number, CAPACITY);
        }
        hits
    };
    let requests = ROUNDS * POPULAR / 2;
    let kept = hits(&mut s3_fifo(CAPACITY, 1_000));
    assert!(kept > requests * 9 / 10, "{kept} of {requests}");
    assert_eq!(hits(&mut LruPolicy::with_hasher(FixedHasher::default())), 0, "LRU");
}

#[test]
fn other_units_become_popular() {
    const CAPACITY: u64 = 1_000;
    let mut policy = s3_fifo(CAPACITY, 1_000);
    for _ in 0..50 {
        (0..900).for_each(|key| {
            request(&mut policy, key, CAPACITY);
        });
    }
    let mut hits = 0;
    for round in 0..20 {
        hits = (5_000..5_900).filter(|key| request(&mut policy, *key, CAPACITY)).count();
        assert!(round > 0 || hits == 0);
    }
    assert!(hits > 850, "{hits} of 900");
}

#[test]
fn a_unit_that_comes_back_stays() {
    const CAPACITY: u64 = 100;
    let mut policy = s3_fifo(CAPACITY, 100);
    (0..150).for_each(|key| {
        request(&mut policy, key, CAPACITY);
    });
    assert!(!request(&mut policy, 20, CAPACITY), "it was removed");
    // It is not in the small queue: as many new units as this queue has pass by.
    (1_000..1_050).for_each(|key| {
        request(&mut policy, key, CAPACITY);
    });
    assert!(policy.request(20));
}

#[test]
fn a_sketch_counts_and_forgets() {
    let hash = |key: u64| FixedHasher::default().hash_one(key);
    let mut sketch = FrequencySketch::new(1_000);
    for key in 0..500_u64 {
        (0..key % 20).for_each(|_| sketch.record(hash(key)));
    }
    let estimates: Vec<(u64, u64)> = (0..500).map(|key| (key % 20, sketch.estimate(hash(key)))).collect();
    assert!(estimates.iter().all(|(count, estimate)| estimate >= count.min(&15)));
    let exact = estimates.iter().filter(|(count, estimate)| estimate == count.min(&15)).count();
    assert!(exact > 490, "{exact} of 500");
    assert_eq!(sketch.estimate(hash(19)), 15);
    (0..10_000_u64).for_each(|key| sketch.record(hash(1_000 + key % 300)));
    assert!(sketch.estimate(hash(19)) <= 7, "{}", sketch.estimate(hash(19)));
}
