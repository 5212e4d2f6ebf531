//! Batches of small reads that wait for a disk: one thread for each batch.
//!
//! Where the kernel forbids io_uring, a read that would block needs a pool thread. Waking it, and
//! putting it to sleep until the disk answers, costs more than the read itself. Therefore the reads
//! that one round of an event loop starts go to one thread. It first advises the kernel to fetch
//! all of them, so that the disk works on them concurrently, and then makes one read after the
//! other. While it waits for the first one, most of the others arrive.

use crate::pool::{Job, Pool};
use base::{Extent, Owner};
use rustix::fs::Advice;
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Maximum number of reads in a batch, because the last one starts after all the others.
pub const READS_TOGETHER_MAX: usize = 16;

/// Longer reads get their own thread, because they keep it busy.
pub(crate) const BYTES_TOGETHER_MAX: usize = 16 * 1024;

/// A read for a pool.
pub(crate) struct PoolRead {
    pub(crate) pool: Arc<Pool>,
    pub(crate) owner: Owner,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) extent: Extent,
    /// The job that makes the read.
    pub(crate) job: Job,
}

thread_local! {
    /// Reads started since [`hold`]; `None` if each one goes to its pool at once.
    static HELD: RefCell<Option<Vec<PoolRead>>> = const { RefCell::new(None) };
}

/// Collects the reads that start on this thread until [`release`].
pub(crate) fn hold() {
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_default();
    });
}

/// Queues the reads collected since [`hold`] in their pools.
pub(crate) fn release() {
    let mut reads = HELD.take().unwrap_or_default();
    while let Some(first) = reads.pop() {
        let mut group = vec![first];
        let same = |read: &mut PoolRead| group.first().is_some_and(|one| Arc::ptr_eq(&one.pool, &read.pool));
        let mut others: Vec<_> = reads.extract_if(.., same).collect();
        group.append(&mut others);
        // Reads of one session go into one batch where possible.
        group.sort_by_key(|read| read.owner.0);
        while !group.is_empty() {
            let rest = group.split_off(group.len().min(READS_TOGETHER_MAX));
            queue_batch(std::mem::replace(&mut group, rest));
        }
    }
}

/// Queues a read in its pool, at once or in the next batch; returns the job if the pool is full.
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

/// Queues a batch in its pool under one of its owners; the reads are too few and small to account
/// for each.
fn queue_batch(reads: Vec<PoolRead>) {
    let Some((pool, owner)) = reads.first().map(|read| (read.pool.clone(), read.owner)) else { return };
    // If the pool has become full meanwhile, it drops the jobs, and the drop answers their callers.
    let _ = pool.clone().run(
        owner,
        Box::new(move || {
            for read in reads.iter().skip(1) {
                // This is only a hint, so its result does not matter.
                let _ = rustix::fs::fadvise(
                    &read.fd,
                    read.extent.offset,
                    NonZeroU64::new(read.extent.length as u64),
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
        PoolRead {
            pool: pool.clone(),
            owner: Owner::SERVER,
            fd,
            extent: Extent { offset: 0, length: 16 },
            job: Box::new(job),
        }
    }

    #[test]
    fn collected_reads_run_on_one_thread_of_each_pool() {
        let pools = [Pool::new("one", 8), Pool::new("other", 8)];
        let (tell, told) = mpsc::channel::<(usize, usize, ThreadId)>();
        hold();
        for number in 0..2 * READS_TOGETHER_MAX {
            let (which, tell) = (number % 2, tell.clone());
            let job = move || tell.send((which, number, std::thread::current().id())).unwrap();
            assert!(begin(read(&pools[which], job)).is_ok());
        }
        assert!(told.try_recv().is_err(), "a read was queued before the release");
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
    fn reads_beyond_one_batch_use_several_threads() {
        let pool = Pool::new("test", 2);
        let (tell, told) = mpsc::channel();
        // Each job waits for one on the other thread.
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
    fn a_panic_in_one_read_does_not_affect_the_others() {
        let pool = Pool::new("test", 1);
        let (tell, told) = mpsc::channel();
        hold();
        assert!(begin(read(&pool, || panic!("injected"))).is_ok());
        assert!(begin(read(&pool, move || tell.send(7).unwrap())).is_ok());
        release();
        assert_eq!(told.recv(), Ok(7));
    }

    #[test]
    fn reads_outside_of_a_batch_start_at_once() {
        let (tell, told) = mpsc::channel();
        let pool = Pool::new("test", 1);
        assert!(begin(read(&pool, move || tell.send(7).unwrap())).is_ok());
        assert_eq!(told.recv(), Ok(7));
    }
}
