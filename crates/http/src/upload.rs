//! PUT. The file persists when all of the body has arrived and the file is closed; otherwise it is
//! removed, and a file that it would have replaced stays.

use crate::call::{CallFailure, RequestFile};
use crate::conditions;
use crate::expected::ExpectedChecksums;
use crate::progress::ClientProgress;
use crate::reply::{self, RequestRefusal, RequestReply};
use crate::service::RequestContext;
use crate::target::NewName;
use base::{Cgi, ErrorKind};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, EXPECT, TRANSFER_ENCODING};
use hyper::{StatusCode, Version};
use tokio::time::{Instant, timeout};
use vfs::{OpenRequest, Operation, Target};

/// Permission bits of new files.
const FILE_MODE: u32 = 0o664;

/// Bytes of small frames that are written together.
const WRITE_BYTES: usize = 64 * 1024;

/// The key of the size of a new file, by which its space is selected.
const SIZE_KEY: &str = "oss.asize";

/// Replies to PUT.
pub(crate) async fn reply(
    context: &RequestContext,
    body: &mut Incoming,
) -> Result<RequestReply, RequestRefusal> {
    let exclusive = check(context, body)?;
    let expected = ExpectedChecksums::of(context.headers())?;
    let new = NewName::of(context.target.clone())?;
    let target = sized(new.target(), body.size_hint().exact());
    let announced = body.size_hint().exact();
    let is_http2 = context.head.version == Version::HTTP_2;
    let mut body = UploadBody { announced, body, is_http2, progress: ClientProgress::default(), first: None };
    let file = open(context, &target, exclusive, &mut body).await?;
    match receive(context, &file, body, expected).await {
        Ok(()) => file.close().await?,
        Err(refusal) => {
            file.discard().await;
            return Err(refusal);
        }
    }
    Ok(reply::done(StatusCode::CREATED))
}

/// Opens the file. An existing one stays as it is until the new one is closed.
async fn open(
    context: &RequestContext,
    target: &Target,
    exclusive: bool,
    body: &mut UploadBody<'_>,
) -> Result<RequestFile, RequestRefusal> {
    // A client that waits for `100 Continue` must learn first that another server takes the file, or that
    // nobody does. A request of which only the head arrives creates nothing otherwise.
    if !exclusive && !context.headers().contains_key(EXPECT) {
        body.wait().await?;
    }
    let open = || {
        let request = OpenRequest {
            write: true,
            new: exclusive,
            delete: !exclusive,
            replace: !exclusive,
            make_path: true,
            posc: true,
            mode: FILE_MODE,
            ..OpenRequest::default()
        };
        Operation::Open(target.clone(), Box::new(request))
    };
    match context.open(open).await {
        Ok((file, _)) => Ok(file),
        Err(RequestRefusal::Call(CallFailure::Error(error)))
            if exclusive && error.kind == ErrorKind::ItExists =>
        {
            Err(RequestRefusal::new(StatusCode::PRECONDITION_FAILED, error.text))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Checks the head. Returns whether the file must not exist.
fn check(context: &RequestContext, body: &Incoming) -> Result<bool, RequestRefusal> {
    let headers = context.headers();
    if !context.shared().config.accepts_uploads {
        let text = "This server takes no files over HTTP, because it could not remove unfinished ones.";
        return Err(RequestRefusal::new(StatusCode::NOT_IMPLEMENTED, text));
    }
    let codings = conditions::text(headers, CONTENT_ENCODING);
    if codings.is_some_and(|codings| !codings.trim().eq_ignore_ascii_case("identity")) {
        // Later replies could not name the coding, so readers would take it for the file.
        return Err(RequestRefusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "A compressed body is not stored (Content-Encoding).",
        ));
    }
    if headers.contains_key(CONTENT_RANGE) {
        return Err(RequestRefusal::new(
            StatusCode::BAD_REQUEST,
            "A part of a file cannot be written (Content-Range).",
        ));
    }
    if context.target.path.as_bytes().ends_with(b"/") {
        return Err(RequestRefusal::new(StatusCode::CONFLICT, "The path is that of a directory."));
    }
    let has_length = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    if !has_length && body.size_hint().exact() == Some(0) {
        // A request that lost its body must not replace a file by an empty one.
        return Err(RequestRefusal::new(
            StatusCode::LENGTH_REQUIRED,
            "The request has neither a length nor chunks.",
        ));
    }
    let expectation = headers.get(EXPECT).map(|value| value.as_bytes());
    if expectation.is_some_and(|value| !value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(RequestRefusal::new(
            StatusCode::EXPECTATION_FAILED,
            "Only 100-continue can be expected.",
        ));
    }
    conditions::of_change(headers)
}

/// Returns the target with the size of the file, unless the client names it.
fn sized(target: &Target, size: Option<u64>) -> Target {
    let mut target = target.clone();
    if let Some(size) = size.filter(|_| target.cgi.get(SIZE_KEY).is_none()) {
        let own = String::from_utf8_lossy(target.cgi.as_bytes()).into_owned();
        let separator = if own.is_empty() { "" } else { "&" };
        target.cgi = Cgi::new(format!("{own}{separator}{SIZE_KEY}={size}").as_bytes());
    }
    target
}

/// The body of a PUT. The reading of the body tells clients that wait for it to send it.
struct UploadBody<'a> {
    body: &'a mut Incoming,
    is_http2: bool,
    /// The length that the head announces.
    announced: Option<u64>,
    progress: ClientProgress,
    /// The first part, if it was awaited before the file was opened; `Some(None)` is the end.
    first: Option<Option<Bytes>>,
}

impl UploadBody<'_> {
    /// Waits until the first part or the end has arrived.
    async fn wait(&mut self) -> Result<(), RequestRefusal> {
        if self.first.is_none() {
            self.first = Some(self.receive().await?);
        }
        Ok(())
    }

    /// Returns the next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, RequestRefusal> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => self.receive().await,
        }
    }

    /// Reports whether the body has ended without its last frame. The library takes one that the client has reset without an
    /// error for a whole one.
    fn is_cut_off(&self) -> bool {
        self.is_http2 && !self.body.is_end_stream()
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, RequestRefusal> {
        loop {
            let began = Instant::now();
            let arrived = timeout(self.progress.left(), self.body.frame()).await;
            let bytes = match &arrived {
                Ok(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
                _ => 0,
            };
            let is_slow = !self.progress.count(began.elapsed(), bytes);
            let text = match arrived {
                Ok(None) if self.is_cut_off() => {
                    "The body is not complete: the client has reset it.".to_owned()
                }
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) if !is_slow => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Ok(Some(data)),
                    // Trailers do not count.
                    Ok(_) | Err(_) => continue,
                },
                Ok(Some(Err(error))) => format!("The body is not complete: {error}"),
                Ok(Some(Ok(_))) | Err(_) => {
                    return Err(RequestRefusal::new(
                        StatusCode::REQUEST_TIMEOUT,
                        "The body does not arrive, or too slowly.",
                    ));
                }
            };
            return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, text));
        }
    }
}

