//! The names in mass storage, through a program of the site (`oss.rsscmd`, `oss.msscmd`).
//!
//! The program is run for each question as `PROGRAM [its arguments] statx NAME`. The first line of
//! its output is 0 or an error number, the second one the status of the file.
//!
//! A program with `|` before its name reads `statx NAME` in a line instead, and answers with the same lines. One process
//! may answer several questions that only clients ask. Nothing in its lines shows to which question an answer belongs, so
//! each question on which a copy or a removal depends has a process of its own.

use crate::catalog_answer::CatalogAnswer;
use crate::catalog_processes::CatalogProcesses;
use crate::entry::{CopyFailure, FailureReason};
use crate::line_process::LineProcess;
use crate::ports::{NameOrder, NameOutcome, RemoteCatalog, RemoteNames, RemoteStatus};
use base::LogicalPath;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which the program is ended.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// A program that knows the names in mass storage.
pub struct CatalogProgram {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
    /// Returns the name of a file in mass storage.
    pub remote_name: Box<dyn Fn(&LogicalPath) -> OsString + Send + Sync>,
    /// Its processes, if it reads questions line by line; `None` if it is run for each question.
    pub processes: Option<CatalogProcesses>,
}

impl RemoteCatalog for CatalogProgram {
    fn check_name(&self, path: &LogicalPath) -> Result<(), CopyFailure> {
        let has_control = || (self.remote_name)(path).as_bytes().iter().any(u8::is_ascii_control);
        if self.processes.is_some() && has_control() {
            let text = "oss.rsscmd cannot be asked for a name with control characters in a line";
            return Err(CopyFailure::new(FailureReason::Permanent, text));
        }
        Ok(())
    }

    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        self.ask(path, CatalogProcesses::ask_alone)
    }

    fn shown_status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        self.ask(path, CatalogProcesses::ask)
    }

    fn order(&self, order: NameOrder<'_>) -> Result<NameOutcome, CopyFailure> {
        self.execute(order)
    }

    fn list(&self, path: &LogicalPath) -> Result<Option<RemoteNames>, CopyFailure> {
        self.listing(path)
    }
}

/// A way to ask a process that reads lines.
type AskProcess = fn(&CatalogProcesses, &dyn Fn() -> Command, &[u8], Instant) -> io::Result<CatalogAnswer>;

impl CatalogProgram {
    fn ask(&self, path: &LogicalPath, ask: AskProcess) -> Result<Option<RemoteStatus>, CopyFailure> {
        self.check_name(path)?;
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        let answer = self.answer(path, ask).and_then(CatalogAnswer::into_status);
        let fail = |error| {
            CopyFailure::new(FailureReason::Temporary, format!("{program}: {}", base::errno_text(&error)))
        };
        answer.map_err(fail)
    }

    fn answer(&self, path: &LogicalPath, ask: AskProcess) -> io::Result<CatalogAnswer> {
        let command = || {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments).stderr(Stdio::null());
            command
        };
        let name = (self.remote_name)(path);
        let deadline = Instant::now() + TIME_LIMIT;
        let Some(processes) = &self.processes else {
            let mut command = command();
            command.arg("statx").arg(name);
            let mut process = LineProcess::start(command)?;
            process.close_input();
            let output = process.read_to_end(deadline)?;
            let answer = CatalogAnswer::parse(&output)?;
            // One that was killed may have written a part of its answer.
            if matches!(answer, CatalogAnswer::Status(_)) {
                process.check_end(deadline)?;
            }
            return Ok(answer);
        };
        ask(processes, &command, &[b"statx ", name.as_bytes(), b"\n"].concat(), deadline)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::catalog_processes::SHARED_PROCESSES_MAX;
    use std::path::Path;

