//! Tests of the switch on threads that are made like those of a server: the user of the service, with
//! two capabilities. Only root can make such threads; for others the tests check the refusal.

use super::*;
use crate::posix::{Config, Posix};
use crate::{Backend, CreateMode, ExistingName, OpenMode, UserBackend};
use base::LogicalPath;
use rustix::fs::{Gid, Uid};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The user of the service, and two users with a common group. They need not exist.
const SERVICE: u32 = 64_001;
const ONE: u32 = 64_002;
const OTHER: u32 = 64_003;
const COMMON: u32 = 64_004;

fn user(uid: u32) -> Arc<StorageUser> {
    Arc::new(StorageUser::new(uid, uid, [COMMON]).unwrap())
}

/// Runs `work` on a thread of the service, with a new directory in which everybody may create.
fn as_service(name: &str, work: impl FnOnce(Arc<UserSwitch>, &Path) + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        let text = UserSwitch::claim().err().unwrap().to_string();
        assert!(text.contains("CAP_SETUID and CAP_SETGID are missing"), "{text}");
        return;
    }
    let directory = std::env::temp_dir().join(format!("scalla-user-{name}-{}", std::process::id()));
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
    let inside = directory.clone();
    let ended = std::thread::spawn(move || {
        become_service();
        work(Arc::new(UserSwitch::claim().unwrap()), &inside);
    })
    .join();
    fs::remove_dir_all(directory).unwrap();
    ended.unwrap();
}

/// Changes this thread, and only this one, to the user of the service.
fn become_service() {
    rustix::thread::set_keep_capabilities(true).unwrap();
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_gid(Gid::from_raw(SERVICE)).unwrap();
    rustix::thread::set_thread_uid(Uid::from_raw(SERVICE)).unwrap();
}

fn capabilities() -> CapabilitySets {
    rustix::thread::capabilities(None).unwrap()
}

fn kind(result: io::Result<impl Sized>) -> io::ErrorKind {
    result.err().unwrap().kind()
}

fn owner(path: &Path) -> (u32, u32) {
    let status = fs::symlink_metadata(path).unwrap();
    (status.uid(), status.gid())
}

#[test]
fn calls_are_made_as_the_user_and_rights_are_taken_back() {
    as_service("own", |switch, directory| {
        assert_eq!(capabilities().effective, NEEDED);
        assert_eq!(capabilities().permitted, NEEDED);
        let private = directory.join("private");
        {
            let _acting = switch.act_as(&user(ONE)).unwrap();
            assert!(is_acting());
            fs::write(&private, "secret").unwrap();
            fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(fs::read(&private).unwrap(), b"secret");
        }
        assert_eq!(owner(&private), (ONE, ONE));
        // Neither the service nor another user has the rights of the first one.
        assert!(!is_acting());
        assert_eq!(kind(fs::read(&private)), io::ErrorKind::PermissionDenied);
        {
            let _acting = switch.act_as(&user(OTHER)).unwrap();
            assert_eq!(kind(fs::read(&private)), io::ErrorKind::PermissionDenied);
            assert_eq!(kind(fs::remove_file(&private)), io::ErrorKind::PermissionDenied);
        }
        let own = directory.join("own");
        fs::write(&own, "").unwrap();
        assert_eq!(owner(&own), (SERVICE, SERVICE));
        assert_eq!(rustix::process::getgroups().unwrap(), []);
    });
}

