//! `scalla cp`: copies files to, from and between servers.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use client::copy::{
    ChecksumWish, Copier, CopyAll, CopyDelegation, CopyListener, CopyOptions, PARALLEL, Place, Rate,
    SOURCES_MAX, ThirdParty, Watch,
};
use client::{Client, Settings, Source};

use super::interrupts;
use super::option_values;
use super::reporter::{CopyReporter, PartialFileFate, Style};
use crate::environment;
use crate::usage_error::UsageError;
use crate::wait_display;

/// Copy files to, from and between servers.
///
/// A PLACE is a path, a URL (root://host//path, https://host/path or s3://bucket/path, which may contain wildcards), or - for
/// standard input and output. A file appears under its final name only when it is complete.
#[derive(clap::Args, Debug)]
pub(crate) struct CpCommand {
    /// Sources, followed by the target.
    #[arg(value_name = "PLACE", value_parser = option_values::parse_place, num_args = 1.., required_unless_present = "from")]
    places: Vec<Place>,
    /// Also copy the sources listed in this file, one per line (- is standard input).
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Overwrite existing files.
    #[arg(long, short)]
    force: bool,
    /// Resume an incomplete earlier copy, and keep the incomplete file if this copy fails.
    #[arg(long = "continue", short = 'c', conflicts_with = "force")]
    resume: bool,
    /// Copy directories with everything below them.
    #[arg(long, short)]
    recursive: bool,
    /// Keep times and permission bits (at servers: permission bits).
    #[arg(long, short)]
    preserve: bool,
    /// Compare the checksums of source and target (TYPE), or compare with a value (TYPE:VALUE).
    /// Print the checksum of the target (TYPE:print) or the source (TYPE:source). TYPE may be auto.
    #[arg(long, value_name = "TYPE[:…]", value_parser = option_values::parse_checksum)]
    checksum: Vec<ChecksumWish>,
    /// Parallel connections for the data of each file.
    #[arg(long, short = 'S', value_name = "N", value_parser = clap::value_parser!(u64).range(1..=15))]
    streams: Option<u64>,
    /// Read each file from all servers that have it, at most N at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=SOURCES_MAX as i64))]
    sources: Option<u8>,
    /// Read each file from all servers that have it; the same as --sources 32.
    #[arg(short = 'x', conflicts_with = "sources")]
    extreme: bool,
    /// Copy directly between servers, without passing the data through this machine. With `first`,
    /// use this machine if a server does not support it; with `only`, fail. With `delegate`, the target's
    /// server reads the source as you, by a proxy that you delegate to it (gsi), or fails.
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["sources", "extreme", "resume"])]
    tpc: Option<ThirdPartyChoice>,
    /// Copy this member of the source, which is a ZIP archive; equivalent to ?xrdcl.unzip=MEMBER in
    /// a URL.
    #[arg(long, value_name = "MEMBER")]
    zip: Option<String>,
    /// Add the source to the target, which is a ZIP archive at a server.
    #[arg(long, conflicts_with_all = ["force", "resume", "recursive", "tpc"])]
    zip_append: bool,
    /// Copy extended attributes too.
    #[arg(long)]
    xattrs: bool,
    /// Limit the copy to RATE bytes per second; accepts the suffixes k, m and g.
    #[arg(long, value_name = "RATE", value_parser = option_values::parse_rate)]
    rate: Option<u64>,
    /// Abort the copy of a file that is slower than RATE bytes per second for 10 s.
    #[arg(long, value_name = "RATE", value_parser = option_values::parse_rate)]
    rate_min: Option<u64>,
    /// Maximum number of files in progress at the same time.
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = parallel)]
    parallel: usize,
    /// Keep the file at the server only if it is closed successfully.
    #[arg(long, short = 'P')]
    posc: bool,
    /// Ignore locks of other readers and writers.
    #[arg(long)]
    coerce: bool,
    /// Write under the final name from the first byte on.
    #[arg(long)]
    in_place: bool,
    /// Do not wait until local targets are on disk; a file may be empty after a power failure.
    #[arg(long)]
    no_sync: bool,
    /// Transfer data without page checksums.
    #[arg(long)]
    no_verify: bool,
    /// Retry a failed copy up to N times.
    #[arg(long, value_name = "N")]
    retry: Option<u64>,
    /// Print failures only.
    #[arg(long, short, conflicts_with_all = ["verbose", "json"])]
    quiet: bool,
    /// Print each file when its copy is complete.
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,
    /// Do not show progress.
    #[arg(long, short = 'N')]
    no_progress: bool,
    /// Print each file and the summary as one line of JSON each.
    #[arg(long)]
    json: bool,
}

/// Use of third-party copies.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ThirdPartyChoice {
    First,
    Only,
    Delegate,
}

pub(super) fn parallel(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=1024).contains(number)).ok_or_else(|| "1 to 1024".to_owned())
}

