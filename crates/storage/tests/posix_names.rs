//! Tests of names on POSIX storage: confinement, exact modes, creating, renaming, removing,
//! listing.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PARENTS, Scratch, create, errno, path, update};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use storage::posix::{Config, DisabledFeatures, Posix};
use storage::{Backend, CreateMode, ExistingName, Now, OpenMode, ParentCreation};

/// All ways of resolving names, by the features that a kernel may lack.
fn ways() -> [DisabledFeatures; 3] {
    let openat2 = DisabledFeatures { openat2: true, ..DisabledFeatures::default() };
    [DisabledFeatures::default(), openat2, DisabledFeatures { proc: true, ..openat2 }]
}

fn content(storage: &Posix, name: &str) -> std::io::Result<String> {
    let file = storage.open(&path(name), &OpenMode::default())?;
    let mut buffer = [0; 64];
    let got = file.read(0, &mut buffer)?;
    Ok(String::from_utf8(buffer[..got].to_vec()).unwrap())
}

#[test]
fn links_are_followed_only_inside_the_root() {
    let (scratch, outside, beside) = (Scratch::new(), Scratch::new(), Scratch::new());
    let at = |name: &str| scratch.path().join(name);
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    std::fs::write(beside.path().join("data"), "partition").unwrap();
    std::fs::create_dir_all(at("d/e")).unwrap();
    std::fs::write(at("d/file"), "inside").unwrap();
    symlink("../d/./file", at("d/relative")).unwrap();
    symlink("../file", at("d/e/upwards")).unwrap();
    symlink(at("d//file"), at("absolute")).unwrap();
    symlink(at("d"), at("folder")).unwrap();
    symlink("folder", at("twice")).unwrap();
    symlink("../../../../../../../../etc/passwd", at("d/escape")).unwrap();
    symlink(at("d/../../x"), at("dots")).unwrap();
    symlink(outside.path().join("secret"), at("out")).unwrap();
    symlink(outside.path(), at("out_folder")).unwrap();
    symlink(format!("{}x", scratch.path().display()), at("longer")).unwrap();
    symlink(beside.path().join("data"), at("partition")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    for without in ways() {
        let config = Config { without, links_to: vec![beside.path().into()], ..Config::new(scratch.path()) };
        let storage = Posix::new(&config).unwrap();
        for name in
            ["/d/file", "/d/relative", "/d/e/upwards", "/absolute", "/folder/file", "/twice/e/upwards"]
        {
            assert_eq!(content(&storage, name).unwrap(), "inside", "{name} {without:?}");
            assert_eq!(storage.stat(&path(name)).unwrap().size, 6, "{name} {without:?}");
        }
        assert_eq!(content(&storage, "/partition").unwrap(), "partition");
        for name in ["/d/escape", "/dots", "/out", "/out_folder/secret", "/longer", "/magic/etc/passwd"] {
            assert_eq!(errno(content(&storage, name)), libc::EACCES, "{name} {without:?}");
            assert_eq!(errno(storage.stat(&path(name))), libc::EACCES, "{name} {without:?}");
            assert_eq!(errno(storage.attributes(&path(name))), libc::EACCES, "{name} {without:?}");
        }
        assert_eq!(errno(storage.open(&path("/out_folder/new"), &create(0o644))), libc::EACCES);
        assert_eq!(
            errno(storage.rename(
                &path("/d/file"),
                &path("/out_folder/f"),
                ExistingName::Replace,
                Some(&PARENTS)
            )),
            libc::EACCES
        );
        assert_eq!(
            errno(storage.make_directory(&path("/out_folder/x/y"), 0o755, Some(&PARENTS))),
            libc::EACCES
        );
        assert_eq!(errno(content(&storage, "/loop")), libc::ELOOP);
        assert_eq!(errno(content(&storage, "/d/file/")), libc::ENOTDIR);
        assert_eq!(errno(content(&storage, "/d/file/x")), libc::ENOTDIR);
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn with_root_slash_all_links_but_magic_ones_are_followed() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("file"), "x").unwrap();
    symlink(scratch.path().join("file"), scratch.path().join("link")).unwrap();
    let link = format!("{}/link", scratch.path().display());
    let open = std::fs::File::open(scratch.path().join("file")).unwrap();
    let magic = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    std::fs::remove_file(scratch.path().join("file")).unwrap();
    std::fs::write(scratch.path().join("file"), "y").unwrap();
    for without in ways() {
        let storage = Posix::new(&Config { without, ..Config::new("/") }).unwrap();
        assert_eq!(content(&storage, &link).unwrap(), "y");
        assert!(storage.open(&path(&magic), &OpenMode::default()).is_err(), "{without:?}");
    }
}

#[test]
fn swapping_a_directory_for_a_link_does_not_escape_the_root() {
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    std::fs::create_dir(scratch.path().join("a")).unwrap();
    std::fs::write(scratch.path().join("a/f"), "inside").unwrap();
    std::fs::write(outside.path().join("f"), "outside").unwrap();
    symlink(outside.path(), scratch.path().join("b")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let [a, b] = ["a", "b"].map(|name| scratch.path().join(name));
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags).unwrap();
            }
        });
        for without in ways() {
            let storage = scratch.posix_without(without);
            for _ in 0..2000 {
                if let Ok(text) = content(&storage, "/a/f") {
                    assert_eq!(text, "inside");
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn modes_are_exact_for_any_umask() {
    let scratch = Scratch::new();
    // The umask belongs to the process; tests that run concurrently do not check modes.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let mode = |name: &str| std::fs::metadata(scratch.path().join(name)).unwrap().mode() & 0o7777;
    for without in ways() {
        let storage = scratch.posix_without(without);
        for wanted in [0o644, 0o1640, 0o666, 0o400, 0o755, 0] {
            storage.open(&path("/f"), &create(wanted)).unwrap();
            assert_eq!(mode("f"), wanted, "{wanted:o}");
            storage.open(&path("/f"), &create(0o777)).map(drop).unwrap_or_default();
            assert_eq!(mode("f"), wanted, "opening an existing file does not change it");
            storage.remove_file(&path("/f")).unwrap();
            let parents = ParentCreation::everywhere(wanted | 0o700);
            storage.make_directory(&path("/p/q/d"), parents.mode, Some(&parents)).unwrap();
            assert_eq!([mode("p"), mode("p/q"), mode("p/q/d")], [wanted | 0o700; 3], "{wanted:o}");
            storage.set_mode(&path("/p"), 0o1777).unwrap();
            assert_eq!(mode("p"), 0o1777);
            for name in ["/p/q/d", "/p/q", "/p/"] {
                storage.remove_directory(&path(name)).unwrap();
            }
        }
        let mut how = create(0o604);
        how.create.as_mut().unwrap().parents = Some(ParentCreation::everywhere(0o775));
        storage.open(&path("/x/y/f"), &how).unwrap();
        assert_eq!([mode("x"), mode("x/y"), mode("x/y/f")], [0o775, 0o775, 0o604]);
        storage.set_mode(&path("/x/y/f"), 0o1777).unwrap();
        assert_eq!(mode("x/y/f"), 0o1777);
        std::fs::remove_dir_all(scratch.path().join("x")).unwrap();
    }
    rustix::process::umask(before);
}

#[test]
fn renewing_the_access_time_keeps_the_other_times() {
    let scratch = Scratch::new();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let times = std::fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
    for without in ways() {
        let storage = scratch.posix_without(without);
        storage.open(&path("/f"), &create(0o400)).unwrap();
        storage.make_directory(&path("/d"), 0o755, None).unwrap();
        for name in ["f", "d"] {
            std::fs::File::open(scratch.path().join(name)).unwrap().set_times(times).unwrap();
            storage.renew_access(&path(&format!("/{name}"))).unwrap();
            let metadata = std::fs::metadata(scratch.path().join(name)).unwrap();
            assert_eq!(metadata.modified().unwrap(), long_ago);
            assert!(metadata.accessed().unwrap() > long_ago, "{without:?}");
        }
        assert_eq!(errno(storage.renew_access(&path("/none"))), libc::ENOENT);
        storage.remove_file(&path("/f")).unwrap();
        storage.remove_directory(&path("/d")).unwrap();
    }
}

#[test]
fn creating_over_an_existing_object_returns_its_error() {
    let scratch = Scratch::new();
    let storage = scratch.posix();
    let exclusive = |how: OpenMode| {
        let inner = CreateMode { exclusive: true, ..how.create.unwrap() };
        OpenMode { create: Some(inner), ..how }
    };
    assert_eq!(errno(storage.open(&path("/d/f"), &create(0o644))), libc::ENOENT);
    storage.open(&path("/f"), &exclusive(create(0o644))).unwrap().write(0, b"abc").unwrap();
    assert_eq!(errno(storage.open(&path("/f"), &exclusive(create(0o644)))), libc::EEXIST);
    assert_eq!(storage.open(&path("/f"), &create(0o644)).unwrap().stat().unwrap().size, 3);
    let cut = OpenMode { truncate: true, ..create(0o644) };
    assert_eq!(storage.open(&path("/f"), &cut).unwrap().stat().unwrap().size, 0);
    assert_eq!(errno(storage.open(&path("/f/"), &create(0o644))), libc::EISDIR);
    storage.make_directory(&path("/d/"), 0o755, None).unwrap();
    assert_eq!(errno(storage.make_directory(&path("/d"), 0o755, Some(&PARENTS))), libc::EEXIST);
    assert_eq!(errno(storage.make_directory(&path("/"), 0o755, Some(&PARENTS))), libc::EEXIST);
    assert_eq!(errno(storage.make_directory(&path("/n/m"), 0o755, None)), libc::ENOENT);
    assert_eq!(errno(storage.make_directory(&path("/f/m"), 0o755, Some(&PARENTS))), libc::ENOTDIR);
    assert_eq!(errno(storage.open(&path("/d"), &create(0o644))), libc::EISDIR);
    assert_eq!(errno(storage.open(&path("/d"), &OpenMode::default())), libc::EISDIR);
    // A dangling link must not create a file elsewhere: its partition may only be unmounted.
    symlink(scratch.path().join("lost"), scratch.path().join("link")).unwrap();
    assert_eq!(errno(storage.open(&path("/link"), &create(0o644))), libc::ENOENT);
    assert!(!scratch.path().join("lost").exists());
    // Opening a pipe or device fails and does not block.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scratch.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    assert_eq!(errno(storage.open(&path("/pipe"), &OpenMode::default())), libc::ENOTBLK);
    assert_eq!(errno(storage.open(&path("/pipe"), &update())), libc::ENOTBLK);
}

/// Creates `/d/a/b/name` in three ways, each with its missing parents below a directory.
fn create_below(storage: &Posix, below: &str, name: &str) -> [std::io::Result<()>; 3] {
    let parents = ParentCreation { mode: 0o755, below: Some(path(below)) };
    let at = |way: &str| path(&format!("/d/{way}/b/{name}"));
    let mut how = create(0o644);
    how.create.as_mut().unwrap().parents = Some(parents.clone());
    storage.open(&path("/source"), &create(0o644)).unwrap();
    [
        storage.open(&at("open"), &how).map(drop),
        storage.make_directory(&at("mkdir"), 0o755, Some(&parents)),
        storage.rename(&path("/source"), &at("rename"), ExistingName::Replace, Some(&parents)),
    ]
}

#[test]
fn parents_are_created_only_below_a_directory_that_exists() {
    for without in ways() {
        let scratch = Scratch::new();
        let storage = scratch.posix_without(without);
        for (below, name) in [("/d", "f"), ("/d/open", "f"), ("/d/open/b", "f"), ("/", "f")] {
            let refused = create_below(&storage, below, name).map(|result| result.is_err());
            // Only the root exists.
            assert_eq!(refused, [below != "/"; 3], "{below}");
            assert_eq!(scratch.path().join("d").exists(), below == "/", "{below}");
        }
        std::fs::remove_dir_all(scratch.path().join("d")).unwrap();
        assert_eq!(create_below(&storage, "/d", "f").map(errno), [libc::EACCES; 3]);
        storage.make_directory(&path("/d"), 0o755, None).unwrap();
        create_below(&storage, "/d", "f").into_iter().for_each(Result::unwrap);
        // Missing parents above a directory that is not above the path are not created either.
        assert_eq!(create_below(&storage, "/e", "g/h").map(errno), [libc::EACCES; 3]);
    }
}

#[test]
fn renaming_replaces_files_and_creates_parents() {
    let scratch = Scratch::new();
    let storage = scratch.posix();
    storage.open(&path("/a"), &create(0o644)).unwrap().write(0, b"aa").unwrap();
    storage.open(&path("/b"), &create(0o644)).unwrap();
    storage.rename(&path("/a"), &path("/b"), ExistingName::Replace, None).unwrap();
    assert_eq!(content(&storage, "/b").unwrap(), "aa");
    assert_eq!(
        errno(storage.rename(&path("/b"), &path("/x/y/c"), ExistingName::Replace, None)),
        libc::ENOENT
    );
    assert_eq!(
        errno(storage.rename(&path("/a"), &path("/x/y/c"), ExistingName::Replace, Some(&PARENTS))),
        libc::ENOENT
    );
    assert!(!scratch.path().join("x").exists(), "a missing source creates no parents");
    storage.rename(&path("/b"), &path("/x/y/c"), ExistingName::Replace, Some(&PARENTS)).unwrap();
    assert_eq!(content(&storage, "/x/y/c").unwrap(), "aa");
    storage.make_directory(&path("/e"), 0o755, None).unwrap();
    assert_eq!(errno(storage.rename(&path("/e"), &path("/x"), ExistingName::Replace, None)), libc::ENOTEMPTY);
    assert_eq!(
        errno(storage.rename(&path("/x/y/c"), &path("/e"), ExistingName::Replace, None)),
        libc::EISDIR
    );
    assert_eq!(errno(storage.rename(&path("/"), &path("/z"), ExistingName::Replace, None)), libc::EBUSY);
    assert_eq!(errno(storage.remove_directory(&path("/x"))), libc::ENOTEMPTY);
    assert_eq!(errno(storage.remove_directory(&path("/x/y/c"))), libc::ENOTDIR);
    assert_eq!(errno(storage.remove_file(&path("/x"))), libc::EISDIR);
    assert_eq!(errno(storage.remove_file(&path("/x/y/c/"))), libc::ENOTDIR);
    assert_eq!(errno(storage.remove_directory(&path("/"))), libc::EBUSY);
    storage.remove_file(&path("/x/y/c")).unwrap();
    assert_eq!(errno(storage.remove_file(&path("/x/y/c"))), libc::ENOENT);
}

#[test]
fn a_link_is_removed_and_not_its_target() {
    let scratch = Scratch::new();
    let storage = scratch.posix();
    storage.open(&path("/f"), &create(0o644)).unwrap();
    symlink("f", scratch.path().join("l")).unwrap();
    storage.remove_file(&path("/l")).unwrap();
    assert!(storage.stat(&path("/f")).is_ok());
}

#[test]
fn names_in_memory_are_looked_up_without_waiting() {
    for directory in [std::env::temp_dir().as_path(), Path::new("/dev/shm")] {
        let scratch = Scratch::within(directory);
        let storage = scratch.posix();
        storage.open(&path("/f"), &create(0o644)).unwrap().write(0, b"abc").unwrap();
        let Now::Done(Ok(metadata)) = storage.stat_now(&path("/f")) else { panic!("stat") };
        assert_eq!(metadata, storage.stat(&path("/f")).unwrap());
        let Now::Done(Ok(file)) = storage.open_now(&path("/f"), &update()) else { panic!("open") };
        assert_eq!(file.stat().unwrap(), metadata);
        // A call that changes something goes to the pool.
        assert!(matches!(storage.open_now(&path("/g"), &create(0o644)), Now::WouldBlock));
        let cut = OpenMode { write: true, truncate: true, create: None };
        assert!(matches!(storage.open_now(&path("/f"), &cut), Now::WouldBlock));
        assert_eq!(file.stat().unwrap().size, 3);
        // So does a link that has to be checked.
        symlink(scratch.path().join("f"), scratch.path().join("l")).unwrap();
        storage.stat(&path("/l")).unwrap();
        assert!(matches!(storage.stat_now(&path("/l")), Now::WouldBlock));
        let Now::Done(opened) = storage.open_now(&path("/"), &OpenMode::default()) else { panic!("root") };
        assert_eq!(errno(opened), libc::EISDIR);
    }
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("f"), "x").unwrap();
    let storage = scratch.posix_without(DisabledFeatures { openat2: true, ..DisabledFeatures::default() });
    assert!(matches!(storage.stat_now(&path("/f")), Now::WouldBlock));
    assert!(matches!(storage.open_now(&path("/f"), &OpenMode::default()), Now::WouldBlock));
}

#[test]
fn a_large_directory_is_read_in_pages() {
    const NAMES: usize = 100_000;
    const PAGE: usize = 1000;
    let scratch = Scratch::within(Path::new("/dev/shm"));
    let directory =
        rustix::fs::open(scratch.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for n in 0..NAMES {
        rustix::fs::symlinkat("x", &directory, format!("n{n}")).unwrap();
    }
    let storage = scratch.posix();
    let mut listing = storage.list(&path("/")).unwrap();
    assert_eq!(listing.position(), None);
    let mut seen = std::collections::HashSet::new();
    loop {
        let middle = (seen.len() == NAMES / 2).then(|| listing.position().unwrap());
        let page = listing.next(PAGE).unwrap();
        assert!(page.len() <= PAGE);
        if let Some(middle) = middle {
            let mut other = storage.list(&path("/")).unwrap();
            other.go_to(middle).unwrap();
            assert_eq!(other.position(), Some(middle));
            assert_eq!(other.next(PAGE).unwrap(), page);
            assert_eq!(other.position(), listing.position());
        }
        if page.is_empty() {
            break;
        }
        assert!(page.len() == PAGE || seen.len() + page.len() == NAMES, "pages are full until the end");
        seen.extend(page.into_iter().map(|entry| entry.name));
    }
    assert_eq!(seen.len(), NAMES);
    assert!(listing.next(PAGE).unwrap().is_empty());
}

#[test]
fn names_are_bytes_and_entries_stay_in_their_directory() {
    use std::os::unix::ffi::OsStrExt;
    let (scratch, outside) = (Scratch::new(), Scratch::new());
    std::fs::write(outside.path().join("secret"), "secret").unwrap();
    let odd = b"a b\n\xff\xfe";
    std::fs::create_dir(scratch.path().join("d")).unwrap();
    std::fs::write(scratch.path().join("d").join(std::ffi::OsStr::from_bytes(odd)), "12345").unwrap();
    std::fs::write(scratch.path().join("up"), "1").unwrap();
    symlink("../up", scratch.path().join("d/up")).unwrap();
    symlink(outside.path().join("secret"), scratch.path().join("d/out")).unwrap();
    symlink("nothing", scratch.path().join("d/lost")).unwrap();
    for without in ways() {
        let storage = scratch.posix_without(without);
        storage.set_attribute(&path("/up"), "user.colour", b"red", false).unwrap();
        let mut listing = storage.list(&path("/d/")).unwrap();
        let mut names: Vec<_> = listing.next(100).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        assert_eq!(names, [&odd[..], b"lost", b"out", b"up"]);
        assert_eq!(listing.stat(odd).unwrap().size, 5);
        assert_eq!(listing.attribute(odd, "user.colour").unwrap(), None);
        assert_eq!(listing.stat(b"up").unwrap().size, 1);
        assert_eq!(listing.attribute(b"up", "user.colour").unwrap().as_deref(), Some(&b"red"[..]));
        assert_eq!(errno(listing.stat(b"out")), libc::EACCES);
        assert_eq!(errno(listing.attribute(b"out", "user.colour")), libc::EACCES);
        assert_eq!(errno(listing.stat(b"lost")), libc::ENOENT);
        for bad in [&b".."[..], b".", b"", b"../up", b"a/b", b"x\0"] {
            assert_eq!(errno(listing.stat(bad)), libc::EINVAL);
            assert_eq!(errno(listing.attribute(bad, "user.x")), libc::EINVAL);
        }
        assert_eq!(errno(storage.list(&path("/up"))), libc::ENOTDIR);
        assert_eq!(errno(storage.list(&path("/no"))), libc::ENOENT);
    }
}

#[test]
fn no_descriptor_leaks() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let scratch = Scratch::new();
    symlink(scratch.path().join("f"), scratch.path().join("l")).unwrap();
    // Concurrent tests open files too, so the test compares the count after repetition.
    let repeat = || {
        for without in ways() {
            let storage = scratch.posix_without(without);
            let _ = storage.open(&path("/x/y"), &create(0o644));
            storage.open(&path("/f"), &create(0o644)).unwrap();
            storage.stat(&path("/l")).unwrap();
            let _ = storage.stat(&path("/no/x"));
            storage.list(&path("/")).unwrap().next(10).unwrap();
            storage.usage(&path("/no/x"), None).unwrap();
            storage.set_mode(&path("/l"), 0o600).unwrap();
            storage.remove_file(&path("/f")).unwrap();
        }
    };
    repeat();
    let before = open();
    for _ in 0..500 {
        repeat();
    }
    assert!(open() < before + 500, "each repetition leaks a descriptor");
}

#[test]
fn a_rename_that_keeps_what_exists_is_one_step_of_the_kernel() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    let storage = Posix::new(&Config::new(scratch.path())).unwrap();
    for name in ["f", "g"] {
        std::fs::write(at(name), name).unwrap();
    }
    std::fs::create_dir(at("d")).unwrap();
    symlink("nowhere", at("link")).unwrap();
    let keeping =
        |from: &str, to: &str| storage.rename(&path(from), &path(to), ExistingName::Keep, Some(&PARENTS));
    // A link counts as itself, whether its target exists or not.
    for name in ["/g", "/d", "/link", "/f"] {
        assert_eq!(errno(keeping("/f", name)), libc::EEXIST, "{name}");
    }
    assert_eq!(content(&storage, "/f").unwrap() + &content(&storage, "/g").unwrap(), "fg");
    keeping("/f", "/new/f").unwrap();
    assert_eq!(content(&storage, "/new/f").unwrap(), "f");
    keeping("/new", "/e").unwrap();
    assert_eq!(content(&storage, "/e/f").unwrap(), "f");
    assert_eq!(errno(keeping("/f", "/h")), libc::ENOENT);
}
