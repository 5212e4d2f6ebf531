//! Pulls files from other servers with our own client, for third-party copies.
//!
//! All pulls share a few threads, which start with the first one, because most servers never make a
//! copy. Pieces are read ahead and written in the order of the file, so that its checksum can be
//! computed as it grows.

use super::outbound::{ClientOutbound, Outbound};
use auth::tls::TrustAnchors;
use base::{Error, ErrorKind};
use client::{AddressFilter, Bytes, Cause, Client, Credentials, File, OpenWith, RemotePath, Settings, Url};
use digest::{Algorithm, Checksum};
use logical::{Fetcher, RunningTransfer, TransferCompletion, TransferRequest, TransferResult, TransferSink};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

/// Maximum number of threads for pulls.
const THREADS_MAX: usize = 4;
/// Bytes of one read.
const PIECE_BYTES: usize = 2 << 20;
/// Reads in flight on a connection with one stream; each further stream adds 2.
const READS_MIN: usize = 4;
/// Maximum number of reads in flight, and of writes.
const PIECES_MAX: usize = 16;
/// The deadline of an open under one client name, before the next name is tried.
const ORIGIN_PATIENCE: Duration = Duration::from_secs(3);
/// The deadline of an open in total. A source lets an open wait for its client for minutes at most.
const OPEN_PATIENCE: Duration = Duration::from_secs(300);
/// The interval at which a pull reports progress while the source computes a checksum.
const ALIVE: Duration = Duration::from_secs(10);

/// Pulls files with our own client.
pub(crate) struct Puller {
    threads: SharedThreads,
    outbound: Outbound,
    trusted: Option<TrustAnchors>,
    /// Delegated credentials are also used at sources whose key agreement is in a small group.
    accepts_weak_groups: bool,
}

impl Puller {
    /// Creates it with the policy for its connections, and the authorities of servers; `None` for those
    /// that the environment names.
    pub(crate) fn new(outbound: Outbound, trusted: Option<TrustAnchors>) -> Self {
        let accepts_weak_groups = auth::gsi::accepts_weak_groups(|name| std::env::var(name).ok());
        Self { threads: SharedThreads::default(), outbound, trusted, accepts_weak_groups }
    }

    /// Returns the credentials of a copy: those that its client has delegated, or none, because those of
    /// the user of this server are not for clients.
    fn credentials(&self, fetch: &TransferRequest) -> Credentials {
        match &fetch.credentials {
            Some(proxy) => Credentials::of_proxy(proxy.client(self.accepts_weak_groups)),
            None => Credentials::none(),
        }
    }
}

/// Threads that start with the first pull.
#[derive(Default)]
pub(super) struct SharedThreads(OnceLock<Option<Threads>>);

impl SharedThreads {
    /// Returns the threads; `None` if they cannot be started.
    pub(super) fn get(&self) -> Option<&Handle> {
        let start = || {
            let started = Threads::start();
            started.inspect_err(|error| tracing::error!("no threads for third-party copies: {error}")).ok()
        };
        self.0.get_or_init(start).as_ref().map(|threads| &threads.handle)
    }
}

/// The threads, which end when this value is dropped.
struct Threads {
    handle: Handle,
    _running: oneshot::Sender<()>,
}

impl Threads {
    fn start() -> std::io::Result<Self> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("third-party")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        // A runtime must not be dropped on a thread of another runtime, so it lives on a thread of
        // its own.
        std::thread::Builder::new().name("third-party".to_owned()).spawn(move || {
            runtime.block_on(ended).ok();
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _running: running })
    }
}

/// The handle that cancels a pull.
pub(super) struct PullCancel(pub(super) watch::Sender<bool>);

