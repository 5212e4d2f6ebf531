//! `load` (16) and `avail` (12): load and free space of a node.
//!
//! `load`: a binary text of 6 bytes `[cpu, net, runq, mem, pag, dsk]`, each 0 to 100 percent, then
//! diskFree u32 (MB). `avail`: diskFree u32 (MB), diskUtil u32 (percent). Numbers below 2^28 are
//! sent inline, as XRootD does. `diskFree` only describes one partition. Inner nodes of Scalla
//! therefore append two u64 to `avail` for Scalla peers: the total and free megabytes of all nodes
//! below them.
//!
//! Direction: node to parent.
//!
//! Source: cms protocol version 3, sections 1.3, 2.7, 5.2. Recorded: 01, 09, 10, 21.

use crate::cms::error::EncodeError;
use crate::cms::pup::{Arguments, Packer, Unpacker};
use crate::error::WireError;

/// Maximum of free megabytes; larger values are sent as this value.
pub const FREE_MB_MAX: u32 = 0x7fff_ffff;
/// Maximum of percentages; larger values are sent as 100.
pub const PERCENT_MAX: u8 = 100;

/// The load of a node, in percent except for the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Processor load.
    pub cpu: u8,
    /// Network load.
    pub net: u8,
    /// Run queue.
    pub runq: u8,
    /// Memory use.
    pub mem: u8,
    /// Paging.
    pub pag: u8,
    /// Used disk space.
    pub dsk: u8,
    /// Free megabytes of the partition with the most free space.
    pub free_mb: u32,
}

/// The space of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Avail {
    /// Free megabytes of the partition with the most free space.
    pub free_mb: u32,
    /// Used space in percent.
    pub used_percent: u32,
    /// Sums over all nodes below. Scalla nodes only.
    pub sums: Option<SpaceSums>,
}

/// Sums of the space of several nodes, in megabytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceSums {
    /// Total space.
    pub total_mb: u64,
    /// Free space.
    pub free_mb: u64,
}

impl Arguments<'_> for Load {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'_>) -> Result<Self, WireError> {
        let vector = arguments.binary("load")?;
        let &[cpu, net, runq, mem, pag, dsk] = vector else {
            let bytes = i64::try_from(vector.len()).unwrap_or(i64::MAX);
            return Err(WireError::BadLength { field: "load", bytes });
        };
        Ok(Self { cpu, net, runq, mem, pag, dsk, free_mb: arguments.u32("diskFree")? })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        let vector = [self.cpu, self.net, self.runq, self.mem, self.pag, self.dsk];
        packer.binary(&vector.map(|percent| percent.min(PERCENT_MAX)));
        packer.u32_inline(self.free_mb.min(FREE_MB_MAX));
        Ok(())
    }
}

impl Arguments<'_> for Avail {
    fn unpack(_modifier: u8, arguments: &mut Unpacker<'_>) -> Result<Self, WireError> {
        let (free_mb, used_percent) = (arguments.u32("diskFree")?, arguments.u32("diskUtil")?);
        let mut sums = || Ok::<_, WireError>((arguments.u64("allTotal")?, arguments.u64("allFree")?));
        // Any other arguments belong to an unknown extension and are ignored.
        let sums = sums().ok().map(|(total_mb, free_mb)| SpaceSums { total_mb, free_mb });
        Ok(Self { free_mb, used_percent, sums })
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        packer.u32_inline(self.free_mb.min(FREE_MB_MAX));
        packer.u32_inline(self.used_percent.min(PERCENT_MAX.into()));
        if let Some(sums) = self.sums {
            packer.u64(sums.total_mb);
            packer.u64(sums.free_mb);
        }
        Ok(())
    }
}
