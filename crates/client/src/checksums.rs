//! [`ChecksumQuery`]: queries for checksums that servers compute.
//!
//! A server that computes a checksum sends nothing until it has read the whole file. The query
//! therefore has the timeout of [`PendingChecksums`], and the client requests the status of the
//! path in the meantime.

use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::ErrorCode;
use wire::xroot::codes::QueryType;

use crate::answers::StatInfo;
use crate::channel::BodyLimit;
use crate::checksum_timeout::{FILE_TIME, PendingBytes, PendingChecksums, QueriedServer};
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, query};
use crate::path::RequestTarget;
use crate::request_loop::Repeat;
use crate::route::{PathRequest, Route, RoutedReply};
use crate::url::Url;

/// Time without a reply after which the status of the path is requested.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Timeout of a reply if no other limit applies.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// A query for the checksum of a file, for which a server may have to read the file.
pub(crate) struct ChecksumQuery<'a> {
    files: &'a FileSystem,
    path: &'a str,
    /// The server that received the query.
    server: QueriedServer,
}

impl<'a> ChecksumQuery<'a> {
    /// Creates a query about a path.
    pub(crate) fn of(files: &'a FileSystem, path: &'a str) -> Self {
        Self { files, path, server: QueriedServer::default() }
    }

    /// Sends the query with an argument for the URL at the server, and waits for the reply.
    pub(crate) async fn send(
        &self,
        argument: impl Fn(&Url) -> RequestTarget + Sync,
    ) -> Result<RoutedReply, Error> {
        let client = self.files.client();
        let request = |url: &Url, _: bool| {
            self.server.note(url);
            query(QueryType::CKSUM, &argument(url))
        };
        let url = self.files.url_of("checksum", self.path)?;
        let mut route = Route::new(client, &url, self.deadline());
        let ask = PathRequest {
            name: "checksum",
            repeat: Repeat::Anywhere,
            slow: true,
            limit: BodyLimit::ANSWER,
            request: &request,
        };
        self.wait(Box::pin(route.ask(client, &ask))).await
    }

    /// Returns the final deadline for a server that computes a checksum.
    fn deadline(&self) -> Instant {
        let client = self.files.client();
        if client.settings().is_set("RequestTimeout") { client.end() } else { Instant::now() + FAR }
    }

    /// Waits for the reply as long as it can be expected.
    async fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let (pending, begun) = (self.files.client().pending_checksums().clone(), Instant::now());
        tokio::select! {
            reply = asked => {
                // An immediate refusal or a lost connection is not a sign of computed checksums.
                let worked = match &reply {
                    Ok(_) => true,
                    Err(error) => error.code().is_some() && begun.elapsed() >= LOOK_TIME,
                };
                if worked {
                    pending.answered(&self.server.server());
                }
                reply
            }
            error = Box::pin(self.overdue(&pending)) => Err(error),
        }
    }

    /// Returns the reason when the reply can no longer be expected.
    async fn overdue(&self, pending: &PendingChecksums) -> Error {
        let Self { files, path, server: at } = self;
        let begun = Instant::now();
        tokio::time::sleep(LOOK_TIME).await;
        let fail = |cause| files.error("checksum", path, cause);
        let stat = match files.stat(path).await {
            Ok(stat) if stat.is_dir() => {
                // The text of servers that answer.
                let text = format!("Unable to checksum {path}; is a directory");
                return fail(Cause::Server { code: ErrorCode::IS_DIRECTORY, text });
            }
            Err(error) if error.is_not_found() || error.is_transient() => {
                return fail(error.cause().clone());
            }
            other => other.ok(),
        };
        // A timeout set by the user applies; a file on tape has the timeout of any operation.
        let settings = files.client().settings();
        if settings.is_set("RequestTimeout") {
            return std::future::pending().await;
        }
        let is_away = stat.as_ref().is_some_and(StatInfo::is_offline);
        let least = begun + if is_away { settings.operation_time() } else { FILE_TIME };
        let bytes = stat.map_or(0, |stat| stat.size);
        loop {
            // A redirect may have changed the server in the meantime.
            let server = at.server();
            let _bytes = PendingBytes::new(pending, server.clone(), bytes);
            let end = pending.end(&server, begun).max(least);
            if Instant::now() >= end {
                return fail(Cause::TimedOut(begun.elapsed().as_secs()));
            }
            tokio::time::sleep_until(end).await;
        }
    }
}