impl CpCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let watch = Watch::default();
        interrupts::run(&watch, self.perform(None, watch.clone()))
    }

    /// Replaces the places of the command line: the sources, followed by the target.
    pub(crate) fn set_places(&mut self, places: Vec<Place>) {
        self.places = places;
    }

    /// Reports whether a file lists more sources.
    pub(crate) const fn has_list(&self) -> bool {
        self.from.is_some()
    }

    /// Copies until `watch` is cancelled, over the connections of `shared` if given.
    pub(crate) async fn perform(mut self, shared: Option<&Client>, watch: Watch) -> anyhow::Result<ExitCode> {
        let mut settings = environment::settings();
        if let Some(streams) = self.streams {
            // The connection for requests is additional.
            settings.set("SubStreamsPerChannel", &(streams + 1).to_string(), Source::Option)?;
        }
        let (sources, target) = self.places(&settings)?;
        let options = self.options(&settings);
        let style = match (self.quiet, self.verbose, self.json) {
            (true, ..) => Style::Quiet,
            (_, true, _) => Style::Verbose,
            (.., true) => Style::Json,
            _ => Style::Normal,
        };
        let leftover = match target.url() {
            // The server decides whether an interrupted upload leaves a part.
            Some(url) if url.is_http() => PartialFileFate::Other,
            _ => self.leftover(),
        };
        let all = CopyAll { sources, target, recursive: self.recursive, parallel: self.parallel, options };
        let show = Arc::new(CopyReporter::new(style, !self.no_progress, leftover));
        // The number of streams is a setting of the client, so it needs a client of its own.
        let client = match shared {
            Some(client) if self.streams.is_none() => client.clone(),
            _ => environment::client_with(settings, "scalla"),
        };
        copy(all, &client, show, watch).await
    }

    /// Returns what an interrupt leaves of a file.
    const fn leftover(&self) -> PartialFileFate {
        match (self.resume, self.tpc, self.in_place, self.zip_append) {
            (true, ..) => PartialFileFate::Kept,
            (_, None, false, false) => PartialFileFate::Removed,
            _ => PartialFileFate::Other,
        }
    }

    fn options(&self, settings: &Settings) -> CopyOptions {
        let mut options = environment::copy_options(settings);
        options.force = self.force;
        options.resume = self.resume;
        options.preserve = self.preserve;
        options.in_place = self.in_place;
        options.sync &= !self.no_sync;
        options.persist_on_successful_close = self.posc;
        options.coerce = self.coerce;
        options.sources = match self.sources {
            Some(sources) => usize::from(sources),
            None if self.extreme => SOURCES_MAX,
            None => 1,
        };
        options.pages &= !self.no_verify;
        options.third_party = match self.tpc {
            None => ThirdParty::Never,
            Some(ThirdPartyChoice::First) => ThirdParty::First,
            Some(ThirdPartyChoice::Only | ThirdPartyChoice::Delegate) => ThirdParty::Only,
        };
        if self.tpc == Some(ThirdPartyChoice::Delegate) {
            options.delegation = CopyDelegation::Required;
        }
        options.zip_member.clone_from(&self.zip);
        options.zip_append = self.zip_append;
        // In a recursive copy, metalinks are ordinary files.
        options.metalinks = settings.metalink_processing != 0 && !self.recursive;
        options.attributes |= self.xattrs;
        options.rate = self.rate.map(Rate::new);
        options.rate_min = self.rate_min.or(options.rate_min);
        options.checksums.clone_from(&self.checksum);
        options.retries = self.retry.unwrap_or(options.retries);
        options
    }

    /// Returns the sources and the target.
    fn places(&mut self, settings: &Settings) -> anyhow::Result<(Vec<Place>, Place)> {
        let mut places = std::mem::take(&mut self.places);
        let listed = match &self.from {
            Some(file) => read_list(file)?,
            None => Vec::new(),
        };
        let alone = places.len() < 2 && listed.is_empty();
        let target = match (alone, settings.cp_target.as_str()) {
            (false, _) => places.pop(),
            (true, "") => None,
            (true, target) => Some(option_values::parse_place(target).map_err(anyhow::Error::msg)?),
        };
        let Some(target) = target else {
            return Err(UsageError("where to is missing: scalla cp SOURCE… TARGET".to_owned()).into());
        };
        places.extend(listed);
        if places.len() > 1 && places.contains(&Place::Stream) {
            let text = "standard input goes to one file; copy the others without it";
            return Err(UsageError(text.to_owned()).into());
        }
        Ok((places, target))
    }
}

/// Reads places from a file, one per line.
fn read_list(file: &str) -> anyhow::Result<Vec<Place>> {
    let text =
        if file == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    let text = text.with_context(|| format!("cannot read {file}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            option_values::parse_place(line.trim())
                .map_err(|error| anyhow::anyhow!("{file}:{}: {error}", index + 1))
        })
        .collect()
}

async fn copy(
    all: CopyAll,
    client: &Client,
    show: Arc<CopyReporter>,
    watch: Watch,
) -> anyhow::Result<ExitCode> {
    let listener: Arc<dyn CopyListener> = show.clone();
    let copier = Copier::new(client);
    let work = copier.copy_all(&all, listener, &watch);
    let done = wait_display::with_wait_display(client, work, |wait| show.refresh(wait)).await;
    let status = show.finish(done, true);
    show.print_suggestions(client).await;
    Ok(status)
}
