//! The rights with which a client's operations are made on the storage (decision 045): those of the
//! server, or those of the client's account.

use crate::describe::UserDirectory;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storage::{Backend, StorageUser};

/// The rights with which components access the storage.
#[derive(Clone)]
pub(crate) enum StorageRights {
    /// Those of the server, for all clients.
    Common,
    /// Those of the server, for clients without a name, while other clients have their own.
    Server,
    /// Those of this account.
    User(Arc<StorageUser>),
}

impl StorageRights {
    /// Reports whether all clients have the same rights, so that a result for one may be given to
    /// another one.
    pub(crate) fn are_common(&self) -> bool {
        matches!(self, Self::Common)
    }

    /// Returns the account.
    pub(crate) fn user(&self) -> Option<&Arc<StorageUser>> {
        match self {
            Self::User(user) => Some(user),
            Self::Common | Self::Server => None,
        }
    }
}

/// The names of users, for clients that see the storage with the rights of an account.
pub(crate) struct AccountView {
    pub(crate) names: Arc<dyn UserDirectory>,
    pub(crate) user: Arc<StorageUser>,
}

impl UserDirectory for AccountView {
    fn user(&self, uid: u32) -> Arc<str> {
        self.names.user(uid)
    }

    fn group(&self, gid: u32) -> Arc<str> {
        self.names.group(gid)
    }

    fn user_now(&self, uid: u32) -> Option<Arc<str>> {
        self.names.user_now(uid)
    }

    fn group_now(&self, gid: u32) -> Option<Arc<str>> {
        self.names.group_now(gid)
    }

    fn own_uid(&self) -> u32 {
        self.user.uid()
    }

    fn is_own_group(&self, gid: u32) -> bool {
        self.user.is_in_group(gid)
    }
}

/// An account in a journal. The ids are stored, because recovery must not wait for a directory
/// service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedUser {
    uid: u32,
    gid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<u32>,
}

impl From<&Arc<StorageUser>> for RecordedUser {
    fn from(user: &Arc<StorageUser>) -> Self {
        Self { uid: user.uid(), gid: user.gid(), groups: user.groups().to_vec() }
    }
}

impl RecordedUser {
    /// Returns the account; `None` for the superuser, whose rights are never used.
    pub(crate) fn into_user(self) -> Option<Arc<StorageUser>> {
        StorageUser::new(self.uid, self.gid, self.groups).map(Arc::new)
    }
}

/// Calls `work` with the storage as the account of a record sees it. Without an account, and if the
/// storage cannot act for users any longer, it is that of the server.
pub(crate) fn with_rights<T>(
    backend: &dyn Backend,
    user: Option<&Arc<StorageUser>>,
    work: impl FnOnce(&dyn Backend) -> T,
) -> T {
    match user.and_then(|user| backend.as_user(user)) {
        Some(own) => work(own.as_ref()),
        None => work(backend),
    }
}
