//! Supervision of the threads and tasks that the process cannot run without (decision 019).
//!
//! A server that has lost an event loop, its listener or its cluster thread looks alive but serves
//! no requests. Each of these threads and tasks therefore runs under a [`Supervisor`], which
//! reports the first unexpected end. The process then exits, so that a service manager or an
//! operator can restart it.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::{Builder, JoinHandle};

/// The unexpected end of a thread or task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadFailure {
    /// Name of the thread or task, for example "event loop 0".
    pub what: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for ThreadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended: {}", self.what, self.why)
    }
}

type Handler = Arc<dyn Fn(&ThreadFailure) + Send + Sync>;

#[derive(Default)]
struct SupervisorState {
    first: Option<ThreadFailure>,
    handlers: Vec<Handler>,
}

/// Reports the unexpected end of threads and tasks. Clones share their state.
#[derive(Clone, Default)]
pub struct Supervisor(Arc<Mutex<SupervisorState>>);

impl Supervisor {
    /// Runs the work of a thread. A panic or an error is a fault; `Ok` is a regular end.
    pub fn run(&self, what: &str, work: impl FnOnce() -> Result<(), String>) {
        let ended = catch_unwind(AssertUnwindSafe(work));
        self.report(what, ended.unwrap_or_else(|panic| Err(panic_text(panic.as_ref()))));
    }

    /// Starts a thread that runs `work` under the rules of [`Supervisor::run`]; every end without a
    /// panic is regular.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn spawn(
        &self,
        thread: &str,
        what: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let supervisor = self.clone();
        let run = move || {
            supervisor.run(what, || {
                work();
                Ok(())
            });
        };
        Builder::new().name(thread.to_owned()).spawn(run)
    }

    /// Runs a task under the rules of [`Supervisor::run`]. A dropped task reports nothing, because
    /// its executor has ended as well.
    pub async fn watch(&self, what: &str, task: impl Future<Output = Result<(), String>>) {
        let mut task = pin!(task);
        let ended = poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(ended)) => Poll::Ready(ended),
            Err(panic) => Poll::Ready(Err(panic_text(panic.as_ref()))),
        });
        self.report(what, ended.await);
    }

    /// Registers `handler` for the first fault. It is called on the thread of the fault, or
    /// immediately if the fault has already happened.
    pub fn on_fault(&self, handler: impl Fn(&ThreadFailure) + Send + Sync + 'static) {
        let handler: Handler = Arc::new(handler);
        let mut state = self.state();
        state.handlers.push(handler.clone());
        let first = state.first.clone();
        drop(state);
        first.iter().for_each(|fault| handler(fault));
    }

    /// Returns the first fault.
    pub fn fault(&self) -> Option<ThreadFailure> {
        self.state().first.clone()
    }

    fn report(&self, what: &str, ended: Result<(), String>) {
        let Err(why) = ended else { return };
        let fault = ThreadFailure { what: what.to_owned(), why };
        let mut state = self.state();
        if state.first.is_some() {
            return;
        }
        state.first = Some(fault.clone());
        let handlers = state.handlers.clone();
        drop(state);
        handlers.iter().for_each(|handler| handler(&fault));
    }

    fn state(&self) -> MutexGuard<'_, SupervisorState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    #[test]
    fn the_first_fault_is_kept_and_reported_to_early_and_late_handlers() {
        let supervisor = Supervisor::default();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let handler = |name: &'static str| {
            let reports = reports.clone();
            move |fault: &ThreadFailure| reports.lock().unwrap().push(format!("{name}: {fault}"))
        };
        supervisor.on_fault(handler("early"));
        supervisor.run("the first", || Ok(()));
        assert_eq!(supervisor.fault(), None);
        supervisor.run("the second", || panic!("no {}", "sense"));
        supervisor.run("the third", || Err("out of order".to_owned()));
        supervisor.on_fault(handler("late"));
        let text = "the second ended: it panicked: no sense";
        assert_eq!(*reports.lock().unwrap(), [format!("early: {text}"), format!("late: {text}")]);
    }

    #[test]
    fn a_thread_has_its_name_and_reports_a_panic() {
        let supervisor = Supervisor::default();
        supervisor.spawn("regular", "the first", || {}).unwrap().join().unwrap();
        assert_eq!(supervisor.fault(), None);
        let work = || panic!("in {}", std::thread::current().name().unwrap_or_default());
        supervisor.spawn("worker", "the second", work).unwrap().join().unwrap();
        assert_eq!(supervisor.fault().unwrap().to_string(), "the second ended: it panicked: in worker");
    }

    #[test]
    fn a_task_reports_its_end_but_not_its_drop() {
        let context = &mut Context::from_waker(Waker::noop());
        let supervisor = Supervisor::default();
        {
            let mut task = pin!(supervisor.watch("a task", std::future::pending()));
            assert!(task.as_mut().poll(context).is_pending());
        }
        assert_eq!(supervisor.fault(), None);
        let mut task = pin!(supervisor.watch("a task", async { panic!("in the middle") }));
        assert!(task.as_mut().poll(context).is_ready());
        assert_eq!(supervisor.fault().unwrap().why, "it panicked: in the middle");
    }
}
