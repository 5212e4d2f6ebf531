//! Tests of name rules: both directions, one name for each file, and no way out of a rule.

#![allow(clippy::unwrap_used)]

use super::*;
use base::{PATH_BYTES_MAX, SplitMix64};
use config::{NamePattern, PatternPair};

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn pattern((pattern, result): (&str, &str), (back, name): (&str, &str)) -> NameLayout {
    let forward = NamePattern::new(pattern, result).unwrap();
    let inverse = NamePattern::new(back, name).unwrap();
    NameLayout::Pattern(Box::new(PatternPair { forward, inverse }))
}

fn rules(all: &[(&str, &str, NameLayout)]) -> NameRules {
    let rule = |(from, to, layout): &(&str, &str, NameLayout)| NameRule {
        from: (*from).to_owned(),
        to: (*to).to_owned(),
        layout: layout.clone(),
    };
    NameRules::new(&all.iter().map(rule).collect::<Vec<_>>())
}

fn prefixes(all: &[(&str, &str)]) -> NameRules {
    rules(&all.iter().map(|(from, to)| (*from, *to, NameLayout::Prefix)).collect::<Vec<_>>())
}

fn stored(rules: &NameRules, name: &str) -> Option<String> {
    match rules.stored(&path(name)) {
        Ok(stored) => Some(stored.text().into_owned()),
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{name}");
            None
        }
    }
}

#[test]
fn the_longest_prefix_applies_and_no_file_has_two_names() {
    let rules = prefixes(&[("/a", "/x"), ("/a/b", "/y/z"), ("/c", "/x/deep")]);
    for (name, place) in [
        ("/a", Some("/x")),
        ("/a/f", Some("/x/f")),
        ("/a/f/", Some("/x/f/")),
        ("/ab/f", Some("/ab/f")),
        ("/a/b", Some("/y/z")),
        ("/a/b/f", Some("/y/z/f")),
        ("/c/f", Some("/x/deep/f")),
        ("/", Some("/")),
        ("/y", Some("/y")),
        // Below the target of another rule.
        ("/a/deep/f", None),
        ("/x", None),
        ("/x/f", None),
        ("/x/deep/f", None),
        ("/y/z/f", None),
    ] {
        assert_eq!(stored(&rules, name).as_deref(), place, "{name}");
    }
    for (place, name) in [("/x/f", Some("/a/f")), ("/y/z", Some("/a/b")), ("/x/b", None), ("/a/f", None)] {
        assert_eq!(
            rules.logical(&path(place)).map(|name| name.text().into_owned()).as_deref(),
            name,
            "{place}"
        );
    }
    let everything = prefixes(&[("/", "/store")]);
    assert_eq!(stored(&everything, "/").as_deref(), Some("/store"));
    assert_eq!(stored(&everything, "/f/").as_deref(), Some("/store/f/"));
    let nothing = prefixes(&[("/data", "/")]);
    assert_eq!(stored(&nothing, "/data/f").as_deref(), Some("/f"));
    assert_eq!(stored(&nothing, "/f"), None);
}

/// The places are those that Rucio's deterministic layout computes.
#[test]
fn rucio_names_are_placed_by_their_checksum() {
    let rules = rules(&[("/atlas/rucio", "/rucio", NameLayout::Rucio)]);
    for (name, place) in [
        ("/atlas/rucio/mc15_13TeV:EVNT.root", Some("/rucio/mc15_13TeV/ae/ff/EVNT.root")),
        ("/atlas/rucio/user.jdoe:f", Some("/rucio/user/jdoe/ec/c3/f")),
        ("/atlas/rucio/group.a.b:x:y", Some("/rucio/group/a/b/62/b0/x:y")),
        ("/atlas/rucio", Some("/rucio")),
        ("/atlas/rucio/mc15_13TeV", None),
        ("/atlas/rucio/mc15_13TeV/EVNT.root", None),
        ("/atlas/rucio/mc15_13TeV:d/f", None),
        ("/atlas/rucio/:f", None),
        ("/atlas/rucio/s:", None),
        ("/atlas/rucio/..:f", None),
        ("/atlas/rucio/.:f", None),
        ("/atlas/rucio/s:..", None),
        // The directories of these scopes would be those of other scopes.
        ("/atlas/rucio/user..jdoe:f", None),
        ("/atlas/rucio/user.:f", None),
        ("/rucio/mc15_13TeV/ae/ff/EVNT.root", None),
    ] {
        assert_eq!(stored(&rules, name).as_deref(), place, "{name}");
        if let Some(place) = place {
            assert_eq!(rules.logical(&path(place)), Some(path(name)));
        }
    }
    // The checksum of the place is another one.
    assert_eq!(rules.logical(&path("/rucio/mc15_13TeV/00/00/EVNT.root")), None);
}

