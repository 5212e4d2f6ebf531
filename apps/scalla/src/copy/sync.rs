//! `scalla sync`: makes a directory equal to another one.

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Arc;

use client::Client;
use client::copy::{
    Copier, CopyListener, CopyOptions, DirectorySync, Equal, PARALLEL, Place, Reason, SyncStep, Watch,
};
use client::digest::Algorithm;
use serde_json::json;

use super::cp::parallel;
use super::interrupts;
use super::option_values;
use super::reporter::{CopyReporter, PartialFileFate, Style};
use crate::environment;
use crate::printer::{err, out};
use crate::wait_display;
use base::Size;

/// Synchronize a directory with another one: on this machine, at a server, or between servers.
///
/// Files that are missing, differ in size, or are older than in SOURCE are copied. Other files are
/// not changed. Files that exist only in TARGET are kept, unless --delete is given.
#[derive(clap::Args, Debug)]
pub(crate) struct SyncCommand {
    /// Source directory: a path or a URL (root://host//path, https://host/path, s3://bucket/path).
    #[arg(value_name = "SOURCE", value_parser = option_values::parse_place)]
    source: Place,
    /// Target directory: a path or a URL (root://host//path, https://host/path, s3://bucket/path).
    #[arg(value_name = "TARGET", value_parser = option_values::parse_place)]
    target: Place,
    /// Compare checksums of this type instead of times.
    #[arg(long, value_name = "TYPE", value_parser = algorithm, conflicts_with = "size_only")]
    checksum: Option<Algorithm>,
    /// Treat files of the same size as equal.
    #[arg(long)]
    size_only: bool,
    /// Remove files and directories that SOURCE does not have. Nothing is removed if SOURCE is
    /// empty or could not be read completely.
    #[arg(long)]
    delete: bool,
    /// Remove nothing if more than N files and directories would be removed.
    #[arg(long, value_name = "N", requires = "delete")]
    max_delete: Option<u64>,
    /// With --delete: remove everything if SOURCE is empty.
    #[arg(long, requires = "delete")]
    allow_empty: bool,
    /// With --delete: go on while a server of a cluster is away, so that its files look missing.
    #[arg(long, requires = "delete")]
    allow_away: bool,
    /// With --delete at a WebDAV server: remove in directories below TARGET too, although the server does
    /// not show whether they are links.
    #[arg(long, requires = "delete")]
    allow_links: bool,
    /// Keep permission bits in addition to times.
    #[arg(long, short)]
    preserve: bool,
    /// Do not wait until local files are on disk; a file may be empty after a power failure.
    #[arg(long)]
    no_sync: bool,
    /// Print the planned steps without performing them.
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Maximum number of files in progress at the same time.
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = parallel)]
    parallel: usize,
    /// Print failures only.
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Print each file.
    #[arg(long, short)]
    verbose: bool,
    /// Do not show progress.
    #[arg(long, short = 'N')]
    no_progress: bool,
    /// Print each step and the summary as one line of JSON each.
    #[arg(long, conflicts_with_all = ["quiet", "verbose"])]
    json: bool,
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    option_values::parse_checksum(text)
        .and_then(|wish| wish.algorithm.ok_or_else(|| "name a type".to_owned()))
}

impl SyncCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let watch = Watch::default();
        interrupts::run(&watch, self.perform(None, watch.clone()))
    }

    /// Replaces the places of the command line.
    pub(crate) fn set_places(&mut self, source: Place, target: Place) {
        (self.source, self.target) = (source, target);
    }

    /// Runs until `watch` is cancelled, over the connections of `shared` if given.
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
        let sync = DirectorySync {
            source: self.source,
            target: self.target,
            equal,
            delete: self.delete,
            max_delete: self.max_delete,
            allow_empty: self.allow_empty,
            allow_away: self.allow_away,
            allow_links: self.allow_links,
            dry_run: self.dry_run,
            parallel: self.parallel,
            options,
        };
        let show =
            Arc::new(CopyReporter::new(style, !self.no_progress && !self.dry_run, PartialFileFate::Other));
        run(sync, &client, style, show, watch).await
    }
}

async fn run(
    sync: DirectorySync,
    client: &Client,
    style: Style,
    show: Arc<CopyReporter>,
    watch: Watch,
) -> anyhow::Result<ExitCode> {
    let listener: Arc<dyn CopyListener> = show.clone();
    let dry_run = sync.dry_run;
    let plan = DryRunTotals::default();
    let tell = |step: &SyncStep| plan.print_step(step, style, dry_run);
    let copier = Copier::new(client);
    let work = copier.sync(&sync, tell, listener, &watch);
    let done = wait_display::with_wait_display(client, work, |wait| show.refresh(wait)).await;
    show.set_removed(plan.files_removed.get(), plan.directories_removed.get());
    let is_planned = dry_run && done.is_ok();
    let status = show.finish(done, !dry_run);
    if is_planned {
        plan.print_totals(style);
    }
    show.print_suggestions(client).await;
    Ok(status)
}

/// Numbers of the steps done, or to be done in a dry run.
#[derive(Default)]
struct DryRunTotals {
    copies: Cell<u64>,
    bytes: Cell<u64>,
    files_removed: Cell<u64>,
    directories_removed: Cell<u64>,
}

impl DryRunTotals {
    fn print_step(&self, step: &SyncStep, style: Style, dry_run: bool) {
        let (what, place, more) = match step {
            SyncStep::Copy(place, size, reason) => {
                add(&self.copies, 1);
                add(&self.bytes, *size);
                ("copy", place, Some((*size, reason_text(*reason))))
            }
            SyncStep::Remove(place) => {
                add(&self.files_removed, 1);
                ("remove", place, None)
            }
            SyncStep::RemoveDirectory(place) => {
                add(&self.directories_removed, 1);
                ("remove directory", place, None)
            }
        };
        match (style, more) {
            (Style::Json, more) => {
                let mut line = json!({ "kind": "step", "step": what, "target": place.to_string() });
                if let Some((size, reason)) = more {
                    line["size"] = size.into();
                    line["reason"] = reason.into();
                }
                out().json(&line);
            }
            (_, Some((size, reason))) if dry_run => {
                out().line(format_args!("{what} {place} ({}, {reason})", Size(size)));
            }
            // A copy is reported when it is complete.
            (Style::Verbose, None) => out().line(format_args!("{what} {place}")),
            (_, None) if dry_run => out().line(format_args!("{what} {place}")),
            _ => {}
        }
    }

    /// Prints the total of a dry run.
    fn print_totals(&self, style: Style) {
        let Self { copies, bytes, files_removed, directories_removed } = self;
        let (copies, bytes) = (copies.get(), bytes.get());
        let (files, directories) = (files_removed.get(), directories_removed.get());
        match style {
            Style::Json => out().json(&json!({
                "kind": "sum", "copy": copies, "bytes": bytes, "remove": files, "remove_directories": directories,
            })),
            Style::Quiet => {}
            _ => {
                let (copy, size) = (count(copies, "file"), Size(bytes));
                let removed = format!("{}, {}", count(files, "file"), directories_text(directories));
                err().line(format_args!("would copy {copy}, {size}; remove {removed}"));
            }
        }
    }
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn directories_text(number: u64) -> String {
    format!("{number} {}", if number == 1 { "directory" } else { "directories" })
}

/// Describes in one or two words why a file is copied.
const fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Missing => "new",
        Reason::Size => "other size",
        Reason::Newer => "newer",
        Reason::Checksum => "other checksum",
    }
}
