//! The files of a server whose clients log in with tokens of the site itself (`ztn`).

use super::tls::TlsPlaces;
use super::{InitFile, InitPlan, RULES, SETTINGS, rules_text};
use auth::SystemRng;
use auth::tokens::{NewToken, SigningKey};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Name of the file with the key that signs tokens.
pub(in crate::auth) const SIGNING_KEY: &str = "issuer.key";
/// Name of the file with the issuer of the tokens.
pub(in crate::auth) const ISSUERS: &str = "issuers.cfg";
const KEY_SET: &str = "issuer.jwks";

/// Time until the expiry of the first token.
const FIRST_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Returns the issuer, a first token of the administrator, the rules, and the configuration; and a
/// certificate unless there is one, because logins by tokens must be encrypted.
pub(super) fn plan(directory: &Path, admin: &str, hosts: &[String]) -> anyhow::Result<InitPlan> {
    let tls = TlsPlaces::of(directory);
    let [key_file, key_set, issuers, rules, settings] =
        [SIGNING_KEY, KEY_SET, ISSUERS, RULES, SETTINGS].map(|name| directory.join(name));
    let token_file = directory.join(format!("{admin}.token"));
    let host = hosts.first().map_or("localhost", String::as_str);
    let (issuer, audience) = (format!("https://{host}/issuer"), format!("https://{host}"));
    let (key, key_text) = SigningKey::create().map_err(anyhow::Error::msg)?;
    let first = NewToken {
        issuer: issuer.clone(),
        audience: audience.clone(),
        subject: admin.to_owned(),
        scope: String::new(),
        lifetime: FIRST_LIFETIME,
    };
    let token = key.issue(&first, SystemTime::now(), &mut SystemRng).map_err(anyhow::Error::msg)?;
    let has_certificate = tls.has_certificate();
    let mut files = if has_certificate { Vec::new() } else { tls.files(hosts)? };
    let issuers_text = format!(
        "# Made by scalla auth init.\n[Global]\naudience = {audience}\n\n\
         [Issuer site]\nissuer = {issuer}\nbase_path = /\nmap_subject = true\njwks_file = {}\n",
        key_set.display()
    );
    let settings_text = format!(
        "# Made by scalla auth init.\nxrootd.seclib default\nsec.protocol ztn\n{}ofs.authorize\n\
         ofs.authlib ++ libXrdAccSciTokens.so config={}\nacc.authdb {}\n",
        tls.settings_text(),
        issuers.display(),
        rules.display()
    );
    let shown = [&key_file, &issuers, &rules, &settings, &token_file].map(|path| path.display().to_string());
    let [shown_key, shown_issuers, shown_rules, shown_settings, shown_token] = &shown;
    let certificates = if has_certificate { String::new() } else { tls.description(hosts) };
    let report = format!(
        "Made:\n{certificates}  {shown_key}  the key that signs tokens; servers do not need it\n  \
         {shown_issuers}  the issuer, with the public key beside it\n  \
         {shown_rules}  rules: {admin} may do everything, others nothing\n  \
         {shown_settings}  configuration that uses them\n  \
         {shown_token}  a token of {admin} for 24 hours; keep it secret\n\n\
         Start a server with it, or copy its lines into the configuration of yours:\n    \
         scalla serve DIR --config {shown_settings}\n\n\
         As a client, {admin} needs copies of the token, with mode 0600, and of the authorities:\n    \
         BEARER_TOKEN_FILE=COPY X509_CERT_DIR=COPY scalla auth whoami {host}\n\n\
         A token for {admin} or another user:\n    \
         scalla auth token NAME --dir {}\n",
        directory.display()
    );
    let json = json!({
        "admin": admin, "key": shown_key, "issuers": shown_issuers, "authdb": shown_rules,
        "configuration": shown_settings, "token": shown_token,
        "authorities": tls.authorities.display().to_string(),
    });
    files.extend([
        InitFile::secret(key_file, key_text),
        InitFile::public(key_set, key.key_set()),
        InitFile::public(issuers, issuers_text),
        InitFile::public(rules, rules_text(admin)),
        InitFile::secret(token_file, Zeroizing::new(format!("{token}\n"))),
        InitFile::public(settings.clone(), settings_text),
    ]);
    Ok(InitPlan { files, settings, report, json })
}
