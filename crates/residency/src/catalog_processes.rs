//! [`CatalogProcesses`]: processes of a program that knows the names in mass storage, and reads questions line by line.
//!
//! An answer does not show its question. A process is used again only if it was quiet before its question and after its
//! answer. That does not exclude a line that comes later and looks like an answer, so answers of such processes are
//! only shown to clients. All others are those of a process that gets one question and the end of its input.

use crate::catalog_answer::{CatalogAnswer, malformed};
use crate::line_process::{LineProcess, UnreadOutput};
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of processes, and so of questions at once.
const PROCESSES_MAX: usize = 8;

/// Maximum number of processes for questions of clients. They leave some to copies and removals, which fail otherwise.
pub(crate) const SHARED_PROCESSES_MAX: usize = 6;

/// Processes that are started when they are needed.
#[derive(Default)]
pub struct CatalogProcesses {
    pool: Mutex<ProcessPool>,
    /// Notified when a process is idle or has ended.
    changed: Condvar,
    /// A process has written something else than its answers, so none is used again.
    ends_each: AtomicBool,
}

#[derive(Default)]
struct ProcessPool {
    idle: Vec<LineProcess>,
    /// Number of processes, with those that are not idle.
    all: usize,
}

/// A place for a process in the pool.
struct ProcessPlace<'a>(&'a CatalogProcesses);

impl Drop for ProcessPlace<'_> {
    fn drop(&mut self) {
        let mut pool = self.0.pool();
        pool.all = pool.all.saturating_sub(1);
        self.0.changed.notify_all();
    }
}

impl CatalogProcesses {
    /// Gives a line to a process, and returns its answer. Processes are used again. One that has ended since its last
    /// answer is replaced. Blocks.
    pub(crate) fn ask(
        &self,
        command: &dyn Fn() -> Command,
        line: &[u8],
        deadline: Instant,
    ) -> io::Result<CatalogAnswer> {
        while !self.ends_each.load(Ordering::Relaxed) {
            let (place, idle) = self.take((true, SHARED_PROCESSES_MAX), deadline)?;
            let is_used = idle.is_some();
            let mut process = match idle {
                Some(process) => process,
                None => LineProcess::start(command())?,
            };
            match process.unread() {
                UnreadOutput::End if is_used => continue,
                UnreadOutput::Bytes => {
                    self.end_each();
                    continue;
                }
                _ => {}
            }
            let answer = process
                .write(line, deadline)
                .and_then(|()| CatalogAnswer::read(|| process.read_line(deadline)));
            match (answer, process.unread()) {
                (Ok(_), UnreadOutput::Bytes) => {
                    self.end_each();
                    return Err(malformed("it writes more than its answer"));
                }
                (Ok(answer), unread) => {
                    if unread == UnreadOutput::Nothing && !self.ends_each.load(Ordering::Relaxed) {
                        self.give_back(place, process);
                    }
                    return Ok(answer);
                }
                (Err(error), _) if is_used && is_end(&error) && Instant::now() < deadline => {}
                (Err(error), _) => {
                    if error.kind() == io::ErrorKind::InvalidData {
                        self.end_each();
                    }
                    return Err(error);
                }
            }
        }
        self.ask_one(command, line, (SHARED_PROCESSES_MAX, deadline))
    }

    /// Gives a line to a process of its own, and returns its answer. The process has to end with its input, and all that
    /// it writes is one answer. Blocks.
    pub(crate) fn ask_alone(
        &self,
        command: &dyn Fn() -> Command,
        line: &[u8],
        deadline: Instant,
    ) -> io::Result<CatalogAnswer> {
        self.ask_one(command, line, (PROCESSES_MAX, deadline))
    }

    fn ask_one(
        &self,
        command: &dyn Fn() -> Command,
        line: &[u8],
        (most, deadline): (usize, Instant),
    ) -> io::Result<CatalogAnswer> {
        let (place, idle) = self.take((false, most), deadline)?;
        drop(idle);
        let mut process = LineProcess::start(command())?;
        process.write(line, deadline)?;
        process.close_input();
        let output = process.read_to_end(deadline)?;
        drop((process, place));
        CatalogAnswer::parse_exactly(&output)
    }

    /// Returns a place for a process, and the idle process that has it, if there is one. A new process needs a place among
    /// the first `most`.
    fn take(
        &self,
        (prefers_idle, most): (bool, usize),
        deadline: Instant,
    ) -> io::Result<(ProcessPlace<'_>, Option<LineProcess>)> {
        let mut pool = self.pool();
        loop {
            let has_place = pool.all < most;
            let idle = if prefers_idle || !has_place { pool.idle.pop() } else { None };
            if idle.is_some() {
                return Ok((ProcessPlace(self), idle));
            }
            if has_place {
                pool.all += 1;
                return Ok((ProcessPlace(self), None));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::other("all its processes are busy"));
            }
            pool = self.changed.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes a process idle.
    fn give_back(&self, place: ProcessPlace<'_>, process: LineProcess) {
        self.pool().idle.push(process);
        // The process keeps its place.
        std::mem::forget(place);
        self.changed.notify_all();
    }

    /// Uses no process again.
    fn end_each(&self) {
        if self.ends_each.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            "the program of oss.rsscmd writes something else than its answers, so it is started for each question"
        );
        let idle = std::mem::take(&mut self.pool().idle);
        for process in idle {
            drop((process, ProcessPlace(self)));
        }
    }

    /// Fills all places with idle processes.
    #[cfg(test)]
    pub(crate) fn fill(&self, command: &dyn Fn() -> Command) {
        let mut pool = self.pool();
        while pool.all < PROCESSES_MAX {
            pool.all += 1;
            pool.idle.extend(LineProcess::start(command()));
        }
    }

    fn pool(&self) -> MutexGuard<'_, ProcessPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports whether an error means that a process has ended.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}
