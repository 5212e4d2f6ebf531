//! What goes wrong, when and where: rules that a test adds and takes away while the storage is in use.

use super::pace::Pace;
use base::LogicalPath;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the storage is asked to do. A call and its `_now` form are one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is the call of that name; Attribute is all four on attributes")]
pub enum Call {
    Open,
    Stat,
    List,
    ListNext,
    MakeDirectory,
    RemoveDirectory,
    RemoveFile,
    Rename,
    SetMode,
    RenewAccess,
    Truncate,
    Attribute,
    Usage,
    Read,
    Write,
    Sync,
    Clone,
}

/// How it goes wrong.
#[derive(Clone)]
pub enum Fault {
    /// It fails with this error number.
    Error(i32),
    /// It waits before it is done; on the spot it would block.
    Delay(Duration),
    /// It waits until the gate is opened; on the spot it would block.
    Hang(Arc<Gate>),
    /// On the spot it would block; nothing else.
    WouldBlock,
    /// A read gives at most so many bytes, as if the file ended there.
    Short(usize),
    /// It panics.
    Panic,
}

/// Where calls hang until a test lets them go.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Closed.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, (bool, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all go, and whoever comes later.
    pub fn open(&self) {
        self.lock().0 = true;
        self.changed.notify_all();
    }

    /// Waits until so many calls hang here at once.
    pub fn wait_for(&self, hanging: usize) {
        let state = self.lock();
        drop(self.changed.wait_while(state, |(_, now)| *now < hanging));
    }

    /// Calls that hang now.
    pub fn hanging(&self) -> usize {
        self.lock().1
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.1 += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |(open, _)| !*open);
        waited.unwrap_or_else(PoisonError::into_inner).1 -= 1;
    }
}

/// One thing that goes wrong.
pub struct Rule {
    calls: Vec<Call>,
    below: Option<LogicalPath>,
    skip: u64,
    times: u64,
    fault: Fault,
}

impl Rule {
    /// These calls go wrong in this way, from now on and everywhere.
    pub fn new(calls: &[Call], fault: Fault) -> Self {
        Self { calls: calls.to_vec(), below: None, skip: 0, times: u64::MAX, fault }
    }

    /// Only at and below this path.
    pub fn below(self, path: &LogicalPath) -> Self {
        Self { below: Some(path.clone()), ..self }
    }

    /// Only after so many calls went well.
    pub fn after(self, calls: u64) -> Self {
        Self { skip: calls, ..self }
    }

    /// Only so many times.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    fn matches(&self, call: Call, path: &LogicalPath) -> bool {
        self.calls.contains(&call) && self.below.as_ref().is_none_or(|below| path.is_within(below))
    }

    /// Counts a call that matches; is it its turn?
    fn hits(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if self.times == 0 {
            return false;
        }
        self.times -= 1;
        true
    }
}

/// What is left to do of a call after its faults.
pub(super) enum Verdict {
    /// Do it.
    Go,
    /// Do it, for so many bytes.
    Short(usize),
    /// It would block.
    WouldBlock,
}

/// Names a rule, to take it away again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId(u64);

/// The rules in force; shared by a [`Faulty`](super::Faulty) storage and its open files.
pub struct Rules {
    rules: Mutex<(u64, Vec<(RuleId, Rule)>)>,
    /// Bytes that may still be written; all ones without a limit.
    room: AtomicU64,
    /// How fast everything that is read comes.
    pace: Mutex<Option<Arc<Pace>>>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { rules: Mutex::default(), room: AtomicU64::new(u64::MAX), pace: Mutex::default() }
    }
}

