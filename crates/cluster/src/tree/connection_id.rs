//! Names of connections, shared by a node and its driver.
//!
//! Both sides create connections, so the names keep their numbers apart.

/// A connection. The driver numbers accepted connections, the node numbers those that it requests;
/// the two ranges do not overlap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u64);

impl ConnectionId {
    const OUTWARD: u64 = 1 << 63;

    /// Returns the name of the accepted connection `n`.
    pub const fn accepted(n: u64) -> Self {
        Self(n & !Self::OUTWARD)
    }

    /// Returns the name of the requested connection `n`.
    pub const fn outward(n: u64) -> Self {
        Self(n | Self::OUTWARD)
    }

    /// Reports whether the node requested it.
    pub const fn is_outward(self) -> bool {
        self.0 & Self::OUTWARD != 0
    }
}
