//! `frm_purged`: purges while no server does them, and one purge at once.

use super::configured_paths::{ConfiguredPaths, DaemonEvents};
use super::{DaemonEnd, DaemonParts, open_tree};
use crate::error::StartError;
use crate::purging::{policy_program, purge_policies, turn};
use crate::residency::remote_catalog;
use base::LogicalPath;
use config::Effective;
use residency::{
    DaemonClaim, ExaminedFile, FreeSpaceMark, PurgePolicies, PurgePolicy, PurgeThread, PurgeTurn, Purger,
    ResidencyPaths as _, STOP_PURGE_FILE,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::posix::SPACE_DEFAULT;

/// The policy without `frm.purge.policy`, which is that of XRootD's program.
const POLICY_DEFAULT: PurgePolicy = PurgePolicy {
    low: FreeSpaceMark::Percent(2),
    high: FreeSpaceMark::Percent(3),
    hold: 20 * 3600,
    asks_program: false,
};

/// The options of `frm_purged`.
#[derive(Clone, Default, Debug)]
pub struct PurgeOptions {
    /// `-w`: the interval between two purges.
    pub interval: Option<Duration>,
    /// `-O`: one purge at once.
    pub order: Option<PurgeOrder>,
    /// Spaces and paths to be purged; all if there are none.
    pub words: Vec<String>,
    /// `-T`: only report what would be purged, once.
    pub is_test: bool,
}

/// `-O FREE[,HOLD]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeOrder {
    /// The space that is free afterwards, if enough files may go: a percentage, or bytes.
    pub free: PurgeFree,
    /// The hold time in place of that of the configuration.
    pub hold: Option<Duration>,
}

/// An amount of free space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PurgeFree {
    /// A part of the file system.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

fn fail<T>(text: impl Into<String>) -> Result<T, StartError> {
    Err(StartError::Residency(text.into()))
}

/// Returns the policies of a daemon. Spaces among the words restrict the purge to their files.
fn policies(effective: &Effective, options: &PurgeOptions) -> Result<PurgePolicies, StartError> {
    let rules = &effective.residency;
    let has_rule = !rules.purge.origin.is_default() || !rules.purge_spaces.is_empty();
    let configured = if has_rule { purge_policies(effective) } else { POLICY_DEFAULT.into() };
    let asks_program = rules.purge_rules().any(|rule| rule.asks_program);
    let policies = chosen(configured, options, asks_program);
    match policies.are_active() {
        true => Ok(policies),
        false => fail(
            "frm.purge.policy purges nothing (nopurge, or hold forever); name a space to purge it with -O",
        ),
    }
}

/// Returns what the options make of the configured policies. An order changes how much is free afterwards, and the hold
/// time if it has one. A space that is not purged otherwise has to be named.
fn chosen(mut policies: PurgePolicies, options: &PurgeOptions, asks_program: bool) -> PurgePolicies {
    let mut named = options.words.iter().filter(|word| !word.starts_with('/')).peekable();
    if named.peek().is_some() {
        let ordered = options.order.map(|_| PurgePolicy { asks_program, ..POLICY_DEFAULT });
        let wanted = named.map(|space| (space.clone(), policies.of(space).copied().or(ordered)));
        policies = PurgePolicies { default: None, spaces: wanted.collect() };
    }
    if let Some(order) = options.order {
        let mark = match order.free {
            PurgeFree::Percent(percent) => FreeSpaceMark::Percent(percent),
            PurgeFree::Bytes(bytes) => FreeSpaceMark::Bytes(bytes),
        };
        for policy in policies.default.iter_mut().chain(policies.spaces.values_mut().flatten()) {
            (policy.low, policy.high) = (mark, mark);
            policy.hold = order.hold.map_or(policy.hold, |hold| hold.as_secs());
        }
    }
    policies
}

/// Returns the paths to be purged.
fn wanted_paths(effective: &Effective, words: &[String]) -> Result<Vec<LogicalPath>, StartError> {
    let all = ConfiguredPaths::new(effective, Vec::new());
    let mut paths = Vec::new();
    for word in words {
        if !word.starts_with('/') {
            if word != SPACE_DEFAULT && !effective.storage.spaces.iter().any(|space| space.name == *word) {
                return fail(format!("Space {word} not defined."));
            }
            continue;
        }
        match LogicalPath::parse(word.as_bytes()) {
            Ok(path) if all.of(&path).purge => paths.push(path),
            _ => return fail(format!("{word} not marked purgeable")),
        }
    }
    Ok(paths)
}

fn purger(effective: &Effective, options: &PurgeOptions) -> Result<Purger, StartError> {
    if !effective.storage.exports.iter().any(|export| export.attributes.purge) {
        return fail("no export is purged: see purge of all.export");
    }
    Ok(Purger {
        paths: Arc::new(ConfiguredPaths::new(effective, wanted_paths(effective, &options.words)?)),
        backend: Arc::new(open_tree(effective)?),
        events: Arc::new(DaemonEvents::of(effective)?),
        catalog: remote_catalog(effective)?,
        stop_file: Some(effective.transfer_directory().join(STOP_PURGE_FILE)),
        policies: policies(effective, options)?,
        program: policy_program(effective).map_err(StartError::Residency)?,
        directory_hold: effective.residency.purge_directories.value,
    })
}

