//! Extensions of the cms protocol between Scalla nodes, and their negotiation at login.
//!
//! A login and its reply carry a text of `key=value` elements, in which receivers skip unknown
//! keys. The key of Scalla is `scalla`; its value is a bit set in hexadecimal. A node announces all
//! extensions it supports, and the reply contains those that both support. From then on they are
//! the [`Extensions`] of the connection. The encoder of every message receives them, so that no
//! extension is sent to a peer without it.
//!
//! | code | message       | direction      | purpose                                          |
//! |------|---------------|----------------|--------------------------------------------------|
//! | 224  | [`NotHere`]   | node to parent | a missing file costs one round trip              |
//! | 225  | [`Occupancy`] | node to parent | a new node is sent directly to its cell          |
//! | 226  | [`Inventory`] | node to parent | a restarted manager knows the locations of files |
//! | 227  | [`Lease`]     | both           | a new file is created only once                  |
//!
//! The last code of the protocol is 27. The codes of the extensions are far from it, so that codes
//! of later protocol versions do not collide with them.
//!
//! [`NotHere`]: super::message::NotHere
//! [`Occupancy`]: super::message::Occupancy
//! [`Inventory`]: super::message::Inventory
//! [`Lease`]: super::message::Lease

use crate::newtypes::flags;
use crate::xroot::cgi::CgiText;

flags! {
    /// Extensions that both ends of a connection support. No bit: the peer is not a Scalla node.
    Extensions(u32) {
        NOT_HERE = 0x1 "nothere", "answers `state` with `nothere` on request, and accepts that answer";
        OCCUPANCY = 0x2 "occupancy", "reports free slots";
        INVENTORY = 0x4 "inventory", "reports its files after login";
        // 0x8 was used for leases without numbers.
        LEASES = 0x10 "leases", "creates a file only under its lease, and reports leases";
        COMPLETE = 0x20 "complete", "reports each new name, and may list all names";
        NEWCOMER = 0x40 "newcomer", "not connected to all its managers yet, and will report when it is";
    }
}

/// The key in the text of a login.
pub const KEY: &str = "scalla";

impl Extensions {
    /// All extensions of this version.
    pub const ALL: Self = Self(0x77);

    /// Returns the extensions that the text of a login offers or that of a reply grants.
    #[must_use]
    pub fn in_env(env: CgiText<'_>) -> Self {
        let value = env.get_str(KEY).and_then(|text| u32::from_str_radix(text, 16).ok());
        Self(value.unwrap_or(0))
    }

    /// Returns the extensions that both sides support.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Reports whether the peer is a Scalla node.
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
        let in_env = |text: &'static [u8]| Extensions::in_env(CgiText::new(text));
        assert_eq!(in_env(b"myHN=vm&scalla=77&site=a"), Extensions::ALL);
        assert_eq!(in_env(b"myHN=vm&site=a"), Extensions::NONE);
        assert_eq!(in_env(b"scalla=x"), Extensions::NONE);
        assert_eq!(in_env(b"scalla=ffffff81").common(Extensions::ALL), Extensions::NOT_HERE);
        assert!(Extensions::NOT_HERE.is_own() && !Extensions::NONE.is_own());
    }
}
