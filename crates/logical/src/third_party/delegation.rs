//! The access of a copy to its source: the grant of its client, or credentials that the client has
//! delegated (`ofs.tpc fcreds`).

use super::request::{NO_KEY, PullRequest};
use super::settings::DelegatedCredentials;
use super::{Settings, refused};
use auth::gsi::DelegatedProxy;
use base::{Error, ErrorKind, LogicalPath};
use std::sync::Arc;
use std::time::SystemTime;
use vfs::Caller;

/// The access of a copy to its source.
pub(crate) struct SourceAccess {
    /// The server to contact: `host:port`.
    pub(super) source: String,
    /// Its connection must be encrypted.
    pub(super) encrypted: bool,
    /// The credentials of the login.
    pub(super) credentials: Option<Arc<DelegatedProxy>>,
    /// The key of the grant; `None` if the login alone gives access.
    pub(super) key: Option<String>,
}

impl SourceAccess {
    /// Returns the URL of a file at the source, for messages.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}/{path}", if self.encrypted { "roots" } else { "root" }, self.source)
    }
}

impl Settings {
    /// Returns the access of the copy of a client.
    ///
    /// # Errors
    /// The copy needs credentials, and the client has delegated none, or they have expired. Or it
    /// has neither credentials nor a key.
    pub(crate) fn source_access(
        &self,
        path: &LogicalPath,
        pull: &PullRequest,
        caller: &Caller,
    ) -> Result<SourceAccess, Error> {
        let credentials = self.credentials(path, pull, caller)?;
        // A client that relies on credentials registers no grant at the source, unless this server
        // uses none.
        if let (Some(source), Some(_)) = (&pull.by_credentials, &credentials) {
            return Ok(SourceAccess {
                source: source.clone(),
                encrypted: pull.encrypted,
                credentials,
                key: None,
            });
        }
        // Without this, the login of the server at the source would replace the grant.
        let Some(key) = pull.key.clone() else { return Err(refused(path, NO_KEY.0, NO_KEY.1)) };
        let (source, encrypted) = (pull.source.clone(), pull.encrypted);
        Ok(SourceAccess { source, encrypted, credentials, key: Some(key) })
    }

    /// Returns the credentials for a copy of a client.
    ///
    /// # Errors
    /// The copy needs credentials, and the client has delegated none, or they have expired.
    fn credentials(
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
