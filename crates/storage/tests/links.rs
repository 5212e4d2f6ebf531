//! Tests of links to other file systems: detection without access to the target, and the pool in
//! which work continues.

#![allow(clippy::unwrap_used)]

mod common;

use base::LogicalPath;
use common::{PARENTS, Scratch, create, path};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::posix::{Config, DisabledFeatures, Posix, SpaceConfig};
use storage::{Backend, CreateMode, OpenMode, Pool};

/// Names on one file system, a partition `here` on the same one, and two partitions `there` in
/// memory.
struct Site {
    names: Scratch,
    here: Scratch,
    there: [Scratch; 2],
}

impl Site {
    fn new() -> Self {
        let memory = || Scratch::within(Path::new("/dev/shm"));
        Self { names: Scratch::new(), here: Scratch::new(), there: [memory(), memory()] }
    }

    fn config(&self) -> Config {
        let partition = |name: &str, place: &Scratch| config::SpacePartition {
            name: name.to_owned(),
            path: place.path().to_owned(),
            wildcard: false,
            mount_check: None,
        };
        let [one, two] = &self.there;
        let partitions =
            vec![partition("public", &self.here), partition("there", one), partition("there", two)];
        let allocation = config::Allocation { fuzz_percent: 100, ..config::Allocation::default() };
        let spaces = SpaceConfig { partitions, allocation, ..SpaceConfig::default() };
        Config { spaces, ..Config::new(self.names.path()) }
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.names.path().join(name)).unwrap();
    }
}

fn creating(space: &str) -> CreateMode {
    CreateMode { space: Some(space.to_owned()), ..create(0o644).create.unwrap() }
}

fn elsewhere(storage: &Posix, name: &str) -> Option<Arc<Pool>> {
    storage.placement(&path(name), None).map(|place| place.pool)
}

/// Returns the pool of the existing file at a path.
fn pool_of(storage: &Posix, path: &LogicalPath) -> Arc<Pool> {
    storage.open(path, &OpenMode::default()).unwrap().pool().clone()
}

fn check(storage: &Posix, prefix: &str) {
    let at = |name: &str| format!("{prefix}{name}");
    let memory = pool_of(storage, &path(&at("/file")));
    let own = storage.pool(&path(&at("/file")));
    assert!(!Arc::ptr_eq(&memory, own));
    // All forms of names.
    for name in
        ["/file", "/file/", "/dir/x", "/dir/none", "/to-file", "/to-to", "/deep/up", "/deep/far/x", "/gone"]
    {
        let found = elsewhere(storage, &at(name));
        assert!(found.is_some_and(|pool| Arc::ptr_eq(&pool, &memory)), "{name}");
    }
    for name in ["/plain", "/none", "/deep", "/deep/none/x", "/near", "/loop", "/plain/x", "/", "/to-plain"] {
        assert!(elsewhere(storage, &at(name)).is_none(), "{name}");
    }
    // Entries of a directory give the same results.
    let mut stream = storage.list(&path(&at("/"))).unwrap();
    let entries = stream.next(100).unwrap();
    assert!(entries.len() < 100);
    for entry in entries {
        let leads =
            ["file", "dir", "to-file", "to-to", "gone"].iter().any(|name| name.as_bytes() == entry.name);
        let found = stream.other_pool(&entry);
        assert_eq!(found.is_some(), leads, "{}", String::from_utf8_lossy(&entry.name));
        assert!(found.is_none_or(|pool| Arc::ptr_eq(&pool, &memory)));
        let status = stream.stat(&entry.name);
        assert_eq!(status.is_ok(), !["gone", "loop"].map(str::as_bytes).contains(&entry.name.as_slice()));
    }
    // In the target directory itself the same names do not lead elsewhere.
    let mut stream = storage.list(&path(&at("/dir"))).unwrap();
    let entries = stream.next(100).unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| stream.other_pool(entry).is_none()));
}

fn filled() -> Site {
    let site = Site::new();
    let there = site.there[0].path();
    std::fs::create_dir(there.join("dir")).unwrap();
    std::fs::write(there.join("dir/x"), "x").unwrap();
    symlink("x", there.join("dir/again")).unwrap();
    std::fs::create_dir(site.names.path().join("deep")).unwrap();
    for name in ["plain", "deep/file"] {
        std::fs::write(site.names.path().join(name), "x").unwrap();
    }
    std::fs::write(site.here.path().join("x"), "x").unwrap();
    let links: [(&str, PathBuf); 10] = [
        ("file", there.join("dir/x")),
        ("dir", there.join("dir")),
        ("to-file", "file".into()),
        ("to-to", site.names.path().join("to-file")),
        ("deep/up", "../deep/./../to-file".into()),
        ("deep/far", "../dir".into()),
        ("gone", there.join("gone")),
        ("near", site.here.path().join("x")),
        ("loop", "loop".into()),
        ("to-plain", "plain".into()),
    ];
    links.into_iter().for_each(|(name, target)| site.link(name, target));
    site
}

