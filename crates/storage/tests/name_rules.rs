//! Tests of the POSIX storage with name rules: each operation reaches the translated path and no
//! other.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PARENTS, Scratch, create, errno, path};
use config::{NameLayout, NameRule};
use std::collections::BTreeSet;
use storage::posix::{Config, NAME_ATTRIBUTE, Posix, SpaceConfig};
use storage::{Backend, DirectoryState, DirectoryStream, ExistingName, Now, OpenMode, ParentCreation};

/// MD5 of `mc15:f` begins with this.
const HASH: &str = "81/72";

fn rule(from: &str, to: &str, layout: NameLayout) -> NameRule {
    NameRule { from: from.to_owned(), to: to.to_owned(), layout }
}

fn config(scratch: &Scratch) -> Config {
    let name_rules =
        vec![rule("/a/data", "/store", NameLayout::Prefix), rule("/rucio", "/grid/rucio", NameLayout::Rucio)];
    for directory in ["a", "store", "grid/rucio", "plain"] {
        std::fs::create_dir_all(scratch.path().join(directory)).unwrap();
    }
    Config { name_rules, ..Config::new(scratch.path()) }
}

fn put(storage: &Posix, name: &str, how: &OpenMode) {
    storage.open(&path(name), how).unwrap().write(0, name.as_bytes()).unwrap();
}

fn names(stream: &mut dyn DirectoryStream, most: usize) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    loop {
        let page = stream.next(most).unwrap();
        if page.is_empty() {
            return all;
        }
        for entry in page {
            assert!(all.insert(String::from_utf8(entry.name).unwrap()), "an entry comes once");
        }
    }
}

fn listed(storage: &Posix, name: &str) -> Vec<String> {
    let each = names(storage.list(&path(name)).unwrap().as_mut(), 1);
    assert_eq!(names(storage.list(&path(name)).unwrap().as_mut(), 100), each);
    each.into_iter().collect()
}

#[test]
fn each_operation_reaches_the_translated_path() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    let disk = |name: &str| scratch.path().join(name);
    let has = |name: &str| disk(name).symlink_metadata().is_ok();
    let mut how = create(0o640);
    how.create.as_mut().unwrap().parents = Some(PARENTS);
    put(&storage, "/a/data/d/f", &how);
    assert_eq!(std::fs::read(disk("store/d/f")).unwrap(), b"/a/data/d/f");
    assert!(!has("a/data"));
    let name = path("/a/data/d/f");
    assert_eq!(storage.stat(&name).unwrap().size, 11);
    assert!(matches!(storage.stat_now(&name), Now::Done(Ok(found)) if found.size == 11));
    assert!(storage.has_name(&name).unwrap() && !storage.has_name(&path("/a/data/d/g")).unwrap());
    assert_eq!(storage.identity(&name).unwrap().inode, storage.stat(&name).unwrap().inode);
    assert!(matches!(storage.open_now(&name, &OpenMode::default()), Now::Done(Ok(_))));
    storage.set_attribute(&name, "user.x", b"1", true).unwrap();
    assert_eq!(storage.attribute(&name, "user.x").unwrap().as_deref(), Some(&b"1"[..]));
    storage.set_mode(&name, 0o600).unwrap();
    storage.truncate(&name, 3).unwrap();
    assert_eq!((storage.stat(&name).unwrap().mode & 0o777, storage.stat(&name).unwrap().size), (0o600, 3));
    storage.sync_name(&name).unwrap();
    storage.make_directory(&path("/a/data/new"), 0o755, None).unwrap();
    storage.rename(&name, &path("/plain/deep/g"), ExistingName::Replace, Some(&PARENTS)).unwrap();
    assert!(has("plain/deep/g") && !has("store/d/f"));
    storage.rename(&path("/plain/deep"), &path("/a/data/new/deep"), ExistingName::Replace, None).unwrap();
    assert!(has("store/new/deep/g"));
    storage.remove_file(&path("/a/data/new/deep/g")).unwrap();
    storage.remove_directory(&path("/a/data/new/deep/")).unwrap();
    assert!(!has("store/new/deep"));
    assert!(storage.usage(&path("/a/data/no/such"), None).unwrap().total > 0);
    assert!(!storage.lists_all_names());
}

