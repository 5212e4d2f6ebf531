//! Files in spaces that come from elsewhere, and their removal.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod common;

use common::{Scratch, errno, path};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use storage::posix::{Config, NAME_ATTRIBUTE, Posix, SpaceConfig};
use storage::{
    Backend as _, ExistingName, FileRemoval, IncomingFile, Leftovers, OpenMode, ParentCreation, UnusedFile,
};

/// Names in one tree, and two spaces.
struct Site {
    names: Scratch,
    public: Scratch,
    other: Scratch,
}

impl Site {
    fn new() -> Self {
        Self { names: Scratch::new(), public: Scratch::new(), other: Scratch::within(Path::new("/dev/shm")) }
    }

    fn posix(&self) -> Posix {
        let partition = |name: &str, disk: &Scratch| config::SpacePartition {
            name: name.to_owned(),
            path: disk.path().to_owned(),
            wildcard: false,
            mount_check: None,
        };
        let assigned = config::SpaceRule {
            name: "other".to_owned(),
            assign: true,
            prefixes: vec!["/assigned".to_owned()],
        };
        let spaces = SpaceConfig {
            partitions: vec![partition("public", &self.public), partition("other", &self.other)],
            rules: vec![assigned],
            in_place: vec![(path("/"), false), (path("/inplace"), true)],
            ..SpaceConfig::default()
        };
        Posix::new(&Config { spaces, ..Config::new(self.names.path()) }).unwrap()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.names.path().join(&name[1..])
    }

    /// Returns the numbers of data files in both spaces.
    fn data(&self) -> [usize; 2] {
        [&self.public, &self.other].map(|disk| {
            let mut todo = vec![disk.path().to_owned()];
            let mut count = 0;
            while let Some(directory) = todo.pop() {
                for entry in fs::read_dir(directory).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() { todo.push(path) } else { count += 1 }
                }
            }
            count
        })
    }
}

fn receive(backend: &Posix, name: &str) -> std::io::Result<Box<dyn IncomingFile>> {
    let parents = ParentCreation::everywhere(0o755);
    backend.transfers().unwrap().receive(&path(name), (0o644, Some(7)), Some(&parents))
}

fn claim(backend: &Posix, name: &str) -> std::io::Result<Box<dyn UnusedFile>> {
    backend.transfers().unwrap().claim_unused(&path(name))
}

fn leftovers(backend: &Posix, directory: &str) -> Leftovers {
    backend.transfers().unwrap().remove_leftovers(&path(directory)).unwrap()
}

/// Stages a file with the content `content`.
fn staged(backend: &Posix, name: &str) {
    let mut file = receive(backend, name).unwrap();
    fs::write(file.local_path().unwrap(), "content").unwrap();
    file.publish().unwrap();
}

#[test]
fn a_staged_file_lies_in_its_space_and_appears_whole() {
    let site = Site::new();
    let backend = site.posix();
    for (name, counts, space) in
        [("/d/f", [1, 0], "public"), ("/assigned/f", [1, 1], "other"), ("/inplace/f", [1, 1], "public")]
    {
        let mut file = receive(&backend, name).unwrap();
        let target = file.local_target().unwrap();
        assert_eq!(target, site.at(name).parent().unwrap().canonicalize().unwrap().join("f"));
        fs::write(file.local_path().unwrap(), "content").unwrap();
        assert_eq!((file.stat().unwrap().size, site.data()), (7, counts));
        assert!(backend.stat(&path(name)).is_err() && fs::symlink_metadata(site.at(name)).is_err());
        file.publish().unwrap();
        let found = backend.stat(&path(name)).unwrap();
        assert_eq!((found.size, found.mode & 0o7777, site.data()), (7, 0o644, counts));
        assert_eq!(backend.space_of(&path(name)), space);
        assert_eq!(fs::read_dir(site.at(name).parent().unwrap()).unwrap().count(), 1);
    }
    // The back reference has XRootD's form.
    let reference = backend.attribute(&path("/d/f"), NAME_ATTRIBUTE).unwrap().unwrap();
    assert_eq!(reference, [site.at("/d/f").to_str().unwrap().as_bytes(), b"\0"].concat());
    assert!(fs::read_link(site.at("/d/f")).unwrap().to_str().unwrap().ends_with('%'));
    assert_eq!(leftovers(&backend, "/d"), Leftovers::default());
}

