//! Temporary files for files that come from elsewhere.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod common;

use common::{Scratch, path};
use rustix::io::Errno;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use storage::{Backend as _, IncomingFile, Leftovers, OpenMode, ParentCreation, Posix};

fn receive(backend: &Posix, name: &str) -> std::io::Result<Box<dyn IncomingFile>> {
    backend.transfers().unwrap().receive(&path(name), (0o644, None), Some(&ParentCreation::everywhere(0o755)))
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_file_appears_whole_and_with_its_mode() {
    let root = Scratch::new();
    let backend = root.posix();
    let mut file = receive(&backend, "/new/f").unwrap();
    assert_eq!(file.local_target().unwrap(), root.path().canonicalize().unwrap().join("new/f"));
    fs::write(file.local_path().unwrap(), "content").unwrap();
    assert_eq!(file.stat().unwrap().size, 7);
    file.set_attribute("user.XrdFrm.Cpy", b"1").unwrap();
    assert!(backend.stat(&path("/new/f")).is_err());
    file.publish().unwrap();
    let found = backend.stat(&path("/new/f")).unwrap();
    assert_eq!((found.size, found.mode & 0o7777), (7, 0o644));
    assert_eq!(backend.attributes(&path("/new/f")).unwrap(), ["user.XrdFrm.Cpy"]);
    assert_eq!(fs::read_dir(root.path().join("new")).unwrap().count(), 1);
}

#[test]
fn a_name_that_exists_is_not_replaced() {
    let root = Scratch::new();
    let backend = root.posix();
    let mut file = receive(&backend, "/f").unwrap();
    fs::write(root.path().join("f"), "of a client").unwrap();
    assert_eq!(errno(file.publish()), Some(Errno::EXIST.raw_os_error()));
    assert_eq!(fs::read(root.path().join("f")).unwrap(), b"of a client");
}

#[test]
fn the_file_of_an_earlier_try_is_replaced_but_not_that_of_somebody_else() {
    let root = Scratch::new();
    let backend = root.posix();
    let file = receive(&backend, "/f").unwrap();
    let temporary = file.local_path().unwrap();
    fs::write(&temporary, "half").unwrap();
    assert_eq!(errno(receive(&backend, "/f")), Some(Errno::BUSY.raw_os_error()), "it is still locked");
    drop(file);
    let mut file = receive(&backend, "/f").unwrap();
    assert_eq!(file.stat().unwrap().size, 0);
    file.discard().unwrap();
    assert!(root.names().is_empty());
    fs::write(&temporary, "of somebody else").unwrap();
    assert_eq!(errno(receive(&backend, "/f")), Some(Errno::EXIST.raw_os_error()));
    assert_eq!(fs::read(&temporary).unwrap(), b"of somebody else");
    // A process that was killed right after the creation leaves an empty file without a mark.
    fs::write(&temporary, "").unwrap();
    receive(&backend, "/f").unwrap().discard().unwrap();
}

/// The program may outlive the server, and must not write the file of the next try.
#[test]
fn the_lock_lasts_as_long_as_the_program() {
    let root = Scratch::new();
    let backend = root.posix();
    let file = receive(&backend, "/f").unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo started; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    storage::inherit(&mut command, file.lock().unwrap());
    let mut program = command.spawn().unwrap();
    // The closure of the command owns a descriptor of the lock as well.
    drop(command);
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // A helper may outlive the program that the server has started.
    let mut file = file;
    assert_eq!(errno(file.stat()), Some(Errno::BUSY.raw_os_error()));
    assert_eq!(errno(file.publish()), Some(Errno::BUSY.raw_os_error()));
    assert_eq!(errno(file.discard()), Some(Errno::BUSY.raw_os_error()));
    assert_eq!(root.names().len(), 1, "its name stays, so the next try finds the lock");
    assert_eq!(errno(receive(&backend, "/f")), Some(Errno::BUSY.raw_os_error()));
    program.stdin.take().unwrap().write_all(b"end\n").unwrap();
    program.wait().unwrap();
    receive(&backend, "/f").unwrap();
}

#[test]
fn a_program_may_replace_the_file() {
    let root = Scratch::new();
    let backend = root.posix();
    let mut file = receive(&backend, "/f").unwrap();
    fs::write(root.path().join("other"), "other content").unwrap();
    fs::rename(root.path().join("other"), file.local_path().unwrap()).unwrap();
    assert_eq!(file.stat().unwrap().size, 13);
    file.publish().unwrap();
    assert_eq!(fs::read(root.path().join("f")).unwrap(), b"other content");
    assert!(backend.attributes(&path("/f")).unwrap().is_empty());
}

/// A file of mass storage may have the mode 0444, and its program may copy that.
#[test]
fn a_program_may_take_the_right_to_write() {
    let root = Scratch::new();
    let backend = root.posix();
    let read_only = || fs::Permissions::from_mode(0o444);
    let mut file = receive(&backend, "/f").unwrap();
    fs::set_permissions(file.local_path().unwrap(), read_only()).unwrap();
    drop(file);
    file = receive(&backend, "/f").unwrap();
    fs::write(root.path().join("other"), "content").unwrap();
    fs::set_permissions(root.path().join("other"), read_only()).unwrap();
    fs::rename(root.path().join("other"), file.local_path().unwrap()).unwrap();
    file.publish().unwrap();
    let found = backend.stat(&path("/f")).unwrap();
    assert_eq!((found.size, found.mode & 0o7777), (7, 0o644));
}

#[test]
fn a_directory_that_moved_gets_no_file() {
    let root = Scratch::new();
    let backend = root.posix();
    let mut file = receive(&backend, "/d/f").unwrap();
    fs::rename(root.path().join("d"), root.path().join("e")).unwrap();
    fs::create_dir(root.path().join("d")).unwrap();
    assert_eq!(errno(file.publish()), Some(Errno::STALE.raw_os_error()));
    assert!(!root.path().join("e/f").exists());
}

#[test]
fn a_program_may_create_the_file_itself() {
    let root = Scratch::new();
    let backend = root.posix();
    let mut file = receive(&backend, "/f").unwrap();
    let vacant = file.vacant_path().unwrap();
    assert!(!vacant.exists() && vacant.parent() == file.local_path().unwrap().parent());
    // Nothing was created.
    file.adopt().unwrap();
    assert_eq!(file.stat().unwrap().size, 0);
    fs::write(&vacant, "of an earlier try").unwrap();
    let vacant = file.vacant_path().unwrap();
    assert!(!vacant.exists());
    fs::write(&vacant, "content").unwrap();
    fs::set_permissions(&vacant, fs::Permissions::from_mode(0o400)).unwrap();
    file.adopt().unwrap();
    assert_eq!((file.stat().unwrap().size, vacant.exists()), (7, false));
    // A crash here leaves a file that is recognised.
    let temporary = file.local_path().unwrap();
    drop(file);
    assert_eq!(backend.transfers().unwrap().remove_leftovers(&path("/")).unwrap().removed, 1);
    assert!(!temporary.exists());
    let mut file = receive(&backend, "/f").unwrap();
    fs::write(file.vacant_path().unwrap(), "content").unwrap();
    file.adopt().unwrap();
    file.publish().unwrap();
    assert_eq!((fs::read(root.path().join("f")).unwrap(), root.names().len()), (b"content".to_vec(), 1));
    // What a program created goes with the temporary file, at a crash too.
    for discards in [true, false] {
        let file = receive(&backend, "/g").unwrap();
        fs::write(file.vacant_path().unwrap(), "half").unwrap();
        assert_eq!(root.names().len(), 3);
        if discards {
            file.discard().unwrap();
        } else {
            drop(file);
            assert_eq!(backend.transfers().unwrap().remove_leftovers(&path("/")).unwrap().removed, 1);
        }
        assert_eq!(root.names(), ["f"]);
    }
    // A program that outlived the temporary file may create it later. With a temporary file, it may be in use.
    let file = receive(&backend, "/g").unwrap();
    let vacant = file.vacant_path().unwrap();
    fs::write(&vacant, "in use").unwrap();
    let leftovers = || backend.transfers().unwrap().remove_leftovers(&path("/")).unwrap();
    assert_eq!((leftovers().removed, vacant.exists()), (0, true));
    file.discard().unwrap();
    fs::write(&vacant, "later").unwrap();
    fs::write(root.path().join(".scalla-incoming-x.created"), "no such name").unwrap();
    assert_eq!(leftovers(), Leftovers { removed: 1, ..Leftovers::default() });
    assert!(!vacant.exists());
    fs::remove_file(root.path().join(".scalla-incoming-x.created")).unwrap();
    // It is not a link to something else.
    let mut file = receive(&backend, "/g").unwrap();
    std::os::unix::fs::symlink("f", file.vacant_path().unwrap()).unwrap();
    assert!(file.adopt().is_err());
    file.discard().unwrap();
    assert_eq!(root.names(), ["f"]);
}

#[test]
fn clients_cannot_use_the_names_of_temporary_files() {
    let root = Scratch::new();
    let backend = root.posix();
    let file = receive(&backend, "/f").unwrap();
    let local = file.local_path().unwrap();
    let name = format!("/{}", local.file_name().unwrap().to_str().unwrap());
    assert_eq!(errno(backend.stat(&path(&name))), Some(libc::ENOENT));
    assert_eq!(errno(backend.open(&path(&name), &OpenMode::default())), Some(libc::ENOENT));
    assert_eq!(errno(backend.remove_file(&path(&name))), Some(libc::ENOENT));
    assert_eq!(errno(backend.make_directory(&path(&name), 0o755, None)), Some(libc::EINVAL));
    assert!(backend.list(&path("/")).unwrap().next(10).unwrap().is_empty());
    assert_eq!(root.names().len(), 1);
}

/// Temporary files of a process that was killed, beside everything that only looks like them.
#[test]
fn leftovers_are_removed_if_they_are_marked_and_nobody_has_locked_them() {
    let root = Scratch::new();
    let backend = root.posix();
    let leftovers = || backend.transfers().unwrap().remove_leftovers(&path("/d")).unwrap();
    let mark = |name: &str, value: &[u8]| {
        backend.set_attribute(&path(name), "user.scalla.incoming", value, false).unwrap();
    };
    fs::create_dir(root.path().join("d")).unwrap();
    let name = |digit: &str| format!("d/.scalla-incoming-{}", digit.repeat(32));
    let file = receive(&backend, "/d/f").unwrap();
    let left = file.local_path().unwrap();
    fs::write(&left, "half").unwrap();
    assert_eq!(leftovers(), Leftovers { in_use: 1, ..Leftovers::default() });
    drop(file);
    // Its program has changed the mode.
    fs::set_permissions(&left, fs::Permissions::from_mode(0o444)).unwrap();
    // Planted: a link to a marked file, a file without the mark, another mark, a directory, a pipe.
    fs::write(root.path().join("victim"), "v").unwrap();
    mark("/victim", b"1");
    std::os::unix::fs::symlink(root.path().join("victim"), root.path().join(name("a"))).unwrap();
    for (digit, content) in [("b", "of somebody else"), ("c", "")] {
        fs::write(root.path().join(name(digit)), content).unwrap();
    }
    for (number, value) in [("d", b"2".as_slice()), ("e", b"")] {
        fs::write(root.path().join("new"), "x").unwrap();
        mark("/new", value);
        fs::rename(root.path().join("new"), root.path().join(name(number))).unwrap();
    }
    fs::create_dir(root.path().join(name("f"))).unwrap();
    let pipe = root.path().join(name("0"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Marked, but its name is not that of a temporary file.
    fs::write(root.path().join("d/plain"), "x").unwrap();
    mark("/d/plain", b"1");
    // The end of the server came between the two steps of a publication by links.
    fs::write(root.path().join("d/published"), "whole").unwrap();
    mark("/d/published", b"1");
    fs::set_permissions(root.path().join("d/published"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(root.path().join("d/published"), root.path().join(name("1"))).unwrap();
    let before = fs::read_dir(root.path().join("d")).unwrap().count();
    assert_eq!(leftovers(), Leftovers { removed: 2, in_use: 0, unknown: 7 });
    assert_eq!(fs::read_dir(root.path().join("d")).unwrap().count(), before - 2);
    assert!(!left.exists() && fs::read(root.path().join("victim")).unwrap() == b"v");
    let published = fs::metadata(root.path().join("d/published")).unwrap();
    assert_eq!((published.len(), published.permissions().mode() & 0o777), (5, 0o640));
    assert_eq!(leftovers(), Leftovers { unknown: 7, ..Leftovers::default() });
}

/// A complete file changes its lock between two open file descriptions. A search for leftovers at
/// that moment must not find it without a lock.
#[test]
fn a_complete_file_is_never_a_leftover() {
    let root = Scratch::new();
    let backend = root.posix();
    let end = Arc::new(());
    let is_running = Arc::downgrade(&end);
    std::thread::scope(|scope| {
        // It ends the other thread, also if this one fails.
        let _end = end;
        scope.spawn(|| {
            while is_running.strong_count() > 0 {
                let found = backend.transfers().unwrap().remove_leftovers(&path("/")).unwrap();
                assert_eq!(found.removed, 0);
            }
        });
        for number in 0..200 {
            let mut file = receive(&backend, &format!("/{number}")).unwrap();
            fs::write(file.local_path().unwrap(), "content").unwrap();
            for _ in 0..100 {
                file.stat().unwrap();
            }
            file.publish().unwrap();
        }
    });
    assert_eq!(root.names().len(), 200);
}
