//! The configuration of a logical file system.
//!
//! It consists of plain values, so that tests need no directives; the `server` crate fills them
//! from the directives.

pub use ::config::{CheckpointFailure, ModeRange, PersistMode};

use base::LogicalPath;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// An exported part of the name space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportConfig {
    /// The root of the export. A path belongs to the export with the longest matching prefix.
    pub prefix: LogicalPath,
    /// Refuse all changes.
    pub read_only: bool,
    /// Turn opens for writing into opens for reading.
    pub force_read_only: bool,
    /// Enforce that readers and writers of a file exclude each other.
    pub lock: bool,
    /// Missing files are brought in from mass storage.
    pub stage: bool,
    /// A file that exists in mass storage is not created.
    pub check: bool,
    /// A new file is created in mass storage first.
    pub remote_create: bool,
    /// Listings also have the names in mass storage.
    pub remote_directories: bool,
    /// New and changed files are copied to mass storage.
    pub migrate: bool,
    /// Files with a copy in mass storage may be removed.
    pub purge: bool,
    /// Opens record an access if the last one is at least this old. `None` leaves that to the file system.
    pub access_interval: Option<Duration>,
}

impl ExportConfig {
    /// Returns a writable export with locking.
    pub fn new(prefix: LogicalPath) -> Self {
        Self {
            prefix,
            read_only: false,
            force_read_only: false,
            lock: true,
            stage: false,
            check: false,
            remote_create: false,
            remote_directories: false,
            migrate: false,
            purge: false,
            access_interval: None,
        }
    }

    /// Reports whether changes are refused.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.force_read_only
    }

    /// Reports whether files can have a copy in mass storage.
    pub(crate) fn has_copies(&self) -> bool {
        self.stage || self.migrate || self.purge
    }

    /// Reports whether files have an attribute with the time of their copy in mass storage.
    pub(crate) fn keeps_copy_time(&self) -> bool {
        self.migrate || self.purge
    }
}

/// Permission bits that clients may set; others never get write permission.
pub(crate) const CLIENT_MODE_BITS: u32 = 0o775;

/// Permission bits that files and directories always have, because the server itself needs them.
/// Source: xroot protocol, permission bits.
pub(crate) const OWNER_FILE_BITS: u32 = 0o600;
pub(crate) const OWNER_DIRECTORY_BITS: u32 = 0o700;

/// The modes of files and directories that clients create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeRules {
    file: ModeRange,
    directory: ModeRange,
    umask: u32,
    opens_private_directories: bool,
}

impl ModeRules {
    /// Returns the mode of a file that a client creates with `mode`.
    pub(crate) fn of_file(self, mode: u32) -> u32 {
        self.file.apply((mode | OWNER_FILE_BITS) & CLIENT_MODE_BITS) & !self.umask
    }

    /// Returns the mode of a directory that a client creates with `mode`.
    pub(crate) fn of_directory(self, mode: u32) -> u32 {
        let mode = self.directory.apply((mode | OWNER_DIRECTORY_BITS) & CLIENT_MODE_BITS);
        let is_opened = self.opens_private_directories && mode == OWNER_DIRECTORY_BITS;
        if is_opened { 0o777 & !self.umask } else { mode & !self.umask }
    }
}

/// Selects whether a file is synced before it counts as complete.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// A successfully closed file survives a power failure completely.
    #[default]
    Synced,
    /// The operating system decides when to write data. After a power failure, a closed file may
    /// look complete without being so.
    Relaxed,
}

/// The settings of persist on successful close (POSC).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Persist {
    /// The files to which it applies.
    pub mode: PersistMode,
    /// The time for which the unfinished file of a lost client is kept for its return; zero removes
    /// it at once.
    pub hold: Duration,
    /// Number of journal entries between two syncs; 0 leaves syncing to the operating system.
    pub sync: u32,
    /// Selects whether files are synced.
    pub durability: Durability,
}

