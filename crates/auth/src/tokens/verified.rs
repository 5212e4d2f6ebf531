//! [`VerifiedToken`]: the rights and the identity that a verified token gives its bearer.

use super::claims::{Claims, is_name};
use super::fault::TokenFault;
use super::issuer_file::Issuer;
use super::map_file::{MapFile, MappedBearer};
use super::map_paths::BearerRules;
use super::scopes::{GRANTS_MAX, ScopeGrant, below, restricted};
use crate::access::AccessOperation;
use base::LogicalPath;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A token whose signature, time and audience are right, with the settings of its issuer.
#[derive(Clone, PartialEq)]
pub struct VerifiedToken {
    issuer: Arc<Issuer>,
    subject: Box<str>,
    expires: SystemTime,
    grants: Vec<ScopeGrant>,
    groups: Vec<Box<str>>,
    /// The groups, separated by blanks.
    group_list: Box<str>,
    /// The value of the username claim, if the issuer has one and the value is a name.
    claimed_name: Option<Box<str>>,
    /// The map rules that can name the bearer.
    map_rules: BearerRules,
}

/// The result of the verification of a credential.
#[derive(Clone, Debug)]
pub enum TokenVerdict {
    /// It is not a token of a configured issuer. It counts as no credential.
    NotRecognized(TokenFault),
    /// It is a token of a configured issuer, but not valid. Nothing is allowed with it.
    Refused(TokenFault),
    /// It is valid.
    Valid(Arc<VerifiedToken>),
}

impl VerifiedToken {
    pub(super) fn new(issuer: Arc<Issuer>, claims: &Claims) -> Result<Self, TokenFault> {
        let mut grants = Vec::new();
        for scope in &claims.scopes {
            for path in restricted(&scope.path, &issuer.restricted_paths) {
                for path in issuer.base_paths.iter().filter_map(|base| below(base, &path)) {
                    if grants.len() == GRANTS_MAX {
                        return Err(TokenFault::TooMany("scopes"));
                    }
                    let (scope, operations) = (scope.text.clone(), scope.operations);
                    grants.push(ScopeGrant { scope, operations, path });
                }
            }
        }
        let groups = claims.groups(&issuer.groups_claim)?;
        let claimed_name = issuer.username_claim.as_deref().and_then(|claim| claims.name(claim));
        let subject = &*claims.subject;
        let bearer = MappedBearer { subject, name: claimed_name.or(Some(subject)), groups: &groups };
        let map_rules = issuer.map.as_ref().map(|map| map.rules_of(bearer)).unwrap_or_default();
        Ok(Self {
            subject: claims.subject.clone(),
            expires: claims.expires,
            grants,
            group_list: groups.join(" ").into(),
            groups,
            claimed_name: claimed_name.map(Into::into),
            map_rules,
            issuer,
        })
    }

    /// Returns the issuer.
    #[must_use]
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Returns the subject. It can contain any characters.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Returns the time of expiry.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// Returns what the scopes allow; empty if scopes of this issuer do not count.
    #[must_use]
    pub fn grants(&self) -> &[ScopeGrant] {
        if self.issuer.strategies.capability { &self.grants } else { &[] }
    }

    /// Returns the groups, separated by blanks; empty if groups of this issuer do not count.
    #[must_use]
    pub fn groups(&self) -> &str {
        if self.issuer.strategies.group { &self.group_list } else { "" }
    }

    /// Returns the scope that allows an operation on a path.
    #[must_use]
    pub fn grant(&self, operation: AccessOperation, path: &LogicalPath) -> Option<&ScopeGrant> {
        self.grants().iter().find(|grant| grant.allows(operation, path))
    }

    /// Returns the name of the bearer for the rules behind, and the number of the map rule that
    /// gives it.
    #[must_use]
    pub fn mapped_name(&self, path: &LogicalPath) -> Option<(&str, usize)> {
        let map = self.issuer.map.as_ref().filter(|_| self.issuer.strategies.mapping)?;
        self.name_of_map(map, path)
    }

    /// Reports whether map rules name paths below `directory`, so that the rules behind may apply to
    /// another name there.
    #[must_use]
    pub fn has_map_rule_below(&self, directory: &LogicalPath) -> bool {
        let map = self.issuer.map.as_ref().filter(|_| self.issuer.strategies.mapping);
        map.is_some_and(|map| self.map_rules.has_path_below(map, &self.issuer.base_paths, directory))
    }

    fn name_of_map<'a>(&'a self, map: &'a MapFile, path: &LogicalPath) -> Option<(&'a str, usize)> {
        map.name(&self.map_rules, &self.issuer.base_paths, path)
    }

    /// Returns the name of the bearer for an operation that a scope allows: of the map file, else of
    /// the claim that the issuer names, else the subject if it counts as a name, else that of the
    /// issuer.
    #[must_use]
    pub fn name(&self, path: &LogicalPath) -> Option<&str> {
        let mapped = self.issuer.map.as_ref().and_then(|map| self.name_of_map(map, path));
        mapped.map(|(name, _)| name).or(self.own_name()).or(self.issuer.default_user.as_deref())
    }

    /// Returns the name of the bearer for a login. The name for operations that a scope allows
    /// (`default_user`) is not part of it, because the rules would apply to that name without a scope.
    #[must_use]
    pub fn login_name(&self) -> Option<&str> {
        let map = self.issuer.map.as_ref().filter(|_| self.issuer.strategies.mapping);
        map.and_then(|map| map.login_name(&self.map_rules)).or_else(|| self.own_name_for_rules())
    }

    /// Returns the name for the rules of a client that logged in with this token: of the map file,
    /// else the name in the token.
    #[must_use]
    pub fn name_for_rules(&self, path: &LogicalPath) -> Option<&str> {
        self.mapped_name(path).map(|(name, _)| name).or_else(|| self.own_name_for_rules())
    }

    /// Returns the name in the token, for logins and rules. Only issuers whose strategies include
    /// `mapping` name clients.
    fn own_name_for_rules(&self) -> Option<&str> {
        self.own_name().filter(|_| self.issuer.strategies.mapping)
    }

    /// Returns the name in the token: the value of the claim that the issuer names, or the subject, if
    /// that counts as a name.
    fn own_name(&self) -> Option<&str> {
        let subject = || Some(&*self.subject).filter(|name| self.issuer.map_subject && is_name(name));
        self.claimed_name.as_deref().or_else(subject)
    }

    /// Returns an estimate of the memory that the token takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let grant =
            |grant: &ScopeGrant| size_of::<ScopeGrant>() + grant.scope.len() + grant.path.as_bytes().len();
        size_of::<Self>()
            + self.subject.len()
            + self.grants.iter().map(grant).sum::<usize>()
            + self.groups.iter().map(|group| size_of::<Box<str>>() + group.len()).sum::<usize>()
            + self.group_list.len()
            + self.claimed_name.as_ref().map_or(0, |name| name.len())
            + self.map_rules.bytes()
    }
}

/// Only the subject and the issuer, which identify the bearer.
impl fmt::Debug for VerifiedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifiedToken({:?} of {:?})", self.subject, self.issuer.url)
    }
}
