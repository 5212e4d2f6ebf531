//! Bodies of a few bytes: the replies to `kXR_bind`, `kXR_chkpoint` query and `kXR_statx`.
//!
//! | request        | body                                                          |
//! |----------------|---------------------------------------------------------------|
//! | bind           | `pathid` u8, 1 to 15                                          |
//! | chkpoint query | `maxCkpSize` u32, `useCkpSize` u32, bytes                     |
//! | statx          | for each path a byte: 0 file or other, 2 directory, 8 offline |
//!
//! They share a file because each needs only a few lines.
//!
//! Source: xroot protocol 5.2.0, sections 1.9, 2.6, 2.22. Recorded: `raw_bind`, `raw_write`,
//! `raw_query`.

use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::flags::StatFlags;

/// The path id of a bound connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindReply {
    /// From 1 to 15; 0 is the control connection.
    pub pathid: u8,
}

impl Encode for BindReply {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.pathid);
    }
}

impl Decode<'_> for BindReply {
    fn decode(body: &[u8]) -> Result<Self, WireError> {
        Ok(Self { pathid: FieldReader::new(body).u8("pathid")? })
    }
}

/// Limit and use of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChkpointSizes {
    /// Maximum number of bytes that a checkpoint may save.
    pub max_bytes: u32,
    /// Number of bytes that it has saved.
    pub used_bytes: u32,
}

impl Encode for ChkpointSizes {
    fn encode(&self, out: &mut Vec<u8>) {
        FieldWriter::new(out).u32(self.max_bytes).u32(self.used_bytes);
    }
}

impl Decode<'_> for ChkpointSizes {
    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        Ok(Self { max_bytes: reader.u32("maxCkpSize")?, used_bytes: reader.u32("useCkpSize")? })
    }
}

/// Returns the byte of `kXR_statx` for a path with these flags.
#[must_use]
pub const fn statx_byte(flags: StatFlags) -> u8 {
    let [kind, ..] = (flags.0 & (StatFlags::IS_DIR.0 | StatFlags::OFFLINE.0)).to_le_bytes();
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statx_distinguishes_directories_and_offline_files() {
        assert_eq!(statx_byte(StatFlags(48)), 0);
        assert_eq!(statx_byte(StatFlags(51)), 2);
        assert_eq!(statx_byte(StatFlags(56)), 8);
    }

    #[test]
    fn sizes_encode_and_decode() {
        let sizes = ChkpointSizes { max_bytes: 1 << 20, used_bytes: 5 };
        let out = sizes.encoded();
        assert_eq!(ChkpointSizes::decode(&out), Ok(sizes));
        assert!(ChkpointSizes::decode(&out[1..]).is_err());
    }
}
