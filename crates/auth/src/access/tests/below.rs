//! The rights that a client has on everything below a directory.

use super::*;

/// Returns numbers that are the same in each run.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 7_u64;
    move |limit| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    }
}

/// Returns rules for few names, so that many paths are prefixes of each other.
fn made_rules(below: &mut impl FnMut(usize) -> usize) -> String {
    let names = ["a", "ab", "b", "bob", "bbob", "a/", "a/b/"];
    let rights = ["a", "lr", "lrw", "-w", "a-d", "rwi", "lr-r"];
    let mut text = String::new();
    for record in ["u *", "u bob", "g g", "u ="] {
        let mut pairs: Vec<String> = Vec::new();
        for _ in 0..below(5) {
            let path: String = (0..=below(3)).map(|_| format!("/{}", names[below(7)])).collect();
            let path = path.replace("//", "/");
            let path = if record == "u =" { path.replacen("bob", "@=", 1) } else { path };
            if pairs.iter().all(|pair| pair.split(' ').next() != Some(&path)) {
                pairs.push(format!("{path} {}", rights[below(7)]));
            }
        }
        if !pairs.is_empty() {
            text += &format!("{record} {}\n", pairs.join(" "));
        }
    }
    text
}

/// Returns paths with up to three components.
fn made_paths() -> Vec<String> {
    let parts = ["a", "ab", "abc", "b", "bob", "bobx", "bbob", "z"];
    let parts: Vec<String> = parts.iter().map(|part| format!("/{part}")).collect();
    let join = |some: &[String]| -> Vec<String> {
        some.iter().flat_map(|one| parts.iter().map(move |part| format!("{one}{part}"))).collect()
    };
    let two = join(&parts);
    let three = join(&two);
    [vec!["/".to_owned()], parts.clone(), two, three].concat()
}

#[test]
fn rights_throughout_a_directory_are_those_on_every_path_below() {
    // A rule can be for the directory with its slash.
    let all: Vec<LogicalPath> =
        made_paths().iter().flat_map(|one| [path(one), path(&format!("{one}/"))]).collect();
    let slashes = |one: &LogicalPath| one.as_bytes().iter().filter(|byte| **byte == b'/').count();
    let is_directory =
        |one: &&LogicalPath| slashes(one) < 3 && (one.is_root() || !one.as_bytes().ends_with(b"/"));
    let directories: Vec<(&LogicalPath, Vec<usize>)> = all
        .iter()
        .filter(is_directory)
        .map(|directory| (directory, (0..all.len()).filter(|at| all[*at].is_within(directory)).collect()))
        .collect();
    let (mut below, mut equal, mut compared) = (numbers(), 0, 0);
    for _ in 0..100 {
        let text = made_rules(&mut below);
        for matching in [PathMatch::Component, PathMatch::Prefix] {
            let Ok(database) = load_as(&text, &source(matching)) else { panic!("refused: {text}") };
            let client = principal("bob@h", "g", "", "");
            let records = database.records_of(&client).unwrap();
            let rights: Vec<Privileges> =
                all.iter().map(|at| database.privileges(&records, client.name, at)).collect();
            for (directory, inside) in &directories {
                let expected = inside.iter().fold(Privileges::ALL, |common, at| common.common(rights[*at]));
                let found = database.privileges_throughout(&records, client.name, directory);
                assert!(expected.contains(found), "{matching:?} {}\n{text}", directory.shown());
                compared += usize::from(!expected.is_empty());
                equal += usize::from(!expected.is_empty() && found == expected);
            }
        }
    }
    // Rules for deeper paths than those compared can take more away.
    assert!(compared > 500 && equal > compared / 2, "{equal} of {compared}");
}

