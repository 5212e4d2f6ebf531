//! Values for `proxy`: the origins of a proxy server.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::network::HostPattern;
use super::object_store::{OriginBucket, StoreValues};
use crate::setting::Setting;

/// Protocols of origins that are not supported.
pub(crate) const OTHER_PROTOCOLS: [&str; 3] = ["pelican", "s3", "s3s"];

/// The protocol of an origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OriginProtocol {
    /// `root`, `xroot`: TLS if the server requires it.
    Root,
    /// `roots`, `xroots`: always TLS.
    Roots,
    /// `http`, `dav`.
    Http,
    /// `https`, `davs`.
    Https,
}

impl OriginProtocol {
    /// Those of `pss.origin =`, without a list.
    pub(crate) const DEFAULT: [Self; 2] = [Self::Root, Self::Roots];

    /// Returns the protocol of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "root" | "xroot" => Self::Root,
            "roots" | "xroots" => Self::Roots,
            "http" | "dav" => Self::Http,
            "https" | "davs" => Self::Https,
            _ => return None,
        })
    }

    /// Returns the name in front of `://`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Roots => "roots",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the port of servers that name none.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Root | Self::Roots => 1094,
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// Reports whether it is HTTP, so that files can only be read.
    #[must_use]
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// A server whose files a proxy serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyServer {
    /// The protocol.
    pub protocol: OriginProtocol,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// The parts of the address of an origin.
pub(crate) struct OriginAddress<'a> {
    pub(crate) protocol: OriginProtocol,
    pub(crate) host: &'a str,
    pub(crate) port: Option<&'a str>,
}

/// The reason why a text is not the address of an origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AddressProblem {
    /// Origins of this kind are not supported.
    Unsupported(String),
    /// The text is no address.
    Malformed(String),
}

impl<'a> OriginAddress<'a> {
    /// Parses `[PROTOCOL://]host[+][:port][/]`.
    pub(crate) fn parse(text: &'a str) -> Result<Self, AddressProblem> {
        let malformed = |what: &str| Err(AddressProblem::Malformed(what.to_owned()));
        if text.starts_with('/') {
            let what = "a directory as origin is not in force yet".to_owned();
            return Err(AddressProblem::Unsupported(what));
        }
        let (scheme, place) = text.split_once("://").unwrap_or(("root", text));
        let protocol = match OriginProtocol::parse(scheme) {
            Some(protocol) => protocol,
            None if OTHER_PROTOCOLS.contains(&scheme) => {
                let what = format!("origins with {scheme} are not in force yet");
                return Err(AddressProblem::Unsupported(what));
            }
            None => return malformed(&format!("unknown protocol '{scheme}' of the origin")),
        };
        let place = place.strip_suffix('/').unwrap_or(place);
        if place.contains(['/', '?', ',']) {
            return malformed("badly formed origin URL; it names a server and no path");
        }
        if place.contains('@') {
            return malformed("badly formed origin; a user cannot be chosen");
        }
        let Some((host, port)) = split_port(place) else { return malformed("badly formed origin address") };
        let host = host.strip_suffix('+').unwrap_or(host);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_odd = |c: char| c.is_whitespace() || matches!(c, '[' | ']' | '*' | '+' | '=');
        if host.is_empty() || host.contains(is_odd) {
            return malformed("badly formed origin address");
        }
        Ok(Self { protocol, host, port })
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port`.
fn split_port(place: &str) -> Option<(&str, Option<&str>)> {
    let end = match place.starts_with('[') {
        true => place.find(']')? + 1,
        false => place.find(':').unwrap_or(place.len()),
    };
    let (host, rest) = place.split_at_checked(end)?;
    match rest.strip_prefix(':') {
        Some(port) if !port.contains(':') => Some((host, Some(port))),
        None if rest.is_empty() || rest == "+" => Some((host, None)),
        _ => None,
    }
}

impl FromStr for ProxyServer {
    type Err = String;

    /// Parses an address of the command line.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = OriginAddress::parse(text);
        let OriginAddress { protocol, host, port } = address.map_err(|problem| match problem {
            AddressProblem::Unsupported(what) | AddressProblem::Malformed(what) => what,
        })?;
        let number = port.map_or(Ok(protocol.default_port()), str::parse).ok().filter(|port| *port > 0);
        let port = number.ok_or_else(|| format!("invalid port '{}'", port.unwrap_or_default()))?;
        Ok(Self { protocol, host: host.to_owned(), port })
    }
}

impl ProxyServer {
    /// Returns `host:port`, with an IPv6 address in brackets.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.protocol.name(), self.authority())
    }
}

/// `--origin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OriginUrl {
    /// A server, and with HTTP the directory there whose files are served; `None` for all files.
    Server(ProxyServer, Option<String>),
    /// A bucket of an object store.
    Bucket(OriginBucket),
}

impl FromStr for OriginUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if OriginBucket::is_named(text) {
            return text.parse().map(Self::Bucket);
        }
        let path_at = text.find("://").and_then(|at| Some(at + 3 + text.get(at + 3..)?.find('/')?));
        let (server, path) = path_at.and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""));
        let directory = path.trim_end_matches('/');
        if directory.is_empty() {
            return Ok(Self::Server(text.trim_end_matches('/').parse()?, None));
        }
        let parsed: ProxyServer = server.parse()?;
        if !parsed.protocol.is_http() {
            // The error of a path.
            return Err(text.parse::<ProxyServer>().err().unwrap_or_else(|| "it names a path".to_owned()));
        }
        if directory.contains(['%', '?', '#']) {
            return Err("write the directory as it is, without percent-encoding and query".to_owned());
        }
        Ok(Self::Server(parsed, Some(directory.to_owned())))
    }
}

