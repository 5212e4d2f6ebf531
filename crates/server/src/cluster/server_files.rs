//! The files of a server, or of the file system that all its servers share (`cms.dfs lookup
//! central`): bounded lookups of names, and the inventory for a parent.
//!
//! The cluster's thread must not wait for the storage, because it serves all nodes. Names in memory
//! are answered immediately, others by the pool of their file system, and the result arrives
//! through the inbox of the cluster's thread. Change events of different threads can arrive out of
//! order, so an event only triggers a stat; the result of the stat is reported (decision 029).

use super::connection::ConnectionOutbox;
use super::pending_stats::{PendingStat, PendingStats, StatReason};
use super::state_file::spawn_blocking_thread;
use base::LogicalPath;
use cluster::tree::Extensions;
use cluster::{LookupDecision, LookupLimiter, LookupLimits};
use logical::{IncompleteReason, Logical, PathPresence};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use wire::cms::flags::InventoryModifier;
use wire::cms::message::PathBatch;
use wire::cms::{Message as Wire, StreamId};

/// Bytes that may wait for a parent while an inventory is sent. The limit gives all other messages
/// priority.
const INVENTORY_WAITING_MAX: usize = 256 * 1024;

/// The interval between two checks for back-pressure of a parent during an inventory.
const INVENTORY_PAUSE: Duration = Duration::from_millis(10);

/// A stat and its result.
pub(super) type StatResult = (LogicalPath, u64, PathPresence);

/// A callback for results of stats, on any thread.
pub(super) type StatCallback = Arc<dyn Fn(Vec<StatResult>) + Send + Sync>;

/// The outcome of a request for the state of a path.
pub(super) struct PathState {
    pub(super) path: LogicalPath,
    /// The state; `None` if no stat was made because too many wait.
    pub(super) presence: Option<PathPresence>,
    pub(super) wanted: StatReason,
}

/// The files of this server, and the requests that wait for stats.
pub(super) struct ServerFiles {
    logical: Arc<Logical>,
    results: StatCallback,
    pending_stats: PendingStats,
    /// Rate limit of stats, and the names known to be absent.
    looks: LookupLimiter,
    findings: VecDeque<PathState>,
    /// Number of the last stat.
    last: u64,
    /// Number of times that the inventories of parents became invalid.
    voided: Rc<Cell<u64>>,
    /// Stats that start as one batch, after all received messages were read.
    later: Vec<(LogicalPath, u64)>,
}

impl ServerFiles {
    pub(super) fn new(logical: Arc<Logical>, results: StatCallback, rules: LookupLimits) -> Self {
        Self {
            logical,
            results,
            pending_stats: PendingStats::default(),
            looks: LookupLimiter::new(rules),
            findings: VecDeque::new(),
            last: 0,
            voided: Rc::default(),
            later: Vec::new(),
        }
    }

