//! [`CatalogProcesses`]: processes of a program that knows the names in mass storage, and reads requests line by line.

use crate::line_process::LineProcess;
use std::io;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of processes, and so of requests at once.
const PROCESSES_MAX: usize = 8;

/// Processes that are started when they are needed, and used again.
#[derive(Default)]
pub struct CatalogProcesses {
    pool: Mutex<ProcessPool>,
    /// Notified when a process is idle or has ended.
    changed: Condvar,
}

#[derive(Default)]
struct ProcessPool {
    idle: Vec<LineProcess>,
    /// Number of processes, with those that are not idle.
    all: usize,
}

impl CatalogProcesses {
    /// Gives a line to a process, and returns its answer: a line with a number, and another one if that is 0. A
    /// process that has ended since its last answer is replaced. Blocks.
    pub(crate) fn ask(
        &self,
        command: &dyn Fn() -> Command,
        line: &[u8],
        deadline: Instant,
    ) -> io::Result<Vec<u8>> {
        loop {
            let (mut process, is_used) = self.take(command, deadline)?;
            let answer = exchange(&mut process, line, deadline);
            // One that writes more than its answer would give that to the next request.
            let stays = answer.is_ok() && !process.has_more();
            self.give_back(stays.then_some(process));
            match answer {
                Err(error) if is_used && is_end(&error) && Instant::now() < deadline => {}
                answer => return answer,
            }
        }
    }

    /// Returns an idle process, or a new one, and whether it was used before.
    fn take(&self, command: &dyn Fn() -> Command, deadline: Instant) -> io::Result<(LineProcess, bool)> {
        let mut pool = self.pool();
        loop {
            if let Some(process) = pool.idle.pop() {
                return Ok((process, true));
            }
            if pool.all < PROCESSES_MAX {
                pool.all += 1;
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::other("all its processes are busy"));
            }
            pool = self.changed.wait_timeout(pool, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(pool);
        LineProcess::start(command()).map(|process| (process, false)).inspect_err(|_| self.give_back(None))
    }

    /// Makes a process idle, or forgets one.
    fn give_back(&self, process: Option<LineProcess>) {
        let mut pool = self.pool();
        match process {
            Some(process) => pool.idle.push(process),
            None => pool.all = pool.all.saturating_sub(1),
        }
        self.changed.notify_one();
    }

    fn pool(&self) -> MutexGuard<'_, ProcessPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn exchange(process: &mut LineProcess, line: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
    process.write(line, deadline)?;
    let mut answer = process.read_line(deadline)?;
    let code = answer.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    if code.iter().all(|digit| *digit == b'0') && !code.is_empty() {
        answer.push(b'\n');
        answer.extend(process.read_line(deadline)?);
    }
    Ok(answer)
}

/// Reports whether an error means that a process has ended.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}
