//! The processes of programs of `oss.stagecmd` that read lines, of this run of the server and of earlier ones.
//!
//! All have a variable in their environment that names the queue. As long as one runs, it may write a file under the
//! temporary name that another copy of the same file gets. So nothing is staged before all those of earlier runs have
//! ended, whichever program stages now.

use crate::ports::StopSignal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The variable in the environment of all processes of the program. Its value names the queue.
pub(crate) const MARK_VARIABLE: &str = "SCALLA_STAGE";

/// Maximum number of bytes of an environment that are searched.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// The interval between two looks at the processes.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Time after which a process that does not end is logged.
const WARNING: Duration = Duration::from_secs(2);

/// Returns the value of the variable for the queue in a directory.
pub(crate) fn mark_of(directory: &Path) -> io::Result<String> {
    let status = rustix::fs::stat(directory)?;
    Ok(format!("{}:{}", status.st_dev, status.st_ino))
}

/// Ends all processes with this mark, and reports whether there was none.
pub(crate) fn none_is_left(mark: &str) -> bool {
    // A process that ends during the first look may have started one that the look did not see.
    !kill_marked(mark) && !kill_marked(mark)
}

/// Sends a signal to all processes with this mark, and reports whether there are any.
fn kill_marked(mark: &str) -> bool {
    let own = std::process::id();
    let mut has_some = false;
    for number in storage::process_numbers() {
        if u32::try_from(number) == Ok(own) || !is_marked(number, mark) {
            continue;
        }
        has_some = true;
        let descriptor = Pid::from_raw(number).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // As long as there is the descriptor, its number means no other process.
        if let Some(descriptor) = descriptor.filter(|_| is_marked(number, mark)) {
            // It fails if the process has ended.
            pidfd_send_signal(&descriptor, Signal::KILL).ok();
        }
    }
    has_some
}

fn is_marked(number: i32, mark: &str) -> bool {
    if storage::process_owner(number) != Some(rustix::process::geteuid().as_raw()) {
        return false;
    }
    let environment = storage::process_environment(number, ENVIRONMENT_BYTES_MAX).unwrap_or_default();
    let wanted = [MARK_VARIABLE.as_bytes(), b"=", mark.as_bytes()].concat();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
}

/// Says once that a process does not end.
pub(crate) struct LateWarning(Option<Instant>);

impl LateWarning {
    pub(crate) fn new() -> Self {
        Self(Instant::now().checked_add(WARNING))
    }

    pub(crate) fn check(&mut self) {
        if self.0.is_some_and(|time| Instant::now() >= time) {
            self.0 = None;
            tracing::warn!(
                "a process of the program of oss.stagecmd still runs; nothing is staged before its end"
            );
        }
    }
}

/// The processes of earlier runs of the server on a queue.
pub(crate) struct EarlierPrograms {
    mark: String,
    /// None is left.
    have_ended: Mutex<bool>,
}

impl EarlierPrograms {
    /// Returns those of the queue in a directory.
    pub(crate) fn of(directory: &Path) -> io::Result<Self> {
        Ok(Self { mark: mark_of(directory)?, have_ended: Mutex::default() })
    }

    /// Waits until none is left. Returns `false` if the signal arrives before. Nothing that this run of the server starts
    /// gets the mark before the first such call has returned.
    pub(crate) fn wait(&self, stop: Option<&StopSignal>) -> bool {
        let mut warning = LateWarning::new();
        loop {
            // Others wait for the one that looks, but not without their signals.
            let have_ended = match self.have_ended.try_lock() {
                Ok(have_ended) => Some(have_ended),
                Err(TryLockError::Poisoned(error)) => Some(PoisonError::into_inner(error)),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut have_ended) = have_ended {
                *have_ended = *have_ended || none_is_left(&self.mark);
                if *have_ended {
                    return true;
                }
            }
            warning.check();
            let mut signals: Vec<PollFd<'_>> =
                stop.iter().map(|stop| PollFd::new(*stop, PollFlags::IN)).collect();
            let time = Timespec { tv_sec: 0, tv_nsec: i64::from(INTERVAL.subsec_nanos()) };
            if poll(&mut signals, Some(&time)).is_ok_and(|ready| ready > 0) {
                return false;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn marked(mark: &str) -> Child {
        Command::new("sleep").arg("600").env(MARK_VARIABLE, mark).spawn().unwrap()
    }

    #[test]
    fn nothing_is_staged_before_programs_of_earlier_runs_have_ended() {
        let directory = std::env::temp_dir().join(format!("scalla-earlier-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let earlier = EarlierPrograms::of(&directory).unwrap();
        let (mut child, mut other) = (marked(&mark_of(&directory).unwrap()), marked("1:1"));
        let stop = StopSignal::new().unwrap();
        assert!(earlier.wait(Some(&stop)));
        assert!(!child.wait().unwrap().success());
        assert_eq!(other.try_wait().unwrap(), None, "it belongs to another queue");
        // Later ones are those of this run.
        let mut later = marked(&mark_of(&directory).unwrap());
        assert!(earlier.wait(None) && later.try_wait().unwrap().is_none());
        for child in [&mut other, &mut later] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
