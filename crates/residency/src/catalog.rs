//! The names in mass storage, through a program of the site (`oss.rsscmd`, `oss.msscmd`).
//!
//! The program is run for each request as `PROGRAM [its arguments] statx NAME`. The first line of
//! its output is 0 or an error number, the second one the status of the file.
//!
//! A program with `|` before its name runs for long instead: it reads `statx NAME` in a line, and answers with the same
//! lines.

use crate::catalog_processes::CatalogProcesses;
use crate::entry::{CopyFailure, FailureReason};
use crate::ports::{RemoteCatalog, RemoteStatus};
use base::LogicalPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which the program is ended.
const TIME_LIMIT: Duration = Duration::from_secs(15);

/// Maximum number of bytes of its output; what follows is ignored.
const OUTPUT_BYTES_MAX: usize = 4096;

const NO_SUCH_FILE: i32 = 2;

/// The words of a status line behind its mode.
const STATUS_WORDS: usize = 9;
const MODIFIED_WORD: usize = 5;
const SIZE_WORD: usize = 6;

/// A program that knows the names in mass storage.
pub struct CatalogProgram {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<String>,
    /// Returns the name of a file in mass storage.
    pub remote_name: Box<dyn Fn(&LogicalPath) -> OsString + Send + Sync>,
    /// Its processes, if it reads requests line by line; `None` if it is run for each request.
    pub processes: Option<CatalogProcesses>,
}

impl RemoteCatalog for CatalogProgram {
    fn status(&self, path: &LogicalPath) -> Result<Option<RemoteStatus>, CopyFailure> {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        let fail = |text: String| CopyFailure::new(FailureReason::Temporary, format!("{program}: {text}"));
        let command = || {
            let mut command = Command::new(&self.program);
            command.args(&self.arguments);
            command
        };
        let name = (self.remote_name)(path);
        let output = match &self.processes {
            Some(processes) => ask(processes, &command, &name),
            None => {
                let mut command = command();
                command.arg("statx").arg(name);
                output(command)
            }
        };
        let output = output.map_err(|error| fail(error.to_string()))?;
        parse(&String::from_utf8_lossy(&output)).map_err(fail)
    }
}

/// Asks a process that reads lines.
fn ask(processes: &CatalogProcesses, command: &dyn Fn() -> Command, name: &OsStr) -> io::Result<Vec<u8>> {
    if name.as_bytes().iter().any(u8::is_ascii_control) {
        return Err(io::Error::other("a name with control characters cannot be asked for in a line"));
    }
    let command = || {
        let mut command = command();
        command.stderr(Stdio::null());
        command
    };
    let line = [b"statx ", name.as_bytes(), b"\n"].concat();
    processes.ask(&command, &line, Instant::now() + TIME_LIMIT)
}

/// Parses the output: `Ok(None)` if there is no such file.
fn parse(output: &str) -> Result<Option<RemoteStatus>, String> {
    let (first, rest) = output.split_once('\n').unwrap_or((output, ""));
    let code = first.split_whitespace().next().and_then(|word| word.parse::<i32>().ok());
    match code {
        Some(0) => status(rest.lines().next().unwrap_or_default())
            .map(Some)
            .ok_or_else(|| "its answer to statx has no status of a file".to_owned()),
        Some(NO_SUCH_FILE) => Ok(None),
        Some(code) => Err(io::Error::from_raw_os_error(code).to_string()),
        None => Err("its answer does not begin with a number".to_owned()),
    }
}

