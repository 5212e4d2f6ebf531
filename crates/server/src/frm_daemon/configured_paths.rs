//! The exports of a configuration, without a server.

use crate::error::StartError;
use crate::name_space_events::NameSpaceEvents;
use crate::transfer_monitor::TransferMonitor;
use base::LogicalPath;
use config::{Effective, ExportAttributes};
use residency::{EndedCopy, PathResidency, ResidencyEvents, ResidencyPaths};
use std::sync::Arc;
use storage::Metadata;

/// The exports.
pub(super) struct ConfiguredPaths {
    exports: Vec<(LogicalPath, PathResidency)>,
    /// If there are any, only files at and below these paths are purged.
    only: Vec<LogicalPath>,
}

impl ConfiguredPaths {
    pub(super) fn new(effective: &Effective, only: Vec<LogicalPath>) -> Self {
        let exports = effective.storage.exports.iter().filter_map(|export| {
            let ExportAttributes { stage, migrate, purge, .. } = export.attributes;
            Some((
                LogicalPath::parse(export.prefix.as_bytes()).ok()?,
                PathResidency { stage, migrate, purge },
            ))
        });
        Self { exports: exports.collect(), only }
    }
}

impl ResidencyPaths for ConfiguredPaths {
    fn roots(&self) -> Vec<LogicalPath> {
        match self.only.is_empty() {
            true => self.exports.iter().map(|(prefix, _)| prefix.clone()).collect(),
            false => self.only.clone(),
        }
    }

    fn of(&self, path: &LogicalPath) -> PathResidency {
        let covering = self.exports.iter().filter(|(prefix, _)| path.is_within(prefix));
        let found = covering.max_by_key(|(prefix, _)| prefix.as_bytes().len());
        let residency = found.map(|(_, residency)| *residency).unwrap_or_default();
        let is_wanted = self.only.is_empty() || self.only.iter().any(|only| path.is_within(only));
        PathResidency { purge: residency.purge && is_wanted, ..residency }
    }
}

/// Reports files that came or left to the log, to collectors and to the name space daemon. A server finds out by itself.
pub(super) struct DaemonEvents {
    monitor: Option<Arc<TransferMonitor>>,
    name_space: NameSpaceEvents,
}

impl DaemonEvents {
    /// Starts what a configuration wants.
    pub(super) fn of(effective: &Effective) -> Result<Self, StartError> {
        Ok(Self { monitor: TransferMonitor::start(effective)?, name_space: NameSpaceEvents::of(effective) })
    }
}

impl ResidencyEvents for DaemonEvents {
    fn arrived(&self, path: &LogicalPath) {
        tracing::info!(path = %path.shown(), "staged");
    }

    fn removed(&self, path: &LogicalPath) {
        tracing::info!(path = %path.shown(), "purged");
        self.name_space.removed(path);
    }

    fn purged(&self, path: &LogicalPath, metadata: &Metadata) {
        if let Some(monitor) = &self.monitor {
            monitor.purged(path, metadata);
        }
    }

    fn copied(&self, copy: &EndedCopy<'_>) {
        if let Some(monitor) = &self.monitor {
            monitor.copied(copy);
        }
        self.name_space.copied(copy);
    }
}
