//! The purposes of memory, and a limit for each of them.

/// The purpose of a reservation, which selects its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryPurpose {
    /// An argument that is being received.
    Argument,
    /// A running request and the memory reserved for its reply.
    Request,
    /// A block of file data in flight.
    Data,
}

/// Number of purposes.
pub(super) const PURPOSES: usize = 3;

impl MemoryPurpose {
    /// All purposes, in the order in which waiting sessions are woken: later stages of a request
    /// come first, so that work in progress finishes.
    pub(super) const ALL: [Self; PURPOSES] = [Self::Data, Self::Request, Self::Argument];
}

/// Limits in bytes for each purpose. Each limit includes the use of the purposes above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceilings {
    /// Limit for arguments.
    pub argument: usize,
    /// Limit for arguments and requests.
    pub request: usize,
    /// Limit for all purposes.
    pub data: usize,
}

impl Ceilings {
    /// Returns one half of `limit` for arguments, three quarters for requests and all of it for
    /// data.
    #[must_use]
    pub const fn shares_of(limit: usize) -> Self {
        Self { argument: limit / 2, request: limit / 4 * 3, data: limit }
    }

    /// Returns the limit for a purpose.
    pub(super) fn of(&self, purpose: MemoryPurpose) -> usize {
        match purpose {
            MemoryPurpose::Argument => self.argument,
            MemoryPurpose::Request => self.request,
            MemoryPurpose::Data => self.data,
        }
    }
}

/// Reports whether `bytes` more stay within a limit. If no bytes are claimed, any size fits, so
/// that the largest request is possible.
pub(super) fn fits(claimed: usize, bytes: usize, ceiling: usize) -> bool {
    claimed == 0 || claimed + bytes <= ceiling
}
