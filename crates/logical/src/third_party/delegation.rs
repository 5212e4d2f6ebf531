//! The credentials that a client has delegated for its copy (`ofs.tpc fcreds`).

use super::request::PullRequest;
use super::settings::DelegatedCredentials;
use super::{Settings, refused};
use auth::gsi::DelegatedProxy;
use base::{Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use std::time::SystemTime;
use vfs::Caller;

impl Settings {
    /// Returns the credentials for a copy of a client.
    ///
    /// # Errors
    /// The copy needs credentials, and the client has delegated none, or they have expired.
    pub(crate) fn credentials(
        &self,
        path: &LogicalPath,
        pull: &PullRequest,
        caller: &Caller,
    ) -> Result<Option<Arc<DelegatedProxy>>, Error> {
        let missing = |why| Err(refused(path, ErrorKind::NotAuthorized, why));
        let delegated = caller.entity().and_then(|entity| entity.delegated_proxy.clone());
        let has_expired = |proxy: &DelegatedProxy| proxy.has_expired(SystemTime::now());
        match (self.credentials, delegated) {
            (DelegatedCredentials::Unused, _) => Ok(None),
            (_, Some(proxy)) if !has_expired(&proxy) => Ok(Some(proxy)),
            // A client that relies on credentials registers no grant at the source.
            (DelegatedCredentials::Optional, _) if pull.by_credentials.is_none() => Ok(None),
            (_, Some(_)) => missing("the delegated credentials for tpc have expired"),
            (_, None) => missing("no delegated credentials for tpc"),
        }
    }
}