/// The settings of checkpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoints {
    /// Allow clients to create checkpoints.
    pub enabled: bool,
    /// Maximum number of bytes saved by one checkpoint.
    pub bytes_max: u32,
    /// Treatment of a file that cannot be restored.
    pub on_failure: CheckpointFailure,
}

/// The settings of checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksums {
    /// Supported algorithms; the first one is the default. Empty: no checksums.
    pub types: Vec<digest::Algorithm>,
    /// Maximum number of checksums computed at once, for each file system.
    pub concurrent: usize,
    /// Bytes per read while a checksum is computed.
    pub read_bytes: usize,
}

/// The limits of user attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeLimits {
    /// Allow clients to use attributes.
    pub enabled: bool,
    /// Maximum length of a name in bytes.
    pub name_bytes_max: usize,
    /// Maximum length of a value in bytes.
    pub value_bytes_max: usize,
}

/// The address of this server in the reply to a locate request: `host:port` as sent to clients.
#[derive(Clone)]
pub struct OwnAddress {
    /// The numeric form, `[::127.0.0.1]:1094`.
    pub address: Arc<str>,
    /// The name form, `host:1094`.
    pub name: Arc<str>,
}

/// The configuration of a logical file system.
#[derive(Clone)]
pub struct Config {
    /// The exports.
    pub exports: Vec<ExportConfig>,
    /// The mode of created files. The owner can always read and write them, as far as `max` allows,
    /// because some clients omit these bits.
    pub file_mode: ModeRange,
    /// The mode of created directories. The owner can always use them, as far as `max` allows.
    pub directory_mode: ModeRange,
    /// Bits removed from the modes of created files and directories: the umask of the process.
    pub umask: u32,
    /// A directory mode of 0700 counts as 0777 before `umask`, which then decides alone
    /// (`multiuser.umask`).
    pub opens_private_directories: bool,
    /// Persist on successful close.
    pub persist: Persist,
    /// Checkpoints.
    pub checkpoints: Checkpoints,
    /// Checksums.
    pub checksums: Checksums,
    /// User attributes.
    pub attributes: AttributeLimits,
    /// Maximum time after which a client is asked to retry.
    pub delay_max: Duration,
    /// The address in replies to locate requests.
    pub own_address: OwnAddress,
    /// Directory of the journal of unfinished files. Created on first use.
    pub persist_directory: PathBuf,
    /// Directory of the journals of checkpoints. Created on first use.
    pub checkpoint_directory: PathBuf,
}

impl Config {
    /// Returns the modes of created files and directories.
    pub(crate) fn creation_modes(&self) -> ModeRules {
        ModeRules {
            file: self.file_mode,
            directory: self.directory_mode,
            umask: self.umask,
            opens_private_directories: self.opens_private_directories,
        }
    }

    /// Returns the defaults, with these exports and with journals below `directory`.
    pub fn new(exports: Vec<ExportConfig>, directory: PathBuf) -> Self {
        Self {
            exports,
            file_mode: ModeRange { min: 0, max: CLIENT_MODE_BITS },
            directory_mode: ModeRange { min: 0, max: CLIENT_MODE_BITS },
            umask: 0,
            opens_private_directories: false,
            persist: Persist {
                mode: PersistMode::Manual,
                hold: Duration::from_secs(600),
                sync: 1,
                durability: Durability::Synced,
            },
            checkpoints: Checkpoints {
                enabled: true,
                bytes_max: 1 << 20,
                on_failure: CheckpointFailure::MakeReadOnly,
            },
            checksums: Checksums { types: Vec::new(), concurrent: 4, read_bytes: 1 << 20 },
            attributes: AttributeLimits { enabled: true, name_bytes_max: 248, value_bytes_max: 65_536 },
            delay_max: Duration::from_secs(60),
            own_address: OwnAddress { address: "[::127.0.0.1]:1094".into(), name: "localhost:1094".into() },
            persist_directory: directory.join("posc"),
            checkpoint_directory: directory.join("chkpnt"),
        }
    }
}