    const LINE: &str = "rw-r--r-- 1 0 0 11 12 13 5000 4096 10";

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_program_gets_the_name_in_mass_storage() {
        let script = format!("[ \"$1 $2\" = 'statx /tape/f' ] && printf '0\\n-{LINE}\\n' || echo 2");
        let catalog = CatalogProgram {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script, "sh".to_owned()],
            remote_name: Box::new(|path| OsString::from(format!("/tape{}", path.text()))),
            processes: None,
        };
        assert_eq!(catalog.status(&path("/f")).unwrap().map(|status| status.size), Some(5000));
        assert_eq!(catalog.status(&path("/g")).unwrap(), None);
    }

    #[test]
    fn a_program_that_fails_behind_a_status_has_not_answered() {
        let status = |end: &str| {
            let catalog = CatalogProgram {
                program: "/bin/sh".into(),
                arguments: vec!["-c".to_owned(), format!("printf '0\\n-{LINE}\\n'; {end}")],
                remote_name: Box::new(|path| path.as_os_str().to_owned()),
                processes: None,
            };
            catalog.status(&path("/f")).map(|status| status.map(|status| status.size))
        };
        assert_eq!(status("exec >&-; true").unwrap(), Some(5000));
        for end in ["exit 3", "kill -9 $$"] {
            let failure = status(end).unwrap_err();
            assert_eq!(failure.reason, FailureReason::Temporary, "{failure}");
        }
    }

    /// Returns a catalog whose program reads lines. `$1` of the script is its directory for notes.
    fn persistent(script: &str, notes: &Path) -> CatalogProgram {
        let arguments = ["-c", script, "sh"].map(str::to_owned).into_iter();
        CatalogProgram {
            program: "/bin/sh".into(),
            arguments: arguments.chain([notes.to_str().unwrap().to_owned()]).collect(),
            remote_name: Box::new(|path| OsString::from(format!("/tape{}", path.text()))),
            processes: Some(CatalogProcesses::default()),
        }
    }

    fn notes(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("residency-catalog-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_program_that_reads_lines_is_started_once_for_each_request_at_once() {
        let notes = notes("once");
        let script = format!(
            "touch $1/$$; while read verb name; do case \"$verb $name\" in \
             'statx /tape/a b') printf '0\n-{LINE}\n';; 'statx /tape/end') exit;; \
             'statx /tape/more') printf '2\n2\n';; *) echo 2;; esac; done"
        );
        let catalog = persistent(&script, &notes);
        let status = |text: &str| catalog.shown_status(&path(text));
        let started = || std::fs::read_dir(&notes).unwrap().count();
        for _ in 0..50 {
            assert_eq!(status("/a b").unwrap().map(|status| status.size), Some(5000));
            assert_eq!(status("/g").unwrap(), None);
        }
        assert_eq!(started(), 1);
        // One that has ended is an error of its request only, which a new one gets first.
        assert!(status("/end").unwrap_err().text.contains("it has ended"));
        assert_eq!(started(), 2);
        assert_eq!(status("/g").unwrap(), None);
        assert_eq!(started(), 3);
        // Many ask at once, and no request gets the answer to another one.
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!(status("/a b").unwrap().is_some() && status("/g").unwrap().is_none());
                    }
                });
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!(catalog.status(&path("/a b")).unwrap().is_some());
                        assert!(catalog.status(&path("/g")).unwrap().is_none());
                    }
                });
            }
        });
        // A line too much is not the answer to the next request, and no process is used again.
        for more in ["/more", "/a b", "/g", "/more", "/a b"] {
            match more {
                "/more" => assert!(status(more).unwrap_err().text.contains("writes more than its answer")),
                "/g" => assert_eq!(status(more).unwrap(), None),
                _ => assert_eq!(status(more).unwrap().map(|status| status.size), Some(5000)),
            }
        }
        for odd in ["/a\nstatx /tape/a b", "/a\tb", "/a\u{7f}"] {
            assert_eq!(status(odd).unwrap_err().reason, FailureReason::Permanent, "{odd:?}");
            assert_eq!(catalog.status(&path(odd)).unwrap_err().reason, FailureReason::Permanent, "{odd:?}");
        }
        std::fs::remove_dir_all(&notes).unwrap();
    }

    /// Copies and removals depend on these answers. The second answer to a question comes only when the next question
    /// was read, so nothing shows before that it is not the answer to that one.
    #[test]
    fn an_answer_that_comes_twice_is_not_that_of_another_question() {
        let notes = notes("twice");
        let script = format!(
            "while read verb name; do [ -n \"$last\" ] && printf \"$last\"; case $name in \
             /tape/f*) last='0\\n-{LINE}\\n';; *) last='2\\n';; esac; printf \"$last\"; done"
        );
        let catalog = persistent(&script, &notes);
        for _ in 0..3 {
            for (name, is_there) in [("/f", true), ("/g", false), ("/f1", true), ("/f2", true), ("/h", false)]
            {
                assert_eq!(catalog.status(&path(name)).unwrap().is_some(), is_there, "{name}");
            }
        }
        std::fs::remove_dir_all(&notes).unwrap();
    }

    #[test]
    fn what_a_program_writes_beside_its_answers_answers_nothing() {
        let answer = format!("case $name in /tape/f) echo 0; echo -{LINE};; *) echo 2");
        for (number, script) in [
            // A banner.
            format!("echo ready; while read verb name; do {answer};; esac; done"),
            // A banner that is no error.
            format!("echo 0; while read verb name; do {answer};; esac; done"),
            // A text behind an error, in a write of its own.
            format!("while read verb name; do {answer}; echo 'no such file';; esac; done"),
            // A number that only looks like 0.
            format!("while read verb name; do {answer};; esac; done").replace("echo 0", "echo +0"),
        ]
        .iter()
        .enumerate()
        {
            let notes = notes(&format!("beside{number}"));
            let catalog = persistent(script, &notes);
            for _ in 0..4 {
                let [there, gone] = ["/f", "/g"].map(path);
                for (name, found) in [
                    ("status", [catalog.status(&there), catalog.status(&gone)]),
                    ("shown status", [catalog.shown_status(&there), catalog.shown_status(&gone)]),
                ] {
                    let [there, gone] = found;
                    assert!(!matches!(there, Ok(None)), "{number} {name}: {there:?}");
                    assert!(!matches!(gone, Ok(Some(_))), "{number} {name}: {gone:?}");
                    if name == "status" {
                        assert_eq!(gone.is_ok(), number == 3, "{number}: {gone:?}");
                        assert_eq!(there.is_ok(), number == 2, "{number}: {there:?}");
                    }
                }
            }
            std::fs::remove_dir_all(&notes).unwrap();
        }
    }

    #[test]
    fn a_question_that_a_copy_depends_on_has_a_process_of_its_own() {
        let notes = notes("alone");
        let catalog = persistent("touch $1/$$; while read line; do echo 2; done", &notes);
        let started = || std::fs::read_dir(&notes).unwrap().count();
        for number in 1..4 {
            assert_eq!(catalog.status(&path("/g")).unwrap(), None);
            assert_eq!(catalog.shown_status(&path("/g")).unwrap(), None);
            assert_eq!(started(), number + 1);
        }
        // All processes of others are idle. They make room.
        let processes = catalog.processes.as_ref().unwrap();
        processes.fill(&|| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "while read line; do echo 2; done"]);
            command
        });
        assert_eq!(catalog.status(&path("/g")).unwrap(), None);
        assert_eq!(started(), 5);
        std::fs::remove_dir_all(&notes).unwrap();
    }

    #[test]
    fn clients_leave_places_to_copies_and_removals() {
        let notes = notes("places");
        let catalog = persistent(
            "touch $1/$$; while read verb name; do case $name in \
             /tape/hang) while [ ! -e $1/go ]; do sleep 0.01; done;; esac; echo 2; done",
            &notes,
        );
        let started = || std::fs::read_dir(&notes).unwrap().count();
        std::thread::scope(|scope| {
            for _ in 0..SHARED_PROCESSES_MAX {
                scope.spawn(|| assert_eq!(catalog.shown_status(&path("/hang")).unwrap(), None));
            }
            let since = Instant::now();
            while started() < SHARED_PROCESSES_MAX && since.elapsed() < TIME_LIMIT {
                std::thread::sleep(Duration::from_millis(5));
            }
            let other = scope.spawn(|| catalog.shown_status(&path("/g")));
            let own = catalog.status(&path("/g"));
            // Its process waits for one of the others.
            let started = started();
            std::fs::write(notes.join("go"), "").unwrap();
            assert_eq!((own.unwrap(), started), (None, SHARED_PROCESSES_MAX + 1));
            assert_eq!(other.join().unwrap().unwrap(), None);
        });
        std::fs::remove_dir_all(&notes).unwrap();
    }

    /// A process that has ended while it was idle is replaced without an error.
    #[test]
    fn a_process_that_ended_between_two_requests_is_replaced() {
        let notes = notes("ended");
        let catalog = persistent("read line; touch $1/$$; echo 2", &notes);
        for number in 1..4 {
            assert_eq!(catalog.shown_status(&path("/g")).unwrap(), None);
            assert_eq!(std::fs::read_dir(&notes).unwrap().count(), number);
        }
        std::fs::remove_dir_all(&notes).unwrap();
    }
}
