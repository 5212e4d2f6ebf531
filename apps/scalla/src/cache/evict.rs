//! `scalla cache evict`: removes files from a cache, through its server if one runs.

use super::pin::now;
use super::running::{locked, path, server_of};
use crate::exit_status::FAILED;
use crate::printer::{err, out};
use base::LogicalPath;
use cache::{CacheKey, CachePin, CacheTree, CacheTreeLock, StoreError};
use serde_json::json;
use server::admin::{AdminError, AdminRequest, EvictionAnswer, ask};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Remove cached files. They are fetched again when clients read them.
///
/// PATH is the name of a file or directory below DIR, with a slash at its begin. If a server of this user uses the cache,
/// the server removes the files. Files that clients have open stay, and pinned ones.
#[derive(clap::Args, Debug)]
pub(super) struct EvictCommand {
    /// Directory of the cache.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Files and directories: `/data/run7`.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<OsString>,
    /// Print a JSON object for each path.
    #[arg(long)]
    json: bool,
}

impl EvictCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let paths = self.paths.iter().map(|name| path(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut has_failed = false;
        if let Some(server) = server_of(&self.directory) {
            for path in paths {
                let request = AdminRequest::EvictCached { path: path.escaped() };
                let answer = match ask(&server.socket, &request) {
                    Err(AdminError::Refused(reason)) => Err(reason),
                    other => Ok(serde_json::from_value(other?)?),
                };
                has_failed |= !self.report(&path, answer);
            }
        } else {
            let (tree, lock) = locked(&self.directory)?;
            for path in paths {
                let removed = remove(&tree, &lock, &path);
                let durable = removed.and_then(|answer| Ok(tree.sync(&lock).map(|()| answer)?));
                let answer = durable.map_err(|error| error.to_string());
                has_failed |= !self.report(&path, answer);
            }
        }
        Ok(if has_failed { FAILED.into() } else { ExitCode::SUCCESS })
    }

    /// Prints the result for a path. Returns whether all files have gone.
    fn report(&self, path: &LogicalPath, answer: Result<EvictionAnswer, String>) -> bool {
        let name = path.escaped();
        let have_gone = answer
            .as_ref()
            .is_ok_and(|answer| answer.removed > 0 && answer.in_use + answer.pinned + answer.failed == 0);
        let is_partial = answer.as_ref().is_ok_and(|answer| answer.is_partial);
        match answer {
            Ok(answer) if self.json => out().json(&json!(answer)),
            Err(reason) if self.json => out().json(&json!({ "path": name, "error": reason })),
            Err(reason) => err().line(format_args!("{name}: {reason}")),
            Ok(EvictionAnswer { removed: 0, in_use: 0, pinned: 0, failed: 0, .. }) => {
                err().line(format_args!("{name}: nothing is cached there"));
            }
            Ok(EvictionAnswer { removed, in_use, pinned, failed, .. }) => {
                let stay = |count: u64, why: &str| {
                    if count > 0 { format!(", {count} {why}") } else { String::new() }
                };
                let (in_use, pinned) = (stay(in_use, "in use"), stay(pinned, "pinned"));
                let failed = stay(failed, "could not be removed");
                out().line(format_args!("{name}: {removed} removed{in_use}{pinned}{failed}"));
            }
        }
        if is_partial && !self.json {
            let hint = "scalla cache status says when all files are known";
            err().line(format_args!(
                "{name}: files that the server has not found yet may stay; repeat it later: {hint}"
            ));
        }
        have_gone && !is_partial
    }
}

/// Removes the files at and below a path.
fn remove(tree: &CacheTree, lock: &CacheTreeLock, path: &LogicalPath) -> Result<EvictionAnswer, StoreError> {
    let mut answer = EvictionAnswer {
        path: path.escaped(),
        removed: 0,
        in_use: 0,
        pinned: 0,
        failed: 0,
        is_partial: false,
    };
    let (now, pins) = (now(), tree.pins()?);
    let is_pinned = |key: &CacheKey| pins.iter().any(|pin: &CachePin| pin.holds(now) && pin.covers(key));
    let mut remove = |key: CacheKey| match tree.remove(&key, lock) {
        Ok(true) => answer.removed += 1,
        Ok(false) | Err(StoreError::Foreign) => {}
        Err(StoreError::Disk(_)) => answer.failed += 1,
    };
    if let Some(key) = CacheKey::new(path).filter(|key| !is_pinned(key)) {
        remove(key);
    }
    let mut pinned = 0;
    let walked = tree.walk(path, |found| {
        let files = found.files.into_iter().map(|file| file.key);
        let (kept, others): (Vec<_>, Vec<_>) = files.partition(&is_pinned);
        pinned += kept.len() as u64;
        let others = others.into_iter().chain(found.without_data).chain(found.damaged);
        others.chain(found.unclaimed).for_each(&mut remove);
        Ok(())
    });
    match walked {
        // It is a file.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
        other => other?,
    }
    answer.pinned = pinned;
    Ok(answer)
}
