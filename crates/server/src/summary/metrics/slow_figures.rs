//! [`SlowSources`]: figures that need another thread or a disk.
//!
//! Each source has a thread of its own, because it may hang. It is looked at once a second at most, when
//! somebody wants the figures. A request waits for a look for a short time only, and then gets what was found
//! last, unless it is too old.

use super::process_status::ProcessStatus;
use crate::cluster::{ClusterView, NodeStatus};
use base::Supervisor;
use residency::QueueCounts;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time from the end of one look to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum time from the begin of a look for which requests wait for it.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The age at which figures are left out.
const AGE_MAX: Duration = Duration::from_secs(10);

/// The figures. Those of a source that has not answered lately are `None`.
pub(super) struct SlowFigures {
    pub(super) process: Option<Arc<ProcessStatus>>,
    /// The node of a cluster, if there is one.
    pub(super) cluster: Option<Option<Arc<NodeStatus>>>,
    /// The queue of transfers, if there is one.
    pub(super) queue: Option<Arc<QueueCounts>>,
    /// The time since each source was looked at.
    pub(super) ages: Vec<(&'static str, Duration)>,
}

/// Where the figures come from.
pub(super) struct SlowSources {
    process: SlowSource<ProcessStatus>,
    cluster: Option<SlowSource<NodeStatus>>,
    queue: Option<SlowSource<QueueCounts>>,
}

impl SlowSources {
    /// Starts the threads of the sources. They end when this is dropped and they do not hang.
    ///
    /// # Errors
    /// The error of the system, if threads cannot be started.
    pub(super) fn start(
        cluster: Option<ClusterView>,
        queue: Option<PathBuf>,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let process = SlowSource::start("metrics-process", supervisor, || Some(ProcessStatus::read()))?;
        let of_cluster = |cluster: ClusterView| {
            let look = one_question(WAIT_MAX, move || cluster.ask(|engine| engine.status()));
            SlowSource::start("metrics-cluster", supervisor, look)
        };
        let of_queue = |directory: PathBuf| {
            let look = move || residency::count_queue(&directory).ok();
            SlowSource::start("metrics-queue", supervisor, look)
        };
        let (cluster, queue) = (cluster.map(of_cluster).transpose()?, queue.map(of_queue).transpose()?);
        Ok(Self { process, cluster, queue })
    }

    /// Returns the figures.
    pub(super) fn figures(&self) -> SlowFigures {
        self.process.order();
        self.cluster.iter().for_each(SlowSource::order);
        self.queue.iter().for_each(SlowSource::order);
        let mut ages = Vec::new();
        let (process, age) = self.process.seen();
        ages.push(("process", age));
        let cluster = self.cluster.as_ref().map(|cluster| {
            let (found, age) = cluster.seen();
            ages.push(("cluster", age));
            found
        });
        let queue = self.queue.as_ref().and_then(|queue| {
            let (found, age) = queue.seen();
            ages.push(("transfers", age));
            found
        });
        SlowFigures { process, cluster, queue, ages }
    }
}

/// Returns a look that asks another thread and waits for its answer. There is one unanswered question at a
/// time, because they would fill the inbox of a thread that hangs.
fn one_question<T>(
    wait_max: Duration,
    mut ask: impl FnMut() -> Option<Receiver<T>>,
) -> impl FnMut() -> Option<T> {
    let mut unanswered: Option<Receiver<T>> = None;
    move || {
        let told = match unanswered.take() {
            Some(told) if matches!(told.try_recv(), Err(TryRecvError::Empty)) => told,
            // An answer to an earlier question is old.
            _ => ask()?,
        };
        match told.recv_timeout(wait_max) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                unanswered = Some(told);
                None
            }
        }
    }
}

/// A source with its thread.
struct SlowSource<T> {
    shared: Arc<SourceShared<T>>,
    orders: SyncSender<()>,
    started: Instant,
}

struct SourceShared<T> {
    state: Mutex<SourceState<T>>,
    ended: Condvar,
}

struct SourceState<T> {
    /// The last figures, and the time at which the look for them began.
    found: Option<(Instant, Arc<T>)>,
    /// The begin of the look in progress.
    begun: Option<Instant>,
    /// The end of the last look.
    ended: Option<Instant>,
}