#[test]
fn a_name_that_belongs_to_another_path_does_not_exist() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    std::fs::write(scratch.path().join("store/f"), "x").unwrap();
    let hidden = path("/store/f");
    assert_eq!(errno(storage.stat(&hidden)), libc::ENOENT);
    assert!(matches!(storage.stat_now(&hidden), Now::Done(Err(_))));
    assert_eq!(errno(storage.open(&hidden, &OpenMode::default())), libc::ENOENT);
    assert!(matches!(storage.open_now(&hidden, &OpenMode::default()), Now::Done(Err(_))));
    assert_eq!(errno(storage.remove_file(&hidden)), libc::ENOENT);
    assert_eq!(errno(storage.list(&path("/store"))), libc::ENOENT);
    assert_eq!(errno(storage.open(&path("/store/new"), &create(0o644))), libc::EINVAL);
    assert_eq!(errno(storage.make_directory(&path("/store/new"), 0o755, Some(&PARENTS))), libc::EINVAL);
    assert_eq!(
        errno(storage.rename(&path("/a/data/f"), &path("/store/g"), ExistingName::Replace, None)),
        libc::EINVAL
    );
    assert!(storage.placement(&hidden, None).is_none());
    assert_eq!(storage.stat(&path("/a/data/f")).unwrap().size, 1);
}

/// The absence of a path that no file can have proves nothing.
#[test]
fn a_name_without_a_translation_has_no_identity() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    for name in ["/store/f", "/rucio/mc15"] {
        assert_eq!(errno(storage.identity(&path(name))), libc::EINVAL, "{name}");
        assert_eq!(errno(storage.has_name(&path(name))), libc::EINVAL, "{name}");
        assert_eq!(errno(storage.identities_above(&path(name))), libc::EINVAL, "{name}");
    }
    assert!(!storage.sync_above(&path("/rucio/mc15")).unwrap());
}

#[test]
fn directories_above_a_name_are_those_on_disk() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    let above = |name: &str| {
        let all = storage.identities_above(&path(name)).unwrap().into_iter();
        let state = |state: DirectoryState| match state {
            DirectoryState::Found(_) => "found",
            DirectoryState::Absent => "absent",
            DirectoryState::Detached => "detached",
            DirectoryState::Unreadable(_) => "unreadable",
        };
        all.map(|one| format!("{} {}", one.path.text(), state(one.state))).collect::<Vec<_>>()
    };
    put(&storage, "/rucio/mc15:f", &create(0o640));
    assert!(storage.sync_above(&path("/rucio/mc15:f")).unwrap());
    assert!(!storage.sync_above(&path("/a/data/none/f")).unwrap());
    let found = ["/ found", "/grid found", "/grid/rucio found", "/grid/rucio/mc15 found"];
    assert_eq!(above("/rucio/mc15:f")[..4], found);
    assert_eq!(above("/rucio/mc15:f").len(), 6);
    std::fs::remove_dir_all(scratch.path().join("grid/rucio/mc15")).unwrap();
    assert_eq!(above("/rucio/mc15:f")[2..4], ["/grid/rucio found", "/grid/rucio/mc15 absent"]);
    std::fs::remove_dir_all(scratch.path().join("grid")).unwrap();
    assert_eq!(
        above("/rucio/mc15:f")[..4],
        [found[0], "/grid detached", "/grid/rucio detached", "/grid/rucio/mc15 absent"]
    );
    assert_eq!(above("/a/data/d/f"), ["/ found", "/store found", "/store/d absent"]);
    assert_eq!(above("/plain/none/f"), ["/ found", "/plain found", "/plain/none absent"]);
}

#[test]
fn listings_show_names_as_clients_use_them() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    for name in ["a/other", "store/f"] {
        std::fs::write(scratch.path().join(name), "x").unwrap();
    }
    // `/a/data` on disk is hidden by the rule.
    std::fs::create_dir(scratch.path().join("a/data")).unwrap();
    std::fs::write(scratch.path().join("a/data/lost"), "x").unwrap();
    assert_eq!(listed(&storage, "/a"), ["data", "other"]);
    assert_eq!(listed(&storage, "/a/data/"), ["f"]);
    assert_eq!(listed(&storage, "/"), ["a", "grid", "plain", "rucio"]);
    assert_eq!(listed(&storage, "/grid"), Vec::<String>::new());
    let stream = storage.list(&path("/a")).unwrap();
    let store = scratch.path().join("store").metadata().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&store);
    assert_eq!(stream.stat(b"data").unwrap().inode, inode);
    storage.set_attribute(&path("/a/data"), "user.x", b"1", true).unwrap();
    assert_eq!(stream.attribute(b"data", "user.x").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(stream.attribute(b"other", "user.x").unwrap(), None);
    std::fs::remove_dir_all(scratch.path().join("grid/rucio")).unwrap();
    // It may be on a disk that hangs, so only its status shows that it is missing.
    assert_eq!(listed(&storage, "/"), ["a", "grid", "plain", "rucio"]);
    assert_eq!(errno(storage.list(&path("/")).unwrap().stat(b"rucio")), libc::ENOENT);
}