impl Rules {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<(RuleId, Rule)>)> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one. Waiting rules apply all, in order; of the others the first that hits.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.lock();
        state.0 += 1;
        let id = RuleId(state.0);
        state.1.push((id, rule));
        id
    }

    /// Takes one away. Calls that hang by it go on hanging until its gate opens.
    pub fn remove(&self, id: RuleId) {
        self.lock().1.retain(|(other, _)| *other != id);
    }

    /// Takes all away, and the limits on room and rate.
    pub fn clear(&self) {
        self.lock().1.clear();
        self.set_room(None);
        self.set_rate(None);
    }

    /// All reads together give no more than so many bytes a second; on the spot they would block.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        let pace = bytes_per_second.map(|rate| Arc::new(Pace::new(rate)));
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    /// Keeps the rate after so many bytes were read.
    pub(super) fn pace(&self, bytes: usize) {
        if let Some(pace) = self.rate() {
            pace.keep(bytes);
        }
    }

    fn rate(&self) -> Option<Arc<Pace>> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The disk is full after so many further bytes. Overwriting counts as writing.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.room.store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Takes room for a write: how many of these bytes still fit.
    pub(super) fn take_room(&self, bytes: usize) -> usize {
        let take = |room: u64| match room {
            u64::MAX => None,
            room => Some(room.saturating_sub(bytes as u64)),
        };
        match self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take) {
            Ok(before) => usize::try_from(before).unwrap_or(usize::MAX).min(bytes),
            Err(_) => bytes,
        }
    }

    pub(super) fn room(&self) -> Option<u64> {
        Some(self.room.load(Ordering::SeqCst)).filter(|&room| room != u64::MAX)
    }

    /// Has anything been said about this call here?
    pub(super) fn concern(&self, call: Call, path: &LogicalPath) -> bool {
        if call == Call::Read && self.rate().is_some() {
            return true;
        }
        self.lock().1.iter().any(|(_, rule)| rule.matches(call, path))
    }

    /// A call that may wait.
    pub(super) fn meet(&self, call: Call, path: &LogicalPath) -> io::Result<Verdict> {
        let mut waits = Vec::new();
        let mut last = None;
        for (_, rule) in &mut self.lock().1 {
            let waiting = matches!(rule.fault, Fault::Delay(_) | Fault::Hang(_));
            let ending = matches!(rule.fault, Fault::Error(_) | Fault::Short(_) | Fault::Panic);
            if (waiting || ending && last.is_none()) && rule.matches(call, path) && rule.hits() {
                if waiting {
                    waits.push(rule.fault.clone());
                } else {
                    last = Some(rule.fault.clone());
                }
            }
        }
        for wait in waits {
            match wait {
                Fault::Delay(time) => std::thread::sleep(time),
                Fault::Hang(gate) => gate.pass(),
                _ => {}
            }
        }
        end(last)
    }

    /// A call that must not wait. One that would is not counted: its other form will be.
    pub(super) fn meet_now(&self, call: Call, path: &LogicalPath) -> io::Result<Verdict> {
        let mut last = None;
        if call == Call::Read && self.rate().is_some() {
            return Ok(Verdict::WouldBlock);
        }
        {
            let mut state = self.lock();
            let blocks = |rule: &Rule| {
                let blocking = matches!(rule.fault, Fault::Delay(_) | Fault::Hang(_) | Fault::WouldBlock);
                blocking && rule.times > 0 && rule.matches(call, path)
            };
            if state.1.iter().any(|(_, rule)| blocks(rule)) {
                return Ok(Verdict::WouldBlock);
            }
            for (_, rule) in &mut state.1 {
                if last.is_none() && rule.matches(call, path) && rule.hits() {
                    last = Some(rule.fault.clone());
                }
            }
        }
        end(last)
    }
}

fn end(fault: Option<Fault>) -> io::Result<Verdict> {
    match fault {
        Some(Fault::Error(errno)) => Err(io::Error::from_raw_os_error(errno)),
        Some(Fault::Short(bytes)) => Ok(Verdict::Short(bytes)),
        Some(Fault::Panic) => panic!("injected by a rule"),
        _ => Ok(Verdict::Go),
    }
}
