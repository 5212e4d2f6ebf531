//! The files of a server with encryption: an authority of the site, and a certificate of the server.

use super::{InitFile, InitPlan};
use anyhow::Context;
use auth::tls::SiteAuthority;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const SETTINGS: &str = "tls.cfg";
/// The directory of authorities, as servers and clients read it.
const AUTHORITIES: &str = "certificates";

/// The places of certificates in a directory.
pub(super) struct TlsPlaces {
    authority: PathBuf,
    authority_key: PathBuf,
    host: PathBuf,
    host_key: PathBuf,
    pub(super) authorities: PathBuf,
}

impl TlsPlaces {
    pub(super) fn of(directory: &Path) -> Self {
        let [authority, authority_key, host, host_key, authorities] =
            ["ca.pem", "ca.key", "host.pem", "host.key", AUTHORITIES].map(|name| directory.join(name));
        Self { authority, authority_key, host, host_key, authorities }
    }

    /// Reports whether the server has a certificate there.
    pub(super) fn has_certificate(&self) -> bool {
        self.host.exists() && self.host_key.exists()
    }

    /// Returns the directives that use the certificate.
    pub(super) fn settings_text(&self) -> String {
        format!(
            "xrd.tls {} {}\nxrd.tlsca certdir {}\n",
            self.host.display(),
            self.host_key.display(),
            self.authorities.display()
        )
    }

    /// Returns the files of a certificate for these hosts, and those of its authority unless there is
    /// one.
    pub(super) fn files(&self, hosts: &[String]) -> anyhow::Result<Vec<InitFile>> {
        let now = SystemTime::now();
        let mut files = Vec::new();
        let authority = if self.authority.exists() && self.authority_key.exists() {
            SiteAuthority::open(&self.authority, &self.authority_key)?
        } else {
            let host = hosts.first().map_or("localhost", String::as_str);
            let (authority, text) = SiteAuthority::create(&format!("Authority of {host}"), now)?;
            let in_directory = self.authorities.join(format!("{}.0", authority.hash()));
            files.push(InitFile::public(in_directory, text.certificate.clone()));
            files.push(InitFile::public(self.authority.clone(), text.certificate));
            files.push(InitFile::secret(self.authority_key.clone(), text.key));
            authority
        };
        let issued = authority
            .issue(hosts, now)
            .with_context(|| format!("no certificate for {}; change --host", hosts.join(", ")))?;
        files.push(InitFile::public(self.host.clone(), issued.certificate));
        files.push(InitFile::secret(self.host_key.clone(), issued.key));
        Ok(files)
    }

    /// Describes the files.
    pub(super) fn description(&self, hosts: &[String]) -> String {
        format!(
            "  {}  the certificate of {}, for a year, with its key {}\n  \
             {}  the key of the authority; keep it elsewhere, it is only for further certificates\n  \
             {}  the authority, as servers and clients read it\n",
            self.host.display(),
            hosts.join(", "),
            self.host_key.display(),
            self.authority_key.display(),
            self.authorities.display(),
        )
    }
}

/// Returns the authority, the certificate, and the configuration.
pub(super) fn plan(directory: &Path, hosts: &[String]) -> anyhow::Result<InitPlan> {
    let places = TlsPlaces::of(directory);
    let settings = directory.join(SETTINGS);
    let mut files = places.files(hosts)?;
    // A new certificate of the same authority goes to the same place.
    if !settings.exists() {
        let text = format!("# Made by scalla auth init.\n{}", places.settings_text());
        files.push(InitFile::public(settings.clone(), text));
    }
    let shown = settings.display().to_string();
    let report = format!(
        "Made:\n{}  {shown}  configuration that uses them\n\n\
         Start a server with it, or copy its lines into the configuration of yours:\n    \
         scalla serve DIR --config {shown}\n\n\
         Clients need a copy of the directory of authorities:\n    \
         X509_CERT_DIR=COPY scalla ls roots://{}/\n\n\
         For a new certificate, remove {} and {}, and repeat the command.\n",
        places.description(hosts),
        hosts.first().map_or("HOST", String::as_str),
        places.host.display(),
        places.host_key.display(),
    );
    let json = json!({
        "certificate": places.host.display().to_string(),
        "key": places.host_key.display().to_string(),
        "authorities": places.authorities.display().to_string(),
        "authority_key": places.authority_key.display().to_string(),
        "configuration": shown,
    });
    Ok(InitPlan { files, settings, report, json })
}