#[test]
fn patterns_translate_both_ways_or_not_at_all() {
    let swap = pattern(("([a-z]+)/(.+)", "{2}.{1}"), ("(.+)[.]([a-z]+)", "{2}/{1}"));
    let rules = rules(&[("/p", "/q", swap)]);
    assert_eq!(stored(&rules, "/p/abc/f").as_deref(), Some("/q/f.abc"));
    assert_eq!(stored(&rules, "/p/abc/d/f").as_deref(), Some("/q/d/f.abc"));
    assert_eq!(stored(&rules, "/p/1/f"), None, "the pattern does not match");
    assert_eq!(stored(&rules, "/p/abc/.").as_deref(), None, "normal form: /p/abc");
    assert_eq!(rules.logical(&path("/q/f.abc")), Some(path("/p/abc/f")));
    assert_eq!(rules.logical(&path("/q/f")), None);
    // Two names would have one place, so only the one that the inverse gives exists.
    let lossy = pattern(("[a-z]+/(.+)", "{1}"), ("(.+)", "a/{1}"));
    let rules = super::tests::rules(&[("/p", "/q", lossy)]);
    assert_eq!(stored(&rules, "/p/a/f").as_deref(), Some("/q/f"));
    assert_eq!(stored(&rules, "/p/b/f"), None);
}

/// A result that is not a path in the directory of the rule is no translation, although the inverse
/// would accept it.
#[test]
fn no_result_leaves_the_directory_of_its_rule() {
    for result in
        ["../{0}", "{0}/..", "a/../../{0}", "/{0}", "{0}/", "a//{0}", "./{0}", "{0}/.", "", ".", ".."]
    {
        let layout = pattern((".*", result), (".*", "f"));
        let rules = rules(&[("/p", "/q", layout)]);
        assert_eq!(stored(&rules, "/p/f"), None, "{result}");
    }
    let nul = pattern((".*", "a\0b"), (".*", "f"));
    assert_eq!(stored(&rules(&[("/p", "/q", nul)]), "/p/f"), None);
    // Nor does the inverse direction.
    for name in ["../f", "/f", "f/..", ""] {
        let layout = pattern((".*", "{0}"), (".*", name));
        assert_eq!(rules(&[("/p", "/q", layout)]).logical(&path("/q/f")), None, "{name}");
    }
}

