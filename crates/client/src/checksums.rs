//! Checksums that servers compute, and the general query.
//!
//! A server that computes a checksum sends nothing until it has read the whole file. The query
//! therefore has the timeout of [`PendingChecksums`], and the client requests the status of the
//! path in the meantime.

use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::ErrorCode;
use wire::xroot::codes::QueryType;

use crate::answers::{FileChecksum, StatInfo};
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

impl FileSystem {
    /// Sends a query. `argument` has the form that the type of query requires, without NUL. Returns
    /// the reply as sent by the server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn query(&self, infotype: QueryType, argument: &str) -> Result<Vec<u8>, Error> {
        let (path, _) = argument.split_once('?').unwrap_or((argument, ""));
        let path = if path.starts_with('/') { path } else { "/" };
        if infotype == QueryType::CKSUM {
            return Ok(self.ask_checksum(path, |_| RequestTarget::new(argument)).await?.received.body);
        }
        let argument = RequestTarget::new(argument);
        Ok(self.ask("query", path, true, |_, _| query(infotype, &argument)).await?.received.body)
    }

    /// Returns the checksum of a file, of this type or the server's first type. The server may
    /// compute it, which takes long. The timeout depends on the size of the file, or is
    /// `RequestTimeout` if that is set.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn checksum(&self, path: &str, kind: Option<&str>) -> Result<FileChecksum, Error> {
        let asked = kind.map_or_else(|| self.clone(), |kind| self.with_cgi(&format!("cks.type={kind}")));
        let arrived = asked.ask_checksum(path, Url::target).await?;
        self.parsed("checksum", path, &arrived, FileChecksum::parse)
    }

    /// Queries the checksum of a file, for which a server may have to read the file. `argument` is
    /// the argument of the query.
    async fn ask_checksum(
        &self,
        path: &str,
        argument: impl Fn(&Url) -> RequestTarget + Sync,
    ) -> Result<RoutedReply, Error> {
        let at = QueriedServer::default();
        let request = |url: &Url, _: bool| {
            at.note(url);
            query(QueryType::CKSUM, &argument(url))
        };
        let url = self.url_of("checksum", path)?;
        let mut route = Route::new(&self.client, &url, self.checksum_deadline());
        let ask = PathRequest {
            name: "checksum",
            repeat: Repeat::Anywhere,
            slow: true,
            limit: BodyLimit::ANSWER,
            request: &request,
        };
        self.summed(path, &at, Box::pin(route.ask(&self.client, &ask))).await
    }

    /// Returns the final deadline for a server that computes a checksum.
    fn checksum_deadline(&self) -> Instant {
        let client = self.client();
        if client.settings().is_set("RequestTimeout") { client.end() } else { Instant::now() + FAR }
    }

    /// Waits for a checksum of a path as long as a reply can be expected.
    async fn summed<T>(
        &self,
        path: &str,
        at: &QueriedServer,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (pending, begun) = (self.client().pending_checksums().clone(), Instant::now());
        tokio::select! {
            reply = asked => {
                // An immediate refusal or a lost connection is not a sign of computed checksums.
                let worked = match &reply {
                    Ok(_) => true,
                    Err(error) => error.code().is_some() && begun.elapsed() >= LOOK_TIME,
                };
                if worked {
                    pending.answered(&at.server());
                }
                reply
            }
            error = Box::pin(self.overdue(path, at, &pending)) => Err(error),
        }
    }

    /// Returns the reason when a checksum of a path can no longer be expected.
    async fn overdue(&self, path: &str, at: &QueriedServer, pending: &PendingChecksums) -> Error {
        let begun = Instant::now();
        tokio::time::sleep(LOOK_TIME).await;
        let fail = |cause| self.error("checksum", path, cause);
        let stat = match self.stat(path).await {
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
        let settings = self.client().settings();
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
