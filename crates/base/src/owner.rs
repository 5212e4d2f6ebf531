//! The key under which work, memory and descriptors are accounted to a session.
//!
//! The pools of the server use it for fair scheduling, so that one session cannot starve the
//! others.

use std::sync::atomic::{AtomicU64, Ordering};

/// A key of the session that work is done for; unique in the process and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Owner(pub u64);

impl Owner {
    /// The key of work of the server itself, which no client has requested.
    pub const SERVER: Self = Self(0);

    /// Returns a key that is not used elsewhere in this process.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Reports whether this is the key of the server itself.
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
