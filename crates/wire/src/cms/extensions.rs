//! What our own nodes say to each other beyond the protocol, and how they find out that they may.
//!
//! A login and its reply carry a text of `key=value` elements of which real daemons skip the keys they do not know.
//! Ours is `scalla`, its value a bit set in hexadecimal. A node announces all it can; the reply holds what both can;
//! from then on that is the link's [`Extensions`]. The encoder of every message takes them, so nothing of this
//! reaches a real daemon. Should a frame of ours get to one all the same, it would skip it: real daemons log a code
//! they do not know and go on.
//!
//! | code | message                              | direction      | for                                        |
//! |------|--------------------------------------|----------------|--------------------------------------------|
//! | 224  | [`NotHere`](super::message::NotHere)     | node to parent | a missing file costs one round trip        |
//! | 225  | [`Occupancy`](super::message::Occupancy) | node to parent | newcomers are sent to the right cell at once |
//! | 226  | [`Inventory`](super::message::Inventory) | node to parent | a restarted manager knows where files are  |
//! | 227  | [`Lease`](super::message::Lease)         | both           | a new file is created once                 |
//!
//! The codes are far from those the protocol uses (27 is its last), so that new ones of a later version do not collide.

use crate::newtypes::flags;
use crate::xroot::cgi::Cgi;

flags! {
    /// What both ends of a link can do beyond the protocol; no bit: the peer is a real daemon.
    Extensions(u32) {
        NOT_HERE = 0x1 "nothere", "answers `state` with `nothere` when asked to, and takes that answer";
        OCCUPANCY = 0x2 "occupancy", "reports free slots";
        INVENTORY = 0x4 "inventory", "tells at login what it has";
        // 0x8 stood for leases without numbers.
        LEASES = 0x10 "leases", "creates a file only within its lease, and reports leases";
        COMPLETE = 0x20 "complete", "reports each name that comes to exist, and may list all of them";
    }
}

/// The key in the login's text.
pub const KEY: &str = "scalla";

impl Extensions {
    /// All that this version can do.
    pub const ALL: Self = Self(0x37);

    /// What the text of a login offers, or that of a reply grants.
    #[must_use]
    pub fn in_env(env: Cgi<'_>) -> Self {
        let value = env.get_str(KEY).and_then(|text| u32::from_str_radix(text, 16).ok());
        Self(value.unwrap_or(0))
    }

    /// What both can do.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the peer is one of our own nodes.
    #[must_use]
    pub const fn is_own(self) -> bool {
        !self.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_in_the_login_text() {
        let in_env = |text: &'static [u8]| Extensions::in_env(Cgi::new(text));
        assert_eq!(in_env(b"myHN=vm&scalla=37&site=a"), Extensions::ALL);
        assert_eq!(in_env(b"myHN=vm&site=a"), Extensions::NONE);
        assert_eq!(in_env(b"scalla=x"), Extensions::NONE);
        assert_eq!(in_env(b"scalla=ffffffc1").common(Extensions::ALL), Extensions::NOT_HERE);
        assert!(Extensions::NOT_HERE.is_own() && !Extensions::NONE.is_own());
    }
}
