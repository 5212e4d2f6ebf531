//! The programs `xrdcp` and `xrdcopy`: copy files to, from and between servers.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | execution of jobs and their results |
//! | `options` | the command line and the help |
//! | `plan`, `sources` | conversion of words to jobs |
//! | `results` | the failures of the jobs |
//! | `bar` | the progress bar |
//!
//! Options, messages and exit statuses are those of this program in XRootD 5.5.3. The copying
//! itself is `client::copy`, as for `scalla cp`.

mod bar;
mod options;
mod plan;
mod results;
mod sources;

use crate::copy::work;
use crate::environment;
use crate::facts;
use crate::printer::{err, out};
use crate::stock::{self, INVALID_ARGUMENTS, LICENCE, Side, Status, code};
use bar::Bar;
use client::copy::{
    Against, ChecksumWish, Copier, CopyDone, CopyError, CopyJob, CopyOptions, Place, Rate, ThirdParty, Watch,
};
use client::digest::Algorithm;
use client::metalink::MetalinkError;
use client::xroot::ErrorCode;
use client::{Client, Settings};
pub(crate) use options::words as option_words;
use options::{Instead, Order};
use plan::{Job, Jobs};
use results::Results;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Exit status of an invalid command line.
const USAGE_STATUS: u8 = 22;
/// Exit status of a request that is not supported.
const UNSUPPORTED_STATUS: u8 = 50;

/// The reason why nothing was copied.
enum Refusal {
    /// The command line is invalid. The usage follows.
    Usage(String),
    /// A text, and the exit status.
    Plain(String, u8),
    Status(Status),
    /// The failure of the only job.
    Run(Status),
    /// The failure of the preparation, before any copy.
    Prepare(Status),
}

impl Refusal {
    /// Returns the failure of a single job for this reason.
    fn into_status(self) -> Status {
        match self {
            Self::Status(status) | Self::Run(status) | Self::Prepare(status) => status,
            Self::Usage(text) | Self::Plain(text, _) => Status::error(code::INTERNAL).saying(text.trim_end()),
        }
    }
}

fn refuse(text: String) -> Refusal {
    Refusal::Usage(text)
}

/// Runs the program with the arguments after the name.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let mut settings = environment::settings();
    let order = match options::parse(stock::words(arguments), &mut settings) {
        Ok(Ok(order)) => order,
        Ok(Err(instead)) => {
            match instead {
                Instead::Help => err().lines(format_args!("{}{}", options::USAGE, options::HELP)),
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

fn told(refusal: &Refusal) -> ExitCode {
    let (text, exit) = match refusal {
        Refusal::Usage(text) if text.is_empty() => (options::USAGE.to_owned(), ExitCode::from(USAGE_STATUS)),
        Refusal::Usage(text) => (format!("xrdcp: {text}\n{}", options::USAGE), ExitCode::from(USAGE_STATUS)),
        Refusal::Plain(text, status) => (text.clone(), ExitCode::from(*status)),
        Refusal::Status(status) => (format!("{status}\n"), status.exit()),
        Refusal::Run(status) => (format!("Run: {status}\n"), status.exit()),
        Refusal::Prepare(status) => (format!("Prepare: {status}\n"), status.exit()),
    };
    err().lines(text);
    exit
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
            (index, result.map(|_| ()).map_err(|error| of_job(&error, &job, keeps)))
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
        format!("{}: {value} {} {}", checksum.kind, plan::told(place), done.size)
    };
    lines.map(line).collect()
}

/// Converts the error of a metalink that cannot be read.
pub(crate) fn of_metalink(error: &CopyError) -> Status {
    let bad = Status::error(code::DATA_ERROR);
    match error {
        CopyError::Remote { error, .. } => Status::from(error.clone()),
        CopyError::Local { kind, .. } => Status::local_number(facts::errno(*kind)),
        CopyError::Metalink { error: MetalinkError::SeveralFiles(_), .. } => bad,
        CopyError::Metalink { .. } => bad.saying("Malformed or corrupted metalink file."),
        other => Status::error(code::INTERNAL).saying(other.to_string()),
    }
}

/// Converts the error of a copy to the text of these programs.
pub(crate) fn of_copy(error: &CopyError, job: CopyJob) -> Status {
    let CopyJob { source, target, size } = job;
    status(error, &Job { source, target, size, refused: None })
}

/// Converts the error of a job to the text of these programs. With `keeps`, an existing local file
/// is not overwritten, and this error precedes all others.
fn of_job(error: &CopyError, job: &Job, keeps: bool) -> Status {
    match (error, &job.target) {
        (CopyError::Usage(_), Place::Local(path)) if keeps && path.exists() => {
            Status::local_number(libc::EEXIST).at(Side::Destination)
        }
        _ => status(error, job),
    }
}

/// Converts an error to the text of these programs.
fn status(error: &CopyError, job: &Job) -> Status {
    let side_of = |name: &str| if name == job.source.to_string() { Side::Source } else { Side::Destination };
    let of_url = |code: ErrorCode, did: &str, name: &str, why: &str| {
        let place = if side_of(name) == Side::Source { &job.source } else { &job.target };
        let path = place.url().map_or(name, |url| url.path.as_str());
        Status::response(code, format!("Unable to {did} {path}; {why}")).at(side_of(name))
    };
    match error {
        CopyError::Remote { side, error } => {
            let side = if *side == client::copy::Side::Source { Side::Source } else { Side::Destination };
            Status::from(error.clone()).at(side)
        }
        CopyError::Exists(name) if job.target.url().is_some() => {
            of_url(ErrorCode::IT_EXISTS, "create", name, "file exists")
        }
        CopyError::Exists(_) => Status::local_number(libc::EEXIST).at(Side::Destination),
        CopyError::IsDirectory(name) if name.contains("://") => {
            of_url(ErrorCode::IS_DIRECTORY, "open", name, "is a directory")
        }
        CopyError::IsDirectory(name) => Status::local_number(libc::EISDIR).at(side_of(name)),
        CopyError::Local { path, kind, .. } => Status::local_number(facts::errno(*kind)).at(side_of(path)),
        CopyError::Short { .. } => Status::error(code::DATA_ERROR).saying(error.to_string()),
        CopyError::NotContinued { why, .. } => Status::error(code::INVALID_OPERATION).saying(why),
        CopyError::Checksum { .. } => Status::error(code::CHECKSUM_ERROR),
        CopyError::Usage(text) => Status::error(code::NOT_SUPPORTED).saying(text),
        CopyError::Name { .. } => Status::error(code::NOT_SUPPORTED).saying(error.to_string()),
        CopyError::Archive { place, error } => Status::archive(error).at(side_of(place)),
        CopyError::Metalink { .. } => of_metalink(error).at(Side::Source),
        CopyError::NoMirror { last, .. } => Status::no_replicas(Some(&status(last, job))).at(Side::Source),
        CopyError::Size { .. } => Status::error(code::DATA_ERROR).saying(error.to_string()).at(Side::Source),
        CopyError::Slow { .. } => Status::error(code::THRESHOLD_EXCEEDED).at(Side::Source),
        CopyError::Cancelled => Status::error(code::INTERRUPTED),
        CopyError::NoSource { .. } => Status::error(code::NO_REPLICAS),
        other => Status::error(code::INTERNAL).saying(other.to_string()),
    }
}
