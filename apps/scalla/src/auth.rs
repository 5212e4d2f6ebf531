//! `scalla auth`: explains decisions of the credentials and rules of a configuration, shows identities,
//! issues macaroons and tokens, manages grid proxies, and makes the files of a protected server.

mod checked_login;
mod init;
mod login_explanation;
mod macaroon;
mod macaroon_explanation;
mod proxy;
mod token;
mod token_explanation;

use crate::evaluation::load_here;
use crate::exit_status;
use crate::files::{FileCommand, WhoamiCommand};
use crate::local_path::absolute;
use crate::printer::{err, out};
use crate::usage_error::UsageError;
use anyhow::Context;
use auth::access::{
    AccessClient, AccessDatabase, AccessExplanation, AccessOperation, AccessPolicy, AccessRequest,
    AuditedDecisions, AuthdbCheck, CredentialLayer, DecidingPair, LayerDecision, Principal, RecordKind,
    RequestIdentity, RequestToken, TokenOrigin,
};
use auth::gsi::GridCredential;
use auth::macaroons::{MacaroonPolicy, is_macaroon_text};
use auth::tokens::{TOKEN_BYTES_MAX, TokenPolicy, TokenPolicySource, claimed_issuer, is_token_text};
use base::LogicalPath;
use checked_login::CheckedLogin;
use clap::Subcommand;
use config::{AuthorizationConfig, Effective, Loaded};
use login_explanation::TokenLogin;
use serde_json::json;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;
use zeroize::Zeroizing;

/// Maximum size of a file with a proxy in bytes.
const PROXY_BYTES_MAX: u64 = 256 * 1024;

/// Authentication and authorization: protect a server, explain decisions, show identities.
#[derive(clap::Args, Debug)]
pub(crate) struct AuthCommand {
    #[command(subcommand)]
    command: AuthSubcommand,
}

#[derive(Subcommand, Debug)]
enum AuthSubcommand {
    Init(init::InitCommand),
    Check(CheckAccessOptions),
    Macaroon(macaroon::MacaroonCommand),
    Proxy(proxy::ProxyCommand),
    Token(token::TokenCommand),
    Whoami(WhoamiCommand),
}

/// Decide whether a user or the bearer of a token may perform an operation, and print what decides.
///
/// The exit status is 0 if the operation is allowed and 1 if it is denied.
#[derive(clap::Args, Debug)]
struct CheckAccessOptions {
    /// Name of the user, `*` for a client without a name, or a token or macaroon: itself, `-` for
    /// standard input, or `@FILE`. `@FILE` can also be a grid proxy.
    user: String,
    /// The proxy that `user` names.
    #[arg(skip)]
    proxy: Option<GridCredential>,
    /// Path, as clients see it.
    path: String,
    /// Operation: any, chmod, chown, create, delete, insert, lock, mkdir, read, readdir, rename,
    /// stat, update, stage or poll; for tokens and macaroons also excl_create and excl_insert.
    operation: String,
    /// Configuration file with the directives `ofs.authlib` and `acc.`.
    #[arg(long, value_name = "FILE", required_unless_present = "authdb")]
    config: Option<PathBuf>,
    /// Rule file to use instead of that of the configuration.
    #[arg(long, value_name = "FILE")]
    authdb: Option<PathBuf>,
    /// Instance name that `if named` in the configuration compares with.
    #[arg(long, value_name = "NAME", requires = "config")]
    instance: Option<String>,
    /// Host name of the client.
    #[arg(long, value_name = "NAME", default_value = "")]
    host: String,
    /// Groups of the client, separated by blanks.
    #[arg(long, value_name = "GROUPS", default_value = "")]
    groups: String,
    /// Virtual organizations of the client, separated by blanks.
    #[arg(long, value_name = "NAMES", default_value = "")]
    vo: String,
    /// Roles of the client, separated by blanks.
    #[arg(long, value_name = "ROLES", default_value = "")]
    roles: String,
    /// Protocol of the login, such as gsi: `sec.entitymap` and `sec.entityprogram` then name the user, as
    /// at a login.
    #[arg(long, value_name = "PROTOCOL", requires = "config")]
    protocol: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl AuthCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            AuthSubcommand::Init(init) => init.run(),
            AuthSubcommand::Check(check) => check.in_environment_of_server()?.with_token()?.run(),
            AuthSubcommand::Macaroon(macaroon) => macaroon.run(),
            AuthSubcommand::Proxy(proxy) => proxy.run(),
            AuthSubcommand::Token(token) => token.run(),
            AuthSubcommand::Whoami(whoami) => FileCommand::Whoami(whoami).start(),
        }
    }
}

