//! Tests of the files that a program is asked for.

#![allow(clippy::unwrap_used)] // a panic is the failure of a test

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn new_state() -> AgentState {
    AgentState::new(Arc::new(WakeEvent::new().unwrap()))
}

fn add(state: &mut AgentState, name: &str) -> Arc<RequestEnd> {
    let end = Arc::new(RequestEnd::new().unwrap());
    let line = vec![Vec::new(), format!(" {name}").into_bytes()];
    state.add(name.into(), AgentFile::new(line, "/none".into(), EndSign::Report, end.clone()));
    end
}

/// Adds a file at which its copy looks.
fn watch(state: &mut AgentState, name: &str) -> Arc<RequestEnd> {
    let end = add(state, name);
    state.requests.get_mut(name.as_bytes()).unwrap().sign = EndSign::File;
    end
}

/// Starts a process, and returns the words and names of the lines that it gets.
fn lines(state: &mut AgentState) -> Vec<(String, String)> {
    state.expect_process();
    state.begin_process();
    more_lines(state)
}

fn more_lines(state: &mut AgentState) -> Vec<(String, String)> {
    let keys: Vec<Vec<u8>> = state.requests.keys().cloned().collect();
    for key in keys {
        if let Some((_, run)) = state.to_be_cleaned(&key) {
            state.is_cleaned(&key, run);
        }
    }
    let mut lines = Vec::new();
    while let Some(line) = state.next_line("p") {
        let line = String::from_utf8(line).unwrap();
        let (word, name) = line.split_once(' ').unwrap();
        lines.push((word.to_owned(), name.to_owned()));
    }
    lines
}

