//! `state` (20), `have` (15), `gone` (14): queries and reports of file locations.
//!
//! The payload is the unpacked path with its NUL (the raw bit is set). A packed text is accepted as
//! well.
//!
//! | message | direction      | streamid                              | modifier          |
//! |---------|----------------|---------------------------------------|-------------------|
//! | state   | parent to node | [`StreamId::of_path`]                 | [`StateModifier`] |
//! | have    | node to parent | that of the `state`, 0 if unsolicited | [`HaveModifier`]  |
//! | gone    | node to parent | 0                                     | none              |
//!
//! A node without the path sends no answer. XRootD parents find the query of a `have` by its
//! streamid and do not compare the path; with a different streamid the answer is lost.
//!
//! Source: cms protocol version 3, sections 1.4, 4.4, 4.5. Recorded: 03, 09, 10.
//!
//! [`StreamId::of_path`]: crate::cms::StreamId::of_path

use crate::cms::error::EncodeError;
use crate::cms::flags::{HaveModifier, StateModifier};
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Queries whether a node has a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State<'a> {
    /// Options of the query and of its answer.
    pub modifier: StateModifier,
    /// The path.
    pub path: &'a [u8],
}

/// Reports that a path exists at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Have<'a> {
    /// State of the file: online or pending.
    pub modifier: HaveModifier,
    /// The path.
    pub path: &'a [u8],
}

/// Reports that a path no longer exists at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone<'a> {
    /// The path.
    pub path: &'a [u8],
}

impl<'a> Arguments<'a> for State<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { modifier: StateModifier(modifier), path: arguments.path()? })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.raw_path(self.path)
    }
}

impl<'a> Arguments<'a> for Have<'a> {
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { modifier: HaveModifier(modifier), path: arguments.path()? })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.raw_path(self.path)
    }
}

impl<'a> Arguments<'a> for Gone<'a> {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError> {
        Ok(Self { path: arguments.path()? })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.raw_path(self.path)
    }
}
