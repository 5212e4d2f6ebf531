//! [`VerifiedMacaroon`]: the rights that a verified macaroon gives its bearer.

use super::caveats::Caveat;
use super::fault::MacaroonFault;
use super::packets::Macaroon;
use crate::access::AccessOperation;
use crate::tokens::OperationSet;
use base::LogicalPath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A macaroon of this site whose signature and caveats are right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedMacaroon {
    site: Arc<str>,
    identifier: Box<str>,
    name: Option<Box<str>>,
    expires: SystemTime,
    /// The operations that all activity caveats allow.
    operations: OperationSet,
    /// The deepest path of the caveats; `None` if they lie in different directories, so that no path
    /// satisfies all of them.
    path: Option<LogicalPath>,
    /// All caveats with their text, for explanations.
    caveats: Vec<(Box<str>, Caveat)>,
}

/// The result of the verification of a credential.
#[derive(Clone, Debug)]
pub enum MacaroonVerdict {
    /// It is not a macaroon. It counts as no credential.
    NotRecognized(MacaroonFault),
    /// It is a macaroon of another site, which the next layer decides about.
    OtherSite,
    /// It is a macaroon of this site, but not valid. Nothing is allowed with it.
    Refused(MacaroonFault),
    /// It is valid.
    Valid(Arc<VerifiedMacaroon>),
}

impl VerifiedMacaroon {
    /// Checks the caveats of a macaroon whose signature is right. Each expiry must be at most
    /// `lifetime_max` from now: if only the first one counted, a holder could make a refused
    /// macaroon valid with another one.
    pub(super) fn new(
        site: Arc<str>,
        macaroon: &Macaroon,
        now: SystemTime,
        lifetime_max: Option<Duration>,
    ) -> Result<Self, MacaroonFault> {
        let latest = lifetime_max.and_then(|lifetime| now.checked_add(lifetime));
        let mut caveats = Vec::with_capacity(macaroon.caveats.len());
        let (mut name, mut expires, mut operations) = (None, None, None);
        let mut path: Option<Option<LogicalPath>> = None;
        for caveat in &macaroon.caveats {
            let parsed = Caveat::parse(caveat).map_err(|reason| MacaroonFault::caveat(caveat, reason))?;
            match &parsed {
                Caveat::Name(_) if name.is_some() => return Err(MacaroonFault::SecondName),
                Caveat::Name(found) => name = Some(found.clone()),
                Caveat::Activity(found) => {
                    operations = Some(operations.map_or(*found, |before: OperationSet| before.both(*found)));
                }
                Caveat::Path(found) => {
                    path = Some(match path {
                        None => Some(found.clone()),
                        Some(before) => before.and_then(|before| deeper(before, found)),
                    });
                }
                Caveat::Before(time) if *time <= now => return Err(MacaroonFault::Expired),
                Caveat::Before(time) if latest.is_some_and(|latest| *time > latest) => {
                    return Err(MacaroonFault::TooLong);
                }
                Caveat::Before(time) => {
                    expires = Some(expires.map_or(*time, |first: SystemTime| first.min(*time)))
                }
            }
            caveats.push((String::from_utf8_lossy(caveat).into(), parsed));
        }
        Ok(Self {
            site,
            identifier: String::from_utf8_lossy(&macaroon.identifier).into(),
            name: name.filter(|name| !name.is_empty()),
            expires: expires.ok_or(MacaroonFault::Missing("before"))?,
            operations: operations.ok_or(MacaroonFault::Missing("activity"))?,
            path: path.ok_or(MacaroonFault::Missing("path"))?,
            caveats,
        })
    }

    /// Returns the name of the site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Returns the identifier. It can contain any characters.
    #[must_use]
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Returns the name of the client for which it was issued. It can contain any characters. It is
    /// for logs only: the bearer has none of the rights of that client beyond the caveats.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the time of expiry.
    #[must_use]
    pub fn expires(&self) -> SystemTime {
        self.expires
    }

    /// Returns the texts of the caveats.
    pub fn caveats(&self) -> impl Iterator<Item = &str> {
        self.caveats.iter().map(|(text, _)| &**text)
    }

    /// Reports whether anything is allowed on any path.
    #[must_use]
    pub fn grants_any(&self) -> bool {
        self.path.is_some() && self.operations.contains(AccessOperation::Any)
    }

    /// Reports whether the caveats allow an operation on a path.
    #[must_use]
    pub fn allows(&self, operation: AccessOperation, path: &LogicalPath) -> bool {
        self.path.as_ref().is_some_and(|own| self.operations.allows_at(own, operation, path))
    }

    /// Returns the text of the first caveat that does not allow an operation on a path. `None` if
    /// none does so by itself: then it is allowed, or the paths have nothing in common.
    #[must_use]
    pub fn denying_caveat(&self, operation: AccessOperation, path: &LogicalPath) -> Option<&str> {
        let denies = |caveat: &Caveat| match caveat {
            Caveat::Activity(operations) => !operations.contains(operation),
            Caveat::Path(own) => {
                !self.operations.allows_at(own, operation, path) && self.operations.contains(operation)
            }
            Caveat::Name(_) | Caveat::Before(_) => false,
        };
        self.caveats.iter().find(|(_, caveat)| denies(caveat)).map(|(text, _)| &**text)
    }
}

/// Returns the path of two that is within the other one.
fn deeper(one: LogicalPath, other: &LogicalPath) -> Option<LogicalPath> {
    match (one.is_within(other), other.is_within(&one)) {
        (true, _) => Some(one),
        (false, true) => Some(other.clone()),
        (false, false) => None,
    }
}
