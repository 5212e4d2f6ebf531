//! [`OriginFile`]: an open file of an origin, by the protocol that the origin speaks.
//!
//! Requests of HTTP are boxed, so that they do not enlarge those of the other protocol.

use crate::appearing_file::AppearingFile;
use client::http::HttpFile;
use client::xroot::flags::OpenOptions;
use client::{Bytes, Cause, Client, Error, File, OpenWith, RequestPacing, Scheme, StatInfo, Url};
use std::sync::{Arc, LazyLock};
use tokio::sync::watch;

/// The signal of moves of files that stay where they are.
static STAYS: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// An open file of an origin. Clones share it.
pub(crate) enum OriginFile {
    Xroot(File),
    Http(HttpFile),
    /// A file that is to be created at a server that speaks HTTP.
    New(AppearingFile),
}

/// Reports whether an origin speaks HTTP.
pub(crate) const fn is_http(url: &Url) -> bool {
    matches!(url.scheme, Scheme::Http | Scheme::Https)
}

/// Returns the refusal of an operation that HTTP origins do not support.
pub(crate) fn unsupported(operation: &'static str, url: &Url, what: &str) -> Error {
    let text = format!("an object store or a web server cannot {what}");
    Error::new(operation, url, Cause::Unsupported(text))
}

/// Returns the refusal of a request that needs the object.
fn not_yet(operation: &'static str, file: &AppearingFile) -> Error {
    let text = "the file exists at its origin only when it is closed".to_owned();
    Error::new(operation, file.url(), Cause::Unsupported(text))
}

/// Begins a file.
async fn create(client: &Client, url: &Url, with: &OpenWith) -> Result<AppearingFile, Error> {
    let is_new = with.options.intersects(OpenOptions::NEW);
    if !is_new && !with.options.intersects(OpenOptions::DELETE) {
        return Err(unsupported(
            "open",
            url,
            "change a part of a file: write all of it anew, or remove it first",
        ));
    }
    if client.has_object_store() {
        return client.create_object(url, is_new).await.map(AppearingFile::Object);
    }
    let directory = url.path.as_str().rsplit_once('/').map_or("", |(directory, _)| directory);
    if with.options.intersects(OpenOptions::MKPATH) && !directory.is_empty() {
        client.http_files(url).make_directory(directory, true).await?;
    }
    client.create_http(url, is_new).await.map(AppearingFile::Web)
}

impl OriginFile {
    /// Opens the file of a URL.
    pub(crate) async fn open(client: &Client, url: &Url, with: &OpenWith) -> Result<Self, Error> {
        match is_http(url) {
            true if with.is_writable() => Box::pin(create(client, url, with)).await.map(Self::New),
            true => Box::pin(client.open_http(url)).await.map(Self::Http),
            false => client.open(url, with).await.map(Self::Xroot),
        }
    }

