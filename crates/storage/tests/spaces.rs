//! Tests of spaces: names in one tree, data on partitions, and no data left without a name.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PARENTS, Scratch, create, errno, path, update};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use storage::posix::{Config, Posix, SpaceConfig};
use storage::{Backend, ExistingName, Now, OpenMode};

fn partition(name: &str, path: &Path) -> config::SpacePartition {
    config::SpacePartition {
        name: name.to_owned(),
        path: path.to_owned(),
        wildcard: false,
        mount_check: None,
    }
}

struct Site {
    names: Scratch,
    disks: Vec<Scratch>,
}

impl Site {
    /// Creates two partitions of `public` on disk, and one of `other` in memory.
    fn new() -> Self {
        let disks = vec![Scratch::new(), Scratch::new(), Scratch::within(Path::new("/dev/shm"))];
        Self { names: Scratch::new(), disks }
    }

    fn config(&self) -> Config {
        let rule = |name: &str, assign, prefix: &str| config::SpaceRule {
            name: name.to_owned(),
            assign,
            prefixes: vec![prefix.to_owned()],
        };
        let spaces = SpaceConfig {
            partitions: vec![
                partition("public", self.disks[0].path()),
                partition("public", self.disks[1].path()),
                partition("other", self.disks[2].path()),
            ],
            rules: vec![rule("other", true, "/assigned"), rule("other", false, "/default")],
            allocation: config::Allocation::default(),
            in_place: vec![(path("/"), false), (path("/inplace"), true)],
            ..SpaceConfig::default()
        };
        Config { spaces, ..Config::new(self.names.path()) }
    }

    fn posix(&self) -> Posix {
        Posix::new(&self.config()).unwrap()
    }

    /// Returns all data files of a partition.
    fn data(&self, disk: usize) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut todo = vec![self.disks[disk].path().to_owned()];
        while let Some(directory) = todo.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { todo.push(path) } else { found.push(path) }
            }
        }
        found
    }

    fn count(&self) -> [usize; 3] {
        [0, 1, 2].map(|disk| self.data(disk).len())
    }
}

fn how(space: Option<&str>) -> OpenMode {
    let mut how = create(0o640);
    let inner = how.create.as_mut().unwrap();
    inner.space = space.map(str::to_owned);
    inner.parents = Some(PARENTS);
    how
}

fn put(storage: &Posix, name: &str, space: Option<&str>) {
    storage.open(&path(name), &how(space)).unwrap().write(0, name.as_bytes()).unwrap();
}

fn get(storage: &Posix, name: &str) -> String {
    let file = storage.open(&path(name), &OpenMode::default()).unwrap();
    let mut buffer = [0; 100];
    let got = file.read(0, &mut buffer).unwrap();
    String::from_utf8(buffer[..got].to_vec()).unwrap()
}

#[test]
fn files_go_to_the_assigned_or_requested_space() {
    let site = Site::new();
    let storage = site.posix();
    let cases = [
        ("/a", None, "public"),
        ("/b", Some("other"), "other"),
        ("/assigned/c", Some("public"), "other"),
        ("/default/d", None, "other"),
        ("/default/e", Some("public"), "public"),
    ];
    for (name, wish, space) in cases {
        put(&storage, name, wish);
        assert_eq!((get(&storage, name).as_str(), storage.space_of(&path(name)).as_str()), (name, space));
        let status = storage.stat(&path(name)).unwrap();
        assert_eq!((status.mode & 0o170_7777, status.size), (0o100_640, name.len() as u64));
    }
    // The space of a path that does not exist is the one without a requested space.
    assert_eq!(
        ["/x", "/default/x", "/assigned/x"].map(|name| storage.space_of(&path(name))),
        ["public", "other", "other"]
    );
    let counts = site.count();
    assert_eq!((counts[0] + counts[1], counts[2]), (2, 3));
    put(&storage, "/inplace/f", Some("other"));
    assert_eq!(site.count(), counts);
    assert!(site.names.path().join("inplace/f").symlink_metadata().unwrap().is_file());
    assert_eq!(errno(storage.open(&path("/x"), &how(Some("nowhere")))), libc::ENOENT);
    assert_eq!(storage.usage(&path("/"), Some("nowhere")).unwrap().total, 0);
    let beside = |name: &str, wish| storage.spaces_beside(&path(name), wish);
    assert_eq!(beside("/x", "nowhere"), Some(vec!["other".to_owned(), "public".to_owned()]));
    assert_eq!(beside("/x", "other"), None);
    assert_eq!(beside("/assigned/x", "nowhere"), None, "the wish does not count there");
    assert_eq!(beside("/inplace/x", "nowhere"), None, "new files do not go to a space there");
}

