//! The queue at work, with real programs and files.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use base::{Clock, LogicalPath, Supervisor};
use digest::{Algorithm, ChecksumRecord, RunningChecksum};
use residency::{
    CopyCommand, CopyDifferences, CopyFailure, CopyPrograms, EntryKey, FailureReason, PathResidency,
    Priority, QueueLimits, RemoteCatalog, RemoteStatus, RequestId, RequestStatus, Residency, ResidencyEvents,
    ResidencyParts, ResidencyPaths, ResidencyStartError, StageError, Staging, Submission, TransferDirection,
    Waiter,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use storage::{Backend as _, COPY_TIME_ATTRIBUTE, CopyTime, Posix};

/// Maximum time that a test waits for something.
const WAIT_MAX: Duration = Duration::from_secs(60);

struct RealClock;
impl Clock for RealClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
    fn today(&self) -> SystemTime {
        SystemTime::now()
    }
}

#[derive(Default)]
struct Arrivals(Mutex<Vec<LogicalPath>>);
impl ResidencyEvents for Arrivals {
    fn arrived(&self, path: &LogicalPath) {
        self.0.lock().unwrap().push(path.clone());
    }
    fn removed(&self, _: &LogicalPath) {}
}

/// A catalog in which all files have this size.
struct Size(u64);
impl RemoteCatalog for Size {
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        Ok(Some(RemoteStatus {
            is_directory: false,
            size: self.0,
            mode: 0o644,
            modified: 1,
            checksum: Ok(None),
        }))
    }
}

/// A catalog in which all files have the content `abc`.
struct Content;
impl RemoteCatalog for Content {
    fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let checksum = Some(RunningChecksum::of(Algorithm::Adler32, b"abc"));
        Ok(Some(RemoteStatus {
            is_directory: false,
            size: 3,
            mode: 0o644,
            modified: 1,
            checksum: Ok(checksum),
        }))
    }
}

/// Exports in which all paths stage, except those below `/local`.
struct Paths;
impl ResidencyPaths for Paths {
    fn roots(&self) -> Vec<LogicalPath> {
        vec![LogicalPath::root(), LogicalPath::parse(b"/local").unwrap()]
    }
    fn of(&self, path: &LogicalPath) -> PathResidency {
        let migrate = path.is_within(&LogicalPath::parse(b"/mig").unwrap());
        let stage = !path.is_within(&LogicalPath::parse(b"/local").unwrap());
        PathResidency { migrate, stage, purge: false }
    }
}

/// A server with files on tape: directories `tape`, `disk` and `queue`.
struct Site {
    directory: PathBuf,
    backend: Arc<Posix>,
    residency: Residency,
    arrivals: Arc<Arrivals>,
    supervisor: Supervisor,
}

const LIMITS: QueueLimits = QueueLimits {
    slots_in: 2,
    slots_out: 1,
    slots_of_source: 2,
    slots_of_owner: 2,
    places: 1000,
    tries_max: 2,
    backoff: 0,
    deny: 3600,
    failures_kept: 3600,
};

/// Counts the runs, waits until the file `go` is there, and copies.
const COPY: &str = "echo run >> $0/runs; while [ ! -e $0/go ]; do sleep 0.01; done; \
    if [ ! -e \"$1\" ]; then echo 'not on tape'; exit 2; fi; cp \"$1\" \"$2\"";

impl Site {
    fn new(script: &str) -> Self {
        Self::with(script, None)
    }

    fn with(script: &str, catalog: Option<Arc<dyn RemoteCatalog>>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("scalla-site-{}-{number}", std::process::id()));
        for part in ["tape/d", "disk"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        let backend = Arc::new(Posix::new(&storage::posix::Config::new(directory.join("disk"))).unwrap());
        let (arrivals, supervisor) = (Arc::new(Arrivals::default()), Supervisor::default());
        let parts = Self::parts(&directory, script, backend.clone(), arrivals.clone());
        let staging = Staging { catalog, ..parts.staging };
        let residency = Residency::start(ResidencyParts { staging, ..parts }, &supervisor).unwrap();
        Self { directory, backend, residency, arrivals, supervisor }
    }

