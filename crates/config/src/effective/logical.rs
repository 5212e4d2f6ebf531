//! Values for the room `logical` (`ofs.`): persist on close, checkpoints, creation modes, attribute limits.

use std::path::PathBuf;
use std::time::Duration;

use super::process::Trace;
use super::third_party::{CopySources, ThirdPartyCopy};
use crate::setting::Setting;

/// What happens to a file whose checkpoint cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointFailure {
    /// The file becomes read-only.
    #[default]
    MakeReadOnly,
    /// Nobody may read or write it.
    StopIo,
}

/// Whether clients may ask for checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointMode {
    /// Yes, unless the checkpoints would lie under `/tmp`, where a reboot loses them.
    #[default]
    Automatic,
    /// Yes.
    Enabled,
    /// No.
    Disabled,
}

/// `ofs.chkpnt`. See [`crate::Effective::checkpoint_folder`] for what follows from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// Whether clients may ask for them.
    pub mode: CheckpointMode,
    /// What to do with a file that cannot be restored.
    pub on_failure: CheckpointFailure,
    /// Most bytes of one checkpoint.
    pub bytes_max: u64,
    /// Where they are kept; `None` is `<adminpath>/[<instance>/].ofs/chkpnt`.
    pub path: Option<PathBuf>,
}

/// Bits that created files or folders always get (`min`) and may get (`max`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeRange {
    /// Or-ed in.
    pub min: u32,
    /// And-ed with.
    pub max: u32,
}

impl ModeRange {
    /// The mode that something asked for with `mode` is created with.
    #[must_use]
    pub fn apply(self, mode: u32) -> u32 {
        (mode | self.min) & self.max
    }
}

/// `ofs.crmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreationModes {
    /// For folders.
    pub directories: ModeRange,
    /// For files.
    pub files: ModeRange,
}

/// Which new files persist only when closed properly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PersistMode {
    /// Every one.
    Auto,
    /// Those whose open asks for it.
    #[default]
    Manual,
    /// None: the request is ignored.
    Off,
}

/// `ofs.persist`. See [`crate::Effective::persist_folder`] for what follows from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Persist {
    /// Which files.
    pub mode: PersistMode,
    /// How long the unfinished file of a lost client is kept for its return.
    pub hold: Duration,
    /// The journal of unfinished files lies below it; `None` is the admin path.
    pub log_path: Option<PathBuf>,
    /// Journal entries between two syncs; 0 leaves syncing to the system.
    pub sync: u32,
    /// Files are synced before they count as whole.
    pub synced: bool,
}

/// What `ofs.xattr maxnsz` counts beyond the name a client uses: `user.U.`, which stands before it on disk.
pub(crate) const XATTR_PREFIX_BYTES: u32 = 7;

/// `ofs.xattr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XattrLimits {
    /// Longest name a client may use, in bytes.
    pub name_bytes_max: u32,
    /// Longest value, in bytes.
    pub value_bytes_max: u32,
    /// Clients may use extended attributes at all.
    pub enabled: bool,
}

/// Values for the room `logical`.
#[derive(Clone, PartialEq, Debug)]
pub struct Logical {
    /// `ofs.persist`.
    pub persist: Setting<Persist>,
    /// `ofs.chkpnt`.
    pub checkpoint: Setting<Checkpoint>,
    /// `ofs.crmode`.
    pub creation_modes: Setting<CreationModes>,
    /// `ofs.cksrdsz`: bytes per read while a checksum is computed.
    pub checksum_read_bytes: Setting<u64>,
    /// `ofs.maxdelay`: longest wait a client may be told.
    pub delay_max: Setting<Duration>,
    /// `ofs.xattr`.
    pub xattr: Setting<XattrLimits>,
    /// `ofs.tpc`: copies between servers; `None` without any.
    pub third_party: Setting<Option<ThirdPartyCopy>>,
    /// `scalla.tpcsource`: the servers that may be sources.
    pub copy_sources: Setting<CopySources>,
    /// `ofs.trace`.
    pub trace: Setting<Trace>,
}

impl Default for Logical {
    fn default() -> Self {
        let legacy = ModeRange { min: 0, max: 0o775 };
        Self {
            persist: Setting::default_of(Persist {
                mode: PersistMode::Manual,
                hold: Duration::from_secs(600),
                log_path: None,
                sync: 1,
                synced: true,
            }),
            checkpoint: Setting::default_of(Checkpoint {
                mode: CheckpointMode::Automatic,
                on_failure: CheckpointFailure::MakeReadOnly,
                bytes_max: 1 << 20,
                path: None,
            }),
            creation_modes: Setting::default_of(CreationModes { directories: legacy, files: legacy }),
            checksum_read_bytes: Setting::default_of(1 << 20),
            delay_max: Setting::default_of(Duration::from_secs(60)),
            xattr: Setting::default_of(XattrLimits {
                name_bytes_max: 248,
                value_bytes_max: 65_536,
                enabled: true,
            }),
            third_party: Setting::default_of(None),
            copy_sources: Setting::default_of(CopySources::default()),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
