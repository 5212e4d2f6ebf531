//! Values of the process as a whole: its folders, its name in the world, its log, how it ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::setting::Setting;

/// How long a drain may take unless `scalla.drain` says otherwise.
pub const DRAIN_SECONDS: u64 = 30;
/// Longest site name (`all.sitename`), in characters.
pub const SITE_NAME_MAX: usize = 63;

/// A site name as it is told: a `.` for each byte that could break the text it is put into.
pub(crate) fn site_name(text: &str) -> String {
    let tame = |byte: u8| match byte {
        b'_' | b'-' | b':' | b'.' => char::from(byte),
        byte if byte.is_ascii_alphanumeric() => char::from(byte),
        _ => '.',
    };
    text.bytes().map(tame).take(SITE_NAME_MAX).collect()
}

/// A folder that is created when missing: mode 0700, or 0770 when the group may use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folder {
    /// The folder as configured, without the instance's own sub-folder.
    pub path: PathBuf,
    /// The group may enter and write.
    pub group: bool,
}

impl Folder {
    /// The folder of one instance: `<path>/<instance>`, or the folder itself for the anonymous instance.
    #[must_use]
    pub fn for_instance(&self, instance: Option<&str>) -> PathBuf {
        match instance {
            Some(name) => self.path.join(name),
            None => self.path.clone(),
        }
    }

    /// The mode it is created with.
    #[must_use]
    pub fn mode(&self) -> u32 {
        if self.group { 0o770 } else { 0o700 }
    }
}

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// How much one part of the server writes to the log, from its trace directive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum LogLevel {
    /// What an operator acts on (trace `off`).
    #[default]
    Info,
    /// One line per event of the traced kinds.
    Debug,
    /// Everything (`all`).
    Trace,
}

/// A trace directive: which kinds of events are to be logged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The kinds switched on, in the order of the directive's table; empty is `off`.
    pub options: Vec<&'static str>,
    /// Every kind the directive knows is on.
    pub all: bool,
}

impl Trace {
    /// The log level that comes closest: `off` info, some kinds debug, `all` trace.
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
pub struct Process {
    /// `all.adminpath`: sockets, state, environment files. Default `/tmp`.
    pub admin_path: Setting<Folder>,
    /// `all.pidpath`: where pid files go. Default `/tmp`.
    pub pid_path: Setting<PathBuf>,
    /// `xrd.homepath`: working folder; `None` stays where the process was started.
    pub home_path: Setting<Option<Folder>>,
    /// `all.sitename`: at most [`SITE_NAME_MAX`] characters.
    pub site_name: Setting<Option<String>>,
    /// `scalla.drain`: how long operations in flight may take to end after SIGTERM.
    pub drain: Setting<Duration>,
    /// `scalla.logformat`.
    pub log_format: Setting<LogFormat>,
    /// `scalla.iouring`: reads that wait for a disk, and system calls of many connections at once, may go through io_uring.
    pub io_uring: Setting<bool>,
    /// `scalla.inventory complete`: no file comes to exist but through this server.
    pub complete_inventory: Setting<bool>,
    /// `scalla.polling`: look for the next request for a moment before sleeping.
    pub polling: Setting<bool>,
    /// `scalla.memory`: bytes for requests in flight; `None` is a quarter of the machine's memory.
    pub memory: Setting<Option<u64>>,
}

impl Process {
    /// Folder of the admin socket and state of this instance.
    #[must_use]
    pub fn admin_folder(&self, instance: Option<&str>) -> PathBuf {
        self.admin_path.for_instance(instance)
    }

    /// The pid file of `program`: `<pidpath>/[<instance>/]<program>.pid`.
    #[must_use]
    pub fn pid_file(&self, program: &str, instance: Option<&str>) -> PathBuf {
        let base: &Path = &self.pid_path.value;
        let folder = instance.map_or_else(|| base.to_path_buf(), |name| base.join(name));
        folder.join(format!("{program}.pid"))
    }
}

impl Default for Process {
    fn default() -> Self {
        Self {
            admin_path: Setting::default_of(Folder { path: PathBuf::from("/tmp"), group: false }),
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
