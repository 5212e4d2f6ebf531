//! `xrootd.mongstream`: streams of JSON records about copies, the cache and other parts ("g-streams").

use super::detailed_monitoring::MonitorEvent;
use super::monitoring::ReportDestination;
use std::fmt;
use std::time::Duration;

/// Number of streams.
pub const GSTREAMS: usize = 7;

/// A stream of JSON records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GStream {
    /// Cache context management.
    CacheContext,
    /// Requests of HTTP.
    Http,
    /// Operations of the storage.
    Storage,
    /// The disk cache of a proxy.
    FileCache,
    /// TCP connections.
    Connections,
    /// The throttle.
    Throttle,
    /// Third-party copies.
    ThirdPartyCopies,
}

impl GStream {
    /// All streams with their names, in the order of the grammar.
    pub const ALL: [(&'static str, Self); GSTREAMS] = [
        ("ccm", Self::CacheContext),
        ("http", Self::Http),
        ("oss", Self::Storage),
        ("pfc", Self::FileCache),
        ("tcpmon", Self::Connections),
        ("throttle", Self::Throttle),
        ("tpc", Self::ThirdPartyCopies),
    ];

    /// Returns the name of the stream.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// Reports whether the server has records for the stream. The others belong to parts that it does not have.
    #[must_use]
    pub const fn is_in_force(self) -> bool {
        matches!(self, Self::Http | Self::FileCache | Self::ThirdPartyCopies)
    }

    /// Returns the letter of the stream in packets.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::CacheContext => b'M',
            Self::Http => b'H',
            Self::Storage => b'O',
            Self::FileCache => b'C',
            Self::Connections => b'T',
            Self::Throttle => b'R',
            Self::ThirdPartyCopies => b'P',
        }
    }

    /// Returns the event by which a collector of `xrootd.monitor` selects the stream; `None` if it cannot.
    #[must_use]
    pub const fn event(self) -> Option<MonitorEvent> {
        match self {
            Self::CacheContext => Some(MonitorEvent::CacheContext),
            Self::Http => Some(MonitorEvent::Http),
            Self::Storage => None,
            Self::FileCache => Some(MonitorEvent::FileCache),
            Self::Connections => Some(MonitorEvent::Connections),
            Self::Throttle => Some(MonitorEvent::Throttle),
            Self::ThirdPartyCopies => Some(MonitorEvent::ThirdPartyCopies),
        }
    }
}

/// The form of the first line of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GStreamForm {
    /// A JSON object.
    Json,
    /// Pairs `key=value`, separated by `&`.
    Cgi,
    /// No first line.
    Bare,
}

/// The fields about the server in the first line of a packet, apart from its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GStreamHeader {
    /// Nothing.
    Default,
    /// The name of the site.
    Site,
    /// Also the name of the host.
    Host,
    /// Also the port and the name of the instance.
    Instance,
    /// Also the name and the version of the program.
    Full,
}

impl GStreamHeader {
    /// All headers with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("dflthdr", Self::Default),
        ("sitehdr", Self::Site),
        ("hosthdr", Self::Host),
        ("insthdr", Self::Instance),
        ("fullhdr", Self::Full),
    ];

    const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// A collector of one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GStreamDestination {
    /// The form of the first line.
    pub form: GStreamForm,
    /// The contents of the first line.
    pub header: GStreamHeader,
    /// The server identifies itself at intervals.
    pub is_identified: bool,
    /// Its address, always a UDP port.
    pub address: ReportDestination,
}

/// Settings of one stream.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GStreamSettings {
    /// Time after which records are sent that do not fill a packet; `None` for that of `xrootd.monitor`.
    pub flush: Option<Duration>,
    /// Maximum size of a packet in bytes; `None` for that of `xrootd.monitor`.
    pub packet_bytes_max: Option<u32>,
    /// The collector; `None` for those of `xrootd.monitor`, which get packets in the binary form.
    pub destination: Option<GStreamDestination>,
}

/// `xrootd.mongstream`: the settings of each stream that has some.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GStreamTable([Option<GStreamSettings>; GSTREAMS]);

impl GStreamTable {
    /// Returns the settings of a stream.
    #[must_use]
    pub fn get(&self, stream: GStream) -> Option<&GStreamSettings> {
        self.0.get(stream as usize)?.as_ref()
    }

    /// Replaces the settings of a stream.
    pub fn set(&mut self, stream: GStream, settings: GStreamSettings) {
        if let Some(place) = self.0.get_mut(stream as usize) {
            *place = Some(settings);
        }
    }

    /// Returns the streams that have settings.
    pub fn streams(&self) -> impl Iterator<Item = (GStream, &GStreamSettings)> {
        GStream::ALL.iter().filter_map(|(_, stream)| Some((*stream, self.get(*stream)?)))
    }
}

impl fmt::Display for GStreamDestination {
    /// Writes the options of `send`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, header, is_identified, address } = self;
        let (header, quiet) = (header.name(), if *is_identified { "" } else { " noident" });
        match form {
            GStreamForm::Json => write!(f, "json {header}{quiet} {address}"),
            GStreamForm::Cgi => write!(f, "cgi {header}{quiet} {address}"),
            GStreamForm::Bare => write!(f, "nohdr {address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_agree() {
        for (place, (name, stream)) in GStream::ALL.iter().enumerate() {
            assert_eq!((stream.name(), *stream as usize), (*name, place));
        }
        for (place, (name, header)) in GStreamHeader::ALL.iter().enumerate() {
            assert_eq!((header.name(), *header as usize), (*name, place));
        }
    }
}
