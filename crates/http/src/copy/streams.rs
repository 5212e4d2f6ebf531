//! Several connections to the source of one copy: each receives a stripe of the file.

use super::remote::{RemoteDownload, RemoteParts};
use super::{CopyTask, HttpCopyFailure, take_descriptor};
use crate::host_shares::HeldShare;
use crate::service::RequestContext;
use crate::{COPY_STREAM_BYTES_MIN, COPY_STREAMS_MAX};
use base::Descriptor;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Stripes begin at a multiple of this number of bytes, so that no two of them write to one page.
const STRIPE_UNIT: u64 = 1 << 20;

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stripe {
    /// The offset of its first byte.
    pub(super) start: u64,
    /// Its end; `None` if the size of the file is not known.
    pub(super) end: Option<u64>,
    /// More bytes can arrive, which belong to the next stripe.
    pub(super) is_cut: bool,
}

/// Divides a file into at most `number` stripes of about the same length.
fn divided(size: u64, number: usize) -> Vec<Stripe> {
    let number =
        u64::try_from(number.min(COPY_STREAMS_MAX)).unwrap_or(1).min(size / COPY_STREAM_BYTES_MIN).max(1);
    let length = size.div_ceil(number).next_multiple_of(STRIPE_UNIT);
    let starts = (0..number).map(|index| index * length).take_while(|&start| start == 0 || start < size);
    let stripe = |start: u64| {
        let end = start.saturating_add(length).min(size);
        Stripe { start, end: Some(end), is_cut: start == 0 && end < size }
    };
    starts.map(stripe).collect()
}

/// The descriptors of the connections of a copy beyond its first one.
pub(super) struct StreamDescriptors(Vec<(Descriptor, HeldShare)>);

impl StreamDescriptors {
    /// Takes descriptors for as many connections as the client wants, or for fewer if no more are free.
    pub(super) fn take(context: &RequestContext, streams: usize) -> Self {
        let more = streams.min(COPY_STREAMS_MAX).saturating_sub(1);
        Self((0..more).map_while(|_| take_descriptor(context).ok()).collect())
    }
}

/// Begins to receive a file on several connections. Returns its stripes with the parts that arrive: one, if the
/// client does not want more, or the source has not shown that it sends parts of one version.
pub(super) async fn begin(
    task: &CopyTask,
    download: RemoteDownload,
    descriptors: &StreamDescriptors,
    has_checksum: bool,
) -> Vec<(Stripe, Box<dyn RemoteParts>)> {
    let whole = Stripe { start: 0, end: download.size, is_cut: false };
    let RemoteDownload { size, parts, ranges, .. } = download;
    let ranges = ranges.filter(|ranges| has_checksum || ranges.is_one_version());
    let (Some(size), Some(ranges)) = (size, ranges) else { return vec![(whole, parts)] };
    let stripes = divided(size, descriptors.0.len().saturating_add(1));
    let mut streams = Vec::with_capacity(stripes.len());
    let mut others = stripes.iter().copied();
    let Some(first) = others.next() else { return vec![(whole, parts)] };
    streams.push((first, parts));
    let mut begun = JoinSet::new();
    for stripe in others {
        let length = size.min(stripe.end.unwrap_or(size)).saturating_sub(stripe.start);
        let range = timeout(task.copies.first_time, ranges.range(stripe.start, length));
        begun.spawn(async move { (stripe, range.await) });
    }
    while let Some(begun) = begun.join_next().await {
        let Ok((stripe, Ok(Ok(parts)))) = begun else {
            // The first connection receives all then. The failure of the source, if it is one, shows there.
            streams.truncate(1);
            return streams.into_iter().map(|(_, parts)| (whole, parts)).collect();
        };
        streams.push((stripe, parts));
    }
    streams
}

/// A stream of a copy.
pub(super) type StreamFuture<'a> = Pin<Box<dyn Future<Output = Result<(), HttpCopyFailure>> + Send + 'a>>;

/// Runs all streams until they or one of them fails.
pub(super) async fn all(mut streams: Vec<StreamFuture<'_>>) -> Result<(), HttpCopyFailure> {
    poll_fn(|context| {
        let mut failure = None;
        streams.retain_mut(|stream| match stream.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                failure = failure.take().or(result.err());
                false
            }
        });
        match failure {
            Some(failure) => Poll::Ready(Err(failure)),
            None if streams.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_cover_a_file_once() {
        let unit = STRIPE_UNIT;
        for size in [0, 1, unit, 2 * unit - 1, 2 * unit, 5 * unit + 7, 100 * unit + 1, u64::MAX / 2] {
            for number in [0, 1, 2, 3, 8, 1000] {
                let stripes = divided(size, number);
                let case = format!("{size} {number}: {stripes:?}");
                assert!(stripes.len() <= number.clamp(1, COPY_STREAMS_MAX), "{case}");
                let mut at = 0;
                for stripe in &stripes {
                    assert_eq!(stripe.start, at, "{case}");
                    assert!(at % unit == 0, "{case}");
                    at = stripe.end.unwrap();
                    assert!(at > stripe.start || size == 0, "{case}");
                }
                assert_eq!(at, size, "{case}");
                assert_eq!(stripes[0].is_cut, stripes.len() > 1, "{case}");
                assert!(stripes[1..].iter().all(|stripe| !stripe.is_cut), "{case}");
            }
        }
        assert_eq!(divided(COPY_STREAM_BYTES_MIN * 2 - 1, 8).len(), 1);
        assert_eq!(divided(COPY_STREAM_BYTES_MIN * 2, 8).len(), 2);
        assert_eq!(divided(1 << 40, 3).len(), 3);
    }

    #[tokio::test]
    async fn the_first_failure_ends_all_streams() {
        let never: StreamFuture<'_> = Box::pin(std::future::pending());
        let failing: StreamFuture<'_> = Box::pin(async { Err(HttpCopyFailure::gone()) });
        assert!(all(vec![never, failing]).await.is_err());
        let later: StreamFuture<'_> = Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        });
        assert!(all(vec![Box::pin(async { Ok(()) }), later]).await.is_ok());
        assert!(all(Vec::new()).await.is_ok());
    }
}
