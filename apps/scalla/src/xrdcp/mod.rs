//! The programs `xrdcp` and `xrdcopy`: copy files to, from and between servers.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | execution of the jobs |
//! | `options`, `usage` | the command line and the help |
//! | `plan`, `sources` | conversion of words to jobs |
//! | `place_names` | names of places, in words and in the output |
//! | `results` | the failures of the jobs |
//! | `failure`, `error_texts` | failures as texts and exit statuses |
//! | `bar` | the progress bar |
//!
//! Options, messages and exit statuses are those of this program in XRootD 5.5.3. The copying
//! itself is `client::copy`, as for `scalla cp`.

mod bar;
pub(crate) mod error_texts;
mod failure;
mod options;
mod place_names;
mod plan;
mod results;
mod sources;
mod usage;

use crate::copy::work;
use crate::environment;
use crate::printer::{err, out};
use crate::stock::{self, INVALID_ARGUMENTS, LICENCE, Side, Status, code};
use bar::Bar;
use client::copy::{
    Against, ChecksumWish, Copier, CopyDone, CopyError, CopyJob, CopyOptions, Place, Rate, ThirdParty, Watch,
};
use client::digest::Algorithm;
use client::{Client, Settings};
use error_texts::of_job;
use failure::{Refusal, UNSUPPORTED_STATUS, told};
pub(crate) use options::words as option_words;
use options::{Instead, Order};
use plan::{Job, Jobs};
use results::Results;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::task::JoinSet;
use usage::{HELP, USAGE};

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut settings = environment::settings();
    let order = match options::parse(stock::words(arguments), &mut settings) {
        Ok(Ok(order)) => order,
        Ok(Err(instead)) => {
            match instead {
                Instead::Help => err().lines(format_args!("{}{}", USAGE, HELP)),
                Instead::Licence => err().lines(LICENCE),
                Instead::Version => err().line(server::VERSION),
            }
            return ExitCode::SUCCESS;
        }
        Err(refusal) => return told(&refusal),
    };
    let watch = Watch::default();
    let work = work::run_telling(order.detail, &watch, async { Ok(copy(order, settings, &watch).await) });
    work.unwrap_or_else(|error| {
        err().lines(format_args!("xrdcp: {error:#}\n"));
        ExitCode::from(UNSUPPORTED_STATUS)
    })
}

async fn copy(mut order: Order, settings: Settings, watch: &Watch) -> ExitCode {
    if order.proxy {
        let text = "SOCKS Proxies are not yet supported\n".to_owned();
        return told(&Refusal::Plain(text, UNSUPPORTED_STATUS));
    }
    let client = Client::with(settings, "xrdcp");
    let mut options = environment::copy_options(client.settings());
    options.force = order.force;
    options.resume = order.resume;
    options.coerce = order.coerce;
    options.persist_on_successful_close = order.posc;
    options.checksums.clone_from(&order.checksums);
    options.sources = order.sources.and_then(|sources| usize::try_from(sources).ok()).unwrap_or(1);
    options.third_party = order.third_party;
    options.zip_member.clone_from(&order.zip_member);
    options.metalinks = client.settings().metalink_processing != 0 && !order.recursive;
    options.zip_append = order.zip_append;
    options.attributes |= order.attributes;
    options.rate = order.rate.map(Rate::new);
    let copier = Copier::new(&client);
    let planned = tokio::select! {
        planned = Jobs::of(&mut order, &options, &copier) => planned,
        () = watch.cancelled() => Err(Refusal::Run(Status::error(code::INTERRUPTED))),
    };
    let mut jobs = match planned.and_then(|jobs| possible(&order, &jobs).map(|()| jobs)) {
        Ok(jobs) => jobs,
        Err(refusal) => return told(&refusal),
    };
    if let Err(status) = can_check_members(&order, &options, &jobs, &copier).await {
        return told(&Refusal::Run(status));
    }
    let shown = !order.no_progress && out().is_terminal();
    let bar = Arc::new(Bar::new(shown, jobs.count(), order.parallel > 1));
    let results = all(&mut jobs, &order, &options, &copier, &bar, watch).await;
    bar.finish();
    results.summary()
}

