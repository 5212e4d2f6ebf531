//! `xrootd.monitor`: detailed monitoring streams.

use std::fmt;
use std::time::Duration;

use super::monitoring::ReportDestination;

/// Maximum number of collectors of detailed monitoring.
pub const MONITOR_DESTINATIONS_MAX: usize = 2;

/// Something that a collector can select.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorEvent {
    /// Opens and closes of files, in the trace stream.
    Files,
    /// The file stream.
    FileStream,
    /// Texts of applications.
    Info,
    /// Each read and write, in the trace stream.
    Io,
    /// The elements of vector reads, in the trace stream.
    Vectors,
    /// Redirects.
    Redirects,
    /// Logins and disconnects.
    User,
    /// Cache context management.
    CacheContext,
    /// Requests of HTTP.
    Http,
    /// The disk cache of a proxy.
    FileCache,
    /// TCP connections.
    Connections,
    /// The throttle.
    Throttle,
    /// Third-party copies.
    ThirdPartyCopies,
}

impl MonitorEvent {
    /// All events with their names, in the order of the grammar.
    pub const ALL: [(&'static str, Self); 13] = [
        ("ccm", Self::CacheContext),
        ("files", Self::Files),
        ("fstat", Self::FileStream),
        ("http", Self::Http),
        ("info", Self::Info),
        ("io", Self::Io),
        ("iov", Self::Vectors),
        ("pfc", Self::FileCache),
        ("redir", Self::Redirects),
        ("tcpmon", Self::Connections),
        ("throttle", Self::Throttle),
        ("tpc", Self::ThirdPartyCopies),
        ("user", Self::User),
    ];

    /// Reports whether data about the event is sent. The others belong to parts that the server does not have.
    #[must_use]
    pub const fn is_in_force(self) -> bool {
        !matches!(self, Self::CacheContext | Self::Connections | Self::Throttle)
    }
}

/// A set of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MonitorEvents(u16);

impl MonitorEvents {
    /// No event.
    pub const NONE: Self = Self(0);

    /// Adds an event.
    #[must_use]
    pub const fn with(self, event: MonitorEvent) -> Self {
        let added = Self(self.0 | 1 << event as u16);
        match event {
            // Records of reads name files by the ids of their opens.
            MonitorEvent::Io => Self(added.0 | 1 << MonitorEvent::Files as u16),
            MonitorEvent::Vectors => added.with(MonitorEvent::Io),
            _ => added,
        }
    }

    /// Returns the events of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Reports whether an event is in the set.
    #[must_use]
    pub const fn has(self, event: MonitorEvent) -> bool {
        self.0 & 1 << event as u16 != 0
    }

    /// Reports whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for MonitorEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            MonitorEvent::ALL.iter().filter(|(_, event)| self.has(*event)).map(|(name, _)| *name).collect();
        f.write_str(&names.join(" "))
    }
}

/// A collector of detailed monitoring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonitorDestination {
    /// What it gets.
    pub events: MonitorEvents,
    /// Its address, always a UDP port.
    pub address: ReportDestination,
}

/// Settings of the file stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStreamSettings {
    /// Time between two packets; zero if the stream is off.
    pub interval: Duration,
    /// Opens have the name of the file and the id of the user.
    pub names: bool,
    /// Closes have the numbers of operations.
    pub operations: bool,
    /// Closes have sums of squares.
    pub squares: bool,
    /// Packets between two totals of open files; `None` without such totals.
    pub transfers: Option<u32>,
}

/// `xrootd.monitor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DetailedMonitoring {
    /// The collectors.
    pub destinations: Vec<MonitorDestination>,
    /// `all`. It changes nothing, because also without it all clients are monitored.
    pub all_clients: bool,
    /// Records of users have the result of their authentication.
    pub authentication: bool,
    /// Time after which buffers are sent that are not full; `None` if only full ones are.
    pub flush: Option<Duration>,
    /// `flush` also concerns reads and writes.
    pub flushes_io: bool,
    /// The file stream.
    pub files: FileStreamSettings,
    /// Size of a packet of the file stream in bytes.
    pub file_buffer_bytes: u32,
    /// Size of a packet of plug-ins in bytes.
    pub plugin_buffer_bytes: u32,
    /// Interval in which the server identifies itself: zero for once, `None` for never.
    pub identification: Option<Duration>,
    /// Size of a packet of the trace stream in bytes.
    pub trace_buffer_bytes: u32,
    /// Size of a packet of the redirect stream in bytes.
    pub redirect_buffer_bytes: u32,
    /// Number of buffers of the redirect stream.
    pub redirect_buffers: u32,
    /// Time between two marks of the time in the trace stream and the redirect stream.
    pub window: Duration,
}

impl Default for DetailedMonitoring {
    fn default() -> Self {
        Self {
            destinations: Vec::new(),
            all_clients: false,
            authentication: false,
            flush: Some(Duration::from_secs(600)),
            flushes_io: false,
            files: FileStreamSettings {
                interval: Duration::ZERO,
                names: false,
                operations: false,
                squares: false,
                transfers: None,
            },
            file_buffer_bytes: 65_472,
            plugin_buffer_bytes: 32 << 10,
            identification: Some(Duration::from_secs(3600)),
            trace_buffer_bytes: 16 << 10,
            redirect_buffer_bytes: 32 << 10,
            redirect_buffers: 3,
            window: Duration::from_secs(60),
        }
    }
}

impl DetailedMonitoring {
    /// Returns the events that any collector gets.
    #[must_use]
    pub fn events(&self) -> MonitorEvents {
        let all = self.destinations.iter().map(|destination| destination.events);
        all.fold(MonitorEvents::NONE, MonitorEvents::and)
    }
}
