//! Values for `residency`: staging of missing files from mass storage.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::monitoring::ReportDestination;
use super::third_party::CopyProgram;
use crate::setting::Setting;

/// `frm.xfr.copycmd`: a program that copies files from or to mass storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageProgram {
    /// The program and its arguments, with variables.
    pub command: CopyProgram,
    /// The time after which it is ended.
    pub timeout: Option<Duration>,
    /// It creates the file itself (`noalloc`).
    pub creates_file: bool,
}

/// `frm.xfr.copymax`: copies that run at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopySlots {
    /// From mass storage.
    pub inward: u32,
    /// To mass storage.
    pub outward: u32,
}

/// Maximum number of copies that run at once in each direction.
pub const COPY_SLOTS_MAX: u32 = 1024;

/// `scalla.stageshare`: the share of one client in staging.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageShare {
    /// Copies that run at once for one client; `None` for all of them.
    pub copies: Option<u32>,
    /// Files that wait at once, for all clients.
    pub places: u32,
}

/// Maximum number of files that wait to be staged.
pub const STAGE_PLACES_MAX: u32 = 100_000_000;

/// An amount of free space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeSpaceLimit {
    /// A part of the file system, in percent.
    Percent(u8),
    /// Bytes.
    Bytes(u64),
}

/// `frm.purge.policy`: when files are purged, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PurgeRule {
    /// A purge begins when less than the first is free, and ends when the second is; `None`: there is
    /// no purge.
    pub free: Option<(FreeSpaceLimit, FreeSpaceLimit)>,
    /// Time for which a file stays after its last access.
    pub hold: Duration,
    /// The program of `frm.purge.polprog` is asked for each file.
    pub asks_program: bool,
}

/// `frm.purge.polprog`: the program that selects files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PurgeProgram {
    /// The program and its arguments.
    pub command: CopyProgram,
    /// The names of the values that it gets; none for those of XRootD.
    pub variables: Vec<String>,
}

/// A destination of records about transfers and purges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordDestination {
    /// Copies to mass storage are reported.
    pub migrations: bool,
    /// Purges are reported.
    pub purges: bool,
    /// Copies from mass storage are reported.
    pub stages: bool,
    /// The collector.
    pub address: ReportDestination,
}

impl fmt::Display for RecordDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, is_sent) in [("migr", self.migrations), ("purge", self.purges), ("stage", self.stages)] {
            if is_sent {
                write!(f, "{name} ")?;
            }
        }
        write!(f, "{}", self.address)
    }
}

/// `frm.all.monitor`: records about transfers and purges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferMonitoring {
    /// Interval in which the sender identifies itself.
    pub interval: Duration,
    /// The collectors.
    pub destinations: Vec<RecordDestination>,
}

/// The form of a program of `oss.stagecmd`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageForm {
    /// It is run for each file.
    PerFile,
    /// One process reads a line for each file, and reports the end of each (`async |`).
    Reporting,
    /// One process reads a line for each file, and reports nothing (`|`).
    Silent,
}

impl StageForm {
    /// Reports whether one process reads a line for each file.
    #[must_use]
    pub fn reads_lines(self) -> bool {
        self != Self::PerFile
    }
}

/// The name space daemon that gets events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameSpaceDaemon {
    /// It gets events while it reads them.
    Optional,
    /// It gets no events.
    Ignored,
    /// Events wait for it.
    Required,
}

/// `frm.all.cnsd`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameSpaceTarget {
    /// The daemon.
    pub daemon: NameSpaceDaemon,
    /// Its directory; `None`: `all.adminpath`.
    pub directory: Option<PathBuf>,
}

