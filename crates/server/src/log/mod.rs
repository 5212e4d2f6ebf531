//! The log: one line per thing an operator acts on, written by a thread of its own.
//!
//! | file | what it holds |
//! |---|---|
//! | `format` | a line for people, with the time stamp that sites' scripts know; or one JSON object |
//! | `file` | [`LogFile`]: the file, its rotation and how many old ones are kept |
//! | `writer` | a bounded queue in front of it: whoever logs never waits for a disk |
//! | `levels` | [`Levels`]: how much each room says, changed while the server runs |

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
use writer::Writer;

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// The error output, for a server in the foreground.
    Stderr,
    /// A file, rotated at local midnight unless its retention says otherwise.
    File {
        /// The file.
        path: PathBuf,
        /// What happens to the old ones.
        retention: Retention,
    },
    /// Nowhere: in the background without a log file.
    Nowhere,
}

/// How to log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// Where to.
    pub target: Target,
    /// Lines for people or for programs.
    pub format: LogFormat,
    /// Time stamps with microseconds (`-z`).
    pub precise: bool,
    /// How much each room says at first.
    pub levels: Levels,
}

/// The log in force. Lines that are still queued are written when it is dropped.
pub struct Log {
    writer: Option<Writer>,
    filter: reload::Handle<tracing_subscriber::filter::Targets, Registry>,
    levels: Mutex<Levels>,
}

impl Log {
    /// Opens the target and takes over what the process logs from now on, panics too.
    ///
    /// # Errors
    /// When the file cannot be opened, or the process logs elsewhere already.
    pub fn start(settings: LogSettings) -> io::Result<Self> {
        Self::start_supervised(settings, &Supervisor::default())
    }

    /// Does the same; the thread that writes reports to `supervisor` when it ends before the log does.
    ///
    /// # Errors
    /// As [`Log::start`].
    pub fn start_supervised(settings: LogSettings, supervisor: &Supervisor) -> io::Result<Self> {
        let colours = settings.target == Target::Stderr && io::IsTerminal::is_terminal(&io::stderr());
        let writer = match settings.target {
            Target::Stderr => Some(Writer::start(writer::Sink::Stderr, supervisor)?),
            Target::File { path, retention } => {
                let file = LogFile::open(path, retention)?;
                Some(Writer::start(writer::Sink::File(file), supervisor)?)
            }
            Target::Nowhere => None,
        };
        let (filter, handle) = reload::Layer::new(settings.levels.filter());
        let lines = writer.as_ref().map(|writer| {
            // The library would dress up field names even in files; `format` knows what a terminal is.
            let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer.queue());
            match settings.format {
                LogFormat::Text => {
                    lines.event_format(format::Text { precise: settings.precise, colours }).boxed()
                }
                LogFormat::Json => lines
                    .json()
                    .flatten_event(true)
                    .with_timer(format::JsonTime)
                    .map_event_format(format::Json)
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

    /// How much each room says now.
    pub fn levels(&self) -> Levels {
        self.levels.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Changes how much each room says.
    pub fn set_levels(&self, levels: Levels) {
        if self.filter.reload(levels.filter()).is_ok() {
            *self.levels.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = levels;
        }
    }

    /// Closes the file and opens it again under its name, for programs that moved it away. Waits until that is done.
    ///
    /// # Errors
    /// When the name cannot be opened; then the old file stays in use.
    pub fn reopen(&self) -> io::Result<()> {
        self.writer.as_ref().map_or(Ok(()), Writer::reopen)
    }

    /// Drops the lines of all threads but this one from now on, so that the next line can be the last of the process.
    pub(crate) fn silence_other_threads(&self) {
        if let Some(writer) = &self.writer {
            writer.silence_other_threads();
        }
    }

    /// Waits until every line queued so far is written.
    pub fn flush(&self) {
        if let Some(writer) = &self.writer {
            writer.flush();
        }
    }
}

/// A panic is a fault of ours: the place and the message go to the log, the thread's owner decides what ends.
fn report_panic(info: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let message = info.payload_as_str().unwrap_or("no message");
    tracing::error!(thread = thread.name().unwrap_or("unnamed"), place, "panic: {message}");
}