    /// Returns this file with requests that `pacing` can hold back.
    pub(crate) fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        match self {
            Self::Xroot(file) => Self::Xroot(file.paced(pacing)),
            Self::Http(file) => Self::Http(file.paced(pacing)),
            Self::New(file) => Self::New(file.paced(pacing)),
        }
    }

    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Self::Xroot(file) => file.is_writable(),
            Self::Http(_) => false,
            Self::New(_) => true,
        }
    }

    /// Reports whether a change of the file can be noticed, so that its data may be kept.
    pub(crate) fn has_version(&self) -> bool {
        match self {
            Self::Xroot(_) => true,
            Self::Http(file) => file.has_version(),
            Self::New(_) => false,
        }
    }

    /// Returns the URL at which it was opened.
    pub(crate) fn url(&self) -> &Url {
        match self {
            Self::Xroot(file) => file.url(),
            Self::Http(file) => file.url(),
            Self::New(file) => file.url(),
        }
    }

    /// Returns the URL of the server at which it is open now.
    pub(crate) fn location(&self) -> Url {
        match self {
            Self::Xroot(file) => file.location(),
            Self::Http(file) => file.location(),
            Self::New(file) => file.url().clone(),
        }
    }

    /// Has the next request begin at the origin, because the server to which that has redirected has failed.
    pub(crate) fn leave_location(&self) {
        if let Self::Http(file) = self {
            file.leave_location();
        }
    }

    /// Returns a signal of moves to other servers.
    pub(crate) fn reopens(&self) -> watch::Receiver<bool> {
        match self {
            Self::Xroot(file) => file.reopens(),
            Self::Http(file) => file.moves(),
            Self::New(_) => STAYS.subscribe(),
        }
    }

    /// Reports whether the next request moves the file to another server, under no breaker.
    pub(crate) fn is_moving(&self) -> bool {
        match self {
            Self::Xroot(file) => file.is_moving(),
            Self::Http(_) | Self::New(_) => false,
        }
    }

    /// Returns the status in the reply to the open, if there is one.
    pub(crate) fn stat_at_open(&self) -> Option<StatInfo> {
        match self {
            Self::Xroot(file) => file.stat_at_open(),
            Self::Http(file) => Some(file.stat_at_open().clone()),
            Self::New(_) => None,
        }
    }

    pub(crate) async fn stat(&self) -> Result<StatInfo, Error> {
        match self {
            Self::Xroot(file) => file.stat().await,
            Self::Http(file) => Box::pin(file.stat()).await,
            Self::New(file) => Err(not_yet("stat", file)),
        }
    }

    /// Reads a part of `into` and returns its size. 0 is the end of the file.
    pub(crate) async fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::Xroot(file) => {
                let data = file.read_pages(offset, into.len()).await?;
                let came = data.len().min(into.len());
                if let (Some(place), Some(data)) = (into.get_mut(..came), data.get(..came)) {
                    place.copy_from_slice(data);
                }
                Ok(came)
            }
            Self::Http(file) => Box::pin(file.read_into(offset, into)).await,
            Self::New(file) => Err(not_yet("read", file)),
        }
    }

    /// Reads at most `length` bytes.
    pub(crate) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        match self {
            Self::Xroot(file) => file.read_pages(offset, length).await,
            Self::Http(file) => Box::pin(file.read(offset, length)).await,
            Self::New(file) => Err(not_yet("read", file)),
        }
    }

    /// Returns the file for reads of several ranges with one request; `None` if each needs its own.
    pub(crate) const fn vectors(&self) -> Option<&File> {
        match self {
            Self::Xroot(file) => Some(file),
            Self::Http(_) | Self::New(_) => None,
        }
    }

    /// Returns the file for changes.
    fn writable(&self, operation: &'static str) -> Result<&File, Error> {
        match self {
            Self::Xroot(file) => Ok(file),
            Self::Http(file) => {
                Err(unsupported(operation, file.url(), "change a file that is open for reading"))
            }
            Self::New(file) => Err(not_yet(operation, file)),
        }
    }

    pub(crate) async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.writable("write")?.write_pages(offset, data).await
    }

    pub(crate) async fn sync(&self) -> Result<(), Error> {
        self.writable("sync")?.sync().await
    }

    pub(crate) async fn truncate(&self, size: u64) -> Result<(), Error> {
        self.writable("truncate")?.truncate(size).await
    }

    pub(crate) async fn close(&self) -> Result<(), Error> {
        match self {
            Self::Xroot(file) => file.close().await,
            Self::Http(_) | Self::New(_) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "../../client/tests/http_support/mod.rs"]
pub(crate) mod http_support;

#[cfg(test)]
mod tests {
    use super::http_support::{Action, FakeHttp, Received, file, reply};
    use crate::address::tests::proxy;
    use crate::limits::Requester;
    use crate::origin::{ForwardedLimits, OriginDialer, OriginServer, RequestKind};
    use crate::origin_names::OriginNameSpace;
    use crate::place::RequestFailure;
    use crate::remote_file::RemoteFile;
    use crate::settings::ProxyConfig;
    use auth::Secret;
    use auth::s3::S3Credentials;
    use base::{ClientHost, ErrorKind, LogicalPath, Owner};
    use client::http::ObjectStore;
    use client::{Client, ListingMemory, OpenWith, Url};
    use config::HostPattern;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::runtime::Handle;

    const REQUESTER: Requester = Requester { owner: Owner(1), host: ClientHost::Unknown };
    const VERSION: &str = "ETag: \"v1\"\r\n";

    fn origin(url: &Url) -> Arc<OriginServer> {
        let (config, listings) = (Arc::new(proxy(None, true)), ListingMemory::new(1000));
        OriginServer::new(url, OriginDialer::fixed(&config, Handle::current(), &listings))
    }

    fn content() -> Vec<u8> {
        (0..200_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect()
    }

    async fn open(origin: &Arc<OriginServer>, url: &Url) -> Arc<RemoteFile> {
        let file = RemoteFile::open(origin.clone(), url.clone(), OpenWith::read(), REQUESTER).await;
        Arc::new(file.unwrap())
    }

    #[tokio::test]
    async fn near_ranges_are_one_request_and_the_others_are_made_at_once() {
        let content = content();
        let served = content.clone();
        let server = FakeHttp::start(move |request| file(request, &served, VERSION)).await;
        let url = server.url("/f");
        let file = open(&origin(&url), &url).await;
        let ranges = [(100_000, 50), (10, 10), (500, 20), (199_990, 10)];
        let found = file.read_ranges(&ranges).await.unwrap();
        for (&(offset, length), data) in ranges.iter().zip(found) {
            let offset = usize::try_from(offset).unwrap();
            assert_eq!(data, content[offset..offset + length], "{offset}");
        }
        assert_eq!(server.requests("GET").len(), 1 + 3, "with that of the open");
    }

    #[tokio::test]
    async fn nothing_goes_out_for_a_change_that_no_web_server_can_make() {
        let server = FakeHttp::start(|_| reply("200 OK", "", b"")).await;
        let url = server.url("/f");
        let origin = origin(&url);
        let opened = RemoteFile::open(origin.clone(), url.clone(), OpenWith::update(), REQUESTER).await;
        let (request, path) = ((RequestKind::Quick, REQUESTER), LogicalPath::parse(b"/f").unwrap());
        let names = |client: &Client| OriginNameSpace::new(client, &url);
        let truncated =
            origin.change(request, async |client, _| names(&client).truncate("/f", 1).await).await;
        for failure in [opened.err(), truncated.err()] {
            let failure = failure.unwrap();
            assert_eq!(failure.to_error("change", &path).kind, ErrorKind::Unsupported);
            assert!(failure.is_refusal(), "what is cached of the file stays");
        }
        assert_eq!(server.connections(), 0);
    }

    /// Answers with a redirect, or serves the file.
    fn redirecting(to: &str, content: &[u8], redirects: &AtomicBool, request: &Received) -> Vec<Action> {
        match redirects.load(Ordering::Relaxed) {
            true => reply("302 Found", &format!("Location: {to}\r\n"), b""),
            false => file(request, content, VERSION),
        }
    }

    #[tokio::test]
    async fn a_file_whose_redirect_leads_to_a_dead_server_is_read_from_its_origin() {
        let (content, redirects) = (content(), Arc::new(AtomicBool::new(true)));
        let served = content.clone();
        let other = FakeHttp::start(move |request| match request.range() {
            Some((0, 0)) => file(request, &served, VERSION),
            _ => vec![Action::Close],
        })
        .await;
        let (target, served, switch) = (other.url("/g").to_string(), content.clone(), redirects.clone());
        let server = FakeHttp::start(move |request| redirecting(&target, &served, &switch, request)).await;
        let url = server.url("/f");
        let file = open(&origin(&url), &url).await;
        assert_eq!(file.server(), other.address.to_string());
        redirects.store(false, Ordering::Relaxed);
        assert_eq!(file.read_bytes(7, 100).await.unwrap(), content[7..107]);
        assert_eq!(file.server(), server.address.to_string());
    }

    #[tokio::test]
    async fn a_redirect_of_a_fixed_web_server_is_within_the_permits() {
        let content = content();
        let served = content.clone();
        let other = FakeHttp::start(move |request| file(request, &served, VERSION)).await;
        let target = format!("http://localhost:{}/f", other.address.port());
        let redirects = AtomicBool::new(true);
        let server = FakeHttp::start(move |request| redirecting(&target, b"x", &redirects, request)).await;
        let url = server.url("/f");
        for (permit, is_permitted) in
            [(Some("*.example.org"), false), (Some("localhost"), true), (None, true)]
        {
            let pattern = |text| [HostPattern::parse(text).unwrap()].into();
            let config = Arc::new(ProxyConfig {
                permits: permit.map(pattern),
                ..proxy(Some(&url.to_string()), false)
            });
            let dialer = OriginDialer::fixed(&config, Handle::current(), &ListingMemory::new(1000));
            let origin = OriginServer::new(&url, dialer);
            let opened = RemoteFile::open(origin, url.clone(), OpenWith::read(), REQUESTER).await;
            assert_eq!(opened.is_ok(), is_permitted, "{permit:?}");
            assert_eq!(other.connections() > 0, is_permitted, "{permit:?}");
        }
    }

    #[tokio::test]
    async fn only_the_fixed_origin_gets_requests_with_the_keys_of_the_store() {
        let server = FakeHttp::start(|request| file(request, b"abc", VERSION)).await;
        let (url, listings) = (server.url("/b/f"), ListingMemory::new(1000));
        let keys = S3Credentials::new("AKID", Secret::from(&b"secret"[..]), None);
        let store = Some(ObjectStore::new(&url, "b", "r", Some(keys)));
        let config = Arc::new(ProxyConfig { store, ..proxy(Some(&url.to_string()), true) });
        let shared = ForwardedLimits::new(&config, listings.clone());
        let (fixed, forwarded) = (
            OriginDialer::fixed(&config, Handle::current(), &listings),
            OriginDialer::forwarded(&config, Handle::current(), &shared, &shared.of_host()),
        );
        for (dialer, is_signed) in [(fixed, true), (forwarded, false)] {
            let file = open(&OriginServer::new(&url, dialer), &url).await;
            assert_eq!(file.read_bytes(0, 3).await.unwrap(), "abc");
            let requests = server.requests("GET");
            let of_this = requests.iter().rev().take(2);
            for request in of_this {
                assert_eq!(request.contains("Credential=AKID/"), is_signed, "{request}");
            }
        }
    }

    #[tokio::test]
    async fn an_origin_that_refuses_connections_opens_its_breaker() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = Url::parse(&format!("http://{closed}/f")).unwrap();
        let origin = origin(&url);
        let failed = RemoteFile::open(origin.clone(), url, OpenWith::read(), REQUESTER).await;
        assert!(matches!(failed, Err(RequestFailure::Client(_))));
        assert!(origin.home.has_failed());
    }
}
