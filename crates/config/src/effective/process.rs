//! Values of the process as a whole: directories, site name, log, drain, memory.
//!
//! Paths of an instance are derived here, so that all crates use the same ones.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::setting::Setting;

/// Default of `scalla.drain`, in seconds.
pub const DRAIN_SECONDS: u64 = 30;
/// Maximum length of a site name (`all.sitename`), in characters.
pub const SITE_NAME_MAX: usize = 63;

/// Returns a site name for reports, with `.` for each byte that could break the surrounding text.
pub(crate) fn site_name(text: &str) -> String {
    let tame = |byte: u8| match byte {
        b'_' | b'-' | b':' | b'.' => char::from(byte),
        byte if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '.',
    };
    text.bytes().map(tame).take(SITE_NAME_MAX).collect()
}

/// A directory that is created if it is missing: mode 0700, or 0770 with `group`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectorySetting {
    /// The configured directory, without the subdirectory of the instance.
    pub path: PathBuf,
    /// Set if the group may enter and write.
    pub group: bool,
}

impl DirectorySetting {
    /// Returns the directory of one instance: `<path>/<instance>`, or `path` for the anonymous
    /// instance.
    #[must_use]
    pub fn for_instance(&self, instance: Option<&str>) -> PathBuf {
        match instance {
            Some(name) => self.path.join(name),
            None => self.path.clone(),
        }
    }

    /// Returns the mode with which it is created.
    #[must_use]
    pub fn mode(&self) -> u32 {
        if self.group { 0o770 } else { 0o700 }
    }
}

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Human-readable lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Log level of one part of the server, from its trace directive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum LogLevel {
    /// Events for operators (trace `off`).
    #[default]
    Info,
    /// One line per event of the traced kinds.
    Debug,
    /// All events (`all`).
    Trace,
}

/// A trace directive: the kinds of events to log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The enabled kinds, in the order of the directive's table; empty is `off`.
    pub options: Vec<&'static str>,
    /// Set if every kind of the directive is enabled.
    pub all: bool,
}

impl Trace {
    /// Returns the corresponding log level: `off` info, some kinds debug, `all` trace.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        match (self.all, self.options.is_empty()) {
            (true, _) => LogLevel::Trace,
            (false, true) => LogLevel::Info,
            (false, false) => LogLevel::Debug,
        }
    }
}

/// Values of the process.
#[derive(Clone, PartialEq, Debug)]
pub struct ProcessConfig {
    /// `all.adminpath`: sockets, state, environment files. Default `/tmp`.
    pub admin_path: Setting<DirectorySetting>,
    /// `all.pidpath`: directory of pid files. Default `/tmp`.
    pub pid_path: Setting<PathBuf>,
    /// `xrd.homepath`: working directory; `None` keeps the one in which the process was started.
    pub home_path: Setting<Option<DirectorySetting>>,
    /// `all.sitename`: at most [`SITE_NAME_MAX`] characters.
    pub site_name: Setting<Option<String>>,
    /// `scalla.drain`: maximum time for operations in flight after SIGTERM.
    pub drain: Setting<Duration>,
    /// `scalla.logformat`.
    pub log_format: Setting<LogFormat>,
    /// `scalla.iouring`: allows io_uring for cold reads and for batches of system calls of many
    /// connections.
    pub io_uring: Setting<bool>,
    /// `scalla.inventory complete`: files are created only through this server.
    pub complete_inventory: Setting<bool>,
    /// `scalla.polling`: polls briefly for the next request before sleeping.
    pub polling: Setting<bool>,
    /// `scalla.memory`: memory in bytes for requests in flight; `None` means a quarter of the
    /// machine's.
    pub memory: Setting<Option<u64>>,
}

impl ProcessConfig {
    /// Returns the directory of the admin socket and state of this instance.
    #[must_use]
    pub fn admin_directory(&self, instance: Option<&str>) -> PathBuf {
        self.admin_path.for_instance(instance)
    }

    /// Returns the pid file of `program`: `<pidpath>/[<instance>/]<program>.pid`.
    #[must_use]
    pub fn pid_file(&self, program: &str, instance: Option<&str>) -> PathBuf {
        let base: &Path = &self.pid_path.value;
        let directory = instance.map_or_else(|| base.to_path_buf(), |name| base.join(name));
        directory.join(format!("{program}.pid"))
    }
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            admin_path: Setting::default_of(DirectorySetting { path: PathBuf::from("/tmp"), group: false }),
            pid_path: Setting::default_of(PathBuf::from("/tmp")),
            home_path: Setting::default_of(None),
            site_name: Setting::default_of(None),
            drain: Setting::default_of(Duration::from_secs(DRAIN_SECONDS)),
            log_format: Setting::default_of(LogFormat::Text),
            io_uring: Setting::default_of(true),
            complete_inventory: Setting::default_of(false),
            polling: Setting::default_of(false),
            memory: Setting::default_of(None),
        }
    }
}