    fn parts(
        directory: &std::path::Path,
        script: &str,
        backend: Arc<Posix>,
        events: Arc<Arrivals>,
    ) -> ResidencyParts {
        // A script that needs this has it in a comment.
        let creates_file = script.contains("# noalloc");
        let arguments = ["-c", script, directory.to_str().unwrap(), "$SRC", "$DST"].map(str::to_owned);
        let command = CopyCommand {
            program: "/bin/sh".into(),
            arguments: arguments.into(),
            time_limit: None,
            creates_file,
        };
        let agent = CopyPrograms {
            from_path: Some(command),
            from_url: None,
            to_path: None,
            to_url: None,
            instance: "test".to_owned(),
        };
        let remote_root = directory.join("tape").to_str().unwrap().to_owned();
        let staging = Staging {
            backend,
            agent: Arc::new(agent),
            events,
            catalog: None,
            remote_root,
            differences: CopyDifferences::default(),
        };
        ResidencyParts {
            directory: directory.join("queue"),
            limits: LIMITS,
            staging,
            paths: Arc::new(Paths),
            migration: None,
            clock: Arc::new(RealClock),
        }
    }

    fn on_tape(&self, path: &str, content: &str) {
        fs::write(self.directory.join("tape").join(&path[1..]), content).unwrap();
    }

