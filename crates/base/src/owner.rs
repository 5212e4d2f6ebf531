//! The key under which work, memory and descriptors are accounted to a session.

use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies the session that work is done for; unique in the process and never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Owner(pub u64);

impl Owner {
    /// The server itself: work that no client asked for.
    pub const SERVER: Self = Self(0);

    /// Returns a key that nothing in this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Reports whether this is the server itself.
    pub fn is_server(self) -> bool {
        self == Self::SERVER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_new_and_none_is_the_server() {
        let (one, other) = (Owner::unique(), Owner::unique());
        assert_ne!(one, other);
        assert!(!one.is_server() && !other.is_server() && Owner::SERVER.is_server());
    }
}