    /// Returns the time at which the next queued stat may start.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.looks.next_deadline()
    }

    /// Records that a path has appeared.
    pub(super) fn appeared(&mut self, path: &[u8]) {
        self.looks.appeared(path);
    }

    /// Handles the notice of a parent that a file is needed.
    pub(super) fn renew(&self, path: &LogicalPath) {
        self.logical.freshen(path);
    }

    /// Removes the next finding.
    pub(super) fn next_finding(&mut self) -> Option<PathState> {
        self.findings.pop_front()
    }

    /// Stats a path, now or later. A result in memory is a finding immediately.
    pub(super) fn look_at(&mut self, path: LogicalPath, wanted: StatReason, now: Duration) {
        if let Some(waiting) = self.pending_stats.get_mut(&path) {
            return waiting.add(wanted);
        }
        let look = match wanted {
            StatReason::Answer(_) | StatReason::Machine => self.looks.request(path.as_bytes(), now),
            StatReason::News | StatReason::Directory => LookupDecision::Now,
        };
        match look {
            LookupDecision::Now => self.begin(path, vec![wanted], now),
            LookupDecision::Later => {
                self.pending_stats.insert(path, PendingStat { number: None, wanted: vec![wanted] })
            }
            LookupDecision::Missing => self.found(path, Some(PathPresence::NotHere), wanted),
            LookupDecision::Refused => {
                tracing::debug!("{} is not looked up: too much waits for its turn", path.shown());
                self.found(path, None, wanted);
            }
        }
    }

    fn begin(&mut self, path: LogicalPath, wanted: Vec<StatReason>, now: Duration) {
        if let Some(presence) = self.logical.look_now(&path) {
            return wanted.into_iter().for_each(|wanted| self.apply_stat(&path, presence, wanted, now));
        }
        if !self.pending_stats.has_room() {
            tracing::debug!("{} is not looked up: too many looks wait for a disk", path.shown());
            return wanted.into_iter().for_each(|wanted| self.found(path.clone(), None, wanted));
        }
        self.last += 1;
        self.later.push((path.clone(), self.last));
        self.pending_stats.insert(path, PendingStat { number: Some(self.last), wanted });
    }

    /// Starts the queued stats that the rate limit permits.
    pub(super) fn look_in_turn(&mut self, now: Duration) {
        while let Some(path) = self.looks.due(now) {
            let Ok(path) = LogicalPath::parse(&path) else { continue };
            // A stat may have run meanwhile because the file was created or removed.
            if self.pending_stats.get(&path).is_some_and(|waiting| waiting.number.is_none()) {
                let waiting = self.pending_stats.remove(&path);
                self.begin(path, waiting.map(|waiting| waiting.wanted).unwrap_or_default(), now);
            }
        }
    }

    /// Submits the batch of stats.
    pub(super) fn submit(&mut self) {
        if !self.later.is_empty() {
            let results = self.results.clone();
            self.logical.look(std::mem::take(&mut self.later), &move |looked| results(looked));
        }
    }

    /// Handles a changed name. Stats in progress may have run before the change, so the next stat
    /// answers their requests.
    pub(super) fn changed(&mut self, path: &LogicalPath, now: Duration) {
        let waiting = self.pending_stats.remove(path);
        self.look_at(path.clone(), StatReason::News, now);
        for wanted in waiting.map(|waiting| waiting.wanted).unwrap_or_default() {
            self.look_at(path.clone(), wanted, now);
        }
    }

    /// Forgets the stats in progress at a path: they may have run before a change that needs no
    /// report.
    pub(super) fn forget(&mut self, path: &LogicalPath) {
        self.pending_stats.remove(path);
    }

    /// Restarts all stats: those in progress may have run before a change of many names.
    pub(super) fn begin_anew(&mut self, now: Duration) {
        for (path, waiting) in self.pending_stats.take_begun() {
            self.begin(path, waiting.wanted, now);
        }
    }

    /// Handles the result of a stat.
    pub(super) fn stat_finished(
        &mut self,
        path: &LogicalPath,
        number: u64,
        presence: PathPresence,
        now: Duration,
    ) {
        // The result of an earlier stat than the expected one is stale.
        if self.pending_stats.get(path).is_none_or(|waiting| waiting.number != Some(number)) {
            return;
        }
        let waiting = self.pending_stats.remove(path).map(|waiting| waiting.wanted);
        for wanted in waiting.unwrap_or_default() {
            self.apply_stat(path, presence, wanted, now);
        }
    }

    fn apply_stat(&mut self, path: &LogicalPath, presence: PathPresence, wanted: StatReason, now: Duration) {
        let asked = matches!(wanted, StatReason::Answer(_) | StatReason::Machine);
        if let (StatReason::Directory, PathPresence::NotHere) = (&wanted, presence)
            && self.logical.exports(path)
        {
            self.looks.missing(path.as_bytes(), now);
        }
        self.found(path.clone(), (presence != PathPresence::Overloaded).then_some(presence), wanted);
        if self.looks.remembers()
            && asked
            && presence == PathPresence::NotHere
            && let Some(Ok(directory)) = cluster::parent_directory(path.as_bytes()).map(LogicalPath::parse)
        {
            self.look_at(directory, StatReason::Directory, now);
        }
    }

    fn found(&mut self, path: LogicalPath, presence: Option<PathPresence>, wanted: StatReason) {
        if !matches!(wanted, StatReason::Directory) {
            self.findings.push_back(PathState { path, presence, wanted });
        }
    }

    /// Starts to send an inventory to a parent, with at most `most` files. `complete` includes all
    /// other names, because nothing is created except through this server (decision 002).
    pub(super) fn tell_all(
        &self,
        outbox: Rc<ConnectionOutbox>,
        peer: Extensions,
        most: usize,
        complete: bool,
    ) {
        let complete = complete && peer.contains(Extensions::COMPLETE);
        let logical = self.logical.clone();
        let (give, given) = mpsc::channel::<InventoryBatch>(2);
        spawn_blocking_thread("inventory", move || collect(&logical, most, complete, &give));
        tokio::task::spawn_local(tell_all(outbox, peer, given, self.voided.clone(), self.voided.get()));
    }

    /// Invalidates the inventories of parents: those in progress are not complete any longer.
    pub(super) fn void_lists(&self) {
        self.voided.set(self.voided.get() + 1);
    }
}

