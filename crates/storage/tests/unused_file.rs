//! Removal of files that no process has open.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod common;

use common::{Scratch, path};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use storage::{Backend as _, CreateMode, FileRemoval, Leftovers, OpenMode, Posix, UnusedFile};

fn claim(backend: &Posix, name: &str) -> std::io::Result<Box<dyn UnusedFile>> {
    backend.transfers().unwrap().claim_unused(&path(name))
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_file_that_is_open_is_not_unused() {
    let root = Scratch::new();
    let backend = root.posix();
    let place = root.path().join("f");
    fs::write(&place, "content").unwrap();
    let reader = File::open(&place).unwrap();
    assert_eq!(errno(claim(&backend, "/f")), Some(libc::EBUSY));
    drop(reader);
    let writer = OpenOptions::new().append(true).open(&place).unwrap();
    assert_eq!(errno(claim(&backend, "/f")), Some(libc::EBUSY));
    drop(writer);
    let handle = backend.open(&path("/f"), &OpenMode::default()).unwrap();
    assert_eq!(errno(claim(&backend, "/f")), Some(libc::EBUSY));
    drop(handle);
    let unused = claim(&backend, "/f").unwrap();
    assert_eq!(unused.stat().unwrap().size, 7);
    assert_eq!(unused.attribute("user.none").unwrap(), None);
    assert!(unused.attributes().unwrap().is_empty());
    assert!(unused.allocated().unwrap() >= 7);
    assert_eq!(unused.remove().unwrap(), FileRemoval::Removed);
    assert!(root.names().is_empty());
}

#[test]
fn what_is_not_one_file_with_one_name_stays() {
    let root = Scratch::new();
    let backend = root.posix();
    fs::write(root.path().join("f"), "content").unwrap();
    fs::hard_link(root.path().join("f"), root.path().join("second")).unwrap();
    symlink("f", root.path().join("link")).unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    assert_eq!(errno(claim(&backend, "/f")), Some(libc::EMLINK));
    assert_eq!(errno(claim(&backend, "/pipe")), Some(libc::ENOTBLK));
    assert_eq!(errno(claim(&backend, "/link")), Some(libc::ELOOP));
    assert_eq!(errno(claim(&backend, "/d")), Some(libc::ENOTBLK));
    assert_eq!(errno(claim(&backend, "/none")), Some(libc::ENOENT));
    assert_eq!(root.names(), ["d", "f", "link", "pipe", "second"]);
}

#[test]
fn a_file_is_unused_only_at_its_own_path() {
    let root = Scratch::new();
    fs::create_dir_all(root.path().join("hot/deep")).unwrap();
    fs::create_dir(root.path().join("data")).unwrap();
    for name in ["f", "hot/f", "hot/deep/f"] {
        fs::write(root.path().join(name), "content").unwrap();
    }
    symlink("../hot", root.path().join("data/latest")).unwrap();
    symlink(root.path().join("hot"), root.path().join("absolute")).unwrap();
    // A link out of the root, which the configuration allows.
    let outside = Scratch::new();
    fs::write(outside.path().join("f"), "content").unwrap();
    symlink(outside.path(), root.path().join("disk")).unwrap();
    let mut config = storage::posix::Config::new(root.path());
    config.links_to = vec![outside.path().to_owned()];
    let backend = Posix::new(&config).unwrap();
    for name in ["/data/latest/f", "/data/latest/deep/f", "/absolute/f"] {
        assert_eq!(errno(claim(&backend, name)), Some(libc::ELOOP), "{name}");
    }
    for name in ["/f", "/hot/f", "/hot/deep/f", "/disk/f"] {
        assert_eq!(errno(claim(&backend, name)), None, "{name}");
    }
}

#[test]
fn another_file_that_got_the_name_stays() {
    let root = Scratch::new();
    let backend = root.posix();
    fs::write(root.path().join("f"), "old").unwrap();
    fs::write(root.path().join("new"), "new").unwrap();
    let unused = claim(&backend, "/f").unwrap();
    fs::rename(root.path().join("new"), root.path().join("f")).unwrap();
    assert_eq!(errno(unused.remove()), Some(libc::ESTALE));
    assert_eq!(fs::read(root.path().join("f")).unwrap(), b"new");
    fs::create_dir(root.path().join("d")).unwrap();
    fs::write(root.path().join("d/f"), "deep").unwrap();
    let unused = claim(&backend, "/d/f").unwrap();
    fs::rename(root.path().join("d"), root.path().join("moved")).unwrap();
    assert!(unused.remove().is_err());
    assert_eq!(fs::read(root.path().join("moved/f")).unwrap(), b"deep");
}

#[test]
fn an_open_that_waits_gets_the_file_with_its_name() {
    let root = Scratch::new();
    let backend = root.posix();
    let place = root.path().join("f");
    fs::write(&place, "old ").unwrap();
    let unused = claim(&backend, "/f").unwrap();
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            begun.store(true, Ordering::Release);
            // This is the call of a local program: it waits for the end of the lease.
            OpenOptions::new().append(true).open(&place)?.write_all(b"and new")
        });
        let mut unused = Some(unused);
        while let Some(file) = unused.take() {
            if begun.load(Ordering::Acquire) && is_wanted(&place) {
                assert_eq!(errno(file.remove()), Some(libc::EBUSY));
            } else {
                unused = Some(file);
                std::thread::yield_now();
            }
        }
        writer.join().unwrap().unwrap();
    });
    assert_eq!(root.names(), ["f"]);
    assert_eq!(fs::read(&place).unwrap(), b"old and new");
    assert!(backend.attributes(&path("/f")).unwrap().is_empty());
}

