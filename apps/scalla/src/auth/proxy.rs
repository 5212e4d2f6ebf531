//! `scalla auth proxy`: makes, shows and removes proxies of grid certificates.

use crate::grid_proxy::{self, CERTIFICATE_VARIABLES, KEY_VARIABLES};
use crate::printer::out;
use anyhow::{Context, anyhow, bail};
use auth::grid::Fqan;
use auth::gsi::{GridCredential, PROXY_BITS_MIN, ProxyRequest};
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Make, show or remove a grid proxy: a certificate of some hours for logins by `gsi`.
#[derive(clap::Args, Debug)]
pub(super) struct ProxyCommand {
    #[command(subcommand)]
    action: ProxyAction,
    /// Proxy file; otherwise that of X509_USER_PROXY, or /tmp/x509up_uUID.
    #[arg(long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum ProxyAction {
    /// Make a proxy from a certificate and its key.
    Init(ProxyInit),
    /// Show the proxy.
    Info,
    /// Remove the proxy.
    Destroy,
}

#[derive(clap::Args, Debug)]
struct ProxyInit {
    /// Certificate; otherwise that of X509_USER_CERT, or ~/.globus/usercert.pem.
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Its key; otherwise that of X509_USER_KEY, or ~/.globus/userkey.pem.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Validity: hours and minutes.
    #[arg(long, value_name = "HH:MM", default_value = "12:00", value_parser = validity)]
    valid: Duration,
    /// Size of the key in bits.
    #[arg(long, value_name = "N", default_value_t = PROXY_BITS_MIN)]
    bits: usize,
    /// Number of proxies that may follow below it; -1 for any number.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    path_length: i64,
}

fn validity(text: &str) -> Result<Duration, String> {
    grid_proxy::validity(text).ok_or_else(|| "allowed: hh:mm, more than 0".to_owned())
}

impl ProxyCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = grid_proxy::proxy_file(self.file);
        match self.action {
            ProxyAction::Init(init) => show(&file, &init.make(&file)?, self.json),
            ProxyAction::Info => {
                let proxy = GridCredential::read_proxy(&file).map_err(|error| {
                    anyhow!("{error}; make a proxy by voms-proxy-init or scalla auth proxy init")
                })?;
                show(&file, &proxy, self.json);
            }
            ProxyAction::Destroy => {
                std::fs::remove_file(&file).map_err(|error| {
                    anyhow!("cannot remove {}: {}", file.display(), base::errno_text(&error))
                })?;
                if self.json {
                    out().json(&json!({"removed": file.display().to_string()}));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ProxyInit {
    fn make(self, file: &Path) -> anyhow::Result<GridCredential> {
        let certificate = grid_proxy::user_file(self.cert, CERTIFICATE_VARIABLES, "usercert.pem");
        let key = grid_proxy::user_file(self.key, KEY_VARIABLES, "userkey.pem");
        if self.bits < PROXY_BITS_MIN {
            bail!("a key has at least {PROXY_BITS_MIN} bits");
        }
        let path_length = match self.path_length {
            -1 => None,
            length => Some(u32::try_from(length).context("the path length is not -1 or more")?),
        };
        let request = ProxyRequest { bits: self.bits, valid: self.valid, path_length };
        grid_proxy::make(&certificate, &key, request, file).map_err(|error| anyhow!("{error}"))
    }
}

fn show(file: &Path, proxy: &GridCredential, as_json: bool) {
    if as_json {
        out().json(&json!({
            "file": file.display().to_string(),
            "type": grid_proxy::kind(proxy),
            "issuer": proxy.issuer(),
            "subject": proxy.subject(),
            "path_length": proxy.path_length(),
            "bits": proxy.bits(),
            "seconds_left": grid_proxy::left(proxy).as_secs(),
            "groups": grid_proxy::groups(proxy).iter().map(Fqan::as_str).collect::<Vec<_>>(),
        }));
        return;
    }
    for (label, value) in grid_proxy::description(file, proxy) {
        out().line(format_args!("{label:<12}: {value}"));
    }
    for group in grid_proxy::groups(proxy) {
        out().line(format_args!("{:<12}: {group}", "group"));
    }
}
