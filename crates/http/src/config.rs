//! The configuration of the front end, and the traits that the server implements for it.

use crate::copy::Copies;
use crate::status_counters::StatusCounters;
use crate::tape::TapeRest;
use auth::{Entity, Secret};
use base::DescriptorBudget;
use monitor::MetricsFormat;
use net::TlsServer;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub struct HttpPeer {
    /// Its address.
    pub address: SocketAddr,
    /// The connection is encrypted.
    pub is_tls: bool,
}

/// The kind of credential that identifies a client.
#[derive(Clone, Default)]
pub struct HttpCredentials {
    /// The token of the request.
    pub token: Option<Secret>,
    /// The certificates of the handshake, that of the client first. They were verified then.
    pub certificates: Option<Arc<[Vec<u8>]>>,
}

/// The client of a request.
#[derive(Clone, Debug)]
pub struct HttpIdentity {
    /// The identity; `None` if the server asks for none, and no rules depend on it.
    pub entity: Option<Entity>,
    /// Name of the host, or its address as text.
    pub host: String,
}

/// The reason why a request is refused before its method is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HttpRefusal {
    /// A token is missing, or it is not valid.
    Unauthorized(String),
    /// No request of this kind of client is allowed.
    Forbidden(String),
    /// The decision is not possible at present.
    Unavailable(String),
}

/// Decides who the client of a request is. Requests without a decision are refused.
pub trait HttpLogin: Send + Sync {
    /// Returns the client of a request with these credentials.
    fn log_in(
        &self,
        peer: HttpPeer,
        credentials: HttpCredentials,
    ) -> Pin<Box<dyn Future<Output = Result<HttpIdentity, HttpRefusal>> + Send>>;
}

/// A header whose value becomes an element of the CGI of the request (`http.header2cgi`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderToCgi {
    /// Name of the header, in lower case.
    pub header: String,
    /// Key of the element.
    pub key: String,
    /// Redirects do not have the element.
    pub strip_on_redirect: bool,
}

/// A header that is added to replies (`http.staticheader`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticHeader {
    /// The method whose replies have it; `None` for all.
    pub method: Option<String>,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The reply to GET of a directory.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum ListingPolicy {
    /// A page with its entries.
    #[default]
    Served,
    /// None.
    Denied,
    /// A redirect to this URL with the path.
    Redirected(String),
}

/// The pages about the state of the server. They are served without a login.
#[derive(Clone)]
pub struct StatusPages {
    /// Returns the reason why clients should not be sent here; `None` if they should.
    pub unready: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// The endpoints that issue macaroons.
#[derive(Clone)]
pub struct MacaroonEndpoints {
    /// Macaroons are issued on encrypted connections only.
    pub needs_tls: bool,
    /// Reports whether the value of a header `Host` names this server.
    pub is_own_host: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

/// A text of metrics that is being made.
pub type MadeMetrics = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// A page that shows metrics.
#[derive(Clone)]
pub struct MetricsPage {
    /// Decides whether a host may read the page.
    pub is_reader: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Reports whether the value of a header `Host` names this server.
    pub is_own_host: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Makes the text; `None` if the server is still starting, or has too much to do.
    pub text: Arc<dyn Fn(MetricsFormat) -> MadeMetrics + Send + Sync>,
}

/// Configuration of the front end.
#[derive(Clone)]
pub struct Config {
    /// Decides who the clients are.
    pub login: Arc<dyn HttpLogin>,
    /// Certificate for HTTPS; `None` serves HTTP only.
    pub tls: Option<Arc<TlsServer>>,
    /// Descriptors of connections and files of the process.
    pub descriptors: Arc<DescriptorBudget>,
    /// Memory of requests in progress, which all front ends share.
    pub memory: Arc<base::MemoryBudget>,
    /// Headers that become elements of the CGI.
    pub headers_to_cgi: Vec<HeaderToCgi>,
    /// Headers that are added to replies.
    pub static_headers: Vec<StaticHeader>,
    /// Sites whose pages may read replies.
    pub cors_origins: Vec<String>,
    /// Whether redirects lead to HTTPS; `None` if those from encrypted connections do.
    pub redirects_to_https: Option<bool>,
    /// HTTP/2 is served, too.
    pub http2: bool,
    /// Large parts of files are sent by `sendfile`.
    pub sendfile: bool,
    /// Maximum time for which a request waits when the file system asks for a repetition.
    pub delay_max: Duration,
    /// Listings of directories.
    pub listings: ListingPolicy,
    /// Files can be written. A server that cannot remove unfinished files must not accept any.
    pub accepts_uploads: bool,
    /// Whether files can be fetched by COPY, which creates a file before its size is known.
    pub accepts_pulls: bool,
    /// Third-party copies; `None` if they are not allowed.
    pub copies: Option<Copies>,
    /// Counters of each status, if a collector gets them.
    pub statuses: Option<Arc<StatusCounters>>,
    /// The issue of macaroons; `None` if POST is not supported.
    pub macaroons: Option<MacaroonEndpoints>,
    /// The types of checksums that the server computes, the default first.
    pub checksums: Vec<String>,
    /// `/healthz` and `/readyz`; `None` if their names are ordinary paths.
    pub status: Option<StatusPages>,
    /// `/metrics`; `None` if its name is an ordinary path.
    pub metrics: Option<MetricsPage>,
    /// `/dashboard`, in the same way.
    pub dashboard: Option<MetricsPage>,
    /// The WLCG Tape REST API; `None` if its paths are ordinary ones.
    pub tape: Option<TapeRest>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("delay_max", &self.delay_max).finish_non_exhaustive()
    }
}
