//! Time from a request to its reply, by kind of request.
//!
//! A [`RequestTimer`] belongs to a request and ends with it, wherever its reply is made. It begins when
//! the request has arrived completely, for a write when its data has arrived, for either earlier by the time for
//! which the server did not take it. It ends when the whole
//! reply is in the output of its connection, or when nobody waits for the reply any more.
//!
//! Clocks cost as much as a small part of a read. A request that ends in the round of its loop in which it
//! began therefore reads none: it has the time of that round, after which its reply is sent. The loop
//! calls [`end_round`] with the time that it knows anyway.
//!
//! The state is that of the thread, like that of counted replies, because a server has many sessions.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use wire::xroot::codes::RequestCode;

/// Kinds of requests whose times are measured, by the name of each. All others are the last one.
pub const TIMED_OPERATIONS: [&str; 14] = [
    "open", "close", "read", "pgread", "readv", "write", "sync", "stat", "dirlist", "locate", "change",
    "query", "login", "other",
];

/// The last one of [`TIMED_OPERATIONS`].
const OTHER: u8 = 13;

/// Returns the place of a request among [`TIMED_OPERATIONS`]; `None` is the handshake.
const fn place_of(code: Option<RequestCode>) -> u8 {
    match code {
        Some(RequestCode::OPEN) => 0,
        Some(RequestCode::CLOSE) => 1,
        Some(RequestCode::READ) => 2,
        Some(RequestCode::PGREAD) => 3,
        Some(RequestCode::READV) => 4,
        Some(RequestCode::WRITE | RequestCode::PGWRITE | RequestCode::WRITEV) => 5,
        Some(RequestCode::SYNC) => 6,
        Some(RequestCode::STAT | RequestCode::STATX) => 7,
        Some(RequestCode::DIRLIST) => 8,
        Some(RequestCode::LOCATE) => 9,
        Some(
            RequestCode::MKDIR
            | RequestCode::MV
            | RequestCode::RM
            | RequestCode::RMDIR
            | RequestCode::CHMOD
            | RequestCode::TRUNCATE,
        ) => 10,
        Some(RequestCode::QUERY) => 11,
        // The reply to kXR_bind is made by the loop of another session.
        Some(RequestCode::LOGIN | RequestCode::AUTH) => 12,
        _ => OTHER,
    }
}

/// Requests of one kind that took the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedRequests {
    /// Place among [`TIMED_OPERATIONS`].
    pub operation: usize,
    /// Their number.
    pub count: u64,
    /// The time of each.
    pub time: Duration,
}

/// Measures the time of a request until it is dropped. It is one word, because each request moves it: the time of
/// its begin and the kind of the request. 0 measures nothing. It stays on the loop of its request, because only loops
/// pass times on.
#[derive(PartialEq, Eq, Default, Debug)]
pub struct RequestTimer(u64, PhantomData<*const ()>);

/// Number of bits for the kind of a request.
const KIND_BITS: u32 = 4;

const _: () = assert!(TIMED_OPERATIONS.len() <= 1 << KIND_BITS);

impl RequestTimer {
    const fn of(timer: u64) -> Self {
        Self(timer, PhantomData)
    }

    /// Measures from now on, as if the present had begun earlier by the time for which the server refused data.
    pub(crate) fn restart(&mut self, refused: Duration) {
        if self.0 != 0 {
            let operation = self.0 & ((1 << KIND_BITS) - 1);
            let refused = u64::try_from(refused.as_nanos()).unwrap_or(u64::MAX);
            self.0 = round_start().saturating_sub(refused).max(1) << KIND_BITS | operation;
        }
    }

    /// Returns the timer, which no longer ends with this value.
    pub(crate) fn take(&mut self) -> Self {
        Self::of(std::mem::take(&mut self.0))
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        if self.0 != 0 {
            ended(self.0);
        }
    }
}

/// The times of a thread that are not in the counters of its loop yet. It has no destructor, which would cost a
/// check at each access.
struct LoopTimes {
    /// The timer of the request that is being taken; 0 if there is none.
    arriving: Cell<u64>,
    /// The start of the round in nanoseconds; 0 if no request has begun in it.
    round: Cell<u64>,
    /// Requests that have ended in the round in which they began, by kind, and the kinds among them.
    prompt: [Cell<u32>; 1 << KIND_BITS],
    present: Cell<u32>,
    /// Set if requests have ended later.
    has_late: Cell<bool>,
}

