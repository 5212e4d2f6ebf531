//! Tests of private state: directories, files and links of other users are refused.
//!
//! Most tests need root, because only root can create files of another user.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use storage::{PrivateDirectory, SharedDirectory};

/// The user `nobody`.
const OTHER: u32 = 65_534;

struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory like `/tmp`: all users may create files and remove only their own.
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-private-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn directory(&self, name: &str, owner: u32, mode: u32) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), None).unwrap();
        path
    }

    fn link(&self, name: &str, target: impl AsRef<Path>, owner: u32) -> PathBuf {
        let path = self.join(name);
        symlink(target, &path).unwrap();
        lchown(&path, Some(owner), None).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Asserts that the call was refused with a message that contains all `parts`.
fn assert_refused<T: std::fmt::Debug>(result: io::Result<T>, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn a_directory_of_another_user_is_refused_with_its_owner() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("owner");
    let planted = scratch.directory("planted", OTHER, 0o700);
    let parts =
        ["planted belongs to ", "(uid 65534), but this server runs as root (uid 0); start it as that user"];
    assert_refused(PrivateDirectory::open(&planted), &parts);
    assert_refused(PrivateDirectory::create(&planted), &parts);
    assert_refused(SharedDirectory::create(&planted, 0o700), &parts);
    // That user can replace everything below it, even files of other owners.
    fs::create_dir(planted.join("deep")).unwrap();
    assert_refused(PrivateDirectory::open(&planted.join("deep")), &parts);
    assert_refused(SharedDirectory::create(&scratch.0, 0o700).unwrap().private("planted"), &parts);
}

#[test]
fn a_file_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("file");
    let own = PrivateDirectory::create(&scratch.join("own")).unwrap();
    drop(own.create_file("journal").unwrap());
    chown(scratch.join("own/journal"), Some(OTHER), None).unwrap();
    assert_refused(own.read("journal"), &["own/journal belongs to", "uid 65534"]);
    assert_refused(own.open_or_create("journal"), &["own/journal belongs to", "uid 65534"]);
    fs::write(scratch.join("x.pid"), "17").unwrap();
    chown(scratch.join("x.pid"), Some(OTHER), None).unwrap();
    let shared = SharedDirectory::create(&scratch.0, 0o755).unwrap();
    assert_refused(shared.write("x.pid".as_ref(), b"1"), &["x.pid belongs to", "uid 65534"]);
    assert_refused(SharedDirectory::of_log(&scratch.join("x.pid"), 0o755), &["uid 65534"]);
    assert_eq!(fs::read(scratch.join("x.pid")).unwrap(), b"17");
}

#[test]
fn links_of_another_user_are_not_followed_anywhere_in_a_path() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("links");
    fs::create_dir(scratch.join("real")).unwrap();
    fs::write(scratch.join("real/victim"), "content").unwrap();
    let link = scratch.link("link", "real", OTHER);
    for path in [link.clone(), link.join("deep")] {
        assert_refused(PrivateDirectory::create(&path), &["link is a link of", "uid 65534", "remove it"]);
    }
    assert!(!scratch.join("real/deep").exists());
    let log = scratch.link("x.log", scratch.join("real/victim"), OTHER);
    assert_refused(SharedDirectory::of_log(&log, 0o755), &["x.log is a link of"]);
    assert_refused(SharedDirectory::of_log(&link.join("x.log"), 0o755), &["link is a link of"]);
    let shared = SharedDirectory::create(&scratch.0, 0o755).unwrap();
    assert_refused(shared.write("x.log".as_ref(), b"1"), &["x.log is a link of"]);
    assert_eq!(fs::read(scratch.join("real/victim")).unwrap(), b"content");
}

#[test]
fn links_of_this_user_are_followed_except_to_a_private_file() {
    let scratch = Scratch::new("own-links");
    fs::create_dir(scratch.join("real")).unwrap();
    symlink("real", scratch.join("relative")).unwrap();
    symlink(scratch.join("relative/.."), scratch.join("absolute")).unwrap();
    symlink("loop", scratch.join("loop")).unwrap();
    let opened = PrivateDirectory::create(&scratch.join("absolute/relative/deep")).unwrap();
    assert!(scratch.join("real/deep").is_dir());
    symlink("../../victim", scratch.join("real/deep/x")).unwrap();
    assert_refused(opened.open_or_create("x"), &["deep/x is a link of"]);
    assert!(!scratch.join("victim").exists());
    assert!(PrivateDirectory::create(&scratch.join("loop/deep")).is_err());
    let (directory, name, mut file) =
        SharedDirectory::of_log(&scratch.join("relative/a/b.log"), 0o755).unwrap();
    file.write_all(b"line").unwrap();
    assert_eq!(fs::read(scratch.join("real/a/b.log")).unwrap(), b"line");
    assert_eq!(directory.path().join(name), scratch.join("real/a/b.log"));
}

