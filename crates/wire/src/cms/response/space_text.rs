//! The two texts that answer `statfs`.
//!
//! All sizes are in megabytes.
//!
//! Space for selection: `wNum wFree wUtil sNum sFree sUtil`. The first three are the number of
//! writable nodes, and free space and use in percent of the best of them. The others are the
//! corresponding numbers of the staging nodes. All six numbers are -1 if no node exports the path.
//! Totals (modifier 1): `A total free max`, the sums over the nodes and the free space of the best
//! node. A client distinguishes the two by the `A`.
//!
//! Source: cms protocol version 3, section 4.15. Recorded: 09, 10, 15.

use std::io::Write as _;

use crate::codec::{Decode, Encode};
use crate::error::WireError;

/// Space for selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceText {
    /// Nodes that can write.
    pub writable: SpaceGroup,
    /// Nodes that can stage.
    pub staging: SpaceGroup,
}

/// The figures of one kind of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceGroup {
    /// Number of nodes; -1 if no node exports the path.
    pub nodes: i64,
    /// Free megabytes of the best node.
    pub free_mb: i64,
    /// Used percent of the best node.
    pub used_percent: i64,
}

/// Totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TotalsText {
    /// Megabytes of all nodes.
    pub total_mb: i64,
    /// Free megabytes of all nodes.
    pub free_mb: i64,
    /// Free megabytes of the best node.
    pub free_mb_max: i64,
}

impl SpaceText {
    /// The answer if no node exports the path.
    pub const NOBODY: Self = Self { writable: SpaceGroup::NOBODY, staging: SpaceGroup::NOBODY };
}

impl Decode<'_> for SpaceText {
    /// Parses the text.
    ///
    /// # Errors
    /// [`WireError::BadText`] if it does not consist of six numbers.
    fn decode(text: &[u8]) -> Result<Self, WireError> {
        let [w_nodes, w_free, w_used, s_nodes, s_free, s_used] = numbers(text)?;
        let group = |nodes, free_mb, used_percent| SpaceGroup { nodes, free_mb, used_percent };
        Ok(Self { writable: group(w_nodes, w_free, w_used), staging: group(s_nodes, s_free, s_used) })
    }
}

impl Encode for SpaceText {
    /// Appends the text without NUL.
    fn encode(&self, out: &mut Vec<u8>) {
        let (w, s) = (self.writable, self.staging);
        // Writing to memory cannot fail.
        let _ = write!(
            out,
            "{} {} {} {} {} {}",
            w.nodes, w.free_mb, w.used_percent, s.nodes, s.free_mb, s.used_percent
        );
    }
}

impl SpaceGroup {
    const NOBODY: Self = Self { nodes: -1, free_mb: -1, used_percent: -1 };
}

impl Decode<'_> for TotalsText {
    /// Parses the text.
    ///
    /// # Errors
    /// [`WireError::BadText`] if it does not consist of `A` and three numbers.
    fn decode(text: &[u8]) -> Result<Self, WireError> {
        let text = text.strip_prefix(b"A").ok_or(BAD)?;
        let [total_mb, free_mb, free_mb_max] = numbers(text)?;
        Ok(Self { total_mb, free_mb, free_mb_max })
    }
}

impl Encode for TotalsText {
    /// Appends the text without NUL.
    fn encode(&self, out: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        let _ = write!(out, "A {} {} {}", self.total_mb, self.free_mb, self.free_mb_max);
    }
}

const BAD: WireError = WireError::BadText { field: "statfs" };

/// Parses the first `COUNT` numbers; text behind them is ignored.
fn numbers<const COUNT: usize>(text: &[u8]) -> Result<[i64; COUNT], WireError> {
    let text = std::str::from_utf8(text).map_err(|_| BAD)?;
    let mut tokens = text.split_ascii_whitespace();
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = tokens.next().and_then(|token| token.parse().ok()).ok_or(BAD)?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_texts_parse_and_encode() {
        for text in ["64 100000 10 0 0 0", "2 74421 72 0 0 0", "-1 -1 -1 -1 -1 -1"] {
            assert_eq!(SpaceText::decode(text.as_bytes()).unwrap().encoded(), text.as_bytes());
        }
        assert_eq!(SpaceText::decode(b"-1 -1 -1 -1 -1 -1"), Ok(SpaceText::NOBODY));
        let totals = TotalsText::decode(b"A 320020 6348617 100000").unwrap();
        assert_eq!(totals, TotalsText { total_mb: 320_020, free_mb: 6_348_617, free_mb_max: 100_000 });
        assert_eq!(totals.encoded(), b"A 320020 6348617 100000");
    }

    #[test]
    fn invalid_texts_are_refused() {
        for bad in [&b""[..], b"1 2 3 4 5", b"1 2 3 4 5 x", b"\xff", b"A 1 2 3"] {
            assert_eq!(SpaceText::decode(bad), Err(BAD));
        }
        for bad in [&b""[..], b"A", b"A 1 2", b"1 2 3"] {
            assert_eq!(TotalsText::decode(bad), Err(BAD));
        }
    }
}
