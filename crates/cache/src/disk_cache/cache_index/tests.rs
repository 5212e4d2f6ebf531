//! Tests of the index.

use super::*;

const NOW: CacheTime = CacheTime { time_of_day: 100, uptime: 0 };

fn used(time_of_day: i64) -> FileUse {
    FileUse::recorded(time_of_day, NOW)
}

fn key(text: &str) -> CacheKey {
    CacheKey::new(&LogicalPath::parse(text.as_bytes()).unwrap()).unwrap()
}

fn file(text: &str, bytes: u64) -> RemovalUnit {
    RemovalUnit { key: key(text), part: None, bytes }
}

fn part(text: &str, part: u32, bytes: u64) -> RemovalUnit {
    RemovalUnit { key: key(text), part: Some(part), bytes }
}

fn evict_part(index: &CacheIndex, key: &CacheKey, part: u32) -> Option<u64> {
    index.evict_part(key, (part, None), &AtomicBool::new(false))
}

/// Removes all units in order.
fn remove_all(index: &CacheIndex) -> Vec<RemovalUnit> {
    let next = || {
        let unit = index.next_to_remove()?;
        match unit.part {
            Some(part) => assert_eq!(evict_part(index, &unit.key, part), Some(unit.bytes)),
            None => assert_eq!(index.evict(&unit.key), Some(unit.bytes)),
        }
        Some(unit)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn the_sum_is_that_of_the_files() {
    let index = CacheIndex::new(1000, None);
    index.opened(&key("/a"), 10, used(50));
    index.found(&key("/a"), 500, used(60));
    index.closed(&key("/b"), 7, used(60));
    let (current, retired) = (AtomicBool::new(false), AtomicBool::new(true));
    index.grow(&key("/a"), (None, 5), &current);
    index.grow(&key("/a"), (None, 500), &retired);
    index.grow(&key("/missing"), (None, 5), &current);
    assert_eq!((index.bytes(), index.len()), (22, 2));
    index.closed(&key("/a"), 3, used(70));
    index.remove(&key("/b"));
    index.remove(&key("/b"));
    assert_eq!((index.bytes(), index.len()), (3, 1));
}

#[test]
fn a_file_that_was_removed_during_the_search_is_not_found() {
    let index = CacheIndex::new(1000, None);
    index.set_searching(true);
    index.opened(&key("/a"), 10, used(50));
    index.evict(&key("/a"));
    index.remove(&key("/b"));
    ["/a", "/b", "/c"].into_iter().for_each(|text| _ = index.found(&key(text), 7, used(60)));
    assert_eq!(index.bytes(), 7);
    index.put_again(&key("/a"), Some(10), NOW);
    index.put_again(&key("/c"), Some(10), NOW);
    assert_eq!(index.bytes(), 17);
    index.set_searching(false);
    index.remove(&key("/c"));
    assert_eq!(index.found(&key("/c"), 3, used(60)), FileDifference::Unknown);
    assert_eq!((index.bytes(), index.len()), (10, 1));
}

#[test]
fn each_file_is_next_at_some_time() {
    let index = CacheIndex::new(1000, None);
    (0..50).for_each(|number| index.opened(&key(&format!("/{number}")), 10, used(50)));
    let (mut seen, mut parked) = (std::collections::HashSet::new(), ParkedFiles::default());
    while let Some(unit) = index.next_to_remove() {
        assert_eq!((unit.bytes, index.next_to_remove().as_ref()), (10, Some(&unit)));
        let next = unit.key.clone();
        assert!(seen.insert(next.clone()));
        match seen.len() % 3 {
            0 => assert_eq!(index.evict(&next), Some(10)),
            1 => assert_eq!(index.remove(&next), Some(10)),
            _ => index.park(&unit, &mut parked),
        }
    }
    assert_eq!((seen.len(), index.bytes()), (50, 170));
    // Files that were passed over can grow and go meanwhile.
    index.remove(&key("/1"));
    index.grow(&key("/4"), (None, 5), &AtomicBool::new(false));
    index.put_back(parked);
    let left: u64 = std::iter::from_fn(|| {
        let next = index.next_to_remove()?;
        index.evict(&next.key);
        Some(next.bytes)
    })
    .sum();
    assert_eq!((left, index.bytes(), index.len()), (165, 0, 0));
}

#[test]
fn a_file_that_is_passed_over_can_be_removed() {
    let (index, mut parked) = (CacheIndex::new(1000, None), ParkedFiles::default());
    for (text, bytes) in [("/a", 10), ("/b", 20), ("/c", 40)] {
        index.opened(&key(text), bytes, used(50));
        index.park(&file(text, bytes), &mut parked);
    }
    assert_eq!(index.evict_unused(&key("/a"), used(50)), Some(10));
    assert_eq!(index.remove(&key("/b")), Some(20));
    assert_eq!((index.bytes(), index.len()), (40, 1));
    index.put_back(parked);
    assert_eq!(index.next_to_remove(), Some(file("/c", 40)));
    index.evict(&key("/c"));
    assert_eq!((index.next_to_remove(), index.bytes()), (None, 0));
}

#[test]
fn a_file_that_could_not_be_removed_during_the_search_is_found() {
    let index = CacheIndex::new(1000, None);
    index.set_searching(true);
    assert_eq!(index.remove(&key("/unknown")), None);
    index.put_again(&key("/unknown"), None, NOW);
    assert_eq!(index.len(), 0, "its size is not known");
    index.found(&key("/unknown"), 7, used(60));
    index.found(&key("/known"), 5, used(60));
    let bytes = index.remove(&key("/known"));
    index.put_again(&key("/known"), bytes, NOW);
    assert_eq!((index.bytes(), index.len()), (12, 2));
}

#[test]
fn files_below_a_directory_are_found() {
    let index = CacheIndex::new(1000, None);
    ["/a", "/a-b", "/a/x", "/a/y/z", "/ab", "/b"]
        .into_iter()
        .for_each(|text| index.closed(&key(text), 1, used(60)));
    let within = |text: &str, after: &str, most| {
        let after = (!after.is_empty()).then(|| key(after));
        let found = index.within(&LogicalPath::parse(text.as_bytes()).unwrap(), after.as_ref(), most);
        found.iter().map(|key| key.data().text().into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(within("/a", "", 9), ["/a", "/a/x", "/a/y/z"]);
    assert_eq!(within("/a", "", 2), ["/a", "/a/x"]);
    assert_eq!(within("/a", "/a/x", 2), ["/a/y/z"]);
    assert_eq!(within("/a", "/a/y/z", 2), [""; 0]);
    assert_eq!(within("/c", "", 9), [""; 0]);
    assert_eq!(within("/", "", 9).len(), 6);
    assert_eq!(within("/", "/a/x", 9), ["/a/y/z", "/ab", "/b"]);
}

/// Names that begin with the same bytes are not below a path, and nobody waits for a look at them.
#[test]
fn only_files_below_a_path_are_looked_at() {
    let index = CacheIndex::new(1000, None);
    let names =
        ["/a", "/a!", "/a-b", "/a.b/c", "/a/\u{1}", "/a/x", "/a/x/y", "/a/x-y", "/a/~", "/a0", "/a0/x", "/b"];
    names.into_iter().for_each(|text| index.closed(&key(text), 1, used(60)));
    for number in 0..2000 {
        index.closed(&key(&format!("/run{number}/f")), 1, used(60));
        index.closed(&key(&format!("/run-{number}")), 1, used(60));
    }
    let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
    let looked_at = |text: &str, after: Option<&str>| {
        let before = VISITED.get();
        let found = index.within(&path(text), after.map(key).as_ref(), usize::MAX);
        (found.len(), VISITED.get() - before)
    };
    assert_eq!(looked_at("/run", None), (0, 0));
    assert_eq!(looked_at("/run1", None), (1, 1));
    assert_eq!(looked_at("/run1", Some("/run1/f")), (0, 0));
    assert_eq!(looked_at("/a", None), (6, 6));
    assert_eq!(looked_at("/a/x", Some("/a/x")), (1, 1));
    assert_eq!(looked_at("/a", Some("/a!")), (5, 5));
    assert_eq!(looked_at("/a", Some("/b")), (0, 0));
    assert_eq!(looked_at("/missing", None), (0, 0));
    assert_eq!(looked_at(&format!("/{}", "x".repeat(base::PATH_BYTES_MAX - 1)), None), (0, 0));
    // A comparison with all names, from each position.
    let all = index.within(&path("/"), None, usize::MAX);
    for directory in all.iter().map(|key| key.data().clone()).chain([path("/"), path("/run")]).take(20) {
        for after in [None].into_iter().chain(all.iter().take(20).map(Some)) {
            let is_found =
                |key: &&CacheKey| key.data().is_within(&directory) && after.is_none_or(|after| after < *key);
            let expected: Vec<CacheKey> = all.iter().filter(is_found).cloned().collect();
            assert_eq!(index.within(&directory, after, usize::MAX), expected, "{directory:?} {after:?}");
        }
    }
}

#[test]
fn bytes_of_directories_are_counted() {
    let index = CacheIndex::new(1000, None);
    let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
    ["/a", "/a-b", "/a/x", "/a/y/z", "/b"].into_iter().for_each(|text| index.closed(&key(text), 5, used(60)));
    ["/", "/a", "/a/y", "/a", "/none"].into_iter().for_each(|text| index.count_below(&path(text)));
    let totals = || ["/", "/a", "/a/y", "/none"].map(|text| index.bytes_below(&path(text)));
    assert_eq!(totals(), [25, 15, 5, 0]);
    index.end_count_below(&path("/a"));
    assert_eq!(totals(), [25, 15, 5, 0], "it was counted twice");
    index.opened(&key("/a/y/z"), 8, used(70));
    index.grow(&key("/a/y/z"), (None, 2), &AtomicBool::new(false));
    index.opened(&key("/none/f"), 1, used(70));
    index.evict(&key("/a/x"));
    index.remove(&key("/b"));
    assert_eq!(totals(), [21, 15, 10, 1]);
    assert_eq!(index.bytes(), 21);
    index.put_again(&key("/a/x"), Some(5), NOW);
    let pages = [None, Some(key("/a")), Some(key("/a/x"))];
    let names = pages.map(|after| {
        let page = index.page(&path("/a"), after.as_ref(), 2);
        page.iter()
            .map(|file| format!("{} {}", file.key.data().text(), file.used.time_of_day))
            .collect::<Vec<_>>()
    });
    assert_eq!(names, [vec!["/a 60", "/a/x 0"], vec!["/a/x 0", "/a/y/z 70"], vec!["/a/y/z 70"]]);
}

#[test]
fn parts_are_units_of_their_own() {
    let (index, current) = (CacheIndex::new(10, None), AtomicBool::new(false));
    index.opened_in_parts(&key("/f"), &[], used(50));
    index.opened(&key("/g"), 10, used(50));
    for (number, is_first) in [(3, true), (3, false), (0, true), (7, true)] {
        assert_eq!(index.grow(&key("/f"), (Some(number), 5), &current), is_first);
    }
    assert!(!index.grow(&key("/f"), (Some(9), 5), &AtomicBool::new(true)), "it is that of another store");
    assert_eq!((index.bytes(), index.len()), (30, 2));
    index.shrink(&key("/f"), (Some(7), 2), &current);
    index.requested(&key("/f"), &[3, 8]);
    assert_eq!(remove_all(&index), [file("/g", 10), part("/f", 0, 5), part("/f", 7, 3), part("/f", 3, 10)]);
    assert_eq!((index.bytes(), index.len()), (0, 1), "the file itself is still known");
    // All of them can come back.
    assert!(index.grow(&key("/f"), (Some(3), 5), &current));
    index.shrink(&key("/f"), (Some(3), 5), &current);
    assert!(index.grow(&key("/f"), (Some(3), 6), &current));
    assert_eq!((index.remove(&key("/f")), index.next_to_remove(), index.bytes()), (Some(6), None, 0));
}

#[test]
fn parts_that_are_passed_over_can_change_and_go() {
    let (index, mut parked) = (CacheIndex::new(1000, None), ParkedFiles::default());
    index.opened_in_parts(&key("/f"), &[(0, 10), (1, 20), (2, 40)], used(50));
    while let Some(unit) = index.next_to_remove() {
        index.park(&unit, &mut parked);
    }
    index.shrink(&key("/f"), (Some(1), 20), &AtomicBool::new(false));
    index.grow(&key("/f"), (Some(2), 2), &AtomicBool::new(false));
    index.put_back(parked);
    assert_eq!(remove_all(&index), [part("/f", 0, 10), part("/f", 2, 42)]);
    // The same with a file that becomes one unit meanwhile.
    let mut parked = ParkedFiles::default();
    index.opened_in_parts(&key("/f"), &[(0, 10), (1, 20)], used(60));
    while let Some(unit) = index.next_to_remove() {
        index.park(&unit, &mut parked);
    }
    index.closed(&key("/f"), 25, used(70));
    index.put_back(parked);
    assert_eq!((index.bytes(), remove_all(&index)), (25, vec![file("/f", 25)]));
}

#[test]
fn a_file_is_split_when_it_is_opened_and_keeps_its_rank() {
    let index = CacheIndex::new(1000, None);
    index.closed(&key("/f"), 30, used(50));
    index.opened(&key("/f"), 30, used(60));
    let rank = index.to_record(None, 1)[0].rank;
    assert!(rank > 0);
    index.opened_in_parts(&key("/f"), &[(0, 10), (2, 20)], used(70));
    let recorded = index.to_record(None, 1);
    assert_eq!((recorded[0].rank, recorded[0].bytes, recorded[0].used), (rank, 30, 70));
    // Opened again, with other blocks.
    index.opened_in_parts(&key("/f"), &[(1, 7), (2, 20)], used(80));
    index.count_below(&LogicalPath::root());
    assert_eq!((index.bytes(), index.bytes_below(&LogicalPath::root())), (27, 27));
    index.correct_size(&key("/f"), 27);
    assert_eq!(remove_all(&index), [part("/f", 1, 7), part("/f", 2, 20)]);
    assert_eq!(index.bytes_below(&LogicalPath::root()), 0);
}

#[test]
fn parts_whose_removal_has_failed_are_next_and_a_removed_one_is_remembered() {
    let index = CacheIndex::new(10, None);
    index.opened_in_parts(&key("/f"), &[(0, 10), (1, 20), (2, 40), (3, 5)], used(50));
    let take = || index.next_to_remove().map(|unit| (unit.part.unwrap(), index.take(&unit).unwrap()));
    let (first, second) = (take().unwrap(), take().unwrap());
    assert_eq!((first.0, second.0, index.bytes()), (0, 1, 75), "they count until they are removed");
    let mut failed = ParkedFiles::default();
    [first.1, second.1].into_iter().for_each(|unit| failed.push(unit));
    index.put_back_as_oldest(failed);
    let (part_number, unit) = take().unwrap();
    let retired = AtomicBool::new(true);
    assert_eq!(index.evict_part(&key("/f"), (part_number, Some(&unit)), &retired), None);
    let current = AtomicBool::new(false);
    assert_eq!(index.evict_part(&key("/f"), (part_number, Some(&unit)), &current), Some(10));
    assert_eq!(index.bytes(), 65);
    // It was new, so it enters the main queue when it comes back, and the others go before it.
    index.grow(&key("/f"), (Some(0), 3), &current);
    assert!(index.is_quiet(&key("/f")));
    let order = [part("/f", 1, 20), part("/f", 2, 40), part("/f", 3, 5), part("/f", 0, 3)];
    assert_eq!(remove_all(&index), order);
}

#[test]
fn a_file_of_which_a_part_was_requested_is_not_quiet() {
    let index = CacheIndex::new(1000, None);
    index.opened_in_parts(&key("/f"), &[(0, 10), (1, 20)], used(50));
    assert!(index.is_quiet(&key("/f")) && !index.is_quiet(&key("/missing")));
    index.requested(&key("/f"), &[1]);
    assert!(!index.is_quiet(&key("/f")));
    index.opened(&key("/g"), 10, used(50));
    assert!(index.is_quiet(&key("/g")));
    index.opened(&key("/g"), 10, used(50));
    assert!(!index.is_quiet(&key("/g")));
}

#[test]
fn a_file_with_too_many_parts_is_one_unit() {
    let index = CacheIndex::with_parts_max(1000, None, 3);
    let current = AtomicBool::new(false);
    index.opened_in_parts(&key("/f"), &[(0, 10), (1, 20)], used(50));
    index.opened_in_parts(&key("/g"), &[(0, 10), (1, 20)], used(50));
    index.requested(&key("/g"), &[0]);
    assert!(!index.is_quiet(&key("/g")));
    assert!(index.grow(&key("/f"), (Some(2), 5), &current));
    assert!(!index.grow(&key("/f"), (Some(7), 5), &current));
    assert_eq!(index.bytes(), 70);
    // There is room for parts again.
    index.opened_in_parts(&key("/h"), &[(0, 1), (1, 2), (2, 3)], used(50));
    let mut units = remove_all(&index);
    units.sort_by_key(|unit| (unit.key.clone(), unit.part));
    let parts = [part("/h", 0, 1), part("/h", 1, 2), part("/h", 2, 3)];
    assert_eq!(units, [vec![file("/f", 40), file("/g", 30)], parts.to_vec()].concat());
}

#[test]
fn a_file_that_is_opened_again_as_it_is_known_keeps_its_order() {
    let index = CacheIndex::new(100, None);
    let sizes: Vec<(u32, u64)> = (0..10).map(|number| (number * 3, 10)).collect();
    index.opened_in_parts(&key("/f"), &sizes, used(50));
    index.requested(&key("/f"), &[0, 9]);
    index.opened_in_parts(&key("/f"), &sizes, used(60));
    let order: Vec<Option<u32>> = remove_all(&index).iter().map(|unit| unit.part).collect();
    assert_eq!(order, [3, 6, 12, 15, 18, 21, 24, 0, 9, 27].map(Some));
}

#[test]
fn a_recorded_file_that_was_opened_before_it_got_its_place_has_its_parts() {
    let index = CacheIndex::new(1000, None);
    let recorded = |text| RecordedFile { key: key(text), bytes: 30, used: 50, rank: 5 };
    let order = index.load(vec![recorded("/f"), recorded("/g")], NOW);
    index.opened_in_parts(&key("/f"), &[(0, 10), (2, 20)], used(70));
    index.put_recorded(&order);
    let mut units = remove_all(&index);
    units.sort_by_key(|unit| unit.part);
    assert_eq!(units, [file("/g", 30), part("/f", 0, 10), part("/f", 2, 20)]);
}

#[test]
fn a_part_that_is_requested_again_outlives_a_scan_of_its_file() {
    let (index, current) = (CacheIndex::new(100, None), AtomicBool::new(false));
    index.opened_in_parts(&key("/f"), &[], used(50));
    index.grow(&key("/f"), (Some(0), 10), &current);
    for scanned in 1..200 {
        index.requested(&key("/f"), &[0]);
        index.grow(&key("/f"), (Some(scanned), 10), &current);
        while index.bytes() > 100 {
            let unit = index.next_to_remove().unwrap();
            assert_ne!(unit.part, Some(0), "after {scanned} parts");
            evict_part(&index, &unit.key, unit.part.unwrap()).unwrap();
        }
    }
}
