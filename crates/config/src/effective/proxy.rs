//! Values for `proxy`: the origins of a proxy server.

use std::str::FromStr;

use super::network::HostPattern;
use crate::setting::Setting;

/// The port of servers that name none.
pub(crate) const ORIGIN_PORT: u16 = 1094;
/// Protocols of origins that are not supported.
pub(crate) const OTHER_PROTOCOLS: [&str; 7] = ["http", "https", "dav", "davs", "pelican", "s3", "s3s"];

/// A server whose files a proxy serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyServer {
    /// Connections to it are always encrypted (`roots`).
    pub encrypted: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// The parts of the address of an origin.
pub(crate) struct OriginAddress<'a> {
    pub(crate) encrypted: bool,
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
    /// Parses `[root://|roots://]host[+][:port][/]`.
    pub(crate) fn parse(text: &'a str) -> Result<Self, AddressProblem> {
        let malformed = |what: &str| Err(AddressProblem::Malformed(what.to_owned()));
        if text.starts_with('/') {
            let what = "a directory as origin is not in force yet".to_owned();
            return Err(AddressProblem::Unsupported(what));
        }
        let (scheme, place) = text.split_once("://").unwrap_or(("root", text));
        let encrypted = match scheme {
            "root" | "xroot" => false,
            "roots" | "xroots" => true,
            other if OTHER_PROTOCOLS.contains(&other) => {
                return Err(AddressProblem::Unsupported(format!(
                    "origins with {other} are not in force yet"
                )));
            }
            other => return malformed(&format!("unknown protocol '{other}' of the origin")),
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
        Ok(Self { encrypted, host, port })
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
        let OriginAddress { encrypted, host, port } = address.map_err(|problem| match problem {
            AddressProblem::Unsupported(what) | AddressProblem::Malformed(what) => what,
        })?;
        let number = port.map_or(Ok(ORIGIN_PORT), str::parse).ok().filter(|port| *port > 0);
        let port = number.ok_or_else(|| format!("invalid port '{}'", port.unwrap_or_default()))?;
        Ok(Self { encrypted, host: host.to_owned(), port })
    }
}

/// `pss.origin`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyOrigin {
    /// Paths may name their origin: `/root:/host:port/path`.
    pub forwards: bool,
    /// The origin of all other paths. One of both exists.
    pub fixed: Option<ProxyServer>,
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
    /// `pfc.diskusage`: low and high.
    pub usage: Setting<(CacheSpace, CacheSpace)>,
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
            usage: Setting::default_of((CacheSpace::Share(900_000), CacheSpace::Share(950_000))),
            files_bytes: Setting::default(),
            missing: Vec::new(),
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
    /// `pss.localroot`: prefix of paths at the fixed origin.
    pub local_root: Setting<Option<String>>,
    /// `pss.hostarena`: prefix of paths at every origin.
    pub host_arena: Setting<Option<String>>,
    /// `pss.setopt`, one for each name.
    pub options: Vec<Setting<OriginOption>>,
    /// `pss.inetmode v4`: only IPv4 is used to reach origins.
    pub only_ipv4: Setting<bool>,
    /// The disk cache.
    pub cache: CacheValues,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_origins_are_parsed() {
        let parsed = |text: &str| text.parse::<ProxyServer>();
        let server = |encrypted, host: &str, port| Ok(ProxyServer { encrypted, host: host.to_owned(), port });
        assert_eq!(parsed("o"), server(false, "o", 1094));
        assert_eq!(parsed("root://o:2/"), server(false, "o", 2));
        assert_eq!(parsed("xroots://[::1]:3"), server(true, "::1", 3));
        assert_eq!(parsed("o+:4"), server(false, "o", 4));
        for text in
            ["", "/dir", "http://o", "ftp://o", "root://o//data", "o:0", "o:x", "u@o", "o,p", "[::1", "::1"]
        {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