/// Returns the settings of a configuration file.
fn settings(file: &Path, instance: Option<String>) -> anyhow::Result<Effective> {
    let Loaded { effective, report } = load_here(&absolute(file)?, instance);
    if !report.is_ok() {
        err().lines(&report);
        anyhow::bail!("the configuration has errors");
    }
    if !*effective.authorization.enabled {
        err().line(format_args!(
            "warning: the configuration does not have ofs.authorize, so a server with it allows everything"
        ));
    }
    Ok(effective)
}

/// A credential in a file.
enum GivenCredential {
    /// A token or macaroon.
    Token(String),
    Proxy(Box<GridCredential>),
}

/// Reads a token, a macaroon or a proxy from a file.
fn read_credential(from: &mut dyn Read, name: &str) -> anyhow::Result<GivenCredential> {
    let text = read_text(from, name, PROXY_BYTES_MAX)?;
    if text.contains("-----BEGIN CERTIFICATE-----") {
        let proxy = GridCredential::parse(&text);
        let proxy = proxy.map_err(|error| anyhow::anyhow!("{name} has no usable proxy: {error}"))?;
        return Ok(GivenCredential::Proxy(Box::new(proxy)));
    }
    read_token(&mut text.as_bytes(), name).map(GivenCredential::Token)
}

/// Reads a text of at most this number of bytes.
fn read_text(from: &mut dyn Read, name: &str, bytes_max: u64) -> anyhow::Result<Zeroizing<String>> {
    let mut text = Vec::new();
    let read = from.take(bytes_max + 1).read_to_end(&mut text);
    read.map_err(|error| anyhow::anyhow!("cannot read {name}: {}", base::errno_text(&error)))?;
    Ok(Zeroizing::new(String::from_utf8(text).unwrap_or_default()))
}

