//! [`PolicyProgram`]: a program of the site that decides whether a file is purged (`polprog`).
//!
//! It runs as long as the process, and reads one line for each file that may go: values with blanks between
//! them. It answers `y` (purge it), `n` (keep it), or something else, which ends the purge. So does its end, and an
//! answer that does not come in time.

use crate::line_process::{LineProcess, UnreadOutput};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that the program has for an answer, and to read a question.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// A file that may be purged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PurgeQuestion {
    /// The local path.
    pub(crate) local: Vec<u8>,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Times of the last access, status change and modification.
    pub(crate) times: [i64; 3],
    /// Free and total bytes of its file system, and used ones.
    pub(crate) space: [u64; 3],
    /// The name of its space.
    pub(crate) space_name: String,
}

/// The answer of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PolicyAnswer {
    Purge,
    Keep,
    /// The purge ends, for this reason.
    End(String),
}

/// A program that decides which files are purged.
pub struct PolicyProgram {
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<String>,
    time: Duration,
    running: Mutex<Option<LineProcess>>,
}

/// The values of XRootD without a choice, in their order.
const VARIABLES_DEFAULT: [&str; 5] = ["sname", "pfn", "fsize", "atime", "mtime"];

impl PolicyProgram {
    /// Creates a program that is started with its first question. It gets the values with these names, or those
    /// of XRootD if there are none.
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<String>, variables: Vec<String>) -> Self {
        let variables = match variables.is_empty() {
            true => VARIABLES_DEFAULT.map(str::to_owned).to_vec(),
            false => variables,
        };
        Self { program, arguments, variables, time: ANSWER_TIME, running: Mutex::new(None) }
    }

    /// Asks whether a file is purged. Blocks.
    pub(crate) fn ask(&self, question: &PurgeQuestion) -> PolicyAnswer {
        let Some(line) = self.line(question) else { return PolicyAnswer::Keep };
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = self.started(&mut running).and_then(|program| {
            let deadline = Instant::now() + self.time;
            check_quiet(program)?;
            program.write(&line, deadline)?;
            let answer = program.read_line(deadline)?;
            check_quiet(program)?;
            Ok(answer)
        });
        let end = match answer.as_deref() {
            Ok(b"y") => return PolicyAnswer::Purge,
            Ok(b"n") => return PolicyAnswer::Keep,
            Ok(other) => format!("it answered '{}'", String::from_utf8_lossy(other)),
            Err(error) => base::errno_text(error),
        };
        // The next purge starts a new process, because this one can still write an answer to the old question.
        *running = None;
        PolicyAnswer::End(end)
    }

    fn started<'p>(&self, running: &'p mut Option<LineProcess>) -> io::Result<&'p mut LineProcess> {
        if running.is_none() {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments);
            *running = Some(LineProcess::start(command)?);
        }
        running.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the line for a file. `None` if its name would be read as several values or lines.
    fn line(&self, question: &PurgeQuestion) -> Option<Vec<u8>> {
        if question.local.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control()) {
            return None;
        }
        let [accessed, changed, modified] = question.times;
        let [free, total, used] = question.space;
        let name = question.local.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let mut line = Vec::new();
        for variable in &self.variables {
            if !line.is_empty() {
                line.push(b' ');
            }
            match variable.as_str() {
                "pfn" => line.extend_from_slice(&question.local),
                "fname" => line.extend_from_slice(name),
                "sname" => line.extend_from_slice(question.space_name.as_bytes()),
                "fsize" => line.extend_from_slice(question.size.to_string().as_bytes()),
                "atime" => line.extend_from_slice(accessed.to_string().as_bytes()),
                "ctime" => line.extend_from_slice(changed.to_string().as_bytes()),
                "mtime" => line.extend_from_slice(modified.to_string().as_bytes()),
                "fspace" => line.extend_from_slice(free.to_string().as_bytes()),
                "tspace" => line.extend_from_slice(total.to_string().as_bytes()),
                _ => line.extend_from_slice(used.to_string().as_bytes()),
            }
        }
        line.push(b'\n');
        Some(line)
    }
}