fn names(lines: Vec<(String, String)>) -> String {
    lines.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn only_the_file_at_which_processes_end_is_charged() {
    let mut state = new_state();
    let ends: Vec<_> = ["a", "b", "c", "d"].map(|name| add(&mut state, name)).into();
    assert_eq!(names(lines(&mut state)), "abcd");
    state.take_back("agent", "how", HOUR);
    // It came later, and waits.
    let later = add(&mut state, "0");
    assert_eq!(names(lines(&mut state)), "ab");
    state.take_back("agent", "how", HOUR);
    for _ in 0..3 {
        let given = lines(&mut state);
        assert!(ends[0].take().is_none());
        assert_eq!(names(given), "a");
        state.take_back("agent", "how", HOUR);
    }
    assert!(matches!(ends[0].take(), Some(CopyOutcome::Failed(_))));
    let given = lines(&mut state);
    for (word, name) in [(&given[0].0, "c"), (&given[0].0, "")] {
        state.report(word.as_bytes(), CopyOutcome::Done);
        assert_eq!(names(more_lines(&mut state)), name);
    }
    assert_eq!(ends[1].take(), Some(CopyOutcome::Done));
    for name in ["d", "0"] {
        let word = state.requests.values().find(|request| request.given.is_some()).unwrap().word.clone();
        state.report(&word, CopyOutcome::Done);
        assert_eq!(names(more_lines(&mut state)), name);
    }
    assert!(ends[3].take().is_some() && later.take().is_none());
}

/// After a death, a process has fewer lines than there are files. Nothing else than the end of a file shows that the next line
/// is due.
#[test]
fn each_end_of_a_file_wakes_the_thread_that_gives_the_next_line() {
    let ends: [fn(&mut AgentState); 4] = [
        |state| state.complete(b"a", state.run.unwrap()),
        |state| state.abandon(b"a", state.run.unwrap(), FAILURE(), None),
        |state| state.finish(b"a", CopyOutcome::Failed(FAILURE())),
        |state| {
            state.requests.get_mut(b"a".as_slice()).unwrap().given = None;
            state.cancel(b"a");
        },
    ];
    for end in ends {
        let mut state = new_state();
        for name in ["a", "b"] {
            watch(&mut state, name);
        }
        lines(&mut state);
        state.take_back("agent", "how", HOUR);
        assert_eq!(names(lines(&mut state)), "a");
        state.wake.take();
        assert_eq!(names(more_lines(&mut state)), "");
        end(&mut state);
        assert!(state.wake.take());
        assert_eq!(names(more_lines(&mut state)), "b");
    }
}

#[test]
fn a_program_that_ends_with_each_file_is_an_outage_of_the_site() {
    let mut state = new_state();
    let ends: Vec<_> = (0..8).map(|number| add(&mut state, &number.to_string())).collect();
    for _ in 0..3 + 3 * 3 {
        lines(&mut state);
        state.take_back("agent", "how", HOUR);
    }
    assert!(state.is_empty());
    let reasons = ends.iter().map(|end| match end.take() {
        Some(CopyOutcome::Failed(failure)) => failure.reason,
        other => panic!("{other:?}"),
    });
    assert_eq!(reasons.filter(|reason| *reason == FailureReason::Site).count(), 5);
}

#[test]
fn the_time_of_a_file_begins_with_its_line_and_only_the_late_one_fails() {
    let mut state = new_state();
    let first = add(&mut state, "b");
    assert_eq!(state.time_left(Duration::ZERO), None);
    assert_eq!(names(lines(&mut state)), "b");
    let second = add(&mut state, "a");
    assert_eq!(names(more_lines(&mut state)), "a");
    assert!(state.time_left(HOUR).unwrap() > Duration::ZERO);
    assert_eq!(state.time_left(Duration::ZERO), Some(Duration::ZERO));
    assert!(first.take().is_none(), "its process could still write it");
    state.take_back("agent", "how", Duration::ZERO);
    assert!(matches!(first.take(), Some(CopyOutcome::Failed(_))) && second.take().is_none());
    let later = add(&mut state, "c");
    assert_eq!(names(lines(&mut state)), "ac");
    assert!(later.take().is_none());
}

#[test]
fn a_report_of_another_file_shows_that_the_program_works() {
    let mut state = new_state();
    add(&mut state, "a");
    add(&mut state, "b");
    let given = lines(&mut state);
    let earlier = Instant::now().checked_sub(2 * LIMIT).unwrap();
    state.requests.values_mut().for_each(|request| request.given = Some(earlier));
    state.report(given[1].0.as_bytes(), CopyOutcome::Done);
    assert!(state.time_left(LIMIT).unwrap() > Duration::ZERO);
    let earliest = Instant::now().checked_sub(LIMITS_MAX * LIMIT).unwrap();
    state.requests.values_mut().for_each(|request| request.given = Some(earliest));
    assert_eq!(state.time_left(LIMIT), Some(Duration::ZERO), "a file that it has forgotten fails too");
}

#[test]
fn a_cancelled_file_that_the_program_has_waits_for_it() {
    let mut state = new_state();
    let first = add(&mut state, "a");
    lines(&mut state);
    let second = add(&mut state, "b");
    state.cancel(b"a");
    state.cancel(b"b");
    assert!(first.take().is_none(), "the program could still write it");
    assert_eq!(second.take(), Some(CopyOutcome::Stopped));
    state.take_back("agent", "how", HOUR);
    assert_eq!(first.take(), Some(CopyOutcome::Stopped));
}

#[test]
fn a_late_report_of_an_earlier_line_ends_nothing() {
    let mut state = new_state();
    add(&mut state, "a");
    let first = lines(&mut state);
    state.report(first[0].0.as_bytes(), CopyOutcome::Done);
    let end = add(&mut state, "a");
    let second = more_lines(&mut state);
    assert!(!state.is_asked(first[0].0.as_bytes()) && state.is_asked(second[0].0.as_bytes()));
    state.report(first[0].0.as_bytes(), CopyOutcome::Done);
    assert!(end.take().is_none());
}

const FAILURE: fn() -> CopyFailure = || CopyFailure::new(FailureReason::Permanent, "odd");

#[test]
fn a_file_that_cannot_be_judged_costs_only_itself() {
    let mut state = new_state();
    let (odd, other) = (watch(&mut state, "a"), watch(&mut state, "b"));
    assert_eq!(names(lines(&mut state)), "ab");
    let run = state.process_of(b"a").unwrap();
    state.abandon(b"a", run, FAILURE(), None);
    assert_eq!(odd.take(), Some(CopyOutcome::Failed(FAILURE())));
    assert!(other.take().is_none() && !state.is_replaced());
    assert_eq!(state.time_left(Duration::ZERO), None, "no time ends the process");
    // Its process could write a further try of it.
    assert!(state.is_blocked(b"a") && !state.is_blocked(b"b") && !state.is_replaced());
    state.complete(b"b", run);
    assert_eq!(other.take(), Some(CopyOutcome::Done));
    // Now the process has nothing else to do.
    assert!(!state.is_blocked(b"a") && state.is_replaced());
    let again = watch(&mut state, "a");
    assert_eq!(names(more_lines(&mut state)), "");
    state.take_back("agent", "how", HOUR);
    assert_eq!(names(lines(&mut state)), "a");
    assert!(!state.is_replaced() && !state.is_blocked(b"a") && again.take().is_none());
}

#[test]
fn a_process_is_replaced_after_many_such_files_and_no_other_one_is_charged() {
    let mut state = new_state();
    lines(&mut state);
    for number in 0..ABANDONED_MAX {
        assert!(!state.is_replaced(), "{number}");
        let name = format!("f{number:05}");
        watch(&mut state, &name);
        more_lines(&mut state);
        let run = state.process_of(name.as_bytes()).unwrap();
        state.abandon(name.as_bytes(), run, FAILURE(), None);
    }
    assert!(state.is_replaced());
    let ends = ["a", "b"].map(|name| watch(&mut state, name));
    state.is_replaced = false;
    assert_eq!(names(more_lines(&mut state)), "ab");
    state.is_replaced = true;
    state.take_back("agent", "how", HOUR);
    assert_eq!(names(lines(&mut state)), "ab", "they are no suspects");
    assert!(ends.iter().all(|end| end.take().is_none()));
}

#[test]
fn a_look_at_a_file_of_an_earlier_process_has_no_effect() {
    let mut state = new_state();
    let end = watch(&mut state, "a");
    lines(&mut state);
    let run = state.process_of(b"a").unwrap();
    state.take_back("agent", "how", HOUR);
    for _ in 0..2 {
        state.complete(b"a", run);
        state.abandon(b"a", run, FAILURE(), None);
        assert!(end.take().is_none() && !state.is_blocked(b"a"));
        lines(&mut state);
    }
    let run = state.process_of(b"a").unwrap();
    state.complete(b"a", run);
    assert_eq!(end.take(), Some(CopyOutcome::Done));
}

const LIMIT: Duration = Duration::from_secs(10);

/// Lets a time pass.
fn pass(state: &mut AgentState, time: Duration) {
    let earlier =
        |instant: &mut Option<Instant>| *instant = instant.map(|instant| instant.checked_sub(time).unwrap());
    state.requests.values_mut().for_each(|request| earlier(&mut request.given));
    [&mut state.begun, &mut state.reported].into_iter().for_each(earlier);
}

/// Ends all late files, as their copies do.
fn end_late(state: &mut AgentState) -> String {
    let late: Vec<_> = state.requests.keys().filter(|key| state.is_late(key, LIMIT)).cloned().collect();
    for key in &late {
        state.abandon(key, state.run.unwrap(), FAILURE(), Some(LIMIT));
    }
    String::from_utf8(late.concat()).unwrap()
}

#[test]
fn a_process_that_completes_nothing_for_the_time_of_a_file_is_replaced() {
    for (works, is_replaced) in [(true, false), (false, true)] {
        let mut state = new_state();
        for name in ["a", "b"] {
            watch(&mut state, name);
        }
        lines(&mut state);
        pass(&mut state, LIMIT / 2);
        let other = watch(&mut state, "c");
        assert_eq!(names(more_lines(&mut state)), "c");
        if works {
            state.complete(b"b", state.run.unwrap());
        }
        pass(&mut state, LIMIT / 2);
        assert_eq!(end_late(&mut state), if works { "a" } else { "ab" });
        assert_eq!(state.is_replaced(), is_replaced);
        assert!(other.take().is_none());
        if is_replaced {
            // The other file is no suspect, and has all its time again.
            state.take_back("agent", "how", HOUR);
            assert_eq!(names(lines(&mut state)), "c");
            pass(&mut state, LIMIT / 2);
            assert_eq!(end_late(&mut state), "");
        }
    }
}

/// Its files have brought the time from an earlier process.
#[test]
fn a_late_file_does_not_end_a_process_that_has_just_started() {
    let mut state = new_state();
    for name in ["a", "b"] {
        watch(&mut state, name);
    }
    lines(&mut state);
    pass(&mut state, LIMIT - Duration::from_secs(1));
    let other = watch(&mut state, "c");
    assert_eq!(names(more_lines(&mut state)), "c");
    state.take_back("agent", "how", HOUR);
    assert_eq!(names(lines(&mut state)), "a");
    pass(&mut state, Duration::from_secs(2));
    assert_eq!(end_late(&mut state), "a");
    assert!(!state.is_replaced());
    // It has waited for its turn, which costs it no time.
    for (given, late) in [("b", "b"), ("c", "")] {
        assert_eq!(names(more_lines(&mut state)), given);
        pass(&mut state, Duration::from_secs(2));
        assert_eq!((end_late(&mut state), state.is_replaced()), (late.to_owned(), false));
    }
    assert!(other.take().is_none());
}

#[test]
fn the_time_of_a_file_is_that_for_which_processes_have_it() {
    let mut state = new_state();
    watch(&mut state, "a");
    assert!(!state.is_late(b"a", Duration::ZERO), "it has no line");
    for _ in 0..2 {
        lines(&mut state);
        assert!(!state.is_late(b"a", LIMIT));
        pass(&mut state, LIMIT / 2);
        state.take_back("agent", "how", HOUR);
        assert!(!state.is_late(b"a", Duration::ZERO), "nobody has it");
    }
    lines(&mut state);
    assert!(state.is_late(b"a", LIMIT), "no restart prolongs it");
}
