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
    let names = ["a", "ab", "b", "bob", "a/", "a/b/"];
    let rights = ["a", "lr", "lrw", "-w", "a-d", "rwi", "lr-r"];
    let mut text = String::new();
    for record in ["u *", "u bob", "g g", "u ="] {
        let mut pairs: Vec<String> = Vec::new();
        for _ in 0..below(5) {
            let path: String = (0..=below(3)).map(|_| format!("/{}", names[below(6)])).collect();
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
    let parts: Vec<String> =
        ["a", "ab", "abc", "b", "bob", "bobx", "z"].iter().map(|part| format!("/{part}")).collect();
    let join = |some: &[String]| -> Vec<String> {
        some.iter().flat_map(|one| parts.iter().map(move |part| format!("{one}{part}"))).collect()
    };
    let two = join(&parts);
    let three = join(&two);
    [vec!["/".to_owned()], parts.clone(), two, three].concat()
}

#[test]
fn rights_throughout_a_directory_are_those_on_every_path_below() {
    let (mut below, all) = (numbers(), made_paths());
    let (mut equal, mut compared) = (0, 0);
    for _ in 0..100 {
        let text = made_rules(&mut below);
        for matching in [PathMatch::Component, PathMatch::Prefix] {
            let Ok(database) = load_as(&text, &source(matching)) else { panic!("refused: {text}") };
            let client = principal("bob@h", "g", "", "");
            let records = database.records_of(&client).unwrap();
            let rights = |at: &str| database.privileges(&records, client.name, &path(at));
            for directory in all.iter().filter(|one| one.matches('/').count() < 2).map(|one| path(one)) {
                let inside = all.iter().filter(|one| path(one).is_within(&directory));
                // A rule can be for the directory with its slash.
                let inside = inside.flat_map(|one| [one.clone(), format!("{one}/")]);
                let expected = inside.fold(Privileges::ALL, |common, one| common.common(rights(&one)));
                let found = database.privileges_throughout(&records, client.name, &directory);
                assert!(expected.contains(found), "{matching:?} {}\n{text}", directory.shown());
                compared += 1;
                equal += usize::from(found == expected);
            }
        }
    }
    // Rules for deeper paths than those compared can take more away.
    assert!(equal > compared / 2, "{equal} of {compared}");
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
    let throughout = |number: usize| {
        let pairs: String = (0..number).map(|one| format!(" /a/{one:05}/ a")).collect();
        let database = load(&format!("u *{pairs} /a a\n"));
        let client = principal("bob@h", "", "", "");
        let records = database.records_of(&client).unwrap();
        database.privileges_throughout(&records, client.name, &path("/a"))
    };
    assert_eq!(throughout(4096), Privileges::ALL);
    assert_eq!(throughout(4097), Privileges::NONE);
}