impl RunningTransfer for PullCancel {
    fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Fetcher for Puller {
    fn start(
        &self,
        fetch: TransferRequest,
        sink: Arc<dyn TransferSink>,
        finish: TransferCompletion,
    ) -> Box<dyn RunningTransfer> {
        let (cancel, mut cancelled) = watch::channel(false);
        let Some(threads) = self.threads.get() else {
            finish.done(Err(Error::new(ErrorKind::NoMemory, "there are no threads for it")));
            return Box::new(PullCancel(cancel));
        };
        let outbound = self.outbound.for_client(fetch.client_address);
        let way = PullWay { outbound, trusted: self.trusted.clone(), credentials: self.credentials(&fetch) };
        threads.spawn(async move {
            let writer = PullWriter::new(sink.clone());
            let result = tokio::select! {
                biased;
                () = until_cancelled(&mut cancelled) => {
                    Err(Error::new(ErrorKind::Cancelled, "cancelled"))
                }
                result = pull(&fetch, way, &writer, sink.as_ref()) => result,
            };
            // No write may be in progress after the end is reported, also after a failure.
            let written = writer.drain().await;
            finish.done(result.and_then(|fetched| written.map(|()| fetched)));
        });
        Box::new(PullCancel(cancel))
    }
}

/// The connections of a pull.
struct PullWay {
    outbound: ClientOutbound,
    trusted: Option<TrustAnchors>,
    credentials: Credentials,
}

async fn pull(
    fetch: &TransferRequest,
    PullWay { outbound, trusted, credentials }: PullWay,
    writer: &PullWriter,
    sink: &dyn TransferSink,
) -> Result<TransferResult, Error> {
    let resolver = outbound.resolver();
    let filter = AddressFilter::new(move |host, address| outbound.choose(host, address));
    let filter = filter.with_resolver(resolver);
    let settings = settings(fetch.streams);
    let client = Client::for_server(settings, "scalla third-party copy", filter, trusted, credentials);
    let (url, file) = open(&client, fetch).await?;
    let bytes = file.stat().await.map_err(|e| failed(&e))?.size;
    // The source computes the checksum during the transfer, while the file is in its page cache.
    let checksum = fetch.checksum.map(|algorithm| Abort(tokio::spawn(ask_checksum(client, url, algorithm))));
    read(&file, bytes, fetch.streams, writer).await?;
    if fetch.key.is_none() {
        // The file may have been opened again, at another server.
        check_login(&file)?;
    }
    file.close().await.ok();
    let checksum = match checksum {
        Some(asked) => Some(patiently(asked, sink).await?),
        None => None,
    };
    Ok(TransferResult { bytes, checksum, verified: false })
}

/// Returns the client settings of a server, which must not depend on its environment variables.
fn settings(streams: u32) -> Settings {
    let mut settings = Settings::default();
    settings.sub_streams_per_channel = u64::from(streams) + 1;
    settings
}

/// Opens the source under each name by which it may know the client.
async fn open(client: &Client, fetch: &TransferRequest) -> Result<(Url, File), Error> {
    let bad = |error: client::UrlError| Error::new(ErrorKind::ArgInvalid, error.to_string());
    let path = RemotePath::new(fetch.path.to_string());
    let path = path.map_err(|error| Error::new(ErrorKind::ArgInvalid, error.to_string()))?;
    let scheme = if fetch.encrypted { "roots" } else { "root" };
    let mut url = Url::parse(&format!("{scheme}://{}", fetch.source)).map_err(bad)?.at(path);
    url.merge_cgi(&fetch.cgi);
    let plain = url.clone();
    let Some(key) = &fetch.key else {
        // The login gives access, as for any client.
        let opened = tokio::time::timeout(OPEN_PATIENCE, client.open(&url, &OpenWith::read())).await;
        let file = opened.map_err(|_| silent(OPEN_PATIENCE))?.map_err(|error| failed(&error))?;
        check_login(&file)?;
        return Ok((plain, file));
    };
    url.cgi.insert("tpc.key".to_owned(), key.clone());
    let mut last = Error::new(ErrorKind::ServerError, "nobody arranged it");
    let count = fetch.origins.len();
    for (index, origin) in fetch.origins.iter().enumerate() {
        url.cgi.insert("tpc.org".to_owned(), origin.clone());
        let patience = if index + 1 < count { ORIGIN_PATIENCE } else { OPEN_PATIENCE };
        let with = OpenWith::read();
        match tokio::time::timeout(patience, client.open(&url, &with)).await {
            Ok(Ok(file)) => return Ok((plain, file)),
            Ok(Err(error)) => {
                last = failed(&error);
                // Only a missing grant can have another result under another name.
                if error.code() != Some(client::xroot::codes::ErrorCode::NOT_AUTHORIZED) {
                    return Err(last);
                }
            }
            Err(_) => last = silent(patience),
        }
    }
    Err(last)
}

/// Checks that the source knows the client of the copy by its delegated proxy. A source that asks for
/// no credentials admits this server instead, which may have other rights.
fn check_login(file: &File) -> Result<(), Error> {
    // This client has no other credentials than the proxy.
    if file.channel().has_session_key() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::NotAuthorized, "the source asks for no credentials; arrange a grant"))
}

fn silent(patience: Duration) -> Error {
    Error::new(ErrorKind::RequestTimedOut, format!("open: no answer within {} s", patience.as_secs()))
}

