//! Values for the crate `storage` (`oss.`) and the exports: served paths, their location and
//! attributes.

use std::path::PathBuf;
use std::time::Duration;

use super::name_rules::NameRule;
use super::process::Trace;
use crate::setting::{Origin, Setting};

/// Visibility of an export in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Visibility {
    /// Visible.
    #[default]
    Global,
    /// Visible for reading.
    GlobalReadOnly,
    /// Not visible.
    Local,
}

/// Resolved attributes of an export: its own options over `oss.defaults` over the built-in
/// defaults.
///
/// `read_only`, `force_read_only` and `lock` are in force. The others belong to staging, migration,
/// memory mapping and clusters; they are kept so that `config show` prints a complete file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportAttributes {
    /// Nothing below it may change (`r/o`, `readonly`, `forcero`, `notwritable`).
    pub read_only: bool,
    /// Opens for writing become opens for reading (`forcero`).
    pub force_read_only: bool,
    /// Readers and writers exclude each other (`lock`, the default).
    pub lock: bool,
    /// Missing files are staged from mass storage.
    pub stage: bool,
    /// Files are created in mass storage too (`stage+`).
    pub stage_creates: bool,
    /// Files may be purged.
    pub purge: bool,
    /// Files are migrated to mass storage.
    pub migrate: bool,
    /// Mass storage is queried before a file is created.
    pub check: bool,
    /// Mass storage is queried for directory listings.
    pub remote_directories: bool,
    /// Files are created in mass storage first.
    pub remote_create: bool,
    /// Files are memory mapped.
    pub mmap: bool,
    /// Mapped files are locked in memory.
    pub mlock: bool,
    /// Mapped files stay mapped when closed.
    pub mkeep: bool,
    /// New files are created in the export's own file system, not in a space (`inplace`).
    pub in_place: bool,
    /// The path is a cache.
    pub cache: bool,
    /// Several writable copies of a file may exist in the cluster.
    pub multiple_writable: bool,
    /// Visibility in the cluster.
    pub visibility: Visibility,
    /// Migration data is kept in extended attributes.
    pub xattrs: bool,
    /// A `.fail` file makes staging of its file fail immediately.
    pub fail_files: bool,
}

impl Default for ExportAttributes {
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

/// A served part of the name space.
#[derive(Clone, PartialEq, Debug)]
pub struct Export {
    /// The logical path: absolute, without `.`, `..`, duplicate or trailing `/`, except for `/`
    /// itself.
    pub prefix: String,
    /// Attributes of the export.
    pub attributes: ExportAttributes,
    /// Origin of the export.
    pub origin: Origin,
}

impl Export {
    /// Reports whether a (normalised) path is under this export: `/data` covers `/data` and
    /// `/data/x`, but not `/database`.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        match path.strip_prefix(self.prefix.as_str()) {
            Some(rest) => self.prefix == "/" || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// `oss.space … chkmount`: the partition counts as mounted if this file exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountCheck {
    /// The id in the name of the file.
    pub id: String,
    /// Starts without the partition if it is missing. Otherwise the start fails.
    pub optional: bool,
}

/// One partition (or family of partitions) of a space: `oss.space name path[*]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpacePartition {
    /// Name of the space (`oss.cgroup`).
    pub name: String,
    /// The directory; with `wildcard`, the prefix of directory names.
    pub path: PathBuf,
    /// Each directory whose name starts with `path` is a partition.
    pub wildcard: bool,
    /// Check that it is mounted.
    pub mount_check: Option<MountCheck>,
}

/// `oss.space name assign|default prefix…`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceRule {
    /// The space.
    pub name: String,
    /// `true` for `assign` (overrides the client's choice), `false` for `default`.
    pub assign: bool,
    /// Logical path prefixes.
    pub prefixes: Vec<String>,
}

/// `oss.alloc`: selection of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allocation {
    /// Minimum free space of a partition in bytes.
    pub bytes_min: u64,
    /// Percentage added to the announced size.
    pub headroom_percent: u8,
    /// Percentage by which free space may differ and still count as equal.
    pub fuzz_percent: u8,
}

/// `oss.usage`: accounting of the space that files use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpaceAccounting {
    /// `log`: the file in which usage is kept.
    pub log: Option<UsageLogConfig>,
    /// `quotafile`: a file with a line `space size` for each quota.
    pub quota_file: Option<PathBuf>,
}

/// `oss.usage log`: the place of the usage log, and when it is synced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageLogConfig {
    /// The directory.
    pub directory: PathBuf,
    /// The instance of the server, whose name is that of a subdirectory; `None` for the anonymous
    /// one.
    pub instance: Option<String>,
    /// Number of changes after which the file is synced. With 0 and 1 each change is.
    pub changes_per_sync: u32,
}

/// Values for the crate `storage`.
#[derive(Clone, PartialEq, Debug)]
pub struct Storage {
    /// `all.export` and `xrootd.export`, in the order of first mention. Never empty once loaded.
    pub exports: Vec<Export>,
    /// `oss.defaults`: attributes of exports without options.
    pub defaults: Setting<ExportAttributes>,
    /// `oss.localroot`: prefix of logical paths on disk.
    pub local_root: Setting<Option<PathBuf>>,
    /// `scalla.namerule`: translation of logical paths to paths below the local root.
    pub name_rules: Vec<Setting<NameRule>>,
    /// `oss.space name path`.
    pub spaces: Vec<Setting<SpacePartition>>,
    /// `oss.space name assign|default`.
    pub space_rules: Vec<Setting<SpaceRule>>,
    /// `oss.usage`.
    pub accounting: Setting<SpaceAccounting>,
    /// `oss.spacescan`: interval at which quotas and the changes of other programs to the usage log
    /// are read.
    pub space_scan: Setting<Duration>,
    /// `oss.alloc`.
    pub allocation: Setting<Allocation>,
    /// `oss.maxsize`: maximum size of a file in bytes; `None` means unlimited.
    pub file_bytes_max: Setting<Option<u64>>,
    /// `oss.trace`.
    pub trace: Setting<Trace>,
}

impl Storage {
    /// Returns the export of a (normalised) path: the one with the longest prefix.
    #[must_use]
    pub fn export_of(&self, path: &str) -> Option<&Export> {
        self.exports.iter().filter(|export| export.covers(path)).max_by_key(|export| export.prefix.len())
    }

    /// Returns the location on disk of a (normalised) logical directory, after name rules and below
    /// the local root.
    #[must_use]
    pub fn local_path(&self, path: &str) -> PathBuf {
        let rules = self.name_rules.iter();
        let directories = rules.filter_map(|rule| Some((rule.from.len(), rule.directory(path)?)));
        match directories.max_by_key(|(length, _)| *length) {
            Some((_, stored)) => self.stored_path(&stored),
            None => self.stored_path(path),
        }
    }

    /// Returns the location on disk of a (normalised) path below the local root.
    #[must_use]
    pub fn stored_path(&self, path: &str) -> PathBuf {
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
            defaults: Setting::default_of(ExportAttributes::default()),
            local_root: Setting::default_of(None),
            name_rules: Vec::new(),
            spaces: Vec::new(),
            space_rules: Vec::new(),
            accounting: Setting::default_of(SpaceAccounting::default()),
            space_scan: Setting::default_of(Duration::from_secs(600)),
            allocation: Setting::default_of(Allocation::default()),
            file_bytes_max: Setting::default_of(None),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
