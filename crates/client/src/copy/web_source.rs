//! A file of an HTTP server as the source of a copy.
//!
//! Its parts are read by ranges, several at a time. A server that has no ranges sends the whole file, which can
//! only be read in its order.

use std::time::Duration;

use bytes::Bytes;
use digest::{Algorithm, RunningChecksum};
use hyper::header::HeaderMap;
use tokio::sync::Mutex;
use tokio::time::timeout;
use wire::xroot::ErrorCode;

use super::Copier;
use super::failure::CopyError;
use super::metadata::PreservedMetadata;
use super::options::{CopyDelegation, CopyJob, CopyOptions, ThirdParty};
use super::source::SourceReader;
use crate::answers::{FileChecksum, StatInfo};
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::http::{DownloadedFile, HttpFile, UrlTransfer};
use crate::url::Url;

/// Bytes of one request when a checksum is computed from the data.
const SUM_BYTES: usize = 4 * 1024 * 1024;

/// An open file of an HTTP server.
pub(super) enum WebSource {
    /// A file whose parts can be read.
    Ranges(HttpFile),
    /// A file that arrives in its order.
    Whole(Box<SequentialWebFile>),
}

/// A file that a server without ranges sends.
pub(super) struct SequentialWebFile {
    transfer: UrlTransfer,
    url: Url,
    /// The status, if the server shows one.
    stat: Option<StatInfo>,
    size: Option<u64>,
    silence: Duration,
    body: Mutex<SequentialBody>,
}

/// The rest of a file that arrives.
struct SequentialBody {
    file: DownloadedFile,
    /// Data that has arrived and was not read yet.
    rest: Bytes,
    /// The offset of the next byte to read.
    position: u64,
}

impl WebSource {
    pub(super) async fn open(client: &Client, url: &Url) -> Result<Self, Error> {
        let stat = match client.open_http(url).await {
            Ok(file) if file.has_ranges() || url.is_object() => return Ok(Self::Ranges(file)),
            Ok(file) => Some(file.stat_at_open().clone()),
            // It has no ranges, or shows no size. Both matter only for parts.
            Err(error) if matches!(error.cause(), Cause::Unsupported(_)) && !url.is_object() => None,
            Err(error) => return Err(error),
        };
        let transfer = UrlTransfer::new(client, url, "read").await?;
        let file = transfer.transfer().get(HeaderMap::new()).await;
        let file = file.map_err(|failure| transfer.error(failure))?;
        let (size, silence) = (file.size(), client.settings().silence());
        let body = Mutex::new(SequentialBody { file, rest: Bytes::new(), position: 0 });
        Ok(Self::Whole(Box::new(SequentialWebFile { transfer, url: url.clone(), stat, size, silence, body })))
    }

    /// Returns the size, if the server shows it.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Ranges(file) => Some(file.stat_at_open().size),
            Self::Whole(whole) => whole.size,
        }
    }

    pub(super) fn url(&self) -> &Url {
        match self {
            Self::Ranges(file) => file.url(),
            Self::Whole(whole) => &whole.url,
        }
    }

    fn stat(&self) -> Option<&StatInfo> {
        match self {
            Self::Ranges(file) => Some(file.stat_at_open()),
            Self::Whole(whole) => whole.stat.as_ref(),
        }
    }

    /// Returns the time of the file, if the server shows it.
    pub(super) fn kept(&self) -> Option<PreservedMetadata> {
        let time = self.stat().map(|stat| stat.mtime).filter(|time| *time != 0)?;
        Some(PreservedMetadata { modified: (time, 0), accessed: (time, 0), mode: None })
    }

    /// Returns the identity and state of the file, if the server shows a version.
    pub(super) fn identity(&self) -> Option<String> {
        let Self::Ranges(file) = self else { return None };
        let StatInfo { size, mtime, id, .. } = file.stat_at_open();
        file.has_version().then(|| format!("http {} {size} {mtime} {id}", file.url()))
    }

    /// Reports whether it can only be read in its order.
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// Reads `length` bytes, fewer only at the end. A file without ranges fails unless `offset` is its position.
    pub(super) async fn read(&self, offset: u64, length: usize) -> Result<Bytes, Error> {
        match self {
            Self::Ranges(file) => file.read(offset, length).await,
            Self::Whole(whole) => whole.next(Some(offset), length).await,
        }
    }

    /// Reads the next bytes of a file without ranges.
    pub(super) async fn read_next(&self, length: usize) -> Result<Bytes, Error> {
        match self {
            Self::Ranges(_) => Ok(Bytes::new()),
            Self::Whole(whole) => whole.next(None, length).await,
        }
    }
}

impl SequentialWebFile {
    /// Reads the next bytes, which are those at `offset`, if that is given.
    async fn next(&self, offset: Option<u64>, length: usize) -> Result<Bytes, Error> {
        let mut body = self.body.lock().await;
        let SequentialBody { file, rest, position } = &mut *body;
        if offset.is_some_and(|offset| offset != *position) {
            let text = format!("{} has no ranges, so it can only be read from its beginning on", self.url);
            return Err(self.transfer.error_of(Cause::Unsupported(text)));
        }
        if rest.len() >= length {
            *position += length as u64;
            return Ok(rest.split_to(length));
        }
        let mut data = std::mem::take(rest).to_vec();
        while data.len() < length {
            let late = |_| self.transfer.error_of(Cause::TimedOut(self.silence.as_secs()));
            let next = timeout(self.silence, file.next()).await.map_err(late)?;
            let Some(mut part) = next.map_err(|cause| self.transfer.error_of(cause))? else { break };
            let taken = part.split_to(part.len().min(length - data.len()));
            data.extend_from_slice(&taken);
            *rest = part;
        }
        *position += data.len() as u64;
        Ok(data.into())
    }
}

