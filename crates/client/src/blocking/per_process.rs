//! [`PerProcess`]: one instance of a value for each process, so that a client survives `fork`.
//!
//! After `fork` the child has copies of the parent's sockets and none of its threads. Use of these
//! copies would disturb the parent, and so would an orderly shutdown. The child therefore detects
//! the new process id, creates new values and leaves the copies alone. A lookup takes no lock: a
//! lock that another thread of the parent held during the `fork` would stay locked in the child for
//! ever.

use std::sync::OnceLock;

/// A value with one instance for each process that uses it.
#[derive(Debug)]
pub(super) struct PerProcess<T>(ProcessNode<T>);

#[derive(Debug)]
struct ProcessNode<T> {
    /// Process id and value; never `None` once set.
    here: OnceLock<Option<(u32, T)>>,
    next: OnceLock<Box<ProcessNode<T>>>,
}

impl<T> ProcessNode<T> {
    const fn new() -> Self {
        Self { here: OnceLock::new(), next: OnceLock::new() }
    }
}

impl<T> PerProcess<T> {
    pub(super) const fn new() -> Self {
        Self(ProcessNode::new())
    }

    /// Returns the value of this process and creates it if there is none.
    pub(super) fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        self.get_as(std::process::id(), make)
    }

    /// Returns the value of this process, if it has one.
    pub(super) fn known(&self) -> Option<&T> {
        self.find(std::process::id())
    }

    fn find(&self, process: u32) -> Option<&T> {
        let mut node = Some(&self.0);
        while let Some(ProcessNode { here, next }) = node {
            match here.get() {
                Some(Some((owner, value))) if *owner == process => return Some(value),
                _ => node = next.get().map(|next| &**next),
            }
        }
        None
    }

    fn get_as<E>(&self, process: u32, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.find(process) {
            return Ok(value);
        }
        let mut offered = Some((process, make()?));
        let mut node = &self.0;
        loop {
            match node.here.get_or_init(|| offered.take()) {
                // A value that another thread of this process created in the meantime is used as
                // well.
                Some((owner, value)) if *owner == process => return Ok(value),
                _ => node = node.next.get_or_init(|| Box::new(ProcessNode::new())),
            }
        }
    }
}

impl<T> Drop for ProcessNode<T> {
    fn drop(&mut self) {
        if let Some(Some((owner, value))) = self.here.take()
            && owner != std::process::id()
        {
            // It belongs to the parent, where even its destructor would have an effect.
            std::mem::forget(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn each_process_creates_one_value() {
        let values = PerProcess::new();
        let made = AtomicU32::new(0);
        let make = || Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst));
        assert_eq!(values.known(), None);
        for process in [7, 8, 7, 9, 8] {
            values.get_as(process, make).unwrap();
        }
        assert_eq!(made.load(Ordering::SeqCst), 3);
        assert_eq!(values.get_as(9, make), Ok(&2));
        assert_eq!(values.get_as(10, || Err("no")), Err("no"));
        assert_eq!(values.find(10), None);
    }

    #[test]
    fn threads_of_a_process_share_one_value() {
        let values = PerProcess::new();
        let made = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for process in [1, 2, 3] {
                        let value = values.get_as(process, || {
                            made.fetch_add(1, Ordering::SeqCst);
                            Ok::<_, ()>(process)
                        });
                        assert_eq!(value, Ok(&process));
                    }
                });
            }
        });
        let mut node = Some(&values.0);
        let mut owners = Vec::new();
        while let Some(ProcessNode { here, next }) = node {
            owners.extend(here.get().into_iter().flatten().map(|(owner, _)| *owner));
            node = next.get().map(|next| &**next);
        }
        owners.sort_unstable();
        assert_eq!(owners, [1, 2, 3]);
    }

    #[test]
    fn values_of_another_process_are_not_dropped() {
        struct Noted<'a>(&'a AtomicU32);
        impl Drop for Noted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let dropped = AtomicU32::new(0);
        let values = PerProcess::new();
        let own = std::process::id();
        for process in [own, own.wrapping_add(1)] {
            values.get_as(process, || Ok::<_, ()>(Noted(&dropped))).ok();
        }
        drop(values);
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}