    fn go(&self) {
        fs::write(self.directory.join("go"), "").unwrap();
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.directory.join("runs")).unwrap_or_default().lines().count()
    }

    fn fetch(&self, path: &str) -> Receiver<Result<(), StageError>> {
        let (reply, answer) = channel();
        self.residency.fetch(submission(path, None), waiter(reply));
        answer
    }

    fn submit(&self, path: &str, request: &str) {
        let (reply, answer) = channel();
        let all = vec![submission(path, Some(request))];
        self.residency.submit(all, None, Box::new(move |result| reply.send(result).unwrap()));
        answer.recv().unwrap().unwrap();
    }

    fn query(&self, request: &str) -> RequestStatus {
        let (reply, answer) = channel();
        self.residency.query(id(request), Box::new(move |result| reply.send(result).unwrap()));
        answer.recv().unwrap().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// A client that does not leave.
fn waiter(reply: Sender<Result<(), StageError>>) -> Waiter {
    let reply = move |result| reply.send(result).unwrap();
    Waiter { owner: "u".into(), has_left: Box::new(|| false), reply: Box::new(reply) }
}

fn id(text: &str) -> RequestId {
    RequestId(text.into())
}

fn submission(path: &str, request: Option<&str>) -> Submission {
    let path = LogicalPath::parse(path.as_bytes()).unwrap();
    Submission {
        key: EntryKey { direction: TransferDirection::In, path },
        priority: Priority::new(1),
        source: "".into(),
        client: "u.1:2@h".into(),
        owner: "u".into(),
        request: request.map(id),
        removes: false,
    }
}

#[test]
fn a_hundred_clients_of_one_file_cost_one_copy() {
    let site = Site::new(COPY);
    site.on_tape("/d/f", "content");
    let answers: Vec<_> = (0..100).map(|_| site.fetch("/d/f")).collect();
    site.go();
    for answer in answers {
        assert_eq!(answer.recv().unwrap(), Ok(()));
    }
    assert_eq!(site.runs(), 1);
    let path = LogicalPath::parse(b"/d/f").unwrap();
    assert_eq!(*site.arrivals.0.lock().unwrap(), std::slice::from_ref(&path));
    let metadata = site.backend.stat(&path).unwrap();
    assert_eq!((metadata.size, metadata.mode & 0o777), (7, 0o644));
    let mark = site.backend.attribute(&path, COPY_TIME_ATTRIBUTE).unwrap().unwrap();
    assert_eq!(mark, CopyTime(metadata.modified).encode());
    assert_eq!(fs::read_dir(site.directory.join("disk/d")).unwrap().count(), 1);
    // A file that is there needs no copy.
    assert_eq!(site.fetch("/d/f").recv().unwrap(), Ok(()));
    assert_eq!(site.runs(), 1);
}

#[test]
fn a_file_that_does_not_exist_fails_at_once_and_then_without_a_copy() {
    let site = Site::new(COPY);
    site.go();
    for _ in 0..2 {
        let error = site.fetch("/d/none").recv().unwrap().unwrap_err();
        let StageError::Failed(failure) = error else { panic!("{error:?}") };
        assert_eq!(failure.reason, FailureReason::NotFound);
        assert_eq!(&*failure.text, "no such file in mass storage: not on tape");
    }
    assert_eq!(site.runs(), 1);
    assert_eq!(fs::read_dir(site.directory.join("disk")).unwrap().count(), 0);
}

#[test]
fn a_copy_that_fails_leaves_no_directory() {
    let site = Site::new(COPY);
    site.go();
    site.fetch("/a/b/c/none").recv().unwrap().unwrap_err();
    site.fetch("/d/e/none").recv().unwrap().unwrap_err();
    assert_eq!(fs::read_dir(site.directory.join("disk")).unwrap().count(), 0);
}

/// It is out of reach of the signals that end the group of its program.
#[test]
fn a_helper_that_outlives_its_program_delays_the_next_try() {
    let site = Site::new(
        "echo run >> $0/runs; [ $(wc -l < $0/runs) = 1 ] || { printf whole > \"$2\"; exit; }; \
         setsid sh -c 'echo > $0/up; while [ ! -e $0/go ]; do sleep 0.01; done; echo tail >> $1; \
         echo > $0/ended' $0 $2 & while [ ! -e $0/up ]; do sleep 0.01; done; exit 5",
    );
    let answer = site.fetch("/d/f");
    assert!(answer.recv_timeout(Duration::from_millis(700)).is_err());
    assert_eq!(site.runs(), 1);
    site.go();
    assert_eq!(answer.recv().unwrap(), Ok(()));
    assert!(site.directory.join("ended").exists());
    assert_eq!(fs::read(site.directory.join("disk/d/f")).unwrap(), b"whole");
}

#[test]
fn a_copy_that_fails_once_is_tried_again() {
    let site = Site::new(&format!("{COPY}; [ $(wc -l < $0/runs) -gt 1 ]"));
    site.go();
    site.on_tape("/d/f", "content");
    assert_eq!(site.fetch("/d/f").recv().unwrap(), Ok(()));
    assert_eq!(site.runs(), 2);
}

#[test]
fn a_copy_that_always_fails_names_the_reason() {
    let site = Site::new("echo half > $2; echo 'no drive'; exit 5");
    let StageError::Failed(failure) = site.fetch("/d/f").recv().unwrap().unwrap_err() else { panic!() };
    assert_eq!(&*failure.text, "sh failed with status 5: no drive");
    assert!(site.backend.stat(&LogicalPath::parse(b"/d/f").unwrap()).is_err());
    assert_eq!(fs::read_dir(site.directory.join("disk")).unwrap().count(), 0);
}

/// Status 0 of a script may be that of its last command only.
#[test]
fn a_copy_without_the_size_of_the_file_is_not_published() {
    let with = |script: &str, size: Option<u64>| {
        Site::with(script, size.map(|size| Arc::new(Size(size)) as Arc<dyn RemoteCatalog>))
    };
    for (size, script) in [(Some(5000), "head -c 1000 /dev/zero > $2"), (Some(0), "true"), (None, "true")] {
        let site = with(script, size);
        let StageError::Failed(failure) = site.fetch("/d/f").recv().unwrap().unwrap_err() else { panic!() };
        assert_eq!(failure.reason, FailureReason::Temporary, "{failure}");
        assert!(site.backend.stat(&LogicalPath::parse(b"/d/f").unwrap()).is_err(), "{script}");
    }
    for (size, script) in [(Some(0), ": > $2"), (None, ": > $2"), (Some(3), "printf abc > $2")] {
        let site = with(script, size);
        assert_eq!(site.fetch("/d/f").recv().unwrap(), Ok(()), "{script}");
    }
}

#[test]
fn a_program_may_create_its_file_and_must_write_it() {
    let site = Site::new("[ ! -e $2 ] || exit 9; cp \"$1\" \"$2\" # noalloc");
    site.on_tape("/d/f", "content");
    assert_eq!(site.fetch("/d/f").recv().unwrap(), Ok(()));
    assert_eq!(fs::read_to_string(site.directory.join("disk/d/f")).unwrap(), "content");
    assert_eq!(fs::read_dir(site.directory.join("disk/d")).unwrap().count(), 1);
    for script in ["true # noalloc", "printf half > $2; exit 5 # noalloc"] {
        let site = Site::new(script);
        let StageError::Failed(failure) = site.fetch("/d/f").recv().unwrap().unwrap_err() else { panic!() };
        assert_eq!(failure.reason, FailureReason::Temporary, "{failure}");
        assert_eq!(fs::read_dir(site.directory.join("disk")).unwrap().count(), 0, "{script}");
    }
}

#[test]
fn a_copy_with_another_checksum_is_not_published() {
    let path = LogicalPath::parse(b"/d/f").unwrap();
    let site = Site::with("echo run >> $0/runs; printf abd > $2", Some(Arc::new(Content)));
    let StageError::Failed(failure) = site.fetch("/d/f").recv().unwrap().unwrap_err() else { panic!() };
    assert_eq!(failure.reason, FailureReason::Permanent);
    let text = "the file on disk has the adler32 checksum 024e0128, but the one in mass storage 024d0127, \
                twice in succession";
    assert_eq!((&*failure.text, site.runs()), (text, 2), "it is tried once more");
    assert!(site.backend.stat(&path).is_err());
    let site = Site::with("printf abc > $2", Some(Arc::new(Content)));
    assert_eq!(site.fetch("/d/f").recv().unwrap(), Ok(()));
    // The checksum is stored with the file, and valid for it.
    let stored = site.backend.attribute(&path, "user.XrdCks.adler32").unwrap().unwrap();
    let record = ChecksumRecord::decode(&stored).unwrap();
    let found = site.backend.stat(&path).unwrap();
    assert!(record.fits(found.modified, found.modified_nanoseconds, found.size));
    assert_eq!(record.checksum, RunningChecksum::of(Algorithm::Adler32, b"abc"));
}

/// Otherwise a loop over names that do not exist would start programs.
#[test]
fn a_name_that_leads_to_nothing_costs_no_copy_or_one() {
    let site = Site::new(COPY);
    site.on_tape("/d/f", "content");
    site.on_tape("/d/g", "content");
    site.go();
    fs::create_dir(site.directory.join("disk/d")).unwrap();
    let link = |name: &str| symlink("nowhere", site.directory.join(name)).unwrap();
    link("disk/d/f");
    for _ in 0..2 {
        let Err(StageError::Failed(failure)) = site.fetch("/d/f").recv_timeout(WAIT_MAX).unwrap() else {
            panic!()
        };
        assert_eq!((failure.reason, site.runs()), (FailureReason::Permanent, 0), "{failure}");
    }
    // The link comes during the copy.
    fs::remove_file(site.directory.join("go")).unwrap();
    let answer = site.fetch("/d/g");
    let since = Instant::now();
    while site.runs() == 0 && since.elapsed() < WAIT_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    link("disk/d/g");
    site.go();
    let Err(StageError::Failed(failure)) = answer.recv_timeout(WAIT_MAX).unwrap() else { panic!() };
    assert_eq!((failure.reason, site.runs()), (FailureReason::Permanent, 1), "{failure}");
    assert_eq!(fs::read_dir(site.directory.join("disk/d")).unwrap().count(), 2);
}

#[test]
fn a_file_that_the_catalog_does_not_have_costs_no_copy() {
    struct Nothing;
    impl RemoteCatalog for Nothing {
        fn status(&self, _: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
            Ok(None)
        }
    }
    let site = Site::with("echo run >> $0/runs", Some(Arc::new(Nothing)));
    let StageError::Failed(failure) = site.fetch("/new/f").recv().unwrap().unwrap_err() else { panic!() };
    assert_eq!((failure.reason, site.runs()), (FailureReason::NotFound, 0));
    assert_eq!(fs::read_dir(site.directory.join("disk")).unwrap().count(), 0, "no directory was made");
}

#[test]
fn requests_can_be_queried_and_cancelled() {
    let site = Site::new(COPY);
    site.on_tape("/d/f", "content");
    for (path, request) in [("/d/a", "one"), ("/d/b", "one"), ("/d/c", "two"), ("/d/f", "two")] {
        site.submit(path, request);
    }
    let status = site.query("one");
    assert_eq!((status.waiting, status.priority, &*status.client), (2, 1, "u.1:2@h"));
    let (reply, answer) = channel();
    site.residency.cancel(id("one"), Box::new(move |result| reply.send(result).unwrap()));
    assert_eq!(answer.recv().unwrap(), Ok(()));
    assert_eq!(site.query("one"), RequestStatus::default());
    // The copies of the cancelled request hung and had both slots.
    site.go();
    assert_eq!(site.fetch("/d/f").recv().unwrap(), Ok(()));
}

/// Rows of a planted queue would be arguments of programs.
#[test]
fn a_queue_that_others_can_plant_is_refused() {
    let site = Site::new(COPY);
    for name in ["frm_xfrd.lock", "queue.sqlite"] {
        let directory = site.directory.join(format!("planted-{name}"));
        fs::create_dir(&directory).unwrap();
        let start = || {
            let parts = Site::parts(&site.directory, COPY, site.backend.clone(), site.arrivals.clone());
            let parts = ResidencyParts { directory: directory.clone(), ..parts };
            Residency::start(parts, &site.supervisor).map(drop).map_err(|error| error.to_string())
        };
        // A file that everybody can write.
        fs::write(directory.join(name), "").unwrap();
        fs::set_permissions(directory.join(name), Permissions::from_mode(0o666)).unwrap();
        assert!(start().unwrap_err().contains("can be written by every user"));
        // A link to another file.
        fs::rename(directory.join(name), directory.join("elsewhere")).unwrap();
        symlink("elsewhere", directory.join(name)).unwrap();
        assert!(start().unwrap_err().contains("is a link"));
        assert_eq!(fs::read(directory.join("elsewhere")).unwrap(), b"");
        // The directory.
        fs::remove_file(directory.join(name)).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        assert!(start().unwrap_err().contains("can be written by every user"));
        fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
        start().unwrap();
        let mode = fs::metadata(directory.join("queue.sqlite")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "clients and files are nobody else's business");
    }
}

/// A client that has an id believes that its files come.
#[test]
fn a_request_with_a_file_that_is_refused_gets_the_reason_and_records_nothing() {
    let site = Site::new(COPY);
    site.go();
    site.fetch("/d/none").recv().unwrap().unwrap_err();
    let (reply, answer) = channel();
    let all = ["/d/other", "/d/none"].map(|path| submission(path, Some("one")));
    site.residency.submit(all.into(), None, Box::new(move |result| reply.send(result).unwrap()));
    let StageError::Failed(failure) = answer.recv().unwrap().unwrap_err() else { panic!() };
    assert_eq!(failure.reason, FailureReason::NotFound);
    assert!(failure.text.starts_with("/d/none: no such file in mass storage"), "{failure}");
    assert_eq!(site.query("one"), RequestStatus::default());
    assert_eq!(site.runs(), 1);
}

/// The wall clock is set back by a day as soon as the queue has started.
#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    struct SetBack(AtomicU32, Instant);
    impl Clock for SetBack {
        fn now(&self) -> Duration {
            self.1.elapsed()
        }
        fn today(&self) -> SystemTime {
            let days = self.0.fetch_add(1, Ordering::Relaxed).min(1);
            SystemTime::now() - Duration::from_secs(86_400) * days
        }
    }
    let site = Site::new(COPY);
    site.go();
    site.on_tape("/d/f", "content");
    let parts = Site::parts(&site.directory, COPY, site.backend.clone(), site.arrivals.clone());
    let directory = site.directory.join("other-queue");
    let clock = Arc::new(SetBack(AtomicU32::new(0), Instant::now()));
    let residency = Residency::start(ResidencyParts { directory, clock, ..parts }, &site.supervisor).unwrap();
    for (path, result) in [("/d/none", false), ("/d/f", true)] {
        let (reply, answer) = channel();
        residency.fetch(submission(path, None), waiter(reply));
        assert_eq!(answer.recv().unwrap().is_ok(), result);
    }
}