#[test]
fn supplementary_groups_give_access_and_those_of_the_service_do_not() {
    as_service("groups", |switch, directory| {
        let shared = directory.join("shared");
        {
            let _acting = switch.act_as(&user(ONE)).unwrap();
            fs::write(&shared, "for the group").unwrap();
            std::os::unix::fs::chown(&shared, None, Some(COMMON)).unwrap();
            fs::set_permissions(&shared, fs::Permissions::from_mode(0o640)).unwrap();
        }
        assert_eq!(owner(&shared), (ONE, COMMON));
        {
            let _acting = switch.act_as(&user(OTHER)).unwrap();
            assert_eq!(fs::read(&shared).unwrap(), b"for the group");
        }
        assert_eq!(kind(fs::read(&shared)), io::ErrorKind::PermissionDenied);
        // The service is in the group, the user is not.
        rustix::thread::set_thread_groups(&[Gid::from_raw(COMMON)]).unwrap();
        let switch = UserSwitch::claim().unwrap();
        assert_eq!(fs::read(&shared).unwrap(), b"for the group");
        {
            let alone = StorageUser::new(OTHER, OTHER, []).unwrap();
            let _acting = switch.act_as(&alone).unwrap();
            assert_eq!(kind(fs::read(&shared)), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(rustix::process::getgroups().unwrap(), [Gid::from_raw(COMMON)]);
    });
}

#[test]
fn a_second_user_is_refused_while_the_first_is_in_force() {
    as_service("nested", |switch, directory| {
        let acting = switch.act_as(&user(ONE)).unwrap();
        assert!(switch.act_as(&user(OTHER)).is_err());
        fs::write(directory.join("file"), "").unwrap();
        assert_eq!(owner(&directory.join("file")), (ONE, ONE), "the first user is still in force");
        drop(acting);
        drop(switch.act_as(&user(OTHER)).unwrap());
    });
}

#[test]
fn a_thread_of_a_user_starts_no_threads() {
    as_service("threads", |switch, directory| {
        let pool = crate::Pool::new("test", 1);
        let (tell, told) = std::sync::mpsc::channel();
        let path = directory.join("file");
        {
            let _acting = switch.act_as(&user(ONE)).unwrap();
            let tell = tell.clone();
            let job: crate::Job = Box::new(move || tell.send(()).unwrap());
            // No thread may run it, so the pool gives it back.
            assert!(pool.run(base::Owner::SERVER, job).is_err());
        }
        let inside = path.clone();
        let job: crate::Job = Box::new(move || {
            fs::write(&inside, "").unwrap();
            tell.send(()).unwrap();
        });
        assert!(pool.run(base::Owner::SERVER, job).is_ok());
        told.recv().unwrap();
        assert_eq!(owner(&path), (SERVICE, SERVICE));
    });
}

#[test]
fn a_panic_takes_the_rights_back() {
    as_service("panic", |switch, directory| {
        let inside = switch.clone();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _acting = inside.act_as(&user(ONE)).unwrap();
            panic!("a panic of the test");
        }));
        assert!(panicked.is_err() && !is_acting());
        fs::write(directory.join("own"), "").unwrap();
        assert_eq!(owner(&directory.join("own")), (SERVICE, SERVICE));
    });
}

#[test]
fn the_superuser_and_a_service_without_capabilities_cannot_switch() {
    if rustix::process::geteuid().is_root() {
        let text = UserSwitch::claim().err().unwrap().to_string();
        assert!(text.contains("runs as the superuser"), "{text}");
    }
    as_service("without", |_, _| {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::SETUID,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).unwrap();
        let text = UserSwitch::claim().err().unwrap().to_string();
        assert!(text.contains("CAP_SETUID and CAP_SETGID are missing"), "{text}");
    });
}

/// A switch that fails midway leaves the thread with the rights of the service.
#[test]
fn a_failed_switch_has_no_effect() {
    as_service("failed", |switch, directory| {
        let without_user = CapabilitySets {
            effective: CapabilitySet::SETGID,
            permitted: NEEDED,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, without_user).unwrap();
        assert_eq!(kind(switch.act_as(&user(ONE))), io::ErrorKind::PermissionDenied);
        assert!(!is_acting());
        assert_eq!(rustix::process::getgroups().unwrap(), []);
        fs::write(directory.join("own"), "").unwrap();
        assert_eq!(owner(&directory.join("own")), (SERVICE, SERVICE));
    });
}

const ABORTS: &str = "SCALLA_TEST_CANNOT_RETURN";

