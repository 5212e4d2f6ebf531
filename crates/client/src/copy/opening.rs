//! Opening what a copy makes. An open that is on its way cannot be taken back: when the copy is stopped meanwhile, its
//! answer is waited for, so that what was made can be removed.

use std::time::Duration;

use super::failure::CopyError;
use crate::client::Client;
use crate::failure::Error;
use crate::file::{File, OpenWith};
use crate::identity::FileIdentity;
use crate::url::Url;

/// How long the answer to an open is waited for when nobody wants the file any more.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Why there is no file to write to.
pub(super) enum NotOpen {
    /// The server said no, or nothing.
    Refused(Error),
    /// The copy was stopped. The file was opened all the same, if there is one: who asked for it removes it.
    Stopped(CopyError, Option<File>),
}

/// Opens a file, unless `stop` ends before.
pub(super) async fn open_unless(
    client: &Client,
    url: &Url,
    with: &OpenWith,
    stop: impl Future<Output = CopyError>,
) -> Result<File, NotOpen> {
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        biased;
        // Nothing was asked for yet.
        why = &mut stop => return Err(NotOpen::Stopped(why, None)),
        () = std::future::ready(()) => {}
    }
    let mut opening = Box::pin(client.open(url, with));
    tokio::select! {
        biased;
        opened = &mut opening => opened.map_err(NotOpen::Refused),
        why = stop => {
            let late = tokio::time::timeout(ANSWER_TIME, opening).await;
            Err(NotOpen::Stopped(why, late.ok().and_then(Result::ok)))
        }
    }
}

/// Removes a file that a copy made, where it is, not where a manager would look for it. A file that has taken its name
/// meanwhile stays.
pub(super) async fn remove_own(client: &Client, at: &Url, own: Option<&FileIdentity>) {
    let files = client.file_system(at);
    let is_own = match (own, files.stat(&at.path).await) {
        (Some(own), Ok(now)) => own.is_same_object(&FileIdentity::new(at.authority(), &now, true)),
        _ => true,
    };
    if is_own {
        // A server that does not answer is left alone.
        files.rm(&at.path).await.ok();
    }
}
