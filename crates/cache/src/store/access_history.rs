//! The periods in which clients had a file open. Neighbours that are close to each other are merged, as XRootD
//! does it. Source: proxy facts, section 12.

use crate::CacheAccess;

/// Maximum number of periods.
const ACCESSES_MAX: usize = 20;
/// Maximum number of periods of a file of another cache that are used: the last ones.
const ACCESSES_READ_MAX: usize = 200;

/// Adds the last period.
pub(super) fn add(accesses: &mut Vec<CacheAccess>, access: CacheAccess, now: i64) {
    accesses.push(access);
    // The file may come from a cache with another limit. Merging takes a time that grows with the square.
    accesses.drain(..accesses.len().saturating_sub(ACCESSES_READ_MAX));
    while accesses.len() > ACCESSES_MAX {
        close_open_periods(accesses);
        let Some(at) = closest_pair(accesses, now) else { return };
        let later = accesses.remove(at + 1);
        if let Some(earlier) = accesses.get_mut(at) {
            merge(earlier, &later);
        }
    }
}

/// Sets the end of periods that a crash has cut off.
fn close_open_periods(accesses: &mut [CacheAccess]) {
    let begins: Vec<i64> = accesses.iter().skip(1).map(|access| access.attached).collect();
    for (access, next) in accesses.iter_mut().zip(begins) {
        if access.detached == 0 {
            let mean = i64::from(access.duration) / i64::from(access.opens.max(1));
            access.detached = access.attached.saturating_add(mean).min(next);
        }
    }
}

/// Returns the first of the two neighbours with the shortest gap, compared with their age. The newest period
/// is left out.
fn closest_pair(accesses: &[CacheAccess], now: i64) -> Option<usize> {
    let pairs = accesses.windows(2).take(accesses.len().checked_sub(2)?).enumerate();
    let mut best: Option<(usize, i64, i64)> = None;
    for (at, pair) in pairs {
        let [one, two] = pair else { continue };
        let gap = two.attached.saturating_sub(one.detached);
        let age = |time: i64| now.saturating_sub(time) / 2;
        let age = age(two.attached).saturating_add(age(one.detached)).max(1);
        let is_closer = |&(_, other, other_age): &(usize, i64, i64)| {
            i128::from(gap) * i128::from(other_age) < i128::from(other) * i128::from(age)
        };
        if best.as_ref().is_none_or(is_closer) {
            best = Some((at, gap, age));
        }
    }
    best.map(|(at, ..)| at)
}

fn merge(earlier: &mut CacheAccess, later: &CacheAccess) {
    earlier.detached = later.detached;
    earlier.opens = earlier.opens.saturating_add(later.opens);
    earlier.duration = earlier.duration.saturating_add(later.duration);
    earlier.merged = earlier.merged.saturating_add(1).saturating_add(later.merged);
    earlier.bytes_hit = earlier.bytes_hit.saturating_add(later.bytes_hit);
    earlier.bytes_missed = earlier.bytes_missed.saturating_add(later.bytes_missed);
    earlier.bytes_bypassed = earlier.bytes_bypassed.saturating_add(later.bytes_bypassed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(attached: i64, detached: i64) -> CacheAccess {
        CacheAccess {
            attached,
            detached,
            opens: 1,
            duration: 2,
            merged: 0,
            bytes_hit: 10,
            bytes_missed: 1,
            bytes_bypassed: 0,
        }
    }

    #[test]
    fn the_neighbours_with_the_shortest_gap_are_merged() {
        let mut accesses = Vec::new();
        for number in 0..20 {
            // The gap before the period 7 is short.
            let shift = if number == 7 { -90 } else { 0 };
            add(&mut accesses, access(1000 + number * 100 + shift, 1005 + number * 100 + shift), 5000);
        }
        assert_eq!(accesses.len(), 20);
        add(&mut accesses, access(4000, 4005), 5000);
        assert_eq!(accesses.len(), 20);
        let merged = accesses[6];
        assert_eq!((merged.attached, merged.detached), (1600, 1615));
        assert_eq!((merged.opens, merged.duration, merged.merged, merged.bytes_hit), (2, 4, 1, 20));
    }

    #[test]
    fn of_too_many_periods_the_last_ones_are_used() {
        let mut accesses: Vec<_> =
            (0..140_000).map(|number| access(number * 100, number * 100 + 5)).collect();
        add(&mut accesses, access(20_000_000, 20_000_005), 20_000_010);
        assert_eq!(accesses.len(), 20);
        assert_eq!(accesses.iter().map(|access| access.opens).sum::<i32>(), 200);
        assert_eq!(accesses[0].attached, 139_801 * 100);
    }

    #[test]
    fn the_newest_period_is_never_merged_and_lost_ends_are_estimated() {
        let mut accesses: Vec<_> = (0..30).map(|number| access(1000 + number * 1000, 0)).collect();
        add(&mut accesses, access(31_001, 0), 31_002);
        assert_eq!(accesses.len(), 20);
        assert_eq!(accesses[19], access(31_001, 0));
        assert!(accesses[..19].iter().all(|access| access.detached > access.attached));
        assert_eq!(accesses.iter().map(|access| access.opens).sum::<i32>(), 31);
    }
}
