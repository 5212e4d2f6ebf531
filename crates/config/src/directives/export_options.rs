//! The options of exports, and an export whose options are still collected.

use super::standing::Standing;
use crate::effective::{ExportAttributes, Visibility};
use crate::setting::Origin;

/// One option of an export.
pub struct OptionEntry {
    /// Names of the option; all are equivalent.
    pub names: &'static [&'static str],
    /// Meaning of the option.
    pub help: &'static str,
    /// Standing of the option. An option that only restates a default is in force.
    pub standing: Standing,
    pub(crate) set: fn(&mut ExportAttributes),
}

const fn option(
    names: &'static [&'static str],
    help: &'static str,
    set: fn(&mut ExportAttributes),
) -> OptionEntry {
    OptionEntry { names, help, standing: Standing::InForce, set }
}

const fn later(
    names: &'static [&'static str],
    help: &'static str,
    set: fn(&mut ExportAttributes),
) -> OptionEntry {
    OptionEntry { names, help, standing: Standing::NotYet, set }
}

const fn idle(
    names: &'static [&'static str],
    help: &'static str,
    set: fn(&mut ExportAttributes),
) -> OptionEntry {
    OptionEntry { names, help, standing: Standing::NoEffect, set }
}

/// All export options. The last of several options for the same attribute applies.
pub static EXPORT_OPTIONS: &[OptionEntry] = &[
    option(&["r/w", "writable"], "files are writable (default)", |a| {
        a.read_only = false;
        a.force_read_only = false;
    }),
    option(&["r/o", "readonly"], "files are read-only", |a| a.read_only = true),
    option(&["forcero", "notwritable"], "read-only, and opens for writing become opens for reading", |a| {
        a.read_only = true;
        a.force_read_only = true;
    }),
    option(&["lock"], "a file being written is locked for other clients (default)", |a| a.lock = true),
    option(&["nolock"], "readers and writers do not exclude each other", |a| a.lock = false),
    option(&["stage"], "missing files are staged from mass storage", |a| {
        a.stage = true;
        a.stage_creates = false;
    }),
    later(&["stage+"], "as stage, and files are also created in mass storage", |a| {
        a.stage = true;
        a.stage_creates = true;
    }),
    option(&["nostage"], "missing files are not staged (default)", |a| {
        a.stage = false;
        a.stage_creates = false;
    }),
    option(&["purge"], "files with a copy in mass storage may be purged", |a| a.purge = true),
    option(&["nopurge"], "files are not purged (default)", |a| a.purge = false),
    option(&["mig", "migratable"], "files are migrated to mass storage", |a| a.migrate = true),
    option(&["nomig", "notmig", "notmigratable"], "files are not migrated (default)", |a| a.migrate = false),
    option(&["check"], "a file that exists in mass storage is not created, unless it replaces one", |a| {
        a.check = true
    }),
    option(&["nocheck"], "mass storage is not queried (default)", |a| a.check = false),
    option(&["dread"], "listings also have the names in mass storage", |a| a.remote_directories = true),
    option(&["nodread"], "mass storage is not queried (default)", |a| a.remote_directories = false),
    option(&["rcreate"], "files that mass storage does not have are created there first", |a| {
        a.remote_create = true
    }),
    option(&["norcreate"], "files are created on disk only (default)", |a| a.remote_create = false),
    idle(&["mmap"], "files are memory mapped", |a| a.mmap = true),
    option(&["nommap"], "files are not memory mapped (default)", |a| a.mmap = false),
    idle(&["mlock"], "mapped files are locked in memory", |a| a.mlock = true),
    option(&["nomlock"], "mapped files are not locked (default)", |a| a.mlock = false),
    idle(&["mkeep"], "mapped files stay mapped when closed", |a| a.mkeep = true),
    option(&["nomkeep"], "mapped files are unmapped when closed (default)", |a| a.mkeep = false),
    option(&["inplace"], "new files are created in the export itself", |a| a.in_place = true),
    option(&["outplace"], "new files are created in a space, if there are spaces (default)", |a| {
        a.in_place = false
    }),
    option(&["cache"], "the path is a cache: visible in the cluster for reading", |a| a.cache = true),
    option(&["nocache"], "the path is not a cache (default)", |a| a.cache = false),
    idle(&["mwfiles"], "several writable copies of a file may exist", |a| a.multiple_writable = true),
    option(&["nomwfiles"], "only one writable copy of a file may exist (default)", |a| {
        a.multiple_writable = false
    }),
    option(&["global"], "the path is visible in the cluster (default)", |a| {
        a.visibility = Visibility::Global
    }),
    option(&["globalro"], "the path is visible in the cluster for reading", |a| {
        a.visibility = Visibility::GlobalReadOnly
    }),
    option(&["local"], "the path is not visible in the cluster", |a| a.visibility = Visibility::Local),
    option(&["xattrs"], "migration data is kept in extended attributes", |a| a.xattrs = true),
    option(&["noxattrs"], "migration data is not kept in extended attributes (default)", |a| {
        a.xattrs = false
    }),
    option(&["ficl"], "a `.fail` file makes staging fail immediately (default)", |a| a.fail_files = true),
    idle(&["noficl"], "a `.fail` file does not affect staging", |a| a.fail_files = false),
];

/// An export to which later directives may add options.
pub(crate) struct ExportDraft {
    pub(crate) prefix: String,
    /// Number of `oss.defaults` options before the export. Later ones do not apply to it.
    pub(crate) defaults: usize,
    pub(crate) options: Vec<&'static OptionEntry>,
    pub(crate) origin: Origin,
}
