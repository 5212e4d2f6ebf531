//! The state machine of the queue, with entries in memory.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

mod support;

use proptest::prelude::*;
use residency::{
    CopyFailure, CopyOutcome, EntryKey, FailureReason, MemoryStore, QueueAction, QueueError, QueueLimits,
    RequestId, SubmissionOutcome, TransferEntry, TransferQueue,
};
use support::{History, LIMITS, TestStore, id, key, steps, submission};

impl TestStore for MemoryStore {
    fn contents(&mut self) -> (Vec<TransferEntry>, Vec<(RequestId, EntryKey)>) {
        (self.entries().cloned().collect(), self.requests().cloned().collect())
    }

    fn restart(self) -> Self {
        self
    }

    fn commit(&mut self) {}
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_the_model(steps in steps()) {
        History::new(MemoryStore::default()).run(&steps);
    }
}

fn started(actions: &[QueueAction]) -> Vec<String> {
    let path = |action: &QueueAction| match action {
        QueueAction::Start(entry) => entry.key.path.text().into_owned(),
        other => panic!("{other:?}"),
    };
    actions.iter().map(path).collect()
}

fn of_one_owner(file: u8) -> residency::Submission {
    residency::Submission { owner: "one".into(), ..submission(file, 0, None) }
}

#[test]
fn priorities_are_served_three_to_two_to_one() {
    let limits = QueueLimits { slots_in: 1, slots_of_source: 1, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    // A file of each priority for each turn.
    let name = |priority: u8, number: u8| format!("/p{priority}-{number:02}");
    for number in 0..18 {
        for priority in 0..3 {
            let mut submission = submission(0, priority, None);
            submission.key.path = base::LogicalPath::parse(name(priority, number).as_bytes()).unwrap();
            queue.submit(&mut store, &submission, 1).unwrap();
        }
    }
    let mut order = Vec::new();
    for _ in 0..18 {
        let actions = queue.start_ready(&mut store, 1).unwrap();
        let [QueueAction::Start(entry)] = &actions[..] else { panic!("{actions:?}") };
        order.push(entry.priority.number());
        queue.finish(&mut store, &entry.key, CopyOutcome::Done, 1).unwrap();
    }
    assert_eq!(order, [2, 2, 2, 1, 1, 0].repeat(3));
}

#[test]
fn the_oldest_of_a_priority_is_the_first() {
    let limits = QueueLimits { slots_in: 2, slots_of_source: 8, slots_of_owner: 8, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    for (file, now) in [(5, 10), (3, 10), (4, 9)] {
        queue.submit(&mut store, &of_one_owner(file), now).unwrap();
    }
    assert_eq!(started(&queue.start_ready(&mut store, 10).unwrap()), ["/f04", "/f05"]);
}

#[test]
fn a_source_that_hangs_leaves_slots_to_others() {
    let (mut store, mut queue) =
        (MemoryStore::default(), TransferQueue::new(QueueLimits { slots_of_owner: 3, ..LIMITS }));
    // Files 0, 3 and 6 are of the first source, file 1 of the second one.
    for file in [0, 3, 6, 1] {
        queue.submit(&mut store, &of_one_owner(file), 1).unwrap();
    }
    assert_eq!(started(&queue.start_ready(&mut store, 1).unwrap()), ["/f00", "/f03", "/f01"]);
    queue.finish(&mut store, &key(1), CopyOutcome::Done, 2).unwrap();
    assert_eq!(queue.start_ready(&mut store, 2).unwrap(), [], "a slot is free, but not for this source");
    queue.finish(&mut store, &key(0), CopyOutcome::Done, 3).unwrap();
    assert_eq!(started(&queue.start_ready(&mut store, 3).unwrap()), ["/f06"]);
}

#[test]
fn each_try_waits_longer_and_the_last_failure_denies_requests_for_a_time() {
    let limits = QueueLimits { tries_max: 3, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    let failure = CopyFailure::new(FailureReason::Temporary, "no drive");
    let fail = || CopyOutcome::Failed(failure.clone());
    queue.submit(&mut store, &submission(0, 0, None), 100).unwrap();
    let mut now = 100;
    for wait in [5, 20] {
        assert_eq!(started(&queue.start_ready(&mut store, now).unwrap()), ["/f00"]);
        assert_eq!(queue.finish(&mut store, &key(0), fail(), now).unwrap(), None);
        assert_eq!(queue.next_time(&mut store, now).unwrap(), Some(now + wait));
        assert_eq!(queue.start_ready(&mut store, now + wait - 1).unwrap(), []);
        now += wait;
    }
    queue.start_ready(&mut store, now).unwrap();
    let end = queue.finish(&mut store, &key(0), fail(), now).unwrap();
    assert_eq!(end, Some(QueueAction::Finished(key(0), Err(failure.clone()))));
    let again = |queue: &mut TransferQueue, store: &mut MemoryStore, now| {
        queue.submit(store, &submission(0, 0, None), now).unwrap()
    };
    assert_eq!(again(&mut queue, &mut store, now + 29), SubmissionOutcome::Refused(failure));
    assert_eq!(again(&mut queue, &mut store, now + 30), SubmissionOutcome::Queued);
    assert_eq!(started(&queue.start_ready(&mut store, now + 30).unwrap()), ["/f00"]);
}

#[test]
fn an_administrator_ends_the_wait_after_a_failure() {
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
    let failure = CopyFailure::new(FailureReason::Temporary, "no drive");
    let retry = |queue: &mut TransferQueue, store: &mut MemoryStore| {
        queue.forget_failure(store, &key(0), 100).unwrap();
        queue.submit(store, &submission(0, 2, None), 100).unwrap()
    };
    queue.submit(&mut store, &submission(0, 0, None), 100).unwrap();
    // The first failure is followed by a wait, and the second one by refusals.
    for outcome in [SubmissionOutcome::Joined, SubmissionOutcome::Queued] {
        assert_eq!(started(&queue.start_ready(&mut store, 100).unwrap()), ["/f00"]);
        queue.finish(&mut store, &key(0), CopyOutcome::Failed(failure.clone()), 100).unwrap();
        assert_eq!(queue.start_ready(&mut store, 100).unwrap(), []);
        assert_eq!(retry(&mut queue, &mut store), outcome);
    }
    assert_eq!(started(&queue.start_ready(&mut store, 100).unwrap()), ["/f00"]);
    // A copy that runs goes on.
    assert_eq!(retry(&mut queue, &mut store), SubmissionOutcome::Joined);
    assert_eq!(queue.start_ready(&mut store, 100).unwrap(), []);
}

#[test]
fn an_outage_ends_no_request_and_denies_no_file() {
    for reason in [FailureReason::Temporary, FailureReason::Site] {
        let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
        for file in 0..8 {
            queue.submit(&mut store, &submission(file, 0, Some(1)), 0).unwrap();
            queue.submit(&mut store, &submission(file, 0, None), 0).unwrap();
        }
        let (mut told, mut came) = (0, 0);
        for now in 0..2000 {
            for action in queue.start_ready(&mut store, now).unwrap() {
                let QueueAction::Start(entry) = action else { panic!("{action:?}") };
                let failure = CopyFailure::new(reason, "no drive");
                let outcome = if now < 60 { CopyOutcome::Failed(failure) } else { CopyOutcome::Done };
                match queue.finish(&mut store, &entry.key, outcome, now).unwrap() {
                    Some(QueueAction::Finished(_, Ok(()))) => came += 1,
                    // Clients that are connected get the reason.
                    Some(QueueAction::Finished(..)) => told += 1,
                    _ => {}
                }
            }
        }
        assert!(told >= 8 && came == 8, "{told} {came}");
        // Without a request only a failure of the file is remembered.
        queue.submit(&mut store, &submission(0, 0, None), 5000).unwrap();
        for now in [5000, 5100] {
            queue.start_ready(&mut store, now).unwrap();
            let outcome = CopyOutcome::Failed(CopyFailure::new(reason, "no drive"));
            queue.finish(&mut store, &key(0), outcome, now).unwrap();
        }
        let refusal = queue.refusal(&mut store, &key(0), 5101).unwrap();
        assert_eq!(refusal.is_some(), reason == FailureReason::Temporary);
    }
}

#[test]
fn a_request_fails_after_days() {
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
    queue.submit(&mut store, &submission(0, 0, Some(1)), 0).unwrap();
    for now in (0..=8 * 86_400).step_by(1000) {
        for action in queue.start_ready(&mut store, now).unwrap() {
            assert!(matches!(action, QueueAction::Start(_)));
            let outcome = CopyOutcome::Failed(CopyFailure::new(FailureReason::Temporary, "no drive"));
            queue.finish(&mut store, &key(0), outcome, now).unwrap();
        }
    }
    assert_eq!(store.requests().count(), 0);
}

#[test]
fn a_cancel_ends_only_what_nobody_else_wants() {
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
    for (file, request) in [(0, Some(1)), (0, Some(2)), (1, Some(1)), (2, Some(1)), (2, None)] {
        queue.submit(&mut store, &submission(file, 0, request), 1).unwrap();
    }
    queue.start_ready(&mut store, 1).unwrap();
    assert_eq!(queue.cancel(&mut store, &id(1)).unwrap(), (vec![QueueAction::Stop(key(1))], false));
    // A new request meanwhile needs another copy.
    queue.submit(&mut store, &submission(1, 0, None), 2).unwrap();
    assert_eq!(queue.finish(&mut store, &key(1), CopyOutcome::Stopped, 2).unwrap(), None);
    assert_eq!(started(&queue.start_ready(&mut store, 2).unwrap()), ["/f01"]);
    assert_eq!(queue.cancel(&mut store, &id(2)).unwrap(), (vec![QueueAction::Stop(key(0))], false));
    queue.finish(&mut store, &key(0), CopyOutcome::Stopped, 3).unwrap();
    let left: Vec<_> = store.entries().map(|entry| entry.key.clone()).collect();
    assert_eq!(left, [key(1), key(2)]);
}

#[test]
fn the_end_of_a_copy_that_does_not_run_is_an_error() {
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
    let error = queue.finish(&mut store, &key(0), CopyOutcome::Done, 1).unwrap_err();
    assert_eq!(error, QueueError::NotRunning("/f00".to_owned()));
}

#[test]
fn owners_have_turns_and_places_beside_each_other() {
    let limits = QueueLimits { slots_in: 3, slots_of_source: 9, slots_of_owner: 2, places: 100, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    let with = |owner: &str, number: u32| {
        let mut submission = submission(0, 0, None);
        submission.owner = owner.into();
        submission.key.path = base::LogicalPath::parse(format!("/{owner}-{number:03}").as_bytes()).unwrap();
        submission
    };
    // One takes as many places as are free, and the next one has half of the rest.
    let mut fill = |queue: &mut TransferQueue, owner: &str, now| {
        let outcome = |number| queue.submit(&mut store, &with(owner, number), now).unwrap();
        (0..100).map(outcome).filter(|outcome| *outcome == SubmissionOutcome::Queued).count()
    };
    assert_eq!(
        [fill(&mut queue, "hog", 1), fill(&mut queue, "b", 2), fill(&mut queue, "c", 3)],
        [50, 25, 13]
    );
    assert!(!queue.has_places(&mut store, "hog", 1).unwrap());
    // A request for a file that is in the queue needs no place.
    let joined = queue.submit(&mut store, &with("hog", 0), 4).unwrap();
    assert_eq!(joined, SubmissionOutcome::Joined);
    let start =
        |queue: &mut TransferQueue, store: &mut MemoryStore| started(&queue.start_ready(store, 5).unwrap());
    assert_eq!(start(&mut queue, &mut store), ["/b-000", "/c-000", "/hog-000"]);
    let end = |queue: &mut TransferQueue, store: &mut MemoryStore, name: &str| {
        let mut of = key(0);
        of.path = base::LogicalPath::parse(name.as_bytes()).unwrap();
        queue.finish(store, &of, CopyOutcome::Done, 5).unwrap();
    };
    // The copies of the first two are fast. The slots of the other one hang, and it gets no third.
    for (done, next) in [("/b-000", "/b-001"), ("/c-000", "/c-001"), ("/b-001", "/hog-001")] {
        end(&mut queue, &mut store, done);
        assert_eq!(start(&mut queue, &mut store), [next]);
    }
    for (done, next) in [("/c-001", "/b-002"), ("/b-002", "/c-002"), ("/c-002", "/b-003")] {
        end(&mut queue, &mut store, done);
        assert_eq!(start(&mut queue, &mut store), [next]);
    }
}

#[test]
fn clients_that_left_take_what_has_not_started_out_of_the_queue() {
    let limits = QueueLimits { slots_in: 1, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    for (file, request) in [(0, None), (1, None), (2, None), (2, Some(1)), (3, Some(1))] {
        queue.submit(&mut store, &submission(file, 0, request), u64::from(file)).unwrap();
    }
    let first = started(&queue.start_ready(&mut store, 5).unwrap());
    assert_eq!(first, ["/f00"]);
    for file in 0..4 {
        queue.abandon(&mut store, &key(file)).unwrap();
    }
    let left: Vec<_> = store.entries().map(|entry| entry.key.clone()).collect();
    assert_eq!(left, [key(0), key(2), key(3)]);
    // Nobody but the request wants the other one any more.
    queue.cancel(&mut store, &id(1)).unwrap();
    assert_eq!(store.entries().count(), 1);
}

#[test]
fn files_of_a_request_that_failed_are_remembered_for_some_time() {
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
    for (file, request) in [(0, 1), (0, 2), (1, 1)] {
        queue.submit(&mut store, &submission(file, 0, Some(request)), 1).unwrap();
    }
    queue.start_ready(&mut store, 1).unwrap();
    let outcome = CopyOutcome::Failed(CopyFailure::new(FailureReason::NotFound, "gone"));
    queue.finish(&mut store, &key(0), outcome, 10).unwrap();
    let failures = |store: &MemoryStore, request| store.failures(&id(request)).len();
    assert_eq!(store.failures(&id(1)), [(&key(0), "gone")]);
    queue.cancel(&mut store, &id(1)).unwrap();
    assert_eq!([failures(&store, 1), failures(&store, 2)], [0, 1]);
    queue.start_ready(&mut store, 10 + LIMITS.failures_kept - 1).unwrap();
    assert_eq!(failures(&store, 2), 1);
    queue.start_ready(&mut store, 10 + LIMITS.failures_kept).unwrap();
    assert_eq!(failures(&store, 2), 0);
}

#[test]
fn migration_is_slow_while_each_file_fails() {
    let limits = QueueLimits { slots_out: 2, tries_max: 9, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    for file in 8..40 {
        queue.submit(&mut store, &submission(file, 0, None), 1).unwrap();
    }
    let fail = |reason| CopyOutcome::Failed(CopyFailure::new(reason, "no drive"));
    // Starts what is ready, and ends all copies with an outcome. Returns their number.
    let run = |queue: &mut TransferQueue, store: &mut MemoryStore, now, outcome: &CopyOutcome| {
        let actions = queue.start_ready(store, now).unwrap();
        for action in &actions {
            let QueueAction::Start(entry) = action else { panic!("{action:?}") };
            queue.finish(store, &entry.key, outcome.clone(), now).unwrap();
        }
        actions.len()
    };
    for (now, reason) in [(1, FailureReason::Changed), (100, FailureReason::InUse)] {
        for _ in 0..15 {
            assert_eq!(run(&mut queue, &mut store, now, &fail(reason)), 2, "the program has not failed");
        }
    }
    for file in 40..80 {
        queue.submit(&mut store, &submission(file, 2, None), 200).unwrap();
    }
    for _ in 0..20 {
        // Names of which each fails without a copy.
        assert_eq!(run(&mut queue, &mut store, 200, &fail(FailureReason::Permanent)), 2);
    }
    let temporary = fail(FailureReason::Temporary);
    for _ in 0..10 {
        assert_eq!(run(&mut queue, &mut store, 1000, &temporary), 2);
    }
    assert_eq!(run(&mut queue, &mut store, 1000, &temporary), 0);
    // The other direction goes on, and says nothing about this one.
    queue.submit(&mut store, &submission(0, 0, None), 1000).unwrap();
    assert_eq!(run(&mut queue, &mut store, 1000, &CopyOutcome::Done), 1);
    assert_eq!(queue.next_time(&mut store, 1000).unwrap(), Some(1001));
    // One file shows whether the next pause is needed.
    assert_eq!(run(&mut queue, &mut store, 1001, &temporary), 1);
    assert_eq!(run(&mut queue, &mut store, 1002, &temporary), 0);
    assert_eq!(run(&mut queue, &mut store, 1003, &CopyOutcome::NotNeeded), 1);
    assert_eq!(run(&mut queue, &mut store, 1003, &temporary), 1);
    assert_eq!(run(&mut queue, &mut store, 1006, &temporary), 0);
    assert_eq!(run(&mut queue, &mut store, 1007, &temporary), 1);
    assert_eq!(run(&mut queue, &mut store, 1011, &temporary), 0);
    // The clock is set back by 10 s.
    assert_eq!(run(&mut queue, &mut store, 1002, &temporary), 1);
    assert_eq!(run(&mut queue, &mut store, 1006, &temporary), 0);
    assert_eq!(run(&mut queue, &mut store, 1012, &CopyOutcome::Done), 1);
    assert_eq!(run(&mut queue, &mut store, 1012, &CopyOutcome::Done), 2);
}

/// Mass storage refuses all files of one user, such as empty ones, and those of others are behind them.
#[test]
fn files_that_mass_storage_refuses_do_not_keep_others_for_long() {
    let limits = QueueLimits { slots_out: 4, tries_max: 3, ..LIMITS };
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(limits));
    let last = 255;
    for file in 8..=last {
        queue.submit(&mut store, &submission(file, 0, None), 1).unwrap();
    }
    let (mut now, mut tries, mut is_copied) = (1, 0, false);
    while !is_copied {
        for action in queue.start_ready(&mut store, now).unwrap() {
            let QueueAction::Start(entry) = action else { panic!("{action:?}") };
            is_copied |= entry.key == key(last);
            tries += 1;
            let failure = CopyFailure::new(FailureReason::Temporary, "no such class of files");
            let outcome = if is_copied { CopyOutcome::Done } else { CopyOutcome::Failed(failure) };
            queue.finish(&mut store, &entry.key, outcome, now).unwrap();
        }
        now = queue.next_time(&mut store, now).unwrap().unwrap_or(now + 1).max(now);
    }
    assert!(tries < 3 * 248 && now < 3 * 248 * 5, "{tries} tries in {now} s");
}

/// A file leaves the disk if any request wants that, also if it joins while the copy runs.
#[test]
fn a_request_for_a_removal_after_the_copy_joins_one_without() {
    let (mut store, mut queue) = (MemoryStore::default(), TransferQueue::new(LIMITS));
    let removing = residency::Submission { removes: true, ..submission(8, 0, Some(1)) };
    queue.submit(&mut store, &submission(8, 0, None), 1).unwrap();
    let actions = queue.start_ready(&mut store, 1).unwrap();
    assert!(matches!(&actions[..], [QueueAction::Start(entry)] if !entry.removes), "{actions:?}");
    assert_eq!(queue.submit(&mut store, &removing, 2).unwrap(), SubmissionOutcome::Joined);
    assert_eq!(queue.finish(&mut store, &key(8), CopyOutcome::Done, 3).unwrap(), None);
    let actions = queue.start_ready(&mut store, 3).unwrap();
    let [QueueAction::Start(entry)] = &actions[..] else { panic!("{actions:?}") };
    assert!(entry.removes && entry.tries == 1, "{entry:?}");
    let end = queue.finish(&mut store, &key(8), CopyOutcome::NotNeeded, 4).unwrap();
    assert_eq!(end, Some(QueueAction::Finished(key(8), Ok(()))));
    assert_eq!(store.entries().count(), 0);
    // A cancel ends a request of this kind like any other.
    queue.submit(&mut store, &removing, 5).unwrap();
    queue.start_ready(&mut store, 5).unwrap();
    queue.cancel(&mut store, &id(1)).unwrap();
    assert!(queue.finish(&mut store, &key(8), CopyOutcome::Done, 6).unwrap().is_some());
    assert_eq!(store.entries().count(), 0);
}