#[test]
fn a_layout_makes_its_directories() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    let place = scratch.path().join("grid/rucio/mc15").join(HASH).join("f");
    put(&storage, "/rucio/mc15:f", &create(0o640));
    assert_eq!(std::fs::read(&place).unwrap(), b"/rucio/mc15:f");
    assert_eq!(storage.stat(&path("/rucio/mc15:f")).unwrap().size, 13);
    storage.rename(&path("/rucio/mc15:f"), &path("/rucio/mc16:g"), ExistingName::Replace, None).unwrap();
    assert!(!place.exists());
    storage.rename(&path("/rucio/mc16:g"), &path("/a/data/g"), ExistingName::Replace, None).unwrap();
    assert!(scratch.path().join("store/g").exists());
    // The directories on disk are no names.
    assert_eq!(errno(storage.stat(&path("/rucio/mc15"))), libc::ENOENT);
    assert_eq!(errno(storage.list(&path("/rucio"))), libc::EOPNOTSUPP);
    assert_eq!(errno(storage.make_directory(&path("/rucio/x:y"), 0o755, None)), libc::EOPNOTSUPP);
    assert_eq!(errno(storage.open(&path("/rucio/mc15/f"), &create(0o640))), libc::EINVAL);
    // The directory of the rule is never created.
    std::fs::remove_dir_all(scratch.path().join("grid/rucio")).unwrap();
    let mut how = create(0o640);
    how.create.as_mut().unwrap().parents = Some(PARENTS);
    assert_eq!(errno(storage.open(&path("/rucio/mc15:f"), &how)), libc::EACCES);
    assert!(!scratch.path().join("grid/rucio").exists());
}

/// A missing target may be a disk that is not mounted.
#[test]
fn the_target_of_a_prefix_is_never_created() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    assert_eq!(errno(storage.make_directory(&path("/a/data"), 0o755, None)), libc::EEXIST);
    std::fs::remove_dir(scratch.path().join("store")).unwrap();
    let mut how = create(0o640);
    how.create.as_mut().unwrap().parents = Some(PARENTS);
    std::fs::write(scratch.path().join("plain/f"), "x").unwrap();
    for (name, parents) in [("/a/data", None), ("/a/data", Some(&PARENTS)), ("/a/data/d", Some(&PARENTS))] {
        assert_eq!(errno(storage.make_directory(&path(name), 0o755, parents)), libc::EACCES, "{name}");
    }
    for name in ["/a/data/f", "/a/data/d/f"] {
        assert_eq!(errno(storage.open(&path(name), &how)), libc::EACCES, "{name}");
        let renamed = storage.rename(&path("/plain/f"), &path(name), ExistingName::Replace, Some(&PARENTS));
        assert_eq!(errno(renamed), libc::EACCES, "{name}");
    }
    assert!(!scratch.path().join("store").exists());
    std::fs::create_dir(scratch.path().join("store")).unwrap();
    put(&storage, "/a/data/d/f", &how);
}

#[test]
fn directories_of_rules_are_neither_moved_nor_removed() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    for name in ["/a", "/a/data", "/grid"] {
        assert_eq!(
            errno(storage.rename(&path(name), &path("/plain/x"), ExistingName::Replace, None)),
            libc::EBUSY,
            "{name}"
        );
        assert_eq!(errno(storage.remove_directory(&path(name))), libc::EBUSY, "{name}");
    }
    std::fs::create_dir(scratch.path().join("plain/d")).unwrap();
    assert_eq!(
        errno(storage.rename(&path("/plain/d"), &path("/a"), ExistingName::Replace, None)),
        libc::EBUSY
    );
    storage.rename(&path("/plain/d"), &path("/a/data/d"), ExistingName::Replace, None).unwrap();
    assert!(scratch.path().join("store/d").is_dir());
}

