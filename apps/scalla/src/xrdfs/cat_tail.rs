//! `cat` and `tail`: print files, and files to which metalinks refer.

use super::session::{ResolvedPath, XrdfsSession};
use crate::printer::{ContentWriter, err, out};
use crate::xrdcp::error_texts::{status_of_copy, status_of_metalink};
use crate::xrootd_compat::{CopySide, INVALID_ARGUMENTS, XrdClStatus, code, format};
use client::copy::{Copier, CopyError, CopyJob, CopyOptions, Place, Watch};
use client::metalink::Metalink;
use client::xroot::ErrorCode;
use client::{Client, Error, File, OpenWith, Scheme, Url, WholeRead};
use std::io::Write;
use std::time::Duration;

/// Bytes per request.
const CHUNK: usize = 1 << 20;
/// Default number of bytes printed from the end of a file.
const TAIL: u32 = 512;
/// Interval between two checks of a growing file.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Prints files one after the other. A failure does not stop the others. Returns the first failure.
pub(super) fn cat(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let (mut target, mut paths) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        if word == "-o" {
            target = Some(*words.next().ok_or(INVALID_ARGUMENTS)?);
        } else {
            paths.push(shell.path(word)?);
        }
    }
    if (paths.is_empty() && target.is_none()) || (paths.len() > 1 && target.is_some()) {
        return Err(INVALID_ARGUMENTS);
    }
    let mut result = Ok(());
    for path in &paths {
        let ResolvedPath { fs, path, .. } = shell.target_of(path.clone())?;
        let url = fs.url().at(path);
        let metalink = shell.runtime.wait(metalink(shell.fs.client(), &url));
        let done = metalink.map_err(|error| status_of_metalink(&error)).and_then(|metalink| {
            match (target, metalink.is_some()) {
                (Some(target), true) => print_metalink_target(shell, &url, Place::Local(target.into())),
                (None, true) => print_metalink_target(shell, &url, Place::Stream),
                (Some(target), false) => into_file(shell, &url, target),
                (None, false) => {
                    let mut out = ContentWriter::new(out());
                    let copy = copy_content(shell.fs.client(), &url, &mut out, |_| ());
                    shell.runtime.wait(copy).map(|_| ())
                }
            }
        });
        result = result.and(done);
    }
    result
}

/// Rewrites the progress line.
fn show_progress(bytes: u64) {
    err().replace_line(format_args!("Progress: {} ", format::size(bytes)));
}

/// Prints the file to which a metalink refers. Its replicas, size and checksums are used as in a
/// copy.
fn print_metalink_target(shell: &XrdfsSession, url: &Url, target: Place) -> Result<(), XrdClStatus> {
    let client = shell.fs.client();
    let mut options = CopyOptions::of(client.settings());
    options.metalinks = true;
    let directory = match &target {
        Place::Local(path) => path.parent().map_or(Ok(()), std::fs::create_dir_all),
        _ => Ok(()),
    };
    directory.map_err(|error| XrdClStatus::local(&error).at(CopySide::Destination))?;
    let is_file = target != Place::Stream;
    let watch = if is_file { Watch::new(|progress| show_progress(progress.done)) } else { Watch::default() };
    let job = CopyJob { source: Place::Remote(url.clone()), target, size: None };
    let copied = shell.runtime.wait(Copier::new(client).copy(&job, &options, &watch));
    if is_file {
        if !matches!(&copied, Ok(done) if done.size > 0) {
            show_progress(0);
        }
        err().literal("\n");
    }
    copied.map(|_| ()).map_err(|error| status_of_copy(&error, &job))
}

/// Copies a file to a local file and prints the progress.
fn into_file(shell: &XrdfsSession, url: &Url, target: &str) -> Result<(), XrdClStatus> {
    let copied = create(target).and_then(|mut file| {
        let copied = shell.runtime.wait(copy_content(shell.fs.client(), url, &mut file, show_progress));
        if copied.is_err() {
            // A partial file is removed.
            std::fs::remove_file(target).ok();
        }
        copied
    });
    if !matches!(copied, Ok(bytes) if bytes > 0) {
        show_progress(0);
    }
    err().literal("\n");
    copied.map(|_| ())
}

