//! Tests of trees of plain files.

use super::*;
use std::os::unix::fs::symlink;

fn path(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

struct TestDirectory(std::path::PathBuf);

impl TestDirectory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn number<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_mount_has_a_number_of_its_own() {
    let root = TestDirectory::new("tree-mounted");
    let of = |root: &Path| PlainTree::open(root).unwrap().mounted();
    let here = of(root.path());
    assert_eq!(here, of(root.path()));
    // Each system has this mount. Without numbers of mounts, there is none.
    assert!(here.is_none() || here != of(Path::new("/proc")));
}

#[test]
fn the_space_of_a_range_is_freed_and_the_size_stays() {
    const PIECE: usize = 1 << 20;
    let root = TestDirectory::new("tree-discard");
    let file = PlainTree::open(root.path()).unwrap().create_file(&path("/f")).unwrap();
    file.write_at(0, &vec![7; 3 * PIECE + 10]).unwrap();
    file.sync().unwrap();
    let before = file.status().unwrap();
    match file.discard(PIECE as u64, PIECE as u64) {
        // Not each file system can.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => return,
        other => other.unwrap(),
    }
    // The end of the file is within the last page.
    file.discard(3 * PIECE as u64, 4096).unwrap();
    let after = file.status().unwrap();
    assert_eq!(after.size, before.size);
    assert!(after.allocated + PIECE as u64 <= before.allocated, "{before:?} {after:?}");
    let mut content = vec![1; 3 * PIECE + 10];
    assert_eq!(file.read_at(0, &mut content).unwrap(), content.len());
    let mut expected = vec![7; 3 * PIECE + 10];
    expected[PIECE..2 * PIECE].fill(0);
    expected[3 * PIECE..].fill(0);
    assert!(content == expected);
    assert_eq!(number(file.discard(0, 0)), Some(Errno::INVAL.raw_os_error()));
}

#[test]
fn a_copy_of_a_tree_is_another_one() {
    let (one, other) = (TestDirectory::new("tree-one"), TestDirectory::new("tree-other"));
    let identity = |root: &TestDirectory| PlainTree::open(root.path()).unwrap().identity(&path("/d/lock"));
    assert_eq!(number(identity(&one)), Some(Errno::NOENT.raw_os_error()));
    for root in [&one, &other] {
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::write(root.path().join("d/lock"), b"").unwrap();
    }
    let before = identity(&one).unwrap();
    assert_ne!(before, identity(&other).unwrap());
    std::fs::write(one.path().join("another"), b"").unwrap();
    assert_eq!(before, identity(&one).unwrap());
}

#[test]
fn a_file_has_a_second_name_only_if_its_tree_has_given_it() {
    let root = TestDirectory::new("plain-second");
    let tree = PlainTree::open(root.path()).unwrap();
    let (first, second, third) = (path("/d/f"), path("/own/1"), root.path().join("third"));
    let file = tree.create_file(&first).unwrap();
    tree.add_name(&first, &second).unwrap();
    let status = tree.open_file(&second).unwrap().status().unwrap();
    assert_eq!((status, status.names), (file.status().unwrap(), 2));
    assert_eq!(number(tree.add_name(&first, &second)), Some(Errno::EXIST.raw_os_error()));
    // Another one would be the only one that is known to belong to the file.
    assert_eq!(number(tree.add_name(&first, &path("/own/2"))), Some(Errno::EXIST.raw_os_error()));
    assert!(tree.open_file(&first).is_ok() && tree.open_file(&path("/own/2")).is_err());
    std::fs::hard_link(root.path().join("d/f"), &third).unwrap();
    assert_eq!(number(tree.open_file(&first)), Some(Errno::MLINK.raw_os_error()));
    std::fs::remove_file(third).unwrap();
    assert!(tree.open_file(&first).is_ok());
}

#[test]
fn the_mark_of_a_removed_second_name_admits_no_other_one() {
    let root = TestDirectory::new("plain-second-removed");
    let tree = PlainTree::open(root.path()).unwrap();
    let (first, second, other) = (path("/d/f"), path("/own/1"), root.path().join("other"));
    let file = tree.create_file(&first).unwrap();
    tree.add_name(&first, &second).unwrap();
    // As another program does after a crash.
    std::fs::remove_file(root.path().join("own/1")).unwrap();
    std::fs::hard_link(root.path().join("d/f"), &other).unwrap();
    assert_eq!(number(tree.open_file(&first)), Some(Errno::MLINK.raw_os_error()));
    std::fs::remove_file(&other).unwrap();
    tree.add_name(&first, &second).unwrap();
    tree.remove_file(&second).unwrap();
    assert_eq!(file.status().unwrap().names, 1);
    // A program can still have it open.
    assert!(file.has_attribute(SECOND_NAME_ATTRIBUTE).unwrap());
    file.remove_attribute(SECOND_NAME_ATTRIBUTE).unwrap();
    assert!(!file.has_attribute(SECOND_NAME_ATTRIBUTE).unwrap());
    file.remove_attribute(SECOND_NAME_ATTRIBUTE).unwrap();
}

#[test]
fn files_are_opened_while_it_is_found_out_who_has_them_open() {
    let root = TestDirectory::new("plain-lease");
    let tree = PlainTree::open(root.path()).unwrap();
    let file = tree.create_file(&path("/f")).unwrap();
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(std::sync::atomic::Ordering::Acquire) {
                file.is_open_elsewhere().unwrap();
            }
        });
        let failed = (0..300).filter_map(|_| tree.open_file(&path("/f")).err()).next();
        has_ended.store(true, std::sync::atomic::Ordering::Release);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn a_file_is_opened_while_it_gets_and_loses_its_second_name() {
    let root = TestDirectory::new("plain-second-race");
    let tree = PlainTree::open(root.path()).unwrap();
    let (first, second) = (path("/d/f"), path("/own/1"));
    drop(tree.create_file(&first).unwrap());
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(std::sync::atomic::Ordering::Acquire) {
                tree.add_name(&first, &second).unwrap();
                tree.remove_file(&second).unwrap();
            }
        });
        let failed = (0..20_000).filter_map(|_| tree.open_file(&first).err()).next();
        has_ended.store(true, std::sync::atomic::Ordering::Release);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn a_file_that_is_open_elsewhere_is_noticed() {
    let root = TestDirectory::new("plain-open");
    let tree = PlainTree::open(root.path()).unwrap();
    let file = tree.create_file(&path("/f")).unwrap();
    assert!(!file.is_open_elsewhere().unwrap());
    let reader = File::open(root.path().join("f")).unwrap();
    assert!(file.is_open_elsewhere().unwrap());
    std::fs::remove_file(root.path().join("f")).unwrap();
    assert!(file.is_open_elsewhere().unwrap());
    drop(reader);
    assert!(!file.is_open_elsewhere().unwrap());
}

