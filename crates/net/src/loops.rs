//! The event loops: one thread with one single-threaded runtime each (decision 003).
//!
//! Work is submitted to a loop as a closure that runs there and may spawn local tasks, because
//! tasks of a loop are not `Send`. The load of a loop is the number of its connections, counted by
//! [`LoopHandle::enter`].

use crate::reactor::Reactor;
use base::Supervisor;
use std::cell::OnceCell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Maximum number of loops. With more cores the kernel is the bottleneck.
pub const LOOPS_MAX: usize = 16;

enum LoopMessage {
    Run(Box<dyn FnOnce() + Send>),
    Stop,
}

/// All loops of the process.
pub struct Loops {
    handles: Vec<LoopHandle>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// A handle to one loop, usable from any thread.
#[derive(Clone)]
pub struct LoopHandle(Arc<LoopShared>);

/// The state of a loop that other threads use. All handles share it, because each connection has
/// some.
struct LoopShared {
    index: usize,
    work: mpsc::UnboundedSender<LoopMessage>,
    load: AtomicUsize,
}

/// Counts a connection on its loop until it is dropped.
pub struct LoopPresence(LoopHandle);

impl Drop for LoopPresence {
    fn drop(&mut self) {
        self.0.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Loops {
    /// Starts `count` loops (at least 1, at most [`LOOPS_MAX`]).
    pub fn start(count: usize) -> io::Result<Self> {
        Self::start_supervised(count, &Supervisor::default())
    }

    /// Starts `count` loops, which report to `supervisor` when they end for another reason than
    /// [`Loops::stop`].
    pub fn start_supervised(count: usize, supervisor: &Supervisor) -> io::Result<Self> {
        Self::start_waiting(count, true, supervisor)
    }

    /// Starts loops that wait at their own epoll instances if possible, or at those of their
    /// runtimes.
    pub(crate) fn start_waiting(count: usize, own: bool, supervisor: &Supervisor) -> io::Result<Self> {
        let mut loops = Self { handles: Vec::new(), threads: Vec::new() };
        for index in 0..count.clamp(1, LOOPS_MAX) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (work, inbox) = mpsc::unbounded_channel();
            let (reactor, waiting) = {
                let _inside = runtime.enter();
                Reactor::new(own)?
            };
            let supervisor = supervisor.clone();
            let drive = move || {
                supervisor.run(&format!("event loop {index}"), || {
                    // The thread is new, so the value cannot be set already.
                    let _ = SUPERVISOR.with(|place| place.set(supervisor.clone()));
                    crate::driver::drive(&runtime, reactor, waiting, serve(inbox))
                        .map_err(|error| format!("it cannot wait for its sockets: {error}"))
                });
            };
            let thread = std::thread::Builder::new().name(format!("loop-{index}")).spawn(drive)?;
            loops.handles.push(LoopHandle(Arc::new(LoopShared { index, work, load: AtomicUsize::new(0) })));
            loops.threads.push(thread);
        }
        Ok(loops)
    }

    /// Starts one loop per available core.
    pub fn per_core(supervisor: &Supervisor) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::start_supervised(cores, supervisor)
    }

    /// Returns all loops.
    pub fn handles(&self) -> &[LoopHandle] {
        &self.handles
    }

    /// Returns the loop with the fewest connections.
    pub fn least_loaded(&self) -> Option<&LoopHandle> {
        self.handles.iter().min_by_key(|handle| handle.load())
    }

    /// Returns the number of connections on all loops.
    pub fn connections(&self) -> usize {
        self.handles.iter().map(LoopHandle::load).sum()
    }

    /// Enables adaptive polling on all loops.
    pub fn poll(&self) {
        for handle in &self.handles {
            // A weak reference, because the closure must not keep the loop alive.
            let face = Arc::downgrade(&handle.0);
            let load = move || face.upgrade().map_or(usize::MAX, |face| face.load.load(Ordering::Relaxed));
            handle.run(move || crate::polling::allow(load));
        }
    }