impl<T> SourceShared<T> {
    fn state(&self) -> MutexGuard<'_, SourceState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync + 'static> SlowSource<T> {
    fn start(
        thread: &str,
        supervisor: &Supervisor,
        mut look: impl FnMut() -> Option<T> + Send + 'static,
    ) -> io::Result<Self> {
        let (orders, received) = sync_channel(1);
        let state = Mutex::new(SourceState { found: None, begun: None, ended: None });
        let shared = Arc::new(SourceShared { state, ended: Condvar::new() });
        let of_thread = shared.clone();
        supervisor.spawn(thread, "the metrics", move || {
            while received.recv().is_ok() {
                let (begun, found) = (Instant::now(), look());
                let mut state = of_thread.state();
                if let Some(found) = found {
                    state.found = Some((begun, Arc::new(found)));
                }
                (state.begun, state.ended) = (None, Some(Instant::now()));
                of_thread.ended.notify_all();
            }
        })?;
        Ok(Self { shared, orders, started: Instant::now() })
    }

    /// Orders a look, unless there is one in progress or it would be too early.
    fn order(&self) {
        let mut state = self.shared.state();
        let is_early = state.ended.is_some_and(|ended| ended.elapsed() < PAUSE);
        if state.begun.is_none() && !is_early && self.orders.try_send(()).is_ok() {
            state.begun = Some(Instant::now());
        }
    }

    /// Waits for a look in progress. Returns the last figures, unless they are too old, and their age.
    fn seen(&self) -> (Option<Arc<T>>, Duration) {
        let mut state = self.shared.state();
        while let Some(begun) = state.begun {
            let left = WAIT_MAX.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let age = state.found.as_ref().map_or(self.started, |(at, _)| *at).elapsed();
        let found = state.found.as_ref().filter(|_| age < AGE_MAX);
        (found.map(|(_, found)| found.clone()), age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Maximum time for which the tests wait.
    const LONG: Duration = Duration::from_secs(60);

    /// Returns a source whose looks end when a result is sent, and the channel for results.
    fn held_source() -> (SlowSource<u64>, std::sync::mpsc::Sender<Option<u64>>) {
        let (results, given) = channel();
        let look = move || given.recv_timeout(LONG).ok().flatten();
        (SlowSource::start("test", &Supervisor::default(), look).unwrap(), results)
    }

    fn wait_for_end(source: &SlowSource<u64>) {
        let state = source.shared.state();
        let waited = source.shared.ended.wait_timeout_while(state, LONG, |state| state.begun.is_some());
        assert!(!waited.unwrap().1.timed_out());
    }

    /// Sets the time of the last figures. A time in the future counts as now.
    fn set_time(source: &SlowSource<u64>, time: Instant) {
        source.shared.state().found.as_mut().unwrap().0 = time;
    }

    #[test]
    fn a_first_look_that_hangs_holds_nobody() {
        let (source, results) = held_source();
        for _ in 0..3 {
            source.order();
            assert_eq!(source.seen().0, None);
        }
        results.send(Some(7)).unwrap();
        wait_for_end(&source);
        let later = Instant::now() + LONG;
        set_time(&source, later);
        assert_eq!(source.seen().0.as_deref(), Some(&7));
        // It would be too early for another look.
        source.shared.state().ended = Some(later);
        source.order();
        assert!(source.shared.state().begun.is_none());
    }

    #[test]
    fn figures_that_are_too_old_are_left_out() {
        let (source, results) = held_source();
        source.order();
        results.send(Some(7)).unwrap();
        wait_for_end(&source);
        // The next look hangs.
        source.shared.state().ended = None;
        set_time(&source, Instant::now() + LONG);
        source.order();
        assert_eq!(source.seen().0.as_deref(), Some(&7));
        set_time(&source, Instant::now().checked_sub(AGE_MAX).unwrap());
        assert_eq!(source.seen().0, None);
        // A look that fails changes nothing.
        results.send(None).unwrap();
        wait_for_end(&source);
        let (found, age) = source.seen();
        assert!(found.is_none() && age >= AGE_MAX);
    }

    #[test]
    fn there_is_one_unanswered_question() {
        let (questions, asked) = channel();
        let mut look = one_question(Duration::from_millis(1), move || {
            let (tell, told) = channel();
            questions.send(tell).unwrap();
            Some(told)
        });
        assert_eq!([look(), look()], [None::<u64>; 2]);
        let tell = asked.try_recv().unwrap();
        assert!(asked.try_recv().is_err());
        // This answer is old at the next look, which asks again.
        tell.send(1).unwrap();
        assert_eq!(look(), None);
        let tell = asked.try_recv().unwrap();
        drop(tell);
        assert_eq!(look(), None);
        assert!(asked.try_recv().is_ok());
    }
}