thread_local! {
    static TIMES: LoopTimes = const {
        LoopTimes {
            arriving: Cell::new(0),
            round: Cell::new(0),
            prompt: [const { Cell::new(0) }; 1 << KIND_BITS],
            present: Cell::new(0),
            has_late: Cell::new(false),
        }
    };

    /// Requests that have ended in a later round than that in which they began.
    static LATE: RefCell<Vec<TimedRequests>> = const { RefCell::new(Vec::new()) };
}

/// Places for requests of [`LATE`] that are kept.
const LATE_KEPT: usize = 1024;

/// Counts the end of the request of a timer.
fn ended(timer: u64) {
    let (since, operation) = (timer >> KIND_BITS, timer & ((1 << KIND_BITS) - 1));
    let operation = usize::try_from(operation).unwrap_or_default();
    let is_late = TIMES.with(|times| {
        let is_late = times.round.get() != since;
        if is_late {
            times.has_late.set(true);
        } else if let Some(count) = times.prompt.get(operation) {
            count.set(count.get() + 1);
            times.present.set(times.present.get() | 1 << operation);
        }
        is_late
    });
    if is_late {
        let time = Duration::from_nanos(nanos_at(Instant::now()).saturating_sub(since));
        // A thread that ends counts nothing.
        let _ = LATE.try_with(|late| late.borrow_mut().push(TimedRequests { operation, count: 1, time }));
    }
}

/// Returns a time in nanoseconds, which is never 0.
fn nanos_at(now: Instant) -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let since = now.saturating_duration_since(*BEGIN.get_or_init(|| now));
    // Without the bits of the kind. This is enough for 36 years.
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).clamp(1, u64::MAX >> KIND_BITS)
}

/// Returns the start of the round in nanoseconds. The first call in a round reads the clock.
fn round_start() -> u64 {
    TIMES.with(|times| match times.round.get() {
        0 => {
            let now = nanos_at(Instant::now());
            times.round.set(now);
            now
        }
        start => start,
    })
}

/// The time for which the server did not take bytes that had arrived.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RefusedTime {
    /// Begin of the present refusal in nanoseconds; 0 if there is none.
    since: u64,
    /// The time of the earlier ones in nanoseconds.
    before: u64,
}

impl RefusedTime {
    /// Nothing was refused.
    pub const NONE: Self = Self { since: 0, before: 0 };

    /// Begins a refusal, unless there is one.
    pub fn begin(&mut self) {
        if self.since == 0 {
            self.since = round_start();
        }
    }

    /// Ends the refusal, if there is one.
    pub fn end(&mut self) {
        if self.since != 0 {
            self.before += round_start().saturating_sub(std::mem::take(&mut self.since));
        }
    }

    /// Reports whether something is refused now.
    pub fn is_present(self) -> bool {
        self.since != 0
    }

    /// Ends the refusal. Returns the time of all of them.
    pub fn take(&mut self) -> Duration {
        self.end();
        Duration::from_nanos(std::mem::take(&mut self.before))
    }
}

/// Begins the measurement of a request with this code; `None` is the handshake. The server has refused to take it
/// for a time. It ends with [`take_arriving`], unless a call or a read takes it over.
pub fn begin_request(code: Option<RequestCode>, refused: Duration) {
    let mut timer = RequestTimer::of(round_start() << KIND_BITS | u64::from(place_of(code)));
    if !refused.is_zero() {
        timer.restart(refused);
    }
    let earlier = TIMES.with(|times| times.arriving.replace(std::mem::take(&mut timer.0)));
    // None is left of a request that was taken completely.
    drop(RequestTimer::of(earlier));
}

/// Takes the timer of the request that is being taken.
#[must_use = "the request ends when the timer is dropped"]
pub fn take_arriving() -> RequestTimer {
    RequestTimer::of(TIMES.with(|times| times.arriving.take()))
}