/// Programs that keep links would copy the name otherwise.
#[test]
fn a_held_file_of_a_space_has_the_path_of_its_data() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/d/f");
    staged(&backend, "/inplace/f");
    let hold = |name: &str| backend.transfers().unwrap().hold(&path(name)).unwrap();
    let held = hold("/d/f");
    assert_eq!(held.data_path().unwrap(), fs::read_link(site.at("/d/f")).unwrap());
    assert_eq!(held.local_path().unwrap(), site.at("/d").canonicalize().unwrap().join("f"));
    let plain = hold("/inplace/f");
    assert_eq!(plain.data_path().unwrap(), plain.local_path().unwrap());
    staged(&backend, "/new");
    backend.rename(&path("/new"), &path("/d/f"), ExistingName::Replace, None).unwrap();
    assert_eq!(errno(held.data_path()), libc::ESTALE);
}

#[test]
fn a_name_that_exists_is_not_replaced_and_a_failed_copy_leaves_nothing() {
    let site = Site::new();
    let backend = site.posix();
    let mut file = receive(&backend, "/f").unwrap();
    symlink("elsewhere", site.at("/f")).unwrap();
    assert_eq!(errno(file.publish()), libc::EEXIST);
    file.discard().unwrap();
    assert_eq!((site.names.names(), site.data()), (vec!["f".to_owned()], [0, 0]));
    assert_eq!(fs::read_link(site.at("/f")).unwrap(), Path::new("elsewhere"));
}

#[test]
fn a_program_may_replace_the_data_file() {
    let site = Site::new();
    let backend = site.posix();
    let mut file = receive(&backend, "/f").unwrap();
    let place = file.local_path().unwrap();
    fs::write(place.with_extension("new"), "replaced").unwrap();
    fs::rename(place.with_extension("new"), &place).unwrap();
    assert_eq!(file.stat().unwrap().size, 8);
    file.publish().unwrap();
    assert_eq!(fs::read(site.at("/f")).unwrap(), b"replaced");
    assert!(backend.attribute(&path("/f"), NAME_ATTRIBUTE).unwrap().is_some());
    assert_eq!(site.data(), [1, 0]);
}

/// An error behind the rename leads to a discard of a file that clients have.
#[test]
fn a_file_that_has_its_name_is_not_discarded() {
    let site = Site::new();
    let backend = site.posix();
    for name in ["/d/f", "/inplace/f"] {
        let mut file = receive(&backend, name).unwrap();
        fs::write(file.local_path().unwrap(), "content").unwrap();
        file.publish().unwrap();
        fs::write(site.at(name), "of a client").unwrap();
        file.discard().unwrap();
        assert_eq!(fs::read(site.at(name)).unwrap(), b"of a client", "{name}");
        assert_eq!(backend.stat(&path(name)).unwrap().mode & 0o7777, 0o644, "{name}");
    }
    // A tool for repairs has found the data by its attribute, and has made the link.
    let mut file = receive(&backend, "/d/g").unwrap();
    fs::write(file.local_path().unwrap(), "content").unwrap();
    symlink(file.local_path().unwrap(), site.at("/d/g")).unwrap();
    assert_eq!(errno(file.publish()), libc::EEXIST);
    file.discard().unwrap();
    assert_eq!(fs::read(site.at("/d/g")).unwrap(), b"content");
    assert_eq!(backend.attribute(&path("/d/g"), "user.scalla.incoming").unwrap(), None);
    assert_eq!(fs::read_dir(site.at("/d")).unwrap().count(), 2);
}

#[test]
fn a_temporary_name_that_leads_to_other_data_by_now_is_left_alone() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/other");
    let file = receive(&backend, "/d/f").unwrap();
    let temporary = fs::read_dir(site.at("/d")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&temporary).unwrap();
    symlink(fs::read_link(site.at("/other")).unwrap(), &temporary).unwrap();
    assert_eq!(errno(file.discard()), libc::ESTALE);
    assert!(fs::symlink_metadata(&temporary).is_ok());
    assert_eq!(fs::read(site.at("/other")).unwrap(), b"content");
}

