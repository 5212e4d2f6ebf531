//! Directives of TLS: `xrd.tls…` and `xrootd.tls…`.

use super::arguments::Arguments;
use super::draft::Draft;
use super::fault::DirectiveFault;
use super::shared::{option_without_effect, part_without_effect};
use crate::effective::{
    Effective, HANDSHAKE_TIME, TlsAuthorities, TlsCertificate, TlsOperations, TlsRevocation,
};
use crate::language::DirectiveToken;
use crate::report::{ConfigReport, ProblemKind};
use crate::setting::Origin;
use crate::values::{self, between, from};

/// Maximum time limit of a handshake, in seconds.
const HANDSHAKE_SECONDS_MAX: u64 = 255;

/// Minimum interval at which authorities are read again, in seconds.
const REFRESH_SECONDS_MIN: u64 = 60;

/// Maximum number of certificates between that of a client and an authority.
const DEPTH_MAX: u32 = 255;

/// The reason why an external check of revocation lists changes nothing.
const NO_PLUGIN: &str = "there is no external check; revocation lists count where they exist";

/// The reason why the log of refused certificates cannot be chosen.
const LOGGED_ALWAYS: &str = "refused certificates are always logged";

/// Applies `xrd.tls`.
pub(super) fn certificate(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut value = TlsCertificate {
        certificate: arguments.path("certificate")?.into(),
        key: None,
        handshake_time: HANDSHAKE_TIME,
        is_renewed: false,
    };
    if arguments.peek().is_some_and(|word| word.starts_with('/')) {
        value.key = Some(arguments.path("key")?.into());
    }
    while let Some(token) = arguments.next() {
        match token.text.as_str() {
            "detail" | "nodetail" => option_without_effect(arguments, token, draft),
            "hsto" => value.handshake_time = arguments.time("hsto", between(1, HANDSHAKE_SECONDS_MAX))?,
            _ => return Err(arguments.invalid(token, "option")),
        }
    }
    draft.effective.network.tls.set(Some(value), arguments.origin());
    Ok(())
}