/// Reads a token from a file, or from standard input.
fn read_token(from: &mut dyn Read, name: &str) -> anyhow::Result<String> {
    // White space around the token, and the words in front of it, do not count.
    let limit = u64::try_from(TOKEN_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(4096);
    let text = read_text(from, name, limit)?;
    let token = without_scheme(text.trim()).trim_start();
    if !is_credential(token) {
        anyhow::bail!("{name} contains no token; put one JSON Web Token or macaroon there, and nothing else");
    }
    Ok(token.to_owned())
}

/// Reports whether a text is a token or a macaroon, and not the name of a user.
fn is_credential(text: &str) -> bool {
    is_token_text(text.as_bytes()) || is_macaroon_text(text.as_bytes())
}

/// Returns a token without the words of an HTTP header in front of it.
fn without_scheme(text: &str) -> &str {
    let text = text.strip_prefix("Authorization:").map_or(text, str::trim_start);
    ["Bearer ", "Bearer%20"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text)
}

impl CheckAccessOptions {
    /// Applies `setenv` of the configuration. This may execute the program again, so nothing is read from
    /// standard input before it.
    fn in_environment_of_server(self) -> anyhow::Result<Self> {
        if let Some(file) = &self.config {
            let Loaded { effective, .. } = load_here(&absolute(file)?, self.instance.clone());
            server::apply_environment(&effective.environment)?;
        }
        Ok(self)
    }

    /// Returns the options with the token that they name. Other users of the machine can see a token
    /// among the arguments of a command.
    fn with_token(mut self) -> anyhow::Result<Self> {
        if self.user == "-" {
            self.user = read_token(&mut std::io::stdin().lock(), "standard input")?;
        } else if let Some(file) = self.user.strip_prefix('@') {
            let opened = std::fs::File::open(file);
            let opened = opened
                .map_err(|error| anyhow::anyhow!("cannot open {file}: {}", base::errno_text(&error)))?;
            match read_credential(&mut &opened, file)? {
                GivenCredential::Token(token) => self.user = token,
                GivenCredential::Proxy(proxy) => self.proxy = Some(*proxy),
            }
        } else if is_credential(without_scheme(&self.user)) {
            self.user = without_scheme(&self.user).to_owned();
        }
        Ok(self)
    }

    fn run(self) -> anyhow::Result<ExitCode> {
        let operation = AccessOperation::of_name(&self.operation).ok_or_else(|| {
            let names: Vec<&str> = AccessOperation::ALL.iter().map(|known| known.name()).collect();
            UsageError(format!("no operation '{}'; allowed: {}", self.operation, names.join(" ")))
        })?;
        let path = LogicalPath::parse(self.path.as_bytes())
            .map_err(|_| UsageError(format!("'{}' is not an absolute path without '..'", self.path)))?;
        let mut effective = match &self.config {
            Some(file) => settings(file, self.instance.clone())?,
            None => Effective::default(),
        };
        if let Some(file) = &self.authdb {
            effective.authorization.authdb.value = Some(file.clone());
            effective.authorization.layers.value.rules = true;
        }
        let values = &effective.authorization;
        let policy = AccessPolicy::new(credentials(&effective)?, None, AuditedDecisions::default());
        if let Some(proxy) = &self.proxy {
            let login = CheckedLogin::of_proxy(&effective, proxy, &self.host)?;
            return self.decide_with_login(
                &login,
                "the owner of the proxy",
                &effective,
                &policy,
                (operation, &path),
            );
        }
        let trusted = server::trusted_servers(&effective).and_then(|trusted| trusted.file);
        let token = self.token(&policy, trusted.as_deref())?;
        if let Some(protocol) = self.protocol.as_deref() {
            if token.is_some() {
                return Err(UsageError("--protocol is for names of users, not for tokens".to_owned()).into());
            }
            let login = CheckedLogin::of_names(&effective, protocol, &self.principal(false))?;
            return self.decide_with_login(&login, &self.user, &effective, &policy, (operation, &path));
        }
        if token.is_none() && effective.security.entity_program.is_some() {
            err().line(format_args!("note: sec.entityprogram is not run for a name without --protocol"));
        }
        if token.is_none() && effective.security.entity_map.is_some() {
            err().line(format_args!("note: sec.entitymap is not applied to a name without --protocol"));
        }
        let client = AccessClient::Bearer(self.principal(token.is_some()), RequestIdentity::default());
        let decision = AccessDecision::of(values, policy.request(client, token.as_ref()), operation, &path)?;
        let is_allowed = decision.is_allowed;
        let login = match &token {
            Some(_) => {
                TokenLogin::of(&effective, &policy, (self.user.as_bytes(), &self.host), operation, &path)?
            }
            None => None,
        };
        let explained = ExplainedDecision { decision, token: token.as_ref(), login };
        if self.json {
            out().json(&explained.as_json(&path));
        } else {
            self.explain(&explained, operation, &path, &policy);
        }
        Ok(if is_allowed { ExitCode::SUCCESS } else { ExitCode::from(exit_status::FAILED) })
    }

    /// Decides about the client of a login.
    fn decide_with_login(
        &self,
        login: &CheckedLogin,
        who: &str,
        effective: &Effective,
        policy: &AccessPolicy,
        (operation, path): (AccessOperation, &LogicalPath),
    ) -> anyhow::Result<ExitCode> {
        let decision = login.decide(effective, policy, operation, path)?;
        let is_allowed = decision.as_ref().is_some_and(|decision| decision.is_allowed);
        let rules = decision.as_ref().and_then(|decision| decision.rules.as_ref());
        if self.json {
            let mut object = rules.map_or_else(|| json!({}), |(database, found)| as_json(database, found));
            object["allowed"] = is_allowed.into();
            object["login"] = login.as_json();
            out().json(&object);
        } else {
            let answer = if is_allowed { "allowed" } else { "denied" };
            let (operation_name, shown) = (operation.name(), &self.path);
            out().line(format_args!("{answer}: {who} {operation_name} {shown}"));
            for line in login.lines(operation) {
                out().line(format_args!("  {line}"));
            }
            if let Some((database, found)) = rules {
                explain_rules(database, operation, found);
            }
        }
        Ok(if is_allowed { ExitCode::SUCCESS } else { ExitCode::from(exit_status::FAILED) })
    }

    /// Verifies the token that is given instead of a user. The keys of its issuer are fetched from a server
    /// that the file `trusted` trusts.
    fn token(&self, policy: &AccessPolicy, trusted: Option<&Path>) -> anyhow::Result<Option<RequestToken>> {
        if !is_credential(&self.user) {
            return Ok(None);
        }
        if !policy.uses_credentials() {
            let what = "tokens do not count in this configuration; it needs ofs.authlib with \
                        libXrdAccSciTokens.so or libXrdMacaroons.so";
            return Err(UsageError(what.to_owned()).into());
        }
        let text = self.user.as_bytes();
        if let Some(tokens) = policy.tokens()
            && let Some(issuer) = claimed_issuer(text)
            && tokens.remote_issuers().contains(&issuer)
        {
            let (keys, _) = server::download_keys(&issuer, trusted)
                .map_err(|reason| anyhow::anyhow!("the keys of {issuer} cannot be fetched: {reason}"))?;
            tokens.set_keys(&issuer, Some(keys));
        }
        Ok(Some(policy.verify(text, TokenOrigin::Request, SystemTime::now())))
    }

    fn principal(&self, is_bearer: bool) -> Principal<'_> {
        Principal {
            protocol: "",
            name: (self.user != "*" && !is_bearer).then_some(self.user.as_str()),
            host: &self.host,
            organizations: &self.vo,
            roles: &self.roles,
            groups: &self.groups,
            ..Principal::default()
        }
    }

    /// Prints the decision and its reasons.
    fn explain(
        &self,
        explained: &ExplainedDecision<'_>,
        operation: AccessOperation,
        path: &LogicalPath,
        policy: &AccessPolicy,
    ) {
        let ExplainedDecision { decision, token, login } = explained;
        let AccessDecision { is_allowed, is_for_new, layer, rules } = decision;
        let answer = if *is_allowed { "allowed" } else { "denied" };
        // A token is a secret, and this output may go to a log.
        let who = if token.is_some() { "the bearer" } else { &self.user };
        let limit = if *is_for_new { ", unless the file exists" } else { "" };
        out().line(format_args!("{answer}: {who} {} {}{limit}", operation.name(), self.path));
        let mut lines = Vec::new();
        if let Some(macaroons) = policy.macaroons() {
            lines.extend(macaroon_explanation::lines(*token, *layer, (operation, path), macaroons));
        }
        if let Some(tokens) = policy.tokens() {
            lines.extend(token_explanation::lines(*token, *layer, path, tokens.path()));
        }
        for line in lines {
            out().line(format_args!("  {line}"));
        }
        match rules {
            Some((database, found)) => explain_rules(database, operation, found),
            None if matches!(layer, LayerDecision::Rules(_)) => {
                out().line(format_args!("  ofs.authlib names no rules behind the tokens, so it is denied"));
            }
            None => {}
        }
        if let Some(line) = login.as_ref().and_then(|login| login.difference(*is_allowed)) {
            out().line(format_args!("  {line}"));
        }
    }
}

