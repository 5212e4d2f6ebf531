//! Orders to the program that knows the names in mass storage (`create`, `rm`, `mv`), and its listings (`dlist`).
//!
//! Each one has a process of its own, also of a program that reads lines: nothing in its output shows to which
//! order it belongs.

use crate::catalog::CatalogProgram;
use crate::entry::{CopyFailure, FailureReason};
use crate::line_process::LineProcess;
use crate::ports::{NameOrder, NameOutcome, RemoteNames};
use base::LogicalPath;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time between two parts of an answer, as that for the status of a file.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The time that the program has for all parts of its answer.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// The time that the program has to end after its answer.
const END_TIME: Duration = Duration::from_secs(15);

/// Maximum size of the answer to an order, and to a listing.
const ORDER_BYTES_MAX: usize = 4096;
const LISTING_BYTES_MAX: usize = 8 << 20;

/// Error numbers of answers.
const NO_SUCH_FILE: i32 = 2;
const EXISTS: i32 = 17;
const NOT_A_DIRECTORY: i32 = 20;
const UNKNOWN: [i32; 2] = [38, 95];

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o777;

/// The words of an order.
struct OrderWords<'a> {
    verb: &'a str,
    names: Vec<OsString>,
}

impl CatalogProgram {
    /// Executes an order. Blocks.
    pub(crate) fn execute(&self, order: NameOrder<'_>) -> Result<NameOutcome, CopyFailure> {
        let remote = |path: &LogicalPath| (self.remote_name)(path);
        let words = match order {
            NameOrder::Create(path, mode) => {
                let mode = OsString::from(format!("{:o}", mode & PERMISSIONS));
                OrderWords { verb: "create", names: vec![remote(path), mode] }
            }
            NameOrder::Remove(path) => OrderWords { verb: "rm", names: vec![remote(path)] },
            NameOrder::Rename(from, to) => OrderWords { verb: "mv", names: vec![remote(from), remote(to)] },
        };
        let verb = words.verb;
        let (code, _) = self.run(&words, ORDER_BYTES_MAX)?;
        match code {
            0 => Ok(NameOutcome::Done),
            NO_SUCH_FILE => Ok(NameOutcome::Missing),
            EXISTS => Ok(NameOutcome::Exists),
            code if UNKNOWN.contains(&code) => Ok(NameOutcome::Unknown),
            code => Err(self.failure(verb, &io::Error::from_raw_os_error(code))),
        }
    }

    /// Returns the names in a directory. Blocks.
    pub(crate) fn listing(&self, path: &LogicalPath) -> Result<Option<RemoteNames>, CopyFailure> {
        let words = OrderWords { verb: "dlist", names: vec![(self.remote_name)(path)] };
        let (code, rest) = self.run(&words, LISTING_BYTES_MAX)?;
        match code {
            0 => {}
            NO_SUCH_FILE | NOT_A_DIRECTORY => return Ok(None),
            code => return Err(self.failure("dlist", &io::Error::from_raw_os_error(code))),
        }
        let names = rest.split(|byte| *byte == b'\n').map(|name| name.strip_suffix(b"\r").unwrap_or(name));
        let is_name =
            |name: &&[u8]| !name.is_empty() && *name != b"." && *name != b".." && !name.contains(&b'/');
        Ok(Some(names.filter(is_name).map(<[u8]>::to_vec).collect()))
    }

    /// Runs the program, and returns the number and the text after its line.
    fn run(&self, words: &OrderWords<'_>, most: usize) -> Result<(i32, Vec<u8>), CopyFailure> {
        self.answer_to(words, most).map_err(|error| self.failure(words.verb, &error))
    }

    fn answer_to(&self, words: &OrderWords<'_>, most: usize) -> io::Result<(i32, Vec<u8>)> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stderr(Stdio::null());
        let line = match self.processes {
            None => {
                command.arg(words.verb).args(&words.names);
                None
            }
            Some(_) => Some(words.line()?),
        };
        let mut process = LineProcess::start(command)?;
        if let Some(line) = line {
            process.write(&line, Instant::now() + SILENCE_MAX)?;
        }
        process.close_input();
        let output = process.read_all(most, SILENCE_MAX, Instant::now() + ANSWER_TIME)?;
        let end = output.iter().position(|byte| *byte == b'\n');
        let (first, rest) = match end {
            Some(end) => output.split_at(end + 1),
            None => return Err(io::Error::other("its answer is not complete")),
        };
        let first = String::from_utf8_lossy(first);
        let code = first.split_whitespace().next().and_then(|word| word.parse::<i32>().ok());
        let code = code.filter(|code| *code >= 0);
        let code = code.ok_or_else(|| io::Error::other("its answer does not begin with a number"))?;
        // One that was killed may have executed a part, or written a part of its list.
        if code == 0 {
            process.check_end(Instant::now() + END_TIME)?;
        }
        Ok((code, rest.to_vec()))
    }

    fn failure(&self, verb: &str, error: &io::Error) -> CopyFailure {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        let text = format!("{program} {verb}: {}", base::errno_text(error));
        CopyFailure::new(FailureReason::Temporary, text)
    }
}

