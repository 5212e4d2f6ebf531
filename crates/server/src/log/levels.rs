//! The log level of each room: `info`, or `info,net=debug,logical=trace`. Rooms have separate
//! levels, so that an operator can trace one without the others.

use config::{Effective, LogLevel};
use std::fmt;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Rooms that can have their own level.
const ROOMS: [&str; 20] = [
    "auth",
    "auth::macaroons",
    "cache",
    "client",
    "client::encryption",
    "client::security",
    "config",
    "digest",
    "http",
    "logical",
    "monitor",
    "net",
    "proxy",
    "residency",
    "server",
    "server::cluster",
    "session",
    "storage",
    "wire",
    "xroot",
];

/// The names of levels, in rising order.
const WORDS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// A general level, and exceptions for rooms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Levels {
    general: LevelFilter,
    rooms: Vec<(&'static str, LevelFilter)>,
}

/// The error of an invalid text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelsError(String);

impl fmt::Display for LevelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LevelsError {}

impl Default for Levels {
    fn default() -> Self {
        Self { general: LevelFilter::INFO, rooms: Vec::new() }
    }
}

impl Levels {
    /// Returns `info`, raised by one for each `-v`.
    pub fn raised(by: u8) -> Self {
        let general = match by {
            0 => LevelFilter::INFO,
            1 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        Self { general, rooms: Vec::new() }
    }

    /// Raises rooms according to the trace directives of a configuration.
    #[must_use]
    pub fn with_traces(mut self, effective: &Effective) -> Self {
        let traces = [
            ("net", &effective.network.trace.value),
            ("xroot", &effective.protocol.trace.value),
            ("session", &effective.protocol.trace.value),
            ("auth", &effective.security.trace.value),
            ("auth::macaroons", &effective.authorization.macaroons.trace.value),
            ("logical", &effective.logical.trace.value),
            ("storage", &effective.storage.trace.value),
            ("server::cluster", &effective.cluster.trace.value),
        ];
        for (room, trace) in traces {
            let level = match trace.level() {
                LogLevel::Info => LevelFilter::INFO,
                LogLevel::Debug => LevelFilter::DEBUG,
                LogLevel::Trace => LevelFilter::TRACE,
            };
            // A part of a room has at least the level of its room.
            let whole =
                self.rooms.iter().filter(|(whole, _)| room.starts_with(whole)).map(|(_, level)| *level);
            if level > whole.max().unwrap_or(self.general) {
                self.rooms.push((room, level));
            }
        }
        self
    }

    /// Parses `LEVEL` and `ROOM=LEVEL`, separated by commas. The default of the general level is
    /// `info`.
    ///
    /// # Errors
    /// An unknown name, with a list of the valid ones.
    pub fn parse(text: &str) -> Result<Self, LevelsError> {
        let mut levels = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None => levels.general = level(part)?,
                Some((room, word)) => {
                    let Some(&room) = ROOMS.iter().find(|name| **name == room) else {
                        let known = ROOMS.join(", ");
                        return Err(LevelsError(format!(
                            "no part of the program is called {room}; there are {known}"
                        )));
                    };
                    levels.rooms.retain(|(name, _)| *name != room);
                    levels.rooms.push((room, level(word)?));
                }
            }
        }
        Ok(levels)
    }

    /// Returns the filter of log events. Libraries of others log only warnings and errors, unless
    /// the general level is `trace`, and that of HTTP/2 only errors, because clients cause its warnings.
    pub(crate) fn filter(&self) -> Targets {
        let others = if self.general == LevelFilter::TRACE {
            self.general
        } else {
            self.general.min(LevelFilter::WARN)
        };
        let mut targets = Targets::new().with_default(others);
        // A part of a room has the level of its room, unless it has its own.
        for room in ROOMS.into_iter().filter(|room| !room.contains("::")) {
            targets = targets.with_target(room, self.general);
        }
        targets = targets.with_target("scalla", self.general);
        if self.general != LevelFilter::TRACE {
            targets = targets.with_target("h2", self.general.min(LevelFilter::ERROR));
        }
        targets.with_targets(self.rooms.iter().copied())
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.general)?;
        for (room, level) in &self.rooms {
            write!(f, ",{room}={level}")?;
        }
        Ok(())
    }
}

fn level(word: &str) -> Result<LevelFilter, LevelsError> {
    match WORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        Some((_, level)) => Ok(*level),
        None => {
            let known = WORDS.map(|(name, _)| name).join(", ");
            Err(LevelsError(format!("`{word}` is not a log level; there are {known}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_room_may_have_a_higher_level_than_the_others() {
        let levels = Levels::parse("warn,net=debug").unwrap();
        assert_eq!(levels.to_string(), "warn,net=debug");
        let filter = levels.filter();
        assert!(filter.would_enable("net::listener", &Level::DEBUG));
        assert!(!filter.would_enable("xroot", &Level::INFO));
        assert!(!filter.would_enable("mio::poll", &Level::INFO));
    }

    /// Otherwise its lines count as those of a library, and operators do not see them.
    #[test]
    fn each_crate_that_logs_is_a_room() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut logging = 0;
        for directory in std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path()) {
            let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
            if manifest.lines().any(|line| line.starts_with("tracing")) {
                let name = directory.file_name().unwrap().to_str().unwrap();
                assert!(ROOMS.contains(&name), "{name}");
                logging += 1;
            }
        }
        assert!(logging > 5, "{logging} crates of {}", crates.display());
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_valid_ones() {
        assert!(
            Levels::parse("loud").unwrap_err().to_string().contains("off, error, warn, info, debug, trace")
        );
        assert!(Levels::parse("kitchen=info").unwrap_err().to_string().contains("net"));
    }

    #[test]
    fn each_v_raises_the_level_and_libraries_log_only_at_trace() {
        assert!(!Levels::raised(1).filter().would_enable("tokio::runtime", &Level::DEBUG));
        assert!(Levels::raised(1).filter().would_enable("tokio::runtime", &Level::WARN));
        assert!(!Levels::raised(1).filter().would_enable("h2::proto", &Level::WARN));
        assert!(Levels::raised(2).filter().would_enable("h2::proto", &Level::WARN));
        assert!(Levels::raised(1).filter().would_enable("logical", &Level::DEBUG));
        assert!(Levels::raised(7).filter().would_enable("tokio::runtime", &Level::TRACE));
    }

    #[test]
    fn trace_directives_only_raise() {
        let mut effective = Effective::default();
        effective.network.trace.value.all = true;
        let levels = Levels::default().with_traces(&effective);
        assert_eq!(levels.to_string(), "info,net=trace");
        assert_eq!(Levels::raised(2).with_traces(&effective).to_string(), "trace");
        let mut effective = Effective::default();
        effective.authorization.macaroons.trace.value.options = vec!["debug"];
        let levels = Levels::default().with_traces(&effective);
        assert_eq!(levels.to_string(), "info,auth::macaroons=debug");
        assert!(levels.filter().would_enable("auth::macaroons::policy", &Level::DEBUG));
        assert!(!levels.filter().would_enable("auth::access", &Level::DEBUG));
        effective.security.trace.value.all = true;
        assert_eq!(Levels::default().with_traces(&effective).to_string(), "info,auth=trace");
    }
}
