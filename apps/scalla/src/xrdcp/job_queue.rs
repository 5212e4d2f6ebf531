//! Conversion of words to jobs: the files to copy, and their target names.

use super::failure::{FILE_STATUS, XrdcpFailure, local_failure, usage_failure};
use super::options::XrdcpOptions;
use super::place_names::{named_place, url_text};
use super::source_finder::{FoundSource, SourceFinder};
use crate::xrootd_compat::{self, CopySide, XrdClStatus, code};
use client::copy::{Copier, CopyOptions, Place};
use client::{Client, Url};
use std::collections::VecDeque;
use std::path::Path;

/// Maximum number of jobs that are found before the first copy, and that may so refuse the whole
/// command.
const PLANNED_MAX: usize = 10_000;
/// Maximum length of their source names.
const PLANNED_BYTES_MAX: usize = 4 << 20;

/// A single file to copy.
#[derive(Clone, Debug)]
pub(super) struct XrdcpJob {
    pub(super) source: Place,
    pub(super) target: Place,
    pub(super) size: Option<u64>,
    /// The reason why the job fails before it begins.
    pub(super) refused: Option<XrdClStatus>,
}

impl XrdcpJob {
    pub(super) fn source_name(&self) -> String {
        url_text(&self.source, "//")
    }

    pub(super) fn target_name(&self) -> String {
        url_text(&self.target, "//")
    }
}

/// The jobs of a command line. Most command lines have all their jobs before the first copy. The
/// jobs of larger trees are found while the first ones are running, so that memory is limited.
pub(super) struct JobQueue {
    /// The jobs that were found and not returned yet.
    ahead: VecDeque<XrdcpJob>,
    /// Number of jobs found so far.
    found: usize,
    /// The jobs that were not found yet.
    rest: Option<SourceFinder>,
    target: Place,
    /// Set if the target is a directory.
    into: bool,
}

impl JobQueue {
    /// Finds the jobs of a command line, or the first ones of a large tree.
    pub(super) async fn of(
        command: &mut XrdcpOptions,
        options: &CopyOptions,
        copier: &Copier,
    ) -> Result<Self, XrdcpFailure> {
        let (words, target) = split(command)?;
        let target = named_place(&target, true, &command.target_cgi)?;
        let mut rest = SourceFinder::new(words, target.clone(), command, options, copier);
        let (mut sources, mut bytes, mut is_all) = (Vec::new(), 0, false);
        while sources.len() < PLANNED_MAX && bytes < PLANNED_BYTES_MAX {
            let Some(found) = rest.next().await? else {
                is_all = true;
                break;
            };
            bytes += found.place.to_string().len();
            sources.push(found);
        }
        if command.resume && command.force {
            let text = "Invalid argument combination: continue + force.\n";
            return Err(XrdcpFailure::Plain(text.to_owned(), 50));
        }
        let several = command.recursive || sources.len() > 1;
        let into = is_directory(&target, several, command, copier.client()).await?;
        if !is_all {
            rest.begin_copies().await?;
        }
        let found = sources.len();
        let ahead = sources.into_iter().map(|found| job(found, &target, into)).collect();
        Ok(Self { ahead, found, rest: (!is_all).then_some(rest), target, into })
    }

    /// Returns the jobs that are known and not returned yet.
    pub(super) fn known(&self) -> impl Iterator<Item = &XrdcpJob> {
        self.ahead.iter()
    }

    /// Returns the number of jobs found so far, and whether these are all.
    pub(super) fn count(&self) -> (usize, bool) {
        (self.found, self.rest.is_none())
    }

    /// Returns the next job.
    pub(super) async fn next(&mut self) -> Option<XrdcpJob> {
        if let Some(job) = self.ahead.pop_front() {
            return Some(job);
        }
        let job = match self.rest.as_mut()?.next().await {
            Ok(Some(found)) => job(found, &self.target, self.into),
            Ok(None) => {
                self.rest = None;
                return None;
            }
            // Copies are running already, so a failure that would refuse the whole command before
            // is that of a job.
            Err(refusal) => XrdcpJob {
                source: self.target.clone(),
                target: self.target.clone(),
                size: None,
                refused: Some(refusal.into_status()),
            },
        };
        self.found += 1;
        Some(job)
    }
}

