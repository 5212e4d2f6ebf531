//! Files that are removed from the disk after their copy, with real programs and files.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use base::{Clock, LogicalPath, Supervisor};
use digest::{Algorithm, RunningChecksum};
use residency::{
    CopyCommand, CopyDifferences, CopyFailure, CopyPrograms, EntryKey, FailureReason, MigrationSchedule,
    PathResidency, Priority, QueueLimits, RemoteCatalog, RemoteStatus, RequestId, RequestStatus, Residency,
    ResidencyEvents, ResidencyParts, ResidencyPaths, Staging, Submission, TransferDirection,
};
use rustix::fs::{Timespec, Timestamps, XattrFlags};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use storage::posix::SpaceConfig;
use storage::{COPY_TIME_ATTRIBUTE, CopyTime, Metadata, Posix};

/// Maximum time that a test waits for something.
const WAIT_MAX: Duration = Duration::from_secs(60);

const LIMITS: QueueLimits = QueueLimits {
    slots_in: 1,
    slots_out: 2,
    slots_of_source: 2,
    slots_of_owner: 2,
    places: 1000,
    tries_max: 3,
    backoff: 1,
    deny: 3600,
    failures_kept: 3600,
};

struct RealClock(Instant);
impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
    fn today(&self) -> SystemTime {
        SystemTime::now()
    }
}

struct NoEvents;
impl ResidencyEvents for NoEvents {
    fn arrived(&self, _: &LogicalPath) {}
    fn removed(&self, _: &LogicalPath) {}
}

/// One export that is migrated and purged.
#[derive(Default)]
struct Paths {
    /// Files that a client has open for writing.
    written: Mutex<BTreeSet<LogicalPath>>,
    /// Number of times that somebody asked for them.
    asked: AtomicU32,
}
impl ResidencyPaths for Paths {
    fn roots(&self) -> Vec<LogicalPath> {
        vec![LogicalPath::root()]
    }
    fn of(&self, _: &LogicalPath) -> PathResidency {
        PathResidency { migrate: true, purge: true, ..PathResidency::default() }
    }
    fn has_writer(&self, path: &LogicalPath, _: &Metadata) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.written.lock().unwrap().contains(path)
    }
}

/// Returns a tree in which the files below `/d` lie in a space.
fn storage_config(directory: &Path) -> storage::posix::Config {
    let partition = config::SpacePartition {
        name: "public".to_owned(),
        path: directory.join("space"),
        wildcard: false,
        mount_check: None,
    };
    let spaces = SpaceConfig {
        partitions: vec![partition],
        in_place: vec![(LogicalPath::root(), true), (path("d"), false)],
        ..SpaceConfig::default()
    };
    storage::posix::Config { spaces, ..storage::posix::Config::new(directory.join("disk")) }
}

/// A server with the directories `tape`, `disk` and `queue`.
struct Site {
    directory: PathBuf,
    residency: Residency,
    backend: Arc<dyn storage::Backend>,
    paths: Arc<Paths>,
}

impl Site {
    /// Creates a server with a function that may return what knows the names on tape.
    fn with(catalog: impl FnOnce(&Path) -> Option<Arc<dyn RemoteCatalog>>) -> Self {
        Self::start(None, catalog)
    }

