//! Random histories of a queue, and a model that predicts their results. Each kind of store runs
//! through the same histories.

use base::LogicalPath;
use proptest::prelude::*;
use residency::{
    CopyFailure, CopyOutcome, EntryKey, EntryState, EntryStore, FailureReason, Priority, QueueAction,
    QueueLimits, RequestId, Submission, SubmissionOutcome, TransferDirection, TransferEntry, TransferQueue,
};
use std::collections::{BTreeMap, BTreeSet};

/// A store of a test.
pub(crate) trait TestStore: EntryStore<Error: std::fmt::Debug> {
    /// Returns all entries and all requests, in order.
    fn contents(&mut self) -> (Vec<TransferEntry>, Vec<(RequestId, EntryKey)>);
    /// Ends the process and starts it again. Makes a command durable.
    fn restart(self) -> Self;
    /// Ends a command.
    fn commit(&mut self);
}

/// A step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Submit {
        file: u8,
        priority: u8,
        request: Option<u8>,
    },
    Cancel {
        request: u8,
    },
    Start,
    Finish {
        which: u8,
        outcome: u8,
    },
    Advance {
        seconds: u64,
    },
    /// Ends the process, and starts it with a clock that is this number of seconds behind.
    Restart {
        back: u64,
    },
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let submit = (0..12u8, 0..4u8, prop::option::of(0..4u8))
        .prop_map(|(file, priority, request)| Step::Submit { file, priority, request });
    let step = prop_oneof![
        6 => submit,
        2 => (0..4u8).prop_map(|request| Step::Cancel { request }),
        5 => Just(Step::Start),
        4 => (any::<u8>(), 0..6u8).prop_map(|(which, outcome)| Step::Finish { which, outcome }),
        2 => (1..40u64).prop_map(|seconds| Step::Advance { seconds }),
        1 => prop_oneof![Just(0), 1..100u64, Just(1000)].prop_map(|back| Step::Restart { back }),
    ];
    prop::collection::vec(step, 0..80)
}

pub(crate) const LIMITS: QueueLimits = QueueLimits {
    slots_in: 3,
    slots_out: 1,
    slots_of_source: 2,
    slots_of_owner: 2,
    places: 10_000_000,
    tries_max: 2,
    backoff: 5,
    deny: 30,
    failures_kept: 100,
};

/// The owner of a file. Files 0 and 7 belong to the first one of five.
pub(crate) fn owner(file: u8) -> String {
    format!("owner{}", file % 7 % 5)
}

/// Files 0 to 7 come in and 8 to 11 go out. Each has one of three hosts on the other side.
pub(crate) fn key(file: u8) -> EntryKey {
    let direction = if file < 8 { TransferDirection::In } else { TransferDirection::Out };
    EntryKey { direction, path: LogicalPath::parse(format!("/f{file:02}").as_bytes()).unwrap() }
}

pub(crate) fn id(request: u8) -> RequestId {
    RequestId(format!("r{request}").into())
}

pub(crate) fn submission(file: u8, priority: u8, request: Option<u8>) -> Submission {
    Submission {
        key: key(file),
        priority: Priority::new(priority),
        source: format!("host{}", file % 3).into(),
        client: "u.1:2@h".into(),
        owner: owner(file).into(),
        request: request.map(id),
        removes: false,
    }
}

fn backoff(tries: u32) -> u64 {
    900.min(LIMITS.backoff * 4u64.pow(tries.min(10) - 1))
}

fn failure(reason: FailureReason) -> CopyFailure {
    CopyFailure::new(reason, format!("{reason:?}"))
}

#[derive(Clone, PartialEq, Debug)]
enum Phase {
    Queued { ready: u64 },
    Running,
    Stopping,
    Failed { until: u64, reason: FailureReason },
}

#[derive(Clone, Debug)]
struct Expected {
    priority: u8,
    requests: BTreeSet<u8>,
    anonymous: bool,
    phase: Phase,
    tries: u32,
    added: u64,
}

/// A queue, its store, and the model of both.
pub(crate) struct History<S> {
    store: S,
    queue: TransferQueue,
    now: u64,
    expected: BTreeMap<u8, Expected>,
    /// Files whose copies run, as the actions have started and ended them.
    copies: Vec<u8>,
}

impl<S: TestStore> History<S> {
    pub(crate) fn new(store: S) -> Self {
        let queue = TransferQueue::new(LIMITS);
        Self { store, queue, now: 1000, expected: BTreeMap::new(), copies: Vec::new() }
    }

    /// Makes the steps, and compares the store with the model after each one. At last ends all
    /// transfers.
    pub(crate) fn run(mut self, steps: &[Step]) {
        for step in steps {
            self = self.step(step);
            self.compare(step);
        }
        self.drain();
    }

