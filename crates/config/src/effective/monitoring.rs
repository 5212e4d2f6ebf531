//! Values for the crate `monitor`: summary reports.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::detailed_monitoring::DetailedMonitoring;
use super::gstreams::GStreamTable;
use super::packet_marking::PacketMarking;
use crate::setting::Setting;

/// Interval between reports, unless the directive names another one.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(600);
/// Maximum number of destinations of reports.
pub const REPORT_DESTINATIONS_MAX: usize = 2;

/// The place to which reports are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReportDestination {
    /// A UDP port of a host.
    Host {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A datagram socket of this machine.
    Socket(PathBuf),
}

/// The reason why a text does not name a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DestinationError;

impl FromStr for ReportDestination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        if text.starts_with('/') {
            return Ok(Self::Socket(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':').ok_or(DestinationError)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_valid = !host.is_empty() && (bare.is_some() || !host.contains(':'));
        let port = port.parse().ok().filter(|&port| port > 0 && is_valid).ok_or(DestinationError)?;
        Ok(Self::Host { host: host.to_owned(), port })
    }
}

impl fmt::Display for ReportDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

/// A part of a summary report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportPart {
    /// Host, port and instance.
    Info,
    /// Memory of requests.
    Buffers,
    /// Connections.
    Links,
    /// Event loops.
    Polls,
    /// Processor time.
    Process,
    /// Protocols, open files, storage.
    Protocols,
    /// Threads.
    Scheduler,
    /// How the report was made.
    Timing,
    /// Parts that are added to the server, such as a proxy and its cache.
    AddOns,
    /// Protocols beside xroot.
    Plugins,
}

impl ReportPart {
    /// All parts with their names, in the order of a report.
    pub const ALL: [(&'static str, Self); 10] = [
        ("info", Self::Info),
        ("buff", Self::Buffers),
        ("link", Self::Links),
        ("poll", Self::Polls),
        ("process", Self::Process),
        ("protocols", Self::Protocols),
        ("sched", Self::Scheduler),
        ("sgen", Self::Timing),
        ("addons", Self::AddOns),
        ("plugins", Self::Plugins),
    ];

    /// Parts that a report in JSON can have.
    pub const OF_JSON: [Self; 2] = [Self::AddOns, Self::Plugins];

    /// Returns the part with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        // A part of the name suffices in the original.
        let name = if name == "prot" { "protocols" } else { name };
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, part)| *part)
    }
}

/// Parts of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReportParts(u16);

impl ReportParts {
    /// No part.
    pub const NONE: Self = Self(0);

    /// Returns all parts.
    #[must_use]
    pub fn all() -> Self {
        ReportPart::ALL.iter().fold(Self::NONE, |parts, (_, part)| parts.with(*part))
    }

    /// Adds a part.
    #[must_use]
    pub const fn with(self, part: ReportPart) -> Self {
        Self(self.0 | 1 << part as u16)
    }

    /// Removes a part.
    #[must_use]
    pub const fn without(self, part: ReportPart) -> Self {
        Self(self.0 & !(1 << part as u16))
    }

    /// Reports whether a part is among them.
    #[must_use]
    pub const fn has(self, part: ReportPart) -> bool {
        self.0 & 1 << part as u16 != 0
    }

    /// Reports whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for ReportParts {
    /// Writes the options that select these parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("all");
        }
        let names: Vec<_> =
            ReportPart::ALL.iter().filter(|(_, part)| self.has(*part)).map(|(name, _)| *name).collect();
        f.write_str(&names.join(" "))
    }
}

/// `xrd.report`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummaryReports {
    /// Where reports are sent.
    pub destinations: Vec<ReportDestination>,
    /// Time from one to the next.
    pub interval: Duration,
    /// Parts of the report in XML; none if there is no such report.
    pub xml: ReportParts,
    /// Parts of the report in JSON; none if there is no such report.
    pub json: ReportParts,
}

/// Values for monitoring.
#[derive(Clone, PartialEq, Debug)]
pub struct MonitoringConfig {
    /// `xrd.report`; `None` if no reports are sent.
    pub reports: Setting<Option<SummaryReports>>,
    /// `xrootd.monitor`; `None` if nothing is sent.
    pub detailed: Setting<Option<DetailedMonitoring>>,
    /// `xrootd.mongstream`.
    pub gstreams: Setting<GStreamTable>,
    /// `xrootd.pmark`; `None` if no flows are reported.
    pub marking: Setting<Option<PacketMarking>>,
}

impl Default for MonitoringConfig {
    fn default() -> Self {
        Self {
            reports: Setting::default_of(None),
            detailed: Setting::default_of(None),
            gstreams: Setting::default_of(GStreamTable::default()),
            marking: Setting::default_of(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_hosts_with_ports_and_paths() {
        let parse = |text: &str| text.parse::<ReportDestination>();
        for text in ["c.example.org:9931", "127.0.0.1:1", "[::1]:9931", "/run/reports"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for text in ["c", "c:", ":1", "c:0", "c:65536", "::1:9931", "c:x", "run/reports", ""] {
            assert_eq!(parse(text), Err(DestinationError), "{text}");
        }
    }

    #[test]
    fn each_part_is_one_of_its_own() {
        for (name, part) in ReportPart::ALL {
            let rest = ReportParts::all().without(part);
            assert!(!rest.has(part) && rest.with(part) == ReportParts::all(), "{name}");
            assert_eq!(ReportParts::NONE.with(part).to_string(), name);
            assert_eq!(ReportPart::named(name), Some(part));
        }
        assert_eq!(ReportPart::named("prot"), Some(ReportPart::Protocols));
        assert_eq!(ReportParts::all().to_string(), "all");
    }
}