/// `pss.origin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyOrigin {
    /// Protocols by which paths may name their origin: `/root:/host:port/path`. With none, they name no origin.
    pub forwards: Vec<OriginProtocol>,
    /// The origin of all other paths.
    pub fixed: Option<ProxyServer>,
    /// The bucket that is the origin of all other paths instead. One of the three exists.
    pub bucket: Option<OriginBucket>,
}

/// `pss.permit`: hosts that clients may name as origins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginPermit {
    /// The hosts.
    pub host: HostPattern,
    /// It applies to paths, and not only to object ids.
    pub paths: bool,
}

/// `pss.setopt`: a setting of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OriginOption {
    /// The name in the directive.
    pub name: &'static str,
    /// The name of the setting of the client.
    pub setting: &'static str,
    /// The value.
    pub number: u32,
}

/// A part of the file system of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheSpace {
    /// A part of its size, in millionths.
    Share(u32),
    /// Bytes.
    Bytes(u64),
}

impl CacheSpace {
    /// Returns the number of bytes on a file system of this size.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Share(millionths) => (u128::from(total) * u128::from(millionths) / 1_000_000) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// `pfc.diskusage`: when the disk cache removes files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheUsage {
    /// Files are removed until no more of the file system is used.
    pub low: CacheSpace,
    /// They are removed when more is used.
    pub high: CacheSpace,
    /// `files`: the bytes of all cached files: base, nominal, max.
    pub files: Option<[CacheSpace; 3]>,
    /// `purgeinterval`.
    pub interval: Duration,
    /// `purgecoldfiles`: the age of cold files, and the number of intervals between their removals.
    pub cold: Option<(Duration, u32)>,
}

impl CacheUsage {
    /// Returns the limits without the others.
    pub(crate) const fn new(low: CacheSpace, high: CacheSpace) -> Self {
        Self { low, high, files: None, interval: Duration::from_secs(300), cold: None }
    }
}

/// Values for the disk cache of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub struct CacheValues {
    /// `pss.cachelib`, `--cache`.
    pub enabled: Setting<bool>,
    /// `pfc.ram`, in bytes.
    pub memory: Setting<u64>,
    /// `pfc.blocksize`.
    pub block_bytes: Setting<u64>,
    /// `pfc.prefetch`, in blocks.
    pub prefetch: Setting<u32>,
    /// `pfc.diskusage`.
    pub usage: Setting<CacheUsage>,
    /// `pfc.allow_xrdpfc_command`: paths can be commands of the cache.
    pub path_commands: Setting<bool>,
    /// `pss.dca`: clients on this machine read complete files without the server.
    pub direct_reads: Setting<bool>,
    /// `pfc.purgelib`: the file with the quotas of directories.
    pub quota_file: Setting<Option<PathBuf>>,
    /// `--cache-size`: maximum number of bytes of all cached files.
    pub files_bytes: Setting<Option<u64>>,
    /// Directives of the file that are not in force.
    pub missing: Vec<Setting<String>>,
}

impl Default for CacheValues {
    fn default() -> Self {
        Self {
            enabled: Setting::default(),
            memory: Setting::default_of(1 << 30),
            block_bytes: Setting::default_of(128 << 10),
            prefetch: Setting::default_of(10),
            usage: Setting::default_of(CacheUsage::new(
                CacheSpace::Share(900_000),
                CacheSpace::Share(950_000),
            )),
            path_commands: Setting::default(),
            direct_reads: Setting::default(),
            quota_file: Setting::default(),
            files_bytes: Setting::default(),
            missing: Vec::new(),
        }
    }
}

