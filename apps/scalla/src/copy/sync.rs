//! `scalla sync`: makes a folder like another one.

use std::process::ExitCode;
use std::sync::Arc;

use client::Client;
use client::copy::{Copier, CopyOptions, Equal, Listener, PARALLEL, Place, Step, Sync, Watch};
use client::digest::Algorithm;

use super::asked;
use super::cp::parallel;
use super::show::{Show, Style};
use super::work;
use crate::environment;
use crate::printer::out;

/// Make a directory like another one: here, at a server, or between servers.
///
/// Files that are missing, of another size, or older than in SOURCE are copied; the others stay as they are. What only
/// TARGET has stays too, unless --delete is given.
#[derive(clap::Args, Debug)]
pub(crate) struct SyncCommand {
    /// The directory that is the model: a path or root://host//path.
    #[arg(value_name = "SOURCE", value_parser = asked::place)]
    source: Place,
    /// The directory that is to be like it.
    #[arg(value_name = "TARGET", value_parser = asked::place)]
    target: Place,
    /// Compare checksums of this type instead of times.
    #[arg(long, value_name = "TYPE", value_parser = algorithm, conflicts_with = "size_only")]
    checksum: Option<Algorithm>,
    /// Files of the same size are equal.
    #[arg(long)]
    size_only: bool,
    /// Remove what SOURCE does not have.
    #[arg(long)]
    delete: bool,
    /// Keep permission bits too, not only times.
    #[arg(long, short)]
    preserve: bool,
    /// Do not wait until local files are on the disk: after a loss of power, a file may be empty.
    #[arg(long)]
    no_sync: bool,
    /// Only say what would be done.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Most files at once.
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = parallel)]
    parallel: usize,
    /// Show nothing but failures.
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Name each file.
    #[arg(long, short)]
    verbose: bool,
    /// Show no progress.
    #[arg(long, short = 'N')]
    no_progress: bool,
    /// Tell each step and the sum as a line of JSON.
    #[arg(long, conflicts_with_all = ["quiet", "verbose"])]
    json: bool,
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    asked::checksum(text).and_then(|wish| wish.algorithm.ok_or_else(|| "name a type".to_owned()))
}

impl SyncCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let watch = Watch::default();
        work::run(&watch, self.perform(None, watch.clone()))
    }

    /// Makes other places alike than those of the command line.
    pub(crate) fn set_places(&mut self, source: Place, target: Place) {
        (self.source, self.target) = (source, target);
    }

    /// Works until `watch` is cancelled, over the connections of a client where there is one.
    pub(crate) async fn perform(self, shared: Option<&Client>, watch: Watch) -> anyhow::Result<ExitCode> {
        let client = shared.cloned().unwrap_or_else(|| environment::client("scalla"));
        let style = match (self.quiet, self.verbose, self.json) {
            (true, ..) => Style::Quiet,
            (_, true, _) => Style::Verbose,
            (.., true) => Style::Json,
            _ => Style::Normal,
        };
        let equal = match self.checksum {
            Some(algorithm) => Equal::Checksum(algorithm),
            None if self.size_only => Equal::Size,
            None => Equal::Time,
        };
        let mut options = CopyOptions::of(client.settings());
        options.preserve = self.preserve;
        options.sync &= !self.no_sync;
        let sync = Sync {
            source: self.source,
            target: self.target,
            equal,
            delete: self.delete,
            dry_run: self.dry_run,
            parallel: self.parallel,
            options,
        };
        let show = Arc::new(Show::new(style, !self.no_progress && !self.dry_run));
        run(sync, &client, style, show, watch).await
    }
}

async fn run(
    sync: Sync,
    client: &Client,
    style: Style,
    show: Arc<Show>,
    watch: Watch,
) -> anyhow::Result<ExitCode> {
    let listener: Arc<dyn Listener> = show.clone();
    let dry_run = sync.dry_run;
    let tell = |step: &Step| {
        let (what, place) = match step {
            Step::Copy(place, _) => ("copy", place),
            Step::Remove(place) => ("remove", place),
            Step::RemoveFolder(place) => ("remove directory", place),
        };
        if style == Style::Json {
            out().json(&serde_json::json!({ "step": what, "target": place.to_string() }));
        } else if dry_run || style == Style::Verbose {
            out().line(format_args!("{what} {place}"));
        }
    };
    let done = Copier::new(client).sync(&sync, tell, listener, &watch).await;
    let status = show.end(done, !dry_run);
    show.hint(client).await;
    Ok(status)
}
