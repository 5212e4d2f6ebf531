//! The log: one line per event on which an operator acts, written by a separate thread because
//! disks can block.
//!
//! | file | content |
//! |---|---|
//! | `format` | text lines with the time stamp that log filters expect, or JSON objects |
//! | `file` | [`LogFile`]: the file, its rotation and the retention of old ones |
//! | `writer` | a bounded queue in front of it, so that logging never waits for a disk |
//! | `levels` | [`Levels`]: the level of each room, which can change while the server runs |

mod file;
mod format;
mod levels;
mod writer;

pub use file::{LogFile, Retention, RetentionError};
pub use levels::{Levels, LevelsError};
pub use writer::QUEUED_LINES_MAX;

use base::Supervisor;
use config::LogFormat;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};
use writer::LogWriter;

/// The destination of lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogDestination {
    /// The error output, for a server in the foreground.
    Stderr,
    /// A file, rotated at local midnight unless its retention is external.
    File {
        /// The file.
        path: PathBuf,
        /// The retention of old files.
        retention: Retention,
    },
    /// Lines are discarded: in the background without a log file.
    Nowhere,
}

/// The configuration of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// The destination.
    pub target: LogDestination,
    /// The format: text or JSON.
    pub format: LogFormat,
    /// Time stamps with microseconds (`-z`).
    pub precise: bool,
    /// The initial level of each room.
    pub levels: Levels,
}

/// The log in force. Queued lines are written when it is dropped.
pub struct ActiveLog {
    writer: Option<LogWriter>,
    filter: reload::Handle<tracing_subscriber::filter::Targets, Registry>,
    levels: Mutex<Levels>,
}

impl ActiveLog {
    /// Opens the destination and captures all log events and panics of the process from now on.
    ///
    /// # Errors
    /// The file cannot be opened, or the process logs elsewhere already.
    pub fn start(settings: LogSettings) -> io::Result<Self> {
        Self::start_supervised(settings, &Supervisor::default())
    }

    /// Starts the log like [`ActiveLog::start`]. The writing thread reports to `supervisor` if it
    /// ends before the log does.
    ///
    /// # Errors
    /// As [`ActiveLog::start`].
    pub fn start_supervised(settings: LogSettings, supervisor: &Supervisor) -> io::Result<Self> {
        let colours = settings.target == LogDestination::Stderr && io::IsTerminal::is_terminal(&io::stderr());
        let writer = match settings.target {
            LogDestination::Stderr => Some(LogWriter::start(writer::LogSink::Stderr, supervisor)?),
            LogDestination::File { path, retention } => {
                let file = LogFile::open(path, retention)?;
                Some(LogWriter::start(writer::LogSink::File(file), supervisor)?)
            }
            LogDestination::Nowhere => None,
        };
        let (filter, handle) = reload::Layer::new(settings.levels.filter());
        let lines = writer.as_ref().map(|writer| {
            // The library would colour field names even in files; `format` colours lines for
            // terminals only.
            let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer.queue());
            match settings.format {
                LogFormat::Text => {
                    lines.event_format(format::TextFormat { precise: settings.precise, colours }).boxed()
                }
                LogFormat::Json => lines
                    .json()
                    .flatten_event(true)
                    .with_timer(format::JsonTime)
                    .map_event_format(format::JsonFormat)
                    .boxed(),
            }
        });
        tracing_subscriber::registry()
            .with(lines.with_filter(filter))
            .try_init()
            .map_err(|error| io::Error::other(error.to_string()))?;
        std::panic::set_hook(Box::new(report_panic));
        Ok(Self { writer, filter: handle, levels: Mutex::new(settings.levels) })
    }

    /// Returns the current level of each room.
    pub fn levels(&self) -> Levels {
        self.levels.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Changes the level of each room.
    pub fn set_levels(&self, levels: Levels) {
        if self.filter.reload(levels.filter()).is_ok() {
            *self.levels.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = levels;
        }
    }

    /// Closes the file and opens its name again, for programs that moved it away. Waits until that
    /// is done.
    ///
    /// # Errors
    /// The name cannot be opened; then the old file stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        self.writer.as_ref().map_or(Ok(()), LogWriter::reopen)
    }

    /// Drops the lines of all threads but this one from now on, so that the next line can be the
    /// last of the process.
    pub(crate) fn silence_other_threads(&self) {
        if let Some(writer) = &self.writer {
            writer.silence_other_threads();
        }
    }

    /// Waits until all queued lines are written.
    pub fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.flush();
        }
    }
}

/// Logs the location and message of a panic. The owner of the thread decides what to end.
fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let message = info.payload_as_str().unwrap_or("no message");
    tracing::error!(thread = thread.name().unwrap_or("unnamed"), place, "panic: {message}");
}