/// Refuses options that HTTP has no requests for.
pub(super) fn check_options(job: &CopyJob, options: &CopyOptions) -> Result<(), CopyError> {
    let source = job.source.url().filter(|url| url.is_http());
    let target = job.target.url().filter(|url| url.is_http());
    let resumes = options.resume && !options.recorded_only;
    let with_user = |url: &&Url| url.user.is_some() || url.password.is_some();
    let refused = [
        (
            source.filter(with_user),
            true,
            "logins by a name in the URL (give a token by authz or BEARER_TOKEN)",
        ),
        (
            target.filter(with_user),
            true,
            "logins by a name in the URL (give a token by authz or BEARER_TOKEN)",
        ),
        (target, target.is_some_and(|url| !url.others.is_empty()), "targets at several hosts"),
        (source, options.sources > 1 || source.is_some_and(|url| !url.others.is_empty()), "several sources"),
        (source.or(target), options.attributes, "extended attributes"),
        (
            source.or(target),
            options.third_party != ThirdParty::Never && options.delegation != CopyDelegation::Never,
            "copies with delegated credentials (--tpc delegate)",
        ),
        (source.or(target), options.coerce, "locks that could be ignored (--coerce)"),
        (target, resumes, "uploads that go on where an earlier one ended (--continue)"),
        (target, options.preserve, "times and permission bits of uploads (--preserve)"),
        (target, options.persist_on_successful_close, "uploads that persist on close (--posc)"),
        (target, options.zip_append, "additions to archives"),
    ];
    let over = match source.or(target).is_some_and(Url::is_object) {
        true => "at an object store",
        false => "over HTTP",
    };
    match refused.into_iter().find_map(|(url, is_set, what)| Some((url.filter(|_| is_set)?, what))) {
        Some((url, what)) => Err(CopyError::Usage(format!(
            "{url}: this client has no {what} {over}; leave that out, or use root://"
        ))),
        None => Ok(()),
    }
}

/// Refuses to overwrite a file that may be the source, if one of them is at an HTTP server. A server may have both
/// protocols, or serve files of this machine, so size and time decide: no number of a file is the same in both. A time
/// that is unknown may be the same at one host.
pub(super) async fn not_the_source(
    copier: &Copier,
    source: &SourceReader,
    url: &Url,
) -> Result<(), CopyError> {
    if !url.is_http() && !source.is_web() {
        return Ok(());
    }
    let found = copier.client.file_system(url).find(&url.path).await.map_err(CopyError::target)?;
    match found {
        Some(found) if found.size > 0 && source.with_file(&mut |file| may_be(file, url, &found)) => {
            Err(may_be_source(url))
        }
        _ => Ok(()),
    }
}

/// Reports whether a file that is read may be the one of this status at a URL.
fn may_be(file: &SourceReader, url: &Url, found: &StatInfo) -> bool {
    let Some(size) = file.size.or_else(|| file.place.url().map(|_| found.size)) else { return false };
    let time = file.kept.map_or(0, |kept| kept.modified.0);
    let is_host = |of: &Url| of.each().any(|one| one.host.eq_ignore_ascii_case(&url.host));
    let is_at_host =
        || file.place.url().is_some_and(is_host) || file.location().is_some_and(|of| is_host(&of));
    is_alike((size, time), found, is_at_host)
}

/// Refuses to overwrite a file that may be the source of a copy between servers.
pub(super) fn not_the_third_source(
    (source, stat): (&Url, &StatInfo),
    (target, found): (&Url, &StatInfo),
) -> Result<(), CopyError> {
    let is_at_host = || source.each().any(|one| one.host.eq_ignore_ascii_case(&target.host));
    match found.size > 0 && is_alike((stat.size, stat.mtime), found, is_at_host) {
        true => Err(may_be_source(target)),
        false => Ok(()),
    }
}

/// Reports whether size and time of a file are those of a status.
fn is_alike((size, time): (u64, i64), found: &StatInfo, is_at_host: impl Fn() -> bool) -> bool {
    let is_unknown = time == 0 || found.mtime == 0;
    size == found.size && if is_unknown { is_at_host() } else { time == found.mtime }
}

fn may_be_source(url: &Url) -> CopyError {
    CopyError::Usage(format!(
        "{url} may be the source, because size and time are equal or unknown; copy to another name, or remove it first"
    ))
}

/// Returns the checksum of a file from its server. If that is one of HTTP without this checksum, the file is read
/// and its checksum computed.
pub(super) async fn checksum(
    client: &Client,
    url: &Url,
    algorithm: Algorithm,
) -> Result<FileChecksum, Error> {
    match client.file_system(url).checksum(&url.path, Some(algorithm.name())).await {
        Err(error) if url.is_http() && error.code() == Some(ErrorCode::UNSUPPORTED) => {}
        sum => return sum,
    }
    checksum_by_reading(client, url, algorithm).await
}

/// Computes the checksum of a file of an HTTP server from its data.
///
/// # Errors
/// [`Error`].
pub async fn checksum_by_reading(
    client: &Client,
    url: &Url,
    algorithm: Algorithm,
) -> Result<FileChecksum, Error> {
    let (file, mut sum) = (WebSource::open(client, url).await?, RunningChecksum::new(algorithm));
    let mut at = 0;
    loop {
        let data = file.read(at, SUM_BYTES).await?;
        at += data.len() as u64;
        sum.update(&data);
        if data.len() < SUM_BYTES {
            break;
        }
    }
    Ok(FileChecksum { kind: algorithm.name().to_owned(), value: sum.finish().hex() })
}