/// Writes the body to the file.
async fn receive(
    context: &RequestContext,
    file: &RequestFile,
    mut body: UploadBody<'_>,
    expected: ExpectedChecksums,
) -> Result<(), RequestRefusal> {
    let mut writer = BodyWriter { file, offset: 0, expected };
    let mut pending: Vec<u8> = Vec::new();
    while let Some(data) = body.next().await? {
        if pending.is_empty() && data.len() >= WRITE_BYTES {
            writer.write(&data).await?;
            continue;
        }
        pending.extend_from_slice(&data);
        if pending.len() >= WRITE_BYTES {
            writer.write(&pending).await?;
            pending.clear();
        }
    }
    if !pending.is_empty() {
        writer.write(&pending).await?;
    }
    check_end(body.announced, writer.offset, context.shared().closes_connections())?;
    writer.expected.check()
}

/// Refuses a body that is shorter than its length, or whose connection was closed by a server that ends.
fn check_end(announced: Option<u64>, received: u64, is_closed: bool) -> Result<(), RequestRefusal> {
    if announced.is_some_and(|announced| announced != received) || is_closed {
        return Err(RequestRefusal::new(StatusCode::BAD_REQUEST, "The body is not complete."));
    }
    Ok(())
}

/// Writes a body in order.
struct BodyWriter<'a> {
    file: &'a RequestFile,
    offset: u64,
    expected: ExpectedChecksums,
}

impl BodyWriter<'_> {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), RequestRefusal> {
        if !self.expected.is_empty() {
            self.expected.update(bytes);
            // Checksums of fast uploads must not keep other clients from the thread.
            tokio::task::yield_now().await;
        }
        self.file.write(self.offset, bytes).await?;
        self.offset = self.offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_ends_early_is_not_whole() {
        for (announced, received, is_closed, is_whole) in [
            (Some(7), 7, false, true),
            (Some(0), 0, false, true),
            (None, 7, false, true),
            (Some(7), 6, false, false),
            (Some(7), 8, false, false),
            // The end of a body in chunks cannot be told from the end of the server.
            (None, 7, true, false),
            (Some(7), 7, true, false),
        ] {
            let ended = check_end(announced, received, is_closed);
            assert_eq!(ended.is_ok(), is_whole, "{announced:?} {received} {is_closed}");
        }
    }

    #[test]
    fn the_size_is_added_to_the_cgi() {
        let cgi = |path: &str, size| {
            let target = Target::parse(path.as_bytes(), "Opening").unwrap();
            String::from_utf8(sized(&target, size).cgi.as_bytes().to_vec()).unwrap()
        };
        assert_eq!(cgi("/f", Some(7)), "oss.asize=7");
        assert_eq!(cgi("/f?x=1", Some(7)), "x=1&oss.asize=7");
        assert_eq!(cgi("/f?oss.asize=9", Some(7)), "oss.asize=9");
        assert_eq!(cgi("/f?x=1", None), "x=1");
    }
}