/// Its partition may be lost or not mounted. A copy could not get the name.
#[test]
fn a_name_that_leads_to_nothing_is_not_staged() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/d/f");
    fs::remove_file(fs::read_link(site.at("/d/f")).unwrap()).unwrap();
    assert_eq!(errno(receive(&backend, "/d/f")), libc::ENOLINK);
    assert_eq!((site.data(), fs::read_dir(site.at("/d")).unwrap().count()), ([0, 0], 1));
}

#[test]
fn a_leftover_on_a_disk_that_is_not_mounted_stays() {
    let site = Site::new();
    let backend = site.posix();
    drop(receive(&backend, "/d/f").unwrap());
    let (space, away) = (site.public.path().join("public"), site.public.path().join("away"));
    fs::rename(&space, &away).unwrap();
    assert_eq!(leftovers(&backend, "/d"), Leftovers { unknown: 1, ..Leftovers::default() });
    assert_eq!(errno(receive(&backend, "/d/f")), libc::EEXIST);
    fs::rename(&away, &space).unwrap();
    assert_eq!(leftovers(&backend, "/d"), Leftovers { removed: 1, ..Leftovers::default() });
    assert_eq!((site.data(), fs::read_dir(site.at("/d")).unwrap().count()), ([0, 0], 0));
}

/// Sets whether entries of a directory can be removed, and reports whether that is possible here.
fn set_fixed(directory: &Path, is_fixed: bool) -> bool {
    if !rustix::process::geteuid().is_root() {
        let mode = if is_fixed { 0o555 } else { 0o755 };
        return fs::set_permissions(directory, fs::Permissions::from_mode(mode)).is_ok();
    }
    let flags = if is_fixed { rustix::fs::IFlags::IMMUTABLE } else { rustix::fs::IFlags::empty() };
    fs::File::open(directory).is_ok_and(|open| rustix::fs::ioctl_setflags(open, flags).is_ok())
}

/// A directory whose entries cannot be removed until its end, also that of a failed test.
struct Fixed<'a>(&'a Path);

impl Drop for Fixed<'_> {
    fn drop(&mut self) {
        set_fixed(self.0, false);
    }
}

#[test]
fn a_file_whose_data_cannot_be_removed_keeps_its_name() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/assigned/f");
    let data = fs::read_link(site.at("/assigned/f")).unwrap();
    let above = data.parent().unwrap();
    let unused = claim(&backend, "/assigned/f").unwrap();
    if !set_fixed(above, true) {
        // Root can remove everything on a file system without such flags.
        return;
    }
    let fixed = Fixed(above);
    let removed = unused.remove();
    let hidden = site.at("/assigned").join(format!(".scalla-incoming-{}", "a".repeat(32)));
    let content = fs::read(site.at("/assigned/f"));
    let mark = backend.attribute(&path("/assigned/f"), "user.scalla.incoming");
    // A leftover of a removal stays as well.
    backend.set_attribute(&path("/assigned/f"), "user.scalla.incoming", b"1", false).unwrap();
    fs::rename(site.at("/assigned/f"), &hidden).unwrap();
    let left = leftovers(&backend, "/assigned");
    let has_link = fs::symlink_metadata(&hidden).is_ok();
    drop(fixed);
    assert!(matches!(errno(removed), libc::EPERM | libc::EACCES));
    assert_eq!((content.unwrap(), mark.unwrap()), (b"content".to_vec(), None));
    assert_eq!((left, has_link), (Leftovers { unknown: 1, ..Leftovers::default() }, true));
    assert_eq!(leftovers(&backend, "/assigned"), Leftovers { removed: 1, ..Leftovers::default() });
}

