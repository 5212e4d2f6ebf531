//! Notices that something was mounted or unmounted: names come and go by that which no operation of this server made.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How often the table is asked for a change. This reads nothing and does not wait.
const PAUSE: Duration = Duration::from_secs(1);

/// The table of mounts of this process.
pub(super) struct Mounts(OwnedFd);

impl Mounts {
    /// Begins to watch it.
    pub(super) fn watch() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty())?))
    }

    /// Waits for a change.
    pub(super) async fn changed(&self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if self.has_changed() {
                return;
            }
        }
    }

    /// Reports whether the table changed since it was asked last. The kernel reports that as something urgent.
    fn has_changed(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Whatever cannot be told may have changed.
        poll(&mut asked, Some(&at_once)).map_or(true, |found| found > 0)
    }
}