#[test]
fn the_target_file_system_is_found_from_link_texts() {
    let site = filled();
    let without =
        [DisabledFeatures::default(), DisabledFeatures { openat2: true, ..DisabledFeatures::default() }];
    for without in without {
        check(&Posix::new(&Config { without, ..site.config() }).unwrap(), "");
        // With `/` as root the kernel follows links itself.
        let served = vec![path(site.names.path().to_str().unwrap())];
        let everything = Config { root: "/".into(), served, without, ..site.config() };
        check(&Posix::new(&everything).unwrap(), site.names.path().to_str().unwrap());
    }
}

#[test]
fn without_spaces_no_path_leads_elsewhere() {
    let site = Site::new();
    site.link("link", "/dev/shm");
    let storage = Posix::new(&Config::new(site.names.path())).unwrap();
    assert!(elsewhere(&storage, "/link/x").is_none(), "it is not followed");
    assert!(storage.placement(&path("/new"), Some(&creating("public"))).is_none());
}

#[test]
fn a_new_file_is_created_on_the_chosen_partition() {
    let site = Site::new();
    let storage = Posix::new(&site.config()).unwrap();
    let mut counts = [0; 2];
    for number in 0..10 {
        let name = path(&format!("/not/there/{number}"));
        let how = CreateMode { parents: Some(PARENTS), ..creating("there") };
        assert!(storage.placement(&name, None).is_none());
        let place = storage.placement(&name, Some(&how)).unwrap();
        let how = OpenMode {
            write: true,
            create: Some(CreateMode { at: Some(place.clone()), ..how }),
            truncate: false,
        };
        let file = storage.open(&name, &how).unwrap();
        assert!(Arc::ptr_eq(file.pool(), &place.pool));
        let data = std::fs::read_link(site.names.path().join(name.text().trim_start_matches('/'))).unwrap();
        counts[site.there.iter().position(|disk| data.starts_with(disk.path())).unwrap()] += 1;
        // From now on its name leads there.
        let found = storage.placement(&name, how.create.as_ref()).unwrap();
        assert!(Arc::ptr_eq(&found.pool, &place.pool));
    }
    assert_eq!(counts, [5, 5], "partitions take turns");
    let near = storage.placement(&path("/near"), Some(&creating("public"))).unwrap();
    assert!(Arc::ptr_eq(&near.pool, storage.pool(&path("/near"))));
    assert!(storage.placement(&path("/x"), Some(&creating("nowhere"))).is_none());
}

#[test]
fn another_partition_is_used_when_the_chosen_one_fails() {
    let site = Site::new();
    let storage = Posix::new(&site.config()).unwrap();
    let place = storage.placement(&path("/f"), Some(&creating("there"))).unwrap();
    // Independent of the partition that was chosen: files cannot be created where the directory is
    // missing.
    let moved: Vec<_> = site.there.iter().map(|disk| disk.path().with_extension("moved")).collect();
    std::fs::rename(site.there[0].path(), &moved[0]).unwrap();
    let how = |name: &str| {
        let create = CreateMode { at: Some(place.clone()), ..creating("there") };
        storage.open(&path(name), &OpenMode { write: true, create: Some(create), truncate: false })
    };
    how("/f").unwrap();
    std::fs::rename(&moved[0], site.there[0].path()).unwrap();
    std::fs::rename(site.there[1].path(), &moved[1]).unwrap();
    how("/g").unwrap();
    std::fs::rename(&moved[1], site.there[1].path()).unwrap();
    for name in ["f", "g"] {
        assert!(std::fs::read_link(site.names.path().join(name)).unwrap().exists());
    }
}

/// An entry that is a mount point has the pool of its own file system, however the directory was
/// reached.
#[test]
fn entries_that_are_mounts_have_their_own_pool() {
    let (site, without) = (Site::new(), DisabledFeatures::default());
    site.link("devices", "/dev");
    let devices = site.names.path().join("devices");
    let served = vec![path("/dev"), path(devices.to_str().unwrap())];
    let storage = Posix::new(&Config { root: "/".into(), served, without, ..site.config() }).unwrap();
    let memory = storage.pool(&path("/dev/shm/x"));
    for directory in ["/dev", devices.to_str().unwrap()] {
        let mut stream = storage.list(&path(directory)).unwrap();
        let entries = stream.next(1000).unwrap();
        let pool = |name: &str| {
            let entry = entries.iter().find(|entry| entry.name == name.as_bytes()).unwrap();
            stream.other_pool(entry)
        };
        assert!(pool("shm").is_some_and(|pool| Arc::ptr_eq(&pool, memory)), "{directory}");
        assert!(pool("null").is_none());
    }
    let mut stream = storage.list(&path("/dev/shm")).unwrap();
    assert!(stream.next(1).unwrap().iter().all(|entry| entry.link || stream.other_pool(entry).is_none()));
}