/// Parses `type and mode, links, user, group, accessed, changed, modified, size, block size, blocks`.
/// A blank may separate type and mode.
fn status(line: &str) -> Option<RemoteStatus> {
    let kind = line.chars().next()?;
    let rest = line.get(kind.len_utf8()..)?.trim_start();
    let mode = rest.get(..9)?;
    let words: Vec<&str> = rest.get(9..)?.split_whitespace().collect();
    if words.len() < STATUS_WORDS {
        return None;
    }
    let bits = mode.chars().fold(0, |bits, letter| bits << 1 | u32::from(letter != '-'));
    Some(RemoteStatus {
        is_directory: kind == 'd',
        size: words.get(SIZE_WORD)?.parse().ok()?,
        mode: bits,
        modified: words.get(MODIFIED_WORD)?.parse().ok()?,
    })
}

/// Runs a program and returns the begin of its output. A program that takes too long is ended with
/// all processes that it has started.
fn output(mut command: Command) -> io::Result<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn()?;
    let output = read(&mut child);
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        kill_process_group(group, Signal::KILL).ok();
    }
    child.wait()?;
    output
}

fn read(child: &mut Child) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + TIME_LIMIT;
    let mut output = Vec::new();
    let Some(pipe) = child.stdout.as_ref().map(AsFd::as_fd) else { return Ok(output) };
    rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
    let mut buffer = [0; OUTPUT_BYTES_MAX];
    loop {
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) => return Ok(output),
            Ok(length) => output.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(rustix::io::Errno::AGAIN) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                let mut descriptors = [PollFd::new(&pipe, PollFlags::IN)];
                if matches!(poll(&mut descriptors, Some(&time)), Ok(0)) {
                    return Err(io::Error::from(rustix::io::Errno::TIMEDOUT));
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if output.len() >= OUTPUT_BYTES_MAX {
            return Ok(output);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::path::Path;

    const LINE: &str = "rw-r--r-- 1 0 0 11 12 13 5000 4096 10";

    #[test]
    fn a_status_has_its_type_beside_the_mode_or_before_it() {
        let file = RemoteStatus { is_directory: false, size: 5000, mode: 0o644, modified: 13 };
        assert_eq!(parse(&format!("0\n-{LINE}\n")), Ok(Some(file)));
        assert_eq!(parse(&format!("0 ok\n- {LINE}")), Ok(Some(file)));
        assert_eq!(parse(&format!("0\nd{LINE}")), Ok(Some(RemoteStatus { is_directory: true, ..file })));
    }

    #[test]
    fn other_answers_are_errors_and_a_missing_file_is_none() {
        assert_eq!(parse("2\n"), Ok(None));
        for bad in
            ["", "x", "0", "0\n", "0\n-rw-", "0\n-rw-r--r-- 1 2 3", "13", "0\n-rw-r--r-- 1 0 0 1 2 x 5 6 7"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("13\n").unwrap_err().contains("denied"));
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
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        assert_eq!(catalog.status(&path("/f")).unwrap().map(|status| status.size), Some(5000));
        assert_eq!(catalog.status(&path("/g")).unwrap(), None);
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
        let status = |text: &str| catalog.status(&LogicalPath::parse(text.as_bytes()).unwrap());
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
        // A line too much is not the answer to the next request.
        assert_eq!(status("/more").unwrap(), None);
        assert_eq!(status("/a b").unwrap().map(|status| status.size), Some(5000));
        assert!(status("/a\nstatx /tape/a b").is_err());
        // Many ask at once, and no request gets the answer to another one.
        std::thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!(status("/a b").unwrap().is_some() && status("/g").unwrap().is_none());
                    }
                });
            }
        });
        std::fs::remove_dir_all(&notes).unwrap();
    }

    /// A process that has ended while it was idle is replaced without an error.
    #[test]
    fn a_process_that_ended_between_two_requests_is_replaced() {
        let notes = notes("ended");
        let catalog = persistent("read line; touch $1/$$; echo 2", &notes);
        for number in 1..4 {
            assert_eq!(catalog.status(&LogicalPath::parse(b"/g").unwrap()).unwrap(), None);
            assert_eq!(std::fs::read_dir(&notes).unwrap().count(), number);
        }
        std::fs::remove_dir_all(&notes).unwrap();
    }
}
