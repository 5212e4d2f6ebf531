//! Shared readings of directories: one reading serves all listings that were requested before it
//! started (decision 008).
//!
//! Clients of a site list the same directories at the same time, and each entry of each listing
//! costs a system call. Therefore a request that arrives while a directory is being read waits for
//! the next reading, together with all others that do. No request joins a reading that has already
//! started, so every listing reflects a state after its request. Deadline: a request that has
//! waited for 1 s ([`tick`]) gets another concurrent reading, up to a limit. So a slow or hung disk
//! does not delay it further.
//!
//! Entries that are links to other file systems are queried in the pools of those. So a hung disk
//! delays only listings of directories with names that lead to it.
//!
//! A reading proceeds as fast as the disk allows and buffers its pages, so that each listing takes
//! them at the pace of its client. The buffer is bounded. Beyond it each listing reads by itself.
//! The first one to get there continues with the same stream. The others start from the beginning
//! and skip the names that were listed already, because positions are not valid across streams on
//! every file system.

use crate::directory_reading::{DescribedPage, DirectoryReading, ListingKey, ListingServices};
use crate::job::{self, WaitingClient};
use crate::own_pages;
use base::{Error, ErrorKind, Owner};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Pool, WorkPlacement};
use vfs::{Answer, Caller, DirectoryEntries, DirectoryEntry, ListingPosition, ReplyTo, Started, Value};

/// Maximum size of the buffer of one directory, in bytes: some 15,000 entries with their status.
const KEPT_BYTES_MAX: usize = 5 << 20;

/// Maximum size of the buffers of all directories, in bytes.
const ALL_KEPT_BYTES_MAX: usize = 64 << 20;

/// Size of the text of an entry without its name once it has been formatted, plus the overhead of
/// allocations.
const TEXT_BYTES: usize = 112;

/// Maximum time that a request waits for the end of a reading in progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Maximum number of concurrent readings of one directory, all but one of which are slow. On a hung
/// disk they all hang, independent of the number of requests.
const READINGS_MAX: usize = 4;

/// All directories that are being read, with the requests that wait.
pub(crate) struct Scans {
    services: Arc<ListingServices>,
    turns: Mutex<HashMap<ListingKey, DirectoryScans>>,
    kept: Arc<AtomicUsize>,
}

/// The position of a listing that shares a reading: a page of it.
pub(crate) struct ScanPosition {
    scan: Arc<Scan>,
    page: usize,
}