#[test]
fn a_program_may_not_give_a_second_name_of_another_file() {
    let site = Site::new();
    let backend = site.posix();
    for name in ["/d/f", "/inplace/f"] {
        let mut file = receive(&backend, name).unwrap();
        let vacant = file.vacant_path().unwrap();
        let original = vacant.with_file_name("original");
        fs::write(&original, "original").unwrap();
        fs::set_permissions(&original, fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(&original, &vacant).unwrap();
        assert_eq!(errno(file.adopt()), libc::EMLINK, "{name}");
        file.discard().unwrap();
        assert_eq!(fs::metadata(&original).unwrap().permissions().mode() & 0o7777, 0o640, "{name}");
        fs::remove_file(&original).unwrap();
    }
}

#[test]
fn a_file_gets_its_name_as_it_was_examined() {
    let site = Site::new();
    let backend = site.posix();
    for name in ["/d/f", "/inplace/f"] {
        for is_replaced in [false, true] {
            let mut file = receive(&backend, name).unwrap();
            let place = file.local_path().unwrap();
            fs::write(&place, "content").unwrap();
            file.set_modified(1000).unwrap();
            file.stat().unwrap();
            let target = if is_replaced { place.with_extension("new") } else { place.clone() };
            fs::write(&target, "CONTENT").unwrap();
            fs::rename(&target, &place).unwrap();
            assert_eq!(errno(file.publish()), libc::ESTALE, "{name} {is_replaced}");
            file.discard().unwrap();
            assert!(fs::symlink_metadata(site.at(name)).is_err());
        }
    }
}

/// A power failure or a kill ends the process at any of these points.
#[test]
fn what_a_crash_has_left_is_removed_with_its_data() {
    let site = Site::new();
    let backend = site.posix();
    let file = receive(&backend, "/d/f").unwrap();
    let (data, temporary) = (file.local_path().unwrap(), file.local_path().unwrap());
    fs::write(&temporary, "half").unwrap();
    assert_eq!(errno(receive(&backend, "/d/f")), libc::EBUSY, "its program still writes it");
    assert_eq!(leftovers(&backend, "/d"), Leftovers { in_use: 1, ..Leftovers::default() });
    drop(file);
    // The next try begins with new data.
    let file = receive(&backend, "/d/f").unwrap();
    assert!(!data.exists() && site.data() == [1, 0]);
    drop(file);
    assert_eq!(leftovers(&backend, "/d"), Leftovers { removed: 1, ..Leftovers::default() });
    assert_eq!((site.data(), fs::read_dir(site.at("/d")).unwrap().count()), ([0, 0], 0));
    // The data is gone, but not yet the link.
    let file = receive(&backend, "/d/f").unwrap();
    fs::remove_file(file.local_path().unwrap()).unwrap();
    drop(file);
    assert_eq!(leftovers(&backend, "/d"), Leftovers { removed: 1, ..Leftovers::default() });
    assert_eq!(fs::read_dir(site.at("/d")).unwrap().count(), 0);
}

#[test]
fn a_link_at_a_temporary_name_harms_no_other_file() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/d/f");
    let data = fs::read_link(site.at("/d/f")).unwrap();
    let name = |digit: &str| site.at("/d").join(format!(".scalla-incoming-{}", digit.repeat(32)));
    // To the data of a file, which has no mark; out of the spaces; to nothing.
    symlink(&data, name("a")).unwrap();
    symlink("/etc/passwd", name("b")).unwrap();
    symlink("/nowhere", name("c")).unwrap();
    assert_eq!(leftovers(&backend, "/d"), Leftovers { unknown: 3, ..Leftovers::default() });
    assert!(["a", "b", "c"].into_iter().all(|digit| fs::symlink_metadata(name(digit)).is_ok()));
    assert_eq!(fs::read(site.at("/d/f")).unwrap(), b"content");
}

