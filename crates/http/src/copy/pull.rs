//! Copies from a remote server. The file persists when all of it has arrived and it is closed; otherwise
//! it is removed, and a file that it would have replaced stays.

use super::progress::Markers;
use super::request::CopyRequest;
use super::streams::{self, StreamDescriptors, Stripe};
use super::{
    Copies, CopyTask, HttpCopyFailure, RemoteDownload, RemoteParts, ReplySender, until_disconnected,
};
use crate::COPY_PROGRESS_BYTES_MIN;
use crate::call::{CallFailure, RequestFile};
use crate::expected::ExpectedChecksums;
use crate::reply::{RequestRefusal, RequestReply};
use crate::service::RequestContext;
use crate::target::NewName;
use base::ErrorKind;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use vfs::{OpenRequest, Operation, Target};

/// Permission bits of new files.
const FILE_MODE: u32 = 0o664;

/// Bytes of small parts that are written together.
const WRITE_BYTES: usize = 64 * 1024;

/// Bytes that are read together for a checksum.
const READ_BYTES: usize = 256 * 1024;

/// The algorithm of checksums that clients do not choose.
const DEFAULT_DIGEST: &str = "adler32";

/// Headers with checksums.
const DIGESTS: [HeaderName; 3] = [
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Replies to COPY with a source.
pub(super) async fn reply(
    context: &RequestContext,
    copies: &Copies,
    request: &CopyRequest,
) -> Result<RequestReply, RequestRefusal> {
    if !context.shared().config.accepts_uploads {
        let text = "This server takes no files over HTTP, because it could not remove unfinished ones.";
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    if !context.shared().config.accepts_pulls {
        let text = "This server fetches no files, because a file must have a size before it is sent to its origin. Use PUT.";
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    if context.target.path.as_bytes().ends_with(b"/") {
        return Err(RequestRefusal::new(StatusCode::CONFLICT, "The path is that of a directory."));
    }
    // The checksums of the client are checked before anything happens.
    ExpectedChecksums::of(context.headers())?;
    let new = NewName::of(context.target.clone())?;
    if copies.redirects {
        // Another server decides, so no remote server is contacted from here.
        return Err(super::not_here(open(context, new.target(), !request.overwrite).await).await);
    }
    let task = CopyTask::begin(context, copies, request).await?;
    // The rights of the client are checked here, before a remote server is contacted.
    let file = create(context, new.target(), request, &task).await?;
    let (download, expected) = match begin(context, &task, request).await {
        Ok(begun) => begun,
        Err(failure) => {
            file.discard().await;
            return Err(task.refuse(failure));
        }
    };
    let (reply, to) = task.accept();
    let descriptors = StreamDescriptors::take(context, request.streams);
    let pull = Pull { task, file, download, descriptors, expected };
    tokio::spawn(pull.run(to));
    Ok(reply)
}

/// Opens the file. With `new` it must not exist; otherwise an existing one stays as it is until the new one is
/// closed.
async fn open(context: &RequestContext, target: &Target, new: bool) -> Result<RequestFile, RequestRefusal> {
    let open = || {
        let request = OpenRequest {
            write: true,
            new,
            delete: !new,
            replace: !new,
            make_path: true,
            posc: true,
            mode: FILE_MODE,
            ..OpenRequest::default()
        };
        Operation::Open(target.clone(), Box::new(request))
    };
    Ok(context.open(open).await?.0)
}

/// Opens the file of a copy.
async fn create(
    context: &RequestContext,
    target: &Target,
    request: &CopyRequest,
    task: &CopyTask,
) -> Result<RequestFile, RequestRefusal> {
    match open(context, target, !request.overwrite).await {
        Err(RequestRefusal::Call(CallFailure::Error(error)))
            if !request.overwrite && error.kind == ErrorKind::ItExists =>
        {
            let text = format!("Unable to create {}; file exists", task.local);
            Err(task.refuse(HttpCopyFailure::new(StatusCode::PRECONDITION_FAILED, text)))
        }
        opened => opened.map_err(|refusal| task.refuse_file(refusal)),
    }
}

/// Begins to receive the file. Returns it with the checksums that it must have.
async fn begin(
    context: &RequestContext,
    task: &CopyTask,
    request: &CopyRequest,
) -> Result<(RemoteDownload, ExpectedChecksums), HttpCopyFailure> {
    let headers = context.headers();
    let mut merged = HeaderMap::new();
    copy_digests(headers, &mut merged);
    let wanted = (!merged.is_empty() || request.needs_checksum).then(|| wanted_digest(headers));
    let first_time = task.copies.first_time;
    let begun = task.copies.servers.fetch(task.remote_request(wanted));
    let download = tokio::select! {
        begun = timeout(first_time, begun) => begun.map_err(|_| silent(first_time))??,
        () = until_disconnected(&task.caller) => return Err(HttpCopyFailure::gone()),
    };
    if request.needs_checksum && merged.is_empty() && download.digests.is_empty() {
        let text = "The remote server has no checksum, and RequireChecksumVerification is set";
        return Err(HttpCopyFailure::new(StatusCode::INTERNAL_SERVER_ERROR, text));
    }
    copy_digests(&download.digests, &mut merged);
    let expected = ExpectedChecksums::of(&merged);
    let expected = expected.map_err(|_| {
        let shown = |headers: &HeaderMap| {
            let values = headers.values().filter_map(|value| value.to_str().ok());
            values.collect::<Vec<_>>().join(", ")
        };
        let mut own = HeaderMap::new();
        copy_digests(headers, &mut own);
        let text = format!(
            "Mismatch between client-provided and remote server checksums: client = ({}) server = ({})",
            shown(&own),
            shown(&download.digests)
        );
        HttpCopyFailure::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?;
    if request.needs_checksum && expected.is_empty() {
        let text = "No checksum of a known type can be verified, and RequireChecksumVerification is set";
        return Err(HttpCopyFailure::new(StatusCode::INTERNAL_SERVER_ERROR, text));
    }
    Ok((download, expected))
}

fn copy_digests(from: &HeaderMap, to: &mut HeaderMap) {
    for name in DIGESTS {
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
}

/// Returns the types of checksums for the remote server: those that the client names, or one.
fn wanted_digest(headers: &HeaderMap) -> String {
    let wanted = crate::conditions::text(headers, HeaderName::from_static("want-digest"));
    let named = || {
        let mut own = HeaderMap::new();
        copy_digests(headers, &mut own);
        let names =
            own.values().filter_map(|value| value.to_str().ok()?.split_once('=')).map(|(name, _)| name);
        names.map(|name| name.trim().to_ascii_lowercase()).next()
    };
    let is_name = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    wanted.or_else(named).filter(is_name).unwrap_or_else(|| DEFAULT_DIGEST.to_owned())
}

fn silent(time: Duration) -> HttpCopyFailure {
    let text = format!(
        "Transfer failed because no bytes have been received from the source (pull mode) in {} seconds.",
        time.as_secs()
    );
    HttpCopyFailure::new(StatusCode::GATEWAY_TIMEOUT, text)
}

/// A copy whose reply has begun.
struct Pull {
    task: CopyTask,
    file: RequestFile,
    download: RemoteDownload,
    descriptors: StreamDescriptors,
    expected: ExpectedChecksums,
}

impl Pull {
    async fn run(self, to: ReplySender) {
        let Self { task, file, download, descriptors, mut expected } = self;
        let markers = Markers::start(task.progress.clone(), to.clone());
        let received = receive_all(&task, &file, (download, &descriptors), &mut expected, &to).await;
        // The connections to the remote server have ended.
        drop(descriptors);
        let result = match received.and_then(|()| check_whole(expected)) {
            Ok(()) => file.close().await.map_err(HttpCopyFailure::from),
            Err(failure) => {
                file.discard().await;
                Err(failure)
            }
        };
        markers.stop().await;
        task.end(to, result).await;
    }
}

fn check_whole(expected: ExpectedChecksums) -> Result<(), HttpCopyFailure> {
    expected.check().map_err(|refusal| match refusal {
        RequestRefusal::Status(status, text) => HttpCopyFailure::new(status, text),
        RequestRefusal::Call(_) => HttpCopyFailure::new(StatusCode::INTERNAL_SERVER_ERROR, "no checksum"),
    })
}

/// Writes the file, on one connection or on several.
async fn receive_all(
    task: &CopyTask,
    file: &RequestFile,
    (download, descriptors): (RemoteDownload, &StreamDescriptors),
    expected: &mut ExpectedChecksums,
    to: &ReplySender,
) -> Result<(), HttpCopyFailure> {
    let mut stripes = tokio::select! {
        stripes = streams::begin(task, download, descriptors, !expected.is_empty()) => stripes,
        () = to.closed() => return Err(HttpCopyFailure::gone()),
    };
    if let [(stripe, parts)] = &mut stripes[..] {
        return receive(task, file, (*stripe, parts.as_mut()), expected, to).await;
    }
    let size = stripes.iter().filter_map(|(stripe, _)| stripe.end).max().unwrap_or_default();
    let stream = |(stripe, mut parts): (Stripe, Box<dyn RemoteParts>)| -> streams::StreamFuture<'_> {
        Box::pin(async move {
            let mut none = ExpectedChecksums::default();
            receive(task, file, (stripe, parts.as_mut()), &mut none, to).await
        })
    };
    streams::all(stripes.into_iter().map(stream).collect()).await?;
    compute(file, size, expected, to).await
}

/// Computes the checksums of a file that was not written from its beginning to its end.
async fn compute(
    file: &RequestFile,
    size: u64,
    expected: &mut ExpectedChecksums,
    to: &ReplySender,
) -> Result<(), HttpCopyFailure> {
    let (mut offset, mut data) = (0, Vec::new());
    while offset < size && !expected.is_empty() {
        if to.is_closed() {
            return Err(HttpCopyFailure::gone());
        }
        data.clear();
        let read = file.read(offset, READ_BYTES, &mut data).await?;
        if read == 0 {
            return Err(wrong_size());
        }
        expected.update(&data);
        offset = offset.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Writes what arrives of a stripe to the file.
async fn receive(
    task: &CopyTask,
    file: &RequestFile,
    (stripe, parts): (Stripe, &mut dyn RemoteParts),
    expected: &mut ExpectedChecksums,
    to: &ReplySender,
) -> Result<(), HttpCopyFailure> {
    let mut rate = SourceRate::new(&task.copies);
    let (mut arrived_to, mut written_to) = (stripe.start, stripe.start);
    let mut pending: Vec<u8> = Vec::new();
    loop {
        let began = Instant::now();
        let part = tokio::select! {
            biased;
            () = to.closed() => return Err(HttpCopyFailure::gone()),
            part = timeout(rate.left(), parts.next()) => part.map_err(|_| rate.failure())??,
        };
        let arrived = part.as_ref().map_or(0, Bytes::len);
        let is_slow = !rate.count(began.elapsed(), arrived);
        if is_slow && part.is_some() {
            return Err(rate.failure());
        }
        let mut is_end = part.is_none();
        let mut part = part.unwrap_or_default();
        let left = stripe.end.map_or(u64::MAX, |end| end.saturating_sub(arrived_to));
        if bytes_of(&part) > left && !stripe.is_cut {
            return Err(wrong_size());
        }
        part.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        task.progress.add(bytes_of(&part));
        arrived_to = arrived_to.saturating_add(bytes_of(&part));
        is_end |= stripe.is_cut && Some(arrived_to) == stripe.end;
        let ready = match pending.is_empty() && part.len() >= WRITE_BYTES {
            // Large parts are not copied.
            true => &part[..],
            false => {
                pending.extend_from_slice(&part);
                &pending[..]
            }
        };
        if ready.len() < WRITE_BYTES && !is_end {
            continue;
        }
        if !expected.is_empty() {
            expected.update(ready);
            // Checksums of fast copies must not keep other clients from the thread.
            tokio::task::yield_now().await;
        }
        if !ready.is_empty() {
            file.write(written_to, ready).await?;
        }
        written_to = written_to.saturating_add(bytes_of(ready));
        pending.clear();
        if is_end {
            break;
        }
    }
    if stripe.end.is_some_and(|end| end != written_to) {
        return Err(wrong_size());
    }
    Ok(())
}

fn bytes_of(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}

/// The least rate of a source: in each period in which this server waits for it, it must send some bytes.
/// Otherwise some sources that send a byte now and then would keep others from being read.
struct SourceRate {
    stall_time: Duration,
    has_begun: bool,
    /// The time of the present period.
    limit: Duration,
    waited: Duration,
    arrived: u64,
}

impl SourceRate {
    fn new(copies: &Copies) -> Self {
        let Copies { stall_time, first_time, .. } = *copies;
        Self { stall_time, has_begun: false, limit: first_time, waited: Duration::ZERO, arrived: 0 }
    }

    /// Returns the time that is left to the source, if it sends nothing.
    fn left(&self) -> Duration {
        self.limit.saturating_sub(self.waited)
    }

    /// Counts bytes for which this server has waited. The first ones, and then enough of them, begin a new
    /// period. Reports whether the source may go on.
    fn count(&mut self, waited: Duration, bytes: usize) -> bool {
        self.waited = self.waited.saturating_add(waited);
        self.arrived = self.arrived.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        let may_go_on = self.waited < self.limit;
        if self.arrived >= COPY_PROGRESS_BYTES_MIN || (!self.has_begun && bytes > 0) {
            self.has_begun = true;
            (self.limit, self.waited, self.arrived) = (self.stall_time, Duration::ZERO, 0);
        }
        may_go_on
    }

    fn failure(&self) -> HttpCopyFailure {
        match self.arrived {
            0 => silent(self.limit),
            arrived => {
                let text = format!(
                    "Transfer failed because only {arrived} bytes have been received from the source (pull mode) in {} \
                     seconds.",
                    self.limit.as_secs()
                );
                HttpCopyFailure::new(StatusCode::GATEWAY_TIMEOUT, text)
            }
        }
    }
}

fn wrong_size() -> HttpCopyFailure {
    let text = "The file has another size than the remote server has announced";
    HttpCopyFailure::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn rate(stall: u64, first: u64) -> SourceRate {
        let (stall_time, limit) = (Duration::from_secs(stall), Duration::from_secs(first));
        SourceRate { stall_time, has_begun: false, limit, waited: Duration::ZERO, arrived: 0 }
    }

    #[test]
    fn a_source_that_sends_a_byte_now_and_then_has_one_period() {
        let second = Duration::from_secs(1);
        for (stall, first) in [(60, 120), (60, 60)] {
            let mut rate = rate(stall, first);
            assert!(rate.count(second * 59, 1), "the first byte");
            assert_eq!(rate.left(), second * 60);
            assert!(rate.count(second * 59, 1));
            assert_eq!(rate.left(), second);
            assert!(!rate.count(second, 1));
            assert!(rate.failure().text.contains("only 2 bytes"), "{:?}", rate.failure());
        }
        assert_eq!(rate(60, 120).left(), second * 120);
        assert!(!rate(60, 120).count(second * 120, 0));
    }

    #[test]
    fn enough_bytes_begin_a_new_period() {
        let (second, enough) = (Duration::from_secs(1), usize::try_from(COPY_PROGRESS_BYTES_MIN).unwrap());
        let mut rate = rate(60, 60);
        for _ in 0..10 {
            assert!(rate.count(second * 59, enough));
            assert_eq!(rate.left(), second * 60);
        }
    }

    #[test]
    fn the_checksum_of_the_client_is_asked_for() {
        let wanted = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            wanted_digest(&pairs.collect())
        };
        assert_eq!(wanted(&[]), "adler32");
        assert_eq!(wanted(&[("want-digest", "md5")]), "md5");
        assert_eq!(wanted(&[("repr-digest", "md5=:AA==:")]), "md5");
        assert_eq!(wanted(&[("digest", "MD5=AA==, adler32=1")]), "md5");
        assert_eq!(wanted(&[("digest", "m\td5=AA==")]), "adler32");
    }
}