#[test]
fn the_layout_is_that_of_xrootd() {
    let site = Site::new();
    let storage = site.posix();
    put(&storage, "/b", Some("other"));
    let target = std::fs::read_link(site.names.path().join("b")).unwrap();
    assert_eq!(vec![target.clone()], site.data(2));
    let disk = site.disks[2].path().as_os_str().len() + 1;
    let rest = &target.to_str().unwrap()[disk..];
    let (space, rest) = rest.split_at(6);
    let (directory, unique) = rest.split_at(3);
    assert_eq!((space, &directory[2..], unique.len()), ("other/", "/", 40), "{target:?}");
    assert!(directory[..2].bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_eq!(unique[36..], format!("{disk:02X}5%"));
    let name = storage.attribute(&path("/b"), "user.XrdFrm.Pfn").unwrap().unwrap();
    assert_eq!(name, format!("{}/b\0", site.names.path().display()).into_bytes());
    storage.rename(&path("/b"), &path("/d/c"), ExistingName::Replace, Some(&PARENTS)).unwrap();
    let name = storage.attribute(&path("/d/c"), "user.XrdFrm.Pfn").unwrap().unwrap();
    assert_eq!(name, format!("{}/d/c\0", site.names.path().display()).into_bytes());
}

#[test]
fn removing_and_replacing_leave_no_data_behind() {
    let site = Site::new();
    let storage = site.posix();
    for name in ["/a", "/b", "/c", "/d"] {
        put(&storage, name, Some("other"));
    }
    storage.remove_file(&path("/a")).unwrap();
    storage.rename(&path("/b"), &path("/c"), ExistingName::Replace, None).unwrap();
    assert_eq!((site.count()[2], get(&storage, "/c").as_str()), (2, "/b"));
    storage.rename(&path("/c"), &path("/c"), ExistingName::Replace, None).unwrap();
    assert_eq!((site.count()[2], get(&storage, "/c").as_str()), (2, "/b"));
    // A file stored in place replaces one on a partition, and the other way round.
    put(&storage, "/inplace/f", None);
    storage.rename(&path("/d"), &path("/inplace/f"), ExistingName::Replace, None).unwrap();
    assert_eq!((site.count()[2], get(&storage, "/inplace/f").as_str()), (2, "/d"));
    put(&storage, "/inplace/g", None);
    storage.rename(&path("/inplace/g"), &path("/c"), ExistingName::Replace, None).unwrap();
    // Replaced data on another file system is removed asynchronously in its pool.
    while site.count()[2] > 1 {
        std::thread::yield_now();
    }
    assert_eq!((site.count()[2], get(&storage, "/c").as_str()), (1, "/inplace/g"));
    // Exclusive creation over an existing name creates no data.
    let mut exclusive = how(Some("other"));
    exclusive.create.as_mut().unwrap().exclusive = true;
    assert_eq!(errno(storage.open(&path("/inplace/f"), &exclusive)), libc::EEXIST);
    assert_eq!(get(&storage, "/inplace/f"), "/d");
    storage.remove_file(&path("/inplace/f")).unwrap();
    assert_eq!(site.count(), [0, 0, 0]);
}

#[test]
fn links_to_foreign_files_are_removed_without_their_targets() {
    let site = Site::new();
    let storage = site.posix();
    let disk = site.disks[0].path();
    std::fs::create_dir_all(disk.join("public/00")).unwrap();
    for name in ["plain", "public/plain%", "public/00/plain"] {
        std::fs::write(disk.join(name), "x").unwrap();
        std::os::unix::fs::symlink(disk.join(name), site.names.path().join("link")).unwrap();
        storage.remove_file(&path("/link")).unwrap();
        assert!(disk.join(name).exists(), "{name}");
    }
    // A crafted link must not direct the removal out of the partition.
    let outside = site.names.path().join("victim%");
    std::fs::write(&outside, "x").unwrap();
    let crooked = disk.join("public/..").join(outside.strip_prefix("/").unwrap());
    std::os::unix::fs::symlink(crooked, site.names.path().join("link")).unwrap();
    storage.remove_file(&path("/link")).unwrap();
    assert!(outside.exists());
}

#[test]
fn a_missing_partition_is_an_error_and_creates_no_new_data() {
    let mut site = Site::new();
    put(&site.posix(), "/b", Some("other"));
    let storage = site.posix();
    let disk = site.disks.pop().unwrap();
    let kept = disk.path().with_extension("kept");
    std::fs::rename(disk.path(), &kept).unwrap();
    assert_eq!(errno(storage.open(&path("/b"), &how(Some("other")))), libc::ENOENT);
    assert_eq!(errno(storage.stat(&path("/b"))), libc::ENOENT);
    std::fs::rename(&kept, disk.path()).unwrap();
    assert_eq!(get(&storage, "/b"), "/b");
    site.disks.push(disk);
}

#[test]
fn partitions_take_turns() {
    let site = Site::new();
    let mut config = site.config();
    config.spaces.allocation.fuzz_percent = 100;
    let storage = Posix::new(&config).unwrap();
    for n in 0..20 {
        put(&storage, &format!("/f{n}"), None);
    }
    assert_eq!(site.count(), [10, 10, 0]);
    let names: HashSet<_> = site.data(0).iter().map(|data| data.file_name().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 10);
}

#[test]
fn a_file_is_created_on_the_file_system_of_another() {
    let site = Site::new();
    let mut config = site.config();
    config.spaces.rules.clear();
    config.spaces.partitions[2].name = "public".to_owned();
    let storage = Posix::new(&config).unwrap();
    for disk in [2, 0] {
        let template = Posix::new(&Config::new(site.disks[disk].path())).unwrap();
        let template = template.open(&path("/t%"), &create(0o600)).unwrap();
        for n in 0..4 {
            let mut how = how(None);
            how.create.as_mut().unwrap().beside = Some(template.clone());
            let file = storage.open(&path(&format!("/{disk}-{n}")), &how).unwrap();
            assert_eq!(file.stat().unwrap().device, template.stat().unwrap().device);
        }
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused() {
    let site = Site::new();
    let mut config = site.config();
    config.spaces.allocation.headroom_percent = 50;
    let storage = Posix::new(&config).unwrap();
    let usage = storage.usage(&path("/assigned/x"), None).unwrap();
    assert_eq!(usage.total, storage.usage(&path("/"), Some("other")).unwrap().total);
    let free = usage.free;
    let mut large = how(Some("other"));
    large.create.as_mut().unwrap().size_hint = Some(free / 10 * 9);
    assert_eq!(errno(storage.open(&path("/large"), &large)), libc::ENOSPC);
    assert_eq!(errno(storage.stat(&path("/large"))), libc::ENOENT);
    large.create.as_mut().unwrap().size_hint = Some(free / 2);
    let open = storage.open(&path("/large"), &large).unwrap();
    // The announced size counts as used although nothing is written yet.
    assert_eq!(errno(storage.open(&path("/second"), &large)), libc::ENOSPC);
    drop(open);
    storage.open(&path("/second"), &large).unwrap();
    config.spaces.allocation.bytes_min = u64::MAX;
    let storage = Posix::new(&config).unwrap();
    assert_eq!(errno(storage.open(&path("/third"), &how(None))), libc::ENOSPC);
}

#[test]
fn size_hints_of_clients_leave_room_for_others() {
    let site = Site::new();
    let mut config = site.config();
    config.spaces.allocation.headroom_percent = 0;
    let storage = Posix::new(&config).unwrap();
    let free = storage.usage(&path("/assigned/x"), None).unwrap().free;
    let mut large = how(Some("other"));
    large.create.as_mut().unwrap().size_hint = Some(free / 10 * 4);
    // Each size fits, and their sum is many times the free space.
    let greedy: Vec<_> = (0..20).map(|n| storage.open(&path(&format!("/greedy-{n}")), &large)).collect();
    assert!(greedy.iter().all(Result::is_ok));
    storage.open(&path("/modest"), &how(Some("other"))).unwrap();
}

#[test]
fn partitions_are_checked_at_start() {
    let site = Site::new();
    let start = |change: &dyn Fn(&mut config::SpacePartition)| {
        let mut config = site.config();
        change(&mut config.spaces.partitions[1]);
        Posix::new(&config).map(drop).map_err(|error| error.to_string())
    };
    let missing = start(&|space| space.path = PathBuf::from("/nowhere/p")).unwrap_err();
    assert!(missing.starts_with("oss.space public /nowhere/p: "), "{missing}");
    let long = start(&|space| space.path = PathBuf::from(format!("/{}", "x".repeat(254)))).unwrap_err();
    assert!(long.contains("longer than 254 bytes"), "{long}");
    let check = |optional| Some(config::MountCheck { id: "disk7".to_owned(), optional });
    let unmounted = start(&|space| space.mount_check = check(false)).unwrap_err();
    assert!(unmounted.contains("no file system is mounted there: disk7."), "{unmounted}");
    start(&|space| space.mount_check = check(true)).unwrap();
    let disk = site.disks[1].path();
    std::fs::write(disk.join(format!("disk7.{}", disk.file_name().unwrap().to_str().unwrap())), "").unwrap();
    start(&|space| space.mount_check = check(false)).unwrap();

    for name in ["pool1", "pool2", "else"] {
        std::fs::create_dir(site.disks[0].path().join(name)).unwrap();
    }
    let mut config = site.config();
    config.spaces.partitions.truncate(1);
    config.spaces.partitions[0].path = site.disks[0].path().join("pool");
    config.spaces.partitions[0].wildcard = true;
    config.spaces.allocation.fuzz_percent = 100;
    let storage = Posix::new(&config).unwrap();
    for n in 0..10 {
        put(&storage, &format!("/w{n}"), None);
    }
    let within = |name: &str| {
        site.data(0).iter().filter(|data| data.starts_with(site.disks[0].path().join(name))).count()
    };
    assert_eq!((within("pool1"), within("pool2"), within("else")), (5, 5, 0));
}

#[test]
fn concurrent_replacements_of_one_name_leave_one_file() {
    let site = Site::new();
    let storage = site.posix();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let storage = &storage;
            threads.spawn(move || {
                for n in 0..25 {
                    let name = format!("/t{thread}-{n}");
                    put(storage, &name, Some("other"));
                    storage.rename(&path(&name), &path("/one"), ExistingName::Replace, None).unwrap();
                    let _ = storage.open(&path("/one"), &update());
                }
            });
        }
    });
    assert_eq!(site.count()[2], 1);
    assert!(get(&storage, "/one").ends_with("-24"));
}

