//! Tests of the executor with tasks on real loops.

use super::rounds::{ROUND_TASKS, set_batch_hooks};
use super::*;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::Notify;

/// Runs `work` on a new loop. Returns the values that it sends.
fn on_a_loop<T: Send + 'static>(work: impl FnOnce(mpsc::Sender<T>) + Send + 'static) -> Vec<T> {
    let loops = crate::Loops::start(1).unwrap();
    let (tell, told) = mpsc::channel();
    loops.handles()[0].run(move || work(tell));
    let all = told.iter().collect();
    loops.stop();
    all
}

#[test]
fn tasks_wait_wake_and_end() {
    let told = on_a_loop(|tell| {
        let notify = Rc::new(Notify::new());
        for number in 0..1000 {
            let (notify, tell) = (notify.clone(), tell.clone());
            spawn_local(async move {
                notify.notified().await;
                tokio::time::sleep(Duration::from_millis(number % 3)).await;
                tell.send(number).unwrap();
            });
        }
        spawn_local(async move {
            // All other tasks wait now.
            tokio::task::yield_now().await;
            notify.notify_waiters();
        });
    });
    let mut sorted = told.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    assert!(current().is_none(), "a thread without tasks has no executor");
}

#[test]
fn hooks_are_called_before_and_after_tasks() {
    thread_local! {
        static SEEN: Cell<Vec<&'static str>> = const { Cell::new(Vec::new()) };
    }
    fn see(what: &'static str) {
        let mut seen = SEEN.take();
        seen.push(what);
        SEEN.set(seen);
    }
    let told = on_a_loop(move |tell| {
        set_batch_hooks(|| see("before"), || see("after"));
        spawn_local(async move { see("one") });
        spawn_local(async move {
            see("other");
            tokio::task::yield_now().await;
            SEEN.take().into_iter().for_each(|what| tell.send(what).unwrap());
        });
    });
    let first: Vec<_> = told.iter().copied().take(4).collect();
    assert_eq!(first, ["before", "one", "other", "after"]);
    // The task that sent the value was in a round, too.
    assert_eq!(told.last(), Some(&"before"));
}

#[test]
fn a_task_is_woken_from_another_thread() {
    let told = on_a_loop(|tell| {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        spawn_local(async move {
            while let Some(number) = receive.recv().await {
                tell.send(number).unwrap();
            }
        });
        std::thread::spawn(move || {
            for number in 0..100 {
                send.send(number).unwrap();
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(told, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_panic_ends_only_its_task() {
    let told = on_a_loop(|tell| {
        spawn_local(async { panic!("one of them") });
        spawn_local(async move { tell.send("the other").unwrap() });
    });
    assert_eq!(told, ["the other"]);
}

#[test]
fn tasks_end_with_their_loop_and_late_wakers_have_no_effect() {
    struct Tells(mpsc::Sender<&'static str>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send("dropped").unwrap();
        }
    }
    let loops = crate::Loops::start(1).unwrap();
    let (tell, told) = mpsc::channel();
    let (give, given) = mpsc::channel();
    loops.handles()[0].run(move || {
        let tells = Tells(tell);
        spawn_local(std::future::poll_fn(move |context| {
            let _kept = &tells;
            give.send(context.waker().clone()).unwrap();
            Poll::<()>::Pending
        }));
    });
    let waker: Waker = given.recv().unwrap();
    waker.wake_by_ref();
    // The task runs again: a wake-up from another thread arrives.
    given.recv().unwrap();
    loops.stop();
    assert_eq!(told.iter().collect::<Vec<_>>(), ["dropped"]);
    waker.wake();
}

#[test]
fn more_tasks_than_fit_a_round_all_run() {
    let told = on_a_loop(|tell| {
        for number in 0..3 * ROUND_TASKS {
            let tell = tell.clone();
            spawn_local(async move {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                tell.send(number).unwrap();
            });
        }
    });
    assert_eq!(told.len(), 3 * ROUND_TASKS);
}

/// Wakes itself, and goes on when others had their turn.
async fn give_way() {
    let mut has_given_way = false;
    std::future::poll_fn(|context| match std::mem::replace(&mut has_given_way, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn tasks_that_had_much_to_do_run_one_at_a_time_when_they_are_woken_again() {
    const BUSY: usize = 16;
    let told = on_a_loop(|tell| {
        let (turns, finished) = <(Rc<Cell<usize>>, Rc<Cell<usize>>)>::default();
        let (again, all_wait, job) = <(Rc<Notify>, Rc<Notify>, Rc<Notify>)>::default();
        for _ in 0..BUSY {
            let (turns, finished, again, all_wait) =
                (turns.clone(), finished.clone(), again.clone(), all_wait.clone());
            spawn_local(async move {
                for _ in 0..2 {
                    turns.set(turns.get() + 1);
                    give_way().await;
                    turns.set(turns.get() + 1);
                    finished.set(finished.get() + 1);
                    if finished.get() == BUSY {
                        all_wait.notify_one();
                    }
                    again.notified().await;
                }
            });
        }
        let (called, seen) = (turns.clone(), job.clone());
        spawn_local(async move {
            all_wait.notified().await;
            called.set(0);
            again.notify_waiters();
            seen.notify_one();
        });
        spawn_local(async move {
            job.notified().await;
            tell.send(turns.get()).unwrap();
        });
    });
    assert!(told == [0] || told == [1], "{told:?} turns of others came first");
}

#[test]
fn a_task_with_one_job_waits_for_at_most_one_busy_task() {
    const BUSY: usize = 16;
    let told = on_a_loop(|tell| {
        let (turns, called, is_over) = <(Rc<Cell<usize>>, Rc<Cell<usize>>, Rc<Cell<bool>>)>::default();
        let job = Rc::new(Notify::new());
        for _ in 0..BUSY {
            let (turns, called, is_over, job) = (turns.clone(), called.clone(), is_over.clone(), job.clone());
            spawn_local(std::future::poll_fn(move |context| {
                turns.set(turns.get() + 1);
                // All others wait for their next turn now.
                if turns.get() == 10 * BUSY {
                    called.set(turns.get());
                    job.notify_one();
                }
                context.waker().wake_by_ref();
                if is_over.get() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        spawn_local(async move {
            job.notified().await;
            tell.send(turns.get() - called.get()).unwrap();
            is_over.set(true);
        });
    });
    assert!(told == [0] || told == [1], "{told:?} turns of others came first");
}

#[test]
fn a_task_takes_all_messages_that_are_there() {
    let told = on_a_loop(|tell| {
        let (sender, mut messages) = tokio::sync::mpsc::unbounded_channel();
        (0..1000).for_each(|number| sender.send(number).unwrap());
        spawn_local(async move {
            let taken = std::future::poll_fn(|context| {
                let mut taken = 0;
                while messages.poll_recv(context).is_ready() {
                    taken += 1;
                }
                std::task::Poll::Ready(taken)
            });
            tell.send(taken.await).unwrap();
            drop(sender);
        });
    });
    assert_eq!(told, [1000]);
}