/// Values for the memory cache of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryCacheValues {
    /// `pss.cache`, `pss.memcache`.
    pub enabled: Setting<bool>,
    /// `size`, in bytes.
    pub bytes: Setting<u64>,
    /// `pagesize`, a power of two.
    pub page_bytes: Setting<u64>,
    /// `minpages`: the size has room for this number of pages.
    pub pages_min: Setting<u32>,
    /// `max2cache`: reads of more bytes are not kept; one page if it is not set.
    pub kept_bytes: Setting<Option<u64>>,
}

impl MemoryCacheValues {
    /// Returns the size of the cache in bytes, with room for the minimum number of pages.
    #[must_use]
    pub fn size(&self) -> u64 {
        (*self.bytes).max(self.page_bytes.saturating_mul(u64::from(*self.pages_min)))
    }

    /// Returns the maximum number of bytes of a read that is kept. A read of a page is always kept.
    #[must_use]
    pub fn read_bytes_max(&self) -> u64 {
        self.kept_bytes.unwrap_or(0).max(*self.page_bytes)
    }
}

impl Default for MemoryCacheValues {
    fn default() -> Self {
        Self {
            enabled: Setting::default(),
            bytes: Setting::default_of(100 << 20),
            page_bytes: Setting::default_of(32 << 10),
            pages_min: Setting::default_of(256),
            kept_bytes: Setting::default(),
        }
    }
}

/// Values for `proxy`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProxySettings {
    /// The server is a proxy (`ofs.osslib libXrdPss.so`, `all.role proxy server`).
    pub enabled: Setting<bool>,
    /// `pss.origin`.
    pub origin: Setting<Option<ProxyOrigin>>,
    /// `pss.permit`.
    pub permits: Vec<Setting<OriginPermit>>,
    /// `pss.persona client`: requests have the identities of clients.
    pub has_client_identities: Setting<bool>,
    /// `pss.localroot`: prefix of paths at the fixed origin.
    pub local_root: Setting<Option<String>>,
    /// `pss.hostarena`: prefix of paths at every origin.
    pub host_arena: Setting<Option<String>>,
    /// `pss.setopt`, one for each name.
    pub options: Vec<Setting<OriginOption>>,
    /// `pss.inetmode v4`: only IPv4 is used to reach origins.
    pub only_ipv4: Setting<bool>,
    /// The object store of a bucket.
    pub store: StoreValues,
    /// The disk cache.
    pub cache: CacheValues,
    /// The memory cache, for a proxy without a disk cache.
    pub memory_cache: MemoryCacheValues,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_origins_are_parsed() {
        let parsed = |text: &str| text.parse::<ProxyServer>();
        let server = |protocol, host: &str, port| Ok(ProxyServer { protocol, host: host.to_owned(), port });
        assert_eq!(parsed("o"), server(OriginProtocol::Root, "o", 1094));
        assert_eq!(parsed("root://o:2/"), server(OriginProtocol::Root, "o", 2));
        assert_eq!(parsed("xroots://[::1]:3"), server(OriginProtocol::Roots, "::1", 3));
        assert_eq!(parsed("o+:4"), server(OriginProtocol::Root, "o", 4));
        assert_eq!(parsed("http://o"), server(OriginProtocol::Http, "o", 80));
        assert_eq!(parsed("davs://o/"), server(OriginProtocol::Https, "o", 443));
        for text in [
            "",
            "/dir",
            "s3://o",
            "http://o/data",
            "ftp://o",
            "root://o//data",
            "o:0",
            "o:x",
            "u@o",
            "o,p",
            "[::1",
            "::1",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_an_http_origin_of_the_command_line_has_a_directory() {
        let parsed = |text: &str| {
            text.parse::<OriginUrl>().map(|url| match url {
                OriginUrl::Server(server, directory) => (server.url(), directory),
                OriginUrl::Bucket(bucket) => (bucket.url(), None),
            })
        };
        let directory =
            |url: &str, directory: Option<&str>| Ok((url.to_owned(), directory.map(str::to_owned)));
        assert_eq!(parsed("https://o/a b/c/"), directory("https://o:443", Some("/a b/c")));
        assert_eq!(parsed("http://[::1]:8/"), directory("http://[::1]:8", None));
        assert_eq!(parsed("o:1"), directory("root://o:1", None));
        assert_eq!(parsed("s3://b/a/"), directory("s3://b/a", None));
        for text in ["root://o//data", "https://o/a%20b", "https://o/a?x", "https:///a", "ftp://o/a"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