/// Applies `xrd.tlsca`.
pub(super) fn authorities(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut value = TlsAuthorities::default();
    let mut allows_missing = false;
    let mut token = arguments.need("tlsca parameter")?;
    if token.text == "noverify" {
        draft.finish(arguments);
        draft.effective.network.tls_authorities.set(Some(value), arguments.origin());
        return Ok(());
    }
    loop {
        match token.text.as_str() {
            "certdir" => value.directory = Some(arguments.path("certdir")?.into()),
            "certfile" => value.file = Some(arguments.path("certfile")?.into()),
            "crlcheck" => {
                let kind = arguments.need("crlcheck value")?;
                value.revocation = match kind.text.as_str() {
                    "all" => TlsRevocation::All,
                    "last" => TlsRevocation::Last,
                    "external" => {
                        part_without_effect(arguments, token, NO_PLUGIN, draft);
                        TlsRevocation::Present
                    }
                    _ => return Err(arguments.invalid(kind, "crlcheck value")),
                };
            }
            "log" => {
                let kind = arguments.need("log value")?;
                if !matches!(kind.text.as_str(), "failure" | "off") {
                    return Err(arguments.invalid(kind, "log value"));
                }
                part_without_effect(arguments, token, LOGGED_ALWAYS, draft);
            }
            "refresh" => value.refresh = arguments.time("refresh", from(REFRESH_SECONDS_MIN))?,
            "verdepth" => {
                let depth = arguments.count("verdepth", 1, DEPTH_MAX)?;
                value.depth_max = usize::try_from(depth).unwrap_or(usize::MAX);
            }
            "proxies" => value.accepts_proxies = true,
            "noproxies" => value.accepts_proxies = false,
            "allow-missing-crl" => allows_missing = true,
            _ => return Err(arguments.invalid(token, "tlsca parameter")),
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    if allows_missing {
        value.revocation = TlsRevocation::Present;
    }
    if value.verifies_nothing() {
        let allowed = format!("allowed: {}", arguments.grammar);
        return Err(DirectiveFault::at(arguments.name, "neither certdir nor certfile specified", allowed));
    }
    draft.effective.network.tls_authorities.set(Some(value), arguments.origin());
    Ok(())
}

/// Applies `xrd.tlsciphers`.
pub(super) fn ciphers(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let list = arguments.need("ciphers")?.text.clone();
    draft.finish(arguments);
    draft.effective.network.tls_ciphers.set(Some(list), arguments.origin());
    Ok(())
}

/// Applies `xrootd.tls`. Lines add to each other. A line that begins with `capable` is about clients
/// that support TLS only.
pub(super) fn requirements(
    arguments: &mut Arguments<'_>,
    draft: &mut Draft<'_>,
) -> Result<(), DirectiveFault> {
    let mut value = *draft.effective.protocol.tls;
    let mut token = arguments.need("tls requirement")?;
    let is_capable = token.text == "capable";
    if is_capable {
        token = arguments.need("tls requirement")?;
    }
    loop {
        match is_capable {
            true => change(arguments, token, &mut [&mut value.capable])?,
            false => change(arguments, token, &mut [&mut value.all, &mut value.capable])?,
        }
        match arguments.next() {
            Some(next) => token = next,
            None => break,
        }
    }
    draft.effective.protocol.tls.set(value, arguments.origin());
    Ok(())
}

/// Applies a word: adds operations to the first set, or removes them from all sets.
fn change(
    arguments: &Arguments<'_>,
    token: &DirectiveToken,
    sets: &mut [&mut TlsOperations],
) -> Result<(), DirectiveFault> {
    let text = token.text.as_str();
    let (name, on) = text.strip_prefix('-').map_or((text, true), |name| (name, false));
    let (name, on) = if matches!(text, "none" | "off") { ("all", false) } else { (name, on) };
    if name != "all" && !TlsOperations::WORDS.contains(&name) {
        return Err(arguments.invalid(token, "tls requirement"));
    }
    let count = if on { 1 } else { sets.len() };
    for set in sets.iter_mut().take(count) {
        for (word, flag) in TlsOperations::WORDS.into_iter().zip(set.flags_mut()) {
            if name == "all" || name == word {
                *flag = on;
            }
        }
    }
    Ok(())
}

/// Applies `xrootd.tlsreuse`.
pub(super) fn reuse(arguments: &mut Arguments<'_>, draft: &mut Draft<'_>) -> Result<(), DirectiveFault> {
    let token = arguments.need("tlsreuse value")?;
    let on = match token.text.as_str() {
        "off" => false,
        "on" => true,
        _ => return Err(arguments.invalid(token, "tlsreuse value")),
    };
    if on && let Some(flush) = arguments.take("flush") {
        arguments.time("flush", values::from(0))?;
        option_without_effect(arguments, flush, draft);
    }
    draft.finish(arguments);
    draft.effective.protocol.tls_reuse.set(on, arguments.origin());
    Ok(())
}

/// Checks the directives of TLS against each other.
pub(crate) fn check_tls(effective: &Effective, report: &mut ConfigReport) {
    let (network, protocol) = (&effective.network, &effective.protocol);
    if network.tls.is_none() {
        let settings: [(&str, &Origin, bool); 2] = [
            ("xrootd.tls", &protocol.tls.origin, !protocol.tls.is_empty()),
            ("xrd.tlsciphers", &network.tls_ciphers.origin, network.tls_ciphers.is_some()),
        ];
        for (name, origin, is_set) in settings {
            if is_set {
                let what = format!("{name}: connections are not encrypted, because xrd.tls is missing");
                let allowed = "add xrd.tls with the certificate and key of this host";
                report.add_about(name, ProblemKind::Unprotected, origin.clone(), what, allowed);
            }
        }
    } else if network.tls_authorities.is_none() && !effective.has_certificate_of_http() {
        let what = "xrd.tls: the authorities that this host trusts are not specified";
        let allowed = "add xrd.tlsca certdir /etc/grid-security/certificates, or xrd.tlsca noverify";
        report.add_about("xrd.tls", ProblemKind::Unsupported, network.tls.origin.clone(), what, allowed);
    }
}
