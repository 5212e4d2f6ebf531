//! `scalla cache status`: the contents of a cache, and the counters of its server.

use super::pin::{as_text as pin_text, now};
use super::running::{CacheServer, open, server_of};
use crate::printer::out;
use crate::quantity::{show_bytes, show_count};
use anyhow::Context as _;
use base::{LogicalPath, shown};
use cache::{CachePin, CacheTree};
use serde_json::{Value, json};
use server::admin::{CacheStatus, CachedPin};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print what the cache in DIR contains, and what the server that uses it has done.
///
/// All state files are read, so the figures are exact, also for a cache of XRootD. A server need not run.
#[derive(clap::Args, Debug)]
pub(super) struct CacheStatusCommand {
    /// Directory of the cache.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// The contents of a cache.
#[derive(Default)]
struct CacheContents {
    files: u64,
    complete: u64,
    stored: u64,
    /// The sizes of the files, of which parts are stored.
    size: u64,
    damaged: u64,
    unclaimed: u64,
    foreign: u64,
    unreadable: u64,
    /// Total and used bytes of the file system.
    usage: (u64, u64),
    pins: Vec<CachedPin>,
}

impl CacheStatusCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let tree = open(&self.directory)?;
        let shown_directory = shown(self.directory.as_os_str().as_encoded_bytes()).to_string();
        let failed = || format!("cannot read {shown_directory}");
        let mut contents =
            CacheContents { usage: tree.usage().with_context(failed)?, ..CacheContents::default() };
        let walked = tree.walk(&LogicalPath::root(), |found| {
            for file in found.files {
                contents.files += 1;
                contents.complete += u64::from(file.stored == file.size);
                contents.stored = contents.stored.saturating_add(file.stored);
                contents.size = contents.size.saturating_add(file.size);
            }
            contents.damaged += (found.damaged.len() + found.without_data.len()) as u64;
            contents.unclaimed += found.unclaimed.len() as u64;
            contents.foreign += found.foreign.len() as u64;
            contents.unreadable += found.unreadable.len() as u64;
            Ok(())
        });
        walked.with_context(failed)?;
        let server = server_of(&self.directory);
        contents.pins = match &server {
            Some(server) => server.status.pins.clone(),
            None => stored_pins(&tree).with_context(failed)?,
        };
        if self.json {
            out().json(&as_json(&shown_directory, &contents, server.as_ref()));
        } else {
            out().lines(as_text(&shown_directory, &contents, server.as_ref()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the pins on disk that hold.
fn stored_pins(tree: &CacheTree) -> std::io::Result<Vec<CachedPin>> {
    let now = now();
    let pins = tree.pins()?.into_iter().filter(|pin| pin.holds(now));
    let stored = |pin: CachePin| CachedPin {
        path: pin.path.escaped(),
        expires: pin.expires,
        bytes: None,
        is_kept: true,
    };
    Ok(pins.map(stored).collect())
}

fn as_json(directory: &str, contents: &CacheContents, server: Option<&CacheServer>) -> Value {
    json!({
        "directory": directory,
        "files": contents.files,
        "complete_files": contents.complete,
        "stored_bytes": contents.stored,
        "file_bytes": contents.size,
        "damaged_states": contents.damaged,
        "unclaimed_files": contents.unclaimed,
        "foreign_files": contents.foreign,
        "unreadable": contents.unreadable,
        "disk_total": contents.usage.0,
        "disk_used": contents.usage.1,
        "pins": contents.pins,
        "server": server.map(|server| &server.status),
    })
}

fn as_text(directory: &str, contents: &CacheContents, server: Option<&CacheServer>) -> String {
    let size = |bytes: u64| show_bytes(bytes as f64);
    let mut rows = vec![
        ("directory", directory.to_owned()),
        (
            "files",
            format!("{}, {} of them complete", show_count(contents.files), show_count(contents.complete)),
        ),
        ("stored", format!("{} of {}", size(contents.stored), size(contents.size))),
        ("file system", format!("{} of {} used", size(contents.usage.1), size(contents.usage.0))),
    ];
    let others = [
        ("damaged states", contents.damaged),
        ("not claimed yet", contents.unclaimed),
        ("of others", contents.foreign),
        ("not readable", contents.unreadable),
    ];
    rows.extend(
        others.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, show_count(count))),
    );
    match server {
        Some(server) => rows.extend(server_rows(&server.note, &server.status)),
        None => rows.push(("server", "none that this user may control".to_owned())),
    }
    rows.extend(contents.pins.iter().map(|pin| ("pin", format!("{}, {}", pin.path, pin_text(pin)))));
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a text cannot fail.
        writeln!(text, "{name:<16}{value}").ok();
    }
    text
}

/// Returns the rows about the server.
fn server_rows(note: &str, status: &CacheStatus) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| show_bytes(bytes as f64);
    let CacheStatus { opens, uncached_opens, .. } = status;
    let delivered =
        status.bytes_hit.saturating_add(status.bytes_missed).saturating_add(status.bytes_bypassed);
    let rate = if delivered == 0 { 0.0 } else { 100.0 * status.bytes_hit as f64 / delivered as f64 };
    vec![
        ("server", shown(note).to_string()),
        (
            "stores",
            if status.is_paused { "nothing: the disk is full or has failed" } else { "yes" }.to_owned(),
        ),
        ("open files", show_count(status.open_files)),
        (
            "opens",
            format!(
                "{} ({} of them direct), and {} that were not cached",
                show_count(*opens),
                show_count(status.direct_opens),
                show_count(*uncached_opens)
            ),
        ),
        ("from the disk", format!("{} ({rate:.1} %)", size(status.bytes_hit))),
        (
            "from the origin",
            format!("{}, and {} not stored", size(status.bytes_missed), size(status.bytes_bypassed)),
        ),
        ("in memory", size(status.memory)),
        ("healed blocks", show_count(status.damaged_blocks)),
        (
            "removed",
            format!(
                "{} files and {} parts of files, {}",
                show_count(status.evicted_files),
                show_count(status.evicted_parts),
                size(status.evicted_bytes)
            ),
        ),
    ]
}
