//! Authorization of a running server: the macaroons, tokens and rules that the configuration names,
//! and their renewal.

use crate::adapters::SystemNetgroups;
use crate::error::StartError;
use crate::issuer_keys::IssuerKeys;
use crate::login;
use crate::tls;
use auth::access::{
    AccessPolicy, AuditedDecisions, AuthdbCheck, AuthdbEncoding, AuthdbSource, Authorizer,
    AuthorizerSettings, CredentialLayer, PathMatch, RulesRefresh,
};
use auth::macaroons::{MacaroonPolicy, MacaroonSettings, SecretRefresh};
use auth::tokens::{IssuersRefresh, OnMissing, TokenPolicy, TokenPolicySource};
use base::Supervisor;
use config::{AUTHDB_DEFAULTS, AuthorizationConfig, Effective, MissingMacaroon, RulePathMatch};
use session::HostRules;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Interval at which the server looks for changed files of token issuers.
const ISSUERS_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which the server reads the secret of macaroons.
const SECRET_INTERVAL: Duration = Duration::from_secs(60);

/// The directory for keys of token issuers, below the administrative path.
const ISSUER_KEYS: &str = ".issuer-keys";

/// The policy of a running server. The renewal of its files ends when this is dropped.
pub(crate) struct ServerAuthorization {
    policy: Arc<AccessPolicy>,
    started: Instant,
    _renewals: Vec<Sender<()>>,
    _keys: Option<IssuerKeys>,
}

/// The result of reading the files of the policy again.
#[derive(Default)]
pub(crate) struct PolicyRefresh {
    /// `None` without rules, and if they could not be read in time.
    pub(crate) rules: Option<RulesRefresh>,
    /// `None` without tokens, and if they could not be read in time.
    pub(crate) issuers: Option<IssuersRefresh>,
    /// `None` without macaroons, and if their secret could not be read in time.
    pub(crate) macaroons: Option<SecretRefresh>,
}

/// The files of the policy, loaded. Nothing renews them yet.
pub(crate) struct LoadedAuthorization {
    policy: Arc<AccessPolicy>,
    loaded: Instant,
}

impl LoadedAuthorization {
    /// Loads the files of all layers, if the configuration enables authorization. Blocks.
    pub(crate) fn load(effective: &Effective) -> Result<Option<Self>, StartError> {
        let values = &effective.authorization;
        if !*values.enabled {
            return Ok(None);
        }
        let audit = AuditedDecisions { grants: values.audit.grants, denials: values.audit.denials };
        let credentials = values.layers.credentials.iter().map(|layer| match layer {
            config::CredentialLayer::Macaroons => macaroons(effective).map(CredentialLayer::Macaroons),
            config::CredentialLayer::Tokens(file) => tokens(file).map(CredentialLayer::Tokens),
        });
        let credentials = credentials.collect::<Result<_, _>>()?;
        let loaded = Instant::now();
        let rules = values.layers.rules.then(|| rules(values, audit)).transpose()?;
        Ok(Some(Self { policy: Arc::new(AccessPolicy::new(credentials, rules, audit)), loaded }))
    }

    pub(crate) fn policy(&self) -> &AccessPolicy {
        &self.policy
    }
}

impl ServerAuthorization {
    /// Starts the renewal of the loaded files.
    pub(crate) fn start(
        loaded: LoadedAuthorization,
        effective: &Effective,
        supervisor: &Supervisor,
    ) -> Result<Self, StartError> {
        let values = &effective.authorization;
        let LoadedAuthorization { policy, loaded: started } = loaded;
        let (mut renewals, mut keys) = (Vec::new(), None);
        if let Some(rules) = policy.rules().cloned() {
            let interval = (*values.refresh).min(*values.lookup_lifetime);
            let refresh = move || drop(rules.refresh(started.elapsed(), false));
            renewals.push(renew(
                supervisor,
                ("authdb", "the renewal of authorization rules"),
                interval,
                refresh,
            )?);
        }
        if let Some(tokens) = policy.tokens().cloned() {
            let directory = effective.admin_directory().join(ISSUER_KEYS);
            let trusted = tls::trusted_servers(effective).and_then(|trusted| trusted.file);
            keys = Some(IssuerKeys::start(tokens.clone(), &directory, trusted, supervisor)?);
            let mut logged = String::new();
            let refresh = move || report(&tokens.refresh(false), &tokens, &mut logged);
            let thread = ("token-issuers", "the renewal of token issuers");
            renewals.push(renew(supervisor, thread, ISSUERS_INTERVAL, refresh)?);
        }
        if let Some(macaroons) = policy.macaroons().cloned() {
            let mut logged = String::new();
            let refresh = move || report_secret(&macaroons.refresh(), &macaroons, &mut logged);
            let thread = ("macaroon-secret", "the renewal of the secret of macaroons");
            renewals.push(renew(supervisor, thread, SECRET_INTERVAL, refresh)?);
        }
        Ok(Self { policy, started, _renewals: renewals, _keys: keys })
    }

    pub(crate) fn policy(&self) -> Arc<AccessPolicy> {
        self.policy.clone()
    }

    /// Returns what logins need to know of the rules.
    pub(crate) fn host_rules(&self) -> HostRules {
        let policy = self.policy.clone();
        HostRules(Arc::new(move || policy.rules().is_some_and(|rules| rules.needs_hosts())))
    }