/// Values for `residency`.
#[derive(Clone, PartialEq, Debug)]
pub struct ResidencyConfig {
    /// `oss.remoteroot`: begin of the names in mass storage.
    pub remote_root: Setting<Option<String>>,
    /// `oss.rsscmd`, `oss.msscmd`: the program that returns the status of files in mass storage.
    pub catalog: Setting<Option<CopyProgram>>,
    /// That program runs for long, and reads requests line by line (`|`).
    pub catalog_reads_lines: bool,
    /// `frm.xfr.copycmd` for files whose remote name is a path.
    pub from_path: Setting<Option<StageProgram>>,
    /// `frm.xfr.copycmd url`, for files whose remote name is a URL.
    pub from_url: Setting<Option<StageProgram>>,
    /// `oss.stagecmd`: a program that stages files in place of those above. It gets both names behind its arguments.
    pub stage_program: Setting<Option<CopyProgram>>,
    /// The form of that program.
    pub stage_form: StageForm,
    /// It also makes the missing files that clients create (`creates`).
    pub stage_creates: bool,
    /// `oss.stagemsg`: the line for a file.
    pub stage_message: Setting<Option<String>>,
    /// `oss.xfr`: number of its processes at once, if that is there.
    pub stage_threads: Setting<Option<u32>>,
    /// `frm.xfr.copycmd out`, for files whose remote name is a path.
    pub to_path: Setting<Option<StageProgram>>,
    /// `frm.xfr.copycmd out url`, for files whose remote name is a URL.
    pub to_url: Setting<Option<StageProgram>>,
    /// `frm.xfr.migr.idlehold`: time for which a file is not changed before it is migrated.
    pub migration_idle: Setting<Duration>,
    /// `frm.xfr.migr.waittime`: interval between two searches for files to migrate.
    pub migration_interval: Setting<Duration>,
    /// `frm.xfr.copymax`.
    pub slots: Setting<CopySlots>,
    /// `scalla.stageshare`.
    pub share: Setting<StageShare>,
    /// `frm.xfr.qcheck`: directory of the queue.
    pub directory: Setting<Option<PathBuf>>,
    /// `oss.xfr deny`: time for which requests are refused after a file could not be staged.
    pub deny: Setting<Duration>,
    /// `xrootd.prep keep`: time for which failures of prepare requests are shown.
    pub prepare_keep: Setting<Duration>,
    /// `frm.purge.policy *`.
    pub purge: Setting<PurgeRule>,
    /// `frm.purge.policy` of spaces.
    pub purge_spaces: BTreeMap<String, Setting<PurgeRule>>,
    /// `frm.purge.waittime`: interval between two purges.
    pub purge_interval: Setting<Duration>,
    /// `frm.purge.polprog`.
    pub purge_program: Setting<Option<PurgeProgram>>,
    /// `frm.purge.dirhold`: time after which empty directories are removed; `None`: never.
    pub purge_directories: Setting<Option<Duration>>,
    /// `frm.all.cnsd`.
    pub name_space: Setting<NameSpaceTarget>,
    /// `frm.all.monitor`; `None` if no records are sent.
    pub monitoring: Setting<Option<TransferMonitoring>>,
}

impl ResidencyConfig {
    /// Reports whether there is a copy command that stages files.
    #[must_use]
    pub fn has_copy_command_in(&self) -> bool {
        [&self.from_path, &self.from_url].iter().any(|program| program.is_some())
    }

    /// Reports whether there is a program that stages files.
    #[must_use]
    pub fn has_copy_program(&self) -> bool {
        self.has_copy_command_in() || self.stage_program.is_some()
    }

    /// Returns all rules for purges: that of all spaces, and those of single ones.
    pub fn purge_rules(&self) -> impl Iterator<Item = &Setting<PurgeRule>> {
        std::iter::once(&self.purge).chain(self.purge_spaces.values())
    }

    /// Reports whether there is a program that migrates files.
    #[must_use]
    pub fn has_migration_program(&self) -> bool {
        self.to_path.value.is_some() || self.to_url.value.is_some()
    }
}

impl Default for ResidencyConfig {
    fn default() -> Self {
        Self {
            remote_root: Setting::default_of(None),
            catalog: Setting::default_of(None),
            catalog_reads_lines: false,
            from_path: Setting::default_of(None),
            from_url: Setting::default_of(None),
            stage_program: Setting::default_of(None),
            stage_form: StageForm::PerFile,
            stage_creates: false,
            stage_message: Setting::default_of(None),
            stage_threads: Setting::default_of(None),
            to_path: Setting::default_of(None),
            to_url: Setting::default_of(None),
            migration_idle: Setting::default_of(Duration::from_secs(600)),
            migration_interval: Setting::default_of(Duration::from_secs(3600)),
            slots: Setting::default_of(CopySlots { inward: 2, outward: 2 }),
            share: Setting::default_of(StageShare { copies: None, places: 2_000_000 }),
            directory: Setting::default_of(None),
            deny: Setting::default_of(Duration::from_secs(3 * 3600)),
            // XRootD's programs send events only with the directive.
            name_space: Setting::default_of(NameSpaceTarget {
                daemon: NameSpaceDaemon::Ignored,
                directory: None,
            }),
            prepare_keep: Setting::default_of(Duration::from_secs(86_400)),
            purge: Setting::default_of(PurgeRule {
                // XRootD has a default for its purge program, which a site starts deliberately. This server
                // removes nothing unasked.
                free: None,
                hold: Duration::from_secs(20 * 3600),
                asks_program: false,
            }),
            purge_spaces: BTreeMap::new(),
            purge_interval: Setting::default_of(Duration::from_secs(600)),
            purge_program: Setting::default_of(None),
            purge_directories: Setting::default_of(None),
            monitoring: Setting::default_of(None),
        }
    }
}
