//! Values for the room `storage` (`oss.`) and the exports: what is served, from where, with which attributes.

use std::path::PathBuf;
use std::time::Duration;

use super::process::Trace;
use crate::setting::{Origin, Setting};

/// Whether the cluster hears of files under an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Visibility {
    /// Yes.
    #[default]
    Global,
    /// Yes, for reading.
    GlobalReadOnly,
    /// No.
    Local,
}

/// Attributes of an export, resolved: its own options over `oss.defaults` over the built-in defaults.
///
/// In force: `read_only`, `force_read_only`, `lock`. The others belong to staging, migration, memory mapping
/// and clusters; they are kept so that nothing of a site's file is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Nothing may change under it (`r/o`, `readonly`, `forcero`, `notwritable`).
    pub read_only: bool,
    /// Opens for writing are turned into opens for reading (`forcero`).
    pub force_read_only: bool,
    /// Readers and writers exclude each other (`lock`, the default).
    pub lock: bool,
    /// Missing files are brought from mass storage.
    pub stage: bool,
    /// Files are created in mass storage too (`stage+`).
    pub stage_creates: bool,
    /// Files may be purged.
    pub purge: bool,
    /// Files are migrated to mass storage.
    pub migrate: bool,
    /// Mass storage is asked before a file is created.
    pub check: bool,
    /// Mass storage is asked for directory listings.
    pub remote_directories: bool,
    /// Files are created in mass storage first.
    pub remote_create: bool,
    /// Files are memory mapped.
    pub mmap: bool,
    /// Mapped files are locked in memory.
    pub mlock: bool,
    /// Mapped files stay mapped when closed.
    pub mkeep: bool,
    /// New files lie in the export's own file system, not in a space (`inplace`).
    pub in_place: bool,
    /// The path is a cache.
    pub cache: bool,
    /// Several writable copies of a file may exist in the cluster.
    pub multiple_writable: bool,
    /// What the cluster hears of it.
    pub visibility: Visibility,
    /// Extended attributes carry migration data.
    pub xattrs: bool,
    /// A file with a `.fail` file fails at once.
    pub fail_files: bool,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            read_only: false,
            force_read_only: false,
            lock: true,
            stage: false,
            stage_creates: false,
            purge: false,
            migrate: false,
            check: false,
            remote_directories: false,
            remote_create: false,
            mmap: false,
            mlock: false,
            mkeep: false,
            in_place: false,
            cache: false,
            multiple_writable: false,
            visibility: Visibility::Global,
            xattrs: false,
            fail_files: true,
        }
    }
}

/// A part of the name space that is served.
#[derive(Clone, PartialEq, Debug)]
pub struct Export {
    /// The logical path: absolute, no `.` or `..`, no doubled `/`, no `/` at the end unless it is `/` itself.
    pub prefix: String,
    /// Its attributes.
    pub attributes: Attributes,
    /// Who exported it.
    pub origin: Origin,
}

impl Export {
    /// True if the (normalised) path lies under this export: `/data` covers `/data` and `/data/x`, not `/database`.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.prefix.as_str()) {
            Some(rest) => self.prefix == "/" || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// `oss.space … chkmount`: the partition counts as mounted when this file is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountCheck {
    /// The id that names the file.
    pub id: String,
    /// Start without the partition when it is missing, instead of not at all.
    pub optional: bool,
}

/// One partition (or family of partitions) of a space: `oss.space name path[*]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Space {
    /// The space it belongs to (`oss.cgroup`).
    pub name: String,
    /// The folder; with `wildcard`, the beginning of the names of folders.
    pub path: PathBuf,
    /// Every folder whose name begins like `path` is a partition.
    pub wildcard: bool,
    /// How to know that it is mounted.
    pub mount_check: Option<MountCheck>,
}

/// `oss.space name assign|default prefix…`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceRule {
    /// The space.
    pub name: String,
    /// True for `assign` (wins over the client's wish), false for `default`.
    pub assign: bool,
    /// Logical path prefixes.
    pub prefixes: Vec<String>,
}

/// `oss.alloc`: how a partition is selected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allocation {
    /// Least free bytes a partition must have.
    pub bytes_min: u64,
    /// Percent added to the announced size.
    pub headroom_percent: u8,
    /// Percent by which free space may differ and still count as equal.
    pub fuzz_percent: u8,
}

/// Values for the room `storage`.
#[derive(Clone, PartialEq, Debug)]
pub struct Storage {
    /// `all.export` and `xrootd.export`, in the order of first mention. Never empty once loaded.
    pub exports: Vec<Export>,
    /// `oss.defaults`: attributes of an export that says nothing itself.
    pub defaults: Setting<Attributes>,
    /// `oss.localroot`: prepended to a logical path.
    pub local_root: Setting<Option<PathBuf>>,
    /// `oss.space name path`.
    pub spaces: Vec<Setting<Space>>,
    /// `oss.space name assign|default`.
    pub space_rules: Vec<Setting<SpaceRule>>,
    /// `oss.spacescan`, without effect: how often free space is looked at.
    pub space_scan: Setting<Duration>,
    /// `oss.alloc`.
    pub allocation: Setting<Allocation>,
    /// `oss.maxsize`: largest file, in bytes; `None` is unlimited.
    pub file_bytes_max: Setting<Option<u64>>,
    /// `oss.trace`.
    pub trace: Setting<Trace>,
}

impl Storage {
    /// The export a (normalised) path belongs to: the one with the longest prefix.
    #[must_use]
    pub fn export_of(&self, path: &str) -> Option<&Export> {
        self.exports.iter().filter(|export| export.covers(path)).max_by_key(|export| export.prefix.len())
    }

    /// Where a (normalised) logical path lies on disk: behind the local root.
    #[must_use]
    pub fn local_path(&self, path: &str) -> PathBuf {
        match &self.local_root.value {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => PathBuf::from(path),
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            exports: Vec::new(),
            defaults: Setting::default_of(Attributes::default()),
            local_root: Setting::default_of(None),
            spaces: Vec::new(),
            space_rules: Vec::new(),
            space_scan: Setting::default_of(Duration::from_secs(600)),
            allocation: Setting::default_of(Allocation::default()),
            file_bytes_max: Setting::default_of(None),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
