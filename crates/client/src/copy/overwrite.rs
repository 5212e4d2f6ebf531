//! Opens a file at a server to create or to overwrite it, and never overwrites the source.
//!
//! A path may lead to the source by a link, or by another name of its server. A check before the
//! open leaves a moment in which the path can change. An existing file is therefore opened without
//! truncation, compared with the open source, and then truncated. For files that persist on close
//! and copies between servers, it is closed again after the comparison, because an open without
//! truncation cannot request these. They are then opened by name.

use std::time::Duration;

use wire::xroot::ErrorCode;
use wire::xroot::flags::OpenOptions;

use super::Copier;
use super::failure::CopyError;
use super::opening::{ANSWER_TIME, NotOpen, REMOVE_TIME, close_and_remove, open_unless};
use super::options::Watch;
use super::place::Place;
use super::source::SourceReader;
use crate::failure::Error;
use crate::file::{File, OpenWith};
use crate::identity::RemoteFileIdentity;
use crate::url::Url;

/// Number of times that a file is found to exist or to be missing, and is the opposite then.
const TRIES: usize = 4;
/// Maximum time to close a file that is not overwritten.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// Opens a file and overwrites it, unless it is the source. `with` are the options for the open of
/// a new file.
pub(super) async fn overwrite(
    copier: &Copier,
    url: &Url,
    source: &SourceReader,
    with: OpenWith,
    watch: &Watch,
) -> Result<File, CopyError> {
    let sources = source.identities();
    let replacing = with.clone().with(OpenOptions::DELETE);
    if with.options.intersects(OpenOptions::POSC) {
        let force = with.options.intersects(OpenOptions::FORCE);
        not_the_source_by_open(copier, url, &source.place, &sources, force, stop(watch)).await?;
        return create(copier, url, &replacing, watch).await;
    }
    if sources.is_empty() {
        return create(copier, url, &replacing, watch).await;
    }
    let new = with.with(OpenOptions::NEW);
    let mut is_uncertain = false;
    for _ in 0..TRIES {
        match existing(copier, url, source, &new, watch).await? {
            Existing::Empty(file) => return Ok(file),
            Existing::NotTruncatable => return create(copier, url, &replacing, watch).await,
            Existing::Missing => {}
        }
        match create(copier, url, &new, watch).await {
            // Another client has created it just now.
            Err(CopyError::Exists(_)) => {}
            // The file may exist now. The next round opens it and determines whose it is.
            Err(error) if error.is_uncertain() && !is_uncertain && !watch.is_cancelled() => {
                is_uncertain = true;
            }
            created => return created,
        }
    }
    Err(CopyError::Exists(url.to_string()))
}

/// A file to be overwritten.
enum Existing {
    /// It is open and empty.
    Empty(File),
    Missing,
    /// It is not the source, but its server does not truncate open files.
    NotTruncatable,
}

async fn existing(
    copier: &Copier,
    url: &Url,
    source: &SourceReader,
    with: &OpenWith,
    watch: &Watch,
) -> Result<Existing, CopyError> {
    let mut update = OpenWith::update();
    update.expected_size = with.expected_size;
    if with.options.intersects(OpenOptions::FORCE) {
        update = update.force();
    }
    let file = match open_unless(&copier.client, url, &update, stop(watch)).await {
        Ok(file) => file,
        Err(NotOpen::Refused(error)) if error.is_not_found() => return Ok(Existing::Missing),
        Err(NotOpen::Refused(error)) => {
            // It may be locked because it is the source.
            for is in source.identities() {
                not_the_source(copier, url, &source.place, &is).await?;
            }
            return Err(refused(url, error));
        }
        Err(NotOpen::Stopped(why, file)) => {
            leave(file).await;
            return Err(why);
        }
    };
    if let Err(error) = not_a_source(&source.place, &source.identities(), url, &file) {
        leave(Some(file)).await;
        return Err(error);
    }
    match truncate(&file, watch).await {
        Truncation::Done => Ok(Existing::Empty(file)),
        Truncation::Stopped { is_empty: true } => {
            discard(copier, &file, false).await;
            Err(CopyError::Cancelled)
        }
        Truncation::Stopped { is_empty: false } => {
            leave(Some(file)).await;
            Err(CopyError::Cancelled)
        }
        Truncation::Failed(error) => {
            leave(Some(file)).await;
            match error.code() {
                Some(ErrorCode::UNSUPPORTED) => Ok(Existing::NotTruncatable),
                _ => Err(CopyError::target(error)),
            }
        }
    }
}

/// The result of a truncation to zero bytes.
enum Truncation {
    Done,
    Failed(Error),
    /// The copy was stopped. The file may have all of its content, unless it is known to be empty.
    Stopped {
        is_empty: bool,
    },
}