#[test]
fn two_processes_cannot_execute_the_transfers_of_one_queue() {
    let site = Site::new(COPY);
    let parts = Site::parts(&site.directory, COPY, site.backend.clone(), site.arrivals.clone());
    let second = Residency::start(parts, &site.supervisor);
    assert!(matches!(second, Err(ResidencyStartError::Locked(_))));
}

/// The temporary files of a run that was killed, in directories that stage and in one that does not.
#[test]
fn temporary_files_of_an_earlier_run_are_removed_where_files_are_staged() {
    let site = Site::new(COPY);
    let disk = site.directory.join("disk");
    let outside = site.directory.join("outside");
    for directory in [&disk.join("deep/er"), &disk.join("local"), &outside] {
        fs::create_dir_all(directory).unwrap();
    }
    symlink(&outside, disk.join("deep/link")).unwrap();
    let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
    let leave = |name: &str| {
        let file = site.backend.transfers().unwrap().receive(&path(name), (0o644, None), None).unwrap();
        let place = file.local_path().unwrap();
        fs::write(&place, "half").unwrap();
        (file, place)
    };
    let (running, in_use) = leave("/deep/running");
    // In use until they are copied: the start of the server searches as well.
    let (earlier, others): (Vec<_>, Vec<_>) =
        ["/top", "/deep/er/f", "/local/f"].map(leave).into_iter().unzip();
    // Moved behind a link that leads out of the root.
    let beyond = outside.join(others[1].file_name().unwrap());
    fs::copy(&others[1], &beyond).unwrap();
    assert!(
        std::process::Command::new("cp")
            .args(["--preserve=xattr", "--"])
            .args([&others[1], &beyond])
            .status()
            .unwrap()
            .success()
    );
    drop(earlier);
    residency::remove_leftovers(site.backend.as_ref(), &Paths);
    assert!(!others[0].exists() && !others[1].exists());
    assert!(in_use.exists() && others[2].exists() && beyond.exists());
    // The next start removes what nobody writes any more.
    drop(running);
    let directory = site.directory.join("other-queue");
    let parts = Site::parts(&site.directory, COPY, site.backend.clone(), site.arrivals.clone());
    let _again = Residency::start(ResidencyParts { directory, ..parts }, &site.supervisor).unwrap();
    while in_use.exists() {
        std::thread::yield_now();
    }
}