#[test]
fn a_translation_is_at_most_as_long_as_a_path() {
    let long = format!("/q{}", "/d".repeat(10));
    let rules = rules(&[("/p", &long, NameLayout::Prefix)]);
    let name = |bytes: usize| path(&format!("/p/{}", "x".repeat(bytes)));
    let most = PATH_BYTES_MAX - long.len() - 1;
    assert_eq!(rules.stored(&name(most)).unwrap().as_bytes().len(), PATH_BYTES_MAX);
    let error = rules.stored(&name(most + 1)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
}

/// For random rules and names: a name that has a place is the name of that place, the place is in
/// the directory of a rule or outside of all, and different names have different places.
#[test]
fn places_lead_back_to_their_names() {
    let mut random = SplitMix64::new(47);
    let mut pick = |most: u64| random.draw() % most;
    let mut placed = 0;
    for _ in 0..2000 {
        let mut text = |parts: u64| -> String {
            (0..=pick(parts)).map(|_| ["/a", "/b", "/a:b", "/user.x:a"][pick(4) as usize]).collect()
        };
        let pairs: Vec<_> = (0..3).map(|_| (text(2), text(2))).collect();
        let layouts = [
            NameLayout::Prefix,
            NameLayout::Rucio,
            pattern(("([^/]+)/(.*)", "{2}/{1}"), ("(.*)/([^/]+)", "{2}/{1}")),
        ];
        let all: Vec<_> = pairs
            .iter()
            .zip(&layouts)
            .map(|((from, to), layout)| (from.as_str(), to.as_str(), layout.clone()))
            .collect();
        let distinct = |part: fn(&(&str, &str, NameLayout)) -> String| {
            all.iter().map(part).collect::<std::collections::HashSet<_>>().len() == all.len()
        };
        if !distinct(|rule| rule.0.to_owned()) || !distinct(|rule| rule.1.to_owned()) {
            continue;
        }
        let rules = rules(&all);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..20 {
            let name = path(&text(5));
            let Ok(place) = rules.stored(&name) else { continue };
            let place = place.into_owned();
            placed += 1;
            assert_eq!(rules.logical(&place).as_ref(), Some(&name), "{all:?}");
            assert_eq!(seen.entry(place).or_insert_with(|| name.clone()), &name, "{all:?}");
        }
    }
    assert!(placed > 5000, "{placed}");
}

#[test]
fn directories_of_rules_are_like_mount_points() {
    let rules = rules(&[("/a/b", "/x/y", NameLayout::Prefix), ("/r", "/data/r", NameLayout::Rucio)]);
    let moved = |name: &str| {
        let path = path(name);
        let stored = rules.stored(&path).unwrap().into_owned();
        rules
            .check_moved(&path, &stored)
            .and_then(|()| rules.check_directory(&path))
            .err()
            .and_then(|error| error.raw_os_error())
    };
    assert_eq!(moved("/a/b/c"), None);
    assert_eq!(moved("/a/other"), None);
    for name in ["/a", "/a/b", "/x", "/r", "/data"] {
        assert_eq!(moved(name), Some(libc::EBUSY), "{name}");
    }
    assert_eq!(moved("/r/s:f"), Some(libc::EOPNOTSUPP));
    let new =
        |name: &str| rules.check_new_directory(&path(name)).err().and_then(|error| error.raw_os_error());
    assert_eq!((new("/a/b/c"), new("/r"), new("/r/s:f")), (None, None, Some(libc::EOPNOTSUPP)));
    assert_eq!(rules.rules_in(&path("/a/")), [(b"b".to_vec(), path("/x/y"))]);
    let shows =
        |(directory, stored): (&str, &str), name: &[u8]| rules.shows((&path(directory), &path(stored)), name);
    assert!(shows(("/a", "/a"), b"c") && shows(("/a/b", "/x/y"), b"c") && shows(("/", "/"), b"x"));
    assert!(!shows(("/a", "/a"), b"b"), "the rule hides it");
    assert!(!shows(("/x", "/x"), b"y"), "it has another name");
}

#[test]
fn parents_are_created_below_the_same_directory() {
    let rules = rules(&[("/a/b", "/x/y", NameLayout::Prefix), ("/r", "/data/r", NameLayout::Rucio)]);
    let parents = |name: &str, below: Option<&str>| {
        let asked = ParentCreation { mode: 0o700, below: below.map(path) };
        let parents = rules.parents(&path(name), Some(&asked)).unwrap();
        (parents.mode, parents.below.as_ref().map(|below| below.text().into_owned()))
    };
    assert_eq!(parents("/a/b/c/f", None), (0o700, Some("/x/y".to_owned())));
    assert_eq!(parents("/other/f", None), (0o700, None));
    assert_eq!(parents("/a/b/c/f", Some("/a/b/c")), (0o700, Some("/x/y/c".to_owned())));
    assert_eq!(parents("/a/b/c/f", Some("/a")), (0o700, Some("/x/y".to_owned())));
    assert_eq!(parents("/r/s:f", None), (0o700, Some("/data/r".to_owned())));
    assert_eq!(parents("/r/s:f", Some("/")), (0o700, Some("/data/r".to_owned())));
    let hidden = ParentCreation { mode: 0o700, below: Some(path("/x/y")) };
    let refused = rules.parents(&path("/x/y/c/f"), Some(&hidden));
    assert!(!refused.unwrap().allows(&path("/x/y/c")), "the limit does not exist");
    assert!(rules.parents(&path("/a/b/c/f"), None).is_none());
    let layout = rules.parents(&path("/r/s:f"), None).unwrap();
    assert_eq!((layout.mode, layout.below.as_ref()), (0o755, Some(&path("/data/r"))));
}
