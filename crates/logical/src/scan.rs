//! One reading of a directory for all who asked for it before it began.
//!
//! Jobs of a site list the same directories at the same time, and each entry of each listing costs a system call. So while a
//! directory is being read, those who ask for it wait, and are served by the next reading together. What is told was there
//! after it was asked for: nobody joins a reading that has begun. Whoever has waited for a second ([`tick`] tells) is not kept
//! any longer by a disk that is slow or hangs, but has a reading beside the old one, as long as those are few.
//!
//! What is told of entries that are links to other file systems is asked for in the pools of these, so that only listings of
//! directories with names on a disk that hangs wait for it.
//!
//! A reading goes through the directory as fast as the disk allows and keeps its pages, so that each listing takes them at its
//! client's pace. What is kept is limited: behind that each listing reads for itself, the first to come there from the same
//! stream, others from the beginning without the names that were told already (places in a directory are not the same in
//! every stream of every file system).

use crate::job::{self, Waiting};
use crate::listing::{Described, Listings, Reading, Rest, Wanted, go_on, own_page};
use base::{Error, ErrorKind, Owner};
use std::collections::{HashMap, HashSet};
use std::mem::size_of;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::{Elsewhere, Pool};
use vfs::{Answer, Caller, Entries, Entry, Listing, ReplyTo, Started, Value};

/// Bytes kept of one directory: some 15,000 entries with their status.
const KEPT_BYTES_MAX: usize = 5 << 20;

/// Bytes kept of all directories.
const ALL_KEPT_BYTES_MAX: usize = 64 << 20;

/// What the text of an entry takes, beside its name, once it has been written out, and what allocations add.
const TEXT_BYTES: usize = 112;

/// Nobody waits longer for a reading that has begun to end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Readings of one directory beside each other, all but one of which have been slow: what waits for the same disk hangs there
/// together, however many ask.
const READINGS_MAX: usize = 4;

/// What is being read, and who waits for it.
#[derive(Default)]
pub(crate) struct Scans {
    turns: Mutex<HashMap<Wanted, Turns>>,
    kept: Arc<AtomicUsize>,
}

/// Readings of one directory. At least one of them is there.
#[derive(Default)]
struct Turns {
    /// The last that has begun, and when.
    running: Option<(ScanId, Duration)>,
    /// All that have begun and not ended.
    alive: usize,
    /// It has not begun: one may join.
    next: Option<Arc<Scan>>,
    /// A job that begins the next one is on its way.
    called: bool,
}

/// The address of a scan that is alive.
type ScanId = usize;

/// One reading.
pub(crate) struct Scan {
    wanted: Wanted,
    state: Mutex<State>,
    all_kept: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    pages: Vec<Entries>,
    kept: usize,
    /// Those who have had all pages so far.
    waiting: Vec<Waiting>,
    end: End,
}