/// The client left while its file waited for a slot.
#[test]
fn a_client_that_left_costs_no_copy() {
    let site = Site::new(COPY);
    site.on_tape("/d/f", "content");
    let _hang = ["/d/a", "/d/b"].map(|path| site.fetch(path));
    let left = Arc::new(AtomicU32::new(0));
    let (reply, answer) = channel();
    let (has_left, reply) = (left.clone(), move |result| reply.send(result).unwrap());
    let waiter = Waiter {
        owner: "u".into(),
        has_left: Box::new(move || has_left.load(Ordering::Relaxed) > 0),
        reply: Box::new(reply),
    };
    site.residency.fetch(submission("/d/f", None), waiter);
    left.store(1, Ordering::Relaxed);
    assert!(answer.recv().unwrap().is_err());
    site.go();
    assert!(site.fetch("/d/none").recv().unwrap().is_err());
    assert!(!site.directory.join("disk/d/f").exists());
}

/// The file failed after the client had its id.
#[test]
fn a_file_of_a_request_that_failed_is_part_of_its_status() {
    let site = Site::new(COPY);
    site.on_tape("/d/f", "content");
    for path in ["/d/f", "/d/none"] {
        site.submit(path, "one");
    }
    site.go();
    while site.query("one").waiting > 0 {
        std::thread::yield_now();
    }
    let status = site.query("one");
    let failed: Vec<_> = status.failed.iter().map(|file| (&*file.path, &*file.text)).collect();
    assert_eq!(failed, [("/d/none", "no such file in mass storage: not on tape")]);
    assert_eq!((status.priority, &*status.client), (1, "u.1:2@h"));
    let (reply, answer) = channel();
    site.residency.cancel(id("one"), Box::new(move |result| reply.send(result).unwrap()));
    answer.recv().unwrap().unwrap();
    assert_eq!(site.query("one"), RequestStatus::default());
}