    /// Returns a function that reads the rules again; `None` without rules. It blocks.
    pub(crate) fn rules_refresh(&self) -> Option<impl FnOnce() -> RulesRefresh + Send + 'static> {
        let (rules, started) = (self.policy.rules()?.clone(), self.started);
        Some(move || rules.refresh(started.elapsed(), true))
    }

    /// Returns a function that reads the token issuers again; `None` without tokens. It blocks.
    pub(crate) fn issuers_refresh(&self) -> Option<impl FnOnce() -> IssuersRefresh + Send + 'static> {
        let tokens = self.policy.tokens()?.clone();
        Some(move || tokens.refresh(true))
    }

    /// Returns a function that reads the secret of macaroons again; `None` without macaroons. It
    /// blocks.
    pub(crate) fn secret_refresh(&self) -> Option<impl FnOnce() -> SecretRefresh + Send + 'static> {
        let macaroons = self.policy.macaroons()?.clone();
        Some(move || macaroons.refresh())
    }

    /// Describes the files in force, and the reasons why present files are not in force, if they are
    /// not.
    pub(crate) fn state(&self) -> String {
        let macaroons = self.policy.macaroons().map(|macaroons| macaroons.state());
        let tokens = self.policy.tokens().map(|tokens| tokens.state());
        let rules = self.policy.rules().map(|rules| rules_state(rules));
        [macaroons, tokens, rules].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

fn rules_state(rules: &Authorizer) -> String {
    let database = rules.database();
    let state = format!("{} records of {}", database.len(), database.path().display());
    match rules.failure() {
        Some(failure) => format!("{state}, as read earlier; the present file is not in force: {failure}"),
        None => state,
    }
}

fn rules(values: &AuthorizationConfig, audit: AuditedDecisions) -> Result<Arc<Authorizer>, StartError> {
    let settings = AuthorizerSettings {
        source: authdb_source(values),
        audit,
        netgroup_lifetime: *values.lookup_lifetime,
    };
    let rules = Authorizer::new(settings, Arc::new(SystemNetgroups), Duration::ZERO);
    Ok(Arc::new(rules.map_err(|error| StartError::Authorization(error.to_string()))?))
}

fn tokens(path: &Path) -> Result<Arc<TokenPolicy>, StartError> {
    let source = TokenPolicySource { path: path.to_owned(), check: AuthdbCheck::ForServer };
    let tokens = TokenPolicy::load(source).map_err(|error| StartError::TokenIssuers(error.to_string()))?;
    tracing::info!("{}", tokens.state());
    // Requests contain tokens, which are valid elsewhere too.
    login::keep_out_of_core_dumps("bearer tokens");
    Ok(Arc::new(tokens))
}

fn macaroons(effective: &Effective) -> Result<Arc<MacaroonPolicy>, StartError> {
    let settings = macaroon_settings(effective, AuthdbCheck::ForServer).map_err(StartError::Macaroons)?;
    // The macaroons of requests are secret, too.
    login::keep_out_of_core_dumps("the secret of macaroons");
    let macaroons =
        MacaroonPolicy::load(settings).map_err(|error| StartError::Macaroons(error.to_string()))?;
    tracing::info!("{}", macaroons.state());
    Ok(Arc::new(macaroons))
}

/// Returns the settings of macaroons of a configuration. `check` determines the permitted
/// owners of the secret.
///
/// # Errors
/// The configuration names no secret or no site.
pub fn macaroon_settings(effective: &Effective, check: AuthdbCheck) -> Result<MacaroonSettings, String> {
    let values = &effective.authorization.macaroons;
    let missing = |what: &str| format!("the configuration has no {what}; add it");
    Ok(MacaroonSettings {
        secret: values.secret.value.clone().ok_or_else(|| missing("macaroons.secretkey"))?,
        check,
        site: effective.macaroon_site().ok_or_else(|| missing("all.sitename"))?.to_owned(),
        lifetime_max: *values.lifetime_max,
        on_missing: match *values.on_missing {
            MissingMacaroon::PassThrough => OnMissing::PassThrough,
            MissingMacaroon::Allow => OnMissing::Allow,
            MissingMacaroon::Deny => OnMissing::Deny,
        },
    })
}

/// Logs the result of a renewal of the secret of macaroons. `logged` is the last error, which is not
/// repeated each minute.
fn report_secret(refreshed: &SecretRefresh, macaroons: &MacaroonPolicy, logged: &mut String) {
    match refreshed {
        SecretRefresh::Unchanged => logged.clear(),
        SecretRefresh::Replaced => {
            logged.clear();
            tracing::info!("the secret has changed: {}", macaroons.state());
        }
        SecretRefresh::Kept(error) => {
            let text = error.to_string();
            if *logged != text {
                tracing::error!(
                    "the secret of macaroons stays as it was, because the file is not usable: {text}"
                );
                *logged = text;
            }
        }
    }
}

/// Logs the result of a renewal of token issuers. `logged` is the last error, which is not repeated
/// each minute.
fn report(refreshed: &IssuersRefresh, tokens: &TokenPolicy, logged: &mut String) {
    match refreshed {
        IssuersRefresh::Unchanged if tokens.failure().is_none() => logged.clear(),
        IssuersRefresh::Unchanged => {}
        IssuersRefresh::Replaced(_) => {
            logged.clear();
            tracing::info!("{}", tokens.state());
        }
        IssuersRefresh::Kept(error) => {
            let text = error.to_string();
            if *logged != text {
                tracing::error!(
                    "the token issuers stay as they were, because the file is not usable: {text}"
                );
                *logged = text;
            }
        }
    }
}

/// Starts a thread that calls `refresh` at an interval, until the returned sender is dropped.
fn renew(
    supervisor: &Supervisor,
    (thread, what): (&str, &'static str),
    interval: Duration,
    mut refresh: impl FnMut() + Send + 'static,
) -> Result<Sender<()>, StartError> {
    let (renewal, ended) = mpsc::channel();
    let run = move || {
        while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            refresh();
        }
    };
    let spawned = supervisor.spawn(thread, what, run);
    spawned.map_err(|source| StartError::System { what: "a thread", source })?;
    Ok(renewal)
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
