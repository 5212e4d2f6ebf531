//! Replies to operations that may take long, such as copies.
//!
//! Clients give up a request that has no reply for a minute. So a reply begins after some seconds, and white space
//! follows until the result is known. An error is then the document of a reply with the status 200, which clients of
//! S3 expect for these operations.

use super::error::S3Error;
use super::xml;
use crate::reply::{self, ReplyBody, RequestReply};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use std::future::Future;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time after which the reply begins without a result.
const BEGIN_TIME: Duration = Duration::from_secs(5);
/// Interval of white space.
const PAUSE: Duration = Duration::from_secs(5);

/// Performs an operation in a task that goes on when the client disconnects, unless the operation looks at that itself,
/// and replies with its document. The task keeps `kept` until then: its place among such operations.
pub(super) async fn reply(
    kept: impl Send + 'static,
    operation: impl Future<Output = Result<String, S3Error>> + Send + 'static,
) -> Result<RequestReply, S3Error> {
    let (done, mut ended) = oneshot::channel();
    tokio::spawn(async move {
        let result = operation.await;
        // The client may have left.
        let _ = done.send(result);
        drop(kept);
    });
    let lost =
        || S3Error::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "The operation has ended.");
    match timeout(BEGIN_TIME, &mut ended).await {
        Ok(Ok(result)) => return result.map(xml::reply),
        Ok(Err(_)) => return Err(lost()),
        Err(_) => {}
    }
    let (to, parts) = mpsc::channel(1);
    tokio::spawn(async move {
        let head = xml::HEAD.trim_end();
        let mut is_sent = to.send(Ok(Bytes::from_static(head.as_bytes()))).await.is_ok();
        while is_sent {
            let result = match timeout(PAUSE, &mut ended).await {
                Ok(result) => result.unwrap_or_else(|_| Err(lost())),
                Err(_) => {
                    is_sent = to.send(Ok(Bytes::from_static(b" "))).await.is_ok();
                    continue;
                }
            };
            let document = result.unwrap_or_else(|error| error.document("", ""));
            let rest = document.strip_prefix(xml::HEAD).unwrap_or(&document).to_owned();
            // The client may have left.
            let _ = to.send(Ok(Bytes::from(rest))).await;
            return;
        }
    });
    let mut replied = reply::with_body(StatusCode::OK, ReplyBody::Parts { parts, left: None });
    reply::set(&mut replied, CONTENT_TYPE, xml::TYPE);
    Ok(replied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tokio::time::sleep;

    /// Returns status and body of the reply to an operation that takes some time.
    async fn replied(time: Duration, result: Result<String, S3Error>) -> (u16, String) {
        let operation = async move {
            sleep(time).await;
            result
        };
        let replied = reply((), operation).await.unwrap_or_else(|error| error.reply("/b/k", "1"));
        let status = replied.status().as_u16();
        let body = replied.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn document() -> String {
        format!("{}<Done/>\n", xml::HEAD)
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_result_follows_white_space() {
        let short = replied(Duration::from_secs(1), Ok(document())).await;
        assert_eq!(short, (200, document()));
        let (status, body) = replied(Duration::from_secs(62), Ok(document())).await;
        let pauses =
            body.chars().filter(|c| *c == ' ').count() - xml::HEAD.chars().filter(|c| *c == ' ').count();
        assert_eq!((status, pauses), (200, 11));
        assert!(body.starts_with("<?xml ") && body.ends_with("<Done/>\n"), "{body}");
        assert_eq!(body.matches("<?xml").count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_has_its_status_only_while_the_reply_has_not_begun() {
        let error = || S3Error::no_key();
        let (status, body) = replied(Duration::from_secs(1), Err(error())).await;
        assert!(status == 404 && body.contains("<Code>NoSuchKey</Code>"), "{body}");
        let (status, body) = replied(Duration::from_secs(7), Err(error())).await;
        assert!(status == 200 && body.contains("<Code>NoSuchKey</Code>"), "{body}");
    }
}
