//! `scalla auth token`: issues a token of the issuer that `scalla auth init token` has made.

use super::init::{ISSUERS, SIGNING_KEY};
use super::macaroon::lifetime;
use crate::local_path::absolute;
use crate::printer::out;
use crate::usage_error::UsageError;
use anyhow::{Context, anyhow, bail};
use auth::SystemRng;
use auth::access::AuthdbCheck;
use auth::tokens::{IssuerFile, NewToken, SigningKey, TOKEN_BYTES_MAX};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Issue a token by the key of `scalla auth init token`, and print it.
///
/// A client logs in with it as the user whom it names, and has the rights of the rules for that user
/// until it expires. Give it to the client in a file that BEARER_TOKEN_FILE names.
#[derive(clap::Args, Debug)]
pub(super) struct TokenCommand {
    /// Name of the user.
    user: String,
    /// Directory of the files that `scalla auth init token` has made.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Time until the expiry, such as PT1H30M, 90m or 12h.
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = lifetime)]
    validity: Duration,
    /// A right that the token has besides those of the rules, such as storage.read:/data; may be
    /// repeated.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl TokenCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let is_text = |text: &String| {
            !text.is_empty() && !text.contains(|letter: char| letter.is_control() || letter == ' ')
        };
        if let Some(wrong) = std::iter::once(&self.user).chain(&self.scope).find(|text| !is_text(text)) {
            return Err(
                UsageError(format!("'{wrong}' cannot stand in a token; it is empty or has blanks")).into()
            );
        }
        let directory = absolute(&self.dir)?;
        let issuers = directory.join(ISSUERS);
        let file = IssuerFile::load(&issuers, AuthdbCheck::ForOwner)
            .map_err(|error| anyhow!("{error}; make the files by scalla auth init token"))?;
        let key_file = directory.join(SIGNING_KEY);
        let key = SigningKey::open(&key_file).map_err(anyhow::Error::msg)?;
        let issuer = file.issuers.first().with_context(|| format!("{} has no issuer", issuers.display()))?;
        let audience = file.audiences.first().cloned();
        let audience = audience.with_context(|| format!("{} has no audience", issuers.display()))?;
        let token = NewToken {
            issuer: issuer.url.clone(),
            audience,
            subject: self.user,
            scope: self.scope.join(" "),
            lifetime: self.validity,
        };
        let issued = key.issue(&token, SystemTime::now(), &mut SystemRng).map_err(anyhow::Error::msg)?;
        if issued.len() > TOKEN_BYTES_MAX {
            bail!("the token would be longer than {TOKEN_BYTES_MAX} bytes; use fewer --scope");
        }
        if self.json {
            out().json(&json!({"token": issued, "expires_in": self.validity.as_secs()}));
        } else {
            out().line(format_args!("{issued}"));
        }
        Ok(ExitCode::SUCCESS)
    }
}