#[test]
fn a_file_in_a_space_is_removed_with_its_data() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/d/f");
    let handle = backend.open(&path("/d/f"), &OpenMode::default()).unwrap();
    assert_eq!(errno(claim(&backend, "/d/f")), libc::EBUSY);
    drop(handle);
    // Another name of the data would lead to nothing afterwards.
    symlink(fs::read_link(site.at("/d/f")).unwrap(), site.at("/d/alias")).unwrap();
    assert_eq!(errno(claim(&backend, "/d/alias")), libc::ELOOP);
    fs::remove_file(site.at("/d/alias")).unwrap();
    symlink("/etc/passwd", site.at("/d/out")).unwrap();
    assert_eq!(errno(claim(&backend, "/d/out")), libc::ELOOP);
    fs::remove_file(site.at("/d/out")).unwrap();
    let unused = claim(&backend, "/d/f").unwrap();
    assert_eq!(unused.stat().unwrap().size, 7);
    assert_eq!(unused.remove().unwrap(), FileRemoval::Removed);
    assert_eq!((site.data(), fs::read_dir(site.at("/d")).unwrap().count()), ([0, 0], 0));
}

#[test]
fn a_name_that_leads_to_other_data_by_now_stays() {
    let site = Site::new();
    let backend = site.posix();
    for name in ["/f", "/new"] {
        staged(&backend, name);
    }
    let unused = claim(&backend, "/f").unwrap();
    backend.rename(&path("/new"), &path("/f"), ExistingName::Replace, None).unwrap();
    assert_eq!(errno(unused.remove()), libc::ESTALE);
    assert_eq!(fs::read(site.at("/f")).unwrap(), b"content");
    assert_eq!(site.data(), [1, 0]);
    // Without a back reference nothing shows that the data has no other name.
    let data = fs::read_link(site.at("/f")).unwrap();
    rustix::fs::removexattr(&data, NAME_ATTRIBUTE).unwrap();
    assert_eq!(errno(claim(&backend, "/f")), libc::ELOOP);
}

#[test]
fn a_crash_during_a_removal_leaves_a_file_or_a_leftover() {
    let site = Site::new();
    let backend = site.posix();
    staged(&backend, "/d/f");
    let data = fs::read_link(site.at("/d/f")).unwrap();
    // It came before the hidden name. The mark has no meaning at another one.
    backend.set_attribute(&path("/d/f"), "user.scalla.incoming", b"1", false).unwrap();
    assert_eq!(leftovers(&backend, "/d"), Leftovers::default());
    let hidden = site.at("/d").join(format!(".scalla-incoming-{}", "a".repeat(32)));
    // A tool has given the name back before the next start.
    symlink(&data, &hidden).unwrap();
    assert_eq!(leftovers(&backend, "/d"), Leftovers { removed: 1, ..Leftovers::default() });
    assert_eq!(fs::read(site.at("/d/f")).unwrap(), b"content");
    assert!(fs::symlink_metadata(&hidden).is_err());
    let marked = backend.attribute(&path("/d/f"), "user.scalla.incoming").unwrap();
    assert_eq!(marked, None);
    backend.set_attribute(&path("/d/f"), "user.scalla.incoming", b"1", false).unwrap();
    fs::rename(site.at("/d/f"), &hidden).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(leftovers(&backend, "/d"), Leftovers { removed: 1, ..Leftovers::default() });
    assert_eq!((site.data(), fs::read_dir(site.at("/d")).unwrap().count()), ([0, 0], 0));
}

/// The file stays, or the client does not get the one that is removed.
#[test]
fn no_write_of_a_client_is_lost_to_a_removal_in_a_space() {
    let site = Site::new();
    let backend = site.posix();
    for number in 0..200 {
        let name = format!("/f{number}");
        staged(&backend, &name);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mode = OpenMode { write: true, ..OpenMode::default() };
                let file = backend.open(&path(&name), &mode)?;
                file.write(0, b"written by a client")
            });
            // The status that a purge examines is that under the lease.
            let removed = claim(&backend, &name).and_then(|unused| match unused.stat()?.size {
                7 => unused.remove(),
                _ => Err(std::io::ErrorKind::Other.into()),
            });
            let written = writer.join().unwrap();
            match fs::read(site.at(&name)) {
                Ok(content) => {
                    assert!(removed.is_err());
                    let wanted: &[u8] = if written.is_ok() { b"written by a client" } else { b"content" };
                    assert_eq!(content, wanted);
                }
                Err(_) => assert!(removed.is_ok() && written.is_err(), "{removed:?} {written:?}"),
            }
        });
    }
}
