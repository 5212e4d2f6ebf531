//! Small reads that wait for a disk, several for one thread.
//!
//! Where the kernel forbids io_uring, a read that would wait takes a thread of the pool, and to wake it, and to have it sleep
//! until the disk has answered, costs more than the read. So those that one round of a loop begins go to one thread: it has
//! the kernel fetch all of them, so that the disk works on them at the same time, and takes one after the other. While it
//! waits for the first, most others arrive.

use crate::pool::{Job, Pool};
use base::Owner;
use rustix::fs::Advice;
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Reads that one thread makes: the last is made when all others are.
pub const READS_TOGETHER_MAX: usize = 16;

/// Longer reads have a thread each, which they keep busy.
pub(crate) const BYTES_TOGETHER_MAX: usize = 16 * 1024;

/// A read for a pool.
pub(crate) struct PoolRead {
    pub(crate) pool: Arc<Pool>,
    pub(crate) owner: Owner,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) offset: u64,
    pub(crate) length: usize,
    /// Makes it.
    pub(crate) job: Job,
}

thread_local! {
    /// Reads begun since [`hold`]; `None` when each goes to its pool at once.
    static HELD: RefCell<Option<Vec<PoolRead>>> = const { RefCell::new(None) };
}

/// Reads that begin on this thread from now on go to their pools together, with [`release`].
pub(crate) fn hold() {
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_default();
    });
}

/// Gives the pools what was begun since [`hold`].
pub(crate) fn release() {
    let mut reads = HELD.take().unwrap_or_default();
    while let Some(first) = reads.pop() {
        let mut group = vec![first];
        let same = |read: &mut PoolRead| group.first().is_some_and(|one| Arc::ptr_eq(&one.pool, &read.pool));
        let mut others: Vec<_> = reads.extract_if(.., same).collect();
        group.append(&mut others);
        // Those of one session together, as far as may be.
        group.sort_by_key(|read| read.owner.0);
        while !group.is_empty() {
            let rest = group.split_off(group.len().min(READS_TOGETHER_MAX));
            give(std::mem::replace(&mut group, rest));
        }
    }
}

/// Gives a read to its pool, now or with others; the job comes back when the pool is full.
pub(crate) fn begin(read: PoolRead) -> Result<(), Job> {
    let alone = HELD.with_borrow_mut(|held| match held {
        Some(held) if !read.pool.is_full(read.owner) => {
            held.push(read);
            None
        }
        _ => Some(read),
    });
    alone.map_or(Ok(()), |read| read.pool.run(read.owner, read.job))
}

/// Gives a pool reads for one thread, in the turn of one of their owners: they are few and small.
fn give(reads: Vec<PoolRead>) {
    let Some((pool, owner)) = reads.first().map(|read| (read.pool.clone(), read.owner)) else { return };
    // A pool that has filled up in this moment drops the jobs, and a job that is dropped answers.
    let _ = pool.clone().run(
        owner,
        Box::new(move || {
            for read in reads.iter().skip(1) {
                // A hint: what comes of it does not matter.
                let _ = rustix::fs::fadvise(
                    &read.fd,
                    read.offset,
                    NonZeroU64::new(read.length as u64),
                    Advice::WillNeed,
                );
            }
            reads.into_iter().for_each(|read| pool.guard(read.job));
        }),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread::ThreadId;

    fn read(pool: &Arc<Pool>, job: impl FnOnce() + Send + 'static) -> PoolRead {
        let fd = Arc::new(rustix::fs::memfd_create("together", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        PoolRead { pool: pool.clone(), owner: Owner::SERVER, fd, offset: 0, length: 16, job: Box::new(job) }
    }

    #[test]
    fn what_is_held_goes_to_one_thread_of_its_own_pool_in_order() {
        let pools = [Pool::new("one", 8), Pool::new("other", 8)];
        let (tell, told) = mpsc::channel::<(usize, usize, ThreadId)>();
        hold();
        for number in 0..2 * READS_TOGETHER_MAX {
            let (which, tell) = (number % 2, tell.clone());
            let job = move || tell.send((which, number, std::thread::current().id())).unwrap();
            assert!(begin(read(&pools[which], job)).is_ok());
        }
        assert!(told.try_recv().is_err(), "a read went to its pool before all were begun");
        release();
        drop(tell);
        let all: Vec<_> = told.iter().collect();
        for which in 0..2 {
            let of: Vec<_> = all.iter().filter(|(of, ..)| *of == which).collect();
            assert_eq!(of.len(), READS_TOGETHER_MAX);
            assert!(of.iter().all(|(.., thread)| *thread == of[0].2));
        }
    }

    #[test]
    fn more_than_one_thread_makes_are_shared_out() {
        let pool = Pool::new("test", 2);
        let (tell, told) = mpsc::channel();
        // Each waits for one of the other thread.
        let meeting = Arc::new(std::sync::Barrier::new(2));
        hold();
        for _ in 0..2 * READS_TOGETHER_MAX {
            let (tell, meeting) = (tell.clone(), meeting.clone());
            let job = move || {
                meeting.wait();
                tell.send(()).unwrap();
            };
            assert!(begin(read(&pool, job)).is_ok());
        }
        release();
        drop(tell);
        assert_eq!(told.iter().count(), 2 * READS_TOGETHER_MAX);
    }

    #[test]
    fn a_panic_in_one_leaves_the_others_alone() {
        let pool = Pool::new("test", 1);
        let (tell, told) = mpsc::channel();
        hold();
        assert!(begin(read(&pool, || panic!("injected"))).is_ok());
        assert!(begin(read(&pool, move || tell.send(7).unwrap())).is_ok());
        release();
        assert_eq!(told.recv(), Ok(7));
    }

    #[test]
    fn what_is_not_held_goes_at_once() {
        let (tell, told) = mpsc::channel();
        let pool = Pool::new("test", 1);
        assert!(begin(read(&pool, move || tell.send(7).unwrap())).is_ok());
        assert_eq!(told.recv(), Ok(7));
    }
}
