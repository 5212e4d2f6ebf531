//! Settings of client programs from the environment: client settings, log level, threads and the
//! limit of open files.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use client::copy::CopyOptions;
use client::{Client, Credentials, Settings};
use config::LogFormat;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::log::{ActiveLog, Levels, LogDestination, LogSettings, Retention};
use tokio::runtime::{Builder, Runtime};

use crate::printer::err;

/// Maximum number of threads that drive connections.
const THREADS_MAX: u64 = 64;
/// The values of `XRD_LOGLEVEL`, and the corresponding `tracing` levels.
const LEVELS: [(&str, &str); 5] =
    [("Error", "error"), ("Warning", "warn"), ("Info", "info"), ("Debug", "debug"), ("Dump", "trace")];

/// Reads the settings of this process. Problems are reported by the first call.
pub(crate) fn settings() -> Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    let read = || {
        let settings = Settings::of_process();
        for problem in settings.problems() {
            err().line(format_args!("scalla: warning: {problem}"));
        }
        settings
    };
    SETTINGS.get_or_init(read).clone()
}

/// Creates a client with the settings of this process.
pub(crate) fn client(program: &str) -> Client {
    client_with(settings(), program)
}

/// Creates a client with these settings and the credentials of the user.
pub(crate) fn client_with(settings: Settings, program: &str) -> Client {
    Client::with(settings, Credentials::of_user(), program)
}

/// Returns the user's home directory.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Returns the directory for persistent state: `scalla` in the state directory (`XDG_STATE_HOME`,
/// or `~/.local/state`).
pub(crate) fn state_directory() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Some(named.or_else(|| Some(home()?.join(".local/state")))?.join("scalla"))
}

/// Returns the options of copies according to the settings.
pub(crate) fn copy_options(settings: &Settings) -> CopyOptions {
    let mut options = CopyOptions::of(settings);
    options.notes = state_directory().map(|directory| directory.join("uploads"));
    options
}

/// The runtime and the log of a client program.
pub(crate) struct ClientRuntime {
    pub(crate) runtime: Runtime,
    /// Writes the remaining lines when dropped.
    pub(crate) log: Option<ActiveLog>,
}

/// Creates the runtime. One thread drives all connections, unless `ParallelEvtLoop` is set. A
/// `detail` from 1 to 3 raises the log level above that of `XRD_LOGLEVEL`.
///
/// # Errors
/// When the system lacks resources.
pub(crate) fn start_runtime(detail: u8) -> io::Result<ClientRuntime> {
    allow_descriptors();
    let settings = settings();
    let mut builder = match threads(&settings) {
        1 => Builder::new_current_thread(),
        threads => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(threads);
            builder
        }
    };
    Ok(ClientRuntime { runtime: builder.enable_all().build()?, log: log(detail) })
}

fn threads(settings: &Settings) -> usize {
    if !settings.is_set("ParallelEvtLoop") {
        return 1;
    }
    usize::try_from(settings.parallel_evt_loop.clamp(1, THREADS_MAX)).unwrap_or(1)
}

/// Raises the limit of open files to the maximum. The usual limit of a shell exists for programs
/// that call `select`, which only supports descriptors below 1,024.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // The current limit is sufficient for most commands. Copies wait for free descriptors.
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).ok();
    }
}

/// Creates the log that the environment requests, in `XRD_LOGFILE` or on standard error.
fn log(detail: u8) -> Option<ActiveLog> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let levels = match levels(detail, variable) {
        Ok(levels) => levels?,
        Err(problem) => {
            err().line(format_args!("scalla: warning: {problem}"));
            return None;
        }
    };
    let target = match variable("XRD_LOGFILE") {
        Some(path) => LogDestination::File { path: path.into(), retention: Retention::External },
        None => LogDestination::Stderr,
    };
    let levels = Levels::parse(&levels).ok()?;
    let begun = ActiveLog::start(LogSettings { target, format: LogFormat::Text, precise: true, levels });
    begun.map_err(|error| err().line(format_args!("scalla: warning: XRD_LOGFILE: {error}"))).ok()
}

