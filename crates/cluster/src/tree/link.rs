//! Names of connections, as the machine and its driver share them.

/// A connection. The driver numbers those it accepts, the machine those it asks for; the two never meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LinkId(pub u64);

impl LinkId {
    const OUTWARD: u64 = 1 << 63;

    /// The number `n` of those the driver accepts.
    pub const fn accepted(n: u64) -> Self {
        Self(n & !Self::OUTWARD)
    }

    /// The number `n` of those the machine asks for.
    pub const fn outward(n: u64) -> Self {
        Self(n | Self::OUTWARD)
    }

    /// Whether the machine asked for it.
    pub const fn is_outward(self) -> bool {
        self.0 & Self::OUTWARD != 0
    }
}