impl ListingPosition for ScanPosition {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The readings of one directory; there is at least one.
#[derive(Default)]
struct DirectoryScans {
    /// The last reading that started, and its start time.
    running: Option<(ScanId, Duration)>,
    /// Number of readings in progress.
    alive: usize,
    /// The next reading, which requests may join because it has not started.
    next: Option<Arc<Scan>>,
    /// A job that starts the next reading is queued.
    called: bool,
}

/// The address of a live scan.
type ScanId = usize;

/// One reading.
struct Scan {
    wanted: ListingKey,
    /// The components with the rights of its listings.
    services: Arc<ListingServices>,
    state: Mutex<ScanState>,
    all_kept: Arc<AtomicUsize>,
}

#[derive(Default)]
struct ScanState {
    pages: Vec<DirectoryEntries>,
    kept: usize,
    /// Requests that have received all pages so far.
    waiting: Vec<WaitingClient>,
    end: ScanEnd,
}

#[derive(Default)]
enum ScanEnd {
    #[default]
    NotYet,
    /// The end of the directory was reached.
    Whole,
    Failed(Error),
    /// The buffer is full. The first listing that needs more takes the stream.
    Full(Option<Box<DirectoryReading>>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listing(entries: DirectoryEntries, rest: Option<ScanPosition>) -> Answer {
    let rest = rest.map(|rest| Box::new(rest) as Box<dyn ListingPosition>);
    Answer::Value(Value::Listing { entries, rest })
}

/// Answers with the first page of a reading that starts after this call.
pub(crate) fn join(scans: &Arc<Scans>, caller: &Arc<Caller>, wanted: ListingKey, reply: &ReplyTo) {
    let calls = {
        let mut turns = lock(&scans.turns);
        let turns = turns.entry(wanted.clone()).or_default();
        let next = turns.next.get_or_insert_with(|| Arc::new(Scan::new(wanted.clone(), scans)));
        lock(&next.state).waiting.push(WaitingClient::new(caller, reply));
        turns.calls(scans.services.clock.now())
    };
    if calls {
        call(scans, wanted);
    }
}

/// Answers with a page of a reading.
pub(crate) fn more(caller: &Arc<Caller>, position: &ScanPosition, reply: &ReplyTo) -> Started {
    let ScanPosition { scan, page: at } = position;
    let mut state = lock(&scan.state);
    if let Some(answer) = state.page(scan, *at) {
        return Started::Done(answer);
    }
    let reading = match &mut state.end {
        ScanEnd::NotYet => {
            state.waiting.push(WaitingClient::new(caller, reply));
            return Started::Pending;
        }
        ScanEnd::Whole => return Started::Done(listing(DirectoryEntries::default(), None)),
        ScanEnd::Failed(error) => return Started::Done(Answer::Error(error.again())),
        ScanEnd::Full(reading) => reading.take(),
    };
    drop(state);
    if let Some(reading) = reading {
        return own_pages::next_page(caller, reading, reply);
    }
    let (services, scan, caller) = (scan.services.clone(), scan.clone(), caller.clone());
    let path = scan.wanted.path.clone();
    let backend = services.backend.clone();
    job::spawn_where_blocking(&backend, &path, None, reply, move |place, reply| {
        let told = scan.listed_names();
        match DirectoryReading::begin(&services, &scan.wanted, place) {
            Ok(mut reading) => {
                reading.skip(told);
                drop(scan);
                own_pages::read_page(caller, reading, reply);
            }
            Err(error) => reply.send(Answer::Error(error)),
        }
    })
}

/// Starts readings for requests that have waited too long. Never blocks.
pub(crate) fn tick(scans: &Arc<Scans>) {
    let now = scans.services.clock.now();
    let late: Vec<ListingKey> = {
        let mut turns = lock(&scans.turns);
        turns.iter_mut().filter_map(|(wanted, turns)| turns.calls(now).then(|| wanted.clone())).collect()
    };
    late.into_iter().for_each(|wanted| call(scans, wanted));
}

impl Scans {
    pub(crate) fn new(services: ListingServices) -> Arc<Self> {
        Arc::new(Self { services: Arc::new(services), turns: Mutex::default(), kept: Arc::default() })
    }

    /// Returns the readings with other components. Only the limit of their buffers is common.
    pub(crate) fn with_services(&self, services: ListingServices) -> Arc<Self> {
        let kept = self.kept.clone();
        Arc::new(Self { services: Arc::new(services), turns: Mutex::default(), kept })
    }

    /// Returns the number of directories that are being read or will be.
    pub(crate) fn count(&self) -> usize {
        lock(&self.turns).len()
    }

    /// Returns the session to which the next reading is accounted: the first one that waits for it.
    fn owner_of_next(&self, wanted: &ListingKey) -> Owner {
        let turns = lock(&self.turns);
        let next = turns.get(wanted).and_then(|turns| turns.next.as_ref());
        next.and_then(|scan| lock(&scan.state).waiting.first().map(|one| one.reply.owner()))
            .unwrap_or_default()
    }
}

impl DirectoryScans {
    /// Reports whether no reading is in progress or requested.
    fn is_over(&self) -> bool {
        self.alive == 0 && self.next.is_none()
    }

    /// Reports whether a job has to start the next reading now; the caller queues that job.
    fn calls(&mut self, now: Duration) -> bool {
        let waits = self.running.is_some_and(|(_, since)| now < since + PATIENCE);
        let calls = self.next.is_some() && !self.called && !waits && self.alive < READINGS_MAX;
        self.called |= calls;
        calls
    }
}

/// Queues a job that starts the next reading of a directory.
fn call(scans: &Arc<Scans>, wanted: ListingKey) {
    let (inside, path, what) = (scans.clone(), wanted.path.clone(), wanted.clone());
    let (backend, owner) = (scans.services.backend.clone(), scans.owner_of_next(&wanted));
    let refused = {
        let scans = scans.clone();
        move || refuse(&scans, &wanted)
    };
    job::run_where_blocking(&backend, owner, &path, None, move |place| begin(&inside, &what, place), refused);
}

/// Refuses the requests for the next reading, because a pool is full.
fn refuse(scans: &Arc<Scans>, wanted: &ListingKey) {
    let refused = {
        let mut all = lock(&scans.turns);
        let Some(turns) = all.get_mut(wanted) else { return };
        turns.called = false;
        let refused = turns.next.take();
        if turns.is_over() {
            all.remove(wanted);
        }
        refused
    };
    let waiting = refused.map(|scan| std::mem::take(&mut lock(&scan.state).waiting));
    waiting.into_iter().flatten().for_each(|one| one.reply.send(job::overloaded()));
}

/// Starts the next reading of a directory. Later requests wait for the one after it.
fn begin(scans: &Arc<Scans>, wanted: &ListingKey, place: Option<WorkPlacement>) {
    let now = scans.services.clock.now();
    let scan = {
        let mut turns = lock(&scans.turns);
        let Some(turns) = turns.get_mut(wanted) else { return };
        turns.called = false;
        let Some(scan) = turns.next.take() else { return };
        turns.running = Some((scan.id(), now));
        turns.alive += 1;
        scan
    };
    let work = ScanWork { scans: scans.clone(), scan };
    match DirectoryReading::begin(&scans.services, wanted, place) {
        Ok(reading) => run(work, reading, None),
        Err(error) => work.scan.publish(None, ScanEnd::Failed(error)),
    }
}

/// Reads on. If other jobs wait for the pool, they get their turn after each page.
fn run(work: ScanWork, reading: Box<DirectoryReading>, ready: Option<Vec<DirectoryEntry>>) {
    let pool = reading.pool().clone();
    let mut at = (reading, ready);
    loop {
        let next = match work.step(at.0, at.1) {
            None => return,
            Some(DescribedPage::Here(reading, entries)) => work.keep(reading, entries),
            Some(DescribedPage::Elsewhere(errand)) => {
                return errand.describe_elsewhere(move |page| {
                    let Some((reading, entries)) = page else {
                        return work.scan.publish(None, ScanEnd::Failed(job::overload()));
                    };
                    if let Some((reading, ready)) = work.keep(reading, entries) {
                        queue(work, reading, ready);
                    }
                });
            }
        };
        let Some(next) = next else { return };
        at = next;
        if pool.queued() > 0 {
            return queue(work, at.0, at.1);
        }
    }
}

/// Queues the continuation in the pool of the directory.
fn queue(work: ScanWork, reading: Box<DirectoryReading>, ready: Option<Vec<DirectoryEntry>>) {
    let pool = reading.pool().clone();
    // A full pool must not end a reading that has started.
    if let Err(job) = pool.run(Pool::current_owner(), Box::new(move || run(work, reading, ready))) {
        job();
    }
}

/// A reading in progress, which ends on drop, even after a panic.
struct ScanWork {
    scans: Arc<Scans>,
    scan: Arc<Scan>,
}

impl ScanWork {
    /// Reads a page and publishes the previous one, which is known now not to be, or to be, the
    /// last.
    fn step(
        &self,
        mut reading: Box<DirectoryReading>,
        ready: Option<Vec<DirectoryEntry>>,
    ) -> Option<DescribedPage> {
        let names = match reading.names() {
            Ok(names) => names,
            Err(error) => {
                self.scan.publish(ready, ScanEnd::Failed(error));
                return None;
            }
        };
        if names.is_empty() {
            self.scan.publish(ready, ScanEnd::Whole);
            return None;
        }
        if ready.is_some() {
            self.scan.publish(ready, ScanEnd::NotYet);
        }
        if !self.scan.is_wanted() {
            return None;
        }
        Some(reading.describe(names))
    }

    /// Buffers a page. The last page that fits is published at once.
    fn keep(
        &self,
        reading: Box<DirectoryReading>,
        entries: Vec<DirectoryEntry>,
    ) -> Option<(Box<DirectoryReading>, Option<Vec<DirectoryEntry>>)> {
        if !entries.is_empty() && !self.scan.may_keep(&entries) {
            self.scan.publish(Some(entries), ScanEnd::Full(Some(reading)));
            return None;
        }
        Some((reading, (!entries.is_empty()).then_some(entries)))
    }
}

impl Drop for ScanWork {
    fn drop(&mut self) {
        self.scan.abandon();
        let (scans, wanted) = (&self.scans, &self.scan.wanted);
        let calls = {
            let mut all = lock(&scans.turns);
            let Some(turns) = all.get_mut(wanted) else { return };
            turns.running.take_if(|(id, _)| *id == self.scan.id());
            turns.alive = turns.alive.saturating_sub(1);
            if turns.is_over() {
                all.remove(wanted);
                return;
            }
            turns.calls(scans.services.clock.now())
        };
        if calls {
            call(&self.scans, wanted.clone());
        }
    }
}

/// Returns the size of entries in the buffer, in bytes.
fn bytes_of(entries: &[DirectoryEntry]) -> usize {
    let of = |entry: &DirectoryEntry| size_of::<DirectoryEntry>() + 2 * entry.name.len() + TEXT_BYTES;
    entries.iter().map(of).sum()
}

impl Scan {
    fn new(wanted: ListingKey, scans: &Scans) -> Self {
        let (services, all_kept) = (scans.services.clone(), scans.kept.clone());
        Self { wanted, services, state: Mutex::default(), all_kept }
    }

    fn id(self: &Arc<Self>) -> ScanId {
        Arc::as_ptr(self).addr()
    }

    /// Adds entries to the size of the buffer, and reports whether more may follow.
    fn may_keep(&self, entries: &[DirectoryEntry]) -> bool {
        let bytes = bytes_of(entries);
        let all = self.all_kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut state = lock(&self.state);
        state.kept += bytes;
        state.kept < KEPT_BYTES_MAX && all < ALL_KEPT_BYTES_MAX
    }

    /// Adds a page and answers the requests that wait for it.
    fn publish(self: &Arc<Self>, page: Option<Vec<DirectoryEntry>>, end: ScanEnd) {
        let mut state = lock(&self.state);
        let at = state.pages.len();
        state.pages.extend(page.map(DirectoryEntries::from));
        state.end = end;
        let waiting = std::mem::take(&mut state.waiting);
        let answers: Vec<_> = waiting
            .into_iter()
            .map(|one| {
                let answer = match (state.page(self, at), &state.end) {
                    (Some(answer), _) => answer,
                    (None, ScanEnd::Failed(error)) => Answer::Error(error.again()),
                    (None, _) => listing(DirectoryEntries::default(), None),
                };
                (one.reply, answer)
            })
            .collect();
        drop(state);
        answers.into_iter().for_each(|(reply, answer)| reply.send(answer));
    }

    /// Reports whether a listing still needs the reading; one of a client that has left does not.
    fn is_wanted(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
            || lock(&self.state).waiting.iter().any(|one| !one.caller.is_disconnected())
    }

    /// Ends the reading with an error for all requests that need more.
    fn abandon(&self) {
        let mut state = lock(&self.state);
        if matches!(state.end, ScanEnd::NotYet) {
            let text = "cannot read the directory to its end: internal error; see the server's log";
            state.end = ScanEnd::Failed(Error::new(ErrorKind::ServerError, text));
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Dropping the replies answers them.
        drop(waiting);
    }

    /// Returns the names of all buffered entries.
    fn listed_names(&self) -> Arc<HashSet<Vec<u8>>> {
        let state = lock(&self.state);
        let names = state.pages.iter().flat_map(|page| page.iter().map(|entry| entry.name.clone()));
        Arc::new(names.collect())
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.all_kept.fetch_sub(lock(&self.state).kept, Ordering::Relaxed);
    }
}

impl ScanState {
    /// Returns the answer with a page, if the page exists.
    fn page(&self, scan: &Arc<Scan>, at: usize) -> Option<Answer> {
        let entries = self.pages.get(at)?.clone();
        let last = at + 1 == self.pages.len() && matches!(self.end, ScanEnd::Whole);
        Some(listing(entries, (!last).then(|| ScanPosition { scan: scan.clone(), page: at + 1 })))
    }
}
