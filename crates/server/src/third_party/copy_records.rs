//! [`CopyRecords`]: records about third-party copies that have ended, for collectors (the stream `tpc`).

use config::GStream;
use http::{EndedHttpCopy, HttpCopyObserver};
use logical::{CopyObserver, EndedPull};
use monitor::{CopyFigures, GStreams};
use std::sync::Arc;

/// The name of the client of copies over HTTP that is not authenticated.
const ANONYMOUS: &str = "anon";

/// Sends a record about each copy that has ended.
pub(crate) struct CopyRecords {
    streams: Arc<GStreams>,
    /// `host:port` of this server.
    own: String,
}

impl CopyRecords {
    /// Creates the records of a server; `None` if no collector gets them.
    pub(crate) fn new(streams: &Arc<GStreams>, own: String) -> Option<Arc<Self>> {
        let wanted = streams.has(GStream::ThirdPartyCopies);
        wanted.then(|| Arc::new(Self { streams: streams.clone(), own }))
    }
}

impl CopyObserver for CopyRecords {
    fn ended(&self, copy: &EndedPull<'_>) {
        self.streams.add(GStream::ThirdPartyCopies, |bytes_max| {
            let status = copy.failure.map_or(0, |kind| session::wire_code(kind).0);
            CopyFigures {
                protocol: "xroot",
                user: (copy.client.user(), copy.client.pid),
                host: copy.client.host(),
                address: copy.client.address,
                begun: copy.begun,
                ended: copy.ended,
                status,
                streams: copy.streams,
                is_push: false,
                source: &format!("xroot://{}/{}", copy.source, copy.source_path),
                destination: &format!("xroot://{}/{}", self.own, copy.path.text()),
                bytes: copy.bytes,
            }
            .record(bytes_max)
        });
    }
}

impl HttpCopyObserver for CopyRecords {
    fn ended(&self, copy: &EndedHttpCopy<'_>) {
        self.streams.add(GStream::ThirdPartyCopies, |bytes_max| {
            let scheme = if copy.is_tls { "https" } else { "http" };
            let local = format!("{scheme}://{}/{}", self.own, copy.local);
            let (source, destination) = match copy.is_push {
                true => (local.as_str(), copy.remote),
                false => (copy.remote, local.as_str()),
            };
            CopyFigures {
                protocol: "http",
                user: (copy.user.unwrap_or(ANONYMOUS), 0),
                host: copy.client.host(),
                address: copy.client.address,
                begun: copy.begun,
                ended: copy.ended,
                status: copy.status.into(),
                streams: 1,
                is_push: copy.is_push,
                source,
                destination,
                bytes: copy.bytes,
            }
            .record(bytes_max)
        });
    }
}
