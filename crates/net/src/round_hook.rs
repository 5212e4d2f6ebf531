//! The hook at the end of each round of a loop.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static HOOK: Cell<Option<fn(Instant)>> = const { Cell::new(None) };
}

/// Registers a hook of the current loop, which is called with the time before each wait for sockets, when
/// the ready tasks have run. The loop needs this time anyway. The hook must not panic.
pub fn set_round_hook(hook: fn(Instant)) {
    HOOK.set(Some(hook));
}

/// Calls the hook of this thread.
pub(crate) fn call(now: Instant) {
    if let Some(hook) = HOOK.get() {
        hook(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loops;
    use std::sync::mpsc;
    use std::time::Duration;

    thread_local! {
        static SEEN: Cell<Option<mpsc::Sender<Instant>>> = const { Cell::new(None) };
    }

    fn see(now: Instant) {
        if let Some(seen) = SEEN.take() {
            let _ = seen.send(now);
        }
    }

    #[test]
    fn a_round_ends_after_its_tasks() {
        for own in [true, false] {
            let loops = Loops::start_waiting(1, own, &base::Supervisor::default()).unwrap();
            let (seen, ended) = mpsc::channel();
            let (began, begun) = mpsc::channel();
            loops.handles()[0].run(move || {
                SEEN.set(Some(seen));
                set_round_hook(see);
                let _ = began.send(Instant::now());
            });
            let limit = Duration::from_secs(60);
            assert!(ended.recv_timeout(limit).unwrap() >= begun.recv_timeout(limit).unwrap());
            loops.stop();
        }
    }
}
