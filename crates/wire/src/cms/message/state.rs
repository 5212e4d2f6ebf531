//! `state` (20), `have` (15), `gone` (14): where paths are.
//!
//! The payload is the path, bare and with its NUL (the raw bit is set); a packed text is understood too.
//!
//! | message | direction      | streamid                                       | modifier        |
//! |---------|----------------|------------------------------------------------|-----------------|
//! | state   | parent to node | [`StreamId::of_path`]                          | [`StateModifier`] |
//! | have    | node to parent | that of the `state`, 0 when nobody asked       | [`HaveModifier`]  |
//! | gone    | node to parent | 0                                              | none            |
//!
//! A real node that does not have a path is silent. A real parent looks a `have` up by a streamid that is not 0
//! without looking at the path: another value than that of the `state` loses the answer. Source: cms protocol version
//! 3, sections 1.4, 4.4, 4.5. Recorded: 03, 09, 10.
//!
//! [`StreamId::of_path`]: crate::cms::StreamId::of_path

use super::decode_path;
use crate::cms::flags::{HaveModifier, StateModifier};
use crate::error::WireError;

/// Asks for a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State<'a> {
    /// How to look and whether to answer.
    pub modifier: StateModifier,
    /// The path.
    pub path: &'a [u8],
}

/// Tells that a path is at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Have<'a> {
    /// Online or pending.
    pub modifier: HaveModifier,
    /// The path.
    pub path: &'a [u8],
}

/// Tells that a path is not at the sender any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone<'a> {
    /// The path.
    pub path: &'a [u8],
}

impl<'a> State<'a> {
    pub(super) fn decode(raw: bool, modifier: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { modifier: StateModifier(modifier), path: decode_path(raw, payload)? })
    }
}

impl<'a> Have<'a> {
    pub(super) fn decode(raw: bool, modifier: u8, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { modifier: HaveModifier(modifier), path: decode_path(raw, payload)? })
    }
}

impl<'a> Gone<'a> {
    pub(super) fn decode(raw: bool, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self { path: decode_path(raw, payload)? })
    }
}
