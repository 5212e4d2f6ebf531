//! Authorization of a running server: the rules that the configuration names, and their renewal.

use crate::adapters::SystemNetgroups;
use crate::error::StartError;
use auth::access::{
    AuditedDecisions, AuthdbEncoding, AuthdbSource, Authorizer, AuthorizerSettings, PathMatch, RulesRefresh,
};
use base::Supervisor;
use config::{AUTHDB_DEFAULTS, AuthorizationConfig, Effective, RulePathMatch};
use session::HostRules;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// The rules of a running server. Their renewal ends when this is dropped.
pub(crate) struct ServerAuthorization {
    authorizer: Arc<Authorizer>,
    started: Instant,
    _renewal: Sender<()>,
}

impl ServerAuthorization {
    /// Loads the rules, if the configuration enables authorization. Blocks.
    pub(crate) fn start(effective: &Effective, supervisor: &Supervisor) -> Result<Option<Self>, StartError> {
        let values = &effective.authorization;
        if !*values.enabled {
            return Ok(None);
        }
        let settings = AuthorizerSettings {
            source: authdb_source(values),
            audit: AuditedDecisions { grants: values.audit.grants, denials: values.audit.denials },
            netgroup_lifetime: *values.lookup_lifetime,
        };
        let authorizer = Authorizer::new(settings, Arc::new(SystemNetgroups), Duration::ZERO);
        let authorizer = Arc::new(authorizer.map_err(|error| StartError::Authorization(error.to_string()))?);
        let (renewal, ended) = mpsc::channel();
        let this = Self { authorizer: authorizer.clone(), started: Instant::now(), _renewal: renewal };
        let interval = (*values.refresh).min(*values.lookup_lifetime);
        let started = this.started;
        let renew = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                authorizer.refresh(started.elapsed(), false);
            }
        };
        supervisor
            .spawn("authdb", "the renewal of authorization rules", renew)
            .map_err(|source| StartError::System { what: "a thread", source })?;
        Ok(Some(this))
    }

    pub(crate) fn authorizer(&self) -> Arc<Authorizer> {
        self.authorizer.clone()
    }

    /// Returns what logins need to know of the rules.
    pub(crate) fn host_rules(&self) -> HostRules {
        let authorizer = self.authorizer.clone();
        HostRules(Arc::new(move || authorizer.needs_hosts()))
    }

    /// Returns a function that reads the rules again. It blocks.
    pub(crate) fn refresh(&self) -> impl FnOnce() -> RulesRefresh + Send + 'static {
        let (authorizer, started) = (self.authorizer.clone(), self.started);
        move || authorizer.refresh(started.elapsed(), true)
    }

    /// Describes the rules in force, and the reason why the present file is not in force, if it is
    /// not.
    pub(crate) fn state(&self) -> String {
        let database = self.authorizer.database();
        let state = format!("{} records of {}", database.len(), database.path().display());
        match self.authorizer.failure() {
            Some(failure) => format!("{state}, as read earlier; the present file is not in force: {failure}"),
            None => state,
        }
    }
}

/// Returns the rule file that a configuration names, and how it is read.
pub fn authdb_source(values: &AuthorizationConfig) -> AuthdbSource {
    let default = || {
        let existing = AUTHDB_DEFAULTS.iter().find(|path| Path::new(path).exists());
        PathBuf::from(existing.or(AUTHDB_DEFAULTS.first()).copied().unwrap_or_default())
    };
    AuthdbSource {
        path: values.authdb.value.clone().unwrap_or_else(default),
        encoding: AuthdbEncoding { space: values.encoding.space, decode_paths: values.encoding.decode_paths },
        matching: match *values.path_match {
            RulePathMatch::Component => PathMatch::Component,
            RulePathMatch::Prefix => PathMatch::Prefix,
        },
        netgroup_domain: values.netgroup_domain.value.clone(),
    }
}