/// A decision about an operation.
struct AccessDecision<'a> {
    is_allowed: bool,
    /// It is allowed for a file that does not exist.
    is_for_new: bool,
    layer: LayerDecision<'a>,
    /// The rules and their explanation, if they decide.
    rules: Option<(AccessDatabase, AccessExplanation)>,
}

impl<'a> AccessDecision<'a> {
    /// Decides as a server with this configuration.
    fn of(
        values: &AuthorizationConfig,
        request: AccessRequest<'a>,
        operation: AccessOperation,
        path: &LogicalPath,
    ) -> anyhow::Result<Self> {
        let layer = request.layer(operation, path);
        let (is_allowed, rules) = match layer {
            LayerDecision::Rules(_) if !values.layers.rules => (false, None),
            LayerDecision::Rules(client) => {
                let database = database(values)?;
                let found = database.explain(&client.principal(), operation, path);
                (found.is_allowed, Some((database, found)))
            }
            decision => (decision.allows_by_credential(), None),
        };
        // A server then creates the file, unless it exists.
        let exclusive = request.layer(AccessOperation::ExclusiveCreate, path);
        let is_granted = match exclusive {
            LayerDecision::Scope(..) => true,
            LayerDecision::Macaroon { is_allowed, .. } => is_allowed,
            _ => false,
        };
        if operation == AccessOperation::Create && !is_allowed && is_granted {
            return Ok(Self { is_allowed: true, is_for_new: true, layer: exclusive, rules: None });
        }
        Ok(Self { is_allowed, is_for_new: false, layer, rules })
    }
}

/// A decision with its reasons.
struct ExplainedDecision<'a> {
    decision: AccessDecision<'a>,
    /// The results for the token, if one is given.
    token: Option<&'a RequestToken>,
    /// The decision after a login with the token, if the configuration has such logins.
    login: Option<TokenLogin>,
}