fn job(found: FoundSource, target: &Place, into: bool) -> XrdcpJob {
    let (to, refused) = match if into { join(target, &found) } else { Ok(target.clone()) } {
        Ok(to) => (to, found.refused),
        Err(status) => (target.clone(), Some(status)),
    };
    XrdcpJob { target: to, source: found.place, size: found.size, refused }
}

/// Reports whether the target is a directory, which several sources require.
async fn is_directory(
    target: &Place,
    several: bool,
    command: &XrdcpOptions,
    client: &Client,
) -> Result<bool, XrdcpFailure> {
    match target {
        Place::Stream => Ok(false),
        Place::Local(path) => {
            let metadata = std::fs::metadata(path);
            if several && !metadata.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
                return Err(match metadata {
                    Err(error) if command.listed.is_none() => {
                        local_failure(&error, &path.display().to_string())
                    }
                    _ => XrdcpFailure::Plain(
                        "xrdcp: Destination is neither remote nor a directory.\n".to_owned(),
                        FILE_STATUS,
                    ),
                });
            }
            Ok(metadata.is_ok_and(|metadata| metadata.is_dir()))
        }
        Place::Remote(url) => remote_target(url, several, command, client).await,
    }
}

/// Returns the sources and the target.
fn split(command: &mut XrdcpOptions) -> Result<(Vec<String>, String), XrdcpFailure> {
    let mut words = std::mem::take(&mut command.words);
    if words.is_empty() && command.listed.is_none() {
        return Err(usage_failure("No files specified.".to_owned()));
    }
    let target = words.pop().filter(|_| !words.is_empty() || command.listed.is_some());
    let target = target.ok_or_else(|| usage_failure("Destination not specified.".to_owned()))?;
    if let Some(file) = &command.listed {
        let text = std::fs::read_to_string(file).map_err(|error| {
            let why = xrootd_compat::format::system(&error);
            XrdcpFailure::Plain(format!("xrdcp: {why} opening infiles {file}\n"), FILE_STATUS)
        })?;
        words.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
    }
    if words.is_empty() {
        return Err(usage_failure("Source not specified.".to_owned()));
    }
    Ok((words, target))
}

/// Reports whether a target at a server is a directory.
async fn remote_target(
    url: &Url,
    several: bool,
    command: &XrdcpOptions,
    client: &Client,
) -> Result<bool, XrdcpFailure> {
    let is_written_as_directory = url.path.ends_with('/');
    let stat = client.file_system(url).find(&url.path).await;
    match stat.map_err(|error| XrdcpFailure::Status(XrdClStatus::from(error)))? {
        Some(stat) if stat.is_dir() => Ok(true),
        Some(_) if !command.force && !command.resume && !command.zip_append => {
            Err(XrdcpFailure::Run(XrdClStatus::error(code::INVALID_OPERATION).with_message("file exists")))
        }
        Some(_) if several => Err(not_a_directory()),
        Some(_) => Ok(false),
        None if several && !is_written_as_directory => Err(not_a_directory()),
        None => Ok(is_written_as_directory),
    }
}

fn not_a_directory() -> XrdcpFailure {
    XrdcpFailure::Plain("Multiple sources were given but target is not a directory.\n".to_owned(), 50)
}

/// Returns the target of a source.
fn join(target: &Place, found: &FoundSource) -> Result<Place, XrdClStatus> {
    let below = found.relative_path.as_deref().unwrap_or(Path::new("-"));
    let below = if found.refused.is_some() { Path::new("-") } else { below };
    below.iter().try_fold(target.clone(), |place, name| {
        place.join_os(name).map_err(|why| {
            let text = format!("{:?} cannot be copied to {target}: {why}", name.to_string_lossy());
            XrdClStatus::error(code::NOT_SUPPORTED).with_message(text).at(CopySide::Destination)
        })
    })
}