/// Paths of an inventory, and the bits that end it if they are the last.
type InventoryBatch = (PathBatch, InventoryModifier);

/// Sends the inventory to a parent at the speed of the parent.
async fn tell_all(
    outbox: Rc<ConnectionOutbox>,
    peer: Extensions,
    mut given: mpsc::Receiver<InventoryBatch>,
    voided: Rc<Cell<u64>>,
    before: u64,
) {
    let mut begin = InventoryModifier::FIRST;
    let mut is_sent = true;
    while let Some((batch, mut end)) = given.recv().await {
        while outbox.waiting() >= INVENTORY_WAITING_MAX && !outbox.is_closed() {
            tokio::time::sleep(INVENTORY_PAUSE).await;
        }
        if outbox.is_closed() {
            return;
        }
        if voided.get() != before || !is_sent {
            end = end.without(InventoryModifier::COMPLETE);
        }
        let message = Wire::Inventory(batch.message(begin | end));
        if let Err(error) = outbox.put(|out| message.encode(StreamId::NONE, peer, out)) {
            tracing::warn!("a part of the inventory is not sent: {error}");
            is_sent = false;
        }
        begin = InventoryModifier::NONE;
    }
}

/// Walks over all files, or all names, and sends their paths in batches. Ends when the receiver is
/// dropped.
fn collect(logical: &Logical, most: usize, complete: bool, give: &mpsc::Sender<InventoryBatch>) {
    let mut batch = PathBatch::default();
    let mut count = 0;
    let mut whole = true;
    let mut unsaid = None;
    let mut note =
        |path: &LogicalPath, why: String| unsaid = Some(IncompleteReason { path: path.clone(), why });
    let mut with = |path: &LogicalPath| {
        count += 1;
        if count > most {
            whole = false;
            note(path, format!("there are more than {most} names"));
            return false;
        }
        match batch.push(path.as_bytes()) {
            Ok(true) => {}
            Ok(false) => {
                let full = std::mem::take(&mut batch);
                batch.push(path.as_bytes()).ok();
                whole = give.blocking_send((full, InventoryModifier::NONE)).is_ok();
            }
            // A path that fits in no message is looked up on request.
            Err(_) => note(path, "no message can hold it".to_owned()),
        }
        whole
    };
    let gap = if complete {
        let gap = logical.walk_names(&mut with);
        unsaid.or(gap)
    } else {
        logical.walk(&mut with);
        None
    };
    if let (Some(gap), false) = (&gap, give.is_closed()) {
        tracing::warn!(
            path = %gap.path.shown(),
            "this server lists not all its names although \"scalla.inventory complete\" is set, so managers ask it for each missing \
             one: {}",
            gap.why
        );
    }
    let last = if whole { InventoryModifier::LAST } else { InventoryModifier::NONE };
    let exact = complete && whole && gap.is_none();
    let end = if exact { last | InventoryModifier::COMPLETE } else { last };
    give.blocking_send((batch, end)).ok();
}