impl ExplainedDecision<'_> {
    fn as_json(&self, path: &LogicalPath) -> serde_json::Value {
        let mut object = match &self.decision.rules {
            Some((database, found)) => as_json(database, found),
            None => json!({"allowed": self.decision.is_allowed}),
        };
        let token = token_explanation::as_json(self.token, self.decision.layer, path);
        if let (Some(object), serde_json::Value::Object(token)) = (object.as_object_mut(), token) {
            object.extend(token);
            object.insert("macaroon".to_owned(), macaroon_explanation::as_json(self.token));
            let login = self.login.as_ref().map_or(serde_json::Value::Null, TokenLogin::as_json);
            object.insert("login".to_owned(), login);
        }
        object
    }
}

fn database(values: &AuthorizationConfig) -> anyhow::Result<AccessDatabase> {
    AccessDatabase::load(&server::authdb_source(values), AuthdbCheck::ForOwner, &server::SystemNetgroups)
        .context("the authorization rules cannot be used")
}

/// Loads the layers of credentials of a configuration.
fn credentials(effective: &Effective) -> anyhow::Result<Vec<CredentialLayer>> {
    let layers = effective.authorization.layers.credentials.iter();
    let loaded = layers.map(|layer| match layer {
        config::CredentialLayer::Macaroons => macaroons(effective).map(CredentialLayer::Macaroons),
        config::CredentialLayer::Tokens(file) => tokens(file).map(CredentialLayer::Tokens),
    });
    loaded.collect()
}

fn macaroons(effective: &Effective) -> anyhow::Result<Arc<MacaroonPolicy>> {
    let settings = server::macaroon_settings(effective, AuthdbCheck::ForOwner).map_err(anyhow::Error::msg)?;
    Ok(Arc::new(MacaroonPolicy::load(settings).context("macaroons cannot be verified")?))
}

fn tokens(file: &Path) -> anyhow::Result<Arc<TokenPolicy>> {
    let source = TokenPolicySource { path: file.to_owned(), check: AuthdbCheck::ForOwner };
    Ok(Arc::new(TokenPolicy::load(source).context("the token issuers cannot be used")?))
}

/// Prints the rules that decide.
fn explain_rules(database: &AccessDatabase, operation: AccessOperation, found: &AccessExplanation) {
    if found.is_inconsistent {
        out().line(format_args!(
            "  The numbers of organizations, roles and groups differ, so nothing is granted."
        ));
        return;
    }
    let needs = match operation.needs() {
        None => "which no rule can grant".to_owned(),
        Some(needs) if operation == AccessOperation::Any && needs.is_empty() => "any privilege".to_owned(),
        Some(needs) if needs.to_string().is_empty() => "the privilege a".to_owned(),
        Some(needs) => format!("privileges {needs}"),
    };
    let held = if found.privileges.is_empty() { "none".to_owned() } else { found.privileges.to_string() };
    out().line(format_args!("  needs {needs}; has {held}"));
    for pair in &found.pairs {
        let file = database.path().display();
        out().line(format_args!("  {file}:{}: {}", pair.path_at, describe(pair)));
    }
    if found.pairs.is_empty() {
        out().line(format_args!("  no rule in {} applies", database.path().display()));
    }
}

/// Describes a rule: `u bob (line 5) grants rw, denies d`.
fn describe(pair: &DecidingPair) -> String {
    let mut effects = Vec::new();
    if !pair.positive.is_empty() {
        effects.push(format!("grants {}", pair.positive));
    }
    if !pair.negative.is_empty() {
        effects.push(format!("denies {}", pair.negative));
    }
    if effects.is_empty() {
        effects.push("grants nothing: its path ends within a name, or it has no privileges".to_owned());
    }
    let alone = if pair.kind == RecordKind::Exclusive { ", and decides alone" } else { "" };
    let (letter, line) = (pair.kind.letter(), pair.record_at.line);
    format!("{letter} {} (line {line}) {}{alone}", pair.id, effects.join(", "))
}

fn as_json(database: &AccessDatabase, found: &AccessExplanation) -> serde_json::Value {
    let pairs = found.pairs.iter().map(|pair| {
        json!({
            "record": format!("{} {}", pair.kind.letter(), pair.id),
            "record_line": pair.record_at.line,
            "line": pair.path_at.line,
            "column": pair.path_at.column,
            "grants": pair.positive.to_string(),
            "denies": pair.negative.to_string(),
        })
    });
    json!({
        "allowed": found.is_allowed,
        "privileges": found.privileges.to_string(),
        "consistent": !found.is_inconsistent,
        "file": database.path().display().to_string(),
        "rules": pairs.collect::<Vec<_>>(),
    })
}