/// The test runs itself in a process of its own, which must be killed by SIGABRT.
#[test]
fn a_failure_to_return_ends_the_process() {
    if std::env::var_os(ABORTS).is_some() {
        as_service("abort", |switch, _| {
            let _acting = switch.act_as(&user(ONE)).unwrap();
            rustix::thread::set_capabilities(
                None,
                CapabilitySets {
                    effective: CapabilitySet::empty(),
                    permitted: CapabilitySet::empty(),
                    inheritable: CapabilitySet::empty(),
                },
            )
            .unwrap();
        });
        return;
    }
    let test = "user::switch::tests::a_failure_to_return_ends_the_process";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let directory = Scratch::new("again");
    let status = again
        .args(["--exact", test, "--test-threads=1"])
        .env(ABORTS, "1")
        .env("TMPDIR", &directory.0)
        .output()
        .unwrap()
        .status;
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let expected = rustix::process::geteuid().is_root().then_some(libc::SIGABRT);
    assert_eq!(signal, expected, "{status}");
}

/// A directory that is removed with its content.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("scalla-user-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn logical(text: &str) -> LogicalPath {
    LogicalPath::parse(text.as_bytes()).unwrap()
}

fn creating(mode: u32) -> OpenMode {
    let create = CreateMode {
        exclusive: true,
        mode,
        parents: None,
        size_hint: None,
        space: None,
        beside: None,
        at: None,
    };
    OpenMode { write: true, truncate: false, create: Some(create) }
}

/// The storage creates, changes, and looks up names as the user. What never blocks is left to calls
/// that can have the rights of the user.
#[test]
fn a_storage_acts_for_two_users() {
    as_service("storage", |switch, directory| {
        let posix: Arc<dyn Backend> = Arc::new(Posix::new(&Config::new(directory)).unwrap());
        let server = UserBackend::new(posix, switch);
        let [one, other] = [ONE, OTHER].map(|uid| server.as_user(&user(uid)).unwrap());
        one.make_directory(&logical("/home"), 0o700, None).unwrap();
        let file = one.open(&logical("/home/file"), &creating(0o600)).unwrap();
        file.write(0, b"data").unwrap();
        file.set_attribute("user.test", b"value", false).unwrap();
        file.set_mode(0o640).unwrap();
        one.set_mode(&logical("/home/file"), 0o644).unwrap();
        one.set_attribute(&logical("/home/file"), "user.more", b"value", false).unwrap();
        assert_eq!(owner(&directory.join("home")), (ONE, ONE));
        let denied = io::ErrorKind::PermissionDenied;
        for storage in [&other as &Arc<dyn Backend>, &(Arc::new(server) as Arc<dyn Backend>)] {
            assert_eq!(kind(storage.stat(&logical("/home/file"))), denied);
            assert_eq!(kind(storage.list(&logical("/home"))), denied);
            assert_eq!(kind(storage.open(&logical("/home/file"), &OpenMode::default())), denied);
            assert_eq!(kind(storage.remove_file(&logical("/home/file"))), denied);
            assert_eq!(
                kind(storage.rename(&logical("/home"), &logical("/mine"), ExistingName::Replace, None)),
                denied
            );
            assert_eq!(kind(storage.set_mode(&logical("/home"), 0o777)), denied);
            assert_eq!(kind(storage.truncate(&logical("/home/file"), 0)), denied);
            assert_eq!(kind(storage.attribute(&logical("/home/file"), "user.test")), denied);
        }
        assert!(matches!(one.stat_now(&logical("/home/file")), crate::Now::WouldBlock));
        assert!(matches!(one.open_now(&logical("/home/file"), &OpenMode::default()), crate::Now::WouldBlock));
        let mut names = one.list(&logical("/home")).unwrap();
        let found = names.next(10).unwrap();
        assert_eq!(found.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"file"]);
        assert_eq!(names.stat(b"file").unwrap().mode & 0o7777, 0o644);
        assert_eq!(one.attributes(&logical("/home/file")).unwrap().len(), 2);
        one.remove_file(&logical("/home/file")).unwrap();
        one.remove_directory(&logical("/home")).unwrap();
    });
}