    /// Stops the loops, drops their tasks and waits for their threads.
    pub fn stop(self) {
        for handle in &self.handles {
            // A loop that has already ended needs no message.
            let _ = handle.0.work.send(LoopMessage::Stop);
        }
        for thread in self.threads {
            // The loop itself has reported the reason of its end.
            let _ = thread.join();
        }
    }
}

thread_local! {
    static SUPERVISOR: OnceCell<Supervisor> = const { OnceCell::new() };
}

/// Spawns a task on the current loop that must not end before the loop. A panic or an error in it
/// ends the process, like the end of the loop. `Ok` is a regular end.
///
/// # Panics
/// Outside of a loop, like [`tokio::task::spawn_local`].
pub fn spawn_essential(what: &'static str, task: impl Future<Output = Result<(), String>> + 'static) {
    let supervisor = SUPERVISOR.with(|place| place.get().cloned()).unwrap_or_default();
    tokio::task::spawn_local(async move { supervisor.watch(what, task).await });
}

/// Runs submitted work until a stop.
async fn serve(mut inbox: mpsc::UnboundedReceiver<LoopMessage>) {
    while let Some(LoopMessage::Run(work)) = inbox.recv().await {
        work();
    }
}

impl LoopHandle {
    /// Returns the index of the loop, from 0.
    pub fn index(&self) -> usize {
        self.0.index
    }

    /// Returns the number of its connections.
    pub fn load(&self) -> usize {
        self.0.load.load(Ordering::Relaxed)
    }

    /// Counts a connection until the result is dropped.
    pub fn enter(&self) -> LoopPresence {
        self.0.load.fetch_add(1, Ordering::Relaxed);
        LoopPresence(self.clone())
    }

    /// Runs `work` on the thread of the loop, inside its runtime. Returns `false` if the loop has
    /// ended.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) -> bool {
        self.0.work.send(LoopMessage::Run(Box::new(work))).is_ok()
    }

    /// Spawns a task on the loop. `make` is called there, so the task itself need not be `Send`.
    pub fn spawn<F, T>(&self, make: F) -> bool
    where
        F: FnOnce() -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        self.run(move || {
            tokio::task::spawn_local(make());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc as std_mpsc;

    #[test]
    fn work_runs_on_the_loop_it_was_submitted_to() {
        let loops = Loops::start(2).unwrap();
        let (tell, told) = std_mpsc::channel();
        for handle in loops.handles() {
            let tell = tell.clone();
            assert!(handle.spawn(move || async move {
                tell.send(std::thread::current().name().map(str::to_owned)).unwrap();
            }));
        }
        let mut names: Vec<_> = told.iter().take(2).flatten().collect();
        names.sort();
        assert_eq!(names, ["loop-0", "loop-1"]);
    }

    #[test]
    fn the_least_loaded_loop_gets_the_next_connection() {
        let loops = Loops::start(2).unwrap();
        let first = loops.handles()[0].enter();
        assert_eq!(loops.least_loaded().map(LoopHandle::index), Some(1));
        let _second = loops.handles()[1].enter();
        drop(first);
        assert_eq!(loops.least_loaded().map(LoopHandle::index), Some(0));
        assert_eq!(loops.connections(), 1);
    }

    /// Returns the fault that is reported after a loop has run this work.
    fn fault_after(work: impl FnOnce() + Send + 'static) -> (base::ThreadFailure, Loops) {
        let supervisor = Supervisor::default();
        let (tell, told) = std_mpsc::channel();
        supervisor.on_fault(move |fault| tell.send(fault.clone()).unwrap());
        let loops = Loops::start_supervised(1, &supervisor).unwrap();
        assert!(loops.handles()[0].run(work));
        (told.recv().unwrap(), loops)
    }

    #[test]
    fn a_loop_that_panics_is_reported_and_takes_no_more_work() {
        let (fault, loops) = fault_after(|| panic!("in a loop"));
        assert_eq!(fault.to_string(), "event loop 0 ended: it panicked: in a loop");
        assert!(!loops.handles()[0].run(|| ()));
        loops.stop();
    }

    #[test]
    fn a_loop_that_cannot_wait_is_reported() {
        let (fault, loops) = fault_after(crate::reactor::break_waiting);
        assert!(fault.why.starts_with("it cannot wait for its sockets: "), "{fault}");
        loops.stop();
    }

    #[test]
    fn an_essential_task_that_ends_is_reported() {
        let (fault, loops) = fault_after(|| spawn_essential("a task", async { panic!("on a loop") }));
        assert_eq!(fault.to_string(), "a task ended: it panicked: on a loop");
        loops.stop();
    }

    #[test]
    fn a_stop_is_not_a_fault() {
        let supervisor = Supervisor::default();
        let loops = Loops::start_supervised(2, &supervisor).unwrap();
        let (tell, told) = std_mpsc::channel();
        loops.handles()[0].run(move || {
            spawn_essential("a task", std::future::pending());
            tell.send(()).unwrap();
        });
        told.recv().unwrap();
        loops.stop();
        assert_eq!(supervisor.fault(), None);
    }
}