#[derive(Default)]
enum End {
    #[default]
    NotYet,
    /// The directory has no more.
    Whole,
    Failed(Error),
    /// What may be kept is kept. The stream goes to the first who asks for more.
    Full(Option<Box<Reading>>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listing(entries: Entries, rest: Option<Rest>) -> Answer {
    let rest = rest.map(|rest| Box::new(rest) as Box<dyn Listing>);
    Answer::Value(Value::Listing { entries, rest })
}

/// Answers with the first page of a reading that begins after this.
pub(crate) fn join(listings: &Arc<Listings>, caller: &Arc<Caller>, wanted: Wanted, reply: &ReplyTo) {
    let calls = {
        let mut turns = lock(&listings.scans.turns);
        let turns = turns.entry(wanted.clone()).or_default();
        let next = turns.next.get_or_insert_with(|| Arc::new(Scan::new(wanted.clone(), &listings.scans)));
        lock(&next.state).waiting.push(Waiting::new(caller, reply));
        turns.calls(listings.clock.now())
    };
    if calls {
        call(listings, wanted);
    }
}

/// Answers with this page.
pub(crate) fn more(
    listings: &Arc<Listings>,
    caller: &Arc<Caller>,
    scan: &Arc<Scan>,
    at: usize,
    reply: &ReplyTo,
) -> Started {
    let mut state = lock(&scan.state);
    if let Some(answer) = state.page(scan, at) {
        return Started::Done(answer);
    }
    let reading = match &mut state.end {
        End::NotYet => {
            state.waiting.push(Waiting::new(caller, reply));
            return Started::Pending;
        }
        End::Whole => return Started::Done(listing(Entries::default(), None)),
        End::Failed(error) => return Started::Done(Answer::Error(error.again())),
        End::Full(reading) => reading.take(),
    };
    drop(state);
    if let Some(reading) = reading {
        return go_on(listings, caller, reading, reply);
    }
    let (inside, scan, caller) = (listings.clone(), scan.clone(), caller.clone());
    let path = scan.wanted.path.clone();
    job::spawn_at(&listings.backend, &path, None, reply, move |place, reply| {
        let told = scan.told();
        match Reading::begin(&inside, &scan.wanted, place) {
            Ok(mut reading) => {
                reading.skip(told);
                drop(scan);
                own_page(&inside, caller, reading, reply);
            }
            Err(error) => reply.send(Answer::Error(error)),
        }
    })
}

/// Those who have waited too long wait no more. Never blocks.
pub(crate) fn tick(listings: &Arc<Listings>) {
    let now = listings.clock.now();
    let late: Vec<Wanted> = {
        let mut turns = lock(&listings.scans.turns);
        turns.iter_mut().filter_map(|(wanted, turns)| turns.calls(now).then(|| wanted.clone())).collect()
    };
    late.into_iter().for_each(|wanted| call(listings, wanted));
}

impl Scans {
    /// Directories that are being read or are to be.
    pub(crate) fn count(&self) -> usize {
        lock(&self.turns).len()
    }

    /// The session for which the next reading of a directory is done: the first that waits for it.
    fn owner_of_next(&self, wanted: &Wanted) -> Owner {
        let turns = lock(&self.turns);
        let next = turns.get(wanted).and_then(|turns| turns.next.as_ref());
        next.and_then(|scan| lock(&scan.state).waiting.first().map(|one| one.reply.owner()))
            .unwrap_or_default()
    }
}

impl Turns {
    /// Does nobody read, or want to?
    fn is_over(&self) -> bool {
        self.alive == 0 && self.next.is_none()
    }

    /// Is a job to begin the next reading now? The caller has to see to it.
    fn calls(&mut self, now: Duration) -> bool {
        let waits = self.running.is_some_and(|(_, since)| now < since + PATIENCE);
        let calls = self.next.is_some() && !self.called && !waits && self.alive < READINGS_MAX;
        self.called |= calls;
        calls
    }
}

/// Has the pool begin the next reading of a directory.
fn call(listings: &Arc<Listings>, wanted: Wanted) {
    let (inside, path, what) = (listings.clone(), wanted.path.clone(), wanted.clone());
    let (backend, owner) = (listings.backend.clone(), listings.scans.owner_of_next(&wanted));
    let refused = {
        let listings = listings.clone();
        move || refuse(&listings, &wanted)
    };
    job::at(&backend, owner, &path, None, move |place| begin(&inside, &what, place), refused);
}

/// A pool takes nothing more: those who wait for the next reading are told.
fn refuse(listings: &Arc<Listings>, wanted: &Wanted) {
    let refused = {
        let mut all = lock(&listings.scans.turns);
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

/// Begins the next reading of a directory: who asks from now on is for the one after it.
fn begin(listings: &Arc<Listings>, wanted: &Wanted, place: Option<Elsewhere>) {
    let now = listings.clock.now();
    let scan = {
        let mut turns = lock(&listings.scans.turns);
        let Some(turns) = turns.get_mut(wanted) else { return };
        turns.called = false;
        let Some(scan) = turns.next.take() else { return };
        turns.running = Some((scan.id(), now));
        turns.alive += 1;
        scan
    };
    let work = Work { listings: listings.clone(), scan };
    match Reading::begin(listings, wanted, place) {
        Ok(reading) => run(work, reading, None),
        Err(error) => work.scan.publish(None, End::Failed(error)),
    }
}

/// Reads on. Where others wait for the pool they have their turn after each page.
fn run(work: Work, reading: Box<Reading>, ready: Option<Vec<Entry>>) {
    let pool = reading.pool().clone();
    let mut at = (reading, ready);
    loop {
        let next = match work.step(at.0, at.1) {
            None => return,
            Some(Described::Here(reading, entries)) => work.keep(reading, entries),
            Some(Described::Elsewhere(errand)) => {
                let listings = work.listings.clone();
                return errand.go(&listings, move |page| {
                    let Some((reading, entries)) = page else {
                        return work.scan.publish(None, End::Failed(job::overload()));
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

/// Has its pool read on.
fn queue(work: Work, reading: Box<Reading>, ready: Option<Vec<Entry>>) {
    let pool = reading.pool().clone();
    // A pool that takes nothing more does not end what has begun.
    if let Err(job) = pool.run(Pool::current_owner(), Box::new(move || run(work, reading, ready))) {
        job();
    }
}

/// A reading that has begun. Dropped, it ends: also by a panic.
struct Work {
    listings: Arc<Listings>,
    scan: Arc<Scan>,
}

impl Work {
    /// Reads a page, and tells the one before it, of which is known now whether it is the last.
    fn step(&self, mut reading: Box<Reading>, ready: Option<Vec<Entry>>) -> Option<Described> {
        let names = match reading.names() {
            Ok(names) => names,
            Err(error) => {
                self.scan.publish(ready, End::Failed(error));
                return None;
            }
        };
        if names.is_empty() {
            self.scan.publish(ready, End::Whole);
            return None;
        }
        if ready.is_some() {
            self.scan.publish(ready, End::NotYet);
        }
        if !self.scan.is_wanted() {
            return None;
        }
        Some(reading.describe(&self.listings, names))
    }

    /// Keeps a page as long as there is room; the last one that there is room for is told at once.
    fn keep(&self, reading: Box<Reading>, entries: Vec<Entry>) -> Option<(Box<Reading>, Option<Vec<Entry>>)> {
        if !entries.is_empty() && !self.scan.may_keep(&entries) {
            self.scan.publish(Some(entries), End::Full(Some(reading)));
            return None;
        }
        Some((reading, (!entries.is_empty()).then_some(entries)))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.scan.abandon();
        let (scans, wanted) = (&self.listings.scans, &self.scan.wanted);
        let calls = {
            let mut all = lock(&scans.turns);
            let Some(turns) = all.get_mut(wanted) else { return };
            turns.running.take_if(|(id, _)| *id == self.scan.id());
            turns.alive = turns.alive.saturating_sub(1);
            if turns.is_over() {
                all.remove(wanted);
                return;
            }
            turns.calls(self.listings.clock.now())
        };
        if calls {
            call(&self.listings, wanted.clone());
        }
    }
}

/// Bytes that entries take as long as they are kept.
fn bytes_of(entries: &[Entry]) -> usize {
    let of = |entry: &Entry| size_of::<Entry>() + 2 * entry.name.len() + TEXT_BYTES;
    entries.iter().map(of).sum()
}

impl Scan {
    fn new(wanted: Wanted, scans: &Scans) -> Self {
        Self { wanted, state: Mutex::default(), all_kept: scans.kept.clone() }
    }

    fn id(self: &Arc<Self>) -> ScanId {
        Arc::as_ptr(self).addr()
    }

    /// May these be kept, and more behind them? They count as kept from now on.
    fn may_keep(&self, entries: &[Entry]) -> bool {
        let bytes = bytes_of(entries);
        let all = self.all_kept.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut state = lock(&self.state);
        state.kept += bytes;
        state.kept < KEPT_BYTES_MAX && all < ALL_KEPT_BYTES_MAX
    }

    /// Adds a page, and tells those who wait.
    fn publish(self: &Arc<Self>, page: Option<Vec<Entry>>, end: End) {
        let mut state = lock(&self.state);
        let at = state.pages.len();
        state.pages.extend(page.map(Entries::from));
        state.end = end;
        let waiting = std::mem::take(&mut state.waiting);
        let answers: Vec<_> = waiting
            .into_iter()
            .map(|one| {
                let answer = match (state.page(self, at), &state.end) {
                    (Some(answer), _) => answer,
                    (None, End::Failed(error)) => Answer::Error(error.again()),
                    (None, _) => listing(Entries::default(), None),
                };
                (one.reply, answer)
            })
            .collect();
        drop(state);
        answers.into_iter().for_each(|(reply, answer)| reply.send(answer));
    }

    /// Is there still a listing that goes on? Not that of a client that has left.
    fn is_wanted(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || lock(&self.state).waiting.iter().any(|one| !one.caller.has_left())
    }

    /// It does not go on: whoever waits for more has an error.
    fn abandon(&self) {
        let mut state = lock(&self.state);
        if matches!(state.end, End::NotYet) {
            let text = "the directory was not read to its end; see the server's log";
            state.end = End::Failed(Error::new(ErrorKind::ServerError, text));
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Dropped, they are answered.
        drop(waiting);
    }

    /// The names of all entries that are kept.
    fn told(&self) -> Arc<HashSet<Vec<u8>>> {
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

impl State {
    /// The answer with this page, if it is there.
    fn page(&self, scan: &Arc<Scan>, at: usize) -> Option<Answer> {
        let entries = self.pages.get(at)?.clone();
        let last = at + 1 == self.pages.len() && matches!(self.end, End::Whole);
        Some(listing(entries, (!last).then(|| Rest::Shared(scan.clone(), at + 1))))
    }
}
