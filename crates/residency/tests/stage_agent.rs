//! A program that is started once, and reads a line for each file.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use base::LogicalPath;
use digest::{Algorithm, RunningChecksum};
use residency::{
    CopyAgent as _, CopyFailure, CopyOutcome, CopyPrograms, EntryKey, EntryState, FailureReason,
    IncomingCopy, Priority, QueueRun, RemoteStatus, StageAgent, StageAgentSettings, StageMessage, StopSignal,
    TransferDirection, TransferEntry,
};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Maximum time that a test waits for something.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The content of each file in mass storage.
const WATCHED: &str = "abcdef";

/// A directory with a program. Files are written in `disk`.
struct Site {
    directory: PathBuf,
    agent: Arc<StageAgent>,
}

/// A copy that runs.
struct RunningCopy {
    stop: StopSignal,
    outcome: Receiver<CopyOutcome>,
}

impl RunningCopy {
    fn outcome(&self) -> CopyOutcome {
        self.outcome.recv_timeout(WAIT_MAX).expect("the copy ends")
    }

    fn failure(&self) -> (FailureReason, String) {
        match self.outcome() {
            CopyOutcome::Failed(failure) => (failure.reason, failure.text.to_string()),
            other => panic!("it did not fail: {other:?}"),
        }
    }
}

impl Site {
    /// A site whose program is a shell script. `$0` is the directory, and `read rid name dst pipe` reads a line.
    fn new(name: &str, script: &str) -> Self {
        Self::with(name, script, WAIT_MAX)
    }

    fn with(name: &str, script: &str, time_limit: Duration) -> Self {
        Self::shell(name, script, (time_limit, None))
    }

    /// A site whose program reports nothing. Each file has the content [`WATCHED`] in mass storage.
    fn watched(name: &str, script: &str, time_limit: Duration) -> Self {
        Self::shell(name, script, (time_limit, Some(Duration::from_millis(5))))
    }

