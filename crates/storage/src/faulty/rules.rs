//! The rules of the fault-injecting backend: which calls go wrong, when and where.
//!
//! They are shared between the backend and its open files, so that a test can change them while the
//! storage is in use.

use super::pace::Pace;
use base::LogicalPath;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A kind of storage call. A call and its `_now` form are the same kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "each is the call of that name; Attribute is all four on attributes")]
pub enum FaultyCall {
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

/// The way a call goes wrong.
#[derive(Clone)]
pub enum InjectedFault {
    /// The call fails with this error number.
    Error(i32),
    /// The call waits before it is made; its `_now` form would block.
    Delay(Duration),
    /// The call waits until the gate is opened; its `_now` form would block.
    Hang(Arc<Gate>),
    /// The `_now` form would block; the blocking form is unaffected.
    WouldBlock,
    /// A read returns at most this number of bytes, as if the file ended there.
    Short(usize),
    /// The call panics.
    Panic,
}

/// Time after which a test that waits for calls has failed.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// A gate at which calls hang until a test opens it.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, (bool, usize)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases all hanging calls and lets later ones pass.
    pub fn open(&self) {
        self.lock().0 = true;
        self.changed.notify_all();
    }

    /// Waits until this number of calls hang at the gate at once.
    ///
    /// # Panics
    /// If that takes too long, because the test would never end.
    pub fn wait_for(&self, hanging: usize) {
        let waited = self.changed.wait_timeout_while(self.lock(), WAIT_MAX, |(_, now)| *now < hanging);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        let (_, now) = *state;
        // The lock is not poisoned by a panic.
        drop(state);
        assert!(!timeout.timed_out(), "{now} calls hang, and not {hanging}");
    }

    /// Returns the number of calls that hang now.
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

/// A rule: the kinds of calls it affects, the conditions, and the fault.
pub struct FaultRule {
    calls: Vec<FaultyCall>,
    below: Option<LogicalPath>,
    skip: u64,
    times: u64,
    fault: InjectedFault,
}

impl FaultRule {
    /// Returns a rule that applies this fault to these calls, from now on and at all paths.
    pub fn new(calls: &[FaultyCall], fault: InjectedFault) -> Self {
        Self { calls: calls.to_vec(), below: None, skip: 0, times: u64::MAX, fault }
    }

    /// Limits the rule to the tree at this path.
    pub fn below(self, path: &LogicalPath) -> Self {
        Self { below: Some(path.clone()), ..self }
    }

    /// Skips the first `calls` matching calls.
    pub fn after(self, calls: u64) -> Self {
        Self { skip: calls, ..self }
    }

    /// Limits the number of times the rule applies.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    fn matches(&self, call: FaultyCall, path: &LogicalPath) -> bool {
        self.calls.contains(&call) && self.below.as_ref().is_none_or(|below| path.is_within(below))
    }

    /// Counts a matching call and reports whether the rule applies to it.
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

/// The remainder of a call after its faults were applied.
pub(super) enum FaultVerdict {
    /// Make the call.
    Go,
    /// Make the call for at most this number of bytes.
    Short(usize),
    /// Return [`Now::WouldBlock`](crate::Now::WouldBlock).
    WouldBlock,
}

/// Identifies a rule, so that it can be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleId(u64);

/// The active rules, shared by a [`Faulty`](super::Faulty) backend and its open files.
pub struct FaultRules {
    rules: Mutex<(u64, Vec<(RuleId, FaultRule)>)>,
    /// Bytes that may still be written; `u64::MAX` means no limit.
    room: AtomicU64,
    /// The rate limit of all reads.
    pace: Mutex<Option<Arc<Pace>>>,
}

impl Default for FaultRules {
    fn default() -> Self {
        Self { rules: Mutex::default(), room: AtomicU64::new(u64::MAX), pace: Mutex::default() }
    }
}

impl FaultRules {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<(RuleId, FaultRule)>)> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule. All matching delays and hangs apply, in order; of the other faults only the
    /// first that matches.
    pub fn add(&self, rule: FaultRule) -> RuleId {
        let mut state = self.lock();
        state.0 += 1;
        let id = RuleId(state.0);
        state.1.push((id, rule));
        id
    }

    /// Removes a rule. Calls that hang because of it continue to hang until its gate opens.
    pub fn remove(&self, id: RuleId) {
        self.lock().1.retain(|(other, _)| *other != id);
    }

    /// Removes all rules and the limits on room and rate.
    pub fn clear(&self) {
        self.lock().1.clear();
        self.set_room(None);
        self.set_rate(None);
    }

    /// Limits the rate of all reads together; the `_now` forms would block.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        let pace = bytes_per_second.map(|rate| Arc::new(Pace::new(rate)));
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    /// Applies the rate limit after `bytes` were read.
    pub(super) fn pace(&self, bytes: usize) {
        if let Some(pace) = self.rate() {
            pace.keep(bytes);
        }
    }

    fn rate(&self) -> Option<Arc<Pace>> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets writes fail with ENOSPC after this number of further bytes. Overwriting counts as
    /// writing.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.room.store(bytes.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Takes room for a write and returns the number of bytes that fit.
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

    /// Reports whether any rule or limit applies to this call at this path.
    pub(super) fn concern(&self, call: FaultyCall, path: &LogicalPath) -> bool {
        if call == FaultyCall::Read && self.rate().is_some() {
            return true;
        }
        self.lock().1.iter().any(|(_, rule)| rule.matches(call, path))
    }

    /// Applies the rules to a call that may block.
    pub(super) fn meet(&self, call: FaultyCall, path: &LogicalPath) -> io::Result<FaultVerdict> {
        let mut waits = Vec::new();
        let mut last = None;
        for (_, rule) in &mut self.lock().1 {
            let waiting = matches!(rule.fault, InjectedFault::Delay(_) | InjectedFault::Hang(_));
            let ending = matches!(
                rule.fault,
                InjectedFault::Error(_) | InjectedFault::Short(_) | InjectedFault::Panic
            );
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
                InjectedFault::Delay(time) => std::thread::sleep(time),
                InjectedFault::Hang(gate) => gate.pass(),
                _ => {}
            }
        }
        end(last)
    }

    /// Applies the rules to a call that must not block. A call that would block does not count; the
    /// blocking call that follows does.
    pub(super) fn meet_now(&self, call: FaultyCall, path: &LogicalPath) -> io::Result<FaultVerdict> {
        let mut last = None;
        if call == FaultyCall::Read && self.rate().is_some() {
            return Ok(FaultVerdict::WouldBlock);
        }
        {
            let mut state = self.lock();
            let blocks = |rule: &FaultRule| {
                let blocking = matches!(
                    rule.fault,
                    InjectedFault::Delay(_) | InjectedFault::Hang(_) | InjectedFault::WouldBlock
                );
                blocking && rule.times > 0 && rule.matches(call, path)
            };
            if state.1.iter().any(|(_, rule)| blocks(rule)) {
                return Ok(FaultVerdict::WouldBlock);
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

fn end(fault: Option<InjectedFault>) -> io::Result<FaultVerdict> {
    match fault {
        Some(InjectedFault::Error(errno)) => Err(io::Error::from_raw_os_error(errno)),
        Some(InjectedFault::Short(bytes)) => Ok(FaultVerdict::Short(bytes)),
        Some(InjectedFault::Panic) => panic!("injected by a rule"),
        _ => Ok(FaultVerdict::Go),
    }
}
