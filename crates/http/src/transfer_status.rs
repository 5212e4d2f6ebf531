//! The trailer `X-Transfer-Status`: the result of a transfer, behind a body in chunks. Clients ask for it
//! with `TE: trailers` and `X-Transfer-Status: true`. Without it, an error closes the connection early.

use crate::reply::{self, ReplyBody, RequestReply};
use bytes::Bytes;
use hyper::Version;
use hyper::body::Frame;
use hyper::header::{HeaderMap, HeaderName, HeaderValue, TE, TRAILER};
use hyper::http::request::Parts;
use std::io;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

const TRANSFER_STATUS: HeaderName = HeaderName::from_static("x-transfer-status");

/// The trailer of a transfer that has succeeded.
const SUCCESS: HeaderValue = HeaderValue::from_static("200: OK");

/// The trailer of an error without a text that a header can have.
const FAILURE: HeaderValue = HeaderValue::from_static("500: the file cannot be read");

/// Reports whether a request asks for the trailer.
pub(crate) fn is_wanted(head: &Parts) -> bool {
    let has = |name: &HeaderName, value: &str| {
        let values = head.headers.get_all(name).iter().filter_map(|known| known.to_str().ok());
        values.flat_map(|known| known.split(',')).any(|known| known.trim().eq_ignore_ascii_case(value))
    };
    head.version >= Version::HTTP_11 && has(&TE, "trailers") && has(&TRANSFER_STATUS, "true")
}

/// Announces the trailer in a reply.
pub(crate) fn announce(replied: &mut RequestReply) {
    reply::set(replied, TRAILER, "X-Transfer-Status");
}

/// The parts of a body with the trailer.
pub(crate) struct TrailedParts {
    parts: mpsc::Receiver<io::Result<Bytes>>,
    left: u64,
    is_done: bool,
}

impl TrailedParts {
    /// Returns a body of this length.
    pub(crate) fn body(parts: mpsc::Receiver<io::Result<Bytes>>, length: u64) -> ReplyBody {
        ReplyBody::Trailed(Self { parts, left: length, is_done: false })
    }

    pub(crate) fn is_end(&self) -> bool {
        self.is_done
    }

    /// Returns the next part, then the trailer.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let status = match self.left {
            0 => SUCCESS,
            _ => match ready!(self.parts.poll_recv(context)) {
                Some(Ok(bytes)) => {
                    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    self.left = self.left.saturating_sub(length);
                    return Poll::Ready(Some(Frame::data(bytes)));
                }
                Some(Err(error)) => failure(&error.to_string()),
                None => FAILURE,
            },
        };
        self.is_done = true;
        Poll::Ready(Some(Frame::trailers(HeaderMap::from_iter([(TRANSFER_STATUS, status)]))))
    }
}

fn failure(what: &str) -> HeaderValue {
    let line: String = what.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect();
    HeaderValue::from_str(&format!("500: {line}")).unwrap_or(FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn asks(version: Version, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::get("/").version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_wanted(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn clients_ask_by_two_headers() {
        let both = [("TE", "trailers"), ("X-Transfer-Status", "true")];
        assert!(asks(Version::HTTP_11, &both));
        assert!(asks(Version::HTTP_11, &[("TE", "gzip, Trailers"), ("X-Transfer-Status", "True")]));
        assert!(asks(Version::HTTP_2, &both));
        assert!(!asks(Version::HTTP_10, &both));
        for headers in
            [&both[..1], &both[1..], &[("TE", "gzip"), both[1]], &[both[0], ("X-Transfer-Status", "no")]]
        {
            assert!(!asks(Version::HTTP_11, headers), "{headers:?}");
        }
    }

    /// Returns the data and the trailer of a body.
    fn collected(length: u64, sent: Vec<io::Result<Bytes>>) -> (Vec<u8>, String) {
        let (to, parts) = mpsc::channel(8);
        sent.into_iter().for_each(|part| to.try_send(part).unwrap());
        drop(to);
        let mut body = TrailedParts { parts, left: length, is_done: false };
        let (mut data, mut trailer) = (Vec::new(), String::new());
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(frame)) = body.poll_frame(&mut context) {
            match frame.into_data() {
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap();
                    trailer = trailers.get(TRANSFER_STATUS).unwrap().to_str().unwrap().to_owned();
                }
            }
        }
        assert!(body.is_end());
        (data, trailer)
    }

    #[test]
    fn the_trailer_has_the_result() {
        let part = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        assert_eq!(collected(5, vec![part("he"), part("llo")]), (b"hello".to_vec(), "200: OK".to_owned()));
        assert_eq!(collected(0, vec![]), (Vec::new(), "200: OK".to_owned()));
        let failed = vec![part("he"), Err(io::Error::other("disk\r\nX: y"))];
        assert_eq!(collected(5, failed), (b"he".to_vec(), "500: disk  X: y".to_owned()));
        let (data, trailer) = collected(5, vec![part("he")]);
        assert!(data == b"he" && trailer.starts_with("500: "), "{trailer}");
    }
}
