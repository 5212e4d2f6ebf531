//! Values for the crate `http`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::address_range::AddressRange;
use crate::setting::{Origin, Setting};

/// Default of `http.maxdelay`.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Default of `tpc.timeout`.
const COPY_TIMES: HttpCopyTimes =
    HttpCopyTimes { stall: Duration::from_secs(60), first: Duration::from_secs(120) };

/// A port on which `xrd.protocol` asks for HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpPort {
    /// The name of the protocol, which sites choose.
    pub protocol: String,
    /// The port, which can be that of the xroot protocol; `None` without a number, which means the same.
    pub number: Option<u16>,
}

/// `http.header2cgi`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderRule {
    /// Name of the header.
    pub header: String,
    /// Key of the element of the CGI.
    pub key: String,
    /// Redirects do not have the element.
    pub strip_on_redirect: bool,
}

/// `http.staticheader`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticHeaderRule {
    /// The method whose replies have the header; `None` for all.
    pub method: Option<String>,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The hosts that may read a page about the server.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum PageReaders {
    /// None. The page is absent.
    #[default]
    Nobody,
    /// Connections from the loopback addresses of this machine.
    Local,
    /// Hosts with these addresses.
    Networks(Vec<AddressRange>),
    /// All.
    All,
}

impl PageReaders {
    /// Reports whether a host may read the page.
    pub fn includes(&self, address: IpAddr) -> bool {
        match self {
            Self::Nobody => false,
            Self::Local => address.to_canonical().is_loopback(),
            Self::Networks(ranges) => ranges.iter().any(|range| range.contains(address)),
            Self::All => true,
        }
    }
}

/// `scalla.http`: the pages about the server itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerPages {
    /// HTTP/2 is served, too.
    pub http2: bool,
    /// `/healthz` and `/readyz` are served.
    pub status: bool,
    /// The hosts that may read `/metrics`.
    pub metrics: PageReaders,
    /// The hosts that may read `/dashboard`.
    pub dashboard: PageReaders,
    /// The begin of the paths of the WLCG Tape REST API, without a slash at the end; `None` without it.
    pub tape: Option<String>,
}

impl Default for ServerPages {
    fn default() -> Self {
        Self {
            http2: true,
            status: false,
            metrics: PageReaders::default(),
            dashboard: PageReaders::default(),
            tape: None,
        }
    }
}

/// `tpc.allow` and `tpc.deny`: the addresses of remote servers of copies; `None` without a directive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HttpCopyNetworks {
    /// Loopback and link-local addresses.
    pub local: Option<bool>,
    /// Private networks.
    pub private: Option<bool>,
}

/// `tpc.timeout`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpCopyTimes {
    /// Maximum time without progress.
    pub stall: Duration,
    /// Maximum time until the first byte.
    pub first: Duration,
}

/// `http.gridmap`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpGridMap {
    /// The file.
    pub path: PathBuf,
    /// Clients whose subject is not in it are refused.
    pub is_required: bool,
}

/// The values of HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpConfig {
    /// `xrd.protocol http`; empty without it.
    pub ports: Vec<Setting<HttpPort>>,
    /// `http.cert`.
    pub certificate: Setting<Option<PathBuf>>,
    /// `http.key`.
    pub key: Setting<Option<PathBuf>>,
    /// Headers that become elements of the CGI.
    pub headers_to_cgi: Vec<Setting<HeaderRule>>,
    /// Headers of replies.
    pub static_headers: Vec<Setting<StaticHeaderRule>>,
    /// `http.desthttps`.
    pub redirects_to_https: Setting<bool>,
    /// `http.listingdeny`.
    pub denies_listings: Setting<bool>,
    /// `http.listingredir`.
    pub listing_redirect: Setting<Option<String>>,
    /// `http.cors`: pages of other sites may read replies.
    pub cors: Setting<bool>,
    /// `cors.origin`: these sites.
    pub cors_origins: Vec<Setting<String>>,
    /// `http.maxdelay`.
    pub delay_max: Setting<Duration>,
    /// `scalla.http`: the pages about the server itself.
    pub pages: Setting<ServerPages>,
    /// `http.exthandler … libXrdHttpTPC.so`: clients can order third-party copies.
    pub copies: Setting<bool>,
    /// `+notls` of that directive: also without a certificate.
    pub copies_without_tls: bool,
    /// `http.exthandler … libXrdMacaroons.so`: clients can get macaroons.
    pub macaroons: Setting<bool>,
    /// `+notls` of that directive: also over connections that are not encrypted.
    pub macaroons_without_tls: bool,
    /// `tpc.allow` and `tpc.deny`.
    pub copy_networks: Setting<HttpCopyNetworks>,
    /// `tpc.timeout`.
    pub copy_times: Setting<HttpCopyTimes>,
    /// `http.cadir`: authorities of remote servers.
    pub authority_directory: Setting<Option<PathBuf>>,
    /// `http.cafile`: authorities of remote servers.
    pub authority_file: Setting<Option<PathBuf>>,
    /// `http.tlsclientauth`: clients are asked for certificates.
    pub asks_for_certificates: Setting<bool>,
    /// `http.gridmap`.
    pub grid_map: Setting<Option<HttpGridMap>>,
    /// `http.secxtractor`: attributes of VOMS count. `Some(true)` refuses clients without any.
    pub voms: Setting<Option<bool>>,
    /// Directives that restrict access by HTTP and are not in force.
    pub missing_guards: Vec<Setting<String>>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        let off = || Setting::new(false, Origin::Default);
        Self {
            ports: Vec::new(),
            certificate: Setting::new(None, Origin::Default),
            key: Setting::new(None, Origin::Default),
            headers_to_cgi: Vec::new(),
            static_headers: Vec::new(),
            redirects_to_https: off(),
            denies_listings: off(),
            listing_redirect: Setting::new(None, Origin::Default),
            cors: off(),
            cors_origins: Vec::new(),
            delay_max: Setting::new(DELAY_MAX, Origin::Default),
            pages: Setting::default(),
            copies: off(),
            copies_without_tls: false,
            macaroons: off(),
            macaroons_without_tls: false,
            copy_networks: Setting::new(HttpCopyNetworks::default(), Origin::Default),
            copy_times: Setting::new(COPY_TIMES, Origin::Default),
            authority_directory: Setting::new(None, Origin::Default),
            authority_file: Setting::new(None, Origin::Default),
            asks_for_certificates: Setting::new(true, Origin::Default),
            grid_map: Setting::new(None, Origin::Default),
            voms: Setting::new(None, Origin::Default),
            missing_guards: Vec::new(),
        }
    }
}
