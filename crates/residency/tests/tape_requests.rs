//! Tape requests: their states, their limits, and restarts.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use base::{Clock, LogicalPath, Supervisor};
use residency::{
    CopyCommand, CopyDifferences, CopyPrograms, EntryKey, PathResidency, Priority, QueueLimits, RequestId,
    Residency, ResidencyEvents, ResidencyParts, ResidencyPaths, Staging, Submission, SubmittedTapeFile,
    TAPE_BYTES_MAX, TAPE_FILE_BYTES, TapeChange, TapeFileNeed, TapeFileProgress, TapeOutcome,
    TapeRequestStatus, TapeSubmission, TransferDirection,
};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime};
use storage::{Backend as _, FilePin, PIN_ATTRIBUTE, Posix, REQUEST_PIN_ATTRIBUTE};

/// Maximum time that a test waits for something.
const WAIT_MAX: Duration = Duration::from_secs(120);

struct RealClock;
impl Clock for RealClock {
    fn now(&self) -> Duration {
        Duration::ZERO
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

struct AllStage;
impl ResidencyPaths for AllStage {
    fn roots(&self) -> Vec<LogicalPath> {
        vec![LogicalPath::root()]
    }
    fn of(&self, _: &LogicalPath) -> PathResidency {
        PathResidency { stage: true, migrate: false, purge: false }
    }
}

/// Waits until the file `go` is there, and copies.
const COPY: &str = "while [ ! -e $0/go ]; do sleep 0.01; done; \
    if [ ! -e \"$1\" ]; then echo 'not on tape'; exit 2; fi; cp \"$1\" \"$2\"";

/// A server with files on tape: directories `tape`, `disk` and `queue`.
struct Site {
    directory: PathBuf,
    backend: Arc<Posix>,
    residency: Option<Residency>,
    supervisor: Supervisor,
}

impl Site {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("scalla-tape-requests-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        for part in ["tape", "disk"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        let backend = Arc::new(Posix::new(&storage::posix::Config::new(directory.join("disk"))).unwrap());
        let mut site = Self { directory, backend, residency: None, supervisor: Supervisor::default() };
        site.start();
        site
    }

    fn start(&mut self) {
        let directory = self.directory.to_str().unwrap();
        let command = CopyCommand {
            program: "/bin/sh".into(),
            arguments: ["-c", COPY, directory, "$SRC", "$DST"].map(str::to_owned).into(),
            time_limit: None,
            creates_file: false,
        };
        let agent = CopyPrograms {
            from_path: Some(command),
            from_url: None,
            to_path: None,
            to_url: None,
            instance: "test".to_owned(),
        };
        let staging = Staging {
            backend: self.backend.clone(),
            agent: Arc::new(agent),
            events: Arc::new(NoEvents),
            catalog: None,
            remote_root: format!("{directory}/tape"),
            differences: CopyDifferences::default(),
        };
        let limits = QueueLimits {
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
        let parts = ResidencyParts {
            directory: self.directory.join("queue"),
            limits,
            staging,
            paths: Arc::new(AllStage),
            migration: None,
            clock: Arc::new(RealClock),
        };
        self.residency = Some(Residency::start(parts, &self.supervisor).unwrap());
    }

    fn queue(&self) -> &Residency {
        self.residency.as_ref().unwrap()
    }

    fn on_tape(&self, name: &str) {
        fs::write(self.directory.join("tape").join(name), name).unwrap();
    }

    fn go(&self) {
        fs::write(self.directory.join("go"), "").unwrap();
    }

    fn change(&self, change: TapeChange) -> TapeOutcome {
        let (reply, answer) = channel();
        self.queue().change_tape_request(change, Box::new(move |result| reply.send(result).unwrap()));
        answer.recv_timeout(WAIT_MAX).unwrap().unwrap()
    }

    fn record(&self, id: &str, owner: &str, files: Vec<SubmittedTapeFile>) -> TapeOutcome {
        let (id, owner) = (RequestId(id.into()), owner.into());
        self.change(TapeChange::Record(TapeSubmission { id, owner, files }))
    }

    fn state(&self, id: &str) -> Option<TapeRequestStatus> {
        self.queue().tape_request(&RequestId(id.into()), None, 1000).unwrap()
    }

    fn progress(&self, id: &str) -> Vec<TapeFileProgress> {
        self.state(id).unwrap().files.iter().map(|file| file.progress).collect()
    }

    fn wait_for(&self, id: &str, wanted: &[TapeFileProgress]) {
        let until = Instant::now() + WAIT_MAX;
        while self.progress(id) != wanted {
            assert!(Instant::now() < until, "{:?}", self.state(id));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn pin(&self, name: &str) -> Option<FilePin> {
        let value = self.backend.attribute(&path(name), REQUEST_PIN_ATTRIBUTE).unwrap();
        value.as_deref().and_then(FilePin::decode)
    }

    fn wait_for_pin(&self, name: &str, is_wanted: impl Fn(Option<FilePin>) -> bool) {
        let until = Instant::now() + WAIT_MAX;
        while !is_wanted(self.pin(name)) {
            assert!(Instant::now() < until, "{:?}", self.pin(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.go();
        if let Some(residency) = self.residency.take() {
            let (ended, end) = channel();
            residency.end(Box::new(move || _ = ended.send(())));
            end.recv_timeout(WAIT_MAX).ok();
        }
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn path(name: &str) -> LogicalPath {
    LogicalPath::parse(format!("/{name}").as_bytes()).unwrap()
}

fn file(id: &str, name: &str, lifetime: u64, need: TapeFileNeed) -> SubmittedTapeFile {
    let submission = Submission {
        key: EntryKey { direction: TransferDirection::In, path: path(name) },
        priority: Priority::new(0),
        source: "".into(),
        client: "u.1:2@h".into(),
        owner: "u".into(),
        request: Some(RequestId(id.into())),
        removes: false,
    };
    SubmittedTapeFile { submission, lifetime, need }
}

use TapeFileNeed::{OnDisk, Transfer};
use TapeFileProgress::{Cancelled, Completed, Failed, Started, Submitted};

#[test]
fn each_file_has_its_own_state() {
    let site = Site::new();
    site.on_tape("come");
    let refused = TapeFileNeed::Refused("not allowed".to_owned());
    let files = vec![
        file("r", "come", 0, Transfer),
        file("r", "come", 0, Transfer),
        file("r", "here", 0, OnDisk),
        file("r", "none", 0, Transfer),
        file("r", "refused", 0, refused),
    ];
    assert_eq!(site.record("r", "u", files), TapeOutcome::Done);
    site.wait_for("r", &[Started, Completed, Started, Failed]);
    let state = site.state("r").unwrap();
    assert_eq!((state.completed, state.files[3].text.as_deref()), (None, Some("not allowed")));
    assert!(state.started >= Some(state.created), "{state:?}");
    site.go();
    site.wait_for("r", &[Completed, Completed, Failed, Failed]);
    let state = site.state("r").unwrap();
    assert!(state.completed.is_some() && state.files.iter().all(|file| file.finished.is_some()), "{state:?}");
    assert!(state.files[2].text.is_some(), "{state:?}");
    // A file that is denied because it failed does not fail the others of a request.
    site.on_tape("other");
    let files = vec![file("s", "none", 0, Transfer), file("s", "other", 0, Transfer)];
    assert_eq!(site.record("s", "u", files), TapeOutcome::Done);
    site.wait_for("s", &[Failed, Completed]);
    // Pages begin behind a path.
    let page = site.queue().tape_request(&RequestId("r".into()), Some(&path("here")), 1).unwrap().unwrap();
    assert_eq!(page.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(), [path("none")]);
    assert!(!page.is_last && site.state("r").unwrap().is_last);
}

#[test]
fn a_page_of_long_paths_ends_early() {
    let site = Site::new();
    let name = |number: usize| format!("{number:03}{}", "/x".repeat(1000));
    let files = (0..40).map(|number| file("r", &name(number), 0, OnDisk)).collect();
    assert_eq!(site.record("r", "u", files), TapeOutcome::Done);
    let (mut after, mut pages) = (None, Vec::new());
    loop {
        let page = site.queue().tape_request(&RequestId("r".into()), after.as_ref(), 1000).unwrap().unwrap();
        after = page.files.last().map(|file| file.path.clone());
        pages.push(page.files.len());
        if page.is_last {
            break;
        }
    }
    assert_eq!(pages, [17, 17, 6]);
}

#[test]
fn files_and_requests_are_cancelled() {
    let site = Site::new();
    let files = ["a", "b", "c", "d"].map(|name| file("r", name, 0, Transfer));
    assert_eq!(site.record("r", "u", files.into()), TapeOutcome::Done);
    site.wait_for("r", &[Started, Started, Submitted, Submitted]);
    let id = || RequestId("r".into());
    let other = TapeChange::Cancel(id(), vec![path("c"), path("x")]);
    assert_eq!(site.change(other), TapeOutcome::OtherFile(path("x")));
    assert_eq!(site.progress("r"), [Started, Started, Submitted, Submitted], "nothing was changed");
    assert_eq!(site.change(TapeChange::Cancel(id(), vec![path("a"), path("d")])), TapeOutcome::Done);
    site.wait_for("r", &[Cancelled, Started, Started, Cancelled]);
    let unknown = || RequestId("x".into());
    for change in [TapeChange::Cancel(unknown(), vec![path("a")]), TapeChange::Forget(unknown())] {
        assert_eq!(site.change(change), TapeOutcome::Unknown);
    }
    assert_eq!(site.change(TapeChange::Release(unknown(), vec![path("a")])), TapeOutcome::Done);
    // The cancel of the prepare request with this id is one of the tape request.
    let (reply, answer) = channel();
    site.queue().cancel(id(), Box::new(move |result| reply.send(result).unwrap()));
    answer.recv_timeout(WAIT_MAX).unwrap().unwrap();
    site.wait_for("r", &[Cancelled; 4]);
    assert!(site.state("r").unwrap().completed.is_some());
    assert_eq!(site.change(TapeChange::Forget(id())), TapeOutcome::Done);
    assert_eq!(site.state("r"), None);
}

#[test]
fn requests_keep_files_on_disk_until_they_release_them() {
    let site = Site::new();
    site.on_tape("f");
    for (id, lifetime) in [("long", 7200), ("short", 3600), ("none", 0)] {
        assert_eq!(site.record(id, "u", vec![file(id, "f", lifetime, Transfer)]), TapeOutcome::Done);
    }
    site.go();
    site.wait_for("long", &[Completed]);
    site.wait_for("short", &[Completed]);
    let end = |id: &str, lifetime: u64| {
        let finished = site.state(id).unwrap().files[0].finished.unwrap();
        i64::try_from(finished + lifetime).unwrap()
    };
    let near = |wanted: i64| move |pin: Option<FilePin>| matches!(pin, Some(FilePin::Until(time)) if (time - wanted).abs() <= 600);
    site.wait_for_pin("f", near(end("long", 7200)));
    let release = |id: &str| TapeChange::Release(RequestId(id.into()), vec![path("f"), path("other")]);
    assert_eq!(site.change(release("long")), TapeOutcome::Done);
    site.wait_for_pin("f", near(end("short", 3600)));
    assert_eq!(site.change(release("none")), TapeOutcome::Done);
    assert_eq!(site.change(release("short")), TapeOutcome::Done);
    site.wait_for_pin("f", |pin| pin.is_none());
    // A file that is there is kept from the request on.
    assert_eq!(site.record("here", "u", vec![file("here", "f", 60, OnDisk)]), TapeOutcome::Done);
    site.wait_for_pin("f", near(end("here", 60)));
    // The pin of an administrator is another one, whatever its time is.
    let admin = || site.backend.attribute(&path("f"), PIN_ATTRIBUTE).unwrap();
    let pinned = FilePin::Until(end("here", 30)).encode();
    site.backend.set_attribute(&path("f"), PIN_ATTRIBUTE, &pinned, false).unwrap();
    let year = 366 * 86_400;
    assert_eq!(site.record("last", "u", vec![file("last", "f", year, OnDisk)]), TapeOutcome::Done);
    // No request keeps a file for longer than it is known itself.
    site.wait_for_pin("f", near(end("last", residency::TAPE_SECONDS_KEPT)));
    // A request that is removed keeps nothing.
    assert_eq!(site.change(TapeChange::Forget(RequestId("last".into()))), TapeOutcome::Done);
    site.wait_for_pin("f", near(end("here", 60)));
    assert_eq!(site.change(release("here")), TapeOutcome::Done);
    site.wait_for_pin("f", |pin| pin.is_none());
    assert_eq!(admin().as_deref(), Some(&pinned[..]));
}

#[test]
fn pins_that_were_not_written_are_written_at_the_next_start() {
    let site = Site::new();
    assert_eq!(site.record("r", "u", vec![file("r", "f", 3600, OnDisk)]), TapeOutcome::Done);
    let next = Site::new_from(&site, &["f"]);
    next.wait_for_pin("f", |pin| pin.is_some());
}

#[test]
fn a_request_that_finds_no_place_records_nothing() {
    let site = Site::new();
    // One owner has at most as many places as are free.
    let many = |id: &str, number: usize| -> Vec<_> {
        (0..number).map(|number| file(id, &format!("{id}{number}"), 0, Transfer)).collect()
    };
    for number in [1001, 1000, 501] {
        assert!(matches!(site.record("over", "u", many("over", number)), TapeOutcome::NoPlace(_)));
        assert_eq!(site.state("over"), None);
    }
    assert_eq!(site.record("half", "u", many("half", 500)), TapeOutcome::Done);
    assert!(matches!(site.record("more", "u", many("more", 10)), TapeOutcome::NoPlace(_)));
    // Files that are on disk need no place.
    assert_eq!(site.record("here", "u", vec![file("here", "f", 0, OnDisk)]), TapeOutcome::Done);
    assert_eq!(site.record("other", "v", vec![file("other", "x", 0, Transfer)]), TapeOutcome::Done);
    assert_eq!(site.change(TapeChange::Forget(RequestId("half".into()))), TapeOutcome::Done);
    assert_eq!(site.record("more", "u", many("more", 10)), TapeOutcome::Done);
}

#[test]
fn completed_requests_make_room_for_new_ones_of_their_owner() {
    let site = Site::new();
    assert_eq!(site.record("mine", "u", vec![file("mine", "f", 0, OnDisk)]), TapeOutcome::Done);
    assert_eq!(site.record("theirs", "v", vec![file("theirs", "f", 0, OnDisk)]), TapeOutcome::Done);
    let connection = rusqlite::Connection::open(site.directory.join("queue/queue.sqlite")).unwrap();
    connection.busy_timeout(WAIT_MAX).unwrap();
    let used = |owner: &str| -> i64 {
        let sql = "SELECT bytes FROM tape_usage WHERE owner = ?";
        connection.query_row(sql, [owner], |row| row.get(0)).unwrap()
    };
    let bytes = i64::try_from(2 + TAPE_FILE_BYTES).unwrap();
    assert_eq!([used("u"), used("v"), used("")], [bytes, bytes, 2 * bytes]);
    // Another owner has nearly everything.
    let all = i64::try_from(TAPE_BYTES_MAX).unwrap();
    connection.execute("INSERT INTO tape_usage VALUES ('w', 1, 0)", []).unwrap();
    connection.execute("UPDATE tape_usage SET bytes = ? WHERE owner = ''", [all - bytes]).unwrap();
    assert!(matches!(
        site.record("new", "x", vec![file("new", "long name", 0, OnDisk)]),
        TapeOutcome::NoPlace(_)
    ));
    // A request that is refused costs its owner nothing.
    let many = ["a", "b", "c"].map(|name| file("many", name, 0, OnDisk)).to_vec();
    assert!(matches!(site.record("many", "u", many), TapeOutcome::NoPlace(_)));
    assert_eq!((site.state("many"), site.progress("mine")), (None, vec![Completed]));
    assert_eq!(site.record("new", "u", vec![file("new", "g", 0, OnDisk)]), TapeOutcome::Done);
    assert_eq!((site.state("mine"), site.progress("theirs")), (None, vec![Completed]));
}

#[test]
fn requests_survive_a_restart() {
    let mut site = Site::new();
    site.on_tape("f");
    site.on_tape("g");
    let files = vec![file("r", "f", 3600, Transfer), file("r", "g", 0, Transfer), file("r", "h", 0, OnDisk)];
    assert_eq!(site.record("r", "u", files), TapeOutcome::Done);
    assert_eq!(site.change(TapeChange::Cancel(RequestId("r".into()), vec![path("g")])), TapeOutcome::Done);
    let (ended, end) = channel();
    let residency = site.residency.take().unwrap();
    residency.end(Box::new(move || ended.send(()).unwrap()));
    end.recv_timeout(WAIT_MAX).unwrap();
    drop(residency);
    // The thread of the queue ends with the process, so this is a copy of what the next one finds.
    let next = Site::new_from(&site, &[]);
    assert!([Submitted, Started].contains(&next.progress("r")[0]));
    assert_eq!(next.progress("r")[1..], [Cancelled, Completed]);
    next.go();
    next.wait_for("r", &[Completed, Cancelled, Completed]);
    next.wait_for_pin("f", |pin| pin.is_some());
}

impl Site {
    /// Starts a site with a copy of the queue and the tape of another one, and with these files on disk.
    fn new_from(earlier: &Self, on_disk: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("scalla-tape-restart-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        for part in ["tape", "disk", "queue"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        fs::set_permissions(directory.join("queue"), std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .unwrap();
        for part in ["tape", "queue"] {
            for entry in fs::read_dir(earlier.directory.join(part)).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name();
                let is_database = ["queue.sqlite", "queue.sqlite-wal"].iter().any(|known| name == *known);
                if part == "tape" || is_database {
                    fs::copy(entry.path(), directory.join(part).join(name)).unwrap();
                }
            }
        }
        for name in on_disk {
            fs::write(directory.join("disk").join(name), name).unwrap();
        }
        let backend = Arc::new(Posix::new(&storage::posix::Config::new(directory.join("disk"))).unwrap());
        let mut site = Self { directory, backend, residency: None, supervisor: Supervisor::default() };
        site.start();
        site
    }
}
