//! [`Jobs`]: the file operations that the driver itself has started, until they end.

use crate::lazy::Lazy;
use base::Charge;
use slab::Slab;
use vfs::{Answer, Started};

/// Set in the token of calls that belong to the driver itself and not to the session.
const JOB: u64 = 1 << 32;

/// An operation started by the driver itself, with the charge for its memory.
pub(super) struct DriverJob {
    pub(super) work: JobWork,
    pub(super) charge: Charge,
}

/// Purpose of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobWork {
    /// Reads a piece of a transfer.
    Read(usize),
    /// Writes a piece of payload.
    Piece(usize),
    /// The owner of the job no longer exists.
    Orphan,
}

/// The key of a job, which its answer carries as the number of the call.
#[derive(Clone, Copy)]
pub(super) struct JobKey(usize);

impl JobKey {
    /// Returns the key if the call is a job. Other calls belong to the session.
    pub(super) fn of_call(call: u64) -> Option<Self> {
        (call & JOB != 0).then(|| Self(usize::try_from(call & !JOB).unwrap_or(usize::MAX)))
    }

    fn call(self) -> u64 {
        JOB | self.0 as u64
    }
}

/// The operations that the driver of a session has started and that have not ended.
#[derive(Default)]
pub(super) struct Jobs(Lazy<Slab<DriverJob>>);

impl Jobs {
    /// Starts an operation, whose answer carries the number passed to `start`. Returns the answer
    /// with the charge if the operation has ended already.
    pub(super) fn start(
        &mut self,
        work: JobWork,
        charge: Charge,
        start: impl FnOnce(u64) -> Started,
    ) -> Option<(Answer, Charge)> {
        match start(JobKey(self.0.vacant_key()).call()) {
            Started::Done(answer) => Some((answer, charge)),
            Started::Pending | Started::Later { .. } => {
                // Inserted only after the start, so that each registered job has an answer: a job
                // whose start panics is not registered. The answer arrives through the mailbox,
                // never earlier than this.
                self.0.insert(DriverJob { work, charge });
                None
            }
        }
    }

    /// Removes a job that has ended.
    pub(super) fn remove(&mut self, key: JobKey) -> Option<DriverJob> {
        self.0.try_remove(key.0)
    }

    /// Detaches the jobs of a transfer that no longer exists.
    pub(super) fn orphan_reads_of(&mut self, transfer: usize) {
        for (_, job) in self.0.iter_mut() {
            if matches!(job.work, JobWork::Read(of) if of == transfer) {
                job.work = JobWork::Orphan;
            }
        }
    }

    /// Detaches all jobs. Their buffers and charges return with their answers.
    pub(super) fn orphan_all(&mut self) {
        self.0.iter_mut().for_each(|(_, job)| job.work = JobWork::Orphan);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees the table if it is empty.
    pub(super) fn shrink(&mut self) {
        self.0.shrink();
    }
}
