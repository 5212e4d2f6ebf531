//! Consequences of directives that are not in force: the missing part, and the behaviour of the
//! server without it.

/// A part of the server that is not there yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MissingPart {
    /// Its name, for the summary of a configuration.
    pub(crate) part: &'static str,
    /// Consequence of its absence. `{}` stands for the first argument of the directive.
    without: &'static str,
}

const fn missing(part: &'static str, without: &'static str) -> MissingPart {
    MissingPart { part, without }
}

const HTTP: MissingPart = missing("parts of HTTP", "HTTP is served as without it");
pub(super) const HTTP_COPY: MissingPart =
    missing("HTTP third-party copy", "third-party copies are served as without it");
const HTTP_HANDLERS: MissingPart = missing("parts of HTTP", "requests POST are refused");
pub(super) const PREPARE: MissingPart =
    missing("mass storage", "requests to stage files succeed only for files that are on disk");
pub(super) const REDIRECTION: MissingPart =
    missing("redirection plug-ins", "clients are not redirected to files of their own disks");
pub(super) const CACHE: MissingPart = missing("cache", "nothing is cached, and nothing is purged");
pub(super) const STATISTICS: MissingPart = missing("monitoring", "no statistics of the storage are reported");
pub(super) const CONNECTIONS: MissingPart =
    missing("monitoring", "no reports on TCP connections are written");
pub(super) const SERVICES: MissingPart = missing("SSI services", "they write no log");
pub(super) const THROTTLING: MissingPart =
    missing("throttling", "clients are served without limits of rate, open files and connections");
pub(super) const CREDENTIALS: MissingPart =
    missing("delegated credentials", "third-party copies log in to sources without the client's credentials");
pub(super) const PORTS: MissingPart =
    missing("second ports", "clients of that port are refused; xrd.port is served");
pub(super) const OBJECT_IDS: MissingPart = missing("object ids", "names without a leading / are refused");
const MASS_STORAGE: MissingPart = missing("mass storage", "files are neither migrated nor purged");
const UNCACHED: MissingPart = missing("cache", "nothing is cached; each read goes to the origin");
const PROXY: MissingPart = missing("proxy", "the proxy works as without it");
const MONITORING: MissingPart = missing("monitoring", "no monitoring data is sent");
pub(super) const PLUG_IN_STREAMS: MissingPart =
    missing("monitoring", "the server does not have this part, so it sends no records about it");

/// Directives by name or prefix; the first that fits.
const BY_NAME: [(&str, MissingPart); 21] = [
    ("all.export", MASS_STORAGE),
    ("xrootd.export", MASS_STORAGE),
    ("oss.defaults", MASS_STORAGE),
    ("cms.prep", PREPARE),
    ("frm.", MASS_STORAGE),
    ("http.exthandler", HTTP_HANDLERS),
    ("http.", HTTP),
    ("ofs.cksrt", missing("checksums in replies", "replies carry no encrypted checksums")),
    ("ofs.tpc", CREDENTIALS),
    ("oss.", MASS_STORAGE),
    ("pfc.", CACHE),
    ("pss.ccmlib", UNCACHED),
    ("pss.ciosync", UNCACHED),
    ("pss.", PROXY),
    ("throttle.", THROTTLING),
    ("tpc.", HTTP_COPY),
    ("xrootd.bindif", missing("addresses of redirects", "redirects name the host as managers know it")),
    ("xrootd.diglib", missing("remote diagnostics", "requests for /=/ are refused")),
    ("xrootd.fslib", THROTTLING),
    (
        "xrootd.fsoverload",
        missing("overload redirection", "clients of an overloaded server wait as the built-in limits say"),
    ),
    ("xrootd.pmark", missing("flow labels", "packets have no flow labels; flows are reported by fireflies")),
];

/// Returns the part that a directive needs, by the name of the directive.
pub(crate) fn of(name: &str) -> Option<MissingPart> {
    if name.starts_with("xrootd.mon") {
        return Some(MONITORING);
    }
    BY_NAME.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, missing)| *missing)
}

impl MissingPart {
    /// The consequence in words, for a directive with this first argument.
    pub(crate) fn consequence(self, first: Option<&str>) -> String {
        self.without.replace("{}", first.unwrap_or("anywhere"))
    }
}