#[test]
fn a_narrower_pair_that_a_record_names_first_counts() {
    let throughout = |text: &str, at: &str| {
        let database = load(text);
        let client = principal("bob@h", "", "", "");
        let records = database.records_of(&client).unwrap();
        database.privileges_throughout(&records, client.name, &path(at)).to_string()
    };
    assert_eq!(throughout("u * /a/x/ lr /a a\n", "/a"), "lr");
    assert_eq!(throughout("u * /a a /a/x lr\n", "/a"), "diklnrw");
    assert_eq!(throughout("u * /a/x/ lr /a a\nu bob /a lrw\n", "/a"), "lrw");
    // The pair is the first one for `/a/xy` too, but its rights end at a component.
    assert_eq!(throughout("u * /a/x a /a a\n", "/a"), "");
    assert_eq!(throughout("u * /a a\nu = /a/@= -w\n", "/a"), "diklnr");
    assert_eq!(throughout("u * /a a\nu = /a/@=/x -w\n", "/a/bob"), "diklnr");
    assert_eq!(throughout("u * /a a\nu = /a/@=/x -w\n", "/a/ann"), "diklnrw");
    assert_eq!(throughout("u * /a/ a\n", "/a"), "");
    assert_eq!(throughout("u * / a\ng other / -w\n", "/"), "diklnrw");
}

#[test]
fn too_many_rules_below_a_directory_give_nothing() {
    let throughout = |text: &str| {
        let database = load(text);
        let client = principal("bob@h", "", "", "");
        let records = database.records_of(&client).unwrap();
        database.privileges_throughout(&records, client.name, &path("/a"))
    };
    let own = |number: usize| {
        let pairs: String = (0..number).map(|one| format!(" /a/{one:05}/ a")).collect();
        throughout(&format!("u *{pairs} /a a\n"))
    };
    assert_eq!(own(4096), Privileges::ALL);
    assert_eq!(own(16_384), Privileges::NONE);
    // Those of others need to be visited, too.
    let others = |number: usize| {
        let lines: String = (0..number).map(|one| format!("u u{one} /a/u{one} a\n")).collect();
        throughout(&format!("u bob /a a\n{lines}"))
    };
    assert_eq!(others(10_000), Privileges::ALL);
    assert_eq!(others(70_000), Privileges::NONE);
    // So do the pairs of long chains.
    let chain: String = (1..600).map(|depth| format!(" {}/ a", "/a".repeat(depth))).collect();
    assert_eq!(throughout(&format!("u *{chain} /a a\n")), Privileges::NONE);
}

#[test]
fn rules_for_places_and_for_everybody_give_nothing_anywhere() {
    let anywhere = |text: &str, who: &str| {
        let database = load(text);
        let client = principal(who, "g", "o", "");
        let records = database.records_anywhere(&client).unwrap();
        database.privileges_throughout(&records, client.name, &path("/a")).to_string()
    };
    let own = "u bob /a lr\n";
    assert_eq!(anywhere(own, "bob@h.x.org"), "lr");
    assert_eq!(anywhere("g g /a w\no o /a i\nu = /@= n\n", "a@h"), "inw");
    // An identity with a host is of a place, too.
    assert_eq!(anywhere("= q o: o g: g\n= p h: h u: bob\ns q /a n\ns p /a a\n", "bob@h"), "n");
    assert_eq!(anywhere("= p h: h u: bob\nx p /a a\nu bob /a a\n", "bob@h"), "");
    for place in ["h h.x.org", "h .x.org", "n staff", "u *", "h [::1]"] {
        assert_eq!(anywhere(&format!("{place} /a a\n"), "ann@h.x.org"), "", "{place}");
        assert_eq!(anywhere(&format!("{own}{place} /a a\n"), "bob@h.x.org"), "lr", "{place}");
    }
    // At another place the rule that denies would not be noticed.
    for place in ["h h.x.org", "h other.org", "h .x.org", "n staff", "h [::1]"] {
        assert_eq!(anywhere(&format!("{own}{place} /a -w\n"), "bob@h.x.org"), "", "{place}");
    }
}