/// Truncates an open file, unless the copy is stopped. A request that was sent is awaited, because
/// only its reply shows whether the file is empty.
async fn truncate(file: &File, watch: &Watch) -> Truncation {
    if watch.is_cancelled() {
        return Truncation::Stopped { is_empty: false };
    }
    let mut truncation = Box::pin(file.truncate(0));
    tokio::select! {
        biased;
        truncated = &mut truncation => match truncated {
            Ok(()) => Truncation::Done,
            Err(error) => Truncation::Failed(error),
        },
        () = watch.cancelled() => {
            let late = tokio::time::timeout(ANSWER_TIME, truncation).await;
            Truncation::Stopped { is_empty: matches!(late, Ok(Ok(()))) }
        }
    }
}

/// Closes a file that was not changed.
async fn leave(file: Option<File>) {
    if let Some(file) = file {
        tokio::time::timeout(CLOSE_TIME, file.close()).await.ok();
    }
}

/// Refuses an open file that is the source.
///
/// # Errors
/// [`CopyError`].
pub(super) fn not_a_source(
    source: &Place,
    identities: &[RemoteFileIdentity],
    url: &Url,
    file: &File,
) -> Result<(), CopyError> {
    let Some(to) = file.identity() else { return Ok(()) };
    match identities.iter().any(|from| from.may_be(&to)) {
        true => Err(same(source, url)),
        false => Ok(()),
    }
}

/// Refuses to overwrite the source with an open that truncates. The existing file is opened before
/// without truncation and compared, because the status of the path may be that of another file, for
/// example one at another server of a cluster.
///
/// # Errors
/// [`CopyError`].
pub(super) async fn not_the_source_by_open(
    copier: &Copier,
    url: &Url,
    source: &Place,
    identities: &[RemoteFileIdentity],
    force: bool,
    stop: impl Future<Output = CopyError>,
) -> Result<(), CopyError> {
    if identities.is_empty() {
        return Ok(());
    }
    let update = if force { OpenWith::update().force() } else { OpenWith::update() };
    match open_unless(&copier.client, url, &update, stop).await {
        Ok(file) => {
            let compared = not_a_source(source, identities, url, &file);
            let is_known = file.identity().is_some();
            leave(Some(file)).await;
            if is_known {
                return compared;
            }
        }
        Err(NotOpen::Refused(error)) if error.is_not_found() => return Ok(()),
        // It may be locked because it is the source, or it is the remainder of a file that persists
        // on close, which only the open that replaces it can take over.
        Err(NotOpen::Refused(_)) => {}
        Err(NotOpen::Stopped(why, file)) => {
            leave(file).await;
            return Err(why);
        }
    }
    for is in identities {
        not_the_source(copier, url, source, is).await?;
    }
    Ok(())
}

/// Refuses to overwrite the source, according to the status of the path. Locks of a server may
/// apply only to names.
///
/// # Errors
/// [`CopyError`].
async fn not_the_source(
    copier: &Copier,
    url: &Url,
    source: &Place,
    is: &RemoteFileIdentity,
) -> Result<(), CopyError> {
    let there = copier.client.file_system(url).find(&url.path).await.map_err(CopyError::target)?;
    match there {
        Some(there) if is.is_alike(&there) => Err(same(source, url)),
        _ => Ok(()),
    }
}

fn same(source: &Place, url: &Url) -> CopyError {
    CopyError::Usage(format!("{source} and {url} are the same file"))
}

async fn stop(watch: &Watch) -> CopyError {
    watch.cancelled().await;
    CopyError::Cancelled
}

/// Opens a file and creates it. If the copy is cancelled during this time, the file is removed.
pub(super) async fn create(
    copier: &Copier,
    url: &Url,
    with: &OpenWith,
    watch: &Watch,
) -> Result<File, CopyError> {
    match open_unless(&copier.client, url, with, stop(watch)).await {
        Ok(file) => Ok(file),
        Err(NotOpen::Refused(error)) => Err(refused(url, error)),
        Err(NotOpen::Stopped(why, file)) => {
            if let Some(file) = file {
                discard(copier, &file, with.options.intersects(OpenOptions::POSC)).await;
            }
            Err(why)
        }
    }
}

/// Removes a file that this copy has created or emptied.
async fn discard(copier: &Copier, file: &File, posc: bool) {
    // An unresponsive server is abandoned.
    tokio::time::timeout(REMOVE_TIME, close_and_remove(&copier.client, file, posc)).await.ok();
}

/// Returns the error of a target that cannot be created.
pub(super) fn refused(url: &Url, error: Error) -> CopyError {
    match error.code() {
        Some(ErrorCode::IT_EXISTS) if !error.is_uncertain() => CopyError::Exists(url.to_string()),
        Some(ErrorCode::IS_DIRECTORY) => CopyError::IsDirectory(url.to_string()),
        _ => CopyError::target(error),
    }
}