#[test]
fn each_file_system_reports_its_usage_once() {
    let site = Site::new();
    let posix = site.posix();
    let device = |disk: usize| {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(site.disks[disk].path()).unwrap().dev()
    };
    let numbers = |name: &str| -> HashSet<u64> {
        let systems = posix.file_systems(&path(name)).unwrap();
        let numbers: HashSet<u64> = systems.iter().map(|system| system.number).collect();
        assert_eq!(numbers.len(), systems.len(), "each file system once");
        assert!(systems.iter().all(|system| system.total > 0 && system.free <= system.total));
        numbers
    };
    assert_eq!(
        numbers("/any/where"),
        HashSet::from([device(0), device(2)]),
        "two partitions share a file system"
    );
    assert_eq!(numbers("/inplace/not/there"), HashSet::from([device(0)]));
    let plain = Posix::new(&Config::new(site.names.path())).unwrap();
    assert_eq!(plain.file_systems(&path("/not/there")).unwrap().len(), 1);
}

/// The figures are those of XRootD for the same operations.
#[test]
fn the_bytes_of_files_are_accounted_for() {
    let (site, log) = (Site::new(), Scratch::new());
    let mut config = site.config();
    let usage = config::UsageLogConfig {
        directory: log.path().to_owned(),
        instance: Some("one".to_owned()),
        changes_per_sync: 3,
    };
    config.spaces.accounting.log = Some(usage);
    let storage = Posix::new(&config).unwrap();
    let used = |space: &str| storage.usage(&path("/"), Some(space)).unwrap().used.unwrap();
    put(&storage, "/12345", None);
    put(&storage, "/assigned/f", None);
    put(&storage, "/inplace/f", None);
    assert_eq!((used("public"), used("other")), (6, 11));
    storage.truncate(&path("/12345"), 3).unwrap();
    assert_eq!(used("public"), 3);
    let truncating = OpenMode { truncate: true, ..update() };
    drop(storage.open(&path("/assigned/f"), &truncating).unwrap());
    assert_eq!(used("other"), 0);
    storage.truncate(&path("/assigned/f"), 100_000).unwrap();
    assert_eq!(used("other"), 100_000);
    // A renamed file stays in its space; a replaced one is gone.
    put(&storage, "/other", Some("other"));
    storage.rename(&path("/12345"), &path("/assigned/f"), ExistingName::Replace, None).unwrap();
    let freed = (0..1000).any(|_| used("other") == 6);
    assert!(freed, "the data of a replaced name is removed by the pool of its disk");
    assert_eq!(used("public"), 3);
    storage.remove_file(&path("/assigned/f")).unwrap();
    assert_eq!((used("public"), used("other")), (0, 6));
    drop(storage);
    let storage = Posix::new(&config).unwrap();
    assert_eq!(storage.usage(&path("/"), Some("other")).unwrap().used, Some(6));
    assert!(log.path().join("one/.Usage").exists());
}

