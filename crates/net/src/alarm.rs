//! The timer that limits a wait of the reactor.
//!
//! It exists because a timeout for each wait would set a kernel timer whenever the loop falls
//! asleep, and cancel it when a request arrives. On a virtual machine each of these may leave the
//! guest. This timer remains set.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::time::{Duration, Instant};

/// A descriptor that becomes readable at a moment. Each expiry is reported once, even if it is not
/// read (edge-triggered).
pub(crate) struct TimerDescriptor {
    fd: OwnedFd,
    at: Option<Instant>,
}

impl AsFd for TimerDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl TimerDescriptor {
    /// Creates a timer that is not set.
    ///
    /// # Errors
    /// Out of descriptors, or refused by the kernel.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd, at: None })
    }

    /// Sets the timer to expire no later than `at`. A timer set to an earlier moment is kept: after
    /// an early expiry it is set again, which costs less than a change each time the moment is
    /// postponed.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn set(&mut self, at: Instant, now: Instant) -> io::Result<()> {
        if self.at.is_some_and(|set| now < set && set <= at) {
            return Ok(());
        }
        // Zero would cancel the timer.
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

    fn waits(alarm: &TimerDescriptor) {
        let mut one = [PollFd::new(alarm, PollFlags::IN)];
        assert_eq!(poll(&mut one, None), Ok(1));
    }

    #[test]
    fn it_expires_at_the_earliest_moment_and_again() {
        let mut alarm = TimerDescriptor::new().unwrap();
        let now = Instant::now();
        alarm.set(now + Duration::from_secs(3600), now).unwrap();
        let soon = now + Duration::from_millis(1);
        alarm.set(soon, now).unwrap();
        // A later moment does not change it.
        alarm.set(now + Duration::from_secs(3600), now).unwrap();
        assert_eq!(alarm.at, Some(soon));
        waits(&alarm);
        let now = Instant::now();
        assert!(now >= soon, "woken before its time");
        // A moment in the past expires immediately.
        alarm.set(now, now).unwrap();
        waits(&alarm);
    }
}