/// Purges until a signal, or once.
pub(super) async fn run(
    parts: &mut DaemonParts,
    claim: Option<&DaemonClaim>,
    options: &PurgeOptions,
    ready: impl FnOnce() -> Result<(), StartError>,
) -> Result<DaemonEnd, StartError> {
    let effective = parts.effective.clone();
    let purger = purger(&effective, options)?;
    ready()?;
    if options.is_test {
        return finish(parts, move || report(&purger)).await;
    }
    let directory = effective.transfer_directory();
    let Some(claim) = claim else {
        let turn = match wait_for_turn(parts, &directory).await {
            Some(turn) => turn,
            None => return Ok(DaemonEnd::Done),
        };
        return finish(parts, move || purge_once(&purger, turn)).await;
    };
    let interval = options.interval.unwrap_or(effective.residency.purge_interval.value);
    let for_server = claim.server_probe().map_err(|error| StartError::Residency(error.to_string()))?;
    // A server that purges has precedence.
    let stands_by = AtomicBool::new(false);
    let take = move || {
        let is_for_server = for_server();
        if is_for_server && !stands_by.swap(is_for_server, Ordering::Relaxed) {
            tracing::info!("standing by: a server purges");
        }
        stands_by.store(is_for_server, Ordering::Relaxed);
        if is_for_server { None } else { turn(&directory) }
    };
    let _thread = PurgeThread::start(purger, interval, Box::new(take))
        .map_err(|source| StartError::System { what: "the thread of purges", source })?;
    while !parts.signals.is_end(&parts.log).await {}
    Ok(DaemonEnd::Done)
}

/// Runs work on a thread until its end, or that of the process.
async fn finish(
    parts: &mut DaemonParts,
    work: impl FnOnce() + Send + 'static,
) -> Result<DaemonEnd, StartError> {
    let (done, mut ended) = tokio::sync::oneshot::channel();
    let work = move || {
        work();
        done.send(()).ok();
    };
    std::thread::Builder::new()
        .name("purge".to_owned())
        .spawn(work)
        .map_err(|source| StartError::System { what: "the thread of purges", source })?;
    loop {
        tokio::select! {
            _ = &mut ended => return Ok(DaemonEnd::Done),
            is_end = parts.signals.is_end(&parts.log) => if is_end {
                return Ok(DaemonEnd::Done);
            },
        }
    }
}

/// Waits until no other process purges. `None` if this one is to end.
async fn wait_for_turn(parts: &mut DaemonParts, directory: &Path) -> Option<PurgeTurn> {
    let mut has_noted = false;
    loop {
        if let Some(turn) = turn(directory) {
            return Some(turn);
        }
        if !has_noted {
            tracing::info!("waiting for the end of the purge of another process");
            has_noted = true;
        }
        if parts.signals.is_end(&parts.log).await {
            return None;
        }
    }
}

fn purge_once(purger: &Purger, _turn: PurgeTurn) {
    tracing::info!("Purge cycle started.");
    let outcome = purger.purge();
    if outcome.is_stopped {
        tracing::warn!("nothing is purged any more, because the file {STOP_PURGE_FILE} exists");
    }
    for export in &outcome.short {
        tracing::warn!(export = %export.shown(), "the file system has too little free space, and no further file may be purged");
    }
    let (files, bytes, directories) = (outcome.files, outcome.bytes, outcome.directories);
    tracing::info!(files, bytes, directories, "Purge cycle ended.");
}

/// Reports which files may go.
fn report(purger: &Purger) {
    purger.examine(None, &mut |ExaminedFile { path, size, kept }| {
        match kept {
            None => tracing::info!(path = %path.shown(), size, "Zorch"),
            Some(reason) => tracing::info!(path = %path.shown(), size, "stays: {reason}"),
        }
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(percent: u8, hold: u64) -> PurgePolicy {
        let mark = FreeSpaceMark::Percent(percent);
        PurgePolicy { low: mark, high: mark, hold, asks_program: false }
    }

    /// `* 5% hold 1h`, `hot 5% hold 30d`, and `archive nopurge`.
    fn configured() -> PurgePolicies {
        let spaces = [("hot", Some(policy(5, 2_592_000))), ("archive", None)];
        PurgePolicies {
            default: Some(policy(5, 3600)),
            spaces: spaces.map(|(name, policy)| (name.to_owned(), policy)).into(),
        }
    }

    fn ordered(hold: Option<u64>, words: &[&str]) -> PurgePolicies {
        let order = PurgeOrder { free: PurgeFree::Percent(20), hold: hold.map(Duration::from_secs) };
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        chosen(configured(), &PurgeOptions { order: Some(order), words, ..PurgeOptions::default() }, false)
    }

    #[test]
    fn an_order_keeps_the_hold_times_and_the_spaces_that_are_not_purged() {
        let policies = ordered(None, &["/store"]);
        assert_eq!(policies.default, Some(policy(20, 3600)));
        assert_eq!(policies.of("hot"), Some(&policy(20, 2_592_000)));
        assert_eq!(policies.of("archive"), None);
        assert_eq!(ordered(Some(0), &[]).of("hot"), Some(&policy(20, 0)));
        assert_eq!(ordered(Some(0), &[]).of("archive"), None);
    }

    #[test]
    fn spaces_that_are_named_restrict_an_order_with_paths_too() {
        let policies = ordered(None, &["hot", "/store"]);
        assert_eq!((policies.default, policies.of("hot")), (None, Some(&policy(20, 2_592_000))));
        assert_eq!((policies.of("public"), policies.of("archive")), (None, None));
        assert_eq!(ordered(None, &["archive"]).of("archive"), Some(&policy(20, POLICY_DEFAULT.hold)));
    }
}