/// Quotas without a log need no account of each open file.
#[test]
fn opens_are_as_fast_with_quotas() {
    let (site, log) = (Site::new(), Scratch::new());
    let mut config = site.config();
    config.spaces.accounting.quota_file = Some(log.path().join("quotas"));
    let opens_now = |config: &Config| {
        let storage = Posix::new(config).unwrap();
        put(&storage, "/inplace/f", None);
        let opened = storage.open_now(&path("/inplace/f"), &update());
        storage.remove_file(&path("/inplace/f")).unwrap();
        matches!(opened, Now::Done(Ok(_)))
    };
    assert!(opens_now(&config));
    let directory = log.path().to_owned();
    config.spaces.accounting.log =
        Some(config::UsageLogConfig { directory, instance: None, changes_per_sync: 0 });
    assert!(!opens_now(&config));
}

#[test]
fn a_wish_may_name_a_partition() {
    let site = Site::new();
    let storage = site.posix();
    for (number, disk) in [0, 1, 0, 1].into_iter().enumerate() {
        let wish = format!("public:{}", site.disks[disk].path().display());
        put(&storage, &format!("/f{number}"), Some(&wish));
    }
    assert_eq!(site.count(), [2, 2, 0]);
    let beginning = format!(":{}", site.disks[1].path().display());
    put(&storage, "/g", Some(&beginning));
    assert_eq!(site.count(), [2, 3, 0]);
    assert_eq!(errno(storage.open(&path("/x"), &how(Some("public:/nowhere")))), libc::ENOSPC);
    assert_eq!(errno(storage.open(&path("/x"), &how(Some("none:/nowhere")))), libc::ENOENT);
    // The rule of the path is stronger, and its space has another partition.
    put(&storage, "/assigned/f", Some("public:/nowhere"));
    assert_eq!(site.count(), [2, 3, 1]);
    assert_eq!(storage.spaces_beside(&path("/x"), "public:/nowhere"), None);
    // A directory is in the default space, whatever the rule for new files in it.
    assert_eq!(storage.space_of(&path("/assigned")), "public");
}