/// Converts an error of the client, without the target, which the receiver knows.
fn failed(error: &client::Error) -> Error {
    let failure = error.failure();
    let text = match &failure.cause {
        Cause::Server { text, .. } => text.trim().to_owned(),
        cause => cause.to_string(),
    };
    Error::new(ErrorKind::FsError, format!("{}: {text}", failure.operation))
}

async fn ask_checksum(client: Client, url: Url, algorithm: Algorithm) -> Result<Checksum, Error> {
    let told = client.file_system(&url).checksum(&url.path, Some(algorithm.name())).await;
    let told = told.map_err(|e| failed(&e))?;
    let parsed =
        told.kind.eq_ignore_ascii_case(algorithm.name()).then(|| Checksum::from_hex(algorithm, &told.value));
    parsed.flatten().ok_or_else(|| {
        let text = format!("checksum: the source replied `{} {}`", told.kind, told.value);
        Error::new(ErrorKind::ChecksumError, text)
    })
}

/// Waits for a checksum and reports progress meanwhile, so that the copy does not time out.
async fn patiently(
    mut asked: Abort<Result<Checksum, Error>>,
    sink: &dyn TransferSink,
) -> Result<Checksum, Error> {
    loop {
        match tokio::time::timeout(ALIVE, &mut asked.0).await {
            Ok(told) => return told.map_err(|_| broken_off())?,
            Err(_) => sink.moved(0),
        }
    }
}

/// Waits until the pull is cancelled.
pub(super) async fn until_cancelled(cancelled: &mut watch::Receiver<bool>) {
    drop(cancelled.wait_for(|cancelled| *cancelled).await);
}

/// Returns the error of a task that panicked.
pub(super) fn broken_off() -> Error {
    Error::new(ErrorKind::ServerError, "the work broke off; see the destination's log")
}

/// A task that is aborted with its owner.
struct Abort<T>(JoinHandle<T>);

impl<T> Drop for Abort<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A read in flight.
struct PullRead {
    offset: u64,
    length: usize,
    read: Abort<Result<Bytes, client::Error>>,
}

/// Reads the whole file, several pieces ahead.
async fn read(file: &File, size: u64, streams: u32, writer: &PullWriter) -> Result<(), Error> {
    let ahead = (READS_MIN + 2 * streams as usize).min(PIECES_MAX);
    let mut reads: VecDeque<PullRead> = VecDeque::new();
    let mut next = 0;
    loop {
        while reads.len() < ahead && next < size {
            let length = usize::try_from(size - next).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let (file, offset) = (file.clone(), next);
            let piece = tokio::spawn(async move { file.read_pages(offset, length).await });
            reads.push_back(PullRead { offset, length, read: Abort(piece) });
            next += length as u64;
        }
        let Some(PullRead { offset, length, mut read }) = reads.pop_front() else { return Ok(()) };
        let data = (&mut read.0).await.map_err(|_| broken_off())?.map_err(|e| failed(&e))?;
        if data.len() != length {
            let text = format!("read: the file has {size} bytes, and ends at {}", offset + data.len() as u64);
            return Err(Error::new(ErrorKind::FsError, text));
        }
        writer.write(offset, data).await?;
    }
}

/// Writes several pieces at a time.
struct PullWriter {
    sink: Arc<dyn TransferSink>,
    places: Arc<Semaphore>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl PullWriter {
    fn new(sink: Arc<dyn TransferSink>) -> Self {
        Self { sink, places: Arc::new(Semaphore::new(PIECES_MAX)), failure: Arc::default() }
    }

    fn failure(&self) -> Result<(), Error> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or(Ok(()), Err)
    }

    /// Starts a write as soon as there is a permit. An error is that of an earlier write.
    async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let place = self.places.clone().acquire_owned().await.map_err(|_| broken_off())?;
        self.failure()?;
        let slip = Slip { failure: self.failure.clone(), answered: false, _place: place };
        self.sink.write(offset, Box::new(data), Box::new(move |result| slip.answer(result)));
        Ok(())
    }

    /// Waits until all writes have ended.
    async fn drain(&self) -> Result<(), Error> {
        let all = u32::try_from(PIECES_MAX).unwrap_or(u32::MAX);
        drop(self.places.acquire_many(all).await);
        self.failure()
    }
}

/// One write. It releases its permit when it is answered or dropped.
struct Slip {
    failure: Arc<Mutex<Option<Error>>>,
    answered: bool,
    _place: OwnedSemaphorePermit,
}

impl Slip {
    fn answer(mut self, result: Result<(), Error>) {
        self.answered = true;
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        if !self.answered {
            self.fail(broken_off());
        }
    }
}