#[test]
fn a_directory_writable_for_all_needs_the_sticky_bit() {
    let scratch = Scratch::new("sticky");
    let shared = || SharedDirectory::create(&scratch.0, 0o755).unwrap();
    shared().prove().unwrap();
    shared().private(".own").unwrap();
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o777)).unwrap();
    assert_refused(shared().prove(), &["can be written by every user (mode 0777)", "chmod go-w"]);
    fs::set_permissions(scratch.join(".own"), Permissions::from_mode(0o770)).unwrap();
    assert_refused(shared().private(".own"), &["can be written by its group (mode 0770)"]);
}

#[test]
fn a_file_prepared_for_the_server_is_used() {
    let scratch = Scratch::new("prepared");
    let shared = SharedDirectory::create(&scratch.0, 0o755).unwrap();
    for content in ["1234567", "89"] {
        shared.write("x.pid".as_ref(), content.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(scratch.join("x.pid")).unwrap(), content);
    }
    fs::set_permissions(scratch.join("x.pid"), Permissions::from_mode(0o666)).unwrap();
    assert_refused(shared.write("x.pid".as_ref(), b"1"), &["can be written by every user"]);
    fs::remove_file(scratch.join("x.pid")).unwrap();
    fs::create_dir(scratch.join("x.pid")).unwrap();
    assert!(shared.write("x.pid".as_ref(), b"1").is_err());
}

/// Runs `work` as the user `nobody` in the group `nogroup`. Only this thread changes its user.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let job = || {
            let (uid, gid) = (Uid::from_raw(OTHER), Gid::from_raw(OTHER));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            work()
        };
        scope.spawn(job).join().unwrap()
    })
}

#[test]
fn a_directory_prepared_for_the_group_of_the_server_is_used() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("group");
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o755)).unwrap();
    // Its user is different, but the server is in its group, as in container images for arbitrary
    // users.
    let admin = scratch.directory("admin", 1001, 0o770);
    let prove = || SharedDirectory::create(&admin, 0o700).and_then(|shared| shared.prove().map(|()| shared));
    chown(&admin, None, Some(OTHER)).unwrap();
    as_nobody(|| prove().unwrap().private(".own").map(drop)).unwrap();
    // Refused if the group may not write, for another group, and if every user may write.
    fs::set_permissions(&admin, Permissions::from_mode(0o755)).unwrap();
    assert_refused(as_nobody(prove), &["admin belongs to ", "(uid 1001)", "start it as that user"]);
    fs::set_permissions(&admin, Permissions::from_mode(0o775)).unwrap();
    chown(&admin, None, Some(1001)).unwrap();
    assert_refused(as_nobody(prove), &["admin belongs to ", "(uid 1001)"]);
    chown(&admin, None, Some(OTHER)).unwrap();
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o1777)).unwrap();
    assert_refused(as_nobody(prove), &["admin belongs to ", "(uid 1001)"]);
}

#[test]
fn the_error_for_files_of_root_contains_the_remedy() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new("root-left");
    let admin = scratch.directory("admin", OTHER, 0o700);
    fs::set_permissions(&scratch.0, Permissions::from_mode(0o755)).unwrap();
    drop(PrivateDirectory::create(&admin.join(".ofs/posc")).unwrap());
    for path in [admin.join(".ofs/posc"), admin.join(".ofs")] {
        let remedy = format!("hand it over with `chown -R nobody {}`", admin.join(".ofs").display());
        assert_refused(as_nobody(|| PrivateDirectory::create(&path)), &["belongs to root (uid 0)", &remedy]);
    }
}

#[test]
fn a_log_may_have_hard_links_in_a_directory_of_its_owner() {
    let scratch = Scratch::new("second-name");
    let own = scratch.join("own");
    fs::create_dir(&own).unwrap();
    for directory in [&own, &scratch.0] {
        fs::write(directory.join("x.log"), "line\n").unwrap();
        fs::hard_link(directory.join("x.log"), directory.join("old.log")).unwrap();
    }
    let (_, _, mut log) = SharedDirectory::of_log(&own.join("x.log"), 0o755).unwrap();
    log.write_all(b"more\n").unwrap();
    assert_eq!(fs::read(own.join("old.log")).unwrap(), b"line\nmore\n");
    let refused = SharedDirectory::of_log(&scratch.join("x.log"), 0o755);
    assert_refused(refused, &["x.log has 2 names (hard links)"]);
}