/// The link is a file for `unlink` and `rename`.
#[test]
fn links_to_directories_of_rules_are_neither_moved_nor_removed() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    for name in ["a", "grid"] {
        std::fs::rename(scratch.path().join(name), scratch.path().join(format!("{name}.disk"))).unwrap();
        std::os::unix::fs::symlink(format!("{name}.disk"), scratch.path().join(name)).unwrap();
    }
    std::fs::write(scratch.path().join("plain/f"), "x").unwrap();
    for name in ["/a", "/grid", "/a/data", "/rucio"] {
        assert_eq!(errno(storage.remove_file(&path(name))), libc::EBUSY, "{name}");
        assert_eq!(
            errno(storage.rename(&path(name), &path("/plain/x"), ExistingName::Replace, None)),
            libc::EBUSY,
            "{name}"
        );
        assert_eq!(
            errno(storage.rename(&path("/plain/f"), &path(name), ExistingName::Replace, None)),
            libc::EBUSY,
            "{name}"
        );
    }
    put(&storage, "/rucio/mc15:f", &create(0o640));
    storage.rename(&path("/rucio/mc15:f"), &path("/a/data/f"), ExistingName::Replace, None).unwrap();
    storage.remove_file(&path("/a/data/f")).unwrap();
}

#[test]
fn limits_of_new_parents_are_translated() {
    let scratch = Scratch::new();
    let storage = Posix::new(&config(&scratch)).unwrap();
    let below = |name: &str| {
        let mut how = create(0o640);
        how.create.as_mut().unwrap().parents = Some(ParentCreation { mode: 0o755, below: Some(path(name)) });
        how
    };
    put(&storage, "/a/data/x/f", &below("/a/data"));
    put(&storage, "/a/data/y/f", &below("/a"));
    assert!(scratch.path().join("store/y/f").exists());
    assert_eq!(errno(storage.open(&path("/a/data/z/w/f"), &below("/a/data/z"))), libc::EACCES);
    assert!(!scratch.path().join("store/z").exists());
}

/// Rules of spaces are about logical paths, the stored name about the path on disk.
#[test]
fn spaces_are_selected_by_logical_paths() {
    let scratch = Scratch::new();
    let (disk, other) = (Scratch::new(), Scratch::new());
    let partition = |name: &str, at: &Scratch| config::SpacePartition {
        name: name.to_owned(),
        path: at.path().to_owned(),
        wildcard: false,
        mount_check: None,
    };
    let assigned =
        config::SpaceRule { name: "hot".to_owned(), assign: true, prefixes: vec!["/a/data".to_owned()] };
    let spaces = SpaceConfig {
        partitions: vec![partition("public", &disk), partition("hot", &other)],
        rules: vec![assigned],
        in_place: vec![(path("/plain"), true)],
        ..SpaceConfig::default()
    };
    let storage = Posix::new(&Config { spaces, ..config(&scratch) }).unwrap();
    put(&storage, "/a/data/f", &create(0o640));
    let data = std::fs::read_link(scratch.path().join("store/f")).unwrap();
    assert!(data.starts_with(other.path().join("hot")), "{}", data.display());
    let stored_name = |name: &str| {
        let value = storage.attribute(&path(name), NAME_ATTRIBUTE).unwrap().unwrap();
        String::from_utf8(value).unwrap()
    };
    let on_disk = |name: &str| format!("{}/{name}\0", scratch.path().display());
    assert_eq!(stored_name("/a/data/f"), on_disk("store/f"));
    assert_eq!(storage.space_of(&path("/a/data/f")), "hot");
    assert_eq!(storage.space_of(&path("/rucio/mc15:f")), "public");
    storage.rename(&path("/a/data/f"), &path("/rucio/mc15:f"), ExistingName::Replace, None).unwrap();
    assert_eq!(stored_name("/rucio/mc15:f"), on_disk(&format!("grid/rucio/mc15/{HASH}/f")));
    assert_eq!(storage.space_of(&path("/rucio/mc15:f")), "hot");
    storage.remove_file(&path("/rucio/mc15:f")).unwrap();
    assert!(!data.exists());
}
