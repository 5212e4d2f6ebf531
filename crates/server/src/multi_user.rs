//! Multi-user of a running server: its capabilities, and the accounts with whose rights it acts.

use crate::adapters::SystemAccounts;
use crate::error::StartError;
use config::Effective;
use logical::{AccountLimits, UserAccounts};
use std::sync::Arc;
use storage::UserSwitch;

/// Reports whether operations are made with the rights of the accounts of clients. A redirector has
/// no files.
pub(crate) fn is_enabled(effective: &Effective) -> bool {
    *effective.multi_user.enabled && !effective.cluster.role.redirects()
}

/// Reduces the capabilities of this thread, and of those that it starts, to the two that acting for
/// users needs.
///
/// # Errors
/// The process does not have them, or runs as the superuser.
pub(crate) fn claim() -> Result<UserSwitch, StartError> {
    UserSwitch::claim().map_err(StartError::MultiUser)
}

/// Returns the accounts that may be used.
pub(crate) fn accounts(effective: &Effective) -> UserAccounts {
    let values = &effective.multi_user;
    let limits = AccountLimits { uid_min: *values.uid_min, gid_min: *values.gid_min };
    tracing::info!(
        "acting as the users of clients: accounts with user ids from {} and group ids from {}",
        limits.uid_min,
        limits.gid_min
    );
    UserAccounts { database: Arc::new(SystemAccounts), limits }
}
