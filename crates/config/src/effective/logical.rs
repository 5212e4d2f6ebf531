//! Values for the crate `logical` (`ofs.`): persist on close, checkpoints, creation modes,
//! attribute limits.

use std::path::PathBuf;
use std::time::Duration;

use super::process::Trace;
use super::third_party::{CopySources, ThirdPartyCopy};
use crate::setting::Setting;

/// Treatment of a file whose checkpoint cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointFailure {
    /// The file becomes read-only.
    #[default]
    MakeReadOnly,
    /// The file can be neither read nor written.
    StopIo,
}

/// Availability of checkpoints to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CheckpointMode {
    /// Available unless the checkpoints would be under `/tmp`, where a reboot loses them.
    #[default]
    Automatic,
    /// Available.
    Enabled,
    /// Not available.
    Disabled,
}

/// `ofs.chkpnt`. [`crate::Effective::checkpoint_directory`] derives the directory from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointConfig {
    /// Availability to clients.
    pub mode: CheckpointMode,
    /// Treatment of a file that cannot be restored.
    pub on_failure: CheckpointFailure,
    /// Maximum size of one checkpoint in bytes.
    pub bytes_max: u64,
    /// Directory of checkpoints; `None` means `<adminpath>/[<instance>/].ofs/chkpnt`.
    pub path: Option<PathBuf>,
}

/// Permission bits that created files or directories always have (`min`) and may have (`max`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeRange {
    /// Bits that are set.
    pub min: u32,
    /// Mask of the allowed bits.
    pub max: u32,
}

impl ModeRange {
    /// Returns the mode of a new file for the requested `mode`.
    #[must_use]
    pub fn apply(self, mode: u32) -> u32 {
        (mode | self.min) & self.max
    }
}

/// `ofs.crmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreationModes {
    /// Modes of directories.
    pub directories: ModeRange,
    /// Modes of files.
    pub files: ModeRange,
}

/// Selection of new files that persist only after a successful close.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PersistMode {
    /// All files.
    Auto,
    /// Files whose open requests it.
    #[default]
    Manual,
    /// No files: the request is ignored.
    Off,
}

/// `ofs.persist`. [`crate::Effective::persist_directory`] derives the directory from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PersistConfig {
    /// Selection of files.
    pub mode: PersistMode,
    /// Time for which the incomplete file of a lost client is kept for its return.
    pub hold: Duration,
    /// Parent directory of the journal of incomplete files; `None` means the admin path.
    pub log_path: Option<PathBuf>,
    /// Number of journal entries between two syncs; 0 leaves syncing to the system.
    pub sync: u32,
    /// Set if files are synced before they count as complete.
    pub synced: bool,
}

/// Bytes that `ofs.xattr maxnsz` counts beyond the name a client uses: the prefix `user.U.` on
/// disk.
pub(crate) const XATTR_PREFIX_BYTES: u32 = 7;

/// `ofs.xattr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XattrLimits {
    /// Maximum length of a client's attribute name in bytes.
    pub name_bytes_max: u32,
    /// Maximum length of a value in bytes.
    pub value_bytes_max: u32,
    /// Set if clients may use extended attributes.
    pub enabled: bool,
}

/// Values for the crate `logical`.
#[derive(Clone, PartialEq, Debug)]
pub struct LogicalConfig {
    /// `ofs.persist`.
    pub persist: Setting<PersistConfig>,
    /// `ofs.chkpnt`.
    pub checkpoint: Setting<CheckpointConfig>,
    /// `ofs.crmode`.
    pub creation_modes: Setting<CreationModes>,
    /// `ofs.cksrdsz`: bytes per read during the computation of a checksum.
    pub checksum_read_bytes: Setting<u64>,
    /// `ofs.maxdelay`: maximum wait sent to a client.
    pub delay_max: Setting<Duration>,
    /// `ofs.xattr`.
    pub xattr: Setting<XattrLimits>,
    /// `ofs.tpc`: third-party copies; `None` disables them.
    pub third_party: Setting<Option<ThirdPartyCopy>>,
    /// `scalla.tpcsource`: servers allowed as sources.
    pub copy_sources: Setting<CopySources>,
    /// `ofs.trace`.
    pub trace: Setting<Trace>,
}

impl Default for LogicalConfig {
    fn default() -> Self {
        let legacy = ModeRange { min: 0, max: 0o775 };
        Self {
            persist: Setting::default_of(PersistConfig {
                mode: PersistMode::Manual,
                hold: Duration::from_secs(600),
                log_path: None,
                sync: 1,
                synced: true,
            }),
            checkpoint: Setting::default_of(CheckpointConfig {
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