    fn shell(name: &str, script: &str, times: (Duration, Option<Duration>)) -> Self {
        let directory = Self::directory(name);
        let arguments = ["-c", script, directory.to_str().unwrap()].map(str::to_owned).to_vec();
        Self::running(directory, "/bin/sh", arguments, times)
    }

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("residency-agent-{name}-{}", std::process::id()));
        fs::remove_dir_all(&directory).ok();
        fs::create_dir_all(directory.join("disk")).unwrap();
        fs::create_dir(directory.join("queue")).unwrap();
        fs::set_permissions(directory.join("queue"), fs::Permissions::from_mode(0o700)).unwrap();
        directory
    }

    fn running(
        directory: PathBuf,
        program: &str,
        arguments: Vec<String>,
        (time_limit, look_interval): (Duration, Option<Duration>),
    ) -> Self {
        let queue = directory.join("queue");
        let settings = StageAgentSettings {
            program: program.into(),
            arguments,
            message: StageMessage::new("$RID $LFN $DST $NOTIFY", &queue, true).unwrap(),
            directory: queue,
            time_limit,
            pause: Duration::from_millis(10),
            pause_max: Duration::from_millis(40),
            look_interval,
        };
        let programs = CopyPrograms {
            from_path: None,
            from_url: None,
            to_path: None,
            to_url: None,
            instance: "anon".to_owned(),
        };
        Self { directory, agent: Arc::new(StageAgent::new(settings, programs).unwrap()) }
    }

    fn local(&self, name: &str) -> PathBuf {
        self.directory.join("disk").join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }

    fn touch(&self, name: &str) {
        fs::write(self.directory.join(name), "").unwrap();
    }

    fn wait_for(&self, name: &str) {
        let since = Instant::now();
        while !self.has(name) {
            assert!(since.elapsed() < WAIT_MAX, "{name} is not there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the lines that the program has noted.
    fn notes(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.directory.join("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    fn begin(&self, name: &str) -> RunningCopy {
        let (agent, destination) = (self.agent.clone(), self.local(name));
        let (report, outcome) = channel();
        let stop = StopSignal::new().unwrap();
        let (signal, path) = (stop.clone(), LogicalPath::parse(format!("/{name}").as_bytes()).unwrap());
        std::thread::spawn(move || {
            let entry = TransferEntry {
                key: EntryKey { direction: TransferDirection::In, path },
                priority: Priority::new(0),
                source: "".into(),
                id: "id".into(),
                client: "u.1:2@h".into(),
                owner: "".into(),
                added: 0,
                tries: 1,
                is_anonymous: true,
                removes: false,
                state: EntryState::Active,
            };
            let copy = IncomingCopy {
                entry: &entry,
                run: &QueueRun::of(std::path::Path::new("/")).unwrap(),
                remote: "/tape".into(),
                destination: destination.clone(),
                target: destination.with_extension("target"),
                status: Some(RemoteStatus {
                    is_directory: false,
                    size: WATCHED.len() as u64,
                    mode: 0o644,
                    modified: 0,
                    checksum: Ok(Some(RunningChecksum::of(Algorithm::Adler32, WATCHED.as_bytes()))),
                }),
                lock: File::open("/dev/null").unwrap().into(),
            };
            report.send(agent.copy_in(copy, &signal)).ok();
        });
        RunningCopy { stop, outcome }
    }

    fn stage(&self, name: &str) -> CopyOutcome {
        self.begin(name).outcome()
    }

    fn end(self) {
        self.agent.end();
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

#[test]
fn one_process_brings_many_files_in_any_order() {
    // It answers the first file after the second one.
    let site = Site::new(
        "once",
        "echo start >> $0/notes; while read rid name dst pipe; do echo $name >> $0/notes; printf abc > $dst; \
         if [ $name = /first ]; then first=$rid; touch $0/has-first; else echo \"stage OK $rid\"; fi; \
         [ $name = /second ] && echo \"stage OK $first\"; done",
    );
    let first = site.begin("first");
    site.wait_for("has-first");
    assert_eq!(site.stage("second"), CopyOutcome::Done);
    assert_eq!(first.outcome(), CopyOutcome::Done);
    for number in 0..20 {
        assert_eq!(site.stage(&format!("f{number}")), CopyOutcome::Done);
    }
    assert_eq!(fs::read(site.local("first")).unwrap(), b"abc");
    let notes = site.notes();
    assert_eq!((notes.len(), &*notes[0], &*notes[1]), (23, "start", "/first"));
    site.end();
}

/// It orders its requests itself, for example by tapes.
#[test]
fn a_program_gets_all_requests_before_it_answers_one() {
    let site = Site::new(
        "all",
        "while read rid name dst pipe; do n=x$n; rids=\"$rids $rid\"; \
         [ $n = xxxxxxxxxx ] && for each in $rids; do echo \"stage OK $each\"; done; done",
    );
    let copies: Vec<_> = (0..10).map(|number| site.begin(&format!("f{number}"))).collect();
    for copy in copies {
        assert_eq!(copy.outcome(), CopyOutcome::Done);
    }
    site.end();
}

#[test]
fn a_program_may_report_to_its_pipe_and_failures_have_their_reason() {
    let script = "while read rid name dst pipe; do pipe=${pipe#file://}; [ $pipe -ef $XRDOFSEVENTS ] || continue; \
         case $name in /bad) echo \"stage BAD $rid no drive\";; /none) echo \"stage ENOENT $rid\";; \
         *) echo \"stage OK $rid\";; esac > $pipe; done";
    let site = Site::new("pipe", script);
    assert_eq!(site.stage("f"), CopyOutcome::Done);
    let (reason, text) = site.begin("bad").failure();
    assert_eq!(reason, FailureReason::Temporary);
    assert!(text.ends_with("could not bring it: no drive"), "{text}");
    assert_eq!(
        site.begin("none").failure(),
        (FailureReason::NotFound, "no such file in mass storage".to_owned())
    );
    site.end();
}

#[test]
fn a_program_that_dies_gets_its_requests_again() {
    // The first process leaves a part of the file. The second one must not find it.
    let site = Site::new(
        "dies",
        "while read rid name dst pipe; do echo $name >> $0/notes; [ -e $dst ] && touch $0/part; \
         [ $name = /other ] && { [ -e $0/once ] && echo \"stage OK $rid\"; continue; }; [ -e $0/once ] || { touch $0/once; printf a > $dst; kill -9 $$; }; \
         printf abc > $dst; echo \"stage OK $rid\"; done",
    );
    let other = site.begin("other");
    let since = Instant::now();
    while site.notes() != ["/other"] {
        assert!(since.elapsed() < WAIT_MAX);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(site.stage("f"), CopyOutcome::Done);
    assert_eq!(other.outcome(), CopyOutcome::Done);
    assert_eq!(fs::read(site.local("f")).unwrap(), b"abc");
    assert!(!site.has("part"));
    let mut notes = site.notes();
    notes.sort();
    assert_eq!(notes, ["/f", "/f", "/other", "/other"]);
    site.end();
}

#[test]
fn a_file_at_which_the_program_ends_each_time_fails_with_the_reason() {
    let site =
        Site::new("poison", "read rid name dst pipe; echo $name >> $0/notes; echo 'no library'; exit 3");
    let (reason, text) = site.begin("f").failure();
    assert_eq!(reason, FailureReason::Temporary);
    // Its output may be about files of others.
    assert!(text.contains("exit status: 3") && !text.contains("no library"), "{text}");
    assert_eq!(site.notes().len(), 3);
    site.end();
}

/// It must not end the process, and with it the requests of others.
#[test]
fn a_directory_at_the_place_of_a_file_concerns_this_file_only() {
    let site = Site::new(
        "directory",
        "echo start >> $0/notes; while read rid name dst pipe; do [ $name = /f ] && mkdir $dst; echo \"stage OK $rid\"; done",
    );
    assert_eq!(site.stage("f"), CopyOutcome::Done);
    let (reason, text) = site.begin("f").failure();
    assert!(reason == FailureReason::Temporary && text.contains("cannot be removed"), "{text}");
    assert_eq!(site.stage("g"), CopyOutcome::Done);
    assert_eq!(site.notes(), ["start"]);
    site.end();
}

#[test]
fn a_program_that_cannot_be_started_denies_nothing() {
    let site = Site::running(Site::directory("missing"), "/no/such/program", Vec::new(), (WAIT_MAX, None));
    let (reason, text) = site.begin("f").failure();
    assert_eq!(reason, FailureReason::Site);
    assert!(text.contains("cannot run program"), "{text}");
    site.end();
}

#[test]
fn what_a_program_writes_beside_its_reports_has_no_effect() {
    let site = Site::new(
        "garbage",
        "echo banner; printf 'stage OK /f'; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo 'stage OK /fx'; \
         head -c 5000 /dev/urandom; echo; read rid name dst pipe; \
         echo \"stage OK $rid.x\"; echo 'stage OK'; echo \"stage OK /other\"; printf 'stage BAD'; echo; \
         touch $0/asked; read other rest; echo \"stage OK $other\"; \
         while [ ! -e $0/go ]; do sleep 0.01; done; printf abc > $dst; \
         head -c 1000000 /dev/zero | tr '\\0' y; echo; echo \"stage OK $rid\"; read rest",
    );
    let copy = site.begin("f");
    site.wait_for("asked");
    // A report of another file shows that all that was written before has been read.
    assert_eq!(site.stage("other"), CopyOutcome::Done);
    assert!(copy.outcome.try_recv().is_err(), "whatever it has written before, the file has not come");
    site.touch("go");
    assert_eq!(copy.outcome(), CopyOutcome::Done);
    assert_eq!(fs::read(site.local("f")).unwrap(), b"abc");
    site.end();
}

#[test]
fn a_program_that_hangs_is_replaced_and_its_other_requests_are_given_to_the_next() {
    let site = Site::with(
        "hangs",
        "sleep 600 & echo $$ >> $0/notes; while read rid name dst pipe; do \
         [ $name = /hang ] && [ ! -e $0/once ] && { touch $0/once; sleep 600; }; \
         [ $name = /hang ] && continue; echo \"stage OK $rid\"; done",
        Duration::from_secs(2),
    );
    let since = Instant::now();
    let hang = site.begin("hang");
    site.wait_for("once");
    // The process never reads this line.
    let other = site.begin("other");
    let (reason, text) = hang.failure();
    assert_eq!(reason, FailureReason::Temporary);
    assert!(text.contains("has not reported the end of the file within 2 s"), "{text}");
    assert!(since.elapsed() >= Duration::from_secs(2), "it has its time");
    // It cannot create the file any more.
    assert!(!PathBuf::from("/proc").join(&site.notes()[0]).exists());
    assert_eq!(other.outcome(), CopyOutcome::Done);
    assert_eq!(site.notes().len(), 2);
    site.end();
}

#[test]
fn a_cancelled_file_ends_when_the_program_does_not_write_it_any_more() {
    let site = Site::new(
        "cancel",
        "read first name rest; touch $0/asked; read second name rest; echo \"stage OK $second\"; \
         while [ ! -e $0/go ]; do sleep 0.01; done; echo \"stage OK $first\"; read rest",
    );
    let copy = site.begin("f");
    site.wait_for("asked");
    copy.stop.send();
    assert_eq!(site.stage("other"), CopyOutcome::Done);
    assert!(copy.outcome.try_recv().is_err(), "it could still write the file");
    site.touch("go");
    // It is complete, and somebody may want it again.
    assert_eq!(copy.outcome(), CopyOutcome::Done);
    site.end();
}

#[test]
fn the_end_of_the_server_ends_all_processes_of_the_program() {
    let site = Site::new(
        "end",
        "mkfifo $0/alive; sleep 600 > $0/alive & trap '' TERM; while read rid name dst pipe; do touch $0/asked; done; \
         while :; do sleep 600; done",
    );
    let copy = site.begin("f");
    site.wait_for("asked");
    let alive = site.directory.join("alive");
    let (opened, is_open) = channel();
    let (report, ended) = channel();
    std::thread::spawn(move || {
        let mut pipe = File::open(alive).unwrap();
        opened.send(()).ok();
        // It ends when no process has the pipe any more.
        report.send(pipe.read_to_end(&mut Vec::new())).ok();
    });
    is_open.recv_timeout(WAIT_MAX).expect("the process in the background runs");
    site.agent.end();
    assert_eq!(copy.outcome(), CopyOutcome::Stopped);
    assert_eq!(ended.recv_timeout(WAIT_MAX).unwrap().unwrap(), 0);
    assert_eq!(site.stage("later"), CopyOutcome::Stopped);
    site.end();
}

/// The server waits for it also if no copy runs.
#[test]
fn the_end_of_an_idle_program_is_reported_when_it_has_ended() {
    let site = Site::new(
        "idle",
        "trap '' TERM; while read rid name dst pipe; do echo $$ > $0/notes; echo \"stage OK $rid\"; done; \
         touch $0/last; while :; do sleep 600; done",
    );
    let (report, ended) = channel();
    let reported = report.clone();
    site.agent.when_ended(Box::new(move || reported.send(()).unwrap()));
    ended.recv_timeout(WAIT_MAX).expect("nothing runs");
    assert_eq!(site.stage("f"), CopyOutcome::Done);
    let process = PathBuf::from("/proc").join(&site.notes()[0]);
    site.agent.end();
    site.agent.when_ended(Box::new(move || report.send(()).unwrap()));
    site.wait_for("last");
    ended.recv_timeout(WAIT_MAX).expect("the program ends");
    assert!(!process.exists());
    site.end();
}

/// A program that notes in `both` that the process whose number is in `pid` still runs.
const LOOKS_FOR_EARLIER: &str = "while read rid name dst pipe; do kill -0 $(cat $0/pid) 2> $0/error && touch $0/both; echo \"stage OK $rid\"; done";

/// Stages a file by [`LOOKS_FOR_EARLIER`], and expects that the earlier process was ended before.
fn ends_before_the_next(site: Site, mut earlier: Child) {
    fs::write(site.directory.join("pid"), earlier.id().to_string()).unwrap();
    let copy = site.begin("f");
    // Only its own parent can wait for it here.
    assert!(!earlier.wait().unwrap().success());
    assert_eq!(copy.outcome(), CopyOutcome::Done);
    assert!(!site.has("both"));
    site.end();
}

/// It could still write files under names that the next process gets.
#[test]
fn a_process_of_an_earlier_run_is_ended_before_the_first_request() {
    let site = Site::new("earlier", LOOKS_FOR_EARLIER);
    let queue = site.directory.join("queue");
    let (status, lock) =
        (fs::metadata(&queue).unwrap(), File::create(queue.join("stage-agent.lock")).unwrap());
    fs::set_permissions(queue.join("stage-agent.lock"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(storage::lock_file(lock.as_fd()).unwrap());
    let mut command = Command::new("sleep");
    command.arg("600").env("SCALLA_STAGE", format!("{}:{}", status.dev(), status.ino()));
    storage::inherit(&mut command, lock.into());
    let earlier = command.spawn().unwrap();
    drop(command);
    ends_before_the_next(site, earlier);
}

/// Many ways to start a process close the lock, and give it a group of its own.
#[test]
fn a_process_without_the_lock_is_ended_before_the_next_one_starts() {
    let site = Site::new("unlocked", LOOKS_FOR_EARLIER);
    let status = fs::metadata(site.directory.join("queue")).unwrap();
    let mut command = Command::new("setsid");
    command.args(["sleep", "600"]).env("SCALLA_STAGE", format!("{}:{}", status.dev(), status.ino()));
    ends_before_the_next(site, command.spawn().unwrap());
}

#[test]
fn a_file_at_which_the_program_ends_keeps_no_other_from_coming() {
    let site = Site::new(
        "beside",
        "while read rid name dst pipe; do echo $name >> $0/notes; [ $name = /e ] && kill -9 $$; \
         (while [ ! -e $0/go ]; do sleep 0.01; done; sleep 0.2; echo \"stage OK $rid\") & done",
    );
    let others: Vec<_> = ["a", "b", "c", "d", "f", "g", "h"].map(|name| site.begin(name)).into();
    let poison = site.begin("e");
    let since = Instant::now();
    while !site.notes().contains(&"/e".to_owned()) {
        assert!(since.elapsed() < WAIT_MAX);
        std::thread::sleep(Duration::from_millis(5));
    }
    site.touch("go");
    for other in others {
        assert_eq!(other.outcome(), CopyOutcome::Done);
    }
    let (reason, text) = poison.failure();
    assert!(reason == FailureReason::Temporary && text.contains("with this file"), "{text}");
    site.end();
}

/// Some programs report to their output and to the pipe, and one of both arrives late.
#[test]
fn a_second_report_of_an_end_is_none_of_the_next_try() {
    let site = Site::new(
        "twice",
        "while read rid name dst pipe; do [ \"$first\" ] || { first=$rid; echo \"stage OK $rid\"; continue; }; \
         echo \"stage OK $first\"; echo \"stage OK $name\"; echo \"stage BAD $rid later\"; done",
    );
    assert_eq!(site.stage("f"), CopyOutcome::Done);
    let (_, text) = site.begin("f").failure();
    assert!(text.ends_with(": later"), "{text}");
    site.end();
}

/// It shows its file in parts: each look finds one that is too short, open, or of the right size with another content.
#[test]
fn a_file_is_complete_when_it_has_its_checksum() {
    let site = Site::watched(
        "watched",
        "while read rid name dst pipe; do { printf abc; touch $0/part; while [ ! -e $0/more ]; do sleep 0.01; done; \
         printf xyz; } > $dst; touch $0/whole; while [ ! -e $0/right ]; do sleep 0.01; done; \
         printf abcdef > $dst.new; mv $dst.new $dst; done",
        WAIT_MAX,
    );
    let copy = site.begin("f");
    for (wait, go) in [("part", "more"), ("whole", "right")] {
        site.wait_for(wait);
        // The request of a file that cannot be judged ends, so looks have been made meanwhile.
        assert!(copy.outcome.try_recv().is_err());
        site.touch(go);
    }
    assert_eq!(copy.outcome(), CopyOutcome::Done);
    assert_eq!(fs::read(site.local("f")).unwrap(), WATCHED.as_bytes());
    site.end();
}

/// A reader can ask for such names as often as he likes.
#[test]
fn a_name_that_is_not_a_file_ends_no_other_copy() {
    let site = Site::watched(
        "odd",
        "echo start >> $0/notes; while read rid name dst pipe; do echo $name >> $0/notes; case $name in \
         /slow) (while [ ! -e $0/go ]; do sleep 0.01; done; printf abcdef > $dst) & touch $0/slow;; \
         /other) printf abcdef > $dst;; *) ln -s /etc/hostname $dst;; esac; done",
        WAIT_MAX,
    );
    let slow = site.begin("slow");
    site.wait_for("slow");
    for expected in [FailureReason::Permanent, FailureReason::Temporary, FailureReason::Temporary] {
        let (reason, text) = site.begin("link").failure();
        assert_eq!(reason, expected, "{text}");
    }
    assert_eq!(site.stage("other"), CopyOutcome::Done);
    site.touch("go");
    assert_eq!(slow.outcome(), CopyOutcome::Done);
    assert_eq!(site.notes(), ["start", "/slow", "/link", "/other"]);
    // Without another file, a further try has a process of its own.
    let (_, text) = site.begin("link").failure();
    assert!(text.contains("not a regular file"), "{text}");
    assert_eq!(site.notes()[4..], ["start", "/link"]);
    site.end();
}

#[test]
fn a_file_that_is_never_completed_fails_after_its_time_and_ends_no_other_copy() {
    let site = Site::watched(
        "late",
        "echo start >> $0/notes; while read rid name dst pipe; do case $name in /late) printf abc > $dst; touch $0/late;; \
         /slow) echo $name >> $0/notes; (while [ ! -e $0/go ]; do sleep 0.01; done; printf abcdef > $dst) & ;; \
         *) printf abcdef > $dst;; esac; done",
        Duration::from_secs(4),
    );
    let late = site.begin("late");
    site.wait_for("late");
    let (since, mut slow) = (Instant::now(), None);
    // The program works, which does not prolong the time of the file.
    let outcome = loop {
        if since.elapsed() >= Duration::from_secs(2) && slow.is_none() {
            slow = Some(site.begin("slow"));
        }
        assert!(site.stage("other") == CopyOutcome::Done && since.elapsed() < WAIT_MAX);
        fs::remove_file(site.local("other")).unwrap();
        if let Ok(outcome) = late.outcome.try_recv() {
            break outcome;
        }
    };
    let found = "sh has not completed the file within 4 s: it has not its size in mass storage";
    assert_eq!(outcome, CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, found)));
    // Its process could still write it.
    let (reason, text) = site.begin("late").failure();
    assert!(reason == FailureReason::Temporary && text.contains("could still write"), "{text}");
    assert_eq!(site.stage("last"), CopyOutcome::Done);
    assert_eq!(site.notes(), ["start", "/slow"], "the process goes on with its other file");
    site.touch("go");
    site.end();
}

/// The next process gets two of them at first. No further request comes that could wake anybody.
#[test]
fn all_files_of_a_process_that_has_ended_come_without_another_request() {
    let site = Site::watched(
        "rest",
        "while read rid name dst pipe; do n=x$n; [ -e $0/once ] && printf abcdef > $dst; \
         [ $n = xxxx ] && [ ! -e $0/once ] && { touch $0/once; kill -9 $$; }; done",
        WAIT_MAX,
    );
    let copies: Vec<_> = ["a", "b", "c", "d"].map(|name| site.begin(name)).into();
    assert!(copies.iter().all(|copy| copy.outcome() == CopyOutcome::Done));
    site.end();
}

#[test]
fn a_part_of_a_process_that_has_ended_is_not_taken_and_the_next_one_brings_the_file() {
    let site = Site::watched(
        "part",
        "while read rid name dst pipe; do [ -e $dst ] && touch $0/left; [ -e $0/once ] || { touch $0/once; \
         truncate -s 6 $dst; printf abc | dd of=$dst conv=notrunc 2> $0/dd; exit 1; }; printf abcdef > $dst; done",
        WAIT_MAX,
    );
    assert_eq!(site.stage("f"), CopyOutcome::Done);
    assert_eq!(fs::read(site.local("f")).unwrap(), WATCHED.as_bytes());
    assert!(!site.has("left"));
    site.end();
}
