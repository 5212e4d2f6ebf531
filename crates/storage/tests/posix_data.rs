//! Tests of data on POSIX storage: reads and writes with and without waiting, attributes, clones,
//! usage, pools.

#![allow(clippy::unwrap_used)]

mod common;

use base::CopyRange;
use common::{Scratch, create, errno, path, update};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use storage::posix::{Config, DisabledFeatures, POOL_THREADS_MAX, Posix};
use storage::{Backend, Now, OpenMode, StoredFile};

fn directories() -> [PathBuf; 2] {
    [std::env::temp_dir(), PathBuf::from("/dev/shm")]
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

fn all(file: &dyn StoredFile) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.stat().unwrap().size).unwrap() + 1];
    let got = file.read(0, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

#[test]
fn reading_without_waiting_returns_the_same_data_or_would_block() {
    let without_nowait = DisabledFeatures { nowait: true, ..DisabledFeatures::default() };
    for (directory, without) in directories()
        .into_iter()
        .flat_map(|f| [(f.clone(), DisabledFeatures::default()), (f, without_nowait)])
    {
        let scratch = Scratch::within(&directory);
        let storage = scratch.posix_without(without);
        let file = storage.open(&path("/f"), &create(0o644)).unwrap();
        let data = pattern(100_000);
        file.write(0, &data).unwrap();
        let on_the_spot = |offset: u64, length: usize| {
            let (mut buffer, mut out) = (vec![0xee; length], b"before".to_vec());
            let read = match file.read_now(offset, &mut buffer) {
                Now::Done(got) => Some(buffer[..got.unwrap()].to_vec()),
                Now::WouldBlock => None,
            };
            let appended = match file.append_now(offset, length, &mut out) {
                Now::Done(got) => Some(got.unwrap()),
                Now::WouldBlock => None,
            };
            assert_eq!(appended, read.as_ref().map(Vec::len), "{offset} {length}");
            let read_bytes = read.as_deref().unwrap_or_default();
            assert!(out == [b"before", read_bytes].concat(), "{offset} {length}");
            read
        };
        // overlayfs, as in containers, cannot read without waiting either.
        const OVERLAYFS: u64 = 0x794c_7630;
        let refuses = without.nowait || rustix::fs::statfs(&directory).unwrap().f_type as u64 == OVERLAYFS;
        let is_disk = refuses && directory != Path::new("/dev/shm");
        for (offset, length) in [(0, 1), (4095, 2), (1, 70_000), (99_990, 100), (0, 200_000)] {
            let want = &data[offset..data.len().min(offset + length)];
            match on_the_spot(offset as u64, length) {
                Some(got) => assert!(got == want && !is_disk, "{offset} {length}"),
                None => assert!(is_disk, "data just written is in memory"),
            }
        }
        // At and beyond the end of the file a read never waits.
        for offset in [100_000, 100_001, 1 << 40, i64::MAX as u64, u64::MAX] {
            assert_eq!(on_the_spot(offset, 10), Some(Vec::new()), "{offset}");
            assert_eq!(file.read(offset, &mut [0; 10]).unwrap(), 0, "{offset}");
        }
        assert_eq!(file.read(i64::MAX as u64 - 5, &mut [0; 100]).unwrap(), 0);
        // A file truncated during reading ends at its new end.
        file.truncate(5000).unwrap();
        assert_eq!(file.read(4000, &mut [0; 4000]).unwrap(), 1000);
        if let Some(got) = on_the_spot(4000, 4000) {
            assert_eq!(got, &data[4000..5000]);
        }
    }
}

#[test]
fn reading_cold_data_without_waiting_is_correct() {
    let scratch = Scratch::new();
    let storage = scratch.posix();
    let data = pattern(8 << 20);
    let file = storage.open(&path("/f"), &create(0o644)).unwrap();
    file.write(0, &data).unwrap();
    file.sync().unwrap();
    rustix::fs::fadvise(file.descriptor().unwrap(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
    // The kernel may ignore the advice and may read ahead, but the data must be right.
    let mut buffer = vec![0; 1 << 20];
    for piece in (0..8).rev() {
        let offset = piece << 20;
        if let Now::Done(got) = file.read_now(offset as u64, &mut buffer) {
            assert_eq!(got.unwrap(), buffer.len());
            assert!(buffer == data[offset..offset + buffer.len()]);
        }
    }
    file.prefetch(0, data.len() as u64);
    assert!(all(&*file) == data);
    // The data is in memory now. The file leaves the state of asking before each read at the latest
    // after its limit.
    let here = (0..100)
        .any(|_| matches!(file.read_now(0, &mut buffer), Now::Done(Ok(read)) if read == buffer.len()));
    let never = matches!(file.read_now(0, &mut []), Now::WouldBlock);
    assert!(here || never);
}

#[test]
fn writing_without_waiting_stores_the_data() {
    for directory in directories() {
        let scratch = Scratch::within(&directory);
        let storage = scratch.posix();
        let file = storage.open(&path("/f"), &create(0o644)).unwrap();
        let data = pattern(300_000);
        let mut now = 0;
        for (n, piece) in data.chunks(10_007).enumerate().rev() {
            let offset = (n * 10_007) as u64;
            match file.write_now(offset, piece) {
                Now::Done(done) => {
                    done.unwrap();
                    now += 1;
                }
                Now::WouldBlock => file.write(offset, piece).unwrap(),
            }
        }
        assert!(now > 0, "no write was made without waiting");
        assert!(all(&*file) == data);
        file.sync().unwrap();
    }
}

#[test]
fn the_maximum_file_size_is_enforced() {
    let scratch = Scratch::new();
    let config = Config { file_bytes_max: Some(1000), ..Config::new(scratch.path()) };
    let storage = Posix::new(&config).unwrap();
    let file = storage.open(&path("/f"), &create(0o644)).unwrap();
    file.write(990, &[1; 10]).unwrap();
    assert_eq!(errno(file.write(991, &[1; 10])), libc::EFBIG);
    assert_eq!(errno(file.write(u64::MAX, &[1; 10])), libc::EFBIG);
    let Now::Done(done) = file.write_now(1000, &[1]) else { panic!("a refused write must not block") };
    assert_eq!(errno(done), libc::EFBIG);
    assert_eq!(errno(file.truncate(1001)), libc::EFBIG);
    assert_eq!(errno(storage.truncate(&path("/f"), 1001)), libc::EFBIG);
    assert_eq!(errno(file.clone_range(&*file, range(0, 500, 501))), libc::EFBIG);
    file.truncate(1000).unwrap();
    assert_eq!(file.stat().unwrap().size, 1000);
    // Without a configured limit, that of the operating system applies.
    let file = scratch.posix().open(&path("/f"), &update()).unwrap();
    assert_eq!(errno(file.write(i64::MAX as u64, &[1])), libc::EFBIG);
    assert_eq!(errno(file.truncate(u64::MAX)), libc::EFBIG);
    assert_eq!(file.stat().unwrap().size, 1000);
}

#[test]
fn attributes_of_paths_and_files_are_the_same() {
    let no_proc = DisabledFeatures { proc: true, ..DisabledFeatures::default() };
    for without in [DisabledFeatures::default(), no_proc] {
        let scratch = Scratch::new();
        let storage = scratch.posix_without(without);
        let at = path("/f");
        let file = storage.open(&at, &create(0o600)).unwrap();
        assert_eq!(storage.attribute(&at, "user.a").unwrap(), None);
        storage.set_attribute(&at, "user.a", b"", true).unwrap();
        assert_eq!(file.attribute("user.a").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(errno(file.set_attribute("user.a", b"x", true)), libc::EEXIST);
        assert_eq!(errno(storage.set_attribute(&at, "user.a", b"x", true)), libc::EEXIST);
        // Larger than the first buffer for a value.
        let long = pattern(2000);
        file.set_attribute("user.a", &long, false).unwrap();
        assert!(storage.attribute(&at, "user.a").unwrap() == Some(long));
        for n in 0..40 {
            storage.set_attribute(&at, &format!("user.U.name{n:02}"), b"1", false).unwrap();
        }
        let mut names = storage.attributes(&at).unwrap();
        assert_eq!(names.len(), 41, "{names:?}");
        names.sort();
        assert_eq!((&*names[0], &*names[40]), ("user.U.name00", "user.a"));
        assert_eq!(file.attributes().unwrap().len(), 41);
        file.remove_attribute("user.a").unwrap();
        assert_eq!(errno(storage.remove_attribute(&at, "user.a")), libc::ENODATA);
        assert_eq!(errno(file.remove_attribute("user.a")), libc::ENODATA);
        assert_eq!(errno(storage.attribute(&path("/no"), "user.a")), libc::ENOENT);
        assert_eq!(errno(storage.attribute(&at, "user.a\0b")), libc::EINVAL);
        storage.make_directory(&path("/d"), 0o755, None).unwrap();
        storage.set_attribute(&path("/d/"), "user.x", b"dir", false).unwrap();
        assert_eq!(storage.attribute(&path("/d"), "user.x").unwrap().as_deref(), Some(&b"dir"[..]));
    }
}

#[test]
fn a_file_system_without_attributes_returns_eopnotsupp() {
    let storage = Posix::new(&Config::new("/")).unwrap();
    let at = path("/proc/self/comm");
    assert_eq!(errno(storage.attribute(&at, "user.a")), libc::EOPNOTSUPP);
    assert_eq!(errno(storage.set_attribute(&at, "user.a", b"x", false)), libc::EOPNOTSUPP);
    let file = storage.open(&at, &OpenMode::default()).unwrap();
    assert_eq!(errno(file.attribute("user.a")), libc::EOPNOTSUPP);
    // Files that report a size of zero are still readable.
    assert!(all(&*file).len() <= 1 && file.read(0, &mut [0; 5]).unwrap() > 0);
}

fn range(from: u64, length: u64, to: u64) -> CopyRange {
    CopyRange { from, to, length }
}

#[test]
fn clones_are_exact_for_all_offsets_and_methods() {
    let copies = DisabledFeatures { reflink: true, ..DisabledFeatures::default() };
    let ways = [DisabledFeatures::default(), copies, DisabledFeatures { copy_file_range: true, ..copies }];
    for (directory, without) in
        directories().into_iter().flat_map(|directory| ways.map(|way| (directory.clone(), way)))
    {
        let scratch = Scratch::within(&directory);
        let storage = scratch.posix_without(without);
        let source = pattern(3_000_001);
        let from = storage.open(&path("/from"), &create(0o644)).unwrap();
        from.write(0, &source).unwrap();
        let to = storage.open(&path("/to"), &create(0o644)).unwrap();
        let mut want = vec![0_u8; 0];
        let pieces =
            [(0, 3_000_001, 0), (4096, 8192, 4_000_000), (1, 4097, 3), (2_000_001, 1_000_000, 5_000_001)];
        for (at, length, offset) in pieces {
            to.clone_range(&*from, range(at as u64, length as u64, offset as u64)).unwrap();
            want.resize(want.len().max(offset + length), 0);
            want[offset..offset + length].copy_from_slice(&source[at..at + length]);
            assert!(all(&*to) == want, "{at} {length} {offset} {without:?}");
        }
        to.clone_range(&*from, range(0, 0, 9_999_999)).unwrap();
        assert_eq!(
            errno(to.clone_range(&*from, range(3_000_000, 2, 0))),
            libc::EINVAL,
            "the source ends before the range"
        );
        assert_eq!(errno(to.clone_range(&*from, range(u64::MAX, 2, 0))), libc::EINVAL);
        assert!(all(&*to) == want, "a failed clone must not change the file");
        // Within one file: overlapping ranges in both directions.
        for (at, length, offset) in [(0, 2_500_000, 100), (100, 2_900_000, 0), (7, 100, 7)] {
            let file = storage.open(&path("/self"), &OpenMode { truncate: true, ..create(0o644) }).unwrap();
            file.write(0, &source).unwrap();
            file.clone_range(&*file, range(at as u64, length as u64, offset as u64)).unwrap();
            let mut want = source.clone();
            want.copy_within(at..at + length, offset);
            assert!(all(&*file) == want, "{at} {length} {offset} {without:?}");
        }
    }
}

#[test]
fn clones_cross_file_systems() {
    let (disk, memory) = (Scratch::new(), Scratch::within(Path::new("/dev/shm")));
    let from = disk.posix().open(&path("/f"), &create(0o644)).unwrap();
    from.write(0, &pattern(100_000)).unwrap();
    let to = memory.posix().open(&path("/f"), &create(0o644)).unwrap();
    to.clone_range(&*from, range(0, 100_000, 0)).unwrap();
    assert!(all(&*to) == pattern(100_000));
}

#[test]
fn usage_is_that_of_the_file_system() {
    for directory in directories() {
        let scratch = Scratch::within(&directory);
        let figures = rustix::fs::statvfs(scratch.path()).unwrap();
        // A path that does not exist counts for its future file system.
        let usage = scratch.posix().usage(&path("/not/yet/there"), None).unwrap();
        assert_eq!(usage.total, figures.f_blocks * figures.f_frsize);
        assert!(usage.free > 0 && usage.free <= usage.total && usage.largest_free == usage.free);
    }
}

#[test]
fn a_hung_file_system_does_not_delay_others() {
    let storage = Posix::new(&Config::new("/")).unwrap();
    let (disk, memory) = (path("/etc/passwd"), path("/dev/shm/x"));
    assert!(!Arc::ptr_eq(storage.pool(&disk), storage.pool(&memory)));
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let (enter, entered) = mpsc::channel();
    for _ in 0..POOL_THREADS_MAX + 5 {
        let (gate, enter) = (gate.clone(), enter.clone());
        let hang = move || {
            enter.send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
        };
        assert!(storage.pool(&memory).run(base::Owner::SERVER, Box::new(hang)).is_ok());
    }
    entered.iter().take(POOL_THREADS_MAX).for_each(drop);
    assert_eq!(storage.pool(&memory).queued(), 5, "all threads of the pool hang");
    let (tell, told) = mpsc::channel();
    assert!(storage.pool(&disk).run(base::Owner::SERVER, Box::new(move || tell.send(7).unwrap())).is_ok());
    assert_eq!(told.recv(), Ok(7));
    drop(release);
    // An open file uses the pool of its own file system, independent of its path.
    let scratch = Scratch::within(Path::new("/dev/shm"));
    let name = path(&format!("{}/f", scratch.path().display()));
    let file = storage.open(&name, &create(0o644)).unwrap();
    assert!(Arc::ptr_eq(file.pool(), storage.pool(&name)));
}

#[test]
fn descriptors_do_not_pass_to_children() {
    let scratch = Scratch::new();
    let storage = scratch.posix();
    let file = storage.open(&path("/f"), &create(0o644)).unwrap();
    let flags = rustix::io::fcntl_getfd(file.descriptor().unwrap()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let status = rustix::fs::fcntl_getfl(file.descriptor().unwrap()).unwrap();
    assert!(!status.contains(rustix::fs::OFlags::NONBLOCK), "reads through io_uring must be able to wait");
}
