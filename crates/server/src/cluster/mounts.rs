//! Detection of mounts and unmounts, because they create and remove names without an operation of
//! this server.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The interval between two checks of the table. A check reads nothing and does not block.
const PAUSE: Duration = Duration::from_secs(1);

/// The mount table of this process.
pub(super) struct Mounts(OwnedFd);

impl Mounts {
    /// Opens the table.
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

    /// Reports whether the table changed since the last check. The kernel reports a change as
    /// priority data.
    fn has_changed(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // After an error the table may have changed.
        poll(&mut asked, Some(&at_once)).map_or(true, |found| found > 0)
    }
}
