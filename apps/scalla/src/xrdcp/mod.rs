//! The programs `xrdcp` and `xrdcopy`: copy files to, from and between servers.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | execution of the jobs |
//! | `options`, `usage` | the command line and the help |
//! | `job_queue`, `source_finder` | conversion of words to jobs |
//! | `place_names` | names of places, in words and in the output |
//! | `results` | the failures of the jobs |
//! | `failure`, `error_texts` | failures as texts and exit statuses |
//! | `progress_bar` | the progress bar |
//!
//! Options, messages and exit statuses are those of this program in XRootD 5.5.3. The copying
//! itself is `client::copy`, as for `scalla cp`.

pub(crate) mod error_texts;
mod failure;
mod job_queue;
mod options;
mod place_names;
mod progress_bar;
mod results;
mod source_finder;
mod usage;

use crate::copy::interrupts;
use crate::environment;
use crate::printer::{err, out};
use crate::xrootd_compat::{self, CopySide, INVALID_ARGUMENTS, LICENCE, XrdClStatus, code};
use client::Settings;
use client::copy::{
    Against, ChecksumWish, Copier, CopyDone, CopyError, CopyJob, CopyOptions, Place, Rate, ThirdParty, Watch,
};
use client::digest::Algorithm;
use error_texts::status_of_job;
use failure::{UNSUPPORTED_STATUS, XrdcpFailure, report};
use job_queue::{JobQueue, XrdcpJob};
pub(crate) use options::words as option_words;
use options::{InformationRequest, XrdcpOptions};
use progress_bar::JobProgressBar;
use results::JobResults;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::task::JoinSet;
use usage::{HELP, USAGE};

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut settings = environment::settings();
    let command = match options::parse(xrootd_compat::words(arguments), &mut settings) {
        Ok(Ok(command)) => command,
        Ok(Err(instead)) => {
            match instead {
                InformationRequest::Help => err().lines(format_args!("{USAGE}{HELP}")),
                InformationRequest::Licence => err().lines(LICENCE),
                InformationRequest::Version => err().line(server::VERSION),
            }
            return ExitCode::SUCCESS;
        }
        Err(refusal) => return report(&refusal),
    };
    let watch = Watch::default();
    let work = interrupts::run_with_log_level(command.detail, &watch, async {
        Ok(copy(command, settings, &watch).await)
    });
    work.unwrap_or_else(|error| {
        err().lines(format_args!("xrdcp: {error:#}\n"));
        ExitCode::from(UNSUPPORTED_STATUS)
    })
}

async fn copy(mut command: XrdcpOptions, settings: Settings, watch: &Watch) -> ExitCode {
    if command.proxy {
        let text = "SOCKS Proxies are not yet supported\n".to_owned();
        return report(&XrdcpFailure::Plain(text, UNSUPPORTED_STATUS));
    }
    let client = environment::client_with(settings, "xrdcp");
    let mut options = environment::copy_options(client.settings());
    options.force = command.force;
    options.resume = command.resume;
    options.coerce = command.coerce;
    options.persist_on_successful_close = command.posc;
    options.checksums.clone_from(&command.checksums);
    options.sources = command.sources.and_then(|sources| usize::try_from(sources).ok()).unwrap_or(1);
    options.third_party = command.third_party;
    options.delegation = command.delegation;
    options.zip_member.clone_from(&command.zip_member);
    options.metalinks = client.settings().metalink_processing != 0 && !command.recursive;
    options.zip_append = command.zip_append;
    options.attributes |= command.attributes;
    options.rate = command.rate.map(Rate::new);
    let copier = Copier::new(&client);
    let planned = tokio::select! {
        planned = JobQueue::of(&mut command, &options, &copier) => planned,
        () = watch.cancelled() => Err(XrdcpFailure::Run(XrdClStatus::error(code::INTERRUPTED))),
    };
    let mut jobs = match planned.and_then(|jobs| check_possible(&command, &jobs).map(|()| jobs)) {
        Ok(jobs) => jobs,
        Err(refusal) => return report(&refusal),
    };
    if let Err(status) = check_member_checksums(&command, &options, &jobs, &copier).await {
        return report(&XrdcpFailure::Run(status));
    }
    let shown = !command.no_progress && out().is_terminal();
    let bar = Arc::new(JobProgressBar::new(shown, jobs.count(), command.parallel > 1));
    let results = run_jobs(&mut jobs, &command, &options, &copier, &bar, watch).await;
    bar.finish();
    results.summary()
}

/// Rejects requests that are known in advance to be impossible.
fn check_possible(command: &XrdcpOptions, jobs: &JobQueue) -> Result<(), XrdcpFailure> {
    let not_supported =
        |text: &str| Err(XrdcpFailure::Run(XrdClStatus::error(code::NOT_SUPPORTED).with_message(text)));
    let at_source = || Err(XrdcpFailure::Run(XrdClStatus::error(code::NOT_SUPPORTED).at(CopySide::Source)));
    if command.zip_append && (command.force || command.resume) {
        let text = "Invalid argument combination: ( continue | force ) + zip-append.";
        return Err(XrdcpFailure::Run(INVALID_ARGUMENTS.with_errno(libc::EINVAL).with_message(text)));
    }
    let is_local = |job: &XrdcpJob| job.source.url().is_none() || job.target.url().is_none();
    if command.third_party == ThirdParty::Only && jobs.known().any(is_local) {
        return not_supported("Cannot do a third-party-copy for local file.");
    }
    if command.sources.is_some_and(|sources| sources > 1)
        && jobs.known().any(|job| job.source.url().is_none())
    {
        return at_source();
    }
    Ok(())
}