impl OrderWords<'_> {
    /// Returns the order as a line. Names have no end in it, so blanks are possible only in the last word.
    fn line(&self) -> io::Result<Vec<u8>> {
        let is_alone = self.names.len() == 1;
        let is_odd = |byte: &u8| byte.is_ascii_control() || *byte == b' ' && !is_alone;
        if self.names.iter().any(|name| name.as_bytes().iter().any(is_odd)) {
            return Err(io::Error::other("it cannot be given this name in a line"));
        }
        let mut line = self.verb.as_bytes().to_vec();
        for name in &self.names {
            line.push(b' ');
            line.extend_from_slice(name.as_bytes());
        }
        line.push(b'\n');
        Ok(line)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::catalog_processes::CatalogProcesses;
    use crate::ports::RemoteCatalog as _;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    /// A shell script that is run for each order, or reads lines.
    fn catalog(script: &str, reads_lines: bool) -> CatalogProgram {
        CatalogProgram {
            program: "/bin/sh".into(),
            arguments: ["-c", script, "sh"].map(str::to_owned).to_vec(),
            remote_name: Box::new(|path| crate::remote_name("/tape", path)),
            processes: reads_lines.then(CatalogProcesses::default),
        }
    }

    /// Answers 0 if the words are these, and 22 otherwise.
    fn expects(words: &str, reads_lines: bool) -> CatalogProgram {
        let test = format!("[ \"$words\" = '{words}' ] && echo 0 || echo 22");
        match reads_lines {
            true => catalog(&format!("while read -r words; do {test}; done"), true),
            false => catalog(&format!("words=\"$*\"; {test}"), false),
        }
    }

    #[test]
    fn orders_have_the_words_of_xrootd() {
        for reads_lines in [false, true] {
            let [from, to] = ["/d/f", "/d/g"].map(path);
            for (words, order) in [
                ("create /tape/d/f 640", NameOrder::Create(&from, 0o100_640)),
                ("rm /tape/d/f", NameOrder::Remove(&from)),
                ("mv /tape/d/f /tape/d/g", NameOrder::Rename(&from, &to)),
            ] {
                assert_eq!(expects(words, reads_lines).order(order), Ok(NameOutcome::Done), "{words}");
                assert!(expects("other", reads_lines).order(order).is_err());
            }
        }
        // In a line, two names with blanks would be read as others.
        let [odd, plain] = ["/a b", "/g"].map(path);
        assert_eq!(expects("rm /tape/a b", true).order(NameOrder::Remove(&odd)), Ok(NameOutcome::Done));
        assert!(catalog("echo 0", true).order(NameOrder::Rename(&odd, &plain)).is_err());
        assert!(catalog("echo 0", true).order(NameOrder::Create(&odd, 0o644)).is_err());
        assert!(catalog("echo 0", true).order(NameOrder::Remove(&path("/a\nrm /b"))).is_err());
        assert_eq!(catalog("echo 0", false).order(NameOrder::Rename(&odd, &plain)), Ok(NameOutcome::Done));
    }

    #[test]
    fn answers_to_orders_have_their_meaning() {
        let file = path("/f");
        let outcome = |script: &str| catalog(script, false).order(NameOrder::Remove(&file));
        assert_eq!(outcome("echo 2"), Ok(NameOutcome::Missing));
        assert_eq!(outcome("echo 17"), Ok(NameOutcome::Exists));
        assert_eq!(outcome("echo 38"), Ok(NameOutcome::Unknown));
        assert!(outcome("echo 13").unwrap_err().text.contains("sh rm"));
        // None of these shows that it was executed.
        for bad in ["", "echo removed", "printf 0", "echo 0; exit 1", "echo -2", "echo 0; yes | head -c 9999"]
        {
            assert!(outcome(bad).is_err(), "{bad}");
        }
    }

    /// Each part comes soon, and there is always another one.
    #[test]
    fn an_answer_without_an_end_is_ended() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "while echo x; do sleep 0.05; done"]);
        let mut process = LineProcess::start(command).unwrap();
        let deadline = Instant::now() + Duration::from_millis(300);
        assert!(process.read_all(LISTING_BYTES_MAX, SILENCE_MAX, deadline).is_err());
    }

    #[test]
    fn a_listing_has_all_names_or_fails() {
        let listing = |script: &str| catalog(script, false).list(&path("/d"));
        let names = |names: &[&str]| Ok(Some(names.iter().map(|name| name.as_bytes().to_vec()).collect()));
        assert_eq!(
            listing("[ \"$*\" = 'dlist /tape/d' ] && printf '0\\na b\\n.\\n..\\n\\nx/y\\nc\\r\\nd'"),
            names(&["a b", "c", "d"])
        );
        assert_eq!(listing("echo 0"), names(&[]));
        assert_eq!(listing("echo 2"), Ok(None));
        assert_eq!(listing("echo 20"), Ok(None));
        for bad in ["echo 5", "", "a", "echo 0; echo a; exit 1"] {
            assert!(listing(bad).is_err(), "{bad}");
        }
        let many = catalog("echo 0; seq 1 100000", false).list(&path("/d")).unwrap().unwrap();
        assert_eq!(many.len(), 100_000);
        let lines = catalog(
            "while read -r verb name; do [ \"$verb $name\" = 'dlist /tape/a b' ] && printf '0\\nx\\n'; done",
            true,
        );
        assert_eq!(lines.list(&path("/a b")), names(&["x"]));
    }
}