    fn start(
        migration: Option<MigrationSchedule>,
        catalog: impl FnOnce(&Path) -> Option<Arc<dyn RemoteCatalog>>,
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("scalla-migration-{}-{number}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        for part in ["tape", "disk", "space"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        let script = "echo run >> $0/runs; cp -a \"$1\" \"$2\"";
        let arguments = ["-c", script, directory.to_str().unwrap(), "$SRC", "$DST"].map(str::to_owned);
        let to_path = Some(CopyCommand {
            program: "/bin/sh".into(),
            arguments: arguments.into(),
            time_limit: None,
            creates_file: false,
        });
        let agent = CopyPrograms {
            from_path: None,
            from_url: None,
            to_path,
            to_url: None,
            instance: "test".to_owned(),
        };
        let staging = Staging {
            backend: Arc::new(Posix::new(&storage_config(&directory)).unwrap()),
            agent: Arc::new(agent),
            events: Arc::new(NoEvents),
            catalog: catalog(&directory),
            remote_root: directory.join("tape").to_str().unwrap().to_owned(),
            differences: CopyDifferences::default(),
        };
        let (backend, paths) = (staging.backend.clone(), Arc::new(Paths::default()));
        let parts = ResidencyParts {
            directory: directory.join("queue"),
            limits: LIMITS,
            staging,
            paths: paths.clone(),
            migration,
            clock: Arc::new(RealClock(Instant::now())),
        };
        let residency = Residency::start(parts, &Supervisor::default()).unwrap();
        Self { directory, residency, backend, paths }
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.directory.join("disk").join(name)
    }

    fn tape(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.directory.join("tape").join(name)).ok()
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.directory.join("runs")).unwrap_or_default().lines().count()
    }

    /// Requests the copy of a file, and its removal. The name of the request is that of the file.
    fn copy_and_remove(&self, name: &str) {
        let submission = Submission {
            key: EntryKey { direction: TransferDirection::Out, path: path(name) },
            priority: Priority::new(1),
            source: "".into(),
            client: "u.1:2@h".into(),
            owner: "u".into(),
            request: Some(RequestId(name.into())),
            removes: true,
        };
        let (reply, answer) = channel();
        self.residency.submit(vec![submission], None, Box::new(move |result| reply.send(result).unwrap()));
        answer.recv_timeout(WAIT_MAX).unwrap().unwrap();
    }

    fn status(&self, name: &str) -> RequestStatus {
        let (reply, answer) = channel();
        self.residency.query(RequestId(name.into()), Box::new(move |result| reply.send(result).unwrap()));
        answer.recv_timeout(WAIT_MAX).unwrap().unwrap()
    }

    /// Waits until a request has ended.
    fn wait_for_end(&self, name: &str) {
        wait_until(name, || self.status(name).waiting == 0);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn path(name: &str) -> LogicalPath {
    LogicalPath::parse(format!("/{name}").as_bytes()).unwrap()
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_true() {
        assert!(since.elapsed() < WAIT_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes a file whose last modification was long ago.
fn write_old(at: &Path, content: &str, modified: i64) {
    fs::write(at, content).unwrap();
    let time = Timespec { tv_sec: modified, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(File::open(at).unwrap(), &times).unwrap();
}

#[test]
fn a_file_that_was_just_written_is_removed_by_a_later_try() {
    let site = Site::with(|_| None);
    fs::write(site.disk("new"), "new").unwrap();
    site.copy_and_remove("new");
    site.wait_for_end("new");
    assert!(!site.disk("new").exists());
    assert_eq!((site.tape("new").as_deref(), site.runs()), (Some("new"), 1));
}

/// The program of this test keeps links, as those of archives do.
#[test]
fn a_program_copies_the_content_of_a_file_in_a_space() {
    let site = Site::with(|_| None);
    fs::create_dir(site.directory.join("tape/d")).unwrap();
    let parents = storage::ParentCreation::everywhere(0o755);
    let mut file =
        site.backend.transfers().unwrap().receive(&path("d/f"), (0o644, None), Some(&parents)).unwrap();
    write_old(&file.local_path().unwrap(), "content", 1000);
    file.publish().unwrap();
    drop(file);
    assert!(fs::symlink_metadata(site.disk("d/f")).unwrap().is_symlink());
    site.copy_and_remove("d/f");
    site.wait_for_end("d/f");
    assert!(fs::symlink_metadata(site.directory.join("tape/d/f")).unwrap().is_file());
    assert_eq!((site.tape("d/f").as_deref(), site.runs()), (Some("content"), 1));
    assert!(fs::symlink_metadata(site.disk("d/f")).is_err());
}

#[test]
fn a_file_that_is_written_at_that_moment_is_removed_by_a_later_try() {
    let site = Site::with(|_| None);
    write_old(&site.disk("open"), "half", 1000);
    site.paths.written.lock().unwrap().insert(path("open"));
    site.copy_and_remove("open");
    wait_until("several tries", || site.paths.asked.load(Ordering::Relaxed) >= 2);
    assert_eq!((site.status("open").waiting, site.runs()), (1, 0));
    write_old(&site.disk("open"), "whole", 2000);
    site.paths.written.lock().unwrap().clear();
    site.wait_for_end("open");
    assert!(!site.disk("open").exists());
    assert_eq!((site.tape("open").as_deref(), site.runs()), (Some("whole"), 1));
}

/// What knows the names on tape. A job changes the file while it is asked for the second time, which is after the copy.
struct Changing {
    directory: PathBuf,
    questions: AtomicU32,
}
impl RemoteCatalog for Changing {
    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        if self.questions.fetch_add(1, Ordering::Relaxed) == 1 {
            write_old(&self.directory.join("disk").join(&path.text()[1..]), "after", 2000);
        }
        let size = fs::metadata(self.directory.join("tape").join(&path.text()[1..])).unwrap().len();
        Ok(Some(RemoteStatus { is_directory: false, size, mode: 0o644, modified: 1, checksum: Ok(None) }))
    }
}

#[test]
fn a_file_that_is_changed_after_its_copy_gets_another_copy_before_it_is_removed() {
    let site = Site::with(|directory| {
        Some(Arc::new(Changing { directory: directory.to_owned(), questions: AtomicU32::new(0) }))
    });
    write_old(&site.disk("file"), "first", 1000);
    site.copy_and_remove("file");
    site.wait_for_end("file");
    assert!(!site.disk("file").exists());
    assert_eq!((site.tape("file").as_deref(), site.runs()), (Some("after"), 2));
}

/// What knows the names on tape, and the checksum of `wanted` as that of each file.
struct Checksums {
    tape: PathBuf,
    wanted: &'static [u8],
}
impl RemoteCatalog for Checksums {
    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let size = fs::metadata(self.tape.join(&path.text()[1..])).unwrap().len();
        let checksum = Some(RunningChecksum::of(Algorithm::Md5, self.wanted));
        Ok(Some(RemoteStatus { is_directory: false, size, mode: 0o644, modified: 1, checksum: Ok(checksum) }))
    }
}

#[test]
fn a_copy_with_another_checksum_is_no_copy() {
    let with = |wanted| Site::with(move |at| Some(Arc::new(Checksums { tape: at.join("tape"), wanted })));
    let site = with(b"abd");
    write_old(&site.disk("f"), "abc", 1000);
    site.copy_and_remove("f");
    // The second one finds the same difference, so a third one would not help.
    site.wait_for_end("f");
    assert!(site.disk("f").exists() && site.runs() == 2);
    let copied = |site: &Site| {
        let mut value = [0; 24];
        rustix::fs::getxattr(site.disk("f"), COPY_TIME_ATTRIBUTE, &mut value[..]).unwrap();
        CopyTime::decode(&value)
    };
    assert_eq!(copied(&site), Some(CopyTime::NEVER));
    let site = with(b"abc");
    write_old(&site.disk("f"), "abc", 1000);
    site.copy_and_remove("f");
    site.wait_for_end("f");
    assert!(!site.disk("f").exists());
    assert_eq!((site.tape("f").as_deref(), site.runs()), (Some("abc"), 1));
}

#[test]
fn a_file_that_is_not_to_be_copied_stays() {
    let site = Site::with(|_| None);
    write_old(&site.disk("file"), "content", 1000);
    let excluded = CopyTime::PLACEHOLDER.encode();
    rustix::fs::setxattr(site.disk("file"), COPY_TIME_ATTRIBUTE, &excluded, XattrFlags::empty()).unwrap();
    site.copy_and_remove("file");
    site.wait_for_end("file");
    assert!(site.disk("file").exists() && site.runs() == 0);
}

/// What knows the names on tape, and cannot be asked for one of them.
struct Unaskable;
impl RemoteCatalog for Unaskable {
    fn check_name(&self, _: &LogicalPath) -> Result<(), CopyFailure> {
        Err(CopyFailure::new(FailureReason::Permanent, "an odd name"))
    }
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        Err(CopyFailure::new(FailureReason::Temporary, "nobody answers"))
    }
}

#[test]
fn a_file_for_whose_name_mass_storage_cannot_be_asked_is_not_copied() {
    let site = Site::with(|_| Some(Arc::new(Unaskable)));
    write_old(&site.disk("odd"), "content", 1000);
    site.copy_and_remove("odd");
    wait_until("the failure", || !site.status("odd").failed.is_empty());
    let RequestStatus { waiting, failed, .. } = site.status("odd");
    assert_eq!((waiting, &*failed[0].text, site.runs()), (0, "an odd name", 0));
    assert!(site.disk("odd").exists());
}

/// Cannot be asked for names that begin with `odd`.
struct OddNames(PathBuf);
impl RemoteCatalog for OddNames {
    fn check_name(&self, path: &LogicalPath) -> Result<(), CopyFailure> {
        match path.text().starts_with("/odd") {
            true => Unaskable.check_name(path),
            false => Ok(()),
        }
    }
    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let size = fs::metadata(self.0.join(&path.text()[1..])).unwrap().len();
        Ok(Some(RemoteStatus { is_directory: false, size, mode: 0o644, modified: 1, checksum: Ok(None) }))
    }
}

#[test]
fn a_search_leaves_out_names_for_which_mass_storage_cannot_be_asked() {
    let schedule = MigrationSchedule { interval: Duration::ZERO, idle: Duration::ZERO };
    let site = Site::start(Some(schedule), |directory| {
        for name in ["odd1", "even"] {
            write_old(&directory.join("disk").join(name), "content", 1000);
        }
        Some(Arc::new(OddNames(directory.join("tape"))))
    });
    wait_until("the copy", || site.tape("even").is_some());
    // A later search finds this file, so the one before has seen all others.
    write_old(&site.disk("later"), "content", 1000);
    wait_until("a later search", || site.tape("later").is_some());
    assert_eq!(site.tape("odd1"), None);
    let database = rusqlite::Connection::open(site.directory.join("queue/queue.sqlite")).unwrap();
    let odd: i64 = database
        .query_row("SELECT count(*) FROM entries WHERE CAST(path AS TEXT) LIKE '/odd%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(odd, 0);
}