    pub(crate) fn step(mut self, step: &Step) -> Self {
        match step {
            Step::Submit { file, priority, request } => self.submit(*file, *priority, *request),
            Step::Cancel { request } => self.cancel(*request),
            Step::Start => self.start(),
            Step::Finish { which, outcome } => {
                if !self.copies.is_empty() {
                    let file = self.copies[usize::from(*which) % self.copies.len()];
                    self.finish(file, *outcome);
                }
            }
            Step::Advance { seconds } => self.now += seconds,
            Step::Restart { back } => return self.restart(*back),
        }
        self.store.commit();
        self
    }

    fn submit(&mut self, file: u8, priority: u8, request: Option<u8>) {
        let outcome =
            self.queue.submit(&mut self.store, &submission(file, priority, request), self.now).unwrap();
        if let Some(Expected { phase: Phase::Failed { until, reason }, .. }) = self.expected.get(&file) {
            if *until > self.now {
                assert_eq!(outcome, SubmissionOutcome::Refused(failure(*reason)));
                return;
            }
            self.expected.remove(&file);
        }
        let wanted = match self.expected.contains_key(&file) {
            true => SubmissionOutcome::Joined,
            false => SubmissionOutcome::Queued,
        };
        assert_eq!(outcome, wanted);
        let entry = self.expected.entry(file).or_insert(Expected {
            priority: 0,
            requests: BTreeSet::new(),
            anonymous: false,
            phase: Phase::Queued { ready: self.now },
            tries: 0,
            added: self.now,
        });
        entry.priority = entry.priority.max(priority.min(2));
        entry.anonymous |= request.is_none();
        entry.requests.extend(request);
        if entry.phase == Phase::Stopping {
            entry.phase = Phase::Running;
        }
    }

    fn cancel(&mut self, request: u8) {
        let (actions, is_more) = self.queue.cancel(&mut self.store, &id(request)).unwrap();
        assert!(!is_more);
        let mut stopped = Vec::new();
        for (file, entry) in &mut self.expected {
            let was_last = entry.requests.remove(&request) && entry.requests.is_empty() && !entry.anonymous;
            if was_last && entry.phase == Phase::Running {
                entry.phase = Phase::Stopping;
                stopped.push(QueueAction::Stop(key(*file)));
            }
        }
        assert_eq!(actions, stopped);
        self.expected.retain(|_, entry| {
            !matches!(entry.phase, Phase::Queued { .. }) || entry.anonymous || !entry.requests.is_empty()
        });
    }

    fn has_slot(&self, file: u8) -> bool {
        let same_way = |other: &&u8| key(**other).direction == key(file).direction;
        let all = self.copies.iter().filter(same_way).count();
        let of_source = self.copies.iter().filter(same_way).filter(|other| *other % 3 == file % 3).count();
        let of_owner =
            self.copies.iter().filter(same_way).filter(|other| owner(**other) == owner(file)).count();
        let slots = if file < 8 { LIMITS.slots_in } else { LIMITS.slots_out };
        all < slots && of_source < LIMITS.slots_of_source && of_owner < LIMITS.slots_of_owner
    }

    fn start(&mut self) {
        let actions = self.queue.start_ready(&mut self.store, self.now).unwrap();
        let now = self.now;
        self.expected.retain(|_, e| !matches!(e.phase, Phase::Failed { until, .. } if until <= now));
        for action in actions {
            let QueueAction::Start(started) = action else { panic!("{action:?}") };
            let file = (0..12).find(|file| key(*file) == started.key).unwrap();
            assert!(self.has_slot(file), "{file} beside {:?}", self.copies);
            let entry = self.expected.get_mut(&file).unwrap();
            assert!(matches!(entry.phase, Phase::Queued { ready } if ready <= now), "{file} {entry:?}");
            entry.phase = Phase::Running;
            entry.tries += 1;
            assert!(!self.copies.contains(&file));
            self.copies.push(file);
        }
        // No slot is left free while an entry could use it.
        for (file, entry) in &self.expected {
            let is_ready = matches!(entry.phase, Phase::Queued { ready } if ready <= now);
            assert!(!is_ready || !self.has_slot(*file), "{file} {entry:?}");
        }
        let later = self.expected.values().filter_map(|entry| match entry.phase {
            Phase::Queued { ready } if ready > now => Some(ready),
            _ => None,
        });
        assert_eq!(self.queue.next_time(&mut self.store, now).unwrap(), later.min());
    }