/// Rejects requests that are known in advance to be impossible.
fn possible(order: &Order, jobs: &Jobs) -> Result<(), Refusal> {
    let not_supported = |text: &str| Err(Refusal::Run(Status::error(code::NOT_SUPPORTED).saying(text)));
    let at_source = || Err(Refusal::Run(Status::error(code::NOT_SUPPORTED).at(Side::Source)));
    if order.zip_append && (order.force || order.resume) {
        let text = "Invalid argument combination: ( continue | force ) + zip-append.";
        return Err(Refusal::Run(INVALID_ARGUMENTS.numbered(libc::EINVAL).saying(text)));
    }
    let is_local = |job: &Job| job.source.url().is_none() || job.target.url().is_none();
    if order.third_party == ThirdParty::Only && jobs.known().any(is_local) {
        return not_supported("Cannot do a third-party-copy for local file.");
    }
    if order.sources.is_some_and(|sources| sources > 1) && jobs.known().any(|job| job.source.url().is_none())
    {
        return at_source();
    }
    Ok(())
}

/// Checks that the requested checksums of archive members are available. An archive contains one
/// checksum of a member, and its server has those of the archive. Other types can only come from a
/// metalink.
async fn can_check_members(
    order: &Order,
    options: &CopyOptions,
    jobs: &Jobs,
    copier: &Copier,
) -> Result<(), Status> {
    let of_archive = |wish: &ChecksumWish| {
        matches!(wish.against, Against::Value(_) | Against::PrintTarget)
            || wish.algorithm.is_none_or(|algorithm| algorithm == Algorithm::Zcrc32)
    };
    let others: Vec<Option<Algorithm>> =
        order.checksums.iter().filter(|wish| !of_archive(wish)).map(|wish| wish.algorithm).collect();
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
            return Err(Status::error(code::NOT_SUPPORTED).at(Side::Source));
        }
    }
    Ok(())
}

/// Runs all jobs, `--parallel` of them concurrently.
async fn all(
    jobs: &mut Jobs,
    order: &Order,
    options: &CopyOptions,
    copier: &Copier,
    bar: &Arc<Bar>,
    watch: &Watch,
) -> Results {
    let mut running = JoinSet::new();
    let mut results = Results::default();
    loop {
        while running.len() >= order.parallel.max(1) {
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
        let (bar, watch, wishes) = (bar.clone(), watch.clone(), order.checksums.clone());
        running.spawn(async move {
            let result = one(index, &job, &options, &copier, &bar, &watch).await;
            if let Ok(done) = &result {
                let printed = |kind: &str| {
                    wishes.iter().any(|wish| {
                        matches!(wish.against, Against::PrintTarget | Against::PrintSource)
                            && wish.algorithm.is_none_or(|algorithm| algorithm.name() == kind)
                    })
                };
                checksums(done, printed).iter().for_each(|line| err().line(line));
            }
            let keeps = !options.force && !options.resume && !options.zip_append;
            (index, result.map(|_| ()).map_err(|error| of_job(&error, &job.source, &job.target, keeps)))
        });
    }
    while let Some(ended) = running.join_next().await {
        results.take(Some(ended));
    }
    for job in jobs.known() {
        let index = results.begin();
        results.end(index, Err(job.refused.clone().unwrap_or_else(|| Status::error(code::INTERRUPTED))));
    }
    results
}

/// Runs one job. Cancelling all jobs cancels it.
async fn one(
    index: usize,
    job: &Job,
    options: &CopyOptions,
    copier: &Copier,
    bar: &Arc<Bar>,
    watch: &Watch,
) -> Result<CopyDone, CopyError> {
    bar.begin(index, job);
    if let Place::Local(path) = &job.target
        && let Some(folder) = path.parent()
    {
        // A failure to create the directory is reported with the file.
        copier.make_directory(&Place::Local(folder.to_owned()), options.sync).await.ok();
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
fn checksums(done: &CopyDone, printed: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = done.checksums.iter().filter(|(_, checksum)| printed(&checksum.kind));
    let line = |(place, checksum): &(Place, client::Checksum)| {
        // For these two, the real program prints the number; for others, the digits.
        let value = match checksum.kind.as_str() {
            "adler32" | "crc32" => stock::text::without_zeros(&checksum.value),
            _ => &checksum.value,
        };
        format!("{}: {value} {} {}", checksum.kind, place_names::told(place), done.size)
    };
    lines.map(line).collect()
}
