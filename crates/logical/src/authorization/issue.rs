//! Macaroons for clients: the rights of the client on a path, for a time, in a macaroon of the site.

use super::check::AccessCheck;
use auth::SystemRng;
use auth::access::{MacaroonDenial, PassedOnRights};
use auth::macaroons::{Activity, MacaroonPolicy, MacaroonRequest, MacaroonRequestError};
use base::{Error, ErrorKind, LogicalPath};
use std::fmt;
use std::time::{Duration, SystemTime};
use vfs::{IssuedMacaroon, MacaroonOrder};

/// The validity of a macaroon if neither the request nor the configuration limits it.
const VALIDITY_DEFAULT: Duration = Duration::from_secs(86_400);

/// Issues the macaroon of a request. With `names_users`, accounts decide about files, and no macaroon is issued.
pub(super) fn issue(
    check: &AccessCheck<'_>,
    path: &LogicalPath,
    order: &MacaroonOrder,
    names_users: bool,
) -> Result<IssuedMacaroon, Error> {
    let unsupported = || Error::new(ErrorKind::Unsupported, "this server issues no macaroons");
    let site = check.policy.macaroons().ok_or_else(unsupported)?;
    let rights = check.request().passed_on(path).map_err(|denial| refused(check, path, denial))?;
    if names_users {
        tracing::debug!("{}: no macaroon is issued, because accounts of users decide", check.caller.identity);
        return Err(Error::new(ErrorKind::NotAuthorized, ACCOUNTS));
    }
    let PassedOnRights { name, mut activities, expires } = rights;
    if let Some(wanted) = &order.activities {
        activities.retain(|activity| wanted.contains(activity));
    }
    let now = SystemTime::now();
    let left = expires.duration_since(now).unwrap_or_default();
    // The time in a macaroon is in seconds.
    let validity = Duration::from_secs(validity(order.validity, site).min(left).as_secs());
    if activities.is_empty() || validity.is_zero() {
        log_refusal(check, path, &"nothing can be passed on");
        return Err(Error::new(ErrorKind::NotAuthorized, NOTHING));
    }
    let too_long = || Error::new(ErrorKind::ArgInvalid, MacaroonRequestError::Expiry.to_string());
    let expires = now.checked_add(validity).ok_or_else(too_long)?;
    let path = path.without_slash();
    let request = MacaroonRequest { name, activities, path, expires };
    let issued = site.issue(&request, &mut SystemRng);
    let issued = issued.map_err(|error| Error::new(ErrorKind::ArgInvalid, error.to_string()))?;
    let MacaroonRequest { name, activities, path, .. } = request;
    tracing::info!(
        "{}: macaroon {} is issued to {}: {} below {} for {} s",
        check.caller.identity,
        issued.identifier,
        base::shown(name.as_deref().unwrap_or("*").as_bytes()),
        Activity::list(&activities),
        path.shown(),
        validity.as_secs(),
    );
    Ok(IssuedMacaroon { text: issued.text, activities, validity })
}

/// The text for a client that has nothing to pass on.
const NOTHING: &str = "none of these activities can be passed on: the client must have all of their operations on the \
                       path and on everything below";

/// The text for a server that acts for users.
const ACCOUNTS: &str =
    "this server acts for the accounts of users (multi-user), and a macaroon names no account";

/// Returns the validity: that of the request, within the limit of the configuration.
fn validity(wanted: Option<Duration>, site: &MacaroonPolicy) -> Duration {
    match (wanted, site.lifetime_max()) {
        (Some(wanted), Some(longest)) => wanted.min(longest),
        (Some(wanted), None) => wanted,
        (None, longest) => longest.unwrap_or(VALIDITY_DEFAULT),
    }
}

fn refused(check: &AccessCheck<'_>, path: &LogicalPath, denial: MacaroonDenial) -> Error {
    log_refusal(check, path, &denial);
    let kind = match denial {
        MacaroonDenial::NoCredential => ErrorKind::AuthFailed,
        MacaroonDenial::Macaroon | MacaroonDenial::InvalidToken(_) => ErrorKind::NotAuthorized,
    };
    Error::new(kind, denial.to_string())
}

/// Logs a refusal as other denials: everybody can cause many, with long paths.
fn log_refusal(check: &AccessCheck<'_>, path: &LogicalPath, why: &dyn fmt::Display) {
    let (who, path) = (&check.caller.identity, path.shown());
    match check.policy.audits_denials() {
        true => tracing::info!("{who}: no macaroon is issued for {path}: {why}"),
        false => tracing::debug!("{who}: no macaroon is issued for {path}: {why}"),
    }
}