#[test]
fn a_read_without_waiting_has_all_bytes_or_none_count() {
    let root = TestDirectory::new("plain-now");
    let file = PlainTree::open(root.path()).unwrap().create_file(&path("/f")).unwrap();
    file.write_at(0, &[7; 5000]).unwrap();
    let (mut one, mut other) = ([9; 20], [9; 5]);
    let mut read =
        |offset| file.read_now(offset, &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)]);
    assert!(!read(4980), "bytes behind the end");
    assert!(!read(u64::MAX));
    // File systems that cannot tell always refuse.
    assert!(!read(100) || (one, other) == ([7; 20], [7; 5]));
}

#[test]
fn files_are_created_read_renamed_and_removed() {
    let root = TestDirectory::new("plain-tree");
    let tree = PlainTree::open(root.path()).unwrap();
    let file = tree.create_file(&path("/a/b/f")).unwrap();
    file.write_at(5, b"hello").unwrap();
    let mut bytes = [9; 20];
    assert_eq!((file.read_at(3, &mut bytes).unwrap(), &bytes[..7]), (7, &b"\0\0hello"[..]));
    assert_eq!(file.status().unwrap().size, 10);
    assert_eq!(number(tree.create_file(&path("/a/b/f"))), Some(libc::EEXIST));
    tree.rename(&path("/a/b/f"), &path("/c/g")).unwrap();
    tree.sync_directory(&path("/c")).unwrap();
    tree.sync_directory(&path("/")).unwrap();
    let mut names: Vec<_> = tree.list(&path("/")).unwrap().map(Result::unwrap).collect();
    names.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(names, [(b"a".to_vec(), PlainKind::Directory), (b"c".to_vec(), PlainKind::Directory)]);
    assert_eq!(number(tree.open_file(&path("/a/b/f"))), Some(libc::ENOENT));
    assert!(tree.open_file(&path("/c/g")).unwrap().try_lock().unwrap());
    tree.remove_file(&path("/c/g")).unwrap();
    tree.remove_directory(&path("/c")).unwrap();
    assert_eq!(number(tree.open_file(&path("/c/g"))), Some(libc::ENOENT));
    assert_eq!(number(tree.open_file(&path("/a/b"))), Some(libc::EISDIR));
}

