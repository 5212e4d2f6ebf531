//! `--tls CERT KEY` and `--tls self`: the certificate of a server on its command line.

use crate::environment::state_directory;
use crate::local_path::absolute;
use anyhow::{Context, bail};
use auth::tls::{CertificateFiles, SelfSigned};
use config::{HANDSHAKE_TIME, TlsCertificate};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The word for a certificate that the server signs itself.
const SELF: &str = "self";

/// The certificate of a server.
#[derive(clap::Args, Debug)]
pub(crate) struct TlsOption {
    /// Encrypt connections with this certificate and key (PEM). `self` makes a self-signed
    /// certificate for trying out.
    #[arg(long, num_args = 1..=2, value_names = ["CERT|self", "KEY"])]
    tls: Vec<PathBuf>,
}

impl TlsOption {
    /// Returns the certificate; `None` if the option was not given.
    pub(crate) fn certificate(self) -> anyhow::Result<Option<TlsCertificate>> {
        let mut paths = self.tls.into_iter();
        let (Some(first), key) = (paths.next(), paths.next()) else { return Ok(None) };
        let is_renewed = first.as_os_str() == SELF;
        let files = if is_renewed {
            if let Some(path) = key {
                bail!("--tls self has no key: put {} before --tls", path.display());
            }
            self_signed().context("cannot make a self-signed certificate")?
        } else {
            let key = key.map(|key| absolute(&key)).transpose()?;
            CertificateFiles { certificate: absolute(&first)?, key }
        };
        let CertificateFiles { certificate, key } = files;
        Ok(Some(TlsCertificate { certificate, key, handshake_time: HANDSHAKE_TIME, is_renewed }))
    }
}

/// Makes a self-signed certificate for the names of this host, or returns that of an earlier start.
fn self_signed() -> anyhow::Result<CertificateFiles> {
    let directory = state_directory().context("this user has no home directory")?.join("tls");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let host = server::host_name();
    let mut names = vec!["localhost".to_owned()];
    if !host.is_empty() && host != "localhost" {
        names.insert(0, host);
    }
    Ok(SelfSigned::open(&directory, &names)?.files)
}