/// Fails if a program has written something that nobody has asked for.
fn check_quiet(program: &mut LineProcess) -> io::Result<()> {
    match program.unread() {
        UnreadOutput::Bytes => Err(io::Error::other("it writes more than its answers")),
        UnreadOutput::Nothing | UnreadOutput::End => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    fn program(script: &str, variables: &[&str]) -> PolicyProgram {
        let arguments = ["-c", script].map(str::to_owned).to_vec();
        PolicyProgram::new(
            "/bin/sh".into(),
            arguments,
            variables.iter().map(|name| (*name).to_owned()).collect(),
        )
    }

    fn question(local: &str) -> PurgeQuestion {
        PurgeQuestion {
            local: local.as_bytes().to_vec(),
            size: 11,
            times: [1, 2, 3],
            space: [4, 5, 6],
            space_name: "public".to_owned(),
        }
    }

    #[test]
    fn a_program_is_started_once_and_gets_the_values_in_their_order() {
        let script = "while read a b c d e; do n=x$n; case $b in */go) [ \"$a $c $d $e\" = 'public 11 1 3' ] && echo y || echo bad;; \
            */stay) echo ' n ';; */third) [ $n = xxx ] && echo y || echo n;; esac; done";
        let program = program(script, &[]);
        assert_eq!(program.ask(&question("/d/go")), PolicyAnswer::Purge);
        assert_eq!(program.ask(&question("/d/stay")), PolicyAnswer::Keep);
        assert_eq!(program.ask(&question("/d/third")), PolicyAnswer::Purge, "the same process");
        // A name that would be read as another line or value is not given to it.
        for name in ["/d/a\npublic /d/go 11 1 3", "/d/a b", "/d/a\tb"] {
            assert_eq!(program.ask(&question(name)), PolicyAnswer::Keep);
        }
        let all = ["fname", "fspace", "tspace", "usage", "ctime"];
        let line = super::tests::program("", &all).line(&question("/d/go")).unwrap();
        assert_eq!(line, b"go 4 5 6 2\n");
    }

    #[test]
    fn the_end_of_a_program_ends_the_purge_and_the_next_one_starts_it_again() {
        let program = program("read a; echo y; exit 3", &[]);
        assert_eq!(program.ask(&question("/a")), PolicyAnswer::Purge);
        assert!(matches!(program.ask(&question("/b")), PolicyAnswer::End(_)));
        assert_eq!(program.ask(&question("/b")), PolicyAnswer::Purge);
        let missing = PolicyProgram::new("/no/such/program".into(), Vec::new(), Vec::new());
        assert!(matches!(missing.ask(&question("/a")), PolicyAnswer::End(_)));
    }

    #[test]
    fn what_a_program_writes_beside_its_answers_is_no_answer() {
        let answer = "case $b in */go) echo y;; *) echo n";
        for script in [
            format!("echo ready; while read a b c; do {answer};; esac; done"),
            format!("while read a b c; do {answer}; echo because;; esac; done"),
        ] {
            let program = program(&script, &[]);
            for name in ["/d/stay", "/d/go", "/d/stay", "/d/stay", "/d/go", "/d/stay"] {
                let answer = program.ask(&question(name));
                assert_ne!(
                    answer,
                    if name == "/d/go" { PolicyAnswer::Keep } else { PolicyAnswer::Purge },
                    "{script}"
                );
            }
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let mut program = program("sleep 600 & echo $! >&2; sleep 600", &[]);
        program.time = Duration::from_millis(200);
        assert_eq!(program.ask(&question("/a")), PolicyAnswer::End("it gives no answer in time".to_owned()));
        assert!(program.running.lock().unwrap().is_none());
        // One that floods has no memory of this process.
        let mut program = super::tests::program("yes yes | tr -d '\\n'", &[]);
        program.time = Duration::from_secs(10);
        assert_eq!(program.ask(&question("/a")), PolicyAnswer::End("its answer is too long".to_owned()));
    }
}