/// Ends a round of the loop, and passes the requests on that have ended in it.
pub fn end_round(now: Instant, mut add: impl FnMut(TimedRequests)) {
    TIMES.with(|times| {
        let (start, mut present) = (times.round.take(), times.present.take());
        if present != 0 {
            let time = Duration::from_nanos(nanos_at(now).saturating_sub(start));
            while present != 0 {
                let operation = present.trailing_zeros() as usize;
                present &= present - 1;
                if let Some(count) = times.prompt.get(operation) {
                    add(TimedRequests { operation, count: count.take().into(), time });
                }
            }
        }
        if times.has_late.take() {
            LATE.with(|late| {
                let mut late = late.borrow_mut();
                late.drain(..).for_each(add);
                late.shrink_to(LATE_KEPT);
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the start of the round as a time.
    fn begin_of_round() -> Instant {
        let now = Instant::now();
        now - Duration::from_nanos(nanos_at(now) - round_start())
    }

    fn ended(now: Instant) -> Vec<TimedRequests> {
        let mut found = Vec::new();
        end_round(now, |requests| found.push(requests));
        found
    }

    fn name(requests: &TimedRequests) -> &'static str {
        TIMED_OPERATIONS[requests.operation]
    }

    #[test]
    fn requests_of_a_round_have_its_time() {
        for code in [RequestCode::READ, RequestCode::STAT, RequestCode::READ] {
            begin_request(Some(code), Duration::ZERO);
            drop(take_arriving());
        }
        let found = ended(begin_of_round() + Duration::from_micros(40));
        assert_eq!(
            found.iter().map(|one| (name(one), one.count)).collect::<Vec<_>>(),
            [("read", 2), ("stat", 1)]
        );
        assert!(found.iter().all(|one| one.time == Duration::from_micros(40)), "{found:?}");
        // They are passed on once.
        assert_eq!(ended(Instant::now()), []);
    }

    #[test]
    fn a_request_that_ends_in_another_round_has_its_own_time() {
        begin_request(Some(RequestCode::OPEN), Duration::ZERO);
        let timer = take_arriving();
        assert_eq!(ended(Instant::now()), []);
        begin_request(None, Duration::ZERO);
        drop(take_arriving());
        drop(timer);
        let found = ended(begin_of_round());
        let names: Vec<_> = found.iter().map(name).collect();
        assert_eq!(names, ["other", "open"]);
        assert!(found[1].time > Duration::ZERO);
    }

    #[test]
    fn a_restart_forgets_the_time_before() {
        begin_request(Some(RequestCode::WRITE), Duration::ZERO);
        let mut timer = take_arriving();
        assert_eq!(ended(Instant::now()), []);
        timer.restart(Duration::ZERO);
        drop(timer);
        let found = ended(begin_of_round() + Duration::from_micros(3));
        assert_eq!(found, [TimedRequests { operation: 5, count: 1, time: Duration::from_micros(3) }]);
    }

    #[test]
    fn a_request_has_the_time_for_which_it_was_refused() {
        let refused = Duration::from_micros(1);
        // No time is before the first one.
        while round_start() <= 2000 {
            ended(Instant::now());
        }
        begin_request(Some(RequestCode::READ), refused);
        drop(take_arriving());
        begin_request(Some(RequestCode::WRITE), Duration::ZERO);
        let mut timer = take_arriving();
        timer.restart(refused);
        drop(timer);
        // Requests without this time have none in a round that ends as it begins.
        begin_request(Some(RequestCode::STAT), Duration::ZERO);
        drop(take_arriving());
        let found = ended(begin_of_round());
        let are_longer: Vec<_> = found.iter().map(|one| (name(one), one.time >= refused)).collect();
        assert_eq!(are_longer, [("stat", false), ("read", true), ("write", true)]);
    }

    #[test]
    fn refusals_add_up() {
        let mut refused = RefusedTime::NONE;
        refused.begin();
        assert_eq!((refused.is_present(), ended(Instant::now())), (true, Vec::new()));
        refused.begin();
        refused.end();
        let first = refused.before;
        assert!(first > 0 && !refused.is_present());
        refused.end();
        assert_eq!(refused.before, first);
        assert_eq!(ended(Instant::now()), []);
        refused.begin();
        assert_eq!(ended(Instant::now()), []);
        assert!(refused.take() > Duration::from_nanos(first));
        assert_eq!(refused, RefusedTime::NONE);
    }

    #[test]
    fn a_timer_that_was_taken_over_ends_once() {
        begin_request(Some(RequestCode::CLOSE), Duration::ZERO);
        let mut first = take_arriving();
        let second = first.take();
        drop((first, take_arriving()));
        drop(second);
        assert_eq!(ended(Instant::now()).iter().map(|one| one.count).sum::<u64>(), 1);
    }

    #[test]
    fn each_kind_of_request_has_its_name() {
        let name = |code| TIMED_OPERATIONS[usize::from(place_of(code))];
        for (code, wanted) in [
            (RequestCode::PGREAD, "pgread"),
            (RequestCode::PGWRITE, "write"),
            (RequestCode::WRITEV, "write"),
            (RequestCode::SYNC, "sync"),
            (RequestCode::STATX, "stat"),
            (RequestCode::DIRLIST, "dirlist"),
            (RequestCode::LOCATE, "locate"),
            (RequestCode::MV, "change"),
            (RequestCode::QUERY, "query"),
            (RequestCode::AUTH, "login"),
            (RequestCode::BIND, "other"),
            (RequestCode::PING, "other"),
            (RequestCode(7), "other"),
        ] {
            assert_eq!(name(Some(code)), wanted);
        }
        assert_eq!(name(None), "other");
    }
}
