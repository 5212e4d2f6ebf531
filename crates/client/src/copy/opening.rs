//! Opens the target of a copy so that a stopped copy leaves no new file behind.
//!
//! An open that was sent cannot be cancelled. If the copy is stopped in the meantime, the reply is
//! awaited, so that the new file can be removed.

use std::time::Duration;

use super::failure::CopyError;
use super::options::Watch;
use crate::client::Client;
use crate::failure::Error;
use crate::file::{File, OpenWith};
use crate::identity::RemoteFileIdentity;
use crate::url::Url;

/// Maximum wait for the reply to an open or a truncation after the copy was stopped.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Maximum time for a server to remove a useless file.
pub(super) const REMOVE_TIME: Duration = Duration::from_secs(5);

/// Number of times that a useless file is removed, if the reply is lost each time.
const REMOVALS: usize = 2;

/// The reason why there is no file to write to.
pub(super) enum NotOpen {
    /// The server refused the open or did not reply. The copy may have been stopped as well, if it is
    /// unknown whether the file was opened.
    Refused(Error),
    /// The copy was stopped. The file, if any, was opened nevertheless and has to be removed by the
    /// caller.
    Stopped(CopyError, Option<File>),
}

/// Opens a file, unless `stop` completes earlier.
pub(super) async fn open_unless(
    client: &Client,
    url: &Url,
    with: &OpenWith,
    stop: impl Future<Output = CopyError>,
) -> Result<File, NotOpen> {
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        biased;
        // No request was sent yet.
        why = &mut stop => return Err(NotOpen::Stopped(why, None)),
        () = std::future::ready(()) => {}
    }
    let mut opening = Box::pin(client.open(url, with));
    tokio::select! {
        biased;
        opened = &mut opening => opened.map_err(NotOpen::Refused),
        why = stop => Err(match tokio::time::timeout(ANSWER_TIME, opening).await {
            Ok(Ok(file)) => NotOpen::Stopped(why, Some(file)),
            // There may be a new file, which is more to report than that the copy was stopped.
            Ok(Err(error)) if error.is_uncertain() => NotOpen::Refused(error),
            _ => NotOpen::Stopped(why, None),
        }),
    }
}

/// Removes a file that a copy created, at its own server instead of at the manager. A different
/// file that has taken its name is kept. A removal that may not have been carried out is repeated.
pub(super) async fn remove_own(client: &Client, at: &Url, own: Option<&RemoteFileIdentity>) {
    let files = client.file_system(at);
    for _ in 0..REMOVALS {
        let is_own = match (own, files.stat(&at.path).await) {
            (Some(own), Ok(now)) => own.is_same_object(&RemoteFileIdentity::new(at.authority(), &now, true)),
            _ => true,
        };
        // A failure is ignored: the server may not answer.
        let is_unknown = is_own && files.rm(&at.path).await.is_err_and(|error| error.is_uncertain());
        if !is_unknown {
            return;
        }
    }
}

/// Closes and removes a file that a copy created. A file that is persisted on successful close
/// (`posc`) is not closed, because it would be published.
pub(super) async fn close_and_remove(client: &Client, file: &File, posc: bool) {
    if !posc {
        file.close().await.ok();
    }
    remove_own(client, &file.location(), file.identity().as_ref()).await;
}

/// Runs `work`, or fails with `Cancelled` if the copy is cancelled first.
pub(super) async fn unless_stopped<T>(
    watch: &Watch,
    work: impl Future<Output = Result<T, CopyError>>,
) -> Result<T, CopyError> {
    tokio::select! {
        biased;
        () = watch.cancelled() => Err(CopyError::Cancelled),
        done = work => done,
    }
}
