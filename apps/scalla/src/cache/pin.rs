//! `scalla cache pin` and `unpin`: cached files that stay, through the server of the cache if one runs.

use super::running::{CacheServer, locked, path, server_of};
use crate::exit_status::FAILED;
use crate::local_time::local_time;
use crate::printer::{err, out};
use crate::quantity::{configured_time, show_bytes};
use anyhow::Context as _;
use base::LogicalPath;
use cache::{CachePin, CacheTree};
use serde_json::{Value, json};
use server::admin::{AdminError, AdminRequest, CachedPin, ask};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest time of a pin, in seconds.
const TIME_MAX: u64 = 366 * 86_400;

/// Keep cached files until a time: they are not removed to make room, for quotas or for their age.
///
/// PATH is the name of a file or directory below DIR. A directory stands for all files below it, also those that are
/// cached later. Nothing is fetched. Pinned files have at most half of the cache. A new order for a path replaces its
/// end. Files that change at the origin are fetched anew as without a pin.
#[derive(clap::Args, Debug)]
pub(super) struct PinCommand {
    /// Directory of the cache.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Files and directories: `/data/run7`.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// End the pin after TIME: `90`, `10m`, `2d`; 366d at most.
    #[arg(long = "for", value_name = "TIME", value_parser = pin_time, default_value = "7d")]
    duration: Duration,
    /// Print a JSON object for each path.
    #[arg(long)]
    json: bool,
}

/// End pins of cached files.
#[derive(clap::Args, Debug)]
pub(super) struct UnpinCommand {
    /// Directory of the cache.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The paths of the pins, as `scalla cache status` prints them.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print a JSON object for each path.
    #[arg(long)]
    json: bool,
}

fn pin_time(text: &str) -> Result<Duration, String> {
    let time = configured_time(text)?;
    let is_allowed = (1..=TIME_MAX).contains(&time.as_secs());
    is_allowed.then_some(time).ok_or_else(|| "it is not between 1 and 366d".to_owned())
}

impl PinCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let seconds = self.duration.as_secs();
        let created = now();
        let by_server = |path: &LogicalPath| AdminRequest::PinCached { path: path.escaped(), seconds };
        for_each(&self.directory, &self.paths, self.json, by_server, |tree, lock, path| {
            let expires = created.saturating_add(i64::try_from(seconds)?);
            tree.pin(CachePin { path: path.clone(), created, expires }, lock)?;
            Ok(json!(CachedPin { path: path.escaped(), expires, bytes: None, is_kept: true }))
        })
    }
}

impl UnpinCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let by_server = |path: &LogicalPath| AdminRequest::UnpinCached { path: path.escaped() };
        for_each(&self.directory, &self.paths, self.json, by_server, |tree, lock, path| {
            anyhow::ensure!(tree.unpin(path, lock)?, "there is no pin of this path");
            Ok(json!({ "path": path.escaped(), "state": "not pinned" }))
        })
    }
}

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Changes the pins of paths, through the server or on disk, and prints the results.
fn for_each(
    directory: &Path,
    paths: &[OsString],
    is_json: bool,
    request: impl Fn(&LogicalPath) -> AdminRequest,
    change: impl Fn(&CacheTree, &cache::CacheTreeLock, &LogicalPath) -> anyhow::Result<Value>,
) -> anyhow::Result<ExitCode> {
    let paths = paths.iter().map(|name| path(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut has_failed = false;
    let mut report = |path: &LogicalPath, answer: Result<Value, String>| {
        has_failed |= answer.is_err();
        print(&path.escaped(), answer, is_json);
    };
    if let Some(CacheServer { socket, .. }) = server_of(directory) {
        for path in &paths {
            match ask(&socket, &request(path)) {
                Err(AdminError::Refused(reason)) => report(path, Err(reason)),
                other => report(path, Ok(other.context("the server does not answer")?)),
            }
        }
    } else {
        let (tree, lock) = locked(directory)?;
        for path in &paths {
            report(path, change(&tree, &lock, path).map_err(|error| error.to_string()));
        }
    }
    Ok(if has_failed { FAILED.into() } else { ExitCode::SUCCESS })
}

fn print(path: &str, answer: Result<Value, String>, is_json: bool) {
    match answer {
        Ok(mut answer) if is_json => {
            // The field `ok` of an answer is for the protocol of the socket.
            answer.as_object_mut().map(|object| object.remove("ok"));
            out().json(&answer);
        }
        Err(reason) if is_json => out().json(&json!({ "path": path, "error": reason })),
        Err(reason) => err().line(format_args!("{path}: {reason}")),
        Ok(answer) => match serde_json::from_value::<CachedPin>(answer) {
            Ok(pin) => out().line(format_args!("{path}: {}", as_text(&pin))),
            Err(_) => out().line(format_args!("{path}: not pinned")),
        },
    }
}

/// Returns a pin as text, without its path.
pub(super) fn as_text(pin: &CachedPin) -> String {
    let end = local_time(pin.expires, "%Y-%m-%d %H:%M:%S").unwrap_or_else(|| pin.expires.to_string());
    let bytes = pin.bytes.map(|bytes| format!(", {}", show_bytes(bytes as f64))).unwrap_or_default();
    let effect =
        if pin.is_kept { "" } else { ", without effect: pinned files have more than half of the cache" };
    format!("pinned until {end}{bytes}{effect}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_has_an_end() {
        assert_eq!(pin_time("2d"), Ok(Duration::from_secs(172_800)));
        assert_eq!(pin_time("366d").map(|time| time.as_secs()), Ok(TIME_MAX));
        for text in ["0", "367d", "forever", ""] {
            assert!(pin_time(text).is_err(), "{text}");
        }
    }
}
