//! What a logical file system is told. Plain values; the assembly fills them from the configuration language.

use base::LogicalPath;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A part of the name space that is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Everything at or below it. The longest prefix wins.
    pub prefix: LogicalPath,
    /// Nothing may change below it.
    pub read_only: bool,
    /// Opens for writing become opens for reading.
    pub force_read_only: bool,
    /// Readers and writers of a file exclude each other.
    pub lock: bool,
}

impl Export {
    /// A writable export with locking.
    pub fn new(prefix: LogicalPath) -> Self {
        Self { prefix, read_only: false, force_read_only: false, lock: true }
    }

    /// Reports whether nothing may change below it.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.force_read_only
    }
}

/// Bits that created things always get (`min`) and may get (`max`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModeRange {
    /// Or-ed in.
    pub min: u32,
    /// And-ed with.
    pub max: u32,
}

impl ModeRange {
    /// The mode that something asked for with `mode` is created with.
    pub fn apply(self, mode: u32) -> u32 {
        (mode | self.min) & self.max
    }
}

/// Permission bits that clients may set: others never write.
pub(crate) const CLIENT_MODE_BITS: u32 = 0o775;

/// Permission bits that files and directories always have: the server itself needs them.
/// Source: xroot protocol, permission bits.
pub(crate) const OWNER_FILE_BITS: u32 = 0o600;
pub(crate) const OWNER_DIRECTORY_BITS: u32 = 0o700;

/// The modes of what clients create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreationModes {
    file: ModeRange,
    directory: ModeRange,
    umask: u32,
}

impl CreationModes {
    /// Returns the mode of a file that a client creates with `mode`.
    pub(crate) fn of_file(self, mode: u32) -> u32 {
        self.file.apply((mode | OWNER_FILE_BITS) & CLIENT_MODE_BITS) & !self.umask
    }

    /// Returns the mode of a directory that a client creates with `mode`.
    pub(crate) fn of_directory(self, mode: u32) -> u32 {
        self.directory.apply((mode | OWNER_DIRECTORY_BITS) & CLIENT_MODE_BITS) & !self.umask
    }
}

/// Which new files persist only when closed properly.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum PersistMode {
    /// Every one.
    Auto,
    /// Those whose open asks for it.
    #[default]
    Manual,
    /// None: the request is ignored.
    Off,
}

/// Whether a file is synced before it counts as whole.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// A file that was closed successfully survives a loss of power as a whole.
    #[default]
    Synced,
    /// The system writes data when it likes; after a loss of power, a file that was closed may look whole without being so.
    Relaxed,
}

/// Persist on successful close.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Persist {
    /// Which files.
    pub mode: PersistMode,
    /// How long the unfinished file of a lost client is kept for its return; zero removes it at once.
    pub hold: Duration,
    /// Journal entries between two syncs; 0 leaves syncing to the system.
    pub sync: u32,
    /// Whether files are synced.
    pub durability: Durability,
}

/// What happens to a file whose checkpoint cannot be restored.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CheckpointFailure {
    /// It becomes read-only.
    #[default]
    MakeReadOnly,
    /// Nobody may read or write it.
    StopIo,
}

/// Checkpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoints {
    /// May clients ask for them?
    pub enabled: bool,
    /// Bytes that one may save.
    pub bytes_max: u32,
    /// What to do with a file that cannot be restored.
    pub on_failure: CheckpointFailure,
}

/// Checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checksums {
    /// Types on offer; the first is the default. Empty: no checksums.
    pub types: Vec<digest::Algorithm>,
    /// How many are computed at once.
    pub concurrent: usize,
    /// Bytes per read while one is computed.
    pub read_bytes: usize,
}

/// User attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeLimits {
    /// May clients use them at all?
    pub enabled: bool,
    /// Longest name, in bytes.
    pub name_bytes_max: usize,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
}

/// How this server names itself in the answer to a locate: `host:port` as it goes on the wire.
#[derive(Clone)]
pub struct OwnAddress {
    /// The address form, `[::127.0.0.1]:1094`.
    pub address: Arc<str>,
    /// The name form, `host:1094`.
    pub name: Arc<str>,
}

/// Everything a logical file system is told.
#[derive(Clone)]
pub struct Config {
    /// What is served.
    pub exports: Vec<Export>,
    /// Modes of created files. Their owner may always read and write them, as far as `max` allows: clients leave the bits
    /// out at times.
    pub file_mode: ModeRange,
    /// Modes of created directories. Their owner may always use them, as far as `max` allows.
    pub directory_mode: ModeRange,
    /// Bits that created files and directories do not get: the process's umask.
    pub umask: u32,
    /// Persist on successful close.
    pub persist: Persist,
    /// Checkpoints.
    pub checkpoints: Checkpoints,
    /// Checksums.
    pub checksums: Checksums,
    /// User attributes.
    pub attributes: AttributeLimits,
    /// The longest wait a client is told.
    pub delay_max: Duration,
    /// For locate.
    pub own_address: OwnAddress,
    /// Where the journal of files that are not yet whole lies. Made when needed.
    pub persist_folder: PathBuf,
    /// Where the saved bytes of checkpoints lie. Made when needed.
    pub checkpoint_folder: PathBuf,
}

impl Config {
    /// The modes of what clients create.
    pub(crate) fn creation_modes(&self) -> CreationModes {
        CreationModes { file: self.file_mode, directory: self.directory_mode, umask: self.umask }
    }

    /// The defaults, with these exports and journals below `folder`.
    pub fn new(exports: Vec<Export>, folder: PathBuf) -> Self {
        Self {
            exports,
            file_mode: ModeRange { min: 0, max: CLIENT_MODE_BITS },
            directory_mode: ModeRange { min: 0, max: CLIENT_MODE_BITS },
            umask: 0,
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
            persist_folder: folder.join("posc"),
            checkpoint_folder: folder.join("chkpnt"),
        }
    }
}