/// Reports whether a lease of a file is about to be broken, from the list of the system.
fn is_wanted(place: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = format!(":{} ", fs::metadata(place).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|line| line.contains("LEASE") && line.contains("BREAKING") && line.contains(&inode))
}

#[test]
fn a_crash_during_a_removal_leaves_what_the_next_start_removes() {
    let root = Scratch::new();
    let backend = root.posix();
    // The state between the two steps of a removal.
    let digits = digest::RunningChecksum::of(digest::Algorithm::Sha256, b"purge/f").hex();
    let hidden = root.path().join(format!(".scalla-incoming-{}", &digits[..32]));
    let crash = || {
        fs::write(&hidden, "old").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&hidden, "user.scalla.incoming", b"1", flags).unwrap();
    };
    crash();
    let left = backend.transfers().unwrap().remove_leftovers(&path("/")).unwrap();
    assert_eq!(left, Leftovers { removed: 1, ..Leftovers::default() });
    assert!(root.names().is_empty());
    // The file system was too full for the attribute.
    fs::write(&hidden, "old").unwrap();
    let time = |seconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time(0x005c_a11a), last_modification: time(7) };
    rustix::fs::futimens(File::open(&hidden).unwrap(), &times).unwrap();
    let left = backend.transfers().unwrap().remove_leftovers(&path("/")).unwrap();
    assert_eq!(left, Leftovers { removed: 1, ..Leftovers::default() });
    // It is in the way of nothing before, and what somebody else put there stays.
    crash();
    fs::write(root.path().join("f"), "new").unwrap();
    claim(&backend, "/f").unwrap().remove().unwrap();
    assert!(root.names().is_empty(), "{:?}", root.names());
    fs::write(&hidden, "of somebody").unwrap();
    fs::write(root.path().join("f"), "new").unwrap();
    assert_eq!(errno(claim(&backend, "/f").unwrap().remove()), Some(libc::EEXIST));
    assert_eq!(root.names().len(), 2);
}

/// Clients open the file all the time, as the server does, while it is removed and comes back. None
/// gets a file that is gone: each write is in the file, or the file of that write was still there.
#[test]
fn no_write_of_a_client_is_lost() {
    let root = Scratch::new();
    let backend = root.posix();
    let place = root.path().join("f");
    let (written, removed) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = std::sync::Arc::new(());
    let is_running = std::sync::Arc::downgrade(&end);
    std::thread::scope(|scope| {
        let _end = end;
        for _ in 0..3 {
            scope.spawn(|| {
                while is_running.strong_count() > 0 {
                    let create = CreateMode {
                        exclusive: false,
                        mode: 0o644,
                        parents: None,
                        size_hint: None,
                        space: None,
                        beside: None,
                        at: None,
                    };
                    let how = OpenMode { write: true, create: Some(create), ..OpenMode::default() };
                    let file = match backend.open(&path("/f"), &how) {
                        // The thread that removes the file had no processor for long. Clients repeat it.
                        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => continue,
                        opened => opened.unwrap(),
                    };
                    assert_eq!(file.stat().unwrap().inode, inode_of(&place), "the file is gone");
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let until = Instant::now() + Duration::from_secs(300);
        while removed.load(Ordering::Relaxed) < 30 {
            assert!(Instant::now() < until, "the clients have ended, or no claim succeeds");
            match claim(&backend, "/f").map(UnusedFile::remove) {
                Ok(Ok(_)) => {
                    removed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Err(error)) | Err(error) => {
                    let known = [libc::EBUSY, libc::ENOENT, libc::ESTALE];
                    assert!(error.raw_os_error().is_some_and(|number| known.contains(&number)), "{error}");
                }
            }
        }
    });
    assert!(written.load(Ordering::Relaxed) > 0);
}

/// Returns the inode at a path. It is called while the file is open, so nobody removes it.
fn inode_of(place: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(place).unwrap().ino()
}

/// Renames, pins and migrations hold files, and a purge examines each file in turn.
#[test]
fn a_file_that_is_examined_is_held_at_the_end_of_the_examination() {
    let root = Scratch::new();
    let backend = root.posix();
    let place = root.path().join("f");
    fs::write(&place, b"1").unwrap();
    // The wait is limited, so a slow machine may need several tries.
    let held = (0..100).any(|_| {
        let claimed = claim(&backend, "/f").unwrap();
        std::thread::scope(|scope| {
            let holding = scope.spawn(|| backend.transfers().unwrap().hold(&path("/f")).is_ok());
            while !is_wanted(&place) && !holding.is_finished() {
                std::thread::yield_now();
            }
            // An open that does not wait repeats itself for a moment, and then fails.
            let _ = (0..20).any(|_| holding.is_finished() || !is_wanted(&place));
            drop(claimed);
            holding.join().unwrap()
        })
    });
    assert!(held);
}
