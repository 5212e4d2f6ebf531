//! [`NameSpaceEvents`]: lines for XRootD's name space daemon (`XrdCnsd`) about files that come from mass storage and that
//! leave the disk (`frm.all.cnsd`).
//!
//! The lines go to the named pipe of the daemon. A thread writes them, so that no transfer and no purge waits for the daemon.

use base::LogicalPath;
use config::{Effective, NameSpaceDaemon};
use residency::{EndedCopy, TransferDirection};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pipe below the directory of the daemon.
const PIPE: &str = "cns/XrdCnsd.events";

/// Maximum number of lines that wait. Further ones are lost.
const WAITING_MAX: usize = 10_000;

/// Maximum length of a line in bytes. The system writes no longer one as a whole to a pipe.
const LINE_BYTES_MAX: usize = 4096;

/// The interval between two attempts to write a line.
const INTERVAL: Duration = Duration::from_secs(1);

/// Permission bits of a staged file.
const FILE_MODE: u32 = 0o644;

/// The lines of a process.
pub(crate) struct NameSpaceEvents {
    /// The pipe; `None`: nothing is written.
    pipe: Option<PathBuf>,
    /// Lines wait for the daemon. Otherwise those of a time without it are lost.
    waits: bool,
    writer: Mutex<Option<EventWriter>>,
    /// The log has a line about lost events.
    has_warned: AtomicBool,
}

/// The thread that writes lines.
struct EventWriter {
    lines: SyncSender<Vec<u8>>,
    is_ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
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
        Self { pipe, waits, writer: Mutex::new(None), has_warned: AtomicBool::new(false) }
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
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() {
            *writer = EventWriter::start(pipe.clone(), self.waits);
        }
        let Some(writer) = writer.as_ref() else { return self.warn("no thread can be started") };
        for line in lines(name) {
            if line.len() > LINE_BYTES_MAX {
                self.warn("a name is too long for it");
            } else if writer.lines.try_send(line).is_err() {
                self.warn("it does not read its pipe");
            }
        }
    }

    fn warn(&self, why: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(why, "the name space daemon gets no events about some files");
        }
    }
}

impl Drop for NameSpaceEvents {
    /// Lines that the daemon can take are written before.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            writer.end();
        }
    }
}

impl EventWriter {
    fn start(pipe: PathBuf, waits: bool) -> Option<Self> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let is_ending = Arc::new(AtomicBool::new(false));
        let ends = is_ending.clone();
        let thread = std::thread::Builder::new().name("cns-events".to_owned());
        let thread = thread.spawn(move || write_lines(&pipe, waits, &waiting, &ends)).ok()?;
        Some(Self { lines, is_ending, thread })
    }

    fn end(self) {
        self.is_ending.store(true, Ordering::Release);
        drop(self.lines);
        self.thread.thread().unpark();
        // It only fails after a panic, which the log has.
        self.thread.join().ok();
    }
}

/// Writes lines until their sender has ended.
fn write_lines(pipe: &Path, waits: bool, lines: &Receiver<Vec<u8>>, is_ending: &AtomicBool) {
    let mut is_missing = false;
    while let Ok(line) = lines.recv() {
        loop {
            match write_line(pipe, &line) {
                Ok(()) => is_missing = false,
                // It reads, but not now.
                Err(error) if waits || error == Errno::AGAIN => {
                    if is_ending.load(Ordering::Acquire) {
                        let lost = 1 + lines.iter().count();
                        return tracing::warn!(%error, lost, "the name space daemon did not read all events");
                    }
                    if !std::mem::replace(&mut is_missing, true) {
                        tracing::warn!(pipe = %pipe.display(), %error, "waiting for the name space daemon");
                    }
                    std::thread::park_timeout(INTERVAL);
                    continue;
                }
                Err(error) => tracing::debug!(%error, "no name space daemon reads events"),
            }
            break;
        }
    }
}

/// Writes a line as a whole. `ENXIO` if nobody reads the pipe, `EAGAIN` if it is full.
fn write_line(pipe: &Path, line: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let pipe = open(pipe, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&pipe)?.st_mode) != FileType::Fifo {
        return Err(Errno::NXIO);
    }
    rustix::io::write(&pipe, line).map(|_| ())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
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
        (0..WAITING_MAX + 10).for_each(|_| events.removed(&path("/f")));
        assert!(events.has_warned.load(Ordering::Relaxed), "memory is bounded");
        drop(events);
        // A file at the place of the pipe is not written.
        fs::write(place.pipe(), "x").unwrap();
        NameSpaceEvents::new(Some(place.pipe()), false).removed(&path("/f"));
        assert_eq!(fs::read(place.pipe()).unwrap(), b"x");
    }
}
