//! [`NameSpaceEvents`]: lines for XRootD's name space daemon (`XrdCnsd`) about files that come from mass storage and that
//! leave the disk (`frm.all.cnsd`).
//!
//! The lines go to the named pipe of the daemon. A thread writes them, so that no transfer and no purge waits for the daemon.

use crate::line_feed::{LineFeed, PIPE_LINE_BYTES_MAX, PipeReaders, PipeReceiver, WaitingLines};
use base::LogicalPath;
use config::{Effective, NameSpaceDaemon};
use residency::{EndedCopy, TransferDirection};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The pipe below the directory of the daemon.
const PIPE: &str = "cns/XrdCnsd.events";

/// Maximum number of bytes of lines that wait. Further ones are lost.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Permission bits of a staged file.
const FILE_MODE: u32 = 0o644;

/// The lines of a process.
pub(crate) struct NameSpaceEvents {
    /// The pipe; `None`: nothing is written.
    pipe: Option<PathBuf>,
    /// Lines wait for the daemon. Otherwise those of a time without it are lost.
    waits: bool,
    feed: Mutex<Option<LineFeed>>,
    /// The log has a line about events that cannot be written.
    has_warned: AtomicBool,
}

impl NameSpaceEvents {
    /// Returns the events of a configuration. Without a directory, everybody could make the pipe in /tmp.
    pub(crate) fn of(effective: &Effective) -> Self {
        let values = &effective.residency.name_space.value;
        let has_directory = !effective.process.admin_path.origin.is_default();
        let directory =
            values.directory.clone().or_else(|| has_directory.then(|| effective.admin_directory()));
        let pipe = directory.filter(|_| values.daemon != NameSpaceDaemon::Ignored);
        Self::new(pipe.map(|directory| directory.join(PIPE)), values.daemon == NameSpaceDaemon::Required)
    }

    fn new(pipe: Option<PathBuf>, waits: bool) -> Self {
        Self { pipe, waits, feed: Mutex::new(None), has_warned: AtomicBool::new(false) }
    }

    /// Reports a copy that has ended, if it brought a file in. Does not block.
    pub(crate) fn copied(&self, copy: &EndedCopy<'_>) {
        let entry = copy.entry;
        if entry.key.direction == TransferDirection::In && copy.failure.is_none() {
            self.arrived(&entry.client, &entry.key.path, copy.bytes);
        }
    }

    /// Reports a file that came from mass storage for a client, with its size in bytes.
    fn arrived(&self, client: &str, path: &LogicalPath, bytes: u64) {
        let client: String = client.chars().filter(|c| !c.is_control() && !c.is_whitespace()).collect();
        let client = if client.is_empty() { "scalla" } else { &client };
        self.send(path, |name| {
            [
                [format!("{client} create {FILE_MODE:o} ").as_bytes(), name, b"\n"].concat(),
                [format!("{client} closew ").as_bytes(), name, format!(" {bytes}\n").as_bytes()].concat(),
            ]
        });
    }

    /// Reports a file that has left the disk. Does not block.
    pub(crate) fn removed(&self, path: &LogicalPath) {
        let process = std::process::id();
        self.send(path, |name| {
            [[format!("purge.{process}.0@localhost rm ").as_bytes(), name, b"\n"].concat()]
        });
    }

    fn send<const N: usize>(&self, path: &LogicalPath, lines: impl FnOnce(&[u8]) -> [Vec<u8>; N]) {
        let Some(pipe) = &self.pipe else { return };
        let name = path.as_bytes();
        // The daemon would read another name: it splits lines at blanks, and drops what follows a question mark.
        if name.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control() || *byte == b'?') {
            return self.warn("a name with blanks, control characters or ? cannot be given to it");
        }
        let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        if feed.is_none() {
            let readers = if self.waits { PipeReaders::Required } else { PipeReaders::Optional };
            let receiver = PipeReceiver::new(pipe.clone(), readers);
            let receive = move |lines: &WaitingLines| receiver.run(lines);
            *feed = LineFeed::start(
                "the name space daemon",
                "cns-events",
                (WAITING_BYTES_MAX, PIPE_LINE_BYTES_MAX),
                receive,
            )
            .ok();
        }
        let Some(feed) = feed.as_ref() else { return self.warn("no thread can be started") };
        for line in lines(name) {
            feed.send(line);
        }
    }

    fn warn(&self, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(why, "the name space daemon gets no events about some files");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::{self, File};
    use std::io::{BufRead as _, BufReader};

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("server-cns-{name}-{}", std::process::id()));
            fs::remove_dir_all(&directory).ok();
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn pipe(&self) -> PathBuf {
            self.0.join("events")
        }

        /// Makes the pipe, and reads it.
        fn daemon(&self) -> impl FnMut() -> String {
            mknodat(CWD, self.pipe(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            // With an end for writing, it does not end between two lines.
            let file = File::options().read(true).write(true).open(self.pipe()).unwrap();
            let mut lines = BufReader::new(file);
            move || {
                let mut line = String::new();
                lines.read_line(&mut line).unwrap();
                line
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn path(name: &str) -> LogicalPath {
        LogicalPath::parse(name.as_bytes()).unwrap()
    }

    /// The lines were recorded from the real programs, which have more blanks behind `rm`.
    #[test]
    fn events_have_the_form_of_the_real_programs() {
        let place = Place::new("form");
        let mut line = place.daemon();
        let events = NameSpaceEvents::new(Some(place.pipe()), false);
        events.arrived("root.1:2@host", &path("/store/t1"), 5);
        assert_eq!(line(), "root.1:2@host create 644 /store/t1\n");
        assert_eq!(line(), "root.1:2@host closew /store/t1 5\n");
        // These would be read as other names.
        for odd in ["/a b", "/a\tb", "/a?b"] {
            events.removed(&path(odd));
        }
        events.arrived("a b\n", &path("/f"), 0);
        assert_eq!(line(), "ab create 644 /f\n");
        assert_eq!(line(), "ab closew /f 0\n");
        events.removed(&path("/p1"));
        assert_eq!(line(), format!("purge.{}.0@localhost rm /p1\n", std::process::id()));
    }

    #[test]
    fn lines_wait_only_for_a_daemon_that_is_required() {
        for waits in [false, true] {
            let place = Place::new(if waits { "required" } else { "missing" });
            let events = NameSpaceEvents::new(Some(place.pipe()), waits);
            events.removed(&path("/first"));
            if !waits {
                // Its thread ends after that line.
                drop(events);
                let events = NameSpaceEvents::new(Some(place.pipe()), waits);
                let mut line = place.daemon();
                events.removed(&path("/second"));
                assert!(line().ends_with(" rm /second\n"));
                continue;
            }
            let mut line = place.daemon();
            events.removed(&path("/second"));
            assert!(line().ends_with(" rm /first\n"));
            assert!(line().ends_with(" rm /second\n"));
        }
    }

    #[test]
    fn the_end_of_the_process_does_not_wait_for_a_daemon() {
        let place = Place::new("end");
        let events = NameSpaceEvents::new(Some(place.pipe()), true);
        (0..10).for_each(|_| events.removed(&path("/f")));
        drop(events);
        // A file at the place of the pipe is not written.
        fs::write(place.pipe(), "x").unwrap();
        NameSpaceEvents::new(Some(place.pipe()), false).removed(&path("/f"));
        assert_eq!(fs::read(place.pipe()).unwrap(), b"x");
    }
}
