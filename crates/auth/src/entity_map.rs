//! [`EntityMap`]: users and groups of clients of any protocol, by a file of rules (`sec.entitymap`).
//!
//! A rule is a line of conditions and a result: `protocol=gsi name="/O=Grid/CN=Ann*" -> user=ann`. The
//! first rule whose conditions all hold counts. A malformed line makes the whole file unusable,
//! because without it a later rule could match.

mod rule;

use crate::access::Principal;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner, read_trusted};
use crate::{Entity, FileRefresh};
use rule::{EntityRule, RuleResult};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of rules.
const RULES_MAX: usize = 10_000;
/// Maximum number of rules that are reported because they never apply.
const HIDDEN_RULES_MAX: usize = 20;
/// Number of rules with which later ones are compared for that.
const EARLIER_COMPARED_MAX: usize = 100;
/// Time between two reads of the file.
const REFRESH_INTERVAL: Duration = Duration::from_secs(600);

/// The demands on a file.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "map clients to users",
    bytes_max: FILE_BYTES_MAX,
};

/// A client that has authenticated.
#[derive(Clone, Copy, Debug)]
pub struct MappedClient<'a> {
    /// Its identity by the protocol.
    pub entity: &'a Entity,
    /// The protocol by which it has authenticated. For an identity that a proxy server forwards it is that
    /// of the original client.
    pub protocol: &'a str,
    /// Name of its host, or its address as text if the name is unknown.
    pub host: &'a str,
    /// Address of its host, if known.
    pub address: Option<IpAddr>,
}

/// The outcome of the rules for a client.
#[derive(Debug)]
pub struct MapOutcome {
    /// The line of the rule that counts; `None` if no rule matches.
    pub line: Option<u32>,
    /// The identity, or the reason of a refusal.
    pub entity: Result<Entity, String>,
}

/// A file of rules, which can be read again.
#[derive(Debug)]
pub struct EntityMap {
    path: PathBuf,
    /// Clients that no rule matches are refused.
    refuses_others: bool,
    rules: RwLock<Arc<Vec<EntityRule>>>,
    /// The reason why the file as it is now is not in force.
    failure: Mutex<Option<String>>,
}

impl EntityMap {
    /// Reads a file. `refuses_others` refuses clients that no rule matches. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, others could have written it, or a line is malformed.
    pub fn open(path: &Path, refuses_others: bool) -> Result<Self, String> {
        let rules = RwLock::new(Arc::new(read(path)?));
        Ok(Self { path: path.to_owned(), refuses_others, rules, failure: Mutex::default() })
    }

    /// Reads the file again. The earlier rules stay in force after an error. Blocks.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn refresh(&self) -> Result<(), String> {
        let read = read(&self.path);
        let failure = read.as_ref().err().cloned();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read?);
        Ok(())
    }

    /// Returns the refresh of the file at its interval.
    #[must_use]
    pub fn periodic_refresh(self: &Arc<Self>) -> FileRefresh {
        let map = self.clone();
        FileRefresh::new(REFRESH_INTERVAL, move || map.refresh())
    }

    /// Reports whether the name of a host decides about a rule.
    #[must_use]
    pub fn needs_host_name(&self) -> bool {
        self.rules().iter().any(EntityRule::needs_host_name)
    }

    /// Returns the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Describes the rules in force.
    #[must_use]
    pub fn state(&self) -> String {
        let state = format!("sec.entitymap: {} rules of {}", self.rules().len(), self.path.display());
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(failure) => format!("{state}, as read earlier; {failure}"),
            None => state,
        }
    }

    /// Applies the rules to a client. The name of a client that logged in with a token stays, because the
    /// issuer of the token decides about it.
    #[must_use]
    pub fn apply(&self, client: MappedClient<'_>) -> MapOutcome {
        let (entity, file) = (client.entity, self.path.display());
        let who = || {
            let name = entity.name.as_deref().unwrap_or("a client without a name");
            format!("{} ({}) at {}", base::shown(name.as_bytes()), client.protocol, client.host)
        };
        let rules = self.rules();
        let principal = Principal::of(entity);
        let Some(columns) = principal.columns() else {
            let what = format!("{file}: the numbers of organizations, roles and groups of {} differ", who());
            return MapOutcome { line: None, entity: Err(what) };
        };
        let columns: Vec<_> = columns.collect();
        let Some(rule) = rules.iter().find(|rule| rule.matches(client, &columns)) else {
            let entity = match self.refuses_others {
                true => Err(format!("{file}: no rule matches {}", who())),
                false => Ok(entity.clone()),
            };
            return MapOutcome { line: None, entity };
        };
        if rule.is_uncertain_for(client) {
            let what =
                format!("{file}:{}: the host of {} has no name, so the rule may hold", rule.line(), who());
            return MapOutcome { line: Some(rule.line()), entity: Err(what) };
        }
        // An identity that a proxy server forwards has no token here that could name it, whatever its protocol was.
        let has_name_of_token = entity.verified_bearer().is_some();
        let entity = match rule.result() {
            RuleResult::Refuse => Err(format!("{file}:{}: the rule refuses {}", rule.line(), who())),
            RuleResult::Keep => Ok(entity.clone().mapped(rule.line(), None)),
            RuleResult::Names(_) if has_name_of_token => Ok(entity.clone().mapped(rule.line(), None)),
            RuleResult::Names(names) => Ok(entity.clone().mapped(rule.line(), Some(names.clone()))),
        };
        MapOutcome { line: Some(rule.line()), entity }
    }

    /// Returns warnings about rules that never apply: those behind a rule that matches all of their
    /// clients, and those of protocols for which `is_used` is false. `are_names_known` is false if names of
    /// hosts are not looked up.
    #[must_use]
    pub fn warnings(&self, is_used: impl Fn(&str) -> bool, are_names_known: bool) -> Vec<String> {
        let (rules, file) = (self.rules(), self.path.display());
        let warning = |(index, rule): (usize, &EntityRule)| {
            let unused = rule.protocol().filter(|protocol| !is_used(protocol));
            let reason = match (unused, rule.needs_host_name() && !are_names_known) {
                (Some(protocol), _) => format!("no client can log in by {protocol} here"),
                (None, true) => "names of hosts are not looked up (xrd.network nodnr)".to_owned(),
                (None, false) => {
                    let before = rules.iter().take(index.min(EARLIER_COMPARED_MAX));
                    let line = before.into_iter().find(|earlier| earlier.covers(rule))?.line();
                    format!("the rule in line {line} holds wherever it does; move it before that rule")
                }
            };
            Some(format!("{file}:{}: the rule never applies, because {reason}", rule.line()))
        };
        rules.iter().enumerate().filter_map(warning).take(HIDDEN_RULES_MAX).collect()
    }

    fn rules(&self) -> Arc<Vec<EntityRule>> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(path: &Path) -> Result<Vec<EntityRule>, String> {
    let (text, _) = read_trusted(path, &TRUST).map_err(|error| error.text_of(path))?;
    let shown = path.display();
    let text = std::str::from_utf8(&text).map_err(|_| format!("{shown} is not UTF-8"))?;
    parse(text).map_err(|(line, what)| format!("{shown}:{line}: {what}"))
}

/// Parses a file. An error has its line.
fn parse(text: &str) -> Result<Vec<EntityRule>, (u32, String)> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if rules.len() >= RULES_MAX {
            return Err((number, format!("more than {RULES_MAX} rules")));
        }
        rules.push(EntityRule::parse(number, line).map_err(|what| (number, what))?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests;
