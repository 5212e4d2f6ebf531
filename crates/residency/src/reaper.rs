//! The thread that watches copy programs of earlier runs, as long as there are any.

use crate::entry::EntryKey;
use crate::outlived::{MarkedProcess, QueueRun, seconds_since_boot};
use crate::ports::ResidencyPaths;
use rustix::process::Signal;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::Backend;

/// The interval between two looks at the programs.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between the signals TERM and KILL.
const ENDING: Duration = Duration::from_secs(5);

/// The thread that watches programs of earlier runs.
pub(crate) struct ProgramReaper {
    pub(crate) run: QueueRun,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) paths: Arc<dyn ResidencyPaths>,
    /// Reports whether a transfer is still wanted; `None` when the queue has ended.
    pub(crate) is_wanted: Box<dyn Fn(EntryKey) -> Option<bool> + Send>,
}

impl ProgramReaper {
    /// Watches the programs until none is left. Blocks for as long as they run.
    pub(crate) fn run(self) {
        // The time of the first signal to the programs of a copy.
        let mut ending: HashMap<EntryKey, Instant> = HashMap::new();
        loop {
            // Each time anew, because programs start others.
            let processes = self.run.outlived();
            let Some(ended) = self.look(&processes, &mut ending) else { return };
            for key in ended {
                self.clean(&key);
            }
            if processes.is_empty() {
                return;
            }
            drop(processes);
            std::thread::sleep(INTERVAL);
        }
    }

    /// Sends signals to programs whose time is over and to those that nobody needs. Returns the copies
    /// whose programs have ended after them.
    fn look(
        &self,
        processes: &[MarkedProcess],
        ending: &mut HashMap<EntryKey, Instant>,
    ) -> Option<Vec<EntryKey>> {
        for process in processes {
            let mark = &process.mark;
            if let Some(begun) = ending.get(&mark.key) {
                process.send(if begun.elapsed() < ENDING { Signal::TERM } else { Signal::KILL });
                continue;
            }
            let path = mark.key.path.shown();
            if mark.deadline.is_some_and(|deadline| deadline <= seconds_since_boot()) {
                tracing::warn!(%path, "the time limit ends the copy program of an earlier run of the server");
            } else if !(self.is_wanted)(mark.key.clone())? {
                tracing::info!(%path, "ending the copy program of an earlier run: its file is not wanted any more");
            } else {
                continue;
            }
            ending.insert(mark.key.clone(), Instant::now());
            process.send(Signal::TERM);
        }
        let is_left = |key: &EntryKey| processes.iter().any(|process| process.mark.key == *key);
        Some(ending.extract_if(|key, _| !is_left(key)).map(|(key, _)| key).collect())
    }

    /// Removes the temporary file of a copy whose program has ended.
    fn clean(&self, key: &EntryKey) {
        let Some(directory) = key.path.parent().filter(|directory| self.paths.of(directory).stage) else {
            return;
        };
        if let Some(transfers) = self.backend.transfers()
            && let Err(error) = transfers.remove_leftovers(&directory)
            && !storage::is_missing(&error)
        {
            let directory = directory.shown();
            tracing::warn!(%directory, %error, "cannot look for temporary files of an earlier run");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::TransferDirection;
    use crate::outlived::MARK_VARIABLE;
    use crate::ports::PathResidency;
    use base::LogicalPath;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    struct AllPaths;
    impl ResidencyPaths for AllPaths {
        fn roots(&self) -> Vec<LogicalPath> {
            vec![LogicalPath::root()]
        }
        fn of(&self, _: &LogicalPath) -> PathResidency {
            PathResidency { stage: true, ..PathResidency::default() }
        }
    }

    fn key(path: &str) -> EntryKey {
        let path = LogicalPath::parse(path.as_bytes()).unwrap();
        EntryKey { direction: TransferDirection::In, path }
    }

    /// Starts a shell in a group of its own, which has started another process, and returns after that.
    fn program(mark: Option<std::ffi::OsString>, begin: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{begin} sleep 600 & echo $!; wait")]);
        command.process_group(0).stdout(Stdio::piped());
        if let Some(mark) = mark {
            command.env(MARK_VARIABLE, mark);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        child
    }

    fn directory() -> PathBuf {
        let path = std::env::temp_dir().join(format!("scalla-reaper-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn programs_that_outlived_the_server_end_when_their_time_is_over_or_nobody_wants_them() {
        let directory = directory();
        let (earlier, other_queue) = (QueueRun::of(&directory).unwrap(), QueueRun::of("/".as_ref()).unwrap());
        let run = QueueRun::of(&directory).unwrap();
        let second = Some(Duration::from_secs(1));
        let hour = Some(Duration::from_secs(3600));
        let ending = [
            program(Some(earlier.mark(&key("/late"), second)), ""),
            program(Some(earlier.mark(&key("/unwanted"), hour)), ""),
            // It ignores the first signal.
            program(Some(earlier.mark(&key("/unwanted"), None)), "trap '' TERM;"),
        ];
        let foreign = [
            program(None, ""),
            program(Some(run.mark(&key("/unwanted"), second)), ""),
            program(Some(other_queue.mark(&key("/unwanted"), second)), ""),
            program(Some("1 x".into()), ""),
        ];
        // One that is still wanted, and within its time.
        let mut wanted = program(Some(earlier.mark(&key("/wanted"), hour)), "");
        let found = run.outlived();
        assert_eq!(found.iter().filter(|process| process.mark.key == key("/wanted")).count(), 2);
        assert_eq!(found.len(), 8);
        let backend = storage::Posix::new(&storage::posix::Config::new(&directory)).unwrap();
        let is_wanted = move |of: EntryKey| Some(of == key("/wanted") || of == key("/late"));
        let (backend, paths) = (Arc::new(backend), Arc::new(AllPaths));
        let reaper = ProgramReaper { run: run.clone(), backend, paths, is_wanted: Box::new(is_wanted) };
        let thread = std::thread::spawn(move || reaper.run());
        for mut child in ending {
            assert!(child.wait().unwrap().signal().is_some());
        }
        let is_wanted_one = |process: &MarkedProcess| process.mark.key == key("/wanted");
        while !run.outlived().iter().all(is_wanted_one) {
            std::thread::yield_now();
        }
        assert_eq!(wanted.try_wait().unwrap(), None);
        run.outlived().iter().for_each(|process| process.send(Signal::KILL));
        wanted.wait().unwrap();
        thread.join().unwrap();
        for mut child in foreign {
            assert_eq!(child.try_wait().unwrap(), None);
            let group = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process_group(group, Signal::KILL).unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_mark_of_another_queue_or_form_is_not_ours() {
        let directory = directory();
        let (earlier, run) = (QueueRun::of(&directory).unwrap(), QueueRun::of(&directory).unwrap());
        let path = "/a path/with blanks";
        let mark = earlier.mark(&key(path), None).into_encoded_bytes();
        let parsed = run.parse(&mark).unwrap();
        assert_eq!((&parsed.key, parsed.deadline), (&key(path), None));
        assert_eq!(QueueRun::of("/".as_ref()).unwrap().parse(&mark), None);
        for bad in ["", "1", "2 0:0 1.1.1 - in /f", "1 0:0 1.1.1 - in /f"] {
            assert_eq!(run.parse(bad.as_bytes()), None);
        }
    }
}