/// Creates a file and its parent directories.
fn create(target: &str) -> Result<std::fs::File, XrdClStatus> {
    let at_target = |error: std::io::Error| XrdClStatus::local(&error).at(CopySide::Destination);
    if let Some(directory) = std::path::Path::new(target).parent() {
        std::fs::create_dir_all(directory).map_err(at_target)?;
    }
    std::fs::File::create_new(target).map_err(at_target)
}

/// Copies a file and returns its size. `report_progress` receives the number of bytes copied so far
/// after each piece.
async fn copy_content(
    client: &Client,
    url: &Url,
    out: &mut impl Write,
    report_progress: impl Fn(u64),
) -> Result<u64, XrdClStatus> {
    let at_source = |error| XrdClStatus::from(error).at(CopySide::Source);
    let file = client.open(url, &OpenWith::read()).await.map_err(at_source)?;
    let mut whole = WholeRead::of(&file).await.map_err(at_source)?;
    loop {
        let data = file.read_pages(whole.offset(), CHUNK).await.map_err(at_source)?;
        out.write_all(&data).map_err(|error| XrdClStatus::local(&error).at(CopySide::Destination))?;
        let is_over = whole.advance(data.len(), CHUNK);
        if is_over.map_err(|cause| at_source(Error::new("read", url, cause)))? {
            break;
        }
        report_progress(whole.offset());
    }
    let offset = whole.offset();
    out.flush().map_err(|error| XrdClStatus::local(&error).at(CopySide::Destination))?;
    if offset > 0 {
        report_progress(offset);
    }
    file.close().await.map_err(at_source)?;
    Ok(offset)
}

/// Returns the metalink, if the file is one.
async fn metalink(client: &Client, url: &Url) -> Result<Option<Metalink>, CopyError> {
    let mut options = CopyOptions::of(client.settings());
    options.metalinks = client.settings().metalink_processing != 0;
    Copier::new(client).metalink(&Place::Remote(url.clone()), &options).await
}

/// Opens a file at the first available replica of a metalink.
async fn open_mirror(client: &Client, metalink: &Metalink) -> Result<File, XrdClStatus> {
    let mut last = XrdClStatus::error(code::NO_REPLICAS);
    for url in metalink.urls.iter().filter(|url| url.scheme != Scheme::File) {
        let opened = async {
            let file = client.open(url, &OpenWith::read()).await?;
            let size = file.known_stat().await?.size;
            Ok::<_, Error>((file, size))
        };
        last = match opened.await {
            Ok((file, size)) if metalink.size.is_none_or(|expected| expected == size) => return Ok(file),
            Ok(_) => XrdClStatus::error(code::DATA_ERROR),
            Err(error) => XrdClStatus::from(error),
        };
    }
    Err(XrdClStatus::no_replicas(Some(&last)))
}

pub(super) fn tail(shell: &mut XrdfsSession, arguments: &[&str]) -> Result<(), XrdClStatus> {
    let (mut last, mut follow, mut path) = (TAIL, false, None);
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        match word {
            "-f" => follow = true,
            "-c" => {
                let count = words.next().and_then(|count| format::integer(count)).ok_or(INVALID_ARGUMENTS)?;
                // A negative or too large number means the whole file.
                last = u32::try_from(count).unwrap_or(u32::MAX);
            }
            word => path = Some(word),
        }
    }
    let ResolvedPath { fs, path, .. } = shell.target(path.ok_or(INVALID_ARGUMENTS)?)?;
    let url = fs.url().at(path);
    let show = async {
        let client = shell.fs.client();
        let file = match metalink(client, &url).await {
            Ok(Some(metalink)) => open_mirror(client, &metalink).await?,
            Ok(None) => client.open(&url, &OpenWith::read()).await?,
            Err(CopyError::Metalink { .. }) => return Err(XrdClStatus::no_replicas(None)),
            Err(_) => {
                return Err(XrdClStatus::response(ErrorCode::FS_ERROR, "Could not load the Metalink file."));
            }
        };
        let size = file.known_stat().await?.size;
        let mut shown = ContentWriter::new(out());
        let mut part = WholeRead::part(size.saturating_sub(last.into()), size);
        loop {
            let data = file.read(part.offset(), CHUNK).await?;
            if shown.write_all(&data).is_err() {
                return Ok(());
            }
            match part.advance(data.len(), CHUNK) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(cause) => return Err(Error::new("read", &url, cause).into()),
            }
            shown.flush().ok();
            if !follow {
                return Ok(file.close().await?);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    shell.runtime.wait(show)
}
