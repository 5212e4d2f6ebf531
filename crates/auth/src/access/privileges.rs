//! Privileges of the authorization database, and the privileges that each operation needs.

use std::fmt;

/// A set of privileges. The bits are those of XRootD, because front ends report the mask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Privileges(u16);

impl Privileges {
    /// No privilege.
    pub const NONE: Self = Self(0);
    /// Delete.
    pub const DELETE: Self = Self(0x001);
    /// Insert: create names.
    pub const INSERT: Self = Self(0x002);
    /// Lock.
    pub const LOCK: Self = Self(0x004);
    /// Look up.
    pub const LOOKUP: Self = Self(0x008);
    /// Rename.
    pub const RENAME: Self = Self(0x010);
    /// Read and list.
    pub const READ: Self = Self(0x020);
    /// Write.
    pub const WRITE: Self = Self(0x040);
    /// Stage; only part of `a`.
    pub const STAGE: Self = Self(0x080);
    /// Poll; only part of `a`.
    pub const POLL: Self = Self(0x100);
    /// Everything, the letter `a`.
    pub const ALL: Self = Self(0x1ff);

    /// The letters in the order in which XRootD prints them. `a` is not printed.
    const LETTERS: [(u8, Self); 7] = [
        (b'd', Self::DELETE),
        (b'i', Self::INSERT),
        (b'k', Self::LOCK),
        (b'l', Self::LOOKUP),
        (b'n', Self::RENAME),
        (b'r', Self::READ),
        (b'w', Self::WRITE),
    ];

    /// Returns the privileges of one letter.
    #[must_use]
    pub fn of_letter(letter: u8) -> Option<Self> {
        if letter == b'a' {
            return Some(Self::ALL);
        }
        Self::LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, privileges)| *privileges)
    }

    /// Returns the bits.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns the privileges in either set.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the privileges in both sets.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the privileges that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Reports whether all privileges of `other` are in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Reports whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The letters, as in a file: `lr`. Empty for no privilege.
impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, privilege) in Self::LETTERS {
            if self.contains(privilege) {
                fmt::Write::write_char(f, char::from(letter))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Privileges({self})")
    }
}

/// An operation for which a client needs authorization.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessOperation {
    /// Any operation: some privilege suffices.
    Any,
    /// Change permission bits.
    ChangeMode,
    /// Change the owner.
    ChangeOwner,
    /// Create a file, or replace an existing one.
    Create,
    /// Remove a file or directory.
    Delete,
    /// Create a name by renaming; an existing object is replaced.
    Insert,
    /// Lock a file.
    Lock,
    /// Create a directory.
    MakeDirectory,
    /// Read a file.
    Read,
    /// List a directory.
    ReadDirectory,
    /// Rename: the right on the present name.
    Rename,
    /// Return the status.
    Stat,
    /// Change an existing file.
    Update,
    /// Create a file that must not exist. No privilege of an authorization database grants only
    /// this.
    ExclusiveCreate,
    /// Create a name by renaming that must not exist. No privilege of an authorization database
    /// grants only this.
    ExclusiveInsert,
    /// Bring a file online.
    Stage,
    /// Ask whether a file is online.
    Poll,
}

impl AccessOperation {
    /// All operations, by their number in XRootD.
    pub const ALL: [Self; 17] = [
        Self::Any,
        Self::ChangeMode,
        Self::ChangeOwner,
        Self::Create,
        Self::Delete,
        Self::Insert,
        Self::Lock,
        Self::MakeDirectory,
        Self::Read,
        Self::ReadDirectory,
        Self::Rename,
        Self::Stat,
        Self::Update,
        Self::ExclusiveCreate,
        Self::ExclusiveInsert,
        Self::Stage,
        Self::Poll,
    ];

    /// Returns the name, as in audit lines and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::ChangeMode => "chmod",
            Self::ChangeOwner => "chown",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Insert => "insert",
            Self::Lock => "lock",
            Self::MakeDirectory => "mkdir",
            Self::Read => "read",
            Self::ReadDirectory => "readdir",
            Self::Rename => "rename",
            Self::Stat => "stat",
            Self::Update => "update",
            Self::ExclusiveCreate => "excl_create",
            Self::ExclusiveInsert => "excl_insert",
            Self::Stage => "stage",
            Self::Poll => "poll",
        }
    }

    /// Returns the operation with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Returns the privileges that the operation needs. `None` if no privilege grants it.
    #[must_use]
    pub const fn needs(self) -> Option<Privileges> {
        use Privileges as P;
        Some(match self {
            Self::Any => P::NONE,
            Self::ChangeMode | Self::ChangeOwner => P::DELETE.with(P::INSERT).with(P::READ).with(P::WRITE),
            Self::Create => P::INSERT.with(P::READ).with(P::WRITE),
            Self::Delete => P::DELETE,
            Self::Insert | Self::MakeDirectory => P::INSERT,
            Self::Lock => P::LOCK,
            Self::Read | Self::ReadDirectory => P::READ,
            Self::Rename => P::RENAME,
            Self::Stat => P::LOOKUP,
            Self::Update => P::READ.with(P::WRITE),
            Self::ExclusiveCreate | Self::ExclusiveInsert => return None,
            Self::Stage => P::STAGE.with(P::POLL),
            Self::Poll => P::POLL,
        })
    }

    /// Reports whether `granted` suffices for the operation.
    #[must_use]
    pub const fn is_granted_by(self, granted: Privileges) -> bool {
        match (self, self.needs()) {
            (Self::Any, _) => !granted.is_empty(),
            (_, Some(needs)) => granted.contains(needs),
            (_, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_printed_in_a_fixed_order() {
        assert_eq!(Privileges::ALL.to_string(), "diklnrw");
        assert_eq!(Privileges::READ.with(Privileges::LOOKUP).to_string(), "lr");
        assert_eq!(Privileges::STAGE.to_string(), "");
        assert_eq!(Privileges::of_letter(b'R'), None);
    }

    #[test]
    fn operations_need_the_bits_of_the_protocol() {
        let bits: Vec<Option<u16>> =
            AccessOperation::ALL.iter().map(|operation| operation.needs().map(Privileges::bits)).collect();
        let expected = [
            0, 0x63, 0x63, 0x62, 0x01, 0x02, 0x04, 0x02, 0x20, 0x20, 0x10, 0x08, 0x60, 0xffff, 0xffff, 0x180,
            0x100,
        ];
        let expected: Vec<Option<u16>> =
            expected.iter().map(|bits| (*bits != 0xffff).then_some(*bits)).collect();
        assert_eq!(bits, expected);
        for operation in AccessOperation::ALL {
            assert_eq!(AccessOperation::of_name(operation.name()), Some(operation));
            assert!(!operation.is_granted_by(Privileges::NONE), "{operation:?}");
        }
        assert!(!AccessOperation::ExclusiveCreate.is_granted_by(Privileges::ALL));
    }
}
