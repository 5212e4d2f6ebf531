//! The moment at which a loop is woken though nothing has come.
//!
//! With a time limit for each wait the kernel would set up a timer whenever the loop falls asleep, and take it off when a request
//! comes: on a virtual machine each of that may leave it. This one stays.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::time::{Duration, Instant};

/// A descriptor that becomes readable at that moment. Each time it is told once, whether it is read or not
/// (edge-triggered).
pub(crate) struct Alarm {
    fd: OwnedFd,
    at: Option<Instant>,
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Alarm {
    /// # Errors
    /// Out of descriptors, or refused.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd, at: None })
    }

    /// Has it go off by then. One that is set for an earlier moment stays so: whoever is woken too early sets it again, which
    /// costs less than to set it anew each time the moment is put off.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn set(&mut self, at: Instant, now: Instant) -> io::Result<()> {
        if self.at.is_some_and(|set| now < set && set <= at) {
            return Ok(());
        }
        // No time at all would take it off.
        let left = at.saturating_duration_since(now).max(Duration::from_nanos(1));
        let value = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            },
        };
        rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value)?;
        self.at = Some(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn waits(alarm: &Alarm) {
        let mut one = [PollFd::new(alarm, PollFlags::IN)];
        assert_eq!(poll(&mut one, None), Ok(1));
    }

    #[test]
    fn it_goes_off_by_the_earliest_moment_and_again() {
        let mut alarm = Alarm::new().unwrap();
        let now = Instant::now();
        alarm.set(now + Duration::from_secs(3600), now).unwrap();
        let soon = now + Duration::from_millis(1);
        alarm.set(soon, now).unwrap();
        // Put off: it stays.
        alarm.set(now + Duration::from_secs(3600), now).unwrap();
        assert_eq!(alarm.at, Some(soon));
        waits(&alarm);
        let now = Instant::now();
        assert!(now >= soon, "woken before its time");
        // A moment that has passed is now.
        alarm.set(now, now).unwrap();
        waits(&alarm);
    }
}
