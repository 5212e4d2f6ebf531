//! Files that are held open, and their attributes.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod common;

use common::{Scratch, create, errno, path, update};
use std::fs;
use std::os::unix::fs::symlink;
use storage::{Backend as _, COPY_TIME_ATTRIBUTE, CopyTime, ExistingName, HeldFile, Posix};

fn hold(backend: &Posix, name: &str) -> std::io::Result<Box<dyn HeldFile>> {
    backend.transfers().unwrap().hold(&path(name))
}

#[test]
fn a_held_file_is_the_same_file_after_a_rename() {
    let scratch = Scratch::new();
    let backend = scratch.posix();
    for name in ["/f", "/g"] {
        backend.open(&path(name), &create(0o644)).unwrap();
    }
    let held = hold(&backend, "/f").unwrap();
    assert!(held.has_name().unwrap());
    assert_eq!(held.local_path().unwrap(), scratch.path().canonicalize().unwrap().join("f"));
    backend.rename(&path("/f"), &path("/old"), ExistingName::Replace, None).unwrap();
    assert!(!held.has_name().unwrap());
    backend.rename(&path("/g"), &path("/f"), ExistingName::Replace, None).unwrap();
    assert!(!held.has_name().unwrap());
    held.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime(7).encode()).unwrap();
    let of = |name| backend.attribute(&path(name), COPY_TIME_ATTRIBUTE).unwrap();
    assert_eq!((of("/old"), of("/f")), (Some(CopyTime(7).encode().to_vec()), None));
    held.remove_attribute(COPY_TIME_ATTRIBUTE).unwrap();
    held.remove_attribute(COPY_TIME_ATTRIBUTE).unwrap();
    assert_eq!(held.attribute(COPY_TIME_ATTRIBUTE).unwrap(), None);
}

#[test]
fn a_version_changes_with_the_content_and_the_name() {
    let scratch = Scratch::new();
    let backend = scratch.posix();
    let file = backend.open(&path("/f"), &create(0o644)).unwrap();
    let held = hold(&backend, "/f").unwrap();
    // The times of a file advance with the timer interrupt of the kernel.
    let next = |before| loop {
        fs::write(scratch.path().join("clock"), b"x").unwrap();
        let clock = hold(&backend, "/clock").unwrap().version().unwrap();
        if clock.modified > before {
            break;
        }
    };
    let first = held.version().unwrap();
    next(first.changed);
    file.write(0, b"a").unwrap();
    let second = held.version().unwrap();
    assert_ne!(first, second);
    next(second.changed);
    file.write(0, b"b").unwrap();
    let third = held.version().unwrap();
    assert_ne!(second, third, "the size is the same");
    assert!(!third.has_content_of(&second));
    next(third.changed);
    backend.rename(&path("/f"), &path("/g"), ExistingName::Replace, None).unwrap();
    backend.rename(&path("/g"), &path("/f"), ExistingName::Replace, None).unwrap();
    assert_ne!(held.version().unwrap(), third, "another file had the name");
    assert!(held.version().unwrap().has_content_of(&third));
    backend.open(&path("/f"), &update()).unwrap();
}

#[test]
fn links_and_other_objects_are_not_held() {
    let scratch = Scratch::new();
    let backend = scratch.posix();
    backend.open(&path("/f"), &create(0o644)).unwrap();
    fs::create_dir(scratch.path().join("d")).unwrap();
    symlink("f", scratch.path().join("link")).unwrap();
    let held = hold(&backend, "/f").unwrap();
    assert_eq!(errno(hold(&backend, "/link")), libc::ELOOP);
    assert_eq!(errno(hold(&backend, "/d")), libc::EISDIR);
    assert_eq!(errno(hold(&backend, "/none")), libc::ENOENT);
    fs::rename(scratch.path().join("f"), scratch.path().join("g")).unwrap();
    symlink("g", scratch.path().join("f")).unwrap();
    assert!(!held.has_name().unwrap(), "a link has the name now");
}