/// Returns the levels of the log: that of `XRD_LOGLEVEL` or of the options, and those of the variables
/// that trace logins (`XrdSecDEBUG`) and encryption (`XRD_TLSDBGLVL`, `XRDTLS_DEBUG`). `None` if
/// nothing requests a log.
///
/// # Errors
/// A value is invalid.
fn levels(detail: u8, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    let general = match (detail, variable("XRD_LOGLEVEL")) {
        (0, None) => None,
        (0, Some(word)) => Some(level(&word).ok_or_else(|| {
            let words = LEVELS.map(|(word, _)| word).join(", ");
            format!("XRD_LOGLEVEL: `{word}` is no level; there are {words}")
        })?),
        (1, _) => Some("info"),
        (2, _) => Some("debug"),
        _ => Some("trace"),
    };
    let is_set = |name, off: &[&str]| {
        variable(name).is_some_and(|value| !off.iter().any(|off| value.eq_ignore_ascii_case(off)))
    };
    let mut rooms = String::new();
    if is_set("XrdSecDEBUG", &["0"]) {
        rooms.push_str(",auth=debug,client::security=debug");
    }
    if is_set("XRD_TLSDBGLVL", &["0", "OFF"]) || is_set("XRDTLS_DEBUG", &["0", "none"]) {
        rooms.push_str(",client::encryption=debug");
    }
    let is_traced = !matches!(general, Some("debug" | "trace")) && !rooms.is_empty();
    Ok(match general {
        _ if is_traced => Some(format!("{}{rooms}", general.unwrap_or("off"))),
        general => general.map(str::to_owned),
    })
}

fn level(word: &str) -> Option<&'static str> {
    LEVELS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, level)| *level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Source;

    #[test]
    fn one_thread_unless_more_are_set() {
        let mut settings = Settings::default();
        assert_eq!(threads(&settings), 1);
        for (set, expected) in [("0", 1), ("4", 4), ("1000", 64)] {
            settings.set("ParallelEvtLoop", set, Source::Option).unwrap();
            assert_eq!(threads(&settings), expected);
        }
    }

    #[test]
    fn logins_and_encryption_are_traced_without_the_rest() {
        let levels_of = |detail, set: &[(&str, &str)]| {
            let value =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
            let levels = levels(detail, value).unwrap();
            if let Some(levels) = &levels {
                Levels::parse(levels).unwrap();
            }
            levels
        };
        assert_eq!(
            levels_of(0, &[("XrdSecDEBUG", "0"), ("XRD_TLSDBGLVL", "OFF"), ("XRDTLS_DEBUG", "none")]),
            None
        );
        let login = Some("off,auth=debug,client::security=debug".to_owned());
        assert_eq!(levels_of(0, &[("XrdSecDEBUG", "1")]), login);
        for variable in ["XRD_TLSDBGLVL", "XRDTLS_DEBUG"] {
            let encryption = Some("warn,client::encryption=debug".to_owned());
            assert_eq!(levels_of(0, &[(variable, "SIO"), ("XRD_LOGLEVEL", "Warning")]), encryption);
        }
        // A level that includes them is not lowered.
        assert_eq!(levels_of(3, &[("XrdSecDEBUG", "3")]).as_deref(), Some("trace"));
        let loud = levels(0, |name| (name == "XRD_LOGLEVEL").then(|| "loud".to_owned()));
        assert!(loud.unwrap_err().contains("`loud` is no level"));
    }

    #[test]
    fn levels_have_the_names_that_users_know() {
        assert_eq!((level("Dump"), level("warning"), level("loud")), (Some("trace"), Some("warn"), None));
        for (_, ours) in LEVELS {
            assert!(Levels::parse(ours).is_ok(), "{ours}");
        }
    }
}