    fn finish(&mut self, file: u8, outcome: u8) {
        self.copies.retain(|other| *other != file);
        let reason = match outcome {
            2 => FailureReason::NotFound,
            3 => FailureReason::InUse,
            4 => FailureReason::Site,
            _ => FailureReason::Temporary,
        };
        let outcome = match outcome {
            0 => CopyOutcome::Done,
            1 => CopyOutcome::Stopped,
            _ => CopyOutcome::Failed(failure(reason)),
        };
        let action = self.queue.finish(&mut self.store, &key(file), outcome.clone(), self.now).unwrap();
        let entry = self.expected.get_mut(&file).unwrap();
        let is_final = match reason {
            FailureReason::NotFound => true,
            FailureReason::InUse => false,
            _ => entry.tries >= LIMITS.tries_max,
        };
        let finished = match (&outcome, &entry.phase) {
            (CopyOutcome::Done | CopyOutcome::NotNeeded, _) => Some(Ok(())),
            (_, Phase::Stopping) => None,
            (CopyOutcome::Failed(failure), _) if is_final => Some(Err(failure.clone())),
            (CopyOutcome::Failed(_), _) if reason == FailureReason::InUse => {
                entry.tries -= 1;
                entry.phase = Phase::Queued { ready: self.now + LIMITS.backoff };
                None
            }
            (CopyOutcome::Failed(_), _) => {
                entry.phase = Phase::Queued { ready: self.now + backoff(entry.tries) };
                None
            }
            (CopyOutcome::Stopped, _) => {
                entry.tries -= 1;
                entry.phase = Phase::Queued { ready: self.now };
                None
            }
        };
        match &finished {
            // Requests with ids survive an outage.
            Some(Err(_)) if reason != FailureReason::NotFound && !entry.requests.is_empty() => {
                entry.phase = Phase::Queued { ready: self.now + backoff(entry.tries) };
                entry.anonymous = false;
            }
            Some(Err(_)) if reason == FailureReason::Site => drop(self.expected.remove(&file)),
            Some(Err(_)) => {
                entry.phase = Phase::Failed { until: self.now + LIMITS.deny, reason };
                entry.requests.clear();
                entry.anonymous = false;
            }
            None if entry.phase != Phase::Stopping => {}
            _ => drop(self.expected.remove(&file)),
        }
        assert_eq!(action, finished.map(|result| QueueAction::Finished(key(file), result)));
    }

    /// Ends the process with all its copies, and starts it again.
    fn restart(mut self, back: u64) -> Self {
        self.now = self.now.saturating_sub(back);
        self.store = self.store.restart();
        self.store.recover(self.now, LIMITS.deny).unwrap();
        self.store.commit();
        self.queue = TransferQueue::new(LIMITS);
        self.copies.clear();
        self.expected.retain(|_, entry| entry.phase != Phase::Stopping);
        for entry in self.expected.values_mut().filter(|entry| entry.phase == Phase::Running) {
            entry.phase = Phase::Queued { ready: entry.added };
        }
        for entry in self.expected.values_mut() {
            match &mut entry.phase {
                // No entry waits for a clock that was ahead.
                Phase::Queued { ready } => *ready = self.now.min(*ready),
                Phase::Failed { until, .. } if *until > self.now + LIMITS.deny => *until = self.now,
                _ => {}
            }
        }
        self
    }

    fn compare(&mut self, after: &Step) {
        let (entries, requests) = self.store.contents();
        let found: Vec<_> = entries
            .into_iter()
            .map(|e| (e.key, e.priority.number(), e.is_anonymous, e.tries, e.added, e.state))
            .collect();
        let state = |entry: &Expected| match &entry.phase {
            Phase::Queued { ready } => EntryState::Queued { ready: *ready },
            Phase::Running => EntryState::Active,
            Phase::Stopping => EntryState::Stopping,
            Phase::Failed { until, reason } => {
                EntryState::Failed { until: *until, failure: failure(*reason) }
            }
        };
        let wanted: Vec<_> = self
            .expected
            .iter()
            .map(|(file, e)| (key(*file), e.priority, e.anonymous, e.tries, e.added, state(e)))
            .collect();
        assert_eq!(found, wanted, "after {after:?}");
        let mut waiting: Vec<_> = self
            .expected
            .iter()
            .flat_map(|(file, entry)| entry.requests.iter().map(|request| (id(*request), key(*file))))
            .collect();
        waiting.sort();
        assert_eq!(requests, waiting, "after {after:?}");
        assert_eq!(self.queue.running(), self.copies.len());
    }

    /// Ends all transfers. Each one that is in the queue gets its result.
    fn drain(&mut self) {
        for _ in 0..100 {
            self.now += 100;
            self.start();
            for file in self.copies.clone() {
                self.finish(file, 0);
            }
            self.store.commit();
        }
        assert!(self.expected.is_empty(), "{:?}", self.expected);
        let (entries, requests) = self.store.contents();
        assert!(entries.is_empty() && requests.is_empty());
    }
}