/// Checks that the requested checksums of archive members are available. An archive contains one
/// checksum of a member, and its server has those of the archive. Other types can only come from a
/// metalink.
async fn check_member_checksums(
    command: &XrdcpOptions,
    options: &CopyOptions,
    jobs: &JobQueue,
    copier: &Copier,
) -> Result<(), XrdClStatus> {
    let of_archive = |requested: &ChecksumWish| {
        matches!(requested.against, Against::Value(_) | Against::PrintTarget)
            || requested.algorithm.is_none_or(|algorithm| algorithm == Algorithm::Zcrc32)
    };
    let others: Vec<Option<Algorithm>> = command
        .checksums
        .iter()
        .filter(|requested| !of_archive(requested))
        .map(|requested| requested.algorithm)
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    for job in jobs.known().filter(|job| options.member_of(&job.source).is_some()) {
        let metalink = match options.metalink_of_member {
            // A metalink that cannot be read is reported when it is copied.
            true => copier.metalink(&job.source, options).await.ok().flatten(),
            false => None,
        };
        let known: Vec<Algorithm> =
            metalink.iter().flat_map(|metalink| &metalink.checksums).map(|(kind, _)| *kind).collect();
        if !others.iter().flatten().all(|kind| known.contains(kind)) {
            return Err(XrdClStatus::error(code::NOT_SUPPORTED).at(CopySide::Source));
        }
    }
    Ok(())
}

/// Runs all jobs, `--parallel` of them concurrently.
async fn run_jobs(
    jobs: &mut JobQueue,
    command: &XrdcpOptions,
    options: &CopyOptions,
    copier: &Copier,
    bar: &Arc<JobProgressBar>,
    watch: &Watch,
) -> JobResults {
    let mut running = JoinSet::new();
    let mut results = JobResults::default();
    loop {
        while running.len() >= command.parallel.max(1) {
            results.take(running.join_next().await);
        }
        if watch.is_cancelled() {
            break;
        }
        let next = tokio::select! {
            next = jobs.next() => next,
            () = watch.cancelled() => break,
        };
        let Some(job) = next else { break };
        bar.count(jobs.count());
        let index = results.begin();
        if let Some(refused) = job.refused {
            results.end(index, Err(refused));
            continue;
        }
        let (options, copier) = (options.clone(), copier.clone());
        let (bar, watch, requested_checksums) = (bar.clone(), watch.clone(), command.checksums.clone());
        running.spawn(async move {
            let result = run_job(index, &job, &options, &copier, &bar, &watch).await;
            if let Ok(done) = &result {
                let printed = |kind: &str| {
                    requested_checksums.iter().any(|requested| {
                        matches!(requested.against, Against::PrintTarget | Against::PrintSource)
                            && requested.algorithm.is_none_or(|algorithm| algorithm.name() == kind)
                    })
                };
                checksum_lines(done, printed).iter().for_each(|line| err().line(line));
            }
            let keeps = !options.force && !options.resume && !options.zip_append;
            (
                index,
                result.map(|_| ()).map_err(|error| status_of_job(&error, &job.source, &job.target, keeps)),
            )
        });
    }
    while let Some(ended) = running.join_next().await {
        results.take(Some(ended));
    }
    for job in jobs.known() {
        let index = results.begin();
        results.end(index, Err(job.refused.clone().unwrap_or_else(|| XrdClStatus::error(code::INTERRUPTED))));
    }
    if !jobs.count().1 {
        // The search for further files was interrupted, so an unknown number of jobs is missing.
        let index = results.begin();
        results.end(index, Err(XrdClStatus::error(code::INTERRUPTED)));
    }
    results
}

/// Runs one job. Cancelling all jobs cancels it.
async fn run_job(
    index: usize,
    job: &XrdcpJob,
    options: &CopyOptions,
    copier: &Copier,
    bar: &Arc<JobProgressBar>,
    watch: &Watch,
) -> Result<CopyDone, CopyError> {
    bar.begin(index, job);
    if let Place::Local(path) = &job.target
        && let Some(directory) = path.parent()
    {
        // A failure to create the directory is reported with the file.
        copier.make_directory(&Place::Local(directory.to_owned()), options.sync).await.ok();
    }
    let shown = bar.clone();
    let own = Watch::new(move |progress| shown.progress(index, progress));
    let copy = CopyJob { source: job.source.clone(), target: job.target.clone(), size: job.size };
    let stop = async {
        watch.cancelled().await;
        own.cancel();
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        result = copier.copy(&copy, options, &own) => result,
        () = stop => Err(CopyError::Cancelled),
    };
    bar.end(index);
    result
}

/// Returns the lines of the requested checksums.
fn checksum_lines(done: &CopyDone, printed: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = done.checksums.iter().filter(|(_, checksum)| printed(&checksum.kind));
    let line = |(place, checksum): &(Place, client::FileChecksum)| {
        // For these two, the real program prints the number; for others, the digits.
        let value = match checksum.kind.as_str() {
            "adler32" | "crc32" => xrootd_compat::format::without_zeros(&checksum.value),
            _ => &checksum.value,
        };
        format!("{}: {value} {} {}", checksum.kind, place_names::checksum_line_name(place), done.size)
    };
    lines.map(line).collect()
}
