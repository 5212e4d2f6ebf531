//! Third-party copies that a server of HTTP carries out: it reads the source (pull), or writes the target (push).
//!
//! The server of the target is asked first, because it knows when its file is complete. If it does not copy, the server
//! of the source is asked. Only the latter can be of another protocol.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::failure::CopyError;
use super::opening::unless_stopped;
use super::options::CopyDone;
use super::third::{ThirdPartyRefusal, ThirdPartySource, ThirdPartyTransfer};
use super::web_target::WebUpload;
use crate::failure::{Cause, Error};
use crate::http::{ActiveServer, CopyEvent, CopyMarkers};
use crate::url::Url;

/// A copy between two servers, of which at least one is of HTTP.
pub(super) struct WebThirdParty<'a> {
    pub(super) transfer: &'a ThirdPartyTransfer<'a>,
    pub(super) source: &'a Url,
    pub(super) target: &'a Url,
}

impl WebThirdParty<'_> {
    pub(super) async fn run(&self) -> Result<CopyDone, ThirdPartyRefusal> {
        let ThirdPartyTransfer { copier, job, options, watch } = *self.transfer;
        let Self { source, target, .. } = *self;
        let cannot = |text: String| ThirdPartyRefusal::Cannot(CopyError::Usage(text));
        if source.is_object() || target.is_object() {
            return Err(cannot("an object store does not copy from and to other servers".to_owned()));
        }
        if !target.is_http() {
            return Err(cannot(format!(
                "{target}: no server copies from HTTP to the xroot protocol; name the target by https:// if its server \
                 speaks HTTP, too"
            )));
        }
        let failed = ThirdPartyRefusal::Failed;
        let client = &copier.client;
        let files = client.file_system(source);
        let look = async { files.stat(&source.path).await.map_err(CopyError::source) };
        let found = unless_stopped(watch, look).await.map_err(failed)?;
        if found.is_dir() {
            return Err(failed(CopyError::IsDirectory(source.to_string())));
        }
        let upload = WebUpload { copier, job, options, watch, url: target };
        unless_stopped(watch, Box::pin(upload.check_place((source, &found)))).await.map_err(failed)?;
        let size = found.size;
        watch.begin(0, Some(size));
        let copied = unless_stopped(watch, async { Ok(Box::pin(self.order(size)).await) }).await;
        let copied = copied.unwrap_or_else(|error| Err(failed(error)));
        // Nothing is removed after a failure: the server that copies does that, or may go on, and a file of that name can be
        // that of another client.
        copied?;
        let own = upload.own(size).await;
        let seen = ThirdPartySource { at: source.clone(), size, identity: None };
        match self.transfer.compared(&seen, target, None).await {
            Ok(checksums) => Ok(CopyDone { third_party: true, checksums, ..CopyDone::of(size, size) }),
            Err(error) => {
                if matches!(error, CopyError::Checksum { .. }) {
                    upload.remove(own).await;
                }
                Err(failed(error))
            }
        }
    }

    /// Has one of the servers copy.
    async fn order(&self, size: u64) -> Result<(), ThirdPartyRefusal> {
        match self.order_from(ActiveServer::Target, size).await {
            Err(ThirdPartyRefusal::Cannot(by_target)) if self.source.is_http() => {
                match self.order_from(ActiveServer::Source, size).await {
                    // The server of the target is the one that is asked for it first.
                    Err(ThirdPartyRefusal::Cannot(_)) => Err(ThirdPartyRefusal::Cannot(by_target)),
                    done => done,
                }
            }
            done => done,
        }
    }

    async fn order_from(&self, active: ActiveServer, size: u64) -> Result<(), ThirdPartyRefusal> {
        let ThirdPartyTransfer { copier, options, watch, .. } = *self.transfer;
        let places = (self.source, self.target);
        let on = |error| match active {
            ActiveServer::Target => CopyError::target(error),
            ActiveServer::Source => CopyError::source(error),
        };
        let ordered = CopyMarkers::order(&copier.client, places, active, options.force).await;
        let mut markers = ordered.map_err(|(error, status)| match status {
            Some(412) => ThirdPartyRefusal::Failed(CopyError::Exists(self.target.to_string())),
            // The file may be being written.
            _ if error.is_uncertain() => ThirdPartyRefusal::Failed(on(error)),
            // No byte was copied; this client may reach servers that the server does not.
            Some(_) => ThirdPartyRefusal::Cannot(on(error)),
            None if matches!(error.cause(), Cause::Unsupported(_)) => ThirdPartyRefusal::Cannot(on(error)),
            None => ThirdPartyRefusal::Failed(on(error)),
        })?;
        let seconds = copier.client.settings().cp_tpc_timeout.max(1);
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut before = 0;
        loop {
            let event = timeout_at(end, markers.next()).await.unwrap_or(Err(Cause::TimedOut(seconds)));
            match event {
                Ok(CopyEvent::Created) => {
                    watch.advance(size.saturating_sub(before), Some(size));
                    return Ok(());
                }
                Ok(CopyEvent::Copied(bytes)) => {
                    let now = bytes.min(size).max(before);
                    watch.advance(now - before, Some(size));
                    before = now;
                }
                Err(cause) => {
                    let asked = if active == ActiveServer::Target { self.target } else { self.source };
                    // Without a result, the server may go on, or be done.
                    let is_uncertain = !matches!(cause, Cause::Server { .. });
                    let error = Error::new("copy", asked, cause).at(asked.authority(), &[]);
                    let error = error.uncertain(is_uncertain);
                    return Err(ThirdPartyRefusal::Failed(on(error)));
                }
            }
        }
    }
}
