//! Which process does the work of a directory of transfers: the server, or a daemon beside it.
//!
//! A server has precedence, because only it knows what its clients have open, and reports files to its cluster.
//! A daemon works while no server does. Each of them has a lock for its life, and the one that works has a
//! third one, so the same work is never done twice. The kernel releases the locks of a process that was killed.
//!
//! A daemon takes the lock of a working daemon before it looks for a server, and a server takes its own before it looks
//! for a working daemon. So at least one of two that start at once sees the other.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use storage::{DirectoryLock, PrivateDirectory};

/// The time that a server waits for the end of the work of a daemon. Copy programs have 5 s between two signals.
const HANDOVER_MAX: Duration = Duration::from_secs(30);

/// The interval between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Work that one process does at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedWork {
    /// Transfers from and to mass storage.
    Transfers,
    /// Purges.
    Purges,
}

impl SharedWork {
    /// Returns the name of the lock of the process that works. That of transfers is XRootD's.
    pub(crate) fn worker(self) -> &'static str {
        match self {
            Self::Transfers => "frm_xfrd.lock",
            Self::Purges => "frm_purged.lock",
        }
    }

    fn server(self) -> &'static str {
        match self {
            Self::Transfers => "transfers-server.lock",
            Self::Purges => "purges-server.lock",
        }
    }

    fn daemon(self) -> &'static str {
        match self {
            Self::Transfers => "transfers-daemon.lock",
            Self::Purges => "purges-daemon.lock",
        }
    }

    fn working_daemon(self) -> &'static str {
        match self {
            Self::Transfers => "transfers-daemon-works.lock",
            Self::Purges => "purges-daemon-works.lock",
        }
    }
}

/// The claim of a server on work, for its life.
pub struct ServerClaim {
    _lock: DirectoryLock,
}

impl ServerClaim {
    /// Claims work for a server, and waits until a daemon has ended the transfers that it executes. A purge of
    /// a daemon goes on, see [`PurgeTurn`]. `None` if another server has the claim. Blocks for some seconds.
    pub fn take(directory: &Path, work: SharedWork) -> io::Result<Option<Self>> {
        let place = PrivateDirectory::create(directory)?;
        let Some(lock) = DirectoryLock::claim(&place, work.server())? else { return Ok(None) };
        let since = Instant::now();
        while work == SharedWork::Transfers
            && DirectoryLock::is_claimed(&place, work.working_daemon())?
            && since.elapsed() < HANDOVER_MAX
        {
            std::thread::sleep(LOOK);
        }
        Ok(Some(Self { _lock: lock }))
    }
}

/// The claim of a daemon, for its life.
pub struct DaemonClaim {
    place: PrivateDirectory,
    work: SharedWork,
    _lock: DirectoryLock,
}

impl DaemonClaim {
    /// Claims work for a daemon. `None` if there is another one.
    pub fn take(directory: &Path, work: SharedWork) -> io::Result<Option<Self>> {
        let place = PrivateDirectory::create(directory)?;
        let lock = DirectoryLock::claim(&place, work.daemon())?;
        Ok(lock.map(|lock| Self { place, work, _lock: lock }))
    }

    /// Returns a function that reports whether a server does the work, for another thread. A directory that
    /// cannot be read counts as one with a server.
    pub fn server_probe(&self) -> io::Result<impl Fn() -> bool + Send + 'static> {
        let (place, work) = (PrivateDirectory::open(self.place.path())?, self.work);
        Ok(move || DirectoryLock::is_claimed(&place, work.server()).unwrap_or(true))
    }

    /// Begins the work. `None` if a server does it, or wants to.
    pub fn begin(&self) -> io::Result<Option<DaemonWork>> {
        let lock = DirectoryLock::claim(&self.place, self.work.working_daemon())?;
        Ok(lock.filter(|_| !self.is_for_server().unwrap_or(true)).map(|lock| DaemonWork { _lock: lock }))
    }

    /// Reports whether a server does the work, or wants to.
    pub fn is_for_server(&self) -> io::Result<bool> {
        DirectoryLock::is_claimed(&self.place, self.work.server())
    }
}

/// The work of a daemon. A server waits for its end.
pub struct DaemonWork {
    _lock: DirectoryLock,
}

/// The right to purge now.
pub struct PurgeTurn {
    _lock: DirectoryLock,
}

impl PurgeTurn {
    /// Takes the right to purge in a directory of transfers. `None` while another process purges.
    pub fn take(directory: &Path) -> io::Result<Option<Self>> {
        let place = PrivateDirectory::create(directory)?;
        let lock = DirectoryLock::claim(&place, SharedWork::Purges.worker())?;
        Ok(lock.map(|lock| Self { _lock: lock }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn a_server_has_precedence_and_waits_for_a_daemon_that_works() {
        let path = std::env::temp_dir().join(format!("residency-work-claim-{}", std::process::id()));
        let work = SharedWork::Transfers;
        let daemon = DaemonClaim::take(&path, work).unwrap().unwrap();
        assert!(DaemonClaim::take(&path, work).unwrap().is_none());
        assert!(DaemonClaim::take(&path, SharedWork::Purges).unwrap().is_some());
        assert!(!daemon.is_for_server().unwrap());
        let working = daemon.begin().unwrap().unwrap();
        let (of_server, its_path) = (std::sync::mpsc::channel(), path.clone());
        let taking =
            std::thread::spawn(move || of_server.0.send(ServerClaim::take(&its_path, work).unwrap()));
        while !daemon.is_for_server().unwrap() {
            std::thread::yield_now();
        }
        assert!(of_server.1.try_recv().is_err(), "the daemon still works");
        drop(working);
        let claim = of_server.1.recv().unwrap().unwrap();
        taking.join().unwrap().unwrap();
        assert!(ServerClaim::take(&path, work).unwrap().is_none());
        assert!(daemon.begin().unwrap().is_none(), "the server works");
        drop(claim);
        assert!(daemon.begin().unwrap().is_some());
        assert!(!daemon.is_for_server().unwrap());
        let turn = PurgeTurn::take(&path).unwrap().unwrap();
        assert!(PurgeTurn::take(&path).unwrap().is_none());
        drop(turn);
        assert!(PurgeTurn::take(&path).unwrap().is_some());
        std::fs::remove_dir_all(&path).unwrap();
    }
}
