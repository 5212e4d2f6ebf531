//! `scalla auth macaroon`: issues a macaroon.

use super::settings;
use crate::printer::out;
use crate::quantity::configured_time;
use crate::usage_error::UsageError;
use anyhow::Context;
use auth::SystemRng;
use auth::access::AuthdbCheck;
use auth::macaroons::{
    Activity, MacaroonRequest, MacaroonRequestError, MacaroonSecret, VALIDITY_FORM, validity,
};
use base::LogicalPath;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Issue a macaroon and print it.
///
/// Until it expires, the macaroon gives its rights to every bearer, at each server with the same secret
/// and site name. Give it to a client in BEARER_TOKEN, or behind a path as `?authz=MACAROON`.
#[derive(clap::Args, Debug)]
pub(super) struct MacaroonCommand {
    /// Configuration of a server, with its secret and site name.
    #[arg(long, value_name = "FILE", required_unless_present_all = ["secretkey", "sitename"])]
    config: Option<PathBuf>,
    /// File with the secret, as `macaroons.secretkey` names it.
    #[arg(long, value_name = "FILE")]
    secretkey: Option<PathBuf>,
    /// Site name, as `all.sitename` sets it.
    #[arg(long, value_name = "NAME")]
    sitename: Option<String>,
    /// Allowed activities, separated by commas: READ_METADATA, LIST, DOWNLOAD, UPLOAD, MANAGE, DELETE,
    /// UPDATE_METADATA.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = activity)]
    activity: Vec<Activity>,
    /// Path, as clients see it; the macaroon is for it and everything below.
    #[arg(long, value_name = "PATH")]
    path: String,
    /// Time until the expiry, such as PT1H30M, 90m or 12h.
    #[arg(long, value_name = "TIME", default_value = "PT1H", value_parser = lifetime)]
    validity: Duration,
    /// Name of the client, for the logs of the servers.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl MacaroonCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let path = LogicalPath::parse(self.path.as_bytes())
            .map_err(|_| UsageError(format!("'{}' is not an absolute path without '..'", self.path)))?;
        let effective =
            self.config.as_deref().map(|file| settings(file, None)).transpose()?.unwrap_or_default();
        let macaroons = &effective.authorization.macaroons;
        let longest = macaroons.lifetime_max.filter(|_| self.config.is_some());
        if let Some(longest) = longest.filter(|longest| self.validity > *longest) {
            let longest = longest.as_secs();
            return Err(
                UsageError(format!("macaroons.maxduration allows at most {longest} s of validity")).into()
            );
        }
        let secret = self.secretkey.as_ref().or(macaroons.secret.as_ref());
        let secret =
            secret.context("the configuration has no macaroons.secretkey; name the file with --secretkey")?;
        let site = self.sitename.as_deref().or(effective.macaroon_site());
        let site = site.context("the configuration has no all.sitename; name the site with --sitename")?;
        let secret = MacaroonSecret::load(secret, AuthdbCheck::ForOwner)?;
        let expires = SystemTime::now().checked_add(self.validity).context("the validity is too long")?;
        let request = MacaroonRequest { name: self.name, activities: self.activity, path, expires };
        let macaroon = request.issue(&secret, site, &mut SystemRng).map_err(explained)?;
        if self.json {
            out().json(&json!({"macaroon": macaroon, "expires_in": self.validity.as_secs()}));
        } else {
            out().line(format_args!("{macaroon}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn explained(error: MacaroonRequestError) -> anyhow::Error {
    let option = match error {
        MacaroonRequestError::Site => "--sitename",
        MacaroonRequestError::Name => "--name",
        MacaroonRequestError::NoActivity => "--activity",
        MacaroonRequestError::Expiry => "--validity",
        MacaroonRequestError::TooLong => "shorter --name and --path",
    };
    UsageError(format!("no macaroon is issued: {error}; change {option}")).into()
}

fn activity(name: &str) -> Result<Activity, String> {
    Activity::of_name(name).ok_or_else(|| {
        let known: Vec<&str> = Activity::ALL.iter().map(|(name, _)| *name).collect();
        format!("not an activity; allowed: {}", known.join(", "))
    })
}

/// Parses a validity: as requests for macaroons have it, or a number with a unit.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || format!("not a validity; allowed: {VALIDITY_FORM}, or a number with s, m, h or d");
    if text.starts_with('P') {
        return validity(text).ok_or_else(wrong);
    }
    // Otherwise a sign would be accepted.
    let time = if text.starts_with('+') { None } else { configured_time(text).ok() };
    time.filter(|time| !time.is_zero()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validity_has_a_unit_or_the_form_of_requests() {
        let seconds = |text: &str| lifetime(text).map(|time| time.as_secs()).ok();
        for (text, expected) in [
            ("PT1H30M", Some(5400)),
            ("90", Some(90)),
            ("90s", Some(90)),
            ("2m", Some(120)),
            ("12h", Some(43_200)),
            ("1d", Some(86_400)),
            ("P1D", None),
            ("0", None),
            ("-1", None),
            ("1w", None),
            ("", None),
            ("99999999999999999999d", None),
            ("18446744073709551615d", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        assert!(activity("READ").unwrap_err().contains("READ_METADATA, UPLOAD"));
    }
}