#[test]
fn a_file_is_created_while_its_empty_directories_are_removed() {
    let root = TestDirectory::new("plain-race");
    let tree = PlainTree::open(root.path()).unwrap();
    // One removal of each directory for each file, as by a cache: without an end of removals, no number of tries is
    // enough.
    let begun = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while seen != usize::MAX {
                let now = begun.load(std::sync::atomic::Ordering::Acquire);
                if std::mem::replace(&mut seen, now) == now {
                    std::thread::yield_now();
                    continue;
                }
                ["/a/b", "/a"].into_iter().for_each(|name| drop(tree.remove_directory(&path(name))));
            }
        });
        let created = (1..=3000).map(|number| {
            begun.store(number, std::sync::atomic::Ordering::Release);
            tree.create_file(&path("/a/b/f"))?;
            tree.remove_file(&path("/a/b/f"))
        });
        let failed = created.filter_map(Result::err).next();
        begun.store(usize::MAX, std::sync::atomic::Ordering::Release);
        assert!(failed.is_none(), "{failed:?}");
    });
}

#[test]
fn links_and_files_with_several_names_are_refused() {
    let root = TestDirectory::new("plain-links");
    let outside = TestDirectory::new("plain-outside");
    std::fs::write(outside.path().join("f"), b"secret").unwrap();
    symlink(outside.path(), root.path().join("d")).unwrap();
    symlink(outside.path().join("f"), root.path().join("f")).unwrap();
    symlink(outside.path().join("new"), root.path().join("new")).unwrap();
    std::fs::write(root.path().join("one"), b"x").unwrap();
    std::fs::hard_link(root.path().join("one"), root.path().join("two")).unwrap();
    let tree = PlainTree::open(root.path()).unwrap();
    assert_eq!(number(tree.open_file(&path("/d/f"))), Some(libc::ENOTDIR));
    assert_eq!(number(tree.create_file(&path("/d/g"))), Some(libc::ENOTDIR));
    assert_eq!(number(tree.remove_file(&path("/d/f"))), Some(libc::ENOTDIR));
    assert_eq!(number(tree.list(&path("/d")).map(drop)), Some(libc::ENOTDIR));
    assert_eq!(number(tree.open_file(&path("/f"))), Some(libc::ELOOP));
    assert_eq!(number(tree.create_file(&path("/new"))), Some(libc::EEXIST));
    assert_eq!(number(tree.open_file(&path("/two"))), Some(libc::EMLINK));
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "nothing was created outside");
}
