//! Tests of the index.

use super::*;

const NOW: CacheTime = CacheTime { time_of_day: 100, uptime: 0 };

fn used(time_of_day: i64) -> FileUse {
    FileUse::recorded(time_of_day, NOW)
}

fn key(text: &str) -> CacheKey {
    CacheKey::new(&LogicalPath::parse(text.as_bytes()).unwrap()).unwrap()
}

#[test]
fn the_sum_is_that_of_the_files() {
    let index = CacheIndex::new(1000);
    index.opened(&key("/a"), 10, used(50));
    index.found(&key("/a"), 500, used(60));
    index.closed(&key("/b"), 7, used(60));
    let (current, retired) = (AtomicBool::new(false), AtomicBool::new(true));
    index.grow(&key("/a"), 5, &current);
    index.grow(&key("/a"), 500, &retired);
    index.grow(&key("/missing"), 5, &current);
    assert_eq!((index.bytes(), index.len()), (22, 2));
    index.closed(&key("/a"), 3, used(70));
    index.remove(&key("/b"));
    index.remove(&key("/b"));
    assert_eq!((index.bytes(), index.len()), (3, 1));
}

#[test]
fn a_file_that_was_removed_during_the_search_is_not_found() {
    let index = CacheIndex::new(1000);
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
    let index = CacheIndex::new(1000);
    (0..50).for_each(|number| index.opened(&key(&format!("/{number}")), 10, used(50)));
    let (mut seen, mut parked) = (std::collections::HashSet::new(), ParkedFiles::default());
    while let Some((next, bytes)) = index.next_to_remove() {
        assert_eq!((bytes, index.next_to_remove()), (10, Some((next.clone(), 10))));
        assert!(seen.insert(next.clone()));
        match seen.len() % 3 {
            0 => index.evict(&next),
            1 => assert_eq!(index.remove(&next), Some(10)),
            _ => index.park(&next, &mut parked),
        }
    }
    assert_eq!((seen.len(), index.bytes()), (50, 170));
    // Files that were passed over can grow and go meanwhile.
    index.remove(&key("/1"));
    index.grow(&key("/4"), 5, &AtomicBool::new(false));
    index.put_back(parked);
    let left: u64 = std::iter::from_fn(|| {
        let (next, bytes) = index.next_to_remove()?;
        index.evict(&next);
        Some(bytes)
    })
    .sum();
    assert_eq!((left, index.bytes(), index.len()), (165, 0, 0));
}

#[test]
fn a_file_that_is_passed_over_can_be_removed() {
    let (index, mut parked) = (CacheIndex::new(1000), ParkedFiles::default());
    for (text, bytes) in [("/a", 10), ("/b", 20), ("/c", 40)] {
        index.opened(&key(text), bytes, used(50));
        index.park(&key(text), &mut parked);
    }
    assert_eq!(index.evict_unused(&key("/a"), used(50)), Some(10));
    assert_eq!(index.remove(&key("/b")), Some(20));
    assert_eq!((index.bytes(), index.len()), (40, 1));
    index.put_back(parked);
    assert_eq!(index.next_to_remove(), Some((key("/c"), 40)));
    index.evict(&key("/c"));
    assert_eq!((index.next_to_remove(), index.bytes()), (None, 0));
}

#[test]
fn a_file_that_could_not_be_removed_during_the_search_is_found() {
    let index = CacheIndex::new(1000);
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
    let index = CacheIndex::new(1000);
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
    let index = CacheIndex::new(1000);
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
    let index = CacheIndex::new(1000);
    let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
    ["/a", "/a-b", "/a/x", "/a/y/z", "/b"].into_iter().for_each(|text| index.closed(&key(text), 5, used(60)));
    ["/", "/a", "/a/y", "/a", "/none"].into_iter().for_each(|text| index.count_below(&path(text)));
    let totals = || ["/", "/a", "/a/y", "/none"].map(|text| index.bytes_below(&path(text)));
    assert_eq!(totals(), [25, 15, 5, 0]);
    index.end_count_below(&path("/a"));
    assert_eq!(totals(), [25, 15, 5, 0], "it was counted twice");
    index.opened(&key("/a/y/z"), 8, used(70));
    index.grow(&key("/a/y/z"), 2, &AtomicBool::new(false));
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
